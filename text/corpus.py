"""Sentence pairs, clean and leak-free: read, put through the rules, divided into train, valid and test, reported.

`load_corpus` is the whole of it. Reading is readers.py's, the rules for one pair are cleaning.py's; they run by
batches, in several processes where there is much to do, and what comes out lies in a table on disk, made once
(store.py). Here repeated pairs are dropped, missing parts are made, and training gives up what validation or test hold.
Lengths in tokens are not known here: dataset.py drops what is too long.
"""

import hashlib
import multiprocessing
import os
import signal
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa

from config import Config, RuleName
from system.files import digest, digest_files
from system.terminal import progress_bar
from text.cleaning import RULES, SAMPLE, Cleaner
from text.readers import PARTS, DataError, Pair, Part, read_parts
from text.tables import Ints, Pairs, chunks, column, table

DEMO = Path(__file__).parents[1] / "demo"
CODE = [Path(__file__).parent / f"{name}.py" for name in ("cleaning", "corpus", "readers")]
BATCH = 1000  # pairs that one process cleans at a time
ALONE = 20_000  # so many pairs are cleaned sooner by one process than others have started
NAMES: list[RuleName] = list(RULES)
SCHEMA = pa.schema(
    {
        "source": pa.string(),
        "target": pa.string(),
        "dropped": pa.int8(),  # index into NAMES, or -1
        "repaired": pa.bool_(),
        "swapped": pa.bool_(),
        "words_source": pa.int32(),
        "words_target": pa.int32(),
        "pair_hash": pa.int64(),
        "source_hash": pa.int64(),  # of the normalized side
        "target_hash": pa.int64(),
        "draw": pa.float64(),  # from 0 to 1, for the split
    }
)


@dataclass
class Corpus:
    """The pairs of the three parts, source side first, and what was done to them."""

    train: Pairs
    valid: Pairs
    test: Pairs
    report: dict[str, Any] = field(default_factory=dict)
    """Pairs read and left, and of each rule how many it met, and two of them; for metrics.json"""


def load_corpus(config: Config) -> Corpus:
    """Reads, cleans and splits `config.data`. Raises DataError, in words, where that cannot be done."""
    given = read_parts(str(DEMO) if config.data == "demo" else config.data, config.source, config.target)
    cleaned = {name: _cleaned(config, part) for name, part in given.items()}
    counts = _Counts()
    chosen: dict[str, Ints] = {}
    active = {name for name in NAMES if name not in config.skip_rules}
    for name, rows in cleaned.items():
        dropped = column(rows, "dropped")
        counts.add("unicode", rows, np.flatnonzero(column(rows, "repaired")))
        counts.add("swapped-columns", rows, np.flatnonzero(column(rows, "swapped")))
        for number, rule in enumerate(NAMES):
            if name == "train" or rule == "empty-side":
                counts.add(rule, rows, np.flatnonzero(dropped == number))
        chosen[name] = np.flatnonzero(dropped < 0 if name == "train" else dropped != NAMES.index("empty-side"))
    rows = cleaned["train"]
    if "duplicates" in active:
        _, first = np.unique(column(rows, "pair_hash")[chosen["train"]], return_index=True)
        again = np.ones(len(chosen["train"]), dtype=bool)
        again[first] = False
        counts.add("duplicates", rows, chosen["train"][again])
        chosen["train"] = chosen["train"][np.sort(first)]
    parts = {name: (cleaned.get(name, rows), kept) for name, kept in _split(config, rows, chosen).items()}
    if "held-out" in active:
        leaks = np.zeros(len(parts["train"][1]), dtype=bool)
        for side in ("source_hash", "target_hash"):
            held = np.sort(np.concatenate([column(parts[name][0], side)[parts[name][1]] for name in ("valid", "test")]))
            hashes = column(rows, side)[parts["train"][1]]
            if len(held):  # a search in the few that are held takes a fifth of the memory of np.isin
                leaks |= held[np.searchsorted(held, hashes).clip(max=len(held) - 1)] == hashes
        counts.add("held-out", rows, parts["train"][1][leaks])
        parts["train"] = (rows, parts["train"][1][~leaks])
    read = sum(map(len, cleaned.values()))
    for name in ("train", "valid"):
        if not len(parts[name][1]):
            raise DataError(f"--data {config.data}: no pairs in the {name} part, of {read:,} rows read")
    kept = (rows.tobytes() for _, rows in parts.values())
    key = digest(*(part.key for part in given.values()), *kept, digest_files(CODE))
    train, valid, test = (Pairs(*parts[name], digest(key, name, sorted(config.skip_rules))) for name in PARTS)
    sizes = {"read": read, "train": len(train), "valid": len(valid), "test": len(test)}
    notes = Cleaner(config.source, config.target, config.skip_rules).notes
    rules = {name: met for name, met in counts.met.items() if name in active}
    return Corpus(train, valid, test, {**sizes, "rules": rules, "notes": notes})


