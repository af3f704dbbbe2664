"""Beam search for translations that must say given phrases: the terms of a glossary.

Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation" (arXiv 1804.06609). A hypothesis
may begin a phrase that it has not said yet at any step, and then says it to its end. It ends only after all phrases.
Hypotheses that have said more of them have lower probabilities: the places of the beam are therefore shared out among
banks, one for each number of tokens of phrases that are said. No training is needed. It takes several times as long as
beam search, and is for sentences whose usual translation lacks a term.

One sentence at a time is searched, in numpy, by the logits of a model that `Searcher.steps` gives.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapis.config import BOS, EOS
from tapis.search import Hypothesis, LogitsStep, Search, length_penalty

LEAST_BEAM, LARGEST_BEAM = 5, 40
PLACES_OF_A_BANK = 2  # at least, if the beam is not too large then


class Phrase(NamedTuple):
    """A phrase that a translation must say."""

    ids: list[int]
    """As it is within a sentence"""
    ids_at_start: list[int]
    """As it is as the first words of a translation"""
    ids_bound: list[int]
    """As it is directly behind what binds the next word, such as l' in French or an opening bracket"""

    def behind(self, ids: Sequence[int], borders: "Borders") -> list[int]:
        """Return the phrase as it is behind a beginning of a translation."""
        if not ids:
            return self.ids_at_start
        return self.ids_bound if borders.binds[ids[-1]] else self.ids


class Borders(NamedTuple):
    """Where words begin and end, by the tokens of a vocabulary."""

    goes_on: NDArray[np.bool_]
    """(V,) those that go on with the word before them"""
    binds: NDArray[np.bool_]
    """(V,) those that bind the next word, such as an apostrophe: it follows without a space"""
    ends_in_sign: NDArray[np.bool_]
    """(V,) those behind which a word may begin without a space, if not as often: they end in a sign or space"""


@dataclass(frozen=True)
class _Partial:
    """A hypothesis that has not ended."""

    ids: tuple[int, ...]
    log_p: float
    row: int
    """Of the last step: the hypothesis that it continues"""
    said: frozenset[int] = frozenset()
    """The numbers of the phrases that it has said"""
    phrase: int = -1
    """The number of the one that it is saying; −1 for none"""
    rest: tuple[int, ...] = ()
    """The tokens of that phrase that are still to be said"""
    has_just_said: bool = False
    """Whether a phrase has just ended, so that no word may go on here"""
    end: int = 0
    """Behind which token the last phrase ended"""


def constrained_search(
    step: LogitsStep,
    limit: int,
    phrases: Sequence[Phrase],
    search: Search,
    borders: Borders,
    *,
    may_run_on: bool = False,
) -> list[Hypothesis]:
    """Return the n best translations that say all phrases, best first; none if there is none within the limit.

    A hypothesis that the model would end with something unsaid is dropped, unless it may run on: what it would say
    behind its end belongs to no sentence.

    Args:
        step: gives the logits of one sentence.
        limit: the largest length of a translation, in tokens.
        phrases: what it must say, each of at least one token.
        search: beam, n_best and length penalty. The beam is made larger for many phrases.
        borders: of the words; a phrase is said as whole words.
        may_run_on: whether hypotheses go on behind their ends.

    """
    n_tokens = sum(len(phrase.ids) for phrase in phrases)
    beam = max(search.beam, LEAST_BEAM, min(LARGEST_BEAM, PLACES_OF_A_BANK * (n_tokens + 1)))
    penalties = [length_penalty(length, search.length_penalty) for length in range(limit + 1)]
    live = [_Partial((), 0.0, 0)]
    results: list[Hypothesis] = []
    for length in range(1, limit + 1):
        # Ask the model.
        tokens = np.array([one.ids[-1] if one.ids else BOS for one in live], np.int64)
        parents = np.array([one.row for one in live], np.int64) if length > 1 else None
        log_p = _log_softmax(step(tokens, parents))

        # Extend each hypothesis, and let those end that have said everything.
        candidates = [
            candidate
            for row, one in enumerate(live)
            if may_run_on or one.rest or len(one.said) == len(phrases) or log_p[row].argmax() != EOS
            for candidate in _continuations(one, row, log_p[row], phrases, beam, borders)
        ]
        complete = [one for one in candidates if len(one.said) == len(phrases)]
        ended = [one for one in complete if one.ids[-1] == EOS]
        if length == limit and not results:
            ended = ended or complete
        for one in ended:
            ids = one.ids[:-1] if one.ids[-1] == EOS else one.ids
            results.append(Hypothesis(list(ids), one.log_p / penalties[length]))
        results = sorted(results, key=lambda result: -result.score)[: search.n_best]

        # Continue with the best of each bank, unless none can be better than the results.
        live = _shared_out([one for one in candidates if one.ids[-1] != EOS], phrases, beam)
        best = max((one.log_p for one in live), default=-np.inf)
        if best / penalties[limit] <= (results[-1].score if len(results) == search.n_best else -np.inf):
            break
    return results


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Logits (K, V) → log P (K, V)."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    values: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return values


