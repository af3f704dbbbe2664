"""What a machine with a GPU is: its hardware, its rates, the versions of its software, and which kernels work there.

A part of gpu_visit.py.
"""

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch  # noqa: E402
import tyro  # noqa: E402
from gpu_visit import PartOptions  # noqa: E402
from measure import copy_rate, matmul_rate  # noqa: E402

from config import PRESETS  # noqa: E402
from fast.attention import fault_of_attention  # noqa: E402
from fast.loss import fault_of_loss  # noqa: E402
from fast.slot_attention import fault_of_slot_attention  # noqa: E402
from fast.topk import fault_of_statistics  # noqa: E402
from machine.devices import DTYPES, choose_device, device_label, slow_precision  # noqa: E402
from tapis.config import Precision  # noqa: E402

PRECISIONS: tuple[Precision, ...] = ("bf16", "fp32")
FAULTS_OF_HEADS = fault_of_attention, fault_of_slot_attention
FAULTS = fault_of_loss, fault_of_statistics


def version_of(package: str) -> str:
    """Return a package and its version."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"


def print_faults(device: torch.device) -> None:
    """Print for both precisions why a kernel for GPUs cannot be used here, with the heads of the presets measured."""
    heads = [(config.n_heads, config.d_model // config.n_heads) for config in (PRESETS["base"], PRESETS["multi30k"])]
    for precision in PRECISIONS:
        dtype = DTYPES[precision]
        of_heads = [(shape, fault_of(device, dtype, *shape)) for shape in heads for fault_of in FAULTS_OF_HEADS]
        faults = [f"{fault} ({n_heads} heads of {size})" for (n_heads, size), fault in of_heads if fault]
        faults += [fault for fault_of in FAULTS if (fault := fault_of(device, dtype))]
        print(f"kernels in {precision}: {'; '.join(faults) or 'all work'}", flush=True)


def main() -> None:
    device = choose_device(tyro.cli(PartOptions).device)
    print(f"{device_label(device)}, {os.cpu_count()} CPU cores")
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        print(f"{properties.total_memory / 1e9:.1f} GB, {properties.multi_processor_count} multiprocessors")
        query = ["nvidia-smi", "--query-gpu=driver_version,power.limit,clocks.max.sm", "--format=csv,noheader"]
        try:
            answer = subprocess.run(query, check=False, capture_output=True, text=True)
            print(f"driver, power limit, highest clock: {answer.stdout.strip() or answer.stderr.strip()}")
        except OSError as error:
            print(f"no nvidia-smi: {error}")
    packages = ("torch", "triton", "transformers", "tokenizers", "datasets", "numpy")
    print(
        f"Python {sys.version.split()[0]}, CUDA {torch.version.cuda}, {', '.join(map(version_of, packages))}",
        flush=True,
    )

    for precision in PRECISIONS:
        if not slow_precision(precision, device):  # a CPU could take minutes
            print(f"products in {precision}: {matmul_rate(device, DTYPES[precision]) / 1e12:,.2f} TFLOP/s", flush=True)
    print(f"copies within its memory: {copy_rate(device) / 1e9:,.0f} GB/s, read and written", flush=True)
    print_faults(device)  # last, since it compiles kernels


if __name__ == "__main__":
    main()
