"""Several processes as one training: the same weights as one, resuming with more or fewer, and one that dies."""

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from conftest import ROOT, Command
from test_train import small_run

from config import Config, ConfigError
from system.distributed import ALONE, Group
from train import dealt_out


def together(n: int, *args: str) -> "subprocess.Popen[str]":
    """A command of ours in so many processes."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n)]
    return subprocess.Popen(
        [*torchrun, str(ROOT / args[0]), *args[1:]], stderr=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    )


def test_alone_nothing_is_said() -> None:
    assert Group.join() == ALONE and ALONE.leads
    assert ALONE.sums(1, 2.5) == [1.0, 2.5]
    assert ALONE.gathered(["a", "b"]) == ["a", "b"]
    assert ALONE.agreed("a") == "a"


def test_two_processes_train_as_one(called: Command, few: Path) -> None:
    """With dropout, and with an odd number of batches in an epoch, of which the last is one process's alone."""
    shape = ["--epochs", "2", "--subword-dropout", "0.1", "--precision", "fp32", "--batch-tokens", "512"]
    with together(2, *small_run(few, *shape, "--name", "two")) as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, ""), err
    assert called(*small_run(few, *shape, "--accumulate", "2", "--name", "one")).returncode == 0
    assert err.count("test      BLEU") == 1 and err.count("epoch 1/2 ") == 1, "one speaks for both"
    configs = [json.loads(Path(f"weights/{name}/config.json").read_text(encoding="utf-8")) for name in ("one", "two")]
    assert configs[0]["accumulate"] == configs[1]["accumulate"] == 2
    states = [torch.load(f"weights/{name}/training/state.pt", weights_only=True) for name in ("one", "two")]
    assert states[0]["step"] == states[1]["step"] >= 10
    for name, weight in states[0]["model"].items():
        torch.testing.assert_close(states[1]["model"][name], weight, rtol=1e-3, atol=1e-4)
    metrics = [json.loads(Path(f"weights/{name}/metrics.json").read_text(encoding="utf-8")) for name in ("one", "two")]
    assert metrics[0]["last"] == pytest.approx(metrics[1]["last"], rel=1e-3)
    assert metrics[0]["batches"]["in an epoch"] % 2, "no last step of one batch: choose other sizes"


def test_one_that_dies_ends_the_training_and_what_was_saved_goes_on(called: Command, few: Path) -> None:
    args = small_run(few, "--epochs", "5000", "--valid-every", "10", "--name", "killed")
    with together(2, *args) as process:
        state = Path("weights/killed/training/state.pt")
        until = time.monotonic() + 60
        while not state.exists() and time.monotonic() < until:
            time.sleep(0.05)
        psutil.Process(process.pid).children()[-1].kill()
        _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "another process of this training has ended" in err and "--resume --name killed" in err
    assert called("translate.py", "The cat.").returncode == 0
    alone = called("train.py", "--resume", "--name", "killed", "--epochs", "1")
    assert alone.returncode == 0, alone.stderr


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0)])
def test_one_process_speaks_of_an_error(rank: str, lines: int, command: Command) -> None:
    done = command("train.py", "demoo", LOCAL_RANK=rank)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == lines


def test_more_processes_than_batches_cannot_resume(tiny: Config) -> None:
    with pytest.raises(ConfigError, match="too few for 2 processes\nresume it with at most 1"):
        dealt_out(tiny, True, Group(size=2))
    assert dealt_out(tiny, False, Group(size=2)).accumulate == 2
