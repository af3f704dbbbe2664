"""The rows of history.csv, whatever was left in it."""

import math

from hypothesis import given
from hypothesis import strategies as st

from training.history import COLUMNS, with_row


def steps_of(text: str) -> list[int]:
    head, *rows = text.splitlines()
    assert head.split(",") == list(COLUMNS) and all(len(row.split(",")) == len(COLUMNS) for row in rows)
    return [int(row.partition(",")[0]) for row in rows]


def row(step: int) -> tuple[float, ...]:
    return (step, *[0.5] * (len(COLUMNS) - 1))


@given(st.lists(st.integers(0, 9), min_size=1))
def test_steps_are_in_order_and_once_after_any_resumptions(steps: list[int]) -> None:
    """A run is validated after these steps: where they go back, it was killed before its state was saved."""
    text, expected = "", set[int]()
    for step in steps:
        text = with_row(text, row(step))
        expected = {earlier for earlier in expected if earlier < step} | {step}
    assert steps_of(text) == sorted(expected)


def test_what_is_not_known_is_an_empty_cell() -> None:
    assert with_row("", (0, 0, 1.5, 0, math.nan)).splitlines()[1] == "0,0,1.5,0,"
