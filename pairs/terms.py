"""Terms in training sources: a few words give way to their translations, so that a model learns to obey a glossary.

No dictionary is needed. Words of two languages belong together if they often occur in the same pairs, and those that do
in a pair at hand are its terms (Dinu et al. 2019, arXiv 1906.01105, who take them from dictionaries and alignments).
`tapis.glossary.with_terms` writes them into a source. Some are given in another form than the target has, so that the
model learns to inflect a term where the sentence asks for it (after Bergmanis and Pinnis 2021, arXiv 2101.10035, who
give lemmas). Some are invented words, in the source and in the target: they can be copied, but not guessed.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapis.glossary import Placed, Term, begin_alike, with_terms
from tapis.text.lines import DataError, Pair
from tapis.text.tokenizer import Tokenizer
from tapis.text.words import LETTERS

if TYPE_CHECKING:
    from pairs.corpus import Corpus

TokenIds = Sequence[int] | NDArray[np.integer[Any]]  # of a sentence

LEAST_LETTERS = 3  # of a word that may be a term
LEAST_PAIRS = 2  # that have both of two words that belong together
LEAST_DICE = 0.1
LONGEST_TERM = 3  # words of a source
LONGEST_TRANSLATION = 5  # words
MOST_TERMS = 3  # of a source
INVENTED = 0.25  # share of the terms that are invented words
MIXED_UP = 0.5  # share of these whose letters are mixed up
OTHER_FORM = 0.25  # share of the terms of one word that are given in another form, where there is one
SAMPLE = 50_000  # pairs of a language pair that its lexicon is learned from
MOST_WORDS = 60  # of a side, from its start

_WORD = re.compile(LETTERS)
_HIGH = 1 << 32


class Span(NamedTuple):
    """A term of a pair: the words from start on, before end, on either side."""

    source_start: int
    source_end: int
    target_start: int
    target_end: int


class Lexicon(NamedTuple):
    """Which words of a source and a target language belong together."""

    dice: Mapping[str, Mapping[str, float]]
    """For each word of the source language and each of the target language, both in small letters: 2 · pairs that have
    both, divided by the sum of the pairs that have the one and of those that have the other (Dice 1945)"""
    usual_case: Mapping[str, str]
    """How words of the target language are usually written within a sentence, by their small letters"""
    words: Sequence[str] = ()
    """The values of `usual_case`, by number"""

    @classmethod
    def of(cls, pairs: Iterable[Pair]) -> "Lexicon":
        """Learn from pairs. Memory grows with the number of pairs of words that occur together."""
        numbers: tuple[dict[str, int], dict[str, int]] = ({}, {})
        counts: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
        forms: defaultdict[str, Counter[str]] = defaultdict(Counter)
        together = []
        for pair in pairs:
            words_of_sides = [_WORD.findall(side)[:MOST_WORDS] for side in pair]
            for word in words_of_sides[1][1:]:
                forms[word.lower()][word] += 1
            of_sides = []
            for words, numbers_of_side, counts_of_side in zip(words_of_sides, numbers, counts, strict=True):
                found = {word.lower() for word in words if len(word) >= LEAST_LETTERS}
                ids = sorted(numbers_of_side.setdefault(word, len(numbers_of_side)) for word in found)
                counts_of_side.update(ids)
                of_sides.append(np.array(ids, dtype=np.int64))
            together.append((of_sides[0][:, None] * _HIGH + of_sides[1]).ravel())
        both, n_both = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *together]), return_counts=True)

        names = tuple(list(one) for one in numbers)
        dice: defaultdict[str, dict[str, float]] = defaultdict(dict)
        is_often = n_both >= LEAST_PAIRS
        for key, n in zip(both[is_often].tolist(), n_both[is_often].tolist(), strict=True):
            source, target = divmod(key, _HIGH)
            share = 2 * n / (counts[0][source] + counts[1][target])
            if share >= LEAST_DICE:
                dice[names[0][source]][names[1][target]] = share
        usual = {word: max(sorted(of_word), key=of_word.__getitem__) for word, of_word in forms.items()}
        return cls(dict(dice), usual, list(usual.values()))

    def spans(self, source_words: Sequence[str], target_words: Sequence[str]) -> list[Span]:
        """Return the terms that a pair may have: words that belong together, and the phrases that they make.

        Two words are aligned if each belongs to the other more than to any other word of the pair. A phrase begins and
        ends with aligned words, and none of its words is aligned with one outside it (Koehn et al. 2003, section 4.1).
        """
        sources, targets = ([word.lower() for word in words] for words in (source_words, target_words))
        shares = np.array([[self.dice.get(one, {}).get(other, 0.0) for other in targets] for one in sources])
        if not shares.size or not shares.any():
            return []
        best = shares.argmax(axis=1)
        target_of = {i: int(j) for i, j in enumerate(best) if shares[i, j] > 0 and shares[:, j].argmax() == i}
        source_of = {j: i for i, j in target_of.items()}
        found = []
        for start in target_of:
            for end in range(start + 1, start + 1 + LONGEST_TERM):
                if end - 1 not in target_of:
                    continue
                inside = [target_of[i] for i in range(start, end) if i in target_of]
                low, high = min(inside), max(inside) + 1
                is_whole = all(start <= source_of[j] < end for j in range(low, high) if j in source_of)
                if is_whole and high - low <= LONGEST_TRANSLATION:
                    found.append(Span(start, end, low, high))
        return found

    def other_forms(self, source_word: str, target_word: str) -> list[str]:
        """Return other forms of a target word that belong to the same source word: words that begin like it."""
        word = target_word.lower()
        others = self.dice.get(source_word.lower(), {})
        found = [other for other in others if other != word and begin_alike(word, other)]
        return sorted(self.usual_case.get(other, other) for other in found)


def lexicons(corpus: "Corpus") -> list[Lexicon]:
    """Return the lexicon of each origin of a corpus: origins of one language pair share it.

    Raises DataError if no words belong together: there are too few pairs, or no spaces between words.
    """
    origins = corpus.train.origins()
    of_direction: dict[tuple[str, str], Lexicon] = {}
    for direction in dict.fromkeys((origin.source, origin.target) for origin in corpus.origins):
        numbers = [
            number
            for number, origin in enumerate(corpus.origins)
            if (origin.source, origin.target) == direction and not origin.is_monolingual
        ]
        rows = np.flatnonzero(np.isin(origins, numbers))
        sample = rows[:: max(1, -(-len(rows) // SAMPLE))]
        lexicon = of_direction[direction] = Lexicon.of(corpus.train.select(sample))
        if not lexicon.dice:
            raise DataError(
                f"--terms: no words of {direction[0]} and {direction[1]} belong together; "
                "it needs more pairs, and languages with spaces between words"
            )
    return [of_direction[origin.source, origin.target] for origin in corpus.origins]


def terms_of(source: str, target: str, lexicon: Lexicon, random: np.random.Generator) -> tuple[list[Placed], str]:
    """Return one to three terms of a pair, drawn at random, that do not overlap; none where no words belong together.

    Returns also the target, in which invented words have taken the place of some terms. random is advanced.
    """
    source_words, target_words = (list(_WORD.finditer(side)) for side in (source, target))
    spans = lexicon.spans([word.group() for word in source_words], [word.group() for word in target_words])
    if not spans:
        return [], target
    n_terms = int(random.integers(1, MOST_TERMS + 1))
    chosen: list[Span] = []
    for i in random.permutation(len(spans)).tolist():
        span = spans[i]
        if len(chosen) < n_terms and not any(overlap(span, other) for other in chosen):
            chosen.append(span)

    terms = []
    changes = []  # of the target
    for span in sorted(chosen):
        start, end = source_words[span.source_start].start(), source_words[span.source_end - 1].end()
        first, last = target_words[span.target_start], target_words[span.target_end - 1]
        text = target[first.start() : last.end()]
        is_first = span.target_start == 0
        if is_first:  # as a glossary has it, without the capital of a sentence
            usual = lexicon.usual_case.get(first.group().lower(), first.group())
            text = usual + text[len(first.group()) :]
        is_word = span.source_end - span.source_start == span.target_end - span.target_start == 1
        if random.random() < INVENTED and lexicon.words:
            text = invented(text, lexicon, random)
            said = text[:1].upper() + text[1:] if is_first else text
            changes.append((first.start(), last.end(), said))
        elif is_word and random.random() < OTHER_FORM:
            others = lexicon.other_forms(source_words[span.source_start].group(), text)
            text = others[int(random.integers(len(others)))] if others else text
        terms.append(Placed(start, end, Term(source[start:end], text)))
    for start, end, said in sorted(changes, reverse=True):
        target = target[:start] + said + target[end:]
    return terms, target


def overlap(one: Span, other: Span) -> bool:
    """Return whether two terms of a pair have words in common."""
    is_apart = one.source_end <= other.source_start or other.source_end <= one.source_start
    return not is_apart or not (one.target_end <= other.target_start or other.target_end <= one.target_start)


def invented(text: str, lexicon: Lexicon, random: np.random.Generator) -> str:
    """Return a word that is not the translation of anything: a word of the target language, half of them mixed up.

    It begins with a capital if the text does.
    """
    words = lexicon.words
    word = words[int(random.integers(len(words)))]
    if random.random() < MIXED_UP:
        word = "".join(word[i] for i in random.permutation(len(word)).tolist()).lower()
    return word[:1].upper() + word[1:] if text[:1].isupper() else word[:1].lower() + word[1:]


def annotate_rows(
    sources: Sequence[TokenIds],
    targets: Sequence[TokenIds],
    lexicons_of_rows: Sequence[Lexicon],
    tokenizer: Tokenizer,
    share: float,
    random: np.random.Generator,
) -> tuple[list[TokenIds], list[TokenIds]]:
    """Write terms into sources, each with the probability share.

    Returns the new ids of each source, after the tags that it began with, and of each target, in which some terms are
    invented words. random is advanced.
    """
    chosen = np.flatnonzero(random.random(len(sources)) < share).tolist()
    ids_of_chosen = [[[int(token) for token in side[row]] for row in chosen] for side in (sources, targets)]
    texts = [tokenizer.decode(ids) for ids in ids_of_chosen]  # without tags
    new_sources, new_targets = list(sources), list(targets)
    for row, ids, source, target in zip(chosen, ids_of_chosen[0], *texts, strict=True):
        terms, said = terms_of(source, target, lexicons_of_rows[row], random)
        if terms:
            tags = [token for token in ids if token < tokenizer.first_text_id]
            new_sources[row] = [*tags, *with_terms(source, terms, tokenizer)]
            if said != target:
                new_targets[row] = tokenizer.encode([said])[0]
    return new_sources, new_targets
