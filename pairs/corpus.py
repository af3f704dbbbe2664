"""The corpus: clean sentence pairs for training, validation and test, where training shares no side with the others.

`load_corpus` reads each part of each source of data (readers.py), applies the rules for one pair (cleaned.py), drops
duplicates, splits off the parts that a source lacks, drops training pairs that validation or test contain
(selection.py), and reports counts. Duplicates and shared sides are found across all sources.

Lengths in tokens are not known here: dataset.py leaves out pairs that are too long.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from config import Config
from pairs.batches import RULE_NAMES
from pairs.cleaned import cleaned_table, code_key, settings_and_training_part, turned_round
from pairs.cleaning import RULES, CleanerSettings
from pairs.origins import Origin, open_parts, origins
from pairs.readers import PARTS, read_text
from pairs.report import DataReport, RuleReport
from pairs.selection import (
    HOPELESS_LENGTH,
    MOST_HELD_OUT,
    N_EXAMPLES,
    RuleCounts,
    Selection,
    Source,
    count_cleaning,
    duplicates,
    held_out_hashes,
    kept_by_cleaning,
    leaks,
    notes_on_files,
    split_off,
)
from pairs.tables import Pairs
from tapis.system.files import digest
from tapis.system.terminal import listed
from tapis.text.lines import DataError


@dataclass
class Corpus:
    """The sentence pairs of the three parts, and a report of how they were prepared."""

    train: Pairs
    valid: Pairs
    test: Pairs
    report: DataReport = field(default_factory=DataReport)
    origins: list[Origin] = field(default_factory=list)
    """Where pairs are from; `Pairs.origins` has a number in this list for each pair"""

    def directions(self, pairs: Pairs) -> list[tuple[str, str]]:
        """Return the source and target language of each pair of a part."""
        languages = [(origin.source, origin.target) for origin in self.origins]
        return [languages[number] for number in pairs.origins().tolist()]


def load_corpus(config: Config) -> Corpus:
    """Read, clean and split `config.data`, and read and clean `config.monolingual`, for the training part.

    A valid or test part that a source lacks is split off its train part. Raises DataError where the data cannot be
    read, or leaves a source without pairs for training, or a language pair without any for validation.
    """
    sources = [_clean_source(config, origin) for origin in origins(config)]

    # drop duplicates
    if "duplicates" not in config.skip_rules:
        is_duplicate = duplicates(sources)
        for source, mask in zip(sources, is_duplicate, strict=True):
            source.drop("duplicates", mask)

    # split off the parts that a source lacks
    n_of_pairs = sum(not source.origin.is_monolingual for source in sources)
    for source in sources:
        source.selections = split_off(config, source.selections, MOST_HELD_OUT / n_of_pairs)

    # drop training pairs that share a side with validation or test
    if "held-out" not in config.skip_rules:
        held_out = held_out_hashes(sources)
        for source in sources:
            source.drop("held-out", leaks(source, held_out))

    validated = {(source.origin.source, source.origin.target) for source in sources if len(source.selections["valid"])}
    for source in sources:
        _check_parts(config, source, validated)

    # name each part by everything that it was made from
    directions = [(source.origin.source, source.origin.target, source.origin.is_reversed) for source in sources]
    part_keys = [key for source in sources for key in source.part_keys]
    row_numbers = [selection.rows.tobytes() for source in sources for selection in source.selections.values()]
    corpus_key = digest(*directions, *part_keys, *row_numbers, code_key())
    parts = {}
    for part in PARTS:
        key = digest(corpus_key, part, sorted(config.skip_rules))
        selections = [source.selections[part] for source in sources]
        parts[part] = Pairs.joined([Pairs(selection.table, selection.rows, key) for selection in selections])

    report = _report(", ".join(config.data), [_report_source(source) for source in sources])
    return Corpus(parts["train"], parts["valid"], parts["test"], report, [source.origin for source in sources])


def _check_parts(config: Config, source: Source, validated: Collection[tuple[str, str]]) -> None:
    """Raise DataError if nothing is left of a part, or if a part has what no model can be validated with.

    The valid part of a source may be empty if its language pair is among `validated`: another source has pairs of it.
    """
    name, n, dropped = source.origin.full_name, f"{source.n_read:,}", _dropped(source)
    if source.origin.is_monolingual:
        if not len(source.train):
            raise DataError(f"--monolingual {name}: no sentences left, of {n} lines read{dropped}")
        return
    if not len(source.train):
        raise DataError(f"--data {name}: no pairs left in the train part, of {n} pairs read{dropped}")
    if (source.origin.source, source.origin.target) not in validated:
        raise DataError(
            f"--data {name}: no pairs left in the valid part, of {n} pairs read{dropped}\n"
            "give more pairs, or --valid-share 0.1 --test-share 0.1"
        )
    for part in ("valid", "test"):
        if source.selections[part].table is source.train.table:
            continue  # it was split off, without extremely long pairs
        longest = int(source.selections[part].longest_sides().max(initial=0))
        if longest > HOPELESS_LENGTH * config.max_length:
            raise DataError(
                f"--data {name}: the {part} part has a pair of {longest:,} words, far more than --max-length "
                f"{config.max_length} (is there one sentence per line?)"
            )


def _dropped(source: Source) -> str:
    """Return how many pairs each rule dropped, in parentheses."""
    counts = {name: count.pairs for name, count in source.counts.by_rule.items()}
    dropped = [f"{name} {n:,}" for name, n in counts.items() if n and RULES[name].startswith("dropped")]
    if n_unreadable := source.counts.unreadable.pairs:
        dropped.insert(0, f"unreadable {n_unreadable:,}")
    return f" (dropped: {', '.join(dropped)})" if dropped else ""


def _clean_source(config: Config, origin: Origin) -> Source:
    """Read one language pair of one source of data, and apply the rules for one pair.

    A pair whose other direction is named first is read in that direction, and then turned round.
    """
    if origin.is_monolingual:
        return _clean_text(config, origin)
    raw_parts = open_parts(config, origin)
    settings, train = settings_and_training_part(*origin.languages_of_data, config.skip_rules, raw_parts["train"])
    raw_parts = {**raw_parts, "train": train}
    tables = {part: cleaned_table(raw, settings) for part, raw in raw_parts.items()}
    if origin.is_reversed:
        tables = {part: turned_round(rows, raw_parts[part], settings) for part, rows in tables.items()}
    counts = RuleCounts()
    for part, rows in tables.items():
        count_cleaning(counts, rows, part)
    notes = [note for rows in tables.values() for note in notes_on_files(rows)]
    return Source(
        origin,
        settings,
        n_read=sum(len(rows) for rows in tables.values()) - len(notes),
        part_keys=[raw.key for raw in raw_parts.values()],
        counts=counts,
        selections={part: kept_by_cleaning(rows, part) for part, rows in tables.items()},
        unused=raw_parts["train"].unused,
        forms=list(dict.fromkeys(form for raw in raw_parts.values() for form in raw.forms)),
        notes=notes,
    )


def _clean_text(config: Config, origin: Origin) -> Source:
    """Read one file of sentences in one language, for training, and apply the rules."""
    settings = CleanerSettings("", origin.target, config.skip_rules)
    raw = read_text(origin.data)
    rows = cleaned_table(raw, settings)
    counts = RuleCounts()
    count_cleaning(counts, rows, "train")
    nothing = Selection(rows, np.zeros(0, dtype=np.int64))
    selections = {"train": kept_by_cleaning(rows, "train"), "valid": nothing, "test": nothing}
    return Source(origin, settings, len(rows), [raw.key], counts, selections)


def _report_source(source: Source) -> DataReport:
    """Return what was read from one source, what the rules did, and what is left."""
    origin = source.origin
    rules = source.settings.cleaner()  # which of the rules apply to these languages
    n_train, n_valid, n_test = (len(source.selections[part]) for part in PARTS)
    unused = [f"not used: {listed(source.unused)}"] if source.unused else []
    is_not_validated = not n_valid and not origin.is_monolingual
    no_valid = ["no pairs to validate with: the other sources have some"] if is_not_validated else []
    return DataReport(
        origin.full_name,
        source.n_read,
        n_train,
        n_valid,
        n_test,
        rules={name: count for name, count in source.counts.by_rule.items() if name in rules.active},
        unreadable=source.counts.unreadable,
        forms=list(source.forms),
        notes=[*source.notes, *rules.notes, *unused, *no_valid],
        reversed=origin.is_reversed,
        monolingual=origin.is_monolingual,
    )


def _report(name: str, reports: Sequence[DataReport]) -> DataReport:
    """Return the report of all sources together: that of the only one, or sums over those that have pairs."""
    if len(reports) == 1:
        return replace(reports[0], name=name)
    of_pairs = [report for report in reports if not report.monolingual]

    def total(counts: Sequence[RuleReport]) -> RuleReport:
        examples = [example for count in counts for example in count.examples]
        return RuleReport(sum(count.pairs for count in counts), examples[:N_EXAMPLES])

    of_rules = {rule: [report.rules[rule] for report in of_pairs if rule in report.rules] for rule in RULE_NAMES}
    return DataReport(
        name,
        read=sum(report.read for report in of_pairs),
        train=sum(report.train for report in of_pairs),
        valid=sum(report.valid for report in of_pairs),
        test=sum(report.test for report in of_pairs),
        rules={rule: total(counts) for rule, counts in of_rules.items() if counts},
        unreadable=total([report.unreadable for report in of_pairs]),
        notes=list(dict.fromkeys(note for report in of_pairs for note in report.notes)),
        sources=list(reports),
    )
