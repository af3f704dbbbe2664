"""What a training minimizes, and how: label-smoothed cross-entropy, the learning rate's schedule, the optimizers."""

import math
from typing import Any

import torch
from torch import Tensor

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
    2025, arXiv 2502.16982, section 2.2), it takes Adam's rate. Its products cost a fifth of a small model's step, and
    the model learns in 12 epochs what Adam teaches it in 18 (benchmarks/RESULTS.md).
    """
    blocks = [*model.encoder.parameters(), *model.decoder.parameters()]
    matrices = [parameter for parameter in blocks if parameter.dim() == 2 and config.optimizer == "muon"]
    others = [parameter for parameter in model.parameters() if parameter not in set(matrices)]
    adam = torch.optim.Adam(others, betas=(0.9, 0.98), eps=1e-9, fused=True)
    return [adam, torch.optim.Muon(matrices, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")] if matrices else [adam]


class _ProjectedLoss(torch.autograd.Function):
    """label_smoothed_cross_entropy, whose gradient is known in closed form and taken in the forward pass.

    The logits, their softmax and their gradient, each (N, V), exist for CHUNK tokens at a time: written out whole, in
    fp32 and several times over, they took a fifth of a step.
    """

    @staticmethod
    def forward(  # noqa: PLR0917  (autograd passes all by position)
        ctx: Any, vectors: Tensor, weight: Tensor, labels: Tensor, smoothing: float, r_drop: float
    ) -> tuple[Tensor, Tensor]:
        dtype, passes = vectors.dtype, len(vectors)
        matrix, weight_grad = weight.to(dtype), torch.zeros_like(weight)
        vector_grads = []
        loss, plain = (torch.zeros((), device=labels.device) for _ in range(2))
        for x, label in zip(torch.split(vectors, CHUNK, dim=1), torch.split(labels, CHUNK), strict=True):
            logits = (x @ matrix.T).float()  # (P, CHUNK, V)
            logits -= logits.amax(dim=-1, keepdim=True)
            index = label[None, :, None].expand(passes, -1, 1)
            chosen, mean = logits.gather(2, index), logits.mean(dim=-1, keepdim=True)
            apart = logits[:-1] - logits[1:]  # (P − 1, CHUNK, V)
            total = logits.exp_().sum(dim=-1, keepdim=True)
            plain += (total.log() - chosen).sum() / passes
            loss += (total.log() - (1 - smoothing) * chosen - smoothing * mean).sum() / passes
            softmax, pull = logits.div_(total), torch.zeros(())
            if passes == 2:
                apart = (apart - total[:1].log() + total[1:].log()).squeeze(0)  # log p − log q
                difference = softmax[0] - softmax[1]
                loss += r_drop / 4 * (difference * apart).sum()
                pull = softmax * (apart - (softmax * apart).sum(dim=-1, keepdim=True)) + difference
                pull *= r_drop / 4 * torch.tensor([1.0, -1.0], device=labels.device)[:, None, None]
            # d loss / d logits = softmax − smoothed target, and that of the pull of each pass towards the other
            grad = softmax.sub_(smoothing / len(weight))
            grad = grad.scatter_add_(2, index, torch.full_like(chosen, smoothing - 1)).div_(passes).add_(pull)
            grad = grad.to(dtype)
            vector_grads.append(grad @ matrix)
            weight_grad += grad.flatten(0, 1).T @ x.flatten(0, 1)
        ctx.save_for_backward(torch.cat(vector_grads, dim=1), weight_grad)
        ctx.mark_non_differentiable(plain)
        return loss, plain

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        vector_grad, weight_grad = ctx.saved_tensors
        return vector_grad * grad_loss, weight_grad * grad_loss, None, None, None


def label_smoothed_cross_entropy(
    vectors: Tensor, weight: Tensor, labels: Tensor, smoothing: float, r_drop: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Vectors (P, N, D), projection (V, D), labels (N,) → the loss to minimize and the plain cross-entropy.

    Both are summed over the tokens, in nats, and are the mean of P passes, one or two. The smoothed target gives 1 − ε
    to the label and spreads ε evenly over the vocabulary (section 5.4; Szegedy et al. 2016, arXiv 1512.00567, section
    7). Perplexity is exp of the plain one's mean. With two passes r_drop / 4 · (KL(p‖q) + KL(q‖p)) comes on top, half
    of R-Drop's loss (Liang et al. 2021, arXiv 2106.14448, formula 4): dropout must not change what the model says.
    """
    if torch.is_autocast_enabled(vectors.device.type):
        vectors = vectors.to(torch.get_autocast_dtype(vectors.device.type))
    loss, plain = _ProjectedLoss.apply(vectors, weight, labels, smoothing, r_drop)  # type: ignore[no-untyped-call]
    return loss, plain


def batch_loss(model: Transformer, batch: Batch, smoothing: float, r_drop: float = 0.0) -> tuple[Tensor, Tensor]:
    """Both losses of a batch, summed over its target tokens; positions of padding are not even projected.

    With r_drop the batch goes through the model twice, dropout being another each time.
    """
    passes = 2 if r_drop else 1
    src, tgt, src_mask, tgt_mask = (
        torch.cat([tensor] * passes) for tensor in (batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    )
    vectors = model.decode(tgt, model.encode(src, src_mask), src_mask, tgt_mask)
    scored = batch.labels != PAD
    return label_smoothed_cross_entropy(
        vectors.view(passes, *batch.tgt.shape, -1)[:, scored],
        model.projection.linear.weight,
        batch.labels[scored],
        smoothing,
        r_drop,
    )
