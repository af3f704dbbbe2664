"""Search: a step function → token ids. The step function wraps a model, which the search never sees.

`greedy_search` takes the most probable token at every position. `beam_search` keeps the best few hypotheses of each
sentence and returns the n best. Both take a whole batch, treat each sentence as if it were alone, and drop from the
batch what has ended. Validation, translation and evaluation all decode through them. A `Search` holds the settings.

All tensors stay on the device of the model. On a GPU, the host waits for it only every few tokens (`check_interval`).

Letters in shapes: B sentences, L of them live, K hypotheses of each, N results of each, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

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
    return torch.tensor([length_penalty(length, alpha) for length in range(longest + 1)], device=device)


def check_interval(device: torch.device) -> int:
    """Return how many tokens to generate between checks for finished sentences; results differ by rounding."""
    return 1 if device.type == "cpu" else 8


# Greedy search


def greedy_search(step: Step, limits: Tensor, best: FindBest = best_continuations) -> list[list[int]]:
    """limits (B,) caps the length of each sentence → B lists of ids without BOS and EOS.

    Sentences that have ended leave the batch at the first check at which they are an eighth of it: when some leave, the
    keys and values of those that stay are copied.
    """
    device = limits.device
    interval = check_interval(device)
    output = torch.full((len(limits), int(limits.max())), PAD, device=device)  # PAD after a sentence's end
    live = torch.arange(len(limits), device=device)  # (L,) which sentences are in the batch
    tokens = torch.full_like(live, BOS)  # (L,) their last tokens
    ended = torch.zeros_like(live, dtype=torch.bool)  # (L,)
    parents: Tensor | None = None
    for t in range(output.size(1)):
        # Select the most probable token of each sentence.
        logits = step(tokens[:, None], None if parents is None else parents[:, None])
        logits[..., :EOS] = -torch.inf  # those of NEVER_GENERATED
        tokens = best(logits, 1, None)[1].squeeze(1).masked_fill(ended, EOS)

        # Finish sentences that end here.
        output[live, t] = tokens.masked_fill(tokens == EOS, PAD)
        ended |= (tokens == EOS) | (limits[live] <= t + 1)

        # Continue with the others.
        parents = None
        if (t + 1) % interval == 0 and 8 * ended.sum() >= len(ended):  # a CPU-GPU sync point
            parents = (~ended).nonzero().squeeze(1)
            live = live[parents]
            tokens = tokens[parents]
            ended = ended[parents]
        if not len(live):
            break
    return [[token for token in row if token != PAD] for row in output.tolist()]


# Beam search


@dataclass
class BeamState:
    """A batch in mid-search: L live sentences with K hypotheses each (one before the first step)."""

    live: Tensor
    """(L,) which sentences these are"""
    is_decided: Tensor
    """(L,) whether the results of a sentence are final; it leaves the batch at the next check"""
    scores: Tensor
    """(L, K) log P of the hypotheses, best first; −inf where there are fewer than K"""
    tokens: Tensor
    """(L, K) the last token of each, BOS at first"""
    parents: Tensor | None
    """(L, K) the hypothesis of the previous step that each continues, numbered through its batch; None at first"""

    def without_decided(self) -> "BeamState":
        """Return the state of the sentences that are not decided."""
        stay = (~self.is_decided).nonzero().squeeze(1)  # a CPU-GPU sync point
        parents = None if self.parents is None else self.parents[stay]
        return BeamState(self.live[stay], self.is_decided[stay], self.scores[stay], self.tokens[stay], parents)


@dataclass
class Candidates:
    """The best continuations of each live sentence at one step, best first: 2K of them, so that K can continue."""

    scores: Tensor
    """(L, 2K) log P"""
    parents: Tensor
    """(L, 2K) the hypothesis that each continues, numbered through the batch"""
    tokens: Tensor
    """(L, 2K) the token that it appends"""

    def gather(self, chosen: Tensor) -> "Candidates":
        """Return the candidates at these places (L, n) of each sentence."""
        return Candidates(*(values.gather(1, chosen) for values in (self.scores, self.parents, self.tokens)))


class History:
    """The last token and the parent of every hypothesis after each step.

    The parents lead back to the start. Here hypothesis 0 of step 2 has the tokens "b c":

        number              0        1
        step 1              a        b
        step 2 (parent)     c (1)    d (0)
    """

    def __init__(self) -> None:
        self.steps: list[tuple[Tensor, Tensor]] = []  # tokens and parents, (L · K) each

    def append(self, state: BeamState) -> None:
        assert state.parents is not None
        self.steps.append((state.tokens.flatten(), state.parents.flatten()))

    def to_lists(self) -> list[tuple[list[int], list[int]]]:
        """Return the steps, copied from the device at once."""
        if not self.steps:
            return []
        tokens, parents = (torch.cat(values) for values in zip(*self.steps, strict=True))
        sizes = [len(tokens) for tokens, _ in self.steps]
        steps = torch.split(torch.stack([tokens, parents]).cpu(), sizes, dim=1)  # a CPU-GPU sync point
        return [(tokens.tolist(), parents.tolist()) for tokens, parents in steps]


class Results:
    """The N best finished hypotheses of each of B sentences."""

    def __init__(self, limits: Tensor, search: Search) -> None:
        n_sentences, device = len(limits), limits.device
        self.search = search
        self.penalties = length_penalties(int(limits.max()), search.length_penalty, device)
        # (B,) how many have finished, whether or not they are among the best.
        self.counts = torch.zeros(n_sentences, dtype=torch.int64, device=device)
        # (B, N) their scores, best first; −inf where there are fewer.
        self.scores = torch.full((n_sentences, search.n_best), -torch.inf, device=device)
        # (B, N, 3) the length before the last token, the hypothesis that it continues, and the last token.
        self.ends = torch.zeros(n_sentences, search.n_best, 3, dtype=torch.int64, device=device)

    def add(self, sentences: Tensor, scores: Tensor, ends: Tensor) -> None:
        """Add hypotheses of sentences (L,): scores (L, n), −inf where there is none, and ends (L, n, 3)."""
        self.counts[sentences] += scores.isfinite().sum(dim=1)
        scores = torch.cat([self.scores[sentences], scores], dim=1)
        ends = torch.cat([self.ends[sentences], ends], dim=1)
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        order = order[:, : self.search.n_best, None].expand(-1, -1, 3)
        self.scores[sentences] = scores[:, : self.search.n_best]
        self.ends[sentences] = ends.gather(1, order)

    def hypotheses(self, history: History) -> list[list[Hypothesis]]:
        """Return the results of each sentence, best first."""
        steps = history.to_lists()

        def ids(length: int, parent: int, last_token: int) -> list[int]:
            backwards = [] if last_token == EOS else [last_token]
            for tokens, parents in reversed(steps[:length]):
                backwards.append(tokens[parent])
                parent = parents[parent]
            return backwards[::-1]

        return [
            [Hypothesis(ids(*end), score) for score, end in zip(*results, strict=True) if score > -torch.inf]
            for results in zip(self.scores.tolist(), self.ends.tolist(), strict=True)
        ]


def beam_search(
    step: Step, limits: Tensor, search: Search, best: FindBest = best_continuations
) -> list[list[Hypothesis]]:
    """limits (B,) caps the length of each sentence → the n best hypotheses of each, best first.

    Each step keeps the search.beam best continuations. A hypothesis that ends is a result; its length counts EOS. A
    sentence is decided when none of its hypotheses can still win (`undecided`).
    """
    device = limits.device
    interval = check_interval(device)
    results = Results(limits, search)
    history = History()
    state = BeamState(
        live=torch.arange(len(limits), device=device),
        is_decided=torch.zeros(len(limits), dtype=torch.bool, device=device),
        scores=torch.zeros(len(limits), 1, device=device),
        tokens=torch.full((len(limits), 1), BOS, device=device),
        parents=None,
    )
    for length in range(1, int(limits.max()) + 1):
        # Find the best continuations.
        logits = step(state.tokens, state.parents)
        logits[..., :EOS] = -torch.inf  # those of NEVER_GENERATED
        candidates = select(logits, state, search, best)

        # Finish those that end, and continue with the others.
        is_at_limit = limits[state.live] == length
        finish(candidates, state, is_at_limit, length, results)
        survivors = continuing(candidates, search)
        is_decided = state.is_decided | is_at_limit | ~undecided(survivors, state, limits, length, results)
        state = BeamState(state.live, is_decided, survivors.scores, survivors.tokens, survivors.parents)

        # Drop the sentences that are decided.
        if length % interval == 0:
            n_decided = int(is_decided.sum())  # a CPU-GPU sync point
            if n_decided == len(is_decided):
                break
            if n_decided:
                state = state.without_decided()
        history.append(state)
    return results.hypotheses(history)


def select(logits: Tensor, state: BeamState, search: Search, best: FindBest) -> Candidates:
    """Return the best continuations of each live sentence. Keeps 2K: up to K of them may end, and K must be left."""
    n_sentences, n_hypotheses, vocab_size = logits.shape
    n = min(2 * search.beam, n_hypotheses * vocab_size)
    scores, places = best(logits, n, state.scores)  # (L, 2K) each; places in K · V
    first_of_sentence = torch.arange(n_sentences, device=logits.device)[:, None] * n_hypotheses
    return Candidates(scores, parents=first_of_sentence + places // vocab_size, tokens=places % vocab_size)


def finish(candidates: Candidates, state: BeamState, is_at_limit: Tensor, length: int, results: Results) -> None:
    """Add to the results what ends among the K best candidates: with EOS, or at the sentence's limit."""
    n = results.search.beam
    parents, tokens = candidates.parents[:, :n], candidates.tokens[:, :n]
    scores = candidates.scores[:, :n] / results.penalties[length]
    is_result = (tokens == EOS) | is_at_limit[:, None]  # (L, K)
    is_result &= scores.isfinite() & ~state.is_decided[:, None]
    ends = torch.stack([torch.full_like(parents, length - 1), parents, tokens], dim=-1)
    results.add(state.live, scores.masked_fill(~is_result, -torch.inf), ends)


