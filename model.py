"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017, arXiv 1706.03762), written out.

From the inside out: `InputEmbeddings` and `PositionalEncoding` turn token ids into vectors;
`scaled_dot_product_attention`, `MultiHeadAttentionBlock`, `FeedForwardBlock`, `LayerNormalization` and
`ResidualConnection` are the parts of an `EncoderBlock` and a `DecoderBlock`; `Encoder` and `Decoder` stack those;
`ProjectionLayer` turns vectors into logits; `Transformer` holds it all together, as `encode`, `decode` and `project`.
`DecoderCache` lets decoding compute each position once.

A mask is boolean and True means "may attend". The masks themselves are made in dataset.py, the softmax over the
vocabulary belongs to the loss (objective.py) and to the search (decode.py).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from config import Config
from fast.packing import Packing, Packings

# Dimensions, in every shape comment of the project:
#   B sentences in a batch    S source positions    T target positions    V vocabulary
#   D d_model                 H heads               K = D / H, the size of one head
#   N rows of packed vectors: the tokens of a batch, whatever their sentence and position (packing.py)


class InputEmbeddings(nn.Module):
    """Token ids (B, T) → vectors (B, T, D), multiplied by √d_model (section 3.4)."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.embedding = nn.Embedding(vocab_size, d_model)

    def forward(self, ids: Tensor) -> Tensor:
        vectors: Tensor = self.embedding(ids)
        return vectors * math.sqrt(self.d_model)


class Dropout(nn.Module):
    """In training, sets a share p of x to zero and scales the rest up to the same mean (Srivastava et al. 2014).

    On a CPU torch draws one Bernoulli number at a time, on one thread, which took a third of a training step. Here one
    64-bit random word decides over eight numbers, a byte each: p is rounded to 1/256, and the scale is exact for it.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        dropped = round(256 * self.p)  # of the 256 values of a byte
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
        kept = words.view(torch.uint8)[: x.numel()].view(x.shape).ge_(dropped)  # as bytes: bool takes ten times as long
        return x * kept.to(x.dtype).mul_(256 / (256 - dropped))


