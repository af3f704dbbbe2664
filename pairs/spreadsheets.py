"""Read sentence pairs from tables, as spreadsheets export them: .tsv and .csv.

A .csv file may have commas, semicolons or tabs between its columns. The columns of the two languages are those that
the caller names, or those whose header names the languages, or the two that there are.
"""

import csv
import json
import re
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path

from pairs.unreadable import BLANK_LINE, Unreadable
from tapis.system.terminal import in_one_line, listed
from tapis.text.lines import MAX_LINE_BYTES, DataError, Pair, lines

Row = tuple[int, list[str]]  # number of its last line in the file, and its cells

SEPARATORS = (",", ";", "\t")
SAMPLE_ROWS = 100  # from which separators and headers are told

# The line by which Excel names the separator.
_SEPARATOR_LINE = re.compile(r'"?sep=([,;\t|])"?', re.IGNORECASE)


def read_tsv(path: Path, source: str, target: str, columns: tuple[str, ...]) -> Iterator[Pair | Unreadable]:
    """Yield the pairs of a table with tabs between its columns, and without quotes."""
    rows = ((number, line.split("\t")) for number, line in enumerate(lines(path), 1))
    yield from _select_columns(path, rows, source, target, columns)


def read_csv(path: Path, source: str, target: str, columns: tuple[str, ...]) -> Iterator[Pair | Unreadable]:
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

    This is the one that finds all names in the first line. Otherwise, it is the one that gives the most rows with one
    number of columns, of two or more; of equal ones, the first in SEPARATORS.
    """
    for separator in SEPARATORS:
        with suppress(csv.Error):
            first_row = next(csv.reader(sample, delimiter=separator), [])
            if set(_header(names)) <= set(_header(first_row)):
                return separator

    return max(SEPARATORS, key=lambda separator: _count_regular_rows(sample, separator))


def _count_regular_rows(sample: list[str], separator: str) -> int:
    """Return how many rows have the most frequent number of columns, of two or more."""
    counts: Counter[int] = Counter()
    with suppress(csv.Error):
        counts.update(len(row) for row in csv.reader((line + "\n" for line in sample), delimiter=separator))
    return max((n_rows for n_columns, n_rows in counts.items() if n_columns >= 2), default=0)


def _csv_rows(path: Path, table_lines: Iterator[str], separator: str, first_line: int) -> Iterator[Row | Unreadable]:
    """Yield the rows of a table in CSV. After a row that is not CSV, go on with the line after its first one.

    A quote that is not closed would otherwise take the following rows with it.
    """
    unread: deque[str] = deque()  # lines that a broken row took
    row_lines: list[str] = []  # of the row at hand
    n_lines = first_line - 1

    def lines_of_rows() -> Iterator[str]:
        nonlocal n_lines
        n_characters = 0
        while (line := unread.popleft() if unread else next(table_lines, None)) is not None:
            n_lines += 1
            n_characters = n_characters + len(line) + 1 if row_lines else len(line) + 1
            row_lines.append(line)
            if n_characters > MAX_LINE_BYTES:
                raise DataError(f"{path} line {n_lines:,}: not CSV (a row of more than {MAX_LINE_BYTES:,} characters)")
            yield line + "\n"

    while True:
        try:
            for row in csv.reader(lines_of_rows(), delimiter=separator, strict=True):
                row_lines.clear()
                yield n_lines, row
        except csv.Error as error:
            n_lines -= len(row_lines) - 1
            yield Unreadable(f"{path} line {n_lines:,}", f"not CSV ({error})")
            unread.extendleft(reversed(row_lines[1:]))
            row_lines.clear()
        else:
            return


def _select_columns(
    path: Path, rows: Iterator[Row | Unreadable], source: str, target: str, columns: tuple[str, ...]
) -> Iterator[Pair | Unreadable]:
    """Yield the source and target columns of a table. Rows with more or fewer columns than the first are unreadable."""
    # find the first row
    first_line, cells = 0, [""]
    for row in rows:
        if isinstance(row, Unreadable):
            yield row
        elif _is_blank(row):
            yield Unreadable(f"{path} line {row[0]:,}", BLANK_LINE)
        else:
            first_line, cells = row
            break
    else:
        return
    location = f"{path} line {first_line:,}"

    # leave out empty columns at the end, which a separator at the end of each line makes
    has_empty_end = not columns and len(cells) > 2 and len(_without_empty_end(cells)) == 2
    if has_empty_end:
        cells = _without_empty_end(cells)
        rows = (row if isinstance(row, Unreadable) else (row[0], _without_empty_end(row[1])) for row in rows)
    source_column, target_column, is_header = _choose_columns(location, cells, source, target, columns)
    n_columns = max(len(cells), 2)

    def checked(row: Row | Unreadable) -> Row | Unreadable:
        if isinstance(row, Unreadable) or len(row[1]) == n_columns:
            return row
        actual = "1 column" if len(row[1]) == 1 else f"{len(row[1])} columns"
        hint = "\nchoose with --columns 1 2" if has_empty_end and len(row[1]) > n_columns else ""
        problem = BLANK_LINE if _is_blank(row) else f"{actual}, expected {n_columns} ({source} and {target}){hint}"
        return Unreadable(f"{path} line {row[0]:,}", problem)

    # refuse a header in other words, which would be read as a pair
    data_rows: Iterator[Row | Unreadable] = map(checked, rows)
    if len(cells) == 2 and not is_header and not columns:
        sample = list(islice(data_rows, SAMPLE_ROWS))
        if _looks_like_header(cells, [row[1] for row in sample if not isinstance(row, Unreadable)]):
            raise DataError(
                f"{location}: is this a header or a pair? {_listed(cells)}\n"
                "choose with --columns and two names, source first, for a header; with --columns 1 2 for a pair"
            )
        data_rows = chain(sample, data_rows)

    # read the pairs
    if not is_header:
        data_rows = chain([checked((first_line, cells))], data_rows)
    for row in data_rows:
        yield row if isinstance(row, Unreadable) else (row[1][source_column], row[1][target_column])


def _is_blank(row: Row) -> bool:
    """Return whether a row has no text, as the last lines of an exported table may be."""
    return not any(cell.strip() for cell in row[1])


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
