"""What a training minimizes, and how: label-smoothed cross-entropy, the learning rate's schedule, the optimizers."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from config import PAD, Config
from dataset import Batch
from model import Transformer, to_autocast_dtype

CHUNK = 1024  # target tokens whose logits exist at once
MOMENTUM = 0.95  # of Muon


def learning_rate(step: int, total: int, config: Config) -> float:
    """The rate at a step from 1 to total: linear warm-up to config.lr, then decay.

    inverse_sqrt is section 5.3's, lr · √(warmup / step). linear stays at lr for half of the steps and then goes to
    zero in a straight line (a constant rate and a cooldown: Hägele et al. 2024, arXiv 2405.18392), so that the first
    half need not know how many there are.
    """
    warmup = min(config.warmup_steps, total // 10)
    if step <= warmup:
        return config.lr * step / warmup
    if config.schedule == "inverse_sqrt":
        return config.lr * math.sqrt(max(1, warmup) / step)
    return config.lr * min(1.0, 2 * (total - step + 1) / total)


class Muon(torch.optim.Optimizer):
    """Turns a matrix's momentum into the nearest orthogonal one, so that all its directions learn equally fast.

    As Jordan et al. 2024 (kellerjordan.github.io/posts/muon), with Nesterov's momentum, and scaled to Adam's step (Liu
    et al. 2025, arXiv 2502.16982, section 2.2), so that it takes Adam's rate. The same as torch.optim.Muon with
    ns_steps=3 and adjust_lr_fn="match_rms_adamw", whose state it takes over, but of all matrices of a shape at once:
    one by one, they take a CPU 1.3 to 1.7 times as long.
    """

    def __init__(self, matrices: Sequence[nn.Parameter]) -> None:
        super().__init__(matrices, {"lr": 0.0})
        self.alike: dict[tuple[int, ...], list[nn.Parameter]] = {}
        for matrix in matrices:
            self.alike.setdefault(tuple(sorted(matrix.shape)), []).append(matrix)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update, of matrices that all have a gradient."""
        for (rows, columns), matrices in self.alike.items():
            gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
            for matrix in matrices:
                if not self.state[matrix]:
                    self.state[matrix]["momentum_buffer"] = torch.zeros_like(matrix)
            momenta = [self.state[matrix]["momentum_buffer"] for matrix in matrices]
            torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
            ahead = torch._foreach_lerp(gradients, momenta, MOMENTUM)
            upright = [len(x) > rows for x in ahead]
            found = orthogonal(torch.stack([x.T if turn else x for x, turn in zip(ahead, upright, strict=True)]))
            scale = -0.2 * math.sqrt(columns) * self.param_groups[0]["lr"]
            for matrix, x, turn in zip(matrices, found, upright, strict=True):
                matrix.add_(x.T if turn else x, alpha=scale)


def orthogonal(x: Tensor) -> Tensor:
    """Matrices (I, M, N), M ≤ N → about the nearest of which the rows are orthonormal, in bf16.

    Three of Jordan's iterations, X ← aX + b(XXᵀ)X + c(XXᵀ)²X: they learn as much as torch's five.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = (x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)).bfloat16()
    for _ in range(3):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def optimizers(model: Transformer, config: Config) -> list[torch.optim.Optimizer]:
    """What updates the weights, each of them by one optimizer; all go by the same rate.

    Adam is section 5.3's (Kingma and Ba 2015, arXiv 1412.6980). The products of Muon lengthen a small model's training
    by an eighth, and it earns them back: after 12 epochs of Multi30k en-de, 34.6 BLEU for Adam's 33.1
    (benchmarks/RESULTS.md).
    """
    blocks = [*model.encoder.parameters(), *model.decoder.parameters()]
    matrices = [parameter for parameter in blocks if parameter.dim() == 2 and config.optimizer == "muon"]
    of_muon = set(matrices)
    others = [parameter for parameter in model.parameters() if parameter not in of_muon]
    adam = torch.optim.Adam(others, betas=(0.9, 0.98), eps=1e-9, fused=True)
    return [adam, Muon(matrices)] if matrices else [adam]


class _ProjectedLoss(torch.autograd.Function):
    """label_smoothed_cross_entropy, whose gradient is known in closed form and taken in the forward pass.

    The logits, their softmax and their gradient, each (N, V), exist for CHUNK tokens at a time, in one place: written
    out whole, in fp32 and several times over, they took a fifth of a step.
    """

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        matrix, weight_grad = weight.to(vectors.dtype), torch.zeros_like(weight)
        in_cache = CHUNK // 8 if vectors.device.type == "cpu" else CHUNK
        vector_grads = []
        loss, plain = (torch.zeros((), device=labels.device) for _ in range(2))
        for x, xs_labels in zip(torch.split(vectors, CHUNK), torch.split(labels, CHUNK), strict=True):
            grad, xs_scored = x @ matrix.T, xs_labels[:, None] != PAD  # first the logits, then what replaces them
            parts = zip(*(torch.split(y, in_cache) for y in (grad, xs_labels, xs_scored)), strict=True)
            for part, label, scored in parts:
                logits = part.float()
                logits -= logits.amax(dim=-1, keepdim=True)
                chosen, mean = logits.gather(1, label[:, None]), logits.mean(dim=-1, keepdim=True)
                total = logits.exp_().sum(dim=-1, keepdim=True)
                plain += ((total.log() - chosen) * scored).sum()
                loss += ((total.log() - (1 - smoothing) * chosen - smoothing * mean) * scored).sum()
                # d loss / d logits = softmax − smoothed target
                logits.div_(total).sub_(smoothing / len(weight))
                part.copy_(logits.scatter_add_(1, label[:, None], torch.full_like(chosen, smoothing - 1)))
            vector_grads.append(grad @ matrix * xs_scored)
            weight_grad += grad.T @ (x * xs_scored)
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

    In nats; a label that is PAD does not count. The smoothed target gives 1 − ε to the label and spreads ε evenly over
    the vocabulary (section 5.4; Szegedy et al. 2016, arXiv 1512.00567, section 7). Perplexity is exp of the plain one's
    mean.
    """
    loss, plain = _ProjectedLoss.apply(to_autocast_dtype(vectors), weight, labels, smoothing)  # type: ignore[no-untyped-call]
    return loss, plain


class BatchLoss(nn.Module):
    """A model with what it minimizes, as one module: processes that share a training wrap it."""

    def __init__(self, model: Transformer, smoothing: float) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Both losses of a batch, summed over its target tokens; nothing is computed for padding."""
        tgt, src = batch.packings
        memory = self.model.encode(batch.src, batch.src_mask, src)
        vectors = self.model.decode(batch.tgt, memory, batch.src_mask, batch.tgt_mask, packings=batch.packings)
        labels = batch.labels.flatten()[tgt.place]
        labels[tgt.tokens :] = PAD
        return label_smoothed_cross_entropy(vectors, self.model.projection.linear.weight, labels, self.smoothing)
