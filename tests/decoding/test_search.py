"""Greedy and beam search over step functions that are known completely."""

import itertools
import math

import pytest
import torch
from plain_kernels import register_plain_kernels
from torch import Tensor

from decoding.search import FindBest, beam_search, best_continuations, greedy_search
from fast.topk import best_continuations_in_blocks
from tapis.config import BOS, EOS, PAD, UNK, ConfigError
from tapis.search import Hypothesis, Search, length_penalty


class Script:
    """A step function that says given tokens, whatever it is told, and remembers what it was told."""

    def __init__(self, lines: list[list[int]], vocabulary: int = 12) -> None:
        self.lines, self.vocabulary = lines, vocabulary
        self.live = list(range(len(lines)))
        self.calls: list[tuple[list[int], list[int] | None]] = []

    def __call__(self, tokens: Tensor, rows: Tensor | None) -> Tensor:
        self.calls.append((tokens.flatten().tolist(), None if rows is None else rows.flatten().tolist()))
        if rows is not None:
            self.live = [self.live[row] for row in rows.flatten().tolist()]
        t = len(self.calls) - 1
        logits = torch.zeros(len(self.live), self.vocabulary)
        for i, line in enumerate(self.live):
            logits[i, self.lines[line][t] if t < len(self.lines[line]) else EOS] = 1.0
        return logits[:, None]


def limits(*values: int) -> Tensor:
    return torch.tensor(values)


def test_each_sentence_ends_at_its_own_end() -> None:
    script = Script([[5, 6, 7], [8], [], [9, 10]])
    assert greedy_search(script, limits(9, 9, 9, 9)) == [[5, 6, 7], [8], [], [9, 10]]


def test_ended_sentences_leave_the_batch_of_greedy_search() -> None:
    script = Script([[5, 6], [8], [9, 10, 11]])
    greedy_search(script, limits(9, 9, 9))
    assert script.calls == [
        ([BOS, BOS, BOS], None),
        ([5, 8, 9], None),
        ([6, 10], [0, 2]),
        ([11], [1]),
    ]


def test_sentences_leave_once_an_eighth_of_the_batch_has_ended() -> None:
    lines = [[4 + i % 8] * (i + 1) for i in range(32)]
    limited = [len(line) if i % 2 else 99 for i, line in enumerate(lines)]  # the others say EOS, one step later
    script = Script(lines)
    assert greedy_search(script, limits(*limited)) == lines
    sizes = [len(tokens) for tokens, _ in script.calls]
    for t, size in enumerate(sizes):
        going_on = sum(min(len(line) + 1, limit) > t for line, limit in zip(lines, limited, strict=True))
        assert going_on <= size < max(2, going_on * 8 / 7)
    assert len(set(sizes)) < 20


def test_each_sentence_has_a_limit_of_its_own() -> None:
    script = Script([[5] * 50, [6] * 50])
    assert greedy_search(script, limits(3, 1)) == [[5, 5, 5], [6]]
    assert len(script.calls) == 3


def test_greedy_search_never_emits_special_tokens() -> None:
    def step(tokens: Tensor, rows: Tensor | None) -> Tensor:
        logits = torch.zeros(*tokens.shape, 8)
        logits[..., [PAD, UNK, BOS]] = 9.0
        logits[..., 6] = 1.0
        return logits

    assert greedy_search(step, limits(2)) == [[6, 6]]


def best_continuations_with_kernel(logits: Tensor, n: int, scores: Tensor | None = None) -> tuple[Tensor, Tensor]:
    register_plain_kernels()
    return best_continuations_in_blocks(logits, n, scores, with_kernel=True)


@pytest.mark.parametrize("best", [best_continuations, best_continuations_in_blocks, best_continuations_with_kernel])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("sentences", "beam", "vocabulary", "n"),
    [(7, 1, 1000, 1), (40, 3, 700, 1), (5, 3, 1000, 7), (3, 2, 640, 4), (2, 5, 900, 10), (4, 2, 50, 3)],
)
def test_the_best_continuations_are_those_of_topk(
    sentences: int, beam: int, vocabulary: int, n: int, dtype: torch.dtype, best: FindBest
) -> None:
    for seed in range(20):
        random = torch.Generator().manual_seed(seed)
        logits = 3 * torch.randn(sentences, beam, vocabulary, generator=random).to(dtype)
        logits[0, 0, : vocabulary // 2] = -math.inf
        scores = -5 * torch.rand(sentences, beam, generator=random)
        scores[1, 1:] = -math.inf
        log_p = logits.float().log_softmax(dim=-1) + scores[..., None]
        for given, wanted in ((None, logits.float().flatten(1)), (scores, log_p.flatten(1))):
            values, places = best(logits, n, given)
            torch.testing.assert_close(values, wanted.topk(n).values)
            torch.testing.assert_close(wanted.gather(1, places), values)
            assert all(len(set(row)) == n for row in places.tolist())


VOCABULARY = 8  # of which 5, 6, 7 and 4 are words


def scores_after(sentence: int, prefix: tuple[int, ...], sharpness: float) -> Tensor:
    """The logits of a model that is as good as random, but says the same after the same words."""
    seed = hash((sentence, *prefix)) % 2**31
    return sharpness * torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed))


