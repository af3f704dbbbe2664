"""Training and searching on a simulated GPU: no operation mixes devices, and the host rarely waits for the GPU.

guard.cpp makes torch believe in a GPU, simulated_gpu.py computes for it, and scenarios.py does the work. The tests are
skipped where torch is built for GPUs, where there is no g++, and outside Linux.
"""

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).parent
sys.path.append(str(FOLDER))

from simulated_gpu import build_guard  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(torch.version.cuda or torch.version.hip), reason="only for a CPU build of torch"),
    pytest.mark.skipif(not shutil.which("g++"), reason="no g++ to build guard.cpp"),
    pytest.mark.skipif(sys.platform != "linux", reason="a library is preloaded as on Linux"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The lines of scenarios.py by the name of the work."""
    folder = tmp_path_factory.mktemp("simulated")
    guard = build_guard(folder)
    done = subprocess.run(
        [sys.executable, str(FOLDER / "scenarios.py"), str(folder / "cache")],
        check=False,
        env={**os.environ, "LD_PRELOAD": str(guard), "OMP_NUM_THREADS": "1", "HOME": str(folder)},
        capture_output=True,
        encoding="utf-8",
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["work"]: line for line in lines}


def test_a_step_waits_once_and_learns(report: dict[str, Any]) -> None:
    names = [name.removeprefix("a step, ") for name in report if name.startswith("a step, ")]
    assert len(names) >= 10
    for name in names:
        waits, losses = report[f"a step, {name}"]["waits"], report[f"losses, {name}"]["result"]
        assert all(map(math.isfinite, losses)) and losses[-1] < losses[0] - 0.5, (name, losses)
        if name != "plain":
            assert list(waits.values()) == [1] and next(iter(waits)).startswith("tolist at train.py"), (name, waits)
    assert sum(report["a step after it"]["waits"].values()) == 1


def test_attention_takes_sequences_in_16_bits(report: dict[str, Any]) -> None:
    layouts = {name.removeprefix("layout, "): line["result"] for name, line in report.items() if "layout, " in name}
    padded = {name for name, layout in layouts.items() if layout == "PaddedLayout"}
    assert padded == {"fp32"} and len(layouts) >= 9


@pytest.mark.parametrize("search", ["greedy search", "beam search"])
def test_a_search_waits_once_in_several_tokens(report: dict[str, Any], search: str) -> None:
    tokens = report[search]["result"]
    assert tokens >= 32, "a short search proves nothing"
    assert sum(report[search]["waits"].values()) <= tokens / 4 + 4, report[search]["waits"]


def test_a_gpu_computes_what_a_cpu_does(report: dict[str, Any]) -> None:
    assert report["losses on cuda"]["result"] == pytest.approx(report["losses on cpu"]["result"], rel=1e-4)
    for search in ("greedy search", "beam search"):
        translations = report[f"{search} on cuda"]["result"]
        assert translations == report[f"{search} on cpu"]["result"]
        assert len(set(map(str, translations))) > 5, "the sentences have different translations"
