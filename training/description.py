"""What a run is, in numbers: the report of its data, model and hardware, and what metrics.json holds in the end."""

import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np

from decoding.scoring import Scores
from system.devices import device_label
from text.tables import Ints
from training.trainer import Training

PACKAGES = ("torch", "tokenizers", "datasets", "torchmetrics", "sacrebleu")  # whose versions are recorded
EXAMPLES = 5  # sentences of the test part with their translations, for the card of a release


def describe(training: Training) -> dict[str, Any]:
    """What is about to be trained on what, for `training.terminal.report_lines` and metrics.json."""
    config, corpus, pairs = training.config, training.corpus, training.train_pairs
    too_long = corpus.train.select(pairs.too_long)
    n_words = np.subtract(corpus.train.words(), too_long.words())  # on either side
    return {
        "data": {
            "name": config.data,
            **corpus.report,
            "over-long": {"pairs": len(too_long), "examples": too_long[:2]},
            "trained on": len(pairs),
        },
        "sides": {
            config.source: describe_side(pairs.src_lengths - 1, n_words[0]),
            config.target: describe_side(pairs.tgt_lengths - 1, n_words[1]),
        },
        "vocabulary": len(training.tokenizer),
        "batches": {
            "in an epoch": training.batches_per_epoch,
            "tokens a side, at most": config.batch_tokens,
            "padding": round(training.padding, 4),
            "steps": training.total_steps,
        },
        "parameters": sum(parameter.numel() for parameter in training.model.parameters()),
        "hardware": device_label(training.device),
        "precision": config.precision,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }


def describe_side(lengths: Ints, n_words: int) -> dict[str, Any]:
    """One side of the training pairs: lengths in tokens without EOS, and how many words they are."""
    return {
        "tokens": int(lengths.sum()),
        "tokens per word": round(float(lengths.sum()) / max(1, n_words), 2),
        "percentiles": {str(p): int(np.percentile(lengths, p)) for p in (50, 95, 99, 100)},
    }


def describe_test(scores: Scores, pairs: Sequence[tuple[str, str]], hypotheses: Sequence[str]) -> dict[str, Any]:
    """The scores of the test part, and its first sentences with their translations."""
    first = zip(pairs[:EXAMPLES], hypotheses[:EXAMPLES], strict=True)
    return {"test": asdict(scores), "examples": [[*pair, hypothesis] for pair, hypothesis in first]}
