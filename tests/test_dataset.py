"""Tests of masks, the teacher-forcing shift, batching, and subword dropout."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SHARED, first, needs_shared, pairs_of

from config import PRESETS
from dataset import (
    EncodedPairs,
    FlatRows,
    ReplacedRows,
    batches,
    causal_mask,
    collate,
    mistype_rows,
    padding_mask,
    padding_share,
    split_tokens,
)
from pairs.corpus import Corpus, load_corpus
from pairs.tables import Pairs
from pairs.vocabulary import learn_tokenizer
from tapis.config import BOS, EOS, PAD
from tapis.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def pairs(demo: Corpus, tokenizer: Tokenizer) -> EncodedPairs:
    return EncodedPairs.of(first(demo.train, 1000), tokenizer)


def test_padding_mask_hides_only_padding() -> None:
    mask = padding_mask(torch.tensor([[101, 2054, 2003, 1996, 512, 0, 0, 0]]))
    assert mask.shape == (1, 1, 1, 8)
    assert mask.flatten().tolist() == [True] * 5 + [False] * 3


def test_causal_mask_allows_itself_and_earlier_positions() -> None:
    expected = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    assert causal_mask(4).shape == (1, 1, 4, 4)
    assert causal_mask(4)[0, 0].int().tolist() == expected


def test_collate_shifts_targets_and_pads_both_sides() -> None:
    batch = collate([[10, 11, 12], [13]], [[20], [21, 22]])
    assert batch.src.tolist() == [[10, 11, 12, EOS], [13, EOS, PAD, PAD]]
    assert batch.tgt.tolist() == [[BOS, 20, PAD], [BOS, 21, 22]]
    assert batch.labels.tolist() == [[20, EOS, PAD], [21, 22, EOS]]
    assert batch.n_tgt == 5
    assert batch.n_tokens == 5 + 6
    assert torch.equal(batch.src_mask, padding_mask(batch.src))
    assert torch.equal(batch.tgt_mask, padding_mask(batch.tgt) & causal_mask(3))
    assert batch.tgt_mask.any(-1).all(), "attention over no position is NaN"


def test_every_pair_is_in_exactly_one_batch_of_each_epoch(pairs: EncodedPairs) -> None:
    for epoch in (0, 1):
        rows = np.concatenate(batches(pairs, 512, seed=1, epoch=epoch))
        assert sorted(rows.tolist()) == list(range(len(pairs)))


def test_batches_stay_within_the_token_budget(pairs: EncodedPairs) -> None:
    for rows in batches(pairs, 512, seed=1, epoch=0):
        batch = collate(*pairs.ids(rows))
        assert max(batch.src.numel(), batch.tgt.numel()) <= 512


def test_a_pair_beyond_the_token_budget_forms_a_batch_alone(tokenizer: Tokenizer) -> None:
    pairs = EncodedPairs.of(pairs_of(("a", "b"), ("x" * 500, "y" * 500), ("c", "d")), tokenizer)
    assert sorted(map(len, batches(pairs, 64, seed=1, epoch=0))) == [1, 2]


def test_batches_are_a_pure_function_of_seed_and_epoch(pairs: EncodedPairs) -> None:
    def epoch_batches(seed: int, epoch: int) -> list[list[int]]:
        return [rows.tolist() for rows in batches(pairs, 512, seed, epoch)]

    assert epoch_batches(1, 3) == epoch_batches(1, 3)
    assert epoch_batches(1, 3) != epoch_batches(1, 4)
    assert epoch_batches(1, 3) != epoch_batches(2, 3)
    assert {len(epoch_batches(1, epoch)) for epoch in range(5)} == {len(epoch_batches(2, 0))}, (
        "the number of steps must be known"
    )


def test_epochs_group_different_pairs(pairs: EncodedPairs) -> None:
    def groups(epoch: int) -> set[frozenset[int]]:
        return {frozenset(rows.tolist()) for rows in batches(pairs, 512, 1, epoch)}

    assert len(groups(0) & groups(1)) < 0.7 * len(groups(0)), "only pairs of equal lengths can change places"


@pytest.fixture(scope="module")
def two_sources(demo: Corpus, tokenizer: Tokenizer) -> EncodedPairs:
    """400 pairs of one source of data, and 240 of another."""
    together = Pairs.joined([first(demo.train, 400), demo.train.select(np.arange(1000, 1240))])
    return EncodedPairs.of(together, tokenizer)


def test_weights_of_one_change_nothing(two_sources: EncodedPairs) -> None:
    unweighted = batches(two_sources, 512, 1, 3)
    weighted = batches(two_sources, 512, 1, 3, [1.0, 1.0])
    assert [rows.tolist() for rows in unweighted] == [rows.tolist() for rows in weighted]


@pytest.mark.parametrize("weights", [(2.0, 1.0), (0.25, 1.5), (2.25, 0.5), (0.1, 0.001), (1.0, 0.37)])
def test_each_source_has_its_weight_in_epochs_of_one_length(
    weights: tuple[float, float], two_sources: EncodedPairs
) -> None:
    occurrences = np.zeros(len(two_sources), dtype=int)
    sizes = set()
    for epoch in range(20):
        epoch_batches = batches(two_sources, 512, 1, epoch, weights)
        for rows in epoch_batches:
            batch = collate(*two_sources.ids(rows))
            assert max(batch.src.numel(), batch.tgt.numel()) <= 512
        n_pairs = np.bincount(two_sources.origins[np.concatenate(epoch_batches)], minlength=2)
        sizes.add((len(epoch_batches), *n_pairs.tolist()))
        occurrences += np.bincount(np.concatenate(epoch_batches), minlength=len(occurrences))
    assert len(sizes) == 1, "the number of steps must be known"
    assert sizes.pop()[1:] == (max(1, round(400 * weights[0])), max(1, round(240 * weights[1])))
    for origin in range(2):
        counts = occurrences[two_sources.origins == origin]
        assert counts.max() - counts.min() <= 1, "no pair of a source comes more often than another"


def test_pairs_beyond_max_length_are_left_out_and_listed(tokenizer: Tokenizer) -> None:
    pairs = EncodedPairs.of(pairs_of(("a", "b"), ("a " * 50, "b"), ("a", "b " * 50)), tokenizer, max_length=20)
    assert (len(pairs), pairs.too_long.tolist()) == (1, [1, 2])


def test_long_texts_are_encoded_in_small_groups(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    encode = Tokenizer.encode

    def counted(self: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        sizes.append(len(texts))
        return encode(self, texts)

    texts = [(f"{i} a" * 30, "b" * i) for i in range(50)]
    monkeypatch.setattr(Tokenizer, "encode", counted)
    monkeypatch.setattr("dataset.ENCODED_CHARACTERS", 500)
    pairs = EncodedPairs.of(pairs_of(*texts), tokenizer)
    sides = [[ids.tolist() for ids in rows] for rows in pairs.ids(np.arange(len(texts)))]
    assert list(zip(*map(tokenizer.decode, sides), strict=True)) == texts
    assert max(sizes) < 10 and sum(sizes) == 2 * len(texts)


def test_the_other_direction_of_a_file_has_token_ids_of_its_own(demo: Corpus) -> None:
    rows = "".join(f"{source}\t{target}\n" for source, target in demo.train[:300])
    Path("both.tsv").write_text("en\tfr\n" + rows, encoding="utf-8")
    for source, target in (("en", "fr"), ("fr", "en")):
        config = replace(PRESETS["demo"], data=("both.tsv",), pairs=(f"{source}-{target}",))
        corpus = load_corpus(config)
        tokenizer = learn_tokenizer(corpus.train, 500)
        pairs = EncodedPairs.of(corpus.train, tokenizer)
        texts = tokenizer.decode([side[0].tolist() for side in pairs.ids(np.array([0]))])
        assert tuple(texts) == corpus.train[0]


def test_padding_share_matches_the_tensors(pairs: EncodedPairs) -> None:
    epoch_batches = batches(pairs, 512, seed=1, epoch=0)
    tensors = [collate(*pairs.ids(rows)) for rows in epoch_batches]
    positions = sum(batch.src.numel() + batch.labels.numel() for batch in tensors)
    padding = sum(int((batch.src == PAD).sum() + (batch.labels == PAD).sum()) for batch in tensors)
    assert padding_share(pairs, epoch_batches) == pytest.approx(padding / positions)
    assert padding_share(pairs, epoch_batches) < 0.08


@needs_shared("multi30k")
def test_multi30k_batches_have_less_than_8_percent_padding() -> None:
    corpus = load_corpus(replace(PRESETS["opus_books"], data=(str(SHARED / "multi30k"),)))
    tokenizer = Tokenizer.train((side for pair in corpus.train for side in pair), 8000)
    pairs = EncodedPairs.of(corpus.train, tokenizer, 128)
    assert padding_share(pairs, batches(pairs, 4096, seed=1, epoch=0)) < 0.08


def test_split_tokens_decode_to_the_same_texts(tokenizer: Tokenizer, demo: Corpus) -> None:
    texts = [source for source, _ in demo.train[:50]]
    rows = tokenizer.encode(["", *texts, ""])
    merged_from = tokenizer.merged_from
    for share in (0.0, 0.1, 0.5, 1.0):
        split = split_tokens(FlatRows.of(rows), merged_from, share, np.random.default_rng(1))
        assert tokenizer.decode([ids.tolist() for ids in split]) == ["", *texts, ""]
        longer = sum(map(len, split)) / sum(map(len, rows))
        assert (longer == 1) == (share == 0)
    assert all((merged_from[ids] == -1).all() for ids in split), "with share 1, only bytes are left"


def test_each_token_is_split_with_the_given_probability(tokenizer: Tokenizer) -> None:
    """A token that was merged from two bytes is split into these two."""
    merged_from = tokenizer.merged_from
    token = next(i for i, (a, b) in enumerate(merged_from) if a >= 0 and (merged_from[[a, b]] == -1).all())
    split = split_tokens(FlatRows.of([[token]] * 20_000), merged_from, 0.3, np.random.default_rng(1))
    halves = [ids.tolist() for ids in split if len(ids) == 2]
    assert len(halves) / 20_000 == pytest.approx(0.3, abs=0.02)
    assert all(ids == merged_from[token].tolist() for ids in halves)


def test_batches_with_split_tokens_are_a_pure_function_of_the_seed(pairs: EncodedPairs) -> None:
    rows = np.arange(10)
    one, same = (collate(*pairs.ids(rows, np.random.default_rng(7), subword_dropout=0.2)) for _ in range(2))
    assert torch.equal(one.src, same.src) and torch.equal(one.tgt, same.tgt)
    other = collate(*pairs.ids(rows, np.random.default_rng(8), subword_dropout=0.2))
    assert one.n_tokens != other.n_tokens or not torch.equal(one.src, other.src)
    unsplit = collate(*pairs.ids(rows, np.random.default_rng(7), subword_dropout=0.0))
    assert torch.equal(unsplit.src, collate(*pairs.ids(rows)).src)


def test_replaced_rows_are_as_if_they_had_been_there(small: Corpus, tokenizer: Tokenizer) -> None:
    pairs = EncodedPairs.of(small.train, tokenizer)
    replacements = {3: [7, 7, 9], 5: []}
    rows = ReplacedRows(pairs.sources, replacements)
    ids, lengths = rows.take(np.array([5, 3, 0, 3]))
    originals, _ = pairs.ids(np.arange(len(pairs)))
    expected = [replacements.get(i, ids.tolist()) for i, ids in enumerate(originals)]
    assert ids.tolist() == [*expected[5], *expected[3], *expected[0], *expected[3]]
    assert lengths.tolist() == [0, 3, len(expected[0]), 3]
    assert rows.lengths.tolist() == [len(ids) for ids in expected]


def test_mistyped_rows_keep_their_tags_and_say_the_same_again() -> None:
    tokenizer = Tokenizer.train(["The cat is sleeping on the mat."] * 3, 300, ["de", "fr"])
    texts = ["The cat is sleeping on the mat.", "A mat!"] * 50
    rows = [[tokenizer.tags["fr"], BOS, *ids] for ids in tokenizer.encode(texts)]
    typed = mistype_rows(rows, tokenizer, 0.3, np.random.default_rng(1))
    assert typed == mistype_rows(rows, tokenizer, 0.3, np.random.default_rng(1))
    assert all(list(row[:2]) == [tokenizer.tags["fr"], BOS] for row in typed)
    changed = [i for i, row in enumerate(typed) if row != rows[i]]
    assert 10 < len(changed) < 35
    for text, after in zip(texts, tokenizer.decode([list(row) for row in typed]), strict=True):
        assert sorted(after.lower().rstrip(".!")) == sorted(text.lower().rstrip(".!"))
    assert mistype_rows(rows, tokenizer, 0.0, np.random.default_rng(1)) == rows
