"""What the benchmarks share: synthetic pairs, contenders timed in alternation, the rate of matrix products.

The machines that these run on are noisy. So contenders take turns within one run, every turn gives one figure, and
what is printed is the median over the turns; a ratio is the median of the ratios within each turn.
"""

import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import datasets
import torch

from config import PRESETS, Config, DeviceName
from text.cleaning import RULES

ROOT = Path(__file__).parent.parent


def words(n: int, draw: Random) -> list[str]:
    """So many made-up words, of one to four syllables."""
    made: dict[str, None] = {}
    while len(made) < n:
        syllables = (draw.choice("bcdfglmnprstvz") + draw.choice("aeiou") for _ in range(draw.randint(1, 4)))
        made["".join(syllables)] = None
    return list(made)


def write_pairs(path: Path, n: int) -> None:
    """Writes n pairs of sentences, a pair to a line, as a table; their words are drawn by Zipf's law.

    Sentences are as long as captions, 13 words more or less, and a target as long as its source give or take a tenth,
    as translations are; nothing can be learned from them.
    """
    draw, length = Random(1), 13
    vocabulary = words(12_000, draw)
    weights = [1 / (rank + 3) for rank in range(len(vocabulary))]
    stream = iter(draw.choices(vocabulary, weights, k=n * length * 4))

    def sentence(size: float) -> str:
        return " ".join(next(stream) for _ in range(max(1, round(size)))) + "."

    with path.open("w", encoding="utf-8") as file:
        for _ in range(n):
            size = min(max(draw.gauss(length, length / 3), 2), 2 * length)
            file.write(f"{sentence(size)}\t{sentence(size * draw.gauss(1, 0.1))}\n")


@contextmanager
def synthetic(n: int) -> Iterator[str]:
    """A file of such pairs in a temporary folder, where what is prepared from it is kept too, as long as it lasts."""
    with tempfile.TemporaryDirectory() as folder:
        before, known = os.environ.get("HF_DATASETS_CACHE"), datasets.config.HF_DATASETS_CACHE
        datasets.config.HF_DATASETS_CACHE = Path(folder) / "cache"
        os.environ["HF_DATASETS_CACHE"] = f"{folder}/cache"  # of processes to come
        try:
            write_pairs(Path(folder) / "pairs.tsv", n)
            yield f"{folder}/pairs.tsv"
        finally:
            datasets.config.HF_DATASETS_CACHE = known
            os.environ.pop("HF_DATASETS_CACHE")
            if before is not None:
                os.environ["HF_DATASETS_CACHE"] = before


@dataclass(frozen=True)
class Work:
    """What all contenders do the same work on: the data, and models of the same sizes."""

    data: str = ""
    """As for train.py; by default synthetic pairs"""
    source: str = "en"
    target: str = "fr"
    d_model: int = 256
    n_layers: int = 3
    """Of encoder and decoder each"""
    vocab_size: int = 8000
    device: DeviceName = "auto"

    @contextmanager
    def config(self, n: int) -> Iterator[Config]:
        """The config of it, with n synthetic pairs where no data is named, for as long as those last."""
        with synthetic(n) if not self.data else nullcontext(self.data) as data:
            yield replace(
                PRESETS["opus_books"],
                data=data,
                source=self.source,
                target=self.target,
                skip_rules=() if self.data else tuple(RULES),
                d_model=self.d_model,
                d_ff=4 * self.d_model,
                n_encoder_layers=self.n_layers,
                n_decoder_layers=self.n_layers,
                vocab_size=self.vocab_size,
                device=self.device,
            )

    def sizes(self, vocabulary: int) -> str:
        """The model's, in words."""
        return f"d_model {self.d_model}, {self.n_layers}+{self.n_layers} layers, vocabulary {vocabulary:,}"


class Contender:
    """Work in a process of its own, where no other's memory, threads and settings are."""

    def __init__(self, build: Callable[[], Callable[..., Any]]) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.connection, theirs = spawn.Pipe()
        spawn.Process(target=_serve, args=(theirs, build), daemon=True).start()
        theirs.close()  # an end of file here, should the process die

    def __call__(self, *args: Any) -> tuple[float, Any]:
        """The seconds that the work took, and what came of it."""
        self.connection.send(args)
        answer: tuple[float, Any] = self.connection.recv()
        return answer


def _serve(connection: Connection, build: Callable[[], Callable[..., Any]]) -> None:
    """What such a process does, until it is ended."""
    work = build()
    while True:
        try:
            args = connection.recv()
        except EOFError:  # the benchmark is over
            return
        start = time.perf_counter()
        found = work(*args)
        connection.send((time.perf_counter() - start, found))


def alternate(turns: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """The figure of each contender's turn, in each of so many rounds."""
    figures: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name, turn in turns.items():
            figures[name].append(turn())
    return figures


def ratio(ours: list[float], theirs: list[float]) -> float:
    """How many times theirs ours is: the median over the rounds."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def command_seconds(*command: str) -> float:
    """Seconds of one of the project's commands, as Python's own arguments, from its start to its end."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - start


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of a product of two square matrices, the best of ten: what this hardware can do at this moment."""
    size = 8192 if device.type == "cuda" else 1536
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    a @ b
    best = float("inf")
    for _ in range(10):
        synchronize(device)
        start = time.perf_counter()
        a @ b
        synchronize(device)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