class PositionalEncoding(nn.Module):
    """Adds to position t the sines and cosines of section 3.5, then applies dropout (section 5.4).

    PE(t, 2i) = sin(t / 10000^(2i/D)) and PE(t, 2i+1) = cos(t / 10000^(2i/D)). The table is a buffer: it moves with
    the model, is not learned, and is not saved. It grows when a longer sentence comes.
    """

    table: Tensor

    def __init__(self, d_model: int, positions: int, dropout: float) -> None:
        super().__init__()
        self.d_model = d_model
        self.dropout = Dropout(dropout)
        self.register_buffer("table", self.sinusoids(positions), persistent=False)

    def sinusoids(self, positions: int) -> Tensor:
        """The first rows of the table: (positions, D)."""
        # On the device "meta", on which weights are only checked to fit, these would import torch's compiler.
        position = torch.arange(positions, dtype=torch.float64, device="cpu").unsqueeze(1)
        even = torch.arange(0, self.d_model, 2, dtype=torch.float64, device="cpu")
        angle = position * torch.exp(even * (-math.log(10_000.0) / self.d_model))
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (B, T, D) at positions start … start + T − 1 → (B, T, D)."""
        end = start + x.size(1)
        if end > self.table.size(0):
            self.table = self.sinusoids(2 * end).to(self.table)
        encoded: Tensor = self.dropout(x + self.table[start:end])
        return encoded


class LayerNormalization(nn.Module):
    """Over the last dimension: alpha · (x − mean) / √(variance + eps) + bias (Ba et al. 2016, arXiv 1607.06450).

    The variance is the biased one and eps stands inside the root. Written out as above, on a CPU, it takes three times
    as long as torch's one operation for it, of which a test holds that it is this formula.
    """

    def __init__(self, features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.alpha = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.alpha.shape, self.alpha, self.bias, self.eps)


class FeedForwardBlock(nn.Module):
    """max(0, x W₁ + b₁) W₂ + b₂ at every position: (…, D) → (…, d_ff) → (…, D) (section 3.3)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(d_model, d_ff)
        self.linear_2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear_2(self.linear_1(x).relu_())  # in place: on a CPU, a fortieth of a training step
        return y


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(Q Kᵀ / √K): query (B, H, T, K), key (B, H, S, K) → (B, H, T, S), of which every row sums to 1.

    At least in fp32: on a CPU a softmax of bf16 takes four times as long, unless S is a multiple of 32.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(Q Kᵀ / √K) V (section 3.2.1): query (B, H, T, K), key and value (B, H, S, K) → (B, H, T, K).

    mask, where given, broadcasts to (B, H, T, S); every row of it must allow something.
    """
    if query.dtype != key.dtype:  # which a cache keeps in fp32
        return scaled_dot_product_attention(query.to(key.dtype), key, value, mask).to(query.dtype)
    if query.is_cuda:  # the fused kernel: the same function, without the (T, S) matrix in memory
        return F.scaled_dot_product_attention(query, key, value, mask)
    # On CPUs and for sentences of tens of tokens the plain formula is the faster of the two, above all backward.
    return attention_weights(query, key, mask).to(value.dtype) @ value


@dataclass
class KeyValueCache:
    """The keys and values (B, H, S, K) that one attention block computed at earlier steps of a decoding.

    Self-attention's grows by the new positions at every step, in place: there is room for more behind them, which
    doubles when it is full. Attention to the source has its own computed once.
    """

    grows: bool
    key: Tensor | None = None
    value: Tensor | None = None
    length: int = 0
    """Positions so far; those behind them are room"""

    def put(self, key: Tensor, value: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """Takes in the keys and values (B, H, T, K) of new positions, and gives those of all so far, in a dtype.

        By default in theirs, on a CPU at least in fp32, in which torch's products with a single query take a third of
        their time in bf16.
        """
        if self.key is None or self.value is None:
            at_least = torch.float32 if key.device.type == "cpu" else key.dtype
            dtype = dtype or torch.promote_types(key.dtype, at_least)
            # In one piece, as matrix products want it: they would otherwise copy it at every step.
            key, value = (x.to(dtype, memory_format=torch.contiguous_format).contiguous() for x in (key, value))
            self.key, self.value, self.length = key, value, key.size(2)
            return key, value
        start, self.length = self.length, self.length + key.size(2)
        if self.length > self.key.size(2):
            room = (0, 0, 0, 2 * self.length - start)
            self.key, self.value = (F.pad(old[:, :, :start], room) for old in (self.key, self.value))
        self.key[:, :, start : self.length] = key
        self.value[:, :, start : self.length] = value
        return self.key[:, :, : self.length], self.value[:, :, : self.length]

    def select(self, rows: Tensor | None) -> None:
        """Keep these rows of the batch, in this order; None for all, as they are."""
        if rows is not None and self.key is not None and self.value is not None:
            # On a CPU this takes a fifth of the time of self.key[rows].
            self.key, self.value = (x.index_select(0, rows) for x in (self.key, self.value))


class MultiHeadAttentionBlock(nn.Module):
    """H attentions side by side, each in D / H dimensions: Concat(head₁ … head_H) W_o (section 3.2.2)."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model, bias=False)
        self.w_k = nn.Linear(d_model, d_model, bias=False)
        self.w_v = nn.Linear(d_model, d_model, bias=False)
        self.w_o = nn.Linear(d_model, d_model, bias=False)
        # For translating, quantize.py puts others in their place.
        self.w_qkv: nn.Module | None = None  # the first three in one product, in self-attention
        self.attention: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor] = scaled_dot_product_attention
        self.cached_in: torch.dtype | None = None

    def heads(self, x: Tensor, packing: Packing | None = None) -> Tensor:
        """(B, T, D), or (N, D) where packed → (B, H, T, K)."""
        if packing:
            return packing.to_heads(x, self.n_heads)
        return x.view(*x.shape[:-1], self.n_heads, -1).transpose(1, 2)

    def weights(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        """The weights (B, H, T, S) that `forward` gives the values, for who wants to look at them."""
        return attention_weights(self.heads(self.w_q(q)), self.heads(self.w_k(k)), mask)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        cache: KeyValueCache | None = None,
        *,
        packings: Packings | None = None,
    ) -> Tensor:
        """q (B, T, D), k and v (B, S, D), mask broadcastable to (B, H, T, S) → (B, T, D).

        With packings, those of q and of k, these are (N, D).
        """
        of_q, of_k = packings or (None, None)
        if self.w_qkv is not None and of_q:
            query, key, value = (of_q.to_heads(x, self.n_heads) for x in self.w_qkv(q).chunk(3, dim=-1))
        elif self.w_qkv is not None:  # by few operations: a search has so many of them that they add up
            query, key, value = self.w_qkv(q).view(*q.shape[:2], 3, self.n_heads, -1).permute(2, 0, 3, 1, 4).unbind()
        elif cache is not None and not cache.grows and cache.key is not None and cache.value is not None:
            query, key, value = self.heads(self.w_q(q)), cache.key, cache.value
        else:
            query = self.heads(self.w_q(q), of_q)
            key, value = self.heads(self.w_k(k), of_k), self.heads(self.w_v(v), of_k)
        if cache is not None and (cache.grows or cache.key is None):
            key, value = cache.put(key, value, self.cached_in)
        x = self.attention(query, key, value, mask)
        y: Tensor = self.w_o(of_q.from_heads(x) if of_q else x.transpose(1, 2).flatten(2))
        return y


