"""The corpus: clean sentence pairs for training, validation and test, where training shares no side with the others.

`load_corpus` reads each part of each source of data (readers.py), applies the rules for one pair (cleaning.py), drops
duplicates, splits off the parts that a source lacks, drops training pairs that validation or test contain, and reports
counts. Duplicates and shared sides are found across all sources.

Cleaning runs in batches, in several processes if there is much data. Its results are kept in a table on disk and
reused (tables.py). Lengths in tokens are not known here: dataset.py leaves out pairs that are too long.
"""

import contextlib
import hashlib
import multiprocessing
import os
import re
import signal
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain, cycle
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import datasets
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from config import BUILT_IN, Config, RuleName
from system.files import digest, digest_files
from system.terminal import progress_bar
from text.cleaning import RULES, SAMPLE, AnyCleaner, CleanerSettings
from text.readers import PARTS, DataError, Pair, Part, read_parts, read_text, takes_columns
from text.report import DataReport, RuleReport
from text.tables import Ints, Pairs, cached_table, column, record_batches

T = TypeVar("T")

DEMO_FOLDER = Path(__file__).parents[1] / "demo"
CLEANING_BATCH = 1000  # pairs cleaned at a time by one process
PARALLEL_THRESHOLD = 20_000  # pairs from which starting several processes pays off
MAX_PROCESSES = 16  # that clean; each imports torch and takes 250 MB
MAX_CHUNK_CHARACTERS = 50_000_000  # read at a time; 20,000 sentences have about 5 million
EXTREME_LENGTH = 8  # times --max-length: a pair with more words than that is not drawn for validation or test
N_EXAMPLES = 2  # pairs shown for each rule in the report
RULE_NAMES: list[RuleName] = list(RULES)

# One row for each raw pair of a part.
SCHEMA = pa.schema(
    {
        "source": pa.string(),  # after repairs
        "target": pa.string(),
        "dropped": pa.int8(),  # the rule that drops the pair: an index into RULE_NAMES, or -1
        "repaired": pa.bool_(),
        "swapped": pa.bool_(),
        "words_source": pa.int32(),
        "words_target": pa.int32(),
        "pair_hash": pa.int64(),
        "source_hash": pa.int64(),  # of the normalized side
        "target_hash": pa.int64(),
        "draw": pa.float64(),  # in [0, 1), decides the part in a split
    }
)


@cache
def code_files() -> list[Path]:
    """Return the files of this module and of all that it imports from its room: they decide what is read and kept.

    Their code is part of the keys of cached tables.
    """
    found, new = set[Path](), {Path(__file__)}
    while new:
        found |= new
        texts = [file.read_text(encoding="utf-8") for file in new]
        names = {name for text in texts for name in re.findall(r"^\s*from text\.(\w+) import", text, re.MULTILINE)}
        new = {Path(__file__).with_name(f"{name}.py") for name in names} - found
    return sorted(found)


@dataclass
class Corpus:
    """The sentence pairs of the three parts, and a report of how they were prepared."""

    train: Pairs
    valid: Pairs
    test: Pairs
    report: DataReport = field(default_factory=DataReport)
    origins: list["Origin"] = field(default_factory=list)
    """Where pairs are from; `Pairs.origins` has a number in this list for each pair"""

    @property
    def has_several_pairs(self) -> bool:
        """Whether there are several language pairs."""
        return len({(origin.source, origin.target) for origin in self.origins}) > 1

    def directions(self, pairs: Pairs) -> list[tuple[str, str]]:
        """The source and target language of each pair of a part."""
        languages = [(origin.source, origin.target) for origin in self.origins]
        return [languages[number] for number in pairs.origins().tolist()]


