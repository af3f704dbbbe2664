"""The config: ranges, conflicts between fields, JSON, presets, and the command line."""

import contextlib
import json
import math
import subprocess
import sys
import time
import tracemalloc
from dataclasses import fields, replace
from typing import Any

import pytest
from conftest import ROOT

from config import FACTS, PRESETS, Config
from tapis.config import FORMAT, ConfigError, Learned, flag, pairs_of_all
from tapis.system.cli import ModelOptions, ServeOptions, TranslateOptions, parse
from training.cli import OwnEvaluateOptions, TrainOptions, named, parse_over, parse_training


@pytest.mark.parametrize("preset", PRESETS)
def test_a_config_survives_json(preset: str) -> None:
    assert Config.from_json(PRESETS[preset].to_json()) == PRESETS[preset]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"dropout": 0.95}, "--dropout"),
        ({"dropout": float("nan")}, "--dropout"),
        ({"vocab_size": 100}, "--vocab-size"),
        ({"epochs": 0}, "--epochs"),
        ({"norm": "both"}, "--norm"),
        ({"d_model": 30, "n_heads": 4}, "--n-heads"),
        ({"d_model": 9, "n_heads": 3}, "even"),
        ({"batch_tokens": 20}, "--batch-tokens"),
        ({"pairs": ("fr-fr",)}, "source and target are both fr"),
        ({"name": "../elsewhere"}, "--name"),
        ({"name": ".."}, "--name"),
        ({"pairs": ("en-a/b",)}, "the language 'a/b' cannot be part"),
        ({"name": "`x`"}, "--name"),
        ({"data": ("a\nerror: b",)}, r"--data 'a\\nerror: b' has characters that cannot be shown"),
        ({"back_translator": "\ud800"}, "--back-translator .* has characters that cannot be shown"),
        ({"pairs": tuple(f"l{i}-en" for i in range(300))}, "--pairs names 301 languages; it may name 300"),
        ({"valid_share": 0.4, "test_share": 0.4}, "--valid-share"),
    ],
)
def test_errors_name_the_invalid_field(change: dict[str, object], names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        replace(Config(), **change)  # type: ignore[arg-type]


# A config as format 4 had it
FORMAT_4 = {
    **{name: value for name, value in json.loads(Config().to_json()).items() if name != "pairs"},
    **{"format": 4, "source": "en", "target": "de", "pairs": [], "languages": []},
    **{"length_ratio": 1.2, "length_spread": 0.9, "unsure_below": -1.5},
}


def test_languages_before_format_5_had_four_fields() -> None:
    assert Config.from_json(json.dumps(FORMAT_4)).pairs == ("en-de",)
    several = {**FORMAT_4, "pairs": ["en-de", "pt-BR:en"]}
    assert Config.from_json(json.dumps(several)).directions == (("en", "de"), ("pt-BR", "en"))
    every = {**FORMAT_4, "pairs": ["all"], "languages": ["de", "en", "fr"]}
    assert Config.from_json(json.dumps(every)).pairs == ("de-en", "de-fr", "en-de", "en-fr", "fr-de", "fr-en")


def test_what_a_run_learned_was_in_the_config_of_format_4() -> None:
    learned = Learned(1.2, 0.9, -1.5)
    assert Learned.from_json(json.dumps(FORMAT_4)) == learned
    with_words = replace(learned, target_words="chat été")
    assert Learned.from_json(with_words.to_json()) == with_words and "été" in with_words.to_json()
    assert Learned.from_json(Config().to_json()) == Learned(0, 0, 0)
    texts: list[Any] = [
        {"length_ratio": "1"},
        {"length_spread": -1},
        {"unsure_below": 0.1},
        {"length_ratio": math.inf},
        {"target_words": ["chat"]},
        [],
    ]
    for wrong in texts:
        with pytest.raises(ConfigError):
            Learned.from_json(json.dumps(wrong))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ("{}", "fields missing"),
        (Config().to_json().replace('"epochs": 10', '"epochs": "ten"'), "epochs is 'ten'"),
        (Config().to_json().replace('"epochs": 10', '"epochs": true'), "epochs is True"),
        (Config().to_json().replace('"epochs"', '"epoch"'), "epoch, epochs"),
        (Config().to_json().replace('"d_model": 256', '"d_model": -2'), "--d-model"),
        ("[" * 100_000, "not JSON"),
        (Config().to_json().replace('"lr": 0.001', '"lr": 1' + "0" * 400), "lr is 10+; float expected"),
        (Config().to_json().replace('"en-', '"\\ud800-'), "--pairs .* has characters that cannot be shown"),
        (json.dumps({**FORMAT_4, "source": 1}), "source is 1; str expected"),
        (json.dumps({**FORMAT_4, "pairs": ["en", 2]}), "pairs is 2; str expected"),
        (json.dumps({**FORMAT_4, "target": "en"}), "source and target are both en"),
        (json.dumps({name: value for name, value in FORMAT_4.items() if name != "source"}), "fields missing: source"),
    ],
)
def test_a_damaged_config_is_rejected_with_a_reason(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Config.from_json(text)


NEWS = tuple(f"n{i}.l7" for i in range(60_000))


@pytest.mark.parametrize(
    "change",
    [
        {"format": 4, "languages": tuple(f"l{i}" for i in range(20_000))},
        {"format": 4, "languages": tuple(f"l{i}" for i in range(300)), "monolingual": NEWS},
        {"format": 5, "pairs": pairs_of_all([f"l{i}" for i in range(300)]), "monolingual": NEWS},
    ],
)
def test_a_config_of_many_names_is_read_at_once(change: dict[str, Any]) -> None:
    values = {**(FORMAT_4 if change["format"] == 4 else json.loads(Config().to_json())), **change}
    values["pairs"] = change.get("pairs", ["all"])
    start = time.monotonic()
    tracemalloc.start()
    with contextlib.suppress(ConfigError):
        Config.from_json(json.dumps(values))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.monotonic() - start < 10 and peak < 200e6


def test_every_field_is_a_flag_with_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        parse(TrainOptions, ["--help"], TrainOptions.of(PRESETS["demo"]))
    assert exit.value.code == 0
    printed = capsys.readouterr().out
    assert all(flag(field.name) in printed for field in fields(Config))


def test_flags_change_the_preset_and_nothing_else() -> None:
    flags = ["--d-model", "64", "--no-tie-embeddings", "--plain"]
    options = parse(TrainOptions, flags, TrainOptions.of(PRESETS["demo"]))
    assert options.config == replace(PRESETS["demo"], d_model=64, tie_embeddings=False, plain=True)


@pytest.mark.parametrize("options", [TranslateOptions, OwnEvaluateOptions, ServeOptions])
def test_the_commands_that_translate_have_the_flag_plain(options: type[ModelOptions]) -> None:
    assert parse(options, ["--plain"]).plain and not parse(options, []).plain


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--d-modle", "5"], "did you mean --d-model"),
        (["--minutes", "5", "demo"], "Unrecognized options: demo\none preset may be named, before the flags"),
        (["--d-model", "wide"], "--d-model"),
        (["--norm", "x"], "must be one of pre, post"),
        (["--lr"], "--lr"),
        (["--epochs", "0"], "--epochs is 0; it must be from 1"),
    ],
)
def test_a_wrong_flag_is_explained_in_two_lines(args: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as error:
        parse_over(PRESETS["demo"], args)
    assert len(str(error.value).splitlines()) <= 2


@pytest.mark.parametrize("command", ["train", "translate", "evaluate", "export", "serve"])
@pytest.mark.parametrize(("argument", "code"), [("--help", 0), ("--hlep", 2)])
def test_help_and_wrong_flags_do_not_import_torch(command: str, argument: str, code: int) -> None:
    script = f"""
import runpy, sys
sys.argv = ["{command}.py", "{argument}"]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as exit:
    assert exit.code == {code}, exit.code
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True)


def test_the_help_names_every_preset() -> None:
    assert ", ".join(PRESETS) in (TrainOptions.__doc__ or "")


def test_the_first_argument_chooses_the_preset() -> None:
    assert parse_training([])[:2] == ("", [])
    for args, preset, expected in ((["--lr", "1"], "opus_books", ""), (["demo", "--lr", "1"], "demo", "demo")):
        assert parse_training(args) == (expected, ["--lr", "1"], TrainOptions.of(replace(PRESETS[preset], lr=1.0)))
    with pytest.raises(ConfigError, match="opus_books, demo, multi30k, base, big"):
        parse_training(["dem"])


def test_a_run_is_named_after_its_preset_and_languages() -> None:
    names = {
        "": "base-en-fr",
        "--name mine": "mine",
        "--target de": "base-en-de",
        "--pairs en-fr fr-en": "base-en-fr-fr-en",
        "--pairs all --languages fr en de": "base-all-de-en-fr",
    }
    for flags, name in names.items():
        assert named(parse_over(PRESETS["base"], flags.split()), "base").name == name


def test_the_base_preset_has_the_sizes_of_the_paper() -> None:
    base = PRESETS["base"]
    assert (base.d_model, base.d_ff, base.n_heads, base.n_encoder_layers, base.n_decoder_layers) == (512, 2048, 8, 6, 6)
    assert (base.dropout, base.label_smoothing, base.norm, base.warmup_steps) == (0.1, 0.1, "post", 4000)
    assert base.lr == pytest.approx(512**-0.5 * 4000**-0.5, rel=0.01)


def test_the_facts_of_each_field_fit_together() -> None:
    assert list(FACTS) == [field.name for field in fields(Config)]
    for field in fields(Config):
        facts = FACTS[field.name]
        low, high = facts.range
        assert low == high or low <= float(field.default) <= high  # type: ignore[arg-type]
        assert not (facts.is_resumable and (facts.defines_model or facts.init_from == "fixed"))
        is_added = facts.since > 0 and field.name != "pairs"  # which four fields were before
        assert 0 <= facts.since <= FORMAT and (type(facts.before) is type(field.default)) == is_added


@pytest.mark.parametrize("name", [name for name, facts in FACTS.items() if facts.range[0] < facts.range[1]])
def test_each_field_is_refused_out_of_its_range(name: str) -> None:
    for value in (FACTS[name].range[0] - 1, FACTS[name].range[1] + 1):
        with pytest.raises(ConfigError, match=f"{flag(name)} is .*; it must be from"):
            Config(**{name: value})  # type: ignore[arg-type]
