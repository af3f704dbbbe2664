"""Columns of tables in text: comma-separated values and their like (.csv, .tsv)."""

import codecs
import csv
import io
import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from tapis.documents.common import DocumentError, Translate, translated_texts, warn
from tapis.system.terminal import in_one_line, listed
from tapis.text.encodings import UTF_8, Encoding, code_page_of, is_in
from tapis.text.lines import utf16_name

SEPARATORS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
SAMPLE_ROWS = 100
LARGEST_CELL = 1_000_000  # characters

_SEPARATOR_LINE = re.compile(r'\ufeff?"?sep=([^\w\r\n "\'])"?(?:\r\n|\r|\n|\Z)', re.IGNORECASE)  # of Excel


class _Dialect(NamedTuple):
    """How the cells of a table are written."""

    separator: str
    skips_spaces: bool = False
    """Whether spaces before a cell are no part of it, so that quotation marks may follow them"""


class _Cell(NamedTuple):
    """A cell, and where it is in the table."""

    text: str
    start: int
    end: int
    is_quoted: bool


_Row = list[_Cell]


def translated_csv(
    content: bytes, columns: Sequence[str], translate: Translate, separator: str = "", source: str = ""
) -> bytes:
    """Return a file with a table, as `translated_table`, in its encoding: UTF-8, UTF-16, or else a code page.

    The code page is that of the source language, or Mac Roman. Warn of it, as it is a guess. Raises DocumentError,
    too, if the encoding lacks a character of a translation.
    """
    code_page = code_page_of(source, content)
    encoding = _encoding_of(content, code_page)
    try:
        table = content.decode(encoding.codec)
    except UnicodeDecodeError:
        raise DocumentError(f"the table is neither in UTF-8 nor in UTF-16 or {code_page.name}") from None
    if encoding == code_page:
        warn(f"it is not in UTF-8, and was read as {code_page.name}: if that is wrong, save it as UTF-8")
    translated = translated_table(table, columns, translate, separator)
    if translated == table:
        return content
    try:
        return translated.encode(encoding.codec)
    except UnicodeEncodeError as error:
        missing = translated[error.start]
        raise DocumentError(f"{encoding.name} has no {missing!r} of a translation: save the table as UTF-8") from None


def _encoding_of(content: bytes, code_page: Encoding) -> Encoding:
    """Return an encoding that keeps a byte order mark as a character of the text: UTF-8, UTF-16, or the code page.

    Raises DocumentError if most lines beyond ASCII are in UTF-8, but not all.
    """
    utf16 = utf16_name(content)
    if utf16 == "UTF-16":
        utf16 = "utf-16-le" if content.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
    if utf16:
        return Encoding("UTF-16", utf16)
    numbered = enumerate(content.splitlines(), 1)
    are_utf8 = {number: is_in(line, UTF_8.codec) for number, line in numbered if not line.isascii()}
    if all(are_utf8.values()):
        return UTF_8
    if 2 * sum(are_utf8.values()) < len(are_utf8):
        return code_page
    first = next(number for number, is_utf8 in are_utf8.items() if not is_utf8)
    raise DocumentError(f"line {first:,} is not UTF-8, as most others are: correct it, or save the table as UTF-8")


def translated_table(table: str, columns: Sequence[str], translate: Translate, separator: str = "") -> str:
    """Return a table with the cells of some columns translated. All else stays: separators, quotes, other cells.

    A column is given by its name in the first row, which then stays, or by its number from 1. A line `sep=;` before the
    first row names the separator. Raises DocumentError if the table has no such column or several, or is damaged, or
    can be read in several ways.
    """
    # Read the table behind its byte order mark and the line that names the separator.
    head = table[: len(table) - len(table.removeprefix("\ufeff"))]
    if named := _SEPARATOR_LINE.match(table):
        head, separator = named.group(), named[1]
    body = table[len(head) :]
    rows, dialect = _read(body, separator, columns)
    first = next((i for i, row in enumerate(rows) if row), None)  # blank lines may come before
    if first is None:
        return table

    # Find the columns.
    header = [cell.text.strip() for cell in rows[first]]
    names = [name for name in columns if name in header]
    numbers = [int(name) - 1 for name in columns if _is_number(name) and name not in header]
    if len(names) + len(numbers) < len(columns) or not columns:
        raise DocumentError(f"name the column to translate with --column: {listed(header)}, or its number")
    if several := [name for name in names if header.count(name) > 1]:
        places = listed(place for place, name in enumerate(header, 1) if name == several[0])
        name = in_one_line(several[0], 60)
        raise DocumentError(f"--column {name}: columns {places} have this name: rename one, or give its number")
    if (most := max(len(row) for row in rows)) <= max(numbers, default=-1):
        raise DocumentError(f"--column {max(numbers) + 1}: the table has {most} columns")
    _warn_of_irregular(rows, len(header))

    # Translate their cells.
    wanted = sorted({header.index(name) for name in names} | set(numbers))
    cells = [row[i] for row in rows[first + bool(names) :] for i in wanted if i < len(row)]
    translations = translated_texts([cell.text for cell in cells], translate)
    result, end = [head], 0
    for cell, translation in zip(cells, translations, strict=True):
        if translation != cell.text:
            result += [body[end : cell.start], _quoted(translation, dialect, cell.is_quoted)]
            end = cell.end
    return "".join([*result, body[end:]])


