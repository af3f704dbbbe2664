"""The promise of the format: what earlier versions wrote is read by this one.

tests/formats/ has a release and its translations for each format ever written (`make_release.py` there makes them).
"""

import json
import shutil
import tarfile
from pathlib import Path

import pytest
from conftest import ROOT, Command

from config import FACTS, PRESETS, Config
from decoding.translator import Translator
from tapis.config import FORMAT, ConfigError

FOLDER = ROOT / "tests" / "formats"
SENTENCES = ["The cat is sitting on the mat.", "A small dog eats.", "She sees the red house."]

every_format = pytest.mark.parametrize("number", range(FORMAT + 1))


@every_format
def test_every_format_has_a_release(number: int) -> None:
    with tarfile.open(FOLDER / f"format-{number}.tar.gz") as archive:
        (member,) = [member for member in archive.getmembers() if member.name.endswith("config.json")]
        file = archive.extractfile(member)
        assert file
        values = json.load(file)
    assert values.get("format", 0) == number


@every_format
def test_a_release_of_every_format_translates_as_it_did(number: int) -> None:
    """By the model alone: translate.py also repairs what repeats itself, as these tiny models do."""
    translate = Translator.load(FOLDER / f"format-{number}.tar.gz", "cpu", "fp32")
    assert translate(SENTENCES) == (FOLDER / f"format-{number}.txt").read_text(encoding="utf-8").splitlines()


@every_format
def test_a_release_of_every_format_is_evaluated_and_exported(number: int, called: Command) -> None:
    release = str(FOLDER / f"format-{number}.tar.gz")
    for name, language in (("source", "en"), ("reference", "fr")):
        shutil.copy(ROOT / "demo" / f"valid.{language}", name)
    done = called("evaluate.py", "--run", release, "--source", "source", "--reference", "reference")
    assert done.returncode == 0 and done.stdout.startswith("BLEU "), done.stderr
    for export in (["--to", "huggingface", "exported"], ["--release", "again"]):
        done = called("export.py", "--run", release, *export)
        assert done.returncode == 0, done.stderr
    assert json.loads(Path("again/config.json").read_text(encoding="utf-8"))["format"] == FORMAT


@pytest.mark.parametrize("number", [0, FORMAT])
def test_a_run_starts_from_a_release_of_the_first_format_and_the_last(number: int, few: Path, called: Command) -> None:
    release = str(FOLDER / f"format-{number}.tar.gz")
    done = called("train.py", "--init-from", release, "--data", str(few), "--epochs", "1", "--device", "cpu")
    assert done.returncode == 0 and "start     from the weights and the tokenizer of tiny" in done.stderr, done.stderr


def test_a_newer_format_is_refused(called: Command, tmp_path: Path) -> None:
    with tarfile.open(FOLDER / f"format-{FORMAT}.tar.gz") as archive:
        archive.extractall(tmp_path / "run", filter="data")
    (config,) = (tmp_path / "run").rglob("config.json")
    (config.parent / "SHA256SUMS").unlink()
    values = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps({**values, "format": FORMAT + 1, "of_the_future": 1}), encoding="utf-8")
    done = called("translate.py", "--run", str(config.parent), "The cat.")
    assert done.returncode == 1 and done.stderr.endswith("update Tapis\n") and f"format {FORMAT + 1}" in done.stderr


@pytest.mark.parametrize("number", ["1", 1.0, True, -1, None])
def test_a_format_is_a_number(number: object) -> None:
    values = json.loads(PRESETS["demo"].to_json())
    with pytest.raises(ConfigError, match=r"format is .*; a number expected"):
        Config.from_json(json.dumps({**values, "format": number}))


def test_fields_that_a_format_added_have_the_values_of_then() -> None:
    values = json.loads(PRESETS["demo"].to_json())
    older_languages = {"source": "en", "target": "fr", "languages": [], "pairs": []}  # before format 5
    for since in sorted({facts.since for facts in FACTS.values()} - {0, 5}):  # the fifth took fields away
        added = {name: facts.before for name, facts in FACTS.items() if facts.since == since}
        assert added
        older = {name: value for name, value in values.items() if name not in added}
        older |= {**(older_languages if since < 5 else {}), "format": since - 1}
        config = Config.from_json(json.dumps(older))
        assert {name: getattr(config, name) for name in added} == added
        with pytest.raises(ConfigError, match="fields missing"):
            Config.from_json(json.dumps({**older, "format": since}))
