"""What more GPUs would give: tokens a second on 1, 8 and 64, from one's measured speed and published link speeds.

    python benchmarks/planning.py --base 900000 --big 300000       tokens/s of one GPU, by benchmarks/training.py
    python benchmarks/planning.py                                  what --share of the published peak would give

Every process trains on batches of its own and the gradients, in fp32, are summed over all of them at each step
(`parallel.Group`). A ring of n moves 2 (n − 1) / n times the gradient through each link; over several machines the sum
is taken within each machine first, over NVLink, and each of its GPUs then carries its share of it to the others, over
InfiniBand. Two thirds of a step are its backward pass, beneath which DistributedDataParallel hides the exchange: the
table has the speed with all of it hidden that fits there, and with none. Links are taken at --efficiency of what is
published. Nothing of this was measured on more than one GPU.
"""

import sys
from collections.abc import Sequence
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
PER_MACHINE = 8


@dataclass(frozen=True)
class Options:
    """Plan trainings of the presets base and big on several GPUs."""

    base: float = 0.0
    """Tokens/s of one GPU, source and target, measured; 0 takes --share"""
    big: float = 0.0
    share: float = 0.45
    """Of the published peak, where nothing was measured"""
    efficiency: float = 0.7
    """Of the published link speeds that an exchange reaches"""
    gpus: tuple[int, ...] = (1, 8, 64)


def exchange_seconds(gradient: float, gpus: int, efficiency: float) -> float:
    """Summing so many bytes of gradient over so many GPUs, PER_MACHINE in each machine."""
    inside, machines = min(gpus, PER_MACHINE), -(-gpus // PER_MACHINE)
    by_nvlink = 2 * (inside - 1) / inside * gradient / NVLINK
    by_infiniband = 2 * (machines - 1) / machines * (gradient / inside) / INFINIBAND
    return (by_nvlink + by_infiniband) / efficiency


def plan(name: str, measured: float, options: Options) -> list[str]:
    """The lines of one preset's table."""
    config = PRESETS[name]
    with torch.device("meta"):
        model = Transformer(config.vocab_size, config)
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    # Each token meets one of the two stacks and, on the target side, the projection; forward and backward, a product
    # with a matrix costs 6 FLOP for each of its numbers. Attention's own products are left out: under a tenth.
    stacks = sum(parameter.numel() for stack in (model.encoder, model.decoder) for parameter in stack.parameters())
    flops = 6 * (stacks + config.vocab_size * config.d_model) / 2
    speed = measured or options.share * PEAK / flops
    tokens = 2 * config.batch_tokens  # of a process's batch, on both sides
    step = tokens / speed
    source = "measured" if measured else f"assumed: {options.share:.0%} of {PEAK / 1e12:,.0f} TFLOP/s"
    sizes = f"{n_parameters:,} parameters, {tokens:,} tokens a process and step"
    lines = [f"{name}: {sizes}, {speed:,.0f} tokens/s ({source})"]
    for gpus in options.gpus:
        exchange = exchange_seconds(4 * n_parameters, gpus, options.efficiency)
        hidden = step + max(0.0, exchange - step * 2 / 3)
        rates = [gpus * tokens / seconds for seconds in (hidden, step + exchange)]
        shares = [rate / (gpus * speed) for rate in rates]
        lines.append(
            f"{gpus:>6} {1000 * step:>10.1f} {1000 * exchange:>10.1f} {rates[0]:>14,.0f} {shares[0]:>7.0%} "
            f"{rates[1]:>14,.0f} {shares[1]:>7.0%}"
        )
    return lines


def main(options: Options) -> Sequence[str]:
    head = f"{'GPUs':>6} {'step, ms':>10} {'exch., ms':>10} {'hidden, tok/s':>14} {'':>7} {'in line, tok/s':>14}"
    (base, *rows), (big, *more) = plan("base", options.base, options), plan("big", options.big, options)
    return [base, head, *rows, "", big, head, *more]


if __name__ == "__main__":
    print("\n".join(main(tyro.cli(Options))))
