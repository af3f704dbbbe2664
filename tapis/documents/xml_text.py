"""Text in XML: elements whose content is a line with tags within it. All that is not translated stays, byte for byte.

The parser is expat. It says where elements begin and end; their translations are put into the bytes there. A line has
the inline elements as tags of its own, <g1>…</g1> around text and <x2/> alone, which the marks of tapis/text/marks.py
carry over.
"""

import html
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import NamedTuple
from xml.parsers import expat

from tapis.documents.common import DocumentError, Translate, as_declared, has_text, leave, spaces_around
from tapis.text.mark_patterns import MESSAGE
from tapis.text.markup import NOT_OF_XML

DEEPEST = 200  # elements within each other
DEEPEST_RANGES = 20
MOST_ELEMENTS = 1_000_000  # of a part of a document: half a gigabyte of memory
# Codes that open a range, and those that close it: of XLIFF, Word and OpenDocument
_RANGES = {
    **{"bpt": "ept", "bx": "ex", "sc": "ec", "annotation": "annotation-end"},
    **{f"{name}Start": f"{name}End" for name in ("bookmark", "commentRange", "perm", "moveFromRange", "moveToRange")},
    **{
        f"{name}-start": f"{name}-end"
        for name in ("bookmark", "reference-mark", "change", "toc-mark", "user-index-mark", "alphabetical-index-mark")
    },
}
# Attributes that both codes of a range have; the first that is there counts
_NUMBERS_OF_RANGES = ("rid", "startRef", "id", "name", "change-id")
_OF_XML = "http://www.w3.org/XML/1998/namespace "  # begins the name of xml:id, which one code alone has
_START_TAG = re.compile(rb"<(?:[^<>\"']|\"[^\"]*\"|'[^']*')*>")
_NO_TEXT = re.compile(rb"<!--.*?-->|<\?.*?\?>|<!\[CDATA\[(?P<cdata>.*?)\]\]>", re.DOTALL)
_BREAK = "\x1e"  # between the texts of a line; XML cannot have it
_MESSAGE = re.compile(MESSAGE)  # which may go on over breaks
_TAG_OF_LINE = re.compile(r"<(?P<slash>/?)g(?P<pair>\d+)>|<x(?P<thing>\d+)/>")


@dataclass
class Element:
    """An element of a document, and where it is in the bytes."""

    name: str
    """The local name after the namespace and a space, or alone"""
    attributes: dict[str, str]
    start: int
    inner_start: int
    inner_end: int = 0
    end: int = 0
    children: list["Element"] = field(default_factory=list)

    @property
    def tag(self) -> str:
        """The local name."""
        return self.name.rpartition(" ")[2]

    def prefix(self, content: bytes) -> bytes:
        """Return what is before the local name in the tags, such as w: or nothing."""
        name = re.match(rb"<[^\s/>]+", content[self.start : self.inner_start])
        assert name
        return name.group()[1 : len(name.group()) - len(self.tag.encode())]

    def walk(self) -> Iterator["Element"]:
        """Yield the element and all within it, in order."""
        yield self
        for child in self.children:
            yield from child.walk()