class Origin(NamedTuple):
    """Where sentence pairs are from: a language pair of a source of data."""

    data: str
    """As in `Config.data`"""
    label: str
    """A short name for reports and charts: the language pair if there are several, else the source of data"""
    source: str
    target: str
    """Languages"""
    is_reversed: bool = False
    """Whether the same pairs are also there in the other direction, named first"""
    is_monolingual: bool = False
    """Whether there are target sides alone, of a file of `Config.monolingual`, for training; sources are empty"""

    @property
    def full_name(self) -> str:
        """The source of data, and the language pair if there are several."""
        is_pair = self.label == f"{self.source}-{self.target}"
        return f"{self.data} {self.label}" if is_pair else self.data


@dataclass(frozen=True)
class _Selection:
    """The rows of a table that are still part of the corpus."""

    table: datasets.Dataset
    rows: Ints
    """Row numbers, ascending"""

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> NDArray[Any]:
        """Return the selected values of a numeric column."""
        return column(self.table, name)[self.rows]

    def keep(self, mask: NDArray[np.bool_]) -> "_Selection":
        """Return the selected rows for which the mask is true."""
        return _Selection(self.table, self.rows[mask])


@dataclass
class _Source:
    """One source of data: the rows of its parts that are still part of the corpus, and what the rules did to them."""

    origin: Origin
    n_read: int
    part_keys: list[str]
    counts: "_RuleCounts"
    selections: dict[str, _Selection]
    """By the names of parts; the training part is always there"""

    @property
    def train(self) -> _Selection:
        return self.selections["train"]

    def drop(self, rule: RuleName, is_dropped: NDArray[np.bool_]) -> None:
        """Drop training pairs, and count them for a rule."""
        self.counts.add(rule, self.train.keep(is_dropped))
        self.selections["train"] = self.train.keep(~is_dropped)


def load_corpus(config: Config) -> Corpus:
    """Read, clean and split `config.data`, and read and clean `config.monolingual`, for the training part.

    A valid or test part that a source lacks is split off its train part. Raises DataError where the data cannot be
    read, or leaves a source without pairs for training or validation.
    """
    sources = [_clean_source(config, origin) for origin in origins(config)]

    # drop duplicates
    if "duplicates" not in config.skip_rules:
        is_duplicate = _duplicates(sources)
        for source, mask in zip(sources, is_duplicate, strict=True):
            source.drop("duplicates", mask)

    # split off the parts that a source lacks
    for source in sources:
        source.selections = _split(config, source.selections)

    # drop training pairs that share a side with validation or test
    if "held-out" not in config.skip_rules:
        held_out = _held_out_hashes(sources)
        for source in sources:
            source.drop("held-out", _leaks(source, held_out))

    # check that something is left
    for source in sources:
        for part in ("train", "valid"):
            if len(source.selections[part]):
                continue
            name, n, dropped = source.origin.full_name, f"{source.n_read:,}", _dropped(source)
            if not source.origin.is_monolingual:
                raise DataError(f"--data {name}: no pairs left in the {part} part, of {n} pairs read{dropped}")
            if part == "train":
                raise DataError(f"--monolingual {name}: no sentences left, of {n} lines read{dropped}")

    # name each part by everything that it was made from
    directions = [(source.origin.source, source.origin.target, source.origin.is_reversed) for source in sources]
    part_keys = [key for source in sources for key in source.part_keys]
    row_numbers = [selection.rows.tobytes() for source in sources for selection in source.selections.values()]
    corpus_key = digest(*directions, *part_keys, *row_numbers, digest_files(code_files()))
    parts = {}
    for part in PARTS:
        key = digest(corpus_key, part, sorted(config.skip_rules))
        selections = [source.selections[part] for source in sources]
        parts[part] = Pairs.joined([Pairs(selection.table, selection.rows, key) for selection in selections])

    report = _report([_report_source(source, config.skip_rules) for source in sources])
    return Corpus(parts["train"], parts["valid"], parts["test"], report, [source.origin for source in sources])


def _dropped(source: _Source) -> str:
    """How many pairs each rule dropped, in parentheses."""
    counts = {name: count.pairs for name, count in source.counts.by_rule.items()}
    dropped = [f"{name} {n:,}" for name, n in counts.items() if n and RULES[name].startswith("dropped")]
    return f" (dropped: {', '.join(dropped)})" if dropped else ""


