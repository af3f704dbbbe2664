"""Sentence pairs → token ids → batches: bucketed by length on both sides, within a token budget, padded and masked.

`EncodedPairs` holds the token ids of one part. `batches` groups them into the batches of an epoch, as a pure function
of seed and epoch. `collate` makes the tensors of one batch, and shifts its target for teacher forcing. Training packs
the same ids without padding instead (fast/packed_batch.py), unless --plain is given. `padding_mask` and `causal_mask`
define which positions may attend to which (True = may attend).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Protocol, overload

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from pairs.mistyping import mistyped
from pairs.tables import MANY_PAIRS, Ints, Pairs, Ragged, cached_table, chunks_of_text, places_of
from pairs.terms import Lexicon, annotate_rows
from tapis.config import BOS, EOS, PAD
from tapis.system.files import digest
from tapis.system.terminal import Progress
from tapis.text.tokenizer import Tokenizer

IdList = Sequence[int] | Ints

# Encoded at a time, at most, which takes 0.4 GB. A thousand pairs have about 0.2 million
ENCODED_CHARACTERS = 5_000_000


class FlatRows(Sequence[Ints]):
    """The token ids of B sentences, one after the other in one array."""

    def __init__(self, ids: Ints, lengths: Ints) -> None:
        """ids (N,) are those of all sentences, lengths (B,) say how many each has."""
        self.ids = ids
        self.lengths = lengths
        self.ends: Ints = np.cumsum(lengths, dtype=np.int64)
        self.starts: Ints = self.ends - lengths

    @classmethod
    def of(cls, rows: Sequence[IdList]) -> "FlatRows":
        """Return these rows in one array."""
        if isinstance(rows, FlatRows):
            return rows
        ids = np.concatenate([np.zeros(0, dtype=np.int64), *rows]).astype(np.int64)
        return cls(ids, np.array([len(row) for row in rows], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, row: int) -> Ints: ...
    @overload
    def __getitem__(self, row: slice) -> list[Ints]: ...
    def __getitem__(self, row: int | slice) -> Ints | list[Ints]:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        if row >= len(self):
            raise IndexError(row)
        return self.ids[self.starts[row] : self.ends[row]]


def padding_mask(ids: Tensor) -> Tensor:
    """ids (B, S) → (B, 1, 1, S): every position may attend to every token, but not to padding."""
    return (ids != PAD)[:, None, None, :]


def causal_mask(size: int, device: torch.device | None = None) -> Tensor:
    """(1, 1, T, T) for T = size: a position may attend to itself and to earlier positions."""
    return torch.ones(size, size, dtype=torch.bool, device=device).tril()[None, None]


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """Return a copy on `device`. Copies to a GPU start in contiguous pinned memory: the host does not wait."""
    return x.contiguous().pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)


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
        """Return a copy on `device`."""
        return replace(
            self,
            src=to_device(self.src, device),
            tgt=to_device(self.tgt, device),
            labels=to_device(self.labels, device),
            src_mask=to_device(self.src_mask, device),
            tgt_mask=to_device(self.tgt_mask, device),
        )


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
    """Return the batch of B pairs of token ids, on the CPU, with the target shifted for teacher forcing."""
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


def split_tokens(rows: FlatRows, merged_from: Ints, share: float, random: np.random.Generator) -> FlatRows:
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
    ids = rows.ids.astype(np.int64)
    row_of_token = np.repeat(np.arange(len(rows)), rows.lengths)

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

    return FlatRows(ids, np.bincount(row_of_token, minlength=len(rows)))


def mistype_rows(
    rows: Sequence[IdList], tokenizer: Tokenizer, share: float, random: np.random.Generator
) -> list[IdList]:
    """Rewrite sentences as people type them (`pairs.mistyping.mistyped`), each with the probability share.

    Returns the new ids of each row, after the tags that it began with. random is advanced.
    """
    chosen = np.flatnonzero(random.random(len(rows)) < share).tolist()
    chosen_rows = [[int(token) for token in rows[i]] for i in chosen]
    texts = tokenizer.decode(chosen_rows)  # without tags
    typed = tokenizer.encode([mistyped(text, random) for text in texts])
    result = list(rows)
    for i, ids, typed_ids in zip(chosen, chosen_rows, typed, strict=True):
        tags = [token for token in ids if token < tokenizer.first_text_id]
        result[i] = [*tags, *typed_ids]
    return result


SCHEMA = pa.schema({"src": pa.list_(pa.int32()), "tgt": pa.list_(pa.int32())})


class TokenRows(Protocol):
    """Token ids of many sentences, row by row."""

    lengths: Ints
    """The number of tokens in each row"""

    def take(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the tokens of these rows, one row after the other, and their lengths."""


