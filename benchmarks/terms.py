"""Terms: how well `--glossary` is obeyed, on terms that references have.

    python benchmarks/terms.py RUN FOLDER/train FOLDER/valid --source en --target de --terms 200

A part is named without its languages: FOLDER/train are FOLDER/train.en and FOLDER/train.de. The glossary is made from
the references, since no person's is at hand. A word of a source and one of its reference are a term if they belong
together in the training part, by the Dice coefficient of the lines that have them, and each is the only word of its
sentence that the other belongs to. Where the part has the source, at least --least-share of the references must have
the translation, as those of a glossary do. Of these terms, --terms are drawn at random. Words are of SHORTEST letters
at least.

With --words others, each term is given the translation of another one, and with --words invented its own with its
letters in the opposite order, which no model has learned; the references are changed so, too. That is what a glossary
has of the names of products.

Printed are, without the glossary and with it: the share of the terms in the sources that the translations have as the
references do, and that of those that they have in this form or another; BLEU (sacreBLEU, 13a) of the sentences with
terms and of those without; and the seconds. Where a reference has another form of a term than the glossary, printed is
how many translations have the form of the reference, by `tapis.glossary.forms_in`.
"""

import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

import sacrebleu  # noqa: E402
import tyro  # noqa: E402

import tapis.terms  # noqa: E402
from tapis.glossary import Glossary, Term, forms_in, missing_terms  # noqa: E402
from tapis.search import Search  # noqa: E402
from tapis.text.lines import lines  # noqa: E402
from tapis.translator import Translator  # noqa: E402

SHORTEST = 4  # letters
LEAST_DICE = 0.1
LEAST_LINES = 2  # of the training part that have both words


@dataclass(frozen=True)
class Options:
    """Measure how a glossary is obeyed."""

    run: Annotated[str, tyro.conf.Positional]
    """Run that translates, in int8"""
    train: Annotated[Path, tyro.conf.Positional]
    """Training part, without its languages"""
    part: Annotated[Path, tyro.conf.Positional]
    """Part to translate, without its languages"""
    source: str = "en"
    """Language to translate from"""
    target: str = "de"
    """Language to translate into"""
    terms: int = 200
    """Terms of the glossary"""
    least_share: float = 0.8
    """Share of the references that have the translation of a term, where the sources have the term"""
    words: Literal["own", "others", "invented"] = "own"
    """Translations of the terms: their own, those of others, or invented"""
    expected: float = tapis.terms.EXPECTED_TERM
    """`tapis.terms.EXPECTED_TERM`: with 0, terms are always put in place; with 1e9, always searched for"""
    beam: int = 5
    """Beam size"""
    seed: int = 1
    """Random seed of the choice of terms"""


def words_of(text: str) -> set[str]:
    """Return the words of a text that may be terms."""
    return {word for word in re.findall(r"[^\W\d_]+", text) if len(word) >= SHORTEST}


def dice(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], float]:
    """Return the Dice coefficient of each pair of words that occur in one pair of lines."""
    source_counts: Counter[str] = Counter()
    target_counts: Counter[str] = Counter()
    both: Counter[tuple[str, str]] = Counter()
    for source, target in pairs:
        source_words, target_words = words_of(source), words_of(target)
        source_counts.update(source_words)
        target_counts.update(target_words)
        both.update((one, other) for one in source_words for other in target_words)
    return {
        (one, other): 2 * n / (source_counts[one] + target_counts[other])
        for (one, other), n in both.items()
        if n >= LEAST_LINES
    }


def terms_of(source: str, reference: str, together: dict[tuple[str, str], float]) -> list[Term]:
    """Return the words of a sentence and its reference that belong together, each to one other."""
    found = [
        Term(one, other)
        for one in sorted(words_of(source))
        for other in sorted(words_of(reference))
        if together.get((one, other), 0.0) >= LEAST_DICE
    ]
    sources, targets = Counter(term.source for term in found), Counter(term.target for term in found)
    return [term for term in found if sources[term.source] == targets[term.target] == 1]


