"""--minutes: how many steps are planned, and that the end comes in time. Patience too."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from checkpoint import RunFolder
from config import Config
from fast.capture import CapturedSteps
from machine.distributed import Group
from model import Transformer
from pairs.corpus import Corpus
from pairs.selection import Selection, split_off
from tapis.config import ConfigError
from tapis.text.tokenizer import Tokenizer
from train import loop, take_step
from training.agenda import COMPILED_AFTER, Agenda
from training.budget import DISTILLING_COST, TimeBudget, pairs_of_single_tasks, seconds_per_step
from training.failures import advice_if_over
from training.optimizers import learning_rate
from training.own_translations import Translated
from training.records import RoundReport, StepRecord, Validation
from training.state import restore, state_of
from training.tensorboard import Logs
from training.trainer import Training
from training.unrelated import Unrelated


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_the_plan_counts_scoring_and_distilling(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    training = Training(replace(tiny, self_distillation=share), small, tokenizer)
    monkeypatch.setattr("time.perf_counter", lambda: 100.0)
    per_pair = 0.25 * training.steps_per_epoch / len(training.train_pairs)
    steps = TimeBudget(minutes=15).estimated_steps(training, 0.25)
    validations = steps / training.steps_per_epoch
    single_tasks = len(small.test) + (DISTILLING_COST * len(small.train) if share else 0)
    planned = steps * 0.25 + per_pair * (validations * len(training.valid_pairs) + single_tasks)
    assert planned == pytest.approx(900, rel=0.01)
    assert TimeBudget(minutes=0.001).estimated_steps(training, 0.25) == 1


def test_a_large_corpus_leaves_most_of_the_time_for_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no parts of its own: those that are split off are scored in the time of a run, too."""
    monkeypatch.setattr(Selection, "column", lambda rows, name: rows.rows / 5_000_000)
    monkeypatch.setattr(Selection, "longest_sides", lambda rows: np.zeros(len(rows), dtype=int))
    parts = split_off(Config(), {"train": Selection(cast(Any, None), np.arange(5_000_000))}, 5_000)
    per_step, pairs_of_step = 0.8, 90
    training = SimpleNamespace(
        corpus=SimpleNamespace(**parts),
        valid_pairs=parts["valid"],
        pairs_per_epoch=len(parts["train"]),
        steps_per_epoch=len(parts["train"]) // pairs_of_step,
        seconds_per_scored_pair=0.0,
        is_monolingual=np.zeros(0, dtype=bool),
        config=Config(),
        group=Group(),
        teachers=[],
        translated=Translated(),
    )
    monkeypatch.setattr("time.perf_counter", lambda: 300.0)  # spent on reading the data
    steps = TimeBudget(minutes=30, start=0.0).estimated_steps(cast(Training, training), per_step)
    assert steps * per_step > (30 * 60 - 300) / 2


@pytest.mark.parametrize("minutes", [2, 2000])
def test_distilling_for_most_of_the_time_is_left_out(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str], minutes: float
) -> None:
    """The time is then for steps; a run with enough of it distils."""
    training = Training(replace(tiny, self_distillation=0.1), small, tokenizer)
    budget = TimeBudget(minutes)
    budget.plan(training, lambda training, step: replace(take_step(training, step), seconds=2.0))
    is_left_out = training.config.self_distillation == 0
    assert is_left_out == (minutes == 2) == ("no self-distillation: its translations would" in capsys.readouterr().err)
    assert training.total_steps == budget.estimated_steps(training, 2.0)
    assert training.total_steps * 2.0 > 0.5 * 60 * minutes


