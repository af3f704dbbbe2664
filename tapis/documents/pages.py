"""Pages in HTML or XHTML."""

import html
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

from tapis.documents.common import CHARACTER, Translate, as_declared, has_text, spaces_around
from tapis.text.mark_patterns import ATTRIBUTES, KEPT

# Elements within a sentence. All others begin a new one.
INLINE = {
    *("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "del", "dfn", "em", "font", "i", "img", "ins"),
    *("kbd", "label", "mark", "q", "rb", "rp", "rt", "ruby", "s", "samp", "small", "span", "strike", "strong", "sub"),
    *("sup", "time", "tt", "u", "var", "wbr"),
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

_KEPT_SPACE_OR_CHARACTER = re.compile(rf"(?P<kept>{KEPT}|</?[A-Za-z]{ATTRIBUTES}>)|(?P<space>\s+)|{CHARACTER}")
# A tag that tapis/text/marks.py reads as a tag, too. Others cannot be part of a line.
_TAG_OF_LINE = re.compile(rf"</?[A-Za-z]{ATTRIBUTES}>")
_KEPT_ELEMENT = re.compile(KEPT)
_EMPTY_COMMENTS = ("<!-- -->", "<!---->")  # which React and Vue write within a sentence
# How words are read (ruby), which a translation has no use for
_READING = re.compile(r"<(rt|rp)(?:\s[^<>]*)?>(?:[^<]|<(?!/?(?:ruby|rb|rt|rp)\b))*+(?:</\1\s*>)?", re.IGNORECASE)


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
    found = list(_ATTRIBUTE.finditer(tag["attributes"]))
    if tag["attributes"].endswith("/") and not (found and found[-1].end() == len(tag["attributes"])):
        return "void"  # a slash that is no part of a value without quotation marks, as in <a href=https://x.org/>
    attributes = {match["name"].lower(): match["value"].strip("\"'") for match in found}
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


def translated_file(page: str, translate: Translate) -> str:
    """Return the content of a file of HTML or XHTML translated, as `translated_html`.

    Readers of HTML take a file that declares no encoding for Windows-1252 or the like; those of XML, for UTF-8.
    """
    return translated_html(page, translate, "utf-8" if page.startswith("<?xml") else "windows-1252")


def translated_html(page: str, translate: Translate, default_encoding: str = "utf-8") -> str:
    """Return the page with its text translated.

    Sentences go on through elements such as <b> and <a>, and end at all others. Attributes, scripts, styles, code and
    elements with translate="no" stay as they are; the readings of words (ruby) are left out. The result can be read in
    the encoding that the page declares, or else in the default one.
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
        is_tag_of_line = kind != "other" and name in INLINE and _TAG_OF_LINE.match(page, start) is not None
        is_of_line = kind == "text" or is_tag_of_line or page.startswith(_EMPTY_COMMENTS, start)
        is_in_line = is_of_line and not (was_kept or kept.names)
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
        before, after = spaces_around(parts[i])
        parts[i] = before + translation + after
    return as_declared(page, "".join(parts), default_encoding)


def _as_typed(part: str) -> str:
    """Return the text of a page as it would be typed: single spaces, café for caf&eacute;, words without their reading.

    Tags and code stay. Characters that HTML needs escaped stay so.
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

    return _KEPT_SPACE_OR_CHARACTER.sub(typed, _READING.sub("", part)).strip()
