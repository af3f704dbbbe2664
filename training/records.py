"""Records of a run: one for each step, one for each validation, and its progress."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import numpy as np


class Numbers(Protocol):
    """Numbers that a GPU may not have computed yet."""

    def tolist(self) -> list[float]:
        """Return the numbers. This waits for them."""


@dataclass(frozen=True)
class StepRecord:
    """One step: its losses, summed over n_tgt target tokens in nats, and how it went.

    What is read from `numbers` may have to be waited for.
    """

    step: int
    numbers: Numbers | list[float]
    """The loss, the cross-entropy without label smoothing, the norm of the gradient, and those of the model's parts"""
    parts: Sequence[str]
    """The names of these parts"""
    lr: float
    n_tgt: int
    n_tokens: int
    """Source and target tokens without padding"""
    seconds: float
    """Between the step before and this one, as long as the GPU is behind the host"""

    @property
    def values(self) -> list[float]:
        return self.numbers if isinstance(self.numbers, list) else self.numbers.tolist()

    @property
    def loss(self) -> float:
        return self.values[0]

    @property
    def cross_entropy(self) -> float:
        """Without label smoothing; perplexity is exp of its mean."""
        return self.values[1]

    @property
    def grad_norm(self) -> float:
        return self.values[2]

    @property
    def grad_norms(self) -> dict[str, float]:
        """The norm of the gradient of each part of the model."""
        return dict(zip(self.parts, self.values[3:], strict=True))


@dataclass(frozen=True)
class Validation:
    """Scores on the whole validation part after `step` steps.

    The loss is comparable with that of training, unless teachers are most of the targets there.
    """

    step: int
    loss: float
    perplexity: float
    bleu: float
    chrf: float
    by_data: dict[str, dict[str, float]] = field(default_factory=dict)
    """With several sources of data: the BLEU and the chrF of each, by its label"""

    def rank(self) -> tuple[float, float]:
        """Return what the best model is chosen by: BLEU, then loss, since every BLEU is 0 early on."""
        return self.bleu, -self.loss


RoundKind = Literal["back-translation", "distillation", "self-distillation", "teaching"]
"""What a run learned in a round: sources of monolingual text, the translations of teachers or its own, or the
probabilities of teachers"""


@dataclass(frozen=True)
class Judged:
    """How well one language was translated into another before a round."""

    source: str
    target: str
    bleu: float
    """Of validation pairs"""
    is_good: bool
    """Whether it is worth learning from"""
    by: str = ""
    """Another run that translated"""

    def __str__(self) -> str:
        by = f"{self.by} " if self.by else ""
        return f"{by}{self.source}-{self.target} BLEU {self.bleu:.1f}"


@dataclass(frozen=True)
class RoundReport:
    """What a round did."""

    kind: RoundKind
    judged: list[Judged]
    """By the languages that were translated"""
    n_sentences: int
    """Of the training part, whose sources or targets have changed"""
    after_step: int = 0
    """How many steps were made before"""


@dataclass(frozen=True)
class Position:
    """Where a run is, as its state has it."""

    step: int
    tokens: int
    seconds: float
    best: Validation | None
    validations_since_best: int
    validated: int | None = None
    """The step of the last validation; earlier versions did not save it"""


class Progress(NamedTuple):
    """How far a run is."""

    step: int
    tokens: int
    """Source and target tokens learned from so far"""
    seconds: float
    """Time spent on training and validating so far, before resumptions included"""


def mean_loss(records: Sequence[StepRecord]) -> float:
    """Return the mean loss over the target tokens of these steps, in nats; NaN without steps."""
    if not records:
        return math.nan
    return sum(record.loss for record in records) / sum(record.n_tgt for record in records)


def perplexity(cross_entropy: float, n_tgt: float) -> float:
    """Return exp of the mean cross-entropy; capped, since that of an untrained model may exceed what a float holds."""
    return math.exp(min(cross_entropy / n_tgt, 100.0))


def tokens_per_second(records: Sequence[StepRecord]) -> float:
    """Return the median over steps, which a busy machine disturbs less than the mean."""
    return float(np.median([record.n_tokens / record.seconds for record in records]))
