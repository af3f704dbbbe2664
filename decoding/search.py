"""Search: a step function → token ids. The step function wraps a model, which the search never sees.

`greedy_search` takes the most probable token at every position. `beam_search` keeps the best few hypotheses of each
sentence and returns the n best. Both take a whole batch, treat each sentence as if it were alone, and drop from the
batch what has ended. Validation, translation and evaluation all decode through them. A `Search` holds the settings.

A search has a state, `GreedyState` or `BeamState`, and a function that takes the state to the next token. That function
computes on the device of the model alone: it never asks the host for a number, so that a GPU can replay it
(decoding/captured.py). Only `run_search` waits for a GPU, every few tokens (`check_interval`).

Letters in shapes: B sentences, L of them live, K hypotheses of each, N results of each, T longest length, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from dataset import to_device
from tapis.config import BOS, EOS, PAD
from tapis.search import Hypothesis, Search, length_penalty

# (tokens, parents) → logits. tokens (L, K) are the last tokens of the K hypotheses of each of the L live sentences.
# parents (L, K) are the hypotheses of the previous call from which they continue, numbered through all its sentences,
# each from the same sentence; None if all continue in place. Sentences may leave; those that stay keep their order.
# logits (L, K, V) score the next token of each hypothesis.
Step = Callable[[Tensor, Tensor | None], Tensor]

# What finds the best continuations: `best_continuations`, or a faster form of it.
FindBest = Callable[[Tensor, int, Tensor | None], tuple[Tensor, Tensor]]


def best_continuations(logits: Tensor, n: int, scores: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the n best continuations: logits (L, K, V) → values (L, n), best first, and places in K · V.

    With scores (L, K), the log P of the hypotheses, values are log P of hypothesis and token. Without, they are logits.
    """
    values = logits.float()
    if scores is not None:
        values = scores[..., None] + values.log_softmax(dim=-1)
    return values.flatten(1).topk(n)


def length_penalties(longest: int, alpha: float, device: torch.device) -> Tensor:
    """Return the penalty of each length up to the longest: (longest + 1,)."""
    return to_device(torch.tensor([length_penalty(length, alpha) for length in range(longest + 1)]), device)


def check_interval(device: torch.device) -> int:
    """Return how many tokens to generate between checks for finished sentences; results differ by rounding."""
    return 1 if device.type == "cpu" else 8


# The state of a search


@dataclass
class SearchState:
    """A batch in mid-search: L live sentences with K hypotheses each. The first dimension of all tensors is L."""

    sentences: Tensor
    """(L,) which sentences these are"""
    limits: Tensor
    """(L,) the largest length of each"""
    lengths: Tensor
    """(L,) tokens so far, the same number for all"""
    is_decided: Tensor
    """(L,) whether the results of a sentence are final; it leaves the batch at a check"""
    tokens: Tensor
    """(L, K) the last token of each hypothesis, BOS at first"""
    parents: Tensor | None
    """(L, K) the hypothesis of the previous step that each continues, numbered through its batch; None: in place"""

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def results(self) -> tuple[Tensor, ...]:
        """Return what has been found so far: tensors of L sentences."""
        raise NotImplementedError

    def with_room(self, longest: int) -> Self:
        """Return the same state with room for longer sentences: longest is the new T."""
        raise NotImplementedError

    def assign(self, other: Self) -> None:
        """Copy the numbers of another state of the same shape into the tensors of this one."""
        for name, tensor in self.tensors().items():
            new = getattr(other, name)
            if tensor is not new:  # some are changed in place
                tensor.copy_(new)

    def select(self, rows: Tensor) -> Self:
        """Return the state of the sentences in these rows. It continues the hypotheses where they were."""
        changes: dict[str, Any] = {name: tensor[rows] for name, tensor in self.tensors().items()}
        if self.parents is None:
            changes["parents"] = torch.arange(self.tokens.numel(), device=rows.device).view_as(self.tokens)[rows]
        return replace(self, **changes)


S = TypeVar("S", bound=SearchState)


def next_state(step: Step, state: S, advance: Callable[[S, Tensor], S]) -> S:
    """Take one step: the model computes logits, by which `advance` finds the next token of each hypothesis."""
    logits = step(state.tokens, state.parents)
    logits[..., :EOS] = -torch.inf  # those of NEVER_GENERATED
    return advance(state, logits)


