"""The projection and the label-smoothed cross-entropy in one, without the logits of a whole batch in memory."""

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from config import TAUGHT
from tapis.config import PAD
from tapis.system.terminal import in_one_line

CHUNK = 1024  # target tokens whose logits exist at once
LOGITS_AT_ONCE = 2**29  # with the kernel for GPUs, which takes longer for many small products than for few large ones
SIZE_OF_LESSONS = 9  # times the bytes of logits in bf16, with teachers: these, and four tensors in fp32
ALIGNED = 64  # on a GPU, the products with V columns take two to four times as long if V is odd

# The rows (n, D) of a teacher, to be projected, and the matrix (V, D) by which it does so.
Lesson: TypeAlias = tuple[Tensor, Tensor]


def mean_probabilities(lessons: Sequence[Lesson]) -> Tensor:
    """Return the mean of the probabilities that teachers give to each token: (n, V)."""
    first, *others = lessons
    mean = probabilities(*first)
    for lesson in others:
        mean += probabilities(*lesson)
    return mean.div_(len(lessons))


def probabilities(rows: Tensor, matrix: Tensor) -> Tensor:
    """Rows (n, D) of one teacher, its matrix (V, D) → (n, V)."""
    return (rows @ matrix.T).float().softmax(dim=-1)


def part_of(lessons: Sequence[Lesson], start: int, size: int) -> list[Lesson]:
    """Return the lessons of some rows."""
    return [(rows[start : start + size], matrix) for rows, matrix in lessons]


def losses_and_gradient_in_place(
    logits: Tensor, labels: Tensor, smoothing: float, vocab_size: int, lessons: Sequence[Lesson] = ()
) -> tuple[Tensor, Tensor, Tensor]:
    """Write the gradient over the logits. On a CPU, some rows at a time, which stay in its cache.

    Logits (n, W), labels (n,), smoothing, V → both losses, summed, and the gradient of the first by the logits, (n, W)
    in their type. Columns beyond V are zeros in the logits and in the gradient, and count for nothing. Rows whose label
    is PAD do not count in the losses; their gradients are not zero.
    """
    of_label = 1 - TAUGHT if lessons else 1.0  # share of the smoothed label in the target
    loss = torch.zeros((), device=labels.device)
    cross_entropy = torch.zeros((), device=labels.device)
    slice_size = CHUNK // 8 if logits.device.type == "cpu" else len(logits)
    for start in range(0, len(logits), slice_size):
        part = logits[start : start + slice_size, :vocab_size]
        label = labels[start : start + slice_size, None]
        is_scored = label != PAD

        # Sum up both losses.
        scores = part.float()
        scores -= scores.amax(dim=-1, keepdim=True)
        chosen = scores.gather(1, label)
        expected = (1 - smoothing) * chosen + smoothing * scores.mean(dim=-1, keepdim=True)
        if lessons:
            taught = TAUGHT * mean_probabilities(part_of(lessons, start, slice_size))
            expected = of_label * expected + (taught * scores).sum(dim=-1, keepdim=True)
        total = scores.exp_().sum(dim=-1, keepdim=True)
        cross_entropy += ((total.log() - chosen) * is_scored).sum()
        loss += ((total.log() - expected) * is_scored).sum()

        # d loss / d logits = softmax − target.
        scores.div_(total).sub_(of_label * smoothing / vocab_size)
        if lessons:
            scores.sub_(taught)
        part.copy_(scores.scatter_add_(1, label, torch.full_like(chosen, of_label * (smoothing - 1))))
    return loss, cross_entropy, logits


@torch.library.custom_op("tapis::losses_and_gradient", mutates_args=("logits",), device_types="cuda")
def losses_and_gradient_of_rows(
    logits: Tensor, labels: Tensor, smoothing: float, vocab_size: int
) -> tuple[Tensor, Tensor]:
    """Write the gradient over the logits (n, W), by fast/loss_kernel.py. Returns both losses of each row, (n,)."""
    from fast.loss_kernel import losses_of_rows  # noqa: PLC0415 - Triton comes with torch for GPUs only

    return losses_of_rows(logits, labels, smoothing, vocab_size)


@losses_and_gradient_of_rows.register_fake
def _(logits: Tensor, labels: Tensor, smoothing: float, vocab_size: int) -> tuple[Tensor, Tensor]:
    losses = logits.new_empty(len(logits), dtype=torch.float32)
    return losses, torch.empty_like(losses)


