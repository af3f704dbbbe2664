"""Step functions, through which a search asks a model for the next token.

Letters in shapes are those of decoding/search.py: L live sentences, K hypotheses of each.
"""

from typing import Any

import torch
from torch import Tensor

from dataset import padding_mask
from decoding.inference import FusedSelfAttention, SearchCache
from decoding.search import Step
from model import DecoderCache, MaskedAttention, Transformer


def plain_step(model: Transformer, src: Tensor) -> Step:
    """Return the step function of a search over the translations of src (B, S), by the plain model and its cache."""
    src_mask = padding_mask(src)
    memory = model.encode(src, MaskedAttention(src_mask))
    cache = DecoderCache()

    def step(tokens: Tensor, parents: Tensor | None) -> Tensor:
        nonlocal src_mask
        if parents is not None:
            cache.select(parents.flatten())
            src_mask = src_mask[parents.flatten()]  # the keys and values of memory are in the cache
        vectors = model.decode(tokens.view(-1, 1), memory, *cache.next_step(src_mask))  # (L · K, 1, D)
        return model.project(vectors).view(*tokens.shape, -1)  # (L, K, V)

    return step


def fast_step(model: Transformer, src: Tensor) -> Step:
    """Replace `plain_step`, for a model of `in_precision`: the hypotheses of a sentence share its row of memory."""
    src_mask = padding_mask(src)
    memory = model.encode(src, FusedSelfAttention(src_mask))
    cache = SearchCache()
    n_hypotheses = 1  # of each sentence at the previous call

    def step(tokens: Tensor, parents: Tensor | None) -> Tensor:
        nonlocal src_mask, n_hypotheses
        if parents is not None:
            sentences: Tensor | None = None
            if len(parents) < len(src_mask):  # some have left
                sentences = parents[:, 0] // n_hypotheses
                src_mask = src_mask[sentences]
            cache.keep(parents.flatten(), sentences)
        n_hypotheses = tokens.size(1)
        vectors = model.decode(tokens.view(-1, 1), memory, *cache.next_step(src_mask))  # (L · K, 1, D)
        return model.project(vectors).view(*tokens.shape, -1)  # (L, K, V)

    return step


def without_tags(step: Step, tags: list[int], *args: Any) -> Tensor:
    """Return the logits of a step, with none for the tokens that are never generated. Their ids follow each other."""
    logits = step(*args)
    logits[..., tags[0] : tags[-1] + 1] = -torch.inf
    return logits
