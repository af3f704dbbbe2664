"""Dropout and layer normalization in fast forms, which take the place of the plain modules of a model."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model import LayerNormalization


class ByteDropout(nn.Dropout):
    """Replaces `nn.Dropout`: sets a share p of x to zero and scales the rest up to the same mean.

    On a CPU, torch draws one Bernoulli number at a time on one thread, which took a third of a training step. Here one
    64-bit random word decides over eight numbers, a byte each. p is rounded to 1/256, and the scale is that of the
    rounded p, in the type of x. On other devices this is `nn.Dropout`.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        dropped = round(256 * self.p)  # of the 256 values of a byte
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
        # Compared into bytes: comparing into bool takes ten times as long.
        kept = words.view(torch.uint8)[: x.numel()].view(x.shape).ge_(dropped)
        return x * kept.to(x.dtype).mul_(256 / (256 - dropped))


class FusedLayerNormalization(LayerNormalization):
    """Replaces `LayerNormalization` by torch's single operation for it, which takes a third of the time on a CPU."""

    def __init__(self, replaced: LayerNormalization) -> None:
        nn.Module.__init__(self)
        self.eps = replaced.eps
        self.alpha = replaced.alpha
        self.bias = replaced.bias

    def forward(self, x: Tensor) -> Tensor:
        alpha, bias = self.alpha.to(x.dtype), self.bias.to(x.dtype)  # --shard in bf16 has them in bf16
        return F.layer_norm(x, alpha.shape, alpha, bias, self.eps)


def install_fast_modules(model: nn.Module) -> None:
    """Put these modules in the place of the plain ones. Parameters, their names and their order stay the same."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Dropout:
                setattr(parent, name, ByteDropout(child.p).train(child.training))
            elif type(child) is LayerNormalization:
                setattr(parent, name, FusedLayerNormalization(child).train(child.training))
