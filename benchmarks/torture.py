"""Kills a run again and again, resumes it each time, and compares its end with that of an undisturbed training.

    python benchmarks/torture.py                   fifty kills (SIGKILL), about ten minutes on two CPU cores
    python benchmarks/torture.py --kills 5
    python benchmarks/torture.py --kills 10 --processes 2       one of two processes is killed, and the other must end

The run is killed at random moments: one kill in five comes while it still prepares its data, the others during its
steps, when it saves its state all the time. After each kill, every file that exists under its own name must load. In
the end, weights, optimizer, position and scores must equal those of the undisturbed run bit for bit. The
undisturbed training is always one process. With --processes 2, every process has one thread, because the number of
threads changes the order of sums.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import psutil  # noqa: E402
import torch  # noqa: E402
import tyro  # noqa: E402
from measure import random_words  # noqa: E402
from tqdm import tqdm  # noqa: E402

from checkpoint import RunFolder  # noqa: E402
from machine.devices import device_label  # noqa: E402

CPU = torch.device("cpu")
PAIRS = 400
STEPS_PER_KILL = 60  # of the whole run: about as many as a process makes before it is killed
SMALL_MODEL = ["--vocab-size", "300", "--d-model", "16", "--n-heads", "2", "--d-ff", "32", "--batch-tokens", "256"]


@dataclass(frozen=True)
class Options:
    """Kill a run at random moments, and check what is left."""

    kills: int = 50
    """Number of kills"""
    processes: int = 1
    """Processes of the run that is killed, 1 or 2; of two, one is killed, either of them"""
    seed: int = 1
    """Random seed of the moments"""


# The runs


def write_pairs(path: Path, draw: Random) -> None:
    """Write a .tsv file of random pairs. They are short, so that pictures of their attention take no time."""
    vocabulary = random_words(100, draw)
    sides = [" ".join(draw.choices(vocabulary, k=3)) for _ in range(2 * PAIRS)]
    pairs = zip(sides[0::2], sides[1::2], strict=True)
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")


@contextmanager
def training(folder: Path, threads: dict[str, str], processes: int, *args: str) -> Iterator["subprocess.Popen[str]"]:
    """While entered, train.py runs in that folder. threads are environment variables."""
    python = [sys.executable, "-W", "error"]
    if processes > 1:
        python = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    with subprocess.Popen(
        [*python, str(ROOT / "train.py"), *args],
        cwd=folder,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, **threads, "HF_DATASETS_CACHE": str(folder / "cache")},
    ) as process:
        yield process


def wait_for_steps(process: "subprocess.Popen[str]") -> None:
    """Read what a run prints until its steps begin, or until it ends."""
    assert process.stderr
    for line in process.stderr:
        if line.startswith("logs"):
            return


def kill(process: "subprocess.Popen[str]", processes: int, draw: Random) -> float:
    """Kill a run, or one process of it. Returns the seconds that the others went on."""
    workers = psutil.Process(process.pid).children()
    start = time.perf_counter()
    if processes == 1 or not workers:
        process.kill()
    else:
        with suppress(psutil.NoSuchProcess):
            draw.choice(workers).kill()
    process.communicate(timeout=60)
    return time.perf_counter() - start


# What they leave


def check_files(folder: RunFolder) -> str:
    """Load every file of a run that exists. Returns how far the run is. Raises an error if a file is damaged."""
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


def final_result(folder: RunFolder) -> dict[str, Any]:
    """Return everything that must not depend on kills, by its kind."""
    state = {name: value for name, value in folder.load_state().items() if name not in ("seconds", "resume_signature")}
    metrics = folder.load_metrics()
    scores = {name: metrics[name] for name in ("best", "last", "test", "data", "batches", "parameters")}
    files = [file.read_bytes() for file in (folder.model_file, folder.tokenizer_file)]
    return {"state": state, "metrics": scores, "model and tokenizer": files}


def is_equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal bit for bit. Compares the tensors in dicts, lists and tuples too."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_equal(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(is_equal, one, other))
    return bool(one == other)


# The benchmark


@dataclass
class Outcome:
    """What the kills did to a run."""

    lives: Counter[str]
    """How many processes were killed, by how far the run was then (`check_files`)"""
    half_written: int
    """How many of them left a file half-written, under a temporary name"""
    step: int
    """The last step that was saved before the last kill"""
    longest_end: float
    """The seconds that a run went on, at most, after the kill of one of its processes"""
    same: dict[str, bool]
    """Which parts of the final result equal those of the undisturbed run"""


def torture(folder: Path, kills: int, seed: int, processes: int = 1) -> Outcome:
    """Train in an empty folder, undisturbed and then killed. Raises an error if a kill leaves a damaged file."""
    draw = Random(seed)
    undisturbed, killed = (RunFolder(folder / "weights" / name) for name in ("undisturbed", "killed"))
    write_pairs(folder / "pairs.tsv", draw)
    data = ["demo", "--data", "pairs.tsv", "--valid-share", "0.05", "--test-share", "0.05"]
    steps = ["--steps", str(STEPS_PER_KILL * kills), "--valid-every", "40", "--save-minutes", "0"]
    args = [*data, *SMALL_MODEL, *steps, "--device", "cpu", "--precision", "fp32"]
    args += ["--accumulate", str(processes)]
    threads = {"OMP_NUM_THREADS": "1"} if processes > 1 else {}

    # Train undisturbed, and take the time.
    start = time.perf_counter()
    with training(folder, threads, 1, *args, "--name", "undisturbed") as process:
        wait_for_steps(process)
        preparation_seconds = time.perf_counter() - start
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    step_seconds = time.perf_counter() - start - preparation_seconds

    # Train, kill and resume. With at most this much time for each life, the last kill comes before the end.
    seconds_per_life = 2 * step_seconds / kills
    first_time, again = [*args, "--name", "killed", "--overwrite"], ["--resume", "--name", "killed"]
    lives, half_written, step, longest_end = Counter[str](), 0, 0, 0.0
    for _ in tqdm(range(kills), desc="killing", disable=None):
        with training(folder, threads, processes, *(again if killed.state_file.exists() else first_time)) as process:
            if draw.random() < 0.2:
                time.sleep(draw.random() * preparation_seconds)
            else:
                wait_for_steps(process)
                time.sleep(draw.random() * seconds_per_life)
            has_ended = process.poll() is not None
            if has_ended:
                _, errors = process.communicate()
                assert process.returncode == 0, errors
                break
            longest_end = max(longest_end, kill(process, processes, draw))
        lives[check_files(killed)] += 1
        step = killed.load_state()["step"] if killed.state_file.exists() else 0
        half_written += any(path.name.startswith(".") for path in killed.path.rglob("*"))

    # Let it end, and compare.
    with training(folder, threads, processes, *(again if killed.state_file.exists() else first_time)) as process:
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    expected, result = final_result(undisturbed), final_result(killed)
    same = {name: is_equal(expected[name], result[name]) for name in expected}
    return Outcome(lives, half_written, step, longest_end, same)


def main() -> None:
    options = tyro.cli(Options)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        outcome = torture(Path(folder), options.kills, options.seed, options.processes)
    seconds = time.perf_counter() - start
    print(f"{device_label(CPU)}, processes: {options.processes}, torch {torch.__version__}; {seconds:,.0f} s")
    print(f"killed {outcome.lives.total()} times; every file could be loaded after each kill")
    for progress, n in outcome.lives.most_common():
        print(f"    {n:3}  {progress}")
    print(f"    {outcome.half_written:3}  of them with a file half-written, under a temporary name")
    if options.processes > 1:
        print(f"the other process ended within {outcome.longest_end:.1f} s of a kill")
    print(f"last kill after step {outcome.step:,} of {STEPS_PER_KILL * options.kills:,}")
    for part, is_same in outcome.same.items():
        print(f"{part}: {'the same as undisturbed, bit for bit' if is_same else 'NOT THE SAME as undisturbed'}")
    sys.exit(not all(outcome.same.values()))


if __name__ == "__main__":
    main()
