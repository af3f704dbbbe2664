"""What a search is asked, `Search`, what it returns, `Hypothesis`, and who searches: a `Searcher`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from tapis.config import LENGTH_PENALTY, ConfigError, TapisError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")
U = TypeVar("U")

AttentionOf = Literal["source", "encoder", "decoder"]  # to the source, or of the tokens of a stack to each other


def go_on() -> None:
    """Go on: the default of what is called during a search, and may end it."""


@dataclass(frozen=True)
class Search:
    """How to search. Raises ConfigError if the numbers do not fit together."""

    beam: int = 1
    """Hypotheses kept for each sentence; 1 is greedy search"""
    n_best: int = 1
    """Translations wanted for each sentence, at most beam"""
    length_penalty: float = LENGTH_PENALTY
    """α of `length_penalty`: 0 favours short translations, 1 scores nearly by the mean over tokens"""

    def __post_init__(self) -> None:
        if not (isinstance(self.beam, int) and isinstance(self.n_best, int)):
            raise ConfigError(f"--beam is {self.beam} and --n-best {self.n_best}: both are whole numbers")
        if not 1 <= self.n_best <= self.beam <= 1000:
            raise ConfigError(f"--beam is {self.beam} and --n-best {self.n_best}: 1 ≤ n-best ≤ beam ≤ 1000 is needed")
        if not 0 <= self.length_penalty <= 10:
            raise ConfigError(f"--length-penalty is {self.length_penalty}; it must be from 0 to 10")


GREEDY = Search()


@dataclass(frozen=True)
class Hypothesis:
    """A translation in token ids."""

    ids: list[int]
    """Without BOS and EOS"""
    score: float
    """log P(ids | source) in nats over the length penalty; NaN from greedy search, which computes none"""


def length_penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6)^α, by which log P is divided (Wu et al. 2016, arXiv 1609.08144, formula 14)."""
    return float(((5 + length) / 6) ** alpha)


class LogitsStep(Protocol):
    """A model that is asked what may follow, one step after another."""

    def __call__(self, tokens: "NDArray[np.int64]", parents: "NDArray[np.int64] | None") -> "NDArray[np.float32]":
        """Return logits (K, V) of the next token of K hypotheses; −∞ for what is never generated.

        tokens (K,) are their last ones. parents (K,) are the hypotheses of the call before that they continue; None at
        first, when there is one hypothesis, of BOS.
        """


class Searcher(Protocol):
    """Finds translations in token ids. Sources and targets are ids without BOS and EOS."""

    batch_tokens: int
    """Tokens in a batch, as `Translator.n_best` counts them, unless it is told otherwise"""
    at_once: int
    """Searches that compute at the same time, each on a thread: too few batches for them are cut"""
    can_force: bool
    """Whether it has log-probabilities and attention of translations that are given"""

    def __call__(
        self, sources: Sequence[list[int]], limits: Sequence[int], search: Search, check: Callable[[], None] = go_on
    ) -> list[list[Hypothesis]]:
        """Return the n best hypotheses of each source, best first. limits caps their lengths, in tokens.

        check is called before each step, or now and then, where that is possible. What it raises ends the search.
        """

    def log_probabilities(
        self, sources: Sequence[list[int]], targets: Sequence[list[int]], check: Callable[[], None] = go_on
    ) -> list[float]:
        """Return log P(target and its end | source) of each pair of ids, in nats, without length penalty.

        As in a search, what is never generated has no probability. Raises ConfigError if the searcher cannot.
        """

    def attention(
        self,
        sources: Sequence[list[int]],
        targets: Sequence[list[int]],
        check: Callable[[], None] = go_on,
        of: AttentionOf = "source",
    ) -> "list[NDArray[np.float32]]":
        """Return what each token of each target attended to in its source: (layers, H, T + 1, S + 1), with the ends.

        Of the encoder, what each token of a source attended to in it: (layers, H, S + 1, S + 1). Of the decoder, what
        each token of a target attended to among BOS and the tokens before it: (layers, H, T + 1, T + 1). Every row sums
        to 1. Raises ConfigError if the searcher cannot.
        """

    def steps(self, source: list[int], check: Callable[[], None] = go_on) -> "AbstractContextManager[LogitsStep]":
        """Return the logits of one source, a step at a time: as tapis/constrained.py asks for them.

        Raises ConfigError if the searcher does not give them.
        """

    def spread(self, work: Callable[[T], U], items: Sequence[T]) -> Iterator[U]:
        """Yield `work(item)` for each item, in order; on a CPU, several threads work on items at the same time."""


def finite(results: list[list[Hypothesis]], advice: str) -> list[list[Hypothesis]]:
    """Return the results of a search. Raises TapisError with advice if a sentence has none."""
    if not all(results):
        raise TapisError(f"the model's numbers are not finite in this precision: {advice}")
    return results
