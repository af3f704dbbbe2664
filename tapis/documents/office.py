"""Texts of word processors: .docx (Office Open XML) and .odt (OpenDocument).

What is translated is paragraphs, with those of headers, footers, notes, comments and text boxes. Pictures, fields,
formulas and deleted text stay as they are, styles stay with their words.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial

from tapis.documents.archives import changed_archive
from tapis.documents.common import DocumentError, Translate
from tapis.documents.xml_text import (
    DEEPEST,
    Element,
    Line,
    Pair,
    Part,
    Place,
    Text,
    Thing,
    escaped,
    inline_parts,
    parse_xml,
    text_parts,
    thing,
    with_ranges,
    with_translations,
)

_PARTS_OF_DOCX = re.compile(r"word/(?:document|header|footer|footnotes|endnotes|comments)\d*\.xml")
_AROUND_RUNS = {"hyperlink", "ins", "moveTo", "smartTag", "sdt", "sdtContent", "customXml", "bdo", "dir"}
_FIELDS_OF_TEXT = ("HYPERLINK", "TOC")  # whose results are texts of the document
# Spelling errors, where pages ended, and where words may be divided
_WITHOUT_MEANING = {"proofErr", "lastRenderedPageBreak", "softHyphen"}
_NO_STYLE = {"lang", "noProof"}  # properties of runs that say how text is checked, not how it looks
_BREAKS = {"br", "cr", "tab", "ptab"}
_PARTS_OF_ODT = ("content.xml", "styles.xml")
_BREAKS_OF_ODT = {"line-break", "tab"}
_AROUND_TEXT_OF_ODT = {"span", "a", "meta", "meta-field", "ruby", "ruby-base"}


def translated_docx(content: bytes, translate: Translate) -> bytes:
    """Return a .docx file with its paragraphs translated. Raises DocumentError if it is none."""

    def change(name: str, part: bytes) -> bytes:
        return _translated_part_of_docx(part, translate) if _PARTS_OF_DOCX.fullmatch(name) else part

    return changed_archive(content, change, "word/document*.xml")  # Word for the web adds a number


def _translated_part_of_docx(part: bytes, translate: Translate) -> bytes:
    places = []
    for element in parse_xml(part).walk():
        if element.tag == "p" and "wordprocessingml" in element.name:
            children = element.children
            if children and children[0].tag == "pPr":
                children = children[1:]
            start = children[0].start if children else element.inner_end
            styled = partial(_run, prefix=element.prefix(part))
            parts = with_ranges(_parts_of_docx(part, children))
            places.append(Place(Line(parts, styled), start, element.inner_end))
    return with_translations(part, places, translate)


def _run(text: str, style: bytes, prefix: bytes) -> bytes:
    """Return text as a run. style is its element of properties."""
    return b'<%br>%b<%bt xml:space="preserve">%b</%bt></%br>' % (prefix, style, prefix, escaped(text), prefix, prefix)


def _parts_of_docx(part: bytes, elements: Sequence[Element], depth: int = 0) -> list[Part]:
    """Return what elements of a paragraph hold: runs of text, and elements around them.

    depth is how many elements and fields they are in. Raises DocumentError if there are more than DEEPEST.
    """
    if depth > DEEPEST:
        raise DocumentError(f"fields are more than {DEEPEST} deep within each other")
    parts: list[Part] = []
    ends = _ends_of_fields(elements)
    end = 0  # of the last field
    for place, element in enumerate(elements):
        if place < end or element.tag in _WITHOUT_MEANING:
            continue
        if place in ends:
            # What a field says is between the element that separates it from its instruction, and its end.
            end = ends[place]
            field = elements[place:end]
            last = next((i for i, one in enumerate(field) if _field_character(one) == "separate"), None)
            instruction = re.sub(rb"<[^>]*>", b"", part[element.start : field[last or -1].start]).decode(
                "utf-8", "replace"
            )
            if last is None or not instruction.strip().startswith(_FIELDS_OF_TEXT):
                parts.append(Thing(element.start, field[-1].end))
            else:
                before = part[element.start : field[last].end]
                after = part[field[-1].start : field[-1].end]
                parts.append(Pair(before, _parts_of_docx(part, field[last + 1 : -1], depth + 1), after))
        elif element.tag == "r":
            parts += _parts_of_run(part, element)
        elif (element.tag in _AROUND_RUNS or _is_field_of_text(element)) and element.children:
            inner = next((child for child in element.children if child.tag == "sdtContent"), element)
            # Its properties, such as smartTagPr, must stay its first child.
            properties = [child for child in inner.children[:1] if child.tag.endswith("Pr")]
            within = _parts_of_docx(part, inner.children[len(properties) :], depth + 1)
            start = properties[0].end if properties else inner.inner_start
            parts.append(Pair(part[element.start : start], within, part[inner.inner_end : element.end]))
        else:
            parts.append(thing(element))
    return parts


def _is_field_of_text(element: Element) -> bool:
    """Return whether an element is a field, around its result, that is text of the document."""
    return element.tag == "fldSimple" and _attribute(element, "instr").strip().startswith(_FIELDS_OF_TEXT)


def _field_character(run: Element) -> str:
    """Return what a run is of a field: "begin", "separate", "end", or nothing."""
    found = next((child for child in run.children if child.tag == "fldChar"), None)
    return _attribute(found, "fldCharType") if found else ""


def _attribute(element: Element, name: str) -> str:
    """Return the value of an attribute by its local name; nothing if there is none."""
    return next((value for other, value in element.attributes.items() if other.rpartition(" ")[2] == name), "")


def _ends_of_fields(elements: Sequence[Element]) -> dict[int, int]:
    """Return where the fields end among the elements, by where they begin. A field may end in another paragraph."""
    ends: dict[int, int] = {}
    begun: list[int] = []
    for place, element in enumerate(elements):
        character = _field_character(element)
        if character == "begin":
            begun.append(place)
        elif character == "end" and begun:
            ends[begun.pop()] = place + 1
    return ends


def _parts_of_run(part: bytes, run: Element) -> Iterator[Part]:
    """Yield the texts of a run, and what else it holds."""
    properties = next((child for child in run.children if child.tag == "rPr"), None)
    style = _style(part, properties) if properties else b""
    others = [child for child in run.children if child is not properties and child.tag not in _WITHOUT_MEANING]
    if not others:
        return
    if not any(child.tag in {"t", "noBreakHyphen", "ruby", *_BREAKS} for child in others):
        yield Thing(run.start, run.end)
        return
    if style and not _text_of(part, others).strip() and len(_text_of(part, others)) > 1:
        yield Thing(run.start, run.end)  # a line to write on, of underlined spaces
        return
    before = part[run.start : run.inner_start] + style
    for child in others:
        if child.tag == "t":
            yield from (
                Text(one.text, style)
                for one in text_parts(part, child.inner_start, child.inner_end)
                if isinstance(one, Text)
            )
        elif child.tag == "noBreakHyphen":
            yield Text("\u2011", style)
        elif child.tag == "ruby":
            # The words without how they are read, which a translation has no use for.
            words = next((one for one in child.children if one.tag == "rubyBase"), child)
            for one in words.children:
                if one.tag == "r":
                    yield from _parts_of_run(part, one)
        else:
            is_break = child.tag in _BREAKS
            yield Thing(child.start, child.end, before, part[run.inner_end : run.end], is_break)


def _style(part: bytes, properties: Element) -> bytes:
    """Return the properties of a run without those that are no style; nothing if there are no others."""
    styles = [part[one.start : one.end] for one in properties.children if one.tag not in _NO_STYLE]
    if not styles:
        return b""
    opening = part[properties.start : properties.inner_start]
    return b"".join([opening, *styles, part[properties.inner_end : properties.end]])


def _text_of(part: bytes, elements: Sequence[Element]) -> str:
    """Return the text of the elements of a run; anything else than text counts as some."""
    return "".join(
        part[one.inner_start : one.inner_end].decode("utf-8", "replace") if one.tag == "t" else "x" for one in elements
    )


def translated_odt(content: bytes, translate: Translate) -> bytes:
    """Return an .odt file with its paragraphs and headings translated. Raises DocumentError if it is none."""

    def change(name: str, part: bytes) -> bytes:
        return _translated_part_of_odt(part, translate) if name in _PARTS_OF_ODT else part

    return changed_archive(content, change, "content.xml")


def _translated_part_of_odt(part: bytes, translate: Translate) -> bytes:
    root = parse_xml(part)
    deleted = [(one.start, one.end) for one in root.walk() if one.tag == "tracked-changes"]
    places = [
        Place(
            Line(inline_parts(part, element, _AROUND_TEXT_OF_ODT, _BREAKS_OF_ODT)),
            element.inner_start,
            element.inner_end,
        )
        for element in root.walk()
        if element.tag in ("p", "h") and "opendocument" in element.name and element.inner_end > element.inner_start
        if not any(start < element.start < end for start, end in deleted)
    ]
    return with_translations(part, places, translate)
