"""The scores by which py3langid tells the language of a text, for many texts at once.

py3langid walks through a text byte by byte, in Python. `LanguageScorer` takes its model and walks through all texts of
a batch side by side, in NumPy.
"""

import copy
import functools
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

NGRAM_BYTES = 8  # no n-gram of the model has more
PIECE_BYTES = 48  # of the pieces that are walked through side by side
GROUP_BYTES = 1_000_000  # of the texts scored at once; each takes about 50 bytes of memory
CHUNK_NGRAMS = 5_000  # whose weights for all languages are in the processor's cache together
SEPARATOR = b"\xff"  # between texts. It occurs in no UTF-8 text, and therefore in no n-gram
NO_NGRAM = float(np.finfo(np.float32).min)  # py3langid's score of a text without n-grams, for all languages


class LanguageScorer:
    """A py3langid identifier that scores many texts at once. It keeps only those columns of the model that it needs."""

    def __init__(self, identifier: Any) -> None:
        """Take the model of a py3langid identifier, for the languages to which it is restricted."""
        self.labels: list[str] = identifier.labels
        self._encode = identifier._encode

        # The automaton that finds n-grams (Aho and Corasick 1975). A state is the longest beginning of an n-gram that
        # the text so far ends in. Equal rows of its table are stored once.
        self._row_starts = np.array(identifier.tk_row, dtype=np.int32) << 8  # of each state
        self._next_states = np.array(identifier.tk_nextmove)  # by row and byte
        self._ngrams = np.array(identifier.tk_output, dtype=np.int32)  # the n-gram that ends in each state, or −1

        # naive Bayes. Some languages have two columns, one for each script: the larger score counts.
        self._weights = np.ascontiguousarray(identifier.nb_ptc)  # (n-grams, columns), in half precision
        self._priors = np.array(identifier.nb_pc)
        self._columns = [np.flatnonzero(np.array(identifier.nb_classes) == label) for label in self.labels]

    def restricted(self, languages: Sequence[str]) -> "LanguageScorer":
        """Return a scorer of some languages, which shares the automaton.

        Its `scores` have a last column more, which no language exceeds: each n-gram counts there as for the language
        that it speaks for most.
        """
        result = copy.copy(self)
        result.labels = list(languages)
        columns = [self._columns[self.labels.index(language)] for language in languages]
        chosen = np.concatenate(columns)
        result._weights = np.column_stack([self._weights[:, chosen], self._largest_weights])
        result._priors = np.append(self._priors[chosen], self._priors.max())
        ends = np.cumsum([0, *map(len, columns), 1])
        result._columns = [np.arange(start, end) for start, end in pairwise(ends)]
        result.__dict__.pop("_largest_weights", None)
        return result

    @functools.cached_property
    def _largest_weights(self) -> NDArray[np.float16]:
        """The weight of each n-gram for the language that it speaks for most."""
        largest: NDArray[np.float16] = self._weights.max(axis=1)
        return largest

    def scores(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return log P(text, language) in nats for each text and language of `labels`, up to a constant of each text.

        The plain line is `[dict(identifier.rank(text)) for text in texts]`. Sums are in single precision, as there.
        """
        encoded = [self._encode(text) for text in texts]
        group_of_text = np.cumsum([len(text) for text in encoded]) // GROUP_BYTES
        starts = [0, *(np.flatnonzero(np.diff(group_of_text)) + 1).tolist(), len(texts)]
        groups = [self._scores(encoded[start:end]) for start, end in pairwise(starts) if start < end]
        return np.concatenate([np.zeros((0, len(self._columns))), *groups])

    def _scores(self, texts: list[bytes]) -> NDArray[np.float64]:
        """Return the scores of a group of encoded texts: (texts, languages)."""
        # count the n-grams of each text
        text_numbers, ngrams = self._find_ngrams(texts)
        n_ngrams = len(self._weights)
        found, counts = np.unique(text_numbers * n_ngrams + ngrams, return_counts=True)
        text_numbers, ngrams = np.divmod(found, n_ngrams)
        evidence = np.log1p(counts.astype(np.float32))

        # add up what they say about each language, for some texts at a time
        starts = np.flatnonzero(np.diff(text_numbers, prepend=-1))  # of the n-grams of each text that has any
        ends = np.append(starts[1:], len(ngrams))
        scores = np.full((len(texts), len(self._priors)), NO_NGRAM)
        first = 0
        while first < len(starts):
            last = max(first + 1, int(np.searchsorted(ends, starts[first] + CHUNK_NGRAMS)))
            chunk = slice(starts[first], ends[last - 1])
            products = self._weights[ngrams[chunk]].astype(np.float32)  # (n-grams, columns)
            products *= evidence[chunk, None]
            sums = np.add.reduceat(products, starts[first:last] - starts[first], axis=0)
            scores[text_numbers[starts[first:last]]] = sums + self._priors
            first = last
        return np.stack([scores[:, columns].max(axis=1) for columns in self._columns], axis=1)

    def _find_ngrams(self, texts: list[bytes]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return each n-gram that occurs in a text, and the number of its text.

        The texts are joined and cut into pieces. A state depends on the last NGRAM_BYTES bytes alone, so the walk
        through each piece starts so many bytes earlier, and takes one byte of all pieces at a time.
        """
        padding = NGRAM_BYTES * SEPARATOR
        joined = np.frombuffer(padding + SEPARATOR.join(texts) + PIECE_BYTES * SEPARATOR, dtype=np.uint8)
        pieces = np.lib.stride_tricks.sliding_window_view(joined, NGRAM_BYTES + PIECE_BYTES)[::PIECE_BYTES]

        states = np.zeros(len(pieces), dtype=self._next_states.dtype)
        visited = np.empty((len(pieces), PIECE_BYTES), dtype=states.dtype)
        for i, letters in enumerate(np.ascontiguousarray(pieces.T)):
            states = self._next_states[self._row_starts[states] + letters]
            if i >= NGRAM_BYTES:
                visited[:, i - NGRAM_BYTES] = states

        # say which text each byte is of; the separator after a text counts as its own
        lengths = [len(text) + 1 for text in texts]
        text_numbers = np.repeat(np.arange(len(texts)), lengths)
        ngrams = self._ngrams[visited.ravel()[: len(text_numbers)]]
        is_ngram = ngrams >= 0
        return text_numbers[is_ngram], ngrams[is_ngram]
