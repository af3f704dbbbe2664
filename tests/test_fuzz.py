"""Ten thousand inputs of every kind: as many lines out as in, or an error in words; never a traceback."""

import gzip
import io
import json
import math
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import translate
from checkpoint import RunFolder
from config import Config, TapisError
from decoding.scoring import score
from decoding.search import Search
from decoding.translator import Translator
from system.cli import EvaluateOptions, ExportOptions, TranslateOptions, parse, parse_training
from text.cleaning import Cleaner
from text.readers import read_parts
from text.sentences import take_apart, whole_characters
from text.tokenizer import Tokenizer

pytestmark = pytest.mark.slow

ODD = [
    *("", " ", "\t", "\r", "\u00a0", "\u3000", "\0", "\ud800", "\udcff", "\ufeff", "\u200b", "\u2028", "\x85", "\x0b"),
    *("\x0c", "\x1c", "\x1d", "\x1e", "\u2029", "\r\n"),
    *("\u202eabc", "مرحبا", "👩‍👩‍👧‍👦", "e\u0301", "<pad>", "<eos>", "- ", "1. ", "...", "A. B. C.", "a" * 700),
    "word " * 120,
]
text = st.one_of(st.text(alphabet=st.characters(categories=["C", "L", "M", "N", "P", "S", "Z"])), st.sampled_from(ODD))
line = st.lists(text, max_size=3).map(lambda parts: "".join(parts).replace("\n", " "))
# Each example is a list, so that ten thousand inputs are a few hundred examples; those of Hypothesis vary in size.
many = st.lists(line, min_size=30, max_size=60)
characters = many.map(lambda lines: [whole_characters(line) for line in lines])


def examples(n: int) -> settings:
    """Settings for so many examples, the same every time."""
    return settings(
        max_examples=n,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture
def tiny_translator(run_folder: RunFolder) -> Translator:
    return Translator.load(run_folder.path, "cpu")


@given(lines=many, beam=st.sampled_from([1, 1, 1, 2]))
@examples(10)
def test_any_text_is_translated_line_by_line(tiny_translator: Translator, lines: list[str], beam: int) -> None:
    found = tiny_translator.text(lines, Search(beam, n_best=beam))
    assert [len(line) for line in found] == [beam] * len(lines)
    for line, translations in zip(lines, found, strict=True):
        for translation in translations:
            assert "\n" not in translation.text and "\r" not in translation.text
            translation.text.encode()
            assert translation.text or not line.strip() or any(c.isalpha() for c in line)


def test_a_hundred_thousand_characters(translator: Translator) -> None:
    found = [best.text for (best,) in translator.text(["a" * 100_000, "The cat is old. " * 6000, "The cat is old."])]
    assert len(found) == 3 and len(found[0]) > 10_000
    assert found[1] == " ".join([found[2]] * 6000)


@given(raw=st.one_of(st.binary(max_size=300), many.map(lambda lines: "\n".join(lines).encode("utf-8", "replace"))))
@examples(25)
def test_standard_input_of_any_bytes(tiny_translator: Translator, raw: bytes) -> None:
    class Standard(io.StringIO):
        buffer = io.BytesIO(raw)

    before, sys.stdin, sys.stdout = (sys.stdin, sys.stdout), Standard(), io.StringIO()
    try:
        translate.main(["--run", str(RunFolder.find("tiny").path), "--device", "cpu"])
        out = sys.stdout.getvalue()
        assert out.count("\n") == raw.count(b"\n") + bool(raw and not raw.endswith(b"\n"))
    except TapisError as error:
        with pytest.raises(UnicodeDecodeError):
            raw.decode()
        assert "not UTF-8" in str(error)
    finally:
        sys.stdin, sys.stdout = before


@given(characters)
@examples(60)
def test_any_text_is_encoded_and_comes_back(tokenizer: Tokenizer, lines: list[str]) -> None:
    assert tokenizer.decode(tokenizer.encode(lines)) == lines


@given(characters)
@examples(60)
def test_taking_apart_loses_nothing_but_blanks(lines: list[str]) -> None:
    for line in lines:
        found = take_apart(line, "en", lambda piece: len(piece) <= 50)
        assert "".join(line.split()) == "".join((found.marker + "".join(found.units)).split())
        assert all(len(unit) <= 50 for unit in found.units)


@given(characters, st.sampled_from(["fr", "zh", "ja", "ko"]))
@examples(40)
def test_any_texts_are_scored(lines: list[str], language: str) -> None:
    found = score(lines, lines[::-1], language)
    assert all(0 <= value <= 100.001 and math.isfinite(value) for value in (found.bleu, found.chrf))


ENDINGS = ["a.tsv", "a.csv", "a.jsonl", "a.parquet", "a.tsv.gz", "train.en", "train.fr.gz", "dataset_infos.json"]


@given(
    st.one_of(st.binary(max_size=200), many.map(lambda lines: "\t".join(lines).encode("utf-8", "surrogatepass"))),
    st.sampled_from(ENDINGS),
    st.booleans(),
)
@examples(400)
def test_any_file_is_read_or_refused(tmp_path: Path, raw: bytes, name: str, packed: bool) -> None:
    for old in tmp_path.iterdir():
        old.unlink()
    path = tmp_path / name
    path.write_bytes(gzip.compress(raw) if packed and name.endswith(".gz") else raw)
    cleaner = Cleaner("en", "fr", ())
    try:
        for part in read_parts(str(tmp_path if name[0] != "a" else path), "en", "fr").values():
            for pair in part.pairs:
                assert all(isinstance(side, str) for side in pair)
                cleaner.judge(pair)
    except TapisError as error:
        assert len(str(error).splitlines()) <= 2


value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([field.name for field in fields(Config)]), value, max_size=3), st.text())
@examples(1500)
def test_any_config_is_read_or_refused(changes: dict[str, object], other: str) -> None:
    good = json.loads(Config().to_json())
    for written in (json.dumps({**good, **changes}), other, Config().to_json()[: len(other) * 20] + other):
        try:
            config = Config.from_json(written)
            assert Config.from_json(config.to_json()) == config
        except TapisError as error:
            assert len(str(error).splitlines()) <= 2 and len(str(error)) < 1000


flags = st.sampled_from(
    [
        "--run",
        "--beam",
        "--n-best",
        "--epochs",
        "--lr",
        "--data",
        "--resume",
        "-h5",
        "--",
        "--name",
        "--to",
        "--release",
    ]
)


@given(st.lists(flags | st.text(max_size=6) | st.integers().map(str) | st.floats().map(str), max_size=5))
@examples(300)
def test_any_command_line_is_read_or_refused(args: list[str]) -> None:
    kinds: list[type] = [TranslateOptions, EvaluateOptions, ExportOptions]
    commands: list[Callable[[list[str]], object]] = [parse_training, *(partial(parse, kind) for kind in kinds)]
    for read in commands:
        try:
            read(args)
        except TapisError as error:
            assert error.exit_code == 2 and len(str(error).splitlines()) <= 2
        except SystemExit as exit:
            assert exit.code == 0