def origins(config: Config) -> list[Origin]:
    """Where the pairs of a training are from: each source of data, or each language pair; then the monolingual text."""
    monolingual = [
        Origin(file, f"{source}-{target}" if config.pairs else Path(file).name, source, target, is_monolingual=True)
        for file, (source, target) in config.monolingual_directions
    ]
    return [*_origins_of_pairs(config), *monolingual]


def _origins_of_pairs(config: Config) -> list[Origin]:
    directions = config.directions
    if len(directions) == 1:
        names = zip(config.data, labels(config.data), strict=True)
        return [Origin(data, label, *directions[0]) for data, label in names]

    # Several pairs are of one source of data, or each of its own.
    all_data = config.data * len(directions) if len(config.data) == 1 else config.data
    result: list[Origin] = []
    for data, (source, target) in zip(all_data, directions, strict=True):
        is_reversed = any((data, target, source) == (other.data, other.source, other.target) for other in result)
        result.append(Origin(data, f"{source}-{target}", source, target, is_reversed))
    return result


def labels(data: Sequence[str]) -> list[str]:
    """Return a short name for each source of data, for reports and charts: the last part of its path or hub id.

    Sources whose short names are the same are numbered.
    """
    short = [Path(name).name or name for name in data]
    result: list[str] = []
    for name in short:
        label, number = name, 0
        while (short.count(name) > 1 and not number) or label in result:
            number += 1
            label = f"{name}-{number}"
        result.append(label)
    return result


def _clean_source(config: Config, origin: Origin) -> _Source:
    """Read one language pair of one source of data, and apply the rules for one pair.

    A pair whose other direction is named first is read in that direction, and then turned round.
    """
    if origin.is_monolingual:
        return _clean_text(config, origin)
    name = origin.data
    languages = (origin.target, origin.source) if origin.is_reversed else (origin.source, origin.target)
    # Beside a table, sources of other forms need no columns. Without any table, read_parts raises an error.
    is_beside_table = any(map(takes_columns, config.data)) and not takes_columns(name)
    columns = () if is_beside_table else config.columns
    # A table of several pairs must name its columns: the first two would be those of one pair.
    n_pairs = len({frozenset(pair) for pair in config.directions})
    if n_pairs > len(config.data) and takes_columns(name):
        columns = languages
    raw_parts = read_parts(str(DEMO_FOLDER) if name == BUILT_IN else name, *languages, columns)
    settings = CleanerSettings(*languages, config.skip_rules)

    def table_key(part: Part) -> str:
        return digest(part.key, *settings, digest_files(code_files()))

    tables = {part: _clean_part(raw, table_key(raw), settings) for part, raw in raw_parts.items()}
    if origin.is_reversed:
        tables = {part: _turned_round(rows, table_key(raw_parts[part])) for part, rows in tables.items()}
    counts = _RuleCounts()
    for part, rows in tables.items():
        _count_cleaning(counts, rows, part)
    return _Source(
        origin,
        n_read=sum(len(rows) for rows in tables.values()),
        part_keys=[raw.key for raw in raw_parts.values()],
        counts=counts,
        selections={part: _kept_by_cleaning(rows, part) for part, rows in tables.items()},
    )


def _clean_text(config: Config, origin: Origin) -> _Source:
    """Read one file of sentences in one language, for training, and apply the rules."""
    settings = CleanerSettings("", origin.target, config.skip_rules)
    raw = read_text(origin.data)
    rows = _clean_part(raw, digest(raw.key, *settings, digest_files(code_files())), settings)
    counts = _RuleCounts()
    _count_cleaning(counts, rows, "train")
    nothing = _Selection(rows, np.zeros(0, dtype=np.int64))
    selections = {"train": _kept_by_cleaning(rows, "train"), "valid": nothing, "test": nothing}
    return _Source(origin, len(rows), [raw.key], counts, selections)


