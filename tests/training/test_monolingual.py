"""Tests of --monolingual: which lines are learned from, when they are translated back, and the commands."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Command
from test_own_translations import share_of_process
from test_trainer import advance

from checkpoint import RunFolder, parameters
from config import Config
from dataset import batches, collate
from pairs.corpus import load_corpus
from pairs.vocabulary import learn_tokenizer
from tapis.config import ConfigError
from tapis.text.lines import DataError
from training.batch_plan import weights_of_origins
from training.own_translations import TAG, Round, rounds
from training.records import RoundReport
from training.state import restore, state_of
from training.terminal import round_lines
from training.trainer import Training

BOTH = ("en-fr", "fr-en")
SMALL = ["--d-model", "16", "--n-heads", "2", "--d-ff", "32", "--vocab-size", "300", "--device", "cpu"]
SMALL += ["--least-bleu", "0"]
TEXT = [f"Les {i} chats dorment dans le jardin." for i in range(30)]

Begin = Callable[..., Training]


@pytest.fixture
def begin(fewer: Path, tiny: Config) -> Begin:
    """Makes a run in both directions with French text, twelve steps long unless changed."""
    Path("text.fr").write_text("\n".join(TEXT) + "\n", encoding="utf-8")
    config = replace(
        tiny, data=(str(fewer),), pairs=BOTH, monolingual=("text.fr",), steps=12, batch_tokens=64, max_length=60
    )

    def begin(**change: Any) -> Training:
        changed = replace(config, **change)
        corpus = load_corpus(changed)
        return Training(changed, corpus, learn_tokenizer(corpus.train, 300, changed.tagged_languages))

    return begin


def rounds_of(training: Training) -> list[RoundReport]:
    """The rounds that are due, which translate."""
    reports = training.make_rounds()
    assert all(isinstance(report, RoundReport) for report in reports)
    return [report for report in reports if isinstance(report, RoundReport)]


def texts_of(training: Training, rows: Any) -> list[tuple[list[int], str]]:
    """The source ids and the target text of some rows of the translated pairs."""
    assert training.translated.n_rounds
    batch = collate(*training.batch_plan.pairs.ids(np.asarray(rows)))
    targets = training.tokenizer.decode(batch.labels.tolist())
    return list(zip(batch.src.tolist(), targets, strict=True))


def test_lines_of_no_use_are_dropped_and_counted(few: Path, tiny: Config) -> None:
    valid = (few / "valid.fr").read_text(encoding="utf-8").splitlines()
    english = "This sentence is certainly written in English, and nobody would take it for French."
    german = "Dieser Satz ist ganz sicher auf Deutsch geschrieben, und niemand hält ihn für Französisch."
    lines = [*TEXT, "", english, german, TEXT[0], valid[0].upper() + " !", "Le\u00a0chat."]
    Path("text.fr").write_text("\n".join(lines) + "\n", encoding="utf-8")
    corpus = load_corpus(replace(tiny, data=(str(few),), pairs=BOTH, monolingual=("text.fr",)))

    *of_pairs, of_text = corpus.report.sources
    counts = {rule: count.pairs for rule, count in of_text.rules.items()}
    assert of_text.read == 36 and of_text.train == 31 and of_text.valid == of_text.test == 0
    assert counts == {"unicode": 1, "empty-side": 1, "wrong-language": 2, "duplicates": 1, "held-out": 1}
    assert corpus.report.train == sum(report.train for report in of_pairs)
    learned = [text for text, number in zip(corpus.train, corpus.train.origins(), strict=True) if number == 2]
    assert learned == [("", text) for text in [*TEXT, "Le chat."]]

    # Validation and test are those of the pairs.
    without = load_corpus(replace(tiny, data=(str(few),), pairs=BOTH))
    assert list(corpus.valid) == list(without.valid) and list(corpus.test) == list(without.test)


def test_a_language_that_cannot_be_identified_is_reported(few: Path, tiny: Config) -> None:
    for side, language in (("en", "en"), ("fr", "tlh")):
        for part in ("train", "valid", "test"):
            Path(f"{part}.{language}").write_bytes((few / f"{part}.{side}").read_bytes())
    Path("text.tlh.txt").touch()
    Path("text.tlh").write_text("tlhIngan maH\n", encoding="utf-8")
    config = replace(tiny, data=(".",), pairs=("en-tlh", "tlh-en"), monolingual=("text.tlh",))
    report = load_corpus(config).report.sources[2]
    assert report.notes == ["wrong-language switched off: py3langid does not cover tlh"] and report.train == 1


def test_text_is_learned_from_once_it_is_translated(begin: Begin) -> None:
    training = begin(monolingual_weight=2.0, self_distillation=0.1, lr=0.05)
    is_text = training.is_monolingual
    assert is_text.sum() == len(TEXT) and rounds(training.config)[0] == (0.5, "back-translation")

    # Before, no batch has any of it.
    was_due = []
    while training.step < 6:
        was_due.append(training.is_round_due)
        advance(training, 1)
    assert not any(was_due) and training.is_round_due and not training.translated.n_rounds
    assert not any(is_text[rows].any() for rows in training.batch_plan.batches_of_epoch(0))

    # Then an epoch has each line as often as its weight says, as the target of a tagged source.
    assert [report.kind for report in rounds_of(training)] == ["back-translation"]
    assert not training.is_round_due and training.translated.n_rounds
    learned = np.concatenate(training.batch_plan.batches_of_epoch(3))
    assert (np.bincount(learned, minlength=len(is_text)) == np.where(is_text, 2, 1)).all()
    into_french = training.tokenizer.tags["fr"]
    for source, target in texts_of(training, np.flatnonzero(is_text)):
        assert source[:2] == [into_french, TAG] and TAG not in source[2:] and target in TEXT
    for source, _ in texts_of(training, np.flatnonzero(~is_text)):
        assert source[0] in training.tokenizer.tags.values() and TAG not in source

    # At three quarters of the run, the text is translated again; late, self-distillation leaves it alone.
    advance(training, 3)
    first_sources = dict(training.translated.sources)
    assert training.is_round_due and [report.kind for report in rounds_of(training)] == ["back-translation"]
    assert training.translated.sources.keys() == first_sources.keys() and training.translated.sources != first_sources
    advance(training, 2)
    sources = training.translated.sources
    assert [report.kind for report in rounds_of(training)] == ["self-distillation"]
    assert training.translated.sources == sources
    assert len(training.translated.targets) == (~is_text).sum()
    assert {target for _, target in texts_of(training, np.flatnonzero(is_text))} == set(TEXT)


def test_translations_of_a_bad_model_are_left_out(begin: Begin, tmp_path: Path) -> None:
    """The run goes on with the pairs alone, says so, and is resumed as it was."""
    training, resumed = (begin(self_distillation=0.1, least_bleu=100.0) for _ in range(2))
    advance(training, 6)
    (report,) = rounds_of(training)
    assert report.n_sentences == 0 and [(one.source, one.target) for one in report.judged] == [("fr", "en")]
    (line,) = round_lines(report, training)
    assert re.fullmatch(
        r"note      --monolingual is left out: fr-en BLEU \d+\.\d in validation is below --least-bleu 100", line
    )
    advance(training, 5)
    (report,) = rounds_of(training)
    assert report.kind == "self-distillation" and {one.target for one in report.judged} == {"en", "fr"}
    assert [line[:30] for line in round_lines(report, training)] == ["note      no self-distillation"]
    learned = np.concatenate(training.batch_plan.batches_of_epoch(3))
    assert (np.bincount(learned, minlength=len(training.train_pairs)) == ~training.is_monolingual).all()

    folder = RunFolder(tmp_path / "run")
    folder.save_state(state_of(training))
    restore(resumed, folder.load_state())
    for one in (training, resumed):
        advance(one, 1)
    for name, parameter in parameters(training.model).items():
        assert torch.equal(parameters(resumed.model)[name], parameter), name


def test_text_of_a_language_that_is_translated_badly_is_left_out(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text of another language is learned from."""
    Path("text.en").write_text("".join(f"The {i} dogs sleep in the garden.\n" for i in range(20)), encoding="utf-8")
    training = begin(monolingual=("text.fr", "text.en"), least_bleu=20.0)
    monkeypatch.setattr(Round, "_bleu", lambda _, translator, source, target: {"fr": 30.0, "en": 10.0}[source])
    advance(training, 6)
    (report,) = rounds_of(training)
    lines = list(round_lines(report, training))
    assert "30 sentences of --monolingual, translated back by the model (fr-en BLEU 30.0); " in lines[0]
    assert lines[1].startswith("note      --monolingual is left out: en-fr BLEU 10.0 in validation")
    learned = np.concatenate(training.batch_plan.batches_of_epoch(3))
    origins = training.train_pairs.origins[learned]
    into_french = [origin.is_monolingual and origin.target == "fr" for origin in training.corpus.origins]
    into_english = [origin.is_monolingual and origin.target == "en" for origin in training.corpus.origins]
    assert np.isin(origins, np.flatnonzero(into_french)).sum() == 30
    assert lines[0].endswith(f"{30 / len(learned):.0%} of what it learns from")
    assert not np.isin(origins, np.flatnonzero(into_english)).any()


