"""Our scores are sacrebleu's."""

import pytest
import sacrebleu

from corpus import Corpus
from evaluate import score, signature

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


def test_scores_are_sacrebleus(demo: Corpus) -> None:
    hypotheses, references = both(sample(demo))
    ours = score(hypotheses, references)
    assert ours.bleu == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score, abs=1e-3)
    assert ours.chrf == pytest.approx(sacrebleu.corpus_chrf(hypotheses, [references]).score, abs=1e-3)
    assert 20 < ours.bleu < 99


def test_without_a_common_four_gram_there_is_no_smoothing() -> None:
    hypotheses, references = both([*ODD[2:3], ("a b c", "a b d")])
    unsmoothed = sacrebleu.corpus_bleu(hypotheses, [references], smooth_method="none").score
    assert score(hypotheses, references).bleu == pytest.approx(unsmoothed)
    assert "smooth:none" in signature()


def test_perfect_and_hopeless() -> None:
    references = ["Le chat est assis sur le tapis."]
    assert score(references, references).bleu == pytest.approx(100)
    assert score(references, references).chrf == pytest.approx(100)
    assert score(["zzz"], references).bleu == 0


def test_case_counts() -> None:
    assert score(["le chat est assis"], ["Le Chat Est Assis"]).bleu == 0


def test_numbers_must_agree() -> None:
    with pytest.raises(ValueError, match="1 hypotheses, 2 references"):
        score(["a"], ["a", "b"])
