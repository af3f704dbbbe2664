"""The time budget of --minutes: how many steps fit into it on this machine."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tapis.config import ConfigError
from tapis.doubts import CONFIDENCE_SAMPLE
from tapis.system.terminal import progress_bar, say
from training.own_translations import rounds
from training.records import StepRecord
from training.state import snapshot
from training.trainer import Training

UNTIMED_STEPS = 2  # steps before those that are timed
TIMING_SECONDS = 4.0  # for all of these steps
PLANNING_STEPS = 30  # timed ones, by which a run is planned
MOST_DISTILLING = 0.25  # of the time of a run, for the translations of self-distillation
DISTILLING_COST = 3.0  # of a pair, relative to scoring it: beam search instead of greedy search, and no loss
JUDGING_COST = 1.0  # of a pair in a round of --drop-unrelated: two losses, where validation has one and a translation

TakeStep = Callable[[Training, int], StepRecord]


def seconds_per_step(training: Training, take_step: TakeStep, steps: int = 10) -> float:
    """Return the mean time of so many steps, spread over an epoch, after two to warm up.

    Slow steps are fewer: those that TIMING_SECONDS have room for, or one. They change the weights, but not the
    position. Where steps are captured, each is taken three times and only the last one counts: the first two of a shape
    prepare its graph, which few steps of a run do. For a GPU, the time of a step is that of its batches if they take
    longer: in a run, they are made while it computes the step before.
    """
    times = 3 if training.captured else 1
    chosen = np.linspace(1, training.batch_plan.steps_per_epoch, steps + 2).astype(int) + training.batch_plan.after_step
    start = time.perf_counter()
    seconds = []
    with progress_bar("timing", len(chosen), "step", leave=False) as bar:
        for step in chosen.tolist():
            for _ in range(times):
                making = training.batch_plan.make_ahead(step)
                record = take_step(training, step)
            seconds.append(max(record.seconds, making))
            bar.update()
            if training.group.broadcast(len(seconds) > UNTIMED_STEPS and time.perf_counter() - start > TIMING_SECONDS):
                break
    return float(np.mean(seconds[UNTIMED_STEPS:]))


def pairs_of_distilling(training: Training) -> float:
    """Return how many validation pairs take as long as the translations of self-distillation."""
    return DISTILLING_COST * float((~training.is_monolingual).sum())


def pairs_of_single_tasks(training: Training) -> float:
    """Return how many validation pairs take as long as the rounds to come, and the translations at the end."""
    # At the end, the main process alone learns what the model is unsure of, and scores the test part.
    n_at_end = min(CONFIDENCE_SAMPLE, len(training.corpus.valid)) + len(training.corpus.test)
    n_alone = n_at_end * training.group.size
    return n_alone + pairs_of_rounds(training)


def pairs_of_rounds(training: Training) -> float:
    """Return how many validation pairs take as long as the rounds to come."""
    costs = {
        "dropping": JUDGING_COST * float((~training.is_monolingual).sum()),
        "back-translation": float(training.is_monolingual.sum()),
        "distillation": 0.0 if training.teachers else len(training.config.teacher) * pairs_of_distilling(training),
        "self-distillation": pairs_of_distilling(training),
    }
    return sum(costs[one.kind] for one in rounds(training.config)[training.translated.n_rounds :])


def seconds_per_scored_pair(training: Training, per_step: float) -> float:
    """Return the seconds that a pair took in the last validation or, before the first, takes in training."""
    return training.seconds_per_scored_pair or per_step * training.steps_per_epoch / training.pairs_per_epoch


class TimeBudget:
    """A wall-clock limit. It settles the number of steps at half-time: as many again as were made until then."""

    def __init__(self, minutes: float, start: float | None = None) -> None:
        """Start now, or at a time of `time.perf_counter`. 0 minutes are no budget: the steps are settled already."""
        start = time.perf_counter() if start is None else start
        self.deadline = start + 60 * minutes if minutes else math.inf
        self.seconds_once = 0.0  # that the first half has taken and the second will not, such as translating

    @property
    def is_open(self) -> bool:
        """Whether the number of steps is not settled yet."""
        return self.deadline < math.inf

    @property
    def remaining(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(0.0, self.deadline - time.perf_counter())

    def first_part(self, share: float) -> "TimeBudget":
        """Return a budget of the first part of the remaining time."""
        part = TimeBudget(0)
        part.deadline = time.perf_counter() + share * self.remaining
        return part

    def plan(self, training: Training, take_step: TakeStep) -> None:
        """Plan as many steps as are estimated to fit, of a run that has not begun, and leave it as it was.

        But for self-distillation: it is left out if it took too much of the time. Raises ConfigError if the
        translations of other runs, before the first step, leave no time for steps.
        """
        begin_again = snapshot(training)
        per_step = training.group.broadcast(seconds_per_step(training, take_step, PLANNING_STEPS))
        begin_again()
        if training.config.self_distillation and not training.config.teacher:
            self._bound_distilling(training, per_step)
        if training.config.teacher or training.config.back_translator:
            self._check_other_runs(training, per_step)
        steps = training.group.broadcast(self.estimated_steps(training, per_step))
        training.plan_steps(steps, min(training.resolved.warmup_steps, steps // 20))

    def _bound_distilling(self, training: Training, per_step: float) -> None:
        """Leave self-distillation out, and say so, if its translations took too much of the remaining time."""
        seconds = seconds_per_scored_pair(training, per_step) * pairs_of_distilling(training)
        if training.group.broadcast(seconds > MOST_DISTILLING * self.remaining):
            training.config = replace(training.config, self_distillation=0.0)
            say(
                f"note      no self-distillation: its translations would take {seconds / 60:,.0f} of the "
                f"{self.remaining / 60:,.0f} minutes"
            )

    def _check_other_runs(self, training: Training, per_step: float) -> None:
        """Raise ConfigError if the rounds would take all of the time, as far as this model's speed can tell."""
        seconds = seconds_per_scored_pair(training, per_step) * pairs_of_rounds(training)
        if training.group.broadcast(seconds > self.remaining):
            raise ConfigError(
                f"--minutes is too short: the translations of other runs would take about {seconds / 60:,.0f} of the "
                f"{self.remaining / 60:,.0f} minutes that are left"
            )

    def estimated_steps(self, training: Training, per_step: float) -> int:
        """Return how many steps of so many seconds fit, beside the validations and the test part."""
        per_pair = seconds_per_scored_pair(training, per_step)
        for_steps = self.remaining - per_pair * pairs_of_single_tasks(training)
        valid_every = training.config.valid_every or training.steps_per_epoch
        return max(1, int(for_steps / (per_step + per_pair * len(training.valid_pairs) / valid_every)))

    def half_is_over(self, training: Training, recent: Sequence[StepRecord]) -> bool:
        """Return whether as many steps as were made so far, and the last scoring, take until the deadline.

        recent are the latest steps. A pause of the process hardly changes their median.
        """
        if not self.is_open:
            return False
        per_step = statistics.median(record.seconds for record in recent[-100:])
        per_pair = seconds_per_scored_pair(training, per_step)
        last_scoring = per_pair * (len(training.valid_pairs) + pairs_of_single_tasks(training))
        return time.perf_counter() + training.seconds - self.seconds_once + last_scoring >= self.deadline

    def settle(self, training: Training) -> None:
        """Plan as many steps again as were made, for good: half of the time is over."""
        training.plan_steps(2 * training.step, training.resolved.warmup_steps)
        self.deadline = math.inf

    def extend(self, training: Training) -> None:
        """Plan so many steps that the next one still belongs to their first half.

        What begins at half of the steps, such as translating, then begins when half of the time is over.
        """
        training.plan_steps(2 * training.step + 2, training.resolved.warmup_steps)

    def is_ahead_of_plan(self, training: Training) -> bool:
        """Return whether the next step is beyond half of the plan before half of the time is: the plan must grow."""
        return self.is_open and 2 * training.step + 2 > training.total_steps
