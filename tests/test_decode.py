"""Greedy search over step functions that are known completely."""

import torch
from torch import Tensor

from config import BOS, EOS, PAD, UNK
from decode import greedy_search


class Script:
    """A step function that says given tokens, whatever it is told, and remembers what it was told."""

    def __init__(self, lines: list[list[int]], vocabulary: int = 12) -> None:
        self.lines, self.vocabulary = lines, vocabulary
        self.live = list(range(len(lines)))
        self.calls: list[tuple[list[int], list[int] | None]] = []

    def __call__(self, tokens: Tensor, rows: Tensor | None) -> Tensor:
        self.calls.append((tokens.tolist(), None if rows is None else rows.tolist()))
        if rows is not None:
            self.live = [self.live[row] for row in rows.tolist()]
        t = len(self.calls) - 1
        logits = torch.zeros(len(self.live), self.vocabulary)
        for i, line in enumerate(self.live):
            logits[i, self.lines[line][t] if t < len(self.lines[line]) else EOS] = 1.0
        return logits


def limits(*values: int) -> Tensor:
    return torch.tensor(values)


def test_each_row_ends_at_its_own_end() -> None:
    script = Script([[5, 6, 7], [8], [], [9, 10]])
    assert greedy_search(script, limits(9, 9, 9, 9)) == [[5, 6, 7], [8], [], [9, 10]]


def test_ended_rows_leave_the_batch() -> None:
    script = Script([[5, 6], [8], [9, 10, 11]])
    greedy_search(script, limits(9, 9, 9))
    assert script.calls == [
        ([BOS, BOS, BOS], None),
        ([5, 8, 9], None),
        ([6, 10], [0, 2]),
        ([11], [1]),
    ]


def test_limits_hold_for_each_row() -> None:
    script = Script([[5] * 50, [6] * 50])
    assert greedy_search(script, limits(3, 1)) == [[5, 5, 5], [6]]
    assert len(script.calls) == 3


def test_no_row_says_what_is_no_text() -> None:
    def step(tokens: Tensor, rows: Tensor | None) -> Tensor:
        logits = torch.zeros(len(tokens), 8)
        logits[:, [PAD, UNK, BOS]] = 9.0
        logits[:, 6] = 1.0
        return logits

    assert greedy_search(step, limits(2)) == [[6, 6]]
