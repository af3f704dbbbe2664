"""The best continuations of hypotheses by blocks of the vocabulary: the fast form of a plain top-k."""

import torch
from torch import Tensor

WIDTH = 64  # tokens in a block
ROWS_AT_ONCE = 16  # rows of logits that stay in a CPU's cache


def best_continuations_in_blocks(logits: Tensor, n: int, scores: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Replace `decoding.search.best_continuations`. Values are equal up to rounding; equal values may change places.

    The n best tokens lie in the n blocks with the largest maxima. Maxima are vectorized on a CPU, while topk compares
    one number at a time: this is two to four times as fast. Rows are taken a few at a time, since writing a tensor as
    large as all logits takes longer than computing a layer.
    """
    n_sentences, n_hypotheses, vocab_size = logits.shape
    rows = logits.flatten(0, 1)  # (L · K, V)
    rows_at_once = ROWS_AT_ONCE if rows.device.type == "cpu" else len(rows)

    # Where each hypothesis starts: its score, less the logarithm by which the softmax divides.
    start = logits.new_zeros(n_sentences, n_hypotheses, dtype=torch.float32)
    if scores is not None:
        totals = [part.float().logsumexp(dim=-1) for part in torch.split(rows, rows_at_once)]
        start = scores - torch.cat(totals).view_as(start)

    # The maximum of each block. A vocabulary that is too small for blocks is looked at whole, as is what is left over.
    in_blocks = vocab_size // WIDTH * WIDTH if vocab_size >= 2 * n * WIDTH else 0
    blocks = rows[:, :in_blocks].view(len(rows), in_blocks // WIDTH, WIDTH)
    maxima = torch.cat([part.float().amax(dim=-1) for part in torch.split(blocks, rows_at_once)])
    maxima = (maxima.view(n_sentences, n_hypotheses, -1) + start[..., None]).flatten(1)  # (L, K · blocks)

    # The places in K · V of the tokens in the n best blocks, and of those beyond the blocks.
    places = torch.arange(n_hypotheses * vocab_size, device=logits.device).view(n_hypotheses, vocab_size)
    first_places = places[:, :in_blocks:WIDTH].flatten()  # of each block
    best_blocks = first_places[maxima.topk(min(n, maxima.size(1))).indices]  # (L, n)
    inside = (best_blocks[..., None] + places[0, :WIDTH]).flatten(1)
    beyond = places[:, in_blocks:].flatten().expand(n_sentences, -1)
    candidates = torch.cat([inside, beyond], dim=1)

    # The n best of these candidates.
    values = logits.flatten(1).gather(1, candidates).float() + start.gather(1, candidates // vocab_size)
    values, chosen = values.topk(n)
    return values, candidates.gather(1, chosen)
