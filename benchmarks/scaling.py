"""How costs grow: a training step against width, sentence length, vocabulary and batch; preparation against the corpus.

    python benchmarks/scaling.py
    python benchmarks/scaling.py --corpus 1000 10000 100000 1000000 5000000

One size changes at a time, from d_model 256, 3+3 layers, 16 tokens a side, a vocabulary of 8,000 and 4,096 tokens a
batch. The exponent is the slope between the logarithms of size and cost, by least squares: 1 is proportional, 0 free.
Every point has a process of its own, whose peak memory stands beside it. Ids are random and sentences equally long:
what is measured is cost, and nothing is learned.
"""

import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
import tyro  # noqa: E402
from measure import synchronize, write_pairs  # noqa: E402
from torch.nn.utils import clip_grad_norm_  # noqa: E402

from config import EOS, PRESETS, Config, DeviceName  # noqa: E402
from dataset import EncodedPairs, collate  # noqa: E402
from fast.forward import PackedBatchLoss  # noqa: E402
from fast.memory import keep_freed_memory  # noqa: E402
from fast.modules import install_fast_modules  # noqa: E402
from fast.packing import PackedBatch  # noqa: E402
from model import Transformer  # noqa: E402
from system.devices import (  # noqa: E402
    autocast,
    choose_device,
    choose_precision,
    device_label,
    peak_gigabytes,
)
from text.cleaning import RULES  # noqa: E402
from text.corpus import load_corpus  # noqa: E402
from text.tokenizer import learn_tokenizer  # noqa: E402
from training.optimizers import make_optimizers  # noqa: E402

STEPS = 6  # of which the first is not counted


@dataclass(frozen=True)
class Options:
    """Measure how costs grow; an axis without sizes is left out."""

    width: tuple[int, ...] = (64, 128, 256, 512)
    """d_model, with d_ff four times as much"""
    length: tuple[int, ...] = (8, 32, 128)
    """Tokens of every sentence, on both sides"""
    vocabulary: tuple[int, ...] = (2000, 8000, 32_000)
    batch: tuple[int, ...] = (1024, 4096, 16_384)
    """Tokens of a batch on each side"""
    corpus: tuple[int, ...] = (1000, 10_000, 50_000)
    """Synthetic pairs to clean, split, tokenize and encode"""
    device: DeviceName = "auto"


class Cost(NamedTuple):
    """What one point cost."""

    seconds: float
    """Of a step, or of preparing a corpus"""
    n: int
    """Tokens of the step, source and target, or pairs of the corpus"""
    gigabytes: float
    """Peak memory of the process, or of the GPU"""


def step_cost(config: Config, vocabulary: int, length: int) -> Cost:
    """The median step of so many tokens."""
    device = choose_device(config.device)
    keep_freed_memory()
    torch.manual_seed(1)
    model = Transformer(vocabulary, config).to(device)
    install_fast_modules(model)
    objective, optimizers = PackedBatchLoss(model, config.label_smoothing), make_optimizers(model, config)
    random = np.random.default_rng(1)
    rows = random.integers(EOS + 1, vocabulary, (config.batch_tokens // length, length - 1))
    batch = PackedBatch.of(collate(list(rows), list(rows)))
    seconds = []
    for _ in range(STEPS):
        synchronize(device)
        start = time.perf_counter()
        with autocast(device, config.precision):
            loss, _ = objective(batch.to(device))
        (loss / batch.n_tgt).backward()
        clip_grad_norm_(model.parameters(), config.clip_norm)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        synchronize(device)
        seconds.append(time.perf_counter() - start)
    peak = peak_gigabytes(device)
    return Cost(statistics.median(seconds[1:]), batch.n_tokens, peak)


def corpus_cost(pairs: int) -> Cost:
    """From a file to token ids on disk."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_DATASETS_CACHE"] = f"{folder}/cache"
        write_pairs(Path(folder) / "pairs.tsv", pairs)
        config = replace(PRESETS["opus_books"], data=f"{folder}/pairs.tsv", vocab_size=8000)
        start = time.perf_counter()
        corpus = load_corpus(replace(config, skip_rules=tuple(RULES)))
        EncodedPairs.of(corpus.train, learn_tokenizer(corpus.train, config.vocab_size), config.max_length)
        return Cost(time.perf_counter() - start, pairs, peak_gigabytes(torch.device("cpu")))


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """The slope of log cost over log size."""
    return statistics.linear_regression([math.log(size) for size in sizes], [math.log(cost) for cost in costs]).slope


def main() -> None:
    options = tyro.cli(Options)
    device = choose_device(options.device)
    base = replace(
        PRESETS["opus_books"], device=options.device, precision=choose_precision("auto", device), batch_tokens=4096
    )
    print(f"{device_label(device)}, {base.precision}, torch {torch.__version__}; {STEPS - 1} steps a point")
    points: dict[str, list[tuple[Callable[..., Cost], tuple[Any, ...]]]] = {
        "width": [(step_cost, (replace(base, d_model=n, d_ff=4 * n), 8000, 16)) for n in options.width],
        "length": [(step_cost, (base, 8000, n)) for n in options.length],
        "vocabulary": [(step_cost, (base, n, 16)) for n in options.vocabulary],
        "batch": [(step_cost, (replace(base, batch_tokens=n), 8000, 16)) for n in options.batch],
        "corpus": [(corpus_cost, (n,)) for n in options.corpus],
    }
    for axis, work in points.items():
        sizes: tuple[int, ...] = getattr(options, axis)
        unit = "pairs/s" if axis == "corpus" else "tokens/s"
        print(f"\n{axis:<12} {'seconds':>10} {unit:>12} {'peak GB':>9}")
        costs: list[Cost] = []
        for size, (measure, args) in zip(sizes, work, strict=True):
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                cost = process.submit(measure, *args).result()
            costs.append(cost)
            print(
                f"{size:<12,} {cost.seconds:>10.3f} {cost.n / cost.seconds:>12,.0f} {cost.gigabytes:>9.2f}", flush=True
            )
        if len(sizes) > 1:
            each = exponent(sizes, [cost.seconds / cost.n for cost in costs])
            memory = exponent(sizes, [cost.gigabytes for cost in costs])
            print(f"exponent of the cost of a {unit[:-3]}: {each:.2f}; of memory: {memory:.2f}", flush=True)


if __name__ == "__main__":
    main()
