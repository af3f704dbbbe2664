"""Documents whose text is translated while everything else stays as it is, byte for byte: HTML, Markdown, subtitles.

`translated_html`, `translated_markdown` and `translated_srt` take a document and a function that translates lines, N
lines to N lines, and keeps markup where it belongs (tapis/typed_text.py).
"""

import html
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tapis.config import TapisError
from tapis.text.mark_patterns import ATTRIBUTES, CODE, KEPT
from tapis.text.marks import take_out
from tapis.text.markup import Markup

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

Translate = Callable[[Sequence[str]], list[str]]

# Elements within a sentence. All others begin a new one.
INLINE = {
    *("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "del", "dfn", "em", "font", "i", "img", "ins"),
    *("kbd", "label", "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u"),
    *("var", "wbr"),
}
# Elements whose content is no text to translate.
UNTRANSLATED = {
    *("script", "style", "pre", "textarea", "svg", "math", "template", "noscript", "iframe", "object", "audio"),
    *("video", "canvas"),
}
# Elements that end where the next one of their kind begins, or the element around them ends
END_TAG_OPTIONAL = {"p", "li", "dt", "dd", "td", "th", "tr", "option"}
# Elements that have such elements of their own
LISTS = {"ul", "ol", "dl", "table", "select"}
# Elements without content
VOID = {
    *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"),
}

# Elements whose content has no tags
RAW = {"script", "style", "textarea", "title", "iframe", "noscript"}

# A quotation mark is one only after an equals sign, and between two of them a tag does not end. A tag has at most 500
# attributes: what begins like one is not read to the end of the page again and again.
_VALUE = r"""(?:"[^"]*+"|'[^']*+')"""
_ATTRIBUTES = rf"(?:=\s*+{_VALUE}?+|[^<>=]++){{0,1000}}+"
_TAG = re.compile(rf"<(?P<slash>/?)(?P<name>[A-Za-z][^\s/<>]*+)(?P<attributes>{_ATTRIBUTES})>")
_ATTRIBUTE = re.compile(rf"(?<![^\s=/])(?P<name>[^\s=/]++)\s*+=\s*+(?P<value>{_VALUE}|\S++)")
_ENDS = {"<!--": "-->", "<![CDATA[": "]]>", "<!": ">", "<?": ">", "</": ">"}  # of what is neither text nor a tag

_CHARACTER = r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|\w{1,40});"  # longer ones are no characters
_KEPT_SPACE_OR_CHARACTER = re.compile(rf"(?P<kept>{KEPT}|</?[A-Za-z]{ATTRIBUTES}>)|(?P<space>\s+)|{_CHARACTER}")
# A tag that tapis/text/marks.py reads as a tag, too. Others cannot be part of a line.
_TAG_OF_LINE = re.compile(rf"</?[A-Za-z]{ATTRIBUTES}>")
_KEPT_ELEMENT = re.compile(KEPT)
_NEWLINE = r"(?:\r\n?|\n)"  # of Markdown
# Settings before a Markdown document
_FRONT_MATTER = re.compile(rf"---{_NEWLINE}.*?{_NEWLINE}(?:---|\.\.\.)(?:{_NEWLINE}|$)", re.DOTALL)
_CHECKBOX = re.compile(r"^\[[ xX]\] ")
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
_HARD_BREAK = re.compile(r"(?:(?<! ) {2,}|(?<!\\)(?P<escaped>(?:\\\\)*)\\)$")
# Times as players read them: with or without hours and fractions, and with spaces anywhere
_TIME = r"-?\d{1,9}+(?:\s*+:\s*+\d{1,9}+){1,3}+(?:\s*+[,.]\s*+\d{1,9}+)?+"
_TIMES = re.compile(rf"{_TIME}\s*+(?:-{{1,3}}+|[–—])>\s*+{_TIME}(?!\S)")


class DocumentError(TapisError):
    """A document is not in the format that it should be in."""


