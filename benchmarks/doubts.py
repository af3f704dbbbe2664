"""How many wrong translations are marked as doubtful, and how many right ones are.

    python benchmarks/doubts.py RUN SOURCE REFERENCE

SOURCE and REFERENCE are files of sentences as in the run's data. Marked are, in turn: the model's own translations, all
of them and the quarters of the lowest and the highest chrF; its translations of random letters; the references; and
references that were damaged. Printed is the share that has each doubt, and any.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from as_typed import RunAndPairs  # noqa: E402

from decoding.translator import Translator  # noqa: E402
from tapis.doubts import doubts, words  # noqa: E402
from tapis.scoring import sentence_chrf  # noqa: E402
from tapis.text.lines import lines  # noqa: E402
from tapis.translation import DOUBTS  # noqa: E402

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Options(RunAndPairs):
    """Mark right and wrong translations."""

    n: int = 1000
    """How many sentences, the first ones"""


def half(text: str, choose: random.Random) -> str:
    """Return the first half of the words."""
    words = text.split()
    return " ".join(words[: len(words) // 2])


def loop(text: str, choose: random.Random) -> str:
    """Return the first half of the words, the last of them six times."""
    words = text.split()[: max(1, len(text.split()) // 2)]
    return " ".join([*words, *words[-1:] * 5])


def shuffled(text: str, choose: random.Random) -> str:
    """Return the words in any order."""
    words = text.split()
    return " ".join(choose.sample(words, len(words)))


def without_two_words(text: str, choose: random.Random) -> str:
    """Two neighbouring words left out."""
    words = text.split()
    place = choose.randrange(max(1, len(words) - 2))
    return " ".join([*words[:place], *words[place + 2 :]])


def with_a_number(text: str, choose: random.Random) -> str:
    """Return the text behind a number that the source does not have."""
    return f"{choose.randrange(10, 1000)} {text}"


def with_an_invented_word(text: str, choose: random.Random) -> str:
    """Return the longest word with its letters in another order."""
    longest = max(words(text), key=len, default="")
    return text.replace(longest, "".join(choose.sample(longest, len(longest))), 1)


DAMAGES: dict[str, Callable[[str, random.Random], str]] = {
    "cut after half": half,
    "a loop": loop,
    "words shuffled": shuffled,
    "two words left out": without_two_words,
    "another number": with_a_number,
    "an invented word": with_an_invented_word,
}


def main() -> None:
    options = tyro.cli(Options)
    translator = Translator.load(options.run).towards(options.target)
    sources, references = (list(lines(file))[: options.n] for file in (options.source, options.reference))
    print(f"unsure below {translator.unsure_below} nats a token; {'; '.join(DOUBTS)}; any")

    # The model's own translations, without what translate.py repairs
    own = translator(sources)
    chrf = np.array(sentence_chrf(own, references))
    bad, good = np.quantile(chrf, [0.25, 0.75])
    choose = random.Random(1)
    garbage = ["".join(choose.choice(LETTERS) if c.isalpha() else c for c in text) for text in sources]
    show(translator, "own translations", sources, own)
    for label, rows in (("the worst quarter", np.flatnonzero(chrf < bad)), ("the best", np.flatnonzero(chrf > good))):
        show(translator, f"  {label}", [sources[row] for row in rows], [own[row] for row in rows])
    show(translator, "  of random letters", garbage, translator(garbage))

    # References
    show(translator, "references", sources, references)
    show(translator, "  of another sentence", sources, [*references[1:], references[0]])
    show(translator, "  the source itself", sources, sources)
    for label, damage in DAMAGES.items():
        show(translator, f"  {label}", sources, [damage(text, choose) for text in references])


def show(translator: Translator, label: str, sources: Sequence[str], translations: Sequence[str]) -> None:
    """Print the share of translations that has each doubt, and any."""
    found = doubts(translator, sources, translations)
    counts = Counter(doubt for marks in found for doubt in marks)
    shares = [counts[doubt] / len(found) for doubt in DOUBTS]
    print(
        f"{label:<22}" + "".join(f"{share:8.1%}" for share in (*shares, sum(map(bool, found)) / len(found))), flush=True
    )


if __name__ == "__main__":
    main()
