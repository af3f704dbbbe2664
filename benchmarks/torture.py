"""Kills a training again and again, goes on with it, and compares its end with that of one that nothing disturbed.

    python benchmarks/torture.py                   fifty kills (SIGKILL), about ten minutes on two CPU cores
    python benchmarks/torture.py --kills 5

Each life of the training ends at a random moment: one in five while it still reads and prepares, the others in the
steps that follow, in which the state is saved all the time. After each, every file that is there under its own name
must be whole. At the end, weights, optimizer, position and scores must equal the undisturbed run's bit for bit.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch  # noqa: E402
import tyro  # noqa: E402
from measure import words  # noqa: E402
from tqdm import tqdm  # noqa: E402

from checkpoint import RunFolder  # noqa: E402
from system.devices import device_label  # noqa: E402

CPU = torch.device("cpu")
PAIRS = 400
STEPS_A_KILL = 60  # about as many as a life has
SMALL = ["--vocab-size", "300", "--d-model", "16", "--n-heads", "2", "--d-ff", "32", "--batch-tokens", "256"]


@dataclass(frozen=True)
class Options:
    """Kill a training at random moments, and see what is left."""

    kills: int = 50
    seed: int = 1


@contextmanager
def training(folder: Path, *args: str) -> Iterator["subprocess.Popen[str]"]:
    """train.py in that folder, on the CPU."""
    with subprocess.Popen(
        [sys.executable, "-W", "error", str(ROOT / "train.py"), *args],
        cwd=folder,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "HF_DATASETS_CACHE": str(folder / "cache")},
    ) as process:
        yield process


def wait_for_steps(process: "subprocess.Popen[str]") -> str:
    """Reads what a training says until its steps begin, or its end."""
    assert process.stderr
    said = ""
    for line in process.stderr:
        said += line
        if line.startswith("logs"):
            break
    return said


def whole(folder: RunFolder) -> str:
    """Loads every file that is there, which raises where one is damaged; says how far the run is."""
    if folder.metrics_file.exists():
        json.loads(folder.metrics_file.read_text(encoding="utf-8"))
    if not folder.config_file.exists():
        return "nothing written"
    folder.load_config()
    if not folder.tokenizer_file.exists():
        return "config.json written"
    if folder.model_file.exists():
        folder.load_model(CPU)
    if not folder.state_file.exists():
        return "begun, no state saved"
    folder.load_state()
    return "state saved"


def end(folder: RunFolder) -> dict[str, Any]:
    """All that must be the same in the end, whatever came between."""
    state = {name: value for name, value in folder.load_state().items() if name not in ("seconds", "resume_signature")}
    metrics = folder.load_metrics()
    scores = {name: metrics[name] for name in ("best", "last", "test", "data", "batches", "parameters")}
    files = [file.read_bytes() for file in (folder.model_file, folder.tokenizer_file)]
    return {"state": state, "metrics": scores, "model and tokenizer": files}


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal to the bit, tensors in dicts and lists among them."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@dataclass
class Outcome:
    """What became of a training that was killed so often."""

    lives: Counter[str]
    """How many ended in which state of the run's folder"""
    halves: int
    """How many ended while a file was written, which lies there under a temporary name"""
    step: int
    """The last that was saved before the last kill"""
    same: dict[str, bool]
    """Which parts of the end are those of the undisturbed run, to the bit"""


def torture(folder: Path, kills: int, seed: int) -> Outcome:
    """Trains in an empty folder, undisturbed and then killed. Raises where a kill leaves a damaged file."""
    draw = Random(seed)
    runs = {name: RunFolder(folder / "weights" / name) for name in ("undisturbed", "killed")}
    known = words(100, draw)
    sides = (" ".join(draw.choices(known, k=3)) for _ in range(2 * PAIRS))  # short: pictures of them take no time
    (folder / "pairs.tsv").write_text("".join(f"{side}\t{next(sides)}\n" for side in sides), encoding="utf-8")
    shares = ["--valid-share", "0.05", "--test-share", "0.05"]
    steps = ["--steps", str(STEPS_A_KILL * kills), "--valid-every", "40", "--save-minutes", "0"]
    args = ["demo", "--data", "pairs.tsv", *SMALL, *shares, *steps, "--device", "cpu", "--precision", "fp32"]
    began = time.perf_counter()
    with training(folder, *args, "--name", "undisturbed") as process:
        wait_for_steps(process)
        start = time.perf_counter() - began
        _, said = process.communicate()
    assert process.returncode == 0, said
    life = 2 * (time.perf_counter() - began - start) / kills  # at most, so that the last kill comes before the end
    run, lives, halves, step = runs["killed"], Counter[str](), 0, 0
    begin, go_on = [*args, "--name", "killed", "--overwrite"], ["--resume", "--name", "killed"]
    for _ in tqdm(range(kills), desc="killing", disable=None):
        with training(folder, *(go_on if run.state_file.exists() else begin)) as process:
            if draw.random() < 0.2:
                time.sleep(draw.random() * start)
            else:
                wait_for_steps(process)
                time.sleep(draw.random() * life)
            ended = process.poll() is not None
            process.kill()
            _, said = process.communicate()
        if ended:
            assert process.returncode == 0, said
            break
        lives[whole(run)] += 1
        step = run.load_state()["step"] if run.state_file.exists() else 0
        halves += any(path.name.startswith(".") for path in run.path.rglob("*"))
    with training(folder, *(go_on if run.state_file.exists() else begin)) as process:
        _, said = process.communicate()
    assert process.returncode == 0, said
    one, other = map(end, runs.values())
    return Outcome(lives, halves, step, {name: same(one[name], other[name]) for name in one})


def main() -> None:
    options = tyro.cli(Options)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = torture(Path(folder), options.kills, options.seed)
    print(f"{device_label(CPU)}, torch {torch.__version__}; {time.perf_counter() - began:,.0f} s")
    print(f"killed {found.lives.total()} times; every file loaded after each")
    for state, n in found.lives.most_common():
        print(f"    {n:3}  {state}")
    print(f"    {found.halves:3}  of them with a file half-written, under a temporary name")
    print(f"the last one after step {found.step:,} of {STEPS_A_KILL * options.kills:,}")
    for part, is_same in found.same.items():
        print(f"{part}: {'the same as undisturbed, to the bit' if is_same else 'NOT THE SAME as undisturbed'}")
    sys.exit(not all(found.same.values()))


if __name__ == "__main__":
    main()
