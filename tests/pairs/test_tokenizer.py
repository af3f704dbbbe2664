"""Tests of the tokenizer: round trips, special tokens, reproducible training, and damaged files."""

import json
import re
from collections.abc import Iterable
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from timing import takes_less_than
from tokenizers import pre_tokenizers, trainers

from pairs import vocabulary
from pairs.corpus import Corpus
from pairs.vocabulary import learn_tokenizer
from tapis.config import BOS, EOS, PAD, UNK
from tapis.text.tokenizer import MAX_TOKEN_LENGTH, SPECIAL_TOKENS, WORD_PREFIX, Tokenizer, TokenizerError

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
def test_difficult_texts_round_trip(tokenizer: Tokenizer, text: str) -> None:
    (ids,) = tokenizer.encode([text])
    assert tokenizer.decode([ids]) == [text]
    assert not {PAD, UNK, BOS, EOS} & set(ids)


@given(st.text())
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_round_trips(tokenizer: Tokenizer, text: str) -> None:
    (ids,) = tokenizer.encode([text])
    assert tokenizer.decode([ids]) == [text]
    assert not {PAD, UNK, BOS, EOS} & set(ids)


def test_known_characters_are_those_that_a_token_holds_whole(tokenizer: Tokenizer) -> None:
    assert set("The cat é") <= tokenizer.known_characters
    assert not {"ж", "中", "😀"} & tokenizer.known_characters


def test_special_tokens_are_the_first_ids(tokenizer: Tokenizer) -> None:
    assert [tokenizer.inner.id_to_token(i) for i in (PAD, UNK, BOS, EOS)] == SPECIAL_TOKENS
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)


def test_decoding_skips_special_tokens(tokenizer: Tokenizer) -> None:
    (ids,) = tokenizer.encode(["Le chat"])
    assert tokenizer.decode([[BOS, *ids, EOS, PAD]]) == ["Le chat"]


def test_training_is_reproducible_and_survives_saving(demo: Corpus) -> None:
    texts = [side for pair in demo.train[:500] for side in pair]
    first, second = Tokenizer.train(texts, 400), Tokenizer.train(texts, 400)
    assert json.loads(first.to_json()) == json.loads(second.to_json())
    assert len(first) == 400
    loaded = Tokenizer.from_json(first.to_json(), "tokenizer.json")
    assert loaded.encode([*TEXTS, *texts]) == first.encode([*TEXTS, *texts])


def test_a_small_corpus_yields_a_smaller_vocabulary() -> None:
    assert len(Tokenizer.train(["a b"], 1000)) < 300


def test_limits_leave_the_vocabulary_of_a_usual_corpus_as_it_is(demo: Corpus) -> None:
    plain = tokenizers.Tokenizer.from_str(Tokenizer.train([], 0).to_json())
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pairs = demo.train.select(np.arange(1500))
    plain.train_from_iterator((WORD_PREFIX + side for pair in pairs for side in pair), trainer)
    assert json.loads(learn_tokenizer(pairs, 1000).to_json())["model"] == json.loads(plain.to_str())["model"]


@pytest.mark.parametrize("characters", ["-", "ACGT"])
def test_a_long_word_is_learned_from_in_linear_time(characters: str) -> None:
    text = "".join(Random(1).choices(characters, k=200_000))
    assert takes_less_than(3, lambda: Tokenizer.train([text], 300))


