"""Sentences in, sentences out: the number of lines, their order, and that batches and threads change nothing."""

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint import parameters
from config import Config
from dataset import collate, pad
from decoding.search import beam_search
from decoding.steps import plain_step
from decoding.torch_searcher import TorchSearcher, searcher_of
from decoding.translator import Translator
from model import Transformer
from pairs.corpus import Corpus
from tapis.config import NEVER_GENERATED, ConfigError, Learned, TapisError
from tapis.engine.engine import Engine
from tapis.search import Hypothesis, Search, go_on
from tapis.text.tokenizer import Tokenizer
from tapis.translation import Translation
from tapis.translator import SHORTEST, at_least
from tapis.typed_text import translate_lines

CPU = torch.device("cpu")


@pytest.fixture(params=[False, True], ids=["fast", "plain"])
def untrained(request: pytest.FixtureRequest, model: Transformer, tokenizer: Tokenizer, tiny: Config) -> Translator:
    return Translator(TorchSearcher(model, CPU, "fp32", plain=request.param), tokenizer, tiny, Learned())


SENTENCES = ["The cat.", "", "A very long sentence, with many words in it, and then some more.", "x", "  ", "The cat."]


@pytest.mark.parametrize("batch_tokens", [1, 40, 4096])
def test_a_batch_is_translated_as_one_by_one(untrained: Translator, batch_tokens: int) -> None:
    one_by_one = [untrained([sentence])[0] for sentence in SENTENCES]
    assert untrained(SENTENCES, batch_tokens=batch_tokens) == one_by_one
    assert one_by_one[1] == one_by_one[4] == ""
    assert untrained([]) == []


def test_one_string_is_one_sentence(untrained: Translator) -> None:
    sentence = SENTENCES[2]
    search = Search(beam=2, n_best=2)
    assert untrained(sentence) == untrained([sentence])[0]
    assert untrained.n_best(sentence, search) == untrained.n_best([sentence], search)[0]
    assert untrained.text(sentence, search) == untrained.text([sentence], search)[0]
    assert untrained("") == ""


def test_translations_of_a_list_differ(translator: Translator, demo: Corpus) -> None:
    """Hypotheses may differ in their tokens alone."""
    sources = [source for source, _ in demo.test[:20]]
    ids = translator.source_ids(sources)
    found = translator.searcher(ids, [translator.lengths.limit(len(one)) for one in ids], Search(5, 5))
    lists = [translator.texts_of(hypotheses) for hypotheses in found]
    assert any(len(set(texts)) < len(texts) for texts in lists), "or else this shows nothing"
    for n_best in (2, 5):
        for texts, ranked in zip(lists, translator.n_best(sources, Search(5, n_best)), strict=True):
            assert [one.text for one in ranked] == list(dict.fromkeys(texts))[:n_best]
    line = translator.text(f"{sources[0]} {sources[1]} Oui.", Search(5, 5))
    assert len({one.text for one in line}) == len(line) > 1
    assert translator.n_best("", Search(5, 5)) == [Translation("", 0.0)] == translator.text("", Search(5, 5))


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_sentences_may_be_any_iterable_and_lines_of_a_file(untrained: Translator, newline: str) -> None:
    expected = untrained(SENTENCES)
    assert untrained(sentence for sentence in SENTENCES) == untrained(tuple(SENTENCES)) == expected
    file = Path("text.en")
    file.write_text("".join(sentence + newline for sentence in SENTENCES), encoding="utf-8", newline="")
    with file.open(encoding="utf-8", newline="") as lines:
        assert untrained(lines) == expected
    with file.open(encoding="utf-8") as lines:
        assert [ranked[0].text for ranked in untrained.text(lines)] == [
            ranked[0].text for ranked in untrained.text(SENTENCES)
        ]


def test_a_translation_ends_at_the_step_before_which_it_is_interrupted(untrained: Translator) -> None:
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise InterruptedError

    unchecked, checked = (
        translate_lines(untrained, SENTENCES),
        translate_lines(untrained.checked_by(lambda: None), SENTENCES),
    )
    assert [ranked[0].text for ranked in checked] == [ranked[0].text for ranked in unchecked]
    for search in (Search(), Search(beam=2)):
        calls = 0
        with pytest.raises(InterruptedError):
            translate_lines(untrained.checked_by(check), SENTENCES, search)
        assert calls == 3
    assert translate_lines(untrained, SENTENCES)  # the original is not interrupted


