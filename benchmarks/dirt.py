"""What each kind of dirt in the training pairs costs, and what the cleaning against it gives back, in BLEU.

    python benchmarks/dirt.py FOLDER [--source en --target fr] [--rules swapped-columns …]
    python benchmarks/dirt.py FOLDER --unrelated shuffled half … --shares 0.1 0.3 0.5 --steps 3000

FOLDER has clean train, valid and test files. For each rule, its kind of dirt is put into some of the training pairs at
random, and the same small model is trained twice: without any rule, and with that rule alone. BLEU is of the test part.

With --unrelated, pairs whose sides do not belong together take the place of so many pairs. The model is trained with
all rules, and again with --drop-unrelated. BLEU is the best of the validation part.

Runs on the clean pairs come first: without rules, with another seed, and with all rules or with --drop-unrelated. They
show how far scores differ by chance, and what the cleaning takes from clean pairs.
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
from typing import Annotated, Literal, NamedTuple

import tyro

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from config import RuleName  # noqa: E402
from pairs.cleaning import RULES  # noqa: E402
from pairs.readers import read_parts  # noqa: E402
from pairs.unreadable import Unreadable  # noqa: E402
from tapis.text.lines import Pair  # noqa: E402

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
    unrelated: tuple[Literal["shuffled", "neighbours", "half", "two", "words", "order"], ...] = ()
    """Kinds of pairs that do not belong together, for --drop-unrelated, in place of the rules"""
    shares: tuple[float, ...] = (0.1, 0.3, 0.5)
    """Shares of such pairs"""
    clean: bool = True
    """With --unrelated, train on the clean pairs, too"""
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


def other_words(text: str, others: Sequence[Pair], draw: random.Random) -> str:
    """Return a text in which a third of the words are those of other targets, as in translations of another sense."""
    found = [word for _, target in others for word in target.split()] or [text]
    return " ".join(draw.choice(found) if draw.random() < 1 / 3 else word for word in text.split())


def other_order(text: str, draw: random.Random) -> str:
    """Return a text without a quarter of its words, and with the others in another order, as a poor machine writes."""
    words = [(i + draw.uniform(0, 4), word) for i, word in enumerate(text.split()) if draw.random() > 0.25]
    return " ".join(word for _, word in sorted(words)) or text


# Kinds of pairs that no rule tells from clean ones. Pairs come in random order; for "neighbours" in that of the
# alphabet, where the next pair often begins with the same words.
UNRELATED: dict[str, Dirt] = {
    "shuffled": lambda pair, draw, after: [(pair[0], after[0][1])],
    "neighbours": lambda pair, draw, after: [(pair[0], after[0][1])],
    "half": lambda pair, draw, after: [(pair[0], " ".join(pair[1].split()[: len(pair[1].split()) // 2]) or pair[1])],
    "two": lambda pair, draw, after: [(pair[0], f"{pair[1]} {after[0][1]}")],
    "words": lambda pair, draw, after: [(pair[0], other_words(pair[1], after, draw))],
    "order": lambda pair, draw, after: [(pair[0], other_order(pair[1], draw))],
}


def with_dirt(pairs: list[Pair], share: float, make_dirty: Dirt) -> list[Pair]:
    """Return the pairs with a kind of dirt in a share of them."""
    draw = random.Random(8)
    dirty_pairs = []
    for i, pair in enumerate(pairs):
        after = [pairs[(i + distance) % len(pairs)] for distance in range(1, 7)]
        dirty_pairs += make_dirty(pair, draw, after) if draw.random() < share else [pair]
    return dirty_pairs


# Trainings


class Result(NamedTuple):
    """The scores of one run."""

    bleu: float
    """Of the test part, or the best of the validation part"""
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
    part, scores = ("valid", metrics["best"]) if options.unrelated else ("test", metrics["test"])
    result = Result(scores["bleu"], metrics["best"]["perplexity"])
    n_dropped = f" − {metrics['unrelated']['pairs']:,}" if metrics.get("unrelated") else ""
    print(
        f"{label:<28} {metrics['data']['trained_on']:>8,}{n_dropped} pairs  {part} BLEU {result.bleu:.2f}  "
        f"valid perplexity {result.perplexity:.2f}  {metrics['seconds']:.0f} s  {metrics['hardware']}",
        flush=True,
    )
    return result


def compare_dropping(options: Options, parts: dict[str, list[Pair]], clean: list[Pair], folder: Path) -> None:
    """Train on clean pairs and on unrelated ones, with and without --drop-unrelated, and say how much it gives back."""
    languages = options.source, options.target
    without_dirt: Result | None = None
    if options.clean:
        write_parts(folder, {**parts, "train": clean}, languages)
        without_dirt = train("clean", folder, options)
        train("clean, another seed", folder, options, "--seed", "2")
        train("clean, --drop-unrelated", folder, options, "--drop-unrelated")
    for kind in options.unrelated:
        for share in options.shares:
            pairs = with_dirt(sorted(clean) if kind == "neighbours" else clean, share, UNRELATED[kind])
            write_parts(folder, {**parts, "train": pairs}, languages)
            off = train(f"{share:.0%} {kind}", folder, options)
            on = train(f"{share:.0%} {kind}, dropped", folder, options, "--drop-unrelated")
            if without_dirt and (lost := without_dirt.bleu - off.bleu) > 0:
                regained = f"{(on.bleu - off.bleu) / lost:.0%} of {lost:.2f} BLEU"
                print(f"{share:.0%} {kind:<24} --drop-unrelated gives back {regained}", flush=True)


def main() -> None:
    options = tyro.cli(Options)
    languages = options.source, options.target
    read = read_parts(str(options.folder.resolve()), *languages)
    parts = {name: [row for row in part.rows if not isinstance(row, Unreadable)] for name, part in read.items()}
    random.Random(1).shuffle(parts["train"])
    clean = parts["train"][: options.pairs]

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)

        if options.unrelated:
            compare_dropping(options, parts, clean, folder)
            return

        # The clean pairs.
        write_parts(folder, {**parts, "train": clean}, languages)
        train("clean, no rule", folder, options, "--skip-rules", *RULES)
        train("clean, another seed", folder, options, "--skip-rules", *RULES, "--seed", "2")
        train("clean, all rules", folder, options)

        # Each kind of dirt, without any rule and with its own rule alone.
        for rule in options.rules or DIRT:
            write_parts(folder, {**parts, "train": with_dirt(clean, *DIRT[rule])}, languages)
            others = [name for name in RULES if name != rule]
            off = train(f"{rule}, rule off", folder, options, "--skip-rules", *RULES)
            on = train(f"{rule}, rule on", folder, options, "--skip-rules", *others)
            gain = f"{on.bleu - off.bleu:+.2f} BLEU, {on.perplexity - off.perplexity:+.2f} perplexity"
            print(f"{rule:<28} the rule gives {gain}", flush=True)


if __name__ == "__main__":
    main()
