"""Lengths that limit a search, and what makes a translation doubtful."""

import numpy as np
import pytest

from config import Config
from decoding.translator import Translator
from pairs.corpus import Corpus
from tapis.config import Learned
from tapis.doubts import doubts, limit_of_unsure, numbers, words_of
from tapis.glossary import Glossary, Term
from tapis.lengths import PAPERS_EXTRA_LENGTH, Lengths
from tapis.text.tokenizer import Tokenizer
from tapis.translator import UNSURE_BELOW
from training.trainer import Training

SOURCE, TRANSLATION = "The cat is sleeping on the mat.", "Le chat dort sur le tapis."


def test_lengths_learn_the_ratio_and_how_far_one_in_a_hundred_is_off() -> None:
    random = np.random.default_rng(1)
    source = random.integers(1, 60, 20_000)
    target = np.maximum(1, np.round(1.3 * source + np.sqrt(source) * random.normal(0, 0.5, 20_000))).astype(np.int64)
    lengths = Lengths.of(source, target)
    assert lengths.ratio == pytest.approx(1.3, abs=0.01)
    assert lengths.spread == pytest.approx(2.576 * 0.5, abs=0.1)  # the normal distribution's 99 % on two sides
    pairs = list(zip(source.tolist(), target.tolist(), strict=True))
    assert np.mean([abs(lengths.deviation(n, m)) > 1 for n, m in pairs]) == pytest.approx(0.01, abs=0.002)
    assert all(m < lengths.limit(n) for n, m in pairs)
    assert lengths.limit(20) < 20 + PAPERS_EXTRA_LENGTH


def test_pairs_that_are_all_alike_have_no_spread() -> None:
    lengths = Lengths.of(np.array([4, 8]), np.array([4, 8]))
    assert (lengths.spread, lengths.limit(4)) == (0, 14)
    assert lengths.deviation(4, 4) == 0 and lengths.deviation(4, 5) > 1


def test_without_lengths_the_limit_is_the_papers() -> None:
    assert Lengths().limit(7) == 57 and Lengths().deviation(7, 1000) == 0


@pytest.mark.parametrize("lengths", [Lengths(1000, 1000), Lengths(5e-324, 1000), Lengths(1000, 0)])
def test_a_limit_is_bounded_whatever_a_file_says(lengths: Lengths) -> None:
    assert lengths.limit(25) <= 20 * 25 + 3 * 20 * 5 + 10


def test_the_training_pairs_have_lengths_and_the_run_keeps_them(translator: Translator) -> None:
    assert 0.8 < translator.lengths.ratio < 1.5 and translator.lengths.spread > 0
    assert translator.lengths == Lengths(translator.learned.length_ratio, translator.learned.length_spread)


@pytest.mark.parametrize(
    ("translation", "expected"),
    [
        (TRANSLATION, set()),
        ("Le", {"short", "unsure"}),
        (f"{TRANSLATION} " * 4, {"loop", "long", "unsure"}),
        (f"{TRANSLATION[:-1]} 25.", {"numbers", "unsure"}),
        ("Sa voiture rouge mange une pomme.", {"unsure"}),
    ],
)
def test_doubts(translator: Translator, translation: str, expected: set[str]) -> None:
    assert doubts(translator, [SOURCE], [translation]) == [expected]


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        (SOURCE, "Le chat dort sur le mat.", {"copied"}),
        (SOURCE, "Le tapichat dort.", {"invented"}),
        (SOURCE, "Le tapichat dort sur le mat.", {"copied", "invented"}),
        ("Zorblax is sleeping.", "Zorblax dort.", set()),  # a name
        ("Zorblax is sleeping.", "Zorblix dort.", {"invented"}),
        ("zorblax is sleeping.", "Zorblax dort.", {"copied"}),
        (SOURCE, "LE CHAT DORT 12 345 ☂", set()),
    ],
)
def test_words_in_no_training_target_are_copied_or_invented(
    translator: Translator, source: str, translation: str, expected: set[str]
) -> None:
    assert doubts(translator, [source], [translation])[0] & {"copied", "invented"} == expected
    translator.learned = Learned()  # as of a run before there were these doubts
    assert not doubts(translator, [source], [translation])[0] & {"copied", "invented"}


def test_words_of_a_glossary_are_not_invented(translator: Translator) -> None:
    with_terms = translator.with_glossary(Glossary((Term("cat", "tapichat"),)))
    for one, expected in ((translator, {"invented"}), (with_terms, set())):
        assert doubts(one, ["A cat is sleeping."], ["Un Tapichat dort."])[0] & {"copied", "invented"} == expected


def test_words_of_a_glossary_are_counted_as_those_of_a_text() -> None:
    """Also where they have vowel signs."""
    assert Glossary((Term("heart", "दिल की"), Term("x", "Été"))).target_words == frozenset(
        words_of(["दिल की Été"]).split()
    )


