"""The command evaluate.py: the scores of training again, two runs compared, and errors."""

import json
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, Command


def test_it_repeats_the_score_of_training(
    trained: "subprocess.CompletedProcess[str]", command: Command, called: Command, tmp_path: Path
) -> None:
    run = str(Path(trained.args[0]) / "weights/demo")
    scored = command("evaluate.py", "--run", run, "--device", "cpu", "--output", "out.fr")
    assert scored.returncode == 0, scored.stderr
    metrics = json.loads(Path(run, "metrics.json").read_text(encoding="utf-8"))["test"]
    expected = "BLEU {bleu:.1f}  chrF {chrf:.1f}  brevity {brevity:.3f}  {signature}\n"
    assert scored.stdout == expected.format(**metrics)
    files = ["--source", str(ROOT / "demo/test.en"), "--reference", str(ROOT / "demo/test.fr")]
    assert called("evaluate.py", "--run", run, *files).stdout == scored.stdout
    against_itself = called("evaluate.py", "--run", run, *files[:3], "out.fr")
    assert against_itself.stdout.startswith("BLEU 100.0  chrF 100.0")
    both = called("evaluate.py", "--run", run, *files, "--against", run, "--beam", "3")
    assert both.returncode == 0, both.stderr
    one, other, chances = both.stdout.splitlines()
    assert one == other and chances == "BLEU p = 1.000  chrF2 p = 1.000"


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--source", "x"], 2, "--source and --reference go together"),
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
