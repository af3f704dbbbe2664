"""Searches of fixed shapes, as GPUs replay them: here every token is computed directly, on the CPU."""

import gc
import itertools
import random
from collections.abc import Callable, Iterator

import pytest
import torch
from plain_kernels import plain_attend_to_slots, plain_logit_statistics, register_plain_kernels
from torch import Tensor, nn

from dataset import pad
from decoding import captured
from decoding.captured import CapturedSearch, Size
from decoding.inference import CastLinear, FusedSelfAttention, in_precision, keep_narrow
from decoding.search import Step, beam_search, greedy_search
from decoding.static_cache import StaticCache, source_projection
from decoding.steps import plain_step, without_tags
from decoding.torch_searcher import gpu_batch_tokens
from fast.graphs import GraphPool, Replayed
from fast.slot_attention import attend_to_slots, fault_of_slot_attention
from fast.topk import fault_of_statistics, logit_statistics
from model import FeedForwardBlock, MaskedAttention, Transformer
from tapis.search import Search
from tapis.translator import SHORTEST

TAGS = [4, 5, 6]
MUCH = 2**30  # bytes


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few sentences and positions make a size, so that searches go from size to size. Nothing is differentiated."""
    monkeypatch.setattr(captured, "FEW", 1)
    monkeypatch.setattr(captured, "LONGEST_START", 16)
    with torch.inference_mode():
        yield


@pytest.fixture(params=[False, True], ids=["torch", "kernels"])
def has_kernels(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Without and with the operations that have kernels for GPUs, by plain formulas."""
    checks = fault_of_statistics, fault_of_slot_attention
    register_plain_kernels()
    for check in checks:
        check.cache_clear()
    with (
        attend_to_slots.set_kernel_enabled("cpu", enabled=request.param),
        logit_statistics.set_kernel_enabled("cpu", enabled=request.param),
    ):
        yield request.param
    for check in checks:
        check.cache_clear()


def sentences(n: int, longest_limit: int = 70) -> tuple[list[list[int]], list[int]]:
    """Random sources, and their limits."""
    numbers = random.Random(n)
    sources = [[numbers.randrange(7, 300) for _ in range(numbers.randrange(1, 30))] for _ in range(n)]
    return sources, [numbers.randrange(1, longest_limit) for _ in range(n)]


def plain(model: Transformer, sources: list[list[int]]) -> Step:
    step = plain_step(model, pad(sources))
    return lambda tokens, parents: without_tags(step, TAGS, tokens, parents)


def of(model: Transformer, most_bytes: int = MUCH) -> CapturedSearch:
    return CapturedSearch(in_precision(model, "fp32"), TAGS, most_bytes)


def test_greedy_search_of_fixed_shapes_equals_the_plain_one(model: Transformer, has_kernels: bool) -> None:
    """Sentences end at different times, the others move to smaller sizes and get more room; sizes are used again."""
    search = of(model)
    for n in (11, 1, 11, 6):
        sources, limits = sentences(n)
        expected = greedy_search(plain(model, sources), torch.tensor(limits))
        assert search.greedy_search(sources, limits) == expected
    shapes = {(size.n_sentences, size.longest) for size in search.searches}
    assert {(16, 16), (8, 32), (1, 16), (1, 64)} <= shapes, "sentences moved"


@pytest.mark.parametrize("settings", [Search(5), Search(5, 5), Search(2, 1, 0.0), Search(4, 3, 1.0)], ids=str)
def test_beam_search_of_fixed_shapes_equals_the_plain_one(
    model: Transformer, settings: Search, has_kernels: bool
) -> None:
    search = of(model)
    is_same: list[bool] = []
    for n in (9, 1, 4):
        sources, limits = sentences(n, 40)
        expected = beam_search(plain(model, sources), torch.tensor(limits), settings)
        found = search.beam_search(sources, limits, settings)
        for ours, theirs in zip(found, expected, strict=True):
            assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-4)
            is_same += [one.ids == other.ids for one, other in zip(ours, theirs, strict=True)]
    assert is_same.count(False) <= 1, "two hypotheses may have the same score but for rounding"
    assert len({(size.n_sentences, size.longest) for size in search.searches}) > 4


