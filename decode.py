"""Search: token ids out of a step function, which knows the model; the search knows none.

`greedy_search` takes the most probable token at every position, for a whole batch, and drops a row from the batch
when it ends. Validation, translation and evaluation all decode through it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from config import BOS, EOS, PAD, UNK

# (tokens, rows) → logits. tokens (R,) are the last tokens of the R live rows; rows (R,) says which row of the previous
# call each of them goes on from, None where all go on in place; logits (R, V) score the next token of each.
Step = Callable[[Tensor, Tensor | None], Tensor]

NEVER = [PAD, UNK, BOS]  # the model has no reason to say these, and they are no text


@dataclass
class GreedyState:
    """A batch in mid-search: B sentences of which R are not ended, after t tokens."""

    output: Tensor
    """(B, longest) the tokens so far, PAD from a sentence's end on"""
    live: Tensor
    """(R,) which sentences are not ended"""
    tokens: Tensor
    """(R,) their last tokens"""
    rows: Tensor | None
    """(R,) their places among the rows of the last step; None when none has left"""


def greedy_search(step: Step, limits: Tensor) -> list[list[int]]:
    """limits (B,) caps the length of each sentence → B lists of ids without BOS and EOS."""
    size, longest = limits.size(0), int(limits.max())
    state = GreedyState(
        output=torch.full((size, longest), PAD, device=limits.device),
        live=torch.arange(size, device=limits.device),
        tokens=torch.full((size,), BOS, device=limits.device),
        rows=None,
    )
    for t in range(longest):
        logits = step(state.tokens, state.rows)
        logits[:, NEVER] = -torch.inf
        chosen = logits.argmax(dim=-1)
        state.output[state.live, t] = chosen.masked_fill(chosen == EOS, PAD)
        goes_on = (chosen != EOS) & (limits[state.live] > t + 1)
        state.rows = None if goes_on.all() else goes_on.nonzero().squeeze(1)  # a CPU-GPU sync point
        if state.rows is not None:
            state.live, chosen = state.live[state.rows], chosen[state.rows]
        state.tokens = chosen
        if not len(state.live):
            break
    return [[token for token in row if token != PAD] for row in state.output.tolist()]
