"""A model prepared for translating: linear layers of 32 or 16 bits, fused projections, caches that grow in place.

`in_precision` returns a copy of a model with these modules in the place of the plain ones. Each names the one that it
replaces. Everything else is the code of model.py.

On CPUs, 8 bits are faster (compiled.py).
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from config import Precision
from fast.attention import fused_attention
from fast.modules import install_fast_modules
from model import (
    DecoderBlock,
    DecoderCache,
    EncoderBlock,
    KeyValueCache,
    MultiHeadAttentionBlock,
    Transformer,
)
from system.devices import DTYPES, choose_precision

# Linear layers


class CastLinear(nn.Module):
    """Replaces `nn.Linear`: x Wᵀ + b, (…, D) → (…, V), computed in one type.

    Autocast computes the same, but decides about each operation anew, and a search has thousands of small ones. A CPU
    that multiplies bf16 itself reads the weights in an order of its own, into which they are brought here, once.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = weight.detach().to(dtype)
        self.bias = None if bias is None else bias.detach().to(dtype)
        self.product: Callable[..., Tensor] = F.linear
        is_cpu = self.weight.device.type == "cpu"
        if is_cpu and dtype == torch.bfloat16 and choose_precision("auto", self.weight.device) == "bf16":
            self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight, 128)
            self.product = lambda x, weight, bias: torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x.to(self.weight.dtype), self.weight, self.bias)


# Attention


def attend_in_type_of_keys(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Replaces `scaled_dot_product_attention` where a cache keeps keys and values in another type than queries have."""
    return fused_attention(query.to(key.dtype), key, value, mask).to(query.dtype)


class FusedSelfAttention(MultiHeadAttentionBlock):
    """Replaces self-attention: one product gives queries, keys and values.

    A search has so many small operations that their number decides its speed. There is no w_q, w_k and w_v, so
    that `weights` is not available.
    """

    def __init__(self, block: MultiHeadAttentionBlock, linear: Callable[[Tensor], nn.Module]) -> None:
        nn.Module.__init__(self)
        self.n_heads = block.n_heads
        self.w_qkv = linear(torch.cat([block.w_q.weight, block.w_k.weight, block.w_v.weight]))
        self.w_o = linear(block.w_o.weight)  # type: ignore[assignment]

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, cache: KeyValueCache | None = None
    ) -> Tensor:
        b, t, _ = q.shape
        qkv = self.w_qkv(q).view(b, t, 3, self.n_heads, -1)  # (B, T, 3, H, K)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind()  # (B, H, T, K) each
        if cache is not None:
            key, value = cache.append(key, value)
        return self.w_o(self.merge_heads(attend_in_type_of_keys(query, key, value, mask)))


class SourceAttention(MultiHeadAttentionBlock):
    """Replaces attention to the source: the n hypotheses of a sentence share its keys and values.

    The hypotheses of all sentences come as a batch of single positions (B · n, 1, D). Here those of a sentence become
    n query positions of that sentence, (B, n, D), so that its keys and values need not be repeated.
    """

    def __init__(self, block: MultiHeadAttentionBlock, linear: Callable[[Tensor], nn.Module]) -> None:
        nn.Module.__init__(self)
        self.n_heads = block.n_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, linear(getattr(block, name).weight))

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, cache: KeyValueCache | None = None
    ) -> Tensor:
        assert mask is not None
        by_sentence = q.reshape(len(mask), -1, q.size(-1))  # (B, n, D)
        query = self.split_heads(self.w_q(by_sentence))
        key, value = self.keys_and_values(k, v, cache)
        x = self.merge_heads(attend_in_type_of_keys(query, key, value, mask))
        return self.w_o(x).view_as(q)


class GrowingKeyValueCache(KeyValueCache):
    """Replaces `KeyValueCache`, which copies everything at each step: appends in place, into room that doubles."""

    def __init__(self, is_source: bool) -> None:
        super().__init__(is_source)
        self.length = 0  # positions that are filled; those behind them are room

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if self.key is None or self.value is None:
            # On a CPU in fp32, in which torch's products with a single query take a third of the time of bf16.
            dtype = torch.float32 if key.device.type == "cpu" else key.dtype
            # Contiguous, as matrix products need it: they would otherwise copy it at every step.
            self.key = key.to(dtype, memory_format=torch.contiguous_format).contiguous()
            self.value = value.to(dtype, memory_format=torch.contiguous_format).contiguous()
            self.length = key.size(2)
            return self.key, self.value
        start = self.length
        self.length += key.size(2)
        if self.length > self.key.size(2):
            room = (0, 0, 0, 2 * self.length - start)
            self.key = F.pad(self.key[:, :, :start], room)
            self.value = F.pad(self.value[:, :, :start], room)
        self.key[:, :, start : self.length] = key
        self.value[:, :, start : self.length] = value
        return self.key[:, :, : self.length], self.value[:, :, : self.length]

    def select(self, rows: Tensor) -> None:
        if self.key is not None and self.value is not None:
            # On a CPU this takes a fifth of the time of self.key[rows].
            self.key = self.key.index_select(0, rows)
            self.value = self.value.index_select(0, rows)


class SearchCache(DecoderCache):
    """Replaces `DecoderCache`: it grows in place, and the hypotheses of a sentence share the keys of its source."""

    def __init__(self, n_layers: int) -> None:
        self.blocks = [
            (GrowingKeyValueCache(is_source=False), GrowingKeyValueCache(is_source=True)) for _ in range(n_layers)
        ]
        self.length = 0

    def keep(self, hypotheses: Tensor, sentences: Tensor | None) -> None:
        """Keeps these hypotheses, in this order, and these sentences; None for all sentences, as they are."""
        for self_cache, source_cache in self.blocks:
            self_cache.select(hypotheses)
            if sentences is not None:
                source_cache.select(sentences)


# The whole model


def in_precision(model: Transformer, precision: Precision) -> Transformer:
    """Prepares a copy of a model for translating in a precision. It shares all weights that stay as they are."""
    # deepcopy takes the parameters in its memo for copied already.
    prepared = copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})
    install_fast_modules(prepared)

    def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Module:
        return CastLinear(weight, bias, DTYPES[precision])

    for block in list(prepared.modules()):
        if isinstance(block, EncoderBlock | DecoderBlock):
            block.self_attention = FusedSelfAttention(block.self_attention, linear)
        if isinstance(block, DecoderBlock):
            block.cross_attention = SourceAttention(block.cross_attention, linear)
    for parent in list(prepared.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, linear(child.weight, child.bias))
            elif isinstance(child, nn.Dropout):  # without the call, of which a search makes thousands
                setattr(parent, name, nn.Identity())
    return prepared.eval()
