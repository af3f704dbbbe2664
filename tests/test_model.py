"""Every part against its worked example or torch's own, and the whole against torch.nn.Transformer."""

import math
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from conftest import scrambled
from torch import Tensor, nn
from torch.nn import functional as F

from config import Config
from dataset import causal_mask, collate, padding_mask
from machine.devices import autocast
from model import (
    DecoderCache,
    FeedForwardBlock,
    InputEmbeddings,
    LayerNormalization,
    MaskedAttention,
    MultiHeadAttentionBlock,
    PositionalEncoding,
    ProjectionLayer,
    ResidualConnection,
    Transformer,
    attention_weights,
    scaled_dot_product_attention,
)
from tapis.config import PAD

SMALL = Config(d_model=32, n_heads=4, d_ff=64, n_encoder_layers=2, n_decoder_layers=3, dropout=0.0)


# Layer normalization


@pytest.mark.parametrize(
    ("x", "expected"),
    [([1.0, 2.0, 3.0], [-1.2247, 0.0, 1.2247]), ([2.4, 4.4, 6.0, 8.0], [-1.36, -0.39, 0.39, 1.36])],
)
def test_layer_normalization_by_hand(x: list[float], expected: list[float]) -> None:
    assert LayerNormalization(len(x))(torch.tensor(x)).tolist() == pytest.approx(expected, abs=5e-3)


def test_layer_normalization_with_scale_and_shift() -> None:
    norm = LayerNormalization(3)
    norm.alpha.data, norm.bias.data = torch.tensor([2.0, 0.5, 1.0]), torch.tensor([1.0, 2.0, 0.5])
    assert norm(torch.tensor([3.0, 5.0, 7.0])).tolist() == pytest.approx([-1.449, 2.0, 1.725], abs=1e-3)


def test_layer_normalization_equals_torchs() -> None:
    ours, theirs, x = LayerNormalization(16), nn.LayerNorm(16), torch.randn(3, 5, 16) * 4 + 2
    theirs.weight.data, theirs.bias.data = torch.randn(16), torch.randn(16)
    ours.alpha.data, ours.bias.data = theirs.weight.data, theirs.bias.data
    torch.testing.assert_close(ours(x), theirs(x))
    constant = torch.full((1, 16), 3.0)
    torch.testing.assert_close(ours(constant), theirs(constant))


# Embeddings and positions


def test_embeddings_are_scaled() -> None:
    embed = InputEmbeddings(10, 16)
    torch.testing.assert_close(embed(torch.tensor([[3]]))[0, 0], embed.embedding.weight[3] * 4)


def test_an_untied_embedding_learns_only_the_rows_looked_up() -> None:
    model = Transformer(20, replace(SMALL, tie_embeddings=False))
    batch = collate([[5, 6]], [[7, 8]])
    model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask).sum().backward()
    gradient = model.src_embed.embedding.weight.grad
    assert gradient is not None
    assert gradient.abs().sum(dim=1).nonzero().flatten().tolist() == sorted({5, 6, 3})


def test_positions_of_the_worked_table() -> None:
    table = PositionalEncoding(4, 5, 0.0).table
    assert table.shape == (5, 4)
    assert table[0].tolist() == pytest.approx([0, 1, 0, 1])
    assert table[1].tolist() == pytest.approx([0.8415, 0.5403, 0.0100, 0.99995], abs=1e-4)
    assert table[4].tolist() == pytest.approx([-0.7568, -0.6536, 0.0400, 0.9992], abs=1e-4)


def test_positions_are_a_buffer_and_are_not_saved() -> None:
    position = PositionalEncoding(8, 5, 0.0)
    assert [name for name, _ in position.named_buffers()] == ["table"]
    assert not list(position.parameters()) and not position.state_dict()


def test_positions_extend_and_start_anywhere() -> None:
    short, long = PositionalEncoding(8, 3, 0.0), PositionalEncoding(8, 50, 0.0)
    x = torch.randn(2, 40, 8)
    torch.testing.assert_close(short(x), long(x))
    torch.testing.assert_close(long(x[:, 7:9], slice(7, 9), 9), long(x)[:, 7:9])
    rows = torch.tensor([3, 39, 0])
    torch.testing.assert_close(short(x[0, rows], rows, 40), long(x)[0, rows])


# Feed-forward, projection and residual connections


