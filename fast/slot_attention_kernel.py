"""Attention of one position of each hypothesis to slots: a kernel in Triton, for GPUs.

It is the kernel of `fast.slot_attention.attend_to_slots`. One program computes one head of all hypotheses of a
sentence, so that their keys and values are read once, and only those that a hypothesis attends to.

The formulas are those of fast/attention_kernels.py.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fast.attention_kernels import LOG2_E, add_to_softmax

BLOCK = 64  # slots that a program works on at once
WARPS = 4  # of a program
STAGES = 2  # blocks that are read ahead, and the one that is worked on


@triton.jit
def slots_kernel(
    query, slots, mask, position, output, n_slots, scale,
    query_sentence_stride, query_stride, sentence_stride, slot_stride, value_offset, mask_sentence_stride, mask_stride,
    N_HYPOTHESES: tl.constexpr, ROWS: tl.constexpr, N_HEADS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr,
    BLOCK: tl.constexpr, PRECISION: tl.constexpr, LOG2_E: tl.constexpr,
):  # fmt: skip
    """One head of one sentence: softmax(Q Kᵀ · scale + mask) V. Q has ROWS rows, of which N_HYPOTHESES count."""
    sentence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    rows, dims = tl.arange(0, ROWS), tl.arange(0, KP)
    is_row, is_dim = rows < N_HYPOTHESES, dims < K
    is_number = is_row[:, None] & is_dim[None, :]
    queries = query + sentence * query_sentence_stride + head * K + rows[:, None] * query_stride + dims[None, :]
    q = tl.load(queries, mask=is_number, other=0.0)
    keys = slots + sentence * sentence_stride + head * K + dims[None, :]
    mask_rows = mask + sentence * mask_sentence_stride + rows[:, None] * mask_stride
    end = n_slots
    if position is not None:
        end = (tl.load(position).to(tl.int32) + 1) * N_HYPOTHESES
    largest = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, KP], tl.float32)
    for start in range(0, end, BLOCK):
        # Read the slots that any hypothesis attends to.
        columns = start + tl.arange(0, BLOCK)
        is_slot = columns < end
        added = tl.load(mask_rows + columns[None, :], mask=is_row[:, None] & is_slot[None, :], other=-float("inf"))
        added = added.to(tl.float32)
        is_read = (tl.max(added, 0) > -float("inf"))[:, None] & is_dim[None, :]
        k = tl.load(keys + columns[:, None] * slot_stride, mask=is_read, other=0.0)
        v = tl.load(keys + columns[:, None] * slot_stride + value_offset, mask=is_read, other=0.0)

        # Add them to the softmax.
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale + added * LOG2_E
        largest, total, sums = add_to_softmax(scores, v, largest, total, sums, PRECISION)
    values = sums / tl.where(total > 0, total, 1.0)[:, None]
    outputs = output + (sentence * N_HYPOTHESES + rows[:, None]) * (N_HEADS * K) + head * K + dims[None, :]
    tl.store(outputs, values.to(output.dtype.element_ty), mask=is_number)


def attend(query: Tensor, slots: Tensor, mask: Tensor, position: Tensor | None) -> Tensor:
    """query (L, K, H, D / H), slots (L, N, 2, H, D / H), mask (L, K, N), position (1,) → (L, K, D).

    Heads lie side by side, and so do slots of the mask; other dimensions may have any stride.
    """
    n_sentences, n_hypotheses, n_heads, size = query.shape
    output = torch.empty(n_sentences, n_hypotheses, n_heads * size, dtype=query.dtype, device=query.device)
    slots_kernel[n_sentences, n_heads](
        query, slots, mask, position, output, slots.size(1), size**-0.5 * LOG2_E,
        *query.stride()[:2], *slots.stride()[:3], *mask.stride()[:2],
        N_HYPOTHESES=n_hypotheses, ROWS=max(16, triton.next_power_of_2(n_hypotheses)), N_HEADS=n_heads,
        K=size, KP=max(16, triton.next_power_of_2(size)), BLOCK=BLOCK, LOG2_E=LOG2_E,
        PRECISION="ieee" if query.dtype == torch.float32 else "tf32", num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return output
