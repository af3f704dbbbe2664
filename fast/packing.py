"""Where the tokens of a padded batch stand among packed rows, so that training computes nothing for padding.

Sentences of a batch are about equally long, but once tokens are split at random (`dataset.split_tokens`) a fifth of the
positions is padding. Only attention with padding (`PaddedLayout`) needs the vectors laid out as
(B, H, T, K). Everything else works on each vector alone, and takes them packed, (N, D).

A batch of two sentences, "a b c" and "d", in B × T = 2 × 4 positions, and its N = 6 rows (ROUND would be 6):

    positions          row_of_position          rows                     position_of_row
    a b c .            0 1 2 5                  a b c d . .              0 1 2 4 0 0
    d . . .            3 5 5 5

Rows behind the tokens hold nothing that is read. There are as many of them as make N a multiple of ROUND: oneDNN takes
milliseconds to prepare the first matrix product of each shape, and batches come in many shapes.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dataset import to_device

ROUND = 128  # N is a multiple of it


def next_multiple(n: int, unit: int = ROUND) -> int:
    """Return the multiple of a unit that follows n. Of as many rows for n tokens, at least one is to spare."""
    return n + unit - n % unit


class _SelectRows(torch.autograd.Function):
    """Replaces `x[index]`: reads rows in the backward pass too, where torch must add up gradients.

    `inverse` is the index back: row i of x went to row inverse[i] of the result, whose gradient it gets. That is right
    for the first n_real rows, each of which went to one place. The other rows of x get no gradient.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, inverse: Tensor, n_real: int) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.n_real = n_real
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        x_grad = grad.index_select(0, *ctx.saved_tensors)
        x_grad[ctx.n_real :] = 0
        return x_grad, None, None, None


def _select_rows(x: Tensor, index: Tensor, inverse: Tensor, n_real: int) -> Tensor:
    return _SelectRows.apply(x, index, inverse, n_real)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Packing:
    """Where the tokens of a padded batch (B, T) stand among the N packed rows, and back."""

    n_tokens: int
    """How many of the N rows are tokens; at least one row is not"""
    row_of_position: Tensor
    """(B, T) the row of each position; padding has the last row, which holds no token"""
    position_of_row: Tensor
    """(N) the position of each row, counted through the batch; rows without a token have position 0"""
    by_head: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False, compare=False)
    """By the number of heads H: both maps for the parts of vectors that heads see, (B · H · T) and (N · H)"""

    @classmethod
    def of(cls, is_token: Tensor, unit: int = ROUND) -> "Packing":
        """is_token (B, T), on the CPU, is True where there is a token. N is a multiple of unit."""
        position_of_row = is_token.flatten().nonzero().squeeze(1)
        n_tokens = len(position_of_row)
        n_rows = next_multiple(n_tokens, unit)
        row_of_position = torch.full(is_token.shape, n_rows - 1)
        row_of_position[is_token] = torch.arange(n_tokens)
        return cls(n_tokens, row_of_position, F.pad(position_of_row, (0, n_rows - n_tokens)))

    def to(self, device: torch.device) -> "Packing":
        """Return a copy on `device`."""
        return Packing(self.n_tokens, to_device(self.row_of_position, device), to_device(self.position_of_row, device))

    def from_heads(self, x: Tensor) -> Tensor:
        """(B, H, T, K) → (N, D). Replaces x.transpose(1, 2).flatten(2)[is_token].

        Padding gets the gradient of a row without a token, which is zero if nothing reads that row.
        """
        row, position = self._maps_of_heads(x.size(1))
        y = _select_rows(x.reshape(-1, x.size(-1)), position, row, len(row))
        return y.view(len(self.position_of_row), -1)

    def to_heads(self, x: Tensor, n_heads: int) -> Tensor:
        """(N, D) → (B, H, T, K). Padding gets the vectors of a row without a token."""
        row, position = self._maps_of_heads(n_heads)
        b, t = self.row_of_position.shape
        parts = x.reshape(len(position), -1)  # (N · H, K)
        y = _select_rows(parts, row, position, self.n_tokens * n_heads)
        return y.view(b, n_heads, t, -1)

    def _maps_of_heads(self, n_heads: int) -> tuple[Tensor, Tensor]:
        if n_heads not in self.by_head:
            t = self.row_of_position.size(1)
            head = torch.arange(n_heads, device=self.row_of_position.device)
            row = self.row_of_position[:, None, :] * n_heads + head[:, None]  # (B, H, T)
            sentence, place = self.position_of_row // t, self.position_of_row % t
            position = sentence[:, None] * (n_heads * t) + head * t + place[:, None]  # (N, H)
            self.by_head[n_heads] = row.flatten(), position.flatten()
        return self.by_head[n_heads]