def test_feed_forward_shapes_and_formula() -> None:
    block, x = FeedForwardBlock(4, 8), torch.randn(2, 3, 4)
    assert block.linear_1(x).shape == (2, 3, 8)
    assert block(x).shape == (2, 3, 4)
    w1, b1, w2, b2 = block.linear_1.weight, block.linear_1.bias, block.linear_2.weight, block.linear_2.bias
    torch.testing.assert_close(block(x), (x @ w1.T + b1).clamp(min=0) @ w2.T + b2)


def test_dropout_is_where_the_paper_has_it() -> None:
    """On embeddings and on the outputs of sublayers, and not inside these (section 5.4)."""
    model = Transformer(20, replace(SMALL, dropout=0.5))
    where = {name.rpartition(".")[0] for name, module in model.named_modules() if isinstance(module, nn.Dropout)}
    within = [
        f"{part}.blocks.{i}.residuals.{r}"
        for part, n, k in (("encoder", 2, 2), ("decoder", 3, 3))
        for i in range(n)
        for r in range(k)
    ]
    assert where == {"src_position", "tgt_position", *within}


def test_projection_is_a_matrix_product() -> None:
    projection, x = ProjectionLayer(4, 7), torch.randn(2, 3, 4)
    torch.testing.assert_close(projection(x), x @ projection.linear.weight.T)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_both_orders_of_normalization(norm: Literal["pre", "post"]) -> None:
    residual, x = ResidualConnection(Config(d_model=8, dropout=0.0, norm=norm)), torch.randn(2, 3, 8)

    def double(y: Tensor) -> Tensor:
        return y * 2

    expected = x + 2 * residual.norm(x) if norm == "pre" else residual.norm(3 * x)
    torch.testing.assert_close(residual(x, double), expected)


# Attention

INPUTS = [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12], [13, 14, 15]]  # I am going to play
W_Q = [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9]]
W_K = [[0.9, 0.8, 0.7], [0.6, 0.5, 0.4], [0.3, 0.2, 0.1]]
W_V = [[0.2, 0.3, 0.4], [0.5, 0.6, 0.7], [0.8, 0.9, 0.1]]


def test_attention_of_the_worked_example() -> None:
    x = np.array(INPUTS, dtype=float)
    query, key, value = x @ np.array(W_Q), x @ np.array(W_K), x @ np.array(W_V)
    scores = query @ key.T / np.sqrt(3)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    block = MultiHeadAttentionBlock(3, 1)
    for linear, weight in ((block.w_q, W_Q), (block.w_k, W_K), (block.w_v, W_V)):
        linear.weight.data = torch.tensor(weight).T
    block.w_o.weight.data = torch.eye(3)
    inputs = torch.tensor(INPUTS, dtype=torch.float32)[None]
    output = block(inputs, inputs, MaskedAttention(None))
    assert output[0, 2].tolist() == pytest.approx((weights @ value)[2].tolist(), rel=1e-5)
    np.testing.assert_allclose(output[0].detach().numpy(), weights @ value, rtol=1e-4)


def test_attention_weights_sum_to_one_in_bf16_too() -> None:
    query, key = torch.randn(2, 3, 2, 7, 16).unbind()
    with autocast(torch.device("cpu"), "bf16"):
        weights = attention_weights(query, key, None)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3, 2, 7))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_attention_keeps_the_type_without_autocast(dtype: torch.dtype) -> None:
    query, key, value = torch.randn(3, 2, 3, 7, 16, dtype=dtype).unbind()
    assert scaled_dot_product_attention(query, key, value, None).dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_model_of_another_type_decodes_in_it(model: Transformer, dtype: torch.dtype) -> None:
    cache, ids = DecoderCache(), torch.full((2, 3), 5)
    mask = padding_mask(ids)
    memory = model.to(dtype).encode(ids, MaskedAttention(mask))
    wanted = model.decode(ids, memory, MaskedAttention(causal_mask(3, ids.device)), MaskedAttention(mask))
    found = torch.cat([model.decode(ids[:, t : t + 1], memory, *cache.next_step(mask)) for t in range(3)], dim=1)
    assert found.dtype == dtype
    off = 0.1 if dtype == torch.bfloat16 else 1e-7
    torch.testing.assert_close(found, wanted, rtol=off, atol=off)


def test_attention_equals_torchs_fused_attention() -> None:
    query, key, value = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8), torch.randn(2, 4, 7, 8)
    mask = torch.rand(2, 1, 5, 7) < 0.7
    mask[..., 0] = True
    ours = scaled_dot_product_attention(query, key, value, mask)
    torch.testing.assert_close(ours, F.scaled_dot_product_attention(query, key, value, mask))