def _report_source(source: _Source, skip_rules: tuple[RuleName, ...]) -> DataReport:
    """What was read from one source, what the rules did, and what is left."""
    origin = source.origin
    is_monolingual = origin.is_monolingual
    # Which of the rules apply to these languages
    rules = CleanerSettings("" if is_monolingual else origin.source, origin.target, skip_rules).cleaner()
    n_train, n_valid, n_test = (len(source.selections[part]) for part in PARTS)
    return DataReport(
        source.n_read,
        n_train,
        n_valid,
        n_test,
        rules={name: count for name, count in source.counts.by_rule.items() if name in rules.active},
        notes=rules.notes,
        reversed=origin.is_reversed,
        monolingual=is_monolingual,
    )


def _report(reports: Sequence[DataReport]) -> DataReport:
    """The report of all sources together: that of the only one, or sums over those that have pairs."""
    if len(reports) == 1:
        return reports[0]
    of_pairs = [report for report in reports if not report.monolingual]

    def total(rule: RuleName) -> RuleReport:
        counts = [report.rules[rule] for report in of_pairs if rule in report.rules]
        examples = [example for count in counts for example in count.examples]
        return RuleReport(sum(count.pairs for count in counts), examples[:N_EXAMPLES])

    return DataReport(
        read=sum(report.read for report in of_pairs),
        train=sum(report.train for report in of_pairs),
        valid=sum(report.valid for report in of_pairs),
        test=sum(report.test for report in of_pairs),
        rules={rule: total(rule) for rule in RULE_NAMES if any(rule in report.rules for report in of_pairs)},
        notes=list(dict.fromkeys(note for report in of_pairs for note in report.notes)),
        sources=list(reports),
    )


def _count_cleaning(counts: "_RuleCounts", rows: datasets.Dataset, name: str) -> None:
    """Count what the rules for one pair did to the part called `name`."""
    counts.add("unicode", _Selection(rows, np.flatnonzero(column(rows, "repaired"))))
    counts.add("swapped-columns", _Selection(rows, np.flatnonzero(column(rows, "swapped"))))

    dropped = column(rows, "dropped")
    for index, rule in enumerate(RULE_NAMES):
        if name == "train" or rule == "empty-side":
            counts.add(rule, _Selection(rows, np.flatnonzero(dropped == index)))


def _kept_by_cleaning(rows: datasets.Dataset, name: str) -> _Selection:
    """The rows of the part called `name` that no rule drops. Only train loses more than pairs with an empty side."""
    dropped = column(rows, "dropped")
    is_kept = dropped < 0 if name == "train" else dropped != RULE_NAMES.index("empty-side")
    return _Selection(rows, np.flatnonzero(is_kept))


