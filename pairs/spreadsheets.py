"""Read sentence pairs from tables, as spreadsheets export them: .tsv and .csv.

A .csv file may have commas, semicolons or tabs between its columns. The columns of the two languages are those that
the caller names, or those whose header names the languages, or the two that there are.
"""

import csv
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path

from tapis.system.terminal import in_one_line, listed
from tapis.text.lines import MAX_LINE_BYTES, DataError, Pair, lines

Row = tuple[int, list[str]]  # number of its last line in the file, and its cells

SEPARATORS = (",", ";", "\t")
SAMPLE_ROWS = 100  # from which separators and headers are told

# The line by which Excel names the separator.
_SEPARATOR_LINE = re.compile(r'"?sep=([,;\t|])"?', re.IGNORECASE)


def read_tsv(path: Path, source: str, target: str, columns: tuple[str, ...]) -> Iterator[Pair]:
    """Yield the pairs of a table with tabs between its columns, and without quotes."""
    rows = ((number, line.split("\t")) for number, line in enumerate(lines(path), 1))
    yield from _select_columns(path, rows, source, target, columns)


def read_csv(path: Path, source: str, target: str, columns: tuple[str, ...]) -> Iterator[Pair]:
    """Yield the pairs of a table with commas, semicolons or tabs between its columns, and quotes where needed."""
    table_lines = lines(path)
    sample = list(islice(table_lines, SAMPLE_ROWS))

    # a first line sep=; names the separator and is not part of the table
    separator_line = _SEPARATOR_LINE.fullmatch(sample[0]) if sample else None
    if separator_line:
        separator = separator_line[1]
        sample = sample[1:]
        first_line = 2
    else:
        names = [name for name in columns if not is_number(name)] or [source, target]
        separator = _find_separator(sample, names)
        first_line = 1

    rows = _csv_rows(path, chain(sample, table_lines), separator, first_line)
    yield from _select_columns(path, rows, source, target, columns)


def is_number(column: str) -> bool:
    """Return whether a column is given by its number."""
    return re.fullmatch(r"[0-9]{1,9}", column) is not None


def _find_separator(sample: list[str], names: list[str]) -> str:
    """Return the separator of a table, given its first lines and the names of columns.

    This is the one that finds all names in the first line. Otherwise, it is the one that gives the most rows with as
    many columns as the first, where that has several; of equal ones, the first in SEPARATORS.
    """
    for separator in SEPARATORS:
        with suppress(csv.Error):
            first_row = next(csv.reader(sample, delimiter=separator), [])
            if set(_header(names)) <= set(_header(first_row)):
                return separator

    return max(SEPARATORS, key=lambda separator: _count_regular_rows(sample, separator))


def _count_regular_rows(sample: list[str], separator: str) -> int:
    """Return how many rows from the start have as many columns as the first, if that has two or more."""
    n_columns = 0
    n_rows = 0
    with suppress(csv.Error):
        for row in csv.reader((line + "\n" for line in sample), delimiter=separator, strict=True):
            if not row:  # an empty line, which is reported when the table is read
                continue
            n_columns = n_columns or len(row)
            if n_columns < 2 or len(row) != n_columns:
                break
            n_rows += 1
    return n_rows


def _csv_rows(path: Path, table_lines: Iterator[str], separator: str, first_line: int) -> Iterator[Row]:
    n_characters = 0  # of a row, which may have several lines

    def lines_of_rows() -> Iterator[str]:
        nonlocal n_characters
        for line in table_lines:
            n_characters += len(line) + 1
            if n_characters > MAX_LINE_BYTES:
                raise csv.Error(f"a row of more than {MAX_LINE_BYTES:,} characters")
            yield line + "\n"

    reader = csv.reader(lines_of_rows(), delimiter=separator, strict=True)
    n_lines_before = first_line - 1
    try:
        for row in reader:
            n_characters = 0
            yield n_lines_before + reader.line_num, row
    except csv.Error as error:
        raise DataError(f"{path} line {n_lines_before + reader.line_num:,}: not CSV ({error})") from None


