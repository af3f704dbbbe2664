"""A translation, as a model makes it and as a person reads it."""

from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

Doubt = Literal["loop", "short", "long", "numbers", "copied", "invented", "unsure"]
DOUBTS: tuple[Doubt, ...] = get_args(Doubt)


class Translation(NamedTuple):
    """A text, how the model scores it (`Hypothesis.score`), and what makes it doubtful (tapis/doubts.py)."""

    text: str
    score: float
    doubts: tuple[Doubt, ...] = ()
    sentences: tuple["Translation", ...] = ()
    """Of a line: its sentences, before marks were put back"""
    is_remembered: bool = False
    """Whether it is from a translation memory, as a whole"""


def distinct(translations: Iterable[Translation]) -> list[Translation]:
    """Return those whose texts differ, in order; of those with the same text, the first."""
    by_text: dict[str, Translation] = {}
    for translation in translations:
        by_text.setdefault(translation.text, translation)
    return list(by_text.values())