class _Piece(NamedTuple):
    """A piece of a page: where it begins, what it is, and the name of its tag."""

    start: int
    kind: Literal["text", "open", "kept", "void", "close", "other"]
    name: str = ""


def _pieces(page: str) -> Iterator[_Piece]:
    """Cut a page into pieces, in time proportional to its length: texts, tags, and everything else.

    An unfinished tag or comment is text. `html.parser` of Python 3.11 takes minutes for 100 kB of them.
    """
    unfinished: set[str] = set()  # ends that are nowhere in the rest of the page
    end = 0  # of the last piece; what follows is text until something else begins
    place = page.find("<")
    while place >= 0:
        tag = _TAG.match(page, place)
        start = next((start for start in _ENDS if page.startswith(start, place)), "")
        found = -1
        if not tag and start and _ENDS[start] not in unfinished:
            found = page.find(_ENDS[start], place + len(start))
            if found < 0:
                unfinished.add(_ENDS[start])
        if not tag and found < 0:
            place = page.find("<", place + 1)
            continue
        if place > end:
            yield _Piece(end, "text")
        if tag:
            name, end = tag["name"].lower(), tag.end()
            yield _Piece(place, _kind_of(tag), name)
            if name in RAW and _kind_of(tag) not in ("close", "void"):
                closing = re.compile(rf"</{name}\b", re.IGNORECASE).search(page, end)
                raw_end = closing.start() if closing else len(page)
                if raw_end > end:
                    yield _Piece(end, "text")
                end = raw_end
        else:
            yield _Piece(place, "other")
            end = found + len(_ENDS[start])
        place = page.find("<", end)
    if end < len(page):
        yield _Piece(end, "text")


def _kind_of(tag: re.Match[str]) -> Literal["open", "kept", "void", "close"]:
    if tag["slash"]:
        return "close"
    if tag["attributes"].endswith("/"):
        return "void"
    attributes = {
        match["name"].lower(): match["value"].strip("\"'") for match in _ATTRIBUTE.finditer(tag["attributes"])
    }
    classes = attributes.get("class", "").split()
    return "kept" if attributes.get("translate", "").lower() == "no" or "notranslate" in classes else "open"


