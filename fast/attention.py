"""Attention on packed rows: forms of `model.Attend`. There are two layouts.

`PaddedLayout` lays the heads out as (B, H, T, K), with padding, and masks the padding. It works everywhere.

`RangeLayout` leaves the rows where they are, and says for each which rows it attends to. There is no padding, no mask
and no copy, and in self-attention one product gives queries, keys and values. It needs Triton, which comes with torch
for GPUs (`fault_of_attention`).

Both replace `MaskedAttention` with the masks of dataset.py: `encoder` attends within a source, `decoder` to earlier
positions of a target, `source` from a target to its source.
"""

from dataclasses import dataclass, fields
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dataset import causal_mask, to_device
from fast.packing import ROUND, Packing, next_multiple
from model import MultiHeadAttentionBlock, scaled_dot_product_attention
from pairs.tables import Ints
from tapis.system.terminal import in_one_line


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
    def of(cls, src_lengths: Ints, tgt_lengths: Ints, unit: int = ROUND) -> "PaddedLayout":
        """Return the layout of sentences of these lengths (B,), on the CPU. The rows are a multiple of unit."""
        src, tgt = (
            torch.arange(int(lengths.max())) < torch.from_numpy(lengths)[:, None]
            for lengths in (src_lengths, tgt_lengths)
        )
        masks = src[:, None, None], tgt[:, None, None] & causal_mask(tgt.size(1))
        return cls(Packing.of(src, unit), Packing.of(tgt, unit), *masks)

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


# In ranges


@torch.library.custom_op("tapis::attend", mutates_args=(), device_types="cuda")
def attend(
    rows: Tensor,
    memory: Tensor | None,
    first: Tensor,
    end: Tensor,
    first_reader: Tensor,
    end_reader: Tensor,
    n_heads: int,
) -> tuple[Tensor, Tensor]:
    """Replace `scaled_dot_product_attention` for each sentence, by the kernels of fast/attention_kernels.py.

    In self-attention, rows (N, 3 · D) are queries, keys and values side by side, and memory is None. Otherwise rows
    (N, D) are queries, and memory (M, 2 · D) keys and values. The ranges are those of `Ranges`.

    Returns (N, D), the heads of each row side by side, and what the gradient needs again: the log sums (N, H).
    """
    from fast.attention_kernels import attend_in_ranges  # noqa: PLC0415 - Triton comes with torch for GPUs only

    return attend_in_ranges(*query_key_value(rows, memory), first, end, n_heads)


