"""Read sentence pairs from the first sheet of a workbook: .xlsx (Excel, Google Sheets) and .ods (LibreOffice).

Both are zips of XML. openpyxl reads .xlsx a row at a time, and `_OdsParser` .ods, as a stream. Formulas are not
computed: their last results are in the file. Pictures, comments, macros and links are not read, and nothing is unpacked
to disk.
"""

import datetime
import warnings
import zipfile
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any
from xml.parsers import expat

from pairs.columns import SAMPLE_ROWS, NumberedCells, choose_columns, pairs_of_rows, quoted
from pairs.spreadsheets import Table
from tapis.system.terminal import in_one_line
from tapis.system.zips import OLE, has_password, problem_of_members
from tapis.text.lines import BUFFER_BYTES, LINE_BYTES, MAX_LINE_BYTES, DataError, most_bytes

MAX_PART_BYTES = 300_000_000  # of one file of the zip, decompressed; a sheet of a million pairs takes 100 MB
MAX_ROWS, MAX_COLUMNS = 2**20, 2**14  # of a sheet, in Excel and in LibreOffice
ROWS = 1000  # read at a time
MAX_ELEMENTS = 200_000  # of XML in a row or a text of an .xlsx, which openpyxl keeps until its end
MAX_KEPT = 4 * MAX_ROWS  # rows and texts of an .xlsx, which openpyxl keeps
MAX_OUTSIDE = MAX_ROWS  # elements outside of these in a part of an .xlsx, such as formats and the order of formulas

_COMMENTS = {"annotation", "note", "shapes", "ruby-text"}  # elements of .ods whose text is not that of the cell


def open_workbook(path: Path, source: str, target: str, columns: tuple[str, ...]) -> Table:
    """Return the pairs of the first sheet. Raises DataError where the file is broken, or its columns cannot be told."""
    rows = _checked(path, _xlsx_rows(path) if path.suffix.lower() == ".xlsx" else _ods_rows(path))
    sheet = next(rows, (0, [""]))[1][0]
    sample = list(islice(rows, SAMPLE_ROWS + 1))
    width = max((len(cells) for _, cells in sample), default=2)
    sample = [(number, _padded(cells, width)) for number, cells in sample]

    place = f"{path} row"
    chosen = choose_columns(sample, place, source, target, columns)
    end = chosen.n_columns if chosen.header or columns else None  # behind it are remarks
    padded = ((number, _padded(cells, chosen.n_columns)[:end]) for number, cells in chain(sample, rows))
    return Table(
        f"first sheet {quoted(sheet)}, {chosen}", pairs_of_rows(padded, chosen, place, f"{source} and {target}")
    )


def _padded(cells: list[str], width: int) -> list[str]:
    """Return a row with the empty cells at its end, which a sheet leaves out."""
    return cells + [""] * (width - len(cells))


def _checked(path: Path, rows: Iterator[NumberedCells]) -> Iterator[NumberedCells]:
    """Yield the rows of a sheet that have text, after its name. Raises DataError for whatever goes wrong.

    A cell or a row may be repeated any number of times: what the rows take together is limited.
    """
    n_bytes = 0
    try:
        _check_zip(path)
        max_bytes = most_bytes(path)
        for number, row in rows:
            cells = list(row)
            while cells and not cells[-1].strip():
                cells.pop()
            n_characters = sum(map(len, cells))
            n_bytes += n_characters + LINE_BYTES if cells else 0
            if number > MAX_ROWS or n_characters > MAX_LINE_BYTES or n_bytes > max_bytes:
                raise DataError(f"{path} row {number:,}: far more than a spreadsheet has: save it as .csv")
            if cells or number == 0:
                yield number, cells or [""]  # a sheet may have no name
    except DataError:
        raise
    except Exception as error:  # openpyxl raises whatever a broken file leads to
        if isinstance(error, OSError) and error.strerror:
            raise DataError(f"{path} cannot be read: {error.strerror}") from None
        reason = in_one_line(error, 100) or type(error).__name__
        raise DataError(f"{path} is not a complete {path.suffix.lower()} file: {reason}") from None