def test_teachers_need_time(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    """Where their translations take all of it, no run of a single step is begun."""
    training = Training(replace(tiny, teacher=("one", "two")), small, tokenizer)

    def take(training: Training, step: int) -> StepRecord:
        return replace(take_step(training, step), seconds=2.0)

    with pytest.raises(ConfigError, match="--minutes is too short: the translations of other runs would take about"):
        TimeBudget(minutes=0.02).plan(training, take)
    TimeBudget(minutes=2000).plan(training, take)
    assert training.total_steps > 1000


def test_slow_steps_are_timed_for_a_few_seconds(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(tiny, small, tokenizer)
    record = take_step(training, 1)
    for seconds, expected in ((0.01, 32), (1.0, 5), (60.0, 3)):
        taken: list[int] = []
        monkeypatch.setattr("time.perf_counter", lambda seconds=seconds, taken=taken: seconds * len(taken))

        def step(_: Training, number: int, seconds: float = seconds, taken: list[int] = taken) -> StepRecord:
            taken.append(number)
            return replace(record, seconds=seconds)

        assert seconds_per_step(training, step, steps=30) == pytest.approx(seconds) and len(taken) == expected


@pytest.mark.parametrize(("batch", "step", "expected"), [(0.02, 0.0, 0.02), (0.0, 0.02, 0.02), (0.02, 0.02, 0.02)])
def test_the_batches_of_timed_steps_are_made_meanwhile_as_in_a_run(
    tiny: Config,
    small: Corpus,
    tokenizer: Tokenizer,
    batch: float,
    step: float,
    expected: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    training = Training(tiny, small, tokenizer)
    record, plan = take_step(training, 1), training.batch_plan
    make_batches = plan.make_batches

    def make_slowly(number: int) -> Any:
        time.sleep(batch)
        return make_batches(number)

    def take_slowly(_: Training, number: int) -> StepRecord:
        start = time.perf_counter()
        plan.batches_of(number)
        training.prepare_after(number)  # by which those of this step are forgotten
        time.sleep(step)
        return replace(record, seconds=time.perf_counter() - start)

    monkeypatch.setattr(plan, "make_batches", make_slowly)
    with ThreadPoolExecutor(1) as plan.worker:
        assert expected <= seconds_per_step(training, take_slowly, steps=3) < 1.7 * expected


def test_steps_that_prepare_graphs_are_not_timed(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first two of a shape. A run reports the remaining time when most of its shapes have come."""
    training = Training(tiny, small, tokenizer)
    record = take_step(training, 1)
    training.captured = cast(CapturedSteps, object())
    taken: Counter[int] = Counter()

    def step(_: Training, number: int) -> StepRecord:
        taken[number] += 1
        return replace(record, seconds=0.01 if taken[number] > 2 else 1.0)

    assert seconds_per_step(training, step, steps=3) == pytest.approx(0.01) and set(taken.values()) == {3}

    training.plan_steps(1000, 0)
    agenda = Agenda(training, [], TimeBudget(0))
    recent: list[StepRecord] = []
    for training.step in range(1, 101):
        recent.append(replace(record, seconds=1.0 if training.step < 40 else 0.6))
        agenda.after_step(recent)
    assert "about 9.4 minutes left" in capsys.readouterr().err


def test_planning_leaves_a_run_as_it_was(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    """Though it takes steps to see how long they are."""
    for optimizer in ("adam", "muon"):
        config = replace(tiny, optimizer=optimizer, warmup_steps=1000)
        planned = Training(config, small, tokenizer)
        TimeBudget(minutes=1).plan(planned, lambda training, step: replace(take_step(training, step), seconds=0.25))
        total = planned.total_steps
        assert planned.resolved.warmup_steps == total // 20 and planned.step == 0
        anew = Training(config, small, tokenizer)
        anew.plan_steps(total, total // 20)
        for training in (planned, anew):
            for step in (1, 2, 3):
                take_step(training, step)
        state, expected = state_of(planned), state_of(anew)
        assert all(torch.equal(state["model"][name], weight) for name, weight in expected["model"].items())
        assert str(state["optimizers"]) == str(expected["optimizers"])
        assert state["resume_signature"] == expected["resume_signature"]
        assert state["resolved"] == expected["resolved"]


def test_the_test_part_costs_one_process_the_time_of_all(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    training = Training(tiny, small, tokenizer)
    training.group = Group(size=4)
    assert pairs_of_single_tasks(training) == 4 * (len(small.valid) + len(small.test))


@pytest.fixture
def constant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every validation says the same."""

    def validate(training: Training, model: Transformer) -> tuple[Validation, list[str]]:
        hypotheses = [target for _, target in training.valid_texts]
        return Validation(training.step, 1.0, 1.0, 10.0, 0.0), hypotheses

    monkeypatch.setattr("train.validate", validate)


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[StepRecord]:
    """The steps that a run makes, by a clock that they alone move on, a second each."""
    records: list[StepRecord] = []
    monkeypatch.setattr("time.perf_counter", lambda: float(len(records)))

    def second(training: Training, step: int) -> StepRecord:
        records.append(replace(take_step(training, step), seconds=1.0))
        return records[-1]

    monkeypatch.setattr("train.take_step", second)
    return records


@pytest.mark.usefixtures("constant")
@pytest.mark.parametrize("seconds_per_scored_pair", [0.0, 0.1])
def test_the_end_comes_in_time_whatever_was_planned(
    tiny: Config,
    small: Corpus,
    tokenizer: Tokenizer,
    run_folder: RunFolder,
    records: list[StepRecord],
    seconds_per_scored_pair: float,
) -> None:
    """Time is left for the last scoring, known or estimated."""
    for planned in (4, 90, 1000):
        records.clear()
        config = replace(tiny, steps=planned, warmup_steps=planned // 20, valid_every=30)
        training = Training(config, small, tokenizer)
        training.seconds_per_scored_pair = seconds_per_scored_pair
        loop(training, run_folder, Logs(None, training.progress, 10), [], TimeBudget(minutes=1))
        per_pair = seconds_per_scored_pair or training.steps_per_epoch / len(training.train_pairs)
        assert len(records) + per_pair * (2 * len(small.valid) + len(small.test)) == pytest.approx(60, abs=2)
        assert len(records) == training.total_steps == run_folder.load_state()["resolved"]["steps"] != planned
        if planned > 10 * 60:  # its warm-up was longer than a tenth of the steps that were made
            continue
        assert [r.lr for r in records] == [learning_rate(r.step, len(records), planned // 20, config) for r in records]


@pytest.mark.usefixtures("records", "constant")
@pytest.mark.parametrize("planned", [4, 90])
def test_what_begins_at_half_of_the_steps_begins_at_half_of_the_time(
    tiny: Config,
    small: Corpus,
    tokenizer: Tokenizer,
    run_folder: RunFolder,
    planned: int,
) -> None:
    """Whether more steps fit than were planned, or fewer."""
    config = replace(tiny, steps=planned, warmup_steps=1, valid_every=100, self_distillation=0.5)
    training = Training(config, small, tokenizer)
    training.seconds_per_scored_pair = 0.001
    translated_after: list[int] = []
    make_rounds = training.make_rounds

    def translate_and_note() -> list[RoundReport | Unrelated]:
        translated_after.append(training.step)
        return make_rounds()

    training.make_rounds = translate_and_note  # type: ignore[method-assign]
    loop(training, run_folder, Logs(None, training.progress, 10), [], TimeBudget(minutes=1))
    assert translated_after == [training.total_steps // 2] and training.total_steps == pytest.approx(60, abs=4)


@pytest.mark.usefixtures("constant")
def test_what_a_run_does_once_does_not_shorten_its_second_half(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, run_folder: RunFolder, records: list[StepRecord]
) -> None:
    """A round of twenty seconds, after some steps, leaves room for forty steps in a minute, not for twenty."""
    config = replace(tiny, steps=40, warmup_steps=1, valid_every=100, drop_unrelated=True)
    training = Training(config, small, tokenizer)
    training.seconds_per_scored_pair = 0.001
    make_rounds = training.make_rounds

    def rounds_of_twenty_seconds() -> list[RoundReport | Unrelated]:
        records.extend(records[:1] * 20)
        return make_rounds()

    training.make_rounds = rounds_of_twenty_seconds  # type: ignore[method-assign]
    loop(training, run_folder, Logs(None, training.progress, 10), [], TimeBudget(minutes=1))
    assert training.total_steps == pytest.approx(40, abs=4)


def test_compiling_does_not_shorten_the_second_half(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Training, "may_compile", True)
    training = Training(replace(tiny, steps=10**6), small, tokenizer)
    monkeypatch.setattr(training, "compile", lambda: None)  # torch compiles in the step that follows
    record = replace(take_step(training, 1), seconds=0.1)
    budget = TimeBudget(minutes=600)
    agenda = Agenda(training, [], budget)
    for training.step in range(1, COMPILED_AFTER + 4):
        agenda.after_step([replace(record, seconds=44.0 if training.step == COMPILED_AFTER + 1 else 0.1)])
    assert budget.seconds_once == 44.0


def test_a_pause_is_not_taken_for_a_slow_machine(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third of the time is gone, nearly all of it in one step. By the others, distilling takes a tenth of it."""
    monkeypatch.setattr("time.perf_counter", lambda: 0.0)
    training = Training(replace(tiny, self_distillation=0.1), small, tokenizer)
    record = take_step(training, 1)
    training.step, training.seconds = 20, 300.0
    pairs = len(small.valid) + pairs_of_single_tasks(training)
    per_step = 90 / pairs * training.pairs_per_epoch / training.steps_per_epoch
    recent = [replace(record, seconds=per_step) for _ in range(20)]
    recent[7] = replace(record, seconds=300.0)
    budget = TimeBudget(minutes=15)
    monkeypatch.setattr("time.perf_counter", lambda: 300.0)
    assert not budget.half_is_over(training, recent)
    assert budget.half_is_over(training, [replace(record, seconds=15.0)] * 20)


@pytest.mark.usefixtures("constant")
def test_patience_ends_a_run_that_gets_no_better(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, run_folder: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    training = Training(replace(tiny, steps=50, valid_every=2, patience=5), small, tokenizer)
    loop(training, run_folder, Logs(None, training.progress, 10), [])
    assert (training.step, training.validations_since_best, training.is_over) == (12, 5, True)
    assert training.best and training.best.step == 2
    assert advice_if_over(training) == ": --patience 5 ended it; raise it, or set it to 0, to continue"
    shown = capfd.readouterr().err
    assert "none of the last 5 validations was better than that of step 2" in shown and "--patience" in shown

    again = Training(replace(tiny, steps=50, valid_every=2, patience=7), small, tokenizer)
    restore(again, run_folder.load_state())
    loop(again, run_folder, Logs(None, again.progress, 10), [])
    assert (again.step, again.validations_since_best) == (16, 7)
