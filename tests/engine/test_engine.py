"""The engine, in each variant that this CPU can compute: the model of model.py, but for rounding to 8 bits."""

import copy
import ctypes
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from ctypes import c_long, c_void_p
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from conftest import ROOT, Command
from engine_steps import engine_best_continuations, engine_of, engine_step, function
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor, nn

from checkpoint import parameters
from config import PRESETS, Config
from decoding.attention import attentions
from decoding.forced import log_probabilities
from decoding.search import FindBest, Step, beam_search, best_continuations, greedy_search
from decoding.steps import plain_step, without_tags
from decoding.torch_searcher import choose_translating
from decoding.translator import Translator
from model import LayerNormalization, Transformer
from pairs.corpus import Corpus
from tapis.config import BOS, EOS, PAD, ConfigError, TapisError
from tapis.engine import engine
from tapis.engine.engine import SHORT_SUMS, VARIANTS, Engine, run_search, variants
from tapis.engine.weights import pack_weight, quantize_rows
from tapis.release import Release
from tapis.scoring import score
from tapis.search import Hypothesis, Search, length_penalty

CPU = torch.device("cpu")

is_compiled = pytest.mark.skipif(engine.library() is None, reason="engine.c was not compiled")


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name not in variants():
        pytest.skip(f"this CPU, or this build of engine.c, has no variant {name}")
    return name


# The model in 8 bits, by torch


def round_rows(x: Tensor, *, for_short_sums: bool = False) -> tuple[Tensor, Tensor]:
    """`quantize_rows` of a tensor."""
    quantized, scale = map(torch.from_numpy, quantize_rows(x.numpy(), for_short_sums=for_short_sums))
    return quantized, scale


class RoundedLinear(nn.Module):
    """A linear layer whose weights and inputs are rounded to 8 bits, and its outputs to bf16 if they are kept."""

    def __init__(self, layer: nn.Linear, variant: str, is_kept: bool) -> None:
        super().__init__()
        quantized, scale = round_rows(layer.weight.detach(), for_short_sums=variant in SHORT_SUMS)
        self.weight = quantized.float() * scale
        self.bias = layer.bias
        self.is_kept = is_kept

    def forward(self, x: Tensor) -> Tensor:
        quantized, scale = round_rows(x.flatten(0, -2))
        y = nn.functional.linear((quantized * scale).view_as(x), self.weight, self.bias)
        return y.bfloat16().float() if self.is_kept else y


def rounded(model: Transformer, variant: str) -> Transformer:
    """A copy of a model, computed as a variant of engine.c does."""
    model = copy.deepcopy(model)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, RoundedLinear(child, variant, is_kept=name in ("w_k", "w_v")))
    return model


def random_model(vocab_size: int, config: Config) -> Transformer:
    """An untrained model with weights, norms and biases of its own."""
    torch.manual_seed(1)
    model = Transformer(vocab_size, config)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=float("alpha" in name), std=0.3)
        elif "w_o" in name:  # so that attention counts for more than rounding
            parameter.data.mul_(4)
    return model.eval().requires_grad_(False)


def sources(n: int, longest: int, vocab_size: int) -> Tensor:
    """Padded ids (n, longest + 1) of random sentences of any length."""
    lengths = torch.randint(1, longest + 1, (n,))
    lengths[0] = longest
    position = torch.arange(longest + 1)
    ids = torch.randint(EOS + 1, vocab_size, (n, longest + 1))
    ids[position == lengths[:, None]] = EOS
    return ids.masked_fill(position > lengths[:, None], PAD)


