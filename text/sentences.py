"""Lines of real text ↔ sentences that a model can take: split, translate each, join again, with nothing lost.

A line may be a paragraph, a list item or blank. `Line` keeps its leading marker apart, and holds its sentences, found
by the library sentencex; one longer than the model ever saw is cut at clause marks, else at blanks, else anywhere.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sentencex

_MARKER = re.compile(r"\s*(?:(?:[-*•·>#]+|\(?(?:(?:\d{1,3}|[a-z])[.)]|[A-Z]\)))\s+)*")
_INITIAL = re.compile(r"\W*(?:[A-Z]|\d+)\.\s*")  # "M. Dupont dort." is one sentence, not two
_CUTS = (r"(?<=[,;:،؛、；，：])\s*|\s+(?=[–—])", r"\s+")
NO_BLANKS = ("zh", "ja")  # languages that set none between sentences


@dataclass(frozen=True)
class Line:
    """One line, taken apart."""

    marker: str
    """Bullets and numbers at its start, which are not translated"""
    units: list[str]
    """Its sentences, or pieces of them, in order"""

    def join(self, translations: Sequence[str], language: str) -> str:
        """The line in the target language, from the translations of its units."""
        blank = "" if language in NO_BLANKS else " "
        return " ".join(filter(None, [*self.marker.split(), blank.join(filter(None, translations))]))


def has_letters(unit: str) -> bool:
    """Whether there is anything to translate: numbers and signs alone stay as they are."""
    return any(character.isalpha() for character in unit)


def whole_characters(text: str) -> str:
    """The text with � for half a character (a lone surrogate), as JSON can spell it and broken arguments come."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def take_apart(line: str, language: str, fits: Callable[[str], bool]) -> Line:
    """Splits a line of any length; fits says whether the model can take a piece of text whole."""
    marker = _MARKER.match(line)
    head = marker.group() if marker else ""
    units: list[str] = []
    for sentence in sentencex.segment(language, line[len(head) :]):
        if units and _INITIAL.fullmatch(units[-1]):
            units[-1] += sentence
        else:
            units.append(sentence)
    pieces = [" ".join(piece.split()) for unit in units for piece in cut(unit, fits)]
    return Line(head, [piece for piece in pieces if piece])


def cut(text: str, fits: Callable[[str], bool]) -> list[str]:
    """The text whole if it fits, else in pieces that do, cut near the middle at the best mark that there is."""
    pieces, rest = [], [text]
    while rest:
        piece = rest.pop()
        if len(piece) < 2 or fits(piece):
            pieces.append(piece)
            continue
        middle = len(piece) // 2
        for mark in _CUTS:
            ends = [match.end() for match in re.finditer(mark, piece) if 0 < match.end() < len(piece)]
            if ends:
                middle = min(ends, key=lambda end: abs(end - len(piece) // 2))
                break
        rest += [piece[middle:], piece[:middle]]
    return pieces
