"""What is taken out of a line comes back in its translation, each mark once, around or beside the right words."""

import random
import time
from collections import Counter

import numpy as np
import pytest

from tapis.text.alignment import Alignment, SamePlaces
from tapis.text.marks import take_out
from tapis.text.placement import put_back

FRAGMENTS = (
    *("<b>", "</b>", "<i class='x y'>", "</i>", "<br/>", "<br>", "<!-- c -->", "**", "*", "_", "__", "~~", "`x y`"),
    *("[a](b)", "[", "](u)", "http://x.org/?a=1", "a@b.org", "%s", "%(n)s", "{n}", "{", "${x}", "$HOME", "&amp;"),
    *("😀", "👍🏽", "#4", "v2.1", "A-47", "12", "1,234.5", "word", "Two words", "é", "!", ", ", ". ", " ", "  "),
    *("(", ")", "«", "»", " - ", "<", "a<b"),
)


def same_order(n: int) -> Alignment:
    """The alignment of a translation with the words of its source."""
    return Alignment([np.eye(n)])


def all_shares(alignment: Alignment, start: int, end: int) -> list[float]:
    """The share of each word of the translation that comes from words of the source from start to end."""
    first, shares = alignment.shares(start, end)
    return [*[0.0] * first, *shares.tolist(), *[0.0] * (alignment.shape[0] - first - len(shares))]


def test_the_shares_of_a_span_are_the_sums_of_its_columns() -> None:
    draw = np.random.default_rng(1)
    blocks = [draw.random(shape) + 0.01 for shape in ((3, 2), (0, 1), (2, 0), (4, 5), (1, 1))]
    alignment = Alignment(blocks)
    whole = np.zeros(alignment.shape)
    for i, block in enumerate(alignment.blocks):
        whole[alignment.rows[i] : alignment.rows[i + 1], alignment.columns[i] : alignment.columns[i + 1]] = block
    for start in range(alignment.shape[1] + 1):
        for end in range(start, alignment.shape[1] + 1):
            np.testing.assert_allclose(all_shares(alignment, start, end), whole[:, start:end].sum(axis=1), atol=1e-12)


@pytest.mark.parametrize(
    ("line", "left", "n_marks"),
    [
        ("The <b>cat</b> is tired.", "The cat is tired.", 2),
        ("<p>A <i>very <b>big</b></i> dog</p>", "A very big dog", 6),
        ("**Bold**, *it*, __so__ and [a link](http://x.y/z).", "Bold, it, so and a link.", 8),
        ("See https://example.org/a?b=1, please.", "See, please.", 1),
        ("Write to jane.doe@example.org!", "Write to!", 1),
        ("{name}, please wait.", "please wait.", 1),
        ("A dog runs - 😀", "A dog runs", 1),
        ("It runs (v2.0.1) on %s and %(host)s.", "It runs on and.", 3),
        ("Take $HOME, ${x}, {{y}}, &amp; and #42", "Take, and", 5),
        ("Model A-4711b has `a b` in it", "Model has in it", 2),
        ("👍🏽 Fine 🇫🇷", "Fine", 2),
        ("First<br/>second", "First second", 1),
        ("un<b>believ</b>able", "unbelievable", 2),
    ],
)
def test_marks_are_taken_out_and_put_back(line: str, left: str, n_marks: int) -> None:
    taken = take_out(line)
    assert taken.text == left and len(taken.marks) == n_marks
    back = put_back(taken.text, taken, same_order(len(taken.words)))
    if "un<b>" in line:
        line = "<b>unbelievable</b>"  # tags go around whole words
    assert "".join(back.split()) == "".join(line.split())


@pytest.mark.parametrize(
    "line", ["a < b and 3 * 4", "I paid $5.", "10:30 at 5pm, 2nd floor", "snake_case", "2*3, a*b", "A T-shirt."]
)
def test_what_is_no_mark_stays(line: str) -> None:
    assert take_out(line).marks == [] and take_out(line).text == line


def test_numbers_are_taken_out_only_if_wanted() -> None:
    line = "In 1969, 25 dogs ate 1,234.50 bones at 10:30."
    assert take_out(line).marks == []
    taken = take_out(line, with_numbers=True)
    assert [mark.text for mark in taken.marks] == ["1969", "25", "1,234.50", "10:30"]
    assert put_back(taken.text, taken, same_order(len(taken.words))) == line


@pytest.mark.parametrize(
    "line",
    [
        "<a href=1>Home</a><a href=2>News</a> here",
        'See <a title="a > b" href=x>this</a> now',
        "CO<sub>2</sub> emissions",
        "AT&amp;T is 10&nbsp;km away",
        "{count}th place of {name}'s dog",
        "Press <kbd>Ctrl</kbd>+<kbd>C</kbd> now",
        "* item with *emph* word",
        "![The cat](img.png) is sleeping.",
        "Compute 3*4, 2**10 and f*ck now",
        "{\\an8}Hello there",
        "See https://x.org/Cat_(animal), or (https://x.org/a_(b)/c). Fine",
        "**Bold**, then _it_ and __so__",
    ],
)
def test_a_line_that_stays_comes_back_as_it_was(line: str) -> None:
    taken = take_out(line)
    assert put_back(taken.text, taken, same_order(len(taken.words))) == line


def test_numbers_with_signs_and_units_come_back() -> None:
    line = "It costs $50, -25 degrees and 50% of the 1990s in A/12."
    taken = take_out(line, with_numbers=True)
    assert [mark.text for mark in taken.marks] == ["$50", "-25", "50%", "1990s", "12"]
    assert put_back(taken.text, taken, same_order(len(taken.words))) == line


