"""The loss of a batch: what counts, and what does not."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from config import PAD
from dataset import Batch, collate
from fast.forward import PackedBatchLoss
from fast.packed_batch import PackedBatch
from model import Transformer
from training.objective import BatchLoss


def plain(model: Transformer) -> Callable[[Batch], tuple[Tensor, Tensor]]:
    return BatchLoss(model, 0.1)


def packed(model: Transformer) -> Callable[[Batch], tuple[Tensor, Tensor]]:
    loss = PackedBatchLoss(model, 0.1)
    return lambda batch: loss(PackedBatch.of(batch))


@pytest.mark.parametrize("loss_of", [plain, packed])
def test_padding_is_not_scored(
    model: Transformer, loss_of: Callable[[Transformer], Callable[[Batch], tuple[Tensor, Tensor]]]
) -> None:
    together = collate([[50, 51], [52]], [[60], [61, 62, 63]])
    alone = [collate([[50, 51]], [[60]]), collate([[52]], [[61, 62, 63]])]
    loss, cross_entropy = loss_of(model)(together)
    parts = [loss_of(model)(batch) for batch in alone]
    torch.testing.assert_close(loss, parts[0][0] + parts[1][0])
    torch.testing.assert_close(cross_entropy, parts[0][1] + parts[1][1])
    logits = model(together.src, together.tgt, together.src_mask, together.tgt_mask)
    expected = F.cross_entropy(
        logits.flatten(0, 1), together.labels.flatten(), ignore_index=PAD, label_smoothing=0.1, reduction="sum"
    )
    torch.testing.assert_close(loss, expected)
