"""Choosing devices and precisions, memory settings, and dividing work among threads."""

import os
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from machine.devices import (
    INSTRUCTIONS,
    CoreWatch,
    autocast,
    choose_device,
    choose_precision,
    cpu_features,
    device_label,
    slow_precision,
    spread,
)
from tapis.config import ConfigError

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _all_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite itself may run with instructions turned off, to be a plain CPU."""
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)


def test_auto_chooses_an_available_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto").type == "mps"
    assert choose_device("cpu").type == "cpu"
    with pytest.raises(ConfigError, match="available: mps, cpu"):
        choose_device("cuda")


@pytest.mark.parametrize(
    ("has", "precision"),
    [({"avx512_bf16": True}, "bf16"), ({"amx_bf16": True}, "bf16"), ({"avx512_bf16": False}, "fp32"), ({}, "fp32")],
)
def test_auto_trains_in_bf16_on_processors_that_support_it(
    has: dict[str, bool], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has)
    assert choose_precision("auto", CPU) == precision
    assert choose_precision("fp32", CPU) == "fp32"
    assert choose_precision("bf16", CPU) == "bf16"


@pytest.mark.parametrize(("capability", "precision"), [((9, 0), "bf16"), ((7, 5), "fp16"), ((6, 1), "fp32")])
def test_auto_trains_in_the_fastest_precision_of_the_gpu(
    capability: tuple[int, int], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert choose_precision("auto", torch.device("cuda")) == precision


def test_autocast_computes_in_the_given_precision() -> None:
    a = torch.ones(2, 2)
    with autocast(CPU, "fp16"):
        assert (a @ a).dtype == torch.float16
    with autocast(CPU, "bf16"):
        assert (a @ a).dtype == torch.bfloat16
    with autocast(CPU, "fp32"):
        assert (a @ a).dtype == torch.float32


def test_the_label_names_the_device_and_its_threads() -> None:
    assert device_label(CPU).startswith("cpu (") and " thread" in device_label(CPU)


@pytest.mark.parametrize("n", [0, 1, 7])
def test_spread_keeps_the_order_and_gives_each_worker_one_thread(n: int) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        results = list(spread(lambda i: (i, torch.get_num_threads()), range(n), torch.device("cpu")))
        assert [i for i, _ in results] == list(range(n))
        assert {inside for _, inside in results} == ({1} if n > 1 else {2} if n else set())
        assert torch.get_num_threads() == 2
        with ThreadPoolExecutor(1) as new:
            assert new.submit(torch.get_num_threads).result() == 2
    finally:
        torch.set_num_threads(threads)


def test_spread_raises_the_errors_of_its_workers() -> None:
    with pytest.raises(ZeroDivisionError):
        list(spread(lambda i: 1 // i, [1, 0, 1], torch.device("cpu")))


def everything() -> dict[str, bool]:
    """What an x86 CPU can have."""
    return dict.fromkeys(set[str]().union({"avx2", "avx_vnni", "avx512_vnni"}, *INSTRUCTIONS.values()), True)


@pytest.mark.parametrize(
    ("isa", "precision", "has"),
    [
        ("SSE41", "fp32", set[str]()),
        ("AVX", "fp32", set[str]()),
        ("AVX2", "fp32", {"avx2"}),
        ("avx2_vnni", "fp32", {"avx2", "avx_vnni"}),
        ("AVX2_VNNI_2", "fp32", {"avx2", "avx_vnni"}),
        ("AVX512_CORE_VNNI", "fp32", {"avx2", "avx_vnni", "avx512_vnni"}),
        ("AVX512_CORE_BF16", "bf16", {"avx2", "avx_vnni", "avx512_vnni", "avx512_bf16"}),
    ],
)
def test_instructions_that_are_turned_off_are_not_chosen(
    isa: str, precision: str, has: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", everything)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", isa)
    assert choose_precision("auto", CPU) == precision
    assert cpu_features() == has
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    assert choose_precision("auto", CPU) == "bf16" and cpu_features() == set(everything())


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="another processor than x86")
def test_a_precision_without_instructions_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    assert "no instructions for bf16" in slow_precision("bf16", CPU)
    assert slow_precision("fp32", CPU) == slow_precision("auto", CPU) == ""
    assert slow_precision("bf16", torch.device("cuda")) == ""
    monkeypatch.setattr(torch.cpu, "get_capabilities", everything)
    assert slow_precision("bf16", CPU) == ""


def test_competing_programs_are_noticed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 10.0, 20.0, 30.0, 40.0, 50.0])
    switches = iter([7, 500, 5_000, 9_000, 9_300, 90_000])  # often from 10 to 30 s, and from 40 s
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(CoreWatch, "_count", lambda self: next(switches))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    watch = CoreWatch()
    assert [watch.became_crowded() for _ in range(5)] == [False, True, False, False, True]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no Linux")
def test_a_program_on_the_same_core_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes on one core: the system switches between them."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        watch = CoreWatch()
        monkeypatch.setattr(CoreWatch, "CROWDED", 20)  # one thread is switched less often than those that wait for it
        work_until = time.perf_counter() + 1.5
        while time.perf_counter() < work_until:
            pass
        assert watch.became_crowded()
    finally:
        os.sched_setaffinity(0, cores)
        other.kill()
        other.wait()
