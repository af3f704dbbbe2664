"""What a run is, in numbers: the report of its data, model and hardware, and what metrics.json holds in the end."""

import platform
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version

import numpy as np

from dataset import TokenRows
from machine.devices import device_label
from pairs.report import DataReport, RuleReport
from pairs.tables import Ints
from tapis.text.tokenizer import Tokenizer
from training.ancestry import Ancestor, rare_tokens
from training.metrics import BatchReport, Metrics, SideReport
from training.trainer import Training

PACKAGES = ("torch", "tokenizers", "datasets", "torchmetrics", "sacrebleu")  # whose versions are recorded
COUNTED_TOGETHER = 100_000  # rows, whose token ids are in memory
EXAMPLES = 5  # sentences of the test part with their translations, for the card of a release


def describe(training: Training, ancestor: Ancestor | None = None) -> Metrics:
    """Return what is about to be trained on what.

    ancestor is the run that this one starts from, if any.
    """
    config, corpus, pairs = training.config, training.corpus, training.train_pairs
    too_long = corpus.train.select(pairs.too_long)
    n_words = np.subtract(corpus.train.words(), too_long.words())  # on either side
    sides = {}
    # With several language pairs, a language may be on both sides.
    names = ("source", "target") if len(config.pairs) > 1 else (config.source, config.target)
    counts = np.zeros(len(training.tokenizer), dtype=np.int64)
    tags = list(training.tokenizer.tags.values())  # each source begins with one, which is no part of its text
    src_lengths = (pairs.src_lengths - 1 if tags else pairs.src_lengths)[~training.is_monolingual]
    for language, rows, lengths, n in (
        (names[0], pairs.sources, src_lengths, n_words[0]),
        (names[1], pairs.targets, pairs.tgt_lengths, n_words[1]),
    ):
        side_counts = counts_of_tokens(rows, pairs.rows, len(counts))
        side_counts[tags] = 0
        counts += side_counts
        sides[language] = describe_side(lengths - 1, n, side_counts, training.tokenizer)
        if ancestor:
            sides[language] = ancestor.compare_side(sides[language], language, side_counts)
    return Metrics(
        init_from=ancestor.record if ancestor else None,
        data=describe_data(training),
        sides=sides,
        vocabulary=len(training.tokenizer),
        rare_tokens=rare_tokens(counts, ancestor),
        batches=BatchReport(
            in_an_epoch=training.batches_per_epoch,
            tokens_a_side_at_most=config.batch_tokens,
            padding=round(training.padding_share, 4),
            in_a_step=training.resolved.accumulate,
            steps=training.total_steps,
            warmup_steps=training.resolved.warmup_steps,
        ),
        terms=len({word for lexicon in training.lexicons for word in lexicon.dice}),
        parameters=sum(parameter.numel() for parameter in training.model.parameters()),
        hardware=device_label(training.device),
        precision=training.resolved.precision,
        versions={"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    )


def describe_data(training: Training) -> DataReport:
    """Return the report of the corpus, with what exceeds --max-length; of several sources, also of each."""
    corpus, pairs = training.corpus, training.train_pairs

    def over_long(indices: Ints) -> RuleReport:
        return RuleReport(len(indices), corpus.train.select(indices[:2])[:])

    origins_too_long = corpus.train.origins()[pairs.too_long]
    of_pairs = [i for i, origin in enumerate(corpus.origins) if not origin.is_monolingual]
    report = replace(
        corpus.report,
        over_long=over_long(pairs.too_long[np.isin(origins_too_long, of_pairs)]),
        trained_on=int(np.sum(~training.is_monolingual)),
    )
    if not report.sources:
        return report
    sources = [
        replace(
            source,
            over_long=over_long(pairs.too_long[origins_too_long == i]),
            trained_on=int(np.sum(pairs.origins == i)),
            weight=round(weight, 4),
        )
        for i, (source, weight) in enumerate(zip(report.sources, training.origin_weights, strict=True))
    ]
    return replace(report, sources=sources, pairs_in_an_epoch=training.pairs_per_epoch)


def counts_of_tokens(tokens: TokenRows, rows: Ints, n_tokens: int) -> Ints:
    """Return how often these rows have each token of a vocabulary."""
    counts = np.zeros(n_tokens, dtype=np.int64)
    for start in range(0, len(rows), COUNTED_TOGETHER):
        ids, _ = tokens.take(rows[start : start + COUNTED_TOGETHER])
        counts += np.bincount(ids, minlength=n_tokens)
    return counts


def describe_side(lengths: Ints, n_words: int, counts: Ints, tokenizer: Tokenizer) -> SideReport:
    """Describe one side of the training pairs: its lengths without EOS, its words, and what is in bytes.

    counts has how often each token occurs.
    """
    n_begun, n_whole = counts @ tokenizer.characters
    return SideReport(
        tokens=int(lengths.sum()),
        tokens_per_word=round(float(lengths.sum()) / max(1, n_words), 2),
        characters_in_bytes=round(float(1 - n_whole / max(1, n_begun)), 5),
        percentiles={str(p): int(np.percentile(lengths, p)) for p in (50, 95, 99, 100)},
    )


def first_examples(pairs: Sequence[tuple[str, str]], hypotheses: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return the first sentences of the test part with their translations."""
    first = zip(pairs[:EXAMPLES], hypotheses[:EXAMPLES], strict=True)
    return [(*pair, hypothesis) for pair, hypothesis in first]
