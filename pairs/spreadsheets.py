"""Read sentence pairs from tables of text, as office programs export them: .csv, .tsv, and Excel's Unicode text, .txt.

How a table is written is found from its first rows: the encoding (tapis/text/encodings.py), the separator, whether
cells are in quotes, and the columns of the two languages (columns.py).
"""

import csv
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pairs.columns import NumberedCells, are_found_by_language, choose_columns, find_languages, is_number, pairs_of_rows
from pairs.unreadable import RawRow, Unreadable, not_in_utf8
from tapis.text.encodings import UTF_8, Encoding, find_encoding
from tapis.text.lines import ESCAPED, MAX_LINE_BYTES, DataError, file_type, lines

SEPARATORS = (",", ";", "\t")  # of .csv files
SAMPLE_LINES = 1000  # from which a table's form is told
SAMPLE_CHARACTERS = 1_000_000
FEW_CELLS = 3  # that may be in quotes by chance

# The line by which Excel names the separator.
_SEPARATOR_LINE = re.compile(r'"?sep=([,;\t|])"?', re.IGNORECASE)


@dataclass(frozen=True)
class Table:
    """A table of sentence pairs."""

    form: str
    """How it is written, for the report"""
    rows: Iterator[RawRow]


class Dialect(NamedTuple):
    """How the rows of a table are written."""

    encoding: Encoding
    separator: str
    has_quotes: bool
    """Whether a cell may be in quotes; otherwise quotes are text"""
    quotes: str = ""
    """What the report says of quotes"""
    first_line: int = 1
    """The line of the first row"""
    skips_spaces: bool = False
    """Whether spaces before a cell are no part of it, so that quotes may follow them"""

    def __str__(self) -> str:
        """Return the form for the report."""
        separator = "tabs" if self.separator == "\t" else f'"{self.separator}"'
        return f"{self.encoding.name}, columns separated by {separator}{self.quotes}"


def open_table(path: Path, source: str, target: str, columns: tuple[str, ...]) -> Table:
    """Return the pairs of a table of text. Raises DataError where its form or its columns cannot be told."""
    dialect = _find_dialect(path, source, target, columns)
    place = f"{path} line"
    chosen = choose_columns(_rows(path, dialect), place, source, target, columns)
    pairs = pairs_of_rows(_rows(path, dialect), chosen, place, f"{source} and {target}")
    return Table(f"{dialect}, {chosen}", pairs)


# How a table is written


def _find_dialect(path: Path, source: str, target: str, columns: tuple[str, ...]) -> Dialect:
    """Return how a table is written, given its first lines.

    The separator is the one that finds the columns in a header. Otherwise, it is the one with which the most lines are
    in rows of one number of columns, of two or more; of equal ones, the first in SEPARATORS.
    """
    encoding = find_encoding(path, source, target)
    sample = _sample(path, encoding)
    is_csv = file_type(path) == ".csv"
    separators, first_line = SEPARATORS if is_csv else ("\t",), 1

    # a first line sep=; names the separator and is not part of the table
    if is_csv and sample and (separator_line := _SEPARATOR_LINE.fullmatch(sample[0])):
        separators, first_line, sample = (separator_line[1],), 2, sample[1:]

    readings = [_reading(sample, separator, is_csv) for separator in separators]
    by_language = are_found_by_language(columns, source, target)
    names = [] if by_language else [column.strip().lower() for column in columns if not is_number(column)]

    def has_header(reading: _Reading) -> bool:
        cells = [cell.strip().lower() for cell in reading.first_row]
        return set(names) <= set(cells) if names else find_languages(reading.first_row, source, target) is not None

    reading = next(filter(has_header, readings), None) or max(readings, key=lambda reading: reading.n_regular)
    return Dialect(encoding, reading.separator, reading.has_quotes, reading.quotes, first_line, reading.skips_spaces)


