"""One model of several directions beside a model for each direction, on Multi30k: valid and a second validation set.

    python benchmarks/many_languages.py MULTI30K WORK [--models four en-de …] [--steps 2000]

MULTI30K has train, valid and test files of English, French and German, line by line. The second validation set is taken
from its training part: every second caption about snow, horses, boats or musical instruments (a topic that the
models see less of than valid does, in other sentences). All models learn from the rest.

Models are trained in the folder WORK, where they stay; one that is there is not trained again. `en-de` and the like
learn one direction in --steps steps, `hour-en-de` the same in four times as many, and so does `hour-four`, all four
directions with English. `four` has eight times as many, `six` has German and French too. All use the preset multi30k,
one batch a step. Scores are BLEU by greedy search, of every direction that a model has learned or can try.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from checkpoint import RunFolder  # noqa: E402
from decoding.scoring import score  # noqa: E402
from decoding.translator import Translator  # noqa: E402

LANGUAGES = "en", "de", "fr"
PAIRS_OF = {
    "four": ("en-de", "de-en", "en-fr", "fr-en"),
    "six": ("en-de", "de-en", "en-fr", "fr-en", "de-fr", "fr-de"),
}
TOPIC = re.compile(
    r"\b(snow\w*|ski\w*|sled\w*|horses?|boats?|canoes?|kayaks?|guitars?|violins?|pianos?|drum\w*|flutes?|trumpets?)\b",
    re.IGNORECASE,
)

Lines = list[tuple[str, ...]]


@dataclass(frozen=True)
class Options:
    """Train models of one and of several directions, and compare them."""

    multi30k: Annotated[Path, tyro.conf.Positional]
    """Folder with train, valid and test files of English, French and German"""
    work: Annotated[Path, tyro.conf.Positional]
    """Folder for the data without the second validation set, and for the models"""
    models: tuple[str, ...] = ("en-de", "de-en", "en-fr", "fr-en", "four")
    """The models to train and to score"""
    steps: int = 2000
    """Steps of a model of one direction; 2,000 are a quarter of an hour on one core with AVX512-BF16"""


def main() -> None:
    options = tyro.cli(Options)
    work = options.work.resolve()
    valid = {"valid": read(options.multi30k, "valid"), "topic": divide(options.multi30k, work / "data")}
    print(f"second validation set: {len(valid['topic']):,} captions", flush=True)
    for name in options.models:
        if "seconds" not in RunFolder(work / "weights" / name).load_metrics():  # written when a training is done
            train(name, work, options.steps)
        translator = Translator.load(work / "weights" / name)
        learned = translator.config.directions
        for source, target in [(s, t) for s in LANGUAGES for t in LANGUAGES if s != t]:
            pivot = "" if (source, target) in learned else "en"
            results = [bleu(translator, source, target, lines, pivot) for lines in valid.values()]
            if not all(results):
                continue
            numbers = "  ".join(f"{label} {result:.1f}" for label, result in zip(valid, results, strict=True))
            print(f"{name:<12} {source}-{target}  {numbers}{'  through English' * bool(pivot)}", flush=True)


def read(folder: Path, part: str) -> Lines:
    """The lines of a part in all languages."""
    texts = [(folder / f"{part}.{language}").read_text(encoding="utf-8").splitlines() for language in LANGUAGES]
    return list(zip(*texts, strict=True))


def divide(multi30k: Path, folder: Path) -> Lines:
    """Writes Multi30k without the second validation set, which is returned."""
    train = read(multi30k, "train")
    on_topic = [line for line in train if TOPIC.search(line[0])]
    held_out = set(on_topic[::2])
    if not folder.is_dir():
        folder.mkdir(parents=True)
        rest = [line for line in train if line not in held_out]
        for part, lines in {"train": rest, "valid": read(multi30k, "valid"), "test": read(multi30k, "test")}.items():
            for side, language in enumerate(LANGUAGES):
                text = "".join(line[side] + "\n" for line in lines)
                (folder / f"{part}.{language}").write_text(text, encoding="utf-8")
    return sorted(held_out)


def train(name: str, work: Path, steps: int) -> None:
    """Trains the model of that name in the folder work, or goes on with one that was interrupted."""
    directions = name.removeprefix("hour-")
    factor = 4 if name != directions else 8 if directions in PAIRS_OF else 1
    args = ["multi30k", "--data", str(work / "data"), "--pairs", *PAIRS_OF.get(directions, (directions,))]
    args += ["--steps", str(factor * steps), "--valid-every", "1000", "--name", name]
    folder = RunFolder(work / "weights" / name)
    if folder.state_file.is_file():
        args.append("--resume")
    elif folder.config_file.is_file():
        args.append("--overwrite")
    command: Sequence[str] = [sys.executable, str(ROOT / "train.py"), *args]
    subprocess.run(command, cwd=work, check=True, stderr=subprocess.DEVNULL)


def bleu(translator: Translator, source: str, target: str, lines: Lines, pivot: str = "") -> float:
    """BLEU of a direction, or of two by way of the pivot. 0 if the model has not learned them."""
    if not {(source, pivot or target), (pivot or source, target)} <= set(translator.config.directions):
        return 0.0
    texts = [line[LANGUAGES.index(source)] for line in lines]
    if pivot:
        texts = translator.towards(pivot, source)(texts)
        source = pivot
    hypotheses = translator.towards(target, source)(texts)
    return score(hypotheses, [line[LANGUAGES.index(target)] for line in lines], target).bleu


if __name__ == "__main__":
    main()
