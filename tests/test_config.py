"""The config: ranges, conflicts between fields, JSON, presets, and the command line."""

import contextlib
import json
import subprocess
import sys
import time
import tracemalloc
from dataclasses import fields, replace

import pytest
from conftest import ROOT

from config import FACTS, FORMAT, PRESETS, Config, ConfigError, flag
from system.cli import (
    EvaluateOptions,
    ModelOptions,
    ServeOptions,
    TrainOptions,
    TranslateOptions,
    named,
    parse,
    parse_training,
)


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
        ({"source": "fr", "target": "fr"}, "--source and --target"),
        ({"name": "../elsewhere"}, "--name"),
        ({"name": ".."}, "--name"),
        ({"target": "a/b"}, "--target"),
        ({"name": "`x`"}, "--name"),
        ({"data": ("a\nerror: b",)}, r"--data 'a\\nerror: b' has characters that cannot be shown"),
        ({"back_translator": "\ud800"}, "--back-translator .* has characters that cannot be shown"),
        (
            {"pairs": ("all",), "languages": tuple(f"l{i}" for i in range(301))},
            "--languages names 301; it may name 300",
        ),
        ({"valid_share": 0.4, "test_share": 0.4}, "--valid-share"),
    ],
)
def test_errors_name_the_invalid_field(change: dict[str, object], names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        replace(Config(), **change)  # type: ignore[arg-type]


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
        (Config().to_json().replace('"en"', '"\\ud800"'), "--source .* has characters that cannot be shown"),
    ],
)
def test_a_damaged_config_is_rejected_with_a_reason(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Config.from_json(text)


@pytest.mark.parametrize(
    "change",
    [
        {"languages": tuple(f"l{i}" for i in range(20_000))},
        {"languages": tuple(f"l{i}" for i in range(300)), "monolingual": tuple(f"n{i}.l7" for i in range(60_000))},
    ],
)
def test_a_config_of_many_names_is_read_at_once(change: dict[str, tuple[str, ...]]) -> None:
    values = {**json.loads(Config().to_json()), "pairs": ["all"], **change}
    start = time.monotonic()
    tracemalloc.start()
    with contextlib.suppress(ConfigError):
        Config.from_json(json.dumps(values))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.monotonic() - start < 10 and peak < 200e6


def test_every_field_is_a_flag_with_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        parse(TrainOptions, ["--help"], TrainOptions(PRESETS["demo"]))
    assert exit.value.code == 0
    printed = capsys.readouterr().out
    assert all(flag(field.name) in printed for field in fields(Config))


def test_flags_change_the_preset_and_nothing_else() -> None:
    flags = ["--d-model", "64", "--no-tie-embeddings", "--plain"]
    options = parse(TrainOptions, flags, TrainOptions(PRESETS["demo"]))
    assert options.config == replace(PRESETS["demo"], d_model=64, tie_embeddings=False, plain=True)


@pytest.mark.parametrize("options", [TranslateOptions, EvaluateOptions, ServeOptions])
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
        parse(TrainOptions, args, TrainOptions(PRESETS["demo"]))
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
    assert parse_training([])[:2] == ("opus_books", [])
    for args, preset in ((["--lr", "1"], "opus_books"), (["demo", "--lr", "1"], "demo")):
        assert parse_training(args) == (preset, ["--lr", "1"], TrainOptions(config=replace(PRESETS[preset], lr=1.0)))
    with pytest.raises(ConfigError, match="opus_books, demo, multi30k, base, big"):
        parse_training(["dem"])


def test_a_run_is_named_after_its_preset_and_languages() -> None:
    assert named(PRESETS["base"], "base").name == "base-en-fr"
    assert named(replace(PRESETS["base"], name="mine"), "base").name == "mine"
    both = replace(PRESETS["base"], pairs=("en-fr", "fr-en"))
    assert named(both, "base").name == "base-en-fr-fr-en"
    every = replace(PRESETS["base"], pairs=("all",), languages=("fr", "en", "de"))
    assert named(every, "base").name == "base-all-de-en-fr"


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
        assert 0 <= facts.since <= FORMAT and (type(facts.before) is type(field.default)) == (facts.since > 0)


@pytest.mark.parametrize("name", [name for name, facts in FACTS.items() if facts.range[0] < facts.range[1]])
def test_each_field_is_refused_out_of_its_range(name: str) -> None:
    for value in (FACTS[name].range[0] - 1, FACTS[name].range[1] + 1):
        with pytest.raises(ConfigError, match=f"{flag(name)} is .*; it must be from"):
            Config(**{name: value})  # type: ignore[arg-type]
