"""What `train.py --temperature` does for a language pair with few sentences beside one with many.

    python benchmarks/temperature.py MULTI30K [--few 2000] [--temperatures 1 2 5]

One model learns en-de from all training pairs of MULTI30K (train, valid and test files of English, German and French),
and en-fr from the first --few. One training for each temperature; and one of en-fr alone, with equally many steps.
Scores are BLEU and chrF of each pair on the validation part, by greedy search.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Options:
    """Train one model for a large and a small language pair, at several temperatures."""

    multi30k: Annotated[Path, tyro.conf.Positional]
    """Folder with train, valid and test files of English, German and French"""
    few: int = 2000
    """Training pairs of en-fr"""
    temperatures: tuple[float, ...] = (1.0, 2.0, 5.0)
    """Temperatures to try"""
    steps: int = 2000
    """Steps of each training"""
    alone: bool = True
    """Train en-fr alone, too"""


def main() -> None:
    options = tyro.cli(Options)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        for name, language in (("large", "de"), ("small", "fr")):
            (work / name).mkdir()
            for part in ("train", "valid", "test"):
                for one in ("en", language):
                    shutil.copy(options.multi30k / f"{part}.{one}", work / name)
        for language in ("en", "fr"):
            file = work / "small" / f"train.{language}"
            lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
            file.write_text("".join(lines[: options.few]), encoding="utf-8")

        if options.alone:
            report("en-fr alone", train(work, options, "small", ["en-fr"], 1.0))
        for temperature in options.temperatures:
            scores = train(work, options, "large small", ["en-de", "en-fr"], temperature)
            report(f"temperature {temperature:g}", scores)


def train(work: Path, options: Options, data: str, pairs: list[str], temperature: float) -> dict[str, dict[str, float]]:
    """Train in the folder work. Returns the scores of each pair at the best validation."""
    args = ["multi30k", "--data", *data.split(), "--pairs", *pairs, "--temperature", str(temperature)]
    args += ["--steps", str(options.steps), "--valid-every", "250", "--name", "trial", "--overwrite"]
    command = [sys.executable, str(ROOT / "train.py"), *args]
    subprocess.run(command, cwd=work, check=True, stderr=subprocess.DEVNULL)
    metrics = json.loads((work / "weights" / "trial" / "metrics.json").read_text(encoding="utf-8"))
    scores: dict[str, dict[str, float]] = metrics["best"].get("by_data") or {pairs[0]: metrics["best"]}
    return scores


def report(label: str, scores: dict[str, dict[str, float]]) -> None:
    """Print a line."""
    columns = "  ".join(f"{pair}: BLEU {one['bleu']:.1f}  chrF {one['chrf']:.1f}" for pair, one in scores.items())
    print(f"{label:<16} {columns}", flush=True)


if __name__ == "__main__":
    main()