def test_a_run_keeps_the_words_of_its_targets_unless_they_are_too_many(translator: Translator, demo: Corpus) -> None:
    targets = [target for _, target in demo.train]
    assert translator.learned.target_words == words_of(targets) == words_of([*targets, targets[0].upper()])
    assert {"le", "chat", "dort"} < translator.learned.known_words
    assert words_of(["L'été, l'Été 12 m", "猫がtest ไทย"]) == "l m test été"  # those between spaces alone
    long_words = [f"{chr(ord('a') + i % 26)}{'b' * i}" for i in range(2000)]
    assert words_of(long_words[:1000] * 9) and not words_of(long_words)


def test_lengths_are_learned_where_a_run_to_resume_has_none(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    learned = Training(tiny, small, tokenizer).learned
    assert learned.length_ratio > 0 < learned.length_spread and learned.unsure_below == 0
    lengths = sorted(map(len, tokenizer.encode([source for source, _ in small.train])))
    assert learned.usual_length == pytest.approx(np.quantile(lengths, 0.99))
    saved = Learned(2.0, 0.5, -1.0)
    assert Training(tiny, small, tokenizer, learned=saved).learned == saved
    assert Training(tiny, small, tokenizer, learned=Learned()).learned == learned


def test_lengths_of_sources_include_the_tag(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in training, where they are learned."""
    n = len(translator.tokenizer.encode([SOURCE])[0])
    m = len(translator.tokenizer.encode([TRANSLATION])[0])
    monkeypatch.setattr(translator, "lengths", Lengths(m / n, 1e-6))
    assert "short" not in doubts(translator, [SOURCE], [TRANSLATION])[0]
    monkeypatch.setattr(translator, "tag", [4])
    assert "short" in doubts(translator, [SOURCE], [TRANSLATION])[0]


def test_probabilities_below_the_limit_are_unsure(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [(8 * translator.unsure_below - 0.01, 8), (8 * translator.unsure_below + 0.01, 8)]
    monkeypatch.setattr(Translator, "log_probabilities", lambda self, pairs: values)
    assert doubts(translator, [SOURCE] * 2, [TRANSLATION] * 2) == [{"unsure"}, set()]
    monkeypatch.setattr(translator.searcher, "can_force", False)  # as of an export
    assert doubts(translator, [SOURCE] * 2, [TRANSLATION] * 2) == [set(), set()]


def test_numbers_are_the_same_in_the_digits_of_any_language() -> None:
    assert numbers("In 2020, 1,500") == numbers("२०२० में १५००") == numbers("٢٠٢٠ و ١٬٥٠٠")
    assert numbers("12.5") == numbers("١٢٫٥")
    assert numbers("In 2020") != numbers("२०२१ में")


def test_groups_of_three_digits_are_one_number_whatever_separates_them() -> None:
    for sign in " '’,.\u00a0\u2009\u202f":
        assert numbers(f"10–20{sign}000 and 1{sign}000{sign}000") == numbers("10–20000 and 1000000"), sign
        assert numbers(f"a map of 1:25{sign}000") == numbers("eine Karte 1:25000"), sign


@pytest.mark.parametrize(
    "text", ["In 2020 100", "At 10:30 100", "On 31.12.20 100", "192.168.1.1 200", "A 12 34", "12, 100"]
)
def test_numbers_beside_each_other_are_two(text: str) -> None:
    assert numbers(text).total() == 2


def test_feet_and_minutes_are_no_groups_of_digits() -> None:
    assert numbers("6'2 and 5’30") == numbers("30")


def test_dashes_and_wide_signs_of_currency_are_compared_alike() -> None:
    assert numbers("10–20 and 1990–99") == numbers("10-20 und 1990‑99") == numbers("10 bis 20 und 1990 bis 99")
    assert numbers("10–20") != numbers("10–21") and numbers("7-10") == numbers("sieben bis 10")
    assert numbers("￥1,000, ￡20 or ＄30") == numbers("¥1.000, £20 oder $30") != numbers("1,000, 20 or 30")


def test_the_limit_is_what_two_in_a_hundred_are_below() -> None:
    values = [(-0.01 * i * n, n) for i, n in enumerate([3, 5] * 500, 1)]  # means from -0.01 to -10
    limit = limit_of_unsure(values)
    assert sum(log_p / n < limit for log_p, n in values) == 20
    assert limit_of_unsure([(0.0, 4)]) < 0  # 0 would mean that none is known


def test_a_run_learns_what_it_is_unsure_of(translator: Translator) -> None:
    assert UNSURE_BELOW < translator.unsure_below < 0
    assert translator.unsure_below == translator.learned.unsure_below
