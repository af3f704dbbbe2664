"""Rows that cannot be read: one odd row does not refuse a whole file, but is skipped and shown in the data report."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tapis.text.lines import DataError, Pair, not_utf8, not_utf8_at

BLANK_LINE = "a blank line"
SKIPPED_SHARE = 0.01  # of the rows of a file, and one row in any case: a file with more has another form
FIRST_ROWS = 100  # unreadable rows after which a file with too many is not read to its end


class Unreadable(NamedTuple):
    """A row that cannot be read, in place of its pair; or, without a location, a note on a whole file."""

    location: str
    """The file and the line"""
    problem: str


RawRow = Pair | Unreadable


def text_pairs(pairs: Iterable[Pair], source_name: str, target_name: str) -> Iterator[RawRow]:
    """Yield the pairs of the lines of two files, which `lines` reads with ESCAPED."""
    for number, pair in enumerate(pairs, 1):
        sides = zip(pair, (source_name, target_name), strict=True)
        yield next((row for side, name in sides if (row := not_in_utf8(side, f"{name} line {number:,}"))), pair)


def not_in_utf8(text: str, location: str) -> Unreadable | None:
    """Return a row that has a byte which is not UTF-8, as `lines` reads it with ESCAPED; None without one."""
    if (place := not_utf8_at(text)) < 0:
        return None
    return Unreadable(f"{location}, character {place + 1:,}", not_utf8(b""))


def check_share(rows: Iterable[RawRow]) -> Iterator[RawRow]:
    """Yield the rows of a file. Raises DataError about the first unreadable one, with their number, if too many are.

    Blank lines are no rows, nor are notes on the file: there may be any number.
    """
    first: Unreadable | None = None
    n_rows = n_unreadable = 0
    for row in rows:
        yield row
        if isinstance(row, Unreadable):
            if row.problem == BLANK_LINE or not row.location:
                continue
            first = first or row
            n_unreadable += 1
        n_rows += 1
        if first and n_unreadable > FIRST_ROWS + n_rows * SKIPPED_SHARE:
            break

    is_most = n_unreadable > max(1, n_rows * SKIPPED_SHARE) or n_unreadable == n_rows
    if first and is_most:
        how_many = f"; {n_unreadable:,} of the first {n_rows:,} rows cannot be read" if n_unreadable > 1 else ""
        problem, *advice = first.problem.splitlines()
        raise DataError("\n".join([f"{first.location}: {problem}{how_many}", *advice]))
