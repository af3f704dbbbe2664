"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017, arXiv 1706.03762), written out.

Read it beside the paper, from the top to the bottom. `InputEmbeddings` and `PositionalEncoding` turn token ids into
vectors. `MultiHeadAttentionBlock`, `FeedForwardBlock`, `LayerNormalization` and `ResidualConnection` are the parts of
an `EncoderBlock` and a `DecoderBlock`. `Encoder` and `Decoder` stack those blocks. `ProjectionLayer` turns vectors into
logits. `Transformer` holds everything together and offers `encode`, `decode` and `project`.

This is the forward pass of everything that torch computes: training and translating, plain and fast, on any device.
Each position is computed by itself, whatever the shape of the rows, (B, T, D) or (N, D); positions meet in attention
alone. Blocks therefore receive how they attend, an `Attend`. `MaskedAttention` is the paper's. fast/attention.py,
decoding/inference.py and decoding/static_cache.py have forms for packed sentences and for a search. fast/modules.py and
decoding/inference.py replace single layers by faster ones, unless --plain is given.

Two things are not in the paper: pre-norm, the default (`ResidualConnection`), and the key-value cache, without which
each step of decoding would compute all positions before it again.

A mask is boolean, and True means "may attend". dataset.py makes the masks. The softmax over the vocabulary belongs to
the loss (training/objective.py) and to the search (decoding/search.py).
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from config import Config

# Dimensions, in the shape comments of the project (decoding/search.py has letters of its own):
#   B sentences in a batch    S source positions    T target positions    V vocabulary
#   D d_model                 H heads               K = D / H, the size of one head


class InputEmbeddings(nn.Module):
    """Token ids (B, T) → vectors (B, T, D), multiplied by √d_model (section 3.4)."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.embedding = nn.Embedding(vocab_size, d_model)

    def forward(self, ids: Tensor) -> Tensor:
        return self.embedding(ids) * math.sqrt(self.d_model)


class PositionalEncoding(nn.Module):
    """Adds the sines and cosines of section 3.5 to position t, then applies dropout (section 5.4).

    PE(t, 2i) = sin(t / 10000^(2i/D)) and PE(t, 2i+1) = cos(t / 10000^(2i/D)). The table is a buffer: it moves with the
    model, but it is neither learned nor saved. It is extended when a longer sentence arrives.
    """

    table: Tensor

    def __init__(self, d_model: int, positions: int, dropout: float) -> None:
        super().__init__()
        self.d_model = d_model
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("table", self.sinusoids(positions), persistent=False)

    def sinusoids(self, positions: int) -> Tensor:
        """Return the first rows of the table: (positions, D)."""
        # Explicitly on the CPU: under torch.device("meta"), these operations would import torch's compiler.
        position = torch.arange(positions, dtype=torch.float64, device="cpu").unsqueeze(1)  # (positions, 1)
        even = torch.arange(0, self.d_model, 2, dtype=torch.float64, device="cpu")  # (D / 2)
        angle = position * torch.exp(even * (-math.log(10_000.0) / self.d_model))  # (positions, D / 2)
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()  # (positions, D)

    def forward(self, x: Tensor, positions: Tensor | slice | None = None, end: int = 0) -> Tensor:
        """x (…, D) at some positions, all of them before end → (…, D). None: x (B, T, D) at positions 0 … T − 1."""
        if positions is None:
            positions, end = slice(None), x.size(1)
        return self.dropout(x + self.first(end)[positions])

    def first(self, positions: int) -> Tensor:
        """Return the encodings of the first positions: (positions, D)."""
        table = self.table  # which another thread may replace
        if positions > table.size(0):
            table = self.table = self.sinusoids(2 * positions).to(table)
        return table[:positions]


class LayerNormalization(nn.Module):
    """Over the last dimension: alpha · (x − mean) / √(variance + eps) + bias (Ba et al. 2016, arXiv 1607.06450).

    The variance is the biased one, and eps stands inside the root.
    """

    def __init__(self, features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.alpha = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(dim=-1, keepdim=True)
        variance = x.var(dim=-1, correction=0, keepdim=True)
        return self.alpha * (x - mean) / torch.sqrt(variance + self.eps) + self.bias


class FeedForwardBlock(nn.Module):
    """max(0, x W₁ + b₁) W₂ + b₂ at every position: (…, D) → (…, d_ff) → (…, D) (section 3.3).

    The maximum is taken in place, which saves a fortieth of a training step on a CPU.
    """

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(d_model, d_ff)
        self.linear_2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_2(self.linear_1(x).relu_())


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(Q Kᵀ / √K): query (B, H, T, K), key (B, H, S, K) → (B, H, T, S). Every row sums to 1.

    The softmax is computed in fp32 at least: weights rounded to bf16 would not sum to 1.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # (B, H, T, S)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(Q Kᵀ / √K) V (section 3.2.1): query (B, H, T, K), key and value (B, H, S, K) → (B, H, T, K).

    The mask broadcasts to (B, H, T, S), and every row of it must allow at least one position. None allows all.
    """
    return attention_weights(query, key, mask).to(value.dtype) @ value


