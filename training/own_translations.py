"""What a training learns from translations that it made on its way: of text in one language, and of its own sources.

At a few moments of a training, its loop stops, the model translates, and the steps to come learn from the result. There
are two kinds of translations:

- Back-translation (Sennrich et al. 2016, arXiv 1511.06709): sentences that exist in a target language alone
  (--monolingual) are translated into the source language, and are targets from then on. Their sources, which a machine
  wrote, begin with a tag (Caswell et al. 2019, arXiv 1906.06442), so that the model does not learn to expect such
  sources from its users.
- Self-distillation: the closest of the model's own translations replace the targets. This is sequence-level
  interpolation (Kim and Rush 2016, arXiv 1606.07947, section 3.3), with the model as its own teacher. It removes
  wording from the targets that the model cannot predict, which helps most where a search cannot go back: in greedy
  search.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from checkpoint import RunFolder
from config import BOS, Config, ConfigError, names_of_pairs
from dataset import EncodedPairs
from decoding.ctranslate2 import is_exported, load_exported
from decoding.scoring import closest
from decoding.search import Search
from decoding.translator import Translator

SEARCH = Search(beam=5, n_best=5)  # of self-distillation

# Shares of a training after which its model translates the text of --monolingual. Sooner, it translates worse, and
# learning from that gains nothing (docs/lab).
BACK_TRANSLATED_AT = 0.5, 0.75

# The tag of back-translated sources. Every vocabulary has <s>, also that of a run to start from, and no other source
# contains it.
TAG = BOS

Kind = Literal["back-translation", "self-distillation"]


@dataclass(frozen=True)
class Translated:
    """The training pairs, some with translations for sources or targets, learned from after `after_step` steps."""

    n_moments: int
    """How many of `moments` have passed"""
    after_step: int
    sources: dict[int, list[int]]
    """The sources of monolingual text in token ids, by row"""
    targets: dict[int, list[int]]
    """The targets of self-distillation in token ids, by row"""
    pairs: EncodedPairs
    """All training pairs, with these sources and targets"""
    steps_per_epoch: int


def moments(config: Config) -> list[tuple[float, Kind]]:
    """When a training translates, each as the share of its steps that are made before, and what for. In order."""
    back: Sequence[float] = (0.0,) if config.back_translator else BACK_TRANSLATED_AT
    distilled: list[tuple[float, Kind]] = []
    if config.self_distillation:
        distilled.append((1 - config.self_distillation, "self-distillation"))
    back_translated: list[tuple[float, Kind]] = [(share, "back-translation") for share in back if config.monolingual]
    return sorted([*back_translated, *distilled], key=lambda moment: moment[0])


def check_back_translator(config: Config, folder: Path) -> None:
    """Raises ConfigError if --back-translator does not translate as it must, or is the run to begin, in folder.

    Raises another TapisError if it cannot be used at all.
    """
    name = config.back_translator
    run = RunFolder.find(name)
    cpu = torch.device("cpu")
    loaded = load_exported(run.path, cpu, "auto") if is_exported(run.path) else run.load_model(cpu)
    known = loaded[0].directions
    for file, (source, target) in config.monolingual_directions:
        if (target, source) not in known:
            raise ConfigError(
                f"--back-translator {name} must translate {file} from {target} into {source}; "
                f"its language pairs are {names_of_pairs(known)}"
            )
    if run.path.resolve() == folder.resolve():
        raise ConfigError(f"--back-translator {name} is the run to begin; choose another --name")


def closest_translations(translator: Translator, pairs: Sequence[tuple[str, str]], language: str) -> list[str]:
    """For each source, of the model's five best translations, the one with the highest sentence BLEU."""
    sources = [source for source, _ in pairs]
    ranked = translator.n_best(sources, SEARCH, bar="distilling")
    return [
        closest([translation.text for translation in translations], target, language)
        for translations, (_, target) in zip(ranked, pairs, strict=True)
    ]


def to_tensors(ids_by_row: Mapping[int, Sequence[int]]) -> dict[str, Tensor]:
    """Token ids as `from_tensors` reads them again: the rows, the lengths, and the ids end to end."""
    ids = [np.asarray(ids, dtype=np.int32) for ids in ids_by_row.values()]
    return {
        "rows": torch.tensor(list(ids_by_row), dtype=torch.int64),
        "lengths": torch.tensor([len(one) for one in ids], dtype=torch.int32),
        "ids": torch.from_numpy(np.concatenate([np.zeros(0, dtype=np.int32), *ids])),
    }


def from_tensors(tensors: Mapping[str, Tensor]) -> dict[int, list[int]]:
    """The inverse of `to_tensors`. Raises ValueError if rows, lengths and ids do not belong together."""
    rows, lengths, ids = tensors["rows"].tolist(), tensors["lengths"].tolist(), tensors["ids"]
    if sum(lengths) != len(ids) or len(rows) != len(lengths):
        raise ValueError("the lengths of the translations do not add up")
    return dict(zip(rows, (part.tolist() for part in torch.split(ids, lengths)), strict=True))
