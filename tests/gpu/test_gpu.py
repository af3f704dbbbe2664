"""Training and searching on a GPU, or else on a simulated one, where no operation may mix devices.

scenarios.py does the work. Without a GPU, guard.cpp makes torch believe in one, and simulated_gpu.py computes for it
and counts how often the host waits; the tests are then skipped where torch is built for GPUs, where there is no g++,
and outside Linux.
"""

import json
import math
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import made_once
from torch.utils._triton import has_triton

FOLDER = Path(__file__).parent
sys.path.append(str(FOLDER))

from simulated_gpu import build_guard, reason_against  # noqa: E402

from fast.attention import fault_of_attention  # noqa: E402

HAS_GPU = torch.cuda.is_available()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_GPU and bool(reason_against()), reason=reason_against()),
]
counts_waits = pytest.mark.skipif(HAS_GPU, reason="waits are counted on a simulated GPU")
on_a_gpu = pytest.mark.skipif(not HAS_GPU, reason="no GPU")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The lines of scenarios.py by the name of the work."""
    guard = "" if HAS_GPU else made_once(tmp_path_factory, "guard", lambda folder: str(build_guard(folder)))[1]
    _, printed = made_once(tmp_path_factory, "gpu", partial(run_scenarios, guard))
    lines = [json.loads(line) for line in printed.splitlines()]
    return {line["work"]: line for line in lines}


def run_scenarios(guard: str, folder: Path) -> str:
    """What scenarios.py prints. Its stderr is that of the tests, so that it is there if they are stopped."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HOME": str(folder)}
    if guard:
        environment["LD_PRELOAD"] = guard
    done = subprocess.run(
        [sys.executable, str(FOLDER / "scenarios.py"), str(folder / "cache")],
        check=False,
        env=environment,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        timeout=560,
    )
    assert done.returncode == 0
    return done.stdout


def configurations(report: dict[str, Any]) -> list[str]:
    names = [name.removeprefix("a step, ") for name in report if name.startswith("a step, ")]
    assert len(names) >= 10
    return names


def test_a_graph_computes_when_it_is_replayed(report: dict[str, Any]) -> None:
    """And not when it is captured."""
    after_capture, *after_replays, doubled = report["captured sums"]["result"]
    assert after_capture == [1.0] * 3
    assert after_replays == [[4.0] * 3, [25.0] * 3] and doubled == [20.0] * 3


def test_numbers_that_were_read_keep_no_memory(report: dict[str, Any]) -> None:
    assert report["late numbers"]["result"] == {"read": [[0.0, 1.0, 2.0]] * 2, "is freed": True}
    if not HAS_GPU:
        assert sum(report["late numbers"]["waits"].values()) == 1


@counts_waits
def test_what_waits_is_not_captured(report: dict[str, Any]) -> None:
    assert report["refused captures"]["result"] == ["item", "nonzero", "mask", "copy from the host"]


@counts_waits
def test_a_graph_does_not_keep_what_it_reads(report: dict[str, Any]) -> None:
    """A real one would read what is in that memory by then."""
    assert "memory that was freed" in report["freed memory"]["result"]


def test_every_configuration_learns(report: dict[str, Any]) -> None:
    for name in configurations(report):
        losses = report[f"losses, {name}"]["result"]
        assert all(map(math.isfinite, losses)) and losses[-1] < losses[0] - 0.5, (name, losses)


@counts_waits
def test_a_step_waits_once_after_it_has_prepared_the_next(report: dict[str, Any]) -> None:
    for name in configurations(report):
        waits = report[f"a step, {name}"]["waits"]
        if name != "plain":
            is_captured = "fp16" not in name  # and its numbers are read late
            place = "synchronize at capture.py" if is_captured else "tolist at train.py"
            assert list(waits.values()) == [1] and next(iter(waits)).startswith(place), (name, waits)
            assert report[f"waits early, {name}"]["result"] == 0
    assert sum(report["a step after it"]["waits"].values()) == 1


def test_attention_works_in_ranges_of_rows(report: dict[str, Any]) -> None:
    if HAS_GPU and not has_triton():
        pytest.skip("this GPU, or this build of torch, has no Triton")
    assert not HAS_GPU or not fault_of_attention(torch.device("cuda"), torch.bfloat16, 2, 32)
    layouts = {name.removeprefix("layout, "): line["result"] for name, line in report.items() if "layout, " in name}
    assert set(layouts.values()) == {"RangeLayout"} and len(layouts) >= 9


@counts_waits
def test_a_batch_is_copied_at_once(report: dict[str, Any]) -> None:
    """Its ids are then converted."""
    assert all(line["launches"] == 2 and not line["waits"] for name, line in report.items() if "layout, " in name)


