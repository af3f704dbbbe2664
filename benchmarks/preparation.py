"""What preparing a corpus costs, from a raw file to the first steps: the time and peak memory of each stage.

    python benchmarks/preparation.py                 100,000 synthetic pairs
    python benchmarks/preparation.py 5000000

The pairs are sentences of the demo's grammar, each with a number that makes it distinct. One process cleans, splits,
tokenizes and encodes them, and trains for some steps. A second process does the same ("again") and finds everything
prepared on disk.
"""

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TypeVar

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "demo"), str(ROOT / "benchmarks")]

import torch  # noqa: E402
from make_corpus import sentence  # noqa: E402

from config import PRESETS, Config  # noqa: E402
from machine.devices import choose_device, choose_precision, device_label, peak_gigabytes  # noqa: E402
from pairs.corpus import Corpus, load_corpus  # noqa: E402
from pairs.vocabulary import learn_tokenizer  # noqa: E402
from train import take_step  # noqa: E402
from training.trainer import Training  # noqa: E402

T = TypeVar("T")
STEPS = 20
CPU = torch.device("cpu")


def write_pairs(path: Path, n: int) -> None:
    """Write a .tsv file of n pairs, one a line."""
    draw = Random(1)
    sentences = [sentence(draw) for _ in range(min(n, 50_000))]
    with path.open("w", encoding="utf-8") as file:
        for i in range(n):
            en, fr = sentences[draw.randrange(len(sentences))]
            number = f"{i // 1_000_000} {i // 1000 % 1000} {i % 1000}"
            file.write(f"{en[:-1]} {number}.\t{fr[:-1]} {number}.\n")


def timed(stage: str, n: int, work: Callable[[], T]) -> T:
    """Do the work of a stage on n pairs, print its time and the peak memory so far, and return its result."""
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    print(
        f"{stage:<28} {seconds:9.1f} s {n / seconds:12,.0f} pairs/s {peak_gigabytes(CPU):8.2f} GB",
        flush=True,
    )
    return result


def prepare_and_train(config: Config, n: int, suffix: str) -> None:
    """Go through all stages, and take some steps. suffix is appended to the names of the stages."""
    corpus: Corpus = timed(f"clean and split{suffix}", n, lambda: load_corpus(config))
    tokenizer = timed(f"train the tokenizer{suffix}", n, lambda: learn_tokenizer(corpus.train, config.vocab_size))
    training = timed(f"encode, batch, build{suffix}", n, lambda: Training(config, corpus, tokenizer))
    records = [take_step(training, step) for step in range(1, STEPS + 1)]
    speed = sum(record.n_tokens for record in records) / sum(record.seconds for record in records)
    share = training.padding_share
    print(
        f"{STEPS} steps: {speed:,.0f} tokens/s; peak {peak_gigabytes(CPU):.2f} GB; padding {share:.1%}",
        flush=True,
    )


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    device = choose_device("auto")
    precision = choose_precision("auto", device)
    print(f"{n:,} pairs; {device_label(device)}, {precision}; torch {torch.__version__}; peak memory of each process")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_DATASETS_CACHE"] = f"{folder}/cache"  # of the processes that are started below
        config = replace(
            PRESETS["demo"],
            data=(f"{folder}/pairs.tsv",),
            vocab_size=8000,
            precision=precision,
            valid_share=2000 / n,
            test_share=2000 / n,
            epochs=1,
            batch_tokens=4096,
        )
        timed("write the pairs", n, lambda: write_pairs(Path(config.data[0]), n))
        for suffix in ("", " again"):
            process = multiprocessing.get_context("spawn").Process(target=prepare_and_train, args=(config, n, suffix))
            process.start()
            process.join()


if __name__ == "__main__":
    main()
