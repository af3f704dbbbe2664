"""One training in memory: its data in tokens, its model and optimizers, a step, a validation, its state.

`Training` is what train.py's loop advances. A step is one update of the weights. What happens at a step is a pure
function of the config, the data and the step's number: the batch order of seed and epoch, dropout of seed, step and the
batch's place in the step. Resuming therefore needs the weights, the optimizers' moments and that number; and however
many processes share the batches of a step, they make the same step (`parallel.Group`).
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.utils._triton import has_triton

from checkpoint import CheckpointError, load_parameters, parameters
from config import PAD, RESUMABLE, Config, TapisError
from dataset import Batch, EncodedPairs, batches, padding_share
from decoding.attention import Attention
from decoding.search import Search
from evaluate import nearest, score
from fast.memory import bound_caches, keep_freed_memory
from model import Transformer
from system.devices import autocast, choose_device
from system.distributed import ALONE, Group
from system.files import digest
from text.corpus import Corpus
from text.readers import DataError
from text.tables import Ints
from text.tokenizer import Tokenizer
from training.objective import BatchLoss, learning_rate, optimizers
from training.report import At, StepLog, Validation, perplexity
from translate import Translator


class TrainingError(TapisError):
    """The training cannot go on, and what to do about it."""


class Training:
    """One run: its data in tokens, its model and optimizers, and where it is; in every process of a group the same."""

    def __init__(self, config: Config, corpus: Corpus, tokenizer: Tokenizer, group: Group = ALONE) -> None:
        self.config, self.corpus, self.tokenizer, self.group = config, corpus, tokenizer, group
        self.device = choose_device(config.device)
        with group.one_first():
            self.train_pairs = EncodedPairs(corpus.train, tokenizer, config.max_length)
            self.valid_pairs = EncodedPairs(corpus.valid, tokenizer)
        self.valid_texts = list(corpus.valid)  # asked for at every validation, and scattered over a large table
        if not len(self.train_pairs):
            raise DataError(f"all {len(corpus.train):,} training pairs exceed --max-length {config.max_length}")
        bound_caches()
        keep_freed_memory()  # not sooner: what preparing the data took goes back
        torch.manual_seed(config.seed)
        self.model = Transformer(len(tokenizer), config).to(self.device)
        self.prepared: tuple[int, list[tuple[int, Batch]]] = 0, []  # a step, and its batches
        self.objective: BatchLoss | DistributedDataParallel = BatchLoss(self.model, config.label_smoothing)
        if group.size > 1:
            self.objective = DistributedDataParallel(self.objective, gradient_as_bucket_view=True)
        self.optimizers = optimizers(self.model, config)
        # Gradients of fp16 are scaled up, to stay above its smallest number, as far as they go without overflow
        # (Micikevicius et al. 2018, arXiv 1710.03740, section 3.2). In the other precisions this does nothing.
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=config.precision == "fp16")
        self.epoch, self.dealt = 0, batches(self.train_pairs, config.batch_tokens, config.seed, epoch=0)
        self.padding = padding_share(self.train_pairs, self.dealt)
        self.steps_per_epoch = math.ceil(len(self.dealt) / config.accumulate)
        self.total_steps = config.steps or config.epochs * self.steps_per_epoch
        self.step = self.tokens = 0
        self.seconds = 0.0
        self.best: Validation | None = None
        self.stale = 0  # validations since the best
        # On a CPU, compiling costs more than it gives; on a GPU, a minute, which a short training does not have.
        self.compiled = False
        if self.device.type == "cuda" and self.total_steps >= 2000 and has_triton():
            self.compile("inductor")

    @property
    def at(self) -> At:
        return At(self.step, self.tokens, self.seconds)

    @property
    def is_over(self) -> bool:
        """All steps are done, or patience is at its end."""
        return self.step >= self.total_steps or 0 < self.config.patience <= self.stale

    @property
    def is_to_distill(self) -> bool:
        """Whether the steps to come are to learn from the model's own translations, and do not yet."""
        return not self.train_pairs.own and self.step >= round((1 - self.config.self_distillation) * self.total_steps)

    def distill(self) -> None:
        """From now on a training pair has for its target the one of the model's translations that comes nearest to it.

        That is, of the five best, the one with the highest sentence BLEU: sequence-level interpolation (Kim and Rush
        2016, arXiv 1606.07947, section 3.3), with the model as its own teacher. What it could not foresee in the
        references is gone, which helps most where nothing can be taken back, in greedy search.
        """
        mine = self.train_pairs.rows[self.group.rank :: self.group.size]
        pairs = list(self.corpus.train.select(mine))
        with torch.compiler.set_stance("force_eager"):
            translator = self.translator(self.model.eval())
            found = translator.n_best([source for source, _ in pairs], Search(beam=5, n_best=5), bar="distilling")
        both = zip(found, [target for _, target in pairs], strict=True)
        best = [nearest([text for text, _ in five], target, self.config.target) for five, target in both]
        ids = [ids[: self.config.max_length] for ids in self.tokenizer.encode(best)]
        self.train_pairs.own = dict(self.group.gathered(list(zip(mine.tolist(), ids, strict=True))))
        self.prepared = 0, []

    def plan(self, steps: int) -> None:
        """So many steps in all, from now on; for the first half of them it makes no difference."""
        self.total_steps, self.config = steps, replace(self.config, steps=steps)

    def compile(self, backend: str) -> None:
        """Fuses the operations of the two stacks, once for all shapes: a new shape is no reason to compile again."""
        import torch._dynamo  # noqa: PLC0415 - it takes a second

        torch._dynamo.config.suppress_errors = True  # what cannot be compiled runs as it is
        self.compiled = True
        for stack in (self.model.encoder, self.model.decoder):
            stack.compile(dynamic=True, backend=backend)

    @property
    def graphs(self) -> int:
        """How many graphs were compiled so far: a few, whatever the number of shapes; 0 where none are."""
        return int(torch._dynamo.utils.counters["stats"]["unique_graphs"]) if self.compiled else 0

    def step_batches(self, step: int) -> list[tuple[int, Batch]]:
        """This process's batches of a step, counted from 1, on the CPU, each with its place among all of the step's."""
        epoch, place = divmod(step - 1, self.steps_per_epoch)
        if epoch != self.epoch:
            self.epoch = epoch
            self.dealt = batches(self.train_pairs, self.config.batch_tokens, self.config.seed, epoch)
        n = self.config.accumulate
        chosen = list(enumerate(self.dealt[place * n : (place + 1) * n]))
        mine = chosen[self.group.rank :: self.group.size]

        def batch(i: int, rows: Ints) -> Batch:
            random = np.random.default_rng((self.config.seed, step, i))
            return self.train_pairs.batch(rows, self.config.subword_dropout, random)

        if not mine:  # an epoch's last step may have fewer batches than there are processes; nothing counts in this one
            empty = batch(*chosen[0])
            return [(0, replace(empty, labels=torch.full_like(empty.labels, PAD), n_tgt=0, n_tokens=0))]
        return [(i, batch(i, rows)) for i, rows in mine]

    def update(self, step: int) -> StepLog:
        """One step, counted from 1: the gradient of its batches' mean loss, clipped, and the optimizers."""
        start, config, group = time.perf_counter(), self.config, self.group
        self.model.train()
        prepared, parts = self.prepared
        parts = parts if prepared == step else self.step_batches(step)
        counts = sum(part.n_tgt for _, part in parts), sum(part.n_tokens for _, part in parts)
        n_tgt, n_tokens = map(int, group.sums(*counts))
        loss, plain = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        for place, part in parts:
            torch.manual_seed(int(np.random.SeedSequence((config.seed, step, place)).generate_state(1)[0]))
            with self.together(place == parts[-1][0]):
                with autocast(self.device, config.precision):
                    part_loss, part_plain = self.objective(part.to(self.device))
                # Processes exchange the mean of their gradients, of which the sum is wanted.
                self.scaler.scale(part_loss * (group.size / n_tgt)).backward()
            loss += part_loss.detach()
            plain += part_plain
        if step < self.total_steps:
            self.prepared = step + 1, self.step_batches(step + 1)  # while a GPU is still at work
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        norm, norms = self.clip_gradient()
        total, total_plain = group.sums(loss.item(), plain.item())
        if not math.isfinite(norm + total) and self.scaler.get_scale() <= 1:
            epoch, place = divmod(step - 1, self.steps_per_epoch)
            raise TrainingError(
                f"the loss or gradient of step {step:,} (epoch {epoch + 1}, batch {place * config.accumulate + 1}) is "
                "not finite; the weights are left as they were\n"
                "try a lower --lr, a longer --warmup-steps, or --precision fp32"
            )
        lr = learning_rate(step, self.total_steps, config)
        for optimizer in self.optimizers:
            for param_group in optimizer.param_groups:
                param_group["lr"] = lr
            self.scaler.step(optimizer)  # no step at all where fp16 overflowed
            optimizer.zero_grad()
        self.scaler.update()
        return StepLog(step, total, total_plain, norm, norms, lr, n_tgt, n_tokens, time.perf_counter() - start)

    def clip_gradient(self) -> tuple[float, dict[str, float]]:
        """Scales the gradient down to config.clip_norm; its norm before, and that of each part of the model."""
        parts: dict[str, list[Tensor]] = {}
        for name, parameter in self.model.named_parameters():
            assert parameter.grad is not None
            parts.setdefault(name.partition(".")[0], []).append(parameter.grad)
        norms = torch.stack([get_total_norm(gradients) for gradients in parts.values()])
        total = norms.norm()
        if self.config.clip_norm:
            clip_grads_with_norm_(self.model.parameters(), self.config.clip_norm, total)
        return float(total), dict(zip(parts, norms.tolist(), strict=True))  # a CPU-GPU sync point

    def together(self, exchange: bool) -> AbstractContextManager[object]:
        """Where processes exchange gradients: after the last of a step's batches, and not before."""
        if isinstance(self.objective, DistributedDataParallel) and not exchange:
            context: AbstractContextManager[object] = self.objective.no_sync()
            return context
        return nullcontext()

    @torch.no_grad()
    def validate(self) -> tuple[Validation, list[str]]:
        """Scores the model on the whole validation part, and translates it."""
        self.model.eval()
        group, objective = self.group, BatchLoss(self.model, self.config.label_smoothing)
        loss, plain, n_tgt = 0.0, 0.0, 0
        dealt = batches(self.valid_pairs, max(self.config.batch_tokens, 4096), seed=0, epoch=0)
        mine = [source for source, _ in self.valid_texts[group.rank :: group.size]]
        with torch.compiler.set_stance("force_eager"):  # a search has a new shape at every token
            for rows in dealt[group.rank :: group.size]:
                batch = self.valid_pairs.batch(rows)
                with autocast(self.device, self.config.precision):
                    part_loss, part_plain = objective(batch.to(self.device))
                loss, plain, n_tgt = loss + part_loss.item(), plain + part_plain.item(), n_tgt + batch.n_tgt
            hypotheses = group.gathered(self.translator(self.model)(mine, bar="validating"))
        loss, plain, scored = group.sums(loss, plain, n_tgt)
        scores = score(hypotheses, [target for _, target in self.valid_texts], self.config.target)
        return Validation(self.step, loss / scored, perplexity(plain, scored), scores.bleu, scores.chrf), hypotheses

    def attention(self, sources: Sequence[str]) -> Iterator[tuple[str, Attention]]:
        """What the model makes of each source sentence now, and what it attends to."""
        translator = self.translator(self.model)
        for source in sources:
            with torch.compiler.set_stance("force_eager"):
                translation, found = translator.attention(source)
            yield translation.text, found

    def translator(self, model: Transformer) -> Translator:
        return Translator(model, self.tokenizer, self.config, self.device, self.config.precision)

    def state(self) -> dict[str, Any]:
        """Everything that `restore` needs, in what `torch.load(weights_only=True)` can read."""
        return {
            "step": self.step,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "best": asdict(self.best) if self.best else None,
            "stale": self.stale,
            "model": parameters(self.model),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "scaler": self.scaler.state_dict(),
            "own": self.train_pairs.own,
            "of": self.of,
        }

    @cached_property
    def of(self) -> dict[str, str]:
        """What a training is of, and cannot be resumed without: a key of each part of the data, the settings.

        To read a table of 5 million pairs for it takes a second, which not every save should.
        """
        parts = {name: getattr(self.corpus, name).fingerprint() for name in ("train", "valid", "test")}
        settings = {name: str(value) for name, value in asdict(self.config).items() if name not in RESUMABLE}
        return {**parts, "tokenizer": digest(self.tokenizer.to_json()), **settings}

    def restore(self, state: dict[str, Any]) -> None:
        """The inverse of `state`. Raises CheckpointError where it is another run's."""
        was, now = dict(state.get("of", {})), self.of
        if changed := [name for name in now if was.get(name) != now[name]]:
            parts = {"train": "its training pairs", "valid": "its validation pairs", "test": "its test pairs"}
            what = ", ".join(parts.get(name, name) for name in changed)
            raise CheckpointError(
                f"the run {self.config.name} cannot go on: {what} changed since it was saved\n"
                "put back what was there, or start afresh, with --overwrite"
            )
        try:
            load_parameters(self.model, state["model"], "the training state")
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
            self.scaler.load_state_dict(state["scaler"])
            self.step, self.tokens, self.stale = (int(state[name]) for name in ("step", "tokens", "stale"))
            self.seconds = float(state["seconds"])
            self.best = Validation(**state["best"]) if state["best"] else None
            self.train_pairs.own = {}
            if self.is_to_distill:  # it may have more steps now than when they were made
                self.train_pairs.own = dict(state["own"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the training state does not fit this run ({error}): start afresh") from None


def step_seconds(training: Training, steps: int = 10) -> float:
    """The mean time of so many steps, spread over the epoch, after two to warm up. The training is of no use then."""
    chosen = np.linspace(1, training.steps_per_epoch, steps + 2).astype(int).tolist()
    return float(np.mean([training.update(step).seconds for step in chosen][2:]))


def scoring_steps(training: Training, pairs: int) -> float:
    """How many steps take as long as to score so many pairs: loss and translation of one, as to train on two."""
    return 2 * pairs * training.steps_per_epoch / len(training.train_pairs)


def last_steps(training: Training) -> float:
    """How many steps take as long as what is once to come: the test part, and to distil, which takes as long a pair."""
    own = len(training.train_pairs) if training.config.self_distillation and not training.train_pairs.own else 0
    return scoring_steps(training, len(training.corpus.test) + own)


def steps_until(deadline: float, training: Training) -> int:
    """How many steps, with their validations and the test part, this machine makes until then (`time.perf_counter`)."""
    per_step = step_seconds(training, steps=30)
    left = (deadline - time.perf_counter()) / per_step - last_steps(training)
    valid_every = training.config.valid_every or training.steps_per_epoch
    return max(1, int(left / (1 + scoring_steps(training, len(training.valid_pairs)) / valid_every)))


def half_is_over(training: Training, deadline: float) -> bool:
    """Whether as many steps as were made so far, and the last scoring, will take until then."""
    last = scoring_steps(training, len(training.valid_pairs)) + last_steps(training)
    return time.perf_counter() + training.seconds * (1 + last / training.step) >= deadline