@pytest.mark.parametrize("stop", [6, 7, 10])
def test_a_resumed_run_equals_an_uninterrupted_one(begin: Begin, tmp_path: Path, stop: int) -> None:
    """Whether it was saved just before the text was translated, after, or before self-distillation."""
    straight, begun, resumed = (begin(self_distillation=0.1, dropout=0.2, subword_dropout=0.1) for _ in range(3))
    advance(straight, 12)
    advance(begun, stop)
    folder = RunFolder(tmp_path / "run")
    folder.save_state(state_of(begun))
    torch.manual_seed(99)
    restore(resumed, folder.load_state())
    assert bool(resumed.translated.n_rounds) == (stop > 6)
    advance(resumed, 12 - stop)
    for name, parameter in parameters(straight.model).items():
        assert torch.equal(parameters(resumed.model)[name], parameter), name


@pytest.mark.parametrize(("steps", "n_rounds"), [(15, 2), (24, 1), (30, 0)])
def test_a_run_made_longer_keeps_what_it_need_not_translate_again(
    begin: Begin, tmp_path: Path, steps: int, n_rounds: int
) -> None:
    """Its moments lie ahead again: that of self-distillation, then the second and the first of back-translation."""
    done, longer = begin(self_distillation=0.1), begin(self_distillation=0.1, steps=steps)
    advance(done, 12)
    assert done.translated.n_rounds == 3
    folder = RunFolder(tmp_path / "run")
    folder.save_state(state_of(done))
    # steps counts among the settings that may change
    restore(longer, folder.load_state())
    assert not longer.is_round_due
    if not n_rounds:
        assert not longer.translated.n_rounds
        return
    assert longer.translated.n_rounds == n_rounds
    assert longer.translated.sources == done.translated.sources and not longer.translated.targets
    assert longer.batch_plan.place_of(13)[1] == 0, "its epochs are counted anew"
    advance(longer, 1)


