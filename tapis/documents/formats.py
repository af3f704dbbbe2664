"""The formats of documents, by the endings of file names, and what translates each.

A document is bytes. Of those that are text, the function takes and returns text; of all others, bytes. None of them
opens a file, fetches anything, or executes what a document holds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tapis.documents.books import translated_epub
from tapis.documents.catalogs import translated_po
from tapis.documents.common import Translate, decoded
from tapis.documents.markdown import translated_markdown
from tapis.documents.office import translated_docx, translated_odt
from tapis.documents.pages import translated_file
from tapis.documents.subtitles import translated_srt, translated_vtt
from tapis.documents.tables import translated_csv
from tapis.documents.trees import translated_json, translated_yaml
from tapis.documents.wrapped import translated_text
from tapis.documents.xliff import translated_xliff
from tapis.text.markup import Markup


@dataclass(frozen=True)
class DocumentFormat:
    """A format of documents."""

    endings: tuple[str, ...]
    """Of the names of its files"""
    markup: Markup = ""
    """Of the lines that are translated"""
    of_text: Callable[[str, Translate], str] | None = None
    of_bytes: Callable[[bytes, Translate], bytes] | None = None
    of_table: Callable[[bytes, Translate, str], bytes] | None = None
    """What translates it: one of the three. The last takes the source language, too"""

    def translated(self, content: bytes, translate: Translate, source: str = "") -> bytes:
        """Return a document with its text translated. Raises DocumentError if it is not of this format.

        The source language tells the code page of a table that is not in Unicode.
        """
        if self.of_table:
            return self.of_table(content, translate, source)
        if self.of_bytes:
            return self.of_bytes(content, translate)
        assert self.of_text
        if not content.strip():
            return content
        return self.of_text(decoded(content), translate).encode("utf-8", "replace")


FORMATS = {
    "text": DocumentFormat((), of_text=translated_text),  # wrapped at a column
    "html": DocumentFormat((".html", ".htm", ".xhtml"), "html", translated_file),
    "markdown": DocumentFormat((".md", ".markdown"), "markdown", translated_markdown),
    "srt": DocumentFormat((".srt",), of_text=translated_srt),
    "vtt": DocumentFormat((".vtt",), "html", translated_vtt),
    "po": DocumentFormat((".po", ".pot"), "strings", translated_po),
    "json": DocumentFormat((".json", ".arb"), "strings", translated_json),
    "yaml": DocumentFormat((".yaml", ".yml"), "strings", translated_yaml),
    "xliff": DocumentFormat((".xliff", ".xlf", ".sdlxliff", ".mqxliff"), "html", of_bytes=translated_xliff),
    "docx": DocumentFormat((".docx", ".docm", ".dotx", ".dotm"), "html", of_bytes=translated_docx),
    "odt": DocumentFormat((".odt", ".ott"), "html", of_bytes=translated_odt),
    "epub": DocumentFormat((".epub",), "html", of_bytes=translated_epub),
}
FORMAT_OF_ENDING = {ending: name for name, one in FORMATS.items() for ending in one.endings}
TABLES = (".csv", ".tsv", ".tab")


def table_format(columns: Sequence[str], separator: str = "") -> DocumentFormat:
    """Return the format of a table of which some columns are translated; without a separator, it is found."""

    def translated(content: bytes, translate: Translate, source: str) -> bytes:
        return translated_csv(content, columns, translate, separator, source)

    return DocumentFormat(TABLES, of_table=translated)
