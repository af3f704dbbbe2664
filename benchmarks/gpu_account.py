"""What a training step asks of a GPU, without one: its kernels, bytes, operations, and a modelled time.

    python benchmarks/gpu_account.py                 the presets base and big; needs Linux, g++ and a CPU build of torch
    python benchmarks/gpu_account.py --presets base --length 27 --details

This is a model, not a measurement. One step runs on tensors that have shapes but no data, on a device that only claims
to be a GPU (tests/gpu). Every operation that would start a kernel is recorded. The forms are

- padded: attention with padding and masks (`PaddedLayout`), on any GPU;
- ranges: attention in ranges of rows (`RangeLayout`), where there is Triton;
- compiled: the operations between two matrix products, attentions or gathers count as one kernel, which reads what it
  needs from outside and writes what is needed later. torch's compiler does about that. Each sum over rows is another.

A kernel takes the longest of its bytes at --bandwidth, its operations at --products, and 2.5 µs. By default these are
what an H200 reaches in practice by published reports: 3.9 of 4.8 TB/s, and 600 of 989 TFLOP/s in bf16. Attention counts
at a quarter of --products. "of the peak" is the share of 989 TFLOP/s.
"""

import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "gpu")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
import tyro  # noqa: E402
from simulated_gpu import GPU, build_guard, claim_gpu  # noqa: E402
from torch import Tensor  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.nn.utils import get_total_norm  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402
from torch.utils.flop_counter import flop_registry  # noqa: E402

from config import PRESETS, Config  # noqa: E402
from fast import attention  # noqa: E402
from fast.attention import RangeAttention, query_key_value  # noqa: E402
from fast.forward import PackedBatchLoss  # noqa: E402
from fast.modules import install_fast_modules  # noqa: E402
from fast.packed_batch import PackedBatch  # noqa: E402
from machine.devices import autocast  # noqa: E402
from model import Transformer  # noqa: E402
from pairs.tables import Ints  # noqa: E402
from training.optimizers import make_optimizers  # noqa: E402

PEAK = 989e12  # FLOP/s in bf16 of an H100 or H200, dense (NVIDIA data sheet)
SHORTEST = 2.5e-6  # seconds of a kernel
TILE = 64  # rows of a tile of fast/attention_kernels.py

PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}
GATHERS = {"index_select", "index", "embedding", "embedding_dense_backward", "gather"}
OWN_KERNELS = {*PRODUCTS, *GATHERS, "attention", "attention_backward"}  # what the compiler does not fuse with others
NO_KERNEL = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "device", "_unsafe_view"}


@dataclass(frozen=True)
class Options:
    """Account for a training step on a GPU."""

    presets: tuple[str, ...] = ("base", "big")
    """Presets of config.py"""
    length: int = 27
    """Tokens of the sentences, with the end token"""
    bandwidth: float = 3.9e12
    """Bytes a second"""
    products: float = 600e12
    """Operations a second of matrix products"""
    details: bool = False
    """List the kinds of kernels by their time too"""


@dataclass
class Kernel:
    """One operation on the GPU, or several that the compiler would fuse."""

    name: str
    flops: float
    reads: dict[int, int] = field(default_factory=dict)
    """Bytes by storage"""
    writes: dict[int, int] = field(default_factory=dict)
    sums_rows: bool = False
    extra: int = 0
    """Further kernels of a fused one: those of sums over rows"""

    def seconds(self, options: Options) -> float:
        """Return the modelled time."""
        rate = options.products / (4 if self.name.startswith("attention") else 1)
        n_bytes = sum(self.reads.values()) + sum(self.writes.values())
        return max(n_bytes / options.bandwidth, self.flops / rate, SHORTEST) + SHORTEST * self.extra


# Recording


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operations that would start kernels."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels: list[Kernel] = []
        self.tensors: list[Tensor] = []  # kept, so that no storage gets the number of another

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[1]
        result = func(*args, **kwargs)
        read = on_gpu((args, kwargs))
        changed = [value for value, one in zip(args, func._schema.arguments, strict=False) if is_changed(one)]
        changed += [kwargs[one.name] for one in func._schema.arguments if one.name in kwargs and is_changed(one)]
        written = on_gpu((result, changed))
        is_view = any(r.alias_info and not r.alias_info.is_write for r in func._schema.returns)
        if name in NO_KERNEL or is_view or not (read or written):
            return result
        flops = 0.0
        if func.overloadpacket in flop_registry:
            flops = flop_registry[func.overloadpacket](*args, **kwargs, out_val=result)
        elif name == "baddbmm":
            flops = 2.0 * args[1].numel() * args[2].size(-1)
        kernel = Kernel(name, flops)
        gathered = sum(map(n_bytes, written))
        for tensor in read:
            size = gathered if name in GATHERS and tensor is read[0] else n_bytes(tensor)
            kernel.reads[storage(tensor)] = max(size, kernel.reads.get(storage(tensor), 0))
        for tensor in written:
            kernel.writes[storage(tensor)] = n_bytes(tensor)
        kernel.sums_rows = name == "sum" and len(args) > 1 and 0 in args[1]
        self.kernels.append(kernel)
        self.tensors += [*read, *written]
        return result


