"""One training in memory: its data in tokens, its model and optimizers, its position, a validation, its state.

train.py advances a `Training` step by step. What happens at a step is a pure function of the config, the data and the
number of the step: the batch order depends on seed and epoch, dropout on seed, step and the batch's place in the step.
Resuming therefore needs the weights, the moments of the optimizers, that number and the translations that were made;
and however many processes share the batches of a step, they make the same step (`system.distributed.Group`).
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from functools import cached_property
from inspect import signature
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import get_total_norm
from torch.utils._pytree import tree_map
from torch.utils._triton import has_triton

from checkpoint import CheckpointError, load_parameters, parameters
from config import FACTS, PAD, Config
from dataset import Batch, EncodedPairs, batches, padding_share
from decoding.attention import Attention
from decoding.doubts import CONFIDENCE_SAMPLE, limit_of_unsure
from decoding.lengths import Lengths
from decoding.scoring import score_corpus
from decoding.translator import ModelSearcher, Translator
from fast.attention import can_attend_to_sequences, disable_cudnn_attention
from fast.forward import PackedBatchLoss
from fast.memory import bound_caches, keep_freed_memory
from fast.modules import install_fast_modules
from fast.packed_batch import PackedBatch
from model import Transformer
from system.cli import is_out_of_memory
from system.devices import DTYPES, autocast, choose_device
from system.distributed import ALONE, Group, collected, local_part, mean_in_order, whole
from system.files import cache_folder, digest
from system.json_records import from_json_value
from system.terminal import in_one_line
from text.corpus import Corpus, Origin
from text.readers import DataError
from text.tables import Ints, Pairs, chunks
from text.tokenizer import Tokenizer
from training.objective import BatchLoss
from training.optimizers import make_optimizers
from training.own_translations import TAG, Kind, Translated, closest_translations, from_tensors, moments, to_tensors
from training.records import Position, Progress, StepRecord, Validation, perplexity
from training.sharding import load_optimizer_state, shard

VALIDATION_TOKENS = 4096  # of a validation batch, at least
TRANSLATED_TOGETHER = 50_000  # sentences; the five best translations of each take some 250 MB
COMPILED_FROM = 2000  # steps: compiling takes a minute on a GPU, which a short training does not earn back


def weights_of_origins(config: Config, sizes: Ints) -> list[float]:
    """How often an epoch has each pair of an origin, by --data-weights, --temperature and --monolingual-weight.

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


