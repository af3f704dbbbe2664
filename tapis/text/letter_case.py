"""Sentences typed in capitals, or With A Capital Before Each Word, as the same sentences in usual letter case.

A model that was trained on few such sentences translates them badly. `usual_case` rewrites them. The vocabulary decides
which words keep a capital, such as names and German nouns: the usual spelling of a word has the fewest tokens.
"""

import re
from collections.abc import Callable, Collection

from tapis.text.language_codes import base_language
from tapis.text.tokenizer import Tokenizer
from tapis.text.words import LETTERS, MARKS

_WORD = re.compile(rf"{LETTERS}(?:['’]{LETTERS})*")
MIN_CAPITALS = 6  # letters of a text in capitals that is more than an abbreviation or two
MIN_WORDS = 4  # of a text in title case
MIN_SHARE = 0.8  # of its words that begin with a capital; of the letters of a text in capitals that are capitals
_ORDINALS = {ord(sign): None for sign in "ªº"}  # small letters to Python, though texts in capitals have them: Nº 3
_MARKS = dict.fromkeys(map(ord, MARKS))  # after which Python begins another word
_DOTTED_AND_DOTLESS = ("tr", "az")  # languages with two letters i and ı, in capitals İ and I


def is_in_capitals(text: str) -> bool:
    """Return whether a text has capitals and no small letters, enough of them, and few letters of other scripts."""
    letters = [sign for sign in text.translate(_ORDINALS) if sign.isalpha()]
    n_capitals = sum(map(str.isupper, letters))
    return "".join(letters).isupper() and n_capitals >= max(MIN_CAPITALS, MIN_SHARE * len(letters))


def is_in_title_case(text: str) -> bool:
    """Return whether a text has several words, and almost all begin with a capital."""
    if sum(map(str.isupper, text)) < MIN_SHARE * MIN_WORDS:
        return False
    words = _WORD.findall(text)
    return len(words) >= MIN_WORDS and sum(word[0].isupper() for word in words) >= MIN_SHARE * len(words)


def uppercase(text: str, language: str) -> str:
    """Return a text of a language in capitals."""
    if base_language(language) in _DOTTED_AND_DOTLESS:
        text = text.replace("i", "İ")
    return text.upper()


def lowercase(text: str, language: str) -> str:
    """Return a text of a language in small letters."""
    if base_language(language) in _DOTTED_AND_DOTLESS:
        text = text.replace("İ", "i").replace("I", "ı")
    return text.lower()


def usual_case(
    text: str, tokenizer: Tokenizer, language: str = "", kept: Callable[[str], Collection[int]] = lambda text: ()
) -> str:
    """Return the text in usual letter case; unchanged unless it is in capitals or in title case.

    The language is "" if it is unknown. kept returns the places of the characters whose words stay as they are.
    """
    if not (is_in_capitals(text) or is_in_title_case(text)):
        return text
    places = kept(text)
    all_words = list(_WORD.finditer(text))
    words = [word for word in all_words if word.start() not in places]
    lower = [lowercase(word.group(), language) for word in words]
    spellings = [[one, _capitalized(one, language), word.group()] for one, word in zip(lower, words, strict=True)]
    ids = iter(tokenizer.encode([spelling for of_word in spellings for spelling in of_word]))
    result, end = "", 0
    for word, of_word in zip(words, spellings, strict=True):
        # Of spellings that are one token, the one that was learned first is more frequent. A word of several tokens is
        # no usual one, perhaps a name: between equally many, it keeps its first capital.
        ranks = {}
        for spelling in of_word:
            one = next(ids)
            ranks[spelling] = len(one), one[0] if len(one) == 1 else not spelling.translate(_MARKS).istitle()
        best = min(ranks, key=lambda spelling: ranks[spelling])
        if word is all_words[0]:
            best = _capitalized(best, language)
        result += text[end : word.start()] + best
        end = word.end()
    return result + text[end:]


def _capitalized(word: str, language: str) -> str:
    return uppercase(word[0], language) + word[1:]
