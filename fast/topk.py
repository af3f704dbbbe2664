"""The best continuations of hypotheses by blocks of the vocabulary: the fast form of a plain top-k."""

from functools import cache

import torch
from torch import Tensor

from tapis.system.terminal import in_one_line

WIDTH = 64  # tokens in a block
ROWS_AT_ONCE = 16  # rows of logits that stay in a CPU's cache


@torch.library.custom_op("tapis::logit_statistics", mutates_args=(), device_types="cuda")
def logit_statistics(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Replace `logsumexp(-1)` and the `amax(-1)` of blocks of logits (n, V), by fast/topk_kernel.py.

    Returns (n,) and (n, V // WIDTH), in fp32. The blocks are whole: their maxima know nothing of the last V % WIDTH.
    """
    from fast.topk_kernel import statistics_of_rows  # noqa: PLC0415 - Triton comes with torch for GPUs only

    return statistics_of_rows(logits, WIDTH)


@logit_statistics.register_fake
def _(logits: Tensor) -> tuple[Tensor, Tensor]:
    log_sums = logits.new_empty(len(logits), dtype=torch.float32)
    return log_sums, log_sums.new_empty(len(logits), logits.size(1) // WIDTH)


@cache
def fault_of_statistics(device: torch.device, dtype: torch.dtype) -> str:
    """Return why the kernel of `logit_statistics` cannot be used here; "" if it equals torch's own formulas."""
    random = torch.Generator().manual_seed(1)
    logits = torch.randn(3, 9 * WIDTH + 1, generator=random).to(device, dtype)
    try:
        log_sums, maxima = logit_statistics(logits)
        error = float((log_sums - logits.float().logsumexp(dim=-1)).abs().max())  # an error of the GPU appears here
    except Exception as fault:  # no Triton, no compiler for it, no kernel for this GPU: many errors
        return f"the kernel of the logits' statistics fails: {in_one_line(fault)}"
    expected = logits[:, : 9 * WIDTH].reshape(3, 9, WIDTH).amax(dim=-1).float()
    is_right = error < 1e-3 and torch.equal(maxima, expected)
    return "" if is_right else "the kernel of the logits' statistics differs from torch's"


def best_continuations_in_blocks(
    logits: Tensor, n: int, scores: Tensor | None = None, with_kernel: bool = False
) -> tuple[Tensor, Tensor]:
    """Replace `decoding.search.best_continuations`. Values are equal up to rounding; equal values may change places.

    The n best tokens lie in the n blocks with the largest maxima. Maxima are vectorized on a CPU, while topk compares
    one number at a time: this is two to four times as fast. Rows are taken a few at a time, since writing a tensor as
    large as all logits takes longer than computing a layer.

    with_kernel takes `logit_statistics`, which reads the logits once (`fault_of_statistics`).
    """
    n_sentences, n_hypotheses, vocab_size = logits.shape
    is_cpu = logits.device.type == "cpu"
    if n == 1 and scores is None and not is_cpu:  # one kernel
        values, places = logits.flatten(1).max(dim=1, keepdim=True)
        return values.float(), places
    if scores is not None and not is_cpu and not with_kernel:  # one kernel, where the sum below has eight
        logits = logits.log_softmax(dim=-1, dtype=torch.float32)
    rows = logits.flatten(0, 1)  # (L · K, V)
    rows_at_once = ROWS_AT_ONCE if is_cpu else len(rows)

    # The maximum of each block. A vocabulary that is too small for blocks is looked at whole, as is what is left over.
    in_blocks = vocab_size // WIDTH * WIDTH if vocab_size >= 2 * n * WIDTH else 0
    if with_kernel:
        log_sums, all_maxima = logit_statistics(rows)
        maxima = all_maxima[:, : in_blocks // WIDTH]
    else:
        blocks = rows[:, :in_blocks].view(len(rows), in_blocks // WIDTH, WIDTH)
        maxima = torch.cat([part.amax(dim=-1).float() for part in torch.split(blocks, rows_at_once)])

    # Where each hypothesis starts: its score, less the logarithm by which the softmax divides.
    start = logits.new_zeros(n_sentences, n_hypotheses, dtype=torch.float32) if scores is None else scores
    if scores is not None and with_kernel:
        start = scores - log_sums.view_as(scores)
    elif scores is not None and is_cpu:
        totals = [part.float().logsumexp(dim=-1) for part in torch.split(rows, rows_at_once)]
        start = scores - torch.cat(totals).view_as(scores)
    maxima = (maxima.view(n_sentences, n_hypotheses, -1) + start[..., None]).flatten(1)  # (L, K · blocks)

    # The places in K · V of the tokens in the n best blocks, and of those beyond the blocks.
    places = torch.arange(n_hypotheses * vocab_size, device=logits.device).view(n_hypotheses, vocab_size)
    first_places = places[:, :in_blocks:WIDTH].flatten()  # of each block
    best_blocks = first_places[maxima.topk(min(n, maxima.size(1))).indices]  # (L, n)
    inside = (best_blocks[..., None] + places[0, :WIDTH]).flatten(1)
    beyond = places[:, in_blocks:].flatten().expand(n_sentences, -1)
    candidates = torch.cat([inside, beyond], dim=1)

    # The n best of these candidates.
    values = rows.reshape(n_sentences, -1).gather(1, candidates).float() + start.gather(1, candidates // vocab_size)
    values, chosen = values.topk(n)
    return values, candidates.gather(1, chosen)
