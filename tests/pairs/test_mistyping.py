"""Training sentences rewritten as people type them."""

import numpy as np
import pytest

from pairs.mistyping import FINAL_PUNCTUATION, SWAPPED, mistyped, with_swaps

SENTENCE = "Two Young men are playing football in the park with their brothers!"


def test_each_change_comes_in_half_of_the_sentences() -> None:
    random = np.random.default_rng(1)
    changed = [mistyped(SENTENCE, random) for _ in range(2000)]
    assert np.mean([text == text.lower() for text in changed]) == pytest.approx(0.5, abs=0.05)
    assert np.mean([text[-1] not in FINAL_PUNCTUATION for text in changed]) == pytest.approx(0.5, abs=0.05)
    assert SENTENCE in changed
    for text in changed:
        assert sorted(text.lower().rstrip("!")) == sorted(SENTENCE.lower().rstrip("!"))  # only moved


def test_swaps_exchange_neighbours_within_long_words() -> None:
    random = np.random.default_rng(1)
    words = SENTENCE.split()
    n_changed, n_long = 0, sum(len(word.strip("!")) > 3 for word in words)
    for _ in range(2000):
        for before, after in zip(words, with_swaps(SENTENCE, random).split(), strict=True):
            if before != after:
                n_changed += 1
                places = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
                assert len(before.strip("!")) > 3 and places[1:] == [places[0] + 1] and places[0] > 0
    same = 1 / 9  # about one swap in nine exchanges equal letters here: "foot", "all"
    assert n_changed / (2000 * n_long) == pytest.approx(SWAPPED * (1 - same), rel=0.15)


def test_no_space_is_left_before_a_sign_that_is_left_out() -> None:
    typed = {mistyped("Vraiment ?", np.random.default_rng(seed)).lower() for seed in range(50)}
    assert "vraiment" in typed and "vraiment " not in typed


@pytest.mark.parametrize("text", ["", "!", "...", "a", "日本語。", "1"])
def test_nothing_becomes_empty(text: str) -> None:
    random = np.random.default_rng(1)
    for _ in range(20):
        assert bool(mistyped(text, random)) == bool(text)
