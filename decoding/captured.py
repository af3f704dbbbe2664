"""Greedy and beam search on a GPU, in which one token is one launch: a CUDA graph of the decoder and of the search.

Replaces `greedy_search` and `beam_search` with `fast_step`: the same states, functions and blocks of model.py, on
tensors of fixed shapes and places. A token of the preset `base` takes 120 to 200 kernels, and the host needs several
times as long to launch them one by one as the GPU to compute them.

Shapes are rounded up to powers of two, a `Size`. Each size has tensors and graphs of its own, which later searches use
again. When sentences end or have no room, those that go on move to another size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dataset import pad, to_device
from decoding.inference import CastLinear
from decoding.search import (
    BeamSearch,
    BeamState,
    FindBest,
    GreedyState,
    SearchState,
    Step,
    length_penalties,
    next_state,
    results_in_order,
)
from decoding.static_cache import StaticCache, source_projection
from decoding.steps import without_tags
from fast.graphs import GraphPool, Replayed
from fast.slot_attention import fault_of_slot_attention
from fast.topk import best_continuations_in_blocks, fault_of_statistics
from model import Transformer
from tapis.config import PAD
from tapis.search import GREEDY, Hypothesis, Search, go_on

CHECK_INTERVAL = 4  # tokens between checks for finished sentences
LONGEST_START = 64  # tokens; there is room for longer sentences once some have become longer
LEAST = 16  # positions: what is attended to comes in multiples of it
FEW = 64  # sentences: fewer take about as long


# The search of one size


@dataclass(frozen=True)
class Size:
    """What a search has room for, and its settings."""

    n_sentences: int
    """L"""
    n_source: int
    """S"""
    longest: int
    """T"""
    search: Search

    @classmethod
    def holding(cls, n_sentences: int, n_source: int, longest: int, search: Search) -> "Size":
        """Return the smallest size for this."""
        return cls(power_of_two(n_sentences, 1), power_of_two(n_source, LEAST), power_of_two(longest, LEAST), search)


def power_of_two(n: int, least: int) -> int:
    """Return the least power of two that is n or more, and `least` or more."""
    return max(least, 1 << (n - 1).bit_length())


class StaticSearch:
    """A search of one size: its tensors, which stay where they are, and what is done with them."""

    def __init__(
        self,
        model: Transformer,
        w_source: CastLinear,
        size: Size,
        suppressed: list[int],
        pool: GraphPool,
        best: FindBest,
        attends_with_kernel: bool,
    ) -> None:
        device, beam = w_source.weight.device, size.search.beam
        self.size = size
        shape = (size.n_sentences, beam, size.n_source, size.longest)
        self.cache = StaticCache(model, w_source, shape, attends_with_kernel)
        self.step: Step = partial(without_tags, self.cache.step, suppressed) if suppressed else self.cache.step
        self.encoding, self.token = Replayed(pool), Replayed(pool)

        # The state, and what takes it to the next token.
        limits = torch.ones(size.n_sentences, dtype=torch.int64, device=device)
        self.state: SearchState = self.first_state(limits, 1)
        self.advance: Callable[[Any, Tensor], Any] = partial(GreedyState.advance, best=best)
        if beam > 1:
            penalties = length_penalties(size.longest, size.search.length_penalty, device)
            self.advance = BeamSearch(size.search, penalties, best).advance

    def first_state(self, limits: Tensor, longest: int) -> SearchState:
        """Return a state before the first token: limits (L,), none above `longest`."""
        search = self.size.search
        if search.beam == 1:
            return GreedyState.start(limits, self.size.longest)
        penalties = length_penalties(longest, search.length_penalty, limits.device)[limits]
        state = BeamState.start(limits, penalties, self.size.longest, search, n_hypotheses=search.beam)
        in_place = torch.arange(state.tokens.numel(), device=limits.device).view_as(state.tokens)
        return replace(state, parents=in_place)

    def start(self, sources: Sequence[list[int]], limits: Sequence[int]) -> None:
        """Take in sources and their limits. The rest of the room has sentences of one token."""
        n_more = self.size.n_sentences - len(sources)
        device = self.state.limits.device
        src = pad([*sources, *([[]] * n_more)])
        self.cache.start(to_device(F.pad(src, (0, self.size.n_source - src.size(1)), value=PAD), device))
        padded_limits = to_device(torch.tensor([*limits, *([1] * n_more)]), device)
        self.state.assign(self.first_state(padded_limits, max(limits)))
        self.encoding(self.cache.encode)

    def take_token(self) -> None:
        """Find the next token of each hypothesis."""
        self.token(self._take_token)

    def _take_token(self) -> None:
        self.state.assign(next_state(self.step, self.state, self.advance))

    def take(self, other: "StaticSearch", rows: Tensor) -> None:
        """Go on with these sentences (L,) of another search."""
        self.cache.take(other.cache, rows)
        self.state.assign(other.state.select(rows).with_room(self.size.longest))


# Searches of all sizes


class CapturedSearch:
    """Searches with a model of `in_precision`, and keeps the tensors and graphs of the sizes that it has used."""

    def __init__(self, model: Transformer, suppressed: list[int], most_bytes: int) -> None:
        """Once the sizes that are kept take more than most_bytes, the next new size replaces them all."""
        self.model = model
        self.w_source = source_projection(model)
        weight = self.w_source.weight
        kind = weight.device, weight.dtype
        self.best: FindBest = partial(best_continuations_in_blocks, with_kernel=not fault_of_statistics(*kind))
        n_heads = model.config.n_heads
        self.attends_with_kernel = not fault_of_slot_attention(*kind, n_heads, model.config.d_model // n_heads)
        self.suppressed = suppressed
        self.most_bytes = most_bytes
        self.pool = GraphPool(weight.device, "translating")
        self.searches: dict[Size, StaticSearch] = {}
        self.lock = Lock()  # since two searches would write to the same tensors

    def greedy_search(
        self, sources: Sequence[list[int]], limits: Sequence[int], check: Callable[[], None] = go_on
    ) -> list[list[int]]:
        """Replace `decoding.search.greedy_search`: source ids and limits → ids. `check` is called before each token."""
        with self.lock:
            return GreedyState.to_lists(*self._results(sources, limits, GREEDY, check))

    def beam_search(
        self, sources: Sequence[list[int]], limits: Sequence[int], search: Search, check: Callable[[], None] = go_on
    ) -> list[list[Hypothesis]]:
        """Replace `decoding.search.beam_search`: source ids and limits → hypotheses."""
        with self.lock:
            return BeamState.to_lists(*self._results(sources, limits, search, check))

    def _results(
        self, sources: Sequence[list[int]], limits: Sequence[int], search: Search, check: Callable[[], None]
    ) -> tuple[Tensor, ...]:
        """Return the results of each source, as the final state of a search has them."""
        longest = max(limits)
        longest_source = max(map(len, sources)) + 1  # with EOS
        size = Size.holding(len(sources), longest_source, min(longest, LONGEST_START), search)
        running = self.of_size(size)
        running.start(sources, limits)
        left: list[SearchState] = []
        for length in range(1, longest + 1):
            check()
            running.take_token()
            if length == longest or length % CHECK_INTERVAL:
                continue

            # Move those that go on to another size, if they are few or have no more room.
            n_decided = int(running.state.is_decided.sum())  # a CPU-GPU sync point
            if n_decided == size.n_sentences:
                break
            n_live = size.n_sentences - n_decided
            size = replace(size, n_sentences=max(power_of_two(n_live, 1), min(size.n_sentences, FEW)))
            if length == size.longest:
                size = replace(size, longest=2 * size.longest)
            if size != running.size:
                decided_last = running.state.is_decided.int().argsort(stable=True)
                left.append(running.state.select(decided_last[size.n_sentences :]))
                moved = self.of_size(size)
                moved.take(running, decided_last[: size.n_sentences])
                running = moved
        found = results_in_order([state.with_room(size.longest) for state in (*left, running.state)])
        return tuple(result[: len(sources)] for result in found)

    def of_size(self, size: Size) -> StaticSearch:
        """Return the search of a size. Forgets all others, with their graphs, if they take too much memory."""
        if size not in self.searches:
            if sum(search.cache.n_bytes for search in self.searches.values()) > self.most_bytes:
                self.searches.clear()
                if self.pool.can_capture:
                    self.pool = GraphPool(self.w_source.weight.device, "translating")
            self.searches[size] = StaticSearch(
                self.model, self.w_source, size, self.suppressed, self.pool, self.best, self.attends_with_kernel
            )
        return self.searches[size]
