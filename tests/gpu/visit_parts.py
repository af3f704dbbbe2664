"""Runs parts of benchmarks/gpu_visit.py in miniature on a simulated GPU, with their code for CUDA devices.

    LD_PRELOAD=guard.so python tests/gpu/visit_parts.py OUT versions steps memory

test_visit_parts.py starts it, with guard.cpp preloaded. All parts share this process, also the commands that
gpu_runs.py starts; a part that fails ends it. Replaced are what the simulation lacks (the compiler, the kernels in a
profile, a limit of memory) and what would take it minutes (large products and copies).
"""

import os
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent, FunctionEventAvg
from torch.profiler import ProfilerActivity, profile

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import gpu_decoding  # noqa: E402
import gpu_machine  # noqa: E402
import gpu_runs  # noqa: E402
import gpu_steps  # noqa: E402
import gpu_visit  # noqa: E402
import measure  # noqa: E402
from measure import own_cache  # noqa: E402
from simulated_gpu import SimulatedGpu, moved, simulate  # noqa: E402
from training_speed import Textbook  # noqa: E402

import train  # noqa: E402
from training.trainer import Training  # noqa: E402

MODULES: dict[str, Any] = {
    f"{module.__name__}.py": module for module in (gpu_machine, gpu_steps, gpu_decoding, gpu_runs)
}
MOST_TOKENS = 512  # of a batch that fits into memory


class SimulatedProfile(profile):
    """A profile of the host, to which one kernel of 1 ms is added."""

    def __init__(self, activities: list[ProfilerActivity]) -> None:
        assert activities == [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        super().__init__(activities=activities[:1])

    def key_averages(self, *args: Any, **kwargs: Any) -> Any:
        event: Any = FunctionEvent
        kernel = event(
            id=0,
            name="a simulated kernel",
            thread=0,
            start_us=0,
            end_us=1000,
            use_device="cuda",
            device_type=DeviceType.CUDA,
        )
        average: Any = FunctionEventAvg()
        average.add(kernel)
        return [*super().key_averages(*args, **kwargs), average]


def step_of_small_batches(training: Training, step: int) -> Any:
    """`take_step` on a GPU whose memory is too small for larger batches."""
    if training.batch_plan.config.batch_tokens > MOST_TOKENS:
        raise torch.OutOfMemoryError("simulated")
    return TAKE_STEP(training, step)


TAKE_STEP = train.take_step


def run_command_here(folder: Path, script: str, *arguments: str) -> float:
    """`gpu_runs.run_command`, in this process."""
    begun = time.perf_counter()
    folder_before = Path.cwd()
    os.chdir(folder)
    try:
        with own_cache(folder / "cache"):
            run(lambda: runpy.run_path(str(ROOT / script), run_name="__main__"), script, *arguments)
    finally:
        os.chdir(folder_before)
    return time.perf_counter() - begun


def run(main: Callable[[], object], *arguments: str) -> None:
    """Call the `main` of a command, with its name and its arguments."""
    before, sys.argv = sys.argv, list(arguments)
    try:
        main()
    except SystemExit as end:
        assert not end.code, f"{arguments} ended with exit code {end.code}"
    finally:
        sys.argv = before


def replace_what_is_lacking() -> None:
    """Patch the benchmarks and the project, as the docstring of this file says."""
    anything: Any = gpu_visit.PartOptions
    anything.device = property(lambda self: "cuda")  # also with --simulate
    measure.GPU_MATMUL, measure.GPU_COPY = 64, 1000
    anything = measure
    anything.profile = SimulatedProfile
    anything = gpu_steps
    anything.take_step = step_of_small_batches
    anything = Textbook
    anything.to = moved
    anything = Training
    anything.may_compile = property(lambda self: True)
    anything.compile = lambda self: self.captured.begin_anew() if self.captured else None
    anything = gpu_runs
    anything.run_command = run_command_here


def main(out: str, *names: str) -> None:
    torch.set_num_threads(1)
    simulate()
    replace_what_is_lacking()
    parts = {part.name: part for part in gpu_visit.PARTS}
    with SimulatedGpu():  # type: ignore[no-untyped-call]
        for name in names:
            print(f"== {name}", flush=True)
            script, *arguments = parts[name].command
            if "--presets" in arguments:
                arguments = arguments[: arguments.index("--presets") + 2]  # the first alone, which takes less time
            run(MODULES[script].main, script, *arguments, "--out", out, "--simulate")


if __name__ == "__main__":
    main(*sys.argv[1:])
