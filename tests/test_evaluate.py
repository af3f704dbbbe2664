"""The command evaluate.py: the scores of training again, two runs compared, and errors."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT, Command, saved_untrained
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from checkpoint import RunFolder
from config import Config
from decoding.translator import Translator
from tapis.release import RunFiles
from tapis.search import Search
from tapis.system.files import write_text
from tapis.text.tokenizer import Tokenizer


def test_evaluating_repeats_the_score_of_training(
    trained: "subprocess.CompletedProcess[str]", command: Command, called: Command
) -> None:
    run = str(Path(trained.args[0]) / "weights/demo")
    scored = command("evaluate.py", "--run", run, "--device", "cpu", "--output", "out.fr")
    assert scored.returncode == 0, scored.stderr
    metrics = json.loads(Path(run, "metrics.json").read_text(encoding="utf-8"))["test"]
    expected = "BLEU {bleu:.1f}  chrF {chrf:.1f}  brevity {brevity:.3f}  {signature}\n"
    assert scored.stdout == expected.format(**metrics)
    files = ["--source", str(ROOT / "demo/test.en"), "--reference", str(ROOT / "demo/test.fr")]
    assert called("evaluate.py", "--run", run, *files).stdout == scored.stdout
    best = json.loads(Path(run, "metrics.json").read_text(encoding="utf-8"))["best"]
    of_valid = called("evaluate.py", "--run", run, "--device", "cpu", "--split", "valid").stdout
    assert of_valid.startswith("BLEU {bleu:.1f}  chrF {chrf:.1f}  ".format(**best))
    against_itself = called("evaluate.py", "--run", run, *files[:3], "out.fr")
    assert against_itself.stdout.startswith("BLEU 100.0  chrF 100.0")
    both = called("evaluate.py", "--run", run, *files, "--against", run, "--beam", "3")
    assert both.returncode == 0, both.stderr
    one, other, chances = both.stdout.splitlines()
    assert one == other and chances == "BLEU p = 1.000  chrF2 p = 1.000"


def test_the_search_is_that_of_the_flags(run_folder: RunFolder, few: Path, called: Command) -> None:
    """By an untrained model, whose searches differ."""
    sources = (few / "test.en").read_text(encoding="utf-8").splitlines()
    files = ["--source", str(few / "test.en"), "--reference", str(few / "test.fr"), "--output", "out"]
    common = ["--run", "tiny", "--device", "cpu", "--precision", "fp32"]
    translate = Translator.load(run_folder.path, "cpu", "fp32")
    results = []
    for flags, search in (([], Search()), (["--beam", "4"], Search(4))):
        done = called("evaluate.py", *common, *files, *flags)
        assert done.returncode == 0, done.stderr
        results.append(Path("out").read_text(encoding="utf-8").split("\n")[:-1])
        assert results[-1] == translate(sources, search)
    assert results[0] != results[1]


def test_a_source_that_is_no_sentence_is_refused_at_once(run_folder: RunFolder, called: Command) -> None:
    """Translating 20,000 words in one go would take minutes."""
    Path("a.en").write_text("A cat.\n" + "word " * 20_000 + "\n", encoding="utf-8")
    Path("a.fr").write_text("Un chat.\nb\n", encoding="utf-8")
    done = called("evaluate.py", "--run", str(run_folder.path), "--source", "a.en", "--reference", "a.fr")
    assert done.returncode == 1 and "a.en line 2: a sentence of " in done.stderr
    assert "is there one sentence per line?" in done.stderr and len(done.stderr.splitlines()) <= 2


def test_a_reference_that_is_no_sentence_is_refused_where_it_is_scored(run_folder: RunFolder, called: Command) -> None:
    Path("a.en").write_text("A cat.\nb\n", encoding="utf-8")
    Path("a.fr").write_text("Un chat.\n" + "mot " * 20_000 + "\n", encoding="utf-8")
    args = ["evaluate.py", "--run", str(run_folder.path), "--source", "a.en", "--reference", "a.fr"]
    done = called(*args, "--scores", "s.tsv")
    assert done.returncode == 1 and "a.fr line 2: a sentence of " in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not Path("s.tsv").exists()
    assert called(*args).returncode == 0


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (["--output", "./a.en"], "--output a.en is the file of --source, which is not overwritten"),
        (["--scores", "link.fr"], "--scores link.fr is the file of --reference, which is not overwritten"),
        (["--output", "out", "--scores", "out"], "--scores out is the file of --output, which is not overwritten"),
    ],
)
def test_no_file_that_is_read_is_overwritten(called: Command, written: list[str], says: str) -> None:
    """Nor one that was just written. It is refused before a run is loaded: here is none."""
    Path("a.en").write_text("A cat.\n", encoding="utf-8")
    Path("a.fr").write_text("Un chat.\n", encoding="utf-8")
    Path("link.fr").symlink_to("a.fr")
    done = called("evaluate.py", "--run", "none", "--source", "a.en", "--reference", "a.fr", *written)
    assert done.returncode == 2 and says in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("data", "written"),
    [
        ("from", ["--output", "from/test.fr"]),
        ("from", ["--scores", "from/link.fr"]),
        ("other/../from", ["--output", "from/en-fr/a.parquet"]),
        ("from/test", ["--output", "./from/test.fr"]),
        ("table.tsv", ["--output", "new", "--scores", "table.tsv"]),
        ("demo", ["--output", str(ROOT / "demo/test.fr")]),
    ],
)
def test_the_data_of_a_run_are_not_overwritten(
    data: str, written: list[str], tiny: Config, tokenizer: Tokenizer, called: Command
) -> None:
    """They are refused before anything is loaded: here are no weights."""
    for name in ("from/test.en", "from/test.fr", "from/en-fr/a.parquet", "elsewhere", "table.tsv"):
        write_text(Path(name), "text\n")
    Path("from/link.fr").symlink_to(Path("elsewhere").resolve())
    Path("other").mkdir()
    RunFolder(Path("weights/tiny")).start(tiny, tokenizer)
    done = called("evaluate.py", "--run", "tiny", "--data", data, *written)
    expected = f"evaluate.py: {written[-2]} {Path(written[-1])} exists, and may be a file of --data {data}, "
    assert done.returncode == 2 and done.stderr.startswith(expected) and done.stderr.count("\n") == 1, done.stderr

    # A new file may be beside them.
    done = called("evaluate.py", "--run", "tiny", "--data", data, "--output", "from/new")
    assert done.returncode == 1 and "model.safetensors is missing" in done.stderr, done.stderr


def test_runs_are_named_by_their_folders(run_folder: RunFolder, called: Command) -> None:
    """Or as the command line does. The config of a copied folder still has the name of the run that was copied."""
    shutil.copytree(run_folder.path, "weights/backup")
    os.utime("weights/backup/model.safetensors", (2e9, 2e9))  # the most recent
    Path("a.en").write_text("A cat.\n", encoding="utf-8")
    Path("a.fr").write_text("Un chat.\n", encoding="utf-8")
    command = ["evaluate.py", "--device", "cpu", "--source", "a.en", "--reference", "a.fr", "--against", "weights/tiny"]
    printed = called(*command).stderr
    assert printed.startswith("run backup, a.en: ") and "against weights/tiny\n" in printed
    assert called("translate.py", "--device", "cpu", "A cat.").stderr == "run backup\n"


def test_a_run_that_may_have_learned_from_the_pairs_is_named(
    tiny: Config, tokenizer: Tokenizer, few: Path, called: Command
) -> None:
    config = replace(tiny, data=(str(few),), name="one")
    saved_untrained(config, tokenizer).sign(config)
    for name, changed in (
        ("same", {}),
        ("as a release", {"data": (few.name,)}),
        ("shares", {"valid_share": 0.1}),
        ("data", {"data": ("a", "b")}),
    ):
        other = Path("weights", name)
        shutil.copytree("weights/one", other)
        RunFolder(other).save_config(replace(config, **changed))
        done = called("evaluate.py", "--run", "one", "--device", "cpu", "--against", str(other))
        assert done.returncode == 0 and "BLEU p = " in done.stdout, done.stderr
        assert ("may have learned from these pairs" in done.stderr) == (name in ("shares", "data"))


def test_one_run_is_used_from_start_to_end(
    tiny: Config, tokenizer: Tokenizer, few: Path, called: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if another one becomes the most recent meanwhile."""
    config = replace(tiny, data=(str(few),), name="one")
    saved_untrained(config, tokenizer).sign(config)
    shutil.copytree("weights/one", "weights/other")
    RunFolder(Path("weights/other")).save_config(replace(config, data=("nothing",)))
    os.utime("weights/other/model.safetensors", (1e9, 1e9))
    trained = RunFiles.trained.__func__  # type: ignore[attr-defined]

    def trained_until_now(kind: type[RunFiles[Config]]) -> list[RunFiles[Config]]:
        runs: list[RunFiles[Config]] = trained(kind)
        os.utime("weights/other/model.safetensors", (2e9, 2e9))
        return runs

    monkeypatch.setattr(RunFiles, "trained", classmethod(trained_until_now))
    done = called("evaluate.py", "--device", "cpu")
    assert done.returncode == 0 and done.stderr.startswith(f"run one, test part of {few}: "), done.stderr
    assert RunFolder.find("").path.name == "other"


