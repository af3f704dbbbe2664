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


def test_scores_have_a_line_for_each_pair(
    trained: "subprocess.CompletedProcess[str]", called: Command, tmp_path: Path
) -> None:
    """A right reference is more probable than one of another sentence, also where a line is empty."""
    run = str(Path(trained.args[0]) / "weights/demo")
    sources = (ROOT / "demo/test.en").read_text(encoding="utf-8").splitlines()[:40]
    references = (ROOT / "demo/test.fr").read_text(encoding="utf-8").splitlines()[:40]
    shifted = [*references[1:39], "", references[0]]
    tables = []
    for name, texts in (("right", references), ("wrong", shifted)):
        Path("source").write_text("\n".join(sources) + "\n", encoding="utf-8")
        Path(name).write_text("\n".join(texts) + "\n", encoding="utf-8")
        args = ["--source", "source", "--reference", name, "--scores", f"{name}.tsv", "--output", "hypotheses"]
        done = called("evaluate.py", "--run", run, "--device", "cpu", *args)
        assert done.returncode == 0, done.stderr
        tables.append([line.split("\t") for line in Path(f"{name}.tsv").read_text(encoding="utf-8").splitlines()])
    right, wrong = tables
    assert len(right) == len(wrong) == 40 and {len(row) for row in right + wrong} == {4}
    assert [row[3] for row in right] == Path("hypotheses").read_text(encoding="utf-8").splitlines()
    mean = [[float(log_p) / int(tokens) for log_p, tokens, *_ in table] for table in tables]
    assert sum(a > b for a, b in zip(*mean, strict=True)) >= 38
    assert all(0 <= float(row[2]) <= 100 for row in right) and int(wrong[38][1]) <= 2
