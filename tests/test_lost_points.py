"""benchmarks/lost_points.py: kinds of sentences, and words that are found, counted by hand."""

import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import ROOT

sys.path.append(str(ROOT / "benchmarks"))

from lost_points import Sentence, kinds, main, recall, words_of

SEEN = Counter({"a": 600, "cat": 20, "sits": 5, "here": 600, ".": 600})


def test_kinds_part_the_sentences_by_their_rarest_word() -> None:
    new, rare, known = (text.split() for text in ("a zebra sits .", "a cat sits .", "a cat ."))
    names = ["a source word is new", "none is, one was seen 5 times or less", "all were seen more than 5 times"]
    for source, expected in ((new, names[0]), (rare, names[1]), (known, names[2])):
        found = [name for name in names if kinds(SEEN)[name](Sentence(source, [], []))]
        assert found == [expected]


def test_a_word_is_found_as_often_as_the_translation_has_it() -> None:
    reference, hypothesis = ["a", "cat", "and", "a", "cat", "sits", "."], ["a", "cat", "sits", "here", "."]
    sentences = [Sentence([], reference, hypothesis)]
    assert recall(sentences, SEEN, 6, 50) == (2 / 6, 0.5)  # two cats, one found; the full stop is no word
    assert recall(sentences, SEEN, 0, 0) == (1 / 6, 0.0)
    assert recall(sentences, SEEN, 501, 10**9) == (2 / 6, 0.5)
    assert words_of(["Die Katze, hier."], "de") == [["die", "katze", ",", "hier", "."]]


def test_the_command_prints_both_tables(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("train", "set"):
        for language in ("en", "de"):
            text = "the cat sits on the mat\na dog sleeps under the old tree\n"
            Path(f"{name}.{language}").write_text(text, encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["lost_points.py", "train", "set", "set.de"])
    main()
    sentences, words = capsys.readouterr().out.split("\n\n")
    assert "| all | 100.0% | 100.0 |" in sentences and "| a source word is new | 0.0% | – |" in sentences
    assert "| 1 to 5 | 100.0% | 100.0% |" in words
