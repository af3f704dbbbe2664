"""Search: token ids out of a step function, which knows the model; the search knows none.

`greedy_search` takes the most probable token at every position; `beam_search` keeps the best few hypotheses of each
sentence and gives the n best. Both take a whole batch, each sentence as if it were alone, and drop from the batch what
has ended. Validation, translation and evaluation all decode through them, as a `Search` says.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from config import BOS, EOS, LENGTH_PENALTY, PAD, UNK, ConfigError

# (tokens, rows) → logits. tokens (L, K) are the last tokens of the K hypotheses of each of the L live sentences. rows
# (L, K) says which hypothesis of the previous call, counted through all its sentences, each of them goes on from,
# always one of the same sentence; None where all go on in place. Sentences leave, and those that stay keep their order.
# logits (L, K, V) score the next token of each.
Step = Callable[[Tensor, Tensor | None], Tensor]

NEVER = [PAD, UNK, BOS]  # the model has no reason to say these, and they are no text


@dataclass(frozen=True)
class Search:
    """How to search."""

    beam: int = 1
    """Hypotheses kept for each sentence; 1 is greedy"""
    n_best: int = 1
    """Translations wanted of each sentence, at most beam"""
    length_penalty: float = LENGTH_PENALTY
    """α of `length_penalty`: 0 favours short translations, 1 scores nearly by the mean over tokens"""

    def __post_init__(self) -> None:
        if not 1 <= self.n_best <= self.beam <= 1000:
            raise ConfigError(f"--beam is {self.beam} and --n-best {self.n_best}: 1 ≤ n-best ≤ beam ≤ 1000 is needed")
        if not 0 <= self.length_penalty <= 10:
            raise ConfigError(f"--length-penalty is {self.length_penalty}; it must be from 0 to 10")


@dataclass(frozen=True)
class Hypothesis:
    """A translation in token ids."""

    ids: list[int]
    """Without BOS and EOS"""
    score: float
    """log P(ids | source) in nats over the length penalty; NaN from greedy search, which needs none"""


def best(logits: Tensor, n: int, scores: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The n best ways to go on of each sentence: logits (L, K, V) → (L, n), best first, and their places in K · V.

    By log P where scores (L, K) are those of the hypotheses, else by logits alone. In fp32.

    They stand in the n blocks with the largest maxima, which a CPU finds by the dozen where topk looks at one number at
    a time: it is two to four times as fast. A few rows at a time stay in its cache; what is as large as all logits
    takes longer to write than a layer to compute.
    """
    width, size = 64, logits.size(-1)
    whole = size // width * width if size >= 2 * n * width else 0  # in blocks; those beyond are all looked at
    rows = logits.flatten(0, 1)
    at_once = 16 if rows.device.type == "cpu" else len(rows)
    in_blocks = torch.split(rows[:, :whole].view(len(rows), whole // width, width), at_once)
    maxima = torch.cat([part.float().amax(dim=-1) for part in in_blocks])
    start = logits.new_zeros(logits.shape[:2], dtype=torch.float32)
    if scores is not None:
        totals = [part.float().logsumexp(dim=-1) for part in torch.split(rows, at_once)]
        start = scores - torch.cat(totals).view_as(start)
    blocks = (maxima.view(*start.shape, -1) + start[..., None]).flatten(1)
    places = torch.arange(logits[0].numel(), device=logits.device).view(logits.shape[1:])
    firsts = places[:, :whole:width].flatten()[blocks.topk(min(n, blocks.size(1))).indices]
    beyond = places[:, whole:].flatten().expand(len(logits), -1)
    places = torch.cat([(firsts[..., None] + places[0, :width]).flatten(1), beyond], dim=1)
    values, chosen = (logits.flatten(1).gather(1, places).float() + start.gather(1, places // size)).topk(n)
    return values, places.gather(1, chosen)


def greedy_search(step: Step, limits: Tensor) -> list[list[int]]:
    """limits (B,) caps the length of each sentence → B lists of ids without BOS and EOS.

    What has ended leaves the batch when it is an eighth of it.
    """
    output = torch.full((len(limits), int(limits.max())), PAD, device=limits.device)  # PAD from a sentence's end on
    # (R,) each: the sentences in the batch; their last tokens, places in the step before, and whether they have ended
    live = torch.arange(len(limits), device=limits.device)
    tokens, rows, ended = torch.full_like(live, BOS), None, torch.zeros_like(live, dtype=torch.bool)
    for t in range(output.size(1)):
        logits = step(tokens[:, None], rows if rows is None else rows[:, None])
        logits[..., NEVER] = -torch.inf
        tokens = best(logits, 1)[1].squeeze(1).masked_fill(ended, EOS)
        output[live, t] = tokens.masked_fill(tokens == EOS, PAD)
        ended |= (tokens == EOS) | (limits[live] <= t + 1)
        # Not each by itself: those that stay have their keys and values copied.
        rows = (~ended).nonzero().squeeze(1) if 8 * ended.sum() >= len(ended) else None  # a CPU-GPU sync point
        live, tokens, ended = (x if rows is None else x[rows] for x in (live, tokens, ended))
        if not len(live):
            break
    return [[token for token in row if token != PAD] for row in output.tolist()]


@dataclass
class BeamState:
    """A batch in mid-search: L sentences that are not ended, K hypotheses of each (one before the first step)."""

    live: Tensor
    """(L,) which sentences these are"""
    scores: Tensor
    """(L, K) log P of the hypotheses, best first; −inf where there are fewer than K"""
    output: Tensor
    """(L, K, t) their tokens"""
    tokens: Tensor
    """(L, K) the last of them, BOS at first"""
    rows: Tensor | None
    """(L, K) which hypotheses of the last step they go on from; None before the first"""


def length_penalty(length: Tensor | int, alpha: float) -> Tensor:
    """((5 + length) / 6)^α, by which log P is divided (Wu et al. 2016, arXiv 1609.08144, formula 14)."""
    return ((5 + torch.as_tensor(length)) / 6) ** alpha


def beam_search(step: Step, limits: Tensor, search: Search) -> list[list[Hypothesis]]:
    """limits (B,) caps the length of each sentence → the n best hypotheses of each, best first.

    Each step keeps the search.beam best ways to go on. One that ends is a result; length counts its EOS. A sentence is
    done when no hypothesis can still win: log P only falls, so that none gets beyond its present log P over the largest
    penalty. It is done, too, when it has as many results as the beam is wide and the best that goes on is behind them
    by the present penalty (with a beam of 1 that is greedy search): it might win by its length alone. Their number is
    not enough, since the results of a few tokens fewer may all be worse than what is about to end.
    """
    device, alpha, results = limits.device, search.length_penalty, [list[Hypothesis]() for _ in limits]
    n_results = torch.zeros(len(limits), dtype=torch.int64, device=device)
    last = torch.full((len(limits),), -torch.inf, device=device)  # the n-th best score, which a newcomer must beat
    state = BeamState(
        live=torch.arange(len(limits), device=device),
        scores=torch.zeros(len(limits), 1, device=device),
        output=torch.full((len(limits), 1, 0), PAD, device=device),
        tokens=torch.full((len(limits), 1), BOS, device=device),
        rows=None,
    )
    for t in range(int(limits.max())):
        logits = step(state.tokens, state.rows)
        logits[..., NEVER] = -torch.inf
        n_live, width, n_tokens = logits.shape
        # Twice the beam, since as many as the beam may end.
        scores, places = best(logits, min(2 * search.beam, width * n_tokens), state.scores)
        parents, tokens = places // n_tokens, places % n_tokens
        ends = tokens == EOS

        at_limit = (limits[state.live] == t + 1)[:, None]
        results_here = ((ends | at_limit) & scores.isfinite())[:, : search.beam]
        n_results[state.live] += results_here.sum(dim=1)
        i, k = results_here.nonzero(as_tuple=True)  # a CPU-GPU sync point
        found = (
            state.live[i],
            state.output[i, parents[i, k]],
            tokens[i, k],
            scores[i, k] / length_penalty(t + 1, alpha),
        )
        for sentence, ids, token, score in zip(*(values.tolist() for values in found), strict=True):
            results[sentence].append(Hypothesis(ids if token == EOS else [*ids, token], score))
            results[sentence].sort(key=lambda hypothesis: -hypothesis.score)
            if len(results[sentence]) >= search.n_best:
                last[sentence] = results[sentence][search.n_best - 1].score

        go_on = ends.int().argsort(dim=1, stable=True)[:, : search.beam]  # those that do not end, in their order
        scores = scores.gather(1, go_on).masked_fill(ends.gather(1, go_on), -torch.inf)
        parents, tokens = parents.gather(1, go_on), tokens.gather(1, go_on)
        best_now, best_ever = (scores[:, 0] / length_penalty(n, alpha) for n in (t + 1, limits[state.live]))
        behind = (n_results[state.live] >= search.beam) & (best_now <= last[state.live])
        stay = (best_ever > last[state.live]) & ~behind & ~at_limit.squeeze(1)
        if not stay.any():
            break
        rows = torch.arange(n_live, device=device)[:, None] * width + parents
        before = state.output.gather(1, parents[..., None].expand(-1, -1, t))
        state = BeamState(
            live=state.live[stay],
            scores=scores[stay],
            output=torch.cat([before, tokens[..., None]], dim=-1)[stay],
            tokens=tokens[stay],
            rows=rows[stay],
        )
    return [found[: search.n_best] for found in results]
