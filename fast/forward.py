"""A training step on packed batches, up to its loss: the fast form of `training.objective.BatchLoss`.

`PackedBatchLoss` replaces

    logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    label_smoothed_cross_entropy(logits, batch.labels, smoothing, taught)

The blocks are those of model.py. Their rows are packed, (N, D), without padding, and attend by the forms of
fast/attention.py. The projection is part of the loss (fast/loss.py). On a GPU, long runs compile the stacks of blocks.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fast.attention import RangeLayout, to_autocast_dtype
from fast.loss import Lesson, projected_cross_entropy
from fast.packed_batch import PackedBatch
from model import Transformer
from tapis.system.terminal import say


class Compiled:
    """Replaces a function by its compiled form. If torch cannot compile it, prints a warning and calls it as it is.

    torch compiles at the first call. Its own fallback, suppress_errors, prints nothing: training would be slow without
    a reason given. An error in compiling the backward pass is still raised.
    """

    def __init__(self, function: Callable[..., Any], backend: str | Callable[..., Any]) -> None:
        self.function = function
        # Rows of sources and of targets are often as many, and often not.
        torch.fx.experimental._config.use_duck_shape = False
        self.compiled: Callable[..., Any] = torch.compile(function, dynamic=True, backend=backend)

    def __call__(self, *args: Any) -> Any:
        from torch._dynamo.exc import TorchDynamoException  # noqa: PLC0415 - it takes a second

        try:
            return self.compiled(*args)
        except TorchDynamoException as error:
            cause = " ".join(str(error).split("\n")[:2]).strip()  # "backend='inductor' raised:" and the error
        say(f"warning   training is slower: torch could not compile {self.function.__name__}: {cause}")
        self.compiled = self.function
        return self.function(*args)


def run_stack(stack: nn.Module, *args: Any) -> Tensor:
    """Run `Encoder.forward` or `Decoder.forward`."""
    return stack(*args)


class PackedBatchLoss(nn.Module):
    """A model and its loss as one module, for packed batches. Processes that share a run wrap it."""

    def __init__(self, model: Transformer, smoothing: float, teachers: Sequence[Transformer] = ()) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.teachers = tuple(teachers)  # not parts of the module: their weights are neither trained nor saved
        self.is_compiled = False
        self.run_stack: Callable[..., Tensor] = run_stack

    def compile_parts(self, backend: str | Callable[..., Any]) -> None:
        """Fuse the operations of the two stacks, once for all shapes, of the model and of each teacher."""
        self.is_compiled = True
        config = torch._dynamo.config
        config.recompile_limit = max(config.recompile_limit, 4 * (1 + len(self.teachers)))
        self.run_stack = Compiled(run_stack, backend)

    def vectors(self, model: Transformer, packed: PackedBatch) -> Tensor:
        """Return the rows (N, D) to be projected. Replaces `model.encode` and `model.decode`."""
        layout = packed.layout
        run = run_stack if layout.has_size_one else self.run_stack
        x = model.src_position(model.src_embed(packed.src), packed.src_positions, packed.longest)
        memory = to_autocast_dtype(run(model.encoder, x, layout.encoder))  # (M, D)
        x = model.tgt_position(model.tgt_embed(packed.tgt), packed.tgt_positions, packed.longest)
        return to_autocast_dtype(run(model.decoder, x, memory, layout.decoder, layout.source))

    def forward(self, packed: PackedBatch) -> tuple[Tensor, Tensor]:
        """The loss to minimize and the cross-entropy without smoothing, both summed over the target tokens, in nats."""
        weight = self.model.projection.linear.weight
        on_gpu = isinstance(packed.layout, RangeLayout)
        vectors = self.vectors(self.model, packed)
        lessons = self.lessons(packed) if self.model.training else []
        return projected_cross_entropy(vectors, weight, packed.labels, self.smoothing, on_gpu, lessons)

    def lessons(self, packed: PackedBatch) -> list[Lesson]:
        """Return of each teacher what its probabilities are computed from."""
        with torch.no_grad():
            rows = [self.vectors(teacher, packed) for teacher in self.teachers]
        matrices = [teacher.projection.linear.weight.detach() for teacher in self.teachers]
        return [(row, matrix.to(row.dtype)) for row, matrix in zip(rows, matrices, strict=True)]