@pytest.mark.parametrize("flag", ["--output", "--scores"])
def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    run_folder: RunFolder, called: Command, flag: str
) -> None:
    for name, text in (("a.en", "A cat.\n"), ("a.fr", "Un chat.\n"), ("file", "")):
        Path(name).write_text(text, encoding="utf-8")
    args = ["--run", "tiny", "--device", "cpu", "--source", "a.en", "--reference", "a.fr", flag, "file/out"]
    done = called("evaluate.py", *args)
    assert done.returncode == 1 and f"{Path('file/out')} cannot be written" in done.stderr
    assert done.stdout == "" and "translated in" not in done.stderr


def test_other_data_needs_neither_the_weights_nor_the_columns_of_the_old(
    tiny: Config, tokenizer: Tokenizer, few: Path, called: Command
) -> None:
    config = replace(tiny, data=("a.tsv", "b.tsv"), data_weights=(1.0, 2.0), columns=("2", "3"), name="one")
    saved_untrained(config, tokenizer)
    done = called("evaluate.py", "--run", "one", "--device", "cpu", "--data", str(few))
    assert done.returncode == 0 and done.stdout.startswith("BLEU "), done.stderr
    table = "".join(f"{i}\tA cat is number {i}.\tUn chat est le {i}.\n" for i in range(300))
    Path("other.tsv").write_text(table, encoding="utf-8")
    done = called("evaluate.py", "--run", "one", "--device", "cpu", "--data", "other.tsv")
    assert done.returncode == 0 and done.stdout.startswith("BLEU "), done.stderr


