"""Tables of cleaned pairs: each raw pair of a part, judged by the rules, with what duplicates and leaks are found by.

Cleaning runs in batches, in several processes if there is much data. Its results are kept in a table on disk and
reused (tables.py).
"""

import contextlib
import hashlib
import multiprocessing
import os
import re
import signal
import sys
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import chain, cycle
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import datasets
import pyarrow as pa

from config import RuleName
from pairs.cleaning import RULES, SAMPLE, AnyCleaner, CleanerSettings
from pairs.readers import DataError, Pair, Part
from pairs.tables import cached_table, record_batches
from pairs.unreadable import Unreadable
from tapis.system.files import digest, digest_files
from tapis.system.terminal import progress_bar

T = TypeVar("T")
RawRow = Pair | Unreadable

CLEANING_BATCH = 1000  # pairs cleaned at a time by one process
PAIRS_OF_A_PROCESS = 10_000  # cleaning so many takes longer than starting a process does
MAX_PROCESSES = 16  # that clean; each takes 100 MB
MAX_CHUNK_CHARACTERS = 50_000_000  # read at a time; 20,000 sentences have about 5 million
RULE_NAMES: list[RuleName] = list(RULES)
KEPT = -1
UNREADABLE = -2

# One row for each raw pair of a part. An unreadable row has its location and its problem as its sides.
SCHEMA = pa.schema(
    {
        "source": pa.string(),  # after repairs
        "target": pa.string(),
        "dropped": pa.int8(),  # the rule that drops the pair: an index into RULE_NAMES; or KEPT, or UNREADABLE
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


IMPORTED = r"^\s*from ((?:pairs|tapis\.text)\.\w+) import"


@cache
def code_files() -> list[Path]:
    """Return the files of corpus.py and of all that it imports from its room and from tapis/text.

    They decide what is read and kept: their code is part of the keys of cached tables.
    """
    project = Path(__file__).parents[1]
    found, new = set[Path](), {project / "pairs" / "corpus.py"}
    while new:
        found |= new
        texts = [file.read_text(encoding="utf-8") for file in new]
        modules = {name for text in texts for name in re.findall(IMPORTED, text, re.MULTILINE)}
        new = {project / f"{name.replace('.', '/')}.py" for name in modules} - found
    return sorted(found)


def cleaned_table(part: Part, settings: CleanerSettings) -> datasets.Dataset:
    """Return the table of a part after the rules for one pair, from the cache if the same part was cleaned before."""
    key = _key(part, settings)
    return cached_table("pairs", key, SCHEMA, lambda: _cleaned_batches(iter(part.rows), settings))


def _key(part: Part, settings: CleanerSettings) -> str:
    return digest(part.key, *settings, digest_files(code_files()))


def turned_round(rows: datasets.Dataset, part: Part, settings: CleanerSettings) -> datasets.Dataset:
    """Return the table of a part with source and target exchanged."""
    exchanged = {
        **{"source": "target", "target": "source"},
        **{"words_source": "words_target", "words_target": "words_source"},
        **{"source_hash": "target_hash", "target_hash": "source_hash"},
    }

    def batches() -> Iterator[dict[str, Any]]:
        for batch in record_batches(rows):
            yield {name: batch.column(exchanged.get(name, name)) for name in SCHEMA.names}

    return cached_table("turned", _key(part, settings), SCHEMA, batches)


def _cleaned_batches(rows: Iterator[RawRow], settings: CleanerSettings) -> Iterator[dict[str, Any]]:
    """Clean all pairs. Yields batches of columns, as `clean_batch` returns them."""
    # read the first rows, for the cleaner's sample and to see whether there are many
    first_rows = next(_chunks_of_text(rows, max(SAMPLE, PAIRS_OF_A_PROCESS * MAX_PROCESSES)), [])
    cleaner = settings.cleaner([row for row in first_rows[:SAMPLE] if not isinstance(row, Unreadable)])
    n_processes = max(1, min(_available_cpus(), len(first_rows) // PAIRS_OF_A_PROCESS))

    # clean them and the rest
    batches = _chunks_of_text(chain(first_rows, rows), CLEANING_BATCH)
    with progress_bar("cleaning", None, "pair", shown=n_processes > 1) as bar:
        for batch in _clean_in_processes(cleaner, batches, n_processes):
            bar.update(len(batch["source"]))
            yield batch


def _chunks_of_text(rows: Iterator[RawRow], size: int) -> Iterator[list[RawRow]]:
    """Yield the rows in lists of `size`, or of fewer if they are long, so that no list takes much memory."""
    chunk: list[RawRow] = []
    n_characters = 0
    for row in rows:
        chunk.append(row)
        n_characters += len(row[0]) + len(row[1])
        if len(chunk) == size or n_characters >= MAX_CHUNK_CHARACTERS:
            yield chunk
            chunk, n_characters = [], 0
    if chunk:
        yield chunk


def _clean_in_processes(
    cleaner: AnyCleaner, batches: Iterator[list[RawRow]], n_processes: int
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
        with _as_workers():
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


@contextlib.contextmanager
def _as_workers() -> Iterator[None]:
    """While entered, processes that start leave the main module alone, and numpy computes with one thread in each.

    The main module is that of the command, which imports torch: for seconds, and 150 MB. With numpy's threads, a
    machine of 16 cores would have 256 at work.
    """
    main = sys.modules["__main__"]
    hidden = {name: getattr(main, name) for name in ("__spec__", "__file__") if hasattr(main, name)}
    threads = "OPENBLAS_NUM_THREADS"
    before = os.environ.get(threads)
    try:
        for name in hidden:
            setattr(main, name, None)
        os.environ[threads] = "1"
        yield
    finally:
        for name, value in hidden.items():
            setattr(main, name, value)
        os.environ.pop(threads)
        if before is not None:
            os.environ[threads] = before


def _exchange(send_or_receive: Callable[[], T]) -> T:
    """Return the result of using a pipe. Raises DataError if the process at its other end is gone."""
    try:
        return send_or_receive()
    except (EOFError, OSError):
        raise DataError("a process that cleans the data was killed: perhaps memory is short") from None


def _clean_what_comes(cleaner: AnyCleaner, pipe: Connection) -> None:
    """Clean the batches of a pipe until its other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles Ctrl-C and ends its workers
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.send(clean_batch(cleaner, pipe.recv()))


def _available_cpus() -> int:
    """Return the CPUs that this process may use; a cluster may have given it a few of many."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def clean_batch(cleaner: AnyCleaner, raw_rows: Iterable[RawRow]) -> dict[str, Any]:
    """Judge raw pairs. Returns the columns of SCHEMA, with one value for each pair or unreadable row."""
    rows = [_unreadable_row(raw) if isinstance(raw, Unreadable) else _row(cleaner, raw) for raw in raw_rows]
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
        "dropped": RULE_NAMES.index(verdict.dropped) if verdict.dropped else KEPT,
        "repaired": verdict.repaired,
        "swapped": verdict.swapped,
        "words_source": len(source.split()),
        "words_target": len(target.split()),
        "pair_hash": _hash(source + "\n" + target),
        "source_hash": _hash(normalized_source),
        "target_hash": _hash(normalized_target),
        "draw": _draw(normalized_source, normalized_target),
    }


def _unreadable_row(raw: Unreadable) -> dict[str, Any]:
    """Return the row of the table that counts an unreadable row and shows it as an example."""
    row = {**dict.fromkeys(SCHEMA.names, 0), "repaired": False, "swapped": False}
    return {**row, "source": raw.location, "target": raw.problem, "dropped": UNREADABLE}


def normalize(text: str) -> str:
    """Reduce a text to the form in which leaks are found: its letters and digits, without case or accents.

    A text without letters and digits keeps its symbols.
    """
    decomposed = unicodedata.normalize("NFKD", text).casefold()
    letters_and_digits = "".join(c for c in decomposed if c.isalnum() or _is_vowel_sign(c))
    return letters_and_digits or decomposed


def _is_vowel_sign(character: str) -> bool:
    """Return whether it is a mark as Hindi and Thai write vowels, which distinguishes words; accents are not."""
    if not "\u0900" <= character < "\u1800" or unicodedata.category(character)[0] != "M":
        return False
    combining_class = unicodedata.combining(character)
    return combining_class == 0 or 84 <= combining_class <= 132  # the classes of vowels below, in Telugu, Thai and Lao


def _hash(text: str) -> int:
    """Return a signed 64-bit hash. Among 5 million texts, any two collide with a probability of one in a million."""
    raw = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(raw, "big", signed=True)


def _draw(normalized_source: str, normalized_target: str) -> float:
    """Return a uniform number in [0, 1) that depends on the two texts alone.

    A pair therefore stays in its part on every machine, in either translation direction, and when the data grows.
    """
    sides = sorted([normalized_source, normalized_target])
    raw = "\n".join(sides).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(raw).digest()[:8], "big") / 2**64
