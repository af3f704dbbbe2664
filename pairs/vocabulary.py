"""Learning the tokenizer of a run from its pairs, once: the cache keeps it."""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib.metadata import version

import numpy as np

from pairs.tables import MANY_PAIRS, Pairs, chunks_of_text
from tapis.system.files import cache_file, digest, write_text
from tapis.system.terminal import Progress, say
from tapis.text.tokenizer import MAX_TOKEN_LENGTH, WORD_PATTERN, Tokenizer
from tapis.text.words import IN_WORD, MARKS

# Bytes of the distinct words that a vocabulary is learned from, at most: learning from so many takes 3 GB. In English
# and French, 161,000 pairs of Tatoeba have 0.34 MB. In languages without spaces a clause counts as a word, and most are
# distinct: 300,000 Chinese sentences have as many.
MAX_WORD_BYTES = 25_000_000

_WORD = re.compile(rf"{IN_WORD}+(?:['’]{IN_WORD}+)*|[^\w\s{MARKS}]+")  # about the units of WORD_PATTERN


def learn_tokenizer(pairs: Pairs, vocab_size: int, languages: Sequence[str] = ()) -> Tokenizer:
    """Return a tokenizer trained on both sides of the pairs, from the cache if the same one was trained before.

    If the pairs have too many distinct words for the memory, it is trained on a sample. languages are those that get a
    tag.
    """
    limits = (MAX_TOKEN_LENGTH, MAX_WORD_BYTES, _WORD.pattern)
    key = digest(pairs.key, vocab_size, *languages, WORD_PATTERN, *limits, version("tokenizers"))
    file = cache_file("tokenizer", key, ".json")
    if not file.is_file():
        tokenizer = Tokenizer.train(_sides(_sample(pairs)), vocab_size, languages)
        write_text(file, tokenizer.to_json())
    return Tokenizer.from_json(file.read_text(encoding="utf-8"), str(file))


def _sample(pairs: Pairs) -> Pairs:
    """Return the pairs, or every second, fourth, eighth… of them, so that few enough words are distinct."""
    step, sample = 1, pairs
    while step < len(pairs) and _has_too_many_words(sample):
        step *= 2
        sample = pairs.select(np.arange(0, len(pairs), step))
    if step > 1:
        say(f"note      the vocabulary is learned from one in {step} pairs, which have as many words as memory allows")
    return sample


def _has_too_many_words(pairs: Pairs) -> bool:
    """Return whether the distinct words of both sides have more than MAX_WORD_BYTES. Reads no more than it must."""
    words = set[str]()
    n_bytes = 0
    for source, target in pairs:
        new = {*_WORD.findall(source), *_WORD.findall(target)} - words
        if new:
            words |= new
            n_bytes += len("".join(new).encode())
        if n_bytes > MAX_WORD_BYTES:
            return True
    return False


def _sides(pairs: Pairs) -> Iterator[str]:
    """Yield both sides of every pair, and show the progress if there are many."""
    is_shown = len(pairs) > MANY_PAIRS
    with closing(Progress("counting words", len(pairs), 0, "pair", shown=is_shown, leave=True)) as progress:
        for chunk in chunks_of_text(pairs, 1000, 1_000_000):
            for source, target in chunk:
                yield source
                yield target
            progress.update(len(chunk))
