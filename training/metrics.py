"""What metrics.json holds: the report of a run's data and model, and its scores.

Translating and resuming do not need it. Whatever the file holds, `load_metrics` returns what is of the right type.
"""

from dataclasses import dataclass, field
from typing import Any

from checkpoint import RunFolder
from pairs.report import DataReport, RuleReport
from tapis.scoring import Scores
from training.json_records import from_json_value, to_json_value
from training.records import RoundReport, Validation


@dataclass(frozen=True)
class SideReport:
    """One side of the training pairs, in tokens without EOS."""

    tokens: int
    tokens_per_word: float
    characters_in_bytes: float
    """The share of characters that the vocabulary does not have whole"""
    percentiles: dict[str, int]
    """Of the lengths of sentences, by percent"""
    tokens_per_word_there: float | None = None
    """In the data of the run that this one starts from"""
    rare_there: float | None = None
    """The share of tokens that are rare in the data of the run that this one starts from"""


@dataclass
class BatchReport:
    """The batches of an epoch, and the steps of all epochs."""

    in_an_epoch: int = 0
    tokens_a_side_at_most: int = 0
    padding: float = 0.0
    """A share from 0 to 1"""
    in_a_step: int = 0
    steps: int = 0
    """With `--minutes`, known after half of the time"""
    warmup_steps: int = 0


@dataclass(frozen=True)
class BestScores:
    """The scores of a run's best validation."""

    bleu: float
    chrf: float


@dataclass(frozen=True)
class AncestorRecord:
    """The run that this one starts from."""

    name: str
    data: list[str]
    init_from: "AncestorRecord | None" = None
    """Its own ancestor"""
    best: BestScores | None = None


@dataclass(frozen=True)
class Resumption:
    """Where a run was resumed, and the settings that changed, each with its old and its new value."""

    step: int
    changed: dict[str, tuple[Any, Any]]


@dataclass
class Metrics:
    """What metrics.json holds. What is not known yet has its default."""

    # When the run starts
    data: DataReport = field(default_factory=DataReport)
    sides: dict[str, SideReport] = field(default_factory=dict)
    """By language; with several language pairs, of "source" and "target\""""
    vocabulary: int = 0
    rare_tokens: str | None = None
    """Their ids, separated by spaces"""
    batches: BatchReport = field(default_factory=BatchReport)
    terms: int = 0
    """Words of the source languages that --terms may give translations to"""
    parameters: int = 0
    hardware: str = ""
    precision: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    init_from: AncestorRecord | None = None
    resumed: list[Resumption] = field(default_factory=list)

    # On its way
    rounds: list[RoundReport] = field(default_factory=list)
    """Of translating and teaching"""
    unrelated: RuleReport | None = None
    """Training pairs that --drop-unrelated dropped"""

    # At each validation
    best: Validation | None = None
    last: Validation | None = None

    # At the end
    seconds: float | None = None
    test: Scores | None = None
    examples: list[tuple[str, str, str]] = field(default_factory=list)
    """The first sentences of the test part: source, reference, translation"""


def load_metrics(folder: RunFolder) -> Metrics:
    """Read metrics.json; all defaults if it is missing or damaged."""
    try:
        return from_json_value(Metrics, folder.load_metrics())
    except RecursionError:  # records within records, without end
        return Metrics()


def save_metrics(folder: RunFolder, metrics: Metrics) -> None:
    """Write metrics.json. Raises OSError if that fails."""
    folder.save_metrics(to_json_value(metrics))
