"""The cleaning rules: each repairs or drops raw sentence pairs, is counted, and can be switched off by name.

`Cleaner.judge` applies the rules that need one pair alone, in the order of RULES. corpus.py applies the last two,
"duplicates" and "held-out", which compare pairs with each other.

Validation and test parts that come with the data are repaired, but lose only pairs with an empty side: published
scores are computed on the complete sets.
"""

import functools
import math
import re
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from config import RuleName
from pairs.language_scores import LanguageScorer
from tapis.text.language_codes import base_language
from tapis.text.languages import LANGUAGE_MARGIN, identifier_of, language_identifier, repair
from tapis.text.lines import Pair
from tapis.text.words import LETTERS

# What each rule does, as shown in the data report.
RULES: dict[RuleName, str] = {
    "unicode": "repaired: NFC, Windows-1252 control characters, special and repeated spaces, invisible characters",
    "empty-side": "dropped: one side is empty",
    "identical-sides": "dropped: both sides are the same",
    "headings": "dropped: book headers, and chapter labels on both sides",
    "swapped-columns": "repaired: each side was in the other's language",
    "wrong-language": "dropped: both sides are in the same language, or one is in a third",
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
# For another language than those of a pair. By less, some short sentences look like another language, and Norwegian
# ones like Danish (benchmarks/third_language.py).
OTHER_MARGIN, OTHER_MARGIN_OF_BYTE = 15.0, 0.5
# Nats for each byte of a pair that tell its sides apart, as the median of a sample. Of program messages, Croatian with
# Bosnian has 0.02, Malay with Indonesian 0.07, Norwegian with Danish 0.27, French with German 1.7.
MIN_CONTRAST = 0.1
CONTRAST_SAMPLE, MIN_CONTRAST_SAMPLE = 1000, 100  # pairs of it, and how few say nothing
MIN_CONTRAST_BYTES = 30  # of the words of a pair that counts
# Nats for each byte by which its n-grams must speak more for other languages, each for another one, before a text is
# scored for all languages. One in ten English, French and German sentences has so much, and 995 of 1,000 others.
SUSPICIOUS_OF_BYTE = 0.8

_HTML_TAG = re.compile(r"<[^<>]*>")
_WORD = re.compile(rf"{LETTERS}(?:['’]{LETTERS})*")
_SOURCE_LINE = re.compile(r"source\s*:\s*(https?:|www\.|project gutenberg)", re.IGNORECASE)
_AUDIOBOOK = re.compile(r"project gutenberg ?audiobook", re.IGNORECASE)
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


class Languages(NamedTuple):
    """What the languages of the sides of a pair are."""

    source_log_odds: tuple[float, float]
    """Of either side: log P(text | source language) − log P(text | target language), in nats"""
    is_third: bool
    """Whether a side is clearly in another language than these two"""


class Cleaner:
    """The rules that need one pair alone, set up for one language pair."""

    def __init__(
        self,
        source: str,
        target: str,
        skip: Iterable[RuleName] = (),
        sample: Iterable[Pair] = (),
        *,
        are_close: bool = False,
    ) -> None:
        """Set up the rules.

        Args:
            source: language code of the source side.
            target: language code of the target side.
            skip: rules to switch off.
            sample: raw pairs of the corpus, from which the median length ratio is computed.
            are_close: whether the languages are too close for the rules about languages, as `finds_close` returns.

        `notes` lists the rules that cannot be applied to these languages, for the data report.

        """
        self.source = source
        self.target = target
        self.active = set(RULES) - set(skip)
        self.notes: list[str] = []

        # The language rules need an identifier that tells both languages apart.
        self.scorer: LanguageScorer | None = None
        if self.active & {"swapped-columns", "wrong-language"}:
            if identifier_of((source, target)) and not are_close:
                self.scorer_of_all = scorer_of_all()
                self.scorer = self.scorer_of_all.restricted([base_language(source), base_language(target)])
            else:
                self.active -= {"swapped-columns", "wrong-language"}
                tells = "hardly tells" if are_close else "cannot tell"
                self.notes.append(
                    f"swapped-columns and wrong-language switched off: py3langid {tells} {source} from {target}"
                )

        # Judge the sample with a neutral median, to measure lengths after repairs.
        self.median_log_ratio = 0.0
        verdicts = self.judge(list(sample))
        log_ratios = [_log_length_ratio(verdict.pair) for verdict in verdicts if verdict.dropped != "empty-side"]
        if log_ratios:
            self.median_log_ratio = statistics.median(log_ratios)

    def finds_close(self, pairs: Sequence[Pair]) -> bool:
        """Return whether little tells the sides of most pairs apart, as in Croatian and Bosnian; of few pairs, False.

        The rules about languages would then exchange and drop good pairs.
        """
        # Prices, names and single words say nothing.
        words = [(words_alone(source), words_alone(target)) for source, target in pairs]
        sizes = n_bytes([source + target for source, target in words])
        says_much = (sizes >= MIN_CONTRAST_BYTES) & [source != target for source, target in words]
        if not self.scorer or says_much.sum() < MIN_CONTRAST_SAMPLE:
            return False
        telling = [pair for pair, is_telling in zip(pairs, says_much, strict=True) if is_telling]
        log_odds = np.array([languages.source_log_odds for languages in self._languages(telling)])  # (pairs, 2)
        return float(np.median(np.abs(log_odds[:, 0] - log_odds[:, 1]) / sizes[says_much])) < MIN_CONTRAST

    def judge(self, raw_pairs: Sequence[Pair]) -> list[Verdict]:
        """Apply the active rules to raw pairs. At most one rule drops a pair: the first that applies."""
        pairs = [(repair(raw[0]), repair(raw[1])) for raw in raw_pairs] if "unicode" in self.active else raw_pairs
        languages = self._languages(pairs)
        return [self._verdict(*of_pair) for of_pair in zip(raw_pairs, pairs, languages, strict=True)]

    def _verdict(self, raw: Pair, pair: Pair, languages: "Languages") -> Verdict:
        """Apply the active rules to one pair, given before and after repairs."""
        active = self.active
        repaired = pair != raw
        if "empty-side" in active and not (pair[0].strip() and pair[1].strip()):
            return Verdict(pair, repaired, swapped=False, dropped="empty-side")

        # compare the languages, and exchange swapped sides
        of_source, of_target = languages.source_log_odds
        both_in_source_language = of_source > LANGUAGE_MARGIN and of_target > LANGUAGE_MARGIN
        both_in_target_language = of_source < -LANGUAGE_MARGIN and of_target < -LANGUAGE_MARGIN
        is_one_language = both_in_source_language or both_in_target_language

        # The evidence of both sides is added up: in short pairs, often only one side is clear.
        swapped = "swapped-columns" in active and of_target - of_source > SWAP_MARGIN and not is_one_language
        if swapped:
            pair = (pair[1], pair[0])

        # find the first rule that drops the pair
        dropped: RuleName | None = None
        if "identical-sides" in active and pair[0] == pair[1]:
            dropped = "identical-sides"
        elif "headings" in active and is_heading(pair):
            dropped = "headings"
        elif "wrong-language" in active and (is_one_language or languages.is_third):
            dropped = "wrong-language"
        elif "length-ratio" in active and abs(_log_length_ratio(pair) - self.median_log_ratio) > math.log(MAX_RATIO):
            dropped = "length-ratio"
        return Verdict(pair, repaired, swapped, dropped)

    def _languages(self, pairs: Sequence[Pair]) -> list["Languages"]:
        """Return what the languages of each pair's sides are. Without a scorer, nothing tells them apart."""
        if not self.scorer:
            return [Languages((0.0, 0.0), is_third=False)] * len(pairs)
        texts = [words_alone(side) for pair in pairs for side in pair]
        scores = self.scorer.scores(texts)  # (2 × pairs, languages and the most that any has)
        source, target = (self.scorer.labels.index(base_language(code)) for code in (self.source, self.target))
        log_odds = (scores[:, source] - scores[:, target]).tolist()
        is_third = self._is_third(texts, scores)
        sides = zip(log_odds[::2], log_odds[1::2], strict=True)
        return [Languages(*one) for one in zip(sides, (is_third[::2] | is_third[1::2]).tolist(), strict=True)]

    def _is_third(self, texts: Sequence[str], scores: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return for each text whether it is clearly in another language than those of the pair.

        Only few texts have n-grams that other languages explain much better, and are scored for all languages.
        """
        is_third = np.zeros(len(texts), dtype=bool)
        if "wrong-language" in self.active:
            lacking = scores[:, -1] - scores[:, :-1].max(axis=1)
            suspicious = np.flatnonzero(lacking > np.maximum(OTHER_MARGIN, SUSPICIOUS_OF_BYTE * n_bytes(texts)))
            chosen = [texts[row] for row in suspicious.tolist()]
            expected = [self.scorer_of_all.labels.index(base_language(code)) for code in (self.source, self.target)]
            is_third[suspicious] = is_clearly_other(chosen, self.scorer_of_all.scores(chosen), expected)
        return is_third


class TextCleaner:
    """The rules for sentences in one language, each given as the target side of a pair with an empty source side."""

    def __init__(self, language: str, skip: Iterable[RuleName] = ()) -> None:
        """Set up the rules, but those to skip. `notes` is as in `Cleaner`."""
        self.language = language
        self.active = set(TEXT_RULES) - set(skip)
        self.notes: list[str] = []
        self.scorer: LanguageScorer | None = None
        if "wrong-language" in self.active:
            if base_language(language) in language_identifier().labels:
                self.scorer = scorer_of_all()
            else:
                self.active.remove("wrong-language")
                self.notes.append(f"wrong-language switched off: py3langid does not cover {language}")

    def judge(self, raw_pairs: Sequence[Pair]) -> list[Verdict]:
        """Apply the active rules to sentences. At most one rule drops a sentence: the first that applies."""
        texts = [repair(raw[1]) if "unicode" in self.active else raw[1] for raw in raw_pairs]
        is_foreign = self._is_in_another_language(texts)
        return [self._verdict(*of_text) for of_text in zip(raw_pairs, texts, is_foreign, strict=True)]

    def _verdict(self, raw: Pair, text: str, is_in_another_language: bool) -> Verdict:
        """Apply the active rules to one sentence, given before and after repairs."""
        dropped: RuleName | None = None
        if "empty-side" in self.active and not text.strip():
            dropped = "empty-side"
        elif is_in_another_language:
            dropped = "wrong-language"
        return Verdict((raw[0], text), text != raw[1], swapped=False, dropped=dropped)

    def _is_in_another_language(self, texts: Sequence[str]) -> list[bool]:
        """Return for each text whether another language is clearly more probable; without a scorer, False."""
        if not self.scorer:
            return [False] * len(texts)
        words = [words_alone(text) for text in texts]
        expected = [self.scorer.labels.index(base_language(self.language))]
        is_other: list[bool] = is_clearly_other(words, self.scorer.scores(words), expected).tolist()
        return is_other


AnyCleaner = Cleaner | TextCleaner


class CleanerSettings(NamedTuple):
    """What a cleaner is made of. It is part of cache keys, and processes make their cleaners from it."""

    source: str
    """Empty for text in the target language alone"""
    target: str
    skip_rules: tuple[RuleName, ...]
    are_close: bool = False
    """Whether the languages are too close for the rules about languages"""

    def cleaner(self, sample: Iterable[Pair] = ()) -> AnyCleaner:
        """Return the cleaner for pairs or for text; sample is as in `Cleaner`."""
        if not self.source:
            return TextCleaner(self.target, self.skip_rules)
        return Cleaner(self.source, self.target, self.skip_rules, sample, are_close=self.are_close)


@functools.cache
def scorer_of_all() -> LanguageScorer:
    """Return the scorer of all languages, which the cleaners of a process share."""
    return LanguageScorer(language_identifier())


def is_clearly_other(texts: Sequence[str], scores: NDArray[np.float64], expected: Sequence[int]) -> NDArray[np.bool_]:
    """Return for each text whether another language than those expected is clearly more probable.

    scores are those of `LanguageScorer`, and expected are columns of them.
    """
    margin = scores.max(axis=1) - scores[:, expected].max(axis=1)
    is_other: NDArray[np.bool_] = margin > np.maximum(OTHER_MARGIN, OTHER_MARGIN_OF_BYTE * n_bytes(texts))
    return is_other


def n_bytes(texts: Sequence[str]) -> NDArray[np.int64]:
    """Return the number of bytes of each text."""
    return np.array([len(text.encode()) for text in texts], dtype=np.int64)


def words_alone(text: str) -> str:
    """Return the words of a text, for identifying its language.

    Punctuation depends on the publisher more than on the language: some books mark dialogue with — where others use “.
    """
    return " ".join(_WORD.findall(_HTML_TAG.sub(" ", text)))


def is_heading(pair: Pair) -> bool:
    """Return whether either side is a Project Gutenberg header, or both sides are chapter labels, in any format."""
    if any(_SOURCE_LINE.match(side) or ("gutenberg" in side.lower() and _AUDIOBOOK.search(side)) for side in pair):
        return True
    return all(_CHAPTER_LABEL.match(_HTML_TAG.sub("", side)) for side in pair)


def _log_length_ratio(pair: Pair) -> float:
    """Return the logarithm of source length over target length, in characters, with LENGTH_SMOOTHING added to both."""
    return math.log((len(pair[0]) + LENGTH_SMOOTHING) / (len(pair[1]) + LENGTH_SMOOTHING))
