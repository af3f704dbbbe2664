"""Electronic books (.epub): their pages, and the titles of their table of contents."""

import re

from tapis.documents.archives import changed_archive
from tapis.documents.common import Translate, decoded, warn
from tapis.documents.pages import translated_html
from tapis.documents.xml_text import Line, Place, inline_parts, parse_xml, with_translations
from tapis.system.terminal import listed

PAGES = (".xhtml", ".html", ".htm")
_FIRST_TAG = re.compile(rb"<(?P<name>[A-Za-z][^\s/>]*)")
_TITLES = {"docTitle", "navLabel", "navInfo"}  # elements of a table of contents; another one is docAuthor


def translated_epub(content: bytes, translate: Translate) -> bytes:
    """Return an .epub file with its pages translated. Raises DocumentError if it is none."""
    n_pages = 0

    def change(name: str, part: bytes) -> bytes:
        nonlocal n_pages
        if _is_page(name.lower(), part):
            n_pages += 1
            return translated_html(decoded(part), translate).encode()
        return _translated_contents(part, translate) if name.lower().endswith(".ncx") else part

    changed = changed_archive(content, change, "META-INF/container.xml")
    if not n_pages:
        warn(f"the book has no page to translate: no {listed(PAGES)}, and no .xml that begins with <html>")
    return changed


def _is_page(name: str, part: bytes) -> bool:
    """Return whether a member is a page: by its name in lower case, or, if that is .xml, by its first element."""
    if not name.endswith(".xml"):
        return name.endswith(PAGES)
    first_tag = _FIRST_TAG.search(part)
    return first_tag is not None and first_tag["name"] == b"html"


def _translated_contents(part: bytes, translate: Translate) -> bytes:
    """Return a table of contents (.ncx) with its titles translated. The name of the author stays."""
    places = [
        Place(Line(inline_parts(part, element, set())), element.inner_start, element.inner_end)
        for title in parse_xml(part).walk()
        if title.tag in _TITLES
        for element in title.children
        if element.tag == "text"
    ]
    return with_translations(part, places, translate)