def is_changed(argument: Any) -> bool:
    """Return whether an operation writes into this argument of its schema."""
    return bool(argument.alias_info and argument.alias_info.is_write)


def on_gpu(values: Any) -> list[Tensor]:
    """Return the tensors among values that are on the GPU."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor) and leaf.device.type == "cuda"]


def n_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor's values; those that it repeats count once."""
    sizes = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride]
    return int(np.prod(sizes, dtype=np.int64)) * tensor.element_size()


def storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


class RecordedAttention(torch.autograd.Function):
    """A fused attention: reads queries, keys and values once and writes as much as it reads of queries."""

    recorder: Recorder

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, products: int) -> Tensor:
        """products are the scores that it computes, of all heads."""
        output = torch.empty_like(query, memory_format=torch.contiguous_format)
        ctx.save_for_backward(query, key, value, output)
        ctx.products = products
        inputs = [query, key, value] if mask is None else [query, key, value, mask]
        RecordedAttention.record("attention", 4.0 * products * query.size(-1), inputs, [output])
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query, key, value, output = ctx.saved_tensors
        grads = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
        flops = 10.0 * ctx.products * query.size(-1)
        RecordedAttention.record("attention_backward", flops, [query, key, value, output, grad], list(grads))
        return *grads, None, None

    @classmethod
    def record(cls, name: str, flops: float, read: Sequence[Tensor], written: Sequence[Tensor]) -> None:
        reads: dict[int, int] = defaultdict(int)
        for tensor in read:  # queries, keys and values may be parts of one storage
            reads[storage(tensor)] += n_bytes(tensor)
        writes = {storage(tensor): n_bytes(tensor) for tensor in written}
        cls.recorder.kernels.append(Kernel(name, flops, reads, writes))
        cls.recorder.tensors += [*read, *written]


def record_padded(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """`fused_attention`. It takes a mask of numbers, which torch makes of the boolean one."""
    if mask is not None:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -1e4)
    products = query.size(0) * query.size(1) * query.size(2) * key.size(2)
    return RecordedAttention.apply(query, key, value, mask, products)  # type: ignore[no-untyped-call]


def record_ranges(self: RangeAttention, rows: Tensor, memory: Tensor | None, n_heads: int) -> Tensor:
    """`RangeAttention.attend`: a tile of rows reads the sentences that it has a part of."""
    query, key, value = (x.view(len(x), n_heads, -1) for x in query_key_value(rows, memory))  # (N, H, K)
    products = query.size(0) * n_heads * 2 * TILE
    output: Tensor = RecordedAttention.apply(query, key, value, None, products)  # type: ignore[no-untyped-call]
    return output.flatten(1)


# A step


def ids_of(config: Config, length: int) -> tuple[Sequence[Ints], Sequence[Ints]]:
    """Return the sources and the targets of a batch of the preset's size, of sentences of one or two lengths."""
    draw = np.random.default_rng(0)
    n_sentences = config.batch_tokens // length
    sources, targets = ([draw.integers(4, 1000, size=length - 1 - i % 2) for i in range(n_sentences)] for _ in range(2))
    return sources, targets


def record_step(config: Config, length: int, in_ranges: bool) -> tuple[list[Kernel], int]:
    """Return the kernels of a step that is not the first, and its tokens."""
    packed = PackedBatch.of(*ids_of(config, length), in_ranges)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device(GPU):
        model = Transformer(config.vocab_size, config)
        for position in (model.src_position, model.tgt_position):
            position.table = torch.empty(config.max_length + 2, config.d_model)
        install_fast_modules(model)
        objective = PackedBatchLoss(model, config.label_smoothing)
        optimizers = make_optimizers(model, config, config.precision)
        for _ in range(2):  # in the first, the optimizers make their state
            with Recorder() as recorder:
                RecordedAttention.recorder = recorder
                # As train.take_step does.
                with autocast(GPU, config.precision):
                    loss, _ = objective(packed.to(GPU))
                (loss / packed.n_tgt).backward()
                get_total_norm([weight.grad for weight in model.parameters() if weight.grad is not None])
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
    return recorder.kernels, packed.n_tokens


