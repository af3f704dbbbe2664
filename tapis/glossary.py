"""Glossaries: terms whose translations must not vary.

A file has a term of the source language and its translation a line, separated by a tab; empty lines and lines that
begin with # are left out. A term in small letters is found in any letter case, another one only as it is written. Only
whole words are found, of the longest term where several begin.

A model that was trained with --terms reads the translation of a term behind it (`annotate`), and inflects it where the
sentence asks for that. Any other is made to say it as it is written (`phrase_of`, tapis/constrained.py).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from tapis.config import UNK, TapisError, base_language
from tapis.constrained import Borders, Phrase
from tapis.system.terminal import in_one_line
from tapis.text.lines import lines
from tapis.text.sentences import LANGUAGES_WITHOUT_SPACES
from tapis.text.tokenizer import WORD_PREFIX, Tokenizer

MOST_TERMS = 100_000
LONGEST_TERM = 200  # characters
_WORD = re.compile(r"\w+|[^\w\s]")
MOST_OF_A_SENTENCE = 10  # terms that one sentence must say; its others are left to the model


class Term(NamedTuple):
    """A term, and its translation."""

    source: str
    target: str


@dataclass(frozen=True)
class Glossary:
    """Terms by their sources."""

    terms: tuple[Term, ...]

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a file. Raises TapisError, with the number of the line, for what is no glossary."""
        found: dict[str, tuple[Term, int]] = {}
        for number, line in enumerate(lines(file), 1):
            if not line.strip() or line.startswith("#"):
                continue
            cells = [" ".join(cell.split()) for cell in line.split("\t")]
            where = f"{file} line {number:,}"
            if len(cells) < 2 or not all(cells[:2]):
                raise TapisError(
                    f"{where}: a term, a tab and its translation are expected, not {in_one_line(line, 60)!r}"
                )
            term = Term(*cells[:2])
            if max(map(len, term)) > LONGEST_TERM:
                raise TapisError(f"{where}: a term of more than {LONGEST_TERM} characters")
            if len(found) == MOST_TERMS:
                raise TapisError(f"{file} has more than {MOST_TERMS:,} terms")
            other, other_number = found.setdefault(term.source, (term, number))
            if other.target != term.target:
                raise TapisError(
                    f"{where}: {in_one_line(term.source, 60)!r} is {in_one_line(term.target, 60)!r}, "
                    f"but {in_one_line(other.target, 60)!r} in line {other_number:,}: keep one of them"
                )
        if not found:
            raise TapisError(f"{file} has no terms: each line is a term, a tab, and its translation")
        return cls(tuple(term for term, _ in found.values()))

    @cached_property
    def _by_first_word(self) -> dict[str, list[tuple[list[str], Term]]]:
        """The words of each term, in small letters, by the first; longer ones first."""
        found: dict[str, list[tuple[list[str], Term]]] = {}
        for term in self.terms:
            words = _WORD.findall(term.source)
            found.setdefault(words[0].lower(), []).append((words, term))
        for of_word in found.values():
            of_word.sort(key=lambda entry: -len(entry[0]))
        return found

    def terms_in(self, sentence: str) -> list[Term]:
        """Return the terms of a sentence, in order, each as often as it is there; at most MOST_OF_A_SENTENCE."""
        return [term for term, _ in self.places_in(sentence)]

    def places_in(self, sentence: str) -> list[tuple[Term, int]]:
        """Return what `terms_in` returns, each term with the place in the sentence where it ends."""
        matches = list(_WORD.finditer(sentence))
        words = [match.group() for match in matches]
        found: list[tuple[Term, int]] = []
        place = 0
        while place < len(words) and len(found) < MOST_OF_A_SENTENCE:
            length = 1
            for wanted, term in self._by_first_word.get(words[place].lower(), []):
                is_any_case = term.source.islower()
                there = words[place : place + len(wanted)]
                if there == wanted or (is_any_case and [word.lower() for word in there] == wanted):
                    found.append((term, matches[place + len(wanted) - 1].end()))
                    length = len(wanted)
                    break
            place += length
        return found


class Annotation(NamedTuple):
    """The translation of a term, and where in the source the term ends."""

    end: int
    text: str


def annotate(source: str, annotations: Sequence[Annotation], tokenizer: Tokenizer) -> list[int]:
    """Return the token ids of a source in which each term is followed by its translation, between two UNK.

    The annotations are in the order of their places. Text is never encoded as UNK: it has no other meaning.
    """
    ids: list[int] = []
    before, start = WORD_PREFIX, 0
    for end, text in annotations:
        ids += tokenizer.encode_bound(before + source[start:end])
        ids += [UNK, *tokenizer.encode_bound(WORD_PREFIX + text), UNK]
        before, start = "", end
    return ids + tokenizer.encode_bound(before + source[start:])


def missing_terms(terms: Sequence[Term], translation: str) -> list[Term]:
    """Return the terms whose translations a text does not have as whole words, each as often as it is missing."""
    missing = []
    rest = translation
    for term in sorted(terms, key=lambda term: -len(term.target)):
        pattern = rf"(?<!\w){re.escape(term.target)}(?!\w)"
        rest, n_found = re.subn(pattern, " ", rest, count=1)
        if not n_found:
            capital = term.target[:1].upper() + term.target[1:]
            rest, n_found = re.subn(rf"\A\W*{re.escape(capital)}(?!\w)", " ", rest, count=1)
        if not n_found:
            missing.append(term)
    return missing


def phrase_of(term: Term, tokenizer: Tokenizer) -> Phrase:
    """Return what a translation must say for a term."""
    target = term.target
    capital = target[:1].upper() + target[1:]
    ids, ids_at_start = tokenizer.encode([target, capital])
    return Phrase(ids, ids_at_start, tokenizer.encode_bound(target))


def borders_of(tokenizer: Tokenizer, language: str) -> Borders:
    """Return where words begin and end. In languages without spaces, a word may begin anywhere."""
    goes_on, binds = tokenizer.word_borders
    if base_language(language) in LANGUAGES_WITHOUT_SPACES:
        goes_on = np.zeros_like(goes_on)
    return Borders(goes_on, binds)
