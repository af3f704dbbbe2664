"""What makes a translation doubtful, without knowing the right one.

| doubt    | meaning                                                                                |
|----------|----------------------------------------------------------------------------------------|
| loop     | it repeated itself (tapis/text/loops.py), and was searched for again                   |
| short    | it is shorter than those of 99 in 100 training pairs are for such a source             |
| long     | it is longer (tapis/lengths.py)                                                        |
| numbers  | it does not have the numbers and the signs of currency of its source                   |
| copied   | it has a word of its source that no target of the training has, in lower case          |
| invented | it has a word that neither its source nor a target of the training has                 |
| unsure   | the model finds it less probable than 98 in 100 of its translations of validation data |
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tapis.text.loops import loops
from tapis.text.mark_patterns import CURRENCIES, DASHES, NUMBER, TELEPHONE
from tapis.translation import Doubt

if TYPE_CHECKING:
    from tapis.translator import Translator

# The share of a model's own translations of validation sentences that count as unsure: those whose tokens have the
# lowest mean log P. Their chrF is far below the average (docs/lab).
UNSURE_SHARE = 0.02
CONFIDENCE_SAMPLE = 500  # validation sentences from which the limit is learned
# Of fewer, the limit is rough: chance moves the share that is below it by a factor of two or more (docs/lab).
FEW_FOR_CONFIDENCE = 200

# Letters of scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana and Chinese characters
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[^\W\d_{_UNSPACED}]+")
MOST_BYTES_OF_WORDS = 2**20  # beyond which the words of the training's targets are not kept

_DIGIT_OR_CURRENCY = re.compile(rf"[\d{CURRENCIES}]")
_NUMBER = re.compile(NUMBER)
_DASH = re.compile(f"[{DASHES}]")
_TELEPHONE = re.compile(TELEPHONE)


def doubts(translator: "Translator", sources: Sequence[str], translations: Sequence[str]) -> list[set[Doubt]]:
    """Return the doubts about translations of sentences, which are as the model saw them. An export is never unsure."""
    pairs = list(zip(sources, translations, strict=True))
    n_source = map(len, translator.source_ids(sources))
    n_translation = map(len, translator.tokenizer.encode(translations))
    known = translator.learned.known_words
    if known and translator.glossary:  # whose words a person has chosen
        known = known | translator.glossary.target_words
    result: list[set[Doubt]] = []
    for (source, translation), n, m in zip(pairs, n_source, n_translation, strict=True):
        deviation = translator.lengths.deviation(n, m)
        of_source = words(source)
        unknown = {word.lower() for word in words(translation)} - known if known else set()
        marks: dict[Doubt, bool] = {
            "loop": is_loop(translator, source, translation),
            "short": deviation < -1,
            "long": deviation > 1,
            "numbers": numbers(source) != numbers(translation),
            "copied": not unknown.isdisjoint(of_source),
            "invented": not unknown.issubset(word.lower() for word in of_source),
        }
        result.append({name for name, is_doubtful in marks.items() if is_doubtful})
    if translator.searcher.can_force:
        for marks_of_pair, (log_p, n_tokens) in zip(result, translator.log_probabilities(pairs), strict=True):
            if log_p / n_tokens < translator.unsure_below:
                marks_of_pair.add("unsure")
    return result


def is_loop(translator: "Translator", source: str, translation: str) -> bool:
    """Return whether a translation repeats itself, and neither its source nor a term of the glossary in it does so.

    The source is as the model reads it.
    """
    if not loops(source, translation):
        return False
    terms = translator.glossary.terms_in(source) if translator.glossary else []
    return all(loops(term.target, translation) for term in terms)


def limit_of_unsure(log_probabilities: Sequence[tuple[float, int]]) -> float:
    """Return the mean log P of a token below which a translation is unsure, learned from some that the model made.

    log_probabilities has log P and the number of tokens of each, at least one.
    """
    means = [log_p / n_tokens for log_p, n_tokens in log_probabilities]
    return min(-1e-4, round(float(np.quantile(means, UNSURE_SHARE)), 4))


def numbers(text: str) -> Counter[str]:
    """Return the numbers of two digits or more in a text, by their digits, however a language writes these.

    A telephone number is one, a range is two, and so may be a date. Signs of currency count, too, whatever their width.
    """
    if not _DIGIT_OR_CURRENCY.search(text):
        return Counter()
    joined = _TELEPHONE.sub(lambda match: "".join(filter(str.isdecimal, match.group())), text)
    parts = [list(filter(str.isdecimal, part)) for number in _NUMBER.findall(joined) for part in _DASH.split(number)]
    found = Counter("".join(str(int(c)) for c in digits) for digits in parts if len(digits) > 1)
    return found + Counter(unicodedata.normalize("NFKC", c) for c in text if c in CURRENCIES)


def words(text: str) -> list[str]:
    """Return the words of a text as they are written: its runs of letters, in scripts that separate words by spaces."""
    return _WORD.findall(text)


def words_of(texts: Iterable[str]) -> str:
    """Return the distinct words of texts for `Learned.target_words`; nothing if they are too many to keep."""
    known: set[str] = set()
    n_bytes = 0
    for text in texts:
        new = {word.lower() for word in words(text)} - known
        known |= new
        n_bytes += sum(len(word.encode()) + 1 for word in new)
        if n_bytes > MOST_BYTES_OF_WORDS:
            return ""
    return " ".join(sorted(known))
