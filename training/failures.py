"""The end of a run in words: what ended it, and what to type next."""

import shlex

from checkpoint import RunFolder
from config import Config
from machine.devices import choose_device, peak_gigabytes
from machine.distributed import Group
from tapis.config import Precision, TapisError
from tapis.release import WEIGHTS
from tapis.system.cli import is_out_of_memory
from training.trainer import Training
from training.two_runs import awaited_teacher


class TrainingError(TapisError):
    """The run cannot go on, and what to do about it."""


class StoppedError(TapisError):
    """The user, or the system, ended the run; it can be resumed."""

    exit_code = 130


class BrokenOffError(TapisError):
    """Something outside of the run ended it: the disk, the memory, another of its processes."""

    printed_by_every_process = True


def not_finite(step: int, epoch: int, batch: int, precision: Precision) -> TrainingError:
    """Return the error of a step whose loss or gradient is not finite; epoch and batch are counted from 1."""
    other_precision = "" if precision == "fp32" else ", or --precision fp32"
    return TrainingError(
        f"the loss or gradient of step {step:,} (epoch {epoch}, batch {batch}) is "
        "not finite; the weights are left as they were\n"
        f"try a lower --lr, a longer --warmup-steps{other_precision}"
    )


def resume_command(name: str, group: Group) -> str:
    """Return what to type to resume the run of that name."""
    command = "python" if group.size == 1 else "torchrun …"
    return f"resume with: {command} train.py --resume --name {shlex.quote(name)}"


def advice_if_over(training: Training) -> str:
    """Return how to continue a finished run; empty if it is not finished."""
    if not training.is_over:
        return ""
    if training.step < training.total_steps:
        return f": --patience {training.config.patience} ended it; raise it, or set it to 0, to continue"
    return f": this run is complete; extend it with {'--steps' if training.config.steps else '--epochs or --steps'}"


def advice_after(error: Exception, folder: RunFolder, resumed_as: str, group: Group) -> str:
    """Return how to continue after an error from outside, on lines of its own; empty if nothing of the run is saved."""
    if not folder.state_file.is_file():
        teacher = awaited_teacher(folder) if folder.config_file.is_file() else ""
        if not teacher or not RunFolder(WEIGHTS / teacher).model_file.is_file():
            return ""
        if is_out_of_memory(error):
            return f"\nits teacher stays: name it, with --teacher {shlex.quote(teacher)} and another --name"
        return f"\nits teacher stays; {resume_command(resumed_as, group)}"
    if not is_out_of_memory(error):
        return f"\nthe last checkpoint stays; {resume_command(resumed_as, group)}"
    if not folder.model_file.is_file():
        return "\nthe last checkpoint stays, and can be resumed with more memory"
    return (  # the batches of a run to resume cannot be smaller
        "\nthe last checkpoint stays, and can be resumed with more memory; a new run can start from its best weights:\n"
        f"python train.py --init-from {shlex.quote(folder.path.name)} --name OTHER --batch-tokens N"
    )


def cause_of(error: Exception, config: Config, group: Group) -> str:
    """Return what ended a run from outside, in words; empty if it was something else."""
    if isinstance(error, OSError):
        return "" if isinstance(error, BrokenPipeError) else str(error)
    if is_out_of_memory(error):
        peak = peak_gigabytes(choose_device(config.device))
        smaller = max(config.max_length + 1, config.batch_tokens // 2)
        flags = f"--batch-tokens {smaller} --accumulate {2 * config.accumulate}"
        if smaller >= config.batch_tokens:
            flags = "a lower --max-length"
        return f"out of memory (peak {peak:.1f} GB): start a new run with {flags}"
    if group.size > 1 and any(name in str(error) for name in ("gloo", "NCCL")):  # they raise plain RuntimeErrors
        return "another process of this run has ended"
    return ""
