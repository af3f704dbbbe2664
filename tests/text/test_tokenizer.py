"""Round trips, special tokens that are not text, and training that repeats."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config import BOS, EOS, PAD, UNK
from text.corpus import Corpus
from text.tokenizer import SPECIAL, Tokenizer, TokenizerError

TEXTS = [
    "The cat is sitting on the mat.",
    "L'œuf n'est pas là, « dit-elle » — aujourd'hui…",
    "貓坐在墊子上。 猫がマットに座っている。 고양이",
    "القطة على السجادة वह चटाई पर है แมวนั่ง Кошка",
    "👩‍👩‍👧‍👦 e\u0301 \u200f ñ",
    "</s> <pad> <s> <unk> [MASK]",
    "tabs\tand  two blanks",
    "\x00\x7f",
]


@pytest.mark.parametrize("text", TEXTS)
def test_every_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    (ids,) = tokenizer.encode([text])
    assert tokenizer.decode([ids]) == [text]
    assert not {PAD, UNK, BOS, EOS} & set(ids)


@given(st.text())
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    (ids,) = tokenizer.encode([text])
    assert tokenizer.decode([ids]) == [text]
    assert not {PAD, UNK, BOS, EOS} & set(ids)


def test_special_tokens_are_the_first_ids(tokenizer: Tokenizer) -> None:
    assert [tokenizer.inner.id_to_token(i) for i in (PAD, UNK, BOS, EOS)] == SPECIAL
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)


def test_decoding_drops_special_tokens(tokenizer: Tokenizer) -> None:
    (ids,) = tokenizer.encode(["Le chat"])
    assert tokenizer.decode([[BOS, *ids, EOS, PAD]]) == ["Le chat"]


def test_training_repeats_and_saves(demo: Corpus) -> None:
    texts = [side for pair in demo.train[:500] for side in pair]
    first, second = Tokenizer.train(texts, 400), Tokenizer.train(texts, 400)
    assert json.loads(first.to_json()) == json.loads(second.to_json())
    assert len(first) == 400
    again = Tokenizer.from_json(first.to_json(), "there")
    assert again.encode([*TEXTS, *texts]) == first.encode([*TEXTS, *texts])


def test_the_vocabulary_is_no_larger_than_the_text_gives() -> None:
    assert len(Tokenizer.train(["a b"], 1000)) < 300


def test_a_larger_vocabulary_makes_shorter_sentences(demo: Corpus) -> None:
    texts = [side for pair in demo.train[:500] for side in pair]
    small, large = Tokenizer.train(texts, 300), Tokenizer.train(texts, 600)
    assert sum(map(len, large.encode(texts))) < sum(map(len, small.encode(texts)))


@pytest.mark.parametrize("word", ["हिन्दी", "l'homme", "l’homme", "aujourd'hui", "п'ять", "e\u0301te\u0301"])
def test_vowel_signs_and_apostrophes_do_not_cut_a_word(word: str) -> None:
    """Frequent enough, such a word becomes one token; quotes around it do not join it."""
    tokenizer = Tokenizer.train([f"{word} '{word}' x"] * 50, 400)
    one, two = tokenizer.encode([word, f"'{word}'"])
    assert len(one) == 1
    assert [tokenizer.decode([[token]])[0] for token in (two[0], two[-1])] == ["'", "'"]


@pytest.mark.parametrize("damage", [lambda t: t[: len(t) // 2], lambda t: "", lambda t: t.replace("<pad>", "<PAD>")])
def test_another_text_is_no_tokenizer(tokenizer: Tokenizer, damage) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TokenizerError, match="there is not a tokenizer"):
        Tokenizer.from_json(damage(tokenizer.to_json()), "there")
