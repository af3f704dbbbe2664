"""What more GPUs would give: tokens a second on 1, 8 and 64, from the speed of one and published link speeds.

    python benchmarks/planning.py --base 1269000 --big 300000      measured by benchmarks/gpu_steps.py times
    python benchmarks/planning.py                                  modelled by benchmarks/gpu_account.py

This is a model, not a measurement: nothing was measured on more than one GPU. It assumes the following.

- Every process trains on its own batches. The gradients, in fp32, are summed over all processes at each step
  (`machine.distributed.Group`).
- A ring of n GPUs moves 2 (n − 1) / n times the gradient through each link. On several machines, the gradients are
  summed within each machine first, over NVLink. Each GPU then exchanges its share with the other machines, over
  InfiniBand.
- Links reach --efficiency of their published speed.
- Two thirds of a step are its backward pass, beneath which DistributedDataParallel can hide the exchange. "hidden" is
  the speed if all that fits there is hidden, "in line" the speed if nothing is. Beside each stands its share of n times
  the speed of one GPU.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
import tyro  # noqa: E402

from config import PRESETS  # noqa: E402
from model import Transformer  # noqa: E402

NVLINK = 450e9  # bytes/s each way and GPU: H100 and H200, NVLink 4 (NVIDIA data sheet: 900 GB/s both ways)
INFINIBAND = 50e9  # bytes/s each way and GPU: NDR, 400 Gbit/s, one adapter for each GPU
PEAK = 989e12  # FLOP/s in bf16 of an H100 or H200, dense (NVIDIA data sheet)
GPUS_PER_MACHINE = 8
# Tokens/s of one H200 by benchmarks/gpu_account.py of 2026-11-24. An H100 was then measured with base: 1,269,000.
MODELLED = {"base": 1_807_000, "big": 666_000}
HEADER = f"{'GPUs':>6} {'step, ms':>10} {'exch., ms':>10} {'hidden, tok/s':>14} {'':>7} {'in line, tok/s':>14}"


@dataclass(frozen=True)
class Options:
    """Plan runs of the presets base and big on several GPUs."""

    base: float = 0.0
    """Measured tokens/s of one GPU with the preset base, source and target; 0 for the modelled figure"""
    big: float = 0.0
    """The same with the preset big"""
    efficiency: float = 0.7
    """Assumed share of the published link speeds"""
    gpus: tuple[int, ...] = (1, 8, 64)
    """Numbers of GPUs"""


def exchange_seconds(gradient_bytes: float, gpus: int, efficiency: float) -> float:
    """Return the time of summing a gradient over GPUs, GPUS_PER_MACHINE in each machine."""
    gpus_inside = min(gpus, GPUS_PER_MACHINE)
    machines = -(-gpus // GPUS_PER_MACHINE)  # rounded up
    inside = 2 * (gpus_inside - 1) / gpus_inside * gradient_bytes / NVLINK
    between = 2 * (machines - 1) / machines * (gradient_bytes / gpus_inside) / INFINIBAND
    return (inside + between) / efficiency


def print_plan(name: str, measured: float, options: Options) -> None:
    """Print the table of one preset."""
    # The model
    config = PRESETS[name]
    with torch.device("meta"):
        model = Transformer(config.vocab_size, config)
    n_parameters = sum(parameter.numel() for parameter in model.parameters())

    # FLOP of a token. It passes through one of the two stacks and, on the target side, through the projection. Forward
    # and backward, a matrix product costs 6 FLOP for each weight. Attention's own products are under a tenth, and left
    # out.
    stacks = sum(parameter.numel() for stack in (model.encoder, model.decoder) for parameter in stack.parameters())
    flops = 6 * (stacks + config.vocab_size * config.d_model) / 2

    # One GPU
    speed = measured or MODELLED[name]
    tokens = 2 * config.batch_tokens  # of one process's batch, on both sides
    step = tokens / speed
    origin = f"{'measured' if measured else 'modelled'}: {speed * flops / PEAK:.0%} of {PEAK / 1e12:,.0f} TFLOP/s"
    sizes = f"{n_parameters:,} parameters, {tokens:,} tokens a process and step"
    print(f"{name}: {sizes}, {speed:,.0f} tokens/s ({origin})")

    # Several GPUs
    print(HEADER)
    for gpus in options.gpus:
        exchange = exchange_seconds(4 * n_parameters, gpus, options.efficiency)
        hidden = step + max(0.0, exchange - step * 2 / 3)
        hidden_speed = gpus * tokens / hidden
        in_line_speed = gpus * tokens / (step + exchange)
        print(
            f"{gpus:>6} {1000 * step:>10.1f} {1000 * exchange:>10.1f} "
            f"{hidden_speed:>14,.0f} {hidden_speed / (gpus * speed):>7.0%} "
            f"{in_line_speed:>14,.0f} {in_line_speed / (gpus * speed):>7.0%}"
        )


def main() -> None:
    options = tyro.cli(Options)
    print_plan("base", options.base, options)
    print()
    print_plan("big", options.big, options)


if __name__ == "__main__":
    main()
