"""Large tables on disk: written once, in batches, then memory-mapped and reused.

Each table lies in the cache of `datasets`, under a key that hashes everything it was made from: the data, the settings
and the code. Preparing the same data again therefore only opens a file. `Pairs` and `Ragged` read such tables without
loading them into memory.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tapis.system.files import cache_file, digest, write_whole

if TYPE_CHECKING:  # takes 0.5 s, which translate.py does not need
    import datasets

Ints = NDArray[np.integer[Any]]
T = TypeVar("T")


def cached_table(
    kind: str, key: str, schema: pa.Schema, batches: Callable[[], Iterator[dict[str, Any]]]
) -> "datasets.Dataset":
    """Return the cached table of this kind and key, memory-mapped. Write it first if there is none.

    `batches` is called only then. It yields batches of rows, each as a mapping from column names to values. An error
    in it leaves no file behind.
    """
    import datasets  # noqa: PLC0415

    def write_batches(temporary: Path) -> None:
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for batch in batches():
                writer.write_batch(pa.record_batch(batch, schema=schema))

    path = cache_file(kind, key, ".arrow")
    if not path.is_file():
        write_whole(path, write_batches)
    return datasets.Dataset.from_file(str(path))


def record_batches(rows: "datasets.Dataset") -> Iterator[pa.RecordBatch]:
    """Yield a table batch by batch, from start to end, without keeping it in memory.

    This reads the files instead of the memory map, because mapped pages stay resident once they are touched.
    """
    if not rows.cache_files:  # a table in memory
        yield from rows.data.to_batches()
        return
    for cached in rows.cache_files:
        with pa.OSFile(cached["filename"]) as file, pa.ipc.open_stream(file) as reader:
            yield from reader


def column(rows: "datasets.Dataset", name: str) -> NDArray[Any]:
    """Return a numeric column as an array in memory."""
    arrays = [batch.column(name).to_numpy(zero_copy_only=False) for batch in record_batches(rows)]
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)


class Pairs(Sequence[tuple[str, str]]):
    """Sentence pairs selected from a table. A sequence whose texts are read from disk on access.

    The table has the columns of `pairs.cleaned.SCHEMA`. It may be several tables, one after the other: one for each
    source of data.
    """

    def __init__(self, rows: "datasets.Dataset", chosen: Ints, key: str, ends: Sequence[int] = ()) -> None:
        """Select pairs.

        Args:
            rows: the table.
            chosen: the numbers of the selected rows, ascending.
            key: hash of the selection and of everything that the table was made from, used in cache keys.
            ends: for each source of data, the row after its last one; by default there is one source.

        """
        self.rows = rows
        self.chosen = chosen
        self.key = key
        self.ends = list(ends) or [len(rows)]

    @classmethod
    def joined(cls, parts: "Sequence[Pairs]") -> "Pairs":
        """Return the pairs of several sources of data, one source after the other."""
        import datasets  # noqa: PLC0415

        if len(parts) == 1:
            return parts[0]
        ends = np.cumsum([len(part.rows) for part in parts]).tolist()
        starts = [0, *ends[:-1]]
        chosen = np.concatenate([start + part.chosen for start, part in zip(starts, parts, strict=True)])
        rows = datasets.concatenate_datasets([part.rows for part in parts])
        return cls(rows, chosen, digest(*(part.key for part in parts)), ends)

    def origins(self) -> Ints:
        """Return the number of its source of data, from 0, for each pair."""
        return np.searchsorted(self.ends, self.chosen, side="right")

    def __len__(self) -> int:
        return len(self.chosen)

    @overload
    def __getitem__(self, index: int) -> tuple[str, str]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, str]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, str] | list[tuple[str, str]]:
        if isinstance(index, int):
            row = self.rows[int(self.chosen[index])]
            return row["source"], row["target"]
        columns = self.rows[self.chosen[index].tolist()]
        return list(zip(columns["source"], columns["target"], strict=True))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Read all pairs in one pass over the table, far faster than one by one."""
        batch_start = 0
        for batch in record_batches(self.rows):
            # self.chosen[low:high] are the selected rows of this batch
            batch_end = batch_start + len(batch)
            low, high = np.searchsorted(self.chosen, [batch_start, batch_end])
            selected = batch.take(pa.array(self.chosen[low:high] - batch_start))
            yield from zip(selected["source"].to_pylist(), selected["target"].to_pylist(), strict=True)
            batch_start = batch_end

    def select(self, indices: Ints) -> "Pairs":
        """Return the pairs at these indices, which must be ascending."""
        return Pairs(self.rows, self.chosen[indices], digest(self.key, indices.tobytes()), self.ends)

    def fingerprint(self) -> str:
        """Hash the texts in their order, however they were prepared. Takes about 1 s for 5 million pairs."""
        return digest(column(self.rows, "pair_hash")[self.chosen].tobytes())

    def words(self) -> tuple[int, int]:
        """Count the whitespace-separated words of the source sides and of the target sides."""
        n_source = column(self.rows, "words_source")[self.chosen].sum()
        n_target = column(self.rows, "words_target")[self.chosen].sum()
        return int(n_source), int(n_target)


class Ragged:
    """A memory-mapped column of integer lists. `ragged[row]` is an int32 array.

    Arrow stores such a column in chunks, each as one flat array and the offsets at which its rows start:

        rows      [7 8] [9] [] [4 5 6]
        values    7 8 9 4 5 6
        offsets   0 2 3 3 6
    """

    def __init__(self, column: pa.ChunkedArray) -> None:
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        self.values = [chunk.values.to_numpy() for chunk in chunks]
        self.offsets = [chunk.offsets.to_numpy() for chunk in chunks]
        self.chunk_starts: Ints = np.cumsum([0, *(len(chunk) for chunk in chunks)], dtype=np.int64)

    def lengths(self) -> Ints:
        """Return the length of every row, in memory."""
        if not self.offsets:
            return np.zeros(0, dtype=np.int32)
        return np.concatenate([np.diff(offsets) for offsets in self.offsets])

    def counts(self, size: int) -> Ints:
        """Return how often each of the integers from 0 to size − 1 occurs in all rows."""
        counts = np.zeros(size, dtype=np.int64)
        for values, offsets in zip(self.values, self.offsets, strict=True):
            counts += np.bincount(values[offsets[0] : offsets[-1]], minlength=size)
        return counts

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        chunk = int(np.searchsorted(self.chunk_starts, row, side="right")) - 1
        row_in_chunk = row - self.chunk_starts[chunk]
        start, end = self.offsets[chunk][row_in_chunk : row_in_chunk + 2]
        ids: NDArray[np.int32] = self.values[chunk][start:end]
        return ids