def losses_and_gradient_on_gpu(
    logits: Tensor, labels: Tensor, smoothing: float, vocab_size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Replace `losses_and_gradient_in_place` where there is Triton. The gradient of rows without a label is zero."""
    losses, cross_entropies = losses_and_gradient_of_rows(logits, labels, smoothing, vocab_size)
    return losses.sum(), cross_entropies.sum(), logits


@cache
def fault_of_loss(device: torch.device, dtype: torch.dtype) -> str:
    """Return why `losses_and_gradient_on_gpu` cannot be used here; "" if it equals the one that it replaces.

    Tried on a few labels, one of them PAD, and on more logits than the kernel takes at once.
    """
    vocab_size, smoothing = 5000, 0.1
    random = torch.Generator().manual_seed(1)
    logits = 4 * torch.randn(8, vocab_size, generator=random)
    tried = F.pad(logits, (0, -vocab_size % ALIGNED)).to(device, dtype)
    labels = torch.tensor([7, PAD, 4999, 4096, 300, 4, 4, 5]).to(device)
    *expected_losses, expected = losses_and_gradient_in_place(tried.clone().float(), labels, smoothing, vocab_size)
    try:
        *losses, found = losses_and_gradient_on_gpu(tried, labels, smoothing, vocab_size)
        is_close = [abs(float(one / other) - 1) < 0.01 for one, other in zip(losses, expected_losses, strict=True)]
    except Exception as error:  # as of attention
        return f"the loss kernel fails: {in_one_line(error)}"
    difference = (found.float() - expected) * (labels != PAD)[:, None]
    is_close.append(float(difference.norm() / expected.norm()) < 0.02)
    return "" if all(is_close) else "the loss kernel differs from the plain formula"


class _ProjectedCrossEntropy(torch.autograd.Function):
    """The gradient of the loss is known in closed form, and the forward pass computes it.

    The logits, their softmax and their gradient, each (N, V), exist for some tokens at a time. Written out whole, as
    by the plain loss, they take a fifth of a step.
    """

    @staticmethod
    def forward(
        ctx: Any,
        vectors: Tensor,
        weight: Tensor,
        labels: Tensor,
        smoothing: float,
        on_gpu: bool,
        lessons: Sequence[Lesson],
    ) -> tuple[Tensor, Tensor]:
        vocab_size = len(weight)
        matrix = weight.to(vectors.dtype)
        size = CHUNK
        if on_gpu:
            matrix = F.pad(matrix, (0, 0, 0, -vocab_size % ALIGNED))
            size = max(CHUNK, LOGITS_AT_ONCE // len(matrix) // (SIZE_OF_LESSONS if lessons else 1))
        weight_grad = torch.zeros_like(weight)
        vector_grads = []
        loss = torch.zeros((), device=labels.device)
        cross_entropy = torch.zeros((), device=labels.device)
        for number, (x, x_labels) in enumerate(zip(torch.split(vectors, size), torch.split(labels, size), strict=True)):
            # Project.
            logits = x @ matrix.T  # (size, V or, on a GPU, a little more)
            if on_gpu and not lessons:
                found = losses_and_gradient_on_gpu(logits, x_labels, smoothing, vocab_size)
            else:
                of_x = part_of(lessons, number * size, size)
                found = losses_and_gradient_in_place(logits, x_labels, smoothing, vocab_size, of_x)
            chunk_loss, chunk_cross_entropy, grad = found
            loss += chunk_loss
            cross_entropy += chunk_cross_entropy

            # Back through the projection.
            is_scored = x_labels[:, None] != PAD
            vector_grads.append(grad @ matrix * is_scored)
            weight_grad += (grad.T @ (x * is_scored))[:vocab_size]
        ctx.save_for_backward(torch.cat(vector_grads), weight_grad)
        ctx.mark_non_differentiable(cross_entropy)
        return loss, cross_entropy

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        vector_grad, weight_grad = ctx.saved_tensors
        return vector_grad * grad_loss, weight_grad * grad_loss, None, None, None, None


def projected_cross_entropy(
    vectors: Tensor,
    weight: Tensor,
    labels: Tensor,
    smoothing: float,
    on_gpu: bool = False,
    lessons: Sequence[Lesson] = (),
) -> tuple[Tensor, Tensor]:
    """Replace `label_smoothed_cross_entropy(vectors @ weight.T, labels, smoothing, taught)` of training/objective.py.

    Vectors (N, D), projection matrix (V, D), labels (N,) → the loss to minimize and the cross-entropy without
    smoothing, both summed over the labels that are not PAD, in nats. With on_gpu, the kernel for GPUs computes them,
    but not with lessons, which have N rows each.
    """
    apply: Any = _ProjectedCrossEntropy.apply
    loss, cross_entropy = apply(vectors, weight, labels, smoothing, on_gpu, lessons)
    return loss, cross_entropy
