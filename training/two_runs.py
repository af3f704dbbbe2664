"""Two runs in the time of one: with --minutes and time to spare, a run first trains a teacher of its own size.

A model learns little from more epochs than its config has. A second one that begins anew, and learns what the first one
says of each token, learns more (Furlanello et al. 2018, arXiv 1805.04770; docs/lab/recipe.md). The first is an ordinary
run, NAME-teacher. The folder of the second, NAME, is written before the first begins, so that --resume knows of both.
"""

import contextlib
import math
from dataclasses import replace
from typing import NamedTuple

from checkpoint import RunFolder
from config import FACTS, Config
from tapis.release import WEIGHTS, CheckpointError
from training.budget import TimeBudget
from training.trainer import Training

LEAST_OF_STUDENT = 1.0  # epochs of a student, as a multiple of those of the config
TEACHER_SHARE = 0.4  # of the time, at most
STUDENT_DROPOUT = 0.5  # as a multiple of that of the config
# Duration of a step with a teacher of the same size, where that of a step without is 1. Steps with teachers are not
# captured as CUDA graphs, without which the kernels of a small model wait for their launch.
STUDENT_STEP, STUDENT_STEP_UNCAPTURED = 1.4, 10.0


class TwoRuns(NamedTuple):
    """A run, and its teacher before it."""

    teacher: Config
    student: Config
    share: float
    """Of the time that is left, for the teacher"""

    def line(self, budget: TimeBudget) -> str:
        """Return the line that reports them."""
        minutes = self.share * budget.remaining / 60
        return f"runs      two: {self.teacher.name} for {minutes:,.1f} minutes, then {self.student.name}, its student"


def two_runs(training: Training, budget: TimeBudget) -> TwoRuns | None:
    """Return the two runs in place of a planned one; None if the time is too short, or if the options exclude it.

    A run that may not learn from its own translations does not learn from a teacher that nobody named either. Nor does
    a run of several processes: not all of them need to see the folder of a teacher.
    """
    config = training.config
    if not budget.is_open or not config.self_distillation or training.group.size > 1:
        return None
    if config.teacher or config.init_from or config.monolingual:
        return None
    epochs = training.total_steps / training.steps_per_epoch  # of one run in all of the time
    share = min(TEACHER_SHARE, config.epochs / epochs)
    of_student = (1 - share) * epochs / (STUDENT_STEP_UNCAPTURED if training.captured else STUDENT_STEP)
    if of_student < LEAST_OF_STUDENT * config.epochs:
        return None
    teacher = replace(config, name=name_of_teacher(config.name), self_distillation=0.0)
    student = replace(
        config,
        teacher=(teacher.name,),
        dropout=config.dropout * STUDENT_DROPOUT,
        least_bleu=0.0,  # a teacher of 24 BLEU taught more than it knew, too (docs/lab/recipe.md)
        # Used if --resume begins the run; otherwise, the time decides.
        epochs=min(int(FACTS["epochs"].range[1]), math.ceil(of_student)),
    )
    return TwoRuns(teacher, student, share)


def name_of_teacher(name: str) -> str:
    """Return the name of the run that teaches the run of a name."""
    return f"{name}-teacher"


def fault_of_name(runs: TwoRuns, folder: RunFolder, *, may_replace: bool) -> str:
    """Return why the teacher of the run in folder cannot have its name; "" if it can.

    may_replace: whether both runs may take the place of earlier ones. A run that was no teacher of this one stays. One
    that ended before its first checkpoint has nothing to lose.
    """
    of_teacher = RunFolder(WEIGHTS / runs.teacher.name)
    if not has_begun(of_teacher):
        return ""
    with contextlib.suppress(CheckpointError):
        if may_replace and folder.load_config().teacher == (runs.teacher.name,):
            return ""
    return (
        f"{of_teacher.path} already contains a run, and the time is enough for a teacher of that name\n"
        "choose another --name, or train without a teacher: --self-distillation 0"
    )


def start_folders(runs: TwoRuns, training: Training, folder: RunFolder) -> None:
    """Write the folder of the student, which waits for its teacher then, and that of the teacher."""
    of_teacher = RunFolder(WEIGHTS / runs.teacher.name)
    with of_teacher.held():
        for one, config in ((of_teacher, runs.teacher), (folder, runs.student)):
            one.start(config, training.tokenizer)
            one.sign(config)


def awaited_teacher(folder: RunFolder) -> str:
    """Return the name of the teacher that a run waits for, as it has not begun; "" if it waits for none."""
    name = name_of_teacher(folder.path.name)
    return name if not has_begun(folder) and folder.load_config().teacher == (name,) else ""


def has_begun(folder: RunFolder) -> bool:
    """Return whether a folder has weights or a checkpoint."""
    return folder.state_file.exists() or folder.model_file.exists()
