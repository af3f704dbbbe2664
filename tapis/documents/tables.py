"""Columns of tables in text: comma-separated values and their like (.csv, .tsv)."""

import csv
import io
import re
from collections.abc import Sequence
from typing import NamedTuple

from tapis.documents.common import DocumentError, Translate, translated_texts
from tapis.system.terminal import listed
from tapis.text.lines import utf16_name

SEPARATORS = ",;\t|"
SAMPLE_ROWS = 100
LARGEST_CELL = 1_000_000  # characters


class _Cell(NamedTuple):
    """A cell, and where it is in the table."""

    text: str
    start: int
    end: int
    is_quoted: bool


def translated_csv(content: bytes, columns: Sequence[str], translate: Translate, separator: str = "") -> bytes:
    """Return a file with a table, as `translated_table`, in its encoding: UTF-8, UTF-16, or else Windows-1252.

    Raises DocumentError, too, if that encoding lacks a character of a translation.
    """
    encoding = "utf-8"
    if utf16 := utf16_name(content):
        encoding = utf16
    else:
        try:
            content.decode("utf-8")
        except UnicodeDecodeError:
            encoding = "cp1252"
    try:
        table = content.decode(encoding)
    except UnicodeDecodeError:
        raise DocumentError("the table is neither in UTF-8 nor in UTF-16 or Windows-1252") from None
    translated = translated_table(table, columns, translate, separator)
    if translated == table:
        return content
    try:
        return translated.encode(encoding)
    except UnicodeEncodeError as error:
        missing = translated[error.start]
        raise DocumentError(f"{encoding} has no {missing!r} of a translation: save the table as UTF-8") from None


def translated_table(table: str, columns: Sequence[str], translate: Translate, separator: str = "") -> str:
    """Return a table with the cells of some columns translated. All else stays: separators, quotes, other cells.

    A column is given by its name in the first row, which then stays, or by its number from 1. Raises DocumentError if
    the table has no such column, or is damaged.
    """
    separator = separator or separator_of(table)
    rows = _rows(table, separator)
    if not rows:
        return table
    header = [cell.text.strip() for cell in rows[0]]
    names = [name for name in columns if name in header]
    numbers = [int(name) - 1 for name in columns if re.fullmatch(r"[1-9]\d{0,5}", name) and name not in header]
    if len(names) + len(numbers) < len(columns) or not columns:
        raise DocumentError(f"name the column to translate with --column: {listed(header)}, or its number")
    if (most := max(len(row) for row in rows)) <= max(numbers, default=-1):
        raise DocumentError(f"--column {max(numbers) + 1}: the table has {most} columns")
    wanted = sorted({header.index(name) for name in names} | set(numbers))
    cells = [row[i] for row in rows[bool(names) :] for i in wanted if i < len(row)]
    translations = translated_texts([cell.text for cell in cells], translate)
    result, end = [], 0
    for cell, translation in zip(cells, translations, strict=True):
        if translation != cell.text:
            result += [table[end : cell.start], _quoted(translation, separator, cell.is_quoted)]
            end = cell.end
    return "".join([*result, table[end:]])


def separator_of(table: str) -> str:
    """Return what separates the cells: of SEPARATORS, the one by which most rows have the same number of cells."""
    beginning = "\n".join(table.removeprefix("\ufeff").splitlines()[:SAMPLE_ROWS])
    best, best_share = SEPARATORS[0], 0.0
    for separator in SEPARATORS:
        widths = [len(row) for row in _cells(beginning, separator) if row]
        usual = max(set(widths), key=widths.count, default=1)
        share = widths.count(usual) / len(widths) if usual > 1 else 0.0
        if share > best_share:
            best, best_share = separator, share
    return best


def _cells(table: str, separator: str) -> list[list[str]]:
    """Return the cells of a table, as the library csv reads it. Raises DocumentError if it cannot."""
    previous = csv.field_size_limit(LARGEST_CELL)
    try:
        return list(csv.reader(io.StringIO(table, newline=""), delimiter=separator))
    except csv.Error as error:
        raise DocumentError(f"the table is damaged: {error}") from None
    finally:
        csv.field_size_limit(previous)


def _rows(table: str, separator: str) -> list[list[_Cell]]:
    """Return the cells of a table with their places. Raises DocumentError where the library csv reads other cells."""
    mark = len(table) - len(table.removeprefix("\ufeff"))
    escaped = re.escape(separator)
    quoted, plain = r'"(?P<quoted>(?:[^"]|"")*+)"', rf"(?P<plain>[^{escaped}\r\n]*+)"
    pattern = re.compile(rf"(?:{quoted}(?=[{escaped}\r\n]|\Z)|{plain})(?P<end>\r\n|[{escaped}\r\n]|\Z)")
    rows: list[list[_Cell]] = [[]]
    place = mark
    while place < len(table) or rows[-1]:
        match = pattern.match(table, place)
        if not match:
            raise DocumentError(f"the table is damaged in row {len(rows):,}")
        is_quoted = match["quoted"] is not None
        text = match["quoted"].replace('""', '"') if is_quoted else match["plain"]
        end = match.end("quoted") + 1 if is_quoted else match.end("plain")
        rows[-1].append(_Cell(text, place, end, is_quoted))
        place = match.end()
        if match["end"] != separator:
            if rows[-1] == [_Cell("", rows[-1][0].start, rows[-1][0].start, False)]:
                rows[-1] = []  # a blank line
            rows.append([])
            if not match["end"]:
                break
    rows = rows[:-1] if not rows[-1] else rows
    if [[cell.text for cell in row] for row in rows] != _cells(table[mark:], separator):
        raise DocumentError("the table has quotation marks that it is not clear how to read")
    return rows


def _quoted(text: str, separator: str, is_quoted: bool) -> str:
    """Return a cell, in quotation marks if its source was, or if it needs them."""
    if is_quoted or any(character in text for character in (separator, '"', "\r", "\n")):
        return '"' + text.replace('"', '""') + '"'
    return text