def to_autocast_dtype(x: Tensor) -> Tensor:
    """x in the type of autocast, if that is on: once, where it would convert x anew for each product that reads it."""
    return x.to(torch.get_autocast_dtype(x.device.type)) if torch.is_autocast_enabled(x.device.type) else x


class ResidualConnection(nn.Module):
    """x + sublayer(x), with dropout on the sublayer's output (section 5.4) and one of two orders of normalization.

    As in the paper, nothing is dropped inside a sublayer: dropping attention weights and the hidden layer of the
    feed-forward block too, as many do, cost a small model two BLEU and an eighth of its speed (benchmarks/RESULTS.md).

    "post" is the paper's, norm(x + sublayer(x)) (section 3.1); "pre", x + sublayer(norm(x)), trains without a long
    warm-up (Xiong et al. 2020, arXiv 2002.04745).
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.norm = LayerNormalization(config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        y: Tensor = self.dropout(sublayer(to_autocast_dtype(self.norm(x) if self.pre else x)))
        z: Tensor = x + y if self.pre else self.norm(x + y)
        return z


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward, each in a residual connection (section 3.1, figure 1 left)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttentionBlock(config.d_model, config.n_heads)
        self.feed_forward = FeedForwardBlock(config.d_model, config.d_ff)
        self.residuals = nn.ModuleList(ResidualConnection(config) for _ in range(2))

    def forward(self, x: Tensor, src_mask: Tensor, packing: Packing | None = None) -> Tensor:
        own = (packing, packing) if packing else None
        x = self.residuals[0](x, lambda x: self.self_attention(x, x, x, src_mask, packings=own))
        x = self.residuals[1](x, self.feed_forward)
        return x


class Encoder(nn.Module):
    """A stack of encoder blocks; with pre-norm, the sum that leaves it is normalized once more."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(config.n_encoder_layers))
        self.norm = LayerNormalization(config.d_model) if config.norm == "pre" else nn.Identity()

    def forward(self, x: Tensor, src_mask: Tensor, packing: Packing | None = None) -> Tensor:
        for block in self.blocks:
            x = block(x, src_mask, packing)
        x = self.norm(x)
        return x


BlockCache: TypeAlias = tuple[KeyValueCache, KeyValueCache]  # of self-attention and of attention to the source


