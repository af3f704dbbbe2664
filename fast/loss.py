"""The projection and the label-smoothed cross-entropy in one, without the logits of a whole batch in memory."""

from typing import Any

import torch
from torch import Tensor

from config import PAD

CHUNK = 1024  # target tokens whose logits exist at once


class _ProjectedCrossEntropy(torch.autograd.Function):
    """The gradient of the loss is known in closed form, and the forward pass computes it.

    The logits, their softmax and their gradient, each (N, V), exist for CHUNK tokens at a time and in one place. When
    they were written out whole, in fp32 and several times over, they took a fifth of a step.
    """

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        matrix = weight.to(vectors.dtype)
        weight_grad = torch.zeros_like(weight)
        vector_grads = []
        loss = torch.zeros((), device=labels.device)
        cross_entropy = torch.zeros((), device=labels.device)
        slice_size = CHUNK // 8 if vectors.device.type == "cpu" else CHUNK  # what stays in a CPU's cache
        for x, x_labels in zip(torch.split(vectors, CHUNK), torch.split(labels, CHUNK), strict=True):
            is_scored = x_labels[:, None] != PAD
            # Project. This tensor holds the logits first, and their gradient in the end.
            grad = x @ matrix.T  # (CHUNK, V)
            for start in range(0, len(grad), slice_size):
                part = grad[start : start + slice_size]
                label = x_labels[start : start + slice_size, None]
                scored = is_scored[start : start + slice_size]

                # Sum up both losses: log Σ exp(logits) − logit of the label, and with the smoothed target.
                logits = part.float()
                logits -= logits.amax(dim=-1, keepdim=True)
                chosen = logits.gather(1, label)
                mean = logits.mean(dim=-1, keepdim=True)
                total = logits.exp_().sum(dim=-1, keepdim=True)
                cross_entropy += ((total.log() - chosen) * scored).sum()
                loss += ((total.log() - (1 - smoothing) * chosen - smoothing * mean) * scored).sum()

                # d loss / d logits = softmax − smoothed target.
                logits.div_(total).sub_(smoothing / len(weight))
                part.copy_(logits.scatter_add_(1, label, torch.full_like(chosen, smoothing - 1)))

            # Back through the projection.
            vector_grads.append(grad @ matrix * is_scored)
            weight_grad += grad.T @ (x * is_scored)
        ctx.save_for_backward(torch.cat(vector_grads), weight_grad)
        ctx.mark_non_differentiable(cross_entropy)
        return loss, cross_entropy

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None]:
        vector_grad, weight_grad = ctx.saved_tensors
        return vector_grad * grad_loss, weight_grad * grad_loss, None, None


def projected_cross_entropy(vectors: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Replaces `label_smoothed_cross_entropy(vectors @ weight.T, labels, smoothing)` of training/objective.py.

    Vectors (N, D), projection matrix (V, D), labels (N,) → the loss to minimize and the cross-entropy without
    smoothing, both summed over the labels that are not PAD, in nats.
    """
    losses = _ProjectedCrossEntropy.apply(vectors, weight, labels, smoothing)  # type: ignore[no-untyped-call]
    loss, cross_entropy = losses
    return loss, cross_entropy
