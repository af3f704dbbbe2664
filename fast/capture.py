"""Training steps as CUDA graphs (fast/graphs.py).

A small model's kernels take microseconds each, less than the host takes to launch one. `CapturedSteps` replaces these
lines of train.py, for batches without padding and a single process:

    loss, cross_entropy = objective(batch)
    (loss / n_tgt).backward()
    clip_gradient()
    step_optimizers()

There is one graph for each shape of a batch, up to its gradient, and one for the update of the weights. A batch is
copied to where its graph reads it, and the learning rate is a tensor. The host reads the numbers of a step late.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fast.forward import PackedBatchLoss
from fast.graphs import GraphPool, Replayed
from fast.packed_batch import PackedBatch, Shape
from machine.devices import autocast
from tapis.config import Precision


@dataclass
class StaticBatch:
    """A shape of batches at a fixed address, and what its graph needs."""

    flat: Tensor
    """`PackedBatch.flat`, on the GPU"""
    read: Callable[[], PackedBatch]
    """Returns the batch that is in `flat`"""
    replayed: Replayed
    tables: tuple[Tensor, ...] = ()
    """Of positions, as captured; a longer sentence replaces those of the model, and the graph goes on with these"""


class LateNumbers:
    """Numbers on their way from the GPU: `tolist` waits for them, once, and frees what they came through."""

    def __init__(self, numbers: Tensor) -> None:
        self.pinned = torch.empty(numbers.shape, dtype=numbers.dtype).pin_memory()
        self.pinned.copy_(numbers, non_blocking=True)
        self.event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.event.record()
        self.values: list[float] = []

    def tolist(self) -> list[float]:
        """Return the numbers, when they have come."""
        if not self.values:
            self.event.synchronize()
            self.values = self.pinned.tolist()
            del self.pinned, self.event
        return self.values


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
        self.pool = GraphPool(self.device, "training")
        self.static_batches: dict[Shape, StaticBatch] = {}
        self.replayed_update = Replayed(self.pool)
        self.found_inf.zero_()
        torch.cuda.empty_cache()  # a capture cannot free the memory of the dropped graphs

    def add_gradient(self, batch: PackedBatch, share: float) -> None:
        """Add the gradient of a batch's loss, multiplied by a share, and its losses. The host does not wait."""
        static = self.static_batches.get(batch.shape)
        if static is None:
            static = self.static_batches[batch.shape] = self._static_batch(batch)
        static.flat.copy_(batch.flat, non_blocking=True)
        self.share.fill_(share)
        static.replayed(lambda: self._add_gradient(static))

    def update(self, lr: float) -> LateNumbers:
        """Clip the gradient, step the optimizers and begin the next step. The host does not wait.

        Returns the loss, the cross-entropy, the norm of the gradient before clipping and those of the parts of the
        model. If one is not finite, neither this step nor any later one changes the weights.
        """
        self.lr.fill_(lr)
        self.replayed_update(self._update_weights)
        return LateNumbers(self.numbers)

    def _static_batch(self, batch: PackedBatch) -> StaticBatch:
        model = self.objective.model
        flat = torch.zeros_like(batch.flat, device=self.device)
        for positions in (model.src_position, model.tgt_position):
            positions.first(batch.longest)  # a table that is too short is replaced now, not within the graph
        return StaticBatch(flat, batch.read_from(flat), Replayed(self.pool))

    def _add_gradient(self, static: StaticBatch) -> None:
        model = self.objective.model
        static.tables = model.src_position.table, model.tgt_position.table
        with autocast(self.device, self.precision):
            losses = self.objective(static.read())
        (losses[0] * self.share).backward()
        self.losses += torch.stack(losses).detach()

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
            try:
                optimizer.step()
            finally:
                group["lr"] = before

        # Begin the next step.
        self.gradient.zero_()
        self.losses.zero_()
