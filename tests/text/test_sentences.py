"""Tests of splitting lines into sentences and joining them again: nothing is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapis.text.sentences import Line, cut_to_fit, split_line, take_direction


def units(line: str, language: str = "en", longest: int = 1000) -> list[str]:
    return split_line(line, language, lambda text: len(text) <= longest).units


@pytest.mark.parametrize(
    ("language", "line", "expected"),
    [
        ("en", "The cat sleeps. The dog is tired! Is it?", ["The cat sleeps.", "The dog is tired!", "Is it?"]),
        ("en", "Dr. Smith paid 3.14 dollars. He left.", ["Dr. Smith paid 3.14 dollars.", "He left."]),
        ("fr", "M. Dupont dort. « Vraiment ? » dit-elle.", ["M. Dupont dort.", "« Vraiment ? » dit-elle."]),
        ("fr", "É. Zola dort. Ç. dort.", ["É. Zola dort.", "Ç. dort."]),
        ("ru", "Л. Толстой спит. Он спит.", ["Л. Толстой спит.", "Он спит."]),
        ("zh", "貓坐在墊子上。牠很開心！", ["貓坐在墊子上。", "牠很開心！"]),
        ("tlh", "One. Two.", ["One.", "Two."]),
        ("en", "", []),
        ("en", "   ", []),
    ],
)
def test_lines_are_split_into_sentences(language: str, line: str, expected: list[str]) -> None:
    assert units(line, language) == expected


@pytest.mark.parametrize("marker", ["- ", "* ", "1. ", "  12) ", "(a) ", "> > ", "## ", "• ", "- 3. "])
def test_list_markers_are_kept_and_not_translated(marker: str) -> None:
    line = split_line(marker + "One. Two.", "en", lambda text: True)
    assert line.units == ["One.", "Two."]
    assert line.join(["Un.", "Deux."], "fr") == marker.lstrip() + "Un. Deux."


def test_a_dialogue_dash_is_not_a_list_marker() -> None:
    assert units("— Non, dit-il.", "fr") == ["— Non, dit-il."]


def test_a_dash_without_a_space_stays_at_its_word() -> None:
    for text, marker in (("-Is it so? No.", "-"), ("1. -Is it so? No.", "1. -")):
        line = split_line(text, "en", lambda text: True)
        assert (line.marker, line.units) == (marker, ["Is it so?", "No."])
        assert line.join(["Vraiment ?", "Non."], "fr") == marker + "Vraiment ? Non."
    assert units("-5 degrees.", "en") == ["-5 degrees."]


def test_languages_without_spaces_are_joined_without_spaces() -> None:
    for language in ("zh", "zh-Hans", "zh_TW"):
        assert Line("", ["One.", "Two."]).join(["一。", "二。"], language) == "一。二。"


def test_text_without_letters_is_not_cut() -> None:
    assert units("=" * 200, longest=100) == ["=" * 200]


def test_long_sentences_are_cut_at_the_best_cut_point() -> None:
    assert units("one two three, four five six seven", longest=20) == ["one two three,", "four five six seven"]
    assert units("one two three four five six", longest=15) == ["one two three", "four five six"]
    assert units("x" * 40, longest=15) == ["x" * 10] * 4


@pytest.mark.parametrize(
    "text", ["a, b; c: d", "word " * 3000, "x" * 5000, "，".join("字" * 9 for _ in range(50)), ",,,,  ,,", "é"]
)
@pytest.mark.parametrize("longest", [1, 7, 100])
def test_cut_pieces_fit_and_join_to_the_text(text: str, longest: int) -> None:
    pieces = cut_to_fit(text, lambda piece: len(piece) <= longest)
    assert "".join(pieces) == text
    assert all(len(piece) <= longest for piece in pieces)


WRAPPERS = {
    "": "",
    "\u200e": "\u200e",
    "\u200f": "",
    "\u202a": "\u202c",
    "\u202b\u2067": "\u2069\u202c",
    "\u2068": "\u2069",
}


@given(st.sampled_from(sorted(WRAPPERS)), st.text("ab\u200e\u202c\u2067 ").map(lambda text: f"a{text}b"))
def test_direction_around_a_line_is_taken_whole(before: str, text: str) -> None:
    assert take_direction(f" {before}{text}{WRAPPERS[before]}\n") == (before, text, WRAPPERS[before])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("\u202bab", ("", "ab", "")),
        ("a \u202bb\u202c", ("", "a \u202bb", "")),
        ("\u200f\u2067a\u202c\u200e", ("\u200f", "a", "\u200e")),
        ("\u200e", ("\u200e", "", "")),
        ("", ("", "", "")),
    ],
)
def test_openings_without_their_ends_are_left_out(line: str, expected: tuple[str, str, str]) -> None:
    assert take_direction(line) == expected
