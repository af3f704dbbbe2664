"""benchmarks/gpu_visit.py without a GPU: it runs in miniature, keeps what a part printed, and counts as it says."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT
from torch.utils.flop_counter import FlopCounterMode

from config import Config
from dataset import EncodedPairs, collate
from pairs.corpus import Corpus
from tapis.text.tokenizer import Tokenizer
from training.trainer import Training

sys.path.append(str(ROOT / "benchmarks"))

from gpu_visit import FIRST, PARTS, SECOND, Options, Part, Report, run_part

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a visit ends groups of processes, as on Linux")

# What each part prints when it has measured everything; of those that tests/gpu/test_visit_parts.py does not run.
LAST = {
    "tests": "tests collected",
    "steps-multi30k": "to make its batch",
    "multi30k": "evaluate.py --beam 5 took",
    "big": "to make its batch",
}


def visit(*flags: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "benchmarks/gpu_visit.py"), "--out", "visit", *flags]
    return subprocess.run(command, check=False, capture_output=True, encoding="utf-8", timeout=280)


@pytest.mark.slow
def test_parts_in_miniature_measure_everything() -> None:
    done = visit("--simulate", "--parts", *LAST)
    report = Path("visit/report.txt").read_text(encoding="utf-8")
    assert done.returncode == 0 and report == done.stdout, report
    assert report.count("the first step began after") == 1  # of multi30k
    assert "failed: none" in report and "FAILED" not in report and "skipped" not in report
    for text in LAST.values():
        assert report.count(text) == list(LAST.values()).count(text), report


def test_all_parts_are_tried_in_miniature() -> None:
    sys.path.append(str(ROOT / "tests/gpu"))
    from test_visit_parts import PRINTED

    assert {part.name for part in PARTS} == {*LAST, *PRINTED}


def test_two_commands_fit_into_the_time_that_a_machine_is_lent() -> None:
    assert sum(part.seconds for part in FIRST) <= 8 * 60
    assert sum(part.seconds for part in SECOND) <= 4 * 60


@pytest.mark.slow
def test_parts_without_time_are_named() -> None:
    done = visit("--simulate", "--minutes", "0")
    assert done.returncode == 0
    assert done.stdout.endswith(f"skipped for lack of time: {', '.join(part.name for part in FIRST)}\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "failure"),
    [
        ("print('a table'); import time; time.sleep(60)", "stopped after 4 s"),
        ("print('a table'); 1 / 0", "ZeroDivisionError: division by zero"),
        ("print('a table')", ""),
    ],
)
def test_what_a_part_printed_before_its_end_is_kept(script: str, failure: str) -> None:
    Path("part.py").write_text(script, encoding="utf-8")
    part = Part("one", 4, (str(Path("part.py").absolute()),))
    failed = run_part(part, part.seconds, Options(out=Path()), Report(Path("report.txt")))
    assert failure in failed and bool(failed) == bool(failure)
    assert Path("report.txt").read_text(encoding="utf-8") == "a table\n"


def test_contenders_that_fail_leave_the_figures_of_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    from measure import alternate_while_working

    figures = iter([1.0, 2.0])
    turns = {"first": lambda: 3.0, "second": lambda: next(figures)}
    assert alternate_while_working(turns, 3) == {"first": [3.0] * 3} and list(turns) == ["first"]
    assert capsys.readouterr().out == "    second: FAILED: StopIteration: \n"


def test_operations_are_counted_as_torch_counts_them(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> None:
    """Of sentences of one length on each side, which have no padding."""
    from gpu_steps import flops_of_epoch

    config = replace(tiny, n_encoder_layers=2, n_decoder_layers=3, plain=True)
    training = Training(config, small, tokenizer)
    pairs: EncodedPairs = training.train_pairs
    pairs.src_lengths, pairs.tgt_lengths = np.full(5, 7 + 1), np.full(5, 9 + 1)  # with the end token
    batch = collate([[5] * 7] * 5, [[6] * 9] * 5)
    with FlopCounterMode(display=False) as counter:
        loss, _ = training.objective(batch.to(torch.device("cpu")))
        loss.backward()
    assert counter.get_total_flops() == flops_of_epoch(config, len(tokenizer), pairs)
