"""Shared by the benchmarks: synthetic pairs, contenders that take turns, timed commands, rates, profiles.

The machines that these benchmarks run on are noisy, so the contenders take turns. Each turn gives one figure. One turn
of every contender makes a round. The tables show medians over the rounds. A ratio is the median of the ratios within
each round.
"""

import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import datasets
import torch
from torch.profiler import ProfilerActivity, profile

from config import Config
from machine.devices import slow_precision
from pairs.cleaning import RULES
from tapis.config import DeviceName, TranslatingPrecision, name_of_pair
from tapis.engine.engine import variants

ROOT = Path(__file__).parent.parent

K = TypeVar("K")


# Synthetic pairs


def random_words(n: int, draw: Random) -> list[str]:
    """Return n different made-up words of one to four syllables."""
    made: dict[str, None] = {}  # a dict, since a set has no order
    while len(made) < n:
        syllables = (draw.choice("bcdfglmnprstvz") + draw.choice("aeiou") for _ in range(draw.randint(1, 4)))
        made["".join(syllables)] = None
    return list(made)


def write_pairs(path: Path, n: int, mean_length: int = 13, n_words: int = 12_000) -> None:
    """Write a .tsv file of n synthetic sentence pairs, one a line.

    Words are drawn from n_words by Zipf's law. By default, sentences are as long as captions, and the lengths of the
    two sides differ by about a tenth, as in translations. The two sides are unrelated, so that there is nothing to
    learn.
    """
    draw = Random(1)
    vocabulary = random_words(n_words, draw)
    weights = [1 / (rank + 3) for rank in range(len(vocabulary))]
    words = iter(draw.choices(vocabulary, weights, k=n * mean_length * 4))

    def sentence(length: float) -> str:
        return " ".join(next(words) for _ in range(max(1, round(length)))) + "."

    with path.open("w", encoding="utf-8") as file:
        for _ in range(n):
            length = min(max(draw.gauss(mean_length, mean_length / 3), 2), 2 * mean_length)
            file.write(f"{sentence(length)}\t{sentence(length * draw.gauss(1, 0.1))}\n")


@contextmanager
def own_cache(folder: Path) -> Iterator[None]:
    """While entered, a folder is the cache of prepared data."""
    setting_before = datasets.config.HF_DATASETS_CACHE
    variable_before = os.environ.get("HF_DATASETS_CACHE")
    try:
        # The setting is for this process, the variable for the processes that it starts.
        datasets.config.HF_DATASETS_CACHE = folder
        os.environ["HF_DATASETS_CACHE"] = str(folder)
        yield
    finally:
        datasets.config.HF_DATASETS_CACHE = setting_before
        os.environ.pop("HF_DATASETS_CACHE", None)
        if variable_before is not None:
            os.environ["HF_DATASETS_CACHE"] = variable_before


@contextmanager
def synthetic(n: int, mean_length: int = 13, n_words: int = 12_000) -> Iterator[str]:
    """While entered, a file of n synthetic pairs in a temporary folder, which also holds the cache of prepared data.

    The other arguments are those of `write_pairs`.
    """
    with tempfile.TemporaryDirectory() as folder, own_cache(Path(folder) / "cache"):
        write_pairs(Path(folder) / "pairs.tsv", n, mean_length, n_words)
        yield f"{folder}/pairs.tsv"


# Options


@dataclass(frozen=True)
class Workload:
    """The data and the model sizes, which are the same for all contenders."""

    data: str = ""
    """Data as for train.py; by default synthetic pairs"""
    source: str = "en"
    """Language to translate from"""
    target: str = "fr"
    """Language to translate into"""
    d_model: int = 256
    """Width of the model; the feed-forward layers are four times as wide inside"""
    n_layers: int = 3
    """Encoder layers, and as many decoder layers"""
    vocab_size: int = 8000
    """Maximum size of the vocabulary"""
    device: DeviceName = "auto"
    """Device to compute on"""

    @contextmanager
    def config(self, n_pairs: int) -> Iterator[Config]:
        """While entered, the config of this workload. Without --data it names a file of n_pairs synthetic pairs."""
        with synthetic(n_pairs) if not self.data else nullcontext(self.data) as data:
            yield replace(
                Config(),
                data=(data,),
                pairs=(name_of_pair(self.source, self.target),),
                skip_rules=() if self.data else tuple(RULES),
                d_model=self.d_model,
                d_ff=4 * self.d_model,
                n_encoder_layers=self.n_layers,
                n_decoder_layers=self.n_layers,
                vocab_size=self.vocab_size,
                device=self.device,
            )

    def model_label(self, vocab_size: int) -> str:
        """Describe the model by its sizes, with the vocabulary size that the data led to."""
        return f"d_model {self.d_model}, {self.n_layers}+{self.n_layers} layers, vocabulary {vocab_size:,}"


