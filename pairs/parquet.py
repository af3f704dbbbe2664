"""Read sentence pairs from Parquet files: two columns of texts, or a column `translation` with both, as on the hub.

A Parquet file may say a text once, and mean it in any number of rows. The columns are therefore read as dictionaries,
whose texts are in memory once, and every text is checked before a row is made of it. Arrow believes the sizes that a
file states: of what one page of a column expands to, it takes up to 2 GB.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tapis.system.files import check_regular
from tapis.system.terminal import in_one_line, listed
from tapis.text.lines import LINE_BYTES, MAX_LINE_BYTES, DataError, Pair, expands_too_much, most_bytes

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 1024  # read at a time
RECORD = "translation"  # the column that has both sides


def fields_of_parquet(path: Path) -> list[str]:
    """Return the names of the columns of a Parquet file, or of the fields of its record. Raises as `read_parquet`."""
    import pyarrow as pa  # noqa: PLC0415 - takes 0.1 s, which other files do not need
    import pyarrow.parquet as pq  # noqa: PLC0415

    with _errors_in_words(path):
        check_regular(path)
        schema = pq.read_schema(path)
        record = schema.field(RECORD).type if schema.names.count(RECORD) == 1 else None
        if record is not None and pa.types.is_struct(record):
            return [field.name for field in record]
        return list(schema.names)


def read_parquet(path: Path, source: str, target: str, advice: str) -> Iterator[Pair]:
    """Yield the pairs of a Parquet file. `source` and `target` are the names of two columns, or of fields of a record.

    null becomes an empty side. Raises DataError where the file is damaged, lacks the columns, or expands too much.
    `advice` is what to do if it lacks them.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - takes 0.1 s, which other files do not need

    fields = (source, target)
    n_bytes = n_rows = 0
    with _errors_in_words(path):
        check_regular(path)
        max_bytes = most_bytes(path)
        metadata = pq.read_metadata(path)
        _check_sizes(path, metadata)
        in_record = _are_in_record(path, metadata.schema.to_arrow_schema(), fields, advice)
        names = [f"{RECORD}.{field}" if in_record else field for field in fields]
        with pq.ParquetFile(path, metadata=metadata, read_dictionary=names) as table:
            for batch in table.iter_batches(ROWS, columns=names):
                columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                if in_record:
                    record = columns[RECORD]
                    columns = dict(zip((field.name for field in record.type), record.flatten(), strict=True))
                sides = [_texts(path, columns[field], field, n_rows) for field in fields]
                for pair in zip(*sides, strict=True):
                    n_bytes += len(pair[0]) + len(pair[1]) + LINE_BYTES
                    if n_bytes > max_bytes:
                        raise expands_too_much(str(path), path)
                    yield pair
                n_rows += len(batch)


@contextlib.contextmanager
def _errors_in_words(path: Path) -> Iterator[None]:
    """Raise the errors of Arrow and of the system as a DataError."""
    import pyarrow as pa  # noqa: PLC0415

    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a valid Parquet file: {in_one_line(error)}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {in_one_line(error)}") from None


def _check_sizes(path: Path, metadata: Any) -> None:
    """Raise DataError if a piece of a file is larger, decompressed, than the file may be."""
    max_bytes = most_bytes(path)
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        if any(group.column(j).total_uncompressed_size > max_bytes for j in range(group.num_columns)):
            raise expands_too_much(str(path), path)


def _are_in_record(path: Path, schema: "pa.Schema", fields: tuple[str, str], advice: str) -> bool:
    """Return whether the two fields are in the column `translation`. Columns of these names come first.

    Raises DataError if the fields are in neither place, or are no texts.
    """
    import pyarrow as pa  # noqa: PLC0415 - takes 0.1 s, which other files do not need

    columns = [schema.field(i) for i in range(len(schema.names))]
    records = [column for column in columns if column.name == RECORD and pa.types.is_struct(column.type)]
    in_record = bool(records) and not set(fields) <= set(schema.names)
    found = list(records[0].type) if in_record else columns
    for field in fields:
        shown = in_one_line(field, 60)
        same = [column for column in found if column.name == field]
        if len(same) != 1:
            names = listed(column.name for column in found)
            if same:
                raise DataError(f"{path}: several fields {shown} (fields: {names})")
            raise DataError(f'{path}: no field "{shown}" (fields: {names}){advice}')
        kind = same[0].type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
            raise DataError(f'{path}: "{shown}" must be texts, not of type {in_one_line(kind, 60)}')
    return in_record


def _texts(path: Path, column: "pa.Array", field: str, n_before: int) -> list[str]:
    """Return the texts of a column, with "" for null. Raises DataError if one is too long, or is not UTF-8."""
    import pyarrow.compute as pc  # noqa: PLC0415

    location = f'{path} rows {n_before + 1:,} to {n_before + len(column):,}: "{in_one_line(field, 60)}"'
    texts = column.dictionary if hasattr(column, "dictionary") else column
    longest = pc.max(pc.binary_length(texts)).as_py() or 0 if len(texts) and texts.type != "null" else 0
    if longest > MAX_LINE_BYTES:
        raise DataError(f"{location} has a text of {longest:,} bytes")
    try:
        return [text or "" for text in column.to_pylist()]
    except UnicodeDecodeError:
        raise DataError(f"{location} has a text that is not UTF-8") from None
