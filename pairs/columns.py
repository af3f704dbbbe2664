"""Which two columns of a table hold the source and the target side: by --columns, by the header, or the two there are.

A header names the languages by their codes or names (de, deu, de_DE, German, Deutsch), or the two sides (Source,
Target).
"""

import functools
import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from pairs.unreadable import BLANK_LINE, RawRow, Unreadable
from tapis.system.terminal import in_one_line, listed
from tapis.text.language_codes import base_language, language_tag
from tapis.text.lines import DataError

NumberedCells = tuple[int, list[str]]  # its number in the file, and its cells

SAMPLE_ROWS = 100  # from which headers are told

# What headers call the two sides, beside the languages
_SIDES = (
    {"source", "src", "quelle", "quelltext", "ausgangstext", "quellsprache", "ausgangssprache", "origen", "origine"},
    {"target", "tgt", "trg", "ziel", "zieltext", "zielsprache", "cible", "destino", "destinazione"},
)

# Codes of languages that headers more often give to the numbers of rows: Indonesian and Norwegian
_NAMES_OF_NUMBERS = {"id", "no"}


class Columns(NamedTuple):
    """The columns of a table."""

    source: int
    """Index of the column of the source side"""
    target: int
    n_columns: int
    """Columns of each row"""
    header: list[str] | None = None
    """The names of the two columns, if the first row is a header"""
    has_empty_end: bool = False
    """Whether empty cells after the second column are left out, which a separator at the end of each line makes"""

    def __str__(self) -> str:
        """Return the columns for the report."""
        if self.header is None:
            return "no header" + (f", columns {self.source + 1} and {self.target + 1}" if self.n_columns > 2 else "")
        return f"header {', '.join(map(quoted, self.header))}"


def is_number(column: str) -> bool:
    """Return whether a column is given by its number."""
    return re.fullmatch(r"[0-9]{1,9}", column) is not None


def are_found_by_language(columns: tuple[str, ...], source: str, target: str) -> bool:
    """Return whether the columns are those of the languages, under any of their names in the header.

    They are if none are chosen, or if the codes of the two languages are, for which there must be a header.
    """
    return columns in ((), (source, target))


def choose_columns(
    rows: Iterable[NumberedCells | Unreadable], place: str, source: str, target: str, columns: tuple[str, ...]
) -> Columns:
    """Return the columns of a table, given its first rows.

    `place` starts locations in errors: the file and "line". Raises DataError where the columns cannot be told.
    """
    filled = (row for row in rows if not isinstance(row, Unreadable) and not _is_blank(row[1]))
    number, cells = next(filled, (0, []))
    if not cells:
        return Columns(0, 1, 2)
    location = f"{place} {number:,}"
    has_empty_end = not columns and len(cells) > 2 and len(_without_empty_end(cells)) == 2
    cells = _without_empty_end(cells) if has_empty_end else cells
    n_columns = max(len(cells), 2)

    # by the header
    languages = find_languages(cells, source, target, or_sides=columns != (source, target))
    if languages and are_found_by_language(columns, source, target):
        source_column, target_column = languages
        names = [cells[source_column].strip(), cells[target_column].strip()]
        return Columns(source_column, target_column, n_columns, names, has_empty_end)

    # by --columns
    if columns:
        source_column, target_column = (_find_column(location, cells, column) for column in columns)
        if source_column == target_column:
            raise DataError(f"{location}: both of --columns are column {source_column + 1} (columns: {_listed(cells)})")
        is_header = bool(languages) or not all(map(is_number, columns))
        header = [cells[source_column].strip(), cells[target_column].strip()] if is_header else None
        return Columns(source_column, target_column, n_columns, header)

    # not those of a title above a header, or above more columns
    if _n_filled(cells) == 1:
        below = [row for _, row in islice(filled, SAMPLE_ROWS)]
        wide = [row for row in below if _n_filled(row) > 2]
        if len(wide) > len(below) / 2 or (below and find_languages(below[0], source, target)):
            raise DataError(
                f"{location}: only {quoted(''.join(cells))} in a table of {max(map(_n_filled, below))} columns\n"
                "if this is a title, delete the row: the header comes first"
            )

    # the two that there are; a header in other words would be read as a pair
    if n_columns > 2:
        raise DataError(
            f"{location}: {n_columns} columns, expected 2 ({source} and {target}): {_listed(cells)}\n"
            "choose with --columns 2 3, or with two names if this row is a header"
        )
    sample = [row[1] for row in islice(filled, SAMPLE_ROWS) if len(row[1]) == 2]
    if len(cells) == 2 and _looks_like_header(cells, sample):
        raise DataError(
            f"{location}: is this a header or a pair? {_listed(cells)}\n"
            "choose with --columns and two names, source first, for a header; with --columns 1 2 for a pair"
        )
    return Columns(0, 1, n_columns, None, has_empty_end)


