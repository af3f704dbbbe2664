"""Marks are put back into a translation, by an alignment of its words with those of its source (marks.py).

The pairs of tags of a line are a tree, since what would cross a pair is none. So are they in the translation: each pair
is around a run of words within that of the pair around it, and beside those of its siblings. What is well formed stays
so, whatever the alignment says.
"""

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tapis.text.alignment import Alignment
from tapis.text.mark_patterns import BESIDE_MARKS
from tapis.text.marks import PUNCTUATION, Mark, Taken
from tapis.text.markup import ESCAPES, Markup

DEEPEST = 50  # pairs of tags within each other; of what is deeper, the first pair is where the pair around it is
SPACED = "!?:;»"  # punctuation that French has a space before
_FREE = -1  # a word that comes from no pair
_UNSPACED = re.compile(rf"[{BESIDE_MARKS}\u3000-\u303f\uff01-\uff65]")  # letters and punctuation without spaces beside
_OPENING = frozenset("([«“„")  # what has no space behind it in any script
_OF_LAYOUT = re.compile(r"<[A-Za-z!]|&|\\[nrt]")  # things without spaces beside in any script: <br>, &nbsp;, \n


@dataclass
class _Pair:
    """A pair of tags; also the whole line, whose tags are none."""

    opening: int
    closing: int
    """Numbers among the marks"""
    depth: int
    pairs: list["_Pair"] = field(default_factory=list)
    things: list[int] = field(default_factory=list)
    """What is directly within it"""
    low: int = 0
    high: int = 0
    """The words of the translation that it is around: the first, and the last + 1"""

    @property
    def is_around_words(self) -> bool:
        return self.high > self.low


def put_back(translation: str, taken: Taken, alignment: Alignment, markup: Markup = "") -> str:
    """Return the translation with the marks of its source.

    In Markdown, emphasis around nothing would be text, and is left out.

    Args:
        translation: its words, separated by spaces.
        taken: the source without its marks.
        alignment: of the words of the translation with those of the source.
        markup: of the text that the line is of; what would be read as such is escaped in the translation.

    """
    words, marks = translation.split(), taken.marks
    line, pairs = _tree(marks)
    line.high = len(words)
    for pair in (line, *pairs):
        _place_pairs(pair, words, taken, alignment)
    tight = [pair for pair in pairs if pair.is_around_words or marks[pair.opening].kind == "emphasis"]
    openings = {pair.opening for pair in tight}
    closings = {pair.closing for pair in tight}
    omitted = _empty_emphasis(pairs, marks) if markup == "markdown" else frozenset()

    # Write the words, and the marks between them.
    parts: list[tuple[str, int | None]] = []  # each with its number if it is a mark
    is_after_opening, is_before_word = True, False
    last_word, beside = -1, -1  # the last part with words, and the word that all marks since were beside
    gap = 0  # the first part since the last word
    end = behind = ""  # how the last word ends, and what was behind the last mark in the source
    for word, number in _in_order(line, marks, alignment):
        if number is None:
            needs_space = not is_after_opening and not (is_before_word and _are_joined(behind, words[word][0]))
            if not needs_space and gap:
                _separate_words(parts, gap, marks, openings, closings)
            last_word, beside = len(parts), -1
            parts.append(((" " if needs_space else "") + words[word], None))
            is_after_opening = is_before_word = False
            gap, end = len(parts), words[word].rstrip(PUNCTUATION)[-1:]
            continue
        if number in omitted:
            continue
        mark = marks[number]
        is_opening, is_closing = number in openings, number in closings
        follows_mark = bool(parts) and parts[-1][1] == number - 1 and marks[number - 1].end == mark.start
        follows_thing = follows_mark and not marks[number - 1].is_tag
        before, behind = _signs_beside(mark, taken.words)
        is_glued = mark.is_glued and (follows_thing or end in _OPENING or _are_joined(before, end))
        needs_no_space = is_closing or is_after_opening or (is_glued and (follows_mark or not is_opening))

        # Punctuation of the last word goes behind the mark.
        tail = ""
        if beside not in (-1, mark.word):
            last_word = -1
        if mark.is_before_punctuation and last_word >= 0 and not is_opening:
            text, _ = parts[last_word]
            tail = text[len(text.rstrip(PUNCTUATION)) :]
            rest = text.removesuffix(tail).rstrip()
            if tail[:1] in SPACED:
                tail = text[len(rest) :]
            parts[last_word] = rest, None
        parts += [("" if needs_no_space else " ", None), (mark.text, number)]
        beside = mark.word
        if tail:
            last_word, beside = len(parts), -1
            parts.append((tail, None))
            gap = len(parts)
        is_after_opening, is_before_word = is_opening, mark.is_followed and not tail
    escape = ESCAPES[markup]
    return "".join(escape(part) if number is None else part for part, number in parts)