def run_search(
    step: Step, state: S, advance: Callable[[S, Tensor], S], longest: int, leaving_share: float
) -> tuple[Tensor, ...]:
    """Search until all sentences are decided, and return their results, in order.

    Sentences that are decided leave the batch at the first check at which they are this share of it.
    """
    interval = check_interval(state.limits.device)
    left: list[S] = []
    for length in range(1, longest + 1):
        state = next_state(step, state, advance)
        if length % interval == 0:
            n_decided = int(state.is_decided.sum())  # a CPU-GPU sync point
            if n_decided == len(state.is_decided):
                break
            if n_decided and n_decided >= leaving_share * len(state.is_decided):
                decided_last = state.is_decided.int().argsort(stable=True)
                left.append(state.select(decided_last[-n_decided:]))
                state = state.select(decided_last[:-n_decided])
    return results_in_order([*left, state])


def results_in_order(states: Sequence[SearchState]) -> tuple[Tensor, ...]:
    """Return the results of the sentences of several states, in the order of the sentences in the batch."""
    order = torch.cat([state.sentences for state in states]).argsort()
    return tuple(torch.cat(parts)[order] for parts in zip(*(state.results() for state in states), strict=True))


def _with_room(ids: Tensor, longest: int) -> Tensor:
    """Append EOS to ids (…, T) until they are (…, longest)."""
    return F.pad(ids, (0, longest - ids.size(-1)), value=EOS)


def until_end(ids: list[int]) -> list[int]:
    """Return the ids before the first EOS."""
    return ids[: ids.index(EOS)] if EOS in ids else ids


# Greedy search


@dataclass
class GreedyState(SearchState):
    """Greedy search has one hypothesis of each sentence: K is 1."""

    ids: Tensor
    """(L, T) the tokens so far, then EOS"""

    @classmethod
    def start(cls, limits: Tensor, longest: int) -> "GreedyState":
        """Return the state before the first token: limits (L,), longest is T."""
        rows = torch.arange(len(limits), device=limits.device)
        return cls(
            sentences=rows,
            limits=limits,
            lengths=torch.zeros_like(rows),
            is_decided=torch.zeros_like(rows, dtype=torch.bool),
            tokens=torch.full_like(rows, BOS)[:, None],
            parents=None,
            ids=limits.new_full((len(limits), longest), EOS),
        )

    def results(self) -> tuple[Tensor, ...]:
        return (self.ids,)

    def with_room(self, longest: int) -> "GreedyState":
        return replace(self, ids=_with_room(self.ids, longest))

    @staticmethod
    def to_lists(ids: Tensor) -> list[list[int]]:
        """Return the ids of each sentence from its results. They end with PAD where the logits are not finite."""
        return [until_end(row) for row in ids.tolist()]

    def advance(self, logits: Tensor, best: FindBest) -> "GreedyState":
        """Append the most probable token to each sentence, in place. Those that are decided have EOS instead.

        A sentence whose logits are not finite ends with PAD, which is never generated.
        """
        values, tokens = best(logits, 1, None)  # (L, 1)
        tokens = tokens.masked_fill(~values.isfinite(), PAD).masked_fill(self.is_decided[:, None], EOS)
        self.ids.scatter_(1, self.lengths[:, None], tokens)
        lengths = self.lengths + 1
        is_decided = self.is_decided | ((tokens == EOS) | (tokens == PAD)).squeeze(1) | (lengths >= self.limits)
        return replace(self, lengths=lengths, is_decided=is_decided, tokens=tokens, parents=None)


def greedy_search(step: Step, limits: Tensor, best: FindBest = best_continuations) -> list[list[int]]:
    """limits (B,) caps the length of each sentence → B lists of ids without BOS and EOS.

    The ids of a sentence end with PAD where the logits are not finite. Sentences leave the batch when they are an
    eighth of it: then the keys and values of those that stay are copied.
    """
    longest = int(limits.max())

    def advance(state: GreedyState, logits: Tensor) -> GreedyState:
        return state.advance(logits, best)

    start = GreedyState.start(limits, longest)
    return GreedyState.to_lists(*run_search(step, start, advance, longest, leaving_share=1 / 8))


