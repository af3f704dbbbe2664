"""What a translation must not say in a document with markup: tags and links that the model made up."""

import html
import re
from collections.abc import Callable
from itertools import accumulate
from typing import Literal

Markup = Literal["", "html", "markdown", "strings"]  # "" for plain text, strings for the texts of programs

NOT_OF_XML = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # characters that no XML has
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_PUNCTUATION = r"[!-/:-@\[-`{-~]"  # of ASCII: what a backslash escapes in Markdown
# What is escaped already; then what begins a tag, a comment, an address in angle brackets, code, emphasis or the target
# of a link, and a backslash that would escape what follows the word
_MARKUP_OF_MARKDOWN = re.compile(
    rf"\\{_PUNCTUATION}|(?P<sign><(?=[A-Za-z/!?])|[`*]|~(?=~)|(?<!\w)_|_(?!\w)|(?<=\])\(|\\$)"
)
_BRACKET_OF_MARKDOWN = re.compile(rf"\\{_PUNCTUATION}|(?P<sign>[\[\]])")


def escaped_for_html(text: str) -> str:
    """Return the text with references for the characters that begin markup in a page."""
    return html.escape(text, quote=False)


def escaped_for_markdown(text: str) -> str:
    """Return the text with a backslash before what would begin markup within a line of Markdown."""
    return re.sub(r"\S+", lambda word: _escaped_word(word.group()), text)


def _escaped_word(word: str) -> str:
    def escaped(match: re.Match[str]) -> str:
        return f"\\{match.group()}" if match["sign"] else match.group()

    # Brackets are escaped unless they are in pairs, which end no link around the word.
    signs = [match["sign"] for match in _BRACKET_OF_MARKDOWN.finditer(word) if match["sign"]]
    depths = list(accumulate(1 if sign == "[" else -1 for sign in signs))
    if depths and (min(depths) < 0 or depths[-1] != 0):
        word = _BRACKET_OF_MARKDOWN.sub(escaped, word)
    return _MARKUP_OF_MARKDOWN.sub(escaped, word)


ESCAPES: dict[Markup, Callable[[str], str]] = {
    "": str,
    "html": escaped_for_html,
    "markdown": escaped_for_markdown,
    "strings": str,
}


def has_markdown(line: str, markup: Markup) -> bool:
    """Return whether a line of a Markdown document has signs that a text without markup would have to escape."""
    return markup == "markdown" and ESCAPES[markup](line) != line


def plain(line: str, markup: Markup) -> str:
    """Return a line of a document as a person reads it: without tags and references of HTML."""
    return unescaped(_TAG.sub("", line)) if markup == "html" else line


def unescaped(text: str) -> str:
    """Return the text with the characters that the references of HTML in it stand for."""
    try:
        return html.unescape(text)
    except ValueError:  # a number of too many digits
        return text