SMALL = replace(PRESETS["demo"], d_model=16, n_heads=2, d_ff=32)
ODD = replace(SMALL, d_model=50, n_heads=5, d_ff=99, n_encoder_layers=1, n_decoder_layers=3)
WIDE = replace(SMALL, d_model=192, n_heads=2, d_ff=70, tie_embeddings=False)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(("config", "vocab_size"), [(SMALL, 300), (ODD, 333), (WIDE, 64)])
@pytest.mark.parametrize(("n_sentences", "longest"), [(3, 4), (70, 9), (5, 90)])
def test_a_step_equals_the_model_in_8_bits(
    variant: str, norm: Literal["pre", "post"], config: Config, vocab_size: int, n_sentences: int, longest: int
) -> None:
    """Hypotheses multiply, continue in place, are reordered and dropped, and sentences leave."""
    model = random_model(vocab_size, replace(config, norm=norm))
    src = sources(n_sentences, longest, vocab_size)
    first = 2 * torch.arange(n_sentences)[:, None]  # of the hypotheses of each sentence, two each
    calls = [
        (torch.full((n_sentences, 1), 2), None),
        (torch.randint(vocab_size, (n_sentences, 2)), torch.arange(n_sentences)[:, None].repeat(1, 2)),
        (torch.randint(vocab_size, (n_sentences, 2)), None),
        (torch.randint(vocab_size, (n_sentences, 2)), first + torch.randint(2, (n_sentences, 2))),
        (torch.randint(vocab_size, (n_sentences - 1, 2)), (first + torch.tensor([1, 0]))[1:]),
        (torch.randint(vocab_size, (1, 2)), torch.tensor([[2, 2]])),
    ]
    steps = plain_step(rounded(model, variant), src), engine_step(engine_of(model, variant), src, variant)
    for tokens, parents in calls:
        in_place = torch.arange(tokens.numel()).view_as(tokens)
        wanted = steps[0](tokens, in_place if parents is None else parents)
        found = steps[1](tokens, parents)
        # A number half-way between two roundings may be rounded the other way, after which its whole sentence differs
        # by about as much as 8 bits differ from fp32. Most short sentences have none.
        errors = ((found - wanted).norm(dim=-1) / wanted.norm(dim=-1)).flatten()
        assert errors.max() < 0.06 and errors.median() < 0.02
        assert longest > 9 or len(errors) < 100 or (errors < 1e-3).float().mean() > 0.5


def test_a_search_may_have_any_number_of_steps(variant: str) -> None:
    """More than the table of positions has, and than the first room of the history."""
    model = random_model(300, replace(SMALL, max_length=8))
    src = sources(2, 5, 300)
    steps = plain_step(rounded(model, variant), src), engine_step(engine_of(model, variant), src, variant)
    for _ in range(150):
        tokens = torch.randint(300, (2, 1))
        wanted, found = (step(tokens, None if step is steps[1] else torch.tensor([[0], [1]])) for step in steps)
    assert (found - wanted).norm() < 0.05 * wanted.norm()


def test_a_row_is_the_same_in_any_batch(variant: str) -> None:
    model = engine_of(random_model(333, ODD), variant)
    src = sources(140, 12, 333)
    tokens = torch.randint(333, (140, 1))
    together = engine_step(model, src, variant)(tokens, None)
    for i in (0, 1, 63, 64, 139):
        assert torch.equal(engine_step(model, src[i : i + 1], variant)(tokens[i : i + 1], None), together[i : i + 1])


@pytest.mark.parametrize("n_in", [2, 10, 64, 254])
@pytest.mark.parametrize("n_out", [64, 95, 97])
@pytest.mark.parametrize("largest", [False, True])
def test_integer_products_are_exact(variant: str, n_in: int, n_out: int, largest: bool) -> None:
    """The logits of a model whose last vectors and projection are whole numbers, of which the largest is 127.

    Products of the largest numbers would show an overflow. Where sums are short, the largest that four weights may add
    up to is 126.
    """
    config = replace(SMALL, d_model=n_in, n_heads=1, tie_embeddings=False)
    model = random_model(n_out, config)
    is_short = variant in SHORT_SUMS
    most = 31 if is_short else 127
    x, weight = torch.randint(-127, 128, (n_in,)).float(), torch.randint(-most, most + 1, (n_out, n_in)).float()
    if largest:
        x, weight = x.sign() * 127, weight.sign() * most
    x[0], weight[:, 1] = 127, -127
    if is_short:
        weight[:, [0, 4, 5] if n_in > 5 else [0]] = 0
        weight[:, 1] = -126
    assert isinstance(model.decoder.norm, LayerNormalization)
    model.decoder.norm.alpha.zero_()
    model.decoder.norm.bias.copy_(x)
    model.projection.linear.weight.copy_(weight)
    for n_rows in (1, 2, 3, 5, 12, 13):
        step = engine_step(engine_of(model, variant), sources(n_rows, 3, n_out), variant)
        found = step(torch.full((n_rows, 1), 2), None)
        assert torch.equal(found, (x @ weight.T).expand(n_rows, 1, n_out))


