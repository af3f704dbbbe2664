"""Documents in Markdown."""

import re
from collections.abc import Collection, Iterator
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from tapis.documents.common import DocumentError, Translate, has_text
from tapis.text.mark_patterns import CODE

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_NEWLINE = r"(?:\r\n?|\n)"
# Settings before a Markdown document. A blank line, or a line that is no setting, shows that it begins with a rule.
_YAML_BEGINS = r"(?=(?:[ \t]*#[^\r\n]*[\r\n]+)*[ \t]*[\w\"'$@{][^\r\n]*:(?:\s|$))"
_FRONT_MATTER = re.compile(
    rf"---{_NEWLINE}{_YAML_BEGINS}.*?{_NEWLINE}(?:---|\.\.\.)(?:{_NEWLINE}|$)"
    rf"|\+\+\+{_NEWLINE}.*?{_NEWLINE}\+\+\+(?:{_NEWLINE}|$)",
    re.DOTALL,
)
# A line of a directive, a formula, a note (> [!NOTE]), an admonition (!!! note "Title"), a tab (=== "Title"), or of
# attributes alone ({: .class })
_FENCE = re.compile(
    r"\s*(?::::|\$\$|\[!\w+\][-+]?\s*$"
    r"|(?:!!!|\?\?\?\+?)[ ]+[\w-]+(?:[ ]+inline(?:[ ]+end)?)?(?:[ ]+\".*\")?\s*$"
    r"|===[!+]?[ ]+[\"']|\{:[^{}]*\}\s*$)"
)
_CHECKBOX = re.compile(r"^\[[ xX]\] ")
# How the definition of a term begins, in its list, or a footnote
_DEFINITION = re.compile(r"[:~][ \t]+|\[\^[^\[\]\s]+\]:[ \t]*")
# Code and tags, and [label] or [label][], but neither [label][other] nor a footnote
_CODE_OR_REFERENCE = re.compile(
    rf"{CODE}|<[A-Za-z/!?][^<>]*+>|(?<![\]\\])\[(?!\^)(?P<label>[^\[\]\n]+)\](?:\[\])?(?![\[(])"
)
# What begins a block where a text does: the number of an item of a list, or any other sign
_BLOCK_SIGN = re.compile(
    r"\A(?:(?P<number>\d{1,9})(?=[.)](?:\s|$))"
    r"|(?=(?:#{1,6}|[-+])(?:\s|$)|>|=+\s*$|(?:-\s*){2,}$|\[[^\[\]]+\]:))"
)
_END_OF_HEADING = re.compile(r"(?<!\S)(?=#+\Z)")
_ESCAPED_OR_BAR = re.compile(r"\\.|\|")
# The row below the head of a table, also in a quotation. Each row gets as many cells as this one has.
_DELIMITER_ROW = re.compile(r"[ \t>]*[-:|][-:| \t]*")
_HARD_BREAK = re.compile(r"(?:(?<! ) {2,}|(?<!\\)(?P<escaped>(?:\\\\)*)\\)$")


def translated_markdown(document: str, translate: Translate) -> str:
    """Return the Markdown document with its text translated: paragraphs, headings, items of lists, cells of tables.

    Code, HTML blocks, link targets, front matter and the signs of the blocks stay as they are. A paragraph of several
    lines becomes one of one, except where a line ends in a hard break. Raises DocumentError for tables that have far
    more cells than the document has characters.
    """
    n_marks = document.startswith("\ufeff")  # a byte order mark
    front_matter = _FRONT_MATTER.match(document, n_marks)
    head = document[: front_matter.end() if front_matter else n_marks]
    body = document[len(head) :]
    places = [place for place in _places(body) if has_text(place.text, "markdown")]
    translations = translate([place.text for place in places])
    result, end = head, 0
    for place, translation in zip(places, translations, strict=True):
        result += body[end : place.start] + _as_text_of_block(translation, place)
        end = place.end
    return result + body[end:]


@cache
def _markdown_parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # noqa: PLC0415 - only when it is needed

    return MarkdownIt("commonmark").enable("table").disable("inline")  # the blocks alone; links may take forever


