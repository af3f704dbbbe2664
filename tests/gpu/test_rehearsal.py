"""Training and searching on a pretended GPU: no operation mixes devices, and the host hardly waits.

guard.cpp makes torch believe in a GPU, pretended_gpu.py computes for it, and rehearse.py does the work. The tests are
skipped on a machine that has a GPU or cannot build the guard.
"""

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).parent
TORCH = Path(torch.__file__).parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there, and none need be pretended"),
    pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler to build the pretended GPU"),
    pytest.mark.skipif(sys.platform != "linux", reason="a library is preloaded as on Linux"),
]


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The lines of rehearse.py by the name of the work."""
    folder = tmp_path_factory.mktemp("rehearsal")
    guard = folder / "guard.so"
    include = TORCH / "include"
    build = ["g++", "-shared", "-fPIC", "-O1", "-std=c++20", f"-I{include}", f"-I{include}/torch/csrc/api/include"]
    link = [f"-L{TORCH / 'lib'}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{TORCH / 'lib'}"]
    subprocess.run([*build, str(FOLDER / "guard.cpp"), "-o", str(guard), *link], check=True, timeout=120)
    done = subprocess.run(
        [sys.executable, str(FOLDER / "rehearse.py"), str(folder / "cache")],
        check=False,
        env={"LD_PRELOAD": str(guard), "OMP_NUM_THREADS": "1", "HOME": str(folder)},
        capture_output=True,
        encoding="utf-8",
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["work"]: line for line in lines}


def test_a_step_waits_once_and_learns(rehearsal: dict[str, Any]) -> None:
    names = [name.removeprefix("a step, ") for name in rehearsal if name.startswith("a step, ")]
    assert len(names) >= 10
    for name in names:
        waits, losses = rehearsal[f"a step, {name}"]["waits"], rehearsal[f"losses, {name}"]["result"]
        assert all(map(math.isfinite, losses)) and losses[-1] < losses[0] - 0.5, name
        if name != "plain":
            assert list(waits.values()) == [1] and next(iter(waits)).startswith("tolist at train.py"), (name, waits)
    assert sum(rehearsal["a step after it"]["waits"].values()) == 1


@pytest.mark.parametrize("search", ["greedy search", "beam search"])
def test_a_search_waits_once_in_several_tokens(rehearsal: dict[str, Any], search: str) -> None:
    assert sum(rehearsal[search]["waits"].values()) <= rehearsal["limit"]["result"] / 4, rehearsal[search]["waits"]


def test_a_gpu_computes_what_a_cpu_does(rehearsal: dict[str, Any]) -> None:
    assert rehearsal["losses on cuda"]["result"] == pytest.approx(rehearsal["losses on cpu"]["result"], rel=1e-5)
    for search in ("greedy search", "beam search"):
        translations = rehearsal[f"{search} on cuda"]["result"]
        assert translations == rehearsal[f"{search} on cpu"]["result"]
        assert len(set(map(str, translations))) > 5, "the sentences have different translations"
