r"""Where translations lose BLEU: by the lengths of the sentences, and by how often training saw their words.

    python benchmarks/lost_points.py FOLDER/train FOLDER/valid OUT/preset/1/multi30k-valid.txt \
        OTHER/test OUT/preset/1/flickr2018-test.txt --source en --target de

The training part and each set are named without their language: FOLDER/train are FOLDER/train.en and FOLDER/train.de.
Behind each set comes the file of its translations. Words are sacreBLEU's tokens, in lower case.

The first table has the sentences of each set by kind: their number and their BLEU. The second has the words of the
references by how often training saw them: their share, and how many of them the translations have, each as often as the
reference has it. Punctuation is left out there.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import tyro
from sacrebleu.metrics.bleu import BLEU

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from recipes import bleu_of, counts_of  # noqa: E402

from tapis.scoring import bleu_tokenizer  # noqa: E402
from tapis.text.lines import lines  # noqa: E402

RARE = 5  # times that training has a word, at most
FREQUENCIES = ((0, 0), (1, 5), (6, 50), (51, 500), (501, 10**9))
LENGTHS = ((1, 9), (10, 12), (13, 16), (17, 10**9))  # of source sentences in words


@dataclass(frozen=True)
class Options:
    """Where translations lose BLEU, by the sentences' lengths and by how often training saw their words."""

    train: Annotated[Path, tyro.conf.Positional]
    """The training part, without its languages"""
    sets: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Sets, without their languages, each followed by the file of its translations"""
    source: str = "en"
    """Language translated from"""
    target: str = "de"
    """Language translated into"""


class Sentence(NamedTuple):
    """A sentence of a set, as words in lower case."""

    source: list[str]
    reference: list[str]
    hypothesis: list[str]


def words_of(texts: Iterable[str], language: str) -> list[list[str]]:
    """Return the tokens of each text in lower case."""
    tokenize = BLEU(tokenize=bleu_tokenizer(language)).tokenizer
    return [tokenize(text.lower()).split() for text in texts]


def frequencies(path: Path, language: str) -> Counter[str]:
    """Return how often training has each word."""
    return Counter(word for words in words_of(lines(path), language) for word in words)


def kinds(seen: Counter[str]) -> dict[str, Callable[[Sentence], bool]]:
    """Return the kinds of sentences by name. seen has how often training has each source word."""

    def has(low: int, high: int) -> Callable[[Sentence], bool]:
        return lambda sentence: any(low <= seen[word] <= high for word in sentence.source)

    def is_long(low: int, high: int) -> Callable[[Sentence], bool]:
        return lambda sentence: low <= len(sentence.source) <= high

    by_length = {f"sources of {name_of(*bounds)} words": is_long(*bounds) for bounds in LENGTHS}
    return {
        "all": lambda sentence: True,
        "a source word is new": has(0, 0),
        f"none is, one was seen {RARE} times or less": lambda s: has(1, RARE)(s) and not has(0, 0)(s),
        f"all were seen more than {RARE} times": lambda s: not has(0, RARE)(s),
        **by_length,
    }


def name_of(low: int, high: int) -> str:
    """Return a range of numbers in words."""
    return f"{low} or more" if high >= 10**9 else f"{low} to {high}" if low < high else str(low)


def recall(sentences: Sequence[Sentence], seen: Counter[str], low: int, high: int) -> tuple[float, float]:
    """Return the share of the references' words that training saw so often, and of those, how many are translated."""
    n_words = n_of_these = n_found = 0
    for sentence in sentences:
        left = Counter(sentence.hypothesis)
        for word in sentence.reference:
            if any(map(str.isalnum, word)):
                n_words += 1
                if low <= seen[word] <= high:
                    n_of_these += 1
                    n_found += left[word] > 0
                left[word] -= 1
    return n_of_these / max(1, n_words), n_found / max(1, n_of_these)


def row(cells: Iterable[str]) -> str:
    """Return a row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def main() -> None:
    options = tyro.cli(Options)
    if len(options.sets) % 2:
        sys.exit("behind each set comes the file of its translations")
    sets = {}
    for prefix, file in zip(options.sets[::2], options.sets[1::2], strict=True):
        texts = [list(lines(Path(f"{prefix}.{side}"))) for side in (options.source, options.target)]
        hypotheses = list(lines(file))
        counts = counts_of(hypotheses, texts[1], options.target)
        sides = zip(texts, (options.source, options.target), strict=True)
        words = [*(words_of(side, language) for side, language in sides), words_of(hypotheses, options.target)]
        sentences = [Sentence(*parts) for parts in zip(*words, strict=True)]
        sets[f"{prefix.parent.name} {prefix.name}"] = sentences, counts

    seen_source = frequencies(Path(f"{options.train}.{options.source}"), options.source)
    seen_target = frequencies(Path(f"{options.train}.{options.target}"), options.target)
    print(row(["sentences", *(f"{name}: share | BLEU" for name in sets)]))
    print(row(["---"] * (1 + 2 * len(sets))))
    for kind, belongs in kinds(seen_source).items():
        cells = []
        for sentences, counts in sets.values():
            chosen = np.array([belongs(sentence) for sentence in sentences])
            bleu = f"{bleu_of(counts[chosen].sum(axis=0)):.1f}" if chosen.any() else "–"
            cells += [f"{chosen.mean():.1%}", bleu]
        print(row([kind, *cells]))

    print()
    print(
        row(["words of the references, by how often training has them", *(f"{name}: share | found" for name in sets)])
    )
    print(row(["---"] * (1 + 2 * len(sets))))
    for bounds in FREQUENCIES:
        cells = []
        for sentences, _ in sets.values():
            cells += [f"{part:.1%}" for part in recall(sentences, seen_target, *bounds)]
        print(row([name_of(*bounds), *cells]))


if __name__ == "__main__":
    main()
