"""Attention on packed rows, each of which attends to a range of rows: kernels in Triton, for GPUs.

Row i of the queries attends to the rows first[i] … end[i] − 1 of the keys. That says what `MaskedAttention` says with
the masks of dataset.py, without padding: in self-attention the range of a row is its sentence, or the part of it that
came before; in attention to the source it is the source. It replaces `scaled_dot_product_attention` for each sentence.

Kernels that take one sentence after the other (flash attention for variable lengths) spend a tile of 128 rows on a
sentence of 20. Here a tile holds the sentences that lie side by side, and reads the keys from the first of their ranges
to the end of the last. No two programs write to one number, so that the gradient is the same each time.

The formulas are those of FlashAttention-2 (Dao 2023, arXiv 2307.08691, algorithms 1 and 2). Exponentials are to the
base of 2, which GPUs compute directly.
"""

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 64  # rows of queries, and of keys, that one program works on at once
LOG2_E = math.log2(math.e)


@triton.jit
def load_rows(start, rows, is_row, stride, K: tl.constexpr, KP: tl.constexpr):
    """Return rows of a head, (tile, KP): K values of each, then zeros. Rows that are none are zeros, too."""
    dims = tl.arange(0, KP)
    return tl.load(
        start + rows[:, None] * stride + dims[None, :], mask=is_row[:, None] & (dims < K)[None, :], other=0.0
    )


@triton.jit
def store_rows(start, rows, values, stride, K: tl.constexpr, KP: tl.constexpr):
    """Write what `load_rows` reads."""
    dims = tl.arange(0, KP)
    is_dim = tl.broadcast_to((dims < K)[None, :], values.shape)
    tl.store(start + rows[:, None] * stride + dims[None, :], values.to(start.dtype.element_ty), mask=is_dim)


@triton.jit
def add_to_softmax(scores, v, largest, total, sums, PRECISION: tl.constexpr):
    """Add scores (rows, columns), to the base of 2, and their values (columns, KP) to a softmax that is under way.

    largest (rows,) is the largest score so far, total (rows,) the sum of the powers, and sums (rows, KP) that of the
    values multiplied by them; both are relative to the largest. Returns the three.
    """
    new_largest = tl.maximum(largest, tl.max(scores, 1))
    subtracted = tl.where(new_largest == -float("inf"), 0.0, new_largest)  # a row may have seen nothing so far
    weights = tl.exp2(scores - subtracted[:, None])
    shrink = tl.exp2(largest - subtracted)
    total = total * shrink + tl.sum(weights, 1)
    sums = sums * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
    return new_largest, total, sums


