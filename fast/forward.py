"""The forward pass of a training step, on packed batches: the fast form of `training.objective.BatchLoss`.

`PackedBatchLoss` replaces

    logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    label_smoothed_cross_entropy(logits, batch.labels, smoothing)

It is the same stack of blocks, function by function as in model.py, with five differences. Vectors are packed, (N, D),
except inside attention. A tensor that several matrix products read is converted to autocast's type once. Attention is
torch's fused operation on CUDA. The maximum of the feed-forward block is taken in place. The projection is part of the
loss (fast/loss.py).
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from config import PAD
from fast.loss import projected_cross_entropy
from fast.packing import PackedBatch, Packing
from model import (
    Decoder,
    Encoder,
    FeedForwardBlock,
    MultiHeadAttentionBlock,
    Transformer,
    scaled_dot_product_attention,
)
from system.terminal import say

Part: TypeAlias = Any  # a module of a ModuleList, whose type no type checker knows


def to_autocast_dtype(x: Tensor) -> Tensor:
    """Converts x to the type of autocast where that is on; autocast would convert it for each product that reads x."""
    return x.to(torch.get_autocast_dtype(x.device.type)) if torch.is_autocast_enabled(x.device.type) else x


def fused_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Replaces `scaled_dot_product_attention`: on CUDA, without the (T, S) matrix in memory.

    On a CPU and for sentences of tens of tokens the plain formula is the faster of the two, above all backward.
    """
    if query.is_cuda:
        return F.scaled_dot_product_attention(query, key, value, mask)
    return scaled_dot_product_attention(query, key, value, mask)


