"""The projection and the label-smoothed cross-entropy in one, without the logits of a whole batch in memory."""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from tapis.config import PAD

CHUNK = 1024  # target tokens whose logits exist at once; compiled, four times as many, for fewer and larger products


# Logits (n, V), labels (n,), smoothing → both losses, summed, and the gradient of the first by the logits, (n, V) in
# their type. Rows whose label is PAD do not count in the losses; their gradients are not zero.
LossesAndGradient: TypeAlias = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor, Tensor]]


def losses_and_gradient(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the formulas, which torch's compiler turns into one pass over the logits to read and one to write."""
    scores = logits.float()
    is_scored = labels != PAD
    total = scores.logsumexp(dim=-1, keepdim=True)  # log Σ exp(logits)
    chosen = scores.gather(1, labels[:, None])
    mean = scores.mean(dim=-1, keepdim=True)
    cross_entropy = ((total - chosen).squeeze(1) * is_scored).sum()
    loss = ((total - (1 - smoothing) * chosen - smoothing * mean).squeeze(1) * is_scored).sum()

    # d loss / d logits = softmax − smoothed target.
    is_label = torch.arange(logits.size(1), device=logits.device) == labels[:, None]
    gradient = (scores - total).exp() - smoothing / logits.size(1) - (1 - smoothing) * is_label
    return loss, cross_entropy, gradient.to(logits.dtype)


def losses_and_gradient_in_place(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """Replace `losses_and_gradient` where nothing is compiled: writes the gradient over the logits.

    On a CPU, some rows at a time, which stay in its cache.
    """
    loss = torch.zeros((), device=labels.device)
    cross_entropy = torch.zeros((), device=labels.device)
    slice_size = CHUNK // 8 if logits.device.type == "cpu" else len(logits)
    for start in range(0, len(logits), slice_size):
        part = logits[start : start + slice_size]
        label = labels[start : start + slice_size, None]
        is_scored = label != PAD

        # Sum up both losses.
        scores = part.float()
        scores -= scores.amax(dim=-1, keepdim=True)
        chosen = scores.gather(1, label)
        mean = scores.mean(dim=-1, keepdim=True)
        total = scores.exp_().sum(dim=-1, keepdim=True)
        cross_entropy += ((total.log() - chosen) * is_scored).sum()
        loss += ((total.log() - (1 - smoothing) * chosen - smoothing * mean) * is_scored).sum()

        # d loss / d logits = softmax − smoothed target.
        scores.div_(total).sub_(smoothing / logits.size(1))
        part.copy_(scores.scatter_add_(1, label, torch.full_like(chosen, smoothing - 1)))
    return loss, cross_entropy, logits


class _ProjectedCrossEntropy(torch.autograd.Function):
    """The gradient of the loss is known in closed form, and the forward pass computes it.

    The logits, their softmax and their gradient, each (N, V), exist for some tokens at a time. Written out whole, as
    by the plain loss, they take a fifth of a step.
    """

    @staticmethod
    def forward(
        ctx: Any, vectors: Tensor, weight: Tensor, labels: Tensor, smoothing: float, of_chunk: LossesAndGradient
    ) -> tuple[Tensor, Tensor]:
        matrix = weight.to(vectors.dtype)
        weight_grad = torch.zeros_like(weight)
        vector_grads = []
        loss = torch.zeros((), device=labels.device)
        cross_entropy = torch.zeros((), device=labels.device)
        size = CHUNK if of_chunk is losses_and_gradient_in_place else 4 * CHUNK
        for x, x_labels in zip(torch.split(vectors, size), torch.split(labels, size), strict=True):
            # Project.
            logits = x @ matrix.T  # (size, V)
            chunk_loss, chunk_cross_entropy, grad = of_chunk(logits, x_labels, smoothing)
            loss += chunk_loss
            cross_entropy += chunk_cross_entropy

            # Back through the projection.
            is_scored = x_labels[:, None] != PAD
            vector_grads.append(grad @ matrix * is_scored)
            weight_grad += grad.T @ (x * is_scored)
        ctx.save_for_backward(torch.cat(vector_grads), weight_grad)
        ctx.mark_non_differentiable(cross_entropy)
        return loss, cross_entropy

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        vector_grad, weight_grad = ctx.saved_tensors
        return vector_grad * grad_loss, weight_grad * grad_loss, None, None, None


def projected_cross_entropy(
    vectors: Tensor,
    weight: Tensor,
    labels: Tensor,
    smoothing: float,
    of_chunk: LossesAndGradient = losses_and_gradient_in_place,
) -> tuple[Tensor, Tensor]:
    """Replace `label_smoothed_cross_entropy(vectors @ weight.T, labels, smoothing)` of training/objective.py.

    Vectors (N, D), projection matrix (V, D), labels (N,) → the loss to minimize and the cross-entropy without
    smoothing, both summed over the labels that are not PAD, in nats. of_chunk computes them for some of the rows.
    """
    losses = _ProjectedCrossEntropy.apply(vectors, weight, labels, smoothing, of_chunk)  # type: ignore[no-untyped-call]
    loss, cross_entropy = losses
    return loss, cross_entropy