def test_very_short_sentences_do_not_share_one_huge_batch(
    untrained: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    class Counter:
        at_once, batch_tokens = 1, 4096

        def spread(self, work: Any, items: Any) -> Any:
            return map(work, items)

        def __call__(self, sources: Sequence[list[int]], *_: object) -> list[list[Hypothesis]]:
            sizes.append(len(sources))
            return [[Hypothesis([], 0.0)] for _ in sources]

    monkeypatch.setattr(untrained, "searcher", Counter())
    untrained(["a"] * 2000)
    assert sum(sizes) == 2000 and max(sizes) == 4096 // SHORTEST


@pytest.mark.parametrize("search", [Search(), Search(beam=2)])
def test_numbers_that_are_not_finite_are_an_error_in_words(untrained: Translator, search: Search) -> None:
    with torch.no_grad():
        assert isinstance(untrained.searcher, TorchSearcher)
        untrained.searcher.model.projection.linear.weight.fill_(torch.nan)
    with pytest.raises(TapisError, match="not finite in this precision: it must be trained again"):
        untrained.n_best(["The cat."], search)
    untrained.searcher.precision = "bf16"
    with pytest.raises(TapisError, match="not finite in this precision: try --precision fp32"):
        untrained.n_best(["The cat."], search)


def test_the_number_of_threads_changes_nothing(untrained: Translator) -> None:
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(untrained(SENTENCES * 5, Search(beam=2), batch_tokens=60))
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1] and len(set(found[0])) > 2


def test_a_trained_model_translates_a_batch_as_one_by_one(translator: Translator, demo: Corpus) -> None:
    sources = [source for source, _ in demo.test[:40]]
    assert translator(sources) == [translator([source])[0] for source in sources]


def test_the_demo_learns_the_tutorials_sentence(translator: Translator) -> None:
    forms = ["The cat sits on the mat.", "The cat is sitting on the mat."]
    assert translator(forms) == ["Le chat est assis sur le tapis."] * 2


def test_lines_are_translated_sentence_by_sentence(translator: Translator) -> None:
    lines = [
        "The cat is sitting on the mat. The queen is tired! Is the dog sleeping?",
        "",
        "- The cat is sitting on the mat.",
        "2. The queen is tired!",
        "...",
        "   ",
        "1914",
    ]
    sentences = translator(["The cat is sitting on the mat.", "The queen is tired!", "Is the dog sleeping?"])
    assert [best.text for (best,) in translate_lines(translator, lines)] == [
        " ".join(sentences),
        "",
        "- " + sentences[0],
        "2. " + sentences[1],
        "...",
        "",
        "1914",
    ]


def test_a_sentence_longer_than_in_training_is_translated_in_pieces(
    untrained: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = ", ".join(["the cat is sitting on the mat"] * 60) + "."
    lengths: list[int] = []
    search_sources = TorchSearcher.__call__

    def spy(
        searcher: TorchSearcher, sources: Sequence[list[int]], limits: Sequence[int], search: Search, check: Any
    ) -> list[list[Hypothesis]]:
        lengths.extend(map(len, sources))
        return search_sources(searcher, sources, limits, search, check)

    monkeypatch.setattr(TorchSearcher, "__call__", spy)
    assert len(translate_lines(untrained, [long, "x" * 3000])) == 2
    assert max(lengths) <= untrained.config.max_length
    assert sum(lengths) >= len(untrained.tokenizer.encode([long])[0])


def test_beams_find_likelier_translations_than_greedy_search(untrained: Translator, demo: Corpus) -> None:
    """In the mean; of one sentence a wide beam may lose what a narrow one keeps. A beam of one is greedy search.

    Of an untrained model: a trained one may be so sure of the demo that greedy search misses nothing.
    """
    sources = [source for source, _ in demo.test[:60]]
    means = []
    for beam in (1, 2, 6):
        found = beam_scores(untrained, sources, Search(beam, n_best=beam, length_penalty=0.0))
        assert all(scores == sorted(scores, reverse=True) for scores in found)
        means.append(sum(scores[0] for scores in found) / len(found))
    assert means[0] < min(means[1:])


def test_beam_search_is_the_same_in_any_batch(translator: Translator, demo: Corpus) -> None:
    sources, search = [source for source, _ in demo.test[:20]], Search(beam=4, n_best=4)
    together = translator.n_best(sources, search)
    for source, found in zip(sources, together, strict=True):
        (alone,) = translator.n_best([source], search)
        assert [one.text for one in found] == [one.text for one in alone]
        assert [one.score for one in found] == pytest.approx([one.score for one in alone], abs=1e-4)


def test_scores_are_log_probabilities_of_the_model(translator: Translator) -> None:
    """log P of the tokens and EOS, by teacher forcing."""
    source = "The cat is sitting on the mat."
    ((best,),) = translator.n_best([source], Search(beam=4, length_penalty=0.0))
    batch = collate(translator.tokenizer.encode([source]), translator.tokenizer.encode([best.text]))
    assert isinstance(translator.searcher, TorchSearcher)
    logits = translator.searcher.model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    logits[..., NEVER_GENERATED] = -torch.inf
    expected = logits[0].log_softmax(dim=-1).gather(1, batch.labels[0][:, None]).sum().item()
    assert best.score == pytest.approx(expected, abs=1e-3)


def beam_scores(translator: Translator, sources: list[str], search: Search) -> list[list[float]]:
    """Of each source, by beam search also where the beam is one."""
    with torch.inference_mode():
        src = pad(translator.tokenizer.encode(sources))
        assert isinstance(translator.searcher, TorchSearcher)
        step = plain_step(translator.searcher.model, src)
        found = beam_search(step, torch.full((len(sources),), 60), search)
    return [[hypothesis.score for hypothesis in hypotheses] for hypotheses in found]


def test_plain_translating_equals_fast_translating(
    trained: "subprocess.CompletedProcess[str]", translator: Translator, demo: Corpus
) -> None:
    plain = Translator.load(Path(trained.args[0]) / "weights" / "demo", "cpu", plain=True)
    sources = [source for source, _ in demo.test[:60]]
    assert plain(sources) == translator(sources)
    search = Search(beam=3, n_best=2)
    for ours, theirs in zip(plain.n_best(sources[:20], search), translator.n_best(sources[:20], search), strict=True):
        assert [one.text for one in ours] == [one.text for one in theirs]
        assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-4)
    sentence = "The cat is sitting on the mat."
    torch.testing.assert_close(plain.attention(sentence)[1].weights, translator.attention(sentence)[1].weights)