def test_heads_look_at_their_own_dimensions() -> None:
    block, x = MultiHeadAttentionBlock(8, 2), torch.randn(1, 3, 8)
    block.w_o.weight.data = torch.eye(8)
    one_head = []
    for part in (slice(0, 4), slice(4, 8)):
        query, key, value = (linear(x)[:, None, :, part] for linear in (block.w_q, block.w_k, block.w_v))
        one_head.append(scaled_dot_product_attention(query, key, value, None))
    torch.testing.assert_close(block(x, x, MaskedAttention(None)), torch.cat(one_head, dim=-1)[:, 0])


# The whole


def test_tied_embeddings_are_one_matrix() -> None:
    tied, untied = Transformer(50, SMALL), Transformer(50, replace(SMALL, tie_embeddings=False))
    assert tied.projection.linear.weight is tied.src_embed.embedding.weight is tied.tgt_embed.embedding.weight
    count = [sum(parameter.numel() for parameter in model.parameters()) for model in (tied, untied)]
    assert count[1] - count[0] == 2 * 50 * 32


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_whole_model_equals_torch_nn_transformer(norm: Literal["pre", "post"]) -> None:
    config = replace(SMALL, norm=norm)
    ours = scrambled(Transformer(40, config))
    theirs = torch_transformer(ours, config)
    batch = collate([[5, 6, 7, 8], [9]], [[10, 11], [12, 13, 14, 15]])
    src = ours.src_position(ours.src_embed(batch.src))
    tgt = ours.tgt_position(ours.tgt_embed(batch.tgt))
    expected = theirs(
        src,
        tgt,
        tgt_mask=~causal_mask(batch.tgt.size(1))[0, 0],
        src_key_padding_mask=batch.src == PAD,
        memory_key_padding_mask=batch.src == PAD,
        tgt_key_padding_mask=batch.tgt == PAD,
    )
    vectors = ours.decode(
        batch.tgt,
        ours.encode(batch.src, MaskedAttention(batch.src_mask)),
        MaskedAttention(batch.tgt_mask),
        MaskedAttention(batch.src_mask),
    )
    real = batch.labels != PAD
    torch.testing.assert_close(vectors[real], expected[real], atol=1e-5, rtol=1e-5)


def torch_transformer(model: Transformer, config: Config) -> Any:
    """torch's Transformer holding our weights; for post-norm without its final norms, which the paper has not."""
    kwargs: dict[str, Any] = {"dropout": 0.0, "batch_first": True, "norm_first": config.norm == "pre"}
    sizes = (config.d_model, config.n_heads, config.d_ff)
    final = [nn.LayerNorm(config.d_model) if config.norm == "pre" else None for _ in range(2)]
    encoder_layer = nn.TransformerEncoderLayer(*sizes, **kwargs)
    decoder_layer = nn.TransformerDecoderLayer(*sizes, **kwargs)
    ours: Any = model
    theirs: Any = nn.Transformer(
        *sizes[:2],
        batch_first=True,
        custom_encoder=nn.TransformerEncoder(
            encoder_layer, config.n_encoder_layers, final[0], enable_nested_tensor=False
        ),
        custom_decoder=nn.TransformerDecoder(decoder_layer, config.n_decoder_layers, final[1]),
    )

    def copy_attention(to: nn.MultiheadAttention, block: MultiHeadAttentionBlock) -> None:
        assert to.in_proj_weight is not None
        to.in_proj_weight.data = torch.cat([block.w_q.weight, block.w_k.weight, block.w_v.weight])
        to.in_proj_bias.data.zero_()
        to.out_proj.weight.data = block.w_o.weight
        to.out_proj.bias.data.zero_()

    def copy_norm(to: nn.LayerNorm, norm: LayerNormalization) -> None:
        to.weight.data, to.bias.data = norm.alpha.data, norm.bias.data

    for to, block in zip(theirs.encoder.layers, ours.encoder.blocks, strict=True):
        copy_attention(to.self_attn, block.self_attention)
        to.linear1.load_state_dict(block.feed_forward.linear_1.state_dict())
        to.linear2.load_state_dict(block.feed_forward.linear_2.state_dict())
        for i, residual in enumerate(block.residuals, 1):
            copy_norm(getattr(to, f"norm{i}"), residual.norm)
    for to, block in zip(theirs.decoder.layers, ours.decoder.blocks, strict=True):
        copy_attention(to.self_attn, block.self_attention)
        copy_attention(to.multihead_attn, block.cross_attention)
        to.linear1.load_state_dict(block.feed_forward.linear_1.state_dict())
        to.linear2.load_state_dict(block.feed_forward.linear_2.state_dict())
        for i, residual in enumerate(block.residuals, 1):
            copy_norm(getattr(to, f"norm{i}"), residual.norm)
    if config.norm == "pre":
        copy_norm(theirs.encoder.norm, ours.encoder.norm)
        copy_norm(theirs.decoder.norm, ours.decoder.norm)
    return theirs.eval()


