"""Tests of `train.py --init-from RUN`: what a run takes from another run, reports of it, and refuses."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Command

from checkpoint import RunFolder, load_parameters, parameters
from config import PRESETS, Config
from pairs.corpus import Corpus
from tapis.config import Learned
from tapis.release import WEIGHTS, CheckpointError
from tapis.text.tokenizer import Tokenizer
from training.ancestry import Ancestor, settings_from
from training.metrics import SideReport, load_metrics
from training.options import resolve
from training.trainer import Training


@pytest.fixture
def ancestor(trained: "subprocess.CompletedProcess[str]") -> str:
    """The trained demo, in this test's own weights/."""
    shutil.copytree(Path(trained.args[0], "weights", "demo"), "weights/demo")
    return "demo"


def bleu_lines(text: str) -> list[str]:
    """The BLEU of each validation that was printed."""
    return re.findall(r"^epoch .* BLEU ([\d.]+)", text, re.MULTILINE)


def test_a_run_begins_with_the_weights_of_another(ancestor: str, few: Path, called: Command) -> None:
    files = ["--source", str(few / "valid.en"), "--reference", str(few / "valid.fr")]
    scored = called("evaluate.py", "--run", ancestor, *files)
    done = called("train.py", "--init-from", ancestor, "--data", str(few), "--epochs", "1", "--lr", "1e-12")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "start     from the weights and the tokenizer of demo" in done.stderr
    assert re.search(r"^          en: [\d.]+ tokens a word, [\d.]+ in its data, 0\.\d\d% of the tok", done.stderr, re.M)
    before, after = bleu_lines(done.stderr)
    assert before == after == scored.stdout.split()[1], "with such a rate, nothing is learned"

    # What the run holds
    run, old = RunFolder(Path("weights/demo-tuned")), RunFolder(Path("weights/demo"))
    assert run.tokenizer_file.read_bytes() == old.tokenizer_file.read_bytes()
    config, before_config = run.load_config(), old.load_config()
    assert (config.init_from, config.data, config.d_model) == (ancestor, (str(few),), before_config.d_model)
    metrics, old_metrics = load_metrics(run), load_metrics(old)
    assert metrics.init_from and metrics.init_from.name == "demo" and metrics.init_from.best and old_metrics.best
    assert metrics.init_from.best.bleu == old_metrics.best.bleu
    assert set(str(metrics.rare_tokens).split()) <= set(str(old_metrics.rare_tokens).split())
    assert run.load_learned().known_words >= old.load_learned().known_words > {"chat"}
    assert 'the limit of the doubt "unsure" is rough: learned from 12 validation sentences' in done.stderr
    state = run.load_state()
    assert state["best"]["step"] in (0, state["step"]) and state["step"] > 0


def test_a_run_that_began_with_another_goes_on_without_it(ancestor: str, few: Path, called: Command) -> None:
    args = ["train.py", "--init-from", ancestor, "--data", str(few), "--epochs", "1", "--name", "next"]
    assert called(*args).returncode == 0
    shutil.rmtree("weights/demo")
    before = load_metrics(RunFolder(Path("weights/next")))
    assert called("train.py", "--resume", "--name", "next", "--epochs", "2").returncode == 0
    metrics = load_metrics(RunFolder(Path("weights/next")))
    assert metrics.init_from and metrics.init_from.name == "demo" and metrics.resumed
    assert metrics.sides["en"].rare_there is not None and metrics.sides == before.sides
    assert metrics.rare_tokens == before.rare_tokens

    # Its release, and the release of a run that began with it, name the ancestors and no path.
    assert called("export.py", "--run", "next", "--release", "given").returncode == 0
    card = Path("given/README.md").read_text(encoding="utf-8")
    assert "started from the weights of demo, trained on demo" in card
    again = ["train.py", "--init-from", str(Path("given.tar.gz").resolve()), "--data", str(few), "--epochs", "1"]
    assert called(*again, "--name", "last").returncode == 0
    assert called("export.py", "--run", "last", "--release", "last-given").returncode == 0
    card = Path("last-given/README.md").read_text(encoding="utf-8")
    assert f"started from the weights of next, trained on {few.name}" in card
    assert "that of demo, trained on demo" in card
    for file in Path("last-given").iterdir():
        assert str(Path.cwd()).encode() not in file.read_bytes()


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--d-model", "64"], 2, "--d-model cannot be given with --init-from: the model is that of demo"),
        (["--vocab-size", "500", "--norm", "post"], 2, "--norm, --vocab-size cannot be given"),
        (["--target", "de"], 2, "--init-from demo translates from en into fr, not from en into de"),
        (["--name", "demo"], 2, "choose another name"),
        (["--resume", "--name", "demo"], 2, "--init-from cannot change on --resume"),
        (["--init-from", "nothing"], 1, "no run 'nothing'"),
    ],
)
def test_what_does_not_fit_the_other_run_is_refused(
    args: list[str], code: int, says: str, ancestor: str, few: Path, called: Command
) -> None:
    done = called("train.py", "--init-from", ancestor, "--data", str(few), *args)
    assert (done.returncode, done.stdout) == (code, "") and says in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert [path.name for path in Path("weights").iterdir()] == ["demo"] and not Path("runs").exists()


def test_a_preset_has_a_model_of_its_own(ancestor: str, called: Command) -> None:
    done = called("train.py", "multi30k", "--init-from", ancestor)
    assert done.returncode == 2 and "takes no preset" in done.stderr and len(done.stderr.splitlines()) == 1


