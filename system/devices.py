"""Choosing the device and the precision, describing the device, and dividing work among CPU threads."""

import contextlib
import os
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


# oneDNN, which multiplies bf16 and int8 on CPUs, and torch's own kernels can be told to leave instructions unused.
# By the value of an environment variable: the features that are then out of use. Users compare machines by these, and
# tests use them to be a plain CPU.
_NEEDS_AVX512 = ("avx512_vnni", "avx512_bf16", "amx_bf16")
_MASKS = {
    ("ONEDNN_MAX_CPU_ISA", "AVX2"): (*_NEEDS_AVX512, "avx_vnni"),
    ("ONEDNN_MAX_CPU_ISA", "AVX2_VNNI"): _NEEDS_AVX512,
    ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE"): _NEEDS_AVX512,
    ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_VNNI"): ("avx512_bf16", "amx_bf16"),
    ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16"): ("amx_bf16",),
}


def cpu_features() -> set[str]:
    """The instruction sets that matrix products on this CPU can use, by torch's names: avx512_bf16, amx_bf16, ….

    The one place that knows. Honours ONEDNN_MAX_CPU_ISA, with which a user turns instructions off.
    """
    features = {name for name, is_there in torch.cpu.get_capabilities().items() if is_there is True}
    for (variable, value), masked in _MASKS.items():
        if os.environ.get(variable, "").upper() == value:
            features -= set(masked)
    return features


def choose_device(name: DeviceName) -> torch.device:
    """Return the named device; auto prefers cuda, then mps, then cpu. Raises ConfigError if it is not available."""
    is_available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    available = [kind for kind in is_available if is_available[kind]]
    if name == "auto":
        return torch.device(available[0])
    if name not in available:
        there = ", ".join(available)
        raise ConfigError(f"--device {name}: this machine, or this build of torch, has none; available: {there}")
    return torch.device(name)


def choose_precision(name: Precision, device: torch.device) -> Precision:
    """Return the precision for training; auto prefers bf16, then fp16, if the hardware accelerates it, then fp32.

    GPUs have tensor cores for bf16 since Ampere and for fp16 since Volta. On CPUs with AVX512-BF16 or AMX, matrix
    products take a quarter of their time in fp32.
    """
    if name != "auto":
        return name
    if device.type == "cuda":
        capability = torch.cuda.get_device_capability(device)
        if capability >= (8, 0):
            return "bf16"
        return "fp16" if capability >= (7, 0) else "fp32"
    if device.type == "cpu":
        return "bf16" if cpu_features() & {"avx512_bf16", "amx_bf16"} else "fp32"
    return "fp32"


def choose_translating(name: TranslatingPrecision, device: torch.device) -> TranslatingPrecision:
    """Return the precision for translating; auto prefers int8 on CPUs with VNNI, else follows `choose_precision`.

    CPUs with AMX use bf16: torch's bf16 products use AMX, its int8 products do not. Raises ConfigError for int8 on
    another device than a CPU.
    """
    if name == "int8":
        if device.type != "cpu":
            raise ConfigError(f"--precision int8 is for CPUs; on {device.type}, choose bf16 or fp16")
        return "int8"
    if name == "auto" and device.type == "cpu":
        features = cpu_features()
        if features & {"avx512_vnni", "avx_vnni"} and "amx_bf16" not in features:
            return "int8"
    return choose_precision(name, device)


def slow_precision(name: TranslatingPrecision, device: torch.device) -> str:
    """A line that warns of a precision that was asked for and is slow on this hardware; "" if it is not slow.

    Without instructions for it, a CPU multiplies bf16 and fp16 at a fiftieth of the rate of fp32, and int8 at a
    twentieth.
    """
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    if device.type != "cpu" or not is_x86 or name in ("auto", "fp32"):
        return ""
    features = cpu_features()
    needed = {"bf16": {"avx512_bf16", "amx_bf16"}, "fp16": {"avx512_fp16", "amx_fp16"}}
    needed["int8"] = {"avx512_vnni", "avx_vnni"}
    if features & needed[name]:
        return ""
    return f"warning: this CPU has no instructions for {name}; --precision fp32 is many times faster here"


def autocast(device: torch.device, precision: Precision) -> contextlib.AbstractContextManager[object]:
    """Return the context for forward passes: autocast for bf16 and fp16, a null context for fp32."""
    return contextlib.nullcontext() if precision == "fp32" else torch.autocast(device.type, DTYPES[precision])


def device_label(device: torch.device) -> str:
    """Describe the device for reports, such as `cpu (AMD EPYC, 2 threads)`."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    if device.type == "mps":
        return f"mps ({platform.machine()})"
    model = torch.cpu.get_capabilities().get("cpu_name") or platform.machine()
    n_threads = torch.get_num_threads()
    return f"cpu ({model}, {n_threads} thread{'s' * (n_threads > 1)})"


def peak_gigabytes(device: torch.device) -> float:
    """Return the peak memory since the process started, in GB: torch's count on a GPU, else the resident set size.

    The resident set includes the pages of memory-mapped files that were read. On Windows, returns 0.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    if sys.platform == "win32":
        return 0.0
    bytes_per_unit = 1 if sys.platform == "darwin" else 1024  # macOS counts in bytes, Linux in kibibytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * bytes_per_unit / 1e9


def spread(work: Callable[[T], U], items: Sequence[T], device: torch.device) -> Iterator[U]:
    """Yield `work(item)` for each item, in order; on a CPU, the threads work on different items at the same time.

    Replaces `map(work, items)`. When all threads share one small matrix product, they spend more time on
    synchronization than on arithmetic. `work` must enter inference mode itself, since that mode is local to a thread.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1 or len(items) < 2:
        yield from map(work, items)
        return

    # Each worker computes with one thread. The last call of torch.set_num_threads also sets the default of threads that
    # start later, so restore it.
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(work, items)
    finally:
        torch.set_num_threads(threads)
