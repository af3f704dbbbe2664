"""What reaches TensorBoard, and when."""

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from report import Logs, StepLog, Validation, perplexity, tokens_per_second, warnings


def log(step: int, loss: float = 20.0, seconds: float = 1.0) -> StepLog:
    return StepLog(step, loss, plain=10.0, grad_norm=1.0, lr=0.1, n_tgt=10, n_tokens=100, seconds=seconds)


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_the_first_step_and_every_tenth(tmp_path: Path) -> None:
    logs = Logs(tmp_path, 0, 10)
    window = []
    for step in range(1, 26):
        window.append(log(step, loss=10.0 * step))
        logs.steps(window, 0.1)
    logs.close()
    losses = scalars(tmp_path, "train/loss")
    assert [step for step, _ in losses] == [1, 10, 20]
    assert [value for _, value in losses] == pytest.approx([1.0, 5.5, 15.5])
    assert scalars(tmp_path, "train/perplexity")[0][1] == pytest.approx(2.71828, rel=1e-4)


def test_what_a_killed_life_logged_too_much_is_hidden(tmp_path: Path) -> None:
    first = Logs(tmp_path, 0, 1)
    for step in (1, 2, 3):
        first.steps([log(step, loss=99.0)], 0.1)
    first.close()
    second = Logs(tmp_path, 1, 1)
    second.steps([log(2, loss=10.0)], 0.1)
    second.close()
    assert [value for _, value in scalars(tmp_path, "train/loss")] == pytest.approx([9.9, 1.0])


def test_a_table_survives_its_cells(tmp_path: Path) -> None:
    logs = Logs(tmp_path, 0, 10)
    logs.validation(Validation(5, 1.0, 2.0, 30.0, 40.0), [("a|b", "c", "d")] * 20)
    logs.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    rows = events.Tensors("valid/samples/text_summary")[0].tensor_proto.string_val[0].decode().splitlines()
    assert rows[2] == r"| a\|b | c | d |" and len(rows) == 2 + 8
    assert scalars(tmp_path, "valid/bleu") == [(5, 30.0)]


def test_numbers() -> None:
    assert perplexity(0.0, 5) == 1.0
    assert perplexity(1e9, 1) < float("inf")
    assert tokens_per_second([log(1, seconds=1.0), log(2, seconds=1.0), log(3, seconds=50.0)]) == 100.0


def test_what_is_wrong_is_said_with_its_usual_causes() -> None:
    now, best = Validation(90, 4.0, 50.0, 1.0, 5.0), Validation(40, 3.0, 20.0, 2.0, 6.0)
    assert warnings(now, best, 3.9, ["a", "b"], stale=0) == []
    assert warnings(now, best, 3.9, ["a", "b"], stale=4) == []
    assert "all 2 translations" in warnings(now, best, 3.9, ["a", "a"], stale=1)[0]
    assert "--dropout" in warnings(now, best, 2.0, ["a", "b"], stale=5)[0]
    assert "--lr" in warnings(now, best, 3.9, ["a", "b"], stale=10)[0]