def test_plain_refuses_other_precisions(trained: "subprocess.CompletedProcess[str]") -> None:
    with pytest.raises(ConfigError, match="--plain computes in fp32, not in int8"):
        Translator.load(Path(trained.args[0]) / "weights" / "demo", "cpu", "int8", plain=True)


def test_batches_are_cut_into_parts_for_every_thread() -> None:
    assert at_least(2, [[1, 2, 3, 4, 5]]) == [[1, 3, 5], [2, 4]]
    assert at_least(3, [[1, 2], [3]]) == [[1], [2], [3]]
    assert at_least(1, [[1, 2], [3]]) == [[1, 2], [3]] and at_least(4, []) == []
    assert at_least(9, [[1, 2]]) == [[1], [2]]


@pytest.mark.parametrize("n_threads", [1, 2, 20])
def test_a_translation_is_the_same_with_any_number_of_threads(
    model: Transformer, tokenizer: Tokenizer, tiny: Config, n_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lone batch is cut into parts where searches can compute at the same time."""
    for module in ("tapis.threads", "tapis.engine.engine"):
        monkeypatch.setattr(f"{module}.n_threads", lambda: n_threads)
    sizes: list[int] = []

    class Counted(Engine):
        def __call__(self, sources: Any, limits: Any, search: Any, check: Any = go_on) -> Any:
            sizes.append(len(sources))
            return super().__call__(sources, limits, search, check)

    weights = {name: weight.numpy() for name, weight in parameters(model).items()}
    translator = Translator(Counted(weights, model.config), tokenizer, tiny, Learned())
    sentences = ["A cat.", "Two cats are here.", "A dog sleeps.", "No.", "The house is red and old."]
    together = translator(sentences)
    assert sum(sizes) == 5 and len(sizes) == min(n_threads, 5)
    assert [translator([sentence])[0] for sentence in sentences] == together


def test_a_sentence_of_unusual_length_is_cut(model: Transformer, tokenizer: Tokenizer, tiny: Config) -> None:
    """It loses its end otherwise."""
    engine = searcher_of(model, torch.device("cpu"), "fp32")
    line = "The cat is sleeping, and " * 7 + "the dog is sleeping."
    n_tokens = len(tokenizer.encode([line])[0])
    assert n_tokens > 30
    longest = replace(tiny, max_length=128)
    for usual, most in ((0.0, n_tokens), (30.0, 30), (2.0, 20), (1000.0, n_tokens)):
        units = Translator(engine, tokenizer, longest, Learned(usual_length=usual)).split_lines([line])[0].units
        assert max(len(ids) for ids in tokenizer.encode(units)) <= most
        assert (len(units) > 1) == (most < n_tokens) and " ".join(units) == line
