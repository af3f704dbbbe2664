"""Translations that repeat themselves: "Le grand grand grand…", "dortortort".

A model that has lost its thread continues with what it said before. What is said three times in a row is taken for such
a loop, unless the source says something as often, or once less: "very, very, very big".
"""

import re

from tapis.text.words import IN_WORD, MARKS

# Two characters or more, three times in a row: parts of words, words, or several words.
_LOOP = re.compile(r"(.{2,80}?)\1{2,}")

# What a loop of three characters or more says has six characters in a row three times, or twice within less than six
# characters. One of two characters is found at once.
PROBE = 6
_SHORT_LOOP = re.compile(r"(..)\1\1")

# One word to four, twice in a row or more often. Words have the marks of their letters.
_BETWEEN = rf"[^\w{MARKS}]"
_WORDS = rf"{IN_WORD}+(?:{_BETWEEN}+{IN_WORD}+){{0,3}}?"
_REPETITION = re.compile(rf"(?<!{IN_WORD})({_WORDS})(?:{_BETWEEN}+\1(?!{IN_WORD}))+")


def loops(source: str, translation: str) -> bool:
    """Return whether a translation repeats itself at least two times more than its source does."""
    times = _times_in_loops(translation)
    return times > 0 and times > 1 + max(_times_in_loops(source), _times_repeated(source))


def without_loops(translation: str) -> str:
    """Return the translation with what is repeated once."""
    return _LOOP.sub(_once, f" {translation}").strip()


def _times_repeated(text: str) -> int:
    """Return how often the same words follow each other, at most; 0 where none do."""
    return max((match[0].count(match[1]) for match in _REPETITION.finditer(text)), default=0)


def _times_in_loops(text: str) -> int:
    """Return how often its loops say the same, at most; 0 without a loop."""
    text = f" {text}"
    if not _may_loop(text) and not _SHORT_LOOP.search(text):
        return 0
    return max((len(match[0]) // len(match[1]) for match in _LOOP.finditer(text) if _is_loop(match)), default=0)


def _may_loop(text: str) -> bool:
    """Return whether a text may have a loop of three characters or more, sooner than the search for it would."""
    probes = [text[i : i + PROBE] for i in range(len(text) - PROBE + 1)]
    if len(set(probes)) == len(probes):
        return False
    places: dict[str, list[int]] = {}
    for place, probe in enumerate(probes):
        before = places.setdefault(probe, [])
        if len(before) == 2 or (before and place - before[-1] < PROBE):
            return True
        before.append(place)
    return False


def _is_loop(match: re.Match[str]) -> bool:
    return any(map(str.isalpha, match[1]))


def _once(match: re.Match[str]) -> str:
    return match[1] if _is_loop(match) else match[0]
