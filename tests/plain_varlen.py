"""Attention to sequences of variable lengths by the plain formula, in the place of torch's kernel for GPUs."""

from typing import Any

import torch
from torch import Tensor

from model import scaled_dot_product_attention


def plain_varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_offsets: Tensor,
    key_offsets: Tensor,
    longest_query: int,
    longest_key: int,
    *,
    window_size: tuple[int, int],
) -> Tensor:
    """`torch.nn.attention.varlen.varlen_attn`. Checks what that function takes for granted."""
    query_ends, key_ends = _to_list(query_offsets), _to_list(key_offsets)
    assert query_offsets.dtype == key_offsets.dtype == torch.int32 and query.dtype in (torch.bfloat16, torch.float16)
    assert query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
    assert (query_ends[0], query_ends[-1], key_ends[0], key_ends[-1]) == (0, len(query), 0, len(key)), "rows left out"
    lengths, key_lengths = torch.tensor(query_ends).diff(), torch.tensor(key_ends).diff()
    assert ((lengths > 0) & (lengths <= longest_query)).all(), "a sequence is empty or too long"
    assert ((key_lengths > 0) & (key_lengths <= longest_key)).all(), "a sequence is empty or too long"

    # All sequences at once, each of which sees only itself.
    sequence = torch.arange(len(lengths))
    mask = sequence.repeat_interleave(lengths)[:, None] == sequence.repeat_interleave(key_lengths)
    if window_size == (-1, 0):
        mask = mask.tril()
    if type(query_offsets) is not Tensor:  # a simulated one
        mask = type(query_offsets)(mask)
    q, k, v = (x.transpose(0, 1).float() for x in (query, key, value))  # (H, T, K)
    with torch.autocast(query.device.type, enabled=False):  # the kernel sums up in fp32
        x = scaled_dot_product_attention(q, k, v, mask)
    return x.to(query.dtype).transpose(0, 1).contiguous()


def _to_list(offsets: Tensor) -> list[int]:
    values: Any = offsets.values  # of a simulated tensor, without a wait
    return (offsets if callable(values) else values).tolist()
