"""The named rules that raw pairs go through: each repairs a pair or drops it, is counted, and can be switched off.

`Cleaner` applies them in the order of RULES. Validation and test parts that the data brings are repaired but not
thinned out (empty sides apart), since published scores are compared on them whole.
"""

import math
import re
import statistics
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from config import RuleName
from readers import Pair

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


@dataclass
class Rule:
    """What one rule did: to how many pairs, and to which, for example."""

    name: RuleName
    count: int = 0
    examples: list[Pair] = field(default_factory=list)

    def add(self, pair: Pair) -> None:
        self.count += 1
        if len(self.examples) < 2:
            self.examples.append(pair)


def repair(text: str) -> str:
    """The unicode rule on one side."""
    return " ".join(unicodedata.normalize("NFC", text.translate(_REPAIRS)).split())


class Cleaner:
    """The rules of one language pair, and what they have done so far."""

    def __init__(self, source: str, target: str, skip: Iterable[RuleName] = ()) -> None:
        self.rules = {name: Rule(name) for name in RULES if name not in set(skip)}
        self.notes: list[str] = []
        self.identifier: Any = None
        self.source, self.target = source, target
        if self.rules.keys() & {"swapped-columns", "wrong-language"}:
            self._load_identifier()

    def _load_identifier(self) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier  # noqa: PLC0415 - a fifth of a second

        identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
        unknown = [language for language in (self.source, self.target) if language not in identifier.labels]
        if unknown:
            self.notes.append(f"swapped-columns and wrong-language left out: {' and '.join(unknown)} not identifiable")
            self.rules.pop("swapped-columns", None)
            self.rules.pop("wrong-language", None)
            return
        identifier.set_languages([self.source, self.target])
        self.identifier = identifier

    def repaired(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """What any part goes through: repairs, and pairs with an empty side dropped."""
        unicode, empty, swapped = (self.rules.get(name) for name in ("unicode", "empty-side", "swapped-columns"))
        for raw in pairs:
            pair = raw
            if unicode:
                pair = (repair(raw[0]), repair(raw[1]))
                if pair != raw:
                    unicode.add(raw)
            if empty and not (pair[0].strip() and pair[1].strip()):
                empty.add(pair)
                continue
            if swapped and self._is_swapped(pair):
                swapped.add(pair)
                pair = (pair[1], pair[0])
            yield pair

    def thinned(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """What training pairs go through after `repaired`: those that teach nothing, or nothing good, are dropped."""
        identical, headings, wrong, ratio, duplicates = (
            self.rules.get(name)
            for name in ("identical-sides", "headings", "wrong-language", "length-ratio", "duplicates")
        )
        seen: set[int] = set()
        pairs = iter(pairs)
        sample = list(islice(pairs, SAMPLE))
        median = statistics.median(map(_log_ratio, sample)) if sample else 0.0
        for pair in chain(sample, pairs):
            if identical and pair[0] == pair[1]:
                identical.add(pair)
            elif headings and is_heading(pair):
                headings.add(pair)
            elif wrong and _is_one_language(self._leaning(pair[0]), self._leaning(pair[1])):
                wrong.add(pair)
            elif ratio and abs(_log_ratio(pair) - median) > math.log(RATIO):
                ratio.add(pair)
            elif (
                duplicates and hash(pair) in seen
            ):  # 64 bits: among 5 million pairs, one in a million that one collides
                duplicates.add(pair)
            else:
                seen.add(hash(pair))
                yield pair

    def _is_swapped(self, pair: Pair) -> bool:
        """Scored on both sides together: of short texts, one side often says nothing and the other enough."""
        source, target = self._leaning(pair[0]), self._leaning(pair[1])
        return source - target < -SWAP_MARGIN and not _is_one_language(source, target)

    def _leaning(self, text: str) -> float:
        """log P(text | source language) − log P(text | target language), of its words.

        Punctuation says more of the printer than of the language: whole books have — where others have “.
        """
        likelihood = dict(self.identifier.rank(" ".join(_WORD.findall(_TAG.sub(" ", text)))))
        return float(likelihood[self.source] - likelihood[self.target])


def is_heading(pair: Pair) -> bool:
    """Whether the pair is a header of Project Gutenberg's, or a chapter label on both sides, in whatever form."""
    return any(_HEADER.search(side) for side in pair) or all(_LABEL.match(_TAG.sub("", side)) for side in pair)


def _is_one_language(source: float, target: float) -> bool:
    return min(source, target) > LANGUAGE_MARGIN or max(source, target) < -LANGUAGE_MARGIN


def _log_ratio(pair: Pair) -> float:
    return math.log((len(pair[0]) + SLACK) / (len(pair[1]) + SLACK))
