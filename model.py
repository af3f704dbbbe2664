"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017, arXiv 1706.03762), written out.

Read it beside the paper, from the top to the bottom. `InputEmbeddings` and `PositionalEncoding` turn token ids into
vectors. `MultiHeadAttentionBlock`, `FeedForwardBlock`, `LayerNormalization` and `ResidualConnection` are the parts of
an `EncoderBlock` and a `DecoderBlock`. `Encoder` and `Decoder` stack those blocks. `ProjectionLayer` turns vectors into
logits. `Transformer` holds everything together and offers `encode`, `decode` and `project`.

Two things are not in the paper: pre-norm, the default (`ResidualConnection`), and the key-value cache, without which
each step of decoding would compute all positions before it again.

A mask is boolean, and True means "may attend". dataset.py makes the masks. The softmax over the vocabulary belongs to
the loss (training/objective.py) and to the search (decoding/search.py). Training and translating replace modules by
faster forms from fast/ and decoding/, unless --plain is given.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

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
        """The first rows of the table: (positions, D)."""
        # Explicitly on the CPU: under torch.device("meta"), these operations would import torch's compiler.
        position = torch.arange(positions, dtype=torch.float64, device="cpu").unsqueeze(1)  # (positions, 1)
        even = torch.arange(0, self.d_model, 2, dtype=torch.float64, device="cpu")  # (D / 2)
        angle = position * torch.exp(even * (-math.log(10_000.0) / self.d_model))  # (positions, D / 2)
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()  # (positions, D)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (B, T, D) at positions start … start + T − 1 → (B, T, D)."""
        return self.dropout(x + self.first(start + x.size(1))[start:])

    def first(self, positions: int) -> Tensor:
        """The encodings of the first positions: (positions, D)."""
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
    """max(0, x W₁ + b₁) W₂ + b₂ at every position: (…, D) → (…, d_ff) → (…, D) (section 3.3)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(d_model, d_ff)
        self.linear_2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_2(torch.relu(self.linear_1(x)))


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


@dataclass
class KeyValueCache:
    """The keys and values (B, H, S, K) that one attention block computed at earlier steps of decoding."""

    is_source: bool
    """Attention to the source computes them once; self-attention appends those of the new positions at every step"""
    key: Tensor | None = None
    value: Tensor | None = None

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Takes in the keys and values (B, H, T, K) of new positions. Returns those of all positions so far."""
        if self.key is not None and self.value is not None:
            key = torch.cat([self.key, key], dim=2)
            value = torch.cat([self.value, value], dim=2)
        self.key, self.value = key, value
        return key, value

    def select(self, rows: Tensor) -> None:
        """Keeps these rows of the batch, in this order. A row may be kept several times."""
        if self.key is not None and self.value is not None:
            self.key, self.value = self.key[rows], self.value[rows]


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

    def keys_and_values(self, k: Tensor, v: Tensor, cache: KeyValueCache | None) -> tuple[Tensor, Tensor]:
        """k and v (B, S, D) → keys and values (B, H, S, K), those of earlier steps included if there is a cache."""
        if cache is not None and cache.is_source and cache.key is not None and cache.value is not None:
            return cache.key, cache.value
        key = self.split_heads(self.w_k(k))
        value = self.split_heads(self.w_v(v))
        return (key, value) if cache is None else cache.append(key, value)

    def weights(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        """The attention weights (B, H, T, S) with which `forward` mixes the values, for inspection."""
        return attention_weights(self.split_heads(self.w_q(q)), self.split_heads(self.w_k(k)), mask)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, cache: KeyValueCache | None = None
    ) -> Tensor:
        """q (B, T, D), k and v (B, S, D), mask broadcastable to (B, H, T, S) → (B, T, D)."""
        # Project.
        query = self.split_heads(self.w_q(q))  # (B, H, T, K)
        key, value = self.keys_and_values(k, v, cache)  # (B, H, S, K)

        # Attend.
        x = scaled_dot_product_attention(query, key, value, mask)  # (B, H, T, K)

        # Concatenate.
        return self.w_o(self.merge_heads(x))  # (B, T, D)


