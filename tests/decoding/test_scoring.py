"""Scores against sacrebleu's own."""

import re
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from conftest import Command
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

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


@given(st.lists(st.sampled_from([*ODD, ("a b c", "a b d"), ("Le chat.", "Le chien.")]), min_size=1, max_size=9))
def test_torchmetrics_has_the_bleu_that_watches_training(pairs: list[tuple[str, str]]) -> None:
    """Also of a weak model's translations, of which none has four words of its reference."""
    hypotheses, references = both(pairs)
    expected = score(hypotheses, references, "fr").bleu
    assert torchmetrics_score(hypotheses, references, "fr").bleu == pytest.approx(expected, abs=1e-3)


def test_files_are_scored_as_sacrebleu_scores_them(demo: Corpus, called: Command) -> None:
    """With several references, and smoothed, as its command does; within the interval; and two by its paired test."""
    hypotheses, references = both(sample(demo)[-40:])
    others = [text.replace("le", "un") for text in references]
    texts = {"out": hypotheses, "ref": references, "others": others}
    for name, lines in texts.items():
        Path(name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    for named, systems in ((["out"], [hypotheses]), (["out", "--against", "others"], [hypotheses, others])):
        flags = ["--hypothesis", named[0], "--reference", "ref", "others", *named[1:]]
        done = called("evaluate.py", *flags)
        assert done.returncode == 0, done.stderr
        printed = done.stdout.splitlines()
        assert len(printed) == 3 * len(systems) + (len(systems) > 1)
        metrics = [metric for _ in systems for metric in (BLEU(), CHRF(), TER())]
        for line, metric, system in zip(printed, metrics, [one for one in systems for _ in range(3)], strict=False):
            expected = metric.corpus_score(system, [references, others])
            name, value, *interval = re.findall(r"^\w+|\d+\.\d", line.partition("  nrefs")[0])
            assert (name, value) == (expected.name, f"{expected.score:.1f}")
            assert float(interval[0]) <= float(value) <= float(interval[1])
            plain = str(metric.get_signature()).removeprefix("nrefs:2|")
            assert line.endswith(f"nrefs:2|bs:1000|seed:12345|{plain}")
    assert re.fullmatch(r"BLEU p = 0.00\d  chrF2 p = 0.00\d  TER p = 0.00\d", printed[-1])
    assert done.stderr == "out: 40 lines\nothers: 40 lines\n"


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        ([], 2, "--hypothesis needs --reference FILE"),
        (["--reference", "one"], 1, "out has 2 lines, and one has 1"),
        (["--reference", "out", "--against", "one"], 1, "out has 2 lines, and one has 1"),
        (["--reference", "out", "none"], 1, "none cannot be read"),
        (["--reference", "out", "--beam", "4"], 2, "--hypothesis is scored without a model: leave out --beam"),
        (["--reference", "out", "--split", "valid"], 2, "leave out --split"),
    ],
)
def test_files_that_cannot_be_scored_are_named(flags: list[str], code: int, says: str, called: Command) -> None:
    Path("out").write_text("Un chat.\nUn chien.\n", encoding="utf-8")
    Path("one").write_text("Un chat.\n", encoding="utf-8")
    done = called("evaluate.py", "--hypothesis", "out", *flags)
    assert (done.returncode, done.stdout) == (code, "") and says in done.stderr and len(done.stderr.splitlines()) == 1


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
