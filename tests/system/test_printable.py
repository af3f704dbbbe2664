"""What a terminal shows: no message makes it obey a stranger's text, or fills the screen."""

import json
import sys
from pathlib import Path

import pytest
from conftest import Command

from checkpoint import RunFolder
from tapis.commands.translate import printable_on, printed
from tapis.system.terminal import (
    LONGEST_LINE,
    MOST_LINES,
    errors_as_warnings,
    escape_controls,
    in_one_line,
    listed,
    printable,
    say,
)
from tapis.translation import Translation

OBEYED = "\x1b]0;title\x07\x9b2J\x00\b\x7f\r \u202e\u2066"


def test_characters_that_a_terminal_obeys_are_shown() -> None:
    assert escape_controls(OBEYED) == r"\x1b]0;title\x07\x9b2J\x00\x08\x7f\r \u202e\u2066"
    harmless = "a\tb\r\nc\nŒuvre 中文 العربية \N{ZERO WIDTH JOINER}\u200f"
    assert escape_controls(harmless) == harmless


def test_the_middle_of_a_long_line_is_left_out() -> None:
    line = "a" * 900_000 + "the end"
    shown = printable(f"short\n{line}").split("\n")
    assert shown[0] == "short" and len(shown[1]) < LONGEST_LINE + 5 and shown[1].endswith("the end")


def test_the_middle_of_many_lines_is_left_out() -> None:
    shown = printable("\n".join(map(str, range(100_000)))).split("\n")
    assert len(shown) == MOST_LINES + 1 and shown[0] == "0" and shown[-1] == "99999"


def test_foreign_names_stay_on_a_line() -> None:
    assert in_one_line("a\n b" + "c" * 500, 10) == "a bcccccc…"
    assert listed(["a\nb", 1], 3) == "a b, 1" and listed(iter("abc"), 2) == "a, b, …" and listed([]) == "none"


def test_a_strangers_config_cannot_write_to_the_terminal(run_folder: RunFolder, called: Command) -> None:
    for change in ({"name": OBEYED}, {OBEYED: 1}, {"norm": OBEYED}, {"norm": "x" * 900_000}, {"d_model": OBEYED}):
        config = json.loads(run_folder.config_file.read_text(encoding="utf-8"))
        run_folder.config_file.write_text(json.dumps({**config, **change}), encoding="utf-8")
        for args in (["translate.py", "A cat."], ["export.py", "--release", "out"], ["evaluate.py"]):
            done = called(*args)
            assert not {"\x1b", "\x9b", "\x07", "\u202e"} & set(done.stderr + done.stdout)
            assert len(done.stderr) < 5000
        run_folder.config_file.write_text(json.dumps(config), encoding="utf-8")


def test_a_translation_is_escaped_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_terminal, expected in ((False, "a\x1bb\n"), (True, "a\\x1bb\n")):
        monkeypatch.setattr(sys.stdout, "isatty", lambda value=is_terminal: value)
        line = printed(Translation("a\x1bb", 0.0), with_score=False, with_doubts=False)
        assert printable_on(sys.stdout, line) == expected


def test_a_terminal_that_was_closed_is_not_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("closed").open("w") as closed:
        monkeypatch.setattr(sys, "stderr", closed)
        monkeypatch.setattr(closed, "write", lambda text: (_ for _ in ()).throw(BrokenPipeError()), raising=False)
        say("x")
        with errors_as_warnings("x"):
            raise ValueError