def parse_xml(content: bytes) -> Element:
    """Return the root of a document. Raises DocumentError if it is not well formed, not UTF-8, or has declarations.

    Nothing outside of the document is read. Its own declarations may expand to gigabytes: an entity in each reference,
    the default value of an attribute in each element.
    """
    parser = expat.ParserCreate(namespace_separator=" ")
    document = Element("", {}, 0, 0, len(content), len(content))
    open_elements = [document]
    n_elements = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal n_elements
        n_elements += 1
        if n_elements > MOST_ELEMENTS:
            raise DocumentError(f"it has more than {MOST_ELEMENTS:,} elements")
        place = parser.CurrentByteIndex
        tag = _START_TAG.match(content, place)
        if not tag or len(open_elements) > DEEPEST:
            raise DocumentError(f"elements are more than {DEEPEST} deep within each other")
        element = Element(name, attributes, place, tag.end())
        open_elements[-1].children.append(element)
        open_elements.append(element)

    def end(name: str) -> None:
        element = open_elements.pop()
        place = parser.CurrentByteIndex
        is_empty = content[element.inner_start - 2 : element.inner_start] == b"/>"
        element.inner_end = element.inner_start if is_empty else place
        element.end = element.inner_start if is_empty else content.index(b">", place) + 1

    def declared(version: str, encoding: str | None, standalone: int) -> None:
        if encoding and encoding.lower() not in ("utf-8", "utf8", "us-ascii", "ascii"):
            raise DocumentError(f"this XML is in {encoding}: save it as UTF-8")

    def start_doctype(name: str, system_id: str | None, public_id: str | None, has_declarations: bool) -> None:
        if has_declarations:
            raise DocumentError("this XML has declarations in its DOCTYPE, which are not read")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.XmlDeclHandler, parser.StartDoctypeDeclHandler = declared, start_doctype
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DocumentError("this XML is in UTF-16: save it as UTF-8")
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise DocumentError(f"this XML is damaged: {error}") from None
    return document.children[0]


class Text(NamedTuple):
    """Text of a line."""

    text: str
    style: bytes = b""
    """How it looks, in formats that say so for each piece of text"""


class Thing(NamedTuple):
    """A part of a line that is not translated: bytes of the document, and what must be around them."""

    start: int
    end: int
    before: bytes = b""
    after: bytes = b""
    is_break: bool = False
    """Whether the texts before and after it are translated one by one: the end of a line, a tabulator"""
    opens: str = ""
    """The range that it opens, if it is the first of two codes of a range"""
    closes: str = ""
    """The range that it closes, if it is the second"""


class Pair(NamedTuple):
    """What is before and after a part of a line that it is around, such as the tags of a link, or codes of a range."""

    before: bytes | Thing
    parts: "list[Part]"
    after: bytes | Thing


Part = Text | Thing | Pair
Styled = Callable[[str, bytes], bytes]
"""Writes text in a style"""


def unstyled(text: str, style: bytes) -> bytes:
    """Write text as it is in XML, in formats whose elements around text say how it looks."""
    return escaped(text)


class Line:
    """The content of an element, as a line with tags, and back."""

    def __init__(self, parts: list[Part], styled: Styled = unstyled, *, keeps_lines: bool = False) -> None:
        """Take the content, and what writes text in a style. With keeps_lines, line feeds divide the text."""
        self.styled = styled
        self.keeps_lines = keeps_lines
        self.things: list[Thing] = []
        self.pairs: list[tuple[bytes | Thing, bytes | Thing, bytes]] = []  # what is around, and the style within
        self.pairs_around = 0
        self.base = _usual_style(parts)
        line = self._line(parts, self.base)
        self.texts = _MESSAGE.sub(lambda message: message.group().replace(_BREAK, ""), line).split(_BREAK)

    def _line(self, parts: list[Part], base: bytes) -> str:
        result = ""
        for part in _joined(parts):
            if isinstance(part, Thing):
                tag = f"<x{len(self.things)}/>"
                result += f"{_BREAK}{tag}{_BREAK}" if part.is_break and not self.pairs_around else tag
                self.things.append(part)
            elif isinstance(part, Pair):
                result += self._tagged((part.before, part.after, _usual_style(part.parts)), part.parts)
            elif part.style == base or not part.text.strip():
                text = html.escape(part.text, quote=False)
                divides = self.keeps_lines and not self.pairs_around
                result += text.replace("\n", f"{_BREAK}\n{_BREAK}") if divides else text
            else:
                result += self._tagged((b"", b"", part.style), [part])
        return result

    def _tagged(self, pair: tuple[bytes | Thing, bytes | Thing, bytes], parts: list[Part]) -> str:
        number = len(self.pairs)
        self.pairs.append(pair)
        self.pairs_around += 1
        line = self._line(parts, pair[2])
        self.pairs_around -= 1
        return f"<g{number}>{line}</g{number}>"

    def written(self, translation: str, things: Callable[[int, int], bytes]) -> bytes | None:
        """Return a translation of the line as content; None if it does not have every tag once, in pairs.

        things returns what has become of the bytes of the document from one place to another.
        """
        written: list[bytes] = []
        end = 0
        styles, open_pairs, seen = [self.base], [], []
        for tag in _TAG_OF_LINE.finditer(translation):
            written.append(self._text(translation[end : tag.start()], styles[-1]))
            end = tag.end()
            number = int(tag["thing"] or tag["pair"])
            if number >= len(self.things if tag["thing"] else self.pairs):
                return None
            if tag["thing"]:
                written.append(_written(self.things[number], things))
            elif not tag["slash"]:
                written.append(_written(self.pairs[number][0], things))
                styles.append(self.pairs[number][2])
                open_pairs.append(number)
            elif not open_pairs or open_pairs.pop() != number:
                return None
            else:
                written.append(_written(self.pairs[number][1], things))
                styles.pop()
            seen.append(tag.group())
        if len(seen) != len(set(seen)) or len(seen) != len(self.things) + 2 * len(self.pairs):
            return None
        return b"".join([*written, self._text(translation[end:], styles[-1])])

    def _text(self, text: str, style: bytes) -> bytes:
        return self.styled(html.unescape(text), style) if text else b""


