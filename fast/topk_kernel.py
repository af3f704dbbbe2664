"""Statistics of rows of logits, from one pass over them: a kernel in Triton, for GPUs.

It is the kernel of `fast.topk.logit_statistics`. One program reads a row of the vocabulary once, in the type that it
has. Written as operations of torch, the logits are converted to fp32, read twice more and written once.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCKS = 64  # blocks of the vocabulary that a program works on at once


@triton.jit
def statistics_kernel(
    logits, log_sums, maxima, vocab_size, n_blocks, stride,
    UNIT: tl.constexpr, WIDTH: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """One row: the maximum of each whole block of WIDTH logits, and log Σ exp of all. Rows are stride · UNIT apart.

    There is a maximum and a sum for each of BLOCKS lanes, which are combined at the end.
    """
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * stride * UNIT
    lanes, in_block = tl.arange(0, BLOCKS), tl.arange(0, WIDTH)
    largest = tl.full([BLOCKS], -float("inf"), tl.float32)
    total = tl.zeros([BLOCKS], tl.float32)
    for first in range(0, n_blocks, BLOCKS):
        # The maximum of each block.
        blocks = first + lanes
        is_block = blocks < n_blocks
        columns = blocks[:, None] * WIDTH + in_block[None, :]
        scores = tl.load(start + columns, mask=is_block[:, None], other=-float("inf")).to(tl.float32)
        block_maxima = tl.max(scores, 1)
        tl.store(maxima + row * n_blocks + blocks, block_maxima, mask=is_block)

        # Add to the sum, which is relative to the largest logit so far.
        new_largest = tl.maximum(largest, block_maxima)
        subtracted = tl.where(new_largest == -float("inf"), 0.0, new_largest)  # all logits may be −inf so far
        total = total * tl.exp(largest - subtracted) + tl.sum(tl.exp(scores - subtracted[:, None]), 1)
        largest = new_largest

    # Combine the lanes and the logits beyond the blocks.
    columns = n_blocks * WIDTH + in_block
    beyond = tl.load(start + columns, mask=columns < vocab_size, other=-float("inf")).to(tl.float32)
    row_largest = tl.maximum(tl.max(largest, 0), tl.max(beyond, 0))
    row_total = tl.sum(total * tl.exp(largest - row_largest), 0) + tl.sum(tl.exp(beyond - row_largest), 0)
    tl.store(log_sums + row, row_largest + tl.log(row_total))


def statistics_of_rows(logits: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return log Σ exp of each row of logits (n, V), (n,), and the maxima of its blocks, (n, V // width), in fp32.

    A row needs a logit above −inf.
    """
    n_rows, vocab_size = logits.shape
    log_sums = torch.empty(n_rows, device=logits.device)
    maxima = torch.empty(n_rows, vocab_size // width, device=logits.device)
    unit = math.gcd(logits.stride(0), 8)  # of 8 logits in 16 bits, a GPU reads all at once
    statistics_kernel[(n_rows,)](
        logits, log_sums, maxima, vocab_size, vocab_size // width, logits.stride(0) // unit,
        UNIT=unit, WIDTH=width, BLOCKS=BLOCKS, num_warps=8,
    )  # fmt: skip
    return log_sums, maxima
