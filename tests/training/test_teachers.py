"""Runs of the same vocabulary that teach a new one, token by token."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from conftest import Command, first, saved_untrained
from test_trainer import advance
from torch import Tensor
from torch.nn import functional as F

from checkpoint import RunFolder, parameters
from config import TAUGHT, Config
from dataset import collate
from exporting.release import to_release
from fast.forward import PackedBatchLoss
from fast.modules import install_fast_modules
from fast.packed_batch import PackedBatch
from model import Transformer
from pairs.corpus import Corpus
from pairs.vocabulary import learn_tokenizer
from tapis.config import PAD
from tapis.release import CheckpointError
from tapis.text.tokenizer import Tokenizer
from train import record_rounds
from training.metrics import load_metrics
from training.objective import BatchLoss
from training.own_translations import Translated
from training.records import Judged, RoundReport
from training.state import restore, state_of, teachers_of
from training.teachers import load_teachers
from training.trainer import Training

CPU = torch.device("cpu")
SOURCES = [[50, 51, 52, 53], [54]]
TARGETS = [[60], [61, 62, 63, 64, 65]]


def models(tiny: Config, tokenizer: Tokenizer) -> tuple[Transformer, list[Transformer]]:
    """A student, and two teachers of other sizes; without dropout."""
    torch.manual_seed(1)
    config = replace(tiny, dropout=0.0)
    wider = replace(config, d_model=48, n_heads=4, n_encoder_layers=1)
    student, *teachers = (Transformer(len(tokenizer), one) for one in (config, wider, replace(config, d_ff=8)))
    return student.train(), [teacher.eval() for teacher in teachers]


def test_the_target_is_for_the_most_part_what_teachers_say(tiny: Config, tokenizer: Tokenizer) -> None:
    """Plain and fast, against the cross-entropy with such a target."""
    student, teachers = models(tiny, tokenizer)
    batch = collate(SOURCES, TARGETS)

    def logits(model: Transformer) -> Tensor:
        return model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)[batch.labels != PAD]

    labels = F.one_hot(batch.labels[batch.labels != PAD], len(tokenizer)).float()
    smoothed = 0.9 * labels + 0.1 / len(tokenizer)
    taught = torch.stack([logits(teacher).softmax(dim=-1) for teacher in teachers]).mean(dim=0)
    target = (1 - TAUGHT) * smoothed + TAUGHT * taught.detach()
    expected = F.cross_entropy(logits(student), target, reduction="sum")
    wanted = torch.autograd.grad(expected, list(student.parameters()))

    plain, _ = BatchLoss(student, 0.1, teachers)(batch)
    torch.testing.assert_close(plain, expected)
    torch.testing.assert_close(torch.autograd.grad(plain, list(student.parameters())), wanted)
    for model in (student, *teachers):
        install_fast_modules(model)
    fast, _ = PackedBatchLoss(student, 0.1, teachers)(PackedBatch.of(SOURCES, TARGETS))
    torch.testing.assert_close(fast, expected)
    found = torch.autograd.grad(fast, list(student.parameters()))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_plain", [True, False])
def test_teachers_are_neither_learned_nor_asked_in_validation(
    is_plain: bool, tiny: Config, tokenizer: Tokenizer
) -> None:
    student, teachers = models(tiny, tokenizer)
    batch = collate(SOURCES, TARGETS) if is_plain else PackedBatch.of(SOURCES, TARGETS)
    kind = BatchLoss if is_plain else PackedBatchLoss
    alone, taught = kind(student, 0.1), kind(student, 0.1, teachers)
    assert taught.state_dict().keys() == alone.state_dict().keys()
    assert not torch.equal(taught(batch)[0], alone(batch)[0])
    assert torch.equal(taught(batch)[1], alone(batch)[1]), "the perplexity is that of the references"
    student.eval()
    assert torch.equal(taught(batch)[0], alone(batch)[0])


@pytest.fixture
def teacher(tiny: Config, tokenizer: Tokenizer) -> RunFolder:
    """A run of the same vocabulary, which has not learned anything."""
    return saved_untrained(replace(tiny, d_model=48, n_heads=4), tokenizer)


def test_teachers_of_another_vocabulary_translate_instead(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, teacher: RunFolder
) -> None:
    config = replace(tiny, teacher=("one",))
    assert list(load_teachers(config, tokenizer, CPU)) == ["one"]
    assert not load_teachers(replace(config, terms=0.2), tokenizer, CPU)
    assert not load_teachers(config, learn_tokenizer(first(small.train, 30), 270), CPU)
    assert not load_teachers(replace(config, teacher=("one", "nobody")), tokenizer, CPU)


def taught_training(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> Training:
    config = replace(tiny, teacher=("one",), least_bleu=0.0, steps=6, dropout=0.1, subword_dropout=0.2)
    return Training(config, replace(small, train=first(small.train, 40)), tokenizer)


def test_a_taught_run_resumes_as_if_it_had_never_stopped(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, teacher: RunFolder
) -> None:
    whole, stopped, resumed = (taught_training(tiny, small, tokenizer) for _ in range(3))
    for one in (whole, stopped):
        (report,) = one.make_rounds()
        assert report.kind == "teaching" and not one.translated.targets  # type: ignore[union-attr]
    advance(whole, 6)
    advance(stopped, 3)
    restore(resumed, state_of(stopped))
    assert list(resumed.teachers) == ["one"] and not resumed.is_round_due
    advance(resumed, 3)
    for name, weight in parameters(whole.model).items():
        assert torch.equal(weight, parameters(resumed.model)[name]), name

    alone = Training(replace(whole.config, teacher=()), whole.corpus, tokenizer)
    advance(alone, 6)
    assert not all(map(torch.equal, alone.model.parameters(), whole.model.parameters()))


def test_a_run_does_not_go_on_with_another_teacher(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, teacher: RunFolder
) -> None:
    begun = taught_training(tiny, small, tokenizer)
    begun.make_rounds()
    saved_untrained(tiny, tokenizer)
    with pytest.raises(CheckpointError, match="its teacher one is missing, or has changed"):
        restore(taught_training(tiny, small, tokenizer), state_of(begun))
    shutil.rmtree(teacher.path)
    with pytest.raises(CheckpointError, match="its teacher one is missing, or has changed"):
        restore(taught_training(tiny, small, tokenizer), state_of(begun))


def test_a_run_goes_on_without_a_teacher_that_was_left_out(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, teacher: RunFolder
) -> None:
    """It may be gone by then. A state cannot name other runs than --teacher does."""
    begun = taught_training(tiny, small, tokenizer)
    begun.config = replace(begun.config, teacher=("one", "gone"))
    begun.learn_from(Translated(1))
    state = state_of(begun)
    assert teachers_of(state) == ["one"] and teachers_of({"translated": None}) is None

    again = Training(begun.config, begun.corpus, tokenizer, taught_by=teachers_of(state))
    restore(again, state)
    assert list(again.teachers) == ["one"]
    other = Training(replace(begun.config, teacher=("gone",)), begun.corpus, tokenizer, taught_by=["one"])
    assert not other.teachers


def test_a_teacher_that_translates_badly_teaches_nothing(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, teacher: RunFolder
) -> None:
    training = taught_training(tiny, small, tokenizer)
    training.config = replace(training.config, least_bleu=30.0)
    (report,) = training.make_rounds()
    assert report.kind == "teaching" and report.n_sentences == 0  # type: ignore[union-attr]
    assert not training.teachers and not training.model_loss.teachers


def test_a_run_says_who_teaches_it(trained: "subprocess.CompletedProcess[str]", called: Command, few: Path) -> None:
    Path("weights").mkdir()
    shutil.copytree(Path(trained.args[-1]) / "weights/demo", "weights/demo")
    small = ["--d-model", "16", "--n-heads", "2", "--d-ff", "32", "--device", "cpu", "--epochs", "1"]
    done = called("train.py", "demo", *small, "--steps", "3", "--teacher", "demo", "--name", "student")
    assert done.returncode == 0, done.stderr
    line = "targets   from step 1: the probabilities of --teacher, beside the references (demo en-fr BLEU "
    assert done.stderr.count(line) == 1
    (taught,) = load_metrics(RunFolder(Path("weights/student"))).rounds
    assert taught.kind == "teaching" and taught.judged[0].by == "demo" and taught.judged[0].is_good

    # A run that is killed before it is saved does it again. In a release, no path is left.
    teacher = str(Path("weights/demo").absolute())
    folder = RunFolder(Path("weights/student"))
    training = Mock(step=0)
    for bleu in (40.0, 41.0):
        report = RoundReport("teaching", [Judged("en", "fr", bleu, is_good=True, by=teacher)], 10)
        record_rounds(folder, training, [report])
    assert [one.judged[0].bleu for one in load_metrics(folder).rounds] == [41.0]
    folder.save_config(replace(folder.load_config(), teacher=(teacher,)))
    Path("out").mkdir()
    to_release(folder, Path("out"), "mit")
    assert load_metrics(RunFolder(Path("out"))).rounds[0].judged[0].by == "demo"
    assert str(Path.cwd()) not in Path("out/metrics.json").read_text("utf-8") + Path("out/README.md").read_text("utf-8")
