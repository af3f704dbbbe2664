"""What preparing a corpus costs: seconds, pairs a second and peak memory of each stage, from raw file to first steps.

    python benchmarks/preparation.py                 100,000 synthetic pairs
    python benchmarks/preparation.py 5000000

The pairs are sentences of the demo's grammar, each with a number that makes it distinct. They are written to a
temporary folder, cleaned, split, tokenized and trained on for some steps by one process, and then by a second, which
finds all of it prepared on disk.
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
from system.devices import choose_device, choose_precision, device_label, peak_gigabytes  # noqa: E402
from text.corpus import Corpus, load_corpus  # noqa: E402
from text.tokenizer import learn_tokenizer  # noqa: E402
from train import take_step  # noqa: E402
from training.trainer import Training  # noqa: E402

T = TypeVar("T")
STEPS = 20
CPU = torch.device("cpu")


def write_pairs(path: Path, n: int) -> None:
    draw = Random(1)
    sentences = [sentence(draw) for _ in range(min(n, 50_000))]
    with path.open("w", encoding="utf-8") as file:
        for i in range(n):
            en, fr = sentences[draw.randrange(len(sentences))]
            number = f"{i // 1_000_000} {i // 1000 % 1000} {i % 1000}"
            file.write(f"{en[:-1]} {number}.\t{fr[:-1]} {number}.\n")


def timed(name: str, n: int, work: Callable[[], T]) -> T:
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    print(
        f"{name:<28} {seconds:9.1f} s {n / seconds:12,.0f} pairs/s {peak_gigabytes(CPU):8.2f} GB",
        flush=True,
    )
    return result


def prepare(config: Config, n: int, again: str) -> None:
    """All the stages and some steps."""
    corpus: Corpus = timed(f"clean and split{again}", n, lambda: load_corpus(config))
    tokenizer = timed(f"train the tokenizer{again}", n, lambda: learn_tokenizer(corpus.train, config.vocab_size))
    training = timed(f"encode, deal, build{again}", n, lambda: Training(config, corpus, tokenizer))
    logs = [take_step(training, step) for step in range(1, STEPS + 1)]
    speed = sum(log.n_tokens for log in logs) / sum(log.seconds for log in logs)
    print(
        f"{STEPS} steps: {speed:,.0f} tokens/s; peak {peak_gigabytes(CPU):.2f} GB; padding {training.padding:.1%}",
        flush=True,
    )


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    device = choose_device("auto")
    precision = choose_precision("auto", device)
    print(f"{n:,} pairs; {device_label(device)}, {precision}; torch {torch.__version__}; peak memory of each start")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_DATASETS_CACHE"] = f"{folder}/cache"  # for the processes that are started below
        config = replace(PRESETS["demo"], data=f"{folder}/pairs.tsv", vocab_size=8000, precision=precision)
        config = replace(config, valid_share=2000 / n, test_share=2000 / n, epochs=1, batch_tokens=4096)
        timed("write the pairs", n, lambda: write_pairs(Path(config.data), n))
        for again in ("", " again"):
            start = multiprocessing.get_context("spawn").Process(target=prepare, args=(config, n, again))
            start.start()
            start.join()


if __name__ == "__main__":
    main()