class Attend(Protocol):
    """How positions meet in attention: rows of whatever shape → the heads of each row, side by side."""

    def __call__(self, block: "MultiHeadAttentionBlock", x: Tensor, memory: Tensor) -> Tensor:
        """x (…, D) attends to memory, which is x itself in self-attention → (…, D), by the projections of a block."""


class MultiHeadAttentionBlock(nn.Module):
    """H attentions side by side, each in D / H dimensions: Concat(head₁ … head_H) W_o (section 3.2.2)."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model, bias=False)
        self.w_k = nn.Linear(d_model, d_model, bias=False)
        self.w_v = nn.Linear(d_model, d_model, bias=False)
        self.w_o = nn.Linear(d_model, d_model, bias=False)

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, H, T, K)."""
        x = x.view(*x.shape[:2], self.n_heads, -1)  # (B, T, H, K)
        return x.transpose(1, 2)

    def merge_heads(self, x: Tensor) -> Tensor:
        """(B, H, T, K) → (B, T, D)."""
        x = x.transpose(1, 2)  # (B, T, H, K)
        return x.flatten(2)

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """memory (B, S, D) → keys and values, (B, H, S, K) each."""
        return self.split_heads(self.w_k(memory)), self.split_heads(self.w_v(memory))

    def forward(self, x: Tensor, memory: Tensor, attend: Attend) -> Tensor:
        """x (…, D) attends to memory → (…, D)."""
        return self.w_o(attend(self, x, memory))


@dataclass(frozen=True)
class MaskedAttention:
    """The attention of padded sentences: x (B, T, D) to memory (B, S, D), where a mask allows it."""

    mask: Tensor | None
    """Broadcastable to (B, H, T, S); None allows everything"""

    def __call__(self, block: MultiHeadAttentionBlock, x: Tensor, memory: Tensor) -> Tensor:
        query = block.split_heads(block.w_q(x))  # (B, H, T, K)
        key, value = block.keys_and_values(memory)  # (B, H, S, K)
        return block.merge_heads(scaled_dot_product_attention(query, key, value, self.mask))  # (B, T, D)


@dataclass
class KeyValueCache:
    """The keys and values (B, H, S, K) that one attention block computed at earlier steps of decoding."""

    content: tuple[Tensor, Tensor] | None = None

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Take in the keys and values (B, H, T, K) of new positions. Return those of all positions so far."""
        if self.content:
            key = torch.cat([self.content[0], key], dim=2)
            value = torch.cat([self.content[1], value], dim=2)
        self.content = key, value
        return self.content

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order. A row may be kept several times."""
        if self.content:
            self.content = self.content[0][rows], self.content[1][rows]


class DecoderCache:
    """What the decoder computed at earlier steps: the caches of its attention blocks, and the positions so far."""

    def __init__(self) -> None:
        self.of_self_attention: defaultdict[nn.Module, KeyValueCache] = defaultdict(KeyValueCache)
        self.of_source_attention: defaultdict[nn.Module, KeyValueCache] = defaultdict(KeyValueCache)
        self.length = 0

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order: the search dropped, copied or reordered its hypotheses."""
        for cache in (*self.of_self_attention.values(), *self.of_source_attention.values()):
            cache.select(rows)

    def next_step(self, src_mask: Tensor) -> tuple[Attend, Attend, slice, int]:
        """Return what `Transformer.decode` takes for the next position: how it attends, and where it is."""
        self.length += 1
        attend, attend_to_source = CachedSelfAttention(self), CachedSourceAttention(self, src_mask)
        return attend, attend_to_source, slice(self.length - 1, self.length), self.length


@dataclass(frozen=True)
class CachedSelfAttention:
    """Self-attention of a new position x (B, 1, D), which may attend to itself and to everything before it."""

    cache: DecoderCache

    def __call__(self, block: MultiHeadAttentionBlock, x: Tensor, memory: Tensor) -> Tensor:
        query = block.split_heads(block.w_q(x))
        key, value = self.cache.of_self_attention[block].append(*block.keys_and_values(memory))
        return block.merge_heads(scaled_dot_product_attention(query, key, value, None))


@dataclass(frozen=True)
class CachedSourceAttention:
    """Attention to the source, whose keys and values are computed once."""

    cache: DecoderCache
    mask: Tensor

    def __call__(self, block: MultiHeadAttentionBlock, x: Tensor, memory: Tensor) -> Tensor:
        query = block.split_heads(block.w_q(x))
        of_block = self.cache.of_source_attention[block]
        key, value = of_block.content or of_block.append(*block.keys_and_values(memory))
        return block.merge_heads(scaled_dot_product_attention(query, key, value, self.mask))


class ResidualConnection(nn.Module):
    """x + sublayer(x), with dropout on the sublayer's output (section 5.4) and one of two orders of normalization.

    "post" is the paper's order, norm(x + sublayer(x)) (section 3.1). "pre", x + sublayer(norm(x)), trains without a
    long warm-up (Xiong et al. 2020, arXiv 2002.04745).

    As in the paper, nothing is dropped inside a sublayer. Dropping attention weights and the hidden layer of the
    feed-forward block too, as many do, cost a small model 2.6 BLEU and an eighth of its speed (docs/lab).
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.is_pre_norm = config.norm == "pre"
        self.norm = LayerNormalization(config.d_model)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.is_pre_norm:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward, each in a residual connection (section 3.1, figure 1 left)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttentionBlock(config.d_model, config.n_heads)
        self.feed_forward = FeedForwardBlock(config.d_model, config.d_ff)
        self.residuals = nn.ModuleList(ResidualConnection(config) for _ in range(2))

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        """x (…, D) → (…, D)."""
        x = self.residuals[0](x, lambda y: self.self_attention(y, y, attend))
        return self.residuals[1](x, self.feed_forward)


