"""Accumulation, exact resume, what is kept and logged, and the command from start to end."""

import importlib.util
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import sacrebleu
import torch
from conftest import ROOT, Command, first
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from checkpoint import CheckpointError, RunFolder, parameters
from config import EOS, PAD, Config, ConfigError
from decoding.search import Search
from system.cli import is_out_of_memory
from system.distributed import ALONE, Group
from text.corpus import Corpus
from text.tokenizer import Tokenizer
from train import broken_off, interruption, resolve, run
from training.objective import learning_rate
from training.report import Logs, StepLog, Validation
from training.trainer import Training, TrainingError, scoring_steps, steps_until


def snapshot(training: Training) -> dict[str, torch.Tensor]:
    return {name: parameter.clone() for name, parameter in parameters(training.model).items()}


def advance(training: Training, steps: int) -> None:
    """As `run` does it."""
    for _ in range(steps):
        if training.is_to_distill:
            training.distill()
        training.update(training.step + 1)
        training.step += 1


def test_what_changed_is_named_and_not_resumed(tiny: Config, small: Corpus, demo: Corpus, tokenizer: Tokenizer) -> None:
    saved = Training(tiny, small, tokenizer).state()
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
            Training(**now).restore(saved)
    longer = Training(replace(tiny, epochs=5, valid_every=7, log_every=3), small, tokenizer)
    longer.restore(saved)


@pytest.mark.parametrize(
    "change", [{}, {"optimizer": "muon"}, {"precision": "fp16"}, {"self_distillation": 0.3}, {"self_distillation": 0.5}]
)
def test_ten_steps_are_five_and_five_resumed(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, tmp_path: Path, change: dict[str, Any]
) -> None:
    """Of its own translations, too, a training learns the same, whether they were made before it was saved or after."""
    config = replace(tiny, steps=10, max_length=60, batch_tokens=64, dropout=0.2, subword_dropout=0.1, **change)
    small = replace(small, train=first(small.train, 60))
    straight = Training(config, small, tokenizer)
    assert straight.steps_per_epoch > 5
    advance(straight, 10)
    begun = Training(config, small, tokenizer)
    advance(begun, 6)
    folder = RunFolder(tmp_path / "run")
    folder.save_state(begun.state())
    torch.manual_seed(99)
    second = Training(config, small, tokenizer)
    second.restore(folder.load_state())
    assert second.step == 6
    assert bool(second.train_pairs.own) == (change.get("self_distillation") == 0.5)
    advance(second, 4)
    for name, parameter in parameters(straight.model).items():
        assert torch.equal(parameters(second.model)[name], parameter), name


def test_the_last_steps_learn_from_the_models_own_translations(
    tiny: Config, small: Corpus, tokenizer: Tokenizer
) -> None:
    """From the best of five by sentence BLEU against the reference, and from the same sources as before."""
    small = replace(small, train=first(small.train, 30))
    training = Training(replace(tiny, d_model=64, lr=5e-3, steps=80, self_distillation=0.25), small, tokenizer)
    asked = []
    while training.step < 60:
        asked.append(training.is_to_distill)
        advance(training, 1)
    pairs = training.train_pairs
    assert not any(asked) and training.is_to_distill and not pairs.own
    before = pairs.batch(pairs.rows)
    five = training.translator(training.model.eval()).n_best([source for source, _ in small.train], Search(5, 5))
    training.distill()
    assert not training.is_to_distill and list(pairs.own) == pairs.rows.tolist()
    after = pairs.batch(pairs.rows)
    assert torch.equal(before.src, after.src)
    said = tokenizer.decode([[i for i in row if i not in (PAD, EOS)] for row in after.labels.tolist()])
    likeness = sacrebleu.BLEU(effective_order=True)
    chosen = 0
    for text, best, (_, reference) in zip(said, five, small.train, strict=True):
        scores = [likeness.sentence_score(one.text, [reference]).score for one in best]
        assert likeness.sentence_score(text, [reference]).score == pytest.approx(max(scores))
        chosen += scores[0] < max(scores)
    assert chosen, "the first of five was always the nearest: nothing is shown"


