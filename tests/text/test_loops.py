"""What repeats itself, and what only repeats what its source does."""

import re

import pytest
from hypothesis import given, strategies
from timing import takes_less_than

from tapis.text.loops import loops, without_loops

SOURCE = "The house is big."


@pytest.mark.parametrize(
    ("looping", "cut"),
    [
        ("Le grand grand grand grand", "Le grand"),
        ("Ma maison dortortortort", "Ma maison dort"),
        ("de la ville de la ville de la ville est grande", "de la ville est grande"),
        ("Le chat dort. Le chat dort. Le chat dort.", "Le chat dort."),
        ("大きい大きい大きい", "大きい"),
    ],
)
def test_three_times_in_a_row_is_a_loop(looping: str, cut: str) -> None:
    assert loops(SOURCE, looping)
    assert without_loops(looping) == cut
    assert not loops(SOURCE, cut)


@pytest.mark.parametrize(
    "honest", ["Une très, très grande maison.", "1 000 000 000 000", "- - - - -", "...", "Waouh", ""]
)
def test_honest_repetition_is_none(honest: str) -> None:
    assert not loops(SOURCE, honest)
    assert without_loops(honest) == honest


@pytest.mark.parametrize("very", ["very, very, very", "very very very", "much much much"])
def test_what_the_source_repeats_may_be_repeated(very: str) -> None:
    assert not loops(f"It is {very} big.", "Elle est très, très, très, très grande.")
    assert loops(f"It is {very} big.", "Elle est" + " très," * 5 + " grande.")
    assert not loops("It is very, very, very, very big.", "Elle est" + " très" * 5 + " grande.")
    assert not loops("It is very, very odd.", "C'est très très très bizarre.")
    assert loops("It is very, very odd.", "C'est" + " le la" * 4 + " bizarre.")
    assert not loops("The O'Neil मुझे The O'Neil मुझे ", "Le grand grand grand")  # words with vowel signs


def test_long_texts_take_time_in_proportion() -> None:
    texts = ["ab" * 50_000, "x" * 100_000, "ab ab " * 10_000, " ".join(map(str, range(20_000)))]
    assert takes_less_than(3, lambda: [loops(SOURCE, text) for text in texts])
    assert takes_less_than(3, lambda: list(map(without_loops, texts)))


@given(strategies.text("aé 1", max_size=40))
def test_the_quick_look_overlooks_no_loop(text: str) -> None:
    searched = re.findall(r"(.{2,80}?)\1{2,}", f" {text}")
    assert loops("", text) == any(any(map(str.isalpha, unit)) for unit in searched)