def disable_cudnn_attention() -> None:
    """Turns cuDNN's attention off for this process; torch then uses another fused kernel.

    On recent GPUs torch prefers cuDNN when there is a mask. cuDNN plans each new shape (B, T, S), reportedly for half a
    second on a B200 (modelscope/FunASR, issue 3704), and batches have thousands of shapes.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)


def attention(
    block: MultiHeadAttentionBlock, q: Tensor, k: Tensor, mask: Tensor, q_packing: Packing, k_packing: Packing
) -> Tensor:
    """`MultiHeadAttentionBlock.forward` on packed rows, with k for the values too: q (N, D), k (M, D) → (N, D)."""
    query = q_packing.to_heads(block.w_q(q), block.n_heads)  # (B, H, T, K)
    key = k_packing.to_heads(block.w_k(k), block.n_heads)  # (B, H, S, K)
    value = k_packing.to_heads(block.w_v(k), block.n_heads)
    x = fused_attention(query, key, value, mask)  # (B, H, T, K)
    return block.w_o(q_packing.from_heads(x))


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


def encoder_block(block: Part, x: Tensor, src_mask: Tensor, src: Packing) -> Tensor:
    """`EncoderBlock.forward` on packed rows (N, D)."""
    y = into_sublayer(block.residuals[0], x)
    x = out_of_sublayer(block.residuals[0], x, attention(block.self_attention, y, y, src_mask, src, src))
    y = into_sublayer(block.residuals[1], x)
    return out_of_sublayer(block.residuals[1], x, feed_forward(block.feed_forward, y))


def encoder_stack(encoder: Encoder, x: Tensor, src_mask: Tensor, src: Packing) -> Tensor:
    """`Encoder.forward` on packed rows (N, D)."""
    for block in encoder.blocks:
        x = encoder_block(block, x, src_mask, src)
    return encoder.norm(x)


def decoder_block(
    block: Part, x: Tensor, memory: Tensor, src_mask: Tensor, tgt_mask: Tensor, tgt: Packing, src: Packing
) -> Tensor:
    """`DecoderBlock.forward` on packed rows, x (N, D) and memory (M, D)."""
    y = into_sublayer(block.residuals[0], x)
    x = out_of_sublayer(block.residuals[0], x, attention(block.self_attention, y, y, tgt_mask, tgt, tgt))
    y = into_sublayer(block.residuals[1], x)
    x = out_of_sublayer(block.residuals[1], x, attention(block.cross_attention, y, memory, src_mask, tgt, src))
    y = into_sublayer(block.residuals[2], x)
    return out_of_sublayer(block.residuals[2], x, feed_forward(block.feed_forward, y))


def decoder_stack(
    decoder: Decoder, x: Tensor, memory: Tensor, src_mask: Tensor, tgt_mask: Tensor, tgt: Packing, src: Packing
) -> Tensor:
    """`Decoder.forward` on packed rows, x (N, D) and memory (M, D)."""
    for block in decoder.blocks:
        x = decoder_block(block, x, memory, src_mask, tgt_mask, tgt, src)
    return decoder.norm(x)


class Compiled:
    """Replaces a function by its compiled form. If torch cannot compile it, prints a warning and calls it as it is.

    torch compiles at the first call. Its own fallback, suppress_errors, prints nothing: training would be slow without
    a reason given. An error in compiling the backward pass is still raised.
    """

    def __init__(self, function: Callable[..., Tensor], backend: str | Callable[..., Any]) -> None:
        self.function = function
        self.compiled: Callable[..., Tensor] = torch.compile(function, dynamic=True, backend=backend)

    def __call__(self, *args: Any) -> Tensor:
        from torch._dynamo.exc import TorchDynamoException  # noqa: PLC0415 - it takes a second

        try:
            return self.compiled(*args)
        except TorchDynamoException as error:
            cause = " ".join(str(error).split("\n")[:2]).strip()  # "backend='inductor' raised:" and the error
        say(f"warning   training is slower: torch could not compile {self.function.__name__}: {cause}")
        self.compiled = self.function
        return self.function(*args)


class PackedBatchLoss(nn.Module):
    """A model and its loss as one module, for packed batches. Processes that share a training wrap it."""

    def __init__(self, model: Transformer, smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.is_compiled = False
        self.encoder_stack: Any = encoder_stack
        self.decoder_stack: Any = decoder_stack

    def compile_stacks(self, backend: str | Callable[..., Any]) -> None:
        """Fuses the operations of the two stacks, once for all shapes: a new shape is no reason to compile again."""
        self.is_compiled = True
        self.encoder_stack = Compiled(encoder_stack, backend)
        self.decoder_stack = Compiled(decoder_stack, backend)

    def encode(self, packed: PackedBatch) -> Tensor:
        """The rows of memory (M, D). Replaces `model.encode(batch.src, batch.src_mask)`."""
        model, batch = self.model, packed.batch
        x = packed.src.pack(model.src_position(model.src_embed(batch.src)))
        stack = self.encoder_stack if len(batch.src) > 1 else encoder_stack  # torch specializes on size 1
        return to_autocast_dtype(stack(model.encoder, x, batch.src_mask, packed.src))

    def decode(self, packed: PackedBatch, memory: Tensor) -> Tensor:
        """The rows of vectors (N, D). Replaces `model.decode(batch.tgt, memory, batch.src_mask, batch.tgt_mask)`."""
        model, batch = self.model, packed.batch
        x = packed.tgt.pack(model.tgt_position(model.tgt_embed(batch.tgt)))
        stack = self.decoder_stack if len(batch.tgt) > 1 else decoder_stack
        return stack(model.decoder, x, memory, batch.src_mask, batch.tgt_mask, packed.tgt, packed.src)

    def forward(self, packed: PackedBatch) -> tuple[Tensor, Tensor]:
        """The loss to minimize and the cross-entropy without smoothing, both summed over the target tokens, in nats."""
        vectors = self.decode(packed, self.encode(packed))
        labels = packed.batch.labels.flatten()[packed.tgt.position_of_row]  # (N)
        labels[packed.tgt.n_tokens :] = PAD
        weight = self.model.projection.linear.weight
        return projected_cross_entropy(to_autocast_dtype(vectors), weight, labels, self.smoothing)
