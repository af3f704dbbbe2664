"""The command train.py, from start to end: what it leaves, resumes, refuses and prints."""

import contextlib
import csv
import errno
import importlib.util
import json
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from conftest import ROOT, Command, eventually
from hypothesis import given
from hypothesis import strategies as st
from launching import Launched
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from checkpoint import RunFolder
from config import PRESETS, Config
from machine.distributed import ALONE, Group
from tapis.config import ConfigError
from tapis.system.cli import is_out_of_memory
from tapis.system.files import digest_files
from training.agenda import time_line
from training.failures import advice_after, cause_of, resume_command
from training.metrics import load_metrics
from training.options import resolve

SMALL = ["--d-model", "16", "--n-heads", "2", "--d-ff", "32", "--vocab-size", "300", "--device", "cpu"]


def small_run(few: Path, *more: str) -> list[str]:
    """The demo's command on a small model and a few pairs."""
    return ["train.py", "demo", "--data", str(few), *SMALL, "--epochs", "1", *more]


@pytest.fixture(scope="session")
def once(forked: Command, few: Path, tmp_path_factory: pytest.TempPathFactory) -> "subprocess.CompletedProcess[str]":
    """A small training, whose folder is in args[-1]."""
    folder = tmp_path_factory.mktemp("once")
    with contextlib.chdir(folder):
        done = forked(*small_run(few))
    assert done.returncode == 0, done.stderr
    return subprocess.CompletedProcess([str(folder)], 0, done.stdout, done.stderr)


@pytest.fixture
def one_epoch(once: "subprocess.CompletedProcess[str]") -> "subprocess.CompletedProcess[str]":
    """What such a run left, in the test's own folder."""
    shutil.copytree(once.args[-1], Path.cwd(), dirs_exist_ok=True)
    return once


def history(name: str) -> list[dict[str, str]]:
    """The rows of a run's history.csv."""
    with Path("weights", name, "history.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_folder_holds_the_promised_files(one_epoch: "subprocess.CompletedProcess[str]") -> None:
    assert one_epoch.stdout == ""
    folder = Path("weights/demo")
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "tokenizer.json",
        "model.safetensors",
        "learned.json",
        "metrics.json",
        "history.csv",
        "training",
    }
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    (row,) = history("demo")
    for name in ("loss", "perplexity", "bleu", "chrf"):
        assert float(row[f"valid_{name}"]) == pytest.approx(metrics["last"][name], rel=1e-5)
    assert int(row["step"]) == metrics["last"]["step"] and 0 < float(row["seconds"]) <= metrics["seconds"] + 1
    assert {"data", "best", "last", "test", "hardware", "seconds", "versions", "parameters"} <= metrics.keys()
    assert "tok:13a" in metrics["test"]["signature"]
    assert metrics["precision"] in ("fp32", "bf16") and RunFolder(folder).load_config().precision == "auto"
    assert "device    cpu" in one_epoch.stderr
    assert "minutes left, plus validations" in one_epoch.stderr
    assert f"tensorboard --logdir {Path(one_epoch.args[-1], 'runs')}" in one_epoch.stderr


def test_tensorboard_has_the_promised_scalars_images_and_texts(one_epoch: "subprocess.CompletedProcess[str]") -> None:
    events = EventAccumulator("runs/demo", size_guidance={"tensors": 0})
    events.Reload()
    assert set(events.Tags()["scalars"]) == {
        *(f"train/{name}" for name in ("loss", "perplexity", "lr", "grad_norm")),
        *(f"perf/{name}" for name in ("tokens_per_second", "padding")),
        *(f"valid/{name}" for name in ("loss", "perplexity", "bleu", "chrf")),
        *(f"test/{name}" for name in ("bleu", "chrf")),
        *(f"train/part_grad_norm/{name}" for name in ("src_embed", "encoder", "decoder")),
    }
    norms = [events.Scalars(f"train/part_grad_norm/{name}")[0].value for name in ("src_embed", "encoder", "decoder")]
    assert sum(norm**2 for norm in norms) ** 0.5 == pytest.approx(events.Scalars("train/grad_norm")[0].value, rel=1e-4)
    assert set(events.Tags()["images"]) == {f"attention/{i}/layer_{j}" for i in (1, 2) for j in (1, 2)}
    assert [path.name for path in Path("runs").rglob("*") if path.is_dir() and path.name.startswith("by-")] == []
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
    (events,) = Path("runs/demo").iterdir()
    again = called(*small_run(few))
    assert again.returncode == 2
    assert "--resume" in again.stderr and "--overwrite" in again.stderr and len(again.stderr.splitlines()) == 2
    assert Path("weights/demo/model.safetensors").read_bytes() == before
    assert called(*small_run(few, "--overwrite", "--seed", "2")).returncode == 0
    assert Path("weights/demo/model.safetensors").read_bytes() != before
    (new_events,) = Path("runs/demo").iterdir()
    assert new_events != events and len(history("demo")) == 1, "nothing is left of the run before"


