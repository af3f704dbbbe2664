"""The weights of a model: their names and shapes, and the forms in which engine.c reads them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tapis.config import ConfigError, ModelConfig

Floats = NDArray[np.float32]
Scalar = TypeVar("Scalar", bound=np.generic)
PANEL = 32  # columns of packed weights that lie side by side
FOURS = np.array([[1, 0], [1, 0], [0, 1], [0, 1]] * 2, np.float32)  # sums of four of eight entries
DEPTH = 8  # numbers of a column of packed weights: a multiple of it


def weight_shapes(config: ModelConfig, n_tokens: int) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the weights of a model with a vocabulary of so many tokens."""
    d, d_ff = config.d_model, config.d_ff
    shapes: dict[str, tuple[int, ...]] = {"src_embed.embedding.weight": (n_tokens, d)}
    if not config.tie_embeddings:
        shapes |= {"tgt_embed.embedding.weight": (n_tokens, d), "projection.linear.weight": (n_tokens, d)}
    norms = []
    for stack, n, attentions in (
        ("encoder", config.n_encoder_layers, ["self_attention"]),
        ("decoder", config.n_decoder_layers, ["self_attention", "cross_attention"]),
    ):
        if config.norm == "pre":
            norms.append(f"{stack}.norm")
        for i in range(n):
            block = f"{stack}.blocks.{i}"
            shapes |= {f"{block}.{attention}.w_{x}.weight": (d, d) for attention in attentions for x in "qkvo"}
            for layer, shape in (("linear_1", (d_ff, d)), ("linear_2", (d, d_ff))):
                name = f"{block}.feed_forward.{layer}"
                shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
            norms += [f"{block}.residuals.{j}.norm" for j in range(len(attentions) + 1)]
    return shapes | {f"{norm}.{part}": (d,) for norm in norms for part in ("alpha", "bias")}


@dataclass(frozen=True)
class BlockNames:
    """The names of a block's parts, in the order of `struct block` of engine.c; empty where a block has none."""

    norms: list[str]
    linears: list[list[str]]
    """Layers that read the same vectors are one"""


def block_names(stack: str, i: int) -> BlockNames:
    """Return the names of the parts of a block; stack is "encoder" or "decoder"."""
    block = f"{stack}.blocks.{i}"
    first, second, third = (f"{block}.residuals.{j}.norm" for j in range(3))
    own, source, feed_forward = (f"{block}.{part}" for part in ("self_attention", "cross_attention", "feed_forward"))
    norms = [first, "", second]
    of_source: list[list[str]] = [[], [], []]
    if stack == "decoder":
        norms = [first, second, third]
        of_source = [[f"{source}.w_q"], [f"{source}.w_k", f"{source}.w_v"], [f"{source}.w_o"]]
    of_self = [[f"{own}.w_{letter}" for letter in "qkv"], [f"{own}.w_o"]]
    return BlockNames(norms, [*of_self, *of_source, [f"{feed_forward}.linear_1"], [f"{feed_forward}.linear_2"]])


def check_shapes(shapes: Mapping[str, tuple[int, ...]], config: ModelConfig, n_tokens: int) -> None:
    """Raise ConfigError if these are not the names and shapes of a model with this config."""
    expected = weight_shapes(config, n_tokens)
    if other := sorted(shapes.items() ^ expected.items()):
        name = other[0][0]
        raise ConfigError(f"{name} is {shapes.get(name, 'missing')}, and must be {expected.get(name, 'missing')}")


def sinusoids(positions: int, d_model: int) -> Floats:
    """Return the encodings of the first positions, (positions, D), as `model.PositionalEncoding` has them."""
    position = np.arange(positions, dtype=np.float64)[:, None]
    even = np.arange(0, d_model, 2, dtype=np.float64)
    angle = position * np.exp(even * (-math.log(10_000.0) / d_model))
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(positions, d_model).astype(np.float32)


def quantize_rows(x: Floats, *, for_short_sums: bool = False) -> tuple[NDArray[np.int8], Floats]:
    """Return rows of x (N, D) → int8 (N, D) and their scales (N, 1), the largest entry of each row over 127.

    for_short_sums: of the four entries of eight whose products the variant avx2 adds in 16 bits, those of either sign
    must add up to 128 at most. They do if they add up to 126 before rounding, which changes each by a half at most.
    A scale is up to four times as large then, in trained models about twice.
    """
    scale = np.maximum(np.abs(x).max(axis=1, keepdims=True), np.float32(1e-30)) / np.float32(127)
    if for_short_sums:
        eights = np.pad(x, ((0, 0), (0, -x.shape[1] % 8))).reshape(-1, 8)
        of_positive = (np.abs(eights) @ FOURS + np.abs(eights @ FOURS)) / 2  # or of negative ones, if they are more
        scale = np.maximum(scale, of_positive.reshape(len(x), -1).max(axis=1, keepdims=True) / np.float32(126))
    with np.errstate(invalid="ignore"):  # of numbers that are not finite, all that is computed is an error
        return np.rint(x * (1 / scale)).astype(np.int8), scale


def padded(values: NDArray[Scalar], multiple: int) -> NDArray[Scalar]:
    """Return values (N,) with zeros behind them, up to a multiple."""
    return np.pad(values, (0, -len(values) % multiple))


def pack_weight(weight: NDArray[np.int8]) -> NDArray[np.int8]:
    """Return an int8 weight (V, D) in the order of engine.c: panels of 32 columns, four numbers of each."""
    v, d = weight.shape
    filled = np.pad(weight, ((0, -v % PANEL), (0, -d % DEPTH)))
    return np.ascontiguousarray(filled.reshape(-1, PANEL, filled.shape[1] // 4, 4).transpose(0, 2, 1, 3))


@dataclass(frozen=True)
class PackedLinear:
    """A linear layer from D to V numbers, field by field as in `struct linear` of engine.c; V is padded to panels."""

    weight: NDArray[np.int8]
    column_sums: NDArray[np.int32]
    scale: Floats
    bias: Floats
    n_in: int
    n_out: int


def pack_linear(weights: Mapping[str, Floats], names: Sequence[str], *, for_short_sums: bool = False) -> PackedLinear:
    """Return several layers that read the same vectors, as one."""
    layers = [weights[f"{name}.weight"] for name in names]
    biases = [
        weights.get(f"{name}.bias", np.zeros(len(layer), np.float32)) for name, layer in zip(names, layers, strict=True)
    ]
    quantized, scale = quantize_rows(np.concatenate(layers), for_short_sums=for_short_sums)
    return PackedLinear(
        weight=pack_weight(quantized),
        column_sums=padded(quantized.sum(axis=1, dtype=np.int32), PANEL),
        scale=padded(scale.ravel(), PANEL),
        bias=padded(np.concatenate(biases), PANEL),
        n_in=quantized.shape[1],
        n_out=len(quantized),
    )