class Training:
    """One run. Every process of a group holds the same model at the same position.

    Raises DataError if every training pair is too long.
    """

    def __init__(self, config: Config, corpus: Corpus, tokenizer: Tokenizer, group: Group = ALONE) -> None:
        self.corpus = corpus
        self.tokenizer = tokenizer
        self.group = group
        self.device = choose_device(config.device)

        # The data in tokens, prepared by one process of those that share a disk.
        with group.first_on_each_disk(cache_folder()):
            tags = [tokenizer.tags[origin.target] for origin in corpus.origins] if tokenizer.tags else []
            self.train_pairs = EncodedPairs.of(corpus.train, tokenizer, config.max_length, tags)
            self.valid_pairs = EncodedPairs.of(corpus.valid, tokenizer, tags=tags)
        if self.is_monolingual.all():
            raise DataError(f"all {len(corpus.train):,} training pairs exceed --max-length {config.max_length}")
        self.config = self._with_lengths(config)
        self.origin_weights = weights_of_origins(
            config, np.bincount(self.train_pairs.origins, minlength=len(corpus.origins))
        )
        self.valid_texts = list(corpus.valid)  # read at every validation, and scattered over a large table
        self.translated: Translated | None = None

        # The model, its loss and its optimizers.
        if not config.plain:
            bound_caches()
            disable_cudnn_attention()
            keep_freed_memory()  # not sooner: the memory that preparing the data took goes back to the system
        torch.manual_seed(config.seed)
        self.model = Transformer(len(tokenizer), config).to(self.device)
        self.model_loss = self._loss_of(self.model)
        self.attends_to_sequences = self._attends_to_sequences()
        self.is_sharded = config.shard and group.size > 1
        self.objective = self._objective()
        self.optimizers = make_optimizers(self.model, config)
        # Gradients in fp16 are scaled up, to stay above its smallest number, as far as they go without overflow
        # (Micikevicius et al. 2018, arXiv 1710.03740, section 3.2). In other precisions this does nothing.
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=config.precision == "fp16")

        # The position.
        first_epoch = self.batches_of_epoch(self.train_pairs, epoch=0)
        self.epoch_batches: tuple[int, list[Ints]] = 0, first_epoch  # an epoch, and its batches
        self.prepared: tuple[int, list[tuple[int, Batch | PackedBatch]]] = 0, []  # a step, and its batches
        # Of the original pairs, before --subword-dropout splits tokens. Distilled pairs differ a little.
        self.padding_share = padding_share(self.train_pairs, first_epoch)
        self.batches_per_epoch = len(first_epoch)
        self.pairs_per_epoch = sum(map(len, first_epoch))
        self.steps_per_epoch = math.ceil(self.batches_per_epoch / config.accumulate)
        self.total_steps = config.steps or config.epochs * self.steps_per_epoch
        self.step = 0
        self.tokens = 0
        self.seconds = 0.0
        self.best: Validation | None = None
        self.validations_since_best = 0
        self.seconds_per_scored_pair = 0.0  # in the last validation; 0 before the first

        # On a CPU, compiling costs more than it gives.
        should_compile = self.device.type == "cuda" and self.total_steps >= COMPILED_FROM and has_triton()
        if should_compile and not self.is_sharded:
            self.compile()

    def _with_lengths(self, config: Config) -> Config:
        """The config with the lengths of the training pairs, where it has none."""
        if config.length_ratio and config.length_spread:
            return config
        src_lengths, tgt_lengths = self.train_pairs.src_lengths - 1, self.train_pairs.tgt_lengths - 1  # without EOS
        lengths = Lengths.of(src_lengths[~self.is_monolingual], tgt_lengths[~self.is_monolingual])
        return replace(
            config,
            length_ratio=config.length_ratio or lengths.ratio,
            length_spread=config.length_spread or lengths.spread,
        )

    def _loss_of(self, model: Transformer) -> BatchLoss | PackedBatchLoss:
        """A model with its loss: plain, or with the fast modules and packed batches."""
        if self.config.plain:
            return BatchLoss(model, self.config.label_smoothing)
        install_fast_modules(model)
        return PackedBatchLoss(model, self.config.label_smoothing)

    def _objective(self) -> torch.nn.Module:
        """What a step calls: the model with its loss; of several processes, with the exchange of gradients."""
        if self.is_sharded:
            return shard(self.model_loss, self.device, self.group.size, self.config.precision)
        if self.group.size == 1:
            return self.model_loss
        # The only buffers are the tables of positions, which each process extends on its own when a sentence is
        # longer: broadcasting them at every step would mix tables of two sizes.
        names = signature(DistributedDataParallel).parameters
        buffers = "forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers"  # older torch
        options: dict[str, bool] = {buffers: False, "gradient_as_bucket_view": True}
        parallel: Any = DistributedDataParallel(self.model_loss, **options)  # type: ignore[arg-type]
        if self.device.type == "cpu":
            parallel.register_comm_hook(None, mean_in_order)
        return parallel

    def _attends_to_sequences(self) -> bool:
        """Whether attention takes sequences of any lengths, without padding."""
        config = self.config
        if config.plain or config.precision not in ("bf16", "fp16") or self.device.type != "cuda":
            return False
        head_size = config.d_model // config.n_heads
        return can_attend_to_sequences(self.device, DTYPES[config.precision], config.n_heads, head_size)

    def compile(self, backend: str | Callable[..., Any] = "inductor") -> None:
        """Compiles the stacks of blocks and the loss."""
        if isinstance(self.model_loss, PackedBatchLoss):
            self.model_loss.compile_parts(backend)

    @property
    def n_graphs(self) -> int:
        """How many graphs were compiled so far: a few, whatever the number of shapes; 0 where none are."""
        if not (isinstance(self.model_loss, PackedBatchLoss) and self.model_loss.is_compiled):
            return 0
        return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])

    @cached_property
    def is_monolingual(self) -> NDArray[np.bool_]:
        """For each of train_pairs, whether it is monolingual text."""
        return np.array([origin.is_monolingual for origin in self.corpus.origins])[self.train_pairs.origins]

    # Where the training is

    @property
    def progress(self) -> Progress:
        return Progress(self.step, self.tokens, self.seconds)

    @property
    def is_over(self) -> bool:
        """All steps are done, or patience is at its end."""
        return self.step >= self.total_steps or 0 < self.config.patience <= self.validations_since_best

    @property
    def n_moments(self) -> int:
        """How many of `moments` have passed: when the steps to come learn from new translations."""
        return sum(self.step >= round(share * self.total_steps) for share, _ in moments(self.config))

    @property
    def must_translate(self) -> bool:
        """Whether the steps to come learn from translations that do not exist yet."""
        return self.n_moments > (self.translated.n_moments if self.translated else 0)

    def plan(self, steps: int) -> None:
        """Sets the number of steps in all. To the steps of their first half it makes no difference."""
        self.total_steps = steps
        self.config = replace(self.config, steps=steps)

    def advance(self, record: StepRecord) -> None:
        """Counts a step that was made."""
        self.step = record.step
        self.tokens += record.n_tokens

    # The batches of a step

    def place_of(self, step: int) -> tuple[int, int]:
        """The epoch of a step, counted from 0, and the step's place in that epoch."""
        if self.translated is None or step <= self.translated.after_step:
            return divmod(step - 1, self.steps_per_epoch)
        # Translated pairs have other lengths, and their epochs other numbers of batches: they are counted anew.
        first_epoch = math.ceil(self.translated.after_step / self.steps_per_epoch)
        epoch, place = divmod(step - 1 - self.translated.after_step, self.translated.steps_per_epoch)
        return first_epoch + epoch, place

    def pairs_of(self, step: int) -> EncodedPairs:
        """What a step learns from: the training pairs as they came, or with translations."""
        return self.translated.pairs if self.translated and step > self.translated.after_step else self.train_pairs

    def batches_of_epoch(self, pairs: EncodedPairs, epoch: int) -> list[Ints]:
        """The rows of each batch of an epoch of all processes."""
        config = self.config
        weights = self.origin_weights
        if pairs is self.train_pairs:  # without sources for the monolingual text
            weights = weights[: len(weights) - len(config.monolingual_directions)]
        return batches(pairs, config.batch_tokens, config.seed, epoch, weights)

    def batches_of(self, step: int) -> list[tuple[int, Batch | PackedBatch]]:
        """This process's batches of a step, counted from 1, on the CPU; each with its place among the step's."""
        prepared_step, prepared = self.prepared
        return prepared if prepared_step == step else self._make_batches(step)

    def prepare(self, step: int) -> None:
        """Makes the batches of a step beforehand, while a GPU is still at work."""
        if step <= self.total_steps:
            self.prepared = step, self._make_batches(step)

    def _make_batches(self, step: int) -> list[tuple[int, Batch | PackedBatch]]:
        config, pairs = self.config, self.pairs_of(step)
        epoch, place = self.place_of(step)
        if epoch != self.epoch_batches[0]:
            self.epoch_batches = epoch, self.batches_of_epoch(pairs, epoch)
        start = place * config.accumulate
        rows_of_step = list(enumerate(self.epoch_batches[1][start : start + config.accumulate]))
        local = rows_of_step[self.group.rank :: self.group.size]

        def batch(i: int, rows: Ints) -> Batch:
            random = np.random.default_rng((config.seed, step, i))
            return pairs.batch(rows, config.subword_dropout, random, config.augment)

        local_batches = [(i, batch(i, rows)) for i, rows in local]
        if len(local) < math.ceil(len(rows_of_step) / self.group.size):
            # Processes compute the same number of batches. This one counts for nothing.
            filler = batch(*rows_of_step[0])
            filler = replace(filler, labels=torch.full_like(filler.labels, PAD), n_tgt=0, n_tokens=0)
            local_batches.append((0, filler))
        return [(i, self._packed(local_batch)) for i, local_batch in local_batches]

    def _packed(self, batch: Batch) -> Batch | PackedBatch:
        """A batch on the CPU as the loss takes it."""
        return batch if self.config.plain else PackedBatch.of(batch, self.attends_to_sequences)

    def seed_dropout(self, step: int, place: int) -> None:
        """Sets the random state of a batch: a pure function of seed, step and the batch's place in the step."""
        torch.manual_seed(int(np.random.SeedSequence((self.config.seed, step, place)).generate_state(1)[0]))

    # The parts of a step

    def gradient_exchange(self, is_last: bool) -> AbstractContextManager[object]:
        """The context of a batch's forward and backward pass. Processes exchange gradients in the last of a step.

        Before, each adds up its own.
        """
        if self.is_sharded:
            self.objective.set_requires_gradient_sync(is_last)  # type: ignore[operator]
        elif isinstance(self.objective, DistributedDataParallel) and not is_last:
            context: AbstractContextManager[object] = self.objective.no_sync()
            return context
        return nullcontext()

    def clip_gradient(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Scales the gradient down to config.clip_norm. Returns its norm before, and those of the model's parts."""
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        gradients_of_part: dict[str, list[Tensor]] = {}
        for name, parameter in self.model.named_parameters():
            assert parameter.grad is not None
            gradients_of_part.setdefault(name.partition(".")[0], []).append(local_part(parameter.grad))
        norms = torch.stack([get_total_norm(gradients) for gradients in gradients_of_part.values()])
        if self.is_sharded:
            norms = self.group.sum_on_device(norms.square()).sqrt()
        total = norms.norm()
        if self.config.clip_norm:
            factor = (self.config.clip_norm / (total + 1e-6)).clamp(max=1.0)
            torch._foreach_mul_(
                [gradient for gradients in gradients_of_part.values() for gradient in gradients], factor
            )
        return total, dict(zip(gradients_of_part, norms, strict=True))

    def step_optimizers(self, lr: float, grad_norm: float) -> None:
        """Updates the weights. If fp16 overflowed in any gradient, no optimizer steps."""
        for optimizer in self.optimizers:
            for param_group in optimizer.param_groups:
                param_group["lr"] = lr
            if math.isfinite(grad_norm):  # scaler.step would skip only the optimizer whose own gradient overflowed
                optimizer.step()
            optimizer.zero_grad()
        self.scaler.update()

    # Validation and translation

    @torch.no_grad()
    def validate(self, model: Transformer | None = None) -> tuple[Validation, list[str]]:
        """Scores `whole_model()` on the whole validation part. Returns the scores and the translations."""
        start = time.perf_counter()
        group, config = self.group, self.config
        model = model or self.whole_model()
        model_loss = self._loss_of(model) if self.is_sharded else self.model_loss
        valid_batches = batches(self.valid_pairs, max(config.batch_tokens, VALIDATION_TOKENS), seed=0, epoch=0)
        loss, cross_entropy = 0.0, 0.0
        n_tgt = 0
        with torch.compiler.set_stance("force_eager"):  # a search has a new shape at every token
            for rows in valid_batches[group.rank :: group.size]:
                batch = self.valid_pairs.batch(rows)
                with autocast(self.device, config.precision):
                    batch_loss, batch_cross_entropy = model_loss(self._packed(batch).to(self.device))
                loss += batch_loss.item()
                cross_entropy += batch_cross_entropy.item()
                n_tgt += batch.n_tgt
            local_texts = [source for source, _ in self.valid_texts[group.rank :: group.size]]
            local_directions = self.corpus.directions(self.corpus.valid)[group.rank :: group.size]
            hypotheses = group.gather(
                self.translator(model).in_directions(local_texts, local_directions, bar="validating")
            )
        loss, cross_entropy, n_scored = group.all_sums(loss, cross_entropy, n_tgt)
        references = [target for _, target in self.valid_texts]
        scores = score_corpus(hypotheses, references, self.corpus.valid.origins(), self.corpus.origins)
        result = Validation(
            self.step,
            loss / n_scored,
            perplexity(cross_entropy, n_scored),
            scores.bleu,
            scores.chrf,
            scores.by_data,
        )
        self.seconds_per_scored_pair = (time.perf_counter() - start) / len(hypotheses)
        return result, hypotheses

    def sample_rows(self, n: int) -> list[int]:
        """The rows of n sentences of the validation part: the first ones of each origin, as many of each."""
        origins = self.corpus.valid.origins()
        numbers = np.unique(origins).tolist()
        n_each = -(-n // len(numbers))
        firsts = [np.flatnonzero(origins == number)[:n_each] for number in numbers]
        return np.concatenate(firsts)[:n].tolist()

    def limit_of_unsure(self, translator: Translator) -> float:
        """The mean log P of a token which few of the model's translations of validation sentences are below."""
        rows = self.sample_rows(CONFIDENCE_SAMPLE)
        directions_of_valid = self.corpus.directions(self.corpus.valid)
        directions = [directions_of_valid[row] for row in rows]
        sources = [self.valid_texts[row][0] for row in rows]
        pairs = list(zip(sources, translator.in_directions(sources, directions), strict=True))
        return limit_of_unsure(translator.log_probabilities_in_directions(pairs, directions))

    def translate(self) -> list[Kind]:
        """Makes the translations that are due, for the steps to come. Returns what for."""
        assert self.must_translate
        now = self.translated
        due = {kind for _, kind in moments(self.config)[now.n_moments if now else 0 : self.n_moments]}
        sources, targets = (now.sources, now.targets) if now else ({}, {})
        with torch.compiler.set_stance("force_eager"):
            if "back-translation" in due:
                sources = self._back_translations()
            if "self-distillation" in due:
                targets = self._closest_translations()
        self._learn_from(self.n_moments, self.step, sources, targets)
        return sorted(due)

    def _back_translations(self) -> dict[int, list[int]]:
        """Sources for the monolingual text, by row."""
        run = self.config.back_translator
        translator = Translator.load(run, self.config.device) if run else self.translator()

        def sources(origin: Origin, pairs: Pairs) -> list[list[int]]:
            texts = [text for _, text in pairs]
            translations = translator.towards(origin.source, origin.target)(texts, bar="translating back")
            tags = [self.tokenizer.tags[origin.target]] if self.tokenizer.tags else []
            return [[*tags, TAG, *ids] for ids in self.tokenizer.encode(translations)]

        return self._translations_by_row(True, sources)

    def _closest_translations(self) -> dict[int, list[int]]:
        """Targets for the training pairs, by row. Monolingual text keeps its own."""
        translator = self.translator()

        def targets(origin: Origin, pairs: Pairs) -> list[list[int]]:
            towards = translator.towards(origin.target, origin.source)
            return self.tokenizer.encode(closest_translations(towards, list(pairs), origin.target))

        return self._translations_by_row(False, targets)

    def _translations_by_row(
        self, is_monolingual: bool, translate: Callable[[Origin, Pairs], list[list[int]]]
    ) -> dict[int, list[int]]:
        """Translates the monolingual text or all else, each process a share. Returns token ids by row.

        A share is translated in parts, since the hypotheses of a search take far more memory than what is chosen.
        """
        by_row: dict[int, list[int]] = {}
        for number, origin in enumerate(self.corpus.origins):
            if origin.is_monolingual != is_monolingual:
                continue
            rows = self.train_pairs.rows[self.train_pairs.origins == number]
            local_rows = rows[self.group.rank :: self.group.size].tolist()
            local_ids = [
                ids[: self.config.max_length]
                for part in chunks(local_rows, TRANSLATED_TOGETHER)
                for ids in translate(origin, self.corpus.train.select(np.array(part)))
            ]
            by_row.update(zip(rows.tolist(), self.group.gather(local_ids), strict=True))
        return by_row

    def _learn_from(
        self, n_moments: int, after_step: int, sources: dict[int, list[int]], targets: dict[int, list[int]]
    ) -> None:
        pairs = self.train_pairs.replaced(sources, targets)
        n_batches = len(self.batches_of_epoch(pairs, epoch=0))  # of any epoch
        steps_per_epoch = math.ceil(n_batches / self.config.accumulate)
        self.translated = Translated(n_moments, after_step, sources, targets, pairs, steps_per_epoch)
        # What was made of the earlier pairs is of no use now.
        self.epoch_batches = -1, []
        self.prepared = 0, []

    def whole_model(self) -> Transformer:
        """The model as it is now, to translate with and to save: of a sharded training, a copy.

        All processes must call it together.
        """
        if not self.is_sharded:
            return self.model.eval()
        model = Transformer(len(self.tokenizer), self.config).to(self.device)
        for weight, part in zip(parameters(model).values(), parameters(self.model).values(), strict=True):
            weight.copy_(whole(part))
        return model.eval()

    def translator(self, model: Transformer | None = None) -> Translator:
        """Translates with `whole_model()`, in the precision in which translate.py will do so by default."""
        tags = list(self.tokenizer.tags.values())
        searcher = ModelSearcher(model or self.whole_model(), self.device, plain=self.config.plain, suppressed=tags)
        return Translator(searcher, self.tokenizer, self.config, self.device)

    def attention(self, sources: list[str], model: Transformer | None = None) -> Iterator[tuple[str, Attention]]:
        """The translation of each source by `whole_model()`, and what each of its tokens attended to.

        The sources are of the first language pair.
        """
        first = self.corpus.origins[0]
        translator = self.translator(model).towards(first.target, first.source)
        for source in sources:
            with torch.compiler.set_stance("force_eager"):
                translation, attention = translator.attention(source)
            yield translation.text, attention

    # The state

    def start_from(self, weights: dict[str, Tensor], origin: str) -> None:
        """Begins with the weights of another run instead of random ones. origin names them in an error."""
        load_parameters(self.model, weights, origin)

    def state(self) -> dict[str, Any]:
        """Everything that `restore` needs, in types that `torch.load(weights_only=True)` can read.

        All processes must call it together.
        """
        translated = None
        if self.translated:
            translated = {
                "n_moments": self.translated.n_moments,
                "after_step": self.translated.after_step,
                "sources": to_tensors(self.translated.sources),
                "targets": to_tensors(self.translated.targets),
            }
        return {
            "step": self.step,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "best": asdict(self.best) if self.best else None,
            "validations_since_best": self.validations_since_best,
            "model": {name: collected(weight) for name, weight in parameters(self.model).items()},
            "optimizers": [tree_map(collected, optimizer.state_dict()) for optimizer in self.optimizers],
            "scaler": self.scaler.state_dict(),
            "translated": translated,
            "resume_signature": self.resume_signature,
        }

    @cached_property
    def resume_signature(self) -> dict[str, str]:
        """What must match for a run to be resumed: a key of each part of the data, of the tokenizer, the settings.

        Computed once: reading a table of 5 million pairs for it takes a second.
        """
        parts = {name: getattr(self.corpus, name).fingerprint() for name in ("train", "valid", "test")}
        settings = {name: str(value) for name, value in asdict(self.config).items() if not FACTS[name].is_resumable}
        return {**parts, "tokenizer": digest(self.tokenizer.to_json()), **settings}

    def restore(self, state: dict[str, Any]) -> None:
        """The inverse of `state`. Raises CheckpointError if it is damaged, or another run's."""
        signature = state.get("resume_signature") if isinstance(state, dict) else None
        if not isinstance(signature, dict) or signature.keys() != self.resume_signature.keys():
            raise CheckpointError(
                f"the training state of {self.config.name} is from another version of Tapis, and cannot be resumed\n"
                "its best model still translates; to train, start afresh, with --overwrite"
            )
        self._check_signature(signature)
        try:
            load_parameters(self.model, state["model"], "the training state")
            for optimizer, optimizer_state in zip(self.optimizers, state["optimizers"], strict=True):
                load_optimizer_state(optimizer, optimizer_state)
            scaler = self.scaler.state_dict()
            self.scaler.load_state_dict({name: type(value)(state["scaler"][name]) for name, value in scaler.items()})
            position = from_json_value(Position, state)
            if position.step < 0:
                raise ValueError("it is at a negative step")
            self.step, self.tokens, self.seconds = position.step, position.tokens, position.seconds
            self.best, self.validations_since_best = position.best, position.validations_since_best
            self.translated = None
            if state["translated"]:
                self._restore_translated(state["translated"])
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            if is_out_of_memory(error):
                raise
            raise CheckpointError(
                f"the training state does not fit this run ({in_one_line(error)}): start afresh"
            ) from None

    def _restore_translated(self, saved: dict[str, Any]) -> None:
        """Learns again from the saved translations, but for those whose moment is to come in a training made longer."""
        n_moments = min(int(saved["n_moments"]), self.n_moments)
        made = {kind for _, kind in moments(self.config)[:n_moments]}
        if made:
            after_step = int(saved["after_step"]) if n_moments == saved["n_moments"] else self.step
            sources = from_tensors(saved["sources"]) if "back-translation" in made else {}
            targets = from_tensors(saved["targets"]) if "self-distillation" in made else {}
            for ids in (*sources.values(), *targets.values()):
                if not all(0 <= token < len(self.tokenizer) for token in ids):
                    raise ValueError("a translation has tokens that the vocabulary lacks")
            self._learn_from(n_moments, after_step, sources, targets)

    def _check_signature(self, saved: dict[str, str]) -> None:
        changed = [name for name, now in self.resume_signature.items() if saved.get(name) != now]
        if changed:
            parts = {"train": "its training pairs", "valid": "its validation pairs", "test": "its test pairs"}
            names = ", ".join(parts.get(name, name) for name in changed)
            raise CheckpointError(
                f"the run {self.config.name} cannot go on: {names} changed since it was saved\n"
                "put back what was there, or start afresh, with --overwrite"
            )
