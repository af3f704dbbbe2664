"""What makes a translation doubtful, without knowing the right one.

| doubt   | meaning                                                                                |
|---------|----------------------------------------------------------------------------------------|
| loop    | it repeated itself (tapis/text/loops.py), and was searched for again                         |
| short   | it is shorter than those of 99 in 100 training pairs are for such a source             |
| long    | it is longer (tapis/lengths.py)                                                     |
| numbers | it does not have the numbers and the signs of currency of its source                   |
| unsure  | the model finds it less probable than 98 in 100 of its translations of validation data |
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tapis.text.loops import loops
from tapis.text.mark_patterns import CURRENCIES, NUMBER, TELEPHONE
from tapis.translation import Doubt

if TYPE_CHECKING:
    from tapis.translator import Translator

# The share of a model's own translations of validation sentences that count as unsure: those whose tokens have the
# lowest mean log P. Their chrF is far below the average (docs/lab).
UNSURE_SHARE = 0.02
CONFIDENCE_SAMPLE = 500  # validation sentences from which the limit is learned

_NUMBER = re.compile(NUMBER)
_TELEPHONE = re.compile(TELEPHONE)
_THOUSANDS = re.compile(r"(?<=\d)[ \u00a0\u202f](?=\d{3}(?!\d))")  # a space between groups of digits


def doubts(translator: "Translator", sources: Sequence[str], translations: Sequence[str]) -> list[set[Doubt]]:
    """Return the doubts about translations of sentences, which are as the model saw them. An export is never unsure."""
    pairs = list(zip(sources, translations, strict=True))
    n_source = map(len, translator.source_ids(sources))
    n_translation = map(len, translator.tokenizer.encode(translations))
    result: list[set[Doubt]] = []
    for (source, translation), n, m in zip(pairs, n_source, n_translation, strict=True):
        deviation = translator.lengths.deviation(n, m)
        marks: dict[Doubt, bool] = {
            "loop": loops(source, translation),
            "short": deviation < -1,
            "long": deviation > 1,
            "numbers": numbers(source) != numbers(translation),
        }
        result.append({name for name, is_doubtful in marks.items() if is_doubtful})
    if translator.can_show_attention:
        for marks_of_pair, (log_p, n_tokens) in zip(result, translator.log_probabilities(pairs), strict=True):
            if log_p / n_tokens < translator.unsure_below:
                marks_of_pair.add("unsure")
    return result


def limit_of_unsure(log_probabilities: Sequence[tuple[float, int]]) -> float:
    """Return the mean log P of a token below which a translation is unsure, learned from some that the model made.

    log_probabilities has log P and the number of tokens of each, at least one.
    """
    means = [log_p / n_tokens for log_p, n_tokens in log_probabilities]
    return min(-1e-4, round(float(np.quantile(means, UNSURE_SHARE)), 4))


def numbers(text: str) -> Counter[str]:
    """Return the numbers of two digits or more in a text, by their digits, however a language writes these.

    A telephone number is one. Signs of currency count, too.
    """
    joined = _TELEPHONE.sub(lambda match: "".join(filter(str.isdecimal, match.group())), _THOUSANDS.sub("", text))
    found = Counter("".join(str(int(c)) for c in number if c.isdecimal()) for number in _NUMBER.findall(joined))
    return found + Counter(c for c in text if c in CURRENCIES)