def test_of_too_many_distinct_words_a_sample_of_all_pairs_is_learned_from(
    demo: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned: list[str] = []
    train = Tokenizer.train

    def watched(texts: Iterable[str], *options: Any) -> Tokenizer:
        learned.extend(texts)
        return train(learned, *options)

    monkeypatch.setattr(Tokenizer, "train", watched)
    monkeypatch.setattr(vocabulary, "MAX_WORD_BYTES", 2000)
    assert len(learn_tokenizer(demo.train, 1000)) < 1000
    words = {word for text in learned for word in re.findall(r"\w+|[^\w\s]+", text)}
    assert 1000 < len("".join(words).encode()) <= 2000
    pairs = list(zip(learned[::2], learned[1::2], strict=True))
    assert any(pairs == list(demo.train)[:: 2**i] for i in range(1, 12))


def test_a_larger_vocabulary_needs_fewer_tokens(demo: Corpus) -> None:
    texts = [side for pair in demo.train[:500] for side in pair]
    small, large = Tokenizer.train(texts, 300), Tokenizer.train(texts, 600)
    assert sum(map(len, large.encode(texts))) < sum(map(len, small.encode(texts)))


@pytest.mark.parametrize("word", ["हिन्दी", "l'homme", "l’homme", "aujourd'hui", "п'ять", "e\u0301te\u0301"])
def test_combining_marks_and_apostrophes_do_not_split_a_word(word: str) -> None:
    """A frequent word becomes one token. Quotation marks around it stay separate tokens."""
    tokenizer = Tokenizer.train([f"{word} '{word}' x"] * 50, 400)
    plain, quoted = tokenizer.encode([word, f"'{word}'"])
    assert len(plain) == 1
    assert [tokenizer.decode([[token]])[0] for token in (quoted[0], quoted[-1])] == ["'", "'"]


@pytest.mark.parametrize("damage", ["truncated", "empty", "other special tokens"])
def test_damaged_json_is_an_error_that_names_its_origin(tokenizer: Tokenizer, damage: str) -> None:
    intact = tokenizer.to_json()
    damaged = {
        "truncated": intact[: len(intact) // 2],
        "empty": "",
        "other special tokens": intact.replace("<pad>", "<PAD>"),
    }
    with pytest.raises(TokenizerError, match=r"tokenizer\.json is not a tokenizer"):
        Tokenizer.from_json(damaged[damage], "tokenizer.json")


def test_ids_beyond_the_vocabulary_are_rejected(tokenizer: Tokenizer) -> None:
    data = json.loads(tokenizer.to_json())
    vocabulary = data["model"]["vocab"]
    vocabulary[max(vocabulary, key=vocabulary.get)] = 4_000_000
    with pytest.raises(TokenizerError, match=f"its ids must be 0 to {len(tokenizer) - 1}"):
        Tokenizer.from_json(json.dumps(data), "tokenizer.json")


def bombs(n: int) -> dict[str, Any]:
    """A normalizer that makes of each `a` a thousand, n times."""
    grow = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
    return {"type": "Sequence", "normalizers": [grow] * n}


def split_at(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


WHOLE = {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}
PADDING = {
    "strategy": {"Fixed": 10**9},
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
}


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("normalizer", bombs(6), "its normalizer is another"),
        ("pre_tokenizer", split_at(r"(\w+\s?)+$"), "its pre_tokenizer is another"),
        ("pre_tokenizer", None, "its pre_tokenizer is another"),
        ("decoder", {"type": "Fuse"}, "its decoder is another"),
        ("decoder", None, "its decoder is another"),
        ("post_processor", WHOLE, "its post_processor is another"),
        ("padding", {**PADDING, "pad_token": "<pad>"}, "its padding is another"),
        ("model/dropout", 0.5, "its model is another"),
        ("model/byte_fallback", True, "its model is another"),
        ("model/end_of_word_suffix", "</w>", "its model is another"),
        ("model", {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"}, "its model is another"),
        ("model/merges", [], "its tokens must be the 256 bytes"),
        ("model/vocab/\u2603", 300, "its tokens must be the 256 bytes"),
        ("model/vocab/Ġ", 4_000_000, "its ids must be 0 to 299"),
        ("added_tokens/0/special", False, "its special tokens must be its first tokens"),
        ("added_tokens/3/normalized", True, "its special tokens must be its first tokens"),
        ("added_tokens/1/content", "<UNK>", "its first tokens must be <pad> <unk> <s> </s>"),
    ],
)
def test_only_what_training_makes_is_loaded(tokenizer: Tokenizer, path: str, value: Any, says: str) -> None:
    """Others crash the process, never end, or print anything; refused before they see a text."""
    data = json.loads(tokenizer.to_json())
    *places, last = path.split("/")
    place = data
    for name in places:
        place = place[int(name) if isinstance(place, list) else name]
    place[last] = value
    with pytest.raises(TokenizerError) as error:
        Tokenizer.from_json(json.dumps(data), "tokenizer.json")
    assert str(error.value).startswith(f"tokenizer.json is not a tokenizer of Tapis: {says}")


def test_tokens_are_of_bounded_length() -> None:
    """Training makes none that loading refuses."""
    tokenizer = Tokenizer.train(["-" * 5000 + " a"] * 10, 20_000)
    assert max(map(len, tokenizer.tokens())) <= MAX_TOKEN_LENGTH
    Tokenizer.from_json(tokenizer.to_json(), "t")

    data = json.loads(tokenizer.to_json())
    token = max(data["model"]["vocab"], key=len)
    data["model"]["vocab"][token * 2] = len(tokenizer)
    data["model"]["merges"].append([token, token])
    with pytest.raises(TokenizerError, match="it has tokens of more than 1,000 bytes"):
        Tokenizer.from_json(json.dumps(data), "t")


def test_special_tokens_other_than_tags_are_refused(tokenizer: Tokenizer) -> None:
    tagged = Tokenizer.train(["a b"], 300, ["fr", "pt-br"])
    assert list(Tokenizer.from_json(tagged.to_json(), "t").tags) == ["fr", "pt-br"]
    text = tagged.to_json().replace("<2fr>", "the")
    with pytest.raises(TokenizerError, match="special tokens that are no tags of languages"):
        Tokenizer.from_json(text, "tokenizer.json")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "/////w=="}),  # asks for 8 GB
        ("model/continuing_subword_prefix", "xxxxxxxx"),  # aborts the process
        ("pre_tokenizer", split_at(r"(\w+\s?)+$")),
        ("model", 7),
        ("model/merges", [7]),
        ("model/vocab", [7]),
        ("added_tokens", {}),
        ("added_tokens", [7]),
        ("other", {}),
    ],
)
def test_the_library_is_not_given_what_training_does_not_make(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, path: str, value: Any
) -> None:
    data = json.loads(tokenizer.to_json())
    *places, last = path.split("/")
    place = data
    for name in places:
        place = place[name]
    place[last] = value
    given: list[str] = []

    class Watched:
        from_str = staticmethod(given.append)

        def __new__(cls, *args: Any) -> Any:
            return tokenizers.Tokenizer(*args)

    library = SimpleNamespace(Tokenizer=Watched, Regex=tokenizers.Regex)
    monkeypatch.setattr("tapis.text.tokenizer.tokenizers", library)
    with pytest.raises(TokenizerError, match="t is not a tokenizer"):
        Tokenizer.from_json(json.dumps(data), "t")
    assert not given
