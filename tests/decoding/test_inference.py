"""Products of 16 and 8 bits: what they may lose, row by row, and that the model itself stays as it is."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from conftest import Command
from torch import Tensor, nn

from config import Config, TranslatingPrecision
from dataset import causal_mask, collate
from decoding import kernels
from decoding.inference import (
    CastLinear,
    FusedSelfAttention,
    GrowingKeyValueCache,
    Int8Linear,
    SourceAttention,
    in_precision,
    quantize_rows,
)
from decoding.scoring import score
from decoding.translator import Translator
from model import KeyValueCache, LayerNormalization, Transformer, scaled_dot_product_attention
from system.devices import cpu_features
from text.corpus import Corpus

compiled = pytest.mark.skipif(
    kernels.kernels() is None, reason="kernels.c was not compiled, for want of a C compiler, or this CPU lacks VNNI"
)


# torch asks the processor for VNNI, and oneDNN, told to do without, then adds up 8-bit products with saturation.
exact = pytest.mark.skipif(
    "avx512_vnni" in torch.cpu.get_capabilities() and "avx512_vnni" not in cpu_features(),
    reason="VNNI is turned off by the environment, which torch does not see",
)


@pytest.fixture(params=[pytest.param("kernels.c", marks=compiled), pytest.param("torch", marks=exact)])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By kernels.c, where it is, and as where it is not."""
    if request.param == "torch":
        monkeypatch.setattr(kernels, "kernels", lambda: None)


def linear(inside: int, outside: int, bias: bool) -> nn.Linear:
    layer = nn.Linear(inside, outside, bias=bias)
    nn.init.normal_(layer.weight)
    return layer.requires_grad_(False)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 16), (5, 16), (2, 3, 16), (0, 16), (7, 1, 16)])
def test_an_int8_layer_is_the_layer_but_for_rounding(shape: tuple[int, ...], bias: bool) -> None:
    layer, x = linear(16, 24, bias), torch.randn(shape)
    y = Int8Linear(layer.weight, layer.bias)(x)
    assert y.shape == (*shape[:-1], 24)
    # Every factor is off by half a unit at most: |x| + u_x / 2 times |w| + u_w / 2, less |x| |w|.
    unit_x, unit_w = (t.abs().amax(-1, keepdim=True) / 254 for t in (x, layer.weight))
    worst = (x.abs() + unit_x) @ (layer.weight.abs() + unit_w).T - x.abs() @ layer.weight.abs().T
    assert ((y - layer(x)).abs() <= worst + 1e-4).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [True, False])
def test_a_cast_layer_equals_autocast(dtype: torch.dtype, bias: bool) -> None:
    layer, x = linear(16, 24, bias), torch.randn(2, 3, 16)
    with torch.autocast("cpu", dtype=dtype):
        wanted = layer(x)
    torch.testing.assert_close(CastLinear(layer.weight, layer.bias, dtype)(x), wanted)


@pytest.mark.usefixtures("either")
def test_an_int8_layer_is_exact_for_small_integers() -> None:
    """Rows whose largest entry is 127 are their own rounding."""

    def whole(rows: int) -> Tensor:
        x = torch.randint(-127, 128, (rows, 32)).float()
        x[:, 0] = 127
        return x

    layer, x = linear(32, 8, bias=False), whole(6)
    layer.weight.copy_(whole(8))
    assert torch.equal(Int8Linear(layer.weight, layer.bias)(x), layer(x))


@pytest.mark.usefixtures("either")
def test_an_int8_row_is_the_same_in_any_batch() -> None:
    whole = linear(64, 40, bias=True)
    layer = Int8Linear(whole.weight, whole.bias)
    x = torch.randn(9, 64) * torch.logspace(-3, 3, 9)[:, None]
    together = layer(x)
    assert all(torch.equal(together[i : i + 1], layer(x[i : i + 1])) for i in range(9))


@pytest.mark.usefixtures("either")
def test_rows_of_zeros_stay_zeros() -> None:
    values, scale = quantize_rows(torch.zeros(2, 4))
    assert not values.any() and (scale > 0).all()
    layer = linear(4, 3, bias=True)
    assert torch.equal(Int8Linear(layer.weight, layer.bias)(torch.zeros(2, 4)), layer.bias.expand(2, 3))