# Beam search


@dataclass
class BeamState(SearchState):
    """Beam search has K hypotheses of each sentence (one before the first step), and its N best results so far."""

    scores: Tensor
    """(L, K) log P of the hypotheses, best first; −inf where there are fewer than K"""
    ids: Tensor
    """(L, K, T) the tokens of each, then EOS"""
    largest_penalties: Tensor
    """(L,) the length penalty at the limit"""
    counts: Tensor
    """(L,) how many hypotheses have ended, whether or not they are among the N best"""
    result_scores: Tensor
    """(L, N) log P over the length penalty, best first; −inf where there are fewer than N"""
    result_ids: Tensor
    """(L, N, T) the tokens of each, then EOS"""

    @classmethod
    def start(
        cls, limits: Tensor, largest_penalties: Tensor, longest: int, search: Search, n_hypotheses: int = 1
    ) -> "BeamState":
        """Return the state before the first token: limits and largest_penalties (L,), longest is T.

        Of more than one hypothesis, all but the first have a score of −inf.
        """
        rows = torch.arange(len(limits), device=limits.device)
        result_scores = largest_penalties.new_full((len(limits), search.n_best), -torch.inf)
        scores = largest_penalties.new_full((len(limits), n_hypotheses), -torch.inf)
        scores[:, 0] = 0.0
        return cls(
            sentences=rows,
            limits=limits,
            lengths=torch.zeros_like(rows),
            is_decided=torch.zeros_like(rows, dtype=torch.bool),
            tokens=limits.new_full((len(limits), n_hypotheses), BOS),
            parents=None,
            scores=scores,
            ids=limits.new_full((len(limits), n_hypotheses, longest), EOS),
            largest_penalties=largest_penalties,
            counts=torch.zeros_like(rows),
            result_scores=result_scores,
            result_ids=limits.new_full((len(limits), search.n_best, longest), EOS),
        )

    def results(self) -> tuple[Tensor, ...]:
        return self.result_scores, self.result_ids

    def with_room(self, longest: int) -> "BeamState":
        return replace(self, ids=_with_room(self.ids, longest), result_ids=_with_room(self.result_ids, longest))

    @staticmethod
    def to_lists(scores: Tensor, ids: Tensor) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence from its results, best first."""
        return [
            [Hypothesis(until_end(row), score) for score, row in zip(*results, strict=True) if score > -torch.inf]
            for results in zip(scores.tolist(), ids.tolist(), strict=True)
        ]


@dataclass
class Candidates:
    """The best continuations of each live sentence at one step, best first: 2K of them, so that K can continue."""

    scores: Tensor
    """(L, 2K) log P"""
    parents: Tensor
    """(L, 2K) the hypothesis that each continues, numbered through the batch"""
    tokens: Tensor
    """(L, 2K) the token that it appends"""
    ids: Tensor
    """(L, 2K, T) all its tokens, then EOS"""

    def gather(self, chosen: Tensor) -> "Candidates":
        """Return the candidates at these places (L, n) of each sentence."""
        return Candidates(
            scores=self.scores.gather(1, chosen),
            parents=self.parents.gather(1, chosen),
            tokens=self.tokens.gather(1, chosen),
            ids=self.ids.gather(1, chosen[..., None].expand(-1, -1, self.ids.size(2))),
        )


@dataclass(frozen=True)
class BeamSearch:
    """How a beam search goes from one token to the next."""

    search: Search
    penalties: Tensor
    """(T + 1,) the length penalty of each length"""
    best: FindBest = best_continuations

    def advance(self, state: BeamState, logits: Tensor) -> BeamState:
        """Take the state to the next token by logits (L, K, V)."""
        # Find the best continuations.
        candidates = self.select(state, logits)
        state = replace(state, lengths=state.lengths + 1)

        # Finish those that end, and continue with the others.
        is_at_limit = state.lengths == state.limits
        state = self.finish(state, candidates, is_at_limit)
        survivors = self.continuing(candidates)
        return replace(
            state,
            is_decided=state.is_decided | is_at_limit | ~self.undecided(state, survivors),
            tokens=survivors.tokens,
            parents=survivors.parents,
            scores=survivors.scores,
            ids=survivors.ids,
        )

    def select(self, state: BeamState, logits: Tensor) -> Candidates:
        """Return the best continuations. Keeps 2K: up to K of them may end, and K must be left."""
        n_sentences, n_hypotheses, vocab_size = logits.shape
        n = min(2 * self.search.beam, n_hypotheses * vocab_size)
        scores, places = self.best(logits, n, state.scores)  # (L, 2K) each; places in K · V
        first_of_sentence = torch.arange(0, n_sentences * n_hypotheses, n_hypotheses, device=logits.device)
        parents, tokens = first_of_sentence[:, None] + places // vocab_size, places % vocab_size
        ids = state.ids.flatten(0, 1)[parents]  # (L, 2K, T)
        ids.scatter_(2, state.lengths[:, None, None].expand(-1, n, 1), tokens[..., None])
        return Candidates(scores, parents, tokens, ids)

    def finish(self, state: BeamState, candidates: Candidates, is_at_limit: Tensor) -> BeamState:
        """Add to the results what ends among the K best candidates: with EOS, or at the sentence's limit (L,)."""
        k, n = self.search.beam, self.search.n_best
        is_result = (candidates.tokens[:, :k] == EOS) | is_at_limit[:, None]  # (L, K)
        is_result &= candidates.scores[:, :k].isfinite() & ~state.is_decided[:, None]
        scores = candidates.scores[:, :k] / self.penalties[state.lengths, None]

        # Sort them in among the results so far.
        scores = torch.cat([state.result_scores, scores.masked_fill(~is_result, -torch.inf)], dim=1)
        ids = torch.cat([state.result_ids, candidates.ids[:, :k]], dim=1)
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        return replace(
            state,
            counts=state.counts + is_result.sum(dim=1),
            result_scores=scores[:, :n],
            result_ids=ids.gather(1, order[:, :n, None].expand(-1, -1, ids.size(2))),
        )

    def continuing(self, candidates: Candidates) -> Candidates:
        """Return the K best candidates that do not end, in their order; −inf scores where there are fewer."""
        ends = candidates.tokens == EOS
        chosen = ends.int().argsort(dim=1, stable=True)[:, : self.search.beam]
        survivors = candidates.gather(chosen)
        survivors.scores = survivors.scores.masked_fill(ends.gather(1, chosen), -torch.inf)
        return survivors

    def undecided(self, state: BeamState, survivors: Candidates) -> Tensor:
        """Return which sentences (L,) may still find a hypothesis that beats the n best they have.

        log P only falls as a hypothesis grows. A hypothesis can therefore never score more than its present log P
        divided by the largest penalty, that at the sentence's limit. A sentence is decided if its best survivor cannot
        beat the n-th best result even so.

        A sentence is also decided if it has K results and its best survivor, scored at its present length, does not
        beat the n-th best: it could win by its length alone. With a beam of 1, this is greedy search. K results without
        that condition decide nothing, since all of them may be worse than what is about to end.
        """
        best_log_p = survivors.scores[:, 0]
        best_now = best_log_p / self.penalties[state.lengths]
        best_ever = best_log_p / state.largest_penalties
        score_to_beat = state.result_scores[:, -1]
        is_behind = (state.counts >= self.search.beam) & (best_now <= score_to_beat)
        return (best_ever > score_to_beat) & ~is_behind


def beam_search(
    step: Step, limits: Tensor, search: Search, best: FindBest = best_continuations
) -> list[list[Hypothesis]]:
    """limits (B,) caps the length of each sentence → the n best hypotheses of each, best first.

    Each step keeps the search.beam best continuations. A hypothesis that ends is a result; its length counts EOS. A
    sentence is decided when none of its hypotheses can still win (`BeamSearch.undecided`).
    """
    longest = int(limits.max())
    penalties = length_penalties(longest, search.length_penalty, limits.device)
    rules = BeamSearch(search, penalties, best)
    start = BeamState.start(limits, penalties[limits], longest, search)
    return BeamState.to_lists(*run_search(step, start, rules.advance, longest, leaving_share=0))
