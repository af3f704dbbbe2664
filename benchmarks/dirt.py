"""What each kind of dirt costs a translation, and what the rule against it gives back: test BLEU of short trainings.

    python benchmarks/dirt.py FOLDER [--source en --target fr] [--rules swapped-columns …]

FOLDER has train, valid and test files that are clean. For each rule its kind of dirt is put into a part of the training
pairs, at random, and the same small model is trained on them with no rule and with that rule alone. Three trainings on
the clean pairs, two of which differ by the seed alone and the third by having all rules, say how far scores differ by
chance, and what the rules take from clean pairs.
"""

import json
import random
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from config import RuleName  # noqa: E402
from text.cleaning import RULES  # noqa: E402
from text.readers import Pair, read_parts  # noqa: E402

MODEL = "--vocab-size 6000 --d-model 128 --d-ff 512 --n-encoder-layers 2 --n-decoder-layers 2 --batch-tokens 2048"
TRAINING = "--lr 3e-3 --warmup-steps 200"


@dataclass(frozen=True)
class Options:
    """Train on dirty pairs, without any rule and with the one against their dirt."""

    folder: Annotated[Path, tyro.conf.Positional]
    source: str = "en"
    target: str = "fr"
    rules: tuple[RuleName, ...] = ()
    """Those to try; all of them when none is named"""
    pairs: int = 60_000
    """Training pairs, drawn at random"""
    steps: int = 750
    """Of every training, so that dropped pairs do not shorten it; 750 are three epochs of 29,000 pairs"""


def garbled(text: str) -> str:
    """As texts come that were stored as Windows-1252 once and typed on a Mac."""
    return unicodedata.normalize("NFD", text.replace("'", "\x92").replace("’", "\x92").replace(" ", "\u00a0", 1))


def label(draw: random.Random) -> Pair:
    """The heading of a chapter, which the two languages do not write alike."""
    number = draw.choice(["I", "II", "III", "IV", "V", "IX", "X", "XIV", "XVII", "XX", "XXI", "XXX"])
    return draw.choice(
        [(number, f"CHAPITRE {number}"), (f"CHAPTER {number}", number), ("Source: http://example.org", number)]
    )


# Of each rule: the share of the pairs that get its dirt, and what becomes of a pair, given the draw and the next pairs.
Dirt = Callable[[Pair, random.Random, list[Pair]], list[Pair]]
DIRT: dict[RuleName, tuple[float, Dirt]] = {
    "unicode": (0.1, lambda pair, draw, after: [(garbled(pair[0]), garbled(pair[1]))]),
    "empty-side": (0.05, lambda pair, draw, after: [(pair[0], "")]),
    "identical-sides": (0.05, lambda pair, draw, after: [(pair[0], pair[0])]),
    "headings": (0.05, lambda pair, draw, after: [pair, label(draw)]),
    "swapped-columns": (0.08, lambda pair, draw, after: [pair[::-1]]),
    "wrong-language": (0.05, lambda pair, draw, after: [(pair[0], after[0][0])]),
    "length-ratio": (0.05, lambda pair, draw, after: [(pair[0], " ".join([pair[1], *(p[1] for p in after)]))]),
    "duplicates": (0.02, lambda pair, draw, after: [pair] * 20),
}


def dirty(pairs: list[Pair], rule: RuleName) -> list[Pair]:
    """The pairs with the dirt of that rule in some of them."""
    draw, (share, spoil) = random.Random(8), DIRT[rule]
    made = []
    for place, pair in enumerate(pairs):
        after = [pairs[(place + i) % len(pairs)] for i in range(1, 7)]
        made += spoil(pair, draw, after) if draw.random() < share else [pair]
    return made


def main() -> None:
    options = tyro.cli(Options)
    parts = read_parts(str(options.folder.resolve()), options.source, options.target)
    pairs = {name: list(part.pairs) for name, part in parts.items()}
    random.Random(1).shuffle(pairs["train"])
    clean = pairs["train"][: options.pairs]
    results: dict[str, tuple[float, float]] = {}  # test BLEU and valid perplexity, which varies less by chance
    with tempfile.TemporaryDirectory() as work:

        def train(what: str, train_pairs: list[Pair], *more: str) -> None:
            for name, texts in {**pairs, "train": train_pairs}.items():
                for side, language in enumerate((options.source, options.target)):
                    text = "".join(pair[side] + "\n" for pair in texts)
                    (Path(work) / f"{name}.{language}").write_text(text, encoding="utf-8")
            command = [sys.executable, str(ROOT / "train.py"), "demo", "--data", work, "--name", "trial", "--overwrite"]
            languages = ["--source", options.source, "--target", options.target, "--steps", str(options.steps)]
            args = [*command, *languages, *MODEL.split(), *TRAINING.split(), *more]
            subprocess.run(args, cwd=work, check=True, stderr=subprocess.DEVNULL)
            metrics = json.loads((Path(work) / "weights" / "trial" / "metrics.json").read_text(encoding="utf-8"))
            bleu, perplexity = metrics["test"]["bleu"], metrics["best"]["perplexity"]
            results[what] = bleu, perplexity
            print(
                f"{what:<28} {metrics['data']['trained on']:>8,} pairs  test BLEU {bleu:.2f}  valid perplexity "
                f"{perplexity:.2f}  {metrics['seconds']:.0f} s  {metrics['hardware']}",
                flush=True,
            )

        train("clean, no rule", clean, "--skip-rules", *RULES)
        train("clean, another seed", clean, "--skip-rules", *RULES, "--seed", "2")
        train("clean, all rules", clean)
        for rule in options.rules or DIRT:
            spoiled = dirty(clean, rule)
            train(f"{rule}, rule off", spoiled, "--skip-rules", *RULES)
            train(f"{rule}, rule on", spoiled, "--skip-rules", *(name for name in RULES if name != rule))
            (off, off_perplexity), (on, on_perplexity) = (results[f"{rule}, rule {state}"] for state in ("off", "on"))
            gain = f"{on - off:+.2f} BLEU, {on_perplexity - off_perplexity:+.2f} perplexity"
            print(f"{rule:<28} the rule gives {gain}", flush=True)


if __name__ == "__main__":
    main()
