"""Files with changes are read, or refused in words: 50 cases of the fuzzer, which runs many more at night."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

CASES = 50

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the fuzzer forks, and limits processes as Linux does"),
]


def test_changed_files_are_read_or_refused_in_words() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/fuzzing.py"), "--cases", str(CASES)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{CASES} cases of ") and done.stdout.endswith(": 0 findings\n")


def test_the_fuzzer_finds_what_it_should(tmp_path: Path) -> None:
    """Crashes, other exceptions, long errors, endless loops, and what is opened or connected to outside."""
    script = f"""
import os, sys, socket, time
from pathlib import Path
import fuzzing
from tapis.config import TapisError
fuzzing.SECONDS = 2.0
def loop(folder):
    while True: pass
def connect(folder):
    socket.socket().connect(("127.0.0.1", 9))
def refuse(folder):
    raise TapisError("no")
readers = [
    lambda folder: os.abort(), lambda folder: 1 / 0, loop, connect, lambda folder: open("/etc/passwd").close(),
    lambda folder: bytearray(3 * 10**9), lambda folder: [os.dup(0) for _ in range(200)], refuse, lambda folder: None,
]
work = Path({str(tmp_path)!r})
(work / "seed").mkdir()
(work / "seed/x").write_bytes(b"abc")
seeds = [fuzzing.Seed(work / "seed", "x", reader) for reader in readers]
print([bool(fuzzing.run_case(number, seeds, work)) for number in range(len(seeds))])
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        check=False,
    )
    assert done.stdout == f"{[True] * 7 + [False] * 2}\n", done.stderr
