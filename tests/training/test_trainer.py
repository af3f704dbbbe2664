"""One run in memory: accumulation, exact resuming, clipping, fp16, and what is refused."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ROOT, first

from checkpoint import RunFolder, parameters
from config import Config
from dataset import Batch, EncodedPairs, collate
from fast.packed_batch import PackedBatch
from machine.distributed import ALONE, Group
from pairs.corpus import Corpus
from pairs.tables import Pairs
from tapis.config import PAD
from tapis.release import CheckpointError
from tapis.system.terminal import is_main
from tapis.text.tokenizer import Tokenizer
from train import take_step
from training.batch_plan import BatchPlan
from training.description import counts_of_tokens, describe
from training.failures import TrainingError
from training.own_translations import Translated
from training.records import Validation
from training.resolved import Resolved
from training.state import restore, state_of, to_tensors
from training.trainer import Training
from training.validation import validate

CPU = torch.device("cpu")


def snapshot(training: Training) -> dict[str, torch.Tensor]:
    return {name: parameter.clone() for name, parameter in parameters(training.model).items()}


def advance(training: Training, steps: int) -> None:
    """Makes so many steps, as train.loop does."""
    for _ in range(steps):
        if training.is_round_due:
            training.make_rounds()
        training.advance(take_step(training, training.step + 1))


# Resuming


def test_what_changed_is_named_and_not_resumed(tiny: Config, small: Corpus, demo: Corpus, tokenizer: Tokenizer) -> None:
    saved = state_of(Training(tiny, small, tokenizer))
    other = Tokenizer.train((side for pair in demo.train[1000:2000] for side in pair), 300)
    for change, names in (
        ({"corpus": replace(small, train=first(demo.train, 399))}, "its training pairs changed"),
        ({"corpus": replace(small, valid=first(demo.valid, 19))}, "its validation pairs changed"),
        ({"corpus": replace(small, test=first(demo.test, 19))}, "its test pairs changed"),
        ({"tokenizer": other}, "tokenizer changed"),
        ({"config": replace(tiny, lr=0.1, seed=9)}, "lr, seed changed"),
    ):
        now: dict[str, Any] = {"config": tiny, "corpus": small, "tokenizer": tokenizer, **change}
        with pytest.raises(CheckpointError, match=names):
            restore(Training(**now), saved)
    longer = Training(replace(tiny, epochs=5, valid_every=7, log_every=3), small, tokenizer)
    restore(longer, saved)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"optimizer": "muon"},
        {"precision": "fp16"},
        {"plain": True},
        {"self_distillation": 0.3},
        {"self_distillation": 0.5},
        {"data": ("a", "b"), "data_weights": (0.4, 2.0), "self_distillation": 0.3},
    ],
)
def test_ten_steps_equal_six_and_four_resumed(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, tmp_path: Path, change: dict[str, Any]
) -> None:
    """With self-distillation too, whether the translations were made before the run was saved or after."""
    config = replace(
        tiny,
        steps=10,
        max_length=60,
        batch_tokens=64,
        dropout=0.2,
        subword_dropout=0.1,
        augment=0.3,
        terms=0.5,
        **change,
    )
    small = replace(small, train=first(small.train, 60))
    if config.data_weights:
        origins = [origin._replace(label=data) for data in config.data for origin in small.origins]
        valid = Pairs.joined([small.valid, first(small.valid, 5)])
        small = replace(small, train=Pairs.joined([small.train, small.train]), valid=valid, origins=origins)
    straight = Training(config, small, tokenizer)
    assert straight.steps_per_epoch > 5
    advance(straight, 10)

    begun = Training(config, small, tokenizer)
    advance(begun, 6)
    folder = RunFolder(tmp_path / "run")
    folder.save_state(state_of(begun))
    torch.manual_seed(99)
    resumed = Training(config, small, tokenizer)
    restore(resumed, folder.load_state())
    assert resumed.step == 6
    assert bool(resumed.translated.n_rounds) == (change.get("self_distillation") == 0.5)
    advance(resumed, 4)

    for name, parameter in parameters(straight.model).items():
        assert torch.equal(parameters(resumed.model)[name], parameter), name


def test_the_state_of_another_version_is_refused_in_words(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    training = Training(tiny, small, tokenizer)
    state = state_of(training)
    del state["resume_signature"]
    with pytest.raises(CheckpointError, match="another version of Tapis"):
        restore(training, state)


def test_the_report_counts_what_is_learned_from(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    """Not the pairs that are too long."""
    config = replace(tiny, max_length=int(np.median(Training(tiny, small, tokenizer).train_pairs.src_lengths)))
    training = Training(config, small, tokenizer)
    learned_from = replace(small, train=small.train.select(training.train_pairs.rows))
    assert len(training.train_pairs.too_long)
    report, expected = describe(training), describe(Training(config, learned_from, tokenizer))
    assert report.sides == expected.sides and report.rare_tokens == expected.rare_tokens


def test_tokens_are_counted_in_parts(small: Corpus, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.description.COUNTED_TOGETHER", 7)
    pairs, rows = EncodedPairs.of(small.train, tokenizer), np.arange(3, 40)
    expected = np.bincount(pairs.ids(rows)[0].ids, minlength=len(tokenizer))
    assert counts_of_tokens(pairs.sources, rows, len(tokenizer)).tolist() == expected.tolist()


# Batches


def test_batches_that_a_thread_prepares_are_those_of_their_steps(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a GPU. Steps are taken in their order, and then others, as a time budget takes them."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    training = Training(replace(tiny, subword_dropout=0.1), small, tokenizer)
    plan = BatchPlan(training.config, training.train_pairs, [], ALONE, in_ranges=True)
    last = 2 * plan.steps_per_epoch
    for step in (*range(1, last), 3, last + 5, 1):
        plan.prepare(range(step + 1, step + 5))
        assert len(plan._prepared) == 4
        for (place, batch), (place_now, now) in zip(plan.batches_of(step), plan.make_batches(step), strict=True):
            assert isinstance(batch, PackedBatch) and isinstance(now, PackedBatch)
            assert place == place_now and torch.equal(batch.flat, now.flat)

    # What a graph reads is the batch, and so is what other steps copy at once.
    assert isinstance(batch, PackedBatch)
    for read in (batch.read_from(batch.flat)(), batch.to(torch.device("cpu"))):
        assert [tensor.tolist() for tensor in read.tensors] == [tensor.tolist() for tensor in batch.tensors]
        assert read.shape == batch.shape and (read.n_tgt, read.longest) == (batch.n_tgt, batch.longest)


def test_a_batch_that_fills_up_a_step_counts_for_nothing_on_a_gpu(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    pairs = Training(tiny, small, tokenizer).train_pairs
    plan = BatchPlan(tiny, pairs, [], Group(rank=2, size=3), accumulate=4, in_ranges=True)
    (_, first), (_, last) = plan.make_batches(1)
    assert isinstance(first, PackedBatch) and isinstance(last, PackedBatch)
    labels, filled = (batch.to(torch.device("cpu")).labels for batch in (first, last))
    assert labels.any() and last.n_tgt == 0 and not (filled != PAD).any()


def test_accumulated_batches_equal_one_batch(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    config = replace(tiny, dropout=0.0, lr=0.1)
    one, four = Training(config, small, tokenizer), Training(replace(config, accumulate=4), small, tokenizer)
    assert four.steps_per_epoch == -(-one.batches_per_epoch // 4)
    parts = four.batch_plan.batches_of(1)
    assert len(parts) == 4 and len({part.n_tgt for _, part in parts}) > 1, "unequal parts show a mean of means"
    record = take_step(four, 1)

    rows = [row for part in four.batch_plan.batches_of_first_epoch[:4] for row in part]
    whole = replace(config, plain=True)
    plain = Training(whole, small, tokenizer)
    plain.model.load_state_dict(one.model.state_dict())
    batch = collate(*plain.train_pairs.ids(np.array(rows)))
    plain.batch_plan.batches_of = lambda step: [(0, batch)]  # type: ignore[method-assign]
    expected = take_step(plain, 1)
    assert (record.n_tgt, record.n_tokens) == (expected.n_tgt, expected.n_tokens)
    assert record.loss == pytest.approx(expected.loss, rel=1e-5)
    assert record.grad_norm == pytest.approx(expected.grad_norm, rel=1e-4)


def test_an_epoch_learns_from_every_pair_once(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    training = Training(replace(tiny, accumulate=3, epochs=2, plain=True), small, tokenizer)
    batches = [
        batch for step in range(1, training.steps_per_epoch + 1) for _, batch in training.batch_plan.batches_of(step)
    ]
    assert sum(len(batch.src) for batch in batches if isinstance(batch, Batch)) == len(small.train)
    assert training.batch_plan.place_of(training.steps_per_epoch) == (0, training.steps_per_epoch - 1)
    assert training.batch_plan.place_of(training.steps_per_epoch + 1) == (1, 0)


# The plain formulas and the fast ones


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_plain_training_equals_fast_training(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, norm: Any, optimizer: Any
) -> None:
    """Without dropout, which draws other random numbers."""
    config = replace(tiny, dropout=0.0, subword_dropout=0.1, norm=norm, optimizer=optimizer)
    fast, plain = Training(config, small, tokenizer), Training(replace(config, plain=True), small, tokenizer)
    for step in range(1, 5):
        records = take_step(fast, step), take_step(plain, step)
        assert records[0].loss == pytest.approx(records[1].loss, rel=1e-4)
        assert records[0].cross_entropy == pytest.approx(records[1].cross_entropy, rel=1e-4)
        assert records[0].grad_norm == pytest.approx(records[1].grad_norm, rel=1e-3)
        assert records[0].n_tokens == records[1].n_tokens
    (one, translations), (other, plain_translations) = validate(fast), validate(plain)
    assert one.loss == pytest.approx(other.loss, rel=1e-3)
    assert len(translations) == len(plain_translations) == len(small.valid)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:.*should not be instantiated")  # both torch's own
def test_compiled_parts_learn_the_same_from_few_graphs(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    """Only the capture of the graphs can be tried everywhere. Byte dropout, which GPUs do not use, is no part of it."""
    plain, compiled = (Training(replace(tiny, dropout=0.0), small, tokenizer) for _ in range(2))
    assert plain.n_graphs == 0
    compiled.compile("eager")
    for step in range(1, 7):
        assert take_step(compiled, step).loss == pytest.approx(take_step(plain, step).loss, rel=1e-4)
    graphs = compiled.n_graphs
    assert 2 <= graphs <= 4 and not torch._dynamo.utils.counters["graph_break"]
    assert validate(compiled)[0].loss == pytest.approx(validate(plain)[0].loss, rel=1e-3)
    assert compiled.n_graphs == graphs

    # A batch of one sentence is no reason to compile again.
    batch = PackedBatch.of(*plain.train_pairs.ids(np.arange(1)))
    loss, _ = compiled.model_loss(batch)
    assert loss.item() == pytest.approx(plain.model_loss(batch)[0].item(), rel=1e-4)
    assert compiled.n_graphs == graphs


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:.*should not be instantiated")  # both torch's own
def test_a_part_that_cannot_be_compiled_is_reported_and_runs_as_it_is(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(graph: Any, example_inputs: Any) -> Any:
        raise RuntimeError("no compiler found")

    plain, compiled = (Training(replace(tiny, dropout=0.0), small, tokenizer) for _ in range(2))
    compiled.compile(broken)
    for step in range(1, 4):
        assert take_step(compiled, step).loss == pytest.approx(take_step(plain, step).loss, rel=1e-4)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "could not compile" in line]
    assert "could not compile run_stack" in line and "no compiler found" in line


# Gradients


def test_gradients_are_clipped(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    training = Training(replace(tiny, clip_norm=0.01), small, tokenizer)
    norms: list[float] = []
    step = training.optimizers[0].step

    def spy() -> None:
        gradients = [p.grad.flatten() for p in training.model.parameters() if p.grad is not None]
        norms.append(torch.cat(gradients).norm().item())
        step()

    training.optimizers[0].step = spy  # type: ignore[method-assign, assignment]
    assert take_step(training, 1).grad_norm > 0.01
    assert norms == [pytest.approx(0.01, rel=1e-3)]


def test_a_gradient_that_is_not_finite_leaves_the_weights(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    training = Training(tiny, small, tokenizer)
    with torch.no_grad():
        training.model.projection.linear.weight[0] = torch.inf
    before = snapshot(training)
    with pytest.raises(TrainingError, match=r"step 1 \(epoch 1, batch 1\) is not finite.*\n.*--lr"):
        take_step(training, 1)
    assert all(torch.equal(before[name], now) for name, now in parameters(training.model).items())


def test_fp16_gradients_are_scaled_up_and_down_again(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    plain, half = (Training(replace(tiny, precision=p), small, tokenizer) for p in ("fp32", "fp16"))
    assert half.scaler.get_scale() > 1000
    expected, record = take_step(plain, 1), take_step(half, 1)
    assert record.grad_norm == pytest.approx(expected.grad_norm, rel=0.02)
    assert record.loss == pytest.approx(expected.loss, rel=0.01)


def test_fp16_that_overflows_skips_the_step_and_goes_on(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    training = Training(replace(tiny, precision="fp16"), small, tokenizer)
    training.scaler.load_state_dict({**training.scaler.state_dict(), "scale": 2.0**60})
    before = snapshot(training)
    take_step(training, 1)
    assert all(torch.equal(before[name], now) for name, now in parameters(training.model).items())
    assert training.scaler.get_scale() == 2.0**59
    training.scaler.load_state_dict({**training.scaler.state_dict(), "scale": 1024.0})
    take_step(training, 2)
    assert any(not torch.equal(before[name], now) for name, now in parameters(training.model).items())


def test_no_optimizer_steps_where_fp16_overflows_for_another(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    training = Training(replace(tiny, precision="fp16", optimizer="muon", clip_norm=0.0), small, tokenizer)
    # Without clipping, which would turn the finite gradients into zeros.
    before, scale = snapshot(training), training.scaler.get_scale()
    weights = dict(training.model.named_parameters())
    of_adam, of_muon = "src_embed.embedding.weight", "encoder.blocks.0.self_attention.w_q.weight"
    for overflowing in (of_adam, of_muon):
        for name, weight in weights.items():
            weight.grad = torch.full_like(weight, torch.inf if name == overflowing else 1.0)
        training.scaler.scale(torch.zeros(()))  # as before a backward pass
        grad_norm, _ = training.clip_gradient()
        training.step_optimizers(1e-3, float(grad_norm))
        scale /= 2
        assert training.scaler.get_scale() == scale
        assert all(torch.equal(before[name], now) for name, now in parameters(training.model).items())


# What it learns


@pytest.mark.slow
def test_ten_pairs_are_learned_by_heart(tiny: Config, demo: Corpus, tokenizer: Tokenizer) -> None:
    ten = replace(demo, train=first(demo.train, 10), valid=first(demo.train, 10))
    config = replace(
        tiny, d_model=64, d_ff=128, dropout=0.0, epochs=120, batch_tokens=512, lr=5e-3, label_smoothing=0.0
    )
    training = Training(config, ten, tokenizer)
    advance(training, training.total_steps)
    result, hypotheses = validate(training)
    assert hypotheses == [target for _, target in ten.valid]
    assert result.bleu == pytest.approx(100) and result.perplexity < 1.05


def test_the_best_is_by_bleu_then_loss() -> None:
    def rank(bleu: float, loss: float) -> tuple[float, float]:
        return Validation(1, loss, 1.0, bleu, 0.0).rank()

    assert rank(2.0, 9.0) > rank(1.0, 1.0)
    assert rank(0.0, 1.0) > rank(0.0, 2.0)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, True),
        ({"RANK": "0", "TORCHELASTIC_RUN_ID": "none"}, True),
        ({"RANK": "1", "TORCHELASTIC_RUN_ID": "none"}, False),
        ({"RANK": "1"}, True),  # set by another program: the process computes alone
    ],
)
def test_the_main_process_has_rank_zero(
    environment: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert is_main() is expected


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("resume_signature",), 7),
        (("step",), "x"),
        (("step",), -5),
        (("seconds",), None),
        (("best",), {"step": "x"}),
        (("best",), [1]),
        (("model",), None),
        (("model", "projection.weight"), "x"),
        (("optimizers",), {}),
        (("optimizers", 0), [1]),
        (("optimizers", 0, 0, "exp_avg"), torch.ones(3)),
        (("optimizers", 0, 0, "exp_avg"), torch.ones(())),
        (("optimizers", 0, 0, "exp_avg"), torch.ones(3, dtype=torch.int64)),
        (("optimizers", 0, 0, "step"), torch.ones(3)),
        (("optimizers", 0, 0, "other"), torch.ones(())),
        (("optimizers", 0), lambda now: now[:-1]),
        (("optimizers", 0), [{name: torch.ones(()) for name in ("step", "exp_avg", "exp_avg_sq")}]),
        (("optimizers", 0, 0, "exp_avg"), lambda now: now * math.nan),
        (("optimizers", 0, 0, "exp_avg_sq"), lambda now: now - 1),
        (("optimizers", 0, 0, "exp_avg_sq"), lambda now: now + math.inf),
        (("optimizers", 0, 0, "exp_avg"), lambda now: now.double()),
        (("optimizers", 0, 0, "step"), torch.tensor(-1.0)),
        (("model", "encoder.norm.bias"), lambda now: now * math.inf),
        (("model", "encoder.norm.bias"), lambda now: now.to(torch.int8)),
        (("model", "encoder.norm.bias"), lambda now: now.to(torch.complex64)),
        (("scaler",), None),
        (("translated",), 7),
        (("step",), 2**63),
        (("tokens",), -5),
        (("seconds",), math.nan),
        (("seconds",), 1e299),
        (("best",), {"step": 1, "loss": 1.0, "perplexity": 1.0, "bleu": 1e299, "chrf": 1.0}),
        (("validations_since_best",), -1),
        (("translated", "n_rounds"), -1),
        (("translated", "n_rounds"), 2.5),
        (("translated", "after_step"), -1000),
        (("translated", "targets"), to_tensors({10**9: [5]})),
        (("translated", "targets"), to_tensors({0: [5] * 1000})),
        (("translated", "targets"), to_tensors({0: [10**6]})),
    ],
)
def test_a_state_of_other_types_is_refused_in_words(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, place: tuple[str | int, ...], value: object
) -> None:
    config = replace(tiny, precision="fp16", self_distillation=0.5, drop_unrelated=True)
    training, again = Training(config, small, tokenizer), Training(config, small, tokenizer)
    training.advance(take_step(training, 1))
    training.step = training.total_steps
    training.learn_from(Translated(2, 1, targets={0: [5, 6]}))
    state: Any = state_of(training)
    restore(again, state)
    assert again.translated.n_rounds
    changed: Any = state
    for key in place[:-1]:
        changed = changed[key]
    changed[place[-1]] = value(changed[place[-1]]) if callable(value) else value
    with pytest.raises(CheckpointError, match="the training state") as error:
        restore(again, state)
    assert len(str(error.value).splitlines()) <= 2


def test_the_page_of_the_run_folder_has_each_key_of_a_state(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    text = (ROOT / "docs/run-folder.md").read_text(encoding="utf-8")
    table = text.partition("## training/state.safetensors")[2].partition("\n## ")[0]
    names = " ".join(re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", names)) == state_of(Training(tiny, small, tokenizer)).keys()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("resolved", 7),
        ("resolved", {"precision": "auto", "accumulate": 1, "warmup_steps": 1, "steps": 1}),
        ("resolved", {"precision": "fp8", "accumulate": 1, "warmup_steps": 1, "steps": 1}),
        ("resolved", {"precision": "fp32", "accumulate": 10**9, "warmup_steps": 1, "steps": 1}),
        ("resolved", {"precision": "fp32", "accumulate": 1, "warmup_steps": torch.ones(2), "steps": 1}),
    ],
)
def test_what_a_state_says_was_settled_is_checked(tiny: Config, name: str, value: object) -> None:
    state = {**Resolved.of(tiny, CPU).to_state(tiny), name: value}
    with pytest.raises(CheckpointError, match=r"the training state of .* is damaged"):
        Resolved.saved(state, tiny)


@pytest.mark.parametrize("asked", [7, None, {"epochs": torch.tensor([1, 2]), "steps": 0}])
def test_a_state_that_was_asked_for_something_else_follows_the_config(tiny: Config, asked: object) -> None:
    state = {**replace(Resolved.of(tiny, CPU), steps=99).to_state(tiny)}
    assert Resolved.saved(state, tiny).steps == 99
    assert Resolved.saved({**state, "asked": asked}, replace(tiny, steps=7)).steps == 7


def test_a_run_has_no_more_steps_than_one_may_ask_for(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    """A million epochs, to be ended by --patience, could not be resumed."""
    training = Training(replace(tiny, steps=0, epochs=1_000_000, batch_tokens=130), small, tokenizer)
    training.plan_steps(10**12, 0)
    assert training.total_steps == 10**9
    assert Resolved.saved(training.resolved.to_state(training.config), training.config) == training.resolved


def test_a_signature_of_other_types_is_refused(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    training = Training(tiny, small, tokenizer)
    state = state_of(training)
    state["resume_signature"] = {"source": torch.tensor(1), "target": torch.tensor(2)}
    with pytest.raises(CheckpointError, match="another version of Tapis"):
        restore(training, state)
