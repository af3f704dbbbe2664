"""Training steps as CUDA graphs: the host launches one graph where it would launch hundreds of kernels.

A small model's kernels take microseconds each, less than the host takes to launch one. `CapturedSteps` replaces these
lines of train.py, for batches without padding and a single process:

    loss, cross_entropy = objective(batch)
    (loss / n_tgt).backward()
    clip_gradient()
    step_optimizers()

There is one graph for each shape of a batch, up to its gradient, and one for the update of the weights. A graph works
on tensors at fixed addresses, and nothing in it may wait for the host: a batch is copied to where its graph reads it,
and the learning rate is a tensor. The host reads the numbers of a step when it likes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fast.forward import PackedBatchLoss
from fast.packed_batch import PackedBatch, Shape
from machine.devices import autocast
from tapis.config import Precision
from tapis.system.terminal import in_one_line, say


class Graphs:
    """CUDA graphs that share their memory, since one is replayed at a time."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()
        self.is_broken = False  # a capture has failed

    def capture(self, work: Callable[[], None]) -> "torch.cuda.CUDAGraph | None":
        """Return the graph of `work`, which does not run. None, after a warning, if it cannot be captured."""
        graph = torch.cuda.CUDAGraph()
        try:
            # Another thread, which prepares batches, may allocate pinned memory at the same time.
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
                work()
        except RuntimeError as error:
            self.is_broken = True
            say(f"warning   training is slower: a step could not be captured: {in_one_line(error)[:200]}")
            return None
        return graph


class Captured:
    """Replaces a function that works on tensors at fixed addresses: from its second call on, by one launch.

    The first call runs as it is, and so makes what is made once: memory, the state of an optimizer, compiled kernels.
    """

    def __init__(self, work: Callable[[], None], graphs: Graphs) -> None:
        self.work = work
        self.graphs = graphs
        self.graph: torch.cuda.CUDAGraph | None = None
        self.has_run = False

    def __call__(self) -> None:
        if self.graph is None and self.has_run and not self.graphs.is_broken:
            self.graph = self.graphs.capture(self.work)
        if self.graph is not None:
            self.graph.replay()
            return
        self.has_run = True
        # Where it will be captured: gradients are added up on the stream on which they were first needed.
        self.graphs.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.graphs.stream):
            self.work()
        torch.cuda.current_stream().wait_stream(self.graphs.stream)


@dataclass(frozen=True)
class StaticBatch:
    """A shape of batches at a fixed address, and what adds the gradient of the batch that is there."""

    flat: Tensor
    """`PackedBatch.flat`, on the GPU"""
    add_gradient: Captured


class LateNumbers:
    """Numbers on their way from the GPU: `tolist` waits for them."""

    def __init__(self, numbers: Tensor) -> None:
        self.numbers = torch.empty(numbers.shape, dtype=numbers.dtype).pin_memory()
        self.numbers.copy_(numbers, non_blocking=True)
        self.event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.event.record()

    def tolist(self) -> list[float]:
        """Return the numbers, when they have come."""
        self.event.synchronize()
        values: list[float] = self.numbers.tolist()
        return values


class CapturedSteps:
    """The gradient and the update of a step, as graphs. `Training` has one where it can."""

    def __init__(
        self,
        objective: PackedBatchLoss,
        optimizers: Sequence[torch.optim.Optimizer],
        precision: Precision,
        clip_norm: float,
    ) -> None:
        """clip_norm: 0 to leave the gradient as it is."""
        self.objective = objective
        self.optimizers = optimizers
        self.precision = precision
        self.clip_norm = clip_norm

        # The gradients lie in one array, those of a part of the model side by side.
        named = list(objective.model.named_parameters())
        self.device = named[0][1].device
        self.gradient = torch.zeros(sum(weight.numel() for _, weight in named), device=self.device)
        self.size_of_part: dict[str, int] = {}
        for (name, weight), values in zip(
            named, torch.split(self.gradient, [weight.numel() for _, weight in named]), strict=True
        ):
            weight.grad = values.view_as(weight)
            part = name.partition(".")[0]
            self.size_of_part[part] = self.size_of_part.get(part, 0) + weight.numel()

        # What goes into the graphs and comes out of them.
        self.share = torch.zeros((), device=self.device)  # by which the losses of a batch are multiplied
        self.losses = torch.zeros(2, device=self.device)  # of the batches of a step so far
        self.lr = torch.zeros((), device=self.device)
        self.found_inf = torch.zeros((), device=self.device)  # 1 from the first step on that was not finite
        self.numbers = torch.zeros(3 + len(self.size_of_part), device=self.device)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Drop all graphs: tensors that they work on have been replaced, or other functions compute the loss."""
        self.graphs = Graphs()
        self.static_batches: dict[Shape, StaticBatch] = {}
        self.update_weights = Captured(self._update_weights, self.graphs)
        self.found_inf.zero_()

    def add_gradient(self, batch: PackedBatch, share: float) -> None:
        """Add the gradient of a batch's loss, multiplied by a share, and its losses. The host does not wait."""
        static = self.static_batches.get(batch.shape)
        if static is None:
            static = self.static_batches[batch.shape] = self._static_batch(batch)
        static.flat.copy_(batch.flat, non_blocking=True)
        self.share.fill_(share)
        static.add_gradient()

    def update(self, lr: float) -> LateNumbers:
        """Clip the gradient, step the optimizers and begin the next step. The host does not wait.

        Returns the loss, the cross-entropy, the norm of the gradient before clipping and those of the parts of the
        model. If one is not finite, neither this step nor any later one changes the weights.
        """
        self.lr.fill_(lr)
        self.update_weights()
        return LateNumbers(self.numbers)

    def _static_batch(self, batch: PackedBatch) -> StaticBatch:
        flat = torch.zeros_like(batch.flat, device=self.device)
        on_gpu = batch.read_from(flat)
        # A longer sentence replaces these tables; the graph goes on with those that it knows.
        tables = [position.table for position in (self.objective.model.src_position, self.objective.model.tgt_position)]

        def add_gradient(_: object = tables) -> None:
            with autocast(self.device, self.precision):
                losses = self.objective(on_gpu())
            (losses[0] * self.share).backward()
            self.losses += torch.stack(losses).detach()

        return StaticBatch(flat, Captured(add_gradient, self.graphs))

    def _update_weights(self) -> None:
        # Measure the gradient, and note if it is not finite.
        parts = torch.split(self.gradient, list(self.size_of_part.values()))
        norms = torch.stack([torch.linalg.vector_norm(part) for part in parts])
        total = norms.norm()
        self.numbers.copy_(torch.cat([self.losses, total[None], norms]))
        is_finite = self.numbers.isfinite().all()
        self.found_inf.copy_(torch.maximum(self.found_inf, (~is_finite).float()))

        # Clip it.
        if self.clip_norm:
            self.gradient *= (self.clip_norm / (total + 1e-6)).clamp(max=1.0)

        # Step the optimizers. Their state keeps the rate as a number.
        for optimizer in self.optimizers:
            optimizer.found_inf = self.found_inf  # type: ignore[attr-defined] # as GradScaler passes it
            (group,) = optimizer.param_groups
            group["lr"], before = self.lr, group["lr"]
            optimizer.step()
            group["lr"] = before

        # Begin the next step.
        self.gradient.zero_()
        self.losses.zero_()