def _signs_beside(mark: Mark, words: Sequence[str]) -> tuple[str, str]:
    """Return the characters of the source before and behind a thing that is like a word; "" for other marks."""
    if mark.is_tag or (mark.kind == "thing" and _OF_LAYOUT.match(mark.text)):
        return "", ""
    return mark.sign_before, "".join(words[mark.word : mark.word + 1])[:1]


def _are_joined(of_source: str, of_translation: str) -> bool:
    """Return whether a thing has no space beside a character if it has none beside that of the source."""
    return not _UNSPACED.match(of_source) or _UNSPACED.match(of_translation) is not None


def _separate_words(
    parts: list[tuple[str, int | None]], gap: int, marks: Sequence[Mark], openings: Set[int], closings: Set[int]
) -> None:
    """Add a space to the parts since the last word, unless they have one, or a mark that joined words in the source.

    It is before the first opening tag, or else before the first mark that is no closing tag.
    """
    places = {number: place for place, (_, number) in enumerate(parts[gap:], gap) if number is not None}
    if any(parts[place - 1][0] == " " or marks[number].joins_words for number, place in places.items()):
        return
    candidates = [number for number in places if number in openings] or places.keys() - closings
    parts[places[min(candidates, key=lambda number: places[number])] - 1] = " ", None


def _empty_emphasis(pairs: Sequence[_Pair], marks: Sequence[Mark]) -> Set[int]:
    """Return the numbers of the signs of emphasis that have nothing between them. An inner pair is after its outer."""
    omitted: set[int] = set()
    for pair in reversed(pairs):
        is_empty = not pair.is_around_words and not pair.things and all(one.opening in omitted for one in pair.pairs)
        if is_empty and marks[pair.opening].kind == "emphasis":
            omitted |= {pair.opening, pair.closing}
    return omitted


def _tree(marks: Sequence[Mark]) -> tuple[_Pair, list[_Pair]]:
    """Return the whole line, and all pairs of tags in it, each after the pair around it."""
    line = _Pair(-1, len(marks), 0)
    pairs, around = [], [line]
    for number, mark in enumerate(marks):
        if mark.partner < 0:
            around[-1].things.append(number)
        elif mark.partner > number:
            pair = _Pair(number, mark.partner, len(around))
            around[-1].pairs.append(pair)
            pairs.append(pair)
            around.append(pair)
        else:
            around.pop()
    return line, pairs


def _in_order(line: _Pair, marks: Sequence[Mark], alignment: Alignment) -> Iterator[tuple[int, int | None]]:
    """Yield (number of a word, None) for each word, and (place, number of a mark) for each mark, in order."""

    def items(pair: _Pair) -> Iterator[tuple[int, bool, int, _Pair | None]]:
        """Yield the place of what is within a pair, in order. At one place, things come before pairs with words."""
        found: list[tuple[int, bool, int, _Pair | None]] = [
            (min(max(_place_of_thing(marks[number], alignment), pair.low), pair.high), False, number, None)
            for number in pair.things
        ]
        found += [(one.low, one.is_around_words, one.opening, one) for one in pair.pairs]
        return iter(sorted(found, key=lambda item: item[:3]))

    word = 0
    open_pairs = [(line, items(line))]
    while open_pairs:
        pair, rest = open_pairs[-1]
        place, _, number, inner = next(rest, (pair.high, False, pair.closing, pair))
        yield from ((before, None) for before in range(word, place))
        word = max(word, place)
        if inner is pair:
            open_pairs.pop()
        elif inner:
            open_pairs.append((inner, items(inner)))
        if number < len(marks):
            yield place, number


