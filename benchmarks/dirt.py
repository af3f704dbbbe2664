"""What each kind of dirt in the training pairs costs, and what the cleaning rule against it gives back, in test BLEU.

    python benchmarks/dirt.py FOLDER [--source en --target fr] [--rules swapped-columns …]

FOLDER has clean train, valid and test files. For each rule, its kind of dirt is put into some of the training pairs at
random, and the same small model is trained twice: without any rule, and with that rule alone.

Three runs on the clean pairs come first: without rules, with another seed, and with all rules. They show how far
scores differ by chance, and what the rules take from clean pairs.
"""

import json
import random
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from config import RuleName  # noqa: E402
from pairs.cleaning import RULES  # noqa: E402
from pairs.readers import Pair, read_parts  # noqa: E402

MODEL = "--vocab-size 6000 --d-model 128 --d-ff 512 --n-encoder-layers 2 --n-decoder-layers 2 --batch-tokens 2048"
TRAINING = "--lr 3e-3 --warmup-steps 200"


@dataclass(frozen=True)
class Options:
    """Train on dirty pairs, without any rule and with the rule against their dirt."""

    folder: Annotated[Path, tyro.conf.Positional]
    """Folder with clean train, valid and test files"""
    source: str = "en"
    """Language to translate from"""
    target: str = "fr"
    """Language to translate into"""
    rules: tuple[RuleName, ...] = ()
    """Rules to try; by default all that have a kind of dirt"""
    pairs: int = 60_000
    """Maximum number of training pairs, drawn at random"""
    steps: int = 750
    """Steps of each run, the same however many pairs a rule drops; 750 are three epochs of 29,000 pairs"""


# Kinds of dirt


def garbled(text: str) -> str:
    """Return a text as it looks after storage as Windows-1252 and typing on a Mac."""
    return unicodedata.normalize("NFD", text.replace("'", "\x92").replace("’", "\x92").replace(" ", "\u00a0", 1))


def heading(draw: random.Random) -> Pair:
    """Return the heading of a chapter, which the two languages write differently."""
    number = draw.choice(["I", "II", "III", "IV", "V", "IX", "X", "XIV", "XVII", "XX", "XXI", "XXX"])
    return draw.choice(
        [(number, f"CHAPITRE {number}"), (f"CHAPTER {number}", number), ("Source: http://example.org", number)]
    )


# (a pair, the random state, the six pairs after it) → the pairs that take its place
Dirt = Callable[[Pair, random.Random, list[Pair]], list[Pair]]

# For each rule: the share of the pairs that become dirty, and how.
DIRT: dict[RuleName, tuple[float, Dirt]] = {
    "unicode": (0.1, lambda pair, draw, after: [(garbled(pair[0]), garbled(pair[1]))]),
    "empty-side": (0.05, lambda pair, draw, after: [(pair[0], "")]),
    "identical-sides": (0.05, lambda pair, draw, after: [(pair[0], pair[0])]),
    "headings": (0.05, lambda pair, draw, after: [pair, heading(draw)]),
    "swapped-columns": (0.08, lambda pair, draw, after: [pair[::-1]]),
    "wrong-language": (0.05, lambda pair, draw, after: [(pair[0], after[0][0])]),
    "length-ratio": (0.05, lambda pair, draw, after: [(pair[0], " ".join([pair[1], *(p[1] for p in after)]))]),
    "duplicates": (0.02, lambda pair, draw, after: [pair] * 20),
}


def with_dirt(pairs: list[Pair], rule: RuleName) -> list[Pair]:
    """Return the pairs with that rule's kind of dirt in some of them."""
    draw = random.Random(8)
    share, make_dirty = DIRT[rule]
    dirty_pairs = []
    for i, pair in enumerate(pairs):
        after = [pairs[(i + distance) % len(pairs)] for distance in range(1, 7)]
        dirty_pairs += make_dirty(pair, draw, after) if draw.random() < share else [pair]
    return dirty_pairs


# Trainings


class Result(NamedTuple):
    """The scores of one run."""

    bleu: float
    """Of the test part"""
    perplexity: float
    """Of the validation part; it varies less by chance"""


def write_parts(folder: Path, parts: dict[str, list[Pair]], languages: Sequence[str]) -> None:
    """Write the parts as text files, a file for each part and language."""
    for part, pairs in parts.items():
        for side, language in enumerate(languages):
            text = "".join(pair[side] + "\n" for pair in pairs)
            (folder / f"{part}.{language}").write_text(text, encoding="utf-8")


def train(label: str, folder: Path, options: Options, *flags: str) -> Result:
    """Train on the parts in a folder, print a line, and return the scores."""
    run = ["demo", "--data", str(folder), "--name", "trial", "--overwrite"]
    languages = ["--source", options.source, "--target", options.target, "--steps", str(options.steps)]
    args = [*run, *languages, *MODEL.split(), *TRAINING.split(), *flags]
    command = [sys.executable, str(ROOT / "train.py"), *args]
    subprocess.run(command, cwd=folder, check=True, stderr=subprocess.DEVNULL)

    metrics = json.loads((folder / "weights" / "trial" / "metrics.json").read_text(encoding="utf-8"))
    result = Result(metrics["test"]["bleu"], metrics["best"]["perplexity"])
    print(
        f"{label:<28} {metrics['data']['trained_on']:>8,} pairs  test BLEU {result.bleu:.2f}  "
        f"valid perplexity {result.perplexity:.2f}  {metrics['seconds']:.0f} s  {metrics['hardware']}",
        flush=True,
    )
    return result


def main() -> None:
    options = tyro.cli(Options)
    languages = options.source, options.target
    read = read_parts(str(options.folder.resolve()), *languages)
    parts = {name: list(part.pairs) for name, part in read.items()}
    random.Random(1).shuffle(parts["train"])
    clean = parts["train"][: options.pairs]

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)

        # The clean pairs.
        write_parts(folder, {**parts, "train": clean}, languages)
        train("clean, no rule", folder, options, "--skip-rules", *RULES)
        train("clean, another seed", folder, options, "--skip-rules", *RULES, "--seed", "2")
        train("clean, all rules", folder, options)

        # Each kind of dirt, without any rule and with its own rule alone.
        for rule in options.rules or DIRT:
            write_parts(folder, {**parts, "train": with_dirt(clean, rule)}, languages)
            others = [name for name in RULES if name != rule]
            off = train(f"{rule}, rule off", folder, options, "--skip-rules", *RULES)
            on = train(f"{rule}, rule on", folder, options, "--skip-rules", *others)
            gain = f"{on.bleu - off.bleu:+.2f} BLEU, {on.perplexity - off.perplexity:+.2f} perplexity"
            print(f"{rule:<28} the rule gives {gain}", flush=True)


if __name__ == "__main__":
    main()
