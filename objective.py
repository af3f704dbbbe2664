"""What a training minimizes, and how: label-smoothed cross-entropy, the learning rate's schedule, the optimizers."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from config import PAD, Config
from dataset import Batch
from model import Transformer

CHUNK = 256  # target tokens whose logits exist at once


def learning_rate(step: int, total: int, config: Config) -> float:
    """The rate at a step from 1 to total: linear warm-up to config.lr, then decay.

    inverse_sqrt is section 5.3's, lr · √(warmup / step); cosine goes to zero at the end (Loshchilov and Hutter 2017,
    arXiv 1608.03983, without restarts).
    """
    warmup = min(config.warmup_steps, total // 10)
    if step <= warmup:
        return config.lr * step / warmup
    if config.schedule == "inverse_sqrt":
        return config.lr * math.sqrt(max(1, warmup) / step)
    return config.lr * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup + 1)))


def optimizers(model: Transformer, config: Config) -> list[torch.optim.Optimizer]:
    """What updates the weights, each of them by one optimizer; all go by the same rate.

    Adam is section 5.3's (Kingma and Ba 2015, arXiv 1412.6980). Muon (Jordan et al. 2024) turns a matrix's momentum
    into the nearest orthogonal one, so that all its directions learn equally fast; scaled to Adam's step (Liu et al.
    2025, arXiv 2502.16982, section 2.2), it takes Adam's rate. Its products lengthen a small model's training by
    a sixth, and it earns them back: after 12 epochs of Multi30k en-de, 34.6 BLEU for Adam's 33.1. Three iterations
    towards the orthogonal matrix learn as much as torch's five (benchmarks/RESULTS.md).
    """
    blocks = [*model.encoder.parameters(), *model.decoder.parameters()]
    matrices = [parameter for parameter in blocks if parameter.dim() == 2 and config.optimizer == "muon"]
    of_muon = set(matrices)
    others = [parameter for parameter in model.parameters() if parameter not in of_muon]
    adam = torch.optim.Adam(others, betas=(0.9, 0.98), eps=1e-9, fused=True)
    if not matrices:
        return [adam]
    return [adam, torch.optim.Muon(matrices, weight_decay=0.0, ns_steps=3, adjust_lr_fn="match_rms_adamw")]


class _ProjectedLoss(torch.autograd.Function):
    """label_smoothed_cross_entropy, whose gradient is known in closed form and taken in the forward pass.

    The logits, their softmax and their gradient, each (N, V), exist for CHUNK tokens at a time: written out whole, in
    fp32 and several times over, they took a fifth of a step.
    """

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        dtype = vectors.dtype
        matrix, weight_grad = weight.to(dtype), torch.zeros_like(weight)
        vector_grads = []
        loss, plain = (torch.zeros((), device=labels.device) for _ in range(2))
        for x, label in zip(torch.split(vectors, CHUNK), torch.split(labels, CHUNK), strict=True):
            logits = (x @ matrix.T).float()
            logits -= logits.amax(dim=-1, keepdim=True)
            chosen, mean = logits.gather(1, label[:, None]), logits.mean(dim=-1, keepdim=True)
            total = logits.exp_().sum(dim=-1, keepdim=True)
            plain += (total.log() - chosen).sum()
            loss += (total.log() - (1 - smoothing) * chosen - smoothing * mean).sum()
            # d loss / d logits = softmax − smoothed target
            grad = logits.div_(total).sub_(smoothing / len(weight))
            grad = grad.scatter_add_(1, label[:, None], torch.full_like(chosen, smoothing - 1)).to(dtype)
            vector_grads.append(grad @ matrix)
            weight_grad += grad.T @ x
        ctx.save_for_backward(torch.cat(vector_grads), weight_grad)
        ctx.mark_non_differentiable(plain)
        return loss, plain

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None]:
        vector_grad, weight_grad = ctx.saved_tensors
        return vector_grad * grad_loss, weight_grad * grad_loss, None, None


def label_smoothed_cross_entropy(
    vectors: Tensor, weight: Tensor, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Vectors (N, D), projection (V, D), labels (N,) → the loss to minimize and the plain cross-entropy, both summed.

    In nats. The smoothed target gives 1 − ε to the label and spreads ε evenly over the vocabulary (section 5.4; Szegedy
    et al. 2016, arXiv 1512.00567, section 7). Perplexity is exp of the plain one's mean.
    """
    if torch.is_autocast_enabled(vectors.device.type):
        vectors = vectors.to(torch.get_autocast_dtype(vectors.device.type))
    loss, plain = _ProjectedLoss.apply(vectors, weight, labels, smoothing)  # type: ignore[no-untyped-call]
    return loss, plain


class BatchLoss(nn.Module):
    """A model with what it minimizes, as one module: processes that share a training wrap it."""

    def __init__(self, model: Transformer, smoothing: float) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Both losses of a batch, summed over its target tokens; positions of padding are not even projected."""
        memory = self.model.encode(batch.src, batch.src_mask)
        vectors = self.model.decode(batch.tgt, memory, batch.src_mask, batch.tgt_mask)
        scored = batch.labels != PAD
        return label_smoothed_cross_entropy(
            vectors[scored], self.model.projection.linear.weight, batch.labels[scored], self.smoothing
        )