def _continuations(
    one: _Partial, row: int, log_p: NDArray[np.float64], phrases: Sequence[Phrase], beam: int, borders: Borders
) -> list[_Partial]:
    """Return the hypotheses of one token more: the best of all, and those that begin a phrase. log_p is (V,)."""
    if one.rest:  # it is saying a phrase
        token, *rest = one.rest
        said = one.said if rest else one.said | {one.phrase}
        return [_extended(one, row, log_p, token, said, one.phrase if rest else -1, tuple(rest))]

    unsaid = [number for number in range(len(phrases)) if number not in one.said]
    allowed = np.where(borders.goes_on, -np.inf, log_p) if one.has_just_said else log_p.copy()
    if unsaid:
        allowed[EOS] = -np.inf
    found = []
    for token in np.argpartition(-allowed, min(beam, len(allowed) - 1))[:beam].tolist():
        if allowed[token] > -np.inf:
            said = one.said | _said_by_chance((*one.ids, token), one.end, unsaid, phrases, borders)
            found.append(_extended(one, row, log_p, token, said))
    for number in unsaid:
        first, *rest = phrases[number].behind(one.ids, borders)
        said = one.said if rest else one.said | {number}
        found.append(_extended(one, row, log_p, first, said, number if rest else -1, tuple(rest)))
    return found


def _extended(
    one: _Partial,
    row: int,
    log_p: NDArray[np.float64],
    token: int,
    said: frozenset[int],
    phrase: int = -1,
    rest: tuple[int, ...] = (),
) -> _Partial:
    has_just_said = len(said) > len(one.said)
    ids = (*one.ids, token)
    end = len(ids) if has_just_said else one.end
    return _Partial(ids, one.log_p + float(log_p[token]), row, said, phrase, rest, has_just_said, end)


def _said_by_chance(
    ids: tuple[int, ...], after: int, unsaid: Sequence[int], phrases: Sequence[Phrase], borders: Borders
) -> frozenset[int]:
    """Return the number of a phrase that ids end in, though it was not begun on purpose; of at most one.

    It begins where another phrase ended, or later: after so many tokens.
    """
    for number in unsaid:
        for form in phrases[number]:
            start = len(ids) - len(form)
            if start < after or list(ids[start:]) != form:
                continue
            is_bound = form == phrases[number].ids_bound and start > 0 and borders.ends_in_sign[ids[start - 1]]
            if is_bound or form == phrases[number].behind(ids[:start], borders):
                return frozenset([number])
    return frozenset()


def _shared_out(candidates: Sequence[_Partial], phrases: Sequence[Phrase], beam: int) -> list[_Partial]:
    """Return the best candidates of each bank in turn, those first that have said most, until the beam is full."""
    banks: dict[int, dict[tuple[int, ...], _Partial]] = {}
    for one in sorted(candidates, key=lambda candidate: -candidate.log_p):
        n_said = sum(len(phrases[number].ids) for number in one.said)
        n_said += max(1, len(phrases[one.phrase].ids) - len(one.rest)) if one.rest else 0
        banks.setdefault(n_said, {}).setdefault(one.ids, one)  # of equal ones, the best
    queues = [list(banks[n_said].values()) for n_said in sorted(banks, reverse=True)]
    chosen: list[_Partial] = []
    for rank in range(max(map(len, queues), default=0)):
        chosen += [queue[rank] for queue in queues if rank < len(queue)]
        if len(chosen) >= beam:
            break
    return chosen[:beam]
