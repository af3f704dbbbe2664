"""Whether the mean of the last checkpoints is better than the best of them, on the validation part.

    python benchmarks/averaging.py multi30k --data FOLDER --target de --epochs 12

The arguments are those of train.py. The training is train.py's own, in a temporary folder; the weights of every
validation are kept. In the end, the means of the last 2, 3, 5 and 8 of them are scored as a validation is, beside the
best single one.
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import safetensors.torch  # noqa: E402
import torch  # noqa: E402

import train  # noqa: E402
from checkpoint import RunFolder, load_parameters, parameters  # noqa: E402
from model import Transformer  # noqa: E402
from training.records import Validation  # noqa: E402
from training.trainer import Training  # noqa: E402
from training.validation import validate  # noqa: E402

LAST = (2, 3, 5, 8)  # how many checkpoints are averaged


def main(args: Sequence[str]) -> None:
    preset, *flags = args
    flags = [str(Path(flag).resolve()) if Path(flag).exists() else flag for flag in flags]  # --data, from elsewhere
    with tempfile.TemporaryDirectory() as temporary:
        os.chdir(temporary)
        training = train_and_keep([preset, *flags], Path(temporary))
        files = sorted(Path(temporary).glob("*.safetensors"))
        best = training.best
        assert best
        print(f"best of {len(files)}, step {best.step:,}: BLEU {best.bleu:.2f}  loss {best.loss:.4f}")
        for k in [1, *(k for k in LAST if k <= len(files))]:
            checkpoints = [safetensors.torch.load_file(file) for file in files[-k:]]
            mean = {name: torch.stack([weights[name] for weights in checkpoints]).mean(0) for name in checkpoints[0]}
            load_parameters(training.model, mean, "the mean")
            result, _ = validate(training)
            print(f"mean of the last {k}: BLEU {result.bleu:.2f}  loss {result.loss:.4f}", flush=True)


def train_and_keep(args: Sequence[str], kept: Path) -> Training:
    """Trains, and writes the weights of each validation to the folder kept, named by the step. Returns the training."""
    trainings: list[Training] = []
    validate_and_keep_best = train.validate_and_keep_best

    def keep_all(training: Training, folder: RunFolder) -> tuple[Transformer, Validation, list[str]]:
        trainings.append(training)
        safetensors.torch.save_file(parameters(training.model), kept / f"{training.step:08}.safetensors")
        return validate_and_keep_best(training, folder)

    train.validate_and_keep_best = keep_all
    train.main(args)
    return trainings[-1]


if __name__ == "__main__":
    main(sys.argv[1:])