def _select_columns(
    path: Path, rows: Iterator[Row], source: str, target: str, columns: tuple[str, ...]
) -> Iterator[Pair]:
    """Yield the source and target columns of a table. Raises DataError at a row with another number of columns."""
    first_row = next(rows, None)
    if first_row is None:
        return
    first_line, cells = first_row
    location = f"{path} line {first_line:,}"

    # leave out empty columns at the end, which a separator at the end of each line makes
    has_empty_end = not columns and len(cells) > 2 and len(_without_empty_end(cells)) == 2
    if has_empty_end:
        cells = _without_empty_end(cells)
        first_row = first_line, cells
        rows = ((number, _without_empty_end(row)) for number, row in rows)
    source_column, target_column, is_header = _choose_columns(location, cells, source, target, columns)

    # refuse a header in other words, which would be read as a pair
    if len(cells) == 2 and not is_header and not columns:
        sample: list[Row] = []
        for numbered in islice(rows, SAMPLE_ROWS):
            sample.append(numbered)
            if len(numbered[1]) != 2:  # an error, below; a row may have many cells
                break
        is_whole = all(len(row) == 2 for _, row in sample)
        if is_whole and _looks_like_header(cells, [row for _, row in sample]):
            raise DataError(
                f"{location}: is this a header or a pair? {_listed(cells)}\n"
                "choose with --columns and two names, source first, for a header; with --columns 1 2 for a pair"
            )
        rows = chain(sample, rows)

    # read the pairs
    n_columns = max(len(cells), 2)
    data_rows = rows if is_header else chain([first_row], rows)
    for number, row in data_rows:
        if len(row) != n_columns:
            actual = "1 column" if len(row) == 1 else f"{len(row)} columns"
            hint = "\nchoose with --columns 1 2" if has_empty_end and len(row) > n_columns else ""
            raise DataError(f"{path} line {number:,}: {actual}, expected {n_columns} ({source} and {target}){hint}")
        yield row[source_column], row[target_column]


def _without_empty_end(row: list[str]) -> list[str]:
    """Return a row without empty cells at its end, but with two cells at least."""
    n_cells = len(row)
    while n_cells > 2 and not row[n_cells - 1].strip():
        n_cells -= 1
    return row[:n_cells]


def _choose_columns(
    location: str, cells: list[str], source: str, target: str, columns: tuple[str, ...]
) -> tuple[int, int, bool]:
    """Return the indices of the source and the target column, and whether the first row, `cells`, is a header."""
    header = _header(cells)
    has_languages = source.lower() in header and target.lower() in header

    if columns:
        source_column, target_column = (_find_column(location, cells, column) for column in columns)
        if source_column == target_column:
            raise DataError(f"{location}: both of --columns are column {source_column + 1} (columns: {_listed(cells)})")
        has_names = not all(map(is_number, columns))
        return source_column, target_column, has_names or has_languages
    if has_languages:
        return header.index(source.lower()), header.index(target.lower()), True
    if len(cells) > 2:
        raise DataError(
            f"{location}: {len(cells)} columns, expected 2 ({source} and {target}): {_listed(cells)}\n"
            "choose with --columns 2 3, or with two names if this row is a header"
        )
    return 0, 1, False


def _header(cells: list[str]) -> list[str]:
    """Return the names of the columns if a row is a header."""
    return [name.strip().lower() for name in cells]


def _find_column(location: str, cells: list[str], column: str) -> int:
    """Return the index of a column that is given by its number or by its name in the first row."""
    if is_number(column):
        indices = [int(column) - 1] if 1 <= int(column) <= len(cells) else []
    else:
        indices = [index for index, name in enumerate(_header(cells)) if name == column.strip().lower()]
    if len(indices) == 1:
        return indices[0]

    name = in_one_line(column, 40)
    problem = f"several columns {name}, choose by number" if indices else f"no column {name}"
    raise DataError(f"{location}: {problem} (columns: {_listed(cells)})")


def _looks_like_header(first_row: list[str], rows: list[list[str]]) -> bool:
    """Return whether the first row reads like names of columns, and hardly any of the following rows does."""
    n_similar = sum(map(_reads_like_names, rows))
    return bool(rows) and _reads_like_names(first_row) and n_similar <= len(rows) / 50


def _reads_like_names(row: list[str]) -> bool:
    """Return whether all cells have one or two words, and none ends in punctuation."""
    return all(len(cell.split()) in (1, 2) and cell.rstrip()[-1] not in ".!?…。！？" for cell in row)


def _listed(cells: list[str]) -> str:
    """Return the columns of a row for a message: 1 "id", 2 "English"."""
    names = (json.dumps(in_one_line(cell, 20), ensure_ascii=False) for cell in cells)
    return listed(f"{number} {name}" for number, name in enumerate(names, 1))
