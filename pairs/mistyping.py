"""Sentences as people type them: in small letters, without a full stop, with letters in the wrong order.

A corpus has few such sentences, and a model that never saw one translates them badly. `mistyped` makes them of the
sentences of a corpus, for training (--augment). It leaves to tapis/text/letter_case.py what needs no training, such as
sentences in capitals.
"""

import re

import numpy as np

from tapis.text.words import LETTER

FINAL_PUNCTUATION = ".!?…。！？।"
MIN_LETTERS = 4  # of a word with letters in the wrong order: its first and last stay, as in most such errors
SWAPPED = 1 / 8  # share of these words

_LONG_WORD = re.compile(rf"{LETTER}{{{MIN_LETTERS},}}")


def mistyped(sentence: str, random: np.random.Generator) -> str:
    """Return the sentence with each of three changes at a probability of one half: small letters, no full stop, swaps.

    A swap exchanges two neighbours within a word, in one of eight words. No sentence becomes empty. random advances by
    as many numbers as the sentence needs.
    """
    is_lower, is_open, has_swaps = random.random(3) < 0.5
    if is_lower:
        sentence = sentence.lower()
    if is_open:
        sentence = sentence.rstrip(FINAL_PUNCTUATION).rstrip() or sentence
    if has_swaps:
        sentence = with_swaps(sentence, random)
    return sentence


def with_swaps(sentence: str, random: np.random.Generator) -> str:
    """Return the sentence with two neighbouring letters exchanged in one of eight words of at least four letters."""

    def typed(match: re.Match[str]) -> str:
        word = match.group()
        if random.random() >= SWAPPED:
            return word
        place = int(random.integers(1, len(word) - 2))
        return word[:place] + word[place + 1] + word[place] + word[place + 2 :]

    return _LONG_WORD.sub(typed, sentence)