def test_empty_sources_in_held_out_parts_do_not_hold_out_text(fewer: Path, tiny: Config) -> None:
    shutil.copytree(fewer, "data")
    valid = Path("data/valid.en")
    valid.write_text("\n" + valid.read_text(encoding="utf-8").partition("\n")[2], encoding="utf-8")
    Path("text.fr").write_text("\n".join(TEXT) + "\n", encoding="utf-8")
    config = replace(tiny, data=("data",), pairs=BOTH, monolingual=("text.fr",), skip_rules=("empty-side",))
    assert load_corpus(config).report.sources[2].train == len(TEXT)


def test_each_process_translates_a_share(begin: Begin) -> None:
    alone = begin()
    alone.step = 6
    alone.make_rounds()
    expected = list(alone.translated.sources.values())
    for rank in range(2):
        training = begin()
        training.step = 6
        assert share_of_process(training, rank, expected) == expected[rank::2]


def test_rounds_are_in_order() -> None:
    config = Config(pairs=BOTH, monolingual=("a.fr",), self_distillation=0.4)
    shares, kinds = zip(*rounds(config), strict=True)
    assert shares == (0.5, 0.6, 0.75) and kinds[1] == "self-distillation"


def test_weights_of_text_are_apart_from_those_of_pairs() -> None:
    config = Config(pairs=BOTH, monolingual=("a.fr", "b.en"), monolingual_weight=0.5, temperature=2.0)
    weights = weights_of_origins(config, np.array([100, 400, 7, 9]))
    assert weights[2:] == [0.5, 0.5] and weights[0] > weights[1] and weights[0] * 100 + weights[1] * 400 == 500


