"""What the formats of documents share."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, NamedTuple, TypeVar

from tapis.config import TapisError
from tapis.text.lines import not_utf8, utf16_name
from tapis.text.mark_patterns import MESSAGE
from tapis.text.marks import take_out
from tapis.text.markup import Markup
from tapis.text.messages import messages_in, texts_of

T = TypeVar("T")

Translate = Callable[[Sequence[str]], list[str]]
"""Translates lines, N lines to N lines, and keeps markup where it belongs (tapis/typed_text.py)"""

CHARACTER = r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|\w{1,40});"  # longer ones are no characters
_MESSAGE_OR_BREAK = re.compile(rf"{MESSAGE}|(?P<break>\r\n|[\r\n\t\v\f\x85\u2028\u2029])")
# Where a page or XML names its encoding: <?xml encoding="…"?>, <meta charset="…">, <meta content="…; charset=…">
_DECLARED_ENCODING = re.compile(
    r"(?:\A<\?xml\b[^<>]{0,500}?\bencoding|<meta\b[^<>]{0,500}?\bcharset)"
    r"\s{0,9}=\s{0,9}[\"']?\s{0,9}(?P<encoding>[\w.:-]{1,40})",
    re.IGNORECASE,
)


class DocumentError(TapisError):
    """A document is not in the format that it should be in."""


def located(name: str, error: DocumentError) -> str:
    """Return an error about a document, or about a part of one, with its name."""
    return f"{name}{' ' if str(error).startswith('is ') else ': '}{error}"


class Left(NamedTuple):
    """A text of a document that was not translated."""

    text: str
    reason: str


class _Notes(Generic[T]):
    """What the formats note about the document at hand, within the block that asks for it."""

    def __init__(self, name: str) -> None:
        self._noted: ContextVar[list[T] | None] = ContextVar(name, default=None)

    def add(self, note: T) -> None:
        """Keep a note; forget it outside of a block."""
        noted = self._noted.get()
        if noted is not None:
            noted.append(note)

    @contextmanager
    def within_block(self) -> Iterator[list[T]]:
        """Collect the notes that are made within the block."""
        noted: list[T] = []
        token = self._noted.set(noted)
        try:
            yield noted
        finally:
            self._noted.reset(token)


_LEFT = _Notes[Left]("left")
_WARNINGS = _Notes[str]("warnings")
texts_left = _LEFT.within_block  # the texts that the formats leave as they are
warnings_noted = _WARNINGS.within_block  # about documents that are translated all the same
warn = _WARNINGS.add


def leave(text: str, reason: str) -> None:
    """Note that a text is not translated, for `texts_left`."""
    _LEFT.add(Left(text, reason))


def splice(content: str, changes: Iterable[tuple[int, int, str]]) -> str:
    """Return content with other texts in some places, given in order: where each begins and ends, and what is there."""
    parts, end = [], 0
    for start, stop, text in changes:
        parts += [content[end:start], text]
        end = stop
    return "".join([*parts, content[end:]])


def translated_texts(texts: Sequence[str], translate: Translate) -> list[str]:
    """Return texts translated, each line and each part between tabs by itself, but a message of ICU as a whole.

    Tabs, ends of lines, spaces around the parts, and what is no text stay.
    """
    lines = [_parts(text) for text in texts]
    wanted = [line.strip() for parts in lines for line in parts if has_text(line, "")]
    translations = iter(translate(wanted))
    for parts in lines:
        for i, line in enumerate(parts):
            if has_text(line, ""):
                before, after = spaces_around(line)
                parts[i] = before + next(translations) + after
    return ["".join(parts) for parts in lines]


def _parts(text: str) -> list[str]:
    """Return the parts of a text, and between each two of them the tab or the end of a line that divides them."""
    parts, start = [], 0
    for found in _MESSAGE_OR_BREAK.finditer(text):
        if found["break"]:
            parts += [text[start : found.start()], found["break"]]
            start = found.end()
    return [*parts, text[start:]]


def spaces_around(text: str) -> tuple[str, str]:
    """Return the spaces before a text and those behind it; a text of spaces alone has them before it."""
    stripped = text.lstrip()
    return text[: len(text) - len(stripped)], stripped[len(stripped.rstrip()) :]


def decoded(content: bytes) -> str:
    """Return the text of UTF-8. Raises DocumentError for what is another encoding."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise DocumentError(f"is {not_utf8(content)}") from None
    if utf16_name(content):  # of ASCII alone, which UTF-8 has no error in
        raise DocumentError(f"is {not_utf8(content)}")
    return text


def as_declared(document: str, translated: str, default: str = "utf-8") -> str:
    """Return a translated page or XML so that it can be read in the encoding that it declares, or else in the default.

    If a document is of ASCII alone and this is another encoding than UTF-8, its translation stays ASCII: all other
    characters become character references, which mean the same in every encoding.
    """
    if not document.isascii():
        return translated
    declared = {match["encoding"].lower() for match in _DECLARED_ENCODING.finditer(document)} or {default}
    if declared <= {"utf-8", "utf8"}:
        return translated
    return translated.encode("ascii", "xmlcharrefreplace").decode("ascii")


def has_text(part: str, markup: Markup) -> bool:
    """Return whether there are letters outside of marks, or in the texts of a message."""
    if not part or part.isspace():
        return False
    taken = take_out(part, markup=markup)
    if any(map(str.isalpha, re.sub(CHARACTER, "", taken.text))):
        return True
    return any(has_text(text, markup) for message in messages_in(part, taken.marks) for text in texts_of(message))