@counts_waits
def test_a_captured_step_is_a_few_launches(report: dict[str, Any]) -> None:
    """The batch, its share and the rate are copied; the gradient, the update and the numbers are asked for."""
    assert report["a step, bf16"]["launches"] <= 6
    assert report["a step, accumulation"]["launches"] <= 12
    assert report["a step, fp16"]["launches"] > 100, "gradients that are scaled are not captured"


@counts_waits
def test_a_run_says_why_its_steps_are_not_captured(report: dict[str, Any]) -> None:
    start = "note      steps are launched kernel by kernel, and slower: "
    for name in configurations(report):
        expected = [f"{start}gradients in fp16 are scaled"] if "fp16" in name else []
        assert report[f"notes, {name}"]["result"] == expected
    expected = [f"{start}several processes exchange their gradients", f"{start}no kernels"]
    assert report["notes of other runs"]["result"] == expected
    assert report["taught on cuda"]["result"]["notes"] == [[f"{start}teachers compute, too"], []]


def test_captured_steps_learn_as_the_others_do(report: dict[str, Any]) -> None:
    losses = report["losses, captured"]["result"]
    assert losses == pytest.approx(report["losses, not captured"]["result"], rel=0.01 if HAS_GPU else 5e-4)


def test_a_resumed_run_takes_the_same_steps(report: dict[str, Any]) -> None:
    """A real GPU may add up some sums in another order."""
    difference = report["resumed"]["result"]
    print(f"the largest difference of two weights: {difference:.1e}")
    assert difference <= (0.05 if HAS_GPU else 0.0)


def test_a_searcher_that_is_kept_translates_with_the_weights_of_now(report: dict[str, Any]) -> None:
    before, kept, new = report["translations after more steps"]["result"]
    assert kept == new
    assert new != before and len(set(new)) > 1, "equal translations prove nothing"


def test_a_captured_step_that_is_not_finite_changes_no_weight(report: dict[str, Any]) -> None:
    result = report["a step that is not finite"]["result"]
    assert "step 2 (epoch 1, batch 2) is not finite" in result["said"] and result["is same"]


@on_a_gpu
def test_compiled_parts_learn_as_the_others_do(report: dict[str, Any]) -> None:
    assert report["losses, compiled"]["result"] == pytest.approx(report["losses, bf16"]["result"], rel=0.05)
    assert report["graphs"]["result"] <= 5


@counts_waits
@pytest.mark.parametrize("search", ["greedy search", "beam search"])
def test_a_search_waits_once_in_several_tokens(report: dict[str, Any], search: str) -> None:
    tokens = report[search]["result"]
    assert tokens >= 32, "a short search proves nothing"
    assert sum(report[search]["waits"].values()) <= tokens / 4 + 4, report[search]["waits"]


def test_a_gpu_computes_what_a_cpu_does(report: dict[str, Any]) -> None:
    """A real one rounds otherwise, and a run amplifies that."""
    on_cpu, on_gpu = (report[f"losses on {device}"]["result"] for device in ("cpu", "cuda"))
    assert on_gpu == pytest.approx(on_cpu, rel=0.02 if HAS_GPU else 1e-4)
    by_cpu, by_gpu = (report[f"taught on {device}"]["result"] for device in ("cpu", "cuda"))
    assert by_gpu["losses"] == pytest.approx(by_cpu["losses"], rel=0.02 if HAS_GPU else 1e-4)
    for search in ("greedy search", "beam search"):
        translations, others = (report[f"{search} on {device}"]["result"] for device in ("cuda", "cpu"))
        n_same = sum(one == other for one, other in zip(translations, others, strict=True))
        assert n_same >= (0.5 * len(others) if HAS_GPU else len(others))
        assert len(set(map(str, translations))) > 5, "the sentences have different translations"


@pytest.mark.parametrize("other", ["greedy search without graphs", "a failed capture"])
def test_a_search_finds_the_same_without_graphs(report: dict[str, Any], other: str) -> None:
    assert report[other]["result"] == report["greedy search on cuda"]["result"]


def test_a_search_finds_the_same_after_others_were_forgotten(report: dict[str, Any]) -> None:
    """On a simulated GPU, the end of a graph breaks the others of its stream, as from torch 2.12 on."""
    with_room, forgetful = report["searches of sizes that are forgotten"]["result"]
    assert forgetful == with_room


def test_a_search_of_fixed_shapes_finds_what_the_plain_functions_do(report: dict[str, Any]) -> None:
    ours, theirs = (report[f"greedy search {by}"]["result"] for by in ("on cuda", "by the plain functions"))
    n_same = sum(one == other for one, other in zip(ours, theirs, strict=True))
    assert n_same >= (0.8 * len(theirs) if HAS_GPU else len(theirs)), "a real one rounds otherwise"
