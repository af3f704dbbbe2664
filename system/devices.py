"""Which device computes, in which precision, and what it is called in reports."""

import contextlib
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from config import ConfigError, DeviceName, Precision, TranslatingPrecision

if sys.platform != "win32":
    import resource

T = TypeVar("T")
U = TypeVar("U")

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def choose_device(name: DeviceName) -> torch.device:
    """The device of that name; auto takes cuda, then mps, then cpu. Raises ConfigError where there is none such."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if available[kind])
    elif not available[name]:
        there = ", ".join(kind for kind, is_there in available.items() if is_there)
        raise ConfigError(f"--device {name}: this machine, or this build of torch, has none; available: {there}")
    return torch.device(name)


def choose_precision(name: Precision, device: torch.device) -> Precision:
    """auto takes bf16 where the hardware is fast at it, else fp16 on GPUs that are fast at that, else fp32.

    GPUs have tensor cores for bf16 from Ampere on, for fp16 from Volta on. CPUs with AVX512-BF16 or AMX take a quarter
    of fp32's time.
    """
    if name != "auto":
        return name
    if device.type == "cuda":
        capability = torch.cuda.get_device_capability(device)
        return "bf16" if capability >= (8, 0) else "fp16" if capability >= (7, 0) else "fp32"
    has = torch.cpu.get_capabilities()
    return "bf16" if device.type == "cpu" and (has.get("avx512_bf16") or has.get("amx_bf16")) else "fp32"


def choose_translating(name: TranslatingPrecision, device: torch.device) -> TranslatingPrecision:
    """The same for translating, where auto takes int8 on CPUs with instructions for it (VNNI). Raises ConfigError.

    Not where they have AMX: there torch multiplies in bf16 with it and in int8 without.
    """
    if name == "int8" and device.type != "cpu":
        raise ConfigError(f"--precision int8 is for CPUs, not for {device.type}: bf16 or fp16 is what that is fast at")
    has = torch.cpu.get_capabilities() if device.type == "cpu" else {}
    if name == "auto" and (has.get("avx512_vnni") or has.get("avx_vnni")) and not has.get("amx_bf16"):
        return "int8"
    return name if name == "int8" else choose_precision(name, device)


def autocast(device: torch.device, precision: Precision) -> contextlib.AbstractContextManager[object]:
    """The context in which forward passes run: matrix products in bf16 or fp16; nothing in fp32."""
    return contextlib.nullcontext() if precision == "fp32" else torch.autocast(device.type, DTYPES[precision])


def device_label(device: torch.device) -> str:
    """The device in words, as a person would name it: `cpu (AMD EPYC, 2 threads)`."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    if device.type == "mps":
        return f"mps ({platform.machine()})"
    model = torch.cpu.get_capabilities().get("cpu_name") or platform.machine()
    return f"cpu ({model}, {torch.get_num_threads()} threads)"


def peak_gigabytes(device: torch.device) -> float:
    """The most memory taken since the start: of a GPU by torch, else by this process; 0 where the system has no count.

    Of a process, memory-mapped pages that were touched count.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    if sys.platform == "win32":
        return 0.0
    scale = 1 if sys.platform == "darwin" else 1024  # macOS says bytes, Linux kibibytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e9


def spread(work: Callable[[T], U], items: Sequence[T], device: torch.device) -> Iterator[U]:
    """What work makes of each item, in order. On a CPU, each thread works on items of its own.

    Small matrix products by all threads together wait for one another more than they work. work must itself enter
    inference mode, which is a thread's own.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or min(threads, len(items)) < 2:
        yield from map(work, items)
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(work, items)
    finally:
        torch.set_num_threads(threads)  # a thread's own, too, but new threads start with the one that was set last