def _written(part: bytes | Thing, things: Callable[[int, int], bytes]) -> bytes:
    """Return what is written for a thing, or for a tag of a pair. things is that of `Line.written`."""
    return part if isinstance(part, bytes) else part.before + things(part.start, part.end) + part.after


def escaped(text: str) -> bytes:
    """Return text as it is in XML, without the characters that XML cannot have.

    A carriage return is a reference: XML reads the character itself as a line feed.
    """
    return html.escape(NOT_OF_XML.sub("", text), quote=False).replace("\r", "&#13;").encode()


def _joined(parts: list[Part]) -> Iterator[Part]:
    """Yield the parts, those of one style that follow each other as one."""
    waiting: Text | None = None
    for part in parts:
        if isinstance(part, Text) and waiting and waiting.style == part.style:
            waiting = Text(waiting.text + part.text, part.style)
            continue
        if waiting:
            yield waiting
        waiting = part if isinstance(part, Text) else None
        if not waiting:
            yield part
    if waiting:
        yield waiting


def _usual_style(parts: list[Part]) -> bytes:
    """Return the style of most of the text that is directly among the parts."""
    lengths: dict[bytes, int] = {}
    for part in parts:
        if isinstance(part, Text):
            lengths[part.style] = lengths.get(part.style, 0) + len(part.text)
    return max(lengths, key=lambda style: lengths[style], default=b"")


def text_parts(content: bytes, start: int, end: int) -> Iterator[Part]:
    """Yield what is between two tags: texts, and comments and instructions, which are things."""
    for match in _NO_TEXT.finditer(content, start, end):
        if match.start() > start:
            yield Text(html.unescape(content[start : match.start()].decode()))
        if match["cdata"] is not None:
            yield Text(match["cdata"].decode())
        else:
            yield Thing(*match.span())
        start = match.end()
    if end > start:
        yield Text(html.unescape(content[start:end].decode()))


def inline_parts(content: bytes, element: Element, pairs: Set[str], breaks: Set[str] = frozenset()) -> list[Part]:
    """Return the content of an element. Of those within it, only the ones whose tags are among pairs hold text.

    Texts before and after those whose tags are among breaks are translated one by one. Ranges are pairs.
    """
    return with_ranges(_inline_parts(content, element, pairs, breaks))


def _inline_parts(content: bytes, element: Element, pairs: Set[str], breaks: Set[str]) -> list[Part]:
    parts: list[Part] = []
    end = element.inner_start
    for child in element.children:
        parts += text_parts(content, end, child.start)
        end = child.end
        is_protected = child.attributes.get("translate") == "no" or child.attributes.get("mtype") == "protected"
        if child.tag in pairs and child.inner_end > child.inner_start and not is_protected:
            within = _inline_parts(content, child, pairs, breaks)
            parts.append(Pair(content[child.start : child.inner_start], within, content[child.inner_end : child.end]))
        else:
            parts.append(thing(child, is_break=child.tag in breaks))
    return [*parts, *text_parts(content, end, element.inner_end)]


