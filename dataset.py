"""Pairs of texts → token ids → batches: bucketed by length on both sides, within a token budget, padded, masked.

`EncodedPairs` holds a part's ids; `batches` deals them out anew in each epoch, as a pure function of seed and epoch;
`collate` makes the tensors of one batch, and is the one place where the target is shifted for teacher forcing;
`padding_mask` and `causal_mask` say who may attend to whom (True = may attend).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from config import BOS, EOS, PAD
from fast.packing import Packing, Packings, to_device
from system.files import digest
from system.terminal import progress_bar
from text.tables import Ints, Pairs, Ragged, chunks, table
from text.tokenizer import Tokenizer

IdList = Sequence[int] | Ints


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
    packings: Packings
    """Where the tokens stand in tgt, and in src"""
    n_tgt: int
    """Target tokens that are not padding; the loss is divided by their number"""
    n_tokens: int
    """Source and target tokens that are not padding"""

    def to(self, device: torch.device) -> "Batch":
        """The same batch there; to a GPU by pinned memory, so that nothing waits for the copy."""
        names = ("src", "tgt", "labels", "src_mask", "tgt_mask")
        moved = {name: to_device(getattr(self, name), device) for name in names}
        tgt, src = self.packings
        return Batch(**moved, packings=(tgt.to(device), src.to(device)), n_tgt=self.n_tgt, n_tokens=self.n_tokens)


def pad(rows: Sequence[IdList], before: Sequence[int] = (), after: Sequence[int] = (EOS,)) -> Tensor:
    """Rows of ids, each between before and after → (B, longest), padded on the right."""
    padded = np.full((len(rows), max(map(len, rows)) + len(before) + len(after)), PAD, dtype=np.int64)
    padded[:, : len(before)] = before
    for i, row in enumerate(rows):
        end = len(before) + len(row)
        padded[i, len(before) : end] = row
        padded[i, end : end + len(after)] = after
    return torch.from_numpy(padded)


def collate(sources: Sequence[IdList], targets: Sequence[IdList]) -> Batch:
    """Token ids of B pairs → their batch on the CPU."""
    src, both = pad(sources), pad(targets, before=[BOS])
    labels = both[:, 1:]
    tgt = both[:, :-1].masked_fill(labels == PAD, PAD)  # the EOS of a shorter row is no input
    packings = Packing.of(tgt != PAD), Packing.of(src != PAD)
    masks = padding_mask(src), padding_mask(tgt) & causal_mask(tgt.size(1))
    n_tgt, n_src = (packing.tokens for packing in packings)
    return Batch(src, tgt, labels, *masks, packings, n_tgt, n_tokens=n_tgt + n_src)


def split_tokens(rows: Sequence[IdList], merged_from: Ints, share: float, random: np.random.Generator) -> list[Ints]:
    """Undoes merges at random: each token falls with that probability into the two it was made from, and so do those.

    A word then comes in many spellings, of which the model learns what its parts mean: the effect of BPE-dropout
    (Provilkov et al. 2020, arXiv 1910.13267), which leaves merges out while it encodes.
    merged_from is `Tokenizer.merged_from`.
    """
    ids, ends = np.concatenate(rows).astype(np.int64), np.cumsum([len(row) for row in rows])
    row_of = np.repeat(np.arange(len(rows)), np.diff(ends, prepend=0))
    fresh = np.ones(len(ids), dtype=bool)
    while (falls := fresh & (merged_from[ids, 0] >= 0) & (random.random(len(ids)) < share)).any():
        left = np.flatnonzero(falls) + np.arange(falls.sum())  # where the first of each two comes to stand
        halves, parts = merged_from[ids[falls]], 1 + falls
        ids, row_of, fresh = np.repeat(ids, parts), np.repeat(row_of, parts), np.repeat(falls, parts)
        ids[left], ids[left + 1] = halves.T
    return np.split(ids, np.searchsorted(row_of, np.arange(1, len(rows))))


SCHEMA = pa.schema({"src": pa.list_(pa.int32()), "tgt": pa.list_(pa.int32())})


class EncodedPairs:
    """The token ids of a part, memory-mapped, and how long each pair is with its EOS on either side."""

    def __init__(self, pairs: Pairs, tokenizer: Tokenizer, max_length: int | None = None) -> None:
        """Pairs with a side of more than max_length tokens are left out; their places in pairs are in `too_long`."""

        def encoded() -> Iterator[dict[str, Any]]:
            with progress_bar("encoding", len(pairs), "pair", shown=len(pairs) > 50_000) as bar:
                for texts in chunks(pairs, 1000):
                    yield {name: tokenizer.encode([text[i] for text in texts]) for i, name in enumerate(SCHEMA.names)}
                    bar.update(len(texts))

        rows = table("tokens", digest(pairs.key, tokenizer.to_json()), SCHEMA, encoded)
        self.sources, self.targets = (Ragged(rows.data.column(name)) for name in SCHEMA.names)
        self.own: dict[int, list[int]] = {}  # by row, targets that take the place of those (`Training.distill`)
        lengths = self.sources.lengths(), self.targets.lengths()
        longer = np.maximum(*lengths)
        fits = longer <= (max_length if max_length is not None else longer.max(initial=0))
        self.rows, self.too_long = np.flatnonzero(fits), np.flatnonzero(~fits)
        self.src_lengths, self.tgt_lengths = (side[self.rows] + 1 for side in lengths)
        self.tokenizer = tokenizer

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, rows: Ints, split: float = 0.0, random: np.random.Generator | None = None) -> Batch:
        """The pairs of these rows; of their tokens, a share `split` is split anew by random."""
        chosen = self.rows[rows].tolist()
        sides: list[Sequence[IdList]] = [[side[i] for i in chosen] for side in (self.sources, self.own or self.targets)]
        if random and split:
            sides = [split_tokens(side, self.tokenizer.merged_from, split, random) for side in sides]
        return collate(*sides)


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
    cut, start = [], 0
    while start < len(longer):
        n = min(max(1, batch_tokens // int(longer[start])), len(longer) - start)
        while n > 1 and n * longer[start + n - 1] > batch_tokens:
            n -= 1
        cut.append(start := start + n)
    dealt = np.split(order, cut[:-1])
    return [dealt[i] for i in random.permutation(len(dealt))]


def padding_share(pairs: EncodedPairs, dealt: Sequence[Ints]) -> float:
    """The share of positions, source and target, that hold padding, before any token is split."""
    filled = sum(int(lengths[rows].sum()) for rows in dealt for lengths in (pairs.src_lengths, pairs.tgt_lengths))
    positions = sum(len(r) * int(lengths[r].max()) for r in dealt for lengths in (pairs.src_lengths, pairs.tgt_lengths))
    return 1 - filled / positions
