"""Attention in ranges equals attention with padding, and is chosen only where it works."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_kernels import (
    mask_of,
    plain_attend,
    plain_attend_backward,
    plain_losses_and_gradient,
    register_plain_kernels,
)

from config import Config
from dataset import collate
from fast.attention import RangeLayout, attend, attend_backward, fault_of_attention
from fast.forward import PackedBatchLoss
from fast.loss import fault_of_loss, losses_and_gradient_of_rows
from fast.modules import install_fast_modules
from fast.packed_batch import PackedBatch
from model import Transformer
from tapis.config import PAD

CPU = torch.device("cpu")
sentences = st.lists(st.lists(st.integers(4, 39), min_size=1, max_size=40), min_size=1, max_size=8)


@pytest.fixture
def plain_kernels() -> Iterator[None]:
    """The plain formula in the place of the kernels."""
    fault_of_attention.cache_clear()
    fault_of_loss.cache_clear()
    register_plain_kernels()
    yield
    fault_of_attention.cache_clear()
    fault_of_loss.cache_clear()


@settings(deadline=None)
@given(sentences, st.randoms(), st.sampled_from([128, 640]))
def test_every_token_attends_to_its_sentence(sources: list[list[int]], random: Any, unit: int) -> None:
    targets = [random.choice(sources) for _ in sources]
    batch = collate(sources, targets)
    packed = PackedBatch.of(sources, targets, in_ranges=True, unit=unit)
    layout = packed.layout
    assert isinstance(layout, RangeLayout)
    assert (packed.n_tgt, packed.n_tokens) == (batch.n_tgt, batch.n_tokens)
    src, tgt = ([row[row != PAD].tolist() for row in ids] for ids in (batch.src, batch.tgt))
    for rows, sentences_of_rows in ((packed.src, src), (packed.tgt, tgt)):
        tokens = [token for sentence in sentences_of_rows for token in sentence]
        assert len(rows) % unit == 0 and rows.tolist() == [*tokens, *[PAD] * (len(rows) - len(tokens))]

    # Which sentence a row belongs to; the rows without a token belong to none.
    of_src, of_tgt = (
        torch.tensor([*[i for i, row in enumerate(side) for _ in row], *[-1] * (len(rows) - sum(map(len, side)))])
        for side, rows in ((src, packed.src), (tgt, packed.tgt))
    )
    encoder, decoder, source = (mask_of(form.ranges) for form in (layout.encoder, layout.decoder, layout.source))
    is_src, is_tgt = of_src >= 0, of_tgt >= 0
    assert torch.equal(encoder[is_src], of_src[is_src, None] == of_src)
    earlier = torch.ones(len(of_tgt), len(of_tgt)).tril().bool()
    assert torch.equal(decoder[is_tgt], ((of_tgt[:, None] == of_tgt) & earlier)[is_tgt])
    assert torch.equal(source, (of_tgt[:, None] == of_src) & is_tgt[:, None])
    for mask, is_token in ((encoder, is_src), (decoder, is_tgt)):
        assert torch.equal(mask[~is_token], torch.eye(len(mask)).bool()[~is_token])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_loss_in_ranges_has_the_gradients_of_the_padded_one(
    norm: Literal["pre", "post"], plain_kernels: None
) -> None:
    model = Transformer(40, replace(Config(), d_model=16, n_heads=2, d_ff=32, dropout=0.0, norm=norm))
    ids = [[5, 6, 7, 8], [9], [10] * 30], [[10, 11], [12, 13, 14, 15] * 9, [20]]
    results = []
    for in_ranges in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss, cross_entropy = PackedBatchLoss(model, 0.1)(PackedBatch.of(*ids, in_ranges))
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        results.append((loss.item(), cross_entropy.item(), torch.cat([gradient.flatten() for gradient in gradients])))
    (padded_loss, padded_cross_entropy, padded), (loss, cross_entropy, found) = results
    assert loss == pytest.approx(padded_loss, rel=2e-3)
    assert cross_entropy == pytest.approx(padded_cross_entropy, rel=2e-3)
    assert (found - padded).norm() < 0.05 * padded.norm()


def test_kernels_are_used_where_they_are_right(plain_kernels: None) -> None:
    assert not fault_of_attention(CPU, torch.bfloat16, 2, 8) and not fault_of_loss(CPU, torch.bfloat16)
    assert not fault_of_attention(CPU, torch.float32, 4, 32) and not fault_of_loss(CPU, torch.float32)


def test_kernels_are_not_used_where_there_are_none(plain_kernels: None) -> None:
    with attend.set_kernel_enabled("cpu", enabled=False):
        assert fault_of_attention(CPU, torch.bfloat16, 2, 8).startswith("the attention kernels fail: ")
    with losses_and_gradient_of_rows.set_kernel_enabled("cpu", enabled=False):
        assert fault_of_loss(CPU, torch.bfloat16).startswith("the loss kernel fails: ")


@pytest.mark.parametrize("fault", ["values", "gradients", "values of sources", "gradients of sources"])
def test_ranges_are_not_chosen_where_a_kernel_is_wrong(fault: str, plain_kernels: None) -> None:
    def wrong_values(*args: Any) -> tuple[torch.Tensor, torch.Tensor]:
        output, log_sum = plain_attend(*args)
        memory = args[1]
        return output.roll(1, 0) if memory is not None or "source" not in fault else output, log_sum

    def wrong_gradients(*args: Any) -> tuple[torch.Tensor, torch.Tensor]:
        of_rows, of_memory = plain_attend_backward(*args)
        return (of_rows, 2 * of_memory) if "source" in fault else (2 * of_rows, of_memory)

    if "values" in fault:
        attend.register_kernel("cpu")(wrong_values)
    else:
        attend_backward.register_kernel("cpu")(wrong_gradients)
    try:
        assert "differ" in fault_of_attention(CPU, torch.bfloat16, 2, 8)
    finally:
        register_plain_kernels()


@pytest.mark.parametrize("fault", ["losses", "cross-entropies", "gradient"])
def test_ranges_are_not_chosen_where_the_loss_kernel_is_wrong(fault: str, plain_kernels: None) -> None:
    def wrong(
        logits: torch.Tensor, labels: torch.Tensor, smoothing: float, vocab_size: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        before = logits.clone()
        losses, cross_entropies = plain_losses_and_gradient(logits, labels, smoothing, vocab_size)
        if fault == "gradient":
            logits[:, 4096:vocab_size] = before[:, 4096:vocab_size]  # what a second pass should write
        return losses * (1.1 if fault == "losses" else 1), cross_entropies * (1.1 if fault == "cross-entropies" else 1)

    losses_and_gradient_of_rows.register_kernel("cpu")(wrong)
    try:
        assert "differs" in fault_of_loss(CPU, torch.bfloat16)
    finally:
        register_plain_kernels()


@pytest.mark.skipif(find_spec("triton") is None, reason="no Triton")
def test_the_kernels_compute_the_plain_formula() -> None:
    """By Triton's interpreter, in a process that knows of it from its start."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "interpreted_kernels.py")],
        check=False,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=200,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:.*should not be instantiated")  # both torch's own
def test_stacks_in_ranges_are_one_graph_each_for_all_shapes(plain_kernels: None) -> None:
    model = Transformer(40, replace(Config(), d_model=16, n_heads=2, d_ff=32, dropout=0.0))
    install_fast_modules(model)
    losses = []
    for is_compiled in (False, True):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        model_loss = PackedBatchLoss(model, 0.1)
        if is_compiled:
            model_loss.compile_parts("aot_eager")  # with the gradients, whose shapes are derived
        for n_src, n_tgt in ((90, 95), (50, 200), (300, 20), (70, 70)):
            batch = PackedBatch.of([[5] * n_src], [[6] * n_tgt], in_ranges=True)
            loss, _ = model_loss(batch)
            loss.backward()
            losses.append(loss.item())
    assert losses[4:] == pytest.approx(losses[:4], rel=1e-4)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2