class Fake:
    """A step function of that model; which sentence a row is of, and its words, go with the rows that are chosen."""

    def __init__(self, sentences: list[int], sharpness: float = 2.0) -> None:
        self.rows: list[tuple[int, tuple[int, ...]]] = [(sentence, ()) for sentence in sentences]
        self.sharpness = sharpness
        self.sizes: list[int] = []

    def __call__(self, tokens: Tensor, rows: Tensor | None) -> Tensor:
        if rows is not None:
            self.rows = [self.rows[row] for row in rows.flatten().tolist()]
        last = tokens.flatten().tolist()
        self.rows = [(s, (*prefix, token)) for (s, prefix), token in zip(self.rows, last, strict=True)]
        for beside in torch.tensor([s for s, _ in self.rows]).view(tokens.shape).tolist():
            assert len(set(beside)) == 1  # the hypotheses of a sentence stay together
        self.sizes.append(len(self.rows))
        scores = torch.stack([scores_after(s, prefix, self.sharpness) for s, prefix in self.rows])
        return scores.view(*tokens.shape, -1)


def log_probs(sentence: int, prefix: tuple[int, ...], sharpness: float = 2.0) -> list[float]:
    logits = scores_after(sentence, (BOS, *prefix), sharpness)
    logits[[PAD, UNK, BOS]] = -math.inf
    values: list[float] = logits.log_softmax(dim=-1).tolist()
    return values


def every_hypothesis(sentence: int, limit: int, alpha: float) -> list[Hypothesis]:
    """All that can be said within the limit, best first."""
    found = []
    for length in range(limit + 1):
        for ids in itertools.product((4, 5, 6, 7), repeat=length):
            said = [*ids, EOS] if length < limit else list(ids)
            total = sum(log_probs(sentence, tuple(said[:t]))[token] for t, token in enumerate(said))
            found.append(Hypothesis(list(ids), total / float(length_penalty(len(said), alpha))))
    return sorted(found, key=lambda hypothesis: -hypothesis.score)


def plain_beam_search(sentence: int, limit: int, search: Search) -> list[Hypothesis]:
    """The same search as in the books, one hypothesis at a time, to the very end."""
    live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    found: list[Hypothesis] = []
    for t in range(limit):
        ways = [
            ((*ids, token), total + log_prob)
            for ids, total in live
            for token, log_prob in enumerate(log_probs(sentence, ids))
            if log_prob > -math.inf
        ]
        ways.sort(key=lambda way: -way[1])
        for ids, total in ways[: search.beam]:
            if ids[-1] == EOS or t + 1 == limit:
                score = total / float(length_penalty(t + 1, search.length_penalty))
                found.append(Hypothesis([token for token in ids if token != EOS], score))
        found.sort(key=lambda hypothesis: -hypothesis.score)
        live = [way for way in ways if way[0][-1] != EOS][: search.beam]
        best_now = live[0][1] / float(length_penalty(t + 1, search.length_penalty)) if live else -math.inf
        if len(found) >= search.beam and best_now <= found[search.n_best - 1].score:
            break
    return found[: search.n_best]


def assert_same(ours: list[Hypothesis], theirs: list[Hypothesis]) -> None:
    assert [hypothesis.ids for hypothesis in ours] == [hypothesis.ids for hypothesis in theirs]
    assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=1e-4)


def test_a_beam_of_one_equals_greedy_search() -> None:
    sentences, most = list(range(40)), limits(*[1 + i % 9 for i in range(40)])
    ours = beam_search(Fake(sentences), most, Search(beam=1))
    assert [found[0].ids for found in ours] == greedy_search(Fake(sentences), most)
    assert all(len(found) == 1 for found in ours)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
def test_a_beam_that_holds_everything_finds_the_best_of_all(alpha: float) -> None:
    found = beam_search(Fake([1, 2, 3]), limits(3, 2, 3), Search(beam=85, n_best=20, length_penalty=alpha))
    for sentence, limit, ours in zip((1, 2, 3), (3, 2, 3), found, strict=True):
        assert_same(ours, every_hypothesis(sentence, limit, alpha)[:20])


@pytest.mark.parametrize("beam", [2, 3, 5])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_beam_search_equals_the_textbooks(beam: int, alpha: float) -> None:
    """Stopping where nothing can win any more, and doing all sentences at once, change no result."""
    sentences = list(range(60))
    for n_best in {1, beam}:
        search = Search(beam, n_best, alpha)
        found = beam_search(Fake(sentences), limits(*[1 + i % 7 for i in sentences]), search)
        for sentence, ours in zip(sentences, found, strict=True):
            assert_same(ours, plain_beam_search(sentence, 1 + sentence % 7, search))


def test_beam_search_of_a_batch_equals_one_sentence_at_a_time() -> None:
    sentences, search = list(range(30)), Search(beam=4, n_best=4)
    together = beam_search(Fake(sentences), limits(*[2 + i % 6 for i in sentences]), search)
    for sentence, ours in zip(sentences, together, strict=True):
        assert_same(ours, beam_search(Fake([sentence]), limits(2 + sentence % 6), search)[0])


