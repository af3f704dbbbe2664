"""Scores against sacrebleu's own."""

import numpy as np
import pytest
import sacrebleu

from decoding.scoring import torchmetrics_score
from pairs.corpus import Corpus
from tapis.scoring import bleu_tokenizer, closest, compare, score

ODD = [
    ("The cat, on the mat.", "The cat sits on the mat."),
    ("l'homme dort — enfin !", "L'homme dort enfin !"),
    ("", "not empty"),
    ("3.14 and 1,000 &quot;x&quot;", '3.14 and 1,000 "x"'),
]


def both(pairs: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def sample(demo: Corpus) -> list[tuple[str, str]]:
    """French against French with some words exchanged, so that no score is at an end of its range."""
    targets = [target for _, target in demo.valid[:100]]
    return [(target.replace("chat", "chien").replace("est", "était"), target) for target in targets] + ODD


def test_scores_equal_sacrebleus(demo: Corpus) -> None:
    hypotheses, references = both(sample(demo))
    ours = score(hypotheses, references, "fr")
    assert ours.bleu == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score, abs=1e-3)
    counted = torchmetrics_score(hypotheses, references, "fr")
    assert counted.bleu == pytest.approx(ours.bleu, abs=1e-3) and "version:torchmetrics-" in counted.signature
    assert (counted.chrf, counted.brevity) == (ours.chrf, ours.brevity)
    assert ours.chrf == pytest.approx(sacrebleu.corpus_chrf(hypotheses, [references]).score, abs=1e-3)
    assert ours.brevity == sacrebleu.corpus_bleu(hypotheses, [references]).bp < 1
    assert 20 < ours.bleu < 99


def test_the_same_hypotheses_do_not_differ_and_much_worse_ones_do(demo: Corpus) -> None:
    hypotheses, references = both(sample(demo))
    worse = [text.replace("le", "un") for text in hypotheses]
    assert compare(hypotheses, hypotheses, references, "fr") == {"BLEU": 1.0, "chrF2": 1.0}
    assert all(p < 0.01 for p in compare(hypotheses, worse, references, "fr").values())
    nearly = [*hypotheses[:-1], hypotheses[-1] + " x"]
    assert compare(hypotheses, nearly, references, "fr")["BLEU"] > 0.1


def test_p_values_are_two_sided(demo: Corpus) -> None:
    """Of equally good runs, one in ten has a p-value below 0.1, whichever is the better by chance."""
    hypotheses, references = both(sample(demo)[:60])
    random = np.random.default_rng(1)
    p_values = []
    for _ in range(24):
        is_worse = random.random((2, len(hypotheses))) < 0.5  # in either run, other sentences lack their first word
        one, other = (
            [text.partition(" ")[2] if worse else text for text, worse in zip(hypotheses, of_run, strict=True)]
            for of_run in is_worse
        )
        p_values.append(compare(one, other, references, "fr")["BLEU"])
    assert np.mean(np.array(p_values) < 0.1) <= 0.15 and np.mean(p_values) > 0.3


def test_without_a_common_four_gram_there_is_no_smoothing() -> None:
    hypotheses, references = both([*ODD[2:3], ("a b c", "a b d")])
    unsmoothed = sacrebleu.corpus_bleu(hypotheses, [references], smooth_method="none").score
    for scored in (score, torchmetrics_score):
        assert scored(hypotheses, references, "fr").bleu == pytest.approx(unsmoothed)
        assert "smooth:none" in scored(hypotheses, references, "fr").signature


def test_the_closest_hypothesis_has_the_highest_sentence_bleu() -> None:
    cats = ["A dog.", "On the mat sat a cat.", "The cat sat on it."]
    assert closest(cats, "The cat sat on the mat.", "en") == cats[2]
    assert closest(["Oh!", "Yes.", ""], "Yes!", "en") != "", "a word in common, though no four"
    assert closest(["", ""], "Yes!", "en") == ""
    assert closest(["猫坐着", "狗坐在垫子上"], "猫坐在垫子上", "zh") == "狗坐在垫子上"


def test_equal_and_empty_hypotheses_score_100_and_0() -> None:
    references = ["Le chat est assis sur le tapis."]
    assert score(references, references, "fr").bleu == pytest.approx(100)
    assert score(references, references, "fr").chrf == pytest.approx(100)
    assert score(["zzz"], references, "fr").bleu == 0


def test_bleu_is_cased() -> None:
    assert score(["le chat est assis"], ["Le Chat Est Assis"], "fr").bleu == 0


def test_hypotheses_and_references_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="1 hypotheses, 2 references"):
        score(["a"], ["a", "b"], "fr")


def test_chinese_is_scored_on_its_own_tokens() -> None:
    hypotheses, references = ["貓坐在墊子上，很開心。OK 42"], ["貓坐在墊子上，牠很開心。OK 42"]
    ours = torchmetrics_score(hypotheses, references, "zh")
    assert ours.bleu == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references], tokenize="zh").score, abs=1e-3)
    assert "tok:zh" in ours.signature
    assert 10 < ours.bleu < 99


@pytest.mark.parametrize(
    ("language", "tokenizer", "hypothesis", "reference"),
    [
        ("ja", "ja-mecab", "猫はマットに座っている。", "猫がマットの上に座っている。"),
        ("ko", "ko-mecab", "고양이는 매트 위에 앉아 있다.", "고양이가 매트 위에 앉아 있다."),
    ],
)
def test_japanese_and_korean_are_scored_on_their_words(
    language: str, tokenizer: str, hypothesis: str, reference: str
) -> None:
    ours = torchmetrics_score([hypothesis], [reference], language)
    theirs = sacrebleu.corpus_bleu([hypothesis], [[reference]], tokenize=tokenizer).score
    assert ours.bleu == pytest.approx(theirs, abs=1e-3)
    assert f"tok:{tokenizer}" in ours.signature
    assert 10 < ours.bleu < 99
    on_characters = sacrebleu.corpus_bleu([hypothesis], [[reference]], tokenize="char").score
    assert ours.bleu != pytest.approx(on_characters, abs=1)


def test_languages_without_an_installed_tokenizer_are_scored_on_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {bleu_tokenizer(language) for language in ("en", "fr", "ar", "hi", "th", "ru", "de")} == {"13a"}
    assert {bleu_tokenizer(language) for language in ("zh", "zh-Hans", "zh_TW")} == {"zh"}
    monkeypatch.setattr("tapis.scoring.find_spec", lambda name: None)
    for language, text in (("ja", ["猫がマットに座っている。"]), ("ko", ["고양이가 매트 위에 앉아 있다."])):
        assert bleu_tokenizer(language) == "char"
        assert torchmetrics_score(text, text, language).bleu == pytest.approx(100)
        assert "tok:char" in torchmetrics_score(text, text, language).signature