def fuse(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Merge neighbours that the compiler would fuse."""
    groups: list[list[Kernel]] = []
    for kernel in kernels:
        can_join = groups and not is_alone(kernel) and not is_alone(groups[-1][0])
        if can_join:
            groups[-1].append(kernel)
        else:
            groups.append([kernel])

    last_read: dict[int, int] = {}  # storage → the last group that reads it
    for i, group in enumerate(groups):
        for kernel in group:
            last_read.update(dict.fromkeys(kernel.reads, i))

    fused = []
    for i, group in enumerate(groups):
        if len(group) == 1:
            fused.append(group[0])
            continue
        whole = Kernel("fused", sum(kernel.flops for kernel in group), extra=sum(kernel.sums_rows for kernel in group))
        for kernel in group:
            whole.reads.update({s: size for s, size in kernel.reads.items() if s not in whole.writes})
            whole.writes.update(kernel.writes)
        whole.writes = {s: size for s, size in whole.writes.items() if last_read.get(s, 0) > i or s in whole.reads}
        fused.append(whole)
    return fused


def is_alone(kernel: Kernel) -> bool:
    """Whether the compiler fuses a kernel with no other. Optimizers are not compiled: theirs take many tensors."""
    return kernel.name in OWN_KERNELS or "_foreach" in kernel.name or "_fused" in kernel.name


# The table


def print_account(name: str, options: Options) -> None:
    """Print the forms of one preset."""
    config = replace(PRESETS[name], device="cuda", precision="bf16")
    for layout, in_ranges in ("padded", False), ("ranges", True):
        recorded, n_tokens = record_step(config, options.length, in_ranges)
        for form, kernels in (layout, recorded), (f"{layout}, compiled", fuse(recorded)):
            if form == "padded":
                print(f"\n{name}: {n_tokens:,} tokens a step")
                print(f"{'':<22} {'kernels':>8} {'GB':>7} {'TFLOP':>7} {'ms':>7} {'tokens/s':>11} {'of the peak':>12}")
            seconds = sum(kernel.seconds(options) for kernel in kernels)
            gigabytes = sum(sum(kernel.reads.values()) + sum(kernel.writes.values()) for kernel in kernels) / 1e9
            flops = sum(kernel.flops for kernel in kernels if kernel.name in OWN_KERNELS)
            n_kernels = sum(1 + kernel.extra for kernel in kernels)
            print(
                f"{form:<22} {n_kernels:>8,} {gigabytes:>7.1f} {flops / 1e12:>7.2f} {1000 * seconds:>7.1f} "
                f"{n_tokens / seconds:>11,.0f} {flops / seconds / PEAK:>12.1%}"
            )
            if options.details:
                print_details(kernels, options)


def print_details(kernels: Sequence[Kernel], options: Options) -> None:
    """Print the kinds of kernels that take the most time."""
    totals: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for kernel in kernels:
        totals[kernel.name][0] += 1 + kernel.extra
        totals[kernel.name][1] += kernel.seconds(options)
    for name, (n, seconds) in sorted(totals.items(), key=lambda item: -item[1][1])[:12]:
        print(f"    {name:<32} {n:>6,.0f} {1000 * seconds:>7.2f} ms")


@contextmanager
def recorded_attention() -> Iterator[None]:
    """While entered, both attentions are recorded instead of computed."""
    before = attention.fused_attention, RangeAttention.attend
    attention.fused_attention = record_padded
    RangeAttention.attend = record_ranges  # type: ignore[method-assign]
    try:
        yield
    finally:
        attention.fused_attention, RangeAttention.attend = before  # type: ignore[method-assign]


def main() -> None:
    options = tyro.cli(Options)
    if "TAPIS_GUARD" not in os.environ:  # start again with the library that answers for the GPU
        with tempfile.TemporaryDirectory() as folder:
            guard = str(build_guard(Path(folder)))
            environment = {**os.environ, "LD_PRELOAD": guard, "TAPIS_GUARD": guard}
            sys.exit(os.spawnve(os.P_WAIT, sys.executable, [sys.executable, *sys.argv], environment))
    claim_gpu()
    print(
        f"modelled, not measured: {options.bandwidth / 1e12:.1f} TB/s, {options.products / 1e12:,.0f} TFLOP/s in "
        f"products, bf16, sentences of {options.length} tokens, torch {torch.__version__}"
    )
    with recorded_attention():
        for name in options.presets:
            print_account(name, options)


if __name__ == "__main__":
    main()
