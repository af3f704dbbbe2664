"""Which rows of the tables are part of the corpus: duplicates, the parts that a source lacks, and shared sides."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import datasets
import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from config import Config, RuleName
from pairs.batches import KEPT, NOTE, RULE_NAMES, UNREADABLE
from pairs.cleaning import CleanerSettings
from pairs.origins import Origin
from pairs.report import RuleReport
from pairs.tables import Ints, column, record_batches
from tapis.text.sentences import EXTREME_LENGTH

HOPELESS_LENGTH = 64  # times --max-length: a pair of more words would take all memory when it is translated
CHARACTERS_OF_WORD = 10  # at most; texts with spaces have about six, and Chinese, Japanese and Thai have no spaces
MOST_HELD_OUT = 5_000  # pairs of all sources: a larger part that is split off takes time, and tells no more
N_EXAMPLES = 2  # pairs shown for each rule in the report


@dataclass(frozen=True)
class Selection:
    """The rows of a table that are still part of the corpus."""

    table: datasets.Dataset
    rows: Ints
    """Row numbers, ascending"""

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> NDArray[Any]:
        """Return the selected values of a numeric column."""
        return column(self.table, name)[self.rows]

    def longest_sides(self) -> Ints:
        """Return the words of the longer side of each pair, by which huge ones are found.

        A side has as many as spaces separate, but at least one for every CHARACTERS_OF_WORD: a line without spaces
        would be one word, however long it is.
        """
        longest = [np.zeros(0, dtype=np.int32)]
        for batch in record_batches(self.table):
            by_spaces = [batch.column("words_source"), batch.column("words_target")]
            n_characters = [pc.utf8_length(batch.column("source")), pc.utf8_length(batch.column("target"))]
            by_length = [pc.divide(n, CHARACTERS_OF_WORD) for n in n_characters]
            longest.append(pc.max_element_wise(*by_spaces, *by_length).to_numpy())
        return np.concatenate(longest)[self.rows]

    def keep(self, mask: NDArray[np.bool_]) -> "Selection":
        """Return the selected rows for which the mask is true."""
        return Selection(self.table, self.rows[mask])


class RuleCounts:
    """For each rule, the number of pairs that it changed or dropped, and the first of them as examples."""

    def __init__(self) -> None:
        self.by_rule = {name: RuleReport() for name in RULE_NAMES}
        self.unreadable = RuleReport()

    def add_unreadable(self, selection: Selection) -> None:
        """Count rows that could not be read. Examples are their locations and their problems."""
        _add(self.unreadable, selection, "source", "target")

    def add(self, name: RuleName, selection: Selection) -> None:
        """Count the selected pairs. Examples are shown after repairs, but swapped ones in their original order."""
        columns = ("target", "source") if name == "swapped-columns" else ("source", "target")
        _add(self.by_rule[name], selection, *columns)


def _add(report: RuleReport, selection: Selection, first: str, second: str) -> None:
    """Count the selected rows. Examples have the texts of two columns."""
    report.pairs += len(selection)
    n_missing = N_EXAMPLES - len(report.examples)
    for row_number in selection.rows[:n_missing].tolist():
        row = selection.table[row_number]
        report.examples.append((row[first], row[second]))


@dataclass
class Source:
    """One source of data: the rows of its parts that are still part of the corpus, and what the rules did to them."""

    origin: Origin
    settings: CleanerSettings
    """Of the cleaner of its parts"""
    n_read: int
    part_keys: list[str]
    counts: RuleCounts
    selections: dict[str, Selection]
    """By the names of parts; the training part is always there"""
    unused: Sequence[str] = ()
    """Files or splits beside the data that look like data and that no part uses"""
    forms: Sequence[str] = ()
    """How its tables are written"""
    notes: Sequence[str] = ()
    """On its files"""

    @property
    def train(self) -> Selection:
        return self.selections["train"]

    def drop(self, rule: RuleName, is_dropped: NDArray[np.bool_]) -> None:
        """Drop training pairs, and count them for a rule."""
        self.counts.add(rule, self.train.keep(is_dropped))
        self.selections["train"] = self.train.keep(~is_dropped)


def count_cleaning(counts: RuleCounts, rows: datasets.Dataset, name: str) -> None:
    """Count what the rules for one pair did to the part called `name`."""
    counts.add("unicode", Selection(rows, np.flatnonzero(column(rows, "repaired"))))
    counts.add("swapped-columns", Selection(rows, np.flatnonzero(column(rows, "swapped"))))

    dropped = column(rows, "dropped")
    counts.add_unreadable(Selection(rows, np.flatnonzero(dropped == UNREADABLE)))
    for index, rule in enumerate(RULE_NAMES):
        if name == "train" or rule == "empty-side":
            counts.add(rule, Selection(rows, np.flatnonzero(dropped == index)))


def notes_on_files(rows: datasets.Dataset) -> list[str]:
    """Return the notes that a table has beside its pairs."""
    return [rows[row]["target"] for row in np.flatnonzero(column(rows, "dropped") == NOTE).tolist()]


def kept_by_cleaning(rows: datasets.Dataset, name: str) -> Selection:
    """Return the rows of the part called `name` that no rule drops; but for train, rules drop empty sides alone."""
    dropped = column(rows, "dropped")
    is_kept = dropped == KEPT
    if name != "train":
        is_kept = ~np.isin(dropped, [RULE_NAMES.index("empty-side"), UNREADABLE, NOTE])
    return Selection(rows, np.flatnonzero(is_kept))


def duplicates(sources: Sequence[Source]) -> list[NDArray[np.bool_]]:
    """Return for each training row of each source whether an earlier one, or one of an earlier source, has its pair.

    Sources of another language pair do not count.
    """
    masks: list[NDArray[np.bool_]] = [np.zeros(0, dtype=bool)] * len(sources)
    for languages in {(source.origin.source, source.origin.target) for source in sources}:
        same_pair = [i for i, source in enumerate(sources) if (source.origin.source, source.origin.target) == languages]
        hashes = [sources[i].train.column("pair_hash") for i in same_pair]
        _, first_positions = np.unique(np.concatenate(hashes), return_index=True)
        is_duplicate = np.ones(sum(map(len, hashes)), dtype=bool)
        is_duplicate[first_positions] = False
        parts = np.split(is_duplicate, np.cumsum([len(part) for part in hashes[:-1]]))
        for i, mask in zip(same_pair, parts, strict=True):
            masks[i] = mask
    return masks


def split_off(config: Config, selections: dict[str, Selection], most: float) -> dict[str, Selection]:
    """Split a missing valid or test part off train.

    The draw of a pair decides its part: with shares of 0.02 each, valid takes the draws below 0.02, test those from
    0.02 to 0.04, and train keeps the rest. It also keeps extremely long pairs, which are too long to learn from: one of
    them would take gigabytes at every validation.

    A share of more than `most` pairs is halved until it is not, always to its lower draws. As such data grows, pairs go
    back to train, but none from valid to test. Where a rule drops a few pairs more, the parts are the same, unless it
    takes the data across the number at which they are halved.
    """
    train = selections["train"]
    draws = train.column("draw")
    is_extreme = train.longest_sides() > EXTREME_LENGTH * config.max_length
    is_train = np.ones(len(train), dtype=bool)
    split = dict(selections)
    low = 0.0
    for name, share in (("valid", config.valid_share), ("test", config.test_share)):
        if name in selections:
            continue
        high = low + share / 2 ** math.ceil(math.log2(max(1.0, share * len(train) / most)))
        is_drawn = (low <= draws) & (draws < high) & ~is_extreme
        split[name] = train.keep(is_drawn)
        is_train &= ~is_drawn
        low += share
    split["train"] = train.keep(is_train)
    return split


def held_out_hashes(sources: Sequence[Source]) -> dict[str, NDArray[Any]]:
    """Return the sorted hashes of all sides in valid and test parts, by language: of all sources and language pairs."""
    hashes: dict[str, list[NDArray[Any]]] = {}
    for source in sources:
        for part in ("valid", "test"):
            selection = source.selections[part]
            hashes.setdefault(source.origin.source, []).append(selection.column("source_hash"))
            hashes.setdefault(source.origin.target, []).append(selection.column("target_hash"))
    return {language: np.sort(np.concatenate(parts)) for language, parts in hashes.items()}


def leaks(source: Source, held_out: dict[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """Return for each training row whether one of its normalized sides is held out in the same language."""
    is_leak = np.zeros(len(source.train), dtype=bool)
    sides = [("source_hash", source.origin.source), ("target_hash", source.origin.target)]
    for side, language in sides[1:] if source.origin.is_monolingual else sides:
        held_out_hashes = held_out[language]
        if not len(held_out_hashes):
            continue
        # A binary search in the few held-out hashes takes a fifth of the memory of np.isin.
        train_hashes = source.train.column(side)
        nearest = np.searchsorted(held_out_hashes, train_hashes).clip(max=len(held_out_hashes) - 1)
        is_leak |= held_out_hashes[nearest] == train_hashes
    return is_leak
