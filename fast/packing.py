"""Where the tokens of a padded batch stand, so that a training computes nothing for the padding."""

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

ROUND = 128  # N is a multiple of it


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """The same there; to a GPU by pinned memory, so that nothing waits for the copy."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)


class _Rows(torch.autograd.Function):
    """x[index], of which the gradient is grad[back] for the first `real` rows of x, and nothing for the others.

    To read rows both ways is faster than to add them up, which torch must, as a row might be read twice.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, back: Tensor, real: int) -> Tensor:
        ctx.save_for_backward(back)
        ctx.real = real
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        x_grad = grad.index_select(0, *ctx.saved_tensors)
        x_grad[ctx.real :] = 0
        return x_grad, None, None, None


Packings: TypeAlias = tuple["Packing", "Packing"]  # of queries and of keys


@dataclass(frozen=True)
class Packing:
    """Which positions of a batch (B, T) hold tokens. Their vectors stand one under another, (N, D), in a training.

    Sentences of a batch are about equally long, but once tokens are split at random (`dataset.split_tokens`) a fifth of
    the positions is padding. Only attention, in which the positions of a sentence meet, needs them laid out, as
    (B, H, T, K). Behind the tokens stand rows from which nothing is read, as many as make N a multiple of ROUND: of
    each shape of a matrix product, oneDNN takes milliseconds to prepare the first, and batches come in many.
    """

    tokens: int
    """How many of the N rows are tokens; at least one is not"""
    row: Tensor
    """(B, T) the row of each position; padding has the last one"""
    place: Tensor
    """(N) the position of each row, counted through the batch; rows that are no tokens have the first one"""
    by_head: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False, compare=False)
    """By the number of heads: `row` and `place` of the heads' parts of vectors, (B · H · T) and (N · H)"""

    @classmethod
    def of(cls, real: Tensor) -> "Packing":
        """real (B, T), on the CPU, is True where there is a token."""
        place = real.flatten().nonzero().squeeze(1)
        tokens, more = len(place), ROUND - len(place) % ROUND
        row = torch.full(real.shape, tokens + more - 1)
        row[real] = torch.arange(tokens)
        return cls(tokens, row, F.pad(place, (0, more)))

    def to(self, device: torch.device) -> "Packing":
        """The same there."""
        return Packing(self.tokens, to_device(self.row, device), to_device(self.place, device))

    def pack(self, x: Tensor) -> Tensor:
        """(B, T, D) → (N, D)."""
        return self.from_heads(x[:, None])

    def from_heads(self, x: Tensor) -> Tensor:
        """(B, H, T, K) → (N, D). Padding gets the gradient of a row that is no token: none, if nothing reads it."""
        row, place = self._of_heads(x.size(1))
        y: Tensor = _Rows.apply(x.reshape(-1, x.size(-1)), place, row, len(row))  # type: ignore[no-untyped-call]
        return y.view(len(self.place), -1)

    def to_heads(self, x: Tensor, n_heads: int) -> Tensor:
        """(N, D) → (B, H, T, K). Padding gets the vectors of a row that is no token."""
        (row, place), (b, t) = self._of_heads(n_heads), self.row.shape
        parts = x.reshape(len(place), -1)
        y: Tensor = _Rows.apply(parts, row, place, self.tokens * n_heads)  # type: ignore[no-untyped-call]
        return y.view(b, n_heads, t, -1)

    def _of_heads(self, n_heads: int) -> tuple[Tensor, Tensor]:
        if n_heads not in self.by_head:
            t, head = self.row.size(1), torch.arange(n_heads, device=self.row.device)
            row = self.row[:, None, :] * n_heads + head[:, None]
            place = (self.place // t)[:, None] * (n_heads * t) + head * t + (self.place % t)[:, None]
            self.by_head[n_heads] = row.flatten(), place.flatten()
        return self.by_head[n_heads]
