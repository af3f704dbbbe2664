"""Large tables on disk: written once, in batches, then memory-mapped and reused.

Each table lies in the cache of `datasets`, under a key that hashes everything it was made from: the data, the settings
and the code. Preparing the same data again therefore only opens a file. `Pairs` and `Ragged` read such tables without
loading them into memory.
"""

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tapis.system.files import cache_file, digest, write_whole

if TYPE_CHECKING:  # takes 0.5 s, which translate.py does not need
    import datasets

MANY_PAIRS = 50_000  # preparing more takes seconds, and shows its progress

Ints = NDArray[np.integer[Any]]
Texts = TypeVar("Texts", bound=tuple[str, str])


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
    """Return a numeric column as an array in memory.

    This maps the files for as long as it reads them: a map has the column without the texts beside it, and none of its
    pages stay resident.
    """
    if not rows.cache_files:  # a table in memory
        return rows.data.column(name).to_numpy()
    only = pa.ipc.IpcReadOptions(included_fields=[rows.column_names.index(name)])
    arrays = []
    for cached in rows.cache_files:
        with pa.memory_map(cached["filename"]) as file, pa.ipc.open_stream(file, options=only) as reader:
            arrays.append(reader.read_all().column(0).to_numpy())
    return np.concatenate(arrays)


def chunks_of_text(rows: Iterable[Texts], size: int, max_characters: int) -> Iterator[list[Texts]]:
    """Yield the rows in lists of `size`; if they are long, in shorter ones, which end with `max_characters` or more."""
    chunk: list[Texts] = []
    n_characters = 0
    for row in rows:
        chunk.append(row)
        n_characters += len(row[0]) + len(row[1])
        if len(chunk) == size or n_characters >= max_characters:
            yield chunk
            chunk, n_characters = [], 0
    if chunk:
        yield chunk


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
        """Return the pairs at these indices, which must be ascending, unless only slices of the result are read."""
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
    """A memory-mapped column of lists of int32.

    Arrow stores such a column in chunks, each as one flat array and the offsets at which its rows start:

        rows      [7 8] [9] [] [4 5 6]
        values    7 8 9 4 5 6
        offsets   0 2 3 3 6

    All chunks lie in one file, which is mapped as a whole. `memory` is that range of memory as one array, and `starts`
    has the place of each row in it. Rows can therefore be gathered all at once, in whatever chunks they are.
    """

    def __init__(self, column: pa.ChunkedArray) -> None:
        self.chunks = [chunk for chunk in column.chunks if len(chunk)]  # whose memory this reads
        values = [chunk.values.to_numpy() for chunk in self.chunks]
        offsets = [chunk.offsets.to_numpy() for chunk in self.chunks]
        filled = [array for array in values if len(array)]
        first = min((array.ctypes.data for array in filled), default=0)
        end = max((array.ctypes.data + array.nbytes for array in filled), default=0)
        self.memory = int32_at(first, (end - first) // 4) if filled else np.zeros(0, dtype=np.int32)
        bases = [(array.ctypes.data - first) // 4 if len(array) else 0 for array in values]
        places = [base + of_chunk for base, of_chunk in zip(bases, offsets, strict=True)]
        none = [np.zeros(0, dtype=np.int64)]
        self.starts: Ints = np.concatenate([*none, *(of_chunk[:-1] for of_chunk in places)])
        self.lengths: Ints = np.concatenate([*none, *(np.diff(of_chunk) for of_chunk in places)]).astype(np.int32)

    def take(self, rows: Ints) -> tuple[NDArray[np.int32], Ints]:
        """Return the lists of these rows, one after the other, and their lengths."""
        lengths = self.lengths[rows]
        return self.memory[places_of(self.starts[rows], lengths)], lengths


def int32_at(address: int, n: int) -> NDArray[np.int32]:
    """Return n integers of memory that something else keeps alive, without a copy."""
    return np.ctypeslib.as_array((ctypes.c_int32 * n).from_address(address))


def places_of(starts: Ints, lengths: Ints) -> Ints:
    """Return the places of the elements of lists, given where each list starts: starts 5 9, lengths 2 3 → 5 6 9 10 11.

    Both are (B,); the result has as many places as the lists have elements.
    """
    firsts = np.cumsum(lengths, dtype=np.int64) - lengths  # the places in the result
    return np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(starts - firsts, lengths)