def _check_zip(path: Path) -> None:
    """Raise DataError if a workbook is encrypted, or expands to more than a workbook does."""
    with path.open("rb") as file:
        if file.read(len(OLE)) == OLE:
            raise DataError(f"{path} has a password, or is an old .xls file: save it as .xlsx without a password")
    with zipfile.ZipFile(path) as archive:
        sizes = [part.file_size for part in archive.infolist()]  # a file that has more is cut there
        if max(sizes, default=0) > MAX_PART_BYTES or sum(sizes) > most_bytes(path):
            raise DataError(f"{path} expands to {sum(sizes) / 1e6:,.0f} MB, more than is read: save it as .csv")
        if problem := problem_of_members(archive):
            raise zipfile.BadZipFile(problem)
        if has_password(archive):
            raise DataError(f"{path} has a password: save it without one")


def _xlsx_rows(path: Path) -> Iterator[NumberedCells]:
    """Yield the name of the first sheet as row 0, and then its rows, with empty ones where it has none."""
    import openpyxl  # noqa: PLC0415 - takes 0.3 s, which other files do not need

    with zipfile.ZipFile(path) as archive:
        for part in archive.namelist():
            if part.endswith((".xml", ".rels")):
                with archive.open(part) as xml:
                    _check_elements(iter(lambda: xml.read(BUFFER_BYTES), b""))
    with path.open("rb") as file:
        with warnings.catch_warnings(action="ignore"):  # about styles and the like
            workbook = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
        sheet = workbook.worksheets[0]
        yield 0, [sheet.title]
        sheet.reset_dimensions()  # a file may state others than it has
        rows = enumerate(sheet.iter_rows(values_only=True), 1)
        while True:
            with warnings.catch_warnings(action="ignore"):
                batch = list(islice(rows, ROWS))
            if not batch:
                return
            for number, values in batch:
                yield number, list(map(_text, values))


def _check_elements(chunks: Iterator[bytes]) -> None:
    """Raise ValueError if a part of an .xlsx has more elements than openpyxl can take without filling the memory."""
    n_elements = n_kept = n_outside = 0
    is_in_row = False

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal n_elements, n_kept, n_outside, is_in_row
        is_row = name.rpartition(":")[2] in ("row", "si")
        is_in_row = is_in_row or is_row
        n_kept += is_row
        n_outside += not is_in_row
        n_elements += is_in_row
        if n_elements > MAX_ELEMENTS:
            raise ValueError("it has far more cells in a row than a sheet")
        if n_kept > MAX_KEPT or n_outside > MAX_OUTSIDE:
            raise ValueError("it has far more rows, texts or other elements than a workbook")

    def end(name: str) -> None:
        nonlocal n_elements, is_in_row
        if name.rpartition(":")[2] in ("row", "si"):
            n_elements, is_in_row = 0, False

    def start_doctype(*names: Any) -> None:
        raise ValueError("it declares entities, which may expand to gigabytes")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = start_doctype
    for chunk in chunks:
        parser.Parse(chunk, False)


def _text(value: Any) -> str:
    """Return the value of a cell of an .xlsx as text."""
    if value is None:
        return ""
    if isinstance(value, datetime.datetime):
        is_day = value.time() == datetime.time()
        return value.date().isoformat() if is_day else value.isoformat(" ")
    if isinstance(value, bool):
        return str(value).upper()
    return str(value).replace("_x000D_", "")  # a carriage return


def _ods_rows(path: Path) -> Iterator[NumberedCells]:
    """Yield the name of the first sheet as row 0, and then its rows, without empty ones."""
    parser = _OdsParser()
    with zipfile.ZipFile(path) as archive, archive.open("content.xml") as file:
        is_last = False
        while not parser.is_over and not is_last:
            chunk = file.read(BUFFER_BYTES)
            is_last = not chunk
            yield from parser.parse(chunk, is_last)


