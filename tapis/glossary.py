"""Glossaries: terms whose translations must not vary.

A file has a term of the source language and its translation a line, separated by a tab; empty lines and lines that
begin with # are left out. A term in small letters is found in any letter case, but not in a word with a hyphen, such as
woman-like; another one only as it is written. Only whole words are found, except in scripts without spaces, and none
before n't. Where several terms begin at one place, the longest is found; of turkey and Turkey, the one that is written
so.

A model that was trained with --terms reads the translation of a term in the place of it (`with_terms`), and inflects it
where the sentence asks for that. Where a translation lacks a term after all, or was made by any other model, it is
changed (tapis/terms.py).
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

from tapis.config import UNK, TapisError
from tapis.doubts import words
from tapis.system.terminal import in_one_line
from tapis.text.languages import MAX_MARKS, repair
from tapis.text.lines import lines
from tapis.text.tokenizer import WORD_PREFIX, Tokenizer
from tapis.text.words import IN_WORD, LETTERS, MARKS

MOST_TERMS = 100_000
LONGEST_TERM = 200  # characters
LEAST_OF_FORM = 3  # letters that two forms of a word have in common
SHORT_WORD = 4  # letters; of such a word, a part says little
LONGEST_ENDING = 3  # letters that a form has beyond the word: tapisserie is no form of tapis
_LETTERS = re.compile(LETTERS)
_WORD = re.compile(rf"{IN_WORD}+|[^\w\s]")
_OF_WORD = re.compile(IN_WORD)
# A character with the marks that may be one with it in NFC, no more of them than `normalized` keeps; of Korean, the
# vowel and the final consonant of a syllable
_WITH_MARKS = re.compile(rf".[{MARKS}\u1160-\u11ff]{{0,{MAX_MARKS}}}+", re.DOTALL)
_BEFORE_WORDS = re.compile(r"\W*")
# Chinese, Japanese, Thai, Lao, Khmer, Burmese: a text of these has no borders of words
_SPACELESS = re.compile(
    r"[\u0e01-\u0e3a\u0e40-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
)
_HYPHENS = "-\u2010\u2011"
_DEMONSTRATIVE = re.compile(r"-(?:là|ci)(?!\w)", re.IGNORECASE)  # of French: cette maison-là
_NOT = re.compile(r"n't(?!\w)", re.IGNORECASE)  # of English: can't, won't; the Catalan pronoun 't follows a vowel
MOST_OF_A_SENTENCE = 10  # terms that one sentence must say; its others are left to the model


class Term(NamedTuple):
    """A term, and its translation."""

    source: str
    target: str


class Placed(NamedTuple):
    """The translation of a term, and where the term is in a source: its first character, and the one behind it."""

    start: int
    end: int
    term: Term


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
            cells = list(map(repair, line.split("\t")))
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
    def target_words(self) -> frozenset[str]:
        """The words of all translations, in small letters, as `Learned.known_words` has those of the training."""
        return frozenset(word.lower() for term in self.terms for word in words(term.target))

    @cached_property
    def _by_words(self) -> "_Index":
        return _Index.of(self.terms, _WORD.findall, " ")

    @cached_property
    def _by_characters(self) -> "_Index":
        return _Index.of(self.terms, list, "")

    def terms_in(self, sentence: str) -> list[Term]:
        """Return the terms of a sentence, in order, each as often as it is there; at most MOST_OF_A_SENTENCE."""
        return [placed.term for placed in self.places_in(sentence)]

    def places_in(self, text: str, most: int = MOST_OF_A_SENTENCE) -> list[Placed]:
        """Return the first terms of a text, by default as many as of a sentence, each with its place in the text."""
        composed, starts = _composed(_with_plain_apostrophes(text))
        return [Placed(starts[start], starts[end], term) for start, end, term in self._found_in(composed, most)]

    def _found_in(self, text: str, most: int) -> list[Placed]:
        """Return the first terms of a text in NFC: the longest where several begin."""
        spaceless = is_spaceless(text)
        index = self._by_characters if spaceless else self._by_words
        spans = [(i, i + 1) for i in range(len(text))] if spaceless else [one.span() for one in _WORD.finditer(text)]
        parts = [text[start:end] for start, end in spans]
        found: list[Placed] = []
        place = 0
        while place < len(parts) and len(found) < most:
            n_taken = 1
            for n_parts, term in index.beginning(parts, place):
                start, end = spans[place][0], spans[place + n_parts - 1][1]
                is_whole = _is_whole(text, start, end) if spaceless else not _NOT.match(text, end - 1)
                is_bound = term.source.islower() and _is_hyphenated(text, start, end)
                if is_whole and not is_bound:
                    found.append(Placed(start, end, term))
                    n_taken = n_parts
                    break
            place += n_taken
        return found


class _Index(NamedTuple):
    """Terms by their parts: by words, or by characters. The time to find one does not grow with their number."""

    terms: dict[str, Term]
    """By their parts, joined"""
    lengths: dict[str, list[int]]
    """The numbers of parts that terms have, in descending order, by the first part in small letters"""
    separator: str
    """What is between parts, once they are joined"""

    @classmethod
    def of(cls, terms: Iterable[Term], split: Callable[[str], list[str]], separator: str) -> Self:
        by_parts: dict[str, Term] = {}
        lengths: dict[str, set[int]] = {}
        for term in terms:
            parts = split(_with_plain_apostrophes(term.source))
            by_parts.setdefault(separator.join(parts), term)
            lengths.setdefault(parts[0].lower(), set()).add(len(parts))
        return cls(by_parts, {first: sorted(found, reverse=True) for first, found in lengths.items()}, separator)

    def beginning(self, parts: Sequence[str], place: int) -> Iterator[tuple[int, Term]]:
        """Yield the terms that begin at a place of a sentence and how many parts they have, longer ones first.

        Of terms that differ in letter case alone, it is the one that is written as the sentence has it.
        """
        for length in self.lengths.get(parts[place].lower(), []):
            if place + length > len(parts):
                continue
            there = self.separator.join(parts[place : place + length])
            term = self.terms.get(there)
            if term is None:
                term = self.terms.get(there.lower())
                if term is None or not term.source.islower():
                    continue
            yield length, term


def _is_whole(text: str, start: int, end: int) -> bool:
    """Return whether what is between two places is no part of a word. In scripts without spaces, it always is none."""
    sides = ((text[start - 1 : start], text[start]), (text[end : end + 1], text[end - 1]))
    return not any(_OF_WORD.match(beside) and not is_spaceless(beside + edge) for beside, edge in sides if beside)


def is_spaceless(text: str) -> bool:
    """Return whether a text is of a script that separates no words by spaces."""
    return _SPACELESS.search(text) is not None


def _composed(text: str) -> tuple[str, Sequence[int]]:
    """Return a text in NFC, and where each of its characters begins in the text as it was; at last, where that ends."""
    if unicodedata.is_normalized("NFC", text):
        return text, range(len(text) + 1)
    pieces: list[str] = []
    starts: list[int] = []
    for match in _WITH_MARKS.finditer(text):
        piece = unicodedata.normalize("NFC", match.group())
        pieces.append(piece)
        starts += [min(match.start() + i, match.end() - 1) for i in range(len(piece))]
    return "".join(pieces), [*starts, len(text)]


def _with_plain_apostrophes(text: str) -> str:
    """Return a text of the same length in which ' is for ’: an apostrophe is found in either way to write it."""
    return text.replace("’", "'")