def pairs_of_rows(
    rows: Iterable[NumberedCells | Unreadable], columns: Columns, place: str, languages: str
) -> Iterator[RawRow]:
    """Yield the source and target columns of a table. Rows with more or fewer columns than the first are unreadable."""
    is_header_next = columns.header is not None
    for row in rows:
        if isinstance(row, Unreadable):
            yield row
            continue
        number, cells = row
        cells = _without_empty_end(cells) if columns.has_empty_end else cells
        if _is_blank(cells):
            yield Unreadable(f"{place} {number:,}", BLANK_LINE)
        elif is_header_next:
            is_header_next = False
        elif len(cells) != columns.n_columns:
            actual = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
            has_more = columns.has_empty_end and len(cells) > columns.n_columns
            hint = "\nchoose with --columns 1 2" if has_more else ""
            yield Unreadable(f"{place} {number:,}", f"{actual}, expected {columns.n_columns} ({languages}){hint}")
        else:
            yield cells[columns.source], cells[columns.target]


def _is_blank(cells: list[str]) -> bool:
    """Return whether a row has no text, as the first or last rows of a spreadsheet may be."""
    return not any(cell.strip() for cell in cells)


def _n_filled(cells: list[str]) -> int:
    """Return how many cells of a row have text."""
    return sum(bool(cell.strip()) for cell in cells)


def _without_empty_end(cells: list[str]) -> list[str]:
    """Return a row without empty cells at its end, but with two cells at least."""
    n_cells = len(cells)
    while n_cells > 2 and not cells[n_cells - 1].strip():
        n_cells -= 1
    return cells[:n_cells]


def find_languages(cells: list[str], source: str, target: str, *, or_sides: bool = True) -> tuple[int, int] | None:
    """Return the indices of the columns of two languages if a row is a header that names both; otherwise None.

    A name that is equal comes before one that means the same, and, with or_sides, a language before the name of a side.
    """
    names = _header(cells)
    names_of_languages = _names_of_languages(source, target)
    found = []
    for side, language in enumerate((source, target)):
        names_of_side = _SIDES[side] if or_sides else set()
        ranks = [_rank(name, language, names_of_languages[side], names_of_side) for name in names]
        best = max(ranks, default=0)
        found.append([index for index, rank in enumerate(ranks) if rank == best and rank])
    if any(len(indices) != 1 for indices in found) or found[0] == found[1]:
        return None
    return found[0][0], found[1][0]


def find_fields(names: Iterable[str], source: str, target: str, *, or_sides: bool) -> tuple[str, str]:
    """Return the names of the fields of two languages, as in a header; the languages themselves where none fit."""
    names = list(names)
    if {source, target} <= set(names) - _NAMES_OF_NUMBERS:
        return source, target
    languages = find_languages(names, source, target, or_sides=or_sides)
    return (names[languages[0]], names[languages[1]]) if languages else (source, target)


def _rank(name: str, language: str, names_of_language: set[str], names_of_side: set[str]) -> int:
    """Return how well the name of a column fits a language; 0 if it does not, 1 if it may be that of numbers."""
    tag = _tag(name)
    fits = (
        name == language.lower(),
        tag == language_tag(language),
        _is_variant(tag, language_tag(language)),
        name in names_of_language,
        re.sub(" (text|language|segment)$", "", name) in names_of_side,
    )
    if True not in fits:
        return 0
    return 1 if name in _NAMES_OF_NUMBERS else 1 + len(fits) - fits.index(True)


def _header(cells: list[str]) -> list[str]:
    """Return the names of the columns if a row is a header, without a country or a script in parentheses."""
    return [re.sub(r"\s*\([^()]*\)$", "", cell.strip()).lower() for cell in cells]


def _tag(name: str) -> str:
    """Return the usual code of a language for a name that may be a code, and otherwise nothing."""
    return language_tag(name) if re.fullmatch("[a-z]{2,3}([-_][a-z0-9]{2,8}){0,2}", name) else ""


def _is_variant(tag: str, language: str) -> bool:
    """Return whether one of two codes is the other with a region or a script: de and de-at."""
    return bool(tag) and (tag.startswith(f"{language}-") or language.startswith(f"{tag}-"))


@functools.lru_cache(maxsize=100)
def _names_of_languages(source: str, target: str) -> tuple[set[str], set[str]]:
    """Return the names of two languages in English and in both languages, in small letters."""
    from babel import Locale, UnknownLocaleError  # noqa: PLC0415 - takes 20 ms, which most headers do not need

    def names(language: str, locale: str) -> set[str]:
        try:
            known = Locale.parse(locale).languages
        except (UnknownLocaleError, ValueError):
            return set()
        tag = language_tag(language)
        tags = (tag, base_language(tag))
        return {str(name).lower() for code, name in known.items() if str(code).lower().replace("_", "-") in tags}

    locales = ("en", base_language(source), base_language(target))
    in_source, in_target = (
        set().union(*(names(language, locale) for locale in locales)) for language in (source, target)
    )
    return in_source, in_target


def _find_column(location: str, cells: list[str], column: str) -> int:
    """Return the index of a column that is given by its number or by its name in the first row."""
    if is_number(column):
        indices = [int(column) - 1] if 1 <= int(column) <= len(cells) else []
    else:
        name = column.strip().lower()
        indices = [index for index, cell in enumerate(cells) if cell.strip().lower() == name]
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
    return listed(f"{number} {quoted(cell)}" for number, cell in enumerate(cells, 1))


def quoted(cell: str) -> str:
    """Return a name of the user for a message or the report."""
    return json.dumps(in_one_line(cell, 20), ensure_ascii=False)
