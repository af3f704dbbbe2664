"""Tests of workbooks: the pairs of the first sheet, and one line for what cannot be read."""

import datetime
import zipfile
from pathlib import Path

import openpyxl
import pytest
from conftest import readable
from hypothesis import given
from hypothesis import strategies as st

from pairs.columns import SAMPLE_ROWS
from pairs.readers import read_parts
from tapis.text.lines import DataError

TEXTS = st.text("aé,;\"'<&\t\n .«", max_size=12).map(lambda text: f"x{text}y")
ODS = """<?xml version="1.0"?><d xmlns:table="t" xmlns:text="x" xmlns:office="o">
<table:table table:name="S">{}</table:table>
<table:table table:name="T"><table:table-row><table:table-cell><text:p>no</text:p></table:table-cell></table:table-row>
</table:table></d>"""


def write_xlsx(rows: list[tuple[object, ...]]) -> None:
    book = openpyxl.Workbook()
    for row in rows:
        book.worksheets[0].append(row)
    book.create_sheet("Notes").append(["no", "no"])
    book.save("d.xlsx")


def write_ods(xml: str) -> None:
    with zipfile.ZipFile("d.ods", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("content.xml", ODS.format(xml))


def error_of(name: str) -> str:
    with pytest.raises(DataError) as error:
        list(read_parts(name, "en", "fr")["train"].rows)
    return str(error.value)


@given(rows=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8))
def test_a_sheet_reads_back(rows: list[tuple[str, str]]) -> None:
    write_xlsx([("Nr", "French", "English"), (), *((1, fr, en) for en, fr in rows), (None, " ")])
    part = read_parts("d.xlsx", "en", "fr")["train"]
    assert list(readable(part)) == rows
    assert part.forms == ['first sheet "Sheet", header "English", "French"']


def test_a_sheet_may_have_no_name_and_a_workbook_no_sheet() -> None:
    row = "<table:table-row>" + "<table:table-cell><text:p>{}</text:p></table:table-cell>" * 2 + "</table:table-row>"
    content = ODS.replace(' table:name="S"', "").format(row.format("A dog.", "Un chien.") + row.format("A.", "Un."))
    for xml, rows in [
        (content, [("A dog.", "Un chien."), ("A.", "Un.")]),
        ('<d xmlns:table="t"><table:table/></d>', []),
        ('<d xmlns:table="t"/>', []),
    ]:
        with zipfile.ZipFile("d.ods", "w") as archive:
            archive.writestr("content.xml", xml)
        part = read_parts("d.ods", "en", "fr")["train"]
        assert (list(readable(part)), part.forms) == (rows, ['first sheet "", no header'])

    book = openpyxl.Workbook()
    book.worksheets[0].title = " "
    for cells in (("fr", "en"), ("Un chien.", "A dog.")):
        book.worksheets[0].append(cells)
    book.save("d.xlsx")
    assert list(readable(read_parts("d.xlsx", "en", "fr")["train"])) == [("A dog.", "Un chien.")]


def test_numbers_and_dates_are_text() -> None:
    write_xlsx([("en", "fr"), (12, 2.5), (datetime.date(2024, 5, 1), True)])
    assert list(readable(read_parts("d.xlsx", "en", "fr")["train"])) == [("12", "2.5"), ("2024-05-01", "TRUE")]


@pytest.mark.parametrize(("header", "columns"), [([("en", "fr")], ()), ([("a", "b")], ("a", "b")), ([], ("1", "2"))])
@pytest.mark.parametrize("first_remark", [3, SAMPLE_ROWS + 5])
def test_remarks_to_the_right_of_a_table_are_not_read(
    first_remark: int, header: list[tuple[str, str]], columns: tuple[str, ...]
) -> None:
    rows = [(f"Cat {i}.", f"Chat {i}.") for i in range(SAMPLE_ROWS + 10)]
    write_xlsx([*header, *((*row, "checked") if i > first_remark else row for i, row in enumerate(rows))])
    assert list(readable(read_parts("d.xlsx", "en", "fr", columns)["train"])) == rows


def test_an_ods_sheet_is_read_as_it_is_shown() -> None:
    cell = "<table:table-cell><text:p>{}</text:p></table:table-cell>"
    comment = "<office:annotation><text:p>no</text:p></office:annotation>"
    rows = [
        cell.format("en") + cell.format("fr"),
        f"<table:table-cell>{comment}<text:p>a<text:s text:c='2'/>b</text:p><text:p>c</text:p></table:table-cell>"
        + cell.format("x"),
        "<table:table-cell table:number-columns-repeated='2'><text:p>z</text:p></table:table-cell>",
    ]
    write_ods("".join(f"<table:table-row table:number-rows-repeated='1'>{row}</table:table-row>" for row in rows))
    assert list(readable(read_parts("d.ods", "en", "fr")["train"])) == [("a  b\nc", "x"), ("z", "z")]


def test_a_workbook_that_is_broken_or_has_a_password_is_one_line() -> None:
    write_xlsx([("a", "b")])
    whole = Path("d.xlsx").read_bytes()
    for raw, problem in [
        (whole[:-30], "is not a complete .xlsx file"),
        (b"\xd0\xcf\x11\xe0" + bytes(100), "has a password"),
    ]:
        Path("d.xlsx").write_bytes(raw)
        message = error_of("d.xlsx")
        assert message.startswith("d.xlsx ") and problem in message and len(message.splitlines()) == 1


def test_a_small_workbook_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = f"<table:table-cell><text:p>{'a' * 1000}</text:p></table:table-cell>"
    write_ods(f"<table:table-row table:number-rows-repeated='999999999'>{cell}</table:table-row>")
    assert "far more than a spreadsheet has" in error_of("d.ods")
    write_ods("<!-- " + " " * 20_000_000 + " -->")
    assert "expands to 20 MB" in error_of("d.ods")
    write_xlsx([("a", "b")])
    with zipfile.ZipFile("d.xlsx") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    monkeypatch.setattr("pairs.workbooks.MAX_OUTSIDE", 250_000)
    for end, says in ((b"</row>", "far more cells in a row"), (b"</sheetData>", "far more rows, texts or other")):
        with zipfile.ZipFile("d.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, raw in parts.items():
                archive.writestr(name, raw.replace(end, b"<c/>" * 300_000 + end))
        assert says in error_of("d.xlsx")


def test_formulas_and_pivot_tables_may_have_many_elements_outside_of_rows() -> None:
    write_xlsx([("a", "b")])
    with zipfile.ZipFile("d.xlsx", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/calcChain.xml", "<calcChain>" + '<c r="C1"/>' * 250_000 + "</calcChain>")
    assert list(readable(read_parts("d.xlsx", "en", "fr")["train"])) == [("a", "b")]
