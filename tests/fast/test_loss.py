"""The loss, plain and projected, against torch's own over whole logits."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from plain_kernels import register_plain_kernels
from torch import Tensor
from torch.nn import functional as F

from fast.attention import to_autocast_dtype
from fast.loss import (
    CHUNK,
    losses_and_gradient_in_place,
    losses_and_gradient_on_gpu,
    projected_cross_entropy,
)
from tapis.config import PAD
from training.objective import label_smoothed_cross_entropy

Loss = Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]


def plain_loss(vectors: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    return label_smoothed_cross_entropy(vectors @ weight.T, labels, smoothing)


def fast_loss(vectors: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    return projected_cross_entropy(to_autocast_dtype(vectors), weight, labels, smoothing)


def loss_on_gpu(vectors: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    register_plain_kernels()
    return projected_cross_entropy(to_autocast_dtype(vectors), weight, labels, smoothing, on_gpu=True)


either = pytest.mark.parametrize("loss_of", [plain_loss, fast_loss, loss_on_gpu])


@either
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("size", [1, CHUNK, 2 * CHUNK + 7])
def test_the_loss_and_its_gradients_equal_torchs(loss_of: Loss, smoothing: float, size: int) -> None:
    vectors, weight = torch.randn(size, 8, requires_grad=True), torch.randn(11, 8, requires_grad=True)
    labels = torch.randint(1, 11, (size,))
    labels[1::50] = PAD
    loss, plain = loss_of(vectors, weight, labels, smoothing)
    logits = vectors @ weight.T
    expected = F.cross_entropy(logits, labels, label_smoothing=smoothing, ignore_index=PAD, reduction="sum")
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(plain, F.cross_entropy(logits.detach(), labels, ignore_index=PAD, reduction="sum"))
    assert not plain.requires_grad
    ours = torch.autograd.grad(loss * 3, [vectors, weight])
    torch.testing.assert_close(ours, torch.autograd.grad(expected * 3, [vectors, weight]), rtol=1e-4, atol=1e-4)


@either
def test_the_loss_of_enormous_logits_is_finite(loss_of: Loss) -> None:
    vectors, weight = torch.tensor([[1e4, -1e4]], requires_grad=True), torch.eye(2)
    loss, _ = loss_of(vectors, weight, torch.tensor([1]), 0.0)
    assert loss.item() == pytest.approx(2e4)
    assert torch.autograd.grad(loss, vectors)[0].tolist() == [[1.0, -1.0]]


@either
def test_the_loss_in_bf16_is_close_to_that_in_fp32(loss_of: Loss) -> None:
    vectors, weight = torch.randn(100, 64, requires_grad=True), torch.randn(500, 64, requires_grad=True)
    labels = torch.randint(500, (100,))
    exact, _ = loss_of(vectors, weight, labels, 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, _ = loss_of(vectors, weight, labels, 0.1)
    assert loss.item() == pytest.approx(exact.item(), rel=0.01)
    ours, expected = (torch.autograd.grad(value, [vectors, weight]) for value in (loss, exact))
    for a, b in zip(ours, expected, strict=True):
        assert a.dtype == torch.float32
        assert (a - b).norm() < 0.02 * b.norm()


@either
def test_the_perplexity_of_an_even_guess_is_the_size_of_the_vocabulary(loss_of: Loss) -> None:
    _, plain = loss_of(torch.zeros(5, 8), torch.randn(40, 8), torch.arange(1, 6), 0.1)
    assert (plain / 5).exp().item() == pytest.approx(40)


@pytest.mark.parametrize("losses_and_gradient", [losses_and_gradient_on_gpu, losses_and_gradient_in_place])
def test_columns_beyond_the_vocabulary_count_for_nothing(losses_and_gradient: Callable[..., Any]) -> None:
    logits, labels = torch.randn(300, 11), torch.randint(1, 11, (300,))
    padded = F.pad(logits, (0, 5))
    loss, cross_entropy, gradient = losses_and_gradient(logits, labels, 0.1, 11)
    register_plain_kernels()
    found = losses_and_gradient(padded, labels, 0.1, 11)
    torch.testing.assert_close(found, (loss, cross_entropy, F.pad(gradient, (0, 5))))
