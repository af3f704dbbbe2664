"""The loss against torch's own, and the schedules at their corners."""

from copy import deepcopy
from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch.nn import functional as F

from config import PAD, Config
from dataset import collate
from model import Transformer
from training.objective import CHUNK, BatchLoss, label_smoothed_cross_entropy, learning_rate, optimizers


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("size", [1, CHUNK, 2 * CHUNK + 7])
def test_the_loss_in_chunks_and_its_gradients_are_torchs_in_one(smoothing: float, size: int) -> None:
    vectors, weight = torch.randn(size, 8, requires_grad=True), torch.randn(11, 8, requires_grad=True)
    labels = torch.randint(1, 11, (size,))
    labels[1::50] = PAD
    loss, plain = label_smoothed_cross_entropy(vectors, weight, labels, smoothing)
    logits = vectors @ weight.T
    expected = F.cross_entropy(logits, labels, label_smoothing=smoothing, ignore_index=PAD, reduction="sum")
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(plain, F.cross_entropy(logits.detach(), labels, ignore_index=PAD, reduction="sum"))
    assert not plain.requires_grad
    ours = torch.autograd.grad(loss * 3, [vectors, weight])
    torch.testing.assert_close(ours, torch.autograd.grad(expected * 3, [vectors, weight]), rtol=1e-4, atol=1e-4)


def test_the_loss_stands_enormous_logits() -> None:
    vectors, weight = torch.tensor([[1e4, -1e4]], requires_grad=True), torch.eye(2)
    loss, _ = label_smoothed_cross_entropy(vectors, weight, torch.tensor([1]), 0.0)
    assert loss.item() == pytest.approx(2e4)
    assert torch.autograd.grad(loss, vectors)[0].tolist() == [[1.0, -1.0]]


