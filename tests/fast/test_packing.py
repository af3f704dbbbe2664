"""A packed forward pass gives the vectors, losses and gradients of a padded one, without the padding."""

from dataclasses import replace
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from config import Config
from dataset import collate
from fast.forward import PackedBatchLoss
from fast.packed_batch import PackedBatch
from fast.packing import ROUND, Packing
from model import ResidualConnection, Transformer
from tapis.config import PAD


def reals(lengths: list[int]) -> Tensor:
    """(B, T), True for the first so many positions of each sentence."""
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


# Three pairs of which hardly two sides are equally long
UNEVEN = [[5, 6, 7, 8], [9], [10] * 30], [[10, 11], [12, 13, 14, 15] * 9, [20]]


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.sampled_from([1, 2, 4]))
def test_packing_and_unpacking_keep_vectors_and_gradients(lengths: list[int], n_heads: int) -> None:
    real = reals(lengths)
    packing = Packing.of(real)
    grid = torch.randn(*real.shape, 8, dtype=torch.float64, requires_grad=True)
    rows = packing.from_heads(grid[:, None])
    assert packing.n_tokens == sum(lengths) < len(rows) and len(rows) % ROUND == 0
    torch.testing.assert_close(rows[: packing.n_tokens], grid[real])
    heads = packing.to_heads(rows, n_heads)
    expected = grid.view(*real.shape, n_heads, -1).transpose(1, 2)
    torch.testing.assert_close(heads.transpose(1, 2)[real], expected.transpose(1, 2)[real])
    torch.testing.assert_close(packing.from_heads(heads)[: packing.n_tokens], rows[: packing.n_tokens])
    weights = torch.randn_like(expected) * real[:, None, :, None]
    ours, theirs = (torch.autograd.grad((weights * x).sum(), grid)[0] for x in (heads, expected))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("lengths", [[ROUND], [ROUND - 1], [64, 64], [3, 9]])
def test_at_least_one_row_holds_no_token(lengths: list[int]) -> None:
    packing = Packing.of(reals(lengths))
    assert (
        len(packing.position_of_row) % ROUND == 0
        and packing.n_tokens < len(packing.position_of_row) <= packing.n_tokens + ROUND
    )
    x = torch.randn(len(packing.position_of_row), 4, requires_grad=True)
    (grad,) = torch.autograd.grad(packing.to_heads(x, 2).sum(), x)
    assert grad[: packing.n_tokens].eq(1).all() and grad[packing.n_tokens :].eq(0).all()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_packed_loss_has_the_gradients_of_the_padded_one(norm: Literal["pre", "post"]) -> None:
    model = Transformer(40, replace(Config(), d_model=16, n_heads=2, d_ff=32, dropout=0.0, norm=norm)).double()
    batch = collate(*UNEVEN)
    logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    padded = F.cross_entropy(
        logits.flatten(0, 1), batch.labels.flatten(), ignore_index=PAD, label_smoothing=0.1, reduction="sum"
    )
    names = [name for name, _ in model.named_parameters()]
    expected = dict(zip(names, torch.autograd.grad(padded, list(model.parameters())), strict=True))
    packed, _ = PackedBatchLoss(model, 0.1)(PackedBatch.of(*UNEVEN))
    assert packed.item() == pytest.approx(padded.item(), rel=1e-5)
    found = dict(zip(names, torch.autograd.grad(packed, list(model.parameters())), strict=True))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_residual_connections_stay_exact_in_bf16(norm: Literal["pre", "post"]) -> None:
    """Products round what they read; what goes past them, the residual connections, stays exact."""
    model = Transformer(40, replace(Config(), d_model=64, n_heads=2, d_ff=128, dropout=0.0, norm=norm))
    exact, _ = PackedBatchLoss(model, 0.1)(PackedBatch.of(*UNEVEN))
    expected = torch.autograd.grad(exact, list(model.parameters()))
    types = set[torch.dtype]()
    for residual in (module for module in model.modules() if isinstance(module, ResidualConnection)):
        residual.norm.register_forward_pre_hook(lambda module, args: types.add(args[0].dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, _ = PackedBatchLoss(model, 0.1)(PackedBatch.of(*UNEVEN))
    assert types == {torch.float32}
    assert loss.item() == pytest.approx(exact.item(), rel=0.01)
    found = torch.autograd.grad(loss, list(model.parameters()))
    assert {gradient.dtype for gradient in found} == {torch.float32}
    a, b = (torch.cat([gradient.flatten() for gradient in gradients]) for gradients in (found, expected))
    assert (a - b).norm() < 0.1 * b.norm()
