"""Pairs of texts → token ids → batches: bucketed by length on both sides, within a token budget, padded, masked.

`EncodedPairs` holds a part's ids; `batches` deals them out anew in each epoch, as a pure function of seed and epoch;
`collate` makes the tensors of one batch, and is the one place where the target is shifted for teacher forcing;
`padding_mask` and `causal_mask` say who may attend to whom (True = may attend).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from config import BOS, EOS, PAD
from tokenizer import Tokenizer

Ints = NDArray[np.int64]


def padding_mask(ids: Tensor) -> Tensor:
    """ids (B, S) → (B, 1, 1, S): every position may attend to the tokens, none to the padding."""
    return (ids != PAD)[:, None, None, :]


def causal_mask(size: int, device: torch.device | None = None) -> Tensor:
    """(1, 1, T, T): a position may attend to itself and to those before it."""
    return torch.ones(size, size, dtype=torch.bool, device=device).tril()[None, None]


@dataclass(frozen=True)
class Batch:
    """The tensors of B sentence pairs, all int64 or bool on one device."""

    src: Tensor
    """(B, S) source ids, each row closed by EOS and padded"""
    tgt: Tensor
    """(B, T) what the decoder reads: BOS, then the target"""
    labels: Tensor
    """(B, T) what it must say next: the target, then EOS"""
    src_mask: Tensor
    """(B, 1, 1, S)"""
    tgt_mask: Tensor
    """(B, 1, T, T)"""
    n_tgt: int
    """Target tokens that are not padding; the loss is divided by their number"""
    n_tokens: int
    """Source and target tokens that are not padding"""

    def to(self, device: torch.device) -> "Batch":
        move = {name: getattr(self, name).to(device) for name in ("src", "tgt", "labels", "src_mask", "tgt_mask")}
        return Batch(**move, n_tgt=self.n_tgt, n_tokens=self.n_tokens)


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """Rows of ids → (B, longest), padded on the right."""
    padded = np.full((len(rows), max(map(len, rows))), PAD, dtype=np.int64)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return torch.from_numpy(padded)


def collate(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Batch:
    """Token ids of B pairs → their batch on the CPU."""
    src = pad([[*source, EOS] for source in sources])
    both = pad([[BOS, *target, EOS] for target in targets])
    labels = both[:, 1:]
    tgt = both[:, :-1].masked_fill(labels == PAD, PAD)  # the EOS of a shorter row is no input
    n_tgt = int((labels != PAD).sum())
    return Batch(
        src=src,
        tgt=tgt,
        labels=labels,
        src_mask=padding_mask(src),
        tgt_mask=padding_mask(tgt) & causal_mask(tgt.size(1)),
        n_tgt=n_tgt,
        n_tokens=n_tgt + int((src != PAD).sum()),
    )


class EncodedPairs:
    """The token ids of a part, and how long each pair is with its EOS on either side."""

    def __init__(self, pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer, max_length: int | None = None) -> None:
        """Pairs with a side of more than max_length tokens are left out, and kept as texts in `too_long`."""
        encoded = zip(tokenizer.encode([p[0] for p in pairs]), tokenizer.encode([p[1] for p in pairs]), strict=True)
        self.too_long: list[tuple[str, str]] = []
        self.sources, self.targets = [], []
        for pair, (source, target) in zip(pairs, encoded, strict=True):
            if max_length is not None and max(len(source), len(target)) > max_length:
                self.too_long.append(pair)
            else:
                self.sources.append(np.array(source, dtype=np.int32))
                self.targets.append(np.array(target, dtype=np.int32))
        self.src_lengths: Ints = np.array([len(ids) + 1 for ids in self.sources], dtype=np.int64)
        self.tgt_lengths: Ints = np.array([len(ids) + 1 for ids in self.targets], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.sources)

    def batch(self, rows: Ints) -> Batch:
        return collate([self.sources[i] for i in rows], [self.targets[i] for i in rows])


def batches(pairs: EncodedPairs, batch_tokens: int, seed: int, epoch: int) -> list[Ints]:
    """The rows of each batch of an epoch: a pure function of the pairs, the budget, the seed and the epoch.

    Rows are shuffled, then ordered by their longer side and, where that is equal, by how much longer one side is than
    the other, up and down in turn, so that neighbours are alike on both sides. A batch takes neighbours while its
    sentences times its longest side stay within batch_tokens; last, the batches are shuffled. Which lengths stand side
    by side is the same in every epoch, and with it the number of batches; which of the equally long pairs meet is not.
    """
    random = np.random.default_rng((seed, epoch))
    order = random.permutation(len(pairs))
    src, tgt = pairs.src_lengths[order], pairs.tgt_lengths[order]
    longer = np.maximum(src, tgt)
    ranks = np.lexsort((np.where(longer % 2, src - tgt, tgt - src), longer))
    order, longer = order[ranks], longer[ranks]
    cut, start, longest = [], 0, 0
    for i, length in enumerate(longer.tolist()):
        longest = max(longest, length)
        if i > start and (i + 1 - start) * longest > batch_tokens:
            cut.append(i)
            start, longest = i, length
    dealt = np.split(order, cut)
    return [dealt[i] for i in random.permutation(len(dealt))]


def padding_share(pairs: EncodedPairs, dealt: Sequence[Ints]) -> float:
    """The share of positions, source and target, that hold padding."""
    filled = sum(int(lengths[rows].sum()) for rows in dealt for lengths in (pairs.src_lengths, pairs.tgt_lengths))
    positions = sum(len(r) * int(lengths[r].max()) for r in dealt for lengths in (pairs.src_lengths, pairs.tgt_lengths))
    return 1 - filled / positions