class _Kept:
    """The open elements whose content is kept, the outermost first. Each method takes constant time on average."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.counts: Counter[str] = Counter()

    def open(self, name: str) -> None:
        """Add an element, inside of all others."""
        self.names.append(name)
        self.counts[name] += 1

    def close(self, name: str) -> None:
        """Remove the innermost element of this name and those in it; nothing if there is none."""
        closed = "" if self.counts[name] else name
        while closed != name:
            closed = self.names.pop()
            self.counts[closed] -= 1

    def is_ended_by(self, kind: str, name: str) -> bool:
        """Return whether a tag ends all of them, because the outermost has no end tag of its own.

        The next <li> ends the one before, unless it is of a list within it; so does </ul>.
        """
        if not self.names or self.names[0] not in END_TAG_OPTIONAL:
            return False
        if kind == "close":
            return not self.counts[name]
        return kind in ("open", "kept") and name == self.names[0] and not any(self.counts[list_] for list_ in LISTS)


def translated_html(page: str, translate: Translate) -> str:
    """Return the page with its text translated.

    Sentences go on through elements such as <b> and <a>, and end at all others. Attributes, scripts, styles, code and
    elements with translate="no" stay as they are.
    """
    bounds = [0]  # where parts begin: what is kept, and the lines to translate, in turn
    lines: list[int] = []  # which of the parts are lines
    kept = _Kept()
    end_of_element = 0  # of the last one that is kept within a line
    for start, kind, name in _pieces(page):
        if start < end_of_element:
            continue
        if kept.is_ended_by(kind, name):
            kept = _Kept()
        was_kept = bool(kept.names)
        if kind in ("open", "kept") and name not in VOID and (was_kept or kind == "kept" or name in UNTRANSLATED):
            kept.open(name)
        elif kind == "close":
            kept.close(name)
        is_tag_of_line = kind != "other" and name in INLINE and _TAG_OF_LINE.match(page, start)
        is_in_line = not (was_kept or kept.names) and (kind == "text" or bool(is_tag_of_line))
        if is_in_line and (element := _KEPT_ELEMENT.match(page, start)):
            end_of_element = element.end()
        if is_in_line != (lines[-1:] == [len(bounds) - 1]):
            bounds.append(start)
            if is_in_line:
                lines.append(len(bounds) - 1)

    parts = [page[start:end] for start, end in pairwise([*bounds, len(page)])]
    typed = {i: _as_typed(parts[i]) for i in lines}
    typed = {i: text for i, text in typed.items() if has_text(text, "html")}
    for i, translation in zip(typed, translate(list(typed.values())), strict=True):
        before = parts[i][: len(parts[i]) - len(parts[i].lstrip())]
        after = parts[i][len(parts[i].rstrip()) :]
        parts[i] = before + translation + after
    return "".join(parts)


def has_text(part: str, markup: Markup) -> bool:
    """Return whether there are letters outside of marks."""
    return any(map(str.isalpha, re.sub(_CHARACTER, "", take_out(part, markup=markup).text)))


def _as_typed(part: str) -> str:
    """Return the text of a page as it would be typed: single spaces, café for caf&eacute;. Tags and code stay.

    Characters that HTML needs escaped stay so.
    """

    def typed(match: re.Match[str]) -> str:
        if match["space"]:
            return " "
        if match["kept"]:
            return match["kept"]
        character = html.unescape(match.group())
        if character == "\u00ad":
            return ""  # a soft hyphen
        return character if character.isalnum() or character in "'\"’«»“”…–—" else match.group()

    return _KEPT_SPACE_OR_CHARACTER.sub(typed, part).strip()


def translated_markdown(document: str, translate: Translate) -> str:
    """Return the Markdown document with its text translated: paragraphs, headings, items of lists, cells of tables.

    Code, HTML blocks, link targets, front matter and the signs of the blocks stay as they are. A paragraph of several
    lines becomes one of one, except where a line ends in a hard break.
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
    """A text of a Markdown document, in one line, and where it begins and ends there."""

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
    """Yield the texts of a Markdown document without front matter, in order."""
    line_starts = [0, *(match.end() for match in re.finditer(_NEWLINE, body)), len(body)]
    references: dict[str, Any] = {}
    blocks = _markdown_parser().parse(body, references)
    full = partial(_with_references, labels=references.get("references", {}))
    end = 0  # of the text before
    for before, block in pairwise(blocks):
        if block.type != "inline" or not block.map:
            continue
        is_cell = before.type in ("th_open", "td_open")
        texts: list[str] = []  # of the lines since the last hard break
        start = 0
        parts = block.content.split("\n")
        for i, part in enumerate(parts):
            # Where the part is: in a line after the signs of the block, or after the cell before.
            is_broken = i + 1 < len(parts) and _HARD_BREAK.search(part) is not None
            stripped = _HARD_BREAK.sub(r"\g<escaped>", part).strip() if is_broken else part.strip()
            stripped = stripped if i else _CHECKBOX.sub("", stripped)
            line_start, next_line = line_starts[block.map[0] + i : block.map[0] + i + 2]
            if is_cell:
                stripped = stripped.replace("|", "\\|")
                place = body.find(stripped, max(end, line_start), next_line)
            else:
                place = body.rfind(stripped, line_start, next_line)
            if place < 0:
                break
            start = start if texts else place
            texts.append(stripped)
            end = place + len(stripped)
            if is_broken or i + 1 == len(parts):
                yield _Place(full(" ".join(texts)), start, end, is_cell)
                texts = []


def _with_references(text: str, labels: Collection[str]) -> str:
    """Return the text with [label] and [label][], of which the label is both text and target, as [label][label].

    labels are those of the document's links, normalized. The second label stays when the text is translated.
    """
    from markdown_it.common.utils import normalizeReference  # noqa: PLC0415

    def full(match: re.Match[str]) -> str:
        label = match["label"]
        return f"[{label}][{label}]" if label and normalizeReference(label) in labels else match.group()

    return _CODE_OR_REFERENCE.sub(full, text) if labels else text