# Contenders


class Contender:
    """A function in a process of its own, so that contenders share no memory, threads or settings.

    The process calls `build` once, which prepares the work and returns the function.
    """

    def __init__(self, build: Callable[[], Callable[..., Any]]) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.connection, child_connection = spawn.Pipe()
        spawn.Process(target=_serve, args=(child_connection, build), daemon=True).start()
        child_connection.close()  # so that a call raises EOFError if the process dies

    def __call__(self, *args: Any) -> tuple[float, Any]:
        """Call the function there. Returns the seconds that it took, and its result."""
        self.connection.send(args)
        answer: tuple[float, Any] = self.connection.recv()
        return answer


class LocalContender:
    """The same in this process: on a GPU, whose work hardly depends on the process, it starts sooner."""

    def __init__(self, build: Callable[[], Callable[..., Any]]) -> None:
        self.work = build()

    def __call__(self, *args: Any) -> tuple[float, Any]:
        """Call the function. Returns the seconds that it took, and its result."""
        start = time.perf_counter()
        result = self.work(*args)
        return time.perf_counter() - start, result


def _serve(connection: Connection, build: Callable[[], Callable[..., Any]]) -> None:
    """Answer the calls of a `Contender` in its process, until the benchmark ends."""
    work = build()
    while True:
        try:
            args = connection.recv()
        except EOFError:  # the benchmark has ended
            return
        start = time.perf_counter()
        result = work(*args)
        connection.send((time.perf_counter() - start, result))