def _sample(path: Path, encoding: Encoding) -> list[str]:
    """Return the first lines of a table."""
    sample: list[str] = []
    n_characters = 0
    for line in lines(path, encoding.codec, ESCAPED):
        sample.append(line)
        n_characters += len(line)
        if len(sample) == SAMPLE_LINES or n_characters > SAMPLE_CHARACTERS:
            break
    return sample


class _Reading(NamedTuple):
    """The first lines of a table, read with one separator."""

    separator: str
    has_quotes: bool
    quotes: str
    n_regular: int
    """Lines in rows of the most frequent number of columns, of two or more"""
    first_row: list[str]
    """The first row that has text"""
    skips_spaces: bool = False


def _reading(sample: list[str], separator: str, is_csv: bool) -> _Reading:
    """Read the first lines of a table, with quotes around cells or without, whichever they seem to have."""
    plain_rows = [line.split(separator) for line in sample]
    n_regular = _n_regular((len(cells), 1) for cells in plain_rows)
    quoted = _QuotedSample(sample, separator)
    if is_csv:
        spaced = _QuotedSample(sample, separator, skips_spaces=True)
        # A cell that only begins with a quote shows that quotes are those of speech.
        is_speech = any(cell.startswith('"') for cell in spaced.bare)
        has_more_cells = len(spaced.enclosed) > len(quoted.enclosed) and not is_speech
        if spaced.n_regular > quoted.n_regular or has_more_cells:
            quoted = spaced
    has_quotes = quoted.allows_quotes() if is_csv else quoted.proves_quotes(n_regular)
    if quoted.n_spanning >= FEW_CELLS and n_regular == sum(bool(line.strip()) for line in sample):
        has_quotes = False  # each line is a row: the quotes are those of speech that goes on in the next one
    if not has_quotes:
        has_some = any(cell.startswith('"') for cells in plain_rows for cell in cells)
        quotes = ", quotes as text" if has_some else ""
        return _Reading(separator, False, quotes, n_regular, _first_row(plain_rows))

    quotes = ", cells in quotes" if quoted.enclosed else ""
    rows = csv.reader((line + "\n" for line in sample), delimiter=separator, skipinitialspace=quoted.skips_spaces)
    return _Reading(separator, True, quotes, quoted.n_regular, _first_row(rows), quoted.skips_spaces)


def _n_regular(rows: Iterable[tuple[int, int]]) -> int:
    """Return how many lines are in rows with the most frequent number of columns, of two or more.

    Each row is given by its columns and its lines.
    """
    counts = Counter[int]()
    for n_columns, n_lines in rows:
        counts[n_columns] += n_lines
    return max((n_lines for n_columns, n_lines in counts.items() if n_columns >= 2), default=0)


def _first_row(rows: Iterable[list[str]]) -> list[str]:
    """Return the first row that has text; an empty one if none has."""
    with suppress(csv.Error):
        return next((row for row in rows if any(cell.strip() for cell in row)), [])
    return []