def choose(sources: Sequence[str], references: Sequence[str], options: Options) -> Glossary:
    """Return a glossary of terms that references have."""
    sides = (list(lines(Path(f"{options.train}.{language}"))) for language in (options.source, options.target))
    together = dice(zip(*sides, strict=True))
    translations: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for source, reference in zip(sources, references, strict=True):
        for term in terms_of(source, reference, together):
            translations[term.source][term.target] += 1
    counts = Counter(word for source in sources for word in words_of(source))
    usual = {source: found.most_common(1)[0] for source, found in translations.items()}
    terms = [Term(source, target) for source, (target, n) in usual.items() if n >= options.least_share * counts[source]]
    return Glossary(tuple(random.Random(options.seed).sample(sorted(terms), min(options.terms, len(terms)))))


def with_other_words(glossary: Glossary, words: str) -> Glossary:
    """Return a glossary whose terms have other translations, as --words says. Capitals stay capitals."""

    def reversed_letters(term: Term) -> str:
        text = term.target[::-1].lower()
        return text.capitalize() if term.target[0].isupper() else text

    if words == "own":
        return glossary
    if words == "invented":
        return Glossary(tuple(term._replace(target=reversed_letters(term)) for term in glossary.terms))
    changed: list[Term] = []
    for is_capital in (True, False):
        alike = [term for term in glossary.terms if term.target[0].isupper() == is_capital]
        changed += [
            term._replace(target=other.target) for term, other in zip(alike, [*alike[1:], *alike[:1]], strict=True)
        ]
    return Glossary(tuple(changed))


def main() -> None:
    options = tyro.cli(Options)
    tapis.terms.EXPECTED_TERM = options.expected
    sources, references = (list(lines(Path(f"{options.part}.{one}"))) for one in (options.source, options.target))
    own = choose(sources, references, options)
    glossary = with_other_words(own, options.words)
    target_of = {term.source: term.target for term in glossary.terms}
    # A term is given where the reference has its translation: elsewhere the translator chose another word.
    given = []
    for i, source in enumerate(sources):
        terms = [term for term in own.terms_in(source) if not missing_terms([term], references[i])]
        given.append([term._replace(target=target_of[term.source]) for term in terms])
        for term in terms:
            pattern = rf"(?<!\w){re.escape(term.target)}(?!\w)"
            references[i] = re.sub(pattern, target_of[term.source], references[i], count=1)
    with_terms = [i for i, terms in enumerate(given) if terms]
    without = [i for i, terms in enumerate(given) if not glossary.terms_in(sources[i])]
    n_given = sum(map(len, given))
    # Where the reference has one other form of a term, the translation should have that one.
    inflected = [
        (i, term, forms[0])
        for i, (source, reference) in enumerate(zip(sources, references, strict=True))
        for term in glossary.terms_in(source)
        if len(forms := forms_in(term.target, reference)) == 1 and term.target.lower() != forms[0].lower()
    ]
    print(f"{len(glossary.terms)} terms, {n_given} times in {len(with_terms)} of {len(sources)} sentences")
    translator = Translator.load(options.run)
    for name, one in (("without", translator), ("with", translator.with_glossary(glossary))):
        start = time.perf_counter()
        translations = one([sources[i] for i in (*with_terms, *without)], Search(options.beam))
        seconds = time.perf_counter() - start
        of_terms, others = translations[: len(with_terms)], translations[len(with_terms) :]
        n_missing = sum(len(missing_terms(given[i], text)) for i, text in zip(with_terms, of_terms, strict=True))
        n_said = sum(
            bool(forms_in(term.target, text)) for i, text in zip(with_terms, of_terms, strict=True) for term in given[i]
        )
        others_of_terms = one([sources[i] for i, _, _ in inflected], Search(options.beam))
        n_as_reference = sum(
            form.lower() in map(str.lower, forms_in(term.target, text))
            for (_, term, form), text in zip(inflected, others_of_terms, strict=True)
        )
        scores = [
            sacrebleu.corpus_bleu(texts, [[references[i] for i in rows]]).score
            for texts, rows in ((of_terms, with_terms), (others, without))
        ]
        print(
            f"{name:<8} terms said {1 - n_missing / n_given:6.1%}, in any form {n_said / n_given:6.1%}, "
            f"inflected {n_as_reference} of {len(inflected)}, BLEU with terms {scores[0]:.1f}, "
            f"without terms {scores[1]:.1f}, {seconds:.1f} s"
        )


if __name__ == "__main__":
    main()
