"""Both losses of rows of logits, and their gradient over the logits: a kernel in Triton, for GPUs.

It is the kernel of `fast.loss.losses_and_gradient_on_gpu`. One program reads a row of the vocabulary twice, the second
time from the GPU's cache, and writes it once. Written as operations of torch, the logits are read or written 15 times.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from tapis.config import PAD

BLOCK = 4096  # logits that a program works on at once


@triton.jit
def loss_kernel(
    logits, labels, losses, cross_entropies, smoothing, vocab_size, stride, PAD: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """One row: log Σ exp and Σ of its logits in a pass that keeps the largest so far, then the gradient."""
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    start = logits + row * stride
    chosen = tl.load(start + label).to(tl.float32)  # before any warp writes the gradient over it
    largest = -float("inf")
    total = 0.0
    plain_sum = 0.0
    for first in range(0, vocab_size, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        scores = tl.load(start + columns, mask=columns < vocab_size, other=-float("inf")).to(tl.float32)
        new_largest = tl.maximum(largest, tl.max(scores, 0))
        total = total * tl.exp(largest - new_largest) + tl.sum(tl.exp(scores - new_largest), 0)
        plain_sum += tl.sum(tl.where(columns < vocab_size, scores, 0.0), 0)
        largest = new_largest
    log_sum = largest + tl.log(total)
    is_scored = (label != PAD).to(tl.float32)
    tl.store(cross_entropies + row, (log_sum - chosen) * is_scored)
    loss = log_sum - (1 - smoothing) * chosen - smoothing * plain_sum / vocab_size
    tl.store(losses + row, loss * is_scored)

    # d loss / d logits = softmax − smoothed target.
    for first in range(0, vocab_size, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        is_column = columns < vocab_size
        scores = tl.load(start + columns, mask=is_column, other=-float("inf")).to(tl.float32)
        target = smoothing / vocab_size + tl.where(columns == label, 1 - smoothing, 0.0)
        gradient = (tl.exp(scores - log_sum) - target) * is_scored
        tl.store(start + columns, gradient.to(logits.dtype.element_ty), mask=is_column)


def losses_of_rows(logits: Tensor, labels: Tensor, smoothing: float, vocab_size: int) -> tuple[Tensor, Tensor]:
    """Write the gradient over logits (n, W). Returns both losses of each row, (n,), zeros where the label is PAD."""
    losses, cross_entropies = (torch.empty(len(logits), device=logits.device) for _ in range(2))
    loss_kernel[(len(logits),)](
        logits, labels, losses, cross_entropies, smoothing, vocab_size, logits.stride(0), PAD=PAD, BLOCK=BLOCK,
        num_warps=8,
    )  # fmt: skip
    return losses, cross_entropies
