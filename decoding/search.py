"""Search: a step function → token ids. The step function wraps a model, which the search never sees.

`greedy_search` takes the most probable token at every position. `beam_search` keeps the best few hypotheses of each
sentence and returns the n best. Both take a whole batch, treat each sentence as if it were alone, and drop from the
batch what has ended. Validation, translation and evaluation all decode through them. A `Search` holds the settings.

Letters in shapes: L live sentences of a batch, K hypotheses of each, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from config import BOS, EOS, LENGTH_PENALTY, PAD, UNK, ConfigError

# (tokens, parents) → logits. tokens (L, K) are the last tokens of the K hypotheses of each of the L live sentences.
# parents (L, K) are the hypotheses of the previous call from which they continue, counted through all its sentences,
# each from the same sentence; None if all continue in place. Sentences may leave; those that stay keep their order.
# logits (L, K, V) score the next token of each hypothesis.
Step = Callable[[Tensor, Tensor | None], Tensor]

# What finds the best continuations: `best_continuations`, or a faster form of it.
FindBest = Callable[[Tensor, int, Tensor | None], tuple[Tensor, Tensor]]

NEVER_GENERATED = [PAD, UNK, BOS]  # they are no text; all ids before EOS


@dataclass(frozen=True)
class Search:
    """How to search. Raises ConfigError if the numbers do not fit together."""

    beam: int = 1
    """Hypotheses kept for each sentence; 1 is greedy search"""
    n_best: int = 1
    """Translations wanted for each sentence, at most beam"""
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
    """log P(ids | source) in nats over the length penalty; NaN from greedy search, which computes none"""


def best_continuations(logits: Tensor, n: int, scores: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The n best continuations of each sentence: logits (L, K, V) → values (L, n), best first, and places in K · V.

    With scores (L, K), the log P of the hypotheses, values are log P of hypothesis and token. Without, they are logits.
    """
    values = logits.float()
    if scores is not None:
        values = scores[..., None] + values.log_softmax(dim=-1)
    return values.flatten(1).topk(n)


def length_penalty(length: Tensor | int, alpha: float) -> Tensor:
    """((5 + length) / 6)^α, by which log P is divided (Wu et al. 2016, arXiv 1609.08144, formula 14)."""
    return ((5 + torch.as_tensor(length)) / 6) ** alpha


# Greedy search


def greedy_search(step: Step, limits: Tensor, best: FindBest = best_continuations) -> list[list[int]]:
    """limits (B,) caps the length of each sentence → B lists of ids without BOS and EOS.

    Sentences that have ended leave the batch once they are an eighth of it: when some leave, the keys and values of
    those that stay are copied.
    """
    device = limits.device
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
        if 8 * ended.sum() >= len(ended):  # a CPU-GPU sync point
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
    scores: Tensor
    """(L, K) log P of the hypotheses, best first; −inf where there are fewer than K"""
    output: Tensor
    """(L, K, t) their tokens"""
    tokens: Tensor
    """(L, K) the last token of each, BOS at first"""
    parents: Tensor | None
    """(L, K) the hypotheses of the last step from which they continue; None before the first step"""


@dataclass
class Candidates:
    """The best continuations of each live sentence at one step, best first: 2K of them, so that K can continue."""

    scores: Tensor
    """(L, 2K) log P"""
    parents: Tensor
    """(L, 2K) the hypothesis, from 0 to K − 1, that each continues"""
    tokens: Tensor
    """(L, 2K) the token that it appends"""

    def gather(self, chosen: Tensor) -> "Candidates":
        """The candidates at these places (L, n) of each sentence."""
        return Candidates(*(values.gather(1, chosen) for values in (self.scores, self.parents, self.tokens)))


class Results:
    """The finished hypotheses of B sentences."""

    def __init__(self, n_sentences: int, search: Search, device: torch.device) -> None:
        self.search = search
        self.hypotheses: list[list[Hypothesis]] = [[] for _ in range(n_sentences)]  # best first
        self.counts = torch.zeros(n_sentences, dtype=torch.int64, device=device)
        # (B,) the n-th best score of each sentence, which a new hypothesis must beat.
        self.score_to_beat = torch.full((n_sentences,), -torch.inf, device=device)

    def add(self, sentence: int, hypothesis: Hypothesis) -> None:
        n_best, ranked = self.search.n_best, self.hypotheses[sentence]
        ranked.append(hypothesis)
        ranked.sort(key=lambda one: -one.score)
        if len(ranked) >= n_best:
            self.score_to_beat[sentence] = ranked[n_best - 1].score


