"""The weights of the decoder's attention to the source, by the model of model.py.

They are the weights with which the search chose the translation, token by token.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dataset import causal_mask, pad, padding_mask
from model import MaskedAttention, MultiHeadAttentionBlock, Transformer, attention_weights
from tapis.config import BOS


def cross_attention(model: Transformer, source: list[int], target: list[int]) -> NDArray[np.float32]:
    """Return the weights of a model that translates `source` to `target`, both given as ids without BOS and EOS."""
    return cross_attentions(model, [source], [target])[0]


@torch.no_grad()
def cross_attentions(
    model: Transformer, sources: Sequence[list[int]], targets: Sequence[list[int]]
) -> list[NDArray[np.float32]]:
    """Return the weights (layers, H, T + 1, S + 1) of each source and its target, computed as one batch.

    Every row sums to 1.
    """
    device = model.src_embed.embedding.weight.device
    src, tgt = pad(sources).to(device), pad(targets, before=[BOS], after=()).to(device)
    mask = padding_mask(src)

    to_source = _RecordedAttention(mask)
    memory = model.encode(src, MaskedAttention(mask))
    model.decode(tgt, memory, MaskedAttention(causal_mask(tgt.size(1), device)), to_source)

    weights = torch.stack(to_source.recorded, dim=1).float().cpu().numpy()
    # (B, layers, H, T + 1, S + 1) of the longest T and S
    return [
        of_pair[:, :, : len(target) + 1, : len(source) + 1]
        for of_pair, source, target in zip(weights, sources, targets, strict=True)
    ]


@dataclass(frozen=True)
class _RecordedAttention(MaskedAttention):
    """`MaskedAttention` that keeps the weights (B, H, T, S) of each block."""

    recorded: list[Tensor] = field(default_factory=list)

    def __call__(self, block: MultiHeadAttentionBlock, x: Tensor, memory: Tensor) -> Tensor:
        key, _ = block.keys_and_values(memory)
        self.recorded.append(attention_weights(block.split_heads(block.w_q(x)), key, self.mask))
        return super().__call__(block, x, memory)
