"""Fast dropout and layer normalization against the plain modules that they replace."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from config import Config
from fast.modules import ByteDropout, FusedLayerNormalization, install_fast_modules
from model import LayerNormalization, Transformer


@pytest.mark.parametrize("p", [0.0, 0.1, 0.25, 0.5, 0.9])
def test_dropout_keeps_the_rate_and_the_mean(p: float) -> None:
    """Of a million numbers; the rate is p to the nearest 256th, and what is kept is scaled for just that rate."""
    x = torch.ones(1_000_000, requires_grad=True)
    y = ByteDropout(p)(x)
    rate = round(256 * p) / 256
    assert (y == 0).float().mean().item() == pytest.approx(rate, abs=0.003)
    torch.testing.assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / (1 - rate)))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y)


def test_dropout_draws_every_number_independently() -> None:
    """Neighbours, of which eight share a random word, agree as often as chance lets them; two draws differ."""
    dropped = ByteDropout(0.5)(torch.ones(100_000, 8)) == 0
    for lag in range(1, 8):
        agree = (dropped[:, lag:] == dropped[:, :-lag]).float().mean().item()
        assert agree == pytest.approx(0.5, abs=0.01)
    assert dropped.float().mean(dim=0).tolist() == pytest.approx([0.5] * 8, abs=0.01)
    again = ByteDropout(0.5)(torch.ones(100_000, 8)) == 0
    assert (dropped == again).float().mean().item() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("shape", [(1,), (3, 5), (8, 2)])
def test_dropout_keeps_shape_and_type(shape: tuple[int, ...]) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        y = ByteDropout(0.5)(torch.ones(shape, dtype=dtype))
        assert y.shape == shape
        assert y.dtype == dtype


def test_dropout_is_off_in_evaluation() -> None:
    dropout, x = ByteDropout(0.5), torch.randn(2, 3, 4)
    assert not torch.equal(dropout(x), dropout(x))
    assert torch.equal(dropout.eval()(x), x)


def test_fused_layer_normalization_equals_the_formula() -> None:
    plain, x = LayerNormalization(16), torch.randn(3, 5, 16) * 4 + 2
    plain.alpha.data, plain.bias.data = torch.randn(16), torch.randn(16)
    fused = FusedLayerNormalization(plain)
    torch.testing.assert_close(fused(x), plain(x))
    constant = torch.full((1, 16), 3.0)
    torch.testing.assert_close(fused(constant), plain(constant))


def test_installing_keeps_parameters_and_changes_no_output() -> None:
    model = Transformer(40, replace(Config(), d_model=16, n_heads=2, d_ff=32)).eval()
    names = [name for name, _ in model.named_parameters()]
    parameters = list(model.parameters())
    src, tgt = torch.tensor([[5, 6, 3]]), torch.tensor([[2, 7]])
    masks = torch.ones(1, 1, 1, 3, dtype=torch.bool), torch.ones(2, 2, dtype=torch.bool).tril()[None, None]
    before = model(src, tgt, *masks)
    install_fast_modules(model)
    assert not any(type(module) in (nn.Dropout, LayerNormalization) for module in model.modules())
    assert [name for name, _ in model.named_parameters()] == names
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    torch.testing.assert_close(model(src, tgt, *masks), before)
