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
    """`torch.nn.attention.varlen.varlen_attn`, sequence after sequence. Checks what that function takes for granted."""
    query_ends, key_ends = _to_list(query_offsets), _to_list(key_offsets)
    assert query_offsets.dtype == key_offsets.dtype == torch.int32 and query.dtype in (torch.bfloat16, torch.float16)
    assert query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
    assert (query_ends[0], query_ends[-1], key_ends[0], key_ends[-1]) == (0, len(query), 0, len(key)), "rows left out"
    parts = []
    for i in range(len(query_ends) - 1):
        q, k, v = (
            x[ends[i] : ends[i + 1]].transpose(0, 1)  # (H, T, K)
            for x, ends in ((query, query_ends), (key, key_ends), (value, key_ends))
        )
        assert 0 < q.size(1) <= longest_query and 0 < k.size(1) <= longest_key, "a sequence is empty or too long"
        mask = None
        if window_size == (-1, 0):
            mask = torch.ones(q.size(1), k.size(1), dtype=torch.bool, device=q.device).tril()
        with torch.autocast(query.device.type, enabled=False):  # the kernel sums up in fp32
            parts.append(scaled_dot_product_attention(q.float(), k.float(), v.float(), mask).to(query.dtype))
    return torch.cat(parts, dim=1).transpose(0, 1).contiguous()


def _to_list(offsets: Tensor) -> list[int]:
    values: Any = offsets.values  # of a simulated tensor, without a wait
    return (offsets if callable(values) else values).tolist()
