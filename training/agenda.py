"""What is due after each step: a validation, a save, the end. The loop of train.py asks, and does it."""

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from machine.devices import CoreWatch
from tapis.system.terminal import say
from training.budget import UNTIMED_STEPS, TimeBudget
from training.records import StepRecord
from training.trainer import Training
from training.two_runs import name_of_teacher

TIMED_STEPS = 10  # of which the first estimate of the remaining time is made, after UNTIMED_STEPS
CAPTURING_STEPS = 50  # instead of these where steps are captured: many of these prepare a graph
# torch's compiler takes about a minute, and then saves a third of a step's time or more. After so many steps, a run
# that still takes so many minutes is compiled.
COMPILED_AFTER, COMPILED_FROM = 200, 5


class Due(NamedTuple):
    """What is due after a step. It is the same in all processes."""

    validate: bool
    save: bool
    stop: bool
    """Someone interrupts the run"""


class Agenda:
    """Keeps the time of a run: its settings, its budget, the signals and the clock say what is due."""

    def __init__(self, training: Training, signals: Sequence[int], budget: TimeBudget) -> None:
        """signals are those received so far; more are added. The clock goes on from training.seconds."""
        self.training = training
        self.signals = signals
        self.budget = budget
        self.valid_every = training.config.valid_every or training.steps_per_epoch
        self.began = time.perf_counter() - training.seconds  # when it would have begun without interruptions
        self.saved = time.perf_counter()
        self.first_step = training.step + 1
        self.cores = CoreWatch()
        self.is_compiling = False  # in the next step

    def count_time(self) -> None:
        """Set training.seconds to the time that the run has taken."""
        self.training.seconds = time.perf_counter() - self.began

    @contextmanager
    def once(self) -> Iterator[None]:
        """Count the time of the block as what the second half of a run will not take again."""
        start = time.perf_counter()
        yield
        self.budget.seconds_once += time.perf_counter() - start

    def save_soon(self) -> None:
        """Make a save due after the next step, as when much was done since the last one."""
        self.saved = -math.inf

    def note_save(self) -> None:
        """Count the time to the next save from now."""
        self.saved = time.perf_counter()

    def after_step(self, recent: Sequence[StepRecord]) -> Due:
        """Keep time and budget after a step, and return what is due now.

        recent are the steps since the last validation. This may change the number of steps, and compile the model. It
        prints how long the run will take, and what slows it down.
        """
        training = self.training
        self.count_time()
        if self.is_compiling:
            self.budget.seconds_once += recent[-1].seconds  # the second half will not compile again
            self.is_compiling = False

        n_made = training.step - self.first_step + 1  # since the run was begun or resumed
        n_untimed = CAPTURING_STEPS if training.captured else UNTIMED_STEPS
        is_timed = n_made == n_untimed + TIMED_STEPS
        if is_timed:
            minutes = minutes_of_steps(training, recent)
            # A run with a teacher of its own would begin with that one.
            is_alone = training.config.teacher != (name_of_teacher(training.config.name),)
            may_begin_again = self.first_step == 1 and is_alone and not self.budget.is_open
            say(time_line(minutes, may_begin_again=may_begin_again))

        # All processes must agree.
        may_compile = n_made == COMPILED_AFTER and training.may_compile
        is_long = may_compile and minutes_of_steps(training, recent) >= COMPILED_FROM
        is_half_over = self.budget.half_is_over(training, recent)
        is_save_due = time.perf_counter() - self.saved >= 60 * training.config.save_minutes
        must_stop, is_half_over, is_save_due, must_compile = map(
            bool, training.group.all_sums(len(self.signals), is_half_over, is_save_due, is_long)
        )
        if must_compile:
            training.compile()
            self.is_compiling = True
            say(f"compiling from step {training.step + 1:,} on")
        self.keep_to_budget(is_half_over)

        must_validate = training.step % self.valid_every == 0 or training.step == training.total_steps
        is_watched = training.device.type == "cpu" and (must_validate or is_timed)
        if is_watched and self.cores.became_crowded():
            say("busy      other programs compete for the cores: training is slower than alone")
        must_save = must_validate or is_save_due or must_stop or training.is_round_due
        return Due(must_validate, must_save, must_stop)

    def keep_to_budget(self, is_half_over: bool) -> None:
        """Settle the number of steps once half of the time is over. Before, plan more where the steps go faster."""
        training = self.training
        if is_half_over:
            self.budget.settle(training)
            say(f"time      half of it is over: {training.total_steps:,} steps in all")
        elif self.budget.is_ahead_of_plan(training):
            self.budget.extend(training)


def minutes_of_steps(training: Training, recent: Sequence[StepRecord]) -> float:
    """Return how long the steps to come take, by the last ten."""
    per_step = statistics.median(record.seconds for record in recent[-TIMED_STEPS:])
    return per_step * (training.total_steps - training.step) / 60


def time_line(minutes: float, may_begin_again: bool) -> str:
    """Return the line that reports the remaining time. From an hour on, it suggests --minutes if that is possible."""
    how_long = f"{minutes:.1f} minutes" if minutes < 100 else f"{minutes / 60:.1f} hours"
    line = f"time      about {how_long} left, plus validations"
    if minutes >= 60 and may_begin_again:
        line += "\n          for less, begin again with --overwrite and --minutes N"
    return line