@triton.jit
def attend_kernel(
    query, key, value, output, log_sum, first, end, query_stride, memory_stride, scale,
    N_HEADS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of queries of one head: softmax(Q Kᵀ · scale) V, and the logarithm to the base of 2 of the sum."""
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    head = tl.program_id(1)
    row_first, row_end = tl.load(first + rows), tl.load(end + rows)
    tile_first, tile_end = tl.min(row_first, 0), tl.max(row_end, 0)
    q = load_rows(query + head * K, rows, rows >= 0, query_stride, K, KP)
    largest = tl.full([TILE], -float("inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    sums = tl.zeros([TILE, KP], tl.float32)
    for start in range(tile_first, tile_end, TILE):
        columns = start + tl.arange(0, TILE)
        k = load_rows(key + head * K, columns, columns < tile_end, memory_stride, K, KP)
        v = load_rows(value + head * K, columns, columns < tile_end, memory_stride, K, KP)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        may_attend = (columns[None, :] >= row_first[:, None]) & (columns[None, :] < row_end[:, None])
        scores = tl.where(may_attend, scores, -float("inf"))
        largest, total, sums = add_to_softmax(scores, v, largest, total, sums, PRECISION)
    has_range = total > 0
    total = tl.where(has_range, total, 1.0)
    store_rows(output + head * K, rows, sums / total[:, None], N_HEADS * K, K, KP)
    tl.store(log_sum + rows * N_HEADS + head, tl.where(has_range, largest + tl.log2(total), float("inf")))


@triton.jit
def query_gradient_kernel(
    query, key, value, output, log_sum, output_gradient, dot, query_gradient, first, end,
    query_stride, memory_stride, gradient_stride, scale, plain_scale,
    N_HEADS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of queries of one head: its gradient. Writes dot, Σ output · its gradient, for the other kernel."""
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    head = tl.program_id(1)
    row_first, row_end = tl.load(first + rows), tl.load(end + rows)
    tile_first, tile_end = tl.min(row_first, 0), tl.max(row_end, 0)
    q = load_rows(query + head * K, rows, rows >= 0, query_stride, K, KP)
    o = load_rows(output + head * K, rows, rows >= 0, N_HEADS * K, K, KP)
    do = load_rows(output_gradient + head * K, rows, rows >= 0, N_HEADS * K, K, KP)
    row_log_sum = tl.load(log_sum + rows * N_HEADS + head)
    row_dot = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    tl.store(dot + rows * N_HEADS + head, row_dot)
    dq = tl.zeros([TILE, KP], tl.float32)
    for start in range(tile_first, tile_end, TILE):
        columns = start + tl.arange(0, TILE)
        k = load_rows(key + head * K, columns, columns < tile_end, memory_stride, K, KP)
        v = load_rows(value + head * K, columns, columns < tile_end, memory_stride, K, KP)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        may_attend = (columns[None, :] >= row_first[:, None]) & (columns[None, :] < row_end[:, None])
        weights = tl.where(may_attend, tl.exp2(scores - row_log_sum[:, None]), 0.0)
        dw = tl.dot(do, tl.trans(v), input_precision=PRECISION)
        ds = weights * (dw - row_dot[:, None]) * plain_scale
        dq += tl.dot(ds.to(k.dtype), k, input_precision=PRECISION)
    store_rows(query_gradient + head * K, rows, dq, gradient_stride, K, KP)


@triton.jit
def memory_gradient_kernel(
    query, key, value, log_sum, output_gradient, dot, key_gradient, value_gradient,
    first, end, first_reader, end_reader, query_stride, memory_stride, gradient_stride, scale, plain_scale,
    N_HEADS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One tile of keys and values of one head: their gradients, from all rows that attend to any of them."""
    columns = tl.program_id(0) * TILE + tl.arange(0, TILE)
    head = tl.program_id(1)
    tile_first, tile_end = tl.min(tl.load(first_reader + columns), 0), tl.max(tl.load(end_reader + columns), 0)
    k = load_rows(key + head * K, columns, columns >= 0, memory_stride, K, KP)
    v = load_rows(value + head * K, columns, columns >= 0, memory_stride, K, KP)
    dk = tl.zeros([TILE, KP], tl.float32)
    dv = tl.zeros([TILE, KP], tl.float32)
    for start in range(tile_first, tile_end, TILE):
        rows = start + tl.arange(0, TILE)
        is_row = rows < tile_end
        q = load_rows(query + head * K, rows, is_row, query_stride, K, KP)
        do = load_rows(output_gradient + head * K, rows, is_row, N_HEADS * K, K, KP)
        row_first, row_end = tl.load(first + rows, mask=is_row, other=0), tl.load(end + rows, mask=is_row, other=0)
        row_log_sum = tl.load(log_sum + rows * N_HEADS + head, mask=is_row, other=0.0)
        row_dot = tl.load(dot + rows * N_HEADS + head, mask=is_row, other=0.0)
        scores = tl.dot(k, tl.trans(q), input_precision=PRECISION) * scale  # (columns, rows)
        may_attend = (columns[:, None] >= row_first[None, :]) & (columns[:, None] < row_end[None, :])
        weights = tl.where(may_attend, tl.exp2(scores - row_log_sum[None, :]), 0.0)
        dv += tl.dot(weights.to(do.dtype), do, input_precision=PRECISION)
        dw = tl.dot(v, tl.trans(do), input_precision=PRECISION)
        ds = weights * (dw - row_dot[None, :]) * plain_scale
        dk += tl.dot(ds.to(q.dtype), q, input_precision=PRECISION)
    store_rows(key_gradient + head * K, columns, dk, gradient_stride, K, KP)
    store_rows(value_gradient + head * K, columns, dv, gradient_stride, K, KP)


def sizes(width: int, n_heads: int, dtype: torch.dtype) -> dict[str, object]:
    """Return the constants of the kernels for rows of width D = n_heads · K."""
    size = width // n_heads
    precision = "ieee" if dtype == torch.float32 else "tf32"
    padded = max(16, triton.next_power_of_2(size))
    return {"N_HEADS": n_heads, "K": size, "KP": padded, "TILE": TILE, "PRECISION": precision}


def attend_in_ranges(
    query: Tensor, key: Tensor, value: Tensor, first: Tensor, end: Tensor, n_heads: int
) -> tuple[Tensor, Tensor]:
    """query (N, D), key and value (M, D), first and end (N,) → output (N, D), and the log sums (N, H)."""
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    log_sum = torch.empty(len(query), n_heads, device=query.device)
    scale = (query.size(1) // n_heads) ** -0.5
    attend_kernel[len(query) // TILE, n_heads](
        query, key, value, output, log_sum, first, end, query.stride(0), key.stride(0), scale * LOG2_E,
        **sizes(query.size(1), n_heads, query.dtype),
    )  # fmt: skip
    return output, log_sum


def write_gradients(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    log_sum: Tensor,
    output_gradient: Tensor,
    ranges: Sequence[Tensor],
    into: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Write the gradients of query, key and value into three tensors of their shapes.

    ranges: first, end (N,), and first_reader, end_reader (M,), the rows that attend to a row of the keys.
    """
    first, end, first_reader, end_reader = ranges
    n_heads = log_sum.size(1)
    dot = torch.empty_like(log_sum)
    scale = (query.size(1) // n_heads) ** -0.5
    constants = sizes(query.size(1), n_heads, query.dtype)
    strides = query.stride(0), key.stride(0)
    query_gradient_kernel[len(query) // TILE, n_heads](
        query, key, value, output, log_sum, output_gradient, dot, into[0], first, end,
        *strides, into[0].stride(0), scale * LOG2_E, scale, **constants,
    )  # fmt: skip
    memory_gradient_kernel[len(key) // TILE, n_heads](
        query, key, value, log_sum, output_gradient, dot, into[1], into[2], first, end, first_reader, end_reader,
        *strides, into[1].stride(0), scale * LOG2_E, scale, **constants,
    )  # fmt: skip
