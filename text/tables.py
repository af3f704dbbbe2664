"""Large tables on disk: written once in batches, memory-mapped afterwards, found again by their content.

What is prepared from the same data, by the same rules and the same code, is prepared once. The tables lie in the cache
of `datasets`, each under a key that hashes everything that went into it. `Pairs` and `Ragged` read them where they are.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from system.files import cache_file, digest, write_whole

if TYPE_CHECKING:  # half a second to import, which translating does without
    import datasets

Ints = NDArray[np.integer[Any]]
T = TypeVar("T")


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of that size, the last one perhaps shorter."""
    items = iter(items)
    while chunk := list(islice(items, size)):
        yield chunk


def table(
    kind: str, key: str, schema: pa.Schema, batches: Callable[[], Iterator[dict[str, Any]]]
) -> "datasets.Dataset":
    """The table of that key, memory-mapped; made of batches of columns where it is not there yet."""
    import datasets  # noqa: PLC0415

    path = cache_file(kind, key, ".arrow")

    def write(temporary: Path) -> None:
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for batch in batches():
                writer.write_batch(pa.record_batch(batch, schema=schema))

    if not path.is_file():
        write_whole(path, write)
    return datasets.Dataset.from_file(str(path))


def record_batches(rows: "datasets.Dataset") -> Iterator[pa.RecordBatch]:
    """A table from its start to its end, read and let go: mapped, all that was touched would stay resident."""
    if not rows.cache_files:  # made in memory
        yield from rows.data.to_batches()
        return
    with pa.OSFile(rows.cache_files[0]["filename"]) as file, pa.ipc.open_stream(file) as reader:
        yield from reader


def column(rows: "datasets.Dataset", name: str) -> NDArray[Any]:
    """A column of numbers, in memory."""
    parts = [batch.column(name).to_numpy(zero_copy_only=False) for batch in record_batches(rows)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


class Pairs(Sequence[tuple[str, str]]):
    """Some rows of a table of pairs, in ascending order; as a sequence, read from disk when asked for."""

    def __init__(self, rows: "datasets.Dataset", chosen: Ints, key: str) -> None:
        self.rows, self.chosen, self.key = rows, chosen, key

    def __len__(self) -> int:
        return len(self.chosen)

    @overload
    def __getitem__(self, place: int) -> tuple[str, str]: ...
    @overload
    def __getitem__(self, place: slice) -> list[tuple[str, str]]: ...
    def __getitem__(self, place: int | slice) -> tuple[str, str] | list[tuple[str, str]]:
        if isinstance(place, int):
            row = self.rows[int(self.chosen[place])]
            return row["source"], row["target"]
        found = self.rows[self.chosen[place].tolist()]
        return list(zip(found["source"], found["target"], strict=True))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        start = 0
        for batch in record_batches(self.rows):
            low, high = np.searchsorted(self.chosen, [start, start + len(batch)])
            mine = batch.take(pa.array(self.chosen[low:high] - start))
            yield from zip(mine["source"].to_pylist(), mine["target"].to_pylist(), strict=True)
            start += len(batch)

    def select(self, places: Ints) -> "Pairs":
        """Some of these pairs, by their places here."""
        return Pairs(self.rows, self.chosen[places], digest(self.key, places.tobytes()))

    def fingerprint(self) -> str:
        """A key of the texts, in their order, whatever they were prepared from and by: a second for 5 million pairs."""
        return digest(column(self.rows, "pair_hash")[self.chosen].tobytes())

    def words(self) -> tuple[int, int]:
        """Words between blanks, of either side."""
        both = (column(self.rows, name)[self.chosen].sum() for name in ("words_source", "words_target"))
        return int(next(both)), int(next(both))


class Ragged:
    """A column of lists of integers: row i is an array; all of them stay where the table is."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        self.values = [chunk.values.to_numpy() for chunk in chunks]
        self.offsets = [chunk.offsets.to_numpy() for chunk in chunks]
        sizes = [len(chunk) for chunk in chunks]
        self.starts: Ints = np.cumsum([0, *sizes], dtype=np.int64)

    def lengths(self) -> Ints:
        """How long each row is, in memory."""
        return np.concatenate([np.diff(offsets) for offsets in self.offsets] or [np.zeros(0, dtype=np.int32)])

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        chunk = int(np.searchsorted(self.starts, row, side="right")) - 1
        place = row - self.starts[chunk]
        start, end = self.offsets[chunk][place : place + 2]
        ids: NDArray[np.int32] = self.values[chunk][start:end]
        return ids
