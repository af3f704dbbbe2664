"""`PackedBatch`: a batch as the fast forward pass takes it, by its rows and their layout."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dataset import IdList, to_device
from fast.attention import Layout, PaddedLayout, SequenceLayout
from fast.packing import round_up
from tapis.config import BOS, EOS, PAD


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
    def of(cls, sources: Sequence[IdList], targets: Sequence[IdList], by_sequences: bool = False) -> "PackedBatch":
        """Pack the token ids of B pairs on the CPU, for attention by sequences or with padding.

        The tokens, positions and labels are those of `dataset.collate`.
        """
        src_lengths, tgt_lengths = (torch.tensor([len(ids) + 1 for ids in side]) for side in (sources, targets))
        n_src, n_tgt = int(src_lengths.sum()), int(tgt_lengths.sum())
        layout = SequenceLayout if by_sequences else PaddedLayout
        return cls(
            src=_rows(n_src, sources, after=EOS),
            src_positions=_positions(n_src, src_lengths),
            tgt=_rows(n_tgt, targets, before=BOS),
            tgt_positions=_positions(n_tgt, tgt_lengths),
            labels=_rows(n_tgt, targets, after=EOS),
            layout=layout.of(src_lengths, tgt_lengths),
            longest=int(max(src_lengths.max(), tgt_lengths.max())),
            n_tgt=n_tgt,
            n_tokens=n_src + n_tgt,
        )

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


def _rows(n_tokens: int, sentences: Sequence[IdList], before: int | None = None, after: int | None = None) -> Tensor:
    """Return the ids of B sentences (N,), each sentence with one more id before or after it, and then PAD."""
    first, last = ([] if one is None else [one] for one in (before, after))
    ids = np.concatenate([part for sentence in sentences for part in (first, sentence, last)])
    rows = np.full(round_up(n_tokens), PAD)
    rows[:n_tokens] = ids
    return torch.from_numpy(rows)


def _positions(n_tokens: int, lengths: Tensor) -> Tensor:
    """lengths (B,) → (N,) the position of each token in its sentence, then 0."""
    first_rows = lengths.cumsum(0) - lengths
    return F.pad(torch.arange(n_tokens) - first_rows.repeat_interleave(lengths), (0, round_up(n_tokens) - n_tokens))
