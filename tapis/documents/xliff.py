"""Translation memories in work: XLIFF 1.2 and 2 (.xliff, .xlf, and .sdlxliff and .mqxliff, which add elements)."""

from collections.abc import Iterator

from tapis.documents.common import DocumentError, Translate, leave
from tapis.documents.xml_text import Element, Line, Part, Place, Thing, inline_parts, parse_xml, with_translations

_PAIRS = {"g", "mrk", "pc"}
_UNITS = {"trans-unit", "segment"}  # of XLIFF 1.2 and 2
_TO_DO = {"new", "needs-translation", "needs-l10n", "initial"}  # states of targets that are copies of their sources


def translated_xliff(content: bytes, translate: Translate) -> bytes:
    """Return the file with a target for each unit that has none, or a copy of its source that waits for translation.

    The segments of a unit with a seg-source are translated one by one. Its target has the same segments; of those that
    are there, only the empty ones are filled.

    Inline codes stay in the target. Units that must not be translated, and targets that are there, stay. Raises
    DocumentError if it is no XLIFF.
    """
    root = parse_xml(content)
    if root.tag != "xliff":
        raise DocumentError(f"this is no XLIFF: its root element is {root.tag[:50]}")
    if root.attributes.get("version", "").startswith("2") and "trgLang" not in root.attributes:
        leave("<xliff>", "it has no trgLang, which a file with targets must have: write the language there")
    places = [place for unit in _units(root) for place in _places(content, unit)]
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


def _places(content: bytes, unit: Element) -> Iterator[Place]:
    """Yield where the translation of a unit goes, or those of its empty segments; nothing if it has one."""
    source, seg_source, target = (_child(unit, tag) for tag in ("source", "seg-source", "target"))
    if not source:
        return
    segments = list(_segments(seg_source)) if seg_source else []
    line = Line(inline_parts(content, source, _PAIRS), keeps_lines=True)
    if seg_source and segments:
        line = _segmented_line(content, seg_source, segments)
    prefix = source.prefix(content)
    closing = b"</%btarget>" % prefix

    # Write a new target after the source and its segmentation, on a line of its own if the source is.
    if not target:
        last = seg_source or source
        start = source.start
        while content[start - 1 : start].isspace():
            start -= 1
        indent = content[start : source.start]
        is_1_2 = unit.tag == "trans-unit"
        opening = b"<%btarget%b>" % (prefix, b' state="needs-review-translation"' if is_1_2 else b"")
        yield Place(line, last.end, last.end, indent + opening, closing, is_copy=True)
        return

    # Fill a target that is empty, or waits for translation.
    is_empty = not _inner(content, target).strip()
    default = "initial" if unit.tag == "segment" else ""
    state = target.attributes.get("state", unit.attributes.get("state", default))
    is_copied = _inner(content, target) in [_inner(content, one) for one in (source, seg_source) if one]
    if is_empty or (is_copied and state in _TO_DO):
        yield Place(line, target.start, target.end, _opening(content, target), closing, is_copy=is_empty)
        return

    # Fill the segments of a target that are empty.
    target_segments = list(_segments(target))
    if segments and target_segments:
        yield from _places_of_segments(content, segments, target_segments)
    else:
        leave("".join(Line(inline_parts(content, source, _PAIRS)).texts), "it has a target")


def _places_of_segments(content: bytes, segments: list[Element], target_segments: list[Element]) -> Iterator[Place]:
    """Yield where the translations of segments go: into those of the target with the same number that are empty."""
    source_of = {segment.attributes["mid"]: segment for segment in segments if "mid" in segment.attributes}
    for target in target_segments:
        source = source_of.pop(target.attributes.get("mid", ""), None)
        if not source:
            continue
        line = Line(inline_parts(content, source, _PAIRS), keeps_lines=True)
        if _inner(content, target).strip():
            leave("".join(line.texts), "it has a target")
        else:
            closing = b"</%bmrk>" % target.prefix(content)
            yield Place(line, target.start, target.end, _opening(content, target), closing, is_copy=True)
    for source in source_of.values():
        leave("".join(Line(inline_parts(content, source, _PAIRS)).texts), "its target lacks this segment")


def _segments(element: Element) -> Iterator[Element]:
    """Yield the segments in a seg-source or a target, which may be within inline codes."""
    for child in element.children:
        if child.tag == "mrk" and child.attributes.get("mtype") == "seg":
            yield child
        else:
            yield from _segments(child)


def _segmented_line(content: bytes, seg_source: Element, segments: list[Element]) -> Line:
    """Return a segmentation as a line: each segment is a text of its own, and what is around them stays."""
    parts: list[Part] = []
    end = seg_source.inner_start
    for segment in segments:
        parts += [Thing(end, segment.inner_start, is_break=True), *inline_parts(content, segment, _PAIRS)]
        end = segment.inner_end
    return Line([*parts, Thing(end, seg_source.inner_end, is_break=True)], keeps_lines=True)


def _child(element: Element, tag: str) -> Element | None:
    """Return the first child with a tag."""
    return next((child for child in element.children if child.tag == tag), None)


def _inner(content: bytes, element: Element) -> bytes:
    """Return what is within an element."""
    return content[element.inner_start : element.inner_end]


def _opening(content: bytes, element: Element) -> bytes:
    """Return the start tag of an element, also if it has no other."""
    tag = content[element.start : element.inner_start]
    return tag[:-2].rstrip() + b">" if tag.endswith(b"/>") else tag
