"""Marks are put back into a translation, by an alignment of its words with those of its source (marks.py)."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tapis.text.alignment import Alignment
from tapis.text.marks import PUNCTUATION, Mark, Taken

DEEPEST = 50  # pairs of tags within each other; what is deeper goes where the pair around it is
# The order of marks at one place between words: spans end before others begin.
_WITHIN_ENDING, _CLOSING, _BETWEEN, _OPENING, _WITHIN_BEGINNING = range(5)


def put_back(translation: str, taken: Taken, alignment: Alignment, escape: Callable[[str], str] = str) -> str:
    """Return the translation with the marks of its source.

    Args:
        translation: its words, separated by spaces.
        taken: the source without its marks.
        alignment: of the words of the translation with those of the source.
        escape: applied to what is not a mark.

    """
    words, marks = translation.split(), taken.marks
    spans = _spans(words, taken, alignment)

    # For each place between words, the marks there, as (order, order among these, number).
    at: list[list[tuple[int, int, int]]] = [[] for _ in range(len(words) + 1)]
    enclosing: list[tuple[int, int]] = []  # the spans around the current mark, the innermost last
    for number, mark in enumerate(marks):
        if number not in spans:
            place = _place_of_thing(mark, alignment)
            order = _BETWEEN
            if enclosing:
                first, last = enclosing[-1]
                place = min(max(place, first), last)
                order = _WITHIN_ENDING if place == last else _WITHIN_BEGINNING
            at[place].append((order, number, number))
        elif mark.partner > number:
            at[spans[number][0]].append((_OPENING, number, number))
            enclosing.append(spans[number])
        else:
            at[spans[number][1]].append((_CLOSING, -mark.partner, number))
            enclosing.pop()

    # Write the words, and the marks between them.
    parts: list[tuple[str, bool]] = []  # each with whether it is of the translation
    is_after_opening = True
    for place, here in enumerate(at):
        for order, _, number in sorted(here):
            mark = marks[number]
            is_opening, is_closing = order == _OPENING, order == _CLOSING
            tail = ""
            if mark.is_before_punctuation and parts and parts[-1][1] and not is_opening:
                text, _ = parts[-1]
                tail = text[len(text.rstrip(PUNCTUATION)) :]
                parts[-1] = text.removesuffix(tail).rstrip(), True
            follows_mark = bool(parts) and not parts[-1][1]
            needs_no_space = is_closing or is_after_opening or (mark.is_glued and (follows_mark or not is_opening))
            parts += [("" if needs_no_space else " ", True), (mark.text, False)]
            if tail:
                parts.append((tail, True))
            is_after_opening = is_opening or (mark.is_followed and not tail)
        if place < len(words):
            parts.append((("" if is_after_opening else " ") + words[place], True))
            is_after_opening = False
    return "".join(escape(part) if is_translated else part for part, is_translated in parts)


def _place_of_thing(mark: Mark, alignment: Alignment) -> int:
    """Return how many words of the translation are before a mark that is no pair of tags."""
    n_target, n_source = alignment.shape
    if mark.word >= n_source or not n_target:
        return n_target
    if mark.kind == "number":  # it belongs to the word after it
        return alignment.best(mark.word)
    return min(alignment.best(mark.word - 1) + 1, n_target) if mark.word else 0


def _spans(words: Sequence[str], taken: Taken, alignment: Alignment) -> dict[int, tuple[int, int]]:
    """Return for each tag of a pair around words the first word of the translation within it, and the last + 1.

    Pairs within pairs stay within them.
    """
    spans: dict[int, tuple[int, int]] = {}
    enclosing = [(0, len(words))]
    for number, mark in enumerate(taken.marks):
        if 0 <= mark.partner < number and number in spans:
            enclosing.pop()
        if mark.partner < number or not words:
            continue
        start, end = mark.word, taken.marks[mark.partner].word
        if start >= end:
            continue  # around nothing
        low, high = enclosing[-1]
        if end - start < len(taken.words) and len(enclosing) <= DEEPEST:
            first, shares = alignment.shares(start, end)
            within = shares[max(0, low - first) : max(0, high - first)]
            run = _best_run(within - 0.5)
            low, high = (max(low, first) + place for place in run) if len(within) else (low, low + 1)
            while high - low > 1 and not any(map(str.isalnum, words[high - 1])) and end < len(taken.words):
                high -= 1  # punctuation that stands alone
        spans[number] = spans[mark.partner] = low, high
        enclosing.append((low, high))
    return spans


def _best_run(gains: NDArray[np.float64]) -> tuple[int, int]:
    """Return the start and the end of the run with the largest sum, which has at least one place."""
    best, best_run = -np.inf, (0, 1)
    total, start = 0.0, 0
    for place, gain in enumerate(gains.tolist()):
        if total <= 0:
            total, start = 0.0, place
        total += gain
        if total > best:
            best, best_run = total, (start, place + 1)
    return best_run
