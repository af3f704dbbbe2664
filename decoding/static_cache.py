"""Keys and values at fixed places in memory, so that a step of the decoder can be captured as a CUDA graph.

Letters in shapes are those of decoding/search.py: L sentences, K hypotheses of each, T longest length. Besides, there
are S source positions, H heads, and D numbers in a vector, D / H of each head.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dataset import padding_mask
from decoding.inference import CastLinear, FusedSelfAttention
from fast.slot_attention import attend_to_slots, attend_to_slots_by_torch
from model import DecoderBlock, MultiHeadAttentionBlock, Transformer


class StaticCache:
    """Replaces `SearchCache`, whose tensors grow and are copied when hypotheses change places.

    Position t of hypothesis k of a sentence has slot (t, k), into which its keys and values are written once. When the
    search reorders hypotheses, nothing is moved: each hypothesis attends to the slots of its ancestors. Here the slots
    have their tokens, and "e" continues "d", which continues "a":

        t     0   1   2
        k=0   a   c   e         "e" attends to the slots of a, d and e
        k=1   b   d   f

    The model is one of `in_precision`. All work is on tensors of fixed places, without a number from the device.
    """

    def __init__(
        self,
        model: Transformer,
        w_source: CastLinear,
        shape: tuple[int, int, int, int],
        with_kernel: bool = False,
    ) -> None:
        """shape is (L, K, S, T). w_source is `source_projection` of the model.

        with_kernel takes the kernel of `attend_to_slots` (`fault_of_slot_attention`).
        """
        n_sentences, n_hypotheses, n_source, longest = shape
        d_model, n_heads = model.config.d_model, model.config.n_heads
        n_layers, dtype = model.config.n_decoder_layers, w_source.weight.dtype
        new, head = w_source.weight.new_zeros, (n_heads, d_model // n_heads)
        self.model = model
        self.w_source = w_source
        self.longest = longest
        self.with_kernel = with_kernel
        self.src = new(n_sentences, n_source, dtype=torch.int64)
        self.position = new(1, dtype=torch.int64)
        """Where the next token is"""

        # Zeros, since what is not attended to has a weight of zero, which times NaN would be NaN.
        self.keys_values = new(n_layers, n_sentences, longest, n_hypotheses, 2, *head)
        self.source_keys_values = new(n_layers, n_sentences, n_source, 2, *head)
        # What is added to the scores of attention: 0 where a hypothesis may attend, else −inf.
        self.ancestors = new(n_sentences, n_hypotheses, longest, n_hypotheses, dtype=dtype)
        self.source_mask = new(n_sentences, 1, 1, n_source, dtype=dtype)

        self.layers: dict[nn.Module, int] = {}
        """Which layer a block of attention is in"""
        for layer, block in enumerate(decoder_blocks(model)):
            self.layers.update({block.self_attention: layer, block.cross_attention: layer})
        # What a graph reads of the positions is kept here: the model replaces its table by a larger one.
        self.tables: dict[str, Tensor] = {}

    @property
    def n_bytes(self) -> int:
        return self.keys_values.nbytes + self.source_keys_values.nbytes + self.ancestors.nbytes

    def start(self, src: Tensor) -> None:
        """Take in source ids (L, S), and go back to the first position."""
        self.src.copy_(src)
        self.position.zero_()
        self.ancestors.fill_(-torch.inf)

    def encode(self) -> None:
        """Compute the keys and values of the sources."""
        self.tables["source"] = self.model.src_position.first(self.src.size(1))
        mask = padding_mask(self.src)
        memory = self.model.encode(self.src, FusedSelfAttention(mask))
        n_layers, *shape = self.source_keys_values.shape
        keys_values = self.w_source(memory).view(*shape[:2], n_layers, *shape[2:])  # (L, S, layers, 2, H, D / H)
        self.source_keys_values.copy_(keys_values.permute(2, 0, 1, 3, 4, 5))
        self.source_mask.copy_(torch.zeros_like(self.source_mask).masked_fill(~mask, -torch.inf))

    def step(self, tokens: Tensor, parents: Tensor | None) -> Tensor:
        """Replace the function that `decoding.steps.fast_step` returns. Sentences do not leave."""
        # Each hypothesis attends to the slots of its parent, and to its own.
        if parents is not None:
            parents = parents % parents.size(1)  # numbered through their sentence
            self.ancestors.copy_(self.ancestors.gather(1, parents[..., None, None].expand_as(self.ancestors)))
        own_slots = self.ancestors.diagonal(dim1=1, dim2=3)  # (L, T, K)
        own_slots.index_fill_(1, self.position, 0.0)

        # Compute the position.
        self.tables["target"] = self.model.tgt_position.first(self.longest)
        attend, attend_to_source = StaticSelfAttention(self), StaticSourceAttention(self)
        vectors = self.model.decode(tokens, self.src, attend, attend_to_source, self.position, self.longest)
        self.position += 1
        return self.model.project(vectors)  # (L, K, V)

    def take(self, other: "StaticCache", rows: Tensor) -> None:
        """Take over these sentences (L,) of a cache that may have another number of them, and less room."""
        room = other.longest
        for layer, other_layer in zip(self.keys_values, other.keys_values, strict=True):  # without a copy of all layers
            layer[:, :room] = other_layer[rows]
        for layer, other_layer in zip(self.source_keys_values, other.source_keys_values, strict=True):
            layer.copy_(other_layer[rows])
        self.source_mask.copy_(other.source_mask[rows])
        self.ancestors.fill_(-torch.inf)
        self.ancestors[:, :, :room] = other.ancestors[rows]
        self.position.copy_(other.position)

    def attend(self, query: Tensor, slots: Tensor, mask: Tensor, position: Tensor | None = None) -> Tensor:
        """query (L, K, H, D / H), slots (L, N, 2, H, D / H), mask (L, K, N) or (L, 1, N) → (L, K, D).

        With a position, no hypothesis attends to a slot beyond it.
        """
        if self.with_kernel:
            attended: Tensor = attend_to_slots(query, slots, mask, position)
            return attended
        return attend_to_slots_by_torch(query, slots, mask)


def source_projection(model: Transformer) -> CastLinear:
    """Return one layer for the keys and values of the source in all blocks of a decoder: (…, D) → (…, layers · 2 D)."""
    weights: list[Tensor] = []
    for block in decoder_blocks(model):
        weights += [block.cross_attention.w_k.weight, block.cross_attention.w_v.weight]
    return CastLinear(torch.cat(weights), None, weights[0].dtype)


def decoder_blocks(model: Transformer) -> list[DecoderBlock]:
    """Return the blocks of the decoder, by their type."""
    return [block for block in model.decoder.blocks if isinstance(block, DecoderBlock)]


@dataclass(frozen=True)
class StaticSelfAttention:
    """Replaces `FusedSelfAttention` with its cache: a position attends to slots."""

    cache: StaticCache

    def __call__(self, block: MultiHeadAttentionBlock, x: Tensor, memory: Tensor) -> Tensor:
        # Project, and write the keys and values into the slots of the position.
        qkv = block.w_qkv(x).view(*x.shape[:2], 3, block.n_heads, -1)  # type: ignore[operator]
        slots = self.cache.keys_values[self.cache.layers[block]]  # (L, T, K, 2, H, D / H)
        slots.index_copy_(1, self.cache.position, qkv[:, None, :, 1:])

        # Attend to the slots of all positions so far.
        query = qkv[:, :, 0]  # (L, K, H, D / H)
        mask = self.cache.ancestors.flatten(2)  # (L, K, T · K)
        return self.cache.attend(query, slots.flatten(1, 2), mask, self.cache.position)


@dataclass(frozen=True)
class StaticSourceAttention:
    """Replaces `SharedSourceAttention`."""

    cache: StaticCache

    def __call__(self, block: MultiHeadAttentionBlock, x: Tensor, memory: Tensor) -> Tensor:
        query = block.w_q(x).view(*x.shape[:2], block.n_heads, -1)  # (L, K, H, D / H)
        slots = self.cache.source_keys_values[self.cache.layers[block]]  # (L, S, 2, H, D / H)
        return self.cache.attend(query, slots, self.cache.source_mask.squeeze(1))