class DecoderCache:
    """What the decoder computed at earlier steps of a decoding: the caches of its blocks, and how many steps."""

    def __init__(self, n_layers: int) -> None:
        self.blocks = [(KeyValueCache(grows=True), KeyValueCache(grows=False)) for _ in range(n_layers)]
        self.length = 0

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep these hypotheses of the batch, in this order: the search dropped, copied or reordered them.

        sentences are the rows of memory to keep, None for all; all hypotheses of a sentence share one.
        """
        for own, cross in self.blocks:
            own.select(rows)
            cross.select(sentences)


class DecoderBlock(nn.Module):
    """Masked self-attention, attention to the encoder's output, feed-forward (section 3.1, figure 1 right)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttentionBlock(config.d_model, config.n_heads)
        self.cross_attention = MultiHeadAttentionBlock(config.d_model, config.n_heads)
        self.feed_forward = FeedForwardBlock(config.d_model, config.d_ff)
        self.residuals = nn.ModuleList(ResidualConnection(config) for _ in range(3))

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        src_mask: Tensor,
        tgt_mask: Tensor | None,
        cache: BlockCache | None = None,
        *,
        packings: Packings | None = None,
    ) -> Tensor:
        own, cross = cache or (None, None)
        among = (packings[0], packings[0]) if packings else None
        x = self.residuals[0](x, lambda x: self.self_attention(x, x, x, tgt_mask, own, packings=among))
        x = self.residuals[1](x, lambda x: self.attend(x, memory, src_mask, cross, packings))
        x = self.residuals[2](x, self.feed_forward)
        return x

    def attend(
        self, x: Tensor, memory: Tensor, src_mask: Tensor, cache: KeyValueCache | None, packings: Packings | None
    ) -> Tensor:
        """Cross-attention, in which the hypotheses of a sentence, where there are several, are so many positions."""
        query = x if packings else x.reshape(len(src_mask), -1, x.size(-1))
        y: Tensor = self.cross_attention(query, memory, memory, src_mask, cache, packings=packings)
        return y.view_as(x)


class Decoder(nn.Module):
    """A stack of decoder blocks; with pre-norm, the sum that leaves it is normalized once more."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(DecoderBlock(config) for _ in range(config.n_decoder_layers))
        self.norm = LayerNormalization(config.d_model) if config.norm == "pre" else nn.Identity()

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        src_mask: Tensor,
        tgt_mask: Tensor | None,
        cache: DecoderCache | None = None,
        *,
        packings: Packings | None = None,
    ) -> Tensor:
        for i, block in enumerate(self.blocks):
            x = block(x, memory, src_mask, tgt_mask, cache.blocks[i] if cache else None, packings=packings)
        x = self.norm(x)
        return x


class ProjectionLayer(nn.Module):
    """Vectors (…, D) → logits (…, V), the scores before the softmax (section 3.4)."""

    def __init__(self, d_model: int, vocab_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(x)
        return logits


class Transformer(nn.Module):
    """Encoder, decoder and projection over one joint vocabulary; one matrix serves all three ends when tied."""

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
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        for embed in (self.src_embed, self.tgt_embed):  # unit variance after the multiplication by √d_model
            nn.init.normal_(embed.embedding.weight, std=config.d_model**-0.5)
        if config.tie_embeddings:  # Press and Wolf 2017, arXiv 1608.05859
            self.tgt_embed.embedding.weight = self.src_embed.embedding.weight
            self.projection.linear.weight = self.src_embed.embedding.weight

    def encode(self, src: Tensor, src_mask: Tensor, packing: Packing | None = None) -> Tensor:
        """Source ids (B, S) and their mask (B, 1, 1, S) → memory (B, S, D), or (N, D) with a packing."""
        x = self.src_position(self.src_embed(src))
        memory = to_autocast_dtype(self.encoder(packing.pack(x) if packing else x, src_mask, packing))
        return memory

    def decode(
        self,
        tgt: Tensor,
        memory: Tensor,
        src_mask: Tensor,
        tgt_mask: Tensor | None,
        cache: DecoderCache | None = None,
        *,
        packings: Packings | None = None,
    ) -> Tensor:
        """Target ids (B, T), memory (B, S, D), masks (B, 1, 1, S) and (B, 1, T, T) → vectors (B, T, D).

        With a cache, tgt holds only the positions since the last call (one of them needs no tgt_mask), and the cache
        takes them in. Then it may be (B·K, 1): K hypotheses for each row of memory, side by side.

        With packings, of the target and of the source, memory and vectors are (N, D).
        """
        start = cache.length if cache else 0
        x = self.tgt_position(self.tgt_embed(tgt), start)
        x = packings[0].pack(x) if packings else x
        vectors: Tensor = self.decoder(x, memory, src_mask, tgt_mask, cache, packings=packings)
        if cache:
            cache.length += tgt.size(1)
        return vectors

    def project(self, x: Tensor) -> Tensor:
        """Vectors (…, D) → logits (…, V)."""
        logits: Tensor = self.projection(x)
        return logits

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        """Teacher forcing: source ids (B, S), target ids (B, T) → logits (B, T, V), each for the next target id."""
        return self.project(self.decode(tgt, self.encode(src, src_mask), src_mask, tgt_mask))
