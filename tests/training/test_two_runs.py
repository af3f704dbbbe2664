"""Two runs in the time of one: when there are two, that they are those of two commands, and that they are resumed."""

import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from conftest import Command

import train
from checkpoint import RunFolder
from config import Config
from fast.capture import CapturedSteps
from pairs.corpus import Corpus
from tapis.system.files import digest_files
from tapis.text.tokenizer import Tokenizer
from training import two_runs as module
from training.budget import TimeBudget
from training.tensorboard import Logs
from training.trainer import Training
from training.two_runs import two_runs

SMALL = ["--d-model", "16", "--n-heads", "2", "--d-ff", "32", "--vocab-size", "300", "--device", "cpu"]
MORE = ["--epochs", "1", "--dropout", "0.2", "--least-bleu", "0", "--self-distillation", "0.1", "--name", "pupil"]


@pytest.fixture
def two_in_a_blink(few: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The line of a run of a few seconds, which are enough for two however slow the machine is."""
    monkeypatch.setattr(module, "LEAST_OF_STUDENT", 0.0)
    monkeypatch.setattr(TimeBudget, "_bound_distilling", lambda *_: None)
    return ["train.py", "demo", "--data", str(few), *SMALL, *MORE, "--minutes", "0.05"]


def planned(config: Config, corpus: Corpus, tokenizer: Tokenizer, epochs: float) -> Training:
    """A run that has time for so many epochs."""
    training = Training(config, corpus, tokenizer)
    training.plan_steps(round(epochs * training.steps_per_epoch), 0)
    return training


def test_spare_time_is_for_a_second_model(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    config = replace(tiny, epochs=10, dropout=0.2, self_distillation=0.1)
    assert two_runs(planned(config, small, tokenizer, 12), TimeBudget(1)) is None
    assert two_runs(planned(config, small, tokenizer, 40), TimeBudget(0)) is None, "without --minutes"

    # The teacher has at most as many epochs as its config.
    for epochs in (24, 40):
        runs = two_runs(planned(config, small, tokenizer, epochs), TimeBudget(1))
        assert runs is not None and runs.share * epochs <= 10.01
        assert runs.teacher == replace(config, name="tiny-teacher", self_distillation=0.0)
        student = replace(config, teacher=("tiny-teacher",), dropout=0.1, least_bleu=0, epochs=runs.student.epochs)
        assert runs.student == student and 0 < student.epochs < epochs - runs.share * epochs

    # The steps of a student take far longer where the others are CUDA graphs.
    training = planned(config, small, tokenizer, 40)
    training.captured = cast(CapturedSteps, object())
    assert two_runs(training, TimeBudget(1)) is None
    training.plan_steps(200 * training.steps_per_epoch, 0)
    assert two_runs(training, TimeBudget(1))


@pytest.mark.parametrize(
    "settings",
    [{"self_distillation": 0.0}, {"teacher": ("other",)}, {"init_from": "other"}, {"monolingual": ("text.fr",)}],
    ids=str,
)
def test_a_line_that_says_what_to_learn_from_gets_one_run(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, settings: dict[str, Any]
) -> None:
    training = planned(replace(tiny, epochs=10, self_distillation=0.1), small, tokenizer, 90)
    assert two_runs(training, TimeBudget(1))
    training.config = replace(training.config, back_translator="other" if "monolingual" in settings else "", **settings)
    assert two_runs(training, TimeBudget(1)) is None


def test_two_runs_are_those_of_two_commands(called: Command, two_in_a_blink: Sequence[str]) -> None:
    done = called(*two_in_a_blink)
    assert done.returncode == 0 and "runs      two: pupil-teacher for 0.0 minutes, then pupil" in done.stderr, (
        done.stderr
    )
    assert "the probabilities of --teacher, beside the references (pupil-teacher " in done.stderr
    of_teacher, of_student = (RunFolder(Path("weights", name)) for name in ("pupil-teacher", "pupil"))
    before = {folder: digest_files([folder.model_file]) for folder in (of_teacher, of_student)}

    line = two_in_a_blink[:-2]
    for folder, more in (
        (of_teacher, ["--self-distillation", "0"]),
        (of_student, ["--dropout", "0.1", "--teacher", "pupil-teacher"]),
    ):
        resolved = folder.load_state()["resolved"]
        length = ["--steps", str(resolved["steps"]), "--warmup-steps", str(resolved["warmup_steps"])]
        again = called(*replaced(line, [*more, *length, "--name", "by-hand"]), "--overwrite")
        assert again.returncode == 0, again.stderr
        assert digest_files([Path("weights/by-hand/model.safetensors")]) == before[folder]


def replaced(line: Sequence[str], flags: Sequence[str]) -> list[str]:
    """A command line with these flags in place of its own of the same names."""
    names = flags[::2]
    kept = [part for at, part in enumerate(line) if part not in names and line[at - 1] not in names]
    return [*kept, *flags]


def test_an_interruption_of_the_teacher_is_resumed_by_the_name_of_the_run(
    called: Command, two_in_a_blink: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def at_once() -> Iterator[list[int]]:
        yield [signal.SIGTERM]

    with monkeypatch.context() as patched:
        patched.setattr("train.interruption", at_once)
        done = called(*two_in_a_blink)
    assert done.returncode == 130 and done.stderr.endswith("resume with: python train.py --resume --name pupil\n")
    of_teacher, of_student = (RunFolder(Path("weights", name)) for name in ("pupil-teacher", "pupil"))
    assert of_teacher.load_state()["step"] == 1 and not of_student.state_file.exists()
    planned_epochs = of_student.load_config().epochs

    dry = called("train.py", "--resume", "--name", "pupil", "--dry-run")
    assert dry.returncode == 0 and "minutes of training" in dry.stderr and of_teacher.load_state()["step"] == 1
    done = called("train.py", "--resume", "--name", "pupil")
    assert done.returncode == 0 and "resumed   at step 1 of " in done.stderr, done.stderr
    assert of_student.load_config().epochs == planned_epochs and of_student.load_metrics()["test"]
    again = called("train.py", "--resume", "--name", "pupil")
    assert again.returncode == 0 and again.stderr.count("this run is complete") == 1, "the teacher is left alone"


def test_a_student_does_not_begin_after_an_interruption_of_the_last_step(
    called: Command, two_in_a_blink: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(training: Training, folder: RunFolder, logs: Logs, signals: list[int], budget: TimeBudget) -> None:
        loop(training, folder, logs, signals, budget)
        signals.append(signal.SIGTERM)

    loop = train.loop
    monkeypatch.setattr("train.loop", interrupted)
    for line in (two_in_a_blink, ["train.py", "--resume", "--name", "pupil"]):
        done = called(*line)
        said = "stopped after the last step of pupil-teacher\nresume with: python train.py --resume --name pupil\n"
        assert done.returncode == 130 and done.stderr.endswith(f"train.py: {said}"), done.stderr
        assert RunFolder(Path("weights/pupil-teacher")).load_metrics()["test"]
        assert not RunFolder(Path("weights/pupil")).state_file.exists()


@pytest.mark.parametrize("more", [[], ["--overwrite"]], ids=str)
def test_a_run_of_the_teachers_name_is_not_lost(
    called: Command, two_in_a_blink: Sequence[str], more: list[str], run_folder: RunFolder
) -> None:
    folder = run_folder.path.rename("weights/pupil-teacher")
    before = digest_files([folder / "model.safetensors"])
    done = called(*two_in_a_blink, *more)
    assert done.returncode == 2 and len(done.stderr.partition("train.py: ")[2].splitlines()) == 2, done.stderr
    assert f"{folder} already contains a run" in done.stderr
    assert not Path("weights/pupil").exists() and digest_files([folder / "model.safetensors"]) == before


def test_an_interruption_before_the_first_checkpoint_ends_in_words(
    called: Command, two_in_a_blink: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line that is advised then replaces both runs."""
    with monkeypatch.context() as patched:
        patched.setattr("train.begin", Mock(side_effect=OSError("no space")))
        assert called(*two_in_a_blink).returncode == 1
    done = called("train.py", "--resume", "--name", "pupil")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 2, done.stderr
    assert "pupil-teacher/training/state.safetensors is missing" in done.stderr and "--overwrite" in done.stderr
    with monkeypatch.context() as patched:
        patched.setattr("train.begin", Mock(side_effect=OSError("no space")))
        assert "no space" in called(*two_in_a_blink, "--overwrite").stderr
        shutil.rmtree("weights/pupil")  # as after a kill between the two folders: the teacher's has nothing to lose
        assert "no space" in called(*two_in_a_blink).stderr


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OSError("no space"), "its teacher stays; resume with: python train.py --resume --name pupil"),
        (MemoryError(), "its teacher stays: name it, with --teacher pupil-teacher and another --name"),
    ],
    ids=str,
)
def test_a_student_that_fails_before_its_first_checkpoint_leaves_a_teacher(
    called: Command, two_in_a_blink: Sequence[str], monkeypatch: pytest.MonkeyPatch, error: Exception, advice: str
) -> None:
    monkeypatch.setattr("train.new_training", only_the_first_two(train.new_training, error))
    done = called(*two_in_a_blink)
    assert done.returncode == 1 and done.stderr.endswith(f"{advice}\n"), done.stderr


def only_the_first_two(function: Callable[..., Any], error: Exception) -> Callable[..., Any]:
    """A function that raises an error when it is called for the third time."""
    calls: list[None] = []

    def limited(*args: Any) -> Any:
        calls.append(None)
        if len(calls) > 2:
            raise error
        return function(*args)

    return limited


def test_a_dry_run_tells_of_two_runs(called: Command, two_in_a_blink: Sequence[str]) -> None:
    done = called(*two_in_a_blink, "--dry-run")
    assert done.returncode == 0 and "runs      two: pupil-teacher" in done.stderr
    assert not Path("weights").exists()
