"""The cleaning rules: each repairs or drops raw sentence pairs, is counted, and can be switched off by name.

`Cleaner.judge` applies the rules that need one pair alone, in the order of RULES. corpus.py applies the last two,
"duplicates" and "held-out", which compare pairs with each other.

Validation and test parts that come with the data are repaired, but lose only pairs with an empty side: published
scores are computed on the complete sets.
"""

import math
import re
import statistics
import unicodedata
from collections.abc import Iterable
from typing import Any, NamedTuple

from config import RuleName
from pairs.readers import Pair
from tapis.config import base_language
from tapis.text.languages import LANGUAGE_MARGIN, TAG, identifier_of, language_identifier, repair

# What each rule does, as shown in the data report.
RULES: dict[RuleName, str] = {
    "unicode": "repaired: NFC, Windows-1252 control characters, special and repeated spaces, invisible characters",
    "empty-side": "dropped: one side is empty",
    "identical-sides": "dropped: both sides are the same",
    "headings": "dropped: book headers, and chapter labels on both sides",
    "swapped-columns": "repaired: each side was in the other's language",
    "wrong-language": "dropped: both sides are in the same language",
    "length-ratio": "dropped: one side is far longer than the other, compared with the corpus median",
    "duplicates": "dropped: repeats an earlier pair",
    "held-out": "dropped: shares a side with validation or test, ignoring case, accents and punctuation",
}

# What the rules do to text in one language.
TEXT_RULES: dict[RuleName, str] = {
    "unicode": RULES["unicode"],
    "empty-side": "dropped: empty",
    "wrong-language": "dropped: in another language",
    "duplicates": "dropped: repeats an earlier line",
    "held-out": "dropped: occurs in validation or test, ignoring case, accents and punctuation",
}

SAMPLE = 10_000  # pairs from which the median length ratio is computed
MAX_RATIO = 3.0  # largest allowed factor between a pair's length ratio and the median, in either direction
LENGTH_SMOOTHING = 15  # characters added to both lengths, because the ratio varies more in short texts

# Evidence required of the language identifier, as a difference of log-likelihoods in nats.
SWAP_MARGIN = 2.0  # for the swapped reading of a pair over the given one

_MARKS = "".join(chr(i) for i in range(0x300, 0x3100) if unicodedata.category(chr(i))[0] == "M")  # of letters
_LETTERS = rf"(?:[^\W\d_]++|[{_MARKS}]++)++"
_WORD = re.compile(rf"{_LETTERS}(?:['’]{_LETTERS})*")
_BOOK_HEADER = re.compile(
    r"^source\s*:\s*(https?:|www\.|project gutenberg)|project gutenberg ?audiobook", re.IGNORECASE
)
_CHAPTER_LABEL = re.compile(
    r"^\W*((chapter|chapitre|capitolo|capítulo|kapitel|hoofdstuk|part|partie|parte|teil|book|livre|libro|buch)\W+)?"
    r"([ivxlcdm]+|\d+|premi[eè]re?|first|prim[ao]|erste[rs]?)\W*$",
    re.IGNORECASE,
)


class Verdict(NamedTuple):
    """The outcome of the rules for one raw pair."""

    pair: Pair
    """The pair after repairs"""
    repaired: bool
    """Whether the unicode rule changed it"""
    swapped: bool
    """Whether the swapped-columns rule exchanged its sides"""
    dropped: RuleName | None
    """The rule that drops it from training, or None. Given validation and test parts apply only empty-side."""


