"""A model prepared for translating: linear layers of 32 or 16 bits, fused projections, caches that grow in place.

`in_precision` returns a copy of a model with these layers, and the blocks of model.py attend by the forms here. Each
names the one that it replaces.

On CPUs, 8 bits are faster (tapis/engine).
"""

import copy
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fast.attention import fused_attention
from fast.modules import FusedLayerNormalization, install_fast_modules
from machine.devices import DTYPES, choose_precision
from model import (
    Attend,
    DecoderBlock,
    DecoderCache,
    EncoderBlock,
    KeyValueCache,
    MultiHeadAttentionBlock,
    Transformer,
)
from tapis.config import Precision

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


class CastNormalization(nn.Module):
    """Replaces `FusedLayerNormalization`, which converts its numbers to the type of x at each call."""

    def __init__(self, replaced: FusedLayerNormalization, dtype: torch.dtype) -> None:
        super().__init__()
        self.eps = replaced.eps
        self.alpha = replaced.alpha.detach().to(dtype)
        self.bias = replaced.bias.detach().to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.alpha.shape, self.alpha, self.bias, self.eps)


class Cast(nn.Module):
    """Converts x to a type."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        return x.to(self.dtype)


def cast_again(prepared: nn.Module, fresh: nn.Module) -> None:
    """Give a prepared model what was cast for another one, in the places that it has. They share all other weights."""
    for module, other in zip(prepared.modules(), fresh.modules(), strict=True):
        for name, value in vars(module).items():
            if isinstance(value, Tensor):  # parameters and buffers are no attributes of their own
                value.copy_(getattr(other, name))


# Attention


def attend_in_type_of_keys(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Replace `scaled_dot_product_attention` where a cache keeps keys and values in another type than queries have."""
    return fused_attention(query.to(key.dtype), key, value, mask).to(query.dtype)


class GrowingKeyValueCache(KeyValueCache):
    """Replaces `KeyValueCache`, which copies everything at each step: appends in place, into room that doubles."""

    length = 0  # positions that are filled; those behind them are room

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if not self.content:
            # On a CPU in fp32, in which torch's products with a single query take a third of the time of bf16.
            dtype = torch.float32 if key.device.type == "cpu" else key.dtype
            # Contiguous, as matrix products need it: they would otherwise copy it at every step.
            self.content = key.to(dtype).contiguous(), value.to(dtype).contiguous()
            self.length = key.size(2)
            return self.content
        start = self.length
        self.length += key.size(2)
        keys, values = self.content
        if self.length > keys.size(2):
            room = (0, 0, 0, 2 * self.length - start)
            keys, values = F.pad(keys[:, :, :start], room), F.pad(values[:, :, :start], room)
            self.content = keys, values
        keys[:, :, start : self.length] = key
        values[:, :, start : self.length] = value
        return keys[:, :, : self.length], values[:, :, : self.length]

    def select(self, rows: Tensor) -> None:
        if self.content:
            # On a CPU this takes a fifth of the time of indexing by rows.
            keys, values = self.content
            self.content = keys.index_select(0, rows), values.index_select(0, rows)


class SearchCache(DecoderCache):
    """Replaces `DecoderCache`: it grows in place, and the hypotheses of a sentence share the keys of its source."""

    def __init__(self) -> None:
        super().__init__()
        self.of_self_attention = defaultdict(GrowingKeyValueCache)
        self.of_source_attention = defaultdict(GrowingKeyValueCache)

    def next_step(self, src_mask: Tensor) -> tuple[Attend, Attend, slice, int]:
        self.length += 1
        attend, attend_to_source = FusedSelfAttention(cache=self), SharedSourceAttention(src_mask, self)
        return attend, attend_to_source, slice(self.length - 1, self.length), self.length

    def keep(self, hypotheses: Tensor, sentences: Tensor | None) -> None:
        """Keep these hypotheses, in this order, and these sentences; None for all sentences, as they are."""
        for cache in self.of_self_attention.values():
            cache.select(hypotheses)
        if sentences is not None:
            for cache in self.of_source_attention.values():
                cache.select(sentences)


@dataclass(frozen=True)
class FusedSelfAttention:
    """Replaces `MaskedAttention` and `CachedSelfAttention`: one product, w_qkv, gives queries, keys and values.

    A search has so many small operations that their number decides its speed.
    """

    mask: Tensor | None = None
    cache: SearchCache | None = None

    def __call__(self, block: MultiHeadAttentionBlock, x: Tensor, memory: Tensor) -> Tensor:
        b, t, _ = x.shape
        qkv: Tensor = block.w_qkv(x)  # type: ignore[operator]
        qkv = qkv.view(b, t, 3, block.n_heads, -1)  # (B, T, 3, H, K)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind()  # (B, H, T, K) each
        if self.cache is not None:
            key, value = self.cache.of_self_attention[block].append(key, value)
        return block.merge_heads(attend_in_type_of_keys(query, key, value, self.mask))


@dataclass(frozen=True)
class SharedSourceAttention:
    """Replaces `CachedSourceAttention`: the n hypotheses of a sentence share keys and values.

    The hypotheses of all sentences come as a batch of single positions (B · n, 1, D). Here those of a sentence become
    n query positions of that sentence, (B, n, D), so that its keys and values need not be repeated.
    """

    mask: Tensor
    cache: SearchCache

    def __call__(self, block: MultiHeadAttentionBlock, x: Tensor, memory: Tensor) -> Tensor:
        by_sentence = x.reshape(len(self.mask), -1, x.size(-1))  # (B, n, D)
        query = block.split_heads(block.w_q(by_sentence))
        of_block = self.cache.of_source_attention[block]
        key, value = of_block.content or of_block.append(*block.keys_and_values(memory))
        heads = block.merge_heads(attend_in_type_of_keys(query, key, value, self.mask))
        return heads.view(*x.shape[:-1], -1)


# The whole model


def in_precision(model: Transformer, precision: Precision) -> Transformer:
    """Prepare a copy of a model for translating in a precision. It shares all weights that stay as they are.

    Its blocks have what `FusedSelfAttention` needs, and attend by any other form, too.
    """
    # deepcopy takes the parameters in its memo for copied already.
    prepared = copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})
    install_fast_modules(prepared)

    dtype = DTYPES[precision]

    def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Module:
        return CastLinear(weight, bias, dtype)

    for block in list(prepared.modules()):
        if isinstance(block, EncoderBlock | DecoderBlock):
            attention = block.self_attention
            attention.w_qkv = linear(torch.cat([attention.w_q.weight, attention.w_k.weight, attention.w_v.weight]))
    for parent in list(prepared.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, linear(child.weight, child.bias))
            elif isinstance(child, nn.Dropout):  # without the call, of which a search makes thousands
                setattr(parent, name, nn.Identity())
    if dtype != torch.float32 and prepared.src_embed.embedding.weight.device.type != "cpu":
        keep_narrow(prepared, dtype)
    return prepared.eval()


def keep_narrow(prepared: Transformer, dtype: torch.dtype) -> None:
    """Let a prepared model compute in a type of 16 bits from the embeddings on.

    Otherwise its layers convert between that type and fp32. On a GPU, each conversion takes as long as a small layer.
    """
    for position in (prepared.src_position, prepared.tgt_position):
        setattr(position, "dropout", Cast(dtype))  # noqa: B010 - it is no dropout
    for parent in list(prepared.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, FusedLayerNormalization):
                setattr(parent, name, CastNormalization(child, dtype))