def test_attention_takes_scores_of_any_size(variant: str) -> None:
    """Weights that are nothing beside others, and scores far from zero."""
    model = random_model(300, SMALL)
    for block in (*model.encoder.blocks, *model.decoder.blocks):
        block.self_attention.w_q.weight.mul_(40)
    src = sources(4, 20, 300)
    tokens = torch.randint(300, (4, 1))
    wanted = plain_step(rounded(model, variant), src)(tokens, None)
    found = engine_step(engine_of(model, variant), src, variant)(tokens, None)
    assert found.isfinite().all() and (found - wanted).norm() < 0.05 * wanted.norm()


# The best continuations


@pytest.mark.parametrize(("shape", "n"), [((1, 1, 8), 1), ((3, 1, 1000), 2), ((4, 5, 130), 10), ((2, 3, 5), 15)])
@pytest.mark.parametrize("with_scores", [False, True])
def test_the_best_continuations_are_those_of_torch(
    variant: str, shape: tuple[int, int, int], n: int, with_scores: bool
) -> None:
    logits = 5 * torch.randn(shape)
    logits[..., :2] = -torch.inf
    scores = -torch.rand(shape[:2]) if with_scores else None
    if scores is not None and shape[1] > 1:
        scores[0, 1] = -torch.inf
    wanted, wanted_places = best_continuations(logits, n, scores)
    found, places = engine_best_continuations(variant, logits, n, scores)
    torch.testing.assert_close(found, wanted)
    assert torch.equal(places[wanted.isfinite()], wanted_places[wanted.isfinite()])
    assert ((places >= 0) & (places < shape[1] * shape[2])).all()


def test_the_best_continuations_of_any_tensor(variant: str) -> None:
    """Of a slice, and as many as a beam of 1,000 asks for."""
    logits = torch.randn(2, 10, 600)[..., ::2]
    scores = torch.randn(10, 2).T
    found, wanted = (
        engine_best_continuations(variant, logits, 2000, scores.double()),
        best_continuations(logits, 2000, scores),
    )
    torch.testing.assert_close(found[0], wanted[0])
    assert (found[1] == wanted[1]).float().mean() > 0.99  # values that are equal up to rounding may swap


def test_log_probabilities_of_large_logits_are_as_exact_as_the_logits(variant: str) -> None:
    logits = torch.full((1, 1, 1000), 3e4)
    logits[..., 500:] = -3e4
    values, places = engine_best_continuations(variant, logits, 2, torch.zeros(1, 1))
    torch.testing.assert_close(values, torch.full((1, 2), 1 / 500).log(), atol=3e-3, rtol=0)  # units of 3e4
    assert places.max() < 500


# The search

SEARCHES = [Search(), Search(2), Search(5), Search(5, 5), Search(3, 2, 0.0), Search(4, 4, 2.5), Search(12, 3)]


def searched(step: Step, limits: list[int], search: Search, best: FindBest) -> list[list[Hypothesis]]:
    """What decoding/search.py finds."""
    if search.beam == 1:
        return [[Hypothesis(ids, math.nan)] for ids in greedy_search(step, torch.tensor(limits), best)]
    return beam_search(step, torch.tensor(limits), search, best)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
@pytest.mark.parametrize("n_sentences", [1, 7, 70])
def test_the_search_is_that_of_python(variant: str, search: Search, n_sentences: int) -> None:
    """Driving the same steps: the same ids, and the same scores to the last bit."""
    tags = [4, 5, 6]
    model = engine_of(random_model(40, replace(SMALL, max_length=8)), variant, tags)
    src = sources(n_sentences, 12, 40)
    ids = [[token for token in row if token not in (PAD, EOS)] for row in src.tolist()]
    limits = torch.randint(1, 30, (n_sentences,)).tolist()

    def step(tokens: Tensor, parents: Tensor | None) -> Tensor:
        return without_tags(steps, tags, tokens, parents)

    steps = engine_step(model, src, variant)
    expected = searched(step, limits, search, partial(engine_best_continuations, variant))
    assert str(model(ids, limits, search)) == str(expected)  # in which NaN equals NaN
    assert len({len(results[0].ids) for results in expected}) > 1 or n_sentences == 1 or not search.length_penalty