def test_a_run_in_minutes_equals_one_of_as_many_steps(called: Command, few: Path) -> None:
    done = called(*small_run(few, "--minutes", "0.05", "--name", "timed"))
    assert done.returncode == 0, done.stderr
    found = RunFolder(Path("weights/timed")).load_metrics()["batches"]
    steps, warmup = str(found["steps"]), str(found["warmup_steps"])
    again = called(*small_run(few, "--steps", steps, "--warmup-steps", warmup, "--name", "again"))
    assert again.returncode == 0, again.stderr
    one, other = (digest_files([Path("weights", name, "model.safetensors")]) for name in ("timed", "again"))
    assert one == other
    with pytest.raises(ConfigError, match="with --resume, give --steps"):
        resolve(["--resume", "--name", "timed", "--minutes", "1"])
    with pytest.raises(ConfigError, match="--resume continues a run, and --overwrite replaces it"):
        resolve(["--resume", "--name", "timed", "--overwrite"])
    with pytest.raises(ConfigError, match="give --steps, not --epochs"):
        resolve(["--resume", "--name", "again", "--epochs", "9"])
    assert resolve(["--resume", "--name", "timed", "--epochs", "9"]).config.epochs == 9


def test_a_finished_run_goes_further_with_more_epochs(
    one_epoch: "subprocess.CompletedProcess[str]", called: Command
) -> None:
    done = called("train.py", "demo", "--resume", "--epochs", "2")
    assert done.returncode == 0, done.stderr
    assert "epoch 2/2" in done.stderr and "epoch 1/2" not in done.stderr
    said = r"--data-weights cannot change on --resume \(demo was trained with none\)"
    with pytest.raises(ConfigError, match=said):
        resolve(["demo", "--resume", "--data-weights", "2"])
    with pytest.raises(ConfigError, match="--d-model, --lr cannot change on --resume"):
        resolve(["demo", "--resume", "--d-model", "32", "--lr", "1"])
    with pytest.raises(ConfigError, match=r"--lr cannot change .*\n.*--init-from demo --name NEW"):
        resolve(["demo", "--resume", "--lr", "1"])
    metrics = json.loads(Path("weights/demo/metrics.json").read_text(encoding="utf-8"))
    assert [was["changed"] for was in metrics["resumed"]] == [{"epochs": [1, 2]}]
    again = called("train.py", "demo", "--resume")
    assert again.returncode == 0 and "this run is complete" in again.stderr
    assert json.loads(Path("weights/demo/config.json").read_text(encoding="utf-8"))["epochs"] == 2


def test_a_timed_run_is_resumed_for_the_epochs_that_are_asked_for(
    one_epoch: "subprocess.CompletedProcess[str]", called: Command
) -> None:
    """Also if they are as many as its config has, which --minutes did not go by."""
    folder = RunFolder(Path("weights/demo"))
    state = folder.load_state()
    per_epoch = state["resolved"]["steps"]
    # As if the minutes were over then
    state["resolved"]["steps"] = state["step"] = state["best"]["step"] = state["validated"] = per_epoch - 2
    folder.save_state(state)
    done = called("train.py", "demo", "--resume")
    assert "this run is complete; extend it with --epochs or --steps" in done.stderr
    done = called("train.py", "demo", "--resume", "--epochs", "1")
    assert f"resumed   at step {per_epoch - 2} of {per_epoch}\n" in done.stderr and "epoch 1/1" in done.stderr


def test_a_run_that_is_ended_before_its_first_validation_is_scored(
    one_epoch: "subprocess.CompletedProcess[str]", called: Command
) -> None:
    folder = RunFolder(Path("weights/demo"))
    state = folder.load_state()
    state["step"], state["best"], state["validated"] = state["step"] - 3, None, None
    folder.save_state(state)
    folder.model_file.unlink()
    done = called("train.py", "demo", "--resume", "--steps", str(state["step"]))
    assert done.returncode == 0, done.stderr
    assert folder.model_file.is_file() and load_metrics(folder).test
    assert folder.load_state()["best"]["step"] == state["step"]


