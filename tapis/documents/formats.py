"""The formats of documents, by the endings of file names, and what translates each.

A document is bytes. Of those that are text, the function takes and returns text; of all others, bytes. None of them
opens a file, fetches anything, or executes what a document holds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tapis.documents.books import translated_epub
from tapis.documents.catalogs import translated_po
from tapis.documents.common import DocumentError, Translate, without_added_stop
from tapis.documents.markdown import translated_markdown
from tapis.documents.office import translated_docx, translated_odt
from tapis.documents.pages import translated_html
from tapis.documents.subtitles import translated_srt, translated_vtt
from tapis.documents.tables import translated_csv
from tapis.documents.trees import translated_json, translated_yaml
from tapis.documents.wrapped import translated_text
from tapis.documents.xliff import translated_xliff
from tapis.text.lines import not_utf8, utf16_name
from tapis.text.markup import Markup


@dataclass(frozen=True)
class DocumentFormat:
    """A format of documents."""

    endings: tuple[str, ...]
    """Of the names of its files"""
    description: str
    markup: Markup = ""
    """Of the lines that are translated"""
    of_text: Callable[[str, Translate], str] | None = None
    of_bytes: Callable[[bytes, Translate], bytes] | None = None
    """What translates it: one of the two"""

    def translated(self, content: bytes, translate: Translate) -> bytes:
        """Return a document with its text translated. Raises DocumentError if it is not of this format."""

        def in_documents(lines: Sequence[str]) -> list[str]:
            return [without_added_stop(line, one) for line, one in zip(lines, translate(lines), strict=True)]

        if self.of_bytes:
            return self.of_bytes(content, in_documents)
        assert self.of_text
        if not content.strip():
            return content
        return self.of_text(decoded(content), in_documents).encode("utf-8", "replace")


def decoded(content: bytes) -> str:
    """Return the text of UTF-8. Raises DocumentError for what is another encoding."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise DocumentError(f"is {not_utf8(content)}") from None
    if utf16_name(content):  # of ASCII alone, which UTF-8 has no error in
        raise DocumentError(f"is {not_utf8(content)}")
    return text


FORMATS = {
    "text": DocumentFormat((), "paragraphs of plain text that is wrapped at a column", "", translated_text),
    "html": DocumentFormat((".html", ".htm", ".xhtml"), "pages", "html", translated_html),
    "markdown": DocumentFormat((".md", ".markdown"), "Markdown", "markdown", translated_markdown),
    "srt": DocumentFormat((".srt",), "subtitles in SubRip", "", translated_srt),
    "vtt": DocumentFormat((".vtt",), "subtitles in WebVTT", "html", translated_vtt),
    "po": DocumentFormat((".po", ".pot"), "catalogs of gettext", "", translated_po),
    "json": DocumentFormat((".json",), "the values of JSON", "", translated_json),
    "yaml": DocumentFormat((".yaml", ".yml"), "the values of YAML", "", translated_yaml),
    "xliff": DocumentFormat((".xliff", ".xlf"), "XLIFF 1.2 and 2", "html", of_bytes=translated_xliff),
    "docx": DocumentFormat((".docx",), "texts of Word", "html", of_bytes=translated_docx),
    "odt": DocumentFormat((".odt",), "texts of LibreOffice", "html", of_bytes=translated_odt),
    "epub": DocumentFormat((".epub",), "books", "html", of_bytes=translated_epub),
}
FORMAT_OF_ENDING = {ending: name for name, one in FORMATS.items() for ending in one.endings}
TABLES = (".csv", ".tsv", ".tab")


def table_format(columns: Sequence[str], separator: str = "") -> DocumentFormat:
    """Return the format of a table of which some columns are translated; without a separator, it is found."""

    def translated(content: bytes, translate: Translate) -> bytes:
        return translated_csv(content, columns, translate, separator)

    return DocumentFormat(TABLES, "columns of a table", of_bytes=translated)