@pytest.mark.parametrize("interval", [2, 3, 8, 100])
def test_a_search_that_checks_rarely_finds_the_same(interval: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = list(range(60))
    most = limits(*[1 + i % 9 for i in sentences])
    searches = [Search(beam, n_best, alpha) for beam, n_best in ((2, 1), (4, 4)) for alpha in (0.0, 1.0)]
    greedy = greedy_search(Fake(sentences), most)
    beams = [beam_search(Fake(sentences), most, search) for search in searches]
    monkeypatch.setattr("decoding.search.check_interval", lambda device: interval)
    fake = Fake(sentences)
    assert greedy_search(fake, most) == greedy
    assert fake.sizes[:interval] == [60] * min(interval, 9), "no sentence leaves before the first check"
    for search, expected in zip(searches, beams, strict=True):
        fake = Fake(sentences)
        for ours, theirs in zip(beam_search(fake, most, search), expected, strict=True):
            assert_same(ours, theirs)
        n_within_limit = int((most > interval).sum())
        assert all(size <= search.beam * n_within_limit for size in fake.sizes[interval:]), "they leave at the check"


def test_wider_beams_score_higher() -> None:
    """In the mean: for one sentence, a beam may drop what greedy search keeps."""
    means = []
    for beam in (1, 2, 4, 8):
        found = beam_search(Fake(list(range(200))), limits(*[6] * 200), Search(beam, length_penalty=0.0))
        means.append(sum(best[0].score for best in found) / 200)
    assert means == sorted(means)
    assert means[0] < means[-1]


def test_beam_search_ends_when_no_hypothesis_can_win() -> None:
    """A sentence whose end is all but certain takes a step or two of the hundred that it may have."""

    def step(tokens: Tensor, rows: Tensor | None) -> Tensor:
        calls.append(len(tokens))
        logits = torch.zeros(*tokens.shape, 50)
        logits[..., EOS] = 40.0
        return logits

    calls: list[int] = []
    assert beam_search(step, limits(100, 100), Search(beam=5)) == [[Hypothesis([], 0.0)]] * 2
    assert calls == [2]


@pytest.mark.parametrize("beam", [1, 2, 3, 5])
def test_a_beam_finds_what_greedy_search_finds_with_high_probability(beam: int) -> None:
    """If it is likelier than 1 / (beam + 1), fewer beginnings than the beam is wide can be as likely as its own."""
    sentences, most, sharpness = list(range(300)), limits(*[6] * 300), 5.0
    narrow = beam_search(Fake(sentences, sharpness), most, Search(1, length_penalty=0.0))
    wide = beam_search(Fake(sentences, sharpness), most, Search(beam, length_penalty=0.0))
    pairs = [(n[0].score, w[0].score) for n, w in zip(narrow, wide, strict=True) if n[0].score > -math.log(beam + 1)]
    assert len(pairs) > 100
    assert all(found >= greedy - 1e-4 for greedy, found in pairs)


def test_many_results_do_not_end_the_search_before_the_best() -> None:
    """Two poor translations end one token before a much better one does."""
    after: dict[tuple[int, ...], dict[int, float]] = {
        (): {4: 0.0},
        (4,): {5: -0.1, EOS: -3.0},
        (4, 5): {6: -0.1, EOS: -4.0},
    }

    def step(tokens: Tensor, rows: Tensor | None) -> Tensor:
        before = said if rows is not None else [()]
        parents = [0] * tokens.numel() if rows is None else rows.flatten().tolist()
        words = tokens.flatten().tolist()
        said[:] = [(*before[p], w) if w != BOS else () for p, w in zip(parents, words, strict=True)]
        logits = torch.full((len(said), VOCABULARY), -30.0)
        for row, words_so_far in enumerate(said):
            for token, score in after.get(words_so_far, {EOS: 0.0}).items():
                logits[row, token] = score
        return logits.view(*tokens.shape, -1)

    said: list[tuple[int, ...]] = []
    ((found,),) = beam_search(step, limits(9), Search(beam=2, length_penalty=0.0))
    assert found.ids == [4, 5, 6]


def test_ended_sentences_leave_the_batch_with_all_their_hypotheses() -> None:
    fake = Fake([1, 2, 3, 4])
    beam_search(fake, limits(1, 3, 5, 5), Search(beam=3, length_penalty=0.0))
    assert fake.sizes[0] == 4
    assert all(size % 3 == 0 for size in fake.sizes[1:])
    assert max(fake.sizes[1:]) <= 9


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"beam": 0}, "--beam is 0"),
        ({"beam": 2, "n_best": 3}, "--n-best 3"),
        ({"beam": 2000}, "--beam is 2000"),
        ({"length_penalty": -1.0}, "--length-penalty is -1.0"),
        ({"length_penalty": math.nan}, "--length-penalty is nan"),
    ],
)
def test_impossible_searches_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Search(**wrong)  # type: ignore[arg-type]