class Script:
    """A model of which each hypothesis has logits of its own: few numbers, so that many scores are equal."""

    def __init__(self, seed: int, vocab_size: int) -> None:
        self.seed = seed
        self.vocab_size = vocab_size
        self.prefixes: list[tuple[int, ...]] = []  # of the hypotheses: their sentence, and their tokens

    def logits(self, tokens: list[int], parents: list[int] | None) -> Tensor:
        """(N, V)"""
        if parents is None and not self.prefixes:
            self.prefixes = [(sentence,) for sentence in range(len(tokens))]
        else:
            rows = range(len(tokens)) if parents is None else parents
            self.prefixes = [(*self.prefixes[row], token) for row, token in zip(rows, tokens, strict=True)]
        drawn = []
        for prefix in self.prefixes:
            random = np.random.default_rng([self.seed, *prefix])
            drawn.append(random.integers(-2, 3, self.vocab_size))
            drawn[-1][EOS] += int(random.integers(0, 4))
        return torch.from_numpy(np.array(drawn)).float()

    def step(self, tokens: Tensor, parents: Tensor | None) -> Tensor:
        """For decoding/search.py"""
        logits = self.logits(tokens.flatten().tolist(), None if parents is None else parents.flatten().tolist())
        return logits.view(*tokens.shape, -1)

    def searched(self, variant: str, limits: list[int], search: Search) -> list[list[Hypothesis]]:
        """For engine.c"""

        def step(n: int, tokens: int, parents: int | None, logits: int) -> int:
            given = [(ctypes.c_int64 * n).from_address(values) if values else None for values in (tokens, parents)]
            assert given[0]
            found = self.logits(list(given[0]), None if given[1] is None else list(given[1]))
            ctypes.memmove(logits, found.contiguous().data_ptr(), found.numel() * 4)
            return 1

        script = ctypes.CFUNCTYPE(ctypes.c_int, c_long, c_void_p, c_void_p, c_void_p)(step)

        def call(n: int, settings: Any, results: Any) -> int:
            outcome: int = function("search", variant)(
                script, c_long(self.vocab_size), c_long(n), ctypes.byref(settings), ctypes.byref(results)
            )
            return outcome

        return run_search(call, limits, search, [])


@settings(deadline=None, max_examples=150)
@given(
    st.integers(0, 10**6),
    st.sampled_from([5, 6, 9, 30]),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.sampled_from(SEARCHES),
)
def test_a_search_of_scripted_logits_is_that_of_python(
    seed: int, vocab_size: int, limits: list[int], search: Search
) -> None:
    """With many ties, and vocabularies smaller than the beam."""
    best = partial(engine_best_continuations, "")
    expected = searched(Script(seed, vocab_size).step, limits, search, best)
    assert str(Script(seed, vocab_size).searched(variants()[0], limits, search)) == str(expected)


test_a_search_of_scripted_logits_is_that_of_python = is_compiled(test_a_search_of_scripted_logits_is_that_of_python)


def test_what_is_checked_every_eighth_step_ends_a_search(variant: str) -> None:
    model = engine_of(random_model(40, SMALL), variant, [EOS])
    n_checks = 0

    def check() -> None:
        nonlocal n_checks
        n_checks += 1
        if n_checks == 3:
            raise InterruptedError("enough")

    for search in (Search(), Search(3)):
        n_checks = 0
        model([[7, 8]], [16], search, check)  # the steps 1 and 9
        with pytest.raises(InterruptedError, match="enough"):
            model([[7, 8]], [17], search, check)  # and 1
        assert n_checks == 3


INTERRUPTED = """
import signal, sys
from tapis.search import Search
from tapis.translator import Translator

n_signals = 0

def interrupt(*_):
    global n_signals
    n_signals += 1
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
translator = Translator.load(sys.argv[1])
for searched in (translator, translator.checked_by(lambda: None)):
    for i in range(40):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.002 + i * 0.0005, 1)
            while True:
                searched.n_best(["The cat is sitting on the mat."], Search(1 + i % 5, n_best=1))
        except KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, 0)
print(n_signals)
"""


@is_compiled
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers that send signals")
def test_ctrl_c_ends_a_search() -> None:
    """Whenever it comes: also where the search calls Python, which reports it there as an error that is ignored.

    SIGALRM stands for it, since SIGINT may be switched off for programs in the background.
    """
    release = ROOT / "tests/formats/format-1.tar.gz"
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(release)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (done.returncode, done.stdout) == (0, "80\n"), done.stderr


