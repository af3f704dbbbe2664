"""What TensorBoard costs: the share of a training's time that its logs take, pictures of attention included.

    python benchmarks/watching.py                             synthetic pairs, two epochs of a small model
    python benchmarks/watching.py --data FOLDER --source en --target fr --d-model 256 --n-layers 3

It trains with the loop of train.py into a temporary folder, and times every call that writes to the logs. The pictures
after the last step, which are always drawn, have a line of their own.
"""

import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import tyro  # noqa: E402
from measure import Workload  # noqa: E402

from checkpoint import RunFolder  # noqa: E402
from system.devices import choose_device, choose_precision, device_label  # noqa: E402
from text.corpus import load_corpus  # noqa: E402
from text.tokenizer import learn_tokenizer  # noqa: E402
from train import loop  # noqa: E402
from training.records import Progress, StepRecord, Validation  # noqa: E402
from training.tensorboard import Logs  # noqa: E402
from training.trainer import Training  # noqa: E402

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Options(Workload):
    """Time a training and its logs."""

    epochs: int = 2
    """Passes over the training pairs, with a validation after each"""
    pairs: int = 10_000
    """Number of synthetic pairs, without --data"""


class TimedLogs(Logs):
    """The logs, with the seconds that they take, by method."""

    def __init__(self, folder: Path, progress: Progress, every: int) -> None:
        super().__init__(folder, progress, every)
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - start

    def steps(self, records: Sequence[StepRecord], padding: float) -> None:
        with self.timed("steps"):
            super().steps(records, padding)

    def validation(self, result: Validation, samples: Sequence[tuple[str, str, str]]) -> None:
        with self.timed("validation"):
            super().validation(result, samples)

    def pictures(self, draw: Callable[[], Iterable[tuple[str, "Figure"]]], progress: Progress, is_last: bool) -> None:
        with self.timed("pictures, last" if is_last else "pictures"):
            super().pictures(draw, progress, is_last)


def main() -> None:
    options = tyro.cli(Options)
    with options.config(options.pairs) as workload, tempfile.TemporaryDirectory() as out:
        # Prepare a training as train.py does.
        device = choose_device(workload.device)
        precision = choose_precision(workload.precision, device)
        config = replace(workload, epochs=options.epochs, valid_share=0.05, name="watched", precision=precision)
        corpus = load_corpus(config)
        training = Training(config, corpus, learn_tokenizer(corpus.train, config.vocab_size))
        os.chdir(out)
        folder = RunFolder(Path("weights/watched"))
        folder.start(config, training.tokenizer)

        # Train.
        logs = TimedLogs(Path("runs/watched"), training.progress, config.log_every)
        loop(training, folder, logs, [])
        logs.close()

    print(
        f"{device_label(device)}, {options.model_label(len(training.tokenizer))}; {training.step:,} steps, "
        f"{training.seconds:.1f} s with {options.epochs} validations"
    )
    for name, seconds in logs.seconds.items():
        print(f"logs.{name:<15} {seconds:6.2f} s {seconds / training.seconds:7.2%}")
    total = sum(logs.seconds.values())
    print(f"together             {total:6.2f} s {total / training.seconds:7.2%}")


if __name__ == "__main__":
    main()
