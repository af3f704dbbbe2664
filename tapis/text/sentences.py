"""Split lines of real text into sentences that a model can translate, and join the translations again.

A line may be a paragraph, a list item or blank. `split_line` separates its list marker and finds its sentences with
the library sentencex. A sentence that is too long for the model is cut at punctuation, otherwise at whitespace,
otherwise anywhere. `Line.join` puts the translations together. Nothing but whitespace is lost.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sentencex

from tapis.text.language_codes import base_language

# Bullets, numbers, and the dash of a speaker, which has a space behind it or none
_MARKER = re.compile(r"\s*(?:(?:[-*•·>#]+|\(?(?:(?:\d{1,3}|[a-z])[.)]|[A-Z]\)))\s+)*(?:(?<!\S)-(?=[^\W\d_]))?")
_INITIAL = re.compile(r"\W*([^\W\d_]|\d+)\.\s*")
# Where a long sentence may be cut, best first: after or before punctuation within a sentence, then at whitespace.
_CUT_POINTS = (r"(?<=[,;:،؛、；，：])\s*|\s+(?=[–—])", r"\s+")
EXTREME_LENGTH = 8  # times a model's max_length: a text of more tokens is no sentence
LANGUAGES_WITHOUT_SPACES = ("zh", "ja")  # languages that put no space between sentences

# Characters that set the direction of writing: marks, and openings with the character that closes each.
DIRECTION_MARKS = "\u200e\u200f\u061c"
_EMBEDDINGS, _END_OF_EMBEDDING = "\u202a\u202b\u202d\u202e", "\u202c"
_ISOLATES, _END_OF_ISOLATE = "\u2066\u2067\u2068", "\u2069"
_SPACES = "".join(c for c in map(chr, range(0x3001)) if c.isspace() and c != "\x85")  # U+0085 may be an ellipsis
DIRECTIONAL = DIRECTION_MARKS + _EMBEDDINGS + _END_OF_EMBEDDING + _ISOLATES + _END_OF_ISOLATE


@dataclass(frozen=True)
class Line:
    """One line of text, split for translation."""

    marker: str
    """Bullets, numbers and dashes at the start of the line, which are not translated"""
    units: list[str]
    """The sentences, or pieces of long sentences, in order"""

    def join(self, translations: Sequence[str], language: str) -> str:
        """Return the translated line, given one translation for each unit, in `language`."""
        separator = "" if base_language(language) in LANGUAGES_WITHOUT_SPACES else " "
        body = separator.join(translation for translation in translations if translation)
        words = [*self.marker.split(), body]
        if self.is_glued:
            words[-2:] = ["".join(words[-2:])]
        return " ".join(word for word in words if word)

    @property
    def is_glued(self) -> bool:
        """Whether the first sentence follows the marker without a space, as in -Is it raining?."""
        return bool(self.marker) and not self.marker[-1].isspace()

    @property
    def n_marker_words(self) -> int:
        """How many words the marker is, as spaces separate them."""
        return len(self.marker.split()) - self.is_glued


def has_letters(unit: str) -> bool:
    """Return whether a unit needs translation. Units of digits and symbols alone are copied."""
    return any(character.isalpha() for character in unit)


def replace_lone_surrogates(text: str) -> str:
    """Replace lone surrogates with U+FFFD (�). They occur in JSON escapes and in badly decoded arguments."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def take_direction(line: str) -> tuple[str, str, str]:
    """Return the directional characters at the start of a line, the text between, and those at its end.

    Openings are kept if the end of the line closes as many; otherwise only marks are.
    """
    line = line.strip(_SPACES)
    text = line.lstrip(DIRECTIONAL)
    before = line[: len(line) - len(text)]
    text = text.rstrip(DIRECTIONAL)
    after = line[len(before) + len(text) :]
    if _count(before, _EMBEDDINGS) != _count(after, _END_OF_EMBEDDING) or _count(before, _ISOLATES) != _count(
        after, _END_OF_ISOLATE
    ):
        before, after = ("".join(c for c in run if c in DIRECTION_MARKS) for run in (before, after))
    return before, text, after


def _count(text: str, characters: str) -> int:
    return sum(c in characters for c in text)


def split_line(line: str, language: str, fits: Callable[[str], bool]) -> Line:
    """Split a line of any length into its marker and its units.

    Args:
        line: the line of text.
        language: its language code.
        fits: whether the model can translate a piece of text at once.

    """
    # separate the list marker
    marker_match = _MARKER.match(line)
    marker = marker_match.group() if marker_match else ""

    # find the sentences, and rejoin those that were split after an initial
    sentences: list[str] = []
    for segment in sentencex.segment(base_language(language), line[len(marker) :]):
        if sentences and _is_initial(sentences[-1]):
            sentences[-1] += segment
        else:
            sentences.append(segment)

    # cut long sentences, and normalize whitespace
    pieces: list[str] = []
    for sentence in sentences:
        pieces += cut_to_fit(sentence, fits) if has_letters(sentence) else [sentence]  # which is copied
    units = [" ".join(piece.split()) for piece in pieces]
    return Line(marker, [unit for unit in units if unit])


def _is_initial(segment: str) -> bool:
    """Return whether a segment is a capital letter or a number with a full stop: "M. Dupont dort." is one sentence."""
    match = _INITIAL.fullmatch(segment)
    return match is not None and (match[1].isupper() or match[1].isdecimal())


def cut_to_fit(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Cut a text into pieces that fit, by halving: at the cut point nearest to the middle, of the best kind present.

    A text that fits is returned whole. A single character is never cut, even if it does not fit. The pieces joined
    are the text.
    """
    pieces = []
    remaining = [text]  # a stack; the leftmost text is on top
    while remaining:
        piece = remaining.pop()
        if len(piece) < 2 or fits(piece):
            pieces.append(piece)
            continue

        middle = len(piece) // 2
        cut = middle
        for pattern in _CUT_POINTS:
            candidates = [match.end() for match in re.finditer(pattern, piece) if 0 < match.end() < len(piece)]
            if candidates:
                cut = min(candidates, key=lambda candidate: abs(candidate - middle))
                break
        remaining.append(piece[cut:])
        remaining.append(piece[:cut])
    return pieces