@is_compiled
@pytest.mark.parametrize("search", [Search(), Search(2)])
def test_numbers_that_are_not_finite_are_an_error(search: Search) -> None:
    broken = random_model(40, SMALL)
    broken.projection.linear.weight.fill_(torch.nan)
    with pytest.raises(TapisError, match="not finite in this precision: try --precision fp32"):
        engine_of(broken)([[7, 8], [9]], [5, 5], search)


# Forced decoding


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("config", [SMALL, ODD, WIDE])
def test_forced_decoding_is_that_of_the_model_in_8_bits(
    variant: str, norm: Literal["pre", "post"], config: Config
) -> None:
    """Log-probabilities and attention of translations of any length, also of none."""
    model = random_model(64, replace(config, norm=norm))
    pairs = [[[7, 8, 9], [10]], [[11], []], [[12] * 30, list(range(10, 60))], [[13, 14], [15, 16, 17]]]
    sources, targets = zip(*pairs, strict=True)
    tags = [4, 5]
    engine = engine_of(model, variant, tags)
    in_8_bits = rounded(model, variant)
    wanted = log_probabilities(in_8_bits, sources, targets, CPU, tags)
    found = engine.log_probabilities(sources, targets)
    assert found == pytest.approx(wanted, rel=0.02, abs=0.1)
    wanted_weights = attentions(in_8_bits, sources, targets)
    found_weights = engine.attention(sources, targets)
    for one, other in zip(found_weights, wanted_weights, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one.sum(-1), 1, rtol=1e-5)
        assert np.abs(one - other).mean() < 0.01


def test_forced_decoding_of_one_pair_is_the_same_in_any_batch(variant: str) -> None:
    engine = engine_of(random_model(64, ODD), variant)
    sources, targets = [[7, 8], [9] * 20, [10]], [[11, 12, 13], [], [14] * 9]
    together, weights = engine.log_probabilities(sources, targets), engine.attention(sources, targets)
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        assert engine.log_probabilities([source], [target]) == [together[i]]
        np.testing.assert_array_equal(engine.attention([source], [target])[0], weights[i])
    assert engine.log_probabilities([], []) == [] == engine.attention([], [])


def test_a_search_scores_as_forced_decoding_does(variant: str) -> None:
    _, tokenizer, weights = (release := Release.find(str(ROOT / "tests/formats/format-1.tar.gz"))).load_weights()
    engine = Engine(weights, release.load_config(), (), variant)
    sources = tokenizer.encode(["A dog.", "She sees a red house."])
    best = [hypotheses[0] for hypotheses in engine(sources, [100] * 2, Search(4, length_penalty=1.0))]
    assert all(0 < len(hypothesis.ids) < 100 for hypothesis in best), "each has an end"
    log_p = engine.log_probabilities(sources, [one.ids for one in best])
    scores = [value / length_penalty(len(one.ids) + 1, 1.0) for value, one in zip(log_p, best, strict=True)]
    assert [one.score for one in best] == pytest.approx(scores, rel=1e-4)


def test_no_sentences_have_no_translations(variant: str) -> None:
    engine = engine_of(random_model(64, SMALL), variant)
    assert engine([], [], Search()) == engine([], [], Search(3)) == []


def test_what_is_never_generated_has_no_probability(variant: str) -> None:
    engine = engine_of(random_model(64, SMALL), variant, [4, 5])
    log_p = engine.log_probabilities([[7], [7], [7]], [[8, 5, 9], [8, BOS], [8, 6]])
    assert log_p[:2] == [-math.inf, -math.inf] and math.isfinite(log_p[2])


def test_what_is_checked_ends_forced_decoding(variant: str) -> None:
    def check() -> None:
        raise InterruptedError("enough")

    with pytest.raises(InterruptedError, match="enough"):
        engine_of(random_model(40, SMALL), variant).attention([[7]], [[8]], check)


def test_weights_of_another_model_are_refused(variant: str) -> None:
    weights = {name: weight.numpy() for name, weight in parameters(random_model(40, SMALL)).items()}
    for config, text in (
        (replace(SMALL, n_decoder_layers=3), "decoder.blocks.2"),
        (replace(SMALL, n_encoder_layers=1), "encoder.blocks.1"),
        (replace(SMALL, d_ff=34), r"linear_1.bias is \(32,\), and must be \(34,\)"),
        (replace(SMALL, tie_embeddings=False), "projection.linear.weight is missing"),
    ):
        with pytest.raises(ConfigError, match=text):
            Engine(weights, config, (), variant)


# From Python