def _split(config: Config, rows: datasets.Dataset, chosen: dict[str, Ints]) -> dict[str, Ints]:
    """The rows of train, valid and test; missing parts are taken out of train by the draw of each pair."""
    train, draw = chosen["train"], column(rows, "draw")[chosen["train"]]
    made, low = dict(chosen), 0.0
    is_train = np.ones(len(train), dtype=bool)
    for name, share in (("valid", config.valid_share), ("test", config.test_share)):
        if name not in chosen:
            drawn = (low <= draw) & (draw < low + share)
            made[name], low = train[drawn], low + share
            is_train &= ~drawn
    made["train"] = train[is_train]
    return made


class _Counts:
    """How many pairs each rule met, and the first two of them."""

    def __init__(self) -> None:
        self.met: dict[RuleName, dict[str, Any]] = {name: {"pairs": 0, "examples": []} for name in NAMES}

    def add(self, name: RuleName, rows: datasets.Dataset, where: Ints) -> None:
        """where: the rows that the rule met. Pairs are shown as they are after repairs, swapped ones as they came."""
        met = self.met[name]
        met["pairs"] += len(where)
        for place in where[: 2 - len(met["examples"])].tolist():
            pair = rows[place]["source"], rows[place]["target"]
            met["examples"].append(pair[::-1] if name == "swapped-columns" else pair)


# Cleaning, by batches and processes


def _cleaned(config: Config, part: Part) -> datasets.Dataset:
    """The table of a part after the rules for one pair."""
    settings = (config.source, config.target, config.skip_rules)
    key = digest(part.key, *settings, digest_files(CODE))
    return table("pairs", key, SCHEMA, lambda: _clean_all(iter(part.pairs), settings))


def _clean_all(pairs: Iterator[Pair], settings: tuple[str, str, Sequence[RuleName]]) -> Iterator[dict[str, Any]]:
    head = list(islice(pairs, max(SAMPLE, ALONE)))
    cleaner = Cleaner(*settings, sample=head[:SAMPLE])
    many = len(head) >= ALONE
    with progress_bar("cleaning", None, "pair", shown=many) as bar:
        processes = os.cpu_count() or 1 if many else 1
        for batch in _mapped(cleaner, chunks(chain(head, pairs), BATCH), processes):
            bar.update(len(batch["source"]))
            yield batch


def _mapped(cleaner: Cleaner, batches: Iterator[list[Pair]], processes: int) -> Iterator[dict[str, Any]]:
    if processes == 1:
        yield from (clean_batch(cleaner, batch) for batch in batches)
        return
    # spawn is what every system has, and safe beside torch's threads; groups keep the reading from running ahead
    with multiprocessing.get_context("spawn").Pool(processes, _start_worker, (cleaner,)) as pool:
        for group in chunks(batches, 4 * processes):
            yield from pool.map(_clean_in_worker, group, chunksize=1)


_worker: list[Cleaner] = []  # of this process, where it is one that cleans


def _start_worker(cleaner: Cleaner) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process, which ends this one
    _worker.append(cleaner)


def _clean_in_worker(pairs: list[Pair]) -> dict[str, Any]:
    return clean_batch(_worker[0], pairs)


def clean_batch(cleaner: Cleaner, pairs: Iterable[Pair]) -> dict[str, Any]:
    """Raw pairs → columns of SCHEMA."""
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for raw in pairs:
        verdict = cleaner.judge(raw)
        source, target = verdict.pair
        normal = normalize(source), normalize(target)
        judged = NAMES.index(verdict.dropped) if verdict.dropped else -1, verdict.repaired, verdict.swapped
        words = len(source.split()), len(target.split())
        hashes = _hash(source + "\n" + target), _hash(normal[0]), _hash(normal[1])
        row = (source, target, *judged, *words, *hashes, _draw(normal))
        for values, value in zip(columns.values(), row, strict=True):
            values.append(value)
    return columns


def normalize(text: str) -> str:
    """What texts are compared by when looking for leaks: letters and digits, without case, accents or form."""
    decomposed = unicodedata.normalize("NFKD", text).casefold()
    letters = "".join(filter(str.isalnum, decomposed))
    return letters or decomposed  # a text of signs alone is compared as it is


def _hash(text: str) -> int:
    """64 bits: among 5 million texts, one chance in a million that any two collide."""
    raw = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(raw, "big", signed=True)


def _draw(normal: tuple[str, str]) -> float:
    """A number from 0 to 1 that the pair has for ever, on every machine, in either direction."""
    raw = "\n".join(sorted(normal)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(raw).digest()[:8], "big") / 2**64