def test_a_step_of_fixed_shapes_equals_the_plain_one(model: Transformer) -> None:
    """Hypotheses multiply and are reordered."""
    sources = [[50, 51, 52], [53, 54], [55]]
    prepared = in_precision(model, "fp32")
    cache = StaticCache(prepared, source_projection(prepared), (3, 2, 16, 16))
    cache.start(torch.nn.functional.pad(pad(sources), (0, 12)))
    cache.encode()
    twice = [source for source in sources for _ in range(2)]
    plain_hypotheses = plain_step(model, pad(twice))
    parents = torch.arange(6).view(3, 2)
    for t, reordered in enumerate(([0, 1, 2, 3, 4, 5], [1, 0, 2, 2, 5, 4], [0, 0, 3, 2, 4, 5], [1, 1, 2, 3, 5, 4])):
        tokens = 60 + 10 * t + torch.arange(6).view(3, 2)
        found = cache.step(tokens, torch.tensor(reordered).view(3, 2) if t else parents)
        wanted = plain_hypotheses(tokens.view(6, 1), torch.tensor(reordered)[:, None] if t else None)
        torch.testing.assert_close(found.flatten(0, 1), wanted.flatten(0, 1))


def test_kernels_are_chosen_where_there_are_some(model: Transformer, has_kernels: bool) -> None:
    assert of(model).attends_with_kernel == has_kernels
    assert (not fault_of_statistics(torch.device("cpu"), torch.float32)) == has_kernels


@pytest.mark.parametrize("has_kernels", [True], indirect=True)
def test_kernels_are_not_chosen_where_they_are_wrong(model: Transformer, has_kernels: bool) -> None:
    attend_to_slots.register_kernel("cpu")(lambda *args: plain_attend_to_slots(*args).roll(1, 0))
    logit_statistics.register_kernel("cpu")(lambda logits: plain_logit_statistics(2 * logits))
    try:
        assert not of(model).attends_with_kernel
        assert "differs" in fault_of_statistics(torch.device("cpu"), torch.float32)
    finally:
        register_plain_kernels()