def test_packing_keeps_every_weight() -> None:
    weight = (np.arange(33 * 6) % 127).astype(np.int8).reshape(33, 6)
    packed = pack_weight(weight)  # panels, groups of four numbers, columns, four numbers
    assert packed.shape == (2, 2, 32, 4)
    columns = packed.transpose(0, 2, 1, 3).reshape(64, 8)
    np.testing.assert_array_equal(columns[:33, :6], weight)
    assert not columns[33:].any() and not columns[:, 6:].any()


def test_rounding_is_to_127_steps_of_the_largest_entry() -> None:
    values, scale = quantize_rows(np.array([[254, -3, 1.1], [0, 0, 0]], np.float32))
    assert values.tolist() == [[127, -2, 1], [0, 0, 0]]
    assert scale.flatten().tolist() == [2, pytest.approx(1e-30 / 127)]


@given(hnp.arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(1, 20)), elements=st.floats(-9, 9, width=32)))
def test_short_sums_fit_into_16_bits(x: "np.ndarray[Any, np.dtype[np.float32]]") -> None:
    """Whatever the weights are: as avx2 adds them, and with activations that hurt most."""
    values, scale = quantize_rows(x, for_short_sums=True)
    fours = np.pad(values, ((0, 0), (0, -x.shape[1] % 8))).astype(int).reshape(len(x), -1, 2, 2, 2)
    for sign in (1, -1):
        assert (255 * np.maximum(sign * fours, 0).sum(axis=(2, 4))).max() < 2**15
    assert np.abs(values * scale - x).max() <= scale.max() * 0.501
    plain_scale = quantize_rows(x)[1]
    assert (scale >= plain_scale).all() and (scale <= plain_scale * 4.04).all()


@is_compiled
def test_the_model_stays_as_it_is(model: Transformer) -> None:
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    engine_of(model)
    assert all(torch.equal(before[name], parameter) for name, parameter in model.named_parameters())


@is_compiled
def test_int8_is_the_default_on_every_cpu() -> None:
    assert choose_translating("auto", CPU) == "int8"
    assert choose_translating("fp32", CPU) == "fp32"
    with pytest.raises(ConfigError, match="int8 is for CPUs; on mps, choose"):
        choose_translating("int8", torch.device("mps"))


@pytest.mark.parametrize(
    ("runs", "wanted", "best"),
    [
        (set(VARIANTS), "", "avx512_vnni"),
        ({"avx_vnni", "avx2", "plain"}, "", "avx_vnni"),
        ({"avx2", "plain"}, "", "avx2"),
        ({"avx2", "plain"}, "plain", "plain"),
        ({"avx2", "plain"}, "avx512_vnni", "avx2"),  # which it cannot compute
        ({"neon_dotprod", "plain"}, "", "neon_dotprod"),
    ],
)
def test_the_best_variant_that_the_cpu_has_is_chosen(
    runs: set[str], wanted: str, best: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class EveryVariant:
        def __getattr__(self, name: str) -> str:
            return name

        def __getitem__(self, name: str) -> Callable[[], bool]:
            return lambda: name.removeprefix("runs_") in runs

    monkeypatch.setenv("TAPIS_VARIANT", wanted)
    monkeypatch.setattr(engine, "library", EveryVariant)
    assert variants()[0] == best


def test_without_a_compiler_torch_computes(
    monkeypatch: pytest.MonkeyPatch, trained: "subprocess.CompletedProcess[str]", translator: Translator
) -> None:
    monkeypatch.setattr(engine, "library", lambda: None)
    assert choose_translating("auto", CPU) in ("fp32", "bf16")
    with pytest.raises(ConfigError, match="install a C compiler"):
        choose_translating("int8", CPU)
    run = Path(trained.args[0]) / "weights" / "demo"
    assert Translator.load(run, "cpu")(["A cat."]) == translator(["A cat."])


def test_there_is_no_library_if_it_was_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    assert engine.library.__wrapped__() is None


def test_there_is_no_library_if_it_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "empty.so").touch()
    monkeypatch.setattr(engine, "find_spec", lambda name: SimpleNamespace(origin=str(tmp_path / "empty.so")))
    assert engine.library.__wrapped__() is None


@is_compiled
def test_a_library_of_other_structures_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine.library.__wrapped__()
    monkeypatch.setattr(engine, "_Step", engine._Model)
    assert engine.library.__wrapped__() is None


