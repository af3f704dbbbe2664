"""Errors in command lines are explained in two lines, without the help of tyro's own messages."""

import os
from collections.abc import Sequence

import pytest

from config import PRESETS
from tapis.config import ConfigError
from tapis.system.cli import ServeOptions, TranslateOptions, parse, run_command, share_cores
from tapis.system.usage import OTHER_NAMES, flag_types
from training.cli import ExportOptions, OwnEvaluateOptions, TrainOptions, parse_over


@pytest.mark.parametrize(
    ("options", "line", "message"),
    [
        (TrainOptions, "--d-modle 5", "Unrecognized options: --d-modle\ndid you mean --d-model?"),
        (TrainOptions, "--d_modle 5", "Unrecognized options: --d-modle\ndid you mean --d-model?"),
        (TrainOptions, "--hlep", "Unrecognized options: --hlep\ndid you mean --help?"),
        (TrainOptions, "--xyz", "Unrecognized options: --xyz\n--help"),
        (TrainOptions, "--tie-embeddings=False", "Unrecognized options: --tie-embeddings=False\ndid you mean --tie"),
        (TrainOptions, "--tie-embeddings False", "Unrecognized options: False\n--help"),
        (TrainOptions, "--no-resume", "Unrecognized options: --no-resume\ndid you mean --resume?"),
        (TrainOptions, "--lr 1 demo", "Unrecognized options: demo\none preset may be named, before the flags; --help"),
        (TrainOptions, "--lr", "--lr needs a value\n--help"),
        (TrainOptions, "--lr --resume", "--lr needs a value\n--help"),
        (TrainOptions, "--lr fast", "--lr is 'fast'; it must be a number\n--help"),
        (TrainOptions, "--epochs=1.5", "--epochs is '1.5'; it must be an integer\n--help"),
        (TrainOptions, "--norm x", "--norm is 'x'; it must be one of pre, post\n--help"),
        (TrainOptions, "--skip-rules headings x", "--skip-rules is 'x'; it must be one of unicode, empty-side"),
        (TrainOptions, "--learning-rate 1", "Unrecognized options: --learning-rate\ndid you mean --lr?"),
        (
            TrainOptions,
            "--batch-size 1",
            "Unrecognized options: --batch-size\ndid you mean --batch-tokens (tokens of a",
        ),
        (TrainOptions, "--hidden_size 1", "Unrecognized options: --hidden-size\ndid you mean --d-model?"),
        (
            TrainOptions,
            "--layers=1",
            "Unrecognized options: --layers\ndid you mean --n-encoder-layers and --n-decoder",
        ),
        (TrainOptions, "--beam-size 1", "Unrecognized options: --beam-size\n"),
        (TranslateOptions, "--num-beams 1", "Unrecognized options: --num-beams\ndid you mean --beam?"),
        (TranslateOptions, "--rnu x", "Unrecognized options: --rnu\ndid you mean --run?"),
        (TranslateOptions, "-x", "Unrecognized options: -x\n--help"),
        (TranslateOptions, "A. --beam 2 B.", "Unrecognized options: B.\n--help"),
        (TranslateOptions, "--attention", "--attention needs a value\n--help"),
        (OwnEvaluateOptions, "demo", "Unrecognized options: demo\ndid you mean --run demo?"),
        (ServeOptions, "demo --beam 5", "Unrecognized options: demo\ndid you mean --run demo?"),
        (ServeOptions, "--port 8000 8001", "Unrecognized options: 8001\n--help lists the flags"),
        (TranslateOptions, "--beam x -- --hello", "--beam is 'x'; it must be an integer"),
        (TranslateOptions, "--bema 3 -- --hello", "Unrecognized options: --bema\ndid you mean --beam?"),
        (ServeOptions, "--allow-host a b", "--allow-host takes one value: give it once for each of a, b\n--help"),
        (OwnEvaluateOptions, "--split train", "--split is 'train'; it must be one of valid, test\n--help"),
        (ExportOptions, "--to marian out", "--to is 'marian'; it must be one of ctranslate2, huggingface, web\n--help"),
        (ExportOptions, "--to ctranslate2 a b", "Unrecognized options: b\n--help"),
    ],
)
def test_an_error_names_the_mistake(
    options: type[object], line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        if options is TrainOptions:
            parse_over(PRESETS["demo"], line.split())
        parse(options, line.split())
    assert str(error.value).startswith(message) and str(error.value).endswith("--help lists the flags")
    assert capsys.readouterr() == ("", "")


def test_names_of_other_programs_lead_to_flags_that_exist() -> None:
    types = {name for options in (TrainOptions, TranslateOptions, OwnEvaluateOptions) for name in flag_types(options)}
    named = [name for flags in OTHER_NAMES for name in flags.split()]
    others = [f"--{name}" for names in OTHER_NAMES.values() for name in names]
    assert types.issuperset(named) and not types & set(others) and len(set(others)) == len(others)


@pytest.mark.parametrize(
    "args",
    [
        ["-1", "2"],
        ["--length-penalty", "-1"],
        ["--length_penalty=-1"],
        ["--", "--beam"],
        ["--beam", "2", "--beam", "3"],
        ["--attention", "a.png", "--plain", "A sentence.", "Another."],
    ],
)
def test_unusual_but_valid_lines_are_accepted(args: Sequence[str]) -> None:
    parse(TranslateOptions, args)


def test_what_follows_two_dashes_is_text() -> None:
    texts = ["--keep_going is a flag", "--column", "--column", "--"]
    options = parse(TranslateOptions, ["--length_penalty", "2", "--", *texts])
    assert (options.length_penalty, options.sentences) == (2, tuple(texts))


@pytest.mark.parametrize("line", ["--hlep\u2028x", "a\nb", "\x0b", "", "--d-model\n"])
def test_an_error_has_two_lines_whatever_the_arguments(line: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(OwnEvaluateOptions, [line])
    assert len(str(error.value).splitlines()) == 2


def test_help_is_printed_by_tyro(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        parse(TrainOptions, ["--lr", "1", "--help"], TrainOptions.of(PRESETS["demo"]))
    assert exit.value.code == 0
    printed = capsys.readouterr().out
    assert "--vocab-size" in printed and str(PRESETS["demo"].vocab_size) in printed


def test_threads_wait_briefly_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    share_cores()
    assert os.environ["GOMP_SPINCOUNT"] == "800"
    monkeypatch.setenv("GOMP_SPINCOUNT", "5")
    share_cores()
    assert os.environ["GOMP_SPINCOUNT"] == "5"
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    share_cores()
    assert "GOMP_SPINCOUNT" not in os.environ


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (KeyboardInterrupt(), 130, ""),
        (MemoryError(), 1, "out of memory: shorter lines or a lower --beam need less"),
        (PermissionError(13, "no", "file"), 1, "[Errno 13] no: 'file'"),
    ],
)
def test_every_end_has_its_code(error: BaseException, code: int, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(args: Sequence[str]) -> None:
        raise error

    with pytest.raises(SystemExit) as end:
        run_command(fail)
    assert end.value.code == code and says in capsys.readouterr().err
