"""What swapped columns cost, and what putting them right gives back: test BLEU of one short training on three data.

    python benchmarks/swapped.py FOLDER [--source en --target fr]

FOLDER has train, valid and test files that are clean. 8 in 100 of its training pairs, at random, get their columns
swapped, as many as in opus_books. The same small model is trained for one epoch on (a) the clean pairs, (b) the swapped
ones with the rules for languages off, (c) the swapped ones, cleaned.
"""

import json
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from readers import read_parts  # noqa: E402

MODEL = "--vocab-size 6000 --d-model 128 --d-ff 512 --n-encoder-layers 2 --n-decoder-layers 2 --batch-tokens 2048"
TRAINING = "--epochs 1 --lr 3e-3 --warmup-steps 200"
RULES_OFF = ["--skip-rules", "swapped-columns", "wrong-language"]


@dataclass(frozen=True)
class Options:
    """Train on clean, swapped and repaired data."""

    folder: Annotated[Path, tyro.conf.Positional]
    source: str = "en"
    target: str = "fr"


def main() -> None:
    options = tyro.cli(Options)
    languages = ["--source", options.source, "--target", options.target]
    with tempfile.TemporaryDirectory() as work:
        swapped = Path(work) / "swapped"
        swapped.mkdir()
        draw, count = random.Random(8), 0
        for name, part in read_parts(str(options.folder.resolve()), options.source, options.target).items():
            turned = [(pair, name == "train" and draw.random() < 0.08) for pair in part.pairs]
            pairs = [pair[::-1] if turn else pair for pair, turn in turned]
            count += sum(turn for _, turn in turned)
            for side, language in enumerate((options.source, options.target)):
                text = "".join(pair[side] + "\n" for pair in pairs)
                (swapped / f"{name}.{language}").write_text(text, encoding="utf-8")
        print(f"{count:,} training pairs swapped", flush=True)
        for label, data, more in (
            ("clean", options.folder.resolve(), []),
            ("swapped", swapped, RULES_OFF),
            ("repaired", swapped, []),
        ):
            args = ["--data", str(data), *languages, *MODEL.split(), *TRAINING.split(), *more, "--name", label]
            subprocess.run([sys.executable, str(ROOT / "train.py"), "demo", *args], cwd=work, check=True)
            metrics = json.loads((Path(work) / "weights" / label / "metrics.json").read_text(encoding="utf-8"))
            put_right = metrics["data"]["rules"].get("swapped-columns", {}).get("pairs", 0)
            print(
                f"{label:<9} test BLEU {metrics['test']['bleu']:.2f}  chrF {metrics['test']['chrf']:.2f}  "
                f"{put_right:,} pairs put right  {metrics['seconds']:.0f} s  {metrics['hardware']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
