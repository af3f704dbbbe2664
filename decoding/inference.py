"""A model prepared for translating: linear layers of 32, 16 or 8 bits, fused projections, caches that grow in place.

`in_precision` returns a copy of a model with these modules in the place of the plain ones. Each names the one that it
replaces. Everything else is the code of model.py.

In 8 bits, on a CPU with instructions for them (VNNI), the products take half the time of fp32 and lose no BLEU that
could be measured (docs/lab-notes.md). With kernels.c, they take two fifths.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from config import TranslatingPrecision
from decoding import kernels
from fast.forward import fused_attention
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

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


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


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of x (N, D) → int8 (N, D) and their scales (N, 1), the largest entry of each row over 127.

    Each row has a scale of its own, so that a token is rounded in the same way whatever else is in its batch.
    """
    scale = x.abs().amax(dim=1, keepdim=True).clamp_min(1e-30) / 127
    return (x * scale.reciprocal()).round_().to(torch.int8), scale


class Int8Linear(nn.Module):
    """Replaces `nn.Linear`: the product of 8-bit integers, summed up in 32 bits."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        quantized, scale = quantize_rows(weight.detach().float())
        self.scale = scale.T  # (1, V)
        self.bias = bias
        self.library = kernels.kernels()
        self.weight = kernels.pack_weight(quantized) if self.library else quantized.T

    def forward(self, x: Tensor) -> Tensor:
        if self.library:
            return kernels.linear(self.library, x, self.weight, self.scale, self.bias)
        quantized, x_scale = quantize_rows(x.flatten(0, -2))
        # In place: apart from the products, most of the time goes into memory.
        y = torch._int_mm(quantized, self.weight).float().mul_(x_scale)
        y = y.mul_(self.scale) if self.bias is None else torch.addcmul(self.bias, y, self.scale)
        return y.view(*x.shape[:-1], y.size(-1))


# Attention


def attend_in_type_of_keys(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Replaces `scaled_dot_product_attention` where a cache keeps keys and values in another type than queries have."""
    return fused_attention(query.to(key.dtype), key, value, mask).to(query.dtype)


class FusedSelfAttention(MultiHeadAttentionBlock):
    """Replaces self-attention: one product gives queries, keys and values.

    A search has so many small operations that their number decides its speed. There is no w_q, w_k and w_v, so
    that `weights` is not available.
    """

    def __init__(self, block: MultiHeadAttentionBlock, linear: Callable[[Tensor], nn.Module], attend: Attend) -> None:
        nn.Module.__init__(self)
        self.n_heads = block.n_heads
        self.w_qkv = linear(torch.cat([block.w_q.weight, block.w_k.weight, block.w_v.weight]))
        self.w_o = linear(block.w_o.weight)  # type: ignore[assignment]
        self.attend = attend

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, cache: KeyValueCache | None = None
    ) -> Tensor:
        b, t, _ = q.shape
        qkv = self.w_qkv(q).view(b, t, 3, self.n_heads, -1)  # (B, T, 3, H, K)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind()  # (B, H, T, K) each
        if cache is not None:
            key, value = cache.append(key, value)
        return self.w_o(self.merge_heads(self.attend(query, key, value, mask)))


class SourceAttention(MultiHeadAttentionBlock):
    """Replaces attention to the source: the n hypotheses of a sentence share its keys and values.

    The hypotheses of all sentences come as a batch of single positions (B · n, 1, D). Here those of a sentence become
    n query positions of that sentence, (B, n, D), so that its keys and values need not be repeated.
    """

    def __init__(self, block: MultiHeadAttentionBlock, linear: Callable[[Tensor], nn.Module], attend: Attend) -> None:
        nn.Module.__init__(self)
        self.n_heads = block.n_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, linear(getattr(block, name).weight))
        self.attend = attend

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, cache: KeyValueCache | None = None
    ) -> Tensor:
        assert mask is not None
        by_sentence = q.reshape(len(mask), -1, q.size(-1))  # (B, n, D)
        query = self.split_heads(self.w_q(by_sentence))
        key, value = self.keys_and_values(k, v, cache)
        x = self.merge_heads(self.attend(query, key, value, mask))
        return self.w_o(x).view_as(q)


class GrowingKeyValueCache(KeyValueCache):
    """Replaces `KeyValueCache`, which copies everything at each step: appends in place, into room that doubles."""

    def __init__(self, is_source: bool, dtype: torch.dtype | None) -> None:
        """dtype: what keys and values are kept in; None for that of the first ones, on a CPU at least fp32.

        There, torch's products with a single query take a third of their time in bf16.
        """
        super().__init__(is_source)
        self.dtype = dtype
        self.length = 0  # positions that are filled; those behind them are room

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if self.key is None or self.value is None:
            at_least = torch.float32 if key.device.type == "cpu" else key.dtype
            dtype = self.dtype or torch.promote_types(key.dtype, at_least)
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

    def __init__(self, n_layers: int, dtype: torch.dtype | None) -> None:
        self.blocks = [
            (GrowingKeyValueCache(is_source=False, dtype=dtype), GrowingKeyValueCache(is_source=True, dtype=dtype))
            for _ in range(n_layers)
        ]
        self.length = 0

    def keep(self, hypotheses: Tensor, sentences: Tensor | None) -> None:
        """Keeps these hypotheses, in this order, and these sentences; None for all sentences, as they are."""
        for self_cache, source_cache in self.blocks:
            self_cache.select(hypotheses)
            if sentences is not None:
                source_cache.select(sentences)


# The whole model


class PreparedModel(nn.Module):
    """A model for translating: a copy with other modules, and the type that its caches keep keys and values in."""

    def __init__(self, model: Transformer, cache_dtype: torch.dtype | None) -> None:
        super().__init__()
        self.model = model
        self.cache_dtype = cache_dtype

    def new_cache(self) -> SearchCache:
        return SearchCache(self.model.config.n_decoder_layers, self.cache_dtype)


def in_precision(model: Transformer, precision: TranslatingPrecision) -> PreparedModel:
    """Prepares a copy of a model for translating in a precision. It shares all weights that stay as they are."""
    # deepcopy takes the parameters in its memo for copied already.
    prepared = copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})
    install_fast_modules(prepared)
    use_kernels = precision in ("bf16", "int8") and kernels.kernels() is not None and _is_on_cpu(model)
    attend = kernels.attention if use_kernels else attend_in_type_of_keys

    def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Module:
        return Int8Linear(weight, bias) if precision == "int8" else CastLinear(weight, bias, DTYPES[precision])

    for block in list(prepared.modules()):
        if isinstance(block, EncoderBlock | DecoderBlock):
            block.self_attention = FusedSelfAttention(block.self_attention, linear, attend)
        if isinstance(block, DecoderBlock):
            block.cross_attention = SourceAttention(block.cross_attention, linear, attend)
    for parent in list(prepared.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, linear(child.weight, child.bias))
            elif isinstance(child, nn.Dropout):  # without the call, of which a search makes thousands
                setattr(parent, name, nn.Identity())
    return PreparedModel(prepared.eval(), torch.bfloat16 if use_kernels else None)


def _is_on_cpu(model: Transformer) -> bool:
    return model.projection.linear.weight.is_cpu
