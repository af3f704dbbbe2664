"""Translations that repeat themselves: "Le grand grand grand…", "dortortort".

A model that has lost its thread continues with what it said before. What is said three times in a row is taken for such
a loop, unless the source repeats something, too: "very, very, very big".
"""

import re

# Two characters or more, three times in a row: parts of words, words, or several words.
_LOOP = re.compile(r"(.{2,80}?)\1{2,}")

# A loop of three characters or more has six characters in a row twice; one of two characters is found at once.
_PROBE = 6
_SHORT_LOOP = re.compile(r"(..)\1\1")

# One word to four, twice in a row.
_REPETITION = re.compile(r"\b(\w+(?:\W+\w+){0,3})\W+\1\b")


def loops(source: str, translation: str) -> bool:
    """Whether a translation repeats itself, and its source does not."""
    return _has_loop(translation) and not (_has_loop(source) or _REPETITION.search(source))


def without_loops(translation: str) -> str:
    """The translation with what is repeated once."""
    return _LOOP.sub(_once, f" {translation}").strip()


def _has_loop(text: str) -> bool:
    text = f" {text}"
    # Most texts have no loop, which is seen in half of the time that the search takes.
    n_probes = len(text) - _PROBE + 1
    is_repeated = len({text[i : i + _PROBE] for i in range(n_probes)}) < n_probes
    if not is_repeated and not _SHORT_LOOP.search(text):
        return False
    return any(_is_loop(match) for match in _LOOP.finditer(text))


def _is_loop(match: re.Match[str]) -> bool:
    return any(map(str.isalpha, match[1]))


def _once(match: re.Match[str]) -> str:
    return match[1] if _is_loop(match) else match[0]
