"""Attention on packed rows: forms of `model.Attend`. There are two layouts.

`PaddedLayout` lays the heads out as (B, H, T, K), with padding, and masks the padding. It works everywhere.

`SequenceLayout` leaves the rows where they are and passes the offsets of the sentences. There is no padding, no mask
and no copy, and in self-attention one product gives queries, keys and values. It needs a kernel for variable lengths,
which torch has for 16 bits on recent GPUs (`can_attend_to_sequences`).

Both replace `MaskedAttention` with the masks of dataset.py: `encoder` attends within a source, `decoder` to earlier
positions of a target, `source` from a target to its source.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from dataset import causal_mask, to_device
from fast.packing import Packing, round_up
from model import MultiHeadAttentionBlock, scaled_dot_product_attention


def to_autocast_dtype(x: Tensor) -> Tensor:
    """Return x in the type of autocast where that is on; autocast would convert it for each product that reads x."""
    return x.to(torch.get_autocast_dtype(x.device.type)) if torch.is_autocast_enabled(x.device.type) else x


# Padded


def fused_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Replace `scaled_dot_product_attention`: on CUDA, without the (T, S) matrix in memory.

    On a CPU and for sentences of tens of tokens the plain formula is the faster of the two, above all backward.
    """
    if query.is_cuda:
        return F.scaled_dot_product_attention(query, key, value, mask)
    return scaled_dot_product_attention(query, key, value, mask)


def disable_cudnn_attention() -> None:
    """Turn cuDNN's attention off for this process; torch then uses another fused kernel.

    On recent GPUs torch prefers cuDNN when there is a mask. cuDNN plans each new shape (B, T, S), reportedly for half a
    second on a B200 (modelscope/FunASR, issue 3704), and batches have thousands of shapes.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)


@dataclass(frozen=True)
class PaddedAttention:
    """What the rows of one side attend to."""

    queries: Packing
    keys: Packing
    mask: Tensor
    is_self: bool
    """Whether memory is x"""

    def __call__(self, block: MultiHeadAttentionBlock, x: Tensor, memory: Tensor) -> Tensor:
        """x (N, D), memory (M, D) → (N, D)."""
        x = to_autocast_dtype(x)
        memory = x if self.is_self else to_autocast_dtype(memory)
        query = self.queries.to_heads(block.w_q(x), block.n_heads)  # (B, H, T, K)
        key = self.keys.to_heads(block.w_k(memory), block.n_heads)  # (B, H, S, K)
        value = self.keys.to_heads(block.w_v(memory), block.n_heads)
        return self.queries.from_heads(fused_attention(query, key, value, self.mask))


@dataclass(frozen=True)
class PaddedLayout:
    """A batch of B sentence pairs with padding."""

    src: Packing
    tgt: Packing
    src_mask: Tensor
    """(B, 1, 1, S)"""
    tgt_mask: Tensor
    """(B, 1, T, T)"""

    @classmethod
    def of(cls, src_lengths: Tensor, tgt_lengths: Tensor) -> "PaddedLayout":
        """Return the layout of sentences of these lengths (B,), on the CPU."""
        src, tgt = (torch.arange(int(lengths.max())) < lengths[:, None] for lengths in (src_lengths, tgt_lengths))
        masks = src[:, None, None], tgt[:, None, None] & causal_mask(tgt.size(1))
        return cls(Packing.of(src), Packing.of(tgt), *masks)

    def to(self, device: torch.device) -> "PaddedLayout":
        """Return a copy on `device`."""
        masks = to_device(self.src_mask, device), to_device(self.tgt_mask, device)
        return PaddedLayout(self.src.to(device), self.tgt.to(device), *masks)

    @property
    def has_size_one(self) -> bool:
        """Whether a dimension is 1, for which torch.compile would compile anew."""
        return len(self.src_mask) == 1

    @property
    def encoder(self) -> PaddedAttention:
        return PaddedAttention(self.src, self.src, self.src_mask, is_self=True)

    @property
    def decoder(self) -> PaddedAttention:
        return PaddedAttention(self.tgt, self.tgt, self.tgt_mask, is_self=True)

    @property
    def source(self) -> PaddedAttention:
        return PaddedAttention(self.tgt, self.src, self.src_mask, is_self=False)


# By sequences


@cache
def can_attend_to_sequences(device: torch.device, dtype: torch.dtype, n_heads: int, head_size: int) -> bool:
    """Return whether torch's attention for variable lengths works here, and equals the plain formula, also backward.

    Tried on two short sentences. That is safer than a list of GPUs, types, sizes and versions of torch.
    """
    lengths = [3, 5]
    shape = (3, sum(lengths), n_heads, head_size)
    random = torch.Generator().manual_seed(1)
    plain = torch.randn(shape, generator=random).to(device).requires_grad_()
    tried = plain.detach().to(dtype).requires_grad_()

    # The plain formula takes one sentence at a time, as (H, T, K).
    attended = []
    for sentence in torch.split(plain, lengths, dim=1):
        query, key, value = sentence.transpose(1, 2)
        attended.append(scaled_dot_product_attention(query, key, value, causal_mask(query.size(1), device)[0]))
    expected = torch.cat(attended, dim=1).transpose(0, 1)  # (N, H, K)

    offsets = torch.tensor([0, 3, 8], dtype=torch.int32).to(device)
    attention = SequenceAttention(offsets, offsets, max(lengths), max(lengths), is_self=True, is_causal=True)
    try:
        found = attention.attend(*tried)
        (found.float() ** 2).sum().backward()  # type: ignore[no-untyped-call]
        float(found.detach().sum())  # an error of the GPU appears here
    except (
        ImportError,
        AttributeError,
        TypeError,
        ValueError,
        RuntimeError,
    ):  # no function, other arguments, no kernel
        return False
    (expected**2).sum().backward()  # type: ignore[no-untyped-call]
    assert plain.grad is not None and tried.grad is not None
    errors = [(found - expected).detach().abs().max(), (tried.grad - plain.grad).abs().max() / plain.grad.abs().max()]
    return all(float(error) < 0.05 for error in errors)


@dataclass(frozen=True)
class SequenceAttention:
    """What the rows of one side attend to, in sequences that begin at offsets."""

    query_offsets: Tensor
    key_offsets: Tensor
    longest_query: int
    longest_key: int
    is_self: bool
    """Whether memory is x"""
    is_causal: bool

    def __call__(self, block: MultiHeadAttentionBlock, x: Tensor, memory: Tensor) -> Tensor:
        """x (N, D), memory (M, D) → (N, D)."""
        # One product for all that read the same rows.
        x = to_autocast_dtype(x)
        if self.is_self:
            weight = torch.cat([block.w_q.weight, block.w_k.weight, block.w_v.weight])  # (3 D, D)
            query, key, value = F.linear(x, weight).view(len(x), 3, block.n_heads, -1).unbind(1)  # (N, H, K)
        else:
            memory = to_autocast_dtype(memory)
            weight = torch.cat([block.w_k.weight, block.w_v.weight])
            query = block.w_q(x).view(len(x), block.n_heads, -1)  # (N, H, K)
            key, value = F.linear(memory, weight).view(len(memory), 2, block.n_heads, -1).unbind(1)  # (M, H, K)

        return self.attend(query, key, value).flatten(1)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Replace `scaled_dot_product_attention` for each sequence: query (N, H, K), others (M, H, K) → (N, H, K)."""
        from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 - only on GPUs

        return varlen_attn(  # type: ignore[return-value]
            query,
            key,
            value,
            self.query_offsets,
            self.key_offsets,
            self.longest_query,
            self.longest_key,
            window_size=(-1, 0) if self.is_causal else (-1, -1),
        )


