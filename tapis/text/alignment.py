"""Which words of a translation come from which words of its source."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SMOOTHING = 0.1  # words of a translation, added to those that attend to a word of the source


class Alignment:
    """How much each word of a translation comes from each word of its source.

    Sentence by sentence: a word of one does not come from another.
    """

    def __init__(self, blocks: Sequence[NDArray[np.float64]]) -> None:
        """Take what words attend to: (words of the translation, words of the source) for each sentence, in order.

        Nothing is negative. An article attends to its noun more than to the article of the source, and the noun does,
        too. What a word attends to is therefore divided by what the others attend to.
        """
        self.blocks = [_of_rows(rows / (rows.sum(axis=0) + SMOOTHING)) for rows in map(_of_rows, blocks)]
        self.rows, self.columns = (np.cumsum([0, *(block.shape[axis] for block in blocks)]) for axis in (0, 1))

    @property
    def shape(self) -> tuple[int, int]:
        """The words of the translation, and those of the source."""
        return int(self.rows[-1]), int(self.columns[-1])

    def best(self, word: int) -> int:
        """Return the word of the translation that comes most from a word of the source."""
        i = int(np.searchsorted(self.columns, word, side="right")) - 1
        block = self.blocks[i]
        within = int(block[:, word - self.columns[i]].argmax()) if len(block) else 0
        return int(self.rows[i]) + within

    def border(self, word: int) -> int | None:
        """Return the first word of the translation of a sentence that begins with a word; None if none does."""
        i = int(np.searchsorted(self.columns, word))
        return int(self.rows[i]) if self.columns[i] == word else None

    def shares(self, start: int, end: int) -> tuple[int, NDArray[np.float64]]:
        """Return how much of words of the translation comes from words of the source from start to end.

        Returns the first of the words of the translation, and a share for it and each that follows. All others have
        none.
        """
        first = max(0, int(np.searchsorted(self.columns, start, side="right")) - 1)
        last = max(first, min(len(self.blocks), int(np.searchsorted(self.columns, end, side="left"))))
        of_blocks = [
            self.blocks[i][:, max(0, start - self.columns[i]) : max(0, end - self.columns[i])].sum(axis=1)
            for i in range(first, last)
        ]
        return int(self.rows[first]), np.concatenate([np.zeros(0), *of_blocks])


def _of_rows(block: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the numbers of each row as shares of it."""
    shares: NDArray[np.float64] = block / block.sum(axis=1, keepdims=True).clip(min=1e-9)
    return shares


class SamePlaces(Alignment):
    """An alignment of words in the same order, as far as is known."""

    def __init__(self, n_target: int, n_source: int) -> None:
        super().__init__([])
        self.n_target, self.n_source = n_target, n_source

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_target, self.n_source

    def border(self, word: int) -> int | None:
        return None if word else 0

    def best(self, word: int) -> int:
        return min(int((word + 0.5) * self.n_target / max(1, self.n_source)), max(0, self.n_target - 1))

    def shares(self, start: int, end: int) -> tuple[int, NDArray[np.float64]]:
        first, last = (place * self.n_target // max(1, self.n_source) for place in (start, end))
        return first, np.ones(last - first)


def alignment_of(blocks: Sequence[NDArray[np.float64]], n_target: int, n_source: int) -> Alignment:
    """Return the alignment of so many words, by blocks as `Alignment` takes them.

    Where blocks have other words, it is by place: words of a translation may be cut, or have no spaces between them,
    and tokens of a model may be spaces alone.
    """
    alignment = Alignment(blocks)
    return alignment if alignment.shape == (n_target, n_source) else SamePlaces(n_target, n_source)


def same_places(n_target: int, n_source: int) -> NDArray[np.float64]:
    """Return (n_target, n_source): 1 where a word of the translation has the place of a word of the source."""
    places = ((np.arange(n_target) + 0.5) * n_source / max(1, n_target)).astype(int)
    return np.eye(n_source)[places]


def same_words(n: int) -> list[NDArray[np.float64]]:
    """Return the blocks of n words that stay as they are: one for each word. A single block would take n² numbers."""
    return [np.ones((1, 1))] * n
