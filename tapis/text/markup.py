"""What a translation must not say in a document with markup: tags and links that the model made up."""

import html
import re
from collections.abc import Callable
from typing import Literal

Markup = Literal["", "html", "markdown"]  # "" for plain text

# What begins a tag, a comment, an address in angle brackets, or a link's target, unless it is escaped already
_MARKUP_OF_MARKDOWN = re.compile(r"(?<!\\)(<(?=[A-Za-z/!?]))|(?<=\])(?<!\\\])\(")


def escaped_for_html(text: str) -> str:
    """Return the text with references for the characters that begin markup in a page."""
    return html.escape(text, quote=False)


def escaped_for_markdown(text: str) -> str:
    """Return the text with a backslash before what would begin a tag, or the target of a link, in Markdown."""
    return _MARKUP_OF_MARKDOWN.sub(lambda match: "\\" + match.group(), text)


ESCAPES: dict[Markup, Callable[[str], str]] = {
    "": str,
    "html": escaped_for_html,
    "markdown": escaped_for_markdown,
}