def test_rows_without_a_weight_are_left_out(begin: Begin) -> None:
    pairs = begin().train_pairs
    for weights in ([1.0, 1.0], [0.5, 1.0]):
        rows = np.concatenate(batches(pairs, 64, seed=1, epoch=0, weights=weights))
        assert set(pairs.origins[rows].tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"monolingual": ("news.de",), "pairs": BOTH}, "--monolingual news.de: its name must end in a language that"),
        ({"monolingual": ("fr",), "pairs": BOTH}, "--monolingual fr: its name must end in a language"),
        ({"monolingual": ("news.en",)}, "--monolingual news.en: its name must end in a language"),
        ({"monolingual": ("news.fr.gz",)}, "the model does not translate from fr; let it learn that, with --pairs"),
        ({"monolingual": ("news.fr",), "init_from": "run"}, "from fr; name a run that does, with --back-translator"),
        ({"monolingual": ("news.fr", "news.fr"), "pairs": BOTH}, "--monolingual news.fr news.fr: name each file once"),
        ({"back_translator": "run"}, "--back-translator is for --monolingual"),
        ({"monolingual_weight": 0.0}, "--monolingual-weight is 0.0; it must be from 0.001 to 1000.0"),
    ],
)
def test_text_of_no_use_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        replace(Config(), **change)


def test_files_that_cannot_be_used_are_named(few: Path, tiny: Config) -> None:
    config = replace(tiny, data=(str(few),), pairs=BOTH, monolingual=("text.fr",))
    with pytest.raises(DataError, match=re.escape("--monolingual text.fr: no such file")):
        load_corpus(config)
    Path("text.fr").write_text("\n\n", encoding="utf-8")
    says = "--monolingual text.fr en-fr: no sentences left, of 2 lines read (dropped: empty-side 2)"
    with pytest.raises(DataError, match=re.escape(says)):
        load_corpus(config)


@pytest.fixture
def back(called: Command, fewer: Path) -> Path:
    """The folder of a small model from French to English, and of one that learns from its translations."""
    Path("text.fr").write_text("\n".join([*TEXT, "Nobody writes English into such a file."]), encoding="utf-8")
    args = ["train.py", "demo", "--data", str(fewer), *SMALL, "--epochs", "1"]
    done = called(*args, "--source", "fr", "--target", "en", "--name", "back")
    assert done.returncode == 0, done.stderr
    text, run = Path("text.fr").absolute(), Path("weights/back").absolute()
    done = called(*args, "--monolingual", str(text), "--back-translator", str(run), "--name", "forth")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^text      \S+text\.fr: 31 lines read$", done.stderr, re.MULTILINE)
    assert re.search(r"^        1   3\.23%  wrong-language, dropped: in another language$", done.stderr, re.MULTILINE)
    assert "30 sentences to learn from; weight 1" in done.stderr
    assert done.stderr.count("sources   from step 1: 30 sentences of --monolingual, translated back by ") == 1
    assert re.search(r" by \S+ \(fr-en BLEU \d+\.\d\); 33% of what it learns from$", done.stderr, re.MULTILINE)
    return Path.cwd()


