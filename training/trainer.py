"""One run in memory: its data in tokens, its model and optimizers, its position, and the parts of a step.

train.py advances a `Training` step by step. What happens at a step is a pure function of the config, the data and the
number of the step: the batch order depends on seed and epoch (batch_plan.py), dropout on seed, step and the batch's
place in the step. Resuming therefore needs the weights, the moments of the optimizers, that number, the translations
that were made (state.py) and the same teachers; and however many processes share the batches of a step, they make the
same step (`machine.distributed.Group`).
"""

import math
from collections.abc import Callable, Collection, Sequence
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
from torch.utils._triton import has_triton

from checkpoint import parameters
from config import FACTS, Config
from dataset import EncodedPairs, padding_share
from decoding.torch_searcher import TorchSearcher, searcher_of
from decoding.translator import Translator
from fast.attention import disable_cudnn_attention, fault_of_attention
from fast.capture import CapturedSteps, LateNumbers
from fast.forward import PackedBatchLoss
from fast.loss import fault_of_loss
from fast.memory import bound_caches, keep_freed_memory
from fast.modules import install_fast_modules
from fast.replaced import edited_parts
from machine.devices import DTYPES, choose_device
from machine.distributed import ALONE, Group, local_part, mean_in_order, whole
from model import Transformer
from pairs.corpus import Corpus
from pairs.terms import lexicons
from tapis.config import Learned
from tapis.doubts import words_of
from tapis.lengths import Lengths
from tapis.system.files import cache_folder, digest
from tapis.text.lines import DataError
from tapis.text.tokenizer import Tokenizer
from training.batch_plan import BatchPlan, weights_of_origins
from training.objective import BatchLoss
from training.optimizers import make_optimizers
from training.own_translations import Round, Translated, rounds
from training.records import Progress, RoundKind, RoundReport, StepRecord, Validation
from training.resolved import Resolved
from training.sharding import shard
from training.teachers import load_teachers
from training.unrelated import Unrelated, unrelated_pairs

USUAL = 0.99  # share of sources that are not longer than the usual length
MOST_STEPS = int(FACTS["steps"].range[1])
AHEAD = 4  # steps whose batches are prepared while a GPU computes


