"""Files that clients send to be translated: read, translated and kept in memory, never on disk."""

import logging
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from tapis.config import TapisError
from tapis.text.documents import translated_html, translated_markdown, translated_srt
from tapis.text.lines import not_utf8
from tapis.text.markup import Markup

logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # damaged forms are answered, not logged

Convert = Callable[[str, Callable[[Sequence[str]], list[str]]], str]

KEPT_SECONDS = 600.0
MAX_FILES = 100
MAX_BYTES = 50_000_000  # of all files together


def translated_lines(text: str, translate: Callable[[Sequence[str]], list[str]]) -> str:
    """Return the text with each line translated."""
    return "\n".join(translate(text.split("\n")))


# By the end of a file's name: how it is translated, and the markup of its lines.
FORMATS: dict[str, tuple[Convert, Markup]] = {
    ".txt": (translated_lines, ""),
    ".html": (translated_html, "html"),
    ".htm": (translated_html, "html"),
    ".md": (translated_markdown, "markdown"),
    ".srt": (translated_srt, ""),
}
SUFFIXES = tuple(FORMATS)


@dataclass(frozen=True)
class Document:
    """A text, and what takes it apart into lines and puts their translations together."""

    text: str
    convert: Convert
    markup: Markup

    def lines(self) -> list[str]:
        """Return the lines to translate. Raises TapisError if the text is not in its format."""
        found: list[str] = []

        def collect(lines: Sequence[str]) -> list[str]:
            found.extend(lines)
            return list(lines)

        self.convert(self.text, collect)
        return found

    def joined(self, translations: Sequence[str]) -> str:
        """Return the document with the translations of its lines."""
        return self.convert(self.text, lambda _: list(translations))


@dataclass(frozen=True)
class Upload:
    """A file of a form. Its name says what it is, and is never opened."""

    name: str
    content: bytes

    def document(self) -> Document:
        """Return the text of the file. Raises TapisError if it is in none of FORMATS or not UTF-8."""
        suffix = PurePosixPath(self.name).suffix.lower()
        if suffix not in FORMATS:
            raise TapisError(f"files of this name are not translated, but {', '.join(FORMATS)}")
        try:
            text = self.content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise TapisError(f"the file is {not_utf8(self.content)}") from None
        return Document(text, *FORMATS[suffix])


class _InMemoryParser(MultiPartParser):
    """Starlette's, which keeps files of any size in memory. The size of the whole body is limited before it."""

    spool_max_size = 2**40


async def read_upload(http: Request, max_fields: int) -> dict[str, list[Any]]:
    """Return the values of each field of a form with files. Raises ValueError if it is damaged or has more fields."""
    try:
        form = await _InMemoryParser(http.headers, http.stream(), max_files=1, max_fields=max_fields).parse()
    except MultiPartException as error:
        raise ValueError(error.message) from None
    fields: dict[str, list[Any]] = {}
    for name, value in form.multi_items():
        content = Upload(value.filename or "", await value.read()) if isinstance(value, UploadFile) else value
        fields.setdefault(name, []).append(content)
    await form.close()
    return fields


def translated_name(name: str, language: str) -> str:
    """Return the name of a file's translation, such as letter.fr.txt, without characters that paths read."""
    path = PurePosixPath(name.replace("\\", "/"))
    stem = re.sub(r"[^\w -]", "_", path.stem)[:60] or "file"
    return f"{stem}.{language}{path.suffix.lower()}"


@dataclass(frozen=True)
class Download:
    """A file that a client may fetch."""

    name: str
    content: bytes
    client: str
    """Who made it"""
    made: float = field(default_factory=time.monotonic)


class Downloads:
    """The latest translated files, by names that nobody can guess."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, Download] = OrderedDict()  # the oldest first

    def add(self, name: str, content: bytes, client: str) -> str:
        """Keep a file for KEPT_SECONDS, or until newer ones need its room. Return the name to fetch it by."""
        self._forget()
        secret = f"{secrets.token_urlsafe(24)}.{name}"
        self._files[secret] = Download(name, content, client)
        while len(self._files) > MAX_FILES or sum(len(file.content) for file in self._files.values()) > MAX_BYTES:
            self._files.popitem(last=False)
        return secret

    def get(self, secret: str) -> Download | None:
        """Return a file that is still kept."""
        self._forget()
        return self._files.get(secret)

    def _forget(self) -> None:
        limit = time.monotonic() - KEPT_SECONDS
        while self._files and next(iter(self._files.values())).made < limit:
            self._files.popitem(last=False)
