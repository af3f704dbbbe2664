"""The plan of batches: which pairs each step learns from, and in what order.

It is a pure function of the config, the pairs, the processes and the number of the step, so that a resumed run goes on
as if it had never stopped.
"""

import math
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch

from config import Config
from dataset import Batch, EncodedPairs, IdList, batches, collate
from fast.packed_batch import PackedBatch
from fast.packing import ROUND
from machine.distributed import Group
from pairs.tables import Ints
from pairs.terms import Lexicon
from tapis.config import PAD


def weights_of_origins(config: Config, sizes: Ints) -> list[float]:
    """Return how often an epoch has each pair of an origin, by --data-weights, --temperature and --monolingual-weight.

    sizes are the numbers of training pairs of the origins, the last of which are monolingual. With a temperature T, the
    share of an origin of n pairs is proportional to n to the power of 1/T (Arivazhagan et al. 2019, arXiv 1907.05019,
    section 4.1). Together they keep their size.
    """
    n_monolingual = len(config.monolingual_directions)
    sizes = sizes[: len(sizes) - n_monolingual]
    weights = np.array(config.data_weights or [1.0] * len(sizes))
    if config.temperature != 1:
        shares = (weights * sizes) ** (1 / config.temperature)
        weights = shares / shares.sum() * (weights * sizes).sum() / sizes.clip(min=1)
    return [*weights.tolist(), *[config.monolingual_weight] * n_monolingual]


class BatchPlan:
    """The batches of each step from some step on, as long as the pairs stay the same."""

    def __init__(
        self,
        config: Config,
        pairs: EncodedPairs,
        weights: Sequence[float],
        group: Group,
        *,
        accumulate: int = 1,
        after_step: int = 0,
        first_epoch: int = 0,
        in_ranges: bool = False,
        lexicons: Sequence[Lexicon] = (),
    ) -> None:
        """Plan the steps after `after_step`.

        Args:
            config: of the run.
            pairs: those to learn from.
            weights: how often an epoch has each pair of an origin.
            group: the processes that share the batches of a step.
            accumulate: batches of a step, of all processes.
            after_step: the step before the first one of this plan.
            first_epoch: the number of its first epoch, from 0.
            in_ranges: whether attention works on ranges of rows, without padding.
            lexicons: that of each origin, for --terms.

        """
        self.config = config
        self.pairs = pairs
        self.weights = weights
        self.group = group
        self.accumulate = accumulate
        self.after_step = after_step
        self.first_epoch = first_epoch
        self.in_ranges = in_ranges
        self.lexicons = lexicons
        # Rows of which a batch has a multiple: few enough shapes to capture, few enough rows without a token.
        self.unit = max(ROUND, config.batch_tokens // 16 // ROUND * ROUND)
        self.batches_of_first_epoch = self.batches_of_epoch(first_epoch)
        self.steps_per_epoch = math.ceil(len(self.batches_of_first_epoch) / accumulate)  # of any epoch
        self._epoch = {first_epoch: self.batches_of_first_epoch}  # the last one that was used
        self.worker = ThreadPoolExecutor(1) if in_ranges else None
        self._prepared: dict[int, Future[list[tuple[int, Batch | PackedBatch]]]] = {}

    def place_of(self, step: int) -> tuple[int, int]:
        """Return the epoch of a step, counted from 0, and the step's place in that epoch."""
        epoch, place = divmod(step - 1 - self.after_step, self.steps_per_epoch)
        return self.first_epoch + epoch, place

    def batches_of(self, step: int) -> list[tuple[int, Batch | PackedBatch]]:
        """Return this process's batches of a step, on the CPU; each with its place among the step's."""
        if not self.worker:
            return self.make_batches(step)
        if step not in self._prepared:
            self.prepare([step])  # before those that were prepared, which nobody asks for now
        return self._prepared[step].result()

    def prepare(self, steps: Iterable[int]) -> None:
        """Begin to make the batches of steps to come, while a GPU is at work. On a CPU, which is at work itself, don't.

        One thread makes them all, in their order. Those of other steps are forgotten.
        """
        if not self.worker:
            return
        before = self._prepared
        self._prepared = {step: before.get(step) or self.worker.submit(self.make_batches, step) for step in steps}
        for step in before.keys() - self._prepared.keys():
            before[step].cancel()

    def make_ahead(self, step: int) -> float:
        """Make the batches of a step before it, as a thread does in a run. Returns the seconds; 0 without a thread."""
        if not self.worker:
            return 0.0
        self.prepare([])
        start = time.perf_counter()
        made: Future[list[tuple[int, Batch | PackedBatch]]] = Future()
        made.set_result(self.make_batches(step))
        self._prepared[step] = made
        return time.perf_counter() - start

    def batch(self, sources: Sequence[IdList], targets: Sequence[IdList]) -> Batch | PackedBatch:
        """Return the batch of these token ids on the CPU, as the loss takes it."""
        if self.config.plain:
            return collate(sources, targets)
        if not self.in_ranges:
            return PackedBatch.of(sources, targets)
        return PackedBatch.of(sources, targets, in_ranges=True, unit=self.unit).pinned()

    def batches_of_epoch(self, epoch: int) -> list[Ints]:
        """Return the rows of each batch of an epoch, of all processes."""
        return batches(self.pairs, self.config.batch_tokens, self.config.seed, epoch, self.weights)

    def make_batches(self, step: int) -> list[tuple[int, Batch | PackedBatch]]:
        """Make what `batches_of` returns."""
        config = self.config
        epoch, place = self.place_of(step)
        if epoch not in self._epoch:
            self._epoch = {epoch: self.batches_of_epoch(epoch)}
        start = place * self.accumulate
        rows_of_step = list(enumerate(self._epoch[epoch][start : start + self.accumulate]))
        local = rows_of_step[self.group.rank :: self.group.size]

        def batch(i: int, rows: Ints) -> Batch | PackedBatch:
            random = np.random.default_rng((config.seed, step, i))
            sources, targets = self.pairs.ids(
                rows,
                random,
                augment=config.augment,
                terms=config.terms,
                lexicons=self.lexicons,
                subword_dropout=config.subword_dropout,
            )
            return self.batch(sources, targets)

        local_batches = [(i, batch(i, rows)) for i, rows in local]
        if len(local) < math.ceil(len(rows_of_step) / self.group.size):
            # Processes compute the same number of batches. This one counts for nothing.
            filler = batch(*rows_of_step[0])
            filler = replace(filler, labels=torch.full_like(filler.labels, PAD), n_tgt=0, n_tokens=0)
            if isinstance(filler, PackedBatch) and self.in_ranges:
                filler = filler.pinned()  # with these labels
            local_batches.append((0, filler))
        return local_batches