def test_a_run_whose_end_is_moved_to_where_it_is_is_scored_there(
    one_epoch: "subprocess.CompletedProcess[str]", called: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it was validated before, at an earlier step; once, whatever becomes of metrics.json."""
    folder = RunFolder(Path("weights/demo"))
    state = folder.load_state()
    validated, stopped = state["step"] - 6, state["step"] - 3
    state["step"], state["best"]["step"], state["validated"] = stopped, validated, validated
    folder.save_state(state)
    args = ["train.py", "demo", "--resume", "--steps", str(stopped)]
    monkeypatch.setattr("train.finish", Mock())
    for n_validations in (1, 0):
        done = called(*args)
        assert done.returncode == 0 and done.stderr.count("valid loss") == n_validations, done.stderr
        folder.metrics_file.unlink()  # which nothing depends on

    # What is shown is saved before.
    folder.save_state(state)
    monkeypatch.setattr("train.show_validation", lambda *_: sys.exit(9))
    assert called(*args).returncode == 9 and folder.load_state()["validated"] == stopped


def test_a_new_run_that_fails_gives_no_advice_about_the_one_in_its_folder(
    one_epoch: "subprocess.CompletedProcess[str]", called: Command, few: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import train

    monkeypatch.setattr(train, "load_training", Mock(side_effect=MemoryError))
    done = called(*small_run(few, "--overwrite"))
    assert done.returncode == 1 and "out of memory" in done.stderr and "checkpoint" not in done.stderr
    monkeypatch.setattr(train, "load_training", Mock(side_effect=MemoryError))
    assert "the last checkpoint stays" in called("train.py", "demo", "--resume").stderr


def test_data_that_do_not_fit_in_memory_are_named_as_the_cause(
    called: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pairs.corpus.load_corpus", Mock(side_effect=MemoryError))
    done = called("train.py", "demo", "--name", "new")
    assert done.returncode == 1
    assert done.stderr == (
        "train.py: out of memory while preparing the data: use fewer pairs, or a machine with more memory\n"
    )


def test_better_weights_have_no_scores_of_the_test_part_before_the_end(
    one_epoch: "subprocess.CompletedProcess[str]", called: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those in metrics.json were of other weights; a card of the run would show them."""
    import train

    folder = RunFolder(Path("weights/demo"))
    before = load_metrics(folder)
    assert before.test and before.best and before.examples
    monkeypatch.setattr(train, "finish", Mock())  # as if it was killed before
    called("train.py", "demo", "--resume", "--epochs", "2")
    after = load_metrics(folder)
    assert after.best and after.best.step > before.best.step
    assert (after.test, after.examples, after.seconds) == (None, [], None)


def test_a_dry_run_of_a_resumption_changes_nothing(
    one_epoch: "subprocess.CompletedProcess[str]", called: Command
) -> None:
    before = {file: file.read_bytes() for file in Path().rglob("*") if file.is_file()}
    done = called("train.py", "demo", "--resume", "--epochs", "2", "--dry-run")
    assert done.returncode == 0 and "minutes of training" in done.stderr
    assert {file: file.read_bytes() for file in Path().rglob("*") if file.is_file()} == before


def test_a_longer_run_learns_again_what_its_model_is_unsure_of(
    one_epoch: "subprocess.CompletedProcess[str]", called: Command
) -> None:
    folder = RunFolder(Path("weights/demo"))
    learned = folder.load_learned()
    assert learned.unsure_below < 0
    folder.save_learned(replace(learned, unsure_below=-9.0))
    assert called("train.py", "demo", "--resume", "--epochs", "2").returncode == 0
    assert -9 < folder.load_learned().unsure_below < 0
    assert replace(folder.load_learned(), unsure_below=0) == replace(learned, unsure_below=0)


@pytest.mark.skipif(sys.platform == "win32", reason="there, no limit can be set on files")
def test_a_full_disk_ends_a_run_with_a_message(one_epoch: "subprocess.CompletedProcess[str]") -> None:
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
    assert "the last checkpoint stays; resume with: python train.py --resume --name demo" in done.stderr
    assert (folder.model_file.read_bytes(), folder.state_file.read_bytes()) == (model, state)
    assert not list(folder.path.rglob(".*"))


def fail(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("train.draw", "a picture of attention is left out"),
        ("train.validation_lines", "a validation is not shown"),
        ("train.save_metrics", "weights/demo/metrics.json is not up to date"),
        ("train.add_to_history", "weights/demo/history.csv lacks a row"),
        ("training.tensorboard.SummaryWriter.__init__", "nothing of the run is logged for TensorBoard"),
        ("training.tensorboard.SummaryWriter.add_scalar", "nothing more of it is logged for TensorBoard"),
        ("training.tensorboard.SummaryWriter.add_text", "nothing more of it is logged for TensorBoard"),
        ("training.tensorboard.SummaryWriter.add_figure", "a picture of attention is left out"),
        ("training.tensorboard.SummaryWriter.close", "nothing more of it is logged for TensorBoard"),
        ("tqdm.tqdm.write", ""),
    ],
)
def test_faults_of_what_only_shows_a_run_do_not_end_it(
    called: Command, few: Path, monkeypatch: pytest.MonkeyPatch, broken: str, says: str
) -> None:
    monkeypatch.setattr(broken, fail)
    done = called(*small_run(few))
    assert done.returncode == 0 and says in done.stderr.replace("\\", "/"), done.stderr
    assert done.stderr.count("No space left on device") == (4 if "metrics" in broken else bool(says))
    folder = RunFolder(Path("weights/demo"))
    assert folder.model_file.is_file() and folder.load_state()["step"] > 0