@dataclass(frozen=True)
class SequenceLayout:
    """A batch of B sentence pairs, sentence after sentence.

    The rows without a token are one more sequence: the kernel leaves rows of no sequence uninitialized, and what is
    there may be NaN, which products with a gradient of zero do not remove (Dao-AILab/flash-attention, issue 1228).
    """

    src_offsets: Tensor
    """(B + 2,) int32: where each source begins, where the rows without a token do, and their end"""
    tgt_offsets: Tensor
    longest_src: int
    """Rows of the longest sequence"""
    longest_tgt: int

    has_size_one = False
    """Whether a dimension is 1, for which torch.compile would compile anew"""

    @classmethod
    def of(cls, src_lengths: Tensor, tgt_lengths: Tensor) -> "SequenceLayout":
        """Return the layout of sentences of these lengths (B,), on the CPU."""
        src_offsets, tgt_offsets = _offsets(src_lengths), _offsets(tgt_lengths)
        return cls(src_offsets, tgt_offsets, int(src_offsets.diff().max()), int(tgt_offsets.diff().max()))

    def to(self, device: torch.device) -> "SequenceLayout":
        """Return a copy on `device`."""
        offsets = to_device(self.src_offsets, device), to_device(self.tgt_offsets, device)
        return replace(self, src_offsets=offsets[0], tgt_offsets=offsets[1])

    @property
    def encoder(self) -> SequenceAttention:
        return SequenceAttention(self.src_offsets, self.src_offsets, self.longest_src, self.longest_src, True, False)

    @property
    def decoder(self) -> SequenceAttention:
        return SequenceAttention(self.tgt_offsets, self.tgt_offsets, self.longest_tgt, self.longest_tgt, True, True)

    @property
    def source(self) -> SequenceAttention:
        return SequenceAttention(self.tgt_offsets, self.src_offsets, self.longest_tgt, self.longest_src, False, False)


def _offsets(lengths: Tensor) -> Tensor:
    """lengths (B,) → (B + 2,) where each sentence begins, where the rows without a token begin, and where they end."""
    ends = lengths.cumsum(dim=0)
    return F.pad(F.pad(ends, (1, 0)), (0, 1), value=round_up(int(ends[-1]))).int()


Layout: TypeAlias = PaddedLayout | SequenceLayout