@torch.library.custom_op("tapis::attend_backward", mutates_args=(), device_types="cuda")
def attend_backward(
    output_gradient: Tensor,
    output: Tensor,
    log_sum: Tensor,
    rows: Tensor,
    memory: Tensor | None,
    first: Tensor,
    end: Tensor,
    first_reader: Tensor,
    end_reader: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of rows and of memory; the second is empty if memory is None."""
    from fast.attention_kernels import write_gradients  # noqa: PLC0415

    gradients = torch.empty_like(rows), rows.new_empty(0) if memory is None else torch.empty_like(memory)
    write_gradients(
        *query_key_value(rows, memory),
        output,
        log_sum,
        output_gradient.contiguous(),
        (first, end, first_reader, end_reader),
        query_key_value(gradients[0], None if memory is None else gradients[1]),
    )
    return gradients


def query_key_value(rows: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the parts of what `attend` takes, each of width D."""
    parts = rows.chunk(3, dim=1) if memory is None else (rows, *memory.chunk(2, dim=1))
    query, key, value = parts
    return query, key, value


@attend.register_fake
def _(
    rows: Tensor,
    memory: Tensor | None,
    first: Tensor,
    end: Tensor,
    first_reader: Tensor,
    end_reader: Tensor,
    n_heads: int,
) -> tuple[Tensor, Tensor]:
    width = rows.size(1) // (3 if memory is None else 1)
    n_rows = rows.size(0)  # len would make the compiler take it for a constant
    return rows.new_empty(n_rows, width), rows.new_empty(n_rows, n_heads, dtype=torch.float32)


@attend_backward.register_fake
def _(
    output_gradient: Tensor,
    output: Tensor,
    log_sum: Tensor,
    rows: Tensor,
    memory: Tensor | None,
    first: Tensor,
    end: Tensor,
    first_reader: Tensor,
    end_reader: Tensor,
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(rows), rows.new_empty(0) if memory is None else torch.empty_like(memory)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    rows, memory, *ranges, _ = inputs
    ctx.save_for_backward(*output, rows, memory, *ranges)


def _backward(ctx: Any, output_gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    rows_gradient, memory_gradient = attend_backward(output_gradient, *ctx.saved_tensors)
    has_memory = ctx.saved_tensors[3] is not None
    return rows_gradient, memory_gradient if has_memory else None, None, None, None, None, None


attend.register_autograd(_backward, setup_context=_save)


@cache
def fault_of_attention(device: torch.device, dtype: torch.dtype, n_heads: int, head_size: int) -> str:
    """Return why attention in ranges cannot be used here; "" if its kernels equal the plain formula, also backward.

    Tried on two pairs of short sentences. That is safer than a list of GPUs, types, sizes and versions of torch and
    Triton.
    """
    src_lengths, tgt_lengths = np.array([6, 2]), np.array([3, 5])  # 8 tokens on either side
    layout = RangeLayout.of(src_lengths, tgt_lengths).to(device)
    width = n_heads * head_size
    random = torch.Generator().manual_seed(1)
    for form, key_lengths in ((layout.decoder, tgt_lengths), (layout.source, src_lengths)):
        # Queries, keys and values, (rows, 3 D).
        plain = torch.randn(next_multiple(8), 3 * width, generator=random).to(device).requires_grad_()
        tried = plain.detach().to(dtype).requires_grad_()

        # The plain formula takes one sentence at a time, as (H, T, K).
        queries, keys_values = torch.split(plain[:8], [width, 2 * width], dim=1)
        attended = []
        of_sentences = torch.split(queries, tgt_lengths.tolist()), torch.split(keys_values, key_lengths.tolist())
        for rows, memory in zip(*of_sentences, strict=True):
            query = rows.view(-1, n_heads, head_size).transpose(0, 1)
            key, value = memory.view(-1, 2, n_heads, head_size).permute(1, 2, 0, 3)
            mask = causal_mask(len(rows), device)[0] if form.is_self else None
            heads = scaled_dot_product_attention(query, key, value, mask)
            attended.append(heads.transpose(0, 1).flatten(1))
        expected = torch.cat(attended)  # (8, D)
        (expected**2).sum().backward()  # type: ignore[no-untyped-call]

        try:
            of_rows, of_memory = tried, None
            if not form.is_self:
                of_rows, of_memory = (part.contiguous() for part in torch.split(tried, [width, 2 * width], dim=1))
            found = form.attend(of_rows, of_memory, n_heads)[:8]
            (found.float() ** 2).sum().backward()  # type: ignore[no-untyped-call]
            float(found.detach().sum())  # an error of the GPU appears here
        except Exception as error:  # no Triton, no compiler for it, no kernel for this GPU: many errors
            return f"the attention kernels fail: {in_one_line(error)}"
        assert plain.grad is not None and tried.grad is not None
        gradient_error = (tried.grad - plain.grad).abs().max() / plain.grad.abs().max()
        if not all(float(error) < 0.05 for error in ((found - expected).detach().abs().max(), gradient_error)):
            return "the attention kernels differ from the plain formula"
    return ""


class Ranges(NamedTuple):
    """Which rows attend to which: row i of N to the rows first[i] … end[i] − 1 of M. All int32.

    The rows that attend to row j are among first_reader[j] … end_reader[j] − 1.
    """

    first: Tensor
    """(N,)"""
    end: Tensor
    """(N,)"""
    first_reader: Tensor
    """(M,)"""
    end_reader: Tensor
    """(M,)"""


@dataclass(frozen=True)
class RangeAttention:
    """What the rows of one side attend to, in ranges."""

    ranges: Ranges
    is_self: bool
    """Whether memory is x"""

    def __call__(self, block: MultiHeadAttentionBlock, x: Tensor, memory: Tensor) -> Tensor:
        """x (N, D), memory (M, D) → (N, D)."""
        # One product for all that read the same rows.
        x = to_autocast_dtype(x)
        if self.is_self:
            weight = torch.cat([block.w_q.weight, block.w_k.weight, block.w_v.weight])  # (3 D, D)
            return self.attend(F.linear(x, weight), None, block.n_heads)
        weight = torch.cat([block.w_k.weight, block.w_v.weight])
        return self.attend(block.w_q(x), F.linear(to_autocast_dtype(memory), weight), block.n_heads)

    def attend(self, rows: Tensor, memory: Tensor | None, n_heads: int) -> Tensor:
        """Return the output of `attend`."""
        output: Tensor = attend(rows, memory, *self.ranges, n_heads)[0]
        return output


@dataclass(frozen=True)
class RangeLayout:
    """A batch of B sentence pairs, sentence after sentence: M rows of the sources and N of the targets.

    A row without a token attends to itself, so that nothing in it is NaN, and to no row of the other side.
    """

    src_first: Tensor
    """(M,) where the sentence of a source row begins; all int32"""
    src_end: Tensor
    """(M,) and where it ends"""
    tgt_first: Tensor
    """(N,) where the sentence of a target row begins"""
    tgt_end: Tensor
    """(N,)"""
    tgt_row: Tensor
    """(N,) 0 … N − 1"""
    tgt_row_end: Tensor
    """(N,) 1 … N: a target row attends to rows up to itself"""
    first_of_src: Tensor
    """(M,) where the target of a source row begins"""
    end_of_src: Tensor
    """(M,)"""
    first_of_tgt: Tensor
    """(N,) where the source of a target row begins"""
    end_of_tgt: Tensor
    """(N,)"""

    has_size_one = False
    """Whether a dimension is 1, for which torch.compile would compile anew"""

    @classmethod
    def of(cls, src_lengths: Ints, tgt_lengths: Ints, unit: int = ROUND) -> "RangeLayout":
        """Return the layout of sentences of these lengths (B,), on the CPU. The rows are a multiple of unit."""
        src_ends, tgt_ends = np.cumsum(src_lengths), np.cumsum(tgt_lengths)
        src_firsts, tgt_firsts = src_ends - src_lengths, tgt_ends - tgt_lengths
        m, n = (next_multiple(int(ends[-1]), unit) for ends in (src_ends, tgt_ends))
        tgt_row = np.arange(n)
        values = [
            _of_rows(src_firsts, src_lengths, np.arange(m)),
            _of_rows(src_ends, src_lengths, np.arange(1, m + 1)),
            _of_rows(tgt_firsts, tgt_lengths, tgt_row),
            _of_rows(tgt_ends, tgt_lengths, tgt_row + 1),
            tgt_row,
            tgt_row + 1,
            _of_rows(tgt_firsts, src_lengths, np.full(m, n)),
            _of_rows(tgt_ends, src_lengths, np.full(m, n)),
            _of_rows(src_firsts, tgt_lengths, np.full(n, m)),
            _of_rows(src_ends, tgt_lengths, np.full(n, m)),
        ]
        return cls(*(torch.from_numpy(value.astype(np.int32)) for value in values))

    @property
    def tensors(self) -> list[Tensor]:
        return [getattr(self, field.name) for field in fields(self)]

    def to(self, device: torch.device) -> "RangeLayout":
        """Return a copy on `device`."""
        return RangeLayout(*(to_device(tensor, device) for tensor in self.tensors))

    @property
    def encoder(self) -> RangeAttention:
        return RangeAttention(Ranges(self.src_first, self.src_end, self.src_first, self.src_end), is_self=True)

    @property
    def decoder(self) -> RangeAttention:
        return RangeAttention(Ranges(self.tgt_first, self.tgt_row_end, self.tgt_row, self.tgt_end), is_self=True)

    @property
    def source(self) -> RangeAttention:
        ranges = Ranges(self.first_of_tgt, self.end_of_tgt, self.first_of_src, self.end_of_src)
        return RangeAttention(ranges, is_self=False)


def _of_rows(values: Ints, lengths: Ints, without_token: Ints) -> Ints:
    """Return the value of its sentence for each row; for rows without a token, the one that is given (rows,)."""
    of_tokens = np.repeat(values, lengths)
    return np.concatenate([of_tokens, without_token[len(of_tokens) :]])


Layout: TypeAlias = PaddedLayout | RangeLayout