class _QuotedSample:
    """The cells of the first lines of a table, as they are if cells may be in quotes."""

    def __init__(self, sample: list[str], separator: str, *, skips_spaces: bool = False) -> None:
        text = "\n".join(sample)
        spaces = " *+" if skips_spaces else ""
        cell = re.compile(rf'{spaces}(?:"((?:[^"]|"")*+)"(?=[{separator}\n]|\Z)|([^{separator}\n]*))')
        self.skips_spaces = skips_spaces
        self.enclosed: list[str] = []  # what is between the quotes
        self.bare: list[str] = []  # cells without quotes around them
        sizes = []  # columns and lines of each row
        n_columns = start = place = 0
        while place <= len(text):
            match = cell.match(text, place)
            assert match is not None  # it may be empty
            if match[1] is None:
                self.bare.append(match[2])
            else:
                self.enclosed.append(match[1])
            n_columns += 1
            place = match.end()
            if text[place : place + 1] in ("\n", ""):
                sizes.append((n_columns, text.count("\n", start, place) + 1))
                n_columns, start = 0, place + 1
            place += 1
        self.n_regular = _n_regular(sizes)
        self.n_spanning = sum("\n" in cell for cell in self.enclosed)

    def allows_quotes(self) -> bool:
        """Return whether cells of a .csv file may be in quotes: not if more cells only begin with one."""
        return sum(cell.startswith('"') for cell in self.bare) <= max(1, len(self.enclosed))

    def proves_quotes(self, n_regular: int) -> bool:
        """Return whether cells of a table with tabs are in quotes, and not sentences that begin and end with one.

        `n_regular` is what the table has where quotes are text.
        """
        if sum('"' in cell for cell in self.bare) * 10 > len(self.enclosed):
            return False
        has_doubled = any('""' in cell for cell in self.enclosed)
        is_of_all = len(self.enclosed) >= len(self.bare)
        is_of_some = len(self.enclosed) >= FEW_CELLS and any(map(self._are_those_with, ",;"))
        return bool(self.enclosed) and (has_doubled or is_of_all or is_of_some or self.n_regular > n_regular)

    def _are_those_with(self, mark: str) -> bool:
        """Return whether the cells in quotes are just those with a certain mark, as Excel puts them there."""
        return all(mark in cell for cell in self.enclosed) and not any(mark in cell for cell in self.bare)


# The rows of a table


def _rows(path: Path, dialect: Dialect) -> Iterator[NumberedCells | Unreadable]:
    """Yield the rows of a table, beside what is not in its encoding."""
    table_lines = islice(lines(path, dialect.encoding.codec, ESCAPED), dialect.first_line - 1, None)
    if dialect.has_quotes:
        rows = _csv_rows(path, table_lines, dialect)
    else:
        rows = ((number, line.split(dialect.separator)) for number, line in enumerate(table_lines, dialect.first_line))
    for row in rows:
        if isinstance(row, Unreadable):
            yield row
            continue
        number, cells = row
        location = f"{path} line {number:,}"
        if dialect.encoding == UTF_8:
            yield not_in_utf8(dialect.separator.join(cells), location) or row
        elif any("\ufffd" in cell for cell in cells):
            problem = f"not in {dialect.encoding.name}, as the rest of the table seems to be (save it as UTF-8)"
            yield Unreadable(location, problem)
        else:
            yield row


def _csv_rows(path: Path, table_lines: Iterator[str], dialect: Dialect) -> Iterator[NumberedCells | Unreadable]:
    """Yield the rows of a table in CSV, each with the number of its first line.

    After a row that is not CSV, go on with the line after its first one.

    A quote that is not closed would otherwise take the following rows with it.
    """
    unread: deque[str] = deque()  # lines that a broken row took
    row_lines: list[str] = []  # of the row at hand
    n_lines = dialect.first_line - 1

    def lines_of_rows() -> Iterator[str]:
        nonlocal n_lines
        n_characters = 0
        while (line := unread.popleft() if unread else next(table_lines, None)) is not None:
            n_lines += 1
            n_characters = n_characters + len(line) + 1 if row_lines else len(line) + 1
            row_lines.append(line)
            if n_characters > MAX_LINE_BYTES:
                start = n_lines - len(row_lines) + 1
                raise DataError(f"{path} line {start:,}: not CSV (a row of more than {MAX_LINE_BYTES:,} characters)")
            yield line + "\n"

    separator, skips_spaces = dialect.separator, dialect.skips_spaces
    while True:
        try:
            for row in csv.reader(lines_of_rows(), delimiter=separator, skipinitialspace=skips_spaces, strict=True):
                number = n_lines - len(row_lines) + 1
                row_lines.clear()
                yield number, row
        except csv.Error as error:
            n_lines -= len(row_lines) - 1
            is_long = str(error).startswith("field larger than")
            problem = f"a cell of more than {csv.field_size_limit():,} characters" if is_long else f"not CSV ({error})"
            yield Unreadable(f"{path} line {n_lines:,}", problem)
            unread.extendleft(reversed(row_lines[1:]))
            row_lines.clear()
        else:
            return