def test_old_data_in_the_mixture_halves_the_rate(ancestor: str) -> None:
    start = ["--init-from", ancestor, "--data", "new"]
    rate = PRESETS["demo"].lr
    assert resolve(start).config.lr == rate
    assert resolve([*start, "demo"]).config.lr == rate / 2
    assert resolve([*start, "demo", "--lr", "0.5"]).config.lr == 0.5


def test_flags_are_read_beside_the_settings_of_the_run(ancestor: str) -> None:
    """And not beside those of a preset, to which they may not fit."""
    config_file = Path("weights", ancestor, "config.json")
    config = Config.from_json(config_file.read_text(encoding="utf-8"))
    both = replace(config, pairs=("en-fr", "fr-en"), data=("a", "b"), max_length=60)
    config_file.write_text(both.to_json(), encoding="utf-8")
    RunFolder(config_file.parent).sign(both)
    line = f"--init-from={ancestor} --monolingual text.fr --data-weights 1 2 --batch-tokens 64".split()
    changed = resolve(line).config
    assert (changed.data_weights, changed.monolingual, changed.batch_tokens) == ((1.0, 2.0), ("text.fr",), 64)


def test_a_script_that_the_tokenizer_lacks_is_named(ancestor: str, called: Command) -> None:
    Path("data.tsv").write_text("".join(f"the {i} dogs\tοι {i} σκύλοι\n" for i in range(400)), encoding="utf-8")
    done = called(
        "train.py", "--init-from", ancestor, "--data", "data.tsv", "--dry-run", "--skip-rules", "wrong-language"
    )
    assert done.returncode == 0, done.stderr
    (warning,) = re.findall(r"^warning .*", done.stderr, re.MULTILINE)
    assert re.search(r"[5-9]\d% of the characters of fr are spelled in bytes", warning)
    assert len(bleu_lines(done.stderr)) == 1, "what the run scores on the new validation part"


def test_the_defaults_are_the_settings_of_the_run(run_folder: RunFolder, tiny: Config) -> None:
    trained_for = {"steps": 700, "valid_every": 50, "device": "cpu", "plain": True}
    as_student = {"teacher": ("x-teacher",), "least_bleu": 0.0}
    run_folder.save_config(replace(tiny, dropout=0.25, **trained_for, **as_student))  # type: ignore[arg-type]
    config = settings_from(run_folder, "x")
    assert (config.dropout, config.batch_tokens, config.optimizer) == (0.25, tiny.batch_tokens, tiny.optimizer)
    assert (config.steps, config.valid_every, config.plain) == (0, 0, False)
    assert (config.teacher, config.least_bleu) == ((), 30), "without a teacher, it may learn from itself"
    assert (config.lr, config.epochs) == (tiny.lr, 20)


def test_an_ancestor_without_metrics_is_as_good(run_folder: RunFolder, tiny: Config, small: Corpus) -> None:
    for metrics in (
        {},
        {"sides": [], "rare tokens": 3},
        {"sides": {"en": {}}, "rare tokens": "1 2 x"},
        {"rare tokens": f"1 {10**30}"},
        None,
        [1],
    ):
        run_folder.metrics_file.write_text(json.dumps(metrics), encoding="utf-8")
        ancestor = Ancestor.load(str(run_folder.path))
        side = SideReport(9, 1.5, 0.0, {})
        assert ancestor.compare_side(side, "en", np.ones(len(ancestor.tokenizer), dtype=np.int64)) == side
        assert ancestor.with_words(Learned(1.0, target_words="chat")) == Learned(1.0), "its own words are not known"
    training = Training(replace(tiny, init_from="x"), small, ancestor.tokenizer)
    load_parameters(training.model, ancestor.weights, "x")
    for name, weight in parameters(training.model).items():
        assert torch.equal(weight, ancestor.weights[name])


def test_characters_in_bytes_are_counted(tokenizer: Tokenizer) -> None:
    texts = ["the cat", "le café", "σκύλος 猫", "a\u0301 👩‍👩‍👧"]
    for text in texts:
        counts = np.bincount(tokenizer.encode([text])[0], minlength=len(tokenizer))
        n_begun, n_whole = counts @ tokenizer.characters
        assert n_begun == len(text) + 1, "with the space before it"
        pieces = tokenizer.pieces(tokenizer.encode([text])[0])
        assert n_whole == sum(len(piece) for piece in pieces if not piece.startswith("⟨"))


def test_a_run_is_resumed_under_its_own_name_alone(tiny: Config, tokenizer: Tokenizer) -> None:
    """The file of one folder must not choose another folder, whose data this machine may read."""
    for name, other in (("mine", "given"), ("", "given"), ("../mine", "given")):
        folder = RunFolder(WEIGHTS / other)
        folder.start(tiny, tokenizer)
        values = json.loads(tiny.to_json()) | {"name": name}
        folder.config_file.write_text(json.dumps(values), encoding="utf-8")
        with pytest.raises(CheckpointError, match=r"is of a run with another name|cannot be part of a file name"):
            resolve(["--resume", "--name", other])


def test_an_older_format_names_one_source() -> None:
    values = json.loads(PRESETS["demo"].to_json())
    older = {name: value for name, value in values.items() if name not in ("data_weights", "init_from", "pairs")}
    then = {**older, "format": 1, "data": "demo", "source": "en", "target": "fr"}
    assert Config.from_json(json.dumps(then)) == PRESETS["demo"]
