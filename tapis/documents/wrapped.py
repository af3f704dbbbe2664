"""Plain text whose paragraphs are wrapped at a column, as in e-mails and README files."""

import re
import textwrap
from collections.abc import Iterator, Sequence, Set
from itertools import pairwise
from typing import NamedTuple

from tapis.documents.common import Translate, has_text

NARROWEST = 40  # columns: shorter lines are verses, addresses or lists
_LINE = re.compile(
    r"(?P<prefix>[ \t]*(?:>[ \t]?)*[ \t]*)(?P<text>(?:[^\r\n]*[^\r\n \t])?)(?P<end>[ \t]*(?:\r\n|\r|\n|$))"
)
_MARKER = re.compile(r"(?:[-*•·+]|\(?(?:\d{1,3}|[A-Za-z])[.)])[ \t]+")  # of an item of a list
_SEPARATOR = re.compile(r"(?<![ \t])(?:[ \t]++(?:\|[ \t]*+)?|\|[ \t]*+)")  # what may be between two cells of a table
_WIDE = 4  # spaces between two cells; fewer may be within a sentence, as in justified text
# Characters of Chinese and Japanese, before and after which a line may end within a sentence
_HAN_OR_KANA = r"[\u2e80-\u2fff\u3001-\u312f\u3190-\u9fff\uf900-\ufaff\uff01-\uff9f\U00020000-\U0003ffff]"
_FIRST_WORD = re.compile(rf"{_HAN_OR_KANA}|\S(?:(?!{_HAN_OR_KANA})\S)*+")
_WITHIN_HAN_OR_KANA = re.compile(rf"(?<={_HAN_OR_KANA})\n(?={_HAN_OR_KANA})")


class _Line(NamedTuple):
    """A line of a text, or a cell of a table, of which several are in a line."""

    prefix: str
    """Spaces, and signs of quotation"""
    text: str
    end: str
    is_cell: bool = False
    separator: str = ""
    """Between a cell and the next one in its line"""

    @property
    def width(self) -> int:
        return len(self.prefix) + len(self.text)


def translated_text(document: str, translate: Translate) -> str:
    """Return the text with each paragraph translated as a whole, and wrapped where it was.

    Lines are of one paragraph if each has no room for the first word of the next, or its first character of Chinese or
    Japanese, and one of them has NARROWEST columns. Verses, addresses and items of lists stay lines. Each cell of a
    table is translated by itself, and filled with spaces to its width.
    """
    whole_lines = [
        _Line(match["prefix"], match["text"], match["end"]) for match in _LINE.finditer(document) if match.group()
    ]
    lines = list(_with_cells(whole_lines))
    paragraphs = [lines[start:end] for start, end in _paragraphs(lines)]
    texts = [_joined(paragraph) for paragraph in paragraphs]
    places = [i for i, text in enumerate(texts) if has_text(text, "")]
    translations = dict(zip(places, translate([texts[i] for i in places]), strict=True))
    result = []
    for i, paragraph in enumerate(paragraphs):
        translation = translations.get(i, texts[i])
        if translation == texts[i]:
            result += [f"{line.prefix}{line.text}{line.separator}{line.end}" for line in paragraph]
        else:
            result += _wrapped(translation, paragraph)
    return "".join(result)


def _with_cells(lines: Sequence[_Line]) -> Iterator[_Line]:
    """Yield the lines, and the cells of a line that is a row of a table. A bar, a tab or wide spaces are between them.

    Two spaces are enough where a cell begins in the same column in the line before or after.
    """
    columns: list[set[int]] = [set() for _ in range(len(lines) + 2)]  # where cells begin, with none around the lines
    n_bars = [0, *(_n_bars(line.text) for line in lines), 0]
    for i, line in enumerate(lines, 1):
        columns[i] = {len(line.prefix) + one.end() for one in _separators(line)}
    for i, line in enumerate(lines, 1):
        start, prefix = 0, line.prefix
        # A single line with bars may be a sentence: type cat dogs.txt | grep brown
        has_bars = line.text.startswith("|") or (n_bars[i] > 0 and n_bars[i] in (n_bars[i - 1], n_bars[i + 1]))
        for one in _separators(line, columns[i - 1] | columns[i + 1], has_bars=has_bars):
            yield _Line(prefix, line.text[start : one.start()], "", is_cell=True, separator=one.group())
            start, prefix = one.end(), ""
        yield _Line(prefix, line.text[start:], line.end, is_cell=True) if start else line


def _n_bars(text: str) -> int:
    """Return how many bars divide a line into cells; of a ruler, how many signs are below or above them."""
    return text.count(" | ") if any(map(str.isalnum, text)) else text.count("+") + text.count("|")


def _separators(line: _Line, columns: Set[int] = frozenset(), *, has_bars: bool = False) -> Iterator[re.Match[str]]:
    """Yield what is between the cells of a line. Cells of the lines around it begin in the columns."""
    text = line.text
    marker = _MARKER.match(text)
    for found in _SEPARATOR.finditer(text, marker.end() if marker else 0):
        spaces = found.group()
        if "|" in spaces:
            is_separator = has_bars
        elif "\t" in spaces:
            is_separator = True
        else:
            is_wide = len(spaces) >= _WIDE or (len(spaces) > 1 and len(line.prefix) + found.end() in columns)
            is_separator = is_wide and text[found.start() - 1] not in ".!?"
        if is_separator:
            yield found


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
    if last.is_cell or line.is_cell or _MARKER.match(line.text):
        return False
    if not all(any(map(str.isalnum, one.text)) for one in (last, line)):  # a blank line, or a ruler
        return False
    if end - start > 1 or line.prefix == last.prefix:
        return line.prefix == last.prefix
    # The second line may be indented more, in an item of a list, or less than the first one.
    is_item = bool(_MARKER.match(first.text)) and line.prefix.startswith(first.prefix)
    return is_item or first.prefix.startswith(line.prefix)


def _is_wrapped(lines: Sequence[_Line]) -> bool:
    """Return whether lines are a paragraph that was wrapped."""
    column = max(line.width for line in lines)
    is_full = all(line.width + 1 + _first_width(following.text) > column for line, following in pairwise(lines))
    return len(lines) > 1 and column >= NARROWEST and is_full


def _first_width(text: str) -> int:
    """Return the width of the first word of a line, or of its first character of Chinese or Japanese."""
    first = _FIRST_WORD.search(text)
    return len(first.group()) if first else 0


def _joined(lines: Sequence[_Line]) -> str:
    """Return the text of a paragraph in one line. Characters of Chinese and Japanese have no spaces between them."""
    text = "\n".join(line.text for line in lines)
    return _WITHIN_HAN_OR_KANA.sub("", text).replace("\n", " ")


def _wrapped(translation: str, paragraph: Sequence[_Line]) -> list[str]:
    """Return the lines of a translated paragraph, as wide as those of its source."""
    first, following = paragraph[0], paragraph[min(1, len(paragraph) - 1)]
    if first.separator:
        return [first.prefix + translation + _narrowed(first.separator, len(translation) - len(first.text))]
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


def _narrowed(separator: str, n: int) -> str:
    """Return what is between two cells with n spaces less, so that the next cell stays in its column."""
    if "\t" in separator:
        return separator
    rest = separator.lstrip(" ")
    n_spaces = len(separator) - len(rest)
    least = min(n_spaces, 1 if rest else 2)
    return " " * max(least, n_spaces - n) + rest