def test_a_validation_is_saved_before_it_is_shown(called: Command, few: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends the process while it shows one: here, what no handler catches."""
    monkeypatch.setattr("train.show_validation", lambda *_: sys.exit(9))
    assert called(*small_run(few)).returncode == 9
    folder = RunFolder(Path("weights/demo"))
    assert folder.model_file.is_file() and folder.load_state()["best"]


def test_dollar_signs_in_the_validation_part_are_text(called: Command, few: Path) -> None:
    for file in few.iterdir():
        shutil.copy(file, ".")
    for language in ("en", "fr"):
        valid = Path(f"valid.{language}").read_text(encoding="utf-8").splitlines()
        Path(f"valid.{language}").write_text("\n".join(["C$ 5% more than A$ 4 ^^", *valid[1:]]), encoding="utf-8")
    done = called(*small_run(Path.cwd()))
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr


def test_running_out_of_memory_names_the_flag_to_lower(tiny: Config) -> None:
    with pytest.raises(RuntimeError) as error:
        torch.empty(2**52)
    assert is_out_of_memory(error.value) and is_out_of_memory(MemoryError())
    said = cause_of(error.value, tiny, ALONE)
    assert said.startswith("out of memory (peak ") and said.endswith("--batch-tokens 129 --accumulate 2")
    small = replace(tiny, batch_tokens=150)
    assert cause_of(error.value, small, ALONE).endswith("--batch-tokens 129 --accumulate 2")
    assert cause_of(error.value, replace(tiny, batch_tokens=129), ALONE).endswith("with a lower --max-length")
    assert not cause_of(RuntimeError("a fault of ours"), tiny, ALONE)
    assert cause_of(RuntimeError("[gloo] closed"), tiny, Group(0, 2)) == "another process of this run has ended"


def test_what_to_do_after_an_error_depends_on_what_was_saved(run_folder: RunFolder) -> None:
    assert advice_after(MemoryError(), run_folder, "tiny", ALONE) == ""
    run_folder.state_file.parent.mkdir()
    run_folder.state_file.touch()
    advice = advice_after(MemoryError(), run_folder, "student", ALONE)
    assert advice.endswith("--init-from tiny --name OTHER --batch-tokens N")
    advice = advice_after(OSError(), run_folder, "student", ALONE)
    assert advice.endswith("resume with: python train.py --resume --name student")
    run_folder.model_file.unlink()
    assert advice_after(MemoryError(), run_folder, "tiny", ALONE).endswith("can be resumed with more memory")


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1))
def test_a_shell_reads_the_name_of_a_run_to_resume(name: str) -> None:
    assert shlex.split(resume_command(name, ALONE))[-2:] == ["--name", name]


def test_a_shell_reads_the_commands_printed_after_a_run(few: Path, forked: Command, called: Command) -> None:
    done = forked(*small_run(few, "--name", "my run"))
    commands = [line.partition("with: python ")[2] for line in done.stderr.splitlines() if "with: python " in line]
    assert [shlex.split(command)[:3] for command in commands] == [
        ["translate.py", "--run", "my run"],
        ["evaluate.py", "--run", "my run"],
    ], done.stderr
    Path("weights/my run/model.safetensors").unlink()
    done = called(*shlex.split(commands[0]), "--device", "cpu")
    assert done.stderr.endswith("continue it with: python train.py --resume --name 'my run'\n")


def test_a_dry_run_reports_and_leaves_nothing(called: Command) -> None:
    done = called("train.py", "demo", "--dry-run")
    assert (done.returncode, done.stdout) == (0, "")
    for word in ("pairs read", "train 6,0", "vocabulary 1,000", "padding", "parameters", "device", "minutes"):
        assert word in done.stderr
    assert not list(Path().iterdir())


def test_data_are_reported_before_torch_is_imported(command: Command, few: Path) -> None:
    Path("torch.py").write_text("raise SystemExit('torch is imported')", encoding="utf-8")
    done = command(*small_run(few), PYTHONPATH=str(Path.cwd()))
    *report, last = done.stderr.splitlines()
    assert last == "torch is imported" and "624 pairs read" in report[0] and report[-1].endswith("test 12 pairs")
    # A run of that name is an error before anything is read.
    Path("weights/demo").mkdir(parents=True)
    Path("weights/demo/config.json").touch()
    done = command(*small_run(few), "--name", "demo", PYTHONPATH=str(Path.cwd()))
    assert done.returncode == 2 and done.stderr.startswith("train.py: weights/demo already contains a run")


@pytest.mark.skipif(sys.platform == "win32", reason="there, SIGTERM ends a process at once")
def test_a_stopped_run_resumes_to_the_same_weights(launch: type[Launched], called: Command, few: Path) -> None:
    """Stopped by a signal in mid-epoch, resumed by the command that it printed: the same weights, to the bit."""
    args = small_run(few, "--epochs", "3", "--precision", "fp32")
    assert called(*args, "--name", "straight").returncode == 0
    with launch([*args, "--name", "stopped"]) as stopped:
        eventually(lambda: "epoch 1/3" in stopped.stderr.read_text(encoding="utf-8"), 60)
        stopped.processes[0].terminate()
        code, _, err = stopped.wait()
    assert code == 130, err
    assert "resume with: python train.py --resume --name stopped" in err
    states = [RunFolder(Path("weights", name)).load_state() for name in ("straight", "stopped")]
    assert states[1]["step"] < states[0]["step"]
    assert called("train.py", "--resume", "--name", "stopped").returncode == 0
    for name in ("model.safetensors", "tokenizer.json"):
        assert Path("weights/stopped", name).read_bytes() == Path("weights/straight", name).read_bytes()
    straight, again = map(history, ("straight", "stopped"))
    own = ("seconds", "tokens_per_second", "train_loss")  # differs by the second that a process had
    assert [{**row, **dict.fromkeys(own)} for row in again] == [{**row, **dict.fromkeys(own)} for row in straight]
    assert [row["epoch"] for row in again] == ["1", "2", "3"] and all(row["train_loss"] for row in again)
    resumed = RunFolder(Path("weights/stopped")).load_state()
    assert all(torch.equal(weight, resumed["model"][name]) for name, weight in states[0]["model"].items())


@pytest.mark.slow
def test_a_run_killed_at_random_resumes_to_the_same_weights(tmp_path: Path) -> None:
    """benchmarks/torture.py in short: after each kill all files are whole, and the end is the same, to the bit."""
    spec = importlib.util.spec_from_file_location("torture", ROOT / "benchmarks" / "torture.py")
    assert spec and spec.loader
    sys.modules["torture"] = torture = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(torture)
    outcome = torture.torture(tmp_path, kills=1, seed=4)
    assert outcome.lives["state saved"] >= 1 and outcome.step > 0
    assert all(outcome.same.values()), outcome


def test_two_processes_cannot_write_to_one_run(called: Command, few: Path) -> None:
    with RunFolder(Path("weights/demo")).held():
        done = called(*small_run(few))
    assert done.returncode == 1 and "another process writes to weights/demo" in done.stderr
    assert len(done.stderr.splitlines()) == 2
    with RunFolder(Path("weights/demo")).held():
        assert called(*small_run(few, "--dry-run")).returncode == 0


def test_a_dry_run_says_that_the_name_is_taken(called: Command, few: Path, run_folder: RunFolder) -> None:
    note = f"note      {run_folder.path} already contains a run: choose another --name, or --overwrite it"
    args = (*small_run(few, "--dry-run"), "--name", run_folder.path.name)
    assert called(*args).stderr.splitlines()[-1] == note
    assert note not in called(*args, "--overwrite").stderr


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["demoo"], 2, "opus_books, demo, multi30k"),
        (["demo", "--d-modle", "5"], 2, "did you mean --d-model"),
        (["demo", "--dropout", "2"], 2, "--dropout is 2.0; it must be from 0.0 to 0.9"),
        (["demo", "--resume"], 1, "no run 'demo'"),
        (["demo", "--minutes", "nan"], 2, "--minutes must be positive"),
        (["demo", "--minutes", "5", "--steps", "9"], 2, "--minutes chooses the number of steps: leave out --steps"),
        (["demo", "--data", "a", "--data", "b"], 2, "--data is given twice: all its values follow one --data"),
        (["demo", "--data", "a", "b", "--data-weights", "1"], 2, "--data-weights has 1, but --data names 2"),
        (["demo", "--columns", "1"], 2, "--columns names 1; give two"),
        (["demo", "--shard", "--optimizer", "muon"], 2, "--shard works with --optimizer adam"),
        (["demo", "--shard", "--precision", "fp16"], 2, "with --precision bf16 or fp32"),
        (["demo", "--data", "nowhere"], 1, "python train.py demo"),
        (["demo", "--max-length", "2"], 1, "--max-length"),
        (["demo", "--target", "de"], 1, "--target"),
    ],
)
def test_errors_are_two_lines(called: Command, args: list[str], code: int, says: str) -> None:
    done = called("train.py", *args)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    _, error = done.stderr.split("train.py: ", 1)  # behind the report of the data, where it is about what follows
    assert len(error.splitlines()) <= 2
    assert not list(Path().iterdir())


def test_resolving_fills_in_the_name() -> None:
    config = resolve(["--device", "cpu", "--target", "it"]).config
    assert config == replace(PRESETS["opus_books"], device="cpu", pairs=("en-it",), name="opus_books-en-it")
    with pytest.raises(ConfigError):
        resolve(["--n-heads", "7"])


def test_a_run_of_the_current_folder_is_named_by_it() -> None:
    Path("letters").mkdir()
    with contextlib.chdir("letters"):
        Path("train.en").touch()
        Path("train.it").touch()
        for data in (".", "../letters", "./"):
            assert resolve(["--data", data, "--target", "it"]).config.name == "letters-en-it"


# What make demo shows


def test_the_demo_reaches_90_bleu_on_its_test_part(trained: "subprocess.CompletedProcess[str]") -> None:
    metrics = json.loads((Path(trained.args[0]) / "weights/demo/metrics.json").read_text(encoding="utf-8"))
    assert metrics["test"]["bleu"] >= 90
    assert "test      BLEU" in trained.stderr


def test_a_run_of_hours_suggests_a_limit() -> None:
    assert time_line(59.9, may_begin_again=True) == "time      about 59.9 minutes left, plus validations"
    assert "about 80.0 minutes left" in time_line(80, may_begin_again=True)
    assert "--minutes N" in time_line(80, may_begin_again=True)
    assert time_line(150, may_begin_again=False) == "time      about 2.5 hours left, plus validations"


def test_what_a_run_of_another_machine_names_is_read_only_if_the_person_names_it(
    one_epoch: "subprocess.CompletedProcess[str]", called: Command, few: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = [["evaluate.py"], ["train.py", "--init-from", "demo", "--name", "next", "--epochs", "1"]]
    commands.append(["train.py", "--resume", "--name", "demo", "--epochs", "2"])
    assert called(*commands[0]).returncode == 0  # made here
    for made_here in ("", "0" * 32):
        (RunFolder(Path("weights/demo")).sign_file).write_text(made_here)
        for command in commands:
            done = called(*command)
            assert done.returncode == 2 and "was not made on this machine" in done.stderr
            assert f"if they may be read, name them: --data {few}" in done.stderr
    for command in commands:
        assert called(*command, "--data", str(few)).returncode == 0
    assert called("train.py", "--resume", "--name", "demo", "--epochs", "3").returncode == 0  # named once
