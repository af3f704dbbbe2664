"""Translation memories in work: XLIFF 1.2 and 2 (.xliff, .xlf)."""

from collections.abc import Iterator

from tapis.documents.common import DocumentError, Translate, leave
from tapis.documents.xml_text import Element, Line, Place, inline_parts, parse_xml, with_translations

_PAIRS = {"g", "mrk", "pc"}
_UNITS = {"trans-unit", "segment"}  # of XLIFF 1.2 and 2
_TO_DO = {"new", "needs-translation", "needs-l10n", "initial"}  # states of targets that are copies of their sources


def translated_xliff(content: bytes, translate: Translate) -> bytes:
    """Return the file with a target for each unit that has none, or a copy of its source that waits for translation.

    Inline codes stay in the target. Units that must not be translated, and targets that are there, stay. Raises
    DocumentError if it is no XLIFF.
    """
    root = parse_xml(content)
    if root.tag != "xliff":
        raise DocumentError(f"this is no XLIFF: its root element is {root.tag[:50]}")
    if root.attributes.get("version", "").startswith("2") and "trgLang" not in root.attributes:
        leave("<xliff>", "it has no trgLang, which a file with targets must have: write the language there")
    places = [place for unit in _units(root) if (place := _place(content, unit))]
    return with_translations(content, places, translate)


def _units(element: Element, may_be: bool = True) -> Iterator[Element]:
    """Yield the units within an element that may be translated: by their own translate, or that of what they are in."""
    for child in element.children:
        own = child.attributes.get("translate", "yes" if may_be else "no") != "no"
        if child.tag not in _UNITS:
            yield from _units(child, own)
        elif own and child.attributes.get("approved") != "yes":
            yield child
        else:
            leave(child.attributes.get("id", child.tag), "it must not be translated, or is approved")


def _place(content: bytes, unit: Element) -> Place | None:
    """Return where the translation of a unit goes; None if it has one."""
    source = next((child for child in unit.children if child.tag == "source"), None)
    target = next((child for child in unit.children if child.tag == "target"), None)
    if not source:
        return None
    line = Line(inline_parts(content, source, _PAIRS), keeps_lines=True)
    prefix = source.prefix(content)
    closing = b"</%btarget>" % prefix
    if not target:
        # After the source and its segmentation, on a line of its own if the source is.
        last = next((child for child in unit.children if child.tag == "seg-source"), source)
        start = source.start
        while content[start - 1 : start].isspace():
            start -= 1
        indent = content[start : source.start]
        is_1_2 = unit.tag == "trans-unit"
        opening = b"<%btarget%b>" % (prefix, b' state="needs-review-translation"' if is_1_2 else b"")
        return Place(line, last.end, last.end, indent + opening, closing, is_copy=True)
    before, is_empty = content[target.start : target.inner_start], target.inner_start == target.inner_end
    default = "initial" if unit.tag == "segment" else ""
    state = target.attributes.get("state", unit.attributes.get("state", default))
    is_copied = content[target.inner_start : target.inner_end] == content[source.inner_start : source.inner_end]
    if not (is_empty or (is_copied and state in _TO_DO)):
        leave("".join(line.texts), "it has a target")
        return None
    if before.endswith(b"/>"):
        before = before[:-2].rstrip() + b">"
    return Place(line, target.start, target.end, before, closing, is_copy=is_empty)
