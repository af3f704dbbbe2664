"""Electronic books (.epub): their pages, and the titles of their table of contents."""

from tapis.documents.archives import changed_archive
from tapis.documents.common import DocumentError, Translate, decoded
from tapis.documents.pages import translated_html
from tapis.documents.xml_text import Line, Place, inline_parts, parse_xml, with_translations

PAGES = (".xhtml", ".html", ".htm")


def translated_epub(content: bytes, translate: Translate) -> bytes:
    """Return an .epub file with its pages translated. Raises DocumentError if it is none."""

    def change(name: str, part: bytes) -> bytes:
        if name.lower().endswith(PAGES):
            try:
                page = decoded(part)
            except DocumentError as error:
                raise DocumentError(f"{name} {error}") from None
            return translated_html(page, translate).encode()
        return _translated_contents(part, translate) if name.lower().endswith(".ncx") else part

    return changed_archive(content, change, "META-INF/container.xml")


def _translated_contents(part: bytes, translate: Translate) -> bytes:
    """Return a table of contents (.ncx), whose titles are elements <text>."""
    places = [
        Place(Line(inline_parts(part, element, set())), element.inner_start, element.inner_end)
        for element in parse_xml(part).walk()
        if element.tag == "text"
    ]
    return with_translations(part, places, translate)