class ResidualConnection(nn.Module):
    """x + sublayer(x), with dropout on the sublayer's output (section 5.4) and one of two orders of normalization.

    "post" is the paper's order, norm(x + sublayer(x)) (section 3.1). "pre", x + sublayer(norm(x)), trains without a
    long warm-up (Xiong et al. 2020, arXiv 2002.04745).

    As in the paper, nothing is dropped inside a sublayer. Dropping attention weights and the hidden layer of the
    feed-forward block too, as many do, cost a small model two BLEU and an eighth of its speed (docs/lab-notes.md).
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

    def forward(self, x: Tensor, src_mask: Tensor) -> Tensor:
        """x (B, S, D), src_mask (B, 1, 1, S) → (B, S, D)."""
        x = self.residuals[0](x, lambda y: self.self_attention(y, y, y, src_mask))
        return self.residuals[1](x, self.feed_forward)


class Encoder(nn.Module):
    """A stack of encoder blocks. With pre-norm, the sum that leaves the stack is normalized once more."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(config.n_encoder_layers))
        self.norm = LayerNormalization(config.d_model) if config.norm == "pre" else nn.Identity()

    def forward(self, x: Tensor, src_mask: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, src_mask)
        return self.norm(x)


BlockCache: TypeAlias = tuple[KeyValueCache, KeyValueCache]  # of self-attention, of attention to the source


class DecoderCache:
    """What the decoder computed at earlier steps: the caches of its blocks, and the number of positions so far."""

    def __init__(self, n_layers: int) -> None:
        self.blocks: list[BlockCache] = [
            (KeyValueCache(is_source=False), KeyValueCache(is_source=True)) for _ in range(n_layers)
        ]
        self.length = 0

    def select(self, rows: Tensor) -> None:
        """Keeps these rows of the batch, in this order: the search dropped, copied or reordered its hypotheses."""
        for self_cache, source_cache in self.blocks:
            self_cache.select(rows)
            source_cache.select(rows)


class DecoderBlock(nn.Module):
    """Masked self-attention, attention to the encoder's output, feed-forward (section 3.1, figure 1 right)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttentionBlock(config.d_model, config.n_heads)
        self.cross_attention = MultiHeadAttentionBlock(config.d_model, config.n_heads)
        self.feed_forward = FeedForwardBlock(config.d_model, config.d_ff)
        self.residuals = nn.ModuleList(ResidualConnection(config) for _ in range(3))

    def forward(
        self, x: Tensor, memory: Tensor, src_mask: Tensor, tgt_mask: Tensor | None, cache: BlockCache | None = None
    ) -> Tensor:
        """x (B, T, D), memory (B, S, D), masks (B, 1, 1, S) and (B, 1, T, T) → (B, T, D)."""
        self_cache, source_cache = cache or (None, None)
        x = self.residuals[0](x, lambda y: self.self_attention(y, y, y, tgt_mask, self_cache))
        x = self.residuals[1](x, lambda y: self.cross_attention(y, memory, memory, src_mask, source_cache))
        return self.residuals[2](x, self.feed_forward)


class Decoder(nn.Module):
    """A stack of decoder blocks. With pre-norm, the sum that leaves the stack is normalized once more."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(DecoderBlock(config) for _ in range(config.n_decoder_layers))
        self.norm = LayerNormalization(config.d_model) if config.norm == "pre" else nn.Identity()

    def forward(
        self, x: Tensor, memory: Tensor, src_mask: Tensor, tgt_mask: Tensor | None, cache: DecoderCache | None = None
    ) -> Tensor:
        for i, block in enumerate(self.blocks):
            x = block(x, memory, src_mask, tgt_mask, cache.blocks[i] if cache is not None else None)
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

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """Source ids (B, S) and their mask (B, 1, 1, S) → memory (B, S, D)."""
        return self.encoder(self.src_position(self.src_embed(src)), src_mask)

    def decode(
        self, tgt: Tensor, memory: Tensor, src_mask: Tensor, tgt_mask: Tensor | None, cache: DecoderCache | None = None
    ) -> Tensor:
        """Target ids (B, T), memory (B, S, D), masks (B, 1, 1, S) and (B, 1, T, T) → vectors (B, T, D).

        With a cache, tgt holds only the positions since the last call, and the cache takes them in. A single new
        position may attend to everything before it: it needs no tgt_mask.
        """
        start = cache.length if cache is not None else 0
        x = self.tgt_position(self.tgt_embed(tgt), start)
        x = self.decoder(x, memory, src_mask, tgt_mask, cache)
        if cache is not None:
            cache.length += tgt.size(1)
        return x

    def project(self, x: Tensor) -> Tensor:
        """Vectors (…, D) → logits (…, V)."""
        return self.projection(x)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        """Teacher forcing: source ids (B, S), target ids (B, T) → logits (B, T, V), each for the next target id."""
        memory = self.encode(src, src_mask)
        return self.project(self.decode(tgt, memory, src_mask, tgt_mask))
