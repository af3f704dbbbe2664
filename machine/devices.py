"""Choosing the device and the precision, describing the device, and dividing work among CPU threads."""

import contextlib
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from tapis.config import ConfigError, DeviceName, Precision

if sys.platform != "win32":
    import resource

T = TypeVar("T")
U = TypeVar("U")

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


# The CPU features of which any one makes a precision fast, by torch's names.
INSTRUCTIONS = {
    "bf16": {"avx512_bf16", "amx_bf16"},
    "fp16": {"avx512_fp16", "amx_fp16"},
}
# The values of ONEDNN_MAX_CPU_ISA, in order, each with the features that it uses and that the one before does not.
# oneDNN computes the products of these precisions.
_ISA_FEATURES = {
    "SSE41": set[str](),
    "AVX": set[str](),
    "AVX2": {"avx2"},
    "AVX2_VNNI": {"avx_vnni"},
    "AVX2_VNNI_2": set[str](),
    "AVX512_CORE": set[str](),
    "AVX512_CORE_VNNI": {"avx512_vnni"},
    "AVX512_CORE_BF16": {"avx512_bf16"},
    "AVX512_CORE_FP16": {"avx512_fp16"},
    "AVX512_CORE_AMX": {"amx_bf16"},
    "AVX512_CORE_AMX_FP16": {"amx_fp16"},
}


def cpu_features() -> set[str]:
    """Return the instruction sets that matrix products on this CPU can use, by torch's names: avx512_bf16, ….

    Every choice that depends on the CPU asks this function. A user turns instructions off with ONEDNN_MAX_CPU_ISA.
    """
    features = {name for name, is_available in torch.cpu.get_capabilities().items() if is_available is True}
    limit, names = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper(), list(_ISA_FEATURES)
    unused = names[names.index(limit) + 1 :] if limit in names else []
    return features.difference(*(_ISA_FEATURES[name] for name in unused))


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
        return "bf16" if cpu_features() & INSTRUCTIONS["bf16"] else "fp32"
    return "fp32"


def slow_precision(name: Precision, device: torch.device) -> str:
    """Return a warning if torch is slow at a requested precision on this CPU, else "".

    Without instructions for a narrow type, an x86 CPU computes in it far more slowly than in fp32
    (docs/performance.md).
    """
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    if device.type != "cpu" or not is_x86 or name in ("auto", "fp32") or cpu_features() & INSTRUCTIONS[name]:
        return ""
    return f"warning   this CPU has no instructions for {name}; --precision fp32 is many times faster here"


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
    """Return the peak memory since the process started, in GB: what torch holds on a GPU, else the resident set size.

    On a GPU, that includes what graphs hold and nothing else can use. The resident set includes the pages of
    memory-mapped files that were read. On Windows, returns 0.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) / 1e9
    if sys.platform == "win32":
        return 0.0
    bytes_per_unit = 1 if sys.platform == "darwin" else 1024  # macOS counts in bytes, Linux in kibibytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * bytes_per_unit / 1e9


class CoreWatch:
    """Watches whether other programs, or a limit on CPU time, compete with this process for its cores.

    Counts involuntary context switches: the system takes a core from a thread that could go on. Two threads alone had
    30 to 60 a second; beside one busy program on two cores, 600 to 7,000.
    """

    CROWDED = 100  # a second, for each thread

    def __init__(self) -> None:
        self.since = time.perf_counter()
        self.switches = self._count()
        self.was_crowded = False

    def became_crowded(self) -> bool:
        """Return whether the cores were crowded since the last call, and not before. On Windows, always False."""
        now, switches = time.perf_counter(), self._count()
        limit = self.CROWDED * torch.get_num_threads() * (now - self.since)
        is_crowded = switches - self.switches > limit
        became_crowded = is_crowded and not self.was_crowded
        self.since, self.switches, self.was_crowded = now, switches, is_crowded
        return became_crowded

    @staticmethod
    def _count() -> int:
        return 0 if sys.platform == "win32" else resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


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
