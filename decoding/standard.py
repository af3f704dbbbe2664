"""The model that the engine and the exports compute, and whether model.py computes the same.

Both implement one model: the paper's, in either order of normalization. `Standard` computes it with torch's own
functions. `nonstandard_part` compares its logits with those of model.py on a few sentences.
"""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from checkpoint import parameters
from dataset import Batch, collate
from model import (
    FeedForwardBlock,
    InputEmbeddings,
    LayerNormalization,
    MultiHeadAttentionBlock,
    PositionalEncoding,
    ProjectionLayer,
    ResidualConnection,
    Transformer,
)
from tapis.config import EOS, PAD, ConfigError, ModelConfig
from tapis.engine.engine import EPSILON
from tapis.engine.weights import sinusoids, weight_shapes

LENGTHS = (1, 6, 50)  # of the sentences compared, or less
TOLERANCE = 1e-3  # of the largest number


class Standard:
    """The paper's model, computed with torch's functions.

    `name` is the common start of the names of a part's weights. Letters in shapes are those of model.py.
    """

    def __init__(self, weights: dict[str, Tensor], config: ModelConfig) -> None:
        """Take the weights by name, on the CPU; a tied matrix has one name."""
        self.weights = weights
        self.config = config

    def embedding(self, name: str, ids: Tensor) -> Tensor:
        """(B, T) → (B, T, D)."""
        tied_name = "src_embed" if self.config.tie_embeddings else name
        return F.embedding(ids, self.weights[f"{tied_name}.embedding.weight"]) * self.config.d_model**0.5

    def position(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        return x + torch.from_numpy(sinusoids(x.size(1), self.config.d_model))

    def norm(self, name: str, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        alpha, bias = self.weights[f"{name}.alpha"], self.weights[f"{name}.bias"]
        return F.layer_norm(x, alpha.shape, alpha, bias, EPSILON)

    def linear(self, name: str, x: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        return F.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def attention(self, name: str, memory: Tensor | None, mask: Tensor, x: Tensor) -> Tensor:
        """x (B, T, D), memory (B, S, D) or None for x, mask that broadcasts to (B, H, T, S) → (B, T, D)."""
        memory = x if memory is None else memory
        query, key, value = (
            self.linear(f"{name}.w_{letter}", rows).view(*rows.shape[:2], self.config.n_heads, -1).transpose(1, 2)
            for letter, rows in (("q", x), ("k", memory), ("v", memory))
        )  # (B, H, T, K) or (B, H, S, K)
        heads = F.scaled_dot_product_attention(query, key, value, mask)
        return self.linear(f"{name}.w_o", heads.transpose(1, 2).flatten(2))

    def feed_forward(self, name: str, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        return self.linear(f"{name}.linear_2", F.relu(self.linear(f"{name}.linear_1", x)))

    def projection(self, name: str, x: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        tied_name = "src_embed.embedding" if self.config.tie_embeddings else f"{name}.linear"
        return self.linear(tied_name, x)

    def residual(self, name: str, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(…, D) → (…, D)."""
        if self.config.norm == "pre":
            return x + sublayer(self.norm(f"{name}.norm", x))
        return self.norm(f"{name}.norm", x + sublayer(x))

    def end(self, name: str, x: Tensor) -> Tensor:
        """Normalize what leaves a stack, (…, D), with pre-norm."""
        return self.norm(f"{name}.norm", x) if self.config.norm == "pre" else x

    def logits(self, batch: Batch) -> Tensor:
        """Return the logits of the next token at each target position, (B, T, V)."""
        memory = self.position(self.embedding("src_embed", batch.src))
        for i in range(self.config.n_encoder_layers):
            block = f"encoder.blocks.{i}"
            sublayers = [
                partial(self.attention, f"{block}.self_attention", None, batch.src_mask),
                partial(self.feed_forward, f"{block}.feed_forward"),
            ]
            memory = self.block(block, memory, sublayers)
        memory = self.end("encoder", memory)

        x = self.position(self.embedding("tgt_embed", batch.tgt))
        for i in range(self.config.n_decoder_layers):
            block = f"decoder.blocks.{i}"
            sublayers = [
                partial(self.attention, f"{block}.self_attention", None, batch.tgt_mask),
                partial(self.attention, f"{block}.cross_attention", memory, batch.src_mask),
                partial(self.feed_forward, f"{block}.feed_forward"),
            ]
            x = self.block(block, x, sublayers)
        return self.projection("projection", self.end("decoder", x))

    def block(self, name: str, x: Tensor, sublayers: Sequence[Callable[[Tensor], Tensor]]) -> Tensor:
        """(…, D) → (…, D), by each sublayer in a residual connection."""
        for i, sublayer in enumerate(sublayers):
            x = self.residual(f"{name}.residuals.{i}", x, sublayer)
        return x


@torch.no_grad()
def nonstandard_part(model: Transformer) -> str:
    """Return the class or the weight of a model in which it differs from `Standard`; "" if it does not differ.

    The model is in evaluation mode, on any device. It is compared in fp32, on the CPU.
    """
    config = model.config
    weights = parameters(model)
    n_tokens = len(model.src_embed.embedding.weight)
    expected = weight_shapes(config, n_tokens)
    if others := sorted({name: tuple(weight.shape) for name, weight in weights.items()}.items() ^ expected.items()):
        return f"the weight {others[0][0]}"

    # Compare the whole.
    if next(iter(weights.values())).device.type != "cpu":
        model = copy.deepcopy(model).cpu()
    standard = Standard(parameters(model), config)
    batch = probe(n_tokens, config.max_length)
    calls: list[tuple[str, nn.Module, tuple[Any, ...], Tensor]] = []
    hooks = [
        module.register_forward_hook(lambda module, args, output, name=name: calls.append((name, module, args, output)))
        for name, module in model.named_modules()
    ]
    try:
        logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    finally:
        for hook in hooks:
            hook.remove()
    is_token = batch.labels != PAD
    if is_near(logits[is_token], standard.logits(batch)[is_token]):
        return ""

    # Find the part: the first that computes something else of what it was given.
    for name, module, args, output in calls:
        expect = part_of(standard, module)
        if expect and not is_near(output, expect(name, args)):
            return type(module).__name__
    return "Transformer"


def check_standard(model: Transformer, recorded: str | None, program: str) -> None:
    """Raise ConfigError if a program cannot compute the model that its weights were trained for.

    recorded is what `RunFolder.nonstandard_part` returns. Where that is None, the model is compared.
    """
    if part := nonstandard_part(model) if recorded is None else recorded:
        raise ConfigError(
            f"{program} implements the paper's model alone, and this run was trained with an edited model.py: "
            f"it cannot express {part}"
        )


def probe(n_tokens: int, max_length: int) -> Batch:
    """Return a few pairs of sentences of random ids."""
    random = np.random.default_rng(1)
    sides = [[random.integers(EOS + 1, n_tokens, min(n, max_length)) for n in LENGTHS] for _ in range(2)]
    return collate(sides[0], sides[1][::-1])


def is_near(found: Tensor, expected: Tensor) -> bool:
    """Return whether numbers are the same within rounding. Where none are expected, all are."""
    if found.shape != expected.shape:
        return False
    if not expected.isfinite().all():
        return True
    return bool((found - expected).abs().max() <= TOLERANCE * expected.abs().max())


def part_of(standard: Standard, module: nn.Module) -> Callable[[str, tuple[Any, ...]], Tensor] | None:
    """Return what a module should compute of its name and arguments; None for those that consist of others."""
    kinds: list[tuple[type[nn.Module], Callable[[str, tuple[Any, ...]], Tensor]]] = [
        (InputEmbeddings, lambda name, args: standard.embedding(name, args[0])),
        (PositionalEncoding, lambda name, args: standard.position(args[0])),
        (LayerNormalization, lambda name, args: standard.norm(name, args[0])),
        (MultiHeadAttentionBlock, lambda name, args: standard.attention(name, args[1], args[2].mask, args[0])),
        (FeedForwardBlock, lambda name, args: standard.feed_forward(name, args[0])),
        (ResidualConnection, lambda name, args: standard.residual(name, *args)),
        (ProjectionLayer, lambda name, args: standard.projection(name, args[0])),
    ]
    return next((compute for kind, compute in kinds if isinstance(module, kind)), None)