def _is_number(column: str) -> bool:
    return bool(re.fullmatch(r"[1-9]\d{0,5}", column))


def _warn_of_irregular(rows: Sequence[_Row], width: int) -> None:
    """Warn of rows in which a cell may be cut in two, or in which one is missing. The first row has width cells."""
    found = [number for number, row in enumerate(rows, 1) if row and (len(row) != width or _halves(row))]
    if found:
        warn(
            f"{len(found):,} of {sum(map(bool, rows)):,} rows have another number of cells than the first row, which "
            f"has {width}, or half of a quoted cell: {listed(f'row {number:,}' for number in found)}"
        )


def _halves(row: _Row) -> str:
    """Return the quotation mark that one cell begins with and a later one has the other of; otherwise nothing."""
    texts = [cell.text.strip() for cell in row if not cell.is_quoted]
    lone = [i for i, text in enumerate(texts) if text.count('"') % 2]
    if lone and any(texts[i].startswith('"') for i in lone[:-1]):
        return '"'
    # An apostrophe may be anywhere in a cell.
    begin = [i for i, text in enumerate(texts) if text.startswith("'") and not text.endswith("'")]
    end = [i for i, text in enumerate(texts) if text.endswith("'") and not text.startswith("'")]
    return "'" if begin and end and begin[0] < end[-1] else ""


# How a table is written


def _read(table: str, separator: str, columns: Sequence[str]) -> tuple[list[_Row], _Dialect]:
    """Return the cells of a table with their places, and how they are written.

    Raises DocumentError if two ways to read it are equally good, or if none is good: that of the best one.
    """
    errors = []
    for dialect in _dialects_of(table, separator, columns):
        try:
            return _rows(table, dialect), dialect
        except DocumentError as error:
            errors.append(error)
    raise errors[0]


class _Fit(NamedTuple):
    """How well a dialect fits a table."""

    score: float
    """Share of rows that have the usual number of cells, none of them half a cell; half of it if a space follows each
    separator, as it follows a comma of prose, and few cells are quoted"""
    n_quoted: int
    width: int
    dialect: _Dialect


def _dialects_of(table: str, separator: str, columns: Sequence[str]) -> list[_Dialect]:
    """Return the dialects that fit a table best, by its first rows: those with the most quoted cells first.

    Raises DocumentError if they are of two separators.
    """
    names = {name for name in columns if not _is_number(name)}
    fits: list[_Fit] = []
    with_names: list[_Fit] = []
    for one in [separator] if separator else SEPARATORS:
        for dialect in (_Dialect(one), _Dialect(one, skips_spaces=True)):
            rows = [row for row in _scanned(table, dialect, SAMPLE_ROWS) if row]
            has_names = bool(rows and names) and names <= {cell.text.strip() for cell in rows[0]}
            (with_names if has_names else fits).append(_fit(table, rows, dialect, has_names))

    best, *others = sorted(with_names or fits, key=lambda fit: (fit.score, fit.n_quoted), reverse=True)
    rivals = {fit.dialect.separator for fit in others if fit.width > 1 and fit[:2] == best[:2]}
    rivals -= {best.dialect.separator}
    is_named = bool(with_names or not names)  # otherwise, the columns are what is wrong
    if best.score and best.width > 1 and rivals and is_named:
        shown = " or ".join(SEPARATORS[one] for one in SEPARATORS if one in rivals | {best.dialect.separator})
        raise DocumentError(f"it is not clear whether {shown} separates the cells: add a first line such as sep=;")
    others = [fit for fit in others if fit.score == best.score and fit.dialect.separator == best.dialect.separator]
    return [fit.dialect for fit in (best, *others)]