def test_sentences_are_aligned_one_by_one() -> None:
    blocks = Alignment([np.eye(1), np.array([[0.0, 2.0], [1.0, 1.0], [3.0, 0.0]])])
    assert blocks.shape == (4, 3) and [blocks.best(word) for word in range(3)] == [0, 3, 1]
    assert all_shares(blocks, 1, 2) == [0, 0, 0.5, 1] and all_shares(blocks, 0, 3) == [1, 1, 1, 1]
    same = SamePlaces(4, 2)
    assert [same.best(word) for word in range(2)] == [1, 3] and all_shares(same, 1, 2) == [0, 0, 1, 1]


@pytest.mark.parametrize("n", [1, 20, 200])
def test_tags_within_tags_come_back_in_order(n: int) -> None:
    """However many they are; within fifty they are placed by the words, and deeper where the pair around them is."""
    line = "".join(f"<b>w{i} " for i in range(n)) + "end" + "</b>" * n
    taken = take_out(line)
    assert put_back(taken.text, taken, Alignment([np.eye(n + 1)])).count("<b>") == n
    if n <= 50:
        assert put_back(taken.text, taken, Alignment([np.eye(n + 1)])) == line


def test_a_thing_stays_within_a_translation_whose_last_sentence_is_empty() -> None:
    taken = take_out("The cat sleeps. The {name} dog runs.")
    alignment = Alignment([np.eye(3), np.zeros((0, 3))])
    assert put_back("Le chat dort.", taken, alignment) == "Le chat dort. {name}"


def test_code_is_kept_in_any_letter_case() -> None:
    taken = take_out("Type <CODE>make all</Code> now ⏰ \U0001f3f4\U000e0067\U000e0062\U000e007f.")
    assert taken.text == "Type now." and [mark.text for mark in taken.marks][:2] == ["<CODE>make all</Code>", "⏰"]


def test_tags_are_around_what_comes_from_the_words_that_they_were_around() -> None:
    # "the black cat sleeps." → "le chat noir dort ."
    taken = take_out("the <i><b>black</b> cat</i> sleeps {now}.")
    alignment = np.zeros((5, 4))
    for target, source in enumerate((0, 2, 1, 3, 3)):
        alignment[target, source] = 1.0
    assert taken.text == "the black cat sleeps."
    assert put_back("le chat noir dort .", taken, Alignment([alignment])) == "le <i>chat <b>noir</b></i> dort {now}."


def test_a_tag_within_a_tag_stays_within_it() -> None:
    taken = take_out("<a>one <b>two</b></a> three")
    alignment = np.array([[0, 0.1, 1], [1, 0, 0.2], [0, 1, 0.2]])
    assert put_back("x y z", taken, Alignment([alignment])) == "x <a>y <b>z</b></a>"
    assert put_back("x y z", taken, Alignment([alignment[[2, 0, 1]]])) == "<a><b>x</b></a> y z"


def test_punctuation_stays_outside_a_tag_that_it_was_outside_of() -> None:
    for line, translation, expected in (
        ("a <b>cat</b>.", "un chat.", "un <b>chat</b>."),
        ("<b>a cat.</b>", "un chat.", "<b>un chat.</b>"),
        ("a <b>cat</b>", "un chat.", "un <b>chat</b>."),
    ):
        taken = take_out(line)
        assert put_back(translation, taken, same_order(2)) == expected


def test_nothing_is_lost_whatever_the_line_and_the_alignment() -> None:
    """Every character of 10,000 random lines is either in a mark or in a word, and every mark comes back once."""
    choose = random.Random(1)
    for _ in range(10_000):
        line = "".join(choose.choice(FRAGMENTS) for _ in range(choose.randrange(1, 14)))
        taken = take_out(line, with_numbers=choose.random() < 0.5)
        n = choose.randrange(6)
        alignment = np.array([[choose.random() for _ in taken.words] for _ in range(n)]).reshape(n, len(taken.words))
        back = put_back(" ".join(["χ"] * n), taken, Alignment([alignment]))

        marks = Counter("".join("".join(mark.text for mark in taken.marks).split()))
        assert Counter("".join(line.split())) == marks + Counter("".join(taken.words)), line
        assert Counter("".join(back.split())) == marks + Counter("χ" * n), line
        places = [back.replace("χ", " ").find(mark.text) for mark in taken.marks]
        assert min(places, default=0) >= 0, line
        opened = [mark.text for mark in taken.marks if mark.partner >= 0]
        assert len(opened) % 2 == 0, line


@pytest.mark.parametrize(
    "fragment",
    [
        *(
            "<",
            "a",
            "{",
            "*",
            "[",
            "<b>",
            "</b>",
            "<!--",
            "`",
            "[a",
            "[a](b",
            "http://",
            "a.b@",
            "1,",
            "A1-",
            "😀",
            "%(",
        ),
        *("&a", "a_", "x**y ", ".", "$", "-", "<a b", "1", "[[a](b)", "<b>.", "a.[a](b)"),
    ],
)
def test_a_long_line_takes_time_in_proportion(fragment: str) -> None:
    """A megabyte takes about a second; with a quadratic step, it would take an hour."""
    short, long = (take_out_seconds(fragment * (size // len(fragment))) for size in (50_000, 200_000))
    assert long < 12 * short + 0.5


def take_out_seconds(line: str) -> float:
    start = time.process_time()
    taken = take_out(line, with_numbers=True)
    put_back("x y", taken, Alignment([np.ones((2, len(taken.words)))]))
    return time.process_time() - start