def _place_of_thing(mark: Mark, alignment: Alignment) -> int:
    """Return how many words of the translation are before a mark that is no pair of tags."""
    n_target, n_source = alignment.shape
    if mark.word >= n_source or not n_target:
        return n_target
    if mark.kind == "number":  # it belongs to the word after it
        return alignment.best(mark.word)
    border = alignment.border(mark.word)
    return min(alignment.best(mark.word - 1) + 1, n_target) if border is None else border


def _place_pairs(around: _Pair, words: Sequence[str], taken: Taken, alignment: Alignment) -> None:
    """Set the words of each pair that is directly within another one, or within the line.

    A word goes to the pair from which most of it comes, if no more of it comes from words in no pair. A pair to which
    no word would go takes the one that comes most from it, if that is not the only one of another pair.
    """
    if not around.pairs:
        return
    low, high = around.low, around.high
    if around.depth >= DEEPEST:
        for i, pair in enumerate(around.pairs):
            pair.low, pair.high = high if i else low, high
        return
    wanted = [_shares(pair, around, taken, alignment) for pair in around.pairs]
    owners = np.full(high - low, _FREE)
    largest, rest = np.zeros(high - low), np.ones(high - low)  # the largest share, and what comes from no pair
    for i, (start, shares) in enumerate(wanted):
        within = slice(start, start + len(shares))
        is_larger = shares > largest[within]
        owners[within][is_larger] = i
        largest[within][is_larger] = shares[is_larger]
        rest[within] -= shares
    owners[rest > largest] = _FREE
    n_owned = np.bincount(owners[owners != _FREE], minlength=len(wanted))
    for i, (start, shares) in enumerate(wanted):
        if not n_owned[i] and shares.any():
            word = start + int(shares.argmax())
            if owners[word] == _FREE or n_owned[owners[word]] > 1:
                n_owned[owners[word]] -= owners[word] != _FREE
                owners[word], n_owned[i] = i, 1

    for i, (pair, (start, shares)) in enumerate(zip(around.pairs, wanted, strict=True)):
        mark, last_word = taken.marks[pair.opening], taken.marks[pair.closing].word
        if n_owned[i]:
            of_shares = owners[start : start + len(shares)]
            gains = np.where((of_shares == i) | (of_shares == _FREE), shares - 0.5, -np.inf)
            pair.low, pair.high = (low + start + place for place in _best_run(gains))
            is_at_end = last_word == len(taken.words)
            while pair.high - pair.low > 1 and not is_at_end and not words[pair.high - 1].strip(PUNCTUATION):
                pair.high -= 1  # punctuation that stands alone
        else:
            # Nothing comes from it: it is around the word in its place, if that is no other pair's.
            place = min(max(_place_of_thing(mark, alignment), low), high)
            is_around_word = mark.word < last_word and place < high and owners[place - low] == _FREE
            pair.low, pair.high = place, place + is_around_word
        owners[pair.low - low : pair.high - low] = i


def _shares(pair: _Pair, around: _Pair, taken: Taken, alignment: Alignment) -> tuple[int, NDArray[np.float64]]:
    """Return how much of words of the translation, within the pair around it, comes from those of a pair.

    The first of the words, counted from the first of the pair around it, and a share for it and each that follows. All
    others have none.
    """
    start, end = taken.marks[pair.opening].word, taken.marks[pair.closing].word
    if start >= end:
        return 0, np.zeros(0)
    if end - start == len(taken.words):
        return 0, np.ones(around.high - around.low)
    first, shares = alignment.shares(start, end)
    within = shares[max(0, around.low - first) : max(0, around.high - first)]
    return max(0, first - around.low) if len(within) else 0, within


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