class Training:
    """One run. Every process of a group holds the same model at the same position.

    Raises DataError if every training pair is too long.
    """

    def __init__(
        self,
        config: Config,
        corpus: Corpus,
        tokenizer: Tokenizer,
        group: Group = ALONE,
        resolved: Resolved | None = None,
        learned: Learned | None = None,
        taught_by: Collection[str] | None = None,
    ) -> None:
        """Prepare a run at its start.

        Of a run to resume, resolved and learned are those that it saved, and taught_by are the runs whose probabilities
        it learned, if it had begun to learn.
        """
        self.config = config
        self.corpus = corpus
        self.tokenizer = tokenizer
        self.group = group
        self.device = choose_device(config.device)
        self.resolved = resolved or Resolved.of(config, self.device, group.size)

        # The data in tokens, prepared by one process of those that share a disk.
        with group.first_on_each_disk(cache_folder()):
            tags = [tokenizer.tags[origin.target] for origin in corpus.origins] if tokenizer.tags else []
            self.train_pairs = EncodedPairs.of(corpus.train, tokenizer, config.max_length, tags)
            self.valid_pairs = EncodedPairs.of(corpus.valid, tokenizer, tags=tags)
        if self.is_monolingual.all():
            raise DataError(f"all {len(corpus.train):,} training pairs exceed --max-length {config.max_length}")
        self.learned = learned if learned and learned.length_ratio else self._learned_of_data()
        self.origin_weights = weights_of_origins(
            config, np.bincount(self.train_pairs.origins, minlength=len(corpus.origins))
        )
        self.lexicons = lexicons(corpus) if config.terms else []
        self.valid_texts = list(corpus.valid)  # read at every validation, and scattered over a large table
        self.translated = Translated()

        # The model, its loss and its optimizers.
        if not config.plain:
            bound_caches()
            disable_cudnn_attention()
            keep_freed_memory()  # not sooner: the memory that preparing the data took goes back to the system
        torch.manual_seed(config.seed)
        self.model = Transformer(len(tokenizer), config).to(self.device)
        self.teachers = load_teachers(config, tokenizer, self.device, taught_by)
        self.model_loss = self._with_loss(self.model, [teacher.model for teacher in self.teachers.values()])
        self.is_sharded = config.shard and group.size > 1
        self.objective = self._objective()
        self.optimizers = make_optimizers(self.model, config, self.resolved.precision)
        self.parts = list(dict.fromkeys(name.partition(".")[0] for name, _ in self.model.named_parameters()))
        self.captured = self._captured()
        self.unfinished: tuple[int, LateNumbers] | None = None  # the last step, until its numbers are read
        # Gradients in fp16 are scaled up, to stay above its smallest number, as far as they go without overflow
        # (Micikevicius et al. 2018, arXiv 1710.03740, section 3.2). In other precisions this does nothing.
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.resolved.precision == "fp16")

        self.searcher: TorchSearcher | None = None  # what has translated with the model so far

        # The batches. The numbers are those of the original pairs: translated ones differ a little.
        self.batch_plan = self._plan_of(self.train_pairs)
        first_epoch = self.batch_plan.batches_of_first_epoch
        self.padding_share = padding_share(self.train_pairs, first_epoch)  # before --subword-dropout splits tokens
        self.batches_per_epoch = len(first_epoch)
        self.pairs_per_epoch = sum(map(len, first_epoch))
        self.steps_per_epoch = self.batch_plan.steps_per_epoch

        # The position.
        steps = self.resolved.steps or config.epochs * self.steps_per_epoch
        self.plan_steps(steps, self.resolved.warmup_steps)
        self.step = 0
        self.tokens = 0
        self.seconds = 0.0
        self.best: Validation | None = None
        self.validations_since_best = 0
        self.validated: int | None = None  # the step of the last validation
        self.seconds_per_scored_pair = 0.0  # in the last validation; 0 before the first

    def _learned_of_data(self) -> Learned:
        """Return what the training pairs say about lengths, and the words of their targets."""
        src_lengths, tgt_lengths = self.train_pairs.src_lengths - 1, self.train_pairs.tgt_lengths - 1  # without EOS
        src_lengths, tgt_lengths = src_lengths[~self.is_monolingual], tgt_lengths[~self.is_monolingual]
        lengths = Lengths.of(src_lengths, tgt_lengths)
        usual = float(np.quantile(src_lengths, USUAL)) if len(src_lengths) else 0.0
        target_words = words_of(target for _, target in self.corpus.train)
        return Learned(lengths.ratio, lengths.spread, usual_length=usual, target_words=target_words)

    def _plan_of(
        self, pairs: EncodedPairs, after_step: int = 0, first_epoch: int = 0, translated: Collection[int] = ()
    ) -> BatchPlan:
        """Return the batches of the steps after a step, which learn from these pairs.

        Of monolingual text, they have the languages whose rows were translated.
        """
        is_translated = self.is_monolingual & np.isin(self.train_pairs.rows, list(translated))
        has_sources = set(self.train_pairs.origins[is_translated].tolist())
        weights = [
            0.0 if origin.is_monolingual and number not in has_sources else weight
            for number, (origin, weight) in enumerate(zip(self.corpus.origins, self.origin_weights, strict=True))
        ]
        while not weights[-1]:
            weights.pop()  # without any text, the pairs come in the order of a run without --monolingual
        return BatchPlan(
            self.config,
            pairs,
            weights,
            self.group,
            accumulate=self.resolved.accumulate,
            after_step=after_step,
            first_epoch=first_epoch,
            in_ranges=self._attends_in_ranges(),
            lexicons=self.lexicons,
        )

    def loss_of(self, model: Transformer) -> BatchLoss | PackedBatchLoss:
        """Return a model with its loss: that of a step, or of a copy that `whole_model` made."""
        return self.model_loss if model is self.model else self._with_loss(model)

    def _with_loss(self, model: Transformer, teachers: Sequence[Transformer] = ()) -> BatchLoss | PackedBatchLoss:
        """Return a model with its loss: plain, or with the fast modules and packed batches."""
        if self.config.plain:
            return BatchLoss(model, self.config.label_smoothing, teachers)
        for one in (model, *teachers):
            install_fast_modules(one)
        return PackedBatchLoss(model, self.config.label_smoothing, teachers)

    def keep_teachers(self, names: Collection[str]) -> None:
        """Learn from these teachers alone."""
        self.teachers = {name: teacher for name, teacher in self.teachers.items() if name in names}
        self.model_loss.teachers = tuple(teacher.model for teacher in self.teachers.values())
        self.captured = self.captured or self._captured()  # which is possible without teachers

    def _objective(self) -> torch.nn.Module:
        """Return what a step calls: the model with its loss; of several processes, with the exchange of gradients."""
        if self.is_sharded:
            return shard(self.model_loss, self.device, self.group.size, self.resolved.precision)
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

    def _fault_of_kernels(self) -> str:
        """Return why the kernels of packed batches cannot be used on this GPU; "" if they can."""
        dtype = DTYPES[self.resolved.precision]
        for config in (self.config, *(teacher.config for teacher in self.teachers.values())):
            if fault := fault_of_attention(self.device, dtype, config.n_heads, config.d_model // config.n_heads):
                return fault
        return fault_of_loss(self.device, dtype)

    def _attends_in_ranges(self) -> bool:
        """Return whether attention works on ranges of rows, without padding."""
        return self.device.type == "cuda" and not self.config.plain and not self._fault_of_kernels()

    @property
    def fault_of_capture(self) -> str:
        """Why a GPU does not compute the steps as CUDA graphs; "" if it does, on a CPU and with --plain."""
        if self.device.type != "cuda" or self.config.plain:
            return ""
        if fault := self._fault_of_kernels():
            return fault
        if self.group.size > 1:
            return "several processes exchange their gradients"
        if self.resolved.precision == "fp16":
            return "gradients in fp16 are scaled"
        if self.teachers:
            return "teachers compute, too"
        return "model.py was edited" if edited_parts() else ""

    def _captured(self) -> CapturedSteps | None:
        """Return what computes a step as CUDA graphs. None where they cannot."""
        if not self._attends_in_ranges() or self.fault_of_capture:
            return None
        assert isinstance(self.model_loss, PackedBatchLoss)
        return CapturedSteps(self.model_loss, self.optimizers, self.resolved.precision, self.config.clip_norm)

    @property
    def may_compile(self) -> bool:
        """Whether torch's compiler makes this run faster, once it has taken its minute."""
        return self.device.type == "cuda" and not self.config.plain and not self.is_sharded and has_triton()

    def compile(self, backend: str | Callable[..., Any] = "inductor") -> None:
        """Compile the stacks of blocks."""
        if isinstance(self.model_loss, PackedBatchLoss):
            self.model_loss.compile_parts(backend)
        if self.captured:
            self.captured.begin_anew()

    @property
    def n_graphs(self) -> int:
        """How many graphs were compiled so far: a few, whatever the number of shapes; 0 where none are."""
        if not (isinstance(self.model_loss, PackedBatchLoss) and self.model_loss.is_compiled):
            return 0
        return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])

    @cached_property
    def is_monolingual(self) -> NDArray[np.bool_]:
        """For each of train_pairs, whether it is monolingual text."""
        return self._monolingual(self.train_pairs)

    def _monolingual(self, pairs: EncodedPairs) -> NDArray[np.bool_]:
        """Return for each of some training pairs whether it is monolingual text."""
        return np.array([origin.is_monolingual for origin in self.corpus.origins])[pairs.origins]

    @property
    def monolingual_share(self) -> float:
        """The share of monolingual text among the pairs of an epoch, as they are learned from now."""
        is_monolingual = self._monolingual(self.batch_plan.pairs)
        return float(is_monolingual[np.concatenate(self.batch_plan.batches_of_first_epoch)].mean())

    # Where the run is

    @property
    def progress(self) -> Progress:
        return Progress(self.step, self.tokens, self.seconds)

    @property
    def total_steps(self) -> int:
        return self.resolved.steps

    @property
    def is_over(self) -> bool:
        """All steps are done, or patience is at its end."""
        return self.step >= self.total_steps or 0 < self.config.patience <= self.validations_since_best

    @property
    def n_rounds(self) -> int:
        """How many of `rounds` have begun."""
        return sum(self.step >= round(one.share * self.total_steps) for one in rounds(self.config))

    @property
    def is_round_due(self) -> bool:
        """Whether something is to be done before the steps to come: pairs judged, text translated, teachers chosen."""
        return self.n_rounds > self.translated.n_rounds

    def plan_steps(self, steps: int, warmup_steps: int) -> None:
        """Set the number of steps in all.

        To the steps of their first half it makes no difference, unless the warm-up is longer than a tenth of them all.
        """
        self.resolved = replace(self.resolved, steps=min(steps, MOST_STEPS), warmup_steps=warmup_steps)

    def advance(self, record: StepRecord) -> None:
        """Count a step that was made."""
        self.step = record.step
        self.tokens += record.n_tokens

    # The parts of a step

    def prepare_after(self, step: int) -> None:
        """Begin to prepare the batches of the steps after a step, which a GPU computes now."""
        self.batch_plan.prepare(range(step + 1, min(step + AHEAD, self.total_steps) + 1))

    def seed_dropout(self, step: int, place: int) -> None:
        """Set the random state of a batch: a pure function of seed, step and the batch's place in the step."""
        torch.manual_seed(int(np.random.SeedSequence((self.config.seed, step, place)).generate_state(1)[0]))

    def gradient_exchange(self, is_last: bool) -> AbstractContextManager[object]:
        """Return the context of a batch's two passes. Processes exchange gradients in the last batch of a step.

        Before, each adds up its own.
        """
        if self.is_sharded:
            self.objective.set_requires_gradient_sync(is_last)  # type: ignore[operator]
        elif isinstance(self.objective, DistributedDataParallel) and not is_last:
            context: AbstractContextManager[object] = self.objective.no_sync()
            return context
        return nullcontext()

    def clip_gradient(self) -> tuple[Tensor, Tensor]:
        """Scale the gradient down to config.clip_norm. Returns its norm before, and those of the model's parts."""
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
        return total, norms

    def step_optimizers(self, lr: float, grad_norm: float) -> None:
        """Update the weights. If fp16 overflowed in any gradient, no optimizer steps."""
        for optimizer in self.optimizers:
            for param_group in optimizer.param_groups:
                param_group["lr"] = lr
            if math.isfinite(grad_norm):  # scaler.step would skip only the optimizer whose own gradient overflowed
                optimizer.step()
            optimizer.zero_grad()
        self.scaler.update()

    # Translating

    def make_rounds(self) -> list[RoundReport | Unrelated]:
        """Make the rounds that are due, for the steps to come. Returns what each did."""
        assert self.is_round_due
        now = self.translated
        due = {one.kind for one in rounds(self.config)[now.n_rounds : self.n_rounds]}
        sources, targets, dropped = now.sources, now.targets, now.dropped
        reports: list[RoundReport | Unrelated] = []
        with torch.compiler.set_stance("force_eager"):
            # Which pairs are kept, as this model judges them.
            if "dropping" in due:
                unrelated = unrelated_pairs(self.corpus, self.train_pairs, self.group, self.translator())
                dropped = unrelated.rows
                reports.append(unrelated)
            kept = self.train_pairs.without(dropped)
            a_round = Round(self.config, self.corpus, kept, self.tokenizer, self.group)

            # Sources of monolingual text, translated by this model or by another run.
            if "back-translation" in due:
                run = self.config.back_translator
                translator = Translator.load(run, self.config.device) if run else self.translator()
                judged = a_round.judge(translator, "back-translation")
                sources = a_round.back_translations(translator, judged)
                reports.append(RoundReport("back-translation", judged, len(sources), self.step))

            # What the targets are: translations of this model, or what teachers translate or find probable.
            if due & {"distillation", "self-distillation"}:
                report, targets = self._distill(a_round)
                reports.append(report)
        self.learn_from(Translated(self.n_rounds, self.step, sources, targets, dropped))
        return reports

    def _distill(self, a_round: Round) -> tuple[RoundReport, dict[int, list[int]]]:
        """Translate the targets, or choose the teachers that are asked at each step.

        Returns what was done, and the translations that are the targets now, in token ids, by row.
        """
        runs = self.config.teacher
        kind: RoundKind = "distillation" if runs else "self-distillation"
        names = runs or ("",)  # "" for this model
        translators = [Translator.load(name, self.config.device) if name else self.translator() for name in names]
        judged_of = [a_round.judge(translator, kind, name) for translator, name in zip(translators, names, strict=True)]
        if not self.teachers:
            targets = a_round.closest_translations(list(zip(translators, judged_of, strict=True)))
            all_judged = [one for judged in judged_of for one in judged]
            return RoundReport(kind, all_judged, len(targets), self.step), targets

        # Teachers that are asked at each step must translate well in all directions.
        good = [name for name, judged in zip(names, judged_of, strict=True) if all(one.is_good for one in judged)]
        self.keep_teachers(good)
        told = [one for judged in judged_of for one in judged if one.by in good or not one.is_good]
        return RoundReport("teaching", told, len(self.train_pairs) if good else 0, self.step), {}

    def learn_from(self, translated: Translated) -> None:
        """Learn from translations after a step, and no more from the dropped pairs. Epochs are counted anew."""
        self.translated = translated
        sources, targets, after_step = translated.sources, translated.targets, translated.after_step
        first_epoch = math.ceil(after_step / self.steps_per_epoch)
        pairs = self.train_pairs.replaced(sources, targets) if sources or targets else self.train_pairs
        pairs = pairs.without(translated.dropped)
        self.batch_plan = self._plan_of(pairs, after_step, first_epoch, sources)

    def whole_model(self) -> Transformer:
        """Return the model as it is now, to translate with and to save: of a sharded run, a copy.

        All processes must call it together.
        """
        if not self.is_sharded:
            return self.model.eval()
        model = Transformer(len(self.tokenizer), self.config).to(self.device)
        for weight, part in zip(parameters(model).values(), parameters(self.model).values(), strict=True):
            weight.copy_(whole(part))
        return model.eval()

    def translator(self, model: Transformer | None = None) -> Translator:
        """Return a translator of `whole_model()`, in the precision that translate.py uses by default.

        On a GPU, the run's own model keeps its searcher, and what that has captured.
        """
        model = model or self.whole_model()
        if model is self.model and self.searcher:
            self.searcher.refresh()
            return Translator(self.searcher, self.tokenizer, self.config, self.learned)
        tags = list(self.tokenizer.tags.values())
        searcher = searcher_of(model, self.device, plain=self.config.plain, suppressed=tags)
        if model is self.model and isinstance(searcher, TorchSearcher) and self.device.type == "cuda":
            self.searcher = searcher
        return Translator(searcher, self.tokenizer, self.config, self.learned)

    @property
    def resume_signature(self) -> dict[str, str]:
        """What must match for a run to be resumed: a key of each part of the data, of the tokenizer, the settings."""
        settings = {name: str(value) for name, value in asdict(self.config).items() if not FACTS[name].is_resumable}
        return self._keys_of_data | settings

    @cached_property
    def _keys_of_data(self) -> dict[str, str]:
        """Those of the parts and of the tokenizer. Reading a table of 5 million pairs for them takes a second."""
        parts = {name: getattr(self.corpus, name).fingerprint() for name in ("train", "valid", "test")}
        return {**parts, "tokenizer": digest(self.tokenizer.to_json())}
