"""Pairs of texts → token ids → batches: bucketed by length on both sides, within a token budget, padded, masked.

`EncodedPairs` holds a part's ids; `batches` deals them out anew in each epoch, as a pure function of seed and epoch;
`collate` makes the tensors of one batch, and is the one place where the target is shifted for teacher forcing;
`padding_mask` and `causal_mask` say who may attend to whom (True = may attend).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from config import BOS, EOS, PAD
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


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """Returns a copy on `device`. A copy to a GPU starts from pinned memory, so that nothing waits for it."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)


@dataclass(frozen=True)
class Batch:
    """The tensors of B sentence pairs, all int64 or bool on one device."""

    src: Tensor
    """(B, S) source ids, each row closed by EOS and padded"""
    tgt: Tensor
    """(B, T) what the decoder reads: BOS, then the target"""
    labels: Tensor
    """(B, T) what the decoder must predict: the target, then EOS"""
    src_mask: Tensor
    """(B, 1, 1, S)"""
    tgt_mask: Tensor
    """(B, 1, T, T)"""
    n_tgt: int
    """Target tokens without padding; the loss is divided by their number"""
    n_tokens: int
    """Source and target tokens without padding"""

    def to(self, device: torch.device) -> "Batch":
        """Returns a copy on `device`."""
        return replace(
            self,
            src=to_device(self.src, device),
            tgt=to_device(self.tgt, device),
            labels=to_device(self.labels, device),
            src_mask=to_device(self.src_mask, device),
            tgt_mask=to_device(self.tgt_mask, device),
        )


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
    """Token ids of B pairs → their batch on the CPU. The one place where the target is shifted for teacher forcing."""
    src = pad(sources)
    padded = pad(targets, before=[BOS])  # BOS, the target, EOS
    labels = padded[:, 1:]
    tgt = padded[:, :-1].masked_fill(labels == PAD, PAD)  # the EOS of a shorter row is no input
    n_tgt = int((tgt != PAD).sum())
    return Batch(
        src=src,
        tgt=tgt,
        labels=labels,
        src_mask=padding_mask(src),
        tgt_mask=padding_mask(tgt) & causal_mask(tgt.size(1)),
        n_tgt=n_tgt,
        n_tokens=n_tgt + int((src != PAD).sum()),
    )


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


class TokenRows(Protocol):
    """Token ids of many sentences, row by row."""

    def __getitem__(self, row: int) -> IdList: ...

    def lengths(self) -> Ints:
        """The number of tokens in each row."""


class TokenLists(list[list[int]]):
    """Token rows in memory."""

    def lengths(self) -> Ints:
        return np.array([len(row) for row in self], dtype=np.int64)


class EncodedPairs:
    """The token ids of a part, and the length of every pair on either side."""

    def __init__(
        self, sources: TokenRows, targets: TokenRows, rows: Ints, tokenizer: Tokenizer, too_long: Ints | None = None
    ) -> None:
        """rows are those of sources and targets that belong to the part; too_long are those that were left out."""
        self.sources, self.targets, self.rows, self.tokenizer = sources, targets, rows, tokenizer
        self.too_long = np.zeros(0, dtype=np.int64) if too_long is None else too_long
        self.src_lengths = sources.lengths()[rows] + 1  # with EOS
        self.tgt_lengths = targets.lengths()[rows] + 1

    @classmethod
    def of(cls, pairs: Pairs, tokenizer: Tokenizer, max_length: int | None = None) -> "EncodedPairs":
        """Encodes pairs once and memory-maps their ids. Leaves out pairs with a side of more than max_length tokens."""

        def encoded() -> Iterator[dict[str, Any]]:
            with progress_bar("encoding", len(pairs), "pair", shown=len(pairs) > 50_000) as bar:
                for texts in chunks(pairs, 1000):
                    yield {name: tokenizer.encode([text[i] for text in texts]) for i, name in enumerate(SCHEMA.names)}
                    bar.update(len(texts))

        ids = table("tokens", digest(pairs.key, tokenizer.to_json()), SCHEMA, encoded)
        sources, targets = (Ragged(ids.data.column(name)) for name in SCHEMA.names)
        longer = np.maximum(sources.lengths(), targets.lengths())
        fits = longer <= (max_length if max_length is not None else longer.max(initial=0))
        return cls(sources, targets, np.flatnonzero(fits), tokenizer, too_long=np.flatnonzero(~fits))

    def with_targets(self, targets: Sequence[list[int]]) -> "EncodedPairs":
        """The same sources with other targets, one for each pair, in the order of `rows`."""
        by_row = TokenLists([[] for _ in range(len(self.rows) + len(self.too_long))])
        for row, target in zip(self.rows.tolist(), targets, strict=True):
            by_row[row] = target
        return EncodedPairs(self.sources, by_row, self.rows, self.tokenizer, self.too_long)

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, rows: Ints, split: float = 0.0, random: np.random.Generator | None = None) -> Batch:
        """The batch of these pairs. With split, that share of their tokens is split again at random."""
        chosen = self.rows[rows].tolist()
        sources: Sequence[IdList] = [self.sources[row] for row in chosen]
        targets: Sequence[IdList] = [self.targets[row] for row in chosen]
        if random and split:
            sources = split_tokens(sources, self.tokenizer.merged_from, split, random)
            targets = split_tokens(targets, self.tokenizer.merged_from, split, random)
        return collate(sources, targets)


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
