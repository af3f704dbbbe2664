"""Subtitles in SubRip (.srt) and WebVTT (.vtt)."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

from tapis.documents.common import DocumentError, Translate

# Times as players read them: with or without hours and fractions, and with spaces anywhere
_TIME = r"-?\d{1,9}+(?:\s*+:\s*+\d{1,9}+){1,3}+(?:\s*+[,.]\s*+\d{1,9}+)?+"
# How lines of speakers begin: with a dash or arrows, perhaps within tags; or with a voice, a colour, or a name in
# brackets or capitals, if what is said before does so, too
_DASH = re.compile(r"(?:<[^<>]*>|\{\\[^{}]*\}|\s)*(?:[-–—]|>>|&gt;&gt;)")
_VOICE = re.compile(r"\s*<v[ .][^<>]*>")
_NAMES = (
    *(_VOICE, re.compile(r"\s*<font\b[^<>]*>"), re.compile(r"\s*\[[^\[\]]{1,50}\]")),
    re.compile(r"\s*[\w .'’]{2,30}:\s"),
)
_VTT = re.compile(r"\ufeff?WEBVTT(?:\s|$)")
_TIME_TAG = re.compile(r"<[\d:.]+>")  # of WebVTT: when the next word is shown
_TIMES = re.compile(rf"{_TIME}\s*+(?:-{{1,3}}+|[–—])>\s*+{_TIME}(?!\S)")


def translated_srt(subtitles: str, translate: Translate) -> str:
    """Return subtitles in SubRip, translated: numbers, times and blank lines stay.

    Lines of a cue in a row become one, but those of two speakers stay two. Raises DocumentError if there are no times.
    """
    lines = _lines(subtitles)
    kinds = [_kind_of_line(line) for line in lines]
    if "times" not in kinds and subtitles.strip():
        raise DocumentError("these are no subtitles in the format SubRip (.srt): no line has times")

    blocks = [speech for start, end in _text_blocks(lines, kinds) for speech in _speeches(lines, start, end)]
    return _with_translations(lines, blocks, translate)


def _speeches(lines: Sequence[str], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut the lines of a cue where another speaker begins."""
    starts = [start]
    for i in range(start + 1, end):
        if _is_of_another(lines[i], lines[starts[-1]]):
            starts.append(i)
    return pairwise([*starts, end])


def _is_of_another(line: str, first: str) -> bool:
    """Return whether a line of a cue begins as if another speaker said it than the one whose first line is given."""
    if _DASH.match(line) or (_VOICE.match(line) and not _VOICE.match(first)):
        return True
    for pattern in _NAMES:
        one, other = pattern.match(line), pattern.match(first)
        if one and other and (one.group()[-2:-1] != ":" or (one.group().isupper() and other.group().isupper())):
            return one.group() != other.group()
    return False


def _with_translations(lines: list[str], blocks: Sequence[tuple[int, int]], translate: Translate) -> str:
    """Return the subtitles, with one line for each block, given by its first line and the one after its last."""
    texts = [" ".join(" ".join(lines[start:end]).split()) for start, end in blocks]
    for (start, end), text, translation in zip(blocks, texts, translate(texts), strict=True):
        if translation != text:
            ending = lines[end - 1][len(lines[end - 1].rstrip("\r\n")) :]
            lines[start:end] = [translation + ending, *[""] * (end - start - 1)]
    return "".join(lines)


def _with_times(text: str, times: list[str]) -> str:
    """Return a text of WebVTT with its times in place of the tags that stand for them."""
    rest = iter(times)
    return re.sub("<t/>", lambda _: next(rest, ""), text)


def translated_vtt(subtitles: str, translate: Translate) -> str:
    """Return subtitles in WebVTT, translated: of each cue the text, as `translated_srt` does.

    Identifiers, settings, notes and styles stay. Raises DocumentError if the first line is not that of WebVTT.
    """
    lines = _lines(subtitles)
    if not lines or not _VTT.match(lines[0]):
        raise DocumentError("these are no subtitles in the format WebVTT (.vtt): the first line must be WEBVTT")
    ends = [i for i, line in enumerate(lines) if not line.strip() or "-->" in line]
    blocks = []
    for place, end in pairwise([*ends, len(lines)]):
        if "-->" in lines[place]:
            blocks += [speech for speech in _speeches(lines, place + 1, end) if speech[0] < speech[1]]

    # A time within a text is a tag that has no letter.
    def translated(texts: Sequence[str]) -> list[str]:
        times = [_TIME_TAG.findall(text) for text in texts]
        translations = translate([_TIME_TAG.sub("<t/>", text) for text in texts])
        return [_with_times(translation, one) for translation, one in zip(translations, times, strict=True)]

    return _with_translations(lines, blocks, translated)


def srt_warnings(subtitles: str) -> Iterator[str]:
    """Yield what of subtitles is not understood, each with the number of its line."""
    has_begun = False  # the first cue
    for number, line in enumerate(_lines(subtitles), 1):
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


def _lines(subtitles: str) -> list[str]:
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
