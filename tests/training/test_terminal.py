"""Lines on standard error: warnings with their usual causes."""

import math

from pairs.report import DataReport, RuleReport
from pairs.report_lines import example_lines, unreadable_lines
from training.records import Validation
from training.terminal import epochs_line, warnings

NOW, BEST = Validation(90, 4.0, 50.0, 1.0, 5.0), Validation(40, 3.0, 20.0, 2.0, 6.0)


def test_no_warning_while_validations_improve() -> None:
    assert warnings(NOW, BEST, 3.9, ["a", "b"], validations_since_best=0) == []
    assert warnings(NOW, BEST, 3.9, ["a", "b"], validations_since_best=4) == []


def test_equal_translations_are_warned_of() -> None:
    assert "all 2 translations" in warnings(NOW, BEST, 3.9, ["a", "a"], validations_since_best=1)[0]
    assert warnings(NOW, BEST, 3.9, ["a"], validations_since_best=1) == []


def test_a_run_that_gets_no_better_is_told_the_usual_cause() -> None:
    assert "--dropout" in warnings(NOW, BEST, 2.0, ["a", "b"], validations_since_best=5)[0]
    assert "--lr" in warnings(NOW, BEST, 3.9, ["a", "b"], validations_since_best=10)[0]
    cannot_tell = warnings(NOW, BEST, math.nan, ["a", "b"], validations_since_best=5)[0]
    assert "training loss" not in cannot_tell and "more data" in cannot_tell


def test_each_example_has_one_line_with_the_starts_of_its_texts() -> None:
    assert example_lines([("a" * 48, "b\nc"), ("a" * 49, "")]) == [f"{'':19}{'a' * 48} | b c", f"{'':19}{'a' * 47}… | "]


def test_the_problem_of_an_unreadable_row_is_shown_in_full_on_its_line() -> None:
    problem = "3 columns, expected 2 (en and fr)\nchoose with --columns 1 2"
    data = DataReport(read=100, unreadable=RuleReport(1, [("d.tsv line 2", problem)]))
    _, example = unreadable_lines(data)
    assert example.strip() == "d.tsv line 2 | 3 columns, expected 2 (en and fr) choose with --columns 1 2"


def test_epochs_are_shown_in_full_where_a_run_ends_within_one() -> None:
    assert [epochs_line(1, 12), epochs_line(10.25, 12)] == ["epoch 1/12", "epoch 10.2/12"]
    assert epochs_line(1, 96 / 70) == "epoch 1.00 of 1.37"
