"""Property tests on arbitrary input: every command and reader succeeds or raises a TapisError of one or two lines."""

import gzip
import io
import json
import lzma
import math
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import readable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import translate
from checkpoint import RunFolder
from config import Config
from decoding.translator import Translator
from pairs.cleaning import Cleaner
from pairs.readers import read_parts
from tapis.config import TapisError
from tapis.scoring import score
from tapis.search import Search
from tapis.system.cli import TranslateOptions, parse
from tapis.text.languages import repair
from tapis.text.sentences import replace_lone_surrogates, split_line
from tapis.text.tokenizer import Tokenizer
from tapis.typed_text import translate_lines
from training.cli import ExportOptions, OwnEvaluateOptions, parse_training

pytestmark = pytest.mark.slow

DIFFICULT_TEXTS = [
    *("", " ", "\t", "\r", "\u00a0", "\u3000", "\0", "\ud800", "\udcff", "\ufeff", "\u200b", "\u2028", "\x85", "\x0b"),
    *("\x0c", "\x1c", "\x1d", "\x1e", "\u2029", "\r\n"),
    *("\u202eabc", "مرحبا", "👩‍👩‍👧‍👦", "e\u0301", "<pad>", "<eos>", "- ", "1. ", "...", "A. B. C.", "a" * 700),
    "word " * 120,
]
text = st.one_of(
    st.text(alphabet=st.characters(categories=["C", "L", "M", "N", "P", "S", "Z"])), st.sampled_from(DIFFICULT_TEXTS)
)
line = st.lists(text, max_size=3).map(lambda parts: "".join(parts).replace("\n", " "))
# Each example is a list of lines, so that a few hundred examples test ten thousand lines.
line_lists = st.lists(line, min_size=30, max_size=60)
valid_line_lists = line_lists.map(lambda lines: [replace_lone_surrogates(line) for line in lines])


def examples(n: int) -> settings:
    """Settings for n examples, the same in every run. A failing example is shrunk."""
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


@given(lines=line_lists, beam=st.sampled_from([1, 1, 1, 2]))
@examples(10)
def test_any_text_is_translated_line_by_line(tiny_translator: Translator, lines: list[str], beam: int) -> None:
    n_best_lists = translate_lines(tiny_translator, lines, Search(beam, n_best=beam))
    assert len(n_best_lists) == len(lines)
    for line, translations in zip(lines, n_best_lists, strict=True):
        assert 1 <= len(translations) == len({one.text for one in translations}) <= beam
        has_text = bool(repair(replace_lone_surrogates(line.strip())))
        for translation in translations:
            assert "\n" not in translation.text and "\r" not in translation.text
            translation.text.encode()
            assert translation.text or not has_text or any(c.isalpha() for c in line)


def test_very_long_lines_are_translated_whole(translator: Translator) -> None:
    lines = ["a" * 30_000, "The cat is old. " * 1500, "The cat is old."]
    translations = [best.text for (best,) in translate_lines(translator, lines)]
    assert len(translations) == 3 and len(translations[0]) > 3_000
    assert translations[1] == " ".join([translations[2]] * 1500)


@given(
    raw=st.one_of(st.binary(max_size=300), line_lists.map(lambda lines: "\n".join(lines).encode("utf-8", "replace")))
)
@examples(25)
def test_any_standard_input_is_translated_line_by_line_or_rejected(tiny_translator: Translator, raw: bytes) -> None:
    class StandardInput(io.StringIO):
        buffer = io.BytesIO(raw)

    original_stdin = sys.stdin
    original_stdout = sys.stdout
    sys.stdin = StandardInput()
    sys.stdout = io.StringIO()
    try:
        translate.main(["--run", str(RunFolder.find("tiny").path), "--device", "cpu"])
        out = sys.stdout.getvalue()
        assert out.count("\n") == raw.count(b"\n") + bool(raw and not raw.endswith(b"\n"))
    except TapisError as error:
        with pytest.raises(UnicodeDecodeError):
            raw.decode()
        assert "not UTF-8" in str(error)
    finally:
        sys.stdin = original_stdin
        sys.stdout = original_stdout


@given(valid_line_lists)
@examples(60)
def test_any_text_survives_encoding_and_decoding(tokenizer: Tokenizer, lines: list[str]) -> None:
    assert tokenizer.decode(tokenizer.encode(lines)) == lines


@given(valid_line_lists)
@examples(60)
def test_take_apart_loses_nothing_but_whitespace(lines: list[str]) -> None:
    for line in lines:
        parts = split_line(line, "en", lambda piece: len(piece) <= 50)
        assert "".join(line.split()) == "".join((parts.marker + "".join(parts.units)).split())
        assert all(len(unit) <= 50 for unit in parts.units)


@given(valid_line_lists, st.sampled_from(["fr", "zh", "ja", "ko"]))
@examples(40)
def test_scores_of_any_texts_are_between_0_and_100(lines: list[str], language: str) -> None:
    scores = score(lines, lines[::-1], language)
    assert all(0 <= value <= 100.001 and math.isfinite(value) for value in (scores.bleu, scores.chrf))


FILE_NAMES = ["a.tsv", "a.csv", "a.jsonl", "a.parquet", "a.tmx", "a.zip", "a.tsv.gz", "a.csv.xz", "a.jsonl.zst"]
FILE_NAMES += ["train.en", "train.fr.gz", "dataset_infos.json"]
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": partial(pa.compress, codec="zstd", asbytes=True),
}


@given(
    st.one_of(st.binary(max_size=200), line_lists.map(lambda lines: "\t".join(lines).encode("utf-8", "surrogatepass"))),
    st.sampled_from(FILE_NAMES),
    st.booleans(),
)
@examples(400)
def test_any_file_is_read_or_rejected(tmp_path: Path, raw: bytes, name: str, compressed: bool) -> None:
    for earlier_file in tmp_path.iterdir():
        earlier_file.unlink()
    path = tmp_path / name
    path.write_bytes(COMPRESS.get(path.suffix, bytes)(raw) if compressed else raw)
    data = path if name.startswith("a.") else tmp_path
    cleaner = Cleaner("en", "fr", ())
    try:
        for part in read_parts(str(data), "en", "fr").values():
            for pair in readable(part):
                assert all(isinstance(side, str) for side in pair)
                cleaner.judge([pair])
    except TapisError as error:
        assert len(str(error).splitlines()) <= 2


json_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([field.name for field in fields(Config)]), json_value, max_size=3), st.text())
@examples(500)
def test_any_config_is_read_or_rejected(changes: dict[str, object], other_text: str) -> None:
    valid_json = Config().to_json()
    changed_values = json.dumps({**json.loads(valid_json), **changes})
    truncated = valid_json[: len(other_text) * 20] + other_text
    for config_text in (changed_values, other_text, truncated):
        try:
            config = Config.from_json(config_text)
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
@examples(100)
def test_any_command_line_is_parsed_or_rejected(args: list[str]) -> None:
    option_types: list[type] = [TranslateOptions, OwnEvaluateOptions, ExportOptions]
    parsers: list[Callable[[list[str]], object]] = [parse_training, *(partial(parse, kind) for kind in option_types)]
    for parse_args in parsers:
        try:
            parse_args(args)
        except TapisError as error:
            assert error.exit_code == 2 and len(str(error).splitlines()) <= 2
        except SystemExit as exit:
            assert exit.code == 0
