"""Training pairs whose source says nothing about their target, as in a file whose lines have shifted.

Once a model has learned for a while, a source makes its own target far more probable than the source of another pair
does. The pointwise mutual information of a pair (x, y) is estimated as

    log p(y | x) − log p(y | x′),

where x′ is a source of about the same length, in nats per token of the target. Of unrelated pairs it is about 0. The
loss alone tells less: it is also high where a target is rare or free. Dual conditional cross-entropy
(Junczys-Dowmunt 2018, arXiv 1809.00197) asks a second model, of the other direction, whether it agrees; this needs one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataset import EncodedPairs, FlatRows
from decoding.translator import Translator
from machine.distributed import Group
from pairs.corpus import Corpus
from pairs.report import RuleReport
from tapis.threads import chunks

DROPPED_AT = 0.2  # share of a run after which it judges its pairs: by then it tells them apart (docs/lab)
JUDGED_TOGETHER = 50_000  # pairs, whose texts are in memory
# Nats per token. Where the upper quartile is lower, the model has learned too little to judge.
LEAST_INFORMATION = 0.7
FEWEST_JUDGED = 200  # pairs of a language pair, of which the distribution is known
# As shares of the upper quartile, above which are related pairs, unless three quarters of the pairs are unrelated:
LOWEST, BIN_WIDTH, N_BINS = -0.4, 0.01, 160  # of the bins in which the density of the pairs is estimated
BANDWIDTH = 0.06  # of its kernel, a normal distribution
PEAK = -0.1, 0.3  # where unrelated pairs are most frequent, if there are any
VALLEY_UP_TO = 0.6  # where they meet the related ones
DEPTH = 1.1  # times the density of the valley that the peak has, at least
LITTLE = 0.1  # without a valley: a pair of less information is unrelated

Floats = NDArray[np.float64]


class Unrelated(NamedTuple):
    """The pairs of a run that are unrelated."""

    rows: list[int]
    """Numbers of pairs in the training part, ascending"""
    n_judged: int
    examples: list[tuple[str, str]]
    """The first two of them"""

    @property
    def report(self) -> RuleReport:
        """What metrics.json has of it."""
        return RuleReport(len(self.rows), self.examples)


def unrelated_pairs(corpus: Corpus, pairs: EncodedPairs, group: Group, translator: Translator) -> Unrelated:
    """Judge all pairs but monolingual text. All processes must call it together; each judges a share.

    Pairs of a language pair that the model cannot judge yet, or that has few of them, are not counted as judged.
    """
    numbers: dict[tuple[str, str], list[int]] = {}
    for number, origin in enumerate(corpus.origins):
        if not origin.is_monolingual:
            numbers.setdefault((origin.source, origin.target), []).append(number)

    rows: list[int] = []
    n_judged = 0
    for (source, target), origins in numbers.items():
        places = np.flatnonzero(np.isin(pairs.origins, origins))
        information = information_of(corpus, pairs, places, group, translator.towards(target, source))
        limit = limit_of(information)
        if limit is not None:
            n_judged += len(places)
            rows += pairs.rows[places[information < limit]].tolist()
    rows.sort()
    examples = corpus.train.select(np.array(rows[:2], dtype=np.int64))[:] if rows else []
    return Unrelated(rows, n_judged, examples)


def information_of(
    corpus: Corpus, pairs: EncodedPairs, places: NDArray[np.int64], group: Group, translator: Translator
) -> Floats:
    """Return what the source of each of these pairs says about its target, in nats per target token.

    The other source is the same however many processes share the work.
    """
    others = other_places(pairs, places)
    values: list[float] = []
    for part in chunks(range(group.rank, len(places), group.size), JUDGED_TOGETHER):
        own = corpus.train.select(pairs.rows[places[part]])[:]
        other = corpus.train.select(pairs.rows[others[part]])[:]
        exchanged = [(source, target) for (source, _), (_, target) in zip(other, own, strict=True)]
        scored = zip(translator.log_probabilities(own), translator.log_probabilities(exchanged), strict=True)
        values += [(with_own - with_other) / n_tokens for (with_own, n_tokens), (with_other, _) in scored]
    return np.array(group.gather(values))


def other_places(pairs: EncodedPairs, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each of these pairs one whose source is another, and about as long.

    It is drawn at random: in many files, the next lines are translations of the same source, or of a similar one. Where
    a source is that of all pairs as long as it, the other one is longer.
    """
    shuffled = np.random.default_rng(1).permutation(places)
    in_order = shuffled[np.argsort(pairs.src_lengths[shuffled], kind="stable")]
    rows = pairs.rows[in_order]
    hashes: list[int] = []
    for start in range(0, len(rows), JUDGED_TOGETHER):
        ids_of_part = FlatRows(*pairs.sources.take(rows[start : start + JUDGED_TOGETHER]))
        hashes += [hash(ids.tobytes()) for ids in ids_of_part]
    sources = np.array(hashes)

    # The next place with another source; after the last one, the first one comes.
    begins = np.flatnonzero(sources != np.roll(sources, 1))  # of runs of equal sources
    if not len(begins):
        return places
    next_begin = begins[np.searchsorted(begins, np.arange(len(sources)), side="right") % len(begins)]
    by_place = np.empty(int(places.max(initial=-1)) + 1, dtype=np.int64)
    by_place[in_order] = in_order[next_begin]
    return by_place[places]


def limit_of(information: Sequence[float] | Floats) -> float | None:
    """Return the information below which a pair is unrelated; None where that cannot be told.

    Many unrelated pairs make a peak of their own in the density of the information. The limit is the valley behind it.
    A corpus without such a peak loses a few pairs that have next to no information.
    """
    if len(information) < FEWEST_JUDGED:
        return None
    upper_quartile = float(np.quantile(information, 0.75))
    if upper_quartile < LEAST_INFORMATION:
        return None
    density = density_of(np.asarray(information) / upper_quartile)
    peak = bin_of(PEAK[0]) + int(density[bin_of(PEAK[0]) : bin_of(PEAK[1]) + 1].argmax())
    valley = peak + int(density[peak : bin_of(VALLEY_UP_TO) + 1].argmin())
    has_valley = density[peak] > DEPTH * density[valley]
    return upper_quartile * (LOWEST + BIN_WIDTH * valley if has_valley else LITTLE)


def bin_of(share: float) -> int:
    """Return the bin whose middle is nearest to a share of the upper quartile."""
    return round((share - LOWEST) / BIN_WIDTH)


def density_of(values: Floats) -> Floats:
    """Return the density of values in each bin, up to a factor: a histogram, smoothed by a normal distribution."""
    n_beside = round(4 * BANDWIDTH / BIN_WIDTH)  # bins on either side in which a value counts
    edges = LOWEST + BIN_WIDTH * (np.arange(-n_beside, N_BINS + n_beside + 1) - 0.5)
    counts, _ = np.histogram(values, edges)
    kernel = np.exp(-0.5 * (BIN_WIDTH * np.arange(-n_beside, n_beside + 1) / BANDWIDTH) ** 2)
    density: Floats = np.convolve(counts, kernel, mode="valid")
    return density