def test_a_change_of_a_block_is_one_of_the_captured_search(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    sources, limits = sentences(5)
    with_relu = of(model).greedy_search(sources, limits)
    monkeypatch.setattr(
        FeedForwardBlock, "forward", lambda self, x: self.linear_2(nn.functional.gelu(self.linear_1(x)))
    )
    expected = greedy_search(plain(model, sources), torch.tensor(limits))
    assert of(model).greedy_search(sources, limits) == expected != with_relu


def test_sizes_are_forgotten_when_they_take_too_much_memory(model: Transformer) -> None:
    sources, limits = sentences(11)
    small, large = of(model, most_bytes=0), of(model)
    assert small.greedy_search(sources, limits) == large.greedy_search(sources, limits)
    assert len(small.searches) == 1 < len(large.searches)


def test_what_is_checked_before_each_token_ends_a_search(model: Transformer) -> None:
    sources, limits = sentences(4)
    search, calls = of(model), 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search.greedy_search(sources, limits, check)
    assert search.greedy_search(sources, limits) == of(model).greedy_search(sources, limits), "nothing is left of it"


def test_few_sentences_keep_their_size(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "FEW", 8)
    sources, _ = sentences(11)
    search = of(model)
    search.greedy_search(sources, [1] * 10 + [16])
    assert {size.n_sentences for size in search.searches} == {16, 8}


@pytest.mark.parametrize(("n", "expected"), [(1, 1), (2, 2), (3, 4), (64, 64), (65, 128), (957, 1024)])
def test_sizes_are_powers_of_two(n: int, expected: int) -> None:
    size = Size.holding(n, n, n, Search())
    assert (size.n_sentences, size.n_source, size.longest) == (expected, max(expected, 16), max(expected, 16))


class FakeGraph:
    """What a capture gives."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.replay = work


def test_work_is_captured_once_its_kernels_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = GraphPool(torch.device("cpu"), "this")
    captures: list[int] = []
    calls: list[int] = []

    def capture(work: Callable[[], None]) -> FakeGraph:
        captures.append(len(calls))
        return FakeGraph(work)

    monkeypatch.setattr(pool, "captured", capture)
    replayed = Replayed(pool)
    for _ in range(4):
        replayed(lambda: calls.append(1))
    assert captures == [1] and len(calls) == 4


@pytest.fixture
def handles() -> list[int]:
    """One number for each time that a thread's handle of cuBLAS was asked for before a capture."""
    return []


@pytest.fixture
def pool(handles: list[int], monkeypatch: pytest.MonkeyPatch) -> GraphPool:
    """One that captures, though nothing is computed."""

    class Graph:
        def capture_begin(self, pool: object, capture_error_mode: str) -> None: ...

        def capture_end(self) -> None: ...

    monkeypatch.setattr("torch.cuda.CUDAGraph", Graph)
    pool = GraphPool(torch.device("cpu"), "this")
    monkeypatch.setattr("torch.cuda.current_blas_handle", lambda: handles.append(1))
    pool.can_capture, pool.pool = True, (0, 0)  # type: ignore[assignment]
    return pool


@pytest.mark.parametrize("failures", [1, 2])
def test_a_capture_that_lacks_memory_is_tried_again(
    pool: GraphPool,
    handles: list[int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failures: int,
) -> None:
    """Once, after the memory that torch caches was returned. Then the user is told."""
    emptied: list[int] = []
    calls: list[bool] = []

    def work() -> None:
        calls.append(gc.isenabled())
        if len(calls) <= failures:
            raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("torch.cuda.empty_cache", lambda: emptied.append(len(calls)))
    graph = pool.captured(work)
    assert emptied[0] == 1 and len(calls) == 2
    assert (graph is None) == (not pool.can_capture) == (failures == 2)
    assert len(handles) == 2, "a thread's first handle of cuBLAS cannot be made within a capture"
    assert len(pool.abandoned) == failures, "the end of a graph would break the others of its stream"
    assert ("cannot be captured as a CUDA graph: CUDA out of memory" in capsys.readouterr().err) == (failures == 2)
    assert gc.isenabled() and not any(calls), "garbage may hold a graph, which no capture may destroy"


def test_no_two_pools_capture_on_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though torch has few, and gives them out in turn."""
    in_turn = itertools.cycle("abc")
    monkeypatch.setattr("torch.cuda.Stream", lambda device: next(in_turn))
    monkeypatch.setattr("torch.cuda.graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr("fast.graphs.N_STREAMS", 3)
    kept = GraphPool(torch.device("cuda"), "this")
    others = [GraphPool(torch.device("cuda"), "that").stream for _ in range(6)]
    assert kept.stream not in others and None not in others
    pools = [GraphPool(torch.device("cuda"), "that") for _ in range(3)]
    assert [pool.can_capture for pool in pools] == [True, True, False]


def test_a_model_in_16_bits_stays_in_them(model: Transformer) -> None:
    """And computes the same up to their rounding."""
    src, tgt = pad([[50, 51, 52], [60, 61]]), torch.tensor([[2, 70], [2, 71]])
    narrow, exact = in_precision(model, "fp32"), in_precision(model, "fp32")
    for module in narrow.modules():
        if isinstance(module, CastLinear):
            module.weight = module.weight.bfloat16()  # not in the order of a CPU with bf16
            module.bias = None if module.bias is None else module.bias.bfloat16()
    keep_narrow(narrow, torch.bfloat16)
    types: set[torch.dtype] = set()

    def note(module: nn.Module, given: tuple[Tensor, ...], result: Tensor) -> None:
        types.update((given[0].dtype, result.dtype))

    for block in (*narrow.encoder.modules(), *narrow.decoder.modules()):
        if not isinstance(block, nn.ModuleList):
            block.register_forward_hook(note)
    found, wanted = (
        one.project(one.decode(tgt, one.encode(src, FusedSelfAttention()), FusedSelfAttention(), MaskedAttention(None)))
        for one in (narrow, exact)
    )
    assert types == {torch.bfloat16}
    assert (found - wanted).norm() < 0.05 * wanted.norm()


def test_batches_grow_with_the_memory_of_a_gpu() -> None:
    tokens = [gpu_batch_tokens(gigabytes * 2**30, slot=3072) for gigabytes in (8, 16, 80, 141)]
    assert tokens == [4096, 8192, 40_960, 65_536]


def test_batches_of_a_large_model_leave_room_for_its_keys_and_values() -> None:
    """Of the shortest sentences, whose number is rounded up, when the room for a long translation doubles."""
    n_layers, d_model = 6, 1024
    slot = 2 * n_layers * d_model * 2
    memory = 80 * 2**30
    n_sentences = gpu_batch_tokens(memory, slot) // SHORTEST
    sizes = [Size.holding(n_sentences, SHORTEST, longest, Search(beam=4)) for longest in (64, 128)]
    n_slots = sum(size.n_sentences * 4 * size.longest for size in sizes)
    assert memory // 2 < n_slots * slot <= memory
