"""What a run translates itself: which translations are learned from, when they are made, and their batches."""

import math
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import sacrebleu
import torch
from conftest import Command, first
from test_trainer import advance

from checkpoint import RunFolder
from config import Config
from dataset import collate
from decoding.translator import Translator
from exporting.card import about_data
from fast.attention import PaddedLayout
from fast.packed_batch import PackedBatch
from pairs.corpus import Corpus
from pairs.report import DataReport
from tapis.config import EOS, PAD
from tapis.release import CheckpointError
from tapis.search import Search
from tapis.text.tokenizer import Tokenizer
from train import loop
from training.description import describe
from training.metrics import Metrics
from training.own_translations import Round, Translated, closest_translations
from training.records import Judged, RoundReport
from training.state import from_tensors, restore, state_of, to_tensors
from training.tensorboard import Logs
from training.terminal import round_lines
from training.trainer import Training


@pytest.mark.slow
def test_the_last_steps_learn_from_the_models_own_translations(
    tiny: Config, small: Corpus, tokenizer: Tokenizer
) -> None:
    """From the best of five by sentence BLEU against the reference, and from the same sources as before."""
    small = replace(small, train=first(small.train, 30))
    config = replace(tiny, d_model=64, lr=5e-3, steps=80, self_distillation=0.25)
    training = Training(config, small, tokenizer)
    was_due = []
    while training.step < 60:
        was_due.append(training.is_round_due)
        advance(training, 1)
    pairs = training.train_pairs
    assert not any(was_due) and training.is_round_due and not training.translated.n_rounds

    before = collate(*pairs.ids(pairs.rows))
    translator = training.translator()
    training.model.eval()
    five = translator.n_best([source for source, _ in small.train], Search(5, 5))
    training.make_rounds()
    assert not training.is_round_due and training.translated.n_rounds
    after = collate(*training.batch_plan.pairs.ids(pairs.rows))
    assert torch.equal(before.src, after.src)

    texts = tokenizer.decode([[i for i in row if i not in (PAD, EOS)] for row in after.labels.tolist()])
    bleu = sacrebleu.BLEU(effective_order=True)
    n_better_than_first = 0
    for text, ranked, (_, reference) in zip(texts, five, small.train, strict=True):
        scores = [bleu.sentence_score(one.text, [reference]).score for one in ranked]
        assert bleu.sentence_score(text, [reference]).score == pytest.approx(max(scores))
        n_better_than_first += scores[0] < max(scores)
    assert n_better_than_first, "the first of five was always the closest: nothing is shown"


