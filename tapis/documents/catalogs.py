"""Catalogs of messages in the format of gettext (.po, .pot)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tapis.documents.common import DocumentError, Translate, leave, splice, translated_texts
from tapis.text.marks import take_out

_LITERAL = r'"(?:[^"\\\n]|\\.)*"'
_STATEMENT = re.compile(
    rf"^\ufeff?[ \t]*(?P<keyword>msgctxt|msgid_plural|msgid|msgstr|domain)(?:\[\d{{1,3}}\])?[ \t]*"
    rf"(?P<literals>{_LITERAL}(?:(?:\s|#[^\n]*\n)*+{_LITERAL})*+)",
    re.MULTILINE,
)
_BETWEEN = re.compile(r"\ufeff?(?:[\s\x1a]|#[^\n]*|domain .*)*+")  # blank lines and comments
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))")
_LITERALS = re.compile(rf"#[^\n]*\n|({_LITERAL})")
_CHARSET = re.compile(r"(?<=charset=)[\w.:-]+")
_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ESCAPES = {character: f"\\{letter}" for letter, character in _CHARACTERS.items()} | {'"': '\\"', "\\": "\\\\"}


@dataclass
class _Entry:
    """A message of a catalog."""

    texts: dict[str, str] = field(default_factory=dict)
    """By keyword"""
    translations: list[re.Match[str]] = field(default_factory=list)
    """Where its translations are: one, or one for each plural form"""


def translated_po(catalog: str, translate: Translate) -> str:
    """Return a catalog in which each message that had no translation has one.

    Everything else stays: translations that are there, also fuzzy ones, the header, comments, obsolete messages. Raises
    DocumentError if there are no messages, or if a line is damaged.
    """
    entries = list(_entries(catalog))
    if not entries and catalog.strip():
        raise DocumentError("this is no catalog of gettext (.po): it has no msgid")
    empty: list[tuple[str, re.Match[str]]] = []
    for entry in entries:
        message = entry.texts.get("msgid", "")
        if message and any(_text(one["literals"]) for one in entry.translations):
            leave(message, "it has a translation")
        elif message:
            empty += zip(_sources(entry), entry.translations, strict=True)
    translations = translated_texts([text for text, _ in empty], translate)
    newline = "\r\n" if "\r\n" in catalog else "\n"
    changes = _utf8_in_header(catalog, entries) if empty else []
    changes += [
        (*statement.span("literals"), _literals(translation, newline))
        for (_, statement), translation in zip(empty, translations, strict=True)
    ]
    return splice(catalog, changes)


def _sources(entry: _Entry) -> list[str]:
    """Return the text that each translation of a message is made from: the singular for the first form, or the plural.

    With two forms, the first is for one thing. A language with a single form uses it for any number, and one with more
    may use the first for 1, 21 and 31, so that its text must have the number where the plural has it.
    """
    singular = entry.texts["msgid"]
    plural = entry.texts.get("msgid_plural", singular)
    n_forms = len(entry.translations)
    is_first_singular = n_forms == 2 or (n_forms > 2 and _placeholders(singular) == _placeholders(plural))
    return [singular if is_first_singular else plural, *[plural] * (n_forms - 1)]


def _placeholders(text: str) -> list[str]:
    return sorted(mark.text for mark in take_out(text, markup="strings").marks if mark.kind == "thing")


def _utf8_in_header(catalog: str, entries: Sequence[_Entry]) -> list[tuple[int, int, str]]:
    """Return what makes the header say UTF-8, if it says something else of ASCII alone.

    Raises DocumentError if it says something else of other characters.
    """
    headers = [entry.translations[0] for entry in entries if entry.texts.get("msgid") == ""]
    charset = _CHARSET.search(catalog, *headers[0].span("literals")) if headers else None
    if not charset or charset.group().lower() in ("utf-8", "utf8"):
        return []
    if not catalog.isascii():
        raise DocumentError(f"its header says charset={charset.group()}: convert it with msgconv -t UTF-8")
    return [(*charset.span(), "UTF-8")]


def _entries(catalog: str) -> Iterator[_Entry]:
    """Yield the messages of a catalog. A message begins with its context or its id, after a translation.

    Raises DocumentError where there is something else than statements, comments and blank lines, and for a message
    without a translation or without an id.
    """
    entry = _Entry()
    end = 0
    for statement in _STATEMENT.finditer(catalog):
        _check_between(catalog, end, statement.start())
        end = statement.end()
        keyword = statement["keyword"]
        if keyword == "msgstr":
            if "msgid" not in entry.texts:
                raise _damage(catalog, statement.start(), "msgstr has no msgid before it")
            entry.translations.append(statement)
            continue
        if entry.translations:
            yield entry
            entry = _Entry()
        if keyword in entry.texts or ("msgid" in entry.texts and keyword != "msgid_plural"):
            raise _damage(catalog, statement.start(), "the message before it has no msgstr")
        entry.texts[keyword] = _text(statement["literals"])
    if end:
        _check_between(catalog, end, len(catalog))
    if entry.translations:
        yield entry
    elif entry.texts:
        raise _damage(catalog, end, "the last message has no msgstr")


def _check_between(catalog: str, start: int, end: int) -> None:
    """Raise DocumentError if there is something else than comments and blank lines within a part of a catalog."""
    found = _BETWEEN.match(catalog, start, end)
    place = found.end() if found else start
    if place < end:
        raise _damage(catalog, place, "neither a comment nor a keyword with its text in quotation marks")


def _damage(catalog: str, place: int, reason: str) -> DocumentError:
    number = 1 + catalog.count("\n", 0, place)
    return DocumentError(f"line {number:,} is damaged: {reason}")


def _text(literals: str) -> str:
    """Return the text of one or several string literals."""

    def character(match: re.Match[str]) -> str:
        octal, hexadecimal, letter = match.groups()
        if letter is None:  # a byte, perhaps one of several of a character
            return chr(0xDC00 + (int(octal, 8) if octal else int(hexadecimal, 16)) % 256)
        return _CHARACTERS.get(letter, letter)

    text = "".join(_ESCAPE.sub(character, literal[1:-1]) for literal in _LITERALS.findall(literals) if literal)
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _literals(text: str, newline: str) -> str:
    """Return a text as string literals: one, or, of several lines, an empty one and one for each line."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    literals = ['"' + "".join(_ESCAPES.get(character, character) for character in line) + '"' for line in lines]
    return literals[0] if len(literals) == 1 else newline.join(['""', *literals])
