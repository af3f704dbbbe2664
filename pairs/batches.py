"""Batches of raw pairs, judged by the rules, in several processes if there are many.

A process imports this file. It therefore needs neither pyarrow nor `datasets`, which take seconds to import.
"""

import contextlib
import gc
import hashlib
import multiprocessing
import os
import re
import signal
import sys
import unicodedata
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, cycle
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from config import RuleName
from pairs.cleaning import RULES, AnyCleaner, Verdict
from pairs.unreadable import RawRow, Unreadable
from tapis.text.languages import normalized
from tapis.text.lines import DataError
from tapis.text.sentences import replace_lone_surrogates

T = TypeVar("T")

RULE_NAMES: list[RuleName] = list(RULES)
KEPT = -1
UNREADABLE = -2
NOTE = -3


class CleanedRow(NamedTuple):
    """A row of a table of cleaned pairs. An unreadable row has its location and its problem as its sides.

    A note on the file, for the report, is both sides of a row of its own.
    """

    source: str
    """After repairs"""
    target: str
    dropped: int
    """The rule that drops the pair: an index into RULE_NAMES; or KEPT, UNREADABLE or NOTE"""
    repaired: bool
    swapped: bool
    words_source: int
    words_target: int
    pair_hash: int
    source_hash: int
    """Of the normalized side"""
    target_hash: int
    draw: float
    """In [0, 1), decides the part in a split"""


def clean_in_processes(
    make_cleaner: Callable[[], AnyCleaner], batches: Iterator[list[RawRow]], n_processes: int
) -> Iterator[dict[str, list[Any]]]:
    """Apply `clean_batch` to each batch, in order. The cleaner is made while the processes start."""
    if n_processes == 1:
        cleaner = make_cleaner()
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
                process = spawn.Process(target=_clean_what_comes, args=(pipe_of_process,), daemon=True)
                process.start()
                pipe_of_process.close()
                processes.append(process)
                pipes.append(pipe)
        cleaner = make_cleaner()
        for pipe in pipes:
            _exchange(partial(pipe.send, cleaner))

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


def _clean_what_comes(pipe: Connection) -> None:
    """Receive a cleaner from a pipe, and clean the batches that follow until the other end is closed."""
    gc.disable()  # it would visit every row of every batch, and none has a cycle
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles Ctrl-C and ends its workers
    with contextlib.suppress(EOFError, OSError):
        cleaner = pipe.recv()
        while True:
            pipe.send(clean_batch(cleaner, pipe.recv()))


def clean_batch(cleaner: AnyCleaner, raw_rows: Sequence[RawRow]) -> dict[str, list[Any]]:
    """Judge raw pairs. Returns the columns of `CleanedRow`, with one value for each pair or unreadable row."""
    places = [i for i, raw in enumerate(raw_rows) if not isinstance(raw, Unreadable)]
    verdicts = dict(zip(places, cleaner.judge([raw_rows[i] for i in places]), strict=True))
    rows = [_row(verdicts[i]) if i in verdicts else _unreadable_row(*raw) for i, raw in enumerate(raw_rows)]
    return {name: [row[i] for row in rows] for i, name in enumerate(CleanedRow._fields)}


def _row(verdict: Verdict) -> CleanedRow:
    """Return the row of the table of a judged pair."""
    source, target = verdict.pair
    normalized_source = normalize(source)
    normalized_target = normalize(target)
    return CleanedRow(
        source,
        target,
        dropped=RULE_NAMES.index(verdict.dropped) if verdict.dropped else KEPT,
        repaired=verdict.repaired,
        swapped=verdict.swapped,
        words_source=len(source.split()),
        words_target=len(target.split()),
        pair_hash=_hash(source + "\n" + target),
        source_hash=_hash(normalized_source),
        target_hash=_hash(normalized_target),
        draw=_draw(normalized_source, normalized_target),
    )


def _unreadable_row(location: str, problem: str) -> CleanedRow:
    """Return the row of the table that counts an unreadable row and shows it as an example, or a note on the file.

    Its location is without the folder: the same file in another folder has the same table in the cache. What it quotes
    of the file may have lone surrogates, which no table can hold.
    """
    location, problem = replace_lone_surrogates(Path(location).name), replace_lone_surrogates(problem)
    kind = UNREADABLE if location else NOTE
    return CleanedRow(location or problem, problem, kind, False, False, 0, 0, 0, 0, 0, 0.0)


def _distinguishing_marks() -> str:
    """Return the marks that distinguish words, such as the vowels of Hindi and Thai; accents do not."""
    blocks = [range(0x780, 0x7C0), range(0x900, 0x1800), range(0x1900, 0x1CC0), range(0x3099, 0x309B)]
    marks = [sign for sign in map(chr, chain(*blocks)) if unicodedata.category(sign)[0] == "M"]
    # Class 8 is of voiced sounds in Japanese, 9 of signs of no vowel in India; from 84 on, they are of vowels below, in
    # Telugu, Thai and Lao.
    return "".join(mark for mark in marks if (of := unicodedata.combining(mark)) in (0, 8, 9) or 84 <= of <= 132)


_LETTERS_AND_DIGITS = re.compile(rf"[\w{_distinguishing_marks()}]+")  # and _, which \w includes


def normalize(text: str) -> str:
    """Reduce a text to the form in which leaks are found: its letters and digits, without case or accents.

    A text without letters and digits keeps its symbols.
    """
    decomposed = normalized("NFKD", text).casefold()
    return "".join(_LETTERS_AND_DIGITS.findall(decomposed)).replace("_", "") or decomposed


def _hash(text: str) -> int:
    """Return a signed 64-bit hash. Among 5 million texts, any two collide with a probability of one in a million."""
    raw = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(raw, "big", signed=True)


def _draw(normalized_source: str, normalized_target: str) -> float:
    """Return a uniform number in [0, 1) that depends on the two texts alone.

    A pair therefore stays in its part on every machine, in either translation direction, and when the data grows, but
    for what `split_off` says of large parts.
    """
    sides = sorted([normalized_source, normalized_target])
    raw = "\n".join(sides).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(raw).digest()[:8], "big") / 2**64