def _is_hyphenated(sentence: str, start: int, end: int) -> bool:
    """Return whether a hyphen binds what is between two places to a letter or digit before or behind it."""
    before, after = sentence[max(0, start - 2) : start], sentence[end : end + 2]
    is_before = before[-1:] in _HYPHENS and before[:-1].isalnum()
    is_behind = after[:1] in _HYPHENS and after[1:].isalnum() and not _DEMONSTRATIVE.match(sentence, end)
    return is_before or is_behind


def with_terms(source: str, terms: Sequence[Placed], tokenizer: Tokenizer) -> list[int]:
    """Return the token ids of a source in which the translation of each term, between two UNK, replaces the term.

    The terms are in the order of their places. Text is never encoded as UNK: it has no other meaning.
    """
    text = WORD_PREFIX + source
    ids: list[int] = []
    end_before = 0
    for start, end, term in terms:
        before = text[end_before : start + len(WORD_PREFIX)].removesuffix(" ")  # the term has this space itself
        ids += tokenizer.encode_bound(before) if before else []
        ids += [UNK, *tokenizer.encode([term.target])[0], UNK]
        end_before = end + len(WORD_PREFIX)
    return ids + (tokenizer.encode_bound(text[end_before:]) if text[end_before:] else [])


def missing_terms(terms: Sequence[Term], translation: str) -> list[Term]:
    """Return the terms whose translations a text does not have, as whole words, each as often as it is missing."""
    missing = []
    rest = _with_plain_apostrophes(translation)
    for term in sorted(terms, key=lambda term: -len(term.target)):
        target = _with_plain_apostrophes(term.target)
        length = len(target)
        place = rest.find(target)
        while place >= 0 and not _is_whole(rest, place, place + length):
            place = rest.find(target, place + 1)
        if place < 0:  # it may have a capital as the first word
            first = _BEFORE_WORDS.match(rest)
            capital = target[:1].upper() + target[1:]
            start = first.end() if first else 0
            is_first = rest.startswith(capital, start) and _is_whole(rest, start, start + len(capital))
            place, length = (start, len(capital)) if is_first else (-1, 0)
        if place < 0:
            missing.append(term)
        else:
            rest = f"{rest[:place]} {rest[place + length :]}"
    return missing


def forms_in(word: str, text: str) -> list[str]:
    """Return the words of a text that may be forms of a word, in order: those that begin as it does.

    They `begin_alike`, and have LONGEST_ENDING more letters at most. Forms of a short word begin with all of it: chaque
    is none of chat. A word of fewer letters than LEAST_OF_FORM has no other form, and one in capitals neither.
    """
    if word.isupper():
        return [one for one in _LETTERS.findall(text) if one == word]
    longest = len(word) + (LONGEST_ENDING if len(word) >= LEAST_OF_FORM else 0)
    beginning = word.lower()
    return [
        one
        for one in _LETTERS.findall(text)
        if len(one) <= longest
        and begin_alike(beginning, one.lower())
        and (len(word) > SHORT_WORD or one.lower().startswith(beginning))
    ]


def begin_alike(word: str, other: str) -> bool:
    """Return whether another word begins with two thirds of the letters of a word, and LEAST_OF_FORM at least."""
    return other.startswith(word[: max(LEAST_OF_FORM, 2 * len(word) // 3)])