@is_compiled
def test_int8_loses_no_bleu(trained: "subprocess.CompletedProcess[str]", translator: Translator, demo: Corpus) -> None:
    small = Translator.load(Path(trained.args[0]) / "weights" / "demo", "cpu", "int8")
    texts, references = ([pair[side] for pair in demo.test] for side in (0, 1))
    found = small(texts)
    assert score(found, references, "fr").bleu == pytest.approx(score(translator(texts), references, "fr").bleu, abs=1)
    assert [small([text])[0] for text in texts[:40]] == found[:40]
    _, attention = small.attention("The cat is sitting on the mat.")
    np.testing.assert_allclose(attention.weights.sum(-1), 1, rtol=1e-5)


@is_compiled
def test_the_command_translates_in_int8(run_folder: object, called: Command) -> None:
    done = called("translate.py", "--device", "cpu", "--precision", "int8", "A cat.", "")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 2


# Variants that this CPU lacks, in a C program of their own


@pytest.mark.parametrize(
    ("compiler", "options", "emulator", "n_compared"),
    [
        pytest.param("cc", ["-DEMULATE_VNNI"], [], 6, id="VNNI by C functions"),
        pytest.param("clang", ["-DEMULATE_VNNI"], [], 6, id="clang, VNNI by C functions"),
        pytest.param("aarch64-linux-gnu-gcc", ["-static"], ["qemu-aarch64", "-cpu", "max"], 2, id="NEON"),
        pytest.param("aarch64-linux-gnu-gcc", ["-static"], ["qemu-aarch64", "-cpu", "cortex-a53"], 0, id="old NEON"),
    ],
)
def test_all_variants_compute_the_same(
    compiler: str, options: list[str], emulator: list[str], n_compared: int, tmp_path: Path
) -> None:
    """tests/engine/engine_check.c compares the variants with plain C, for pre-norm and for post-norm."""
    for program in (compiler, *emulator[:1]):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")
    if not emulator and not {"avx2", "fma3"} <= {name for name, has in torch.cpu.get_capabilities().items() if has}:
        pytest.skip("this CPU has no AVX2")
    source = ROOT / "tests" / "engine" / "engine_check.c"
    flags = [*compiler_flags(), "-Wno-psabi", *options]
    subprocess.run([compiler, *flags, str(source), "-o", "check", "-lm"], check=True, cwd=tmp_path)
    done = subprocess.run([*emulator, "./check"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{n_compared} variants agree" in done.stdout


N_FUZZED = 30  # a tenth of a second each; every night tries thousands


def compiled_with(options: list[str], source: Path, output: str) -> None:
    """Compile C code as pip does, but for the options."""
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed")
    flags = [flag for flag in compiler_flags() if flag != "-O3"]
    command = ["gcc", "-O1", "-g", *flags, "-Wno-psabi", *options, str(source), "-o", output, "-lm"]
    subprocess.run(command, check=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="sanitizers are preloaded as on Linux")
@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("variant", ["plain"], indirect=True)
def test_whatever_a_search_is_given_the_memory_is_its_own() -> None:
    """tests/engine/engine_fuzz.py, in a library with AddressSanitizer and UndefinedBehaviorSanitizer."""
    sanitizers = ["-shared", "-fPIC", "-fsanitize=address,undefined", "-fno-sanitize-recover"]
    compiled_with(sanitizers, ROOT / "tapis/engine/engine.c", "engine.so")
    preloaded = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout
    environment = {"LD_PRELOAD": preloaded.strip(), "ASAN_OPTIONS": "detect_leaks=0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "tests/engine/engine_fuzz.py"), "./engine.so", "1", str(N_FUZZED)]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout == f"{N_FUZZED} cases\n", done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ThreadSanitizer, as on Linux")
def test_threads_that_translate_with_one_model_do_not_disturb_each_other() -> None:
    """tests/engine/engine_threads.c, with ThreadSanitizer."""
    compiled_with(["-fsanitize=thread", "-pthread"], ROOT / "tests/engine/engine_threads.c", "threads")
    done = subprocess.run(["./threads"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "threads found what one found" in done.stdout, done.stderr[-3000:]


def compiler_flags() -> list[str]:
    """Those of pyproject.toml."""
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (module,) = settings["tool"]["setuptools"]["ext-modules"]
    flags: list[str] = module["extra-compile-args"]
    return flags