class ReplacedRows:
    """Token rows of which some are replaced by others."""

    def __init__(self, original: TokenRows, replacements: Mapping[int, list[int]]) -> None:
        self.original = original
        self.new_rows = FlatRows.of(list(replacements.values()))
        self.lengths = original.lengths.copy()
        self.number_of_row = np.full(len(self.lengths), -1)  # of each row among the new ones; −1: it is an old one
        replaced = np.fromiter(replacements, dtype=np.int64, count=len(replacements))
        self.number_of_row[replaced] = np.arange(len(replacements))
        self.lengths[replaced] = self.new_rows.lengths

    def take(self, rows: Ints) -> tuple[Ints, Ints]:
        lengths = self.lengths[rows]
        numbers = self.number_of_row[rows]
        is_new = numbers >= 0
        is_new_token = np.repeat(is_new, lengths)
        ids = np.empty(len(is_new_token), dtype=np.int64)
        ids[~is_new_token] = self.original.take(rows[~is_new])[0]
        starts = self.new_rows.starts[numbers[is_new]]
        ids[is_new_token] = self.new_rows.ids[places_of(starts, lengths[is_new])]
        return ids, lengths


class EncodedPairs:
    """The token ids of a part, and the length of every pair on either side."""

    def __init__(
        self, sources: TokenRows, targets: TokenRows, rows: Ints, tokenizer: Tokenizer, too_long: Ints, origins: Ints
    ) -> None:
        """rows are those of sources and targets that belong to the part; too_long are those that were left out.

        origins has the number of its source of data for each of rows.
        """
        self.sources = sources
        self.targets = targets
        self.rows = rows
        self.tokenizer = tokenizer
        self.too_long = too_long
        self.origins = origins
        self.src_lengths = sources.lengths[rows] + 1  # with EOS
        self.tgt_lengths = targets.lengths[rows] + 1

    @classmethod
    def of(
        cls, pairs: Pairs, tokenizer: Tokenizer, max_length: int | None = None, tags: Sequence[int] = ()
    ) -> "EncodedPairs":
        """Encode pairs once and memory-map their ids. Leave out pairs with a side of more than max_length tokens.

        tags has, for each number of `Pairs.origins`, the id of the tag that its sources begin with; none by default.
        """

        def encoded() -> Iterator[dict[str, Any]]:
            origins = pairs.origins()
            n_done = 0
            is_shown = len(pairs) > MANY_PAIRS
            with closing(Progress("encoding", len(pairs), 0, "pair", shown=is_shown, leave=True)) as progress:
                for texts in chunks_of_text(pairs, 1000, ENCODED_CHARACTERS):
                    sources, targets = (tokenizer.encode([text[side] for text in texts]) for side in (0, 1))
                    if tags:
                        tag_of_row = [tags[origin] for origin in origins[n_done : n_done + len(texts)]]
                        sources = [[tag, *source] for tag, source in zip(tag_of_row, sources, strict=True)]
                    yield {"src": sources, "tgt": targets}
                    n_done += len(texts)
                    progress.update(len(texts))

        ids = cached_table("tokens", digest(pairs.key, tokenizer.to_json(), *tags), SCHEMA, encoded)
        sources, targets = (Ragged(ids.data.column(name)) for name in SCHEMA.names)
        longer = np.maximum(sources.lengths, targets.lengths)
        fits = longer <= (max_length if max_length is not None else longer.max(initial=0))
        return cls(sources, targets, np.flatnonzero(fits), tokenizer, np.flatnonzero(~fits), pairs.origins()[fits])

    def replaced(self, sources: Mapping[int, list[int]], targets: Mapping[int, list[int]]) -> "EncodedPairs":
        """Return the same pairs, some with other sources or targets, keyed by the numbers of `rows`."""
        return EncodedPairs(
            ReplacedRows(self.sources, sources),
            ReplacedRows(self.targets, targets),
            self.rows,
            self.tokenizer,
            self.too_long,
            self.origins,
        )

    def without(self, dropped: Sequence[int]) -> "EncodedPairs":
        """Return the same pairs without some, named by the numbers of `rows`."""
        if not len(dropped):
            return self
        keeps = ~np.isin(self.rows, dropped)
        return EncodedPairs(
            self.sources, self.targets, self.rows[keeps], self.tokenizer, self.too_long, self.origins[keeps]
        )

    def __len__(self) -> int:
        return len(self.rows)

    def ids(
        self,
        rows: Ints,
        random: np.random.Generator | None = None,
        *,
        augment: float = 0.0,
        terms: float = 0.0,
        lexicons: Sequence[Lexicon] = (),
        subword_dropout: float = 0.0,
    ) -> tuple[FlatRows, FlatRows]:
        """Return the token ids of these pairs, of their sources and of their targets.

        With random, the share augment of the sources is rewritten as people type them, the share terms is given terms
        from the lexicon of their origin, and the share subword_dropout of all tokens is split again.
        """
        chosen = self.rows[rows]
        sources, targets = (FlatRows(*side.take(chosen)) for side in (self.sources, self.targets))
        if random and augment:
            sources = FlatRows.of(mistype_rows(sources, self.tokenizer, augment, random))
        if random and terms:
            of_rows = [lexicons[origin] for origin in self.origins[rows].tolist()]
            changed = annotate_rows(sources, targets, of_rows, self.tokenizer, terms, random)
            sources, targets = map(FlatRows.of, changed)
        if random and subword_dropout:
            sources = split_tokens(sources, self.tokenizer.merged_from, subword_dropout, random)
            targets = split_tokens(targets, self.tokenizer.merged_from, subword_dropout, random)
        return sources, targets


