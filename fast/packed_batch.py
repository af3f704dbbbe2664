"""`PackedBatch`: a batch as the fast forward pass takes it, by its rows and their layout."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from config import PAD
from dataset import Batch, to_device
from fast.attention import Layout, PaddedLayout, SequenceLayout
from fast.packing import Packing


@dataclass(frozen=True)
class PackedBatch:
    """The tokens of B sentence pairs, M rows of the sources and N of the targets. All tensors are int64 on one device.

    Rows without a token have the id PAD and position 0.
    """

    src: Tensor
    """(M,) source ids, each sentence closed by EOS"""
    src_positions: Tensor
    """(M,) the position of each in its sentence, from 0"""
    tgt: Tensor
    """(N,) what the decoder reads: BOS, then the target"""
    tgt_positions: Tensor
    """(N,)"""
    labels: Tensor
    """(N,) what the decoder must predict: the target, then EOS"""
    layout: Layout
    """Which rows attend to which"""
    longest: int
    """Positions of the longest sentence on either side"""
    n_tgt: int
    """Target tokens; the loss is divided by their number"""
    n_tokens: int
    """Source and target tokens"""

    @classmethod
    def of(cls, batch: Batch, by_sequences: bool = False) -> "PackedBatch":
        """Pack a batch on the CPU, for attention by sequences or with padding."""
        # On the CPU: on a GPU, counting the tokens would wait for it.
        src_packing, tgt_packing = Packing.of(batch.src != PAD), Packing.of(batch.tgt != PAD)
        src, src_positions = _rows(batch.src, src_packing)
        tgt, tgt_positions = _rows(batch.tgt, tgt_packing)
        labels, _ = _rows(batch.labels, tgt_packing)
        layout: Layout = (
            SequenceLayout.of(batch, len(src), len(tgt))
            if by_sequences
            else PaddedLayout(src_packing, tgt_packing, batch.src_mask, batch.tgt_mask)
        )
        longest = max(batch.src.size(1), batch.tgt.size(1))
        return cls(src, src_positions, tgt, tgt_positions, labels, layout, longest, batch.n_tgt, batch.n_tokens)

    def to(self, device: torch.device) -> "PackedBatch":
        """Return a copy on `device`."""
        return replace(
            self,
            src=to_device(self.src, device),
            src_positions=to_device(self.src_positions, device),
            tgt=to_device(self.tgt, device),
            tgt_positions=to_device(self.tgt_positions, device),
            labels=to_device(self.labels, device),
            layout=self.layout.to(device),
        )


def _rows(ids: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
    """ids (B, T) → ids and positions (N,) of the rows."""
    is_token = torch.arange(len(packing.position_of_row)) < packing.n_tokens
    rows = torch.where(is_token, ids.flatten()[packing.position_of_row], PAD)
    return rows, packing.position_of_row % ids.size(1)