def continuing(candidates: Candidates, search: Search) -> Candidates:
    """Return the K best candidates that do not end, in their order; −inf scores where there are fewer."""
    ends = candidates.tokens == EOS
    chosen = ends.int().argsort(dim=1, stable=True)[:, : search.beam]
    survivors = candidates.gather(chosen)
    survivors.scores = survivors.scores.masked_fill(ends.gather(1, chosen), -torch.inf)
    return survivors


def undecided(survivors: Candidates, state: BeamState, limits: Tensor, length: int, results: Results) -> Tensor:
    """Return which sentences (L,) may still find a hypothesis that beats the n best they have.

    log P only falls as a hypothesis grows. A hypothesis can therefore never score more than its present log P divided
    by the largest penalty, that at the sentence's limit. A sentence is decided if its best survivor cannot beat the
    n-th best result even so.

    A sentence is also decided if it has K results and its best survivor, scored at its present length, is behind them:
    it could win by its length alone. With a beam of 1, this is greedy search. K results without that condition decide
    nothing, since all of them may be worse than what is about to end.
    """
    best_log_p = survivors.scores[:, 0]
    best_now = best_log_p / results.penalties[length]
    best_ever = best_log_p / results.penalties[limits[state.live]]
    score_to_beat = results.scores[state.live, -1]
    is_behind = (results.counts[state.live] >= results.search.beam) & (best_now <= score_to_beat)
    return (best_ever > score_to_beat) & ~is_behind