def translated_srt(subtitles: str, translate: Translate) -> str:
    """Return subtitles, translated: numbers, times and blank lines stay, and lines of a cue in a row become one.

    Raises DocumentError if there are no times.
    """
    lines = _lines_of_srt(subtitles)
    kinds = [_kind_of_line(line) for line in lines]
    if "times" not in kinds and subtitles.strip():
        raise DocumentError("these are no subtitles in the format SubRip (.srt): no line has times")

    blocks = list(_text_blocks(lines, kinds))
    texts = [" ".join(" ".join(lines[start:end]).split()) for start, end in blocks]
    for (start, end), translation in zip(blocks, translate(texts), strict=True):
        ending = lines[end - 1][len(lines[end - 1].rstrip("\r\n")) :]
        lines[start:end] = [translation + ending, *[""] * (end - start - 1)]
    return "".join(lines)


def srt_warnings(subtitles: str) -> Iterator[str]:
    """Yield what of subtitles is not understood, each with the number of its line."""
    has_begun = False  # the first cue
    for number, line in enumerate(_lines_of_srt(subtitles), 1):
        kind = _kind_of_line(line)
        has_begun = has_begun or kind in ("times", "damaged times")
        if kind == "damaged times":
            yield f"line {number:,}: these times are not understood, and stay as they are"
        elif kind == "times" and not _has_settings_alone(line):
            yield f"line {number:,}: what follows the times is not translated"
        elif kind == "text" and not has_begun:
            yield f"line {number:,}: text before the first times is not translated"
        elif kind == "text" and "-->" in line:
            yield f"line {number:,}: an arrow without times is translated as text"


LineKind = Literal["blank", "digits", "times", "damaged times", "text"]


def _lines_of_srt(subtitles: str) -> list[str]:
    """Return the lines of subtitles with their endings: LF, CRLF, CR, or the CR CR LF of a file converted twice."""
    return re.findall(r"[^\r\n]*+(?:\r{0,2}\n|\r)|[^\r\n]++", subtitles)


def _kind_of_line(line: str) -> LineKind:
    """Return what a line of subtitles is by itself."""
    stripped = _without_byte_order_mark(line)
    if not stripped:
        return "blank"
    if stripped.isdigit():
        return "digits"
    if _TIMES.match(stripped):
        return "times"
    return "damaged times" if "-->" in stripped and re.search(r"\d:\d", stripped) else "text"


def _without_byte_order_mark(line: str) -> str:
    """Return a line without the spaces around it, and without the mark that a file or a part of one begins with."""
    return line.strip().lstrip("\ufeff").strip()


def _has_settings_alone(line: str) -> bool:
    """Return whether nothing follows the times of a line but positions and settings, such as X1:100 or align:start."""
    stripped = _without_byte_order_mark(line)
    times = _TIMES.match(stripped)
    return times is not None and all(":" in setting for setting in stripped[times.end() :].split())


def _text_blocks(lines: Sequence[str], kinds: Sequence[LineKind]) -> Iterator[tuple[int, int]]:
    """Yield the texts of cues: the first line of each, and the one after its last.

    A cue ends where the number or the times of the next begin. Blank lines divide it into several texts.
    """
    start = None  # of a text
    has_begun = False  # the first cue
    for i, kind in enumerate(kinds):
        is_times = kind in ("times", "damaged times")
        is_number = kind == "digits" and kinds[i + 1 : i + 2] in (["times"], ["damaged times"])
        has_begun = has_begun or is_times
        is_text = has_begun and kind != "blank" and not is_times and not is_number
        if is_text and start is None:
            start = i
        elif not is_text and start is not None:
            yield start, i
            start = None
    if start is not None:
        yield start, len(lines)


FORMATS: dict[str, Callable[[str, Translate], str]] = {
    "html": translated_html,
    "markdown": translated_markdown,
    "srt": translated_srt,
}
