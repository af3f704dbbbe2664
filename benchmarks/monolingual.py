"""What text in the target language alone (`train.py --monolingual`) gives to a training with few pairs, or with many.

    python benchmarks/monolingual.py MULTI30K [--pairs 5000] [--steps 2000] [--text FILE]

The first --pairs of the training part of MULTI30K (train, valid and test files, English and French) are learned from in
trainings of equally many steps: alone; in both directions; in both directions with monolingual French, which the model
translates back itself; and with the same text translated back by a model of fr-en, which was trained on the same pairs
before, in as many steps. The text is the French of the other pairs, or --text. Scores are BLEU and chrF of en-fr on the
validation part, by greedy search.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from dirt import write_parts  # noqa: E402

from text.readers import read_parts  # noqa: E402

ONE, BOTH = ["en-fr"], ["en-fr", "fr-en"]


@dataclass(frozen=True)
class Options:
    """Train on pairs with and without text in the target language alone."""

    multi30k: Annotated[Path, tyro.conf.Positional]
    """Folder with train, valid and test files of English and French"""
    pairs: int = 5000
    """How many training pairs are learned from; the first ones"""
    steps: int = 2000
    """Steps of each training"""
    text: Path | None = None
    """French sentences, one per line; by default those of the other training pairs"""
    weights: tuple[float, ...] = (1.0,)
    """Weights of the text to try (--monolingual-weight)"""


def main() -> None:
    options = tyro.cli(Options)
    parts = {name: list(part.pairs) for name, part in read_parts(str(options.multi30k), "en", "fr").items()}
    train = parts["train"]
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        (work / "data").mkdir()
        write_parts(work / "data", {**parts, "train": train[: options.pairs]}, ["en", "fr"])
        if options.text:
            shutil.copy(options.text, work / "text.fr")
        else:
            text = "".join(target + "\n" for _, target in train[options.pairs :])
            (work / "text.fr").write_text(text, encoding="utf-8")

        report("pairs alone", work, options, ONE)
        report("both directions", work, options, BOTH)
        report("the back-translator", work, options, ["fr-en"], "back")
        for weight in options.weights:
            text_flags = ["--monolingual", "text.fr", "--monolingual-weight", str(weight)]
            report(f"both directions, text {weight:g}", work, options, [*BOTH, *text_flags])
            report(
                f"text by the back-translator {weight:g}",
                work,
                options,
                [*ONE, *text_flags, "--back-translator", "back"],
            )


def report(label: str, work: Path, options: Options, args: list[str], name: str = "trial") -> None:
    """Train in the folder work, and print the scores of the best validation."""
    length = ["--steps", str(options.steps), "--valid-every", "250"]
    command = [sys.executable, str(ROOT / "train.py"), "multi30k", "--data", "data", "--pairs", *args, *length]
    start = time.perf_counter()
    subprocess.run([*command, "--name", name, "--overwrite"], cwd=work, check=True, stderr=subprocess.DEVNULL)
    minutes = (time.perf_counter() - start) / 60
    metrics = json.loads((work / "weights" / name / "metrics.json").read_text(encoding="utf-8"))
    best = metrics["best"]
    scores = best.get("by_data", {}).get("en-fr", best)
    print(f"{label:<32} BLEU {scores['bleu']:.1f}  chrF {scores['chrf']:.1f}  {minutes:.1f} min", flush=True)


if __name__ == "__main__":
    main()
