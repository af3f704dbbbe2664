"""The named rules that raw pairs go through: each repairs a pair or drops it, is counted, and can be switched off.

`Cleaner.judge` applies those of RULES that see one pair alone, in their order; the last two, which compare pairs with
one another, are corpus.py's. Validation and test parts that the data brings are repaired but not thinned out (empty
sides apart), since published scores are compared on them whole.
"""

import functools
import math
import re
import statistics
import unicodedata
from collections.abc import Iterable
from typing import Any, NamedTuple

from config import RuleName
from text.readers import Pair

RULES: dict[RuleName, str] = {
    "unicode": "changed: to NFC, Windows-1252 control characters, special and double spaces, invisible characters",
    "empty-side": "dropped: nothing on one side",
    "identical-sides": "dropped: both sides the same",
    "headings": "dropped: book headers, and chapter labels on both sides",
    "swapped-columns": "changed: each side in the other's language, put right",
    "wrong-language": "dropped: both sides in one language",
    "length-ratio": "dropped: one side far longer than the other, against the corpus's median",
    "duplicates": "dropped: a pair that came before",
    "held-out": "dropped: a side that validation or test holds too, whatever its case, accents and punctuation",
}
SAMPLE = 10_000  # pairs that the median of the length ratio is taken from
RATIO = 3.0  # how often the median ratio a pair may have, either way
SLACK = 15  # characters added to both lengths, since short texts vary more
# In nats of log-likelihood: how much likelier the swapped reading of a pair must be, and how much likelier one language
# on each of two sides that should be in two.
SWAP_MARGIN = 2.0
LANGUAGE_MARGIN = 10.0

_CP1252 = {code: bytes([code]).decode("cp1252", "ignore") for code in range(0x80, 0xA0)}
# Zero-width space, word joiner, BOM, soft hyphen. Not the joiners: Persian, Hindi and emoji are spelled with them.
_INVISIBLE = dict.fromkeys([0x200B, 0x2060, 0xFEFF, 0x00AD], "")
_REPAIRS = _CP1252 | _INVISIBLE

_TAG = re.compile(r"<[^<>]*>")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_HEADER = re.compile(r"^source\s*:\s*(https?:|www\.|project gutenberg)|project gutenberg ?audiobook", re.IGNORECASE)
_LABEL = re.compile(
    r"^\W*((chapter|chapitre|capitolo|capítulo|kapitel|hoofdstuk|part|partie|parte|teil|book|livre|libro|buch)\W+)?"
    r"([ivxlcdm]+|\d+|premi[eè]re?|first|prim[ao]|erste[rs]?)\W*$",
    re.IGNORECASE,
)


class Verdict(NamedTuple):
    """What became of one raw pair."""

    pair: Pair
    """As it is after repairs"""
    repaired: bool
    """The unicode rule changed it"""
    swapped: bool
    """Its sides were in each other's place"""
    dropped: RuleName | None
    """The rule that drops it from training; a part that the data brings drops empty sides only"""


def repair(text: str) -> str:
    """The unicode rule on one side."""
    return " ".join(unicodedata.normalize("NFC", text.translate(_REPAIRS)).split())


class Cleaner:
    """The rules of one language pair."""

    def __init__(self, source: str, target: str, skip: Iterable[RuleName] = (), sample: Iterable[Pair] = ()) -> None:
        """sample: raw pairs of the corpus, from which the length ratio takes its median."""
        self.active = {name for name in RULES if name not in set(skip)}
        self.notes: list[str] = []
        self.source, self.target = source, target
        self.identifier: Any = None
        if self.active & {"swapped-columns", "wrong-language"}:
            self.identifier = _identifier(source, target)
            if self.identifier is None:
                self.active -= {"swapped-columns", "wrong-language"}
                self.notes.append(f"swapped-columns and wrong-language left out: {source} or {target} not identifiable")
        self.median = 0.0
        ratios = [_log_ratio(verdict.pair) for verdict in map(self.judge, sample) if verdict.dropped != "empty-side"]
        self.median = statistics.median(ratios) if ratios else 0.0

    def judge(self, raw: Pair) -> Verdict:
        """One raw pair through the rules."""
        active, pair, swapped, is_one_language = self.active, raw, False, False
        if "unicode" in active:
            pair = (repair(raw[0]), repair(raw[1]))
        repaired = pair != raw
        if "empty-side" in active and not (pair[0].strip() and pair[1].strip()):
            return Verdict(pair, repaired, False, "empty-side")
        if self.identifier:
            source, target = self._leaning(pair[0]), self._leaning(pair[1])
            is_one_language = min(source, target) > LANGUAGE_MARGIN or max(source, target) < -LANGUAGE_MARGIN
            # Both sides together: of short texts, one often says nothing and the other enough.
            swapped = "swapped-columns" in active and source - target < -SWAP_MARGIN and not is_one_language
            pair = pair[::-1] if swapped else pair
        dropped: RuleName | None = None
        if "identical-sides" in active and pair[0] == pair[1]:
            dropped = "identical-sides"
        elif "headings" in active and is_heading(pair):
            dropped = "headings"
        elif "wrong-language" in active and is_one_language:
            dropped = "wrong-language"
        elif "length-ratio" in active and abs(_log_ratio(pair) - self.median) > math.log(RATIO):
            dropped = "length-ratio"
        return Verdict(pair, repaired, swapped, dropped)

    def _leaning(self, text: str) -> float:
        """log P(text | source language) − log P(text | target language), of its words.

        Punctuation says more of the printer than of the language: whole books have — where others have “.
        """
        likelihood = dict(self.identifier.rank(" ".join(_WORD.findall(_TAG.sub(" ", text)))))
        return float(likelihood[self.source] - likelihood[self.target])


@functools.cache
def _identifier(source: str, target: str) -> Any:
    """py3langid's, that tells these two languages apart; None where it does not know them both."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # noqa: PLC0415 - a fifth of a second

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    if not {source, target} <= set(identifier.labels):
        return None
    identifier.set_languages([source, target])
    return identifier


def is_heading(pair: Pair) -> bool:
    """Whether the pair is a header of Project Gutenberg's, or a chapter label on both sides, in whatever form."""
    return any(_HEADER.search(side) for side in pair) or all(_LABEL.match(_TAG.sub("", side)) for side in pair)


def _log_ratio(pair: Pair) -> float:
    return math.log((len(pair[0]) + SLACK) / (len(pair[1]) + SLACK))
