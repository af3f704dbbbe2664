"""Plain text whose paragraphs are wrapped at a column, as in e-mails and README files."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tapis.documents.common import Translate, has_text

NARROWEST = 40  # columns: shorter lines are verses, addresses or lists
_LINE = re.compile(
    r"(?P<prefix>[ \t]*(?:>[ \t]?)*[ \t]*)(?P<text>(?:[^\r\n]*[^\r\n \t])?)(?P<end>[ \t]*(?:\r\n|\r|\n|$))"
)
_MARKER = re.compile(r"(?:[-*•·+]|\(?(?:\d{1,3}|[A-Za-z])[.)])[ \t]+")  # of an item of a list


class _Line(NamedTuple):
    """A line of a text."""

    prefix: str
    """Spaces, and signs of quotation"""
    text: str
    end: str

    @property
    def width(self) -> int:
        return len(self.prefix) + len(self.text)


def translated_text(document: str, translate: Translate) -> str:
    """Return the text with each paragraph translated as a whole, and wrapped where it was.

    Lines are of one paragraph if each has no room for the first word of the next, and one of them has NARROWEST
    columns. Verses, addresses, tables and items of lists stay lines.
    """
    lines = [_Line(**match.groupdict()) for match in _LINE.finditer(document) if match.group()]
    paragraphs = [lines[start:end] for start, end in _paragraphs(lines)]
    texts = [" ".join(line.text for line in paragraph) for paragraph in paragraphs]
    places = [i for i, text in enumerate(texts) if has_text(text, "")]
    translations = dict(zip(places, translate([texts[i] for i in places]), strict=True))
    result = []
    for i, paragraph in enumerate(paragraphs):
        translation = translations.get(i, texts[i])
        if translation == texts[i]:
            result += ["".join(line) for line in paragraph]
        else:
            result += _wrapped(translation, paragraph)
    return "".join(result)


def _paragraphs(lines: Sequence[_Line]) -> Iterator[tuple[int, int]]:
    """Yield the first line of each paragraph, and the one after its last."""
    start = 0
    for end in range(1, len(lines) + 1):
        if end == len(lines) or not _could_go_on(lines, start, end):
            yield from [(start, end)] if _is_wrapped(lines[start:end]) else [(i, i + 1) for i in range(start, end)]
            start = end


def _could_go_on(lines: Sequence[_Line], start: int, end: int) -> bool:
    """Return whether a line could be of the paragraph that the lines before it, from the first one, are of."""
    first, last, line = lines[start], lines[end - 1], lines[end]
    if not (last.text.strip() and line.text.strip()) or _MARKER.match(line.text):
        return False
    if end - start > 1 or line.prefix == last.prefix:
        return line.prefix == last.prefix
    # The second line may be indented more, in an item of a list, or less than the first one.
    is_item = bool(_MARKER.match(first.text)) and line.prefix.startswith(first.prefix)
    return is_item or first.prefix.startswith(line.prefix)


def _is_wrapped(lines: Sequence[_Line]) -> bool:
    """Return whether lines are a paragraph that was wrapped."""
    column = max(line.width for line in lines)
    is_full = all(line.width + 1 + len(following.text.split()[0]) > column for line, following in pairwise(lines))
    return len(lines) > 1 and column >= NARROWEST and is_full


def _wrapped(translation: str, paragraph: Sequence[_Line]) -> list[str]:
    """Return the lines of a translated paragraph, as wide as those of its source."""
    first, following = paragraph[0], paragraph[min(1, len(paragraph) - 1)]
    if len(paragraph) == 1:
        return [first.prefix + translation + first.end]
    texts = textwrap.wrap(
        translation,
        max(line.width for line in paragraph),
        initial_indent=first.prefix,
        subsequent_indent=following.prefix,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]
    return [text + first.end for text in texts[:-1]] + [texts[-1] + paragraph[-1].end]