def beam_search(
    step: Step, limits: Tensor, search: Search, best: FindBest = best_continuations
) -> list[list[Hypothesis]]:
    """limits (B,) caps the length of each sentence → the n best hypotheses of each, best first.

    Each step keeps the search.beam best continuations. A hypothesis that ends is a result; its length counts EOS. A
    sentence is done when none of its hypotheses can still win (`undecided`).
    """
    device = limits.device
    results = Results(len(limits), search, device)
    state = BeamState(
        live=torch.arange(len(limits), device=device),
        scores=torch.zeros(len(limits), 1, device=device),
        output=torch.full((len(limits), 1, 0), PAD, device=device),
        tokens=torch.full((len(limits), 1), BOS, device=device),
        parents=None,
    )
    for length in range(1, int(limits.max()) + 1):
        logits = step(state.tokens, state.parents)
        logits[..., :EOS] = -torch.inf  # those of NEVER_GENERATED
        candidates = select(logits, state, search, best)
        is_at_limit = limits[state.live] == length
        finish(candidates, state, is_at_limit, length, results)
        survivors = continuing(candidates, search)
        stay = undecided(survivors, state, limits, length, results) & ~is_at_limit
        if not stay.any():  # a CPU-GPU sync point
            break
        state = advance(state, survivors, stay)
    return [ranked[: search.n_best] for ranked in results.hypotheses]


def select(logits: Tensor, state: BeamState, search: Search, best: FindBest) -> Candidates:
    """The best continuations of each live sentence. Keeps 2K: up to K of them may end, and K must be left."""
    _, n_hypotheses, vocab_size = logits.shape
    n = min(2 * search.beam, n_hypotheses * vocab_size)
    scores, places = best(logits, n, state.scores)  # (L, 2K) each; places in K · V
    return Candidates(scores, parents=places // vocab_size, tokens=places % vocab_size)


def finish(candidates: Candidates, state: BeamState, is_at_limit: Tensor, length: int, results: Results) -> None:
    """Adds to the results what ends among the K best candidates: with EOS, or at the sentence's limit."""
    ends = (candidates.tokens == EOS) | is_at_limit[:, None]
    is_result = (ends & candidates.scores.isfinite())[:, : results.search.beam]  # (L, K)
    results.counts[state.live] += is_result.sum(dim=1)

    i, k = is_result.nonzero(as_tuple=True)  # a CPU-GPU sync point
    sentences = state.live[i]
    prefixes = state.output[i, candidates.parents[i, k]]
    tokens = candidates.tokens[i, k]
    scores = candidates.scores[i, k] / length_penalty(length, results.search.length_penalty)
    ended = zip(sentences.tolist(), prefixes.tolist(), tokens.tolist(), scores.tolist(), strict=True)
    for sentence, prefix, token, score in ended:
        results.add(sentence, Hypothesis(prefix if token == EOS else [*prefix, token], score))


def continuing(candidates: Candidates, search: Search) -> Candidates:
    """The K best candidates that do not end, in their order; −inf scores where there are fewer."""
    ends = candidates.tokens == EOS
    chosen = ends.int().argsort(dim=1, stable=True)[:, : search.beam]
    survivors = candidates.gather(chosen)
    survivors.scores = survivors.scores.masked_fill(ends.gather(1, chosen), -torch.inf)
    return survivors


def undecided(survivors: Candidates, state: BeamState, limits: Tensor, length: int, results: Results) -> Tensor:
    """Which sentences (L,) may still find a hypothesis that beats the n best they have.

    log P only falls as a hypothesis grows. A hypothesis can therefore never score more than its present log P divided
    by the largest penalty, that at the sentence's limit. A sentence is decided if its best survivor cannot beat the
    n-th best result even so.

    A sentence is also decided if it has K results and its best survivor, scored at its present length, is behind them:
    it could win by its length alone. With a beam of 1, this is greedy search. K results without that condition decide
    nothing, since all of them may be worse than what is about to end.
    """
    alpha = results.search.length_penalty
    best_log_p = survivors.scores[:, 0]
    best_now = best_log_p / length_penalty(length, alpha)
    best_ever = best_log_p / length_penalty(limits[state.live], alpha)
    score_to_beat = results.score_to_beat[state.live]
    is_behind = (results.counts[state.live] >= results.search.beam) & (best_now <= score_to_beat)
    return (best_ever > score_to_beat) & ~is_behind


def advance(state: BeamState, survivors: Candidates, stay: Tensor) -> BeamState:
    """The state after this step, of the sentences that stay (L,)."""
    n_sentences, n_hypotheses, t = state.output.shape
    prefixes = state.output.gather(1, survivors.parents[..., None].expand(-1, -1, t))
    output = torch.cat([prefixes, survivors.tokens[..., None]], dim=-1)
    first_of_sentence = torch.arange(n_sentences, device=stay.device)[:, None] * n_hypotheses
    parents = first_of_sentence + survivors.parents
    return BeamState(state.live[stay], survivors.scores[stay], output[stay], survivors.tokens[stay], parents[stay])
