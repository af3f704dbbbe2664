"""Messages of ICU: {n, plural, one {# cat} other {# cats}}, of which only the texts of the branches are translated.

A message is a mark of its line (mark_patterns.py), which the translation has as it was. `with_texts` then exchanges the
texts. A text may have placeholders, and further messages.
"""

import re
from collections.abc import Iterator, Mapping

from tapis.text.mark_patterns import MESSAGE

_MESSAGE = re.compile(MESSAGE)


def messages_in(line: str) -> list[str]:
    """Return the messages of a line."""
    return _MESSAGE.findall(line) if "{" in line else []


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
