"""What a training minimizes, and how fast: label-smoothed cross-entropy and the learning rate's schedule."""

import math

from torch import Tensor

from config import PAD, Config
from dataset import Batch
from model import Transformer


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


def label_smoothed_cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Logits (N, V) and labels (N,) → the loss to minimize and the plain cross-entropy, both summed, in nats.

    The smoothed target gives 1 − ε to the label and spreads ε evenly over the vocabulary (section 5.4; Szegedy et al.
    2016, arXiv 1512.00567, section 7). Perplexity is exp of the plain one's mean.
    """
    log_probs = logits.float().log_softmax(dim=-1)
    plain = -log_probs.gather(1, labels[:, None]).sum()
    if smoothing == 0:
        return plain, plain.detach()
    uniform = -log_probs.mean(dim=-1).sum()
    return (1 - smoothing) * plain + smoothing * uniform, plain.detach()


def batch_loss(model: Transformer, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor]:
    """Both losses of a batch, summed over its target tokens; positions of padding are not even projected."""
    memory = model.encode(batch.src, batch.src_mask)
    vectors = model.decode(batch.tgt, memory, batch.src_mask, batch.tgt_mask)
    scored = batch.labels != PAD
    return label_smoothed_cross_entropy(model.project(vectors[scored]), batch.labels[scored], smoothing)
