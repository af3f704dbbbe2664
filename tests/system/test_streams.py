"""Commands whose standard streams were closed at the start: an error in one line where one is needed."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from checkpoint import RunFolder
from tapis.system.terminal import progress_bar, say

TRANSLATE, EVALUATE, TRAIN = "translate.py --run tiny", "evaluate.py --run tiny", "train.py demo"
ON_CPU = "--device cpu"
INPUT, OUTPUT = "standard input is closed", "standard output is closed"


def in_shell(command: str, closed: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of a checkout, or `-m tapis`, with the streams closed that `closed` says."""
    script = shlex.join([sys.executable, "-W", "error"])
    name = f"-m {command}" if command.startswith("tapis") else f"{shlex.quote(str(ROOT))}/{command}"
    return subprocess.run(
        ["sh", "-c", f"{script} {name} {closed}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=280,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize(
    ("command", "closed", "code", "output", "error"),
    [
        (f"{TRANSLATE} {ON_CPU}", "<&-", 1, False, INPUT),
        (f"{TRANSLATE} {ON_CPU} --format srt", "<&-", 1, False, INPUT),
        (f"{TRANSLATE} {ON_CPU} 'A cat.'", "<&-", 0, True, ""),
        (f"{TRANSLATE} {ON_CPU} 'A cat.'", ">&-", 1, False, OUTPUT),
        (f"{TRANSLATE} {ON_CPU} --format html page.html", ">&-", 1, False, OUTPUT),
        (f"{TRANSLATE} {ON_CPU} 'A cat.'", "2>&-", 0, True, ""),
        (f"{TRANSLATE} {ON_CPU} 'A cat.'", "<&- >&- 2>&-", 1, False, ""),
        ("translate.py --help", ">&-", 1, False, OUTPUT),
        ("translate.py --nope", "2>&-", 2, False, ""),
        (f"{EVALUATE} {ON_CPU} --source a.en --reference a.fr", ">&-", 1, False, OUTPUT),
        (f"{EVALUATE} {ON_CPU} --source a.en --reference a.fr", "2>&-", 0, True, ""),
        ("tapis info", ">&-", 1, False, OUTPUT),
        ("tapis info", "<&- 2>&-", 0, True, ""),
        ("tapis", ">&-", 1, False, OUTPUT),
    ],
)
@pytest.mark.usefixtures("run_folder")
def test_a_closed_stream_is_an_error_where_it_is_needed(
    command: str, closed: str, code: int, output: bool, error: str
) -> None:
    Path("page.html").write_text("<p>A cat.</p>", encoding="utf-8")
    for file in ("a.en", "a.fr"):
        Path(file).write_text("A cat.\n", encoding="utf-8")
    done = in_shell(command, closed)
    assert (done.returncode, bool(done.stdout)) == (code, output), done.stderr
    assert "Traceback" not in done.stderr
    if error:
        assert done.stderr.splitlines()[-1].endswith(error)


@pytest.mark.parametrize("closed", ["<&- >&-", "<&- >&- 2>&-"])
def test_a_run_needs_no_standard_streams(closed: str, few: Path) -> None:
    small = "--d-model 16 --n-heads 2 --d-ff 32 --vocab-size 300 --epochs 1"
    done = in_shell(f"{TRAIN} {ON_CPU} {small} --data {shlex.quote(str(few))}", closed)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert bool(done.stderr) == ("2>&-" not in closed)
    RunFolder(Path("weights/demo")).load_weights()


def test_messages_to_a_closed_standard_error_do_not_reach_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    say("x")
    with progress_bar("y", 1, "pair") as progress:
        progress.update()
    assert capsys.readouterr().out == ""