class Encoder(nn.Module):
    """A stack of encoder blocks. With pre-norm, the sum that leaves the stack is normalized once more."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(config.n_encoder_layers))
        self.norm = LayerNormalization(config.d_model) if config.norm == "pre" else nn.Identity()

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        for block in self.blocks:
            x = block(x, attend)
        return self.norm(x)


class DecoderBlock(nn.Module):
    """Masked self-attention, attention to the encoder's output, feed-forward (section 3.1, figure 1 right)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttentionBlock(config.d_model, config.n_heads)
        self.cross_attention = MultiHeadAttentionBlock(config.d_model, config.n_heads)
        self.feed_forward = FeedForwardBlock(config.d_model, config.d_ff)
        self.residuals = nn.ModuleList(ResidualConnection(config) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor, attend: Attend, attend_to_source: Attend) -> Tensor:
        """x (…, D), memory (…, D) → like x."""
        x = self.residuals[0](x, lambda y: self.self_attention(y, y, attend))
        x = self.residuals[1](x, lambda y: self.cross_attention(y, memory, attend_to_source))
        return self.residuals[2](x, self.feed_forward)


class Decoder(nn.Module):
    """A stack of decoder blocks. With pre-norm, the sum that leaves the stack is normalized once more."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(DecoderBlock(config) for _ in range(config.n_decoder_layers))
        self.norm = LayerNormalization(config.d_model) if config.norm == "pre" else nn.Identity()

    def forward(self, x: Tensor, memory: Tensor, attend: Attend, attend_to_source: Attend) -> Tensor:
        for block in self.blocks:
            x = block(x, memory, attend, attend_to_source)
        return self.norm(x)


class ProjectionLayer(nn.Module):
    """Vectors (…, D) → logits (…, V), the scores before the softmax (section 3.4)."""

    def __init__(self, d_model: int, vocab_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Transformer(nn.Module):
    """Encoder, decoder and projection over one joint vocabulary. When tied, one matrix serves all three ends."""

    def __init__(self, vocab_size: int, config: Config) -> None:
        super().__init__()
        self.config = config
        self.src_embed = InputEmbeddings(vocab_size, config.d_model)
        self.tgt_embed = InputEmbeddings(vocab_size, config.d_model)
        self.src_position = PositionalEncoding(config.d_model, config.max_length + 2, config.dropout)
        self.tgt_position = PositionalEncoding(config.d_model, config.max_length + 2, config.dropout)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.projection = ProjectionLayer(config.d_model, vocab_size)

        # Matrices after Glorot and Bengio 2010; embeddings with unit variance after the multiplication by √d_model.
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        for embed in (self.src_embed, self.tgt_embed):
            nn.init.normal_(embed.embedding.weight, std=config.d_model**-0.5)

        # One matrix for all three ends (section 3.4; Press and Wolf 2017, arXiv 1608.05859).
        if config.tie_embeddings:
            self.tgt_embed.embedding.weight = self.src_embed.embedding.weight
            self.projection.linear.weight = self.src_embed.embedding.weight

    def encode(self, src: Tensor, attend: Attend) -> Tensor:
        """Source ids (B, S) → memory (B, S, D)."""
        return self.encoder(self.src_position(self.src_embed(src)), attend)

    def decode(
        self,
        tgt: Tensor,
        memory: Tensor,
        attend: Attend,
        attend_to_source: Attend,
        positions: Tensor | slice | None = None,
        end: int = 0,
    ) -> Tensor:
        """Target ids (B, T), or (N,) at positions before end, and memory → vectors, (B, T, D) or (N, D)."""
        return self.decoder(self.tgt_position(self.tgt_embed(tgt), positions, end), memory, attend, attend_to_source)

    def project(self, x: Tensor) -> Tensor:
        """Vectors (…, D) → logits (…, V)."""
        return self.projection(x)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        """Teacher forcing: source ids (B, S), target ids (B, T) → logits (B, T, V), each for the next target id.

        The masks are (B, 1, 1, S) and (B, 1, T, T).
        """
        attend_to_source = MaskedAttention(src_mask)
        memory = self.encode(src, attend_to_source)
        return self.project(self.decode(tgt, memory, MaskedAttention(tgt_mask), attend_to_source))
