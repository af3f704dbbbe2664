"""How well a run translates text as people type it: capitals, missing full stops, typing errors, tags, links, spaces.

    python benchmarks/as_typed.py RUN SOURCE REFERENCE

SOURCE and REFERENCE are files of sentences as in the run's data. Each variant changes the sources, and some the
references. For each, BLEU of translations by greedy search, the share of lines whose tag, link or numbers came back
whole, and the share of translations that repeat themselves (up to four words three times in a row) or reach the length
limit; once with the sentences given to the model as they are, and once as `translate.py` gives them
(tapis/typed_text.py).
"""

import random
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from decoding.translator import Translator  # noqa: E402
from tapis.doubts import numbers  # noqa: E402
from tapis.scoring import score  # noqa: E402
from tapis.text.lines import lines  # noqa: E402
from tapis.typed_text import translate_lines  # noqa: E402

LINKS = (
    "https://example.org/a?b=1",
    "jane@example.org",
    "%s",
    "{name}",
    "$HOME",
    "1,234.50",
    "2026-11-23",
    "😀",
    "#42",
)
NUMBERS = ("12", "250", "1,250", "3.75", "10:45", "24/12/2025", "1998", "1,000,000")
_NUMBER_WORD = re.compile(r"\b(?:two|three|four|five|six|several|many|some)\b", re.IGNORECASE)
Line = tuple[str, str]


@dataclass(frozen=True)
class RunAndPairs:
    """A run, and sentences with their translations."""

    run: Annotated[str, tyro.conf.Positional]
    """The run"""
    source: Annotated[Path, tyro.conf.Positional]
    """Sentences to translate"""
    reference: Annotated[Path, tyro.conf.Positional]
    """Their translations"""
    target: str = ""
    """Language to translate into, if the run has several"""


class Options(RunAndPairs):
    """Translate variants of a test set."""


def with_typos(text: str, choose: random.Random) -> str:
    """Exchange two neighbouring letters in one of eight words of four letters or more."""

    def typed(match: re.Match[str]) -> str:
        word, place = match.group(), choose.randrange(1, len(match.group()) - 1)
        changed = word[:place] + word[place + 1] + word[place] + word[place + 2 :]
        return changed if choose.random() < 1 / 8 else word

    return re.sub(r"[^\W\d_]{4,}", typed, text)


def with_tag(text: str, choose: random.Random) -> str:
    """Put one word into <b> and </b>."""
    words = text.split(" ")
    place = choose.randrange(len(words))
    words[place] = f"<b>{words[place]}</b>"
    return " ".join(words)


def with_number(text: str, choose: random.Random) -> str:
    """Put a number in the place of a number word; after the sentence, if it has none. The reference is not changed."""
    number = choose.choice(NUMBERS)
    changed = _NUMBER_WORD.sub(number, text, count=1)
    return changed if changed != text else f"{text.rstrip('.')} ({number})."


VARIANTS: dict[str, Callable[[Line, int, random.Random], Line]] = {
    "plain": lambda line, i, choose: line,
    "upper": lambda line, i, choose: (line[0].upper(), line[1].upper()),
    "lower": lambda line, i, choose: (line[0].lower(), line[1]),
    "title": lambda line, i, choose: (line[0].title(), line[1]),
    "no full stop": lambda line, i, choose: (line[0].rstrip(".!?"), line[1]),
    "spaces": lambda line, i, choose: (line[0].replace(" ", "\u00a0", 1).replace(" ", "  ", 2), line[1]),
    "typos": lambda line, i, choose: (with_typos(line[0], choose), line[1]),
    "tags": lambda line, i, choose: (with_tag(line[0], choose), line[1]),
    "numbers": lambda line, i, choose: (with_number(line[0], choose), line[1]),
    "links": lambda line, i, choose: (f"{line[0]} - {LINKS[i % len(LINKS)]}", f"{line[1]} - {LINKS[i % len(LINKS)]}"),
}


def main() -> None:
    options = tyro.cli(Options)
    translator = Translator.load(options.run).towards(options.target)
    plain = list(zip(lines(options.source), lines(options.reference), strict=True))
    for name, change in VARIANTS.items():
        choose = random.Random(1)
        changed = [change(line, i, choose) for i, line in enumerate(plain)]
        sources, references = map(list, zip(*changed, strict=True))
        for way, translations in (
            ("by the model alone", translator(sources)),
            ("as translate.py does", [ranked[0].text for ranked in translate_lines(translator, sources)]),
        ):
            without_tags = [re.sub("</?b>", "", text) for text in translations]
            bleu = score(without_tags, references, translator.target).bleu
            n_whole = sum(
                is_whole(name, i, source, text)
                for i, (source, text) in enumerate(zip(sources, translations, strict=True))
            )
            n_loops = sum(map(repeats_itself, translations))
            limits = [translator.lengths.limit(len(ids)) for ids in translator.source_ids(sources)]
            lengths = map(len, translator.tokenizer.encode(translations))
            n_long = sum(length >= limit for length, limit in zip(lengths, limits, strict=True))
            shares = "  ".join(f"{n / len(plain):6.1%}" for n in (n_whole, n_loops, n_long))
            print(f"{name:<13} {way:<21} BLEU {bleu:5.1f}  whole, loops, at the limit: {shares}", flush=True)


def is_whole(variant: str, i: int, source: str, translation: str) -> bool:
    """Whether the tag, the link or the numbers of a line are in its translation once; of other variants, always."""
    if variant == "numbers":
        return numbers(translation) == numbers(source)
    if variant == "tags":
        return (
            translation.count("<b>") == translation.count("</b>") == 1
            and re.search("<b>.+</b>", translation) is not None
        )
    return variant != "links" or translation.count(LINKS[i % len(LINKS)]) == 1


def repeats_itself(text: str) -> bool:
    """Return whether up to four words come three times in a row."""
    return re.search(r"(?:^|\s)((?:\S+\s+){0,3}\S+)(?:\s+\1){2}(?:\s|$)", text) is not None


if __name__ == "__main__":
    main()
