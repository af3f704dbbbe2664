"""Sentences typed in capitals, or With A Capital Before Each Word, as the same sentences in usual letter case.

A model that saw few such sentences translates them badly. `usual_case` rewrites them for it. Which words have a capital
anyway, such as names or German nouns, is asked of the vocabulary: the usual spelling of a word has the fewest tokens.
"""

import re

from text.tokenizer import Tokenizer

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
MIN_CAPITALS = 6  # letters of a text in capitals that is more than an abbreviation or two
MIN_WORDS = 4  # of a text whose words all have a capital
SHORT = 3  # letters of a word that needs no capital in such a text: of, the


def is_in_capitals(text: str) -> bool:
    """Whether a text has capitals only, and enough of them."""
    return text.isupper() and sum(map(str.isalpha, text)) >= MIN_CAPITALS


def is_in_title_case(text: str) -> bool:
    """Whether a text has several words, and each but short ones begins with a capital."""
    words = _WORD.findall(text)
    long_words = [word for word in words if len(word) > SHORT]
    n_capitals = sum(word[0].isupper() for word in words)
    return len(words) >= MIN_WORDS <= n_capitals and all(word[0].isupper() for word in long_words)


def usual_case(text: str, tokenizer: Tokenizer) -> str:
    """The text in usual letter case; unchanged unless it is in capitals or in title case."""
    if not (is_in_capitals(text) or is_in_title_case(text)):
        return text
    words = list(_WORD.finditer(text))
    spellings = [[word.group().lower(), word.group().lower().capitalize(), word.group()] for word in words]
    ids = iter(tokenizer.encode([spelling for of_word in spellings for spelling in of_word]))
    result, end = "", 0
    for word, of_word in zip(words, spellings, strict=True):
        # Of spellings with equally many tokens, the one whose last token was learned first is more frequent.
        ranks = {spelling: (len(one), one[-1]) for spelling, one in zip(of_word, ids, strict=False)}
        best = min(ranks, key=lambda spelling: ranks[spelling])
        if not result:
            best = best[0].upper() + best[1:]
        result += text[end : word.start()] + best
        end = word.end()
    return result + text[end:]
