"""What it costs to be watched: the share of a training's time that TensorBoard takes, pictures included.

    python benchmarks/watching.py                             synthetic pairs, two epochs of a small model
    python benchmarks/watching.py --data FOLDER --source en --target fr --d-model 256 --n-layers 3

It trains as train.py does, into a temporary folder, and times every call that only tells.
"""

import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import tyro  # noqa: E402
from measure import Work  # noqa: E402

from checkpoint import RunFolder  # noqa: E402
from system.devices import choose_device, choose_precision, device_label  # noqa: E402
from text.corpus import load_corpus  # noqa: E402
from text.tokenizer import learn_tokenizer  # noqa: E402
from train import loop  # noqa: E402
from training.tensorboard import Logs  # noqa: E402
from training.trainer import Training  # noqa: E402


@dataclass(frozen=True)
class Options(Work):
    """Time a training and what it tells TensorBoard."""

    epochs: int = 2
    pairs: int = 10_000
    """Synthetic ones, where no data is named"""


def timed(told: dict[str, float], name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, whose seconds are added to told; the last pictures, after the last step, by themselves."""

    def call(*args: Any, **named: Any) -> None:
        start = time.perf_counter()
        method(*args, **named)
        told[f"{name}, last" if True in args else name] += time.perf_counter() - start

    return call


def main() -> None:
    options = tyro.cli(Options)
    with options.config(options.pairs) as work, tempfile.TemporaryDirectory() as out:
        device = choose_device(work.device)
        precision = choose_precision(work.precision, device)
        config = replace(work, epochs=options.epochs, valid_share=0.05, name="watched", precision=precision)
        corpus = load_corpus(config)
        training = Training(config, corpus, learn_tokenizer(corpus.train, config.vocab_size))
        os.chdir(out)
        folder = RunFolder(Path("weights/watched"))
        folder.start(config, training.tokenizer)
        logs, told = Logs(Path("runs/watched"), training.progress, config.log_every), defaultdict[str, float](float)
        for name in ("steps", "validation", "pictures"):
            setattr(logs, name, timed(told, name, getattr(logs, name)))
        loop(training, folder, logs, [])
        logs.close()
    print(f"{device_label(device)}, {options.sizes(len(training.tokenizer))}; {training.step:,} steps", end=", ")
    print(f"{training.seconds:.1f} s with {options.epochs} validations")
    for name, seconds in told.items():
        print(f"logs.{name:<15} {seconds:6.2f} s {seconds / training.seconds:7.2%}")
    print(f"together             {sum(told.values()):6.2f} s {sum(told.values()) / training.seconds:7.2%}")


if __name__ == "__main__":
    main()