def test_a_training_that_goes_further_translates_anew(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    """What it said itself is for the last of its steps, and those were not the last."""
    config = replace(tiny, steps=4, self_distillation=0.5)
    short, longer = Training(config, small, tokenizer), Training(replace(config, steps=12), small, tokenizer)
    advance(short, 4)
    longer.restore(short.state())
    assert short.train_pairs.own and not longer.train_pairs.own and not longer.is_to_distill
    advance(longer, 2)
    assert longer.is_to_distill
    advance(longer, 1)
    assert longer.train_pairs.own


def test_a_training_is_saved_before_it_translates(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, run_folder: RunFolder
) -> None:
    """Which may take long."""
    training, again = (Training(replace(tiny, steps=8, self_distillation=0.25), small, tokenizer) for _ in range(2))
    training.distill = Mock(side_effect=KeyboardInterrupt)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        run(training, run_folder, Logs(None, training.at, 10), [])
    again.restore(run_folder.load_state())
    assert again.step == 6 and again.is_to_distill


def test_processes_translate_each_a_share(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    small = replace(small, train=first(small.train, 21))
    alone = Training(replace(tiny, self_distillation=0.5), small, tokenizer)
    alone.distill()
    shares = []
    for rank in range(2):
        training = Training(alone.config, small, tokenizer)
        training.group = Mock(rank=rank, size=2, gathered=lambda mine: mine)
        training.distill()
        shares.append(training.train_pairs.own)
    assert [list(share) for share in shares] == [alone.train_pairs.rows[rank::2].tolist() for rank in range(2)]
    assert shares[0] | shares[1] == alone.train_pairs.own


def test_accumulated_batches_are_one_batch(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    config = replace(tiny, dropout=0.0, lr=0.1)
    one, four = Training(config, small, tokenizer), Training(replace(config, accumulate=4), small, tokenizer)
    assert four.steps_per_epoch == -(-len(one.dealt) // 4)
    merged = four.step_batches(1)
    assert len(merged) == 4 and len({batch.tgt.shape for _, batch in merged}) > 1, "unequal parts show a mean of means"
    log = four.update(1)
    rows = [row for part in four.dealt[:4] for row in part]
    one.step_batches = lambda step: [(0, one.train_pairs.batch(rows))]  # type: ignore[method-assign, arg-type]
    whole = one.update(1)
    assert (log.n_tgt, log.n_tokens) == (whole.n_tgt, whole.n_tokens)
    assert log.loss == pytest.approx(whole.loss, rel=1e-5)
    assert log.grad_norm == pytest.approx(whole.grad_norm, rel=1e-4)


def test_an_epoch_takes_every_pair_once_in_its_steps(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    training = Training(replace(tiny, accumulate=3, epochs=2), small, tokenizer)
    first = [batch for step in range(1, training.steps_per_epoch + 1) for _, batch in training.step_batches(step)]
    assert sum(len(batch.src) for batch in first) == len(small.train)
    assert training.epoch == 0
    training.step_batches(training.steps_per_epoch + 1)
    assert training.epoch == 1


def test_gradients_are_clipped(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    training = Training(replace(tiny, clip_norm=0.01), small, tokenizer)
    seen: list[float] = []
    step = training.optimizers[0].step

    def spy() -> None:
        gradients = [p.grad.flatten() for p in training.model.parameters() if p.grad is not None]
        seen.append(torch.cat(gradients).norm().item())
        step()

    training.optimizers[0].step = spy  # type: ignore[method-assign, assignment]
    assert training.update(1).grad_norm > 0.01
    assert seen == [pytest.approx(0.01, rel=1e-3)]


def test_a_gradient_that_is_not_finite_touches_nothing(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    training = Training(tiny, small, tokenizer)
    with torch.no_grad():
        training.model.projection.linear.weight[0] = torch.inf
    before = snapshot(training)
    with pytest.raises(TrainingError, match=r"step 1 \(epoch 1, batch 1\) is not finite.*\n.*--lr"):
        training.update(1)
    assert all(torch.equal(before[name], now) for name, now in parameters(training.model).items())


@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:.*should not be instantiated")  # both torch's own
def test_compiled_stacks_learn_the_same_from_few_graphs(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    """Only the capture of the graphs can be tried everywhere. Our dropout, which GPUs do not take, is no part of it."""
    plain, compiled = (Training(replace(tiny, dropout=0.0), small, tokenizer) for _ in range(2))
    assert plain.graphs == 0
    compiled.compile("eager")
    for step in range(1, 7):
        assert compiled.update(step).loss == pytest.approx(plain.update(step).loss, rel=1e-4)
    graphs = compiled.graphs
    assert 2 <= graphs <= 4 and not torch._dynamo.utils.counters["graph_break"]
    assert compiled.validate()[0].loss == pytest.approx(plain.validate()[0].loss, rel=1e-3)
    assert compiled.graphs == graphs


def test_fp16_gradients_are_scaled_up_and_down_again(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    plain, half = (Training(replace(tiny, precision=p), small, tokenizer) for p in ("fp32", "fp16"))
    assert half.scaler.get_scale() > 1000
    expected, found = plain.update(1), half.update(1)
    assert found.grad_norm == pytest.approx(expected.grad_norm, rel=0.02)
    assert found.loss == pytest.approx(expected.loss, rel=0.01)


def test_fp16_that_overflows_touches_nothing_and_goes_on(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    training = Training(replace(tiny, precision="fp16"), small, tokenizer)
    training.scaler.load_state_dict({**training.scaler.state_dict(), "scale": 2.0**60})
    before = snapshot(training)
    training.update(1)
    assert all(torch.equal(before[name], now) for name, now in parameters(training.model).items())
    assert training.scaler.get_scale() == 2.0**59
    training.scaler.load_state_dict({**training.scaler.state_dict(), "scale": 1024.0})
    training.update(2)
    assert any(not torch.equal(before[name], now) for name, now in parameters(training.model).items())


def test_ten_pairs_are_learned_by_heart(tiny: Config, demo: Corpus, tokenizer: Tokenizer) -> None:
    ten = replace(demo, train=first(demo.train, 10), valid=first(demo.train, 10))
    config = replace(
        tiny, d_model=64, d_ff=128, dropout=0.0, epochs=120, batch_tokens=512, lr=5e-3, label_smoothing=0.0
    )
    training = Training(config, ten, tokenizer)
    advance(training, training.total_steps)
    result, hypotheses = training.validate()
    assert hypotheses == [target for _, target in ten.valid]
    assert result.bleu == pytest.approx(100) and result.perplexity < 1.05


def test_the_best_is_by_bleu_then_loss() -> None:
    def rank(bleu: float, loss: float) -> tuple[float, float]:
        return Validation(1, loss, 1.0, bleu, 0.0).rank()

    assert rank(2.0, 9.0) > rank(1.0, 1.0)
    assert rank(0.0, 1.0) > rank(0.0, 2.0)


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_a_budget_is_planned_with_its_scoring(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """And with the translations of the training part, where the last steps learn from them."""
    training = Training(replace(tiny, self_distillation=share), small, tokenizer)
    log = replace(training.update(1), seconds=0.25)
    training.update = lambda step: log  # type: ignore[method-assign]
    monkeypatch.setattr("time.perf_counter", lambda: 100.0)
    per_pair = 2 * 0.25 * training.steps_per_epoch / len(training.train_pairs)
    steps = steps_until(1100.0, training)
    validations = steps / training.steps_per_epoch
    once = len(small.test) + (len(small.train) if share else 0)
    spent = steps * 0.25 + per_pair * (validations * len(training.valid_pairs) + once)
    assert spent == pytest.approx(1000, rel=0.01)
    assert steps_until(0.0, training) == 1


def constant(training: Training, bleu: float) -> None:
    """Makes every validation say the same."""
    hypotheses = [target for _, target in training.valid_texts]
    training.validate = lambda: (Validation(training.step, 1.0, 1.0, bleu, 0.0), hypotheses)  # type: ignore[method-assign]


def test_patience_ends_a_training_that_gets_no_better(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, run_folder: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    training = Training(replace(tiny, steps=50, valid_every=2, patience=5), small, tokenizer)
    constant(training, 10.0)
    run(training, run_folder, Logs(None, training.at, 10), [])
    assert (training.step, training.stale, training.is_over) == (12, 5, True)
    assert training.best and training.best.step == 2
    shown = capfd.readouterr().err
    assert "none of the last 5 validations was better than that of step 2" in shown and "--patience" in shown
    again = Training(replace(tiny, steps=50, valid_every=2, patience=7), small, tokenizer)
    again.restore(run_folder.load_state())
    constant(again, 10.0)
    run(again, run_folder, Logs(None, again.at, 10), [])
    assert (again.step, again.stale) == (16, 7)


def test_a_budget_is_kept_where_the_plan_was_for_other_steps(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that the steps alone move on, a second each; for the last scoring time is left."""
    logs: list[StepLog] = []
    monkeypatch.setattr("time.perf_counter", lambda: float(len(logs)))
    for planned in (4, 90):
        logs.clear()
        training = Training(replace(tiny, steps=planned, warmup_steps=planned // 20, valid_every=30), small, tokenizer)
        constant(training, 10.0)
        update = training.update

        def second(step: int, update: Callable[[int], StepLog] = update) -> StepLog:
            logs.append(replace(update(step), seconds=1.0))
            return logs[-1]

        training.update = second  # type: ignore[method-assign]
        run(training, run_folder, Logs(None, training.at, 10), [], deadline=60.0)
        assert len(logs) + scoring_steps(training, len(small.valid) + len(small.test)) == pytest.approx(60, abs=2)
        assert len(logs) == training.total_steps == run_folder.load_config().steps != planned
        assert [log.lr for log in logs] == [learning_rate(log.step, len(logs), training.config) for log in logs]


# The command

SMALL = ["--d-model", "16", "--n-heads", "2", "--d-ff", "32", "--vocab-size", "300", "--device", "cpu"]


def small_run(few: Path, *more: str) -> list[str]:
    """The demo's command on a small model and a few pairs."""
    return ["train.py", "demo", "--data", str(few), *SMALL, "--epochs", "1", *more]


@pytest.fixture(scope="session")
def once(command: Command, few: Path, tmp_path_factory: pytest.TempPathFactory) -> "subprocess.CompletedProcess[str]":
    """A small training, whose folder is in args[-1]."""
    folder, before = tmp_path_factory.mktemp("once"), Path.cwd()
    os.chdir(folder)
    try:
        done = command(*small_run(few))
    finally:
        os.chdir(before)
    assert done.returncode == 0, done.stderr
    return subprocess.CompletedProcess([str(folder)], 0, done.stdout, done.stderr)


@pytest.fixture
def one_epoch(once: "subprocess.CompletedProcess[str]") -> "subprocess.CompletedProcess[str]":
    """What such a training left, in the test's own folder."""
    shutil.copytree(once.args[-1], Path.cwd(), dirs_exist_ok=True)
    return once


def test_a_run_leaves_what_the_design_says(one_epoch: "subprocess.CompletedProcess[str]") -> None:
    assert one_epoch.stdout == ""
    folder = Path("weights/demo")
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "tokenizer.json",
        "model.safetensors",
        "metrics.json",
        "training",
    }
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    assert {"data", "best", "last", "test", "hardware", "seconds", "versions", "parameters"} <= metrics.keys()
    assert "tok:13a" in metrics["test"]["signature"]
    assert Config.from_json((folder / "config.json").read_text(encoding="utf-8")).precision in ("fp32", "bf16")
    assert "device    cpu" in one_epoch.stderr
    assert "minutes of steps to come" in one_epoch.stderr
    assert f"tensorboard --logdir {Path(one_epoch.args[-1], 'runs')}" in one_epoch.stderr


def test_tensorboard_has_what_the_readme_promises(one_epoch: "subprocess.CompletedProcess[str]") -> None:
    events = EventAccumulator("runs/demo", size_guidance={"tensors": 0})
    events.Reload()
    assert set(events.Tags()["scalars"]) == {
        *(f"train/{name}" for name in ("loss", "perplexity", "lr", "grad_norm")),
        *(f"perf/{name}" for name in ("tokens_per_second", "padding")),
        *(f"valid/{name}" for name in ("loss", "perplexity", "bleu", "chrf")),
        *(f"test/{name}" for name in ("bleu", "chrf")),
        *(f"grad_norm/{name}" for name in ("src_embed", "encoder", "decoder")),
    }
    norms = [events.Scalars(f"grad_norm/{name}")[0].value for name in ("src_embed", "encoder", "decoder")]
    assert sum(norm**2 for norm in norms) ** 0.5 == pytest.approx(events.Scalars("train/grad_norm")[0].value, rel=1e-4)
    assert set(events.Tags()["images"]) == {f"attention/{i}/layer_{j}" for i in (1, 2) for j in (1, 2)}
    for by in ("tokens", "seconds"):
        more = EventAccumulator(f"runs/demo/by-{by}")
        more.Reload()
        assert set(more.Tags()["scalars"]) == {f"by_{by}/{name}" for name in ("train_loss", "valid_loss", "valid_bleu")}
    assert events.Scalars("train/loss")[0].step == 1
    texts = {tag for tag in events.Tags()["tensors"] if tag.endswith("/text_summary")}
    assert texts == {f"{name}/text_summary" for name in ("config", "data", "valid/samples")}
    (sample,) = events.Tensors("valid/samples/text_summary")
    text = sample.tensor_proto.string_val[0].decode()
    assert text.count("\n") == 1 + 8 and text.startswith("| source | reference | hypothesis | before |")


def test_a_run_is_not_overwritten_unasked(
    one_epoch: "subprocess.CompletedProcess[str]", called: Command, few: Path
) -> None:
    before = Path("weights/demo/model.safetensors").read_bytes()
    again = called(*small_run(few))
    assert again.returncode == 2
    assert "--resume" in again.stderr and "--overwrite" in again.stderr and len(again.stderr.splitlines()) == 2
    assert Path("weights/demo/model.safetensors").read_bytes() == before
    assert called(*small_run(few, "--overwrite", "--seed", "2")).returncode == 0
    assert Path("weights/demo/model.safetensors").read_bytes() != before


def test_a_training_in_minutes_can_be_repeated_in_steps(called: Command, few: Path) -> None:
    done = called(*small_run(few, "--minutes", "0.08", "--name", "timed"))
    assert done.returncode == 0, done.stderr
    found = json.loads(Path("weights/timed/config.json").read_text(encoding="utf-8"))
    steps, warmup = str(found["steps"]), str(found["warmup_steps"])
    again = called(*small_run(few, "--steps", steps, "--warmup-steps", warmup, "--name", "again"))
    assert again.returncode == 0, again.stderr
    one, other = (Path("weights", name, "model.safetensors").read_bytes() for name in ("timed", "again"))
    assert one == other
    with pytest.raises(ConfigError, match="with --resume, give --steps"):
        resolve(["--resume", "--name", "timed", "--minutes", "1"])
    with pytest.raises(ConfigError, match="give --steps, not --epochs"):
        resolve(["--resume", "--name", "timed", "--epochs", "9"])


def test_a_finished_run_goes_further_with_more_epochs(
    one_epoch: "subprocess.CompletedProcess[str]", called: Command
) -> None:
    done = called("train.py", "demo", "--resume", "--epochs", "2")
    assert done.returncode == 0, done.stderr
    assert "epoch 2/2" in done.stderr and "epoch 1/2" not in done.stderr
    with pytest.raises(ConfigError, match="--d-model, --lr cannot change on --resume"):
        resolve(["demo", "--resume", "--d-model", "32", "--lr", "1"])
    metrics = json.loads(Path("weights/demo/metrics.json").read_text(encoding="utf-8"))
    assert [was["changed"] for was in metrics["resumed"]] == [{"epochs": [1, 2]}]
    again = called("train.py", "demo", "--resume")
    assert again.returncode == 0 and "nothing is left to train" in again.stderr
    assert json.loads(Path("weights/demo/config.json").read_text(encoding="utf-8"))["epochs"] == 2


@pytest.mark.skipif(sys.platform == "win32", reason="there, no limit can be set on files")
def test_a_full_disk_ends_a_training_in_words(one_epoch: "subprocess.CompletedProcess[str]") -> None:
    """A limit on the size of files is as good as a full disk, and needs no disk: writing fails midway."""
    import resource

    folder = RunFolder(Path("weights/demo"))
    model, state = folder.model_file.read_bytes(), folder.state_file.read_bytes()
    limit = len(state) // 2
    done = subprocess.run(
        [sys.executable, str(ROOT / "train.py"), "--resume", "--name", "demo", "--epochs", "2", "--save-minutes", "0"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "what was saved last stays; go on with: python train.py --resume --name demo" in done.stderr
    assert (folder.model_file.read_bytes(), folder.state_file.read_bytes()) == (model, state)
    assert not list(folder.path.rglob(".*"))


def test_the_end_of_memory_names_the_flag_to_lower(tiny: Config) -> None:
    with pytest.raises(RuntimeError) as error:
        torch.empty(2**52)
    assert is_out_of_memory(error.value) and is_out_of_memory(MemoryError())
    said = broken_off(error.value, tiny, ALONE)
    assert "out of memory, after a peak of" in said and "a --batch-tokens below 256" in said
    assert not broken_off(RuntimeError("a fault of ours"), tiny, ALONE)
    assert broken_off(RuntimeError("[gloo] closed"), tiny, Group(0, 2)) == "another process of this training has ended"


def test_a_dry_run_reports_and_leaves_nothing(called: Command) -> None:
    done = called("train.py", "demo", "--dry-run")
    assert (done.returncode, done.stdout) == (0, "")
    for word in ("pairs read", "train 6,0", "vocabulary 1,000", "padding", "parameters", "device", "minutes"):
        assert word in done.stderr
    assert not list(Path().iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="there, SIGTERM ends a process at once")
def test_a_stopped_run_goes_on_and_ends_the_same(called: Command, few: Path) -> None:
    """Stopped by a signal in mid-epoch, resumed by the command that it printed: the same weights, to the bit."""
    args = small_run(few, "--epochs", "3", "--precision", "fp32")
    assert called(*args, "--name", "straight").returncode == 0
    process = subprocess.Popen(
        [sys.executable, str(ROOT / args[0]), *args[1:], "--name", "stopped"], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr
    for line in process.stderr:
        if line.startswith("epoch 1/3"):
            process.send_signal(signal.SIGTERM)
            break
    rest = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 130, rest
    assert "go on with: python train.py --resume --name stopped" in rest
    states = [torch.load(f"weights/{name}/training/state.pt", weights_only=True) for name in ("straight", "stopped")]
    assert states[1]["step"] < states[0]["step"]
    assert called("train.py", "--resume", "--name", "stopped").returncode == 0
    for name in ("model.safetensors", "tokenizer.json"):
        assert Path("weights/stopped", name).read_bytes() == Path("weights/straight", name).read_bytes()
    resumed = torch.load("weights/stopped/training/state.pt", weights_only=True)
    assert all(torch.equal(weight, resumed["model"][name]) for name, weight in states[0]["model"].items())


def test_a_signal_may_come_while_a_line_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error is buffered, and Python refuses to write to it from a signal that came while it is written to."""

    class Busy(io.StringIO):
        inside = False

        def write(self, text: str) -> int:
            assert not self.inside, "reentrant"
            self.inside = True
            signal.raise_signal(signal.SIGTERM)
            self.inside = False
            return super().write(text)

    monkeypatch.setattr(sys, "stderr", Busy())
    with interruption() as came:
        sys.stderr.write("a line")
    assert came == [signal.SIGTERM]


def test_a_training_killed_at_random_ends_the_same(tmp_path: Path) -> None:
    """benchmarks/torture.py in short: after each kill all files are whole, and the end is the same, to the bit."""
    spec = importlib.util.spec_from_file_location("torture", ROOT / "benchmarks" / "torture.py")
    assert spec and spec.loader
    sys.modules["torture"] = torture = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(torture)
    outcome = torture.torture(tmp_path, kills=2, seed=4)
    assert outcome.lives["state saved"] >= 1 and outcome.step > 0
    assert all(outcome.same.values()), outcome


def test_a_run_is_one_trainings_alone(called: Command, few: Path) -> None:
    with RunFolder(Path("weights/demo")).held():
        done = called(*small_run(few))
    assert done.returncode == 1 and "another training writes to weights/demo" in done.stderr
    assert len(done.stderr.splitlines()) == 2
    with RunFolder(Path("weights/demo")).held():
        assert called(*small_run(few, "--dry-run")).returncode == 0


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["demoo"], 2, "opus_books, demo, multi30k"),
        (["demo", "--d-modle", "5"], 2, "did you mean --d-model"),
        (["demo", "--dropout", "2"], 2, "--dropout is 2.0; it must be from 0.0 to 0.9"),
        (["demo", "--resume"], 1, "no run 'demo'"),
        (["demo", "--minutes", "nan"], 2, "--minutes must be positive"),
        (["demo", "--data", "nowhere"], 1, "python train.py demo"),
        (["demo", "--max-length", "2"], 1, "--max-length"),
        (["demo", "--target", "de"], 1, "--target"),
    ],
)
def test_errors_are_two_lines(called: Command, args: list[str], code: int, says: str) -> None:
    done = called("train.py", *args)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert not list(Path().iterdir())


def test_resolving_fills_in_the_precision_and_the_name() -> None:
    config = resolve(["--device", "cpu", "--target", "it"]).config
    assert config.precision in ("fp32", "bf16") and config.name == "opus_books-en-it"
    assert asdict(config)["target"] == "it"
    with pytest.raises(ConfigError):
        resolve(["--n-heads", "7"])


# What make demo shows


def test_the_demo_reaches_90_bleu_on_its_test_part(trained: "subprocess.CompletedProcess[str]") -> None:
    metrics = json.loads((Path(trained.args[0]) / "weights/demo/metrics.json").read_text(encoding="utf-8"))
    assert metrics["test"]["bleu"] >= 90
    assert "test      BLEU" in trained.stderr


def test_evaluate_repeats_the_score_of_training(
    trained: "subprocess.CompletedProcess[str]", command: Command, called: Command, tmp_path: Path
) -> None:
    run = str(Path(trained.args[0]) / "weights/demo")
    scored = command("evaluate.py", "--run", run, "--device", "cpu", "--output", "out.fr")
    assert scored.returncode == 0, scored.stderr
    metrics = json.loads(Path(run, "metrics.json").read_text(encoding="utf-8"))["test"]
    expected = "BLEU {bleu:.1f}  chrF {chrf:.1f}  brevity {brevity:.3f}  {signature}\n"
    assert scored.stdout == expected.format(**metrics)
    files = ["--source", str(ROOT / "demo/test.en"), "--reference", str(ROOT / "demo/test.fr")]
    assert called("evaluate.py", "--run", run, *files).stdout == scored.stdout
    against_itself = called("evaluate.py", "--run", run, *files[:3], "out.fr")
    assert against_itself.stdout.startswith("BLEU 100.0  chrF 100.0")
    both = called("evaluate.py", "--run", run, *files, "--against", run, "--beam", "3")
    assert both.returncode == 0, both.stderr
    one, other, chances = both.stdout.splitlines()
    assert one == other and chances == "BLEU p = 1.000  chrF2 p = 1.000"


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--source", "x"], 2, "--source and --reference go together"),
        (["--source", "x", "--reference", "y"], 1, "x cannot be read"),
        (["--split", "train"], 2, "--split"),
        (["--against", "nothing"], 1, "no run 'nothing'"),
        (["demo"], 2, "Unrecognized options: demo\n--help lists the flags"),
    ],
)
def test_evaluate_errors(
    trained: "subprocess.CompletedProcess[str]", called: Command, args: list[str], code: int, says: str
) -> None:
    done = called("evaluate.py", "--run", str(Path(trained.args[0]) / "weights/demo"), *args)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr and len(done.stderr.splitlines()) <= 2