def _duplicates(sources: Sequence[_Source]) -> list[NDArray[np.bool_]]:
    """For each training row of each source, whether an earlier one, or one of an earlier source, holds the same pair.

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


def _split(config: Config, selections: dict[str, _Selection]) -> dict[str, _Selection]:
    """Split a missing valid or test part off train.

    The draw of a pair decides its part: with shares of 0.02 each, valid takes the draws below 0.02, test those from
    0.02 to 0.04, and train keeps the rest. It also keeps extremely long pairs, which are too long to learn from: one of
    them would take gigabytes at every validation.
    """
    train = selections["train"]
    draws = train.column("draw")
    n_words = np.maximum(train.column("words_source"), train.column("words_target"))
    is_extreme = n_words > EXTREME_LENGTH * config.max_length
    is_train = np.ones(len(train), dtype=bool)
    split = dict(selections)
    low = 0.0
    for name, share in (("valid", config.valid_share), ("test", config.test_share)):
        if name in selections:
            continue
        high = low + share
        is_drawn = (low <= draws) & (draws < high) & ~is_extreme
        split[name] = train.keep(is_drawn)
        is_train &= ~is_drawn
        low = high
    split["train"] = train.keep(is_train)
    return split


def _held_out_hashes(sources: Sequence[_Source]) -> dict[str, NDArray[Any]]:
    """The sorted hashes of all sides in valid and test parts, by language: of all sources and language pairs."""
    hashes: dict[str, list[NDArray[Any]]] = {}
    for source in sources:
        for part in ("valid", "test"):
            selection = source.selections[part]
            hashes.setdefault(source.origin.source, []).append(selection.column("source_hash"))
            hashes.setdefault(source.origin.target, []).append(selection.column("target_hash"))
    return {language: np.sort(np.concatenate(parts)) for language, parts in hashes.items()}


def _leaks(source: _Source, held_out: dict[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """For each training row, whether one of its normalized sides is held out in the same language."""
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


class _RuleCounts:
    """For each rule, the number of pairs that it changed or dropped, and the first of them as examples."""

    def __init__(self) -> None:
        self.by_rule = {name: RuleReport() for name in RULE_NAMES}

    def add(self, name: RuleName, selection: _Selection) -> None:
        """Count the selected pairs. Examples are shown after repairs, but swapped ones in their original order."""
        count = self.by_rule[name]
        count.pairs += len(selection)
        n_missing = N_EXAMPLES - len(count.examples)
        for row_number in selection.rows[:n_missing].tolist():
            row = selection.table[row_number]
            if name == "swapped-columns":
                count.examples.append((row["target"], row["source"]))
            else:
                count.examples.append((row["source"], row["target"]))


# Cleaning, in batches and processes


def _clean_part(part: Part, key: str, settings: CleanerSettings) -> datasets.Dataset:
    """The table of a part after the rules for one pair."""
    return cached_table("pairs", key, SCHEMA, lambda: _cleaned_batches(iter(part.pairs), settings))


def _turned_round(rows: datasets.Dataset, key: str) -> datasets.Dataset:
    """The same table with source and target exchanged. key is that of rows."""
    exchanged = {
        **{"source": "target", "target": "source"},
        **{"words_source": "words_target", "words_target": "words_source"},
        **{"source_hash": "target_hash", "target_hash": "source_hash"},
    }

    def batches() -> Iterator[dict[str, Any]]:
        for batch in record_batches(rows):
            yield {name: batch.column(exchanged.get(name, name)) for name in SCHEMA.names}

    return cached_table("turned", key, SCHEMA, batches)


def _cleaned_batches(pairs: Iterator[Pair], settings: CleanerSettings) -> Iterator[dict[str, Any]]:
    """Clean all pairs. Yields batches of columns, as `clean_batch` returns them."""
    # read the first pairs, for the cleaner's sample and to see whether there are many
    first_pairs = next(_chunks_of_text(pairs, max(SAMPLE, PARALLEL_THRESHOLD)), [])
    cleaner = settings.cleaner(first_pairs[:SAMPLE])
    is_large = len(first_pairs) >= PARALLEL_THRESHOLD
    n_processes = min(_available_cpus(), MAX_PROCESSES) if is_large else 1

    # clean them and the rest
    batches = _chunks_of_text(chain(first_pairs, pairs), CLEANING_BATCH)
    with progress_bar("cleaning", None, "pair", shown=is_large) as bar:
        for batch in _clean_in_processes(cleaner, batches, n_processes):
            bar.update(len(batch["source"]))
            yield batch


def _chunks_of_text(pairs: Iterator[Pair], size: int) -> Iterator[list[Pair]]:
    """Yield the pairs in lists of `size`, or of fewer if they are long, so that no list takes much memory."""
    chunk: list[Pair] = []
    n_characters = 0
    for pair in pairs:
        chunk.append(pair)
        n_characters += len(pair[0]) + len(pair[1])
        if len(chunk) == size or n_characters >= MAX_CHUNK_CHARACTERS:
            yield chunk
            chunk, n_characters = [], 0
    if chunk:
        yield chunk


def _clean_in_processes(
    cleaner: AnyCleaner, batches: Iterator[list[Pair]], n_processes: int
) -> Iterator[dict[str, Any]]:
    """Apply `clean_batch` to each batch, in order."""
    if n_processes == 1:
        for batch in batches:
            yield clean_batch(cleaner, batch)
        return

    # The start method spawn exists on every system and is safe beside torch's threads. Each process has a pipe of its
    # own, whose end is closed when it is killed: the pools of the standard library can hang then.
    spawn = multiprocessing.get_context("spawn")
    processes, pipes = [], []
    try:
        for _ in range(n_processes):
            pipe, pipe_of_process = spawn.Pipe()
            process = spawn.Process(target=_clean_what_comes, args=(cleaner, pipe_of_process), daemon=True)
            process.start()
            pipe_of_process.close()
            processes.append(process)
            pipes.append(pipe)

        # Each process has one batch at a time, in turn.
        at_work: deque[Connection] = deque()
        for batch, pipe in zip(batches, cycle(pipes), strict=False):
            result = _exchange(at_work.popleft().recv) if len(at_work) == n_processes else None
            _exchange(partial(pipe.send, batch))
            at_work.append(pipe)
            if result is not None:
                yield result
        for pipe in at_work:
            yield _exchange(pipe.recv)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _exchange(send_or_receive: Callable[[], T]) -> T:
    """The result of using a pipe. Raises DataError if the process at its other end is gone."""
    try:
        return send_or_receive()
    except (EOFError, OSError):
        raise DataError("a process that cleans the data was killed: perhaps memory is short") from None


def _clean_what_comes(cleaner: AnyCleaner, pipe: Connection) -> None:
    """Cleans the batches of a pipe until its other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles Ctrl-C and ends its workers
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.send(clean_batch(cleaner, pipe.recv()))


