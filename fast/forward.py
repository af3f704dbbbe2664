"""The forward pass of a training step, on packed batches: the fast form of `training.objective.BatchLoss`.

`PackedBatchLoss` replaces

    logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    label_smoothed_cross_entropy(logits, batch.labels, smoothing)

It is the same stack of blocks, function by function as in model.py, with five differences. Vectors are packed, (N, D),
except perhaps inside attention (fast/attention.py). A tensor that several matrix products read is converted to
autocast's type once. Attention is a fused operation on CUDA. The maximum of the feed-forward block is taken in place.
The projection is part of the loss (fast/loss.py).
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from fast.attention import Attention
from fast.loss import losses_and_gradient, losses_and_gradient_in_place, projected_cross_entropy
from fast.packed_batch import PackedBatch
from model import (
    Decoder,
    Encoder,
    FeedForwardBlock,
    InputEmbeddings,
    MultiHeadAttentionBlock,
    PositionalEncoding,
    Transformer,
)
from system.terminal import say

Part: TypeAlias = Any  # a module of a ModuleList, whose type no type checker knows
RunBlock: TypeAlias = Callable[..., Tensor]  # with the arguments of encoder_block or decoder_block


def to_autocast_dtype(x: Tensor) -> Tensor:
    """Converts x to the type of autocast where that is on; autocast would convert it for each product that reads x."""
    return x.to(torch.get_autocast_dtype(x.device.type)) if torch.is_autocast_enabled(x.device.type) else x


def embed(
    embeddings: InputEmbeddings, encoding: PositionalEncoding, ids: Tensor, positions: Tensor, end: int
) -> Tensor:
    """`InputEmbeddings.forward` and `PositionalEncoding.forward`: ids (N,) at positions (N,) before end → (N, D)."""
    return encoding.dropout(embeddings(ids) + encoding.first(end)[positions])


def attention(block: MultiHeadAttentionBlock, attend: Attention, q: Tensor, memory: Tensor | None = None) -> Tensor:
    """`MultiHeadAttentionBlock.forward` on packed rows: q (N, D), to itself or to memory (M, D) → (N, D)."""
    return block.w_o(attend(block, q, memory))


def feed_forward(block: FeedForwardBlock, x: Tensor) -> Tensor:
    """`FeedForwardBlock.forward`, its maximum in place: a fortieth of a training step on a CPU."""
    return block.linear_2(block.linear_1(x).relu_())


def into_sublayer(residual: Part, x: Tensor) -> Tensor:
    """What `ResidualConnection.forward` hands to its sublayer."""
    return to_autocast_dtype(residual.norm(x) if residual.is_pre_norm else x)


def out_of_sublayer(residual: Part, x: Tensor, y: Tensor) -> Tensor:
    """What `ResidualConnection.forward` makes of x and of its sublayer's output y."""
    total = x + residual.dropout(y)
    return total if residual.is_pre_norm else residual.norm(total)


def encoder_block(block: Part, x: Tensor, attend: Attention) -> Tensor:
    """`EncoderBlock.forward` on packed rows (N, D)."""
    y = into_sublayer(block.residuals[0], x)
    x = out_of_sublayer(block.residuals[0], x, attention(block.self_attention, attend, y))
    y = into_sublayer(block.residuals[1], x)
    return out_of_sublayer(block.residuals[1], x, feed_forward(block.feed_forward, y))


def encoder_stack(encoder: Encoder, x: Tensor, attend: Attention, run: RunBlock = encoder_block) -> Tensor:
    """`Encoder.forward` on packed rows (N, D). run computes a block."""
    for block in encoder.blocks:
        x = run(block, x, attend)
    return encoder.norm(x)


def decoder_block(block: Part, x: Tensor, memory: Tensor, attend: Attention, attend_to_source: Attention) -> Tensor:
    """`DecoderBlock.forward` on packed rows, x (N, D) and memory (M, D)."""
    y = into_sublayer(block.residuals[0], x)
    x = out_of_sublayer(block.residuals[0], x, attention(block.self_attention, attend, y))
    y = into_sublayer(block.residuals[1], x)
    x = out_of_sublayer(block.residuals[1], x, attention(block.cross_attention, attend_to_source, y, memory))
    y = into_sublayer(block.residuals[2], x)
    return out_of_sublayer(block.residuals[2], x, feed_forward(block.feed_forward, y))


def decoder_stack(
    decoder: Decoder,
    x: Tensor,
    memory: Tensor,
    attend: Attention,
    attend_to_source: Attention,
    run: RunBlock = decoder_block,
) -> Tensor:
    """`Decoder.forward` on packed rows, x (N, D) and memory (M, D). run computes a block."""
    for block in decoder.blocks:
        x = run(block, x, memory, attend, attend_to_source)
    return decoder.norm(x)


class Compiled:
    """Replaces a function by its compiled form. If torch cannot compile it, prints a warning and calls it as it is.

    torch compiles at the first call. Its own fallback, suppress_errors, prints nothing: training would be slow without
    a reason given. An error in compiling the backward pass is still raised.
    """

    def __init__(self, function: Callable[..., Any], backend: str | Callable[..., Any]) -> None:
        self.function = function
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


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind its compiled form, or the function itself."""
    return function.function if isinstance(function, Compiled) else function


class PackedBatchLoss(nn.Module):
    """A model and its loss as one module, for packed batches. Processes that share a training wrap it."""

    def __init__(self, model: Transformer, smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.is_compiled = False
        self.encoder_stack: Any = encoder_stack
        self.decoder_stack: Any = decoder_stack
        self.losses_and_gradient: Any = losses_and_gradient_in_place

    def compile_parts(self, backend: str | Callable[..., Any]) -> None:
        """Fuses the operations of the two stacks and of the loss, once for all shapes."""
        self.is_compiled = True
        self.encoder_stack = Compiled(encoder_stack, backend)
        self.decoder_stack = Compiled(decoder_stack, backend)
        self.losses_and_gradient = Compiled(losses_and_gradient, backend)

    def encode(self, packed: PackedBatch) -> Tensor:
        """The rows of memory (M, D). Replaces `model.encode(batch.src, batch.src_mask)`."""
        model, layout = self.model, packed.layout
        x = embed(model.src_embed, model.src_position, packed.src, packed.src_positions, packed.longest)
        stack = uncompiled(self.encoder_stack) if layout.has_size_one else self.encoder_stack
        return to_autocast_dtype(stack(model.encoder, x, layout.encoder))

    def decode(self, packed: PackedBatch, memory: Tensor) -> Tensor:
        """The rows of vectors (N, D). Replaces `model.decode(batch.tgt, memory, batch.src_mask, batch.tgt_mask)`."""
        model, layout = self.model, packed.layout
        x = embed(model.tgt_embed, model.tgt_position, packed.tgt, packed.tgt_positions, packed.longest)
        stack = uncompiled(self.decoder_stack) if layout.has_size_one else self.decoder_stack
        return stack(model.decoder, x, memory, layout.decoder, layout.source)

    def forward(self, packed: PackedBatch) -> tuple[Tensor, Tensor]:
        """The loss to minimize and the cross-entropy without smoothing, both summed over the target tokens, in nats."""
        vectors = to_autocast_dtype(self.decode(packed, self.encode(packed)))
        weight = self.model.projection.linear.weight
        return projected_cross_entropy(vectors, weight, packed.labels, self.smoothing, self.losses_and_gradient)
