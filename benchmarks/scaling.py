"""How costs grow on a CPU: a step with width, sentence length, vocabulary and batch size; preparation with the corpus.

    python benchmarks/scaling.py
    python benchmarks/scaling.py --corpus 1000 10000 100000 1000000 5000000

One size changes at a time, from d_model 256, 3+3 layers, 16 tokens a side, a vocabulary of 8,000 and 4,096 tokens a
batch. Token ids are random and all sentences equally long: this measures cost, and nothing is learned. Each point has a
process of its own, and its peak memory is that of the process.

Below each table is the exponent of the cost of one token, or pair, and that of memory. It is the slope of log cost over
log size, by least squares: 0 means that the cost does not depend on the size, 1 that it grows in proportion.
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
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
import tyro  # noqa: E402
from measure import write_pairs  # noqa: E402
from torch.nn.utils import clip_grad_norm_  # noqa: E402

from config import Config  # noqa: E402
from dataset import EncodedPairs  # noqa: E402
from fast.forward import PackedBatchLoss  # noqa: E402
from fast.memory import keep_freed_memory  # noqa: E402
from fast.modules import install_fast_modules  # noqa: E402
from fast.packed_batch import PackedBatch  # noqa: E402
from machine.devices import autocast, choose_precision, device_label, peak_gigabytes  # noqa: E402
from model import Transformer  # noqa: E402
from pairs.cleaning import RULES  # noqa: E402
from pairs.corpus import load_corpus  # noqa: E402
from pairs.vocabulary import learn_tokenizer  # noqa: E402
from tapis.config import EOS  # noqa: E402
from training.optimizers import make_optimizers  # noqa: E402

CPU = torch.device("cpu")
STEPS = 6  # of a point; the first one is not counted
VOCABULARY, LENGTH = 8000, 16  # unless they are what changes


@dataclass(frozen=True)
class Options:
    """Measure how costs grow. Give an option no sizes to leave it out."""

    width: tuple[int, ...] = (64, 128, 256, 512)
    """Values of d_model, with d_ff four times as large"""
    length: tuple[int, ...] = (8, 32, 128)
    """Tokens of every sentence, on both sides"""
    vocabulary: tuple[int, ...] = (2000, 8000, 32_000)
    """Sizes of the vocabulary"""
    batch: tuple[int, ...] = (1024, 4096, 16_384)
    """Tokens of a batch, on each side"""
    corpus: tuple[int, ...] = (1000, 10_000, 50_000)
    """Numbers of synthetic pairs to clean, split, tokenize and encode"""


class Cost(NamedTuple):
    """The cost of one point."""

    seconds: float
    """Of a step, or of preparing a corpus"""
    n: int
    """Tokens of the step, source and target, or pairs of the corpus"""
    gigabytes: float
    """Peak memory of the process"""


def step_cost(config: Config, vocab_size: int, length: int) -> Cost:
    """Return the cost of a training step: the median of a few, on one batch of sentences of that length."""
    # The model, and a batch of random ids
    keep_freed_memory()
    torch.manual_seed(1)
    model = Transformer(vocab_size, config)
    install_fast_modules(model)
    objective = PackedBatchLoss(model, config.label_smoothing)
    optimizers = make_optimizers(model, config, config.precision)
    random = np.random.default_rng(1)
    rows = random.integers(EOS + 1, vocab_size, (config.batch_tokens // length, length - 1))
    batch = PackedBatch.of(list(rows), list(rows))

    # The steps
    seconds = []
    for _ in range(STEPS):
        start = time.perf_counter()
        with autocast(CPU, config.precision):
            loss, _ = objective(batch)
        (loss / batch.n_tgt).backward()
        clip_grad_norm_(model.parameters(), config.clip_norm)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        seconds.append(time.perf_counter() - start)
    return Cost(statistics.median(seconds[1:]), batch.n_tokens, peak_gigabytes(CPU))


def corpus_cost(n_pairs: int) -> Cost:
    """Return the cost of preparing a corpus, from a file of pairs to token ids on disk."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_DATASETS_CACHE"] = f"{folder}/cache"
        write_pairs(Path(folder) / "pairs.tsv", n_pairs)
        config = replace(Config(), data=(f"{folder}/pairs.tsv",), vocab_size=VOCABULARY, skip_rules=tuple(RULES))
        start = time.perf_counter()
        corpus = load_corpus(config)
        EncodedPairs.of(corpus.train, learn_tokenizer(corpus.train, config.vocab_size), config.max_length)
        return Cost(time.perf_counter() - start, n_pairs, peak_gigabytes(CPU))


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Return the slope of log cost over log size."""
    return statistics.linear_regression([math.log(size) for size in sizes], [math.log(cost) for cost in costs]).slope


def print_table(name: str, unit: str, points: dict[int, Callable[[], Cost]]) -> None:
    """Measure the cost of each size, print the table, and below it the exponents. Does nothing without sizes."""
    if not points:
        return
    print(f"\n{name:<12} {'seconds':>10} {f'{unit}s/s':>12} {'peak GB':>9}")
    costs: list[Cost] = []
    for size, measure in points.items():
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            cost = process.submit(measure).result()
        costs.append(cost)
        print(f"{size:<12,} {cost.seconds:>10.3f} {cost.n / cost.seconds:>12,.0f} {cost.gigabytes:>9.2f}", flush=True)
    if len(points) > 1:
        of_each = exponent(list(points), [cost.seconds / cost.n for cost in costs])
        of_memory = exponent(list(points), [cost.gigabytes for cost in costs])
        print(f"exponent of the cost of a {unit}: {of_each:.2f}; of memory: {of_memory:.2f}", flush=True)


def main() -> None:
    options = tyro.cli(Options)
    base = replace(Config(), device="cpu", precision=choose_precision("auto", CPU), batch_tokens=4096)
    print(f"{device_label(CPU)}, {base.precision}, torch {torch.__version__}; {STEPS - 1} steps a point")

    def with_width(d_model: int) -> Config:
        return replace(base, d_model=d_model, d_ff=4 * d_model)

    def with_batch(batch_tokens: int) -> Config:
        return replace(base, batch_tokens=batch_tokens)

    print_table("width", "token", {n: partial(step_cost, with_width(n), VOCABULARY, LENGTH) for n in options.width})
    print_table("length", "token", {n: partial(step_cost, base, VOCABULARY, n) for n in options.length})
    print_table("vocabulary", "token", {n: partial(step_cost, base, n, LENGTH) for n in options.vocabulary})
    print_table("batch", "token", {n: partial(step_cost, with_batch(n), VOCABULARY, LENGTH) for n in options.batch})
    print_table("corpus", "pair", {n: partial(corpus_cost, n) for n in options.corpus})


if __name__ == "__main__":
    main()