def _fit(table: str, rows: Sequence[_Row], dialect: _Dialect, has_header: bool) -> _Fit:
    """Return how well a dialect fits rows."""
    if not rows:
        return _Fit(0.0, 0, 1, dialect)
    widths = [len(row) for row in rows]
    width = widths[0] if has_header else max(set(widths), key=widths.count)
    regular = [row for row in rows if len(row) == width and not _halves(row)]
    behind = [table[cell.start - 1 : cell.start + 1] for row in rows for cell in row[1:]]
    spaced = sum(" " in signs for signs in behind) / max(1, len(behind))
    n_quoted = sum(cell.is_quoted for row in rows for cell in row)
    score = len(regular) / len(rows) if width > 1 or has_header else 0.0
    return _Fit(score if 2 * n_quoted >= len(rows) else score * (1 - spaced / 2), n_quoted, width, dialect)


def _cells(table: str, dialect: _Dialect) -> list[list[str]]:
    """Return the cells of a table, as the library csv reads it. Raises DocumentError if it cannot."""
    previous = csv.field_size_limit(LARGEST_CELL)
    try:
        return list(
            csv.reader(
                io.StringIO(table, newline=""),
                delimiter=dialect.separator,
                skipinitialspace=dialect.skips_spaces,
            )
        )
    except csv.Error as error:
        raise DocumentError(f"the table is damaged: {error}") from None
    finally:
        csv.field_size_limit(previous)


def _rows(table: str, dialect: _Dialect) -> list[_Row]:
    """Return the cells of a table with their places.

    Raises DocumentError where the library csv reads other cells, and where cells are cut in two.
    """
    rows = _scanned(table, dialect)
    texts = [[cell.text for cell in row] for row in rows]
    for number, (row, others) in enumerate(zip_longest(texts, _cells(table, dialect)), 1):
        if row != others:
            raise _unclear_quotes(number)
    halves = [(number, quote) for number, row in enumerate(rows, 1) if (quote := _halves(row))]
    certain = halves if 2 * len(halves) > len(rows) else [one for one in halves if one[1] == '"']
    if certain:
        raise _unclear_quotes(certain[0][0])
    return rows


def _unclear_quotes(row: int) -> DocumentError:
    return DocumentError(
        f"the table has quotation marks that it is not clear how to read, first in row {row:,}: "
        'a quoted cell begins and ends with " and has no other signs around it; each " in it is doubled'
    )


def _scanned(table: str, dialect: _Dialect, most: int = 10**9) -> list[_Row]:
    """Return the cells of a table with their places, of the first rows. A quoted cell ends before what ends a cell."""
    separator = re.escape(dialect.separator)
    spaces = " *+" if dialect.skips_spaces else ""
    quoted = rf'"(?P<quoted>(?:[^"]|"")*+)"(?=[{separator}\r\n]|\Z)'
    pattern = re.compile(rf"{spaces}(?:{quoted}|(?P<plain>[^{separator}\r\n]*+))(?P<end>\r\n|[{separator}\r\n]|\Z)")
    rows: list[_Row] = [[]]
    place = 0
    while len(rows) <= most and (place < len(table) or rows[-1]):
        match = pattern.match(table, place)
        if not match:
            raise DocumentError(f"the table is damaged in row {len(rows):,}")
        is_quoted = match["quoted"] is not None
        start = match.start("quoted") - 1 if is_quoted else match.start("plain")
        text = match["quoted"].replace('""', '"') if is_quoted else match["plain"]
        end = match.end("quoted") + 1 if is_quoted else match.end("plain")
        rows[-1].append(_Cell(text, start, end, is_quoted))
        place = match.end()
        if match["end"] != dialect.separator:
            if len(rows[-1]) == 1 and match.start() == end:
                rows[-1] = []  # a blank line
            rows.append([])
            if not match["end"]:
                break
    return rows[:-1] if not rows[-1] else rows


def _quoted(text: str, dialect: _Dialect, is_quoted: bool) -> str:
    """Return a cell, in quotation marks if its source was, or if it needs them."""
    if is_quoted or any(character in text for character in (dialect.separator, '"', "\r", "\n")):
        return '"' + text.replace('"', '""') + '"'
    return text
