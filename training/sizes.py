"""The sizes of a model that nobody has named: by the number of its pairs and, with --minutes, by the time.

They are chosen where train.py is given --data and no preset. A flag that is given is kept. Part of the table is
measured (docs/lab/recipe.md#which-sizes-suit-few-pairs).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from config import Config
from tapis.config import flag
from training.cli import value_of


@dataclass(frozen=True)
class Size:
    """A size of a model, and what it needs."""

    least_pairs: int
    """Training pairs from which it is better than the size before it"""
    least_steps: int
    """Steps in the time of --minutes from which it is better than the size before it"""
    cost: float
    """Time of a training token, where that of the first size is 1"""
    settings: Mapping[str, Any]
    """Fields of `Config`"""


SIZES = (
    Size(
        least_pairs=0,
        least_steps=0,
        cost=1.0,
        settings={
            "d_model": 128,
            "d_ff": 512,
            "n_encoder_layers": 2,
            "n_decoder_layers": 2,
            "vocab_size": 1000,
            "batch_tokens": 1024,
            "dropout": 0.3,
            "subword_dropout": 0.0,
            "epochs": 60,
        },
    ),
    Size(
        least_pairs=10_000,
        least_steps=1500,
        cost=2.3,
        settings={
            "d_model": 192,
            "d_ff": 768,
            "n_encoder_layers": 3,
            "n_decoder_layers": 3,
            "vocab_size": 4000,
            "batch_tokens": 2048,
            "dropout": 0.2,
            "subword_dropout": 0.1,
            "epochs": 40,
        },
    ),
    Size(
        least_pairs=60_000,
        least_steps=1500,
        cost=3.7,
        settings={
            "d_model": 256,
            "d_ff": 1024,
            "n_encoder_layers": 3,
            "n_decoder_layers": 3,
            "vocab_size": 8000,
            "batch_tokens": 4096,
            "dropout": 0.1,
            "subword_dropout": 0.0,
            "epochs": 8,
        },
    ),
)


def open_fields(flags: Sequence[str]) -> list[str]:
    """Return the fields that the command line leaves to the sizes."""
    return [name for name in SIZES[0].settings if not value_of(flag(name), flags)]


def with_size(config: Config, size: Size, fields: Collection[str]) -> Config:
    """Return a config whose open fields are those of a size. A batch has room for a sentence of --max-length."""
    settings = {name: value for name, value in size.settings.items() if name in fields}
    if "batch_tokens" in settings:
        settings["batch_tokens"] = max(settings["batch_tokens"], config.max_length + 1)
    return replace(config, **settings)


def size_for(n_pairs: int, steps_of_smallest: float, fields: Collection[str]) -> Size:
    """Return the largest size that has pairs and steps enough.

    steps_of_smallest are those of the smallest size in the time that there is. fields are those that sizes settle.
    """

    def steps(size: Size) -> float:
        settles_batches = "batch_tokens" in fields
        batches = SIZES[0].settings["batch_tokens"] / size.settings["batch_tokens"] if settles_batches else 1
        return steps_of_smallest * batches / size.cost

    return [size for size in SIZES if n_pairs >= size.least_pairs and steps(size) >= size.least_steps][-1]
