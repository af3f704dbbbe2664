"""The weights of attention, by the model of model.py.

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
from tapis.search import AttentionOf


def cross_attention(model: Transformer, source: list[int], target: list[int]) -> NDArray[np.float32]:
    """Return the weights of a model that translates `source` to `target`, both given as ids without BOS and EOS."""
    return attentions(model, [source], [target])[0]


@torch.no_grad()
def attentions(
    model: Transformer, sources: Sequence[list[int]], targets: Sequence[list[int]], of: AttentionOf = "source"
) -> list[NDArray[np.float32]]:
    """Return the weights of each source and its target, as `Searcher.attention` describes them, as one batch."""
    device = model.src_embed.embedding.weight.device
    src, tgt = pad(sources).to(device), pad(targets, before=[BOS], after=()).to(device)
    mask = padding_mask(src)

    in_encoder, to_source = _RecordedAttention(mask), _RecordedAttention(mask)
    in_decoder = _RecordedAttention(causal_mask(tgt.size(1), device))
    memory = model.encode(src, in_encoder)
    model.decode(tgt, memory, in_decoder, to_source)

    recorded = {"source": to_source, "encoder": in_encoder, "decoder": in_decoder}[of].recorded
    weights = torch.stack(recorded, dim=1).float().cpu().numpy()
    # (B, layers, H, rows, columns) of the longest T and S
    sizes = [(len(source) + 1, len(target) + 1) for source, target in zip(sources, targets, strict=True)]
    return [
        of_pair[:, :, : n_source if of == "encoder" else n_target, : n_target if of == "decoder" else n_source]
        for of_pair, (n_source, n_target) in zip(weights, sizes, strict=True)
    ]


@dataclass(frozen=True)
class _RecordedAttention(MaskedAttention):
    """`MaskedAttention` that keeps the weights (B, H, T, S) of each block."""

    recorded: list[Tensor] = field(default_factory=list)

    def __call__(self, block: MultiHeadAttentionBlock, x: Tensor, memory: Tensor) -> Tensor:
        key, _ = block.keys_and_values(memory)
        self.recorded.append(attention_weights(block.split_heads(block.w_q(x)), key, self.mask))
        return super().__call__(block, x, memory)
