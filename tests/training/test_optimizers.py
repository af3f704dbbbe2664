"""The learning rate at its corners, and Muon against torch's own."""

from copy import deepcopy
from dataclasses import replace
from typing import Literal

import pytest
import torch

from config import Config
from model import Transformer
from training.optimizers import learning_rate, make_optimizers


def test_warm_up_and_decay_are_linear_and_end_near_zero() -> None:
    config = replace(Config(), lr=1.0)
    rates = [learning_rate(step, 1000, 10, config) for step in range(1, 1001)]
    assert rates[:10] == pytest.approx([step / 10 for step in range(1, 11)])
    assert set(rates[9:501]) == {1.0}
    assert rates[500:] == pytest.approx([1 - step / 500 for step in range(500)])
    assert learning_rate(100_000, 1000, 10, config) == 0, "a dry run times steps of a whole epoch"


@pytest.mark.parametrize("schedule", ["linear", "inverse_sqrt"])
def test_the_rate_of_the_first_half_does_not_depend_on_the_number_of_steps(
    schedule: Literal["linear", "inverse_sqrt"],
) -> None:
    config = replace(Config(), lr=1.0, schedule=schedule)
    for step in range(1, 200):
        rates = {learning_rate(step, total, 10, config) for total in range(max(100, 2 * step), 500)}
        assert len(rates) == 1


def test_the_inverse_square_root_schedule_equals_the_papers() -> None:
    """lrate = d_model^-0.5 · min(step^-0.5, step · warmup^-1.5), section 5.3, formula 3."""
    config = replace(Config(), lr=512**-0.5 * 4000**-0.5, schedule="inverse_sqrt")
    for step in (1, 100, 4000, 4001, 50_000, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert learning_rate(step, 100_000, 4000, config) == pytest.approx(expected)


@pytest.mark.parametrize("schedule", ["linear", "inverse_sqrt"])
def test_short_runs_warm_up_for_a_tenth_of_their_steps(schedule: Literal["linear", "inverse_sqrt"]) -> None:
    config = replace(Config(), lr=1.0, schedule=schedule)
    rates = [learning_rate(step, 50, 1000, config) for step in range(1, 51)]
    assert rates[4] == max(rates) == 1.0
    assert all(rate > 0 for rate in rates)
    assert learning_rate(1, 1, 1000, config) > 0


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_every_weight_is_updated_once(tiny: Config, optimizer: Literal["adam", "muon"]) -> None:
    model = Transformer(300, replace(tiny, optimizer=optimizer))
    groups = [group for one in make_optimizers(model, model.config, "fp32") for group in one.param_groups]
    updated = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(updated) == sorted(map(id, model.parameters()))


def test_muon_steps_equally_far_in_all_directions_and_as_far_as_adam(tiny: Config) -> None:
    model = Transformer(300, replace(tiny, optimizer="muon"))
    adam, muon = make_optimizers(model, model.config, "fp32")
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


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_muon_equals_torchs_and_takes_over_its_state(tiny: Config, precision: Literal["bf16", "fp32"]) -> None:
    ours, theirs = (Transformer(300, replace(tiny, optimizer="muon", precision=precision)) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    start = {name: parameter.detach().clone() for name, parameter in ours.named_parameters()}
    matrices = [p for stack in (theirs.encoder, theirs.decoder) for p in stack.parameters() if p.dim() == 2]
    torchs = torch.optim.Muon(matrices, weight_decay=0.0, ns_steps=3, adjust_lr_fn="match_rms_adamw")
    for step in range(4):
        muon, state = make_optimizers(ours, ours.config, "fp32")[1], deepcopy(torchs.state_dict())
        muon.load_state_dict(state)
        for one, model in ((muon, ours), (torchs, theirs)):
            torch.manual_seed(step)
            one.param_groups[0]["lr"] = 0.01 / (1 + step)
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
            one.step()
    moved = 0
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert (a - b).norm() <= 0.03 * (b - start[name]).norm()  # torch's rounds to bf16
        moved += not torch.equal(a, start[name])
    assert moved == len(matrices)