def rows_by_weight(pairs: EncodedPairs, weights: Sequence[float], epoch: int) -> tuple[Ints, Ints]:
    """Return the rows of an epoch, where each source of data has its pairs as often as its weight says.

    With a weight of 2.25, an epoch has each pair twice, and a quarter of the pairs once more. The quarter is every
    fourth pair in the order of their lengths, and the next ones in the next epoch. All epochs are thus alike in
    lengths, and four of them have every pair nine times.

    Sources of weight 0, or without a weight, the last ones, are left out; without any weights, every pair comes once.

    Returns the rows, and for each place in the order of lengths the largest length that any epoch has there.
    """
    longest = np.maximum(pairs.src_lengths, pairs.tgt_lengths)
    n_learned = int(np.searchsorted(pairs.origins, len(weights)) if weights else len(pairs))
    if all(weight == 1 for weight in weights):
        return np.arange(n_learned), np.sort(longest[:n_learned])

    rows, limits = [], []
    for origin, weight in enumerate(weights):
        by_length = np.flatnonzero(pairs.origins == origin)
        by_length = by_length[np.argsort(longest[by_length], kind="stable")]
        n = len(by_length)
        if not n or not weight:
            continue  # all of them exceed --max-length, or the source is left out for now

        # All pairs, as often as the weight has whole parts
        n_copies = int(weight)
        rows += [by_length] * n_copies
        limits += [longest[by_length]] * n_copies

        # n_more others, evenly spread: one wherever epoch + place times their share passes a whole number.
        # Counted from 1, the i-th of them is among the first i · n / n_more pairs, rounded up.
        n_more = round((weight - n_copies) * n)
        if n_copies == 0:
            n_more = max(1, n_more)
        if n_more:
            is_chosen = (np.arange(n) + epoch) * n_more % n >= n - n_more
            last_places = -(-np.arange(1, n_more + 1) * n // n_more) - 1
            rows.append(by_length[is_chosen])
            limits.append(longest[by_length[last_places]])
    return np.concatenate(rows), np.sort(np.concatenate(limits))


def batches(pairs: EncodedPairs, batch_tokens: int, seed: int, epoch: int, weights: Sequence[float] = ()) -> list[Ints]:
    """Return the rows of each batch of an epoch: a pure function of pairs, budget, seed, epoch and weights.

    The weights are those of the sources of data, by default 1. Rows are shuffled, then sorted by their longer side.
    Rows with an equally long side are sorted by the difference of the sides, ascending and descending in turn, so that
    neighbours are alike on both sides. A batch takes neighbours while its sentences times its longest side stay within
    batch_tokens. In the end, the batches are shuffled.

    Every epoch cuts the sorted rows at the same places, and so has the same number of batches. Which of the equally
    long pairs meet in a batch changes; with a weight that is no whole number, so do the lengths.
    """
    random = np.random.default_rng((seed, epoch))
    rows, limits = rows_by_weight(pairs, weights, epoch)
    order = rows[random.permutation(len(rows))]

    # Sort by length. The last key of lexsort counts first.
    src, tgt = pairs.src_lengths[order], pairs.tgt_lengths[order]
    longest = np.maximum(src, tgt)
    difference = np.where(longest % 2, src - tgt, tgt - src)
    order = order[np.lexsort((difference, longest))]

    # Cut into batches, in every epoch at the same places: as many rows as fit at the length of the first, less if later
    # rows are longer.
    ends = []
    start = 0
    while start < len(order):
        n = min(max(1, batch_tokens // int(limits[start])), len(order) - start)
        while n > 1 and n * limits[start + n - 1] > batch_tokens:
            n -= 1
        start += n
        ends.append(start)
    epoch_batches = np.split(order, ends[:-1])

    return [epoch_batches[i] for i in random.permutation(len(epoch_batches))]


def padding_share(pairs: EncodedPairs, epoch_batches: Sequence[Ints]) -> float:
    """Return the share of positions, source and target, that hold padding, before any token is split."""
    n_tokens, n_positions = 0, 0
    for lengths in (pairs.src_lengths, pairs.tgt_lengths):
        for rows in epoch_batches:
            n_tokens += int(lengths[rows].sum())
            n_positions += len(rows) * int(lengths[rows].max())
    return 1 - n_tokens / n_positions
