r"""Context: whether a model that reads the sentence before chooses pronouns better.

    python benchmarks/context.py OUT --books BOOKS.parquet --sentences FOLDER --minutes 30

English it and they are il, elle, ils or elles in French, by a noun that is often in the sentence before. Two models
learn from the rows of books, which are in their order, and from the sentences of a corpus (FOLDER/train.en,
FOLDER/train.fr), which have nothing before them. One reads each row alone. For the other, half of the rows of books
come after the source of the row before, with a ‖ between the two (Tiedemann and Scherrer 2017, arXiv 1708.05943).

The last --held-out of the books is left out of the training. Of it, rows are scored whose English has it or they, but
neither he nor she, and whose French has exactly one of the four pronouns. A row counts as right if the reference is
more probable than the same with the pronoun in the other gender. Printed is the share of right rows by each model: for
the one with context after the row before, after nothing, and after another row; with the exact p-value of a sign test
against the model without.

The runs are made by train.py in OUT; a run that is there is used again.
"""

import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

import pyarrow.parquet as pq  # noqa: E402
import tyro  # noqa: E402

from tapis.text.lines import Pair, lines  # noqa: E402
from tapis.translator import Translator  # noqa: E402

SEPARATOR = "‖"
OTHER_GENDER = {"il": "elle", "elle": "il", "ils": "elles", "elles": "ils"}
LONGEST = 80  # words of a row: a longer one is not learned from, and not scored


@dataclass(frozen=True)
class Options:
    """Measure what the sentence before does for pronouns."""

    out: Annotated[Path, tyro.conf.Positional]
    """Folder for the data and the runs"""
    books: Path
    """Parquet file of the layout of opus_books, en-fr"""
    sentences: Path
    """Folder with train.en and train.fr"""
    minutes: float = 30
    """Time of each training"""
    held_out: float = 0.3
    """Share of the books that is scored"""
    preset: str = "multi30k"
    """Preset of the trainings"""


def is_usable(pair: Pair) -> bool:
    """Return whether a row is learned from."""
    return all(0 < len(side.split()) <= LONGEST for side in pair)


def with_context(before: str, source: str) -> str:
    """Return a source after the one before it."""
    return f"{before} {SEPARATOR} {source}"


def write_data(folder: Path, rows: Sequence[Pair], options: Options, *, has_context: bool) -> None:
    """Write the training data of one model."""
    draw = random.Random(1)
    sides = [lines(options.sentences / f"train.{language}") for language in ("en", "fr")]
    learned = list(zip(*sides, strict=True))
    for before, pair in zip([("", ""), *rows], rows, strict=False):
        if not is_usable(pair):
            continue
        is_after = draw.random() < 0.5 and is_usable(before)
        learned.append((with_context(before[0], pair[0]) if has_context and is_after else pair[0], pair[1]))
    (folder / "data").mkdir(parents=True)
    table = "".join(json.dumps({"en": source, "fr": target}, ensure_ascii=False) + "\n" for source, target in learned)
    (folder / "data/train.jsonl").write_text(table, encoding="utf-8")


def trained(name: str, rows: Sequence[Pair], options: Options, *, has_context: bool) -> Translator:
    """Return a model, which is trained unless it is there."""
    folder = options.out / name
    metrics = folder / "weights/run/metrics.json"
    if not metrics.exists() or not json.loads(metrics.read_text(encoding="utf-8"))["test"]:  # it was interrupted
        shutil.rmtree(folder, ignore_errors=True)
        write_data(folder, rows, options, has_context=has_context)
        flags = ["--data", "data/train.jsonl", "--source", "en", "--target", "fr", "--minutes", str(options.minutes)]
        subprocess.run(
            [sys.executable, str(ROOT / "train.py"), options.preset, *flags, "--name", "run"],
            cwd=folder,
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
        )
    return Translator.load(folder / "weights/run")


def contrast(pair: Pair) -> str:
    """Return the target with its pronoun in the other gender; nothing if the pair says nothing about a choice."""
    source, target = pair
    words = {word.lower() for word in re.findall(r"\w+", source)}
    pronouns = list(re.finditer(r"\b(ils?|elles?)\b", target, re.IGNORECASE))
    if not words & {"it", "they"} or words & {"he", "she"} or len(pronouns) != 1 or not is_usable(pair):
        return ""
    (found,) = pronouns
    other = OTHER_GENDER[found.group().lower()]
    other = other.capitalize() if found.group()[0].isupper() else other
    return target[: found.start()] + other + target[found.end() :]


def is_right(translator: Translator, sources: Sequence[str], pairs: Sequence[tuple[str, str]]) -> list[bool]:
    """Return for each source whether the first of two targets is more probable."""
    scores = [
        translator.log_probabilities(list(zip(sources, targets, strict=True))) for targets in zip(*pairs, strict=True)
    ]
    return [one[0] > other[0] for one, other in zip(*scores, strict=True)]


def sign_test(one: Sequence[bool], other: Sequence[bool]) -> float:
    """Return the p-value of as many differences between two lists, by chance, or more."""
    gains = sum(a and not b for a, b in zip(one, other, strict=True))
    losses = sum(b and not a for a, b in zip(one, other, strict=True))
    n = gains + losses
    tail = sum(math.comb(n, k) for k in range(max(gains, losses), n + 1)) / 2**n
    return min(1.0, 2 * tail)


def main() -> None:
    options = tyro.cli(Options)
    rows = [(row["en"], row["fr"]) for row in pq.read_table(options.books).column("translation").to_pylist()]
    n_learned = round(len(rows) * (1 - options.held_out))
    learned, held_out = rows[:n_learned], rows[n_learned:]
    places = [i for i in range(1, len(held_out)) if contrast(held_out[i]) and is_usable(held_out[i - 1])]
    sources = [held_out[i][0] for i in places]
    pairs = [(held_out[i][1], contrast(held_out[i])) for i in places]
    before = [held_out[i - 1][0] for i in places]
    other = before[len(before) // 2 :] + before[: len(before) // 2]

    plain = trained("plain", learned, options, has_context=False)
    reading = trained("context", learned, options, has_context=True)
    expected = is_right(plain, sources, pairs)
    print(f"{len(places)} rows with one pronoun", flush=True)
    print(f"without context            {sum(expected) / len(places):.1%} right")
    for name, texts in (
        ("after the row before", [with_context(*one) for one in zip(before, sources, strict=True)]),
        ("after nothing", sources),
        ("after another row", [with_context(*one) for one in zip(other, sources, strict=True)]),
    ):
        found = is_right(reading, texts, pairs)
        print(f"with, {name:<20} {sum(found) / len(places):.1%} right, p = {sign_test(found, expected):.2f}")


if __name__ == "__main__":
    main()
