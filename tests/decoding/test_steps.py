"""Step functions, plain and fast: the logits of the whole model, for the hypotheses that a search keeps."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from decoding.inference import in_precision
from decoding.search import Step
from decoding.steps import fast_step, plain_step
from model import Transformer

StepOf = Callable[[Transformer, Tensor], Step]


def fast(model: Transformer, src: Tensor) -> Step:
    return fast_step(in_precision(model, "fp32"), src)


@pytest.mark.parametrize("step_of", [plain_step, fast])
def test_a_step_gives_the_logits_of_the_whole_model(model: Transformer, step_of: StepOf) -> None:
    src = torch.tensor([[50, 51, 3], [52, 3, 0]])
    step = step_of(model, src)
    step(torch.tensor([[2], [2]]), None)
    logits = step(torch.tensor([[60]]), torch.tensor([[1]]))[:, 0]
    memory_mask = (src[1:, :2] != 0)[:, None, None]
    tgt = torch.tensor([[2, 60]])
    whole = model(src[1:, :2], tgt, memory_mask, torch.ones(2, 2, dtype=torch.bool).tril())
    torch.testing.assert_close(logits, whole[:, 1])


def test_the_fast_step_equals_the_plain_step_along_a_search(model: Transformer) -> None:
    """Hypotheses multiply, are reordered and dropped, and sentences leave."""
    src = torch.tensor([[50, 51, 52, 3], [53, 54, 3, 0], [55, 3, 0, 0]])
    steps = plain_step(model, src), fast(model, src)
    calls: list[tuple[list[list[int]], list[list[int]] | None]] = [
        ([[2], [2], [2]], None),
        ([[60, 61], [62, 63], [64, 65]], [[0, 0], [1, 1], [2, 2]]),
        ([[70, 71], [72, 73], [74, 75]], [[1, 0], [2, 2], [5, 4]]),
        ([[80, 81], [82, 83]], [[1, 1], [4, 5]]),
        ([[90, 91]], [[3, 2]]),
    ]
    for tokens, parents in calls:
        both = [step(torch.tensor(tokens), None if parents is None else torch.tensor(parents)) for step in steps]
        torch.testing.assert_close(*both)
