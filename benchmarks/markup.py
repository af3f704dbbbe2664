"""Sentences with random markup: whether it comes out well formed and whole, and what it costs in BLEU and in time.

    python benchmarks/markup.py RUN SOURCE REFERENCE

Each line has one to three sentences of the file SOURCE, and tags around random runs of their words: pairs within
pairs, beside each other, across the border of two sentences, and <br> anywhere. A pair must stay within the pair that
it was in. BLEU is that of the lines without their tags, beside that of the same lines translated without any.
"""

import random
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import tyro

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from as_typed import RunAndPairs  # noqa: E402

from decoding.translator import Translator  # noqa: E402
from tapis.scoring import score  # noqa: E402
from tapis.text.lines import lines  # noqa: E402


@dataclass(frozen=True)
class Options(RunAndPairs):
    """Translate sentences with random markup."""

    rounds: int = 3
    """Turns of the lines with and without markup"""


def marked_up(words: list[str], draw: random.Random) -> tuple[str, dict[str, str]]:
    """Return the words with tags, each with a name of its own, and the name of the tag around each."""
    parents: dict[str, str] = {}

    def content(start: int, end: int, around: str, depth: int) -> list[str]:
        parts: list[str] = []
        while start < end:
            last = draw.randint(start + 1, end)
            if depth < 4 and draw.random() < 0.3:
                name = f"t{len(parents)}"
                parents[name] = around
                parts.append(f"<{name}>{' '.join(content(start, last, name, depth + 1))}</{name}>")
            else:
                parts.append(" ".join(words[start:last]))
            if draw.random() < 0.05:
                parts.append("<br>")
            start = last
        return parts

    return " ".join(content(0, len(words), "", 0)), parents


def tags_of(line: str) -> dict[str, str] | None:
    """Return the name of the tag around each; None if the line is not well formed."""
    around, parents = [""], {}
    for slash, name in re.findall(r"<(/?)(t\d+)>", line):
        if not slash:
            parents[name] = around[-1]
            around.append(name)
        elif around.pop() != name:
            return None
    return parents if around == [""] else None


def main() -> None:
    options = tyro.cli(Options)
    draw = random.Random(1)
    sources, references = list(lines(options.source)), list(lines(options.reference))
    plain, tagged, expected, joined_references = [], [], [], []
    start = 0
    while start < len(sources):
        end = start + draw.randint(1, 3)
        text = " ".join(sources[start:end])
        line, parents = marked_up(text.split(), draw)
        plain.append(text)
        tagged.append(line)
        expected.append((parents, line.count("<br>")))
        joined_references.append(" ".join(references[start:end]))
        start = end

    translator = Translator.load(options.run).towards(options.target)
    seconds: dict[str, list[float]] = {"plain": [], "tagged": []}
    results: dict[str, list[str]] = {}
    for _ in range(options.rounds):
        for name, given in (("plain", plain), ("tagged", tagged)):
            begin = time.perf_counter()
            results[name] = [ranked[0].text for ranked in translator.text(given, markup="html")]
            seconds[name].append(time.perf_counter() - begin)

    n_whole = sum(
        (tags_of(line), line.count("<br>")) == wanted for line, wanted in zip(results["tagged"], expected, strict=True)
    )
    without_tags = [" ".join(re.sub(r"<[^>]*>", " ", line).split()) for line in results["tagged"]]
    n_tags = sum(len(parents) for parents, _ in expected)
    print(f"{len(plain):,} lines with {n_tags:,} pairs of tags: {n_whole:,} well formed, whole and in the same order")
    for name, texts in (("plain", results["plain"]), ("tagged", without_tags)):
        bleu = score(texts, joined_references, translator.target).bleu
        print(f"{name:<7} BLEU {bleu:.2f}  {min(seconds[name]):.2f} s")


if __name__ == "__main__":
    main()