def test_files_of_different_lengths_are_no_pairs(run_folder: RunFolder, called: Command) -> None:
    Path("two").write_text("a\nb\n", encoding="utf-8")
    Path("one").write_text("a\n", encoding="utf-8")
    done = called("evaluate.py", "--run", "tiny", "--source", "two", "--reference", "one")
    assert (done.returncode, done.stdout) == (1, "") and "they must be pairs" in done.stderr


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--source", "x"], 2, "--source and --reference go together"),
        (["--source", "x", "--reference", "y", "--split", "valid"], 2, "--split and --data are for the run's own data"),
        (["--source", "x", "--reference", "y"], 1, "x cannot be read"),
        (["--split", "train"], 2, "--split"),
        (["--against", "nothing"], 1, "no run 'nothing'"),
        (["demo"], 2, "Unrecognized options: demo\n--help lists the flags"),
    ],
)
def test_errors_are_at_most_two_lines(
    trained: "subprocess.CompletedProcess[str]", called: Command, args: list[str], code: int, says: str
) -> None:
    done = called("evaluate.py", "--run", str(Path(trained.args[0]) / "weights/demo"), *args)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr and len(done.stderr.splitlines()) <= 2


def test_scores_have_a_line_for_each_pair(trained: "subprocess.CompletedProcess[str]", called: Command) -> None:
    """A right reference is more probable than one of another sentence, also where a line is empty."""
    run = str(Path(trained.args[0]) / "weights/demo")
    sources = (ROOT / "demo/test.en").read_text(encoding="utf-8").splitlines()[:40]
    references = (ROOT / "demo/test.fr").read_text(encoding="utf-8").splitlines()[:40]
    shifted = [*references[1:39], "", references[0]]
    tables = []
    for name, texts in (("right", references), ("wrong", shifted)):
        Path("source").write_text("\n".join(sources) + "\n", encoding="utf-8")
        Path(name).write_text("\n".join(texts) + "\n", encoding="utf-8")
        args = ["--source", "source", "--reference", name, "--scores", f"{name}.tsv", "--output", "hypotheses"]
        done = called("evaluate.py", "--run", run, "--device", "cpu", *args)
        assert done.returncode == 0, done.stderr
        tables.append([line.split("\t") for line in Path(f"{name}.tsv").read_text(encoding="utf-8").splitlines()])
    right, wrong = tables
    assert len(right) == len(wrong) == 40 and {len(row) for row in right + wrong} == {4}
    assert [row[3] for row in right] == Path("hypotheses").read_text(encoding="utf-8").splitlines()
    mean = [[float(log_p) / int(tokens) for log_p, tokens, *_ in table] for table in tables]
    assert sum(a > b for a, b in zip(*mean, strict=True)) >= 38
    assert all(0 <= float(row[2]) <= 100 for row in right) and int(wrong[38][1]) <= 2


