"""Starting from another run (--init-from): what a run takes from it, and how well its tokenizer fits the new data.

The weights and the tokenizer are those of the run, and so are all settings of the model. The optimizer, the schedule
and the count of steps begin anew.
"""

import contextlib
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from checkpoint import RunFolder, parameters
from config import FACTS, Config
from pairs.tables import Ints
from tapis.config import ConfigError, Learned, flag
from tapis.doubts import MOST_BYTES_OF_WORDS
from tapis.text.tokenizer import Tokenizer
from training.metrics import AncestorRecord, BestScores, Metrics, SideReport, load_metrics

RARE = 10  # occurrences in a training part, below which a token is rare

# Chosen in trials with 1,000 and 5,000 pairs (docs/lab). The rate is that of the run: a tenth, a quarter and
# a half of it learned less. Mixed with old data, half of it learned as much and forgot less.
EPOCHS = 20
MIXED_RATE = 0.5


def settings_from(folder: RunFolder, name: str) -> Config:
    """Return the defaults of a run that starts from another: the other's own settings, except for its length.

    name is the run as --init-from names it. Raises CheckpointError if config.json is missing or invalid.
    """
    config = folder.load_config()
    fresh = {field.name: field.default for field in fields(Config) if FACTS[field.name].init_from == "fresh"}
    return replace(
        config,
        **{**fresh, "epochs": EPOCHS},  # type: ignore[arg-type]
        init_from=name,
        name=f"{config.name}-tuned",
    )


def check_inherited(config: Config, defaults: Config) -> None:
    """Raise ConfigError if a setting differs that is the run's. defaults are `settings_from` that run."""
    fixed = [name for name, facts in FACTS.items() if facts.init_from == "fixed"]
    changed = [name for name in fixed if getattr(config, name) != getattr(defaults, name)]
    if "pairs" in changed and len(config.pairs) == 1:
        raise ConfigError(
            f"--init-from {config.init_from} translates from {defaults.source} into {defaults.target}, "
            f"not from {config.source} into {config.target}"
        )
    if changed:
        flags = ", ".join(map(flag, changed))
        raise ConfigError(f"{flags} cannot be given with --init-from: the model is that of {config.init_from}")


@dataclass(frozen=True)
class Ancestor:
    """The run that another one starts from."""

    tokenizer: Tokenizer
    weights: dict[str, Tensor]
    """Its best weights by validation, on the CPU"""
    metrics: Metrics
    record: AncestorRecord
    """What metrics.json of its descendant says of it"""
    learned: Learned

    @classmethod
    def load(cls, name: str) -> "Ancestor":
        """Load a run. Raises CheckpointError or FetchError if it is missing or damaged."""
        folder = RunFolder.find(name)
        config, tokenizer, model = folder.load_model(torch.device("cpu"))
        metrics = load_metrics(folder)
        best = BestScores(metrics.best.bleu, metrics.best.chrf) if metrics.best else None
        record = AncestorRecord(config.name, list(config.data), metrics.init_from, best)
        return cls(tokenizer, parameters(model), metrics, record, folder.load_learned())

    @property
    def rare_tokens(self) -> Ints | None:
        """The ids of the tokens that were rare in its training part; None if its metrics.json does not say."""
        if self.metrics.rare_tokens is None:
            return None
        with contextlib.suppress(ValueError, OverflowError):
            ids = np.array(self.metrics.rare_tokens.split(), dtype=np.int64)
            return ids[(ids >= 0) & (ids < len(self.tokenizer))]
        return None

    def with_words(self, learned: Learned) -> Learned:
        """Return what its descendant has learned, with the words of both.

        It has none if those of one are not known, or if they are too many.
        """
        both = self.learned.known_words, learned.known_words
        words = " ".join(sorted(both[0] | both[1])) if all(both) else ""
        return replace(learned, target_words=words if len(words.encode()) <= MOST_BYTES_OF_WORDS else "")

    def compare_side(self, side: SideReport, language: str, counts: Ints) -> SideReport:
        """Compare one side of the new data with that of the run, given how often each token occurs in the new one."""
        there = self.metrics.sides.get(language)
        rare = self.rare_tokens
        return replace(
            side,
            tokens_per_word_there=there.tokens_per_word if there else None,
            rare_there=None if rare is None else round(float(counts[rare].sum() / max(1, counts.sum())), 5),
        )


def rare_tokens(counts: Ints, ancestor: Ancestor | None) -> str:
    """Return the ids of the tokens that are rare in the training part, and in that of the ancestor, if any."""
    is_rare = counts < RARE
    if ancestor and ancestor.rare_tokens is not None:
        is_rare &= np.isin(np.arange(len(counts)), ancestor.rare_tokens)
    return " ".join(map(str, np.flatnonzero(is_rare)))
