"""Forced decoding counts probabilities as the search does, whatever stands beside a pair in its batch."""

import math

import pytest
import torch
from conftest import ROOT

from config import PRESETS
from dataset import causal_mask, pad, padding_mask
from decoding.forced import log_probabilities
from decoding.torch_searcher import TorchSearcher
from decoding.translator import Translator
from model import Transformer
from tapis.config import BOS, EOS, Learned
from tapis.search import Search, length_penalty
from tapis.text.tokenizer import Tokenizer

CPU = torch.device("cpu")


@pytest.fixture
def translator(model: Transformer, tokenizer: Tokenizer) -> Translator:
    return Translator(TorchSearcher(model.eval(), CPU, "fp32"), tokenizer, PRESETS["demo"], Learned())


def test_the_log_probability_is_the_sum_over_the_tokens_and_the_end(model: Transformer) -> None:
    source, target = [5, 6, 7], [8, 9]
    with torch.inference_mode():
        src, tgt = pad([source]), pad([target], before=[BOS], after=())
        logits = model.eval()(src, tgt, padding_mask(src), causal_mask(3))[0]
        logits[:, :EOS] = -math.inf
        expected = logits.log_softmax(dim=-1)[range(3), [*target, EOS]].sum().item()
    (found,) = log_probabilities(model, [source], [target], CPU)
    assert found == pytest.approx(expected, abs=1e-4)


def test_neighbours_in_a_batch_change_nothing(model: Transformer) -> None:
    sources, targets = [[5] * n for n in (1, 9, 4)], [[7] * n for n in (8, 2, 5)]
    together = log_probabilities(model.eval(), sources, targets, CPU)
    alone = [
        log_probabilities(model, [source], [target], CPU)[0] for source, target in zip(sources, targets, strict=True)
    ]
    assert together == pytest.approx(alone, abs=1e-3)


def test_forced_decoding_and_the_search_give_the_same_log_probability() -> None:
    translator = Translator.load(ROOT / "tests/formats/format-1.tar.gz", "cpu", "fp32")
    assert isinstance(translator.searcher, TorchSearcher)
    sources = translator.tokenizer.encode(["The cat is sitting on the mat.", "A dog.", "She sees a red house."])
    search = Search(beam=4, length_penalty=1.0)
    best = [hypotheses[0] for hypotheses in translator.searcher(sources, [100] * len(sources), search)]
    assert all(0 < len(hypothesis.ids) < 100 for hypothesis in best), "each has an end"
    targets = [hypothesis.ids for hypothesis in best]
    forced = log_probabilities(translator.searcher.original, sources, targets, CPU)
    scores = [float(value / length_penalty(len(ids) + 1, 1.0)) for value, ids in zip(forced, targets, strict=True)]
    assert scores == pytest.approx([hypothesis.score for hypothesis in best], abs=1e-4)


def test_a_translator_counts_the_tokens_with_their_end(translator: Translator) -> None:
    (of_text, of_nothing) = translator.log_probabilities([("The cat.", "Le chat."), ("A dog.", "")])
    assert of_text[1] == len(translator.tokenizer.encode(["Le chat."])[0]) + 1 and of_text[0] < 0
    assert of_nothing[1] == len(translator.tokenizer.encode([""])[0]) + 1 and of_nothing[0] < 0
