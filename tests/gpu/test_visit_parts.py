"""The parts of benchmarks/gpu_visit.py run their code for CUDA devices, on a simulated GPU. visit_parts.py does them.

Other parts run in tests/test_gpu_visit.py, on the CPU.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import made_once

FOLDER = Path(__file__).parent
sys.path.append(str(FOLDER))

from simulated_gpu import build_guard, reason_against  # noqa: E402

HAS_GPU = torch.cuda.is_available()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(HAS_GPU, reason="gpu_visit.py measures a real one"),
    pytest.mark.skipif(not HAS_GPU and bool(reason_against()), reason=reason_against()),
]

# What parts print of a GPU alone, and at their ends.
PRINTED = {
    "versions": [
        "cuda (a simulated GPU)",
        "85.9 GB, 132 multiprocessors",
        "products in bf16",
        "copies within its memory",
    ],
    "steps": ["base: 33,792 parameters, vocabulary 400, bf16", "to make its batch"],
    "demo": ["device    cuda (a simulated GPU), bf16", "s from the command to the sentence"],
    "decoding": ["4 sentences, beam 4"],
    "profile": ["its 1 kernels take 1.00 ms", "a simulated kernel", "trace of a step"],
    "memory": ["512     0.00     0.00", "1,024   does not fit"],
}


def test_parts_measure_a_gpu(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    _, guard = made_once(tmp_path_factory, "guard", lambda folder: str(build_guard(folder)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HOME": str(tmp_path), "LD_PRELOAD": guard}
    done = subprocess.run(
        [sys.executable, str(FOLDER / "visit_parts.py"), str(tmp_path), *PRINTED],
        check=False,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # where train.py names its device
        encoding="utf-8",
        timeout=280,
    )
    assert done.returncode == 0, done.stdout
    assert "FAILED" not in done.stdout and "its capture failed" not in done.stdout, done.stdout
    printed = dict(part.split("\n", 1) for part in done.stdout.split("== ")[1:])
    assert printed.keys() == PRINTED.keys()
    for name, texts in PRINTED.items():
        assert all(text in printed[name] for text in texts), (name, printed[name])