@compiled
@pytest.mark.parametrize("rows", [0, 1, 4, 11, 12, 33, 132, 133, 300])
@pytest.mark.parametrize(("inside", "outside"), [(2, 1), (50, 31), (64, 32), (250, 33), (1040, 300)])
def test_the_linear_kernel_equals_torch(rows: int, inside: int, outside: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = linear(inside, outside, bias=True), torch.randn(rows, inside)
    weight, bias = layer.weight, layer.bias
    kernel = Int8Linear(weight, None)
    plain, added = kernel(x), Int8Linear(weight, bias)(x)
    assert torch.equal(kernel(x.T.contiguous().T.double()), plain)  # in whatever order and type it comes
    monkeypatch.setattr(kernels, "kernels", lambda: None)
    assert torch.equal(plain, Int8Linear(weight, None)(x))  # whole numbers, and scaled in the same order
    torch.testing.assert_close(added, Int8Linear(weight, bias)(x))


@compiled
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("positions", [(1, 1), (1, 16), (5, 17), (3, 40)])
@pytest.mark.parametrize("k", [2, 16, 50, 64, 130])
def test_the_attention_kernel_equals_the_formula(dtype: torch.dtype, positions: tuple[int, int], k: int) -> None:
    t, s = positions
    query = torch.randn(3, t, 2 * k).view(3, t, 2, k).transpose(1, 2)  # as the layer gives it
    key, value = (torch.randn(3, 2, s + 3, k).to(dtype)[:, :, :s] for _ in "kv")  # with room behind
    padding = torch.rand(3, 1, 1, s) < 0.7
    padding[..., 0] = True
    for mask in (None, padding, torch.rand(t, s).ge(0.5).index_fill(1, torch.tensor([0]), True)[None, None]):
        found = kernels.attention(query, key, value, mask)
        torch.testing.assert_close(found, scaled_dot_product_attention(query, key.float(), value.float(), mask))
    key[:, :, 1:], value[:, :, 1:] = 1e4, 1e30  # what may not be attended to does not count, however large
    only_first = torch.arange(s).eq(0).expand(1, 1, 1, s)
    torch.testing.assert_close(
        kernels.attention(query, key, value, only_first), value[:, :, :1].float().expand(3, 2, t, k)
    )


@compiled
def test_the_attention_kernel_takes_scores_of_any_size() -> None:
    """From 0 down to where a weight is nothing."""
    scores = torch.linspace(0, -120, 64)
    query, key = torch.eye(64)[None, None, :1], torch.zeros(1, 1, 64, 64)
    key[..., 0] = 8 * scores  # over √64
    found = kernels.attention(query, key, torch.eye(64)[None, None], None).flatten()
    torch.testing.assert_close(found, scores.softmax(0), rtol=1e-5, atol=1e-37)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_an_int8_model_is_close_to_the_model(norm: Literal["pre", "post"], tiny: Config) -> None:
    torch.manual_seed(1)
    model = Transformer(90, replace(tiny, norm=norm)).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            nn.init.normal_(parameter, mean=1, std=0.3)
    batch = collate([[50, 51, 52], [53]], [[60, 61, 62], [70, 71, 72]])
    wanted = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    found = in_precision(model, "int8").model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    assert (found - wanted).norm() < 0.05 * wanted.norm()


@compiled
def test_kernels_are_used_in_int8_and_bf16(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    def uses(precision: TranslatingPrecision) -> bool:
        blocks = in_precision(model, precision).modules()
        attentions = [block for block in blocks if isinstance(block, FusedSelfAttention | SourceAttention)]
        return all(block.attend is kernels.attention for block in attentions)

    assert uses("int8") and uses("bf16") and not uses("fp32")  # which is the plain way
    monkeypatch.setattr(kernels, "kernels", lambda: None)
    assert not uses("int8")


def test_without_a_compiler_or_vnni_there_are_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "find_spec", lambda name: None)
        assert kernels.kernels.__wrapped__() is None
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    assert kernels.kernels.__wrapped__() is None


@pytest.mark.parametrize(("precision", "kind"), [("int8", Int8Linear), ("bf16", CastLinear), ("fp32", CastLinear)])
def test_preparing_leaves_the_model_as_it_is(
    model: Transformer, precision: TranslatingPrecision, kind: type[nn.Module]
) -> None:
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    prepared = in_precision(model, precision).model
    assert all(torch.equal(before[name], parameter) for name, parameter in model.named_parameters())
    assert not any(type(module) is LayerNormalization for module in prepared.modules())
    assert any(type(module) is LayerNormalization for module in model.modules())
    assert prepared.src_embed.embedding.weight is model.src_embed.embedding.weight  # no second copy in memory

    assert not any(isinstance(layer, nn.Linear) for layer in prepared.modules())
    n_blocks = model.config.n_encoder_layers + model.config.n_decoder_layers  # each has one product for three
    n_linear = sum(isinstance(layer, nn.Linear) for layer in model.modules())
    assert sum(isinstance(layer, kind) for layer in prepared.modules()) == n_linear - 2 * n_blocks


def test_a_prepared_model_equals_the_plain_one(model: Transformer) -> None:
    batch = collate([[50, 51, 52], [53]], [[60, 61, 62], [70, 71, 72]])
    prepared = in_precision(model, "fp32")
    fast = prepared.model
    memory = fast.encode(batch.src, batch.src_mask)
    torch.testing.assert_close(memory, model.encode(batch.src, batch.src_mask))
    whole = model.decode(batch.tgt, memory, batch.src_mask, batch.tgt_mask)
    torch.testing.assert_close(fast.decode(batch.tgt, memory, batch.src_mask, batch.tgt_mask), whole)
    cache = prepared.new_cache()
    steps = [fast.decode(batch.tgt[:, t : t + 1], memory, batch.src_mask, None, cache) for t in range(4)]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole)