def alternate(turns: Mapping[K, Callable[[], float]], rounds: int) -> dict[K, list[float]]:
    """Let the contenders take turns for some rounds. Returns the figures of each contender, one for each round."""
    figures: dict[K, list[float]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name, turn in turns.items():
            figures[name].append(turn())
    return figures


def alternate_while_working(turns: dict[K, Callable[[], float]], rounds: int) -> dict[K, list[float]]:
    """Alternate, and remove contenders that fail from turns and from the figures."""
    figures: dict[K, list[float]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name, turn in list(turns.items()):
            try:
                figures[name].append(turn())
            except Exception as error:  # of memory, of any library
                print_failure(str(name), error)
                del turns[name], figures[name]
    return figures


def print_failure(name: str, error: Exception) -> None:
    """Print that a contender failed, and its traceback to stderr."""
    traceback.print_exception(error)
    print(f"    {name}: FAILED: {type(error).__name__}: {str(error)[:200]}", flush=True)


def ratio(figures: list[float], other_figures: list[float]) -> float:
    """Return the median over the rounds of figure / other figure."""
    return statistics.median(a / b for a, b in zip(figures, other_figures, strict=True))


# Measurements


def cpu_precisions() -> list[TranslatingPrecision]:
    """Return the precisions to measure translating in on this CPU: all but those that it has no instructions for."""
    precisions: list[TranslatingPrecision] = ["fp32"]
    if not slow_precision("bf16", torch.device("cpu")):
        precisions.append("bf16")
    if variants():
        precisions.append("int8")
    return precisions


def command_seconds(*command: str) -> float:
    """Run a command of the project, given as arguments of Python. Returns the seconds from its start to its end."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - start


def seconds_until(text: str, *command: str) -> float:
    """Return the seconds until a command of the project has printed a line on standard error with a text, and end it.

    Nothing is prepared: the cache of prepared data is empty. Raises ValueError if no line has the text.
    """
    with tempfile.TemporaryDirectory() as cache:
        start = time.perf_counter()
        line = [sys.executable, *command]
        environment = {**os.environ, "HF_DATASETS_CACHE": cache}
        with subprocess.Popen(line, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr
            for printed in process.stderr:
                if text in printed:
                    seconds = time.perf_counter() - start
                    process.kill()
                    return seconds
    raise ValueError(f"no line has {text!r}: {' '.join(command)}")


def command_cost(*command: str) -> tuple[float, float]:
    """Run a command of the project. Returns its seconds, and how many megabytes it had resident at most, on Linux.

    A small process starts it: what starts a process counts for it. What it says of an error is shown.
    """
    script = """
import resource, subprocess, sys, time
start = time.perf_counter()
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
if done.returncode:
    sys.exit(done.stderr.decode())
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6)"""
    starter = [sys.executable, "-c", script, sys.executable, *command]
    printed = subprocess.run(starter, check=True, stdout=subprocess.PIPE, text=True).stdout
    seconds, megabytes = map(float, printed.split())
    return seconds, megabytes


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# On a GPU: the rows of the matrices that are multiplied, and the bytes that are copied. A CPU takes less.
GPU_MATMUL, GPU_COPY = 8192, 2**30


def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Return the FLOP/s of a product of two square matrices: the best of ten, as what the hardware can do now."""
    size = GPU_MATMUL if device.type == "cuda" else 1536
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    a @ b  # warm up
    best = float("inf")
    for _ in range(10):
        synchronize(device)
        start = time.perf_counter()
        a @ b
        synchronize(device)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def copy_rate(device: torch.device) -> float:
    """Return the bytes a second, read and written, of a copy within the device's memory: the best of ten."""
    size = GPU_COPY if device.type == "cuda" else 2**26
    a, b = (torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(2))
    best = float("inf")
    for _ in range(10):
        synchronize(device)
        start = time.perf_counter()
        b.copy_(a)
        synchronize(device)
        best = min(best, time.perf_counter() - start)
    return 2 * size / best


# Profiles


@dataclass(frozen=True)
class Use:
    """How often something happened, and the seconds that it took itself."""

    calls: float
    seconds: float


@dataclass(frozen=True)
class Profile:
    """What the GPU and the host did in a piece of work, by name. Without a GPU, `kernels` is empty."""

    kernels: dict[str, Use]
    """With copies and fills of memory"""
    host: dict[str, Use]
    """Operations of torch, and calls of CUDA"""
    trace: profile

    @property
    def n_kernels(self) -> float:
        return sum(use.calls for use in self.kernels.values())

    @property
    def kernel_seconds(self) -> float:
        return sum(use.seconds for use in self.kernels.values())

    @property
    def launches(self) -> float:
        """How often the host started kernels; a captured graph of them counts once."""
        return self._calls("LaunchKernel", "GraphLaunch")

    @property
    def waits(self) -> float:
        """How often the host waited for a stream or for an event."""
        return self._calls("StreamSynchronize", "EventSynchronize")

    def _calls(self, *parts: str) -> float:
        """Return how often the host called what has one of these parts in its name."""
        return sum(use.calls for name, use in self.host.items() if any(part in name for part in parts))


def longest_uses(uses: Mapping[str, Use], n: int) -> list[tuple[str, Use]]:
    """Return the n that took the most time, by name."""
    return sorted(uses.items(), key=lambda item: -item[1].seconds)[:n]


# What marks parts of a step, and is in the profile of a GPU beside the kernels
ANNOTATIONS = ("##", "Optimizer.", "Torch-Compiled", "CompiledFunction", "ProfilerStep")


def profile_of(work: Callable[[], object], device: torch.device, times: int) -> Profile:
    """Profile a piece of work. The numbers are means of several times."""
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    synchronize(device)
    with profile(activities=activities) as trace:
        for _ in range(times):
            work()
        synchronize(device)

    kernels, host = {}, {}
    for entry in trace.key_averages():
        is_on_gpu = str(getattr(entry, "device_type", "")).endswith("CUDA")
        is_annotation = getattr(entry, "is_user_annotation", False) or entry.key.startswith(ANNOTATIONS)
        if is_on_gpu and not is_annotation:
            microseconds = float(getattr(entry, "self_device_time_total", 0))
            kernels[entry.key] = Use(entry.count / times, microseconds / times / 1e6)
        elif not is_on_gpu:
            host[entry.key] = Use(entry.count / times, entry.self_cpu_time_total / times / 1e6)
    return Profile(kernels, host, trace)
