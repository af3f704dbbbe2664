"""Lines on standard error: warnings with their usual causes."""

import math

from pairs.report_lines import shortened
from training.records import Validation
from training.terminal import epochs_line, warnings

NOW, BEST = Validation(90, 4.0, 50.0, 1.0, 5.0), Validation(40, 3.0, 20.0, 2.0, 6.0)


def test_no_warning_while_validations_improve() -> None:
    assert warnings(NOW, BEST, 3.9, ["a", "b"], validations_since_best=0) == []
    assert warnings(NOW, BEST, 3.9, ["a", "b"], validations_since_best=4) == []


def test_equal_translations_are_warned_of() -> None:
    assert "all 2 translations" in warnings(NOW, BEST, 3.9, ["a", "a"], validations_since_best=1)[0]
    assert warnings(NOW, BEST, 3.9, ["a"], validations_since_best=1) == []


def test_a_training_that_gets_no_better_is_told_the_usual_cause() -> None:
    assert "--dropout" in warnings(NOW, BEST, 2.0, ["a", "b"], validations_since_best=5)[0]
    assert "--lr" in warnings(NOW, BEST, 3.9, ["a", "b"], validations_since_best=10)[0]
    cannot_tell = warnings(NOW, BEST, math.nan, ["a", "b"], validations_since_best=5)[0]
    assert "training loss" not in cannot_tell and "more data" in cannot_tell


def test_long_examples_are_shortened() -> None:
    assert shortened("a" * 48) == "a" * 48
    assert shortened("a" * 49) == "a" * 47 + "…"


def test_epochs_are_shown_in_full_where_a_run_ends_within_one() -> None:
    assert [epochs_line(1, 12), epochs_line(10.25, 12)] == ["epoch 1/12", "epoch 10.2/12"]
    assert epochs_line(1, 96 / 70) == "epoch 1.00 of 1.37"
