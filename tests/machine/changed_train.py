"""Runs train.py with one thing changed, for tests of several processes.

changed_train.py CHANGE …        CHANGE is a function of this file; the rest are arguments of train.py
"""

import atexit
import os
import sys
import time
import warnings
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from checkpoint import RunFolder
from config import Config
from machine.distributed import Group, run_worker
from pairs.corpus import Corpus
from tapis.system.cli import run_command
from training.records import StepRecord
from training.trainer import Training

train: Any = import_module("train")  # its names are replaced, which a type checker does not allow for a module
RANK = int(os.environ["RANK"])


def clocks() -> None:
    """By the clock of the second process, a save is due at every step. Saves are printed."""
    clock = time.perf_counter
    if RANK == 1:
        time.perf_counter = lambda: 1e6 * clock()

    def print_save(self: RunFolder, state: dict[str, Any]) -> None:
        print("saved at step", state["step"])

    RunFolder.save_state = print_save  # type: ignore[method-assign]


def compiled() -> None:
    """The parts of the model are compiled, by a backend that runs captured graphs as they are."""
    warnings.filterwarnings("ignore", "The .grad attribute")  # of torch's own
    warnings.filterwarnings("ignore", ".*should not be instantiated")

    class Compiled(Training):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.compile("eager")

    train.Training = Compiled


def kept() -> None:
    """In the second step, asserts that of the blocks' weights nothing is kept for the backward pass."""
    take_step = train.take_step

    def observed_step(training: Training, step: int) -> StepRecord:
        blocks = [*training.model.encoder.blocks, *training.model.decoder.blocks]
        shapes = {tuple(weight.shape) for block in blocks for weight in block.parameters() if weight.dim() == 2}
        storages: dict[int, torch.UntypedStorage] = {}

        def note(x: torch.Tensor) -> torch.Tensor:
            if tuple(x.shape) in shapes or tuple(x.shape[::-1]) in shapes:
                storages[x.untyped_storage()._cdata] = x.untyped_storage()
            return x

        forward = training.objective.forward

        def observed_forward(batch: Any) -> Any:
            with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
                result = forward(batch)
            assert len(storages) >= 2 * len(blocks), "matrices of each block are read in the backward pass"
            assert not any(storage.nbytes() for storage in storages.values())
            return result

        if step == 2:
            training.objective.forward = observed_forward
        record = take_step(training, step)
        training.objective.forward = forward
        return record

    train.take_step = observed_step


def slow_start() -> None:
    """Preparing the data takes two seconds more. Files say that it has begun, and that training has."""
    read_corpus, take_step = train.read_corpus, train.take_step

    def slow_read(config: Config, **options: Any) -> Corpus:
        Path("preparing").touch()
        time.sleep(2)
        return read_corpus(config, **options)

    def noted_step(training: Training, step: int) -> StepRecord:
        Path("training").touch()
        return take_step(training, step)

    train.read_corpus, train.take_step = slow_read, noted_step


def failing() -> None:
    """The second process fails. To leave the group or to finalize would take forever, as with NCCL."""
    atexit.register(time.sleep, 1000)

    def never(self: Group) -> None:
        time.sleep(1000)

    def fail(training: Training, step: int) -> StepRecord:
        raise OSError("the disk is full")

    Group.leave = never  # type: ignore[method-assign]
    if RANK == 1:
        train.take_step = fail


if __name__ == "__main__":
    change = sys.argv.pop(1)
    globals()[change]()
    run_worker(partial(run_command, train.main))
