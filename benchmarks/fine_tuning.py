"""What `train.py --init-from` gains on new data and forgets of the old, beside a training from scratch.

    python benchmarks/fine_tuning.py RUN NEW OLD [--pairs 1000 5000] [--steps 2100]

RUN was trained on the folder OLD; the folder NEW has other pairs of the same languages. Both have train, valid and test
files. For each number of pairs, that many of NEW are learned from in three trainings of equally many steps: from
scratch with the preset of --preset, from RUN, and from RUN with the pairs of OLD mixed in. Scores are those of both
validation parts, by greedy search.
"""

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

from checkpoint import RunFolder  # noqa: E402
from decoding.scoring import score  # noqa: E402
from decoding.translator import Translator  # noqa: E402
from text.readers import Pair, read_parts  # noqa: E402


@dataclass(frozen=True)
class Options:
    """Fine-tune a run on few and on many pairs, and train on them from scratch."""

    run: Annotated[str, tyro.conf.Positional]
    """The run to start from"""
    new: Annotated[Path, tyro.conf.Positional]
    """Folder of the new pairs"""
    old: Annotated[Path, tyro.conf.Positional]
    """Folder of the pairs that RUN was trained on"""
    pairs: tuple[int, ...] = (1000, 5000, 29000)
    """How many training pairs of the new folder are used; the first ones"""
    preset: str = "multi30k"
    """Preset of the trainings from scratch"""
    steps: int = 2100
    """Steps of each training; 2,100 take about ten minutes on one core with AVX512-BF16"""
    valid_every: int = 150
    """Steps between validations"""
    old_share: float = 0.5
    """Share of the old pairs in each epoch of the mixture"""


def main() -> None:
    options = tyro.cli(Options)
    folder = RunFolder.find(options.run).path.resolve()
    config = RunFolder(folder).load_config()
    languages = config.source, config.target
    new, old = (
        {name: list(part.pairs) for name, part in read_parts(str(path.resolve()), *languages).items()}
        for path in (options.new, options.old)
    )
    valid = {"new": new["valid"], "old": old["valid"]}
    print(f"{'run itself':<28} {scores(folder, valid)}", flush=True)

    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        for n in options.pairs:
            (work / f"new{n}").mkdir()
            write_parts(work / f"new{n}", {"train": new["train"][:n], "valid": new["valid"], "test": []}, languages)
            data = ["--data", f"new{n}"]
            start = ["--init-from", str(folder)]
            # The old pairs have the weight with which they are old_share of an epoch.
            weight = options.old_share / (1 - options.old_share) * n / len(old["train"])
            mixture = ["--data", f"new{n}", str(options.old.resolve()), "--data-weights", "1", f"{weight:.4f}"]
            for label, args in (
                ("scratch", [options.preset, "--source", languages[0], "--target", languages[1], *data]),
                ("from the run", [*start, *data]),
                ("from the run, mixed", [*start, *mixture]),
            ):
                seconds = train(work, options, args)
                print(
                    f"{n:>6,} {label:<21} {scores(work / 'weights' / 'trial', valid)}  {seconds / 60:.1f} min",
                    flush=True,
                )


def train(work: Path, options: Options, args: list[str]) -> float:
    """Train in the folder work as the run `trial`. Returns the seconds that it took."""
    length = ["--steps", str(options.steps), "--valid-every", str(options.valid_every)]
    command = [sys.executable, str(ROOT / "train.py"), *args, *length, "--name", "trial", "--overwrite"]
    start = time.perf_counter()
    subprocess.run(command, cwd=work, check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def scores(run: Path, valid: dict[str, list[Pair]]) -> str:
    """BLEU of a run on each validation part."""
    translator = Translator.load(run)
    results = []
    for label, pairs in valid.items():
        sources, references = map(list, zip(*pairs, strict=True))
        bleu = score(translator(sources), references, translator.config.target).bleu
        results.append(f"{label} BLEU {bleu:.1f}")
    return "  ".join(results)


if __name__ == "__main__":
    main()