class _OdsParser:
    """Parses the content of an .ods file in chunks. Expat calls the handlers, which fill in the row at hand."""

    def __init__(self) -> None:
        self.rows: list[Iterator[NumberedCells]] = []  # complete and not yet returned
        self.is_over = False  # whether the first sheet has ended
        self.number = 0  # of the last complete row
        self.row: list[str] = []
        self.n_characters = 0  # of the row
        self.n_repeated = (1, 1)  # of this row and of this cell
        self.paragraphs: list[list[str]] | None = None  # of this cell, or None outside cells
        self.value = ""  # of a cell without paragraphs
        self.depth_of_comments = 0

        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = self._start_doctype
        self.parser.StartElementHandler = self._start_element
        self.parser.EndElementHandler = self._end_element
        self.parser.CharacterDataHandler = self._add_text

    def parse(self, chunk: bytes, is_last: bool) -> Iterator[NumberedCells]:
        """Parse a piece of the file. Returns the rows that end in it."""
        self.parser.Parse(chunk, is_last)
        rows = self.rows
        self.rows = []
        return chain.from_iterable(rows)

    def _start_doctype(self, *names: Any) -> None:
        raise ValueError("it declares entities, which may expand to gigabytes")

    def _start_element(self, name: str, attributes: dict[str, str]) -> None:
        kind = name.rpartition(" ")[2]
        named = {attribute.rpartition(" ")[2]: value for attribute, value in attributes.items()}
        if self.is_over:
            return
        if kind in _COMMENTS or self.depth_of_comments:
            self.depth_of_comments += 1
        elif kind == "table":
            self.rows.append(iter([(0, [named.get("name", "")])]))
        elif kind == "table-row":
            self.row, self.n_characters = [], 0
            self.n_repeated = (int(named.get("number-rows-repeated", 1)), 1)
        elif kind in ("table-cell", "covered-table-cell"):
            self.n_repeated = (self.n_repeated[0], int(named.get("number-columns-repeated", 1)))
            self.paragraphs = []
            self.value = next((named[key] for key in ("string-value", "date-value", "value") if key in named), "")
        elif self.paragraphs is None:
            return
        elif kind in ("p", "h"):
            self.paragraphs.append([])
        elif kind == "s":
            self._add_text(" " * min(int(named.get("c", 1)), MAX_LINE_BYTES))
        elif kind == "tab":
            self._add_text("\t")
        elif kind == "line-break":
            self._add_text("\n")

    def _add_text(self, text: str) -> None:
        if self.paragraphs and not self.depth_of_comments:
            self.paragraphs[-1].append(text)
            self._count(len(text))

    def _count(self, n_characters: int) -> None:
        self.n_characters += n_characters
        if self.n_characters > MAX_LINE_BYTES or len(self.row) > MAX_COLUMNS:
            raise ValueError(f"row {self.number + 1:,} is longer than {MAX_LINE_BYTES // 1_000_000} MB")

    def _end_element(self, name: str) -> None:
        kind = name.rpartition(" ")[2]
        if self.depth_of_comments:
            self.depth_of_comments -= 1
        elif kind == "table":
            self.is_over = True
        elif kind in ("table-cell", "covered-table-cell") and self.paragraphs is not None:
            text = "\n".join(map("".join, self.paragraphs)) or self.value
            n_repeated = min(self.n_repeated[1], MAX_COLUMNS)
            self.row += [text] * n_repeated
            self.paragraphs = None
            self._count(len(text) * n_repeated)
        elif kind == "table-row":
            self._end_row()

    def _end_row(self) -> None:
        first = self.number + 1
        self.number += self.n_repeated[0]
        if any(self.row):
            self.rows.append(_repeated(self.row, range(first, self.number + 1)))
        self.row = []


def _repeated(row: list[str], numbers: range) -> Iterator[NumberedCells]:
    """Yield a row once for each number."""
    return ((number, row) for number in numbers)
