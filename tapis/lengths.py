"""How long translations are, learned from the training pairs: what caps a search, and what is too short or too long.

The model of Gale and Church 1993 ("A Program for Aligning Sentences in Bilingual Corpora", section 3.1): each source
token gives a random number of target tokens, independently of the others. A source of n tokens then gives `ratio` · n
on average, and the deviation grows with √n. Its scale is `spread`, which one in a hundred training pairs exceeds; a
quantile, since the tails are longer than those of the normal distribution that the paper takes.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

QUANTILE = 0.99
LIMIT = 3  # spreads: of 190,000 pairs of Multi30k and Tatoeba, none is as far off
EXTRA_LENGTH = 10  # tokens: short sources are seldom like those of the corpus
PAPERS_EXTRA_LENGTH = 50  # section 6.1 of the paper
LARGEST = 20  # of a ratio or a spread that counts for the limit: a model that never ends must not take all memory


@dataclass(frozen=True)
class Lengths:
    """Lengths in tokens, without the end token. For runs before format 4, nothing is known of them."""

    ratio: float = 0.0
    """Target tokens for each source token, on average"""
    spread: float = 0.0
    """|target − ratio · source| / √source that one in a hundred pairs exceeds"""

    @classmethod
    def of(cls, src_lengths: NDArray[np.integer[Any]], tgt_lengths: NDArray[np.integer[Any]]) -> "Lengths":
        """Learn from the lengths of pairs: at least one pair, and at least one token on either side."""
        ratio = tgt_lengths.sum() / src_lengths.sum()
        deviations = np.abs(tgt_lengths - ratio * src_lengths) / np.sqrt(src_lengths)
        return cls(round(float(ratio), 4), round(float(np.quantile(deviations, QUANTILE)), 4))

    def limit(self, source: int) -> int:
        """Return how long the translation of a source may become."""
        if not self.ratio:
            return source + PAPERS_EXTRA_LENGTH
        ratio, spread = min(self.ratio, LARGEST), min(self.spread, LARGEST)
        return math.ceil(ratio * source + LIMIT * spread * math.sqrt(source)) + EXTRA_LENGTH

    def deviation(self, source: int, target: int) -> float:
        """Return how unusual a length is: −1 is as short, 1 as long, as one in a hundred pairs; 0 if unknown."""
        if not self.ratio:
            return 0.0
        expected, tolerance = self.ratio * source, max(self.spread, 1e-6) * math.sqrt(source)
        return (target - expected) / tolerance
