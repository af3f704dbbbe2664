"""What training minimizes: the label-smoothed cross-entropy of a model's logits, to which teachers may add."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from config import TAUGHT
from dataset import Batch
from model import Transformer
from tapis.config import PAD


def label_smoothed_cross_entropy(
    logits: Tensor, labels: Tensor, smoothing: float, taught: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Logits (…, V), labels (…) → the loss to minimize and the cross-entropy without smoothing, both summed, in nats.

    The smoothed target gives 1 − ε to the label and spreads ε evenly over the vocabulary (section 5.4; Szegedy et al.
    2016, arXiv 1512.00567, section 7). Labels that are PAD do not count. Perplexity is exp of the mean cross-entropy.

    taught (…, V) are the probabilities that teachers give to each token, the share TAUGHT of the target. This is
    word-level knowledge distillation (Kim and Rush 2016, arXiv 1606.07947, section 3.1).
    """
    log_p = logits.float().log_softmax(dim=-1)  # (…, V)
    is_scored = labels != PAD
    log_p_of_label = log_p.gather(-1, labels[..., None]).squeeze(-1)[is_scored]
    log_p_mean = log_p.mean(dim=-1)[is_scored]
    loss = -((1 - smoothing) * log_p_of_label + smoothing * log_p_mean).sum()
    if taught is not None:
        loss = (1 - TAUGHT) * loss - TAUGHT * (taught * log_p).sum(dim=-1)[is_scored].sum()
    return loss, -log_p_of_label.detach().sum()


class BatchLoss(nn.Module):
    """A model and its loss as one module. Processes that share a run wrap it."""

    def __init__(self, model: Transformer, smoothing: float, teachers: Sequence[Transformer] = ()) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.teachers = tuple(teachers)  # not parts of the module: their weights are neither trained nor saved

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Both losses of a batch, summed over its target tokens."""
        logits = self.model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        taught = self.taught(batch) if self.teachers and self.model.training else None
        return label_smoothed_cross_entropy(logits, batch.labels, self.smoothing, taught)

    def taught(self, batch: Batch) -> Tensor:
        """Return the mean of the teachers' probabilities: (B, T, V)."""
        with torch.no_grad():
            logits = [teacher(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask) for teacher in self.teachers]
        return torch.stack([one.float().softmax(dim=-1) for one in logits]).mean(dim=0)
