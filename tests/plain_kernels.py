"""The operations of fast/ that have kernels for GPUs alone, by plain formulas on a CPU."""

import math

import torch
from torch import Tensor

from fast.attention import attend, attend_backward, query_key_value
from fast.loss import losses_and_gradient_of_rows
from fast.slot_attention import attend_to_slots
from fast.topk import WIDTH, logit_statistics
from model import attention_weights
from tapis.config import PAD

Ranges = tuple[Tensor, Tensor, Tensor, Tensor]


def register_plain_kernels() -> None:
    """Give the operations kernels for CPUs. They stay for the whole process."""
    attend.register_kernel("cpu")(plain_attend)
    attend_backward.register_kernel("cpu")(plain_attend_backward)
    losses_and_gradient_of_rows.register_kernel("cpu")(plain_losses_and_gradient)
    logit_statistics.register_kernel("cpu")(plain_logit_statistics)
    attend_to_slots.register_kernel("cpu")(plain_attend_to_slots)


def plain_attend(
    rows: Tensor,
    memory: Tensor | None,
    first: Tensor,
    end: Tensor,
    first_reader: Tensor,
    end_reader: Tensor,
    n_heads: int,
) -> tuple[Tensor, Tensor]:
    """`fast.attention.attend`. Checks what the kernels take for granted."""
    mask = mask_of((first, end, first_reader, end_reader))
    query, key, value = (split(x, n_heads) for x in query_key_value(rows, memory))
    output = weights_of(query, key, mask) @ value
    scores = (query @ key.transpose(1, 2) / math.sqrt(query.size(-1))).masked_fill(~mask, -math.inf)
    log_sum = scores.logsumexp(-1).T / math.log(2)  # (N, H)
    return output.transpose(0, 1).flatten(1).to(rows.dtype), log_sum.contiguous()


def plain_attend_backward(
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
    """`fast.attention.attend_backward`."""
    mask = mask_of((first, end, first_reader, end_reader))
    n_heads = log_sum.size(1)
    query, key, value = (split(x, n_heads) for x in query_key_value(rows, memory))
    weights = weights_of(query, key, mask)  # (H, N, M)
    of_output = split(output_gradient, n_heads)
    of_value = weights.transpose(1, 2) @ of_output
    of_weights = of_output @ value.transpose(1, 2)
    of_scores = weights * (of_weights - (weights * of_weights).sum(dim=-1, keepdim=True))
    of_scores /= math.sqrt(query.size(-1))
    of_query, of_key = of_scores @ key, of_scores.transpose(1, 2) @ query
    of_query, of_key, of_value = (x.transpose(0, 1).flatten(1).to(rows.dtype) for x in (of_query, of_key, of_value))
    if memory is None:
        return torch.cat([of_query, of_key, of_value], dim=1), rows.new_empty(0)
    return of_query.contiguous(), torch.cat([of_key, of_value], dim=1)


def mask_of(ranges: Ranges) -> Tensor:
    """Return which rows attend to which, (N, M), after checking that rows and readers agree."""
    first, end, first_reader, end_reader = ranges
    assert all(x.dtype == torch.int32 for x in ranges)
    rows, columns = torch.arange(len(first))[:, None], torch.arange(len(first_reader))[None]
    mask = (columns >= first[:, None]) & (columns < end[:, None])
    assert int(end.max()) <= len(first_reader) and int(end_reader.max()) <= len(first)
    assert ((rows >= first_reader) & (rows < end_reader))[mask].all(), "a row attends to one that does not know it"
    return mask


def split(x: Tensor, n_heads: int) -> Tensor:
    """(N, D) → (H, N, K), in fp32, in which the kernels sum up."""
    return x.float().view(len(x), n_heads, -1).transpose(0, 1)


def weights_of(query: Tensor, key: Tensor, mask: Tensor) -> Tensor:
    """Return the plain formula's weights (H, N, M), zeros for rows that attend to nothing."""
    has_keys = mask.any(dim=1)[:, None]
    with torch.autocast("cpu", enabled=False):
        return attention_weights(query, key, mask | ~has_keys) * has_keys


def plain_losses_and_gradient(
    logits: Tensor, labels: Tensor, smoothing: float, vocab_size: int
) -> tuple[Tensor, Tensor]:
    """`fast.loss.losses_and_gradient_of_rows`."""
    log_p = logits[:, :vocab_size].float().log_softmax(dim=-1)
    is_scored = labels != PAD
    cross_entropy = -log_p.gather(1, labels[:, None]).squeeze(1) * is_scored
    loss = (1 - smoothing) * cross_entropy - smoothing * log_p.mean(dim=-1) * is_scored
    target = torch.full_like(log_p, smoothing / vocab_size)
    target.scatter_add_(1, labels[:, None], torch.full_like(log_p, 1 - smoothing))
    logits[:, :vocab_size] = (log_p.exp() - target) * is_scored[:, None]
    return loss, cross_entropy


def plain_logit_statistics(logits: Tensor) -> tuple[Tensor, Tensor]:
    """`fast.topk.logit_statistics`."""
    n_blocks = logits.size(1) // WIDTH
    blocks = logits[:, : n_blocks * WIDTH].float().view(len(logits), n_blocks, WIDTH)
    return logits.float().logsumexp(dim=-1), blocks.amax(dim=-1)


def plain_attend_to_slots(query: Tensor, slots: Tensor, mask: Tensor, position: Tensor | None) -> Tensor:
    """`fast.slot_attention.attend_to_slots`. Checks that there is nothing to attend to beyond the position."""
    if position is not None:
        assert mask[..., (int(position) + 1) * query.size(1) :].eq(-math.inf).all()
    q = query.float().transpose(1, 2)  # (L, H, K, D / H)
    key, value = slots.float().permute(2, 0, 3, 1, 4)  # (L, H, N, D / H) each
    scores = q @ key.transpose(2, 3) / math.sqrt(q.size(-1)) + mask[:, None]
    return (scores.softmax(dim=-1) @ value).transpose(1, 2).flatten(2).to(query.dtype)
