"""A model prepared for translating: what 16 bits may lose, and that the model itself stays as it is."""

import copy
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

from dataset import causal_mask, collate
from decoding.inference import (
    CastLinear,
    FusedSelfAttention,
    GrowingKeyValueCache,
    SearchCache,
    cast_again,
    in_precision,
    keep_narrow,
)
from decoding.translator import Translator
from machine.devices import DTYPES
from model import KeyValueCache, LayerNormalization, MaskedAttention, Transformer
from pairs.corpus import Corpus
from tapis.config import Precision
from tapis.scoring import score


def linear(inside: int, outside: int, bias: bool) -> nn.Linear:
    layer = nn.Linear(inside, outside, bias=bias)
    nn.init.normal_(layer.weight)
    return layer.requires_grad_(False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [True, False])
def test_a_cast_layer_equals_autocast(dtype: torch.dtype, bias: bool) -> None:
    layer, x = linear(16, 24, bias), torch.randn(2, 3, 16)
    with torch.autocast("cpu", dtype=dtype):
        wanted = layer(x)
    torch.testing.assert_close(CastLinear(layer.weight, layer.bias, dtype)(x), wanted)


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_preparing_leaves_the_model_as_it_is(model: Transformer, precision: Precision) -> None:
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    prepared = in_precision(model, precision)
    assert all(torch.equal(before[name], parameter) for name, parameter in model.named_parameters())
    assert not any(type(module) is LayerNormalization for module in prepared.modules())
    assert any(type(module) is LayerNormalization for module in model.modules())
    assert prepared.src_embed.embedding.weight is model.src_embed.embedding.weight  # no second copy in memory

    assert not any(isinstance(layer, nn.Linear) for layer in prepared.modules())
    n_blocks = model.config.n_encoder_layers + model.config.n_decoder_layers  # each has one more, for three
    n_linear = sum(isinstance(layer, nn.Linear) for layer in model.modules())
    assert sum(isinstance(layer, CastLinear) for layer in prepared.modules()) == n_linear + n_blocks


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_a_prepared_model_takes_over_weights_that_changed(model: Transformer, precision: Precision) -> None:
    """As on a GPU, where normalizations are cast, too."""
    changed = copy.deepcopy(model)
    prepared = in_precision(changed, precision)
    keep_narrow(prepared, DTYPES[precision])
    if any(value.is_mkldnn for module in prepared.modules() for value in cast_tensors(module)):
        pytest.skip("this CPU packs weights in bf16, as no GPU does")
    places = [value.data_ptr() for module in prepared.modules() for value in cast_tensors(module)]
    for parameter in changed.requires_grad_(False).parameters():
        parameter.add_(torch.rand_like(parameter))
    fresh = in_precision(changed, precision)
    keep_narrow(fresh, DTYPES[precision])
    cast_again(prepared, fresh)
    assert [value.data_ptr() for module in prepared.modules() for value in cast_tensors(module)] == places
    batch = collate([[50, 51, 52], [53]], [[60, 61, 62], [70, 71, 72]])
    of_prepared, of_fresh = (one.encode(batch.src, FusedSelfAttention(batch.src_mask)) for one in (prepared, fresh))
    assert torch.equal(of_prepared, of_fresh)
    source = FusedSelfAttention(batch.src_mask), MaskedAttention(batch.src_mask)
    decoded = [one.project(one.decode(batch.tgt, of_fresh, *source)) for one in (prepared, fresh)]
    assert torch.equal(*decoded)


def cast_tensors(module: nn.Module) -> list[torch.Tensor]:
    return [value for value in vars(module).values() if isinstance(value, torch.Tensor)]


def test_a_prepared_model_equals_the_plain_one(model: Transformer) -> None:
    batch = collate([[50, 51, 52], [53]], [[60, 61, 62], [70, 71, 72]])
    fast = in_precision(model, "fp32")
    memory = fast.encode(batch.src, FusedSelfAttention(batch.src_mask))
    torch.testing.assert_close(memory, model.encode(batch.src, MaskedAttention(batch.src_mask)))
    whole = model.decode(batch.tgt, memory, MaskedAttention(batch.tgt_mask), MaskedAttention(batch.src_mask))
    torch.testing.assert_close(
        fast.decode(batch.tgt, memory, FusedSelfAttention(batch.tgt_mask), MaskedAttention(batch.src_mask)), whole
    )
    cache = SearchCache()
    steps = [fast.decode(batch.tgt[:, t : t + 1], memory, *cache.next_step(batch.src_mask)) for t in range(4)]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole)


def test_hypotheses_of_a_sentence_share_its_memory(model: Transformer) -> None:
    """Two sentences of which the first leaves, and three hypotheses of the other: as three equal sentences."""
    batch = collate([[50, 51, 52], [53, 54]], [[60, 61, 62], [70, 71, 72]])
    fast = in_precision(model, "fp32")
    memory = fast.encode(batch.src, FusedSelfAttention(batch.src_mask))
    three = torch.tensor([1, 1, 1])
    tgt = batch.tgt[three, :3].clone()
    tgt[:, 2] = torch.tensor([80, 81, 82])
    whole = model.decode(tgt, memory[three], MaskedAttention(causal_mask(3)), MaskedAttention(batch.src_mask[three]))
    cache = SearchCache()
    for t in range(2):
        fast.decode(batch.tgt[:, t : t + 1], memory, *cache.next_step(batch.src_mask))
    cache.keep(three, torch.tensor([1]))
    step = fast.decode(tgt[:, 2:], memory[1:], *cache.next_step(batch.src_mask[1:]))
    torch.testing.assert_close(step, whole[:, 2:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_growing_cache_equals_the_plain_one(dtype: torch.dtype) -> None:
    plain, growing = KeyValueCache(), GrowingKeyValueCache()
    for n_new in (1, 1, 3, 1, 7):
        key, value = torch.randn(2, 4, 2, n_new, 8).to(dtype).unbind()
        for found, expected in zip(growing.append(key, value), plain.append(key, value), strict=True):
            torch.testing.assert_close(found, expected, check_dtype=False)
            assert found.dtype == torch.float32  # on a CPU
        rows = torch.tensor([2, 0, 0, 3])
        plain.select(rows)
        growing.select(rows)


def test_bf16_loses_no_bleu(trained: "subprocess.CompletedProcess[str]", translator: Translator, demo: Corpus) -> None:
    narrow = Translator.load(Path(trained.args[0]) / "weights" / "demo", "cpu", "bf16")
    sources, references = ([pair[side] for pair in demo.test] for side in (0, 1))
    found = narrow(sources)
    exact = score(translator(sources), references, "fr").bleu
    assert score(found, references, "fr").bleu == pytest.approx(exact, abs=1)
    alone = [narrow([source])[0] for source in sources[:40]]
    assert sum(a == b for a, b in zip(alone, found[:40], strict=True)) >= 39