def test_in_bf16_the_loss_is_close_to_that_in_fp32() -> None:
    vectors, weight = torch.randn(100, 64, requires_grad=True), torch.randn(500, 64, requires_grad=True)
    labels = torch.randint(500, (100,))
    exact, _ = label_smoothed_cross_entropy(vectors, weight, labels, 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, _ = label_smoothed_cross_entropy(vectors, weight, labels, 0.1)
    assert loss.item() == pytest.approx(exact.item(), rel=0.01)
    ours, expected = (torch.autograd.grad(value, [vectors, weight]) for value in (loss, exact))
    for a, b in zip(ours, expected, strict=True):
        assert a.dtype == torch.float32
        assert (a - b).norm() < 0.02 * b.norm()


def test_an_even_guess_has_the_vocabulary_for_its_perplexity() -> None:
    _, plain = label_smoothed_cross_entropy(torch.zeros(5, 8), torch.randn(40, 8), torch.arange(1, 6), 0.1)
    assert (plain / 5).exp().item() == pytest.approx(40)


def test_padding_is_not_scored(model: Transformer) -> None:
    together = collate([[50, 51], [52]], [[60], [61, 62, 63]])
    alone = [collate([[50, 51]], [[60]]), collate([[52]], [[61, 62, 63]])]
    loss, plain = BatchLoss(model, 0.1)(together)
    parts = [BatchLoss(model, 0.1)(batch) for batch in alone]
    torch.testing.assert_close(loss, parts[0][0] + parts[1][0])
    torch.testing.assert_close(plain, parts[0][1] + parts[1][1])
    every = model(together.src, together.tgt, together.src_mask, together.tgt_mask)
    expected = F.cross_entropy(
        every.flatten(0, 1), together.labels.flatten(), ignore_index=PAD, label_smoothing=0.1, reduction="sum"
    )
    torch.testing.assert_close(loss, expected)


def test_warm_up_and_decay_are_linear_and_end_near_zero() -> None:
    config = replace(Config(), lr=1.0, warmup_steps=10)
    rates = [learning_rate(step, 1000, config) for step in range(1, 1001)]
    assert rates[:10] == pytest.approx([step / 10 for step in range(1, 11)])
    assert set(rates[9:501]) == {1.0}
    assert rates[500:] == pytest.approx([1 - step / 500 for step in range(500)])


@pytest.mark.parametrize("schedule", ["linear", "inverse_sqrt"])
def test_half_of_the_steps_need_not_know_how_many_there_are(schedule: Literal["linear", "inverse_sqrt"]) -> None:
    config = replace(Config(), lr=1.0, warmup_steps=10, schedule=schedule)
    for step in range(1, 200):
        rates = {learning_rate(step, total, config) for total in range(max(100, 2 * step), 500)}
        assert len(rates) == 1


def test_inverse_square_root_is_the_papers() -> None:
    """lrate = d_model^-0.5 · min(step^-0.5, step · warmup^-1.5), section 5.3, formula 3."""
    config = replace(Config(), lr=512**-0.5 * 4000**-0.5, warmup_steps=4000, schedule="inverse_sqrt")
    for step in (1, 100, 4000, 4001, 50_000, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert learning_rate(step, 100_000, config) == pytest.approx(expected)


@pytest.mark.parametrize("schedule", ["linear", "inverse_sqrt"])
def test_short_trainings_warm_up_for_a_tenth(schedule: Literal["linear", "inverse_sqrt"]) -> None:
    config = replace(Config(), lr=1.0, warmup_steps=1000, schedule=schedule)
    rates = [learning_rate(step, 50, config) for step in range(1, 51)]
    assert rates[4] == max(rates) == 1.0
    assert all(rate > 0 for rate in rates)
    assert learning_rate(1, 1, config) > 0


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_every_weight_is_updated_once(tiny: Config, optimizer: Literal["adam", "muon"]) -> None:
    model = Transformer(300, replace(tiny, optimizer=optimizer))
    groups = [group for one in optimizers(model, model.config) for group in one.param_groups]
    updated = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(updated) == sorted(map(id, model.parameters()))


def test_muon_steps_equally_far_in_all_directions_of_a_matrix_and_as_far_as_adam(tiny: Config) -> None:
    model = Transformer(300, replace(tiny, optimizer="muon"))
    adam, muon = optimizers(model, model.config)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter) * torch.logspace(-1, 0, parameter.size(-1))  # unequal directions
    for one in (adam, muon):
        for group in one.param_groups:
            group["lr"] = 0.01
        one.step()
    moved = {name: parameter.detach() - before[name] for name, parameter in model.named_parameters()}
    matrix = moved["decoder.blocks.1.feed_forward.linear_1.weight"]
    directions = torch.linalg.svdvals(matrix)
    assert directions.max() < 2 * directions.min()
    assert matrix.square().mean().sqrt() == pytest.approx(0.2 * 0.01, rel=0.3)  # Adam's, as measured by Liu et al.
    assert moved["src_embed.embedding.weight"].abs().mean() == pytest.approx(0.01, rel=1e-3)  # Adam's first step


def test_muon_is_torchs_and_goes_on_from_its_state(tiny: Config) -> None:
    ours, theirs = (Transformer(300, replace(tiny, optimizer="muon")) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    start = {name: parameter.detach().clone() for name, parameter in ours.named_parameters()}
    matrices = [p for stack in (theirs.encoder, theirs.decoder) for p in stack.parameters() if p.dim() == 2]
    torchs = torch.optim.Muon(matrices, weight_decay=0.0, ns_steps=3, adjust_lr_fn="match_rms_adamw")
    for step in range(4):
        muon, state = optimizers(ours, ours.config)[1], deepcopy(torchs.state_dict())
        muon.load_state_dict(state)
        for one, model in ((muon, ours), (torchs, theirs)):
            torch.manual_seed(step)
            one.param_groups[0]["lr"] = 0.01 / (1 + step)
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
            one.step()
    moved = 0
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert (a - b).norm() <= 0.03 * (b - start[name]).norm()  # both round to bf16
        moved += not torch.equal(a, start[name])
    assert moved == len(matrices)
