"""The web page to translate in: its files, read once, and the page as a server offers it.

The page has two faces from the same files. `served_page` fills page.html in for a server, which answers page.js's
requests by http.js. exporting/web_page.py fills it in for one file that holds its model and works without a network.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

SCRIPT = "text/javascript; charset=utf-8"
STYLE = "text/css; charset=utf-8"
HTML = "text/html; charset=utf-8"

# What the page of a server may load: its own files, and the icon, which is in the page.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)

_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24' fill='none' stroke='%230b5c8e' "
    "stroke-width='2' stroke-linecap='round'%3E%3Cpath d='M5 4v16M10 4v16M14 4v16M19 4v16M4 7h16M4 12h16M4 17h16'/%3E"
    "%3C/svg%3E"
)
_SERVED_HEAD = f"""\
<link rel="icon" href="{_ICON}">
<link rel="stylesheet" href="page.css">
<script src="page.js" defer></script>
<script src="http.js" defer></script>"""


@cache
def web_file(name: str) -> str:
    """Return the text of a file of the page."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def engine_module() -> bytes:
    """Return the engine as a WebAssembly module, which tapis/engine/build_wasm.py compiles."""
    return (Path(__file__).parent / "engine.wasm").read_bytes()


def filled_in(parts: Mapping[str, str]) -> str:
    """Return page.html with a text for each of its placeholders, as HTML."""
    return re.sub(r"{{(\w+)}}", lambda match: parts[match[1]], web_file("page.html"))


@cache
def served_page() -> dict[str, tuple[str, bytes]]:
    """Return what a server offers to browsers: by path, the media type and the content."""
    description = "Translate texts and files with the models of this server."
    parts = {"policy": "", "description": description, "head": _SERVED_HEAD, "status": "Loading…", "parts": ""}
    page = filled_in(parts)
    return {
        "/": (HTML, page.encode()),
        "/page.css": (STYLE, web_file("page.css").encode()),
        "/page.js": (SCRIPT, web_file("page.js").encode()),
        "/http.js": (SCRIPT, web_file("http.js").encode()),
    }