def thing(element: Element, *, is_break: bool = False) -> Thing:
    """Return an element that is not translated, with the range that it opens or closes."""
    attributes = {
        name.rpartition(" ")[2]: value for name, value in element.attributes.items() if not name.startswith(_OF_XML)
    }
    number = next((attributes[name] for name in _NUMBERS_OF_RANGES if name in attributes), "")
    opens = f"{_RANGES[element.tag]} {number}" if element.tag in _RANGES and number else ""
    closes = f"{element.tag} {number}" if element.tag in _RANGES.values() else ""
    return Thing(element.start, element.end, is_break=is_break, opens=opens, closes=closes)


def with_ranges(parts: Sequence[Part]) -> list[Part]:
    """Return the parts of a line in which the two codes of a range, and what is between them, are a pair.

    The codes stay things if a text ends between them, or if the range crosses another one, which ends first.
    """
    result: list[Part] = []
    opened: dict[str, int] = {}  # the codes that wait for those that close them, and their places in the result
    for part in parts:
        if (isinstance(part, Thing) and part.is_break) or (isinstance(part, Text) and "\n" in part.text):
            opened.clear()
        if isinstance(part, Thing) and part.closes in opened:
            # What was opened since then and not closed is within the range.
            start = opened[part.closes]
            while part.closes in opened:
                opened.popitem()
            opening = result[start]
            assert isinstance(opening, Thing)
            result[start:] = [Pair(opening, result[start + 1 :], part)]
            continue
        if isinstance(part, Thing) and part.opens and part.opens not in opened and len(opened) < DEEPEST_RANGES:
            opened[part.opens] = len(result)
        result.append(part)
    return result


class Place(NamedTuple):
    """Where the translation of a line goes: bytes of the document, and what must be around it."""

    line: Line
    start: int
    end: int
    before: bytes = b""
    after: bytes = b""
    is_copy: bool = False
    """Whether the source is elsewhere, so that a line without text is written, too"""


def with_translations(content: bytes, places: Sequence[Place], translate: Translate) -> bytes:
    """Return a document with lines translated, readable in the encoding that it declares.

    places are in the order of the document; one may be within another.
    """
    texts = list(dict.fromkeys(text.strip() for place in places for text in place.line.texts))
    wanted = [text for text in texts if has_text(text, "html")]
    translation_of = dict(zip(wanted, translate(wanted), strict=True))

    def translated(text: str) -> str:
        stripped = text.strip()
        before, after = spaces_around(text)
        return before + translation_of.get(stripped, stripped) + after

    changes: list[tuple[int, int, bytes]] = []  # the last one first
    for place in reversed(places):
        within = []
        while changes and changes[-1][0] < place.end:
            within.append(changes.pop())
        translations = [translated(text) for text in place.line.texts]
        written = None
        if translations != place.line.texts or place.is_copy:
            written = place.line.written("".join(translations), partial(_with_changes, content, within))
            if written is None:
                leave("".join(place.line.texts), "its inline codes did not all come back")
        if written is None:
            changes += reversed(within)
        else:
            changes.append((place.start, place.end, place.before + written + place.after))
    translated_content = _with_changes(content, changes[::-1], 0, len(content))
    return as_declared(content.decode(), translated_content.decode()).encode()


def _with_changes(content: bytes, changes: Sequence[tuple[int, int, bytes]], start: int, end: int) -> bytes:
    """Return bytes of a document, from one place to another, with the changes between them, which are in order."""
    parts = []
    first, last = bisect_left(changes, start, key=itemgetter(0)), bisect_right(changes, end, key=itemgetter(0))
    for change_start, change_end, changed in changes[first:last]:
        if start <= change_start and change_end <= end:
            parts += [content[start:change_start], changed]
            start = change_end
    return b"".join([*parts, content[start:end]])
