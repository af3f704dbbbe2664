"""Sentence pairs → token ids → batches: bucketed by length on both sides, within a token budget, padded and masked.

`EncodedPairs` holds the token ids of one part. `batches` groups them into the batches of an epoch, as a pure function
of seed and epoch. `collate` makes the tensors of one batch; only there is the target shifted for teacher forcing.
`padding_mask` and `causal_mask` define which positions may attend to which (True = may attend).
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
    """ids (B, S) → (B, 1, 1, S): every position may attend to every token, but not to padding."""
    return (ids != PAD)[:, None, None, :]


def causal_mask(size: int, device: torch.device | None = None) -> Tensor:
    """(1, 1, T, T) for T = size: a position may attend to itself and to earlier positions."""
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
    """Pad rows of ids on the right, after enclosing each in the ids `before` and `after`.

    Returns int64 ids (B, T), where T is the longest enclosed row. There must be at least one row.
    """
    longest = max(len(row) for row in rows)
    width = len(before) + longest + len(after)
    padded = np.full((len(rows), width), PAD, dtype=np.int64)
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
    """Undo BPE merges at random, so that a word comes in many spellings and the model learns what its parts mean.

    Each token is split with probability `share` into the two tokens that it was merged from; these may be split again.
    The effect is that of BPE-dropout (Provilkov et al. 2020, arXiv 1910.13267), which skips merges while encoding.

    Args:
        rows: token ids of sentences.
        merged_from: (V, 2) `Tokenizer.merged_from`.
        share: probability of a split, from 0 to 1.
        random: source of randomness; it is advanced.

    Returns the new ids of each row. They decode to the same text.
    """
    # all rows in one flat array, with the row of each token
    ids = np.concatenate(rows).astype(np.int64)
    row_of_token = np.repeat(np.arange(len(rows)), [len(row) for row in rows])

    # In each round only tokens that are new, all of them at first, get a chance to be split.
    is_new = np.ones(len(ids), dtype=bool)
    while True:
        is_merged = merged_from[ids, 0] >= 0
        is_split = is_new & is_merged & (random.random(len(ids)) < share)
        if not is_split.any():
            break

        # ids        a  b  c  d          b = b1 + b2, d = d1 + d2
        # is_split   0  1  0  1
        # split ids  a  b1 b2 c  d1 d2
        left_and_right = merged_from[ids[is_split]]  # (splits, 2)
        n_splits = len(left_and_right)
        left_positions = np.flatnonzero(is_split) + np.arange(n_splits)  # each earlier split adds one token
        n_copies = 1 + is_split
        ids = np.repeat(ids, n_copies)
        ids[left_positions] = left_and_right[:, 0]
        ids[left_positions + 1] = left_and_right[:, 1]
        row_of_token = np.repeat(row_of_token, n_copies)
        is_new = np.repeat(is_split, n_copies)

    row_starts = np.searchsorted(row_of_token, np.arange(1, len(rows)))
    return np.split(ids, row_starts)


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
    """Group the pairs into the batches of an epoch. Returns the row numbers of each batch.

    A batch holds pairs of similar length. Its number of sentences times its longest side, in tokens with EOS, is at
    most `batch_tokens`; a pair beyond this budget forms a batch alone.

    The result is a pure function of the arguments. Epochs differ in the order of the batches and in which pairs of
    equal lengths share a batch. The lengths in each batch, and so the number of batches, are always the same.
    """
    # shuffle, so that pairs of equal lengths come in a new order
    random = np.random.default_rng((seed, epoch))
    order = random.permutation(len(pairs))
    src_lengths = pairs.src_lengths[order]
    tgt_lengths = pairs.tgt_lengths[order]

    # Sort by the longer side, then by the difference of the sides. The difference ascends and descends in turn, so that
    # neighbours are similar on both sides.
    longer_side = np.maximum(src_lengths, tgt_lengths)
    difference = np.where(longer_side % 2, src_lengths - tgt_lengths, tgt_lengths - src_lengths)
    by_length = np.lexsort((difference, longer_side))
    order = order[by_length]
    longer_side = longer_side[by_length]

    # cut the sorted pairs into batches, each as large as the budget allows
    batch_starts = []
    start = 0
    while start < len(order):
        batch_starts.append(start)
        n_pairs = min(max(1, batch_tokens // int(longer_side[start])), len(order) - start)
        while n_pairs > 1 and n_pairs * longer_side[start + n_pairs - 1] > batch_tokens:
            n_pairs -= 1
        start += n_pairs
    sorted_batches = np.split(order, batch_starts[1:])

    # shuffle the batches
    return [sorted_batches[i] for i in random.permutation(len(sorted_batches))]


def padding_share(pairs: EncodedPairs, epoch_batches: Sequence[Ints]) -> float:
    """The share of source and target positions that hold padding, before subword dropout splits any token."""
    n_tokens = 0
    n_positions = 0
    for rows in epoch_batches:
        for lengths in (pairs.src_lengths[rows], pairs.tgt_lengths[rows]):
            n_tokens += int(lengths.sum())
            n_positions += len(rows) * int(lengths.max())
    return 1 - n_tokens / n_positions