def test_distilled_batches_keep_to_the_token_budget(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    """Translations are longer or shorter than the targets that they replace; batches count the tokens they have."""
    config = replace(tiny, steps=8, self_distillation=0.5, batch_tokens=150, max_length=60)
    training = Training(config, replace(small, train=first(small.train, 60)), tokenizer)
    lengths = [1 + (7 * i) % 60 for i in range(len(training.train_pairs))]  # unlike those of the targets
    training.step = 4
    targets = {row: [50] * length for row, length in zip(training.train_pairs.rows.tolist(), lengths, strict=True)}
    training.learn_from(Translated(1, 4, targets=targets))
    distilled_rows = []
    for step in range(5, 5 + training.batch_plan.steps_per_epoch):
        ((_, packed),) = training.batch_plan.batches_of(step)
        assert isinstance(packed, PackedBatch) and isinstance(packed.layout, PaddedLayout)
        labels = packed.labels[packed.layout.tgt.row_of_position]  # (B, T)
        assert len(labels) * packed.longest <= config.batch_tokens or len(labels) == 1
        distilled_rows += [int(row.sum()) for row in labels == 50]
    assert sorted(distilled_rows) == sorted(lengths), "an epoch of the distilled pairs has each of them once"


def test_a_distilled_epoch_has_a_batch_order_of_its_own(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    training = Training(replace(tiny, steps=100, self_distillation=0.5), small, tokenizer)
    after_step, original = 2 * training.steps_per_epoch - 3, training.batch_plan
    training.learn_from(Translated(1, after_step, targets={row: [50] for row in training.train_pairs.rows.tolist()}))
    assert training.translated.n_rounds and training.batch_plan.steps_per_epoch != training.steps_per_epoch
    assert original.place_of(after_step) == (1, training.steps_per_epoch - 4)
    assert (
        training.batch_plan.place_of(after_step + 1) == (math.ceil(after_step / training.steps_per_epoch), 0) == (2, 0)
    )
    assert training.batch_plan.place_of(after_step + 1 + training.batch_plan.steps_per_epoch) == (3, 0)


def test_translations_survive_saving() -> None:
    by_row = {3 * i: [4 + i % 7] * (i % 5) for i in range(100)}
    assert from_tensors(to_tensors(by_row)) == by_row and from_tensors(to_tensors({})) == {}


def test_a_run_that_goes_further_translates_again(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    """Its translations are for the last of its steps, and those were not the last."""
    small = replace(small, train=first(small.train, 40))
    config = replace(tiny, steps=4, self_distillation=0.5)
    short, longer = Training(config, small, tokenizer), Training(replace(config, steps=12), small, tokenizer)
    advance(short, 4)
    restore(longer, state_of(short))
    assert short.translated.n_rounds and not longer.translated.n_rounds and not longer.is_round_due
    advance(longer, 2)
    assert longer.is_round_due
    advance(longer, 1)
    assert longer.translated.n_rounds


def test_a_resumed_run_reports_the_batches_of_its_data(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    small = replace(small, train=first(small.train, 40))
    begun, resumed = (Training(replace(tiny, steps=4, self_distillation=0.5), small, tokenizer) for _ in range(2))
    expected = describe(begun).batches
    assert expected.in_an_epoch == begun.batches_per_epoch > 0
    advance(begun, 3)
    restore(resumed, state_of(begun))
    assert resumed.translated.n_rounds and describe(resumed).batches == expected


def test_damaged_targets_are_refused_in_words(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    small = replace(small, train=first(small.train, 40))
    training = Training(replace(tiny, steps=4, self_distillation=0.5), small, tokenizer)
    advance(training, 3)
    state = state_of(training)
    targets = state["translated"]["targets"]
    targets["ids"] = targets["ids"][:-1]
    with pytest.raises(CheckpointError, match="do not add up"):
        restore(training, state)


def test_a_run_is_saved_before_it_translates(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, run_folder: RunFolder
) -> None:
    """Translating the training part may take long."""
    training, again = (Training(replace(tiny, steps=8, self_distillation=0.25), small, tokenizer) for _ in range(2))
    training.make_rounds = Mock(side_effect=KeyboardInterrupt)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        loop(training, run_folder, Logs(None, training.progress, 10), [])
    restore(again, run_folder.load_state())
    assert again.step == 6 and again.is_round_due


def test_a_run_is_saved_before_others_translate_for_it(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, run_folder: RunFolder
) -> None:
    """Before its first step; the same run, once they have, takes the same steps."""
    config = replace(tiny, steps=4, teacher=("other",))
    training, again = (Training(config, small, tokenizer) for _ in range(2))
    training.make_rounds = Mock(side_effect=KeyboardInterrupt)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        loop(training, run_folder, Logs(None, training.progress, 10), [])
    restore(again, run_folder.load_state())
    assert again.step == 0 and again.is_round_due
    for one in (training, again):
        one.learn_from(Translated(1))
        advance(one, 2)
    assert all(map(torch.equal, training.model.parameters(), again.model.parameters()))


def test_translations_are_saved_with_the_next_step(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(tiny, steps=20, self_distillation=0.25, valid_every=20)
    training = Training(config, replace(small, train=first(small.train, 40)), tokenizer)
    saves: list[tuple[int, bool]] = []
    monkeypatch.setattr("train.save", lambda one, _: saves.append((one.step, bool(one.translated.n_rounds))))
    loop(training, run_folder, Logs(None, training.progress, 10), [])
    assert saves == [(15, False), (16, True), (20, True)]


def test_translating_in_parts_gives_the_same(
    tiny: Config, small: Corpus, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(tiny, self_distillation=0.25, max_length=250)  # as long as what an untrained model says
    training = Training(config, replace(small, train=first(small.train, 40)), tokenizer)
    training.step = training.total_steps
    training.make_rounds()
    whole = training.translated
    training.learn_from(Translated())
    monkeypatch.setattr("training.own_translations.TRANSLATED_TOGETHER", 7)
    training.make_rounds()
    assert whole.targets and training.translated.targets == whole.targets


def share_of_process(training: Training, rank: int, gathered: list[list[int]]) -> list[list[int]]:
    """Translates as one of two processes. Returns what it hands to the other; gathered is what it gets."""
    shares: list[list[list[int]]] = []

    def gather(local: list[list[int]]) -> list[list[int]]:
        shares.append(local)
        return gathered

    training.group = Mock(rank=rank, size=2, gather=gather, broadcast=lambda value: value)
    training.make_rounds()
    (share,) = shares
    return share


def test_each_process_translates_a_share(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    small = replace(small, train=first(small.train, 21))
    alone = Training(replace(tiny, self_distillation=0.5, max_length=250), small, tokenizer)
    alone.step = alone.total_steps
    alone.make_rounds()
    expected = list(alone.translated.targets.values())
    for rank in range(2):
        training = Training(alone.config, small, tokenizer)
        training.step = training.total_steps
        assert share_of_process(training, rank, expected) == expected[rank::2]


# Teachers


def test_of_several_teachers_the_closest_translation_counts() -> None:
    pairs = [("a", "Le chat dort."), ("b", "Le chien mange.")]

    def teacher(*texts: tuple[str, ...]) -> Mock:
        return Mock(n_best=Mock(return_value=[[Mock(text=text) for text in of_source] for of_source in texts]))

    one = teacher(("Un chien boit.", "Le chat dort bien."), ("Non.", "Un chien."))
    other = teacher(("Il pleut.", "Rien."), ("Le chien mange bien.", "Le chat."))
    assert closest_translations([one], pairs, "fr") == ["Le chat dort bien.", "Un chien."]
    assert closest_translations([one, other], pairs, "fr") == ["Le chat dort bien.", "Le chien mange bien."]


def test_a_translation_that_is_too_long_is_not_learned_from(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    """Cut, it would teach to end within a sentence. The reference stays."""
    training = Training(replace(tiny, max_length=20), replace(small, train=first(small.train, 30)), tokenizer)
    texts = [" ".join(["Le chat dort."] * (1 + 9 * (i % 2))) for i in range(len(training.train_pairs))]
    teacher = Mock(n_best=Mock(return_value=[[Mock(text=text)] for text in texts]))
    teacher.towards.return_value = teacher
    a_round = Round(training.config, training.corpus, training.train_pairs, tokenizer, training.group)
    targets = a_round.closest_translations([(teacher, [Judged("en", "fr", 40.0, is_good=True)])])
    assert list(targets) == training.train_pairs.rows[::2].tolist()
    assert {tuple(ids) for ids in targets.values()} == set(map(tuple, tokenizer.encode(["Le chat dort."])))


@pytest.fixture
def taught(trained: "subprocess.CompletedProcess[str]", called: Command, fewer: Path) -> list[str]:
    """The command that trains a small student of the demo, with another vocabulary; its run is weights/student."""
    Path("weights").mkdir()
    shutil.copytree(Path(trained.args[-1]) / "weights/demo", "weights/demo")
    small = ["--d-model", "16", "--n-heads", "2", "--d-ff", "32", "--vocab-size", "280", "--device", "cpu"]
    args = ["train.py", "demo", "--data", str(fewer), *small, "--epochs", "1", "--teacher", "demo", "--name", "student"]
    done = called(*args, "--self-distillation", "0.5")
    assert done.returncode == 0, done.stderr
    line = "targets   from step 1: the closest of the translations of --teacher (demo en-fr BLEU "
    assert done.stderr.count(line) == 1
    assert "of the model's own translations" not in done.stderr, "a student does not learn from itself"
    return args


def test_a_student_learns_from_its_teachers_translations(taught: list[str], called: Command, fewer: Path) -> None:
    state = RunFolder(Path("weights/student")).load_state()["translated"]
    assert state["n_rounds"] == 1 and state["after_step"] == 0
    tokenizer = RunFolder(Path("weights/student")).load_tokenizer()
    texts = tokenizer.decode(list(from_tensors(state["targets"]).values()))
    sides = [(fewer / f"train.{language}").read_text(encoding="utf-8").splitlines() for language in ("en", "fr")]
    pairs = list(zip(*sides, strict=True))
    assert texts == closest_translations([Translator.load("demo", "cpu")], pairs, "fr")
    # The teacher is needed for that alone.
    Path("weights/demo").rename("weights/elsewhere")
    longer = called("train.py", "--resume", "--name", "student", "--epochs", "2")
    assert longer.returncode == 0 and "closest" not in longer.stderr, longer.stderr
    done = called("export.py", "--run", "student", "--release", "released", "--license", "mit")
    assert done.returncode == 0, done.stderr
    assert "It was taught by demo." in Path("released/README.md").read_text("utf-8")


def test_the_card_names_the_teachers_that_taught(tiny: Config) -> None:
    config = replace(tiny, teacher=("good", "bad"), monolingual=("text.fr",), back_translator="back")
    bad = Judged("en", "fr", 20.0, is_good=False, by="bad")
    teaching = RoundReport("teaching", [Judged("en", "fr", 40.0, is_good=True, by="good"), bad], 10)
    translating = RoundReport("back-translation", [Judged("fr", "en", 9.0, is_good=False)], 0)
    metrics = Metrics(data=DataReport(read=9), rounds=[teaching, translating])
    text = about_data(config, metrics, "pairs")
    assert "taught by good." in text and "bad" not in text and "has translated" not in text
    alone = replace(config, teacher=("bad",))
    assert "taught by" not in about_data(alone, replace(metrics, rounds=[RoundReport("teaching", [bad], 0)]), "pairs")
    earlier = about_data(config, replace(metrics, rounds=[]), "pairs")
    assert "taught by good, bad." in earlier and "back has translated" in earlier


def test_a_teacher_that_is_left_out_is_named(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    training = Training(replace(tiny, teacher=("good", "bad")), small, tokenizer)
    judged = [Judged("en", "fr", 40.0, is_good=True, by="good"), Judged("en", "fr", 20.0, is_good=False, by="bad")]
    learned, left_out = round_lines(RoundReport("distillation", judged, 10), training)
    assert "--teacher (good en-fr BLEU 40.0)" in learned and "bad" not in learned
    assert "--teacher is left out: bad en-fr BLEU 20.0" in left_out and "good" not in left_out


def test_a_wrong_teacher_is_refused_before_anything_is_read(taught: list[str], called: Command) -> None:
    *args, _, _, name = taught  # all up to --teacher demo --name student
    args = [*args[:-1], "--overwrite"]
    model = Path("weights/student/model.safetensors").read_bytes()
    for flags, says in (
        (["--teacher", "student", "--name", name], "--teacher student is the run to begin; choose another --name"),
        (["--teacher", "demo", "demo"], "--teacher demo demo: name each run once"),
        (["--teacher", "demo", "--source", "fr", "--target", "en"], "its language pairs are en-fr"),
        (["--teacher", "nobody"], "nobody"),
    ):
        done = called(*args, *flags)
        assert done.returncode in (1, 2) and says in done.stderr and len(done.stderr.splitlines()) <= 2, done.stderr
    assert Path("weights/student/model.safetensors").read_bytes() == model