class _Place(NamedTuple):
    """A text of a Markdown document, in one line, or a line of it, and where it begins and ends there."""

    text: str
    start: int
    end: int
    is_cell: bool
    """Whether it is in a table"""


def _as_text_of_block(translation: str, place: _Place) -> str:
    """Return a translation with a backslash before what would begin another block, or end a cell or a heading."""
    if place.is_cell:
        translation = _ESCAPED_OR_BAR.sub(lambda match: "\\|" if match.group() == "|" else match.group(), translation)
    if not _END_OF_HEADING.search(place.text):
        translation = _END_OF_HEADING.sub(r"\\", translation)
    return translation if _BLOCK_SIGN.match(place.text) else _BLOCK_SIGN.sub(r"\g<number>\\", translation)


def _places(body: str) -> Iterator[_Place]:
    """Yield the texts of a Markdown document without front matter, in order. Raises DocumentError."""
    if _most_cells(body) > 2 * len(body) + 1000:
        raise DocumentError("its tables have far more cells than it has characters: write out the cells of each row")
    body = body.replace("\0", "\ufffd")  # as the parser does
    line_starts = [0, *(match.end() for match in re.finditer(_NEWLINE, body)), len(body)]
    references: dict[str, Any] = {}
    blocks = _markdown_parser().parse(body, references)
    full = partial(_with_references, labels=references.get("references", {}))
    end = 0  # of the line before
    for before, block in pairwise(blocks):
        if block.type != "inline" or not block.map:
            continue
        is_cell = before.type in ("th_open", "td_open")
        texts: list[list[_Place]] = [[]]  # the lines of each, up to a hard break
        parts = block.content.split("\n")
        is_formula = False
        for i, part in enumerate(parts):
            if is_formula or _FENCE.match(part):  # which other programs read
                texts.append([])
                is_formula ^= part.count("$$") % 2 == 1
                continue
            # Where the part is: in a line after the signs of the block, or after the cell before.
            is_broken = i + 1 < len(parts) and _HARD_BREAK.search(part) is not None
            stripped = _HARD_BREAK.sub(r"\g<escaped>", part).strip() if is_broken else part.strip()
            stripped = stripped if i else _CHECKBOX.sub("", stripped)
            if not is_cell and (sign := _DEFINITION.match(stripped)):
                texts.append([])
                stripped = stripped[sign.end() :]
                if not stripped:  # the footnote begins in the next line
                    continue
            line_start, next_line = line_starts[block.map[0] + i : block.map[0] + i + 2]
            if is_cell:
                stripped = stripped.replace("|", "\\|")
                place = body.find(stripped, max(end, line_start), next_line)
            else:
                place = body.rfind(stripped, line_start, next_line)
            if place < 0:
                texts.pop()
                break
            end = place + len(stripped)
            texts[-1].append(_Place(stripped, place, end, is_cell))
            if is_broken:
                texts.append([])
        for lines in filter(None, texts):
            yield _Place(full(" ".join(line.text for line in lines)), lines[0].start, lines[-1].end, is_cell)


def _most_cells(body: str) -> int:
    """Return how many cells the tables of a document have at most, also those that their rows leave out.

    The parser makes all of them: a thousand rows of one letter in a table of a thousand columns are a million cells.
    """
    width = n_cells = 0
    for line in re.split(_NEWLINE, body):
        if not line.strip(" \t>"):  # the table ends, if there is one
            width = 0
        elif _DELIMITER_ROW.fullmatch(line):
            width = max(width, len(line.strip(" \t>|").split("|")))
        n_cells += width
    return n_cells


def _with_references(text: str, labels: Collection[str]) -> str:
    """Return the text with [label] and [label][], of which the label is both text and target, as [label][label].

    labels are those of the document's links, normalized. The second label stays when the text is translated.
    """
    from markdown_it.common.utils import normalizeReference  # noqa: PLC0415

    def full(match: re.Match[str]) -> str:
        label = match["label"]
        return f"[{label}][{label}]" if label and normalizeReference(label) in labels else match.group()

    return _CODE_OR_REFERENCE.sub(full, text) if labels else text