def test_several_sources_of_data_are_scored_together_and_one_by_one(few: Path, called: Command, tmp_path: Path) -> None:
    """In a run, its metrics and its charts, and by evaluate.py."""
    shutil.copytree(few, tmp_path / "one")
    for file in (tmp_path / "one").glob("t*"):
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        other = tmp_path / "other" / file.name
        other.parent.mkdir(exist_ok=True)
        file.write_text("".join(lines[::2]), encoding="utf-8")
        other.write_text("".join(lines[1::2]), encoding="utf-8")
    sizes = ["--d-model", "16", "--n-heads", "2", "--d-ff", "32", "--vocab-size", "300", "--epochs", "1"]
    data = ["--data", "one", "other", "--data-weights", "0.5", "3", "--valid-share", "0.1", "--precision", "fp32"]
    trained = called("train.py", "demo", *data, *sizes)
    assert trained.returncode == 0, trained.stderr
    assert "to learn from; weight 0.5\n" in trained.stderr and "to learn from; weight 3\n" in trained.stderr
    (together,) = re.findall(r"together: ([\d,]+) pairs .* ([\d,]+) pairs in an epoch", trained.stderr)
    metrics = json.loads(Path("weights/demo/metrics.json").read_text(encoding="utf-8"))
    sources = metrics["data"]["sources"]
    assert [source["name"] for source in sources] == ["one", "other"]
    assert sum(source["trained_on"] for source in sources) == metrics["data"]["trained_on"] == int(together[0])
    in_epoch = sum(round(source["trained_on"] * source["weight"]) for source in sources)
    assert in_epoch == int(together[1].replace(",", "")) == metrics["data"]["pairs_in_an_epoch"]
    for part in ("best", "last", "test"):
        assert list(metrics[part]["by_data"]) == ["one", "other"]

    events = EventAccumulator("runs/demo")
    events.Reload()
    for name in ("one", "other"):
        assert {f"{part}/bleu/{name}" for part in ("valid", "test")} <= set(events.Tags()["scalars"])

    scored = called("evaluate.py", "--run", "demo", "--device", "cpu")
    assert scored.returncode == 0, scored.stderr
    by_data = [f"{name}: BLEU {s['bleu']:.1f}  chrF {s['chrf']:.1f}" for name, s in metrics["test"]["by_data"].items()]
    assert scored.stdout.splitlines()[1:] == by_data