def _available_cpus() -> int:
    """The CPUs that this process may use; a cluster may have given it a few of many."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def clean_batch(cleaner: AnyCleaner, pairs: Iterable[Pair]) -> dict[str, Any]:
    """Judge raw pairs. Returns the columns of SCHEMA, with one value for each pair."""
    rows = [_row(cleaner, raw) for raw in pairs]
    return {name: [row[name] for row in rows] for name in SCHEMA.names}


def _row(cleaner: AnyCleaner, raw: Pair) -> dict[str, Any]:
    """Judge one raw pair. Returns its row of the table."""
    verdict = cleaner.judge(raw)
    source, target = verdict.pair
    normalized_source = normalize(source)
    normalized_target = normalize(target)
    return {
        "source": source,
        "target": target,
        "dropped": RULE_NAMES.index(verdict.dropped) if verdict.dropped else -1,
        "repaired": verdict.repaired,
        "swapped": verdict.swapped,
        "words_source": len(source.split()),
        "words_target": len(target.split()),
        "pair_hash": _hash(source + "\n" + target),
        "source_hash": _hash(normalized_source),
        "target_hash": _hash(normalized_target),
        "draw": _draw(normalized_source, normalized_target),
    }


def normalize(text: str) -> str:
    """Reduce a text to the form in which leaks are found: its letters and digits, without case or accents.

    A text without letters and digits keeps its symbols.
    """
    decomposed = unicodedata.normalize("NFKD", text).casefold()
    letters_and_digits = "".join(c for c in decomposed if c.isalnum() or _is_vowel_sign(c))
    return letters_and_digits or decomposed


def _is_vowel_sign(character: str) -> bool:
    """Whether it is a mark as Hindi and Thai write vowels, which distinguishes words; accents are not."""
    if not "\u0900" <= character < "\u1800" or unicodedata.category(character)[0] != "M":
        return False
    combining_class = unicodedata.combining(character)
    return combining_class == 0 or 84 <= combining_class <= 132  # the classes of vowels below, in Telugu, Thai and Lao


def _hash(text: str) -> int:
    """A signed 64-bit hash. Among 5 million texts, any two collide with a probability of one in a million."""
    raw = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(raw, "big", signed=True)


def _draw(normalized_source: str, normalized_target: str) -> float:
    """A uniform number in [0, 1) that depends on the two texts alone.

    A pair therefore stays in its part on every machine, in either translation direction, and when the data grows.
    """
    sides = sorted([normalized_source, normalized_target])
    raw = "\n".join(sides).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(raw).digest()[:8], "big") / 2**64
