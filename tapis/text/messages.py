"""Messages of ICU: {n, plural, one {# cat} other {# cats}}, of which only the texts of the branches are translated.

A message is a mark of its line (mark_patterns.py), which the translation has as it was. `with_texts` then exchanges the
texts. A text may have placeholders, and further messages.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from tapis.text.mark_patterns import MESSAGE
from tapis.text.marks import Mark

_MESSAGE = re.compile(MESSAGE)


def messages_in(line: str, marks: Iterable[Mark]) -> list[str]:
    """Return the messages among the marks of a line. Those within code or an attribute are none."""
    return [found[0] for mark in marks if (found := _MESSAGE.match(line, mark.start))]


def texts_of(message: str) -> list[str]:
    """Return the texts of a message's branches that are not blank."""
    return [text for text in (message[start:end] for start, end in _branches(message)) if text.strip()]


def with_texts(message: str, translation_of: Mapping[str, str]) -> str:
    """Return a message with other texts. Spaces around a text stay."""
    result, last = "", 0
    for start, end in _branches(message):
        text = message[start:end]
        before = text[: len(text) - len(text.lstrip())]
        after = text[len(text.rstrip()) :] if text.strip() else ""
        result += message[last:start] + before + translation_of.get(text, "").strip() + after
        last = end
    return result + message[last:]


def _branches(message: str) -> Iterator[tuple[int, int]]:
    """Yield where the text of each branch begins and ends."""
    depth = start = 0
    for place, character in enumerate(message):
        if character == "{":
            depth += 1
            if depth == 2:
                start = place + 1
        elif character == "}":
            depth -= 1
            if depth == 1:
                yield start, place
