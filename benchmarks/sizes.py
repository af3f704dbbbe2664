"""Which sizes of a model suit so many pairs: each line of flags is trained on pairs drawn from a folder.

    python benchmarks/sizes.py FOLDER en fr RUNS.txt OUT.md --pairs 2000

FOLDER has train and valid in two languages, as text. RUNS.txt has a run's flags of train.py in each of its lines. The
pairs are drawn from a fixed seed, and no test part is looked at. OUT.md gets a row for each run as soon as it ends:
parameters, steps, minutes, and the best validation.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated

import tyro

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tapis.text.lines import lines  # noqa: E402

SEED = 1
COLUMNS = "pairs", "flags", "parameters", "steps", "minutes", "BLEU", "chrF", "perplexity", "at step"
HEADER = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|\n"


@dataclass(frozen=True)
class Options:
    """Which sizes of a model suit so many pairs."""

    folder: Annotated[Path, tyro.conf.Positional]
    """Folder with train.LANGUAGE and valid.LANGUAGE"""
    source: Annotated[str, tyro.conf.Positional]
    """Language to translate from"""
    target: Annotated[str, tyro.conf.Positional]
    """Language to translate into"""
    runs: Annotated[Path, tyro.conf.Positional]
    """File of flags of train.py, a line for each run"""
    out: Annotated[Path, tyro.conf.Positional]
    """File of the table, which grows"""
    pairs: int = 2000
    """Training pairs"""
    valid: int = 500
    """Validation pairs"""


def write_part(options: Options, folder: Path, part: str, n: int) -> None:
    """Write n pairs of a part, drawn from a fixed seed."""
    sides = [list(lines(options.folder / f"{part}.{side}")) for side in (options.source, options.target)]
    rows = Random(SEED).sample(range(len(sides[0])), min(n, len(sides[0])))
    for side, texts in zip((options.source, options.target), sides, strict=True):
        (folder / f"{part}.{side}").write_text("".join(f"{texts[row]}\n" for row in rows), encoding="utf-8")


def row_of(options: Options, folder: Path, flags: str) -> str:
    """Train a run, and return its row of the table."""
    data = ["--data", str(folder), "--source", options.source, "--target", options.target, "--test-share", "0"]
    line = [sys.executable, str(ROOT / "train.py"), "opus_books", *flags.split(), *data, "--name", "sizes"]
    subprocess.run([*line, "--overwrite"], cwd=folder, check=True)
    found = json.loads((folder / "weights" / "sizes" / "metrics.json").read_text(encoding="utf-8"))
    best = found["best"]
    cells = (
        f"{options.pairs:,}",
        flags,
        f"{found['parameters']:,}",
        f"{found['batches']['steps']:,}",
        f"{found['seconds'] / 60:.1f}",
        f"{best['bleu']:.1f}",
        f"{best['chrf']:.1f}",
        f"{best['perplexity']:.2f}",
        f"{best['step']:,}",
    )
    return f"| {' | '.join(cells)} |\n"


def main() -> None:
    options = tyro.cli(Options)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_part(options, folder, "train", options.pairs)
        write_part(options, folder, "valid", options.valid)
        for flags in lines(options.runs):
            row = row_of(options, folder, flags)
            is_new = not options.out.exists()
            with options.out.open("a", encoding="utf-8") as table:
                table.write(HEADER * is_new + row)


if __name__ == "__main__":
    main()
