"""`PackedBatch`: a batch as the fast forward pass takes it, by its rows and their layout."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dataset import FlatRows, IdList, to_device
from fast.attention import Layout, PaddedLayout, RangeLayout
from fast.packing import ROUND, next_multiple
from pairs.tables import Ints, places_of
from tapis.config import BOS, EOS, PAD


class Shape(NamedTuple):
    """What two batches must have in common for one CUDA graph to compute both."""

    sizes: tuple[int, ...]
    """Of the tensors, in the order of `PackedBatch.tensors`"""
    longest: int


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
    """Positions of the longest sentence on either side; in ranges, rounded up, so that batches have few shapes"""
    n_tgt: int
    """Target tokens; the loss is divided by their number"""
    n_tokens: int
    """Source and target tokens"""
    flat: Tensor = field(default_factory=lambda: torch.zeros(0), repr=False, compare=False)
    """After `pinned`: all tensors one after the other, int32, in memory that a GPU copies from"""

    @classmethod
    def of(
        cls, sources: Sequence[IdList], targets: Sequence[IdList], in_ranges: bool = False, unit: int = ROUND
    ) -> "PackedBatch":
        """Pack the token ids of B pairs on the CPU, for attention in ranges or with padding.

        The tokens, positions and labels are those of `dataset.collate`. M and N are multiples of unit.
        """
        src, tgt = FlatRows.of(sources), FlatRows.of(targets)
        src_lengths, tgt_lengths = src.lengths + 1, tgt.lengths + 1
        m, n = (next_multiple(int(lengths.sum()), unit) for lengths in (src_lengths, tgt_lengths))
        layout = RangeLayout if in_ranges else PaddedLayout
        longest = int(max(src_lengths.max(), tgt_lengths.max()))
        return cls(
            src=_with_end(src, m),
            src_positions=_positions(src_lengths, m),
            tgt=_with_start(tgt, n),
            tgt_positions=_positions(tgt_lengths, n),
            labels=_with_end(tgt, n),
            layout=layout.of(src_lengths, tgt_lengths, unit),
            longest=next_multiple(longest) if in_ranges else longest,
            n_tgt=int(tgt_lengths.sum()),
            n_tokens=int(src_lengths.sum() + tgt_lengths.sum()),
        )

    def to(self, device: torch.device) -> "PackedBatch":
        """Return a copy on `device`: with `flat`, by a single copy."""
        if len(self.flat):
            return self.read_from(self.flat.to(device, non_blocking=True))()
        return replace(
            self,
            src=to_device(self.src, device),
            src_positions=to_device(self.src_positions, device),
            tgt=to_device(self.tgt, device),
            tgt_positions=to_device(self.tgt_positions, device),
            labels=to_device(self.labels, device),
            layout=self.layout.to(device),
        )

    # In ranges, for CUDA graphs

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors of a batch in ranges."""
        assert isinstance(self.layout, RangeLayout)
        return [self.src, self.src_positions, self.tgt, self.tgt_positions, self.labels, *self.layout.tensors]

    @property
    def shape(self) -> Shape:
        """Return what decides which graph computes the batch."""
        return Shape(tuple(map(len, self.tensors)), self.longest)

    def pinned(self) -> "PackedBatch":
        """Return the same batch with `flat`."""
        return replace(self, flat=torch.cat([tensor.int() for tensor in self.tensors]).pin_memory())

    def read_from(self, flat: Tensor) -> Callable[[], "PackedBatch"]:
        """Return what makes of an array like `flat` on a GPU, whatever it holds by then, a batch of this shape."""
        sizes = self.shape.sizes
        n_ids = sum(sizes[:5])

        def read() -> PackedBatch:
            src, src_positions, tgt, tgt_positions, labels = torch.split(flat[:n_ids].long(), list(sizes[:5]))
            layout = RangeLayout(*torch.split(flat[n_ids:], list(sizes[5:])))
            return replace(
                self,
                src=src,
                src_positions=src_positions,
                tgt=tgt,
                tgt_positions=tgt_positions,
                labels=labels,
                layout=layout,
            )

        return read


def _with_end(sentences: FlatRows, n_rows: int) -> Tensor:
    """Return the ids of B sentences, each closed by EOS, and then PAD: (n_rows,)."""
    rows = np.full(n_rows, PAD)
    number = np.arange(len(sentences))  # of ends before that of each sentence
    rows[_places(sentences)] = sentences.ids
    rows[sentences.ends + number] = EOS
    return torch.from_numpy(rows)


def _with_start(sentences: FlatRows, n_rows: int) -> Tensor:
    """Return the ids of B sentences, each after BOS, and then PAD: (n_rows,)."""
    rows = np.full(n_rows, PAD)
    number = np.arange(len(sentences))
    rows[_places(sentences) + 1] = sentences.ids
    rows[sentences.starts + number] = BOS
    return torch.from_numpy(rows)


def _places(sentences: FlatRows) -> Ints:
    """Return where the ids of sentences stand if each sentence has one more id behind it: (N,)."""
    return np.arange(len(sentences.ids)) + np.repeat(np.arange(len(sentences)), sentences.lengths)


def _positions(lengths: Ints, n_rows: int) -> Tensor:
    """lengths (B,) → (n_rows,) the position of each token in its sentence, then 0."""
    positions = np.zeros(n_rows, dtype=np.int64)
    tokens = places_of(np.zeros_like(lengths), lengths)
    positions[: len(tokens)] = tokens
    return torch.from_numpy(positions)