def test_hypotheses_of_a_sentence_share_its_memory(model: Transformer) -> None:
    """Two sentences of which the first leaves, and three hypotheses of the other: as three equal sentences."""
    batch = collate([[50, 51, 52], [53, 54]], [[60, 61, 62], [70, 71, 72]])
    prepared = in_precision(model, "fp32")
    fast = prepared.model
    memory = fast.encode(batch.src, batch.src_mask)
    three = torch.tensor([1, 1, 1])
    tgt = batch.tgt[three, :3].clone()
    tgt[:, 2] = torch.tensor([80, 81, 82])
    whole = model.decode(tgt, memory[three], batch.src_mask[three], causal_mask(3))
    cache = prepared.new_cache()
    for t in range(2):
        fast.decode(batch.tgt[:, t : t + 1], memory, batch.src_mask, None, cache)
    cache.keep(three, torch.tensor([1]))
    step = fast.decode(tgt[:, 2:], memory[1:], batch.src_mask[1:], None, cache)
    torch.testing.assert_close(step, whole[:, 2:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_growing_cache_equals_the_plain_one(dtype: torch.dtype) -> None:
    plain, growing = KeyValueCache(is_source=False), GrowingKeyValueCache(is_source=False, dtype=None)
    for n_new in (1, 1, 3, 1, 7):
        key, value = torch.randn(2, 4, 2, n_new, 8).to(dtype).unbind()
        for found, expected in zip(growing.append(key, value), plain.append(key, value), strict=True):
            torch.testing.assert_close(found, expected, check_dtype=False)
            assert found.dtype == torch.float32  # on a CPU
        rows = torch.tensor([2, 0, 0, 3])
        plain.select(rows)
        growing.select(rows)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_narrow_precisions_lose_no_bleu(
    trained: "subprocess.CompletedProcess[str]", translator: Translator, demo: Corpus, precision: TranslatingPrecision
) -> None:
    small = Translator.load(Path(trained.args[0]) / "weights" / "demo", "cpu", precision)
    sources, references = ([pair[side] for pair in demo.test] for side in (0, 1))
    found = small(sources)
    assert score(found, references, "fr").bleu == pytest.approx(
        score(translator(sources), references, "fr").bleu, abs=1
    )
    alone = [small([source])[0] for source in sources[:40]]
    assert sum(a == b for a, b in zip(alone, found[:40], strict=True)) >= 39
    _, attention = small.attention("The cat is sitting on the mat.")
    torch.testing.assert_close(attention.weights.sum(-1), torch.ones(attention.weights.shape[:-1]))


def test_the_command_translates_in_int8(run_folder: object, called: Command) -> None:
    done = called("translate.py", "--device", "cpu", "--precision", "int8", "A cat.", "")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 2
