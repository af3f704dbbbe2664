"""The loss of a batch: what counts, and what does not."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from dataset import collate
from fast.forward import PackedBatchLoss
from fast.packed_batch import PackedBatch
from model import Transformer
from tapis.config import PAD
from training.objective import BatchLoss

Ids = list[list[int]]
Loss = Callable[[Ids, Ids], tuple[Tensor, Tensor]]


def plain(model: Transformer) -> Loss:
    loss = BatchLoss(model, 0.1)
    return lambda sources, targets: loss(collate(sources, targets))


def packed(model: Transformer) -> Loss:
    loss = PackedBatchLoss(model, 0.1)
    return lambda sources, targets: loss(PackedBatch.of(sources, targets))


@pytest.mark.parametrize("loss_of", [plain, packed])
def test_padding_is_not_scored(model: Transformer, loss_of: Callable[[Transformer], Loss]) -> None:
    sources, targets = [[50, 51], [52]], [[60], [61, 62, 63]]
    loss, cross_entropy = loss_of(model)(sources, targets)
    parts = [loss_of(model)([source], [target]) for source, target in zip(sources, targets, strict=True)]
    torch.testing.assert_close(loss, parts[0][0] + parts[1][0])
    torch.testing.assert_close(cross_entropy, parts[0][1] + parts[1][1])
    together = collate(sources, targets)
    logits = model(together.src, together.tgt, together.src_mask, together.tgt_mask)
    expected = F.cross_entropy(
        logits.flatten(0, 1), together.labels.flatten(), ignore_index=PAD, label_smoothing=0.1, reduction="sum"
    )
    torch.testing.assert_close(loss, expected)
