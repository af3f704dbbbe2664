"""Attention to sequences equals attention with padding, and is chosen only where it works."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_varlen import plain_varlen_attn
from torch.nn.attention import varlen

from config import Config
from dataset import collate
from fast.attention import SequenceLayout, can_attend_to_sequences
from fast.forward import PackedBatchLoss, run_stack
from fast.packed_batch import PackedBatch
from model import Transformer
from tapis.config import PAD

CPU = torch.device("cpu")
sentences = st.lists(st.lists(st.integers(4, 39), min_size=1, max_size=40), min_size=1, max_size=8)


@pytest.fixture
def plain_kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The plain formula in the place of torch's kernel."""
    can_attend_to_sequences.cache_clear()
    monkeypatch.setattr(varlen, "varlen_attn", plain_varlen_attn)
    yield
    can_attend_to_sequences.cache_clear()


@settings(deadline=None)
@given(sentences, st.randoms())
def test_every_row_belongs_to_one_sequence(sources: list[list[int]], random: Any) -> None:
    targets = [random.choice(sources) for _ in sources]
    batch = collate(sources, targets)
    packed = PackedBatch.of(sources, targets, by_sequences=True)
    layout = packed.layout
    assert isinstance(layout, SequenceLayout)
    assert (packed.n_tgt, packed.n_tokens) == (batch.n_tgt, batch.n_tokens)
    for rows, offsets, longest, ids in (
        (packed.src, layout.src_offsets, layout.longest_src, batch.src),
        (packed.tgt, layout.tgt_offsets, layout.longest_tgt, batch.tgt),
        (packed.labels, layout.tgt_offsets, layout.longest_tgt, batch.labels),
    ):
        lengths = offsets.diff()
        assert int(offsets[0]) == 0 and int(offsets[-1]) == len(rows) and int(lengths.max()) == longest
        assert (lengths > 0).all()
        *parts, empty = torch.split(rows, lengths.tolist())
        assert [part.tolist() for part in parts] == [row[row != PAD].tolist() for row in ids]
        assert (empty == PAD).all()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_loss_by_sequences_has_the_gradients_of_the_padded_one(
    norm: Literal["pre", "post"], plain_kernel: None
) -> None:
    model = Transformer(40, replace(Config(), d_model=16, n_heads=2, d_ff=32, dropout=0.0, norm=norm))
    ids = [[5, 6, 7, 8], [9], [10] * 30], [[10, 11], [12, 13, 14, 15] * 9, [20]]
    results = []
    for by_sequences in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss, cross_entropy = PackedBatchLoss(model, 0.1)(PackedBatch.of(*ids, by_sequences))
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        results.append((loss.item(), cross_entropy.item(), torch.cat([gradient.flatten() for gradient in gradients])))
    (padded_loss, padded_cross_entropy, padded), (loss, cross_entropy, found) = results
    assert loss == pytest.approx(padded_loss, rel=2e-3)
    assert cross_entropy == pytest.approx(padded_cross_entropy, rel=2e-3)
    assert (found - padded).norm() < 0.05 * padded.norm()


def test_sequences_are_not_chosen_where_torch_has_no_kernel() -> None:
    can_attend_to_sequences.cache_clear()
    assert not can_attend_to_sequences(CPU, torch.bfloat16, 2, 8)


def test_sequences_are_chosen_where_the_kernel_is_right(plain_kernel: None) -> None:
    assert can_attend_to_sequences(CPU, torch.bfloat16, 2, 8)
    assert can_attend_to_sequences(CPU, torch.float16, 4, 32)


@pytest.mark.parametrize("fault", ["another signature", "no kernel", "wrong values", "wrong gradients"])
def test_sequences_are_not_chosen_where_the_kernel_is_wrong(
    fault: str, plain_kernel: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(query: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if fault == "another signature":
            raise TypeError("unexpected keyword argument 'window_size'")
        if fault == "no kernel":
            raise RuntimeError("no kernel image is available for execution on the device")
        if fault == "wrong values":
            kwargs["window_size"] = (-1, -1)
        found = plain_varlen_attn(query, *args, **kwargs)
        return found if fault == "wrong values" else 2 * found - found.detach()

    monkeypatch.setattr(varlen, "varlen_attn", faulty)
    assert not can_attend_to_sequences(CPU, torch.bfloat16, 2, 8)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # torch's own
def test_stacks_with_torchs_kernel_are_one_graph_for_all_shapes() -> None:
    """Captured as for a GPU, but not run: torch has no kernel for CPUs."""
    model = Transformer(40, replace(Config(), d_model=16, n_heads=2, d_ff=32, dropout=0.0))
    captured: list[torch.fx.GraphModule] = []

    def capture(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        captured.append(graph)
        return lambda *args: [torch.zeros(len(rows), 16)]

    torch._dynamo.reset()
    compiled = torch.compile(run_stack, fullgraph=True, dynamic=True, backend=capture)
    for lengths in ([3, 5], [7], [4, 9, 90]):
        ids = [[5] * n for n in lengths]
        layout = PackedBatch.of(ids, ids, by_sequences=True).layout
        rows = torch.randn(int(layout.src_offsets[-1]), 16)  # type: ignore[union-attr]
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            compiled(model.encoder, rows, layout.encoder)
            compiled(model.decoder, rows, rows.bfloat16(), layout.decoder, layout.source)
    assert len(captured) == 2
    calls = [sum("varlen_attn" in str(node.target) for node in graph.graph.nodes) for graph in captured]
    assert calls == [3, 6], "layers, and twice the layers"
