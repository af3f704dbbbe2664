"""Files that clients send to be translated: read, translated and kept in memory, never on disk."""

import logging
import re
import secrets
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, Generic, TypeVar

from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from tapis.config import TapisError
from tapis.documents.common import Translate
from tapis.documents.formats import FORMATS as DOCUMENTS
from tapis.documents.pages import translated_html
from tapis.system.terminal import in_one_line
from tapis.text.markup import Markup
from tapis.translation import Translation
from tapis.typed_text import without_added_stop

logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # damaged forms are answered, not logged

C = TypeVar("C", str, bytes)

KEPT_SECONDS = 600.0
MAX_FILES = 100
MAX_BYTES = 50_000_000  # of all files together


# The formats of files by the ends of their names. Those that take far more memory or time than their size suggests are
# for the command line alone.
SERVED = ("html", "markdown", "srt", "vtt", "po", "json")
FORMATS = {".txt": DOCUMENTS["text"]} | {
    ending: DOCUMENTS[name] for name in SERVED for ending in DOCUMENTS[name].endings
}
SUFFIXES = tuple(FORMATS)


def translated_lines(text: str, translate: Translate) -> str:
    """Return the text with each line translated."""
    return "\n".join(translate(text.split("\n")))


@dataclass(frozen=True)
class Document(Generic[C]):
    """A text or a file, and what takes it apart into lines and puts their translations together."""

    content: C
    convert: Callable[[C, Translate], C]
    markup: Markup

    def lines(self) -> list[str]:
        """Return the lines to translate. Raises TapisError if the content is not in its format."""
        found: list[str] = []

        def collect(lines: Sequence[str]) -> list[str]:
            found.extend(lines)
            return list(lines)

        self.convert(self.content, collect)
        return found

    def joined(self, translations: Sequence[str]) -> C:
        """Return the document with the translations of its lines."""
        rest = iter(translations)
        return self.convert(self.content, lambda lines: list(islice(rest, len(lines))))


def joined_file(document: Document[bytes], lines: Sequence[str], translations: Sequence[Translation]) -> bytes:
    """Return a file with the translations of its lines, without full stops that the lines have not."""
    texts = [without_added_stop(line, one, document.markup).text for line, one in zip(lines, translations, strict=True)]
    return document.joined(texts)


def document_of(text: str, *, is_html: bool) -> Document[str]:
    """Return a text of a request as a document: a page, or lines."""
    return Document(text, translated_html, "html") if is_html else Document(text, translated_lines, "")


@dataclass(frozen=True)
class Upload:
    """A file of a form. Its name says what it is, and is never opened."""

    name: str
    content: bytes

    def document(self) -> Document[bytes]:
        """Return the file as a document. Raises TapisError if it is in none of FORMATS."""
        suffix = PurePosixPath(self.name).suffix.lower()
        if suffix not in FORMATS:
            kind_of_file = f"{in_one_line(suffix, 20)} files" if suffix else "files without an ending"
            raise TapisError(f"the server does not translate {kind_of_file}; it takes {', '.join(FORMATS)}")
        kind = FORMATS[suffix]
        return Document(self.content, kind.translated, kind.markup)


class _InMemoryParser(MultiPartParser):
    """Starlette's, which keeps files of any size in memory. The size of the whole body is limited before it."""

    spool_max_size = 2**40


async def read_upload(http: Request, max_fields: int) -> dict[str, list[Any]]:
    """Return the values of each field of a form with files.

    Raises ValueError if it is damaged, has more fields, or names another encoding than UTF-8: the parser would look up
    whatever name a client gives, and Python remembers each; some of its encodings take quadratic time.
    """
    charset = parse_options_header(http.headers["content-type"])[1].get(b"charset", b"utf-8")
    if charset.lower() not in (b"utf-8", b"utf8"):
        raise ValueError("its charset must be UTF-8")
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
        """Keep a file for KEPT_SECONDS, or until others need its room. Return the name to fetch it by.

        Room is made by the oldest file of the client that takes most of it.
        """
        self._forget()
        secret = f"{secrets.token_urlsafe(24)}.{name}"
        self._files[secret] = Download(name, content, client)
        while len(self._files) > MAX_FILES or sum(len(file.content) for file in self._files.values()) > MAX_BYTES:
            shares: defaultdict[str, float] = defaultdict(float)
            for file in self._files.values():
                shares[file.client] += 1 / MAX_FILES + len(file.content) / MAX_BYTES
            largest = max(shares, key=lambda one: shares[one])
            del self._files[next(one for one, file in self._files.items() if file.client == largest)]
        return secret

    def get(self, secret: str) -> Download | None:
        """Return a file that is still kept."""
        self._forget()
        return self._files.get(secret)

    def _forget(self) -> None:
        limit = time.monotonic() - KEPT_SECONDS
        while self._files and next(iter(self._files.values())).made < limit:
            self._files.popitem(last=False)
