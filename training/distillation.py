"""Self-distillation: late in a training, the model learns from those of its own translations closest to the targets.

Sequence-level interpolation (Kim and Rush 2016, arXiv 1606.07947, section 3.3), with the model as its own teacher. It
removes wording from the targets that the model cannot predict, which helps most where a search cannot go back: in
greedy search.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dataset import EncodedPairs
from decoding.scoring import closest
from decoding.search import Search
from decoding.translator import Translator

SEARCH = Search(beam=5, n_best=5)


@dataclass(frozen=True)
class Distilled:
    """The training pairs with the model's own translations for targets, learned from after `after_step` steps."""

    pairs: EncodedPairs
    after_step: int
    steps_per_epoch: int


def closest_translations(translator: Translator, pairs: Sequence[tuple[str, str]], language: str) -> list[str]:
    """For each source, of the model's five best translations, the one with the highest sentence BLEU."""
    sources = [source for source, _ in pairs]
    ranked = translator.n_best(sources, SEARCH, bar="distilling")
    return [
        closest([translation.text for translation in translations], target, language)
        for translations, (_, target) in zip(ranked, pairs, strict=True)
    ]


def targets_to_tensors(pairs: EncodedPairs) -> dict[str, Tensor]:
    """The targets of pairs as `targets_from_tensors` reads them again: their ids end to end, and their lengths."""
    targets = [pairs.targets[row] for row in pairs.rows.tolist()]
    ids = np.concatenate([np.asarray(target, dtype=np.int32) for target in targets])
    lengths = np.array([len(target) for target in targets], dtype=np.int32)
    return {"ids": torch.from_numpy(ids), "lengths": torch.from_numpy(lengths)}


def targets_from_tensors(tensors: dict[str, Tensor]) -> list[list[int]]:
    """The inverse of `targets_to_tensors`. Raises ValueError if ids and lengths do not belong together."""
    ids, lengths = tensors["ids"], tensors["lengths"].tolist()
    if sum(lengths) != len(ids):
        raise ValueError("the lengths of the distilled targets do not add up")
    return [target.tolist() for target in torch.split(ids, lengths)]