@pytest.mark.usefixtures("back")
def test_a_run_may_translate_back(called: Command) -> None:
    """Its text and the run are needed until it has translated; evaluating needs neither."""
    metrics = json.loads(Path("weights/forth/metrics.json").read_text(encoding="utf-8"))
    assert metrics["data"]["trained_on"] == 60 and metrics["data"]["sources"][1]["trained_on"] == 30
    state = RunFolder(Path("weights/forth")).load_state()["translated"]
    assert state["n_rounds"] == 1 and state["after_step"] == 0 and len(state["sources"]["rows"]) == 30

    Path("weights/back").rename("weights/elsewhere")
    longer = called("train.py", "--resume", "--name", "forth", "--epochs", "2")
    assert longer.returncode == 0 and "translated back" not in longer.stderr, longer.stderr
    Path("text.fr").rename("moved.fr")
    assert called("evaluate.py", "--run", "forth", "--device", "cpu").returncode == 0


def test_a_wrong_back_translator_is_refused_before_anything_is_read(back: Path, few: Path, called: Command) -> None:
    args = ["train.py", "demo", "--data", str(few), *SMALL, "--monolingual", str(back / "text.fr")]
    wrong = called(*args, "--back-translator", str(back / "weights" / "forth"))
    assert wrong.returncode == 2 and "must translate" in wrong.stderr and "from fr into en" in wrong.stderr
    assert "its language pairs are en-fr" in wrong.stderr and len(wrong.stderr.splitlines()) <= 2
    missing = called(*args, "--back-translator", "nobody")
    assert missing.returncode == 1 and "nobody" in missing.stderr
    model = back / "weights" / "back" / "model.safetensors"
    kept = model.read_bytes()
    itself = called(*args, "--back-translator", "back", "--name", "back", "--overwrite")
    assert itself.returncode == 2 and "back is the run to begin; choose another --name" in itself.stderr
    assert model.read_bytes() == kept
    model.unlink()
    without_weights = called(*args, "--back-translator", "back", "--name", "forth", "--overwrite")
    assert without_weights.returncode == 1 and "back/model.safetensors is missing" in without_weights.stderr
    assert (back / "weights" / "forth" / "model.safetensors").is_file(), "nothing was overwritten"


@pytest.mark.usefixtures("back")
def test_flags_of_a_run_may_be_repeated_to_resume_it(called: Command) -> None:
    """Though the preset's settings do not allow them."""
    resume = ["train.py", "--resume", "--name", "forth"]
    config = json.loads(Path("weights/forth/config.json").read_text(encoding="utf-8"))
    same = called(*resume, "--monolingual", *config["monolingual"])
    assert same.returncode == 0 and "this run is complete" in same.stderr, same.stderr
    other = called(*resume, "--monolingual", "other.fr")
    assert other.returncode == 2 and "--monolingual cannot change on --resume" in other.stderr


@pytest.mark.usefixtures("back")
def test_the_card_names_text_and_translator_without_paths(called: Command) -> None:
    done = called("export.py", "--run", "forth", "--release", "released", "--license", "mit")
    assert done.returncode == 0, done.stderr
    card = Path("released/README.md").read_text(encoding="utf-8")
    assert "text.fr: 30 sentences without translations. back has translated these for the training." in card
    config = Config.from_json(Path("released/config.json").read_text(encoding="utf-8"))
    assert (config.monolingual, config.back_translator) == (("text.fr",), "back")


def test_text_needs_no_tag_in_the_vocabulary(back: Path, few: Path, called: Command) -> None:
    """A run to start from may learn from text too."""
    forth, text = str(back / "weights" / "forth"), ["--monolingual", str(back / "text.fr")]
    args = ["train.py", "--init-from", forth, "--data", str(few), "--steps", "3", "--name", "on", "--least-bleu", "0"]
    assert called(*args).returncode == 0
    assert json.loads(Path("weights/on/config.json").read_text(encoding="utf-8"))["monolingual"] == []
    done = called(*args, *text, "--back-translator", str(back / "weights" / "back"), "--overwrite")
    assert done.returncode == 0 and "30 sentences of --monolingual" in done.stderr, done.stderr