def test_a_later_target_token_changes_no_earlier_logit(model: Transformer) -> None:
    one, other = collate([[50, 51]], [[60, 61, 62, 63]]), collate([[50, 51]], [[60, 61, 99, 98]])
    logits = [model(b.src, b.tgt, b.src_mask, b.tgt_mask) for b in (one, other)]
    torch.testing.assert_close(logits[0][:, :3], logits[1][:, :3])
    assert not torch.allclose(logits[0][:, 3:], logits[1][:, 3:])


def test_an_earlier_token_changes_later_logits(model: Transformer) -> None:
    one, other = collate([[50, 51]], [[60, 61]]), collate([[50, 52]], [[60, 61]])
    logits = [model(b.src, b.tgt, b.src_mask, b.tgt_mask) for b in (one, other)]
    assert not torch.allclose(logits[0], logits[1])


def test_padding_changes_nothing(model: Transformer) -> None:
    alone = collate([[50, 51]], [[60, 61]])
    beside = collate([[50, 51], [52] * 9], [[60, 61], [70] * 7])
    expected = model(alone.src, alone.tgt, alone.src_mask, alone.tgt_mask)
    got = model(beside.src, beside.tgt, beside.src_mask, beside.tgt_mask)
    torch.testing.assert_close(got[:1, :3], expected)


def test_cached_decoding_equals_uncached(model: Transformer) -> None:
    batch = collate([[50, 51, 52], [53]], [[60, 61, 62, 63, 64], [70, 71, 72, 73, 74]])
    memory = model.encode(batch.src, MaskedAttention(batch.src_mask))
    whole = model.decode(batch.tgt, memory, MaskedAttention(batch.tgt_mask), MaskedAttention(batch.src_mask))
    cache = DecoderCache()
    steps = [model.decode(batch.tgt[:, t : t + 1], memory, *cache.next_step(batch.src_mask)) for t in range(6)]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole)
    assert cache.length == 6


def test_a_cache_keeps_the_selected_rows(model: Transformer) -> None:
    batch = collate([[50, 51], [52, 53], [54, 55]], [[60, 61], [62, 63], [64, 65]])
    rows = torch.tensor([2, 0])
    memory = model.encode(batch.src, MaskedAttention(batch.src_mask))
    whole = model.decode(batch.tgt, memory, MaskedAttention(batch.tgt_mask), MaskedAttention(batch.src_mask))
    cache = DecoderCache()
    model.decode(batch.tgt[:, :1], memory, *cache.next_step(batch.src_mask))
    cache.select(rows)
    step = model.decode(batch.tgt[rows, 1:2], memory[rows], *cache.next_step(batch.src_mask[rows]))
    torch.testing.assert_close(step, whole[rows, 1:2])


def test_sentences_longer_than_in_training_are_encoded(model: Transformer) -> None:
    src = torch.randint(4, 99, (1, 3 * model.config.max_length))
    assert model.encode(src, MaskedAttention(padding_mask(src))).isfinite().all()


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_matrices_are_initialized_as_glorots(optimizer: Literal["adam", "muon"]) -> None:
    """Glorot and Bengio's mean square is 2 / (rows + columns); embeddings have a variance of 1 / D."""
    parameters = dict(Transformer(1000, replace(SMALL, d_model=128, d_ff=512, optimizer=optimizer)).named_parameters())
    for name in ("self_attention.w_q", "feed_forward.linear_1", "self_attention.w_o", "feed_forward.linear_2"):
        matrix = parameters[f"decoder.blocks.0.{name}.weight"]
        assert matrix.std().item() == pytest.approx(math.sqrt(2 / sum(matrix.shape)), rel=0.05)
    assert parameters["src_embed.embedding.weight"].std().item() == pytest.approx(128**-0.5, rel=0.05)


def test_initial_logits_are_near_even() -> None:
    """So that the first loss is about ln V, not tens of nats."""
    batch = collate([[5, 6, 7]], [[10, 11, 12]])
    model = Transformer(1000, replace(SMALL, d_model=128)).eval()
    logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    loss = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten())
    assert loss.item() == pytest.approx(math.log(1000), rel=0.2)
