"""Forced decoding: how probable a model finds translations that are given."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dataset import collate
from model import MaskedAttention, Transformer
from tapis.config import EOS, PAD

ROWS = 512  # target positions whose probabilities over the vocabulary exist at once


def log_probabilities(
    model: Transformer,
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    device: torch.device,
    suppressed: Sequence[int] = (),
) -> list[float]:
    """Return log P(target and its end | source) of each pair of ids, in nats, without length penalty.

    As in a search, the special tokens other than the end have no probability, and neither have the ids `suppressed`.
    The pairs are one batch. The model is in evaluation mode.
    """
    with torch.inference_mode():
        batch = collate(sources, targets).to(device)
        attend_to_source = MaskedAttention(batch.src_mask)
        memory = model.encode(batch.src, attend_to_source)
        vectors = model.decode(batch.tgt, memory, MaskedAttention(batch.tgt_mask), attend_to_source)  # (B, T, D)
        log_p = log_p_of_labels(model, vectors.flatten(0, 1), batch.labels.flatten(), suppressed)
        values: list[float] = (log_p.view_as(batch.labels) * (batch.labels != PAD)).sum(dim=1).tolist()
        return values


def log_p_of_labels(model: Transformer, vectors: Tensor, labels: Tensor, suppressed: Sequence[int]) -> Tensor:
    """Vectors (N, D), labels (N,) → log P of each label (N,). That of PAD means nothing."""
    parts = []
    for x, label in zip(torch.split(vectors, ROWS), torch.split(labels, ROWS), strict=True):
        logits = model.project(x).float()  # (ROWS, V)
        logits[:, [*range(EOS), *suppressed]] = -torch.inf  # what a search never generates
        parts.append(logits.log_softmax(dim=-1).gather(1, label[:, None]).squeeze(1).masked_fill(label == PAD, 0.0))
    return torch.cat(parts)