class Cleaner:
    """The rules for one pair at a time, set up for one language pair."""

    def __init__(self, source: str, target: str, skip: Iterable[RuleName] = (), sample: Iterable[Pair] = ()) -> None:
        """Set up the rules.

        Args:
            source: language code of the source side.
            target: language code of the target side.
            skip: rules to switch off.
            sample: raw pairs of the corpus, from which the median length ratio is computed.

        `notes` lists the rules that cannot be applied to these languages, for the data report.

        """
        self.source = source
        self.target = target
        self.active = set(RULES) - set(skip)
        self.notes: list[str] = []

        # The language rules need an identifier that tells both languages apart.
        self.identifier: Any = None
        if self.active & {"swapped-columns", "wrong-language"}:
            self.identifier = identifier_of((source, target))
            if self.identifier is None:
                self.active -= {"swapped-columns", "wrong-language"}
                self.notes.append(
                    f"swapped-columns and wrong-language switched off: py3langid cannot tell {source} from {target}"
                )

        # Judge the sample with a neutral median, to measure lengths after repairs.
        self.median_log_ratio = 0.0
        verdicts = [self.judge(pair) for pair in sample]
        log_ratios = [_log_length_ratio(verdict.pair) for verdict in verdicts if verdict.dropped != "empty-side"]
        if log_ratios:
            self.median_log_ratio = statistics.median(log_ratios)

    def judge(self, raw: Pair) -> Verdict:
        """Apply the active rules to one raw pair. At most one rule drops it: the first that applies."""
        active = self.active

        # repair characters
        pair = (repair(raw[0]), repair(raw[1])) if "unicode" in active else raw
        repaired = pair != raw

        if "empty-side" in active and not (pair[0].strip() and pair[1].strip()):
            return Verdict(pair, repaired, swapped=False, dropped="empty-side")

        # identify the languages, and exchange swapped sides
        is_one_language = False
        swapped = False
        if self.identifier:
            source_log_odds = self._source_log_odds(pair[0])
            target_log_odds = self._source_log_odds(pair[1])
            both_in_source_language = source_log_odds > LANGUAGE_MARGIN and target_log_odds > LANGUAGE_MARGIN
            both_in_target_language = source_log_odds < -LANGUAGE_MARGIN and target_log_odds < -LANGUAGE_MARGIN
            is_one_language = both_in_source_language or both_in_target_language

            # The evidence of both sides is added up: in short pairs, often only one side is clear.
            is_swapped = target_log_odds - source_log_odds > SWAP_MARGIN and not is_one_language
            if "swapped-columns" in active and is_swapped:
                swapped = True
                pair = (pair[1], pair[0])

        # find the first rule that drops the pair
        dropped: RuleName | None = None
        if "identical-sides" in active and pair[0] == pair[1]:
            dropped = "identical-sides"
        elif "headings" in active and is_heading(pair):
            dropped = "headings"
        elif "wrong-language" in active and is_one_language:
            dropped = "wrong-language"
        elif "length-ratio" in active and abs(_log_length_ratio(pair) - self.median_log_ratio) > math.log(MAX_RATIO):
            dropped = "length-ratio"
        return Verdict(pair, repaired, swapped, dropped)

    def _source_log_odds(self, text: str) -> float:
        """Return log P(text | source language) − log P(text | target language), in nats."""
        log_likelihoods = dict(self.identifier.rank(_words(text)))
        return float(log_likelihoods[base_language(self.source)] - log_likelihoods[base_language(self.target)])


class TextCleaner:
    """The rules for sentences in one language, each given as the target side of a pair with an empty source side."""

    def __init__(self, language: str, skip: Iterable[RuleName] = ()) -> None:
        """Set up the rules, but those to skip. `notes` is as in `Cleaner`."""
        self.language = language
        self.active = set(TEXT_RULES) - set(skip)
        self.notes: list[str] = []
        self.identifier: Any = None
        if "wrong-language" in self.active:
            self.identifier = language_identifier()
            if base_language(language) not in self.identifier.labels:
                self.active.remove("wrong-language")
                self.notes.append(f"wrong-language switched off: py3langid does not cover {language}")

    def judge(self, raw: Pair) -> Verdict:
        """Apply the active rules to one sentence. At most one rule drops it: the first that applies."""
        text = repair(raw[1]) if "unicode" in self.active else raw[1]
        dropped: RuleName | None = None
        if "empty-side" in self.active and not text.strip():
            dropped = "empty-side"
        elif "wrong-language" in self.active and self._is_in_another_language(text):
            dropped = "wrong-language"
        return Verdict((raw[0], text), text != raw[1], swapped=False, dropped=dropped)

    def _is_in_another_language(self, text: str) -> bool:
        log_likelihoods = dict(self.identifier.rank(_words(text)))
        log_likelihood = log_likelihoods[base_language(self.language)]
        return bool(max(log_likelihoods.values()) - log_likelihood > LANGUAGE_MARGIN)


AnyCleaner = Cleaner | TextCleaner


class CleanerSettings(NamedTuple):
    """What a cleaner is made of. It is part of cache keys, and processes make their cleaners from it."""

    source: str
    """Empty for text in the target language alone"""
    target: str
    skip_rules: tuple[RuleName, ...]

    def cleaner(self, sample: Iterable[Pair] = ()) -> AnyCleaner:
        """Return the cleaner for pairs or for text; sample is as in `Cleaner`."""
        if not self.source:
            return TextCleaner(self.target, self.skip_rules)
        return Cleaner(self.source, self.target, self.skip_rules, sample)


def _words(text: str) -> str:
    """Return the words of a text, for identifying its language.

    Punctuation depends on the publisher more than on the language: some books mark dialogue with — where others use “.
    """
    return " ".join(_WORD.findall(TAG.sub(" ", text)))


def is_heading(pair: Pair) -> bool:
    """Return whether either side is a Project Gutenberg header, or both sides are chapter labels, in any format."""
    has_book_header = any(_BOOK_HEADER.search(side) for side in pair)
    return has_book_header or all(_CHAPTER_LABEL.match(TAG.sub("", side)) for side in pair)


def _log_length_ratio(pair: Pair) -> float:
    """Return the logarithm of source length over target length, in characters."""
    return math.log((len(pair[0]) + LENGTH_SMOOTHING) / (len(pair[1]) + LENGTH_SMOOTHING))
