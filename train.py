"""Trains a Transformer to translate: the command, the loop and the step.

    python train.py                     novels, English to French, from the hub
    python train.py demo                the built-in corpus, about a minute
    python train.py --data FOLDER --source de --target en --name NAME
    python train.py --resume --name NAME
    torchrun --nproc-per-node 8 train.py base --data FOLDER      eight GPUs; several machines as for any torchrun

Read `loop`, `take_step` and `eager_step` first: they are the training. `train` and `load_training` prepare for them:
the pairs, the tokenizer, the run folder. What they use is in training/: trainer.py holds the model, the optimizers and
the position.
"""

from training.new_run import Prepared, prepare, read_corpus
from tapis.system.cli import answer_early, run_command

prepared = answer_early(__name__, prepare)  # before torch, which takes seconds

import math
import shlex
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from checkpoint import RUNS, RunFolder, load_parameters, parameters
from tapis.release import WEIGHTS
from tapis.doubts import CONFIDENCE_SAMPLE, FEW_FOR_CONFIDENCE
from tapis.attention import draw
from tapis.config import ConfigError
from config import Config
from dataset import Batch
from decoding.scoring import by_data_lines, score_corpus
from decoding.standard import nonstandard_part
from fast.capture import CapturedSteps, LateNumbers
from fast.packed_batch import PackedBatch
from fast.replaced import edited_parts
from model import Transformer
from machine.devices import autocast, choose_device, slow_precision
from machine.distributed import Group, run_worker
from tapis.system.files import cache_folder
from tapis.system.terminal import errors_as_warnings, is_main, progress_bar, say
from tapis.text.tokenizer import Tokenizer
from pairs.corpus import Corpus
from pairs.vocabulary import learn_tokenizer
from training.agenda import Agenda
from training.ancestry import Ancestor
from training.budget import TimeBudget, seconds_per_step
from training.cli import TrainOptions, target_flag
from training.description import describe, first_examples
from training.failures import (
    BrokenOffError,
    StoppedError,
    advice_after,
    advice_if_over,
    cause_of,
    not_finite,
    resume_command,
)
from training.history import add_to_history
from training.optimizers import learning_rate
from training.options import changes, resolve
from training.own_translations import check_other_runs
from training.records import Numbers, RoundReport, StepRecord, Validation, mean_loss, tokens_per_second
from training.metrics import Metrics, Resumption, load_metrics, save_metrics
from training.resolved import Resolved
from training.sharding import check_shardable
from training.signals import interruption
from training.sizes import SIZES, size_for, with_size
from training.tensorboard import EVENTS, SAMPLES, Logs
from training.terminal import indented, report_lines, training_lines, round_lines, validation_lines, warnings
from training.trainer import Training
from training.two_runs import TwoRuns, awaited_teacher, fault_of_name, start_folders, two_runs
from training.state import restore, state_of, teachers_of
from training.unrelated import Unrelated
from training.validation import sample_rows, unsure_below, validate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEW_VALID_PAIRS = 100  # below which a run notes that its validation is unreliable
PICTURED = 2  # validation sentences whose attention TensorBoard shows


# The training


def take_step(training: Training, step: int) -> StepRecord:
    """Update the weights: down the gradient of the mean loss over the step's target tokens. Steps count from 1.

    Raises TrainingError, and leaves the weights as they are, if the loss or the gradient is not finite. In fp16 that is
    an error only at a scale of 1: above it, the step is skipped and the scaler lowers the scale. Where the step is
    captured, a GPU is still at work on it when this returns, and the error is raised a step late.
    """
    start = time.perf_counter()
    group, resolved = training.group, training.resolved
    training.model.train()
    lr = learning_rate(step, training.total_steps, resolved.warmup_steps, training.config)

    # Take this process's batches, and count the target tokens of all processes.
    batches = training.batch_plan.batches_of(step)
    local_tgt = sum(batch.n_tgt for _, batch in batches)
    local_tokens = sum(batch.n_tokens for _, batch in batches)
    n_tgt, n_tokens = map(int, group.all_sums(local_tgt, local_tokens))

    numbers: Numbers | list[float]
    if training.captured:
        numbers = captured_step(training, training.captured, step, batches, n_tgt, lr)
    else:
        numbers = eager_step(training, step, batches, n_tgt, lr)
    seconds = time.perf_counter() - start
    return StepRecord(step, numbers, training.parts, lr, n_tgt, n_tokens, seconds)


def eager_step(
    training: Training, step: int, batches: Sequence[tuple[int, Batch | PackedBatch]], n_tgt: int, lr: float
) -> list[float]:
    """Take a step on its batches, of n_tgt target tokens in all processes. Returns `StepRecord.numbers`."""
    group = training.group

    # Forward and backward. Processes exchange the mean of their gradients, where their sum is wanted.
    loss = torch.zeros((), device=training.device)
    cross_entropy = torch.zeros((), device=training.device)
    last_place = batches[-1][0]
    for place, batch in batches:
        training.seed_dropout(step, place)
        with training.gradient_exchange(is_last=place == last_place):
            with autocast(training.device, training.resolved.precision):
                batch_loss, batch_cross_entropy = training.objective(batch.to(training.device))
            training.scaler.scale(batch_loss * (group.size / n_tgt)).backward()
        loss += batch_loss.detach()
        cross_entropy += batch_cross_entropy.detach()
    training.prepare_after(step)

    # Clip the gradient, and copy the step's numbers to the host: its only wait for a GPU.
    total_norm, part_norms = training.clip_gradient()
    losses = group.sum_on_device(torch.stack([loss, cross_entropy]))
    numbers: list[float] = torch.stack([*losses, total_norm, *part_norms]).tolist()
    check_finite(training, step, numbers)

    # Step the optimizers.
    training.step_optimizers(lr, grad_norm=numbers[2])
    return numbers


def captured_step(
    training: Training,
    captured: CapturedSteps,
    step: int,
    batches: Sequence[tuple[int, Batch | PackedBatch]],
    n_tgt: int,
    lr: float,
) -> LateNumbers:
    """Replace `eager_step` by CUDA graphs: ask a GPU for the step, then wait for the one before."""
    for place, batch in batches:
        assert isinstance(batch, PackedBatch)
        training.seed_dropout(step, place)
        captured.add_gradient(batch, 1 / n_tgt)
    numbers = captured.update(lr)
    training.prepare_after(step)
    finish_steps(training)
    training.unfinished = step, numbers
    return numbers


def finish_steps(training: Training) -> None:
    """Wait for the last step, if a GPU may still be at work on it. Raises TrainingError if it is not finite."""
    if training.unfinished:
        step, numbers = training.unfinished
        training.unfinished = None
        check_finite(training, step, numbers.tolist())


def check_finite(training: Training, step: int, numbers: Sequence[float]) -> None:
    """Raise TrainingError if the loss or the gradient of a step is not finite."""
    loss, _, grad_norm = numbers[:3]
    if not math.isfinite(grad_norm + loss) and training.scaler.get_scale() <= 1:
        epoch, place = training.batch_plan.place_of(step)
        raise not_finite(step, epoch + 1, place * training.resolved.accumulate + 1, training.resolved.precision)


def loop(
    training: Training, folder: RunFolder, logs: Logs, signals: Sequence[int], budget: TimeBudget | None = None
) -> None:
    """Make the steps from training.step to the last one. Raises StoppedError once interrupted, with everything saved.

    signals are those received so far. With a budget, the number of steps is settled once half of its time is over.
    """
    agenda = Agenda(training, signals, budget or TimeBudget(0))
    before_first_step(training, folder, logs, agenda)
    recent: list[StepRecord] = []  # the steps since the last validation
    with progress_bar("", training.total_steps, "step", initial=training.step) as bar:
        while not training.is_over:
            # Translate text to learn from, or judge the pairs: a round (training/own_translations.py).
            if training.is_round_due:
                with agenda.once():
                    round_reports = training.make_rounds()
                for round_report in round_reports:
                    for line in round_lines(round_report, training):
                        say(line)
                if is_main():
                    record_rounds(folder, training, round_reports)
                agenda.save_soon()  # translating takes long

            recent.append(take_step(training, training.step + 1))
            training.advance(recent[-1])
            due = agenda.after_step(recent)

            logs.steps(recent, training.padding_share)
            bar.total = training.total_steps
            if bar.update():  # it was shown: tell what it shows next
                loss, speed = mean_loss(recent[-1:]), tokens_per_second(recent[-20:])
                bar.set_postfix(loss=f"{loss:.3f}", tokens_s=f"{speed:,.0f}", refresh=False)

            # What follows reads the weights, which must be finite.
            if any(due):
                finish_steps(training)
            if due.validate:
                validated = validate_and_keep_best(training, folder, recent)
                agenda.count_time()  # the saved seconds include validating
            if due.save:
                save(training, folder)
                agenda.note_save()
            # A validation is shown once it is saved: drawing takes long, and may fail.
            if due.validate:
                show_validation(training, folder, logs, recent, *validated)
                recent = []
            if due.stop and not training.is_over:
                position = f"stopped and saved at step {training.step:,} of {training.total_steps:,}"
                raise StoppedError(position)


def record_rounds(folder: RunFolder, training: Training, reports: Sequence[RoundReport | Unrelated]) -> None:
    """Add to metrics.json what was done before the next step. A run that was killed then does it again."""
    metrics = load_metrics(folder)
    metrics.rounds = [report for report in metrics.rounds if report.after_step < training.step]
    for report in reports:
        if isinstance(report, Unrelated):
            metrics.unrelated = report.report
        else:
            metrics.rounds.append(report)
    write_metrics(folder, metrics)


def before_first_step(training: Training, folder: RunFolder, logs: Logs, agenda: Agenda) -> None:
    """Score weights that have no score and need one: those of another run, or of a run whose end was moved to them.

    Save the run then, and before other runs translate for it.
    """
    starts_from_run = bool(training.config.init_from) and not training.step
    if (training.is_over or starts_from_run) and training.validated != training.step:
        with agenda.once():
            validated = validate_and_keep_best(training, folder, [])
            agenda.count_time()
            save(training, folder)
            show_validation(training, folder, logs, [], *validated)
    elif training.is_round_due and not training.step:
        save(training, folder)  # translating takes long


def save(training: Training, folder: RunFolder) -> None:
    """Save what resuming needs."""
    state = state_of(training)
    if is_main():
        folder.save_state(state)


def validate_and_keep_best(
    training: Training, folder: RunFolder, recent: Sequence[StepRecord]
) -> tuple[Transformer, Validation, list[str]]:
    """Validate the model, and save it if it is the best so far. Returns it, its scores, and its translations.

    Also adds a row to history.csv, which has the mean loss of recent, the steps since the last validation.
    """
    model = training.whole_model()
    result, hypotheses = validate(training, model)
    training.validated = training.step
    training.validations_since_best += 1
    if training.best is None or result.rank() > training.best.rank():
        training.best, training.validations_since_best = result, 0
        if is_main():
            forget_test_scores(folder)
            folder.save_model(parameters(model), nonstandard_part(model))
    if is_main():
        with errors_as_warnings(f"{folder.history_file} lacks a row"):
            add_to_history(folder, result, recent, training.progress, training.step / training.steps_per_epoch)
    return model, result, hypotheses


def forget_test_scores(folder: RunFolder) -> None:
    """Remove from metrics.json what is known of the best weights so far, of a run that goes on after its end."""
    metrics = load_metrics(folder)
    if metrics.test:
        write_metrics(folder, replace(metrics, seconds=None, test=None, examples=[]))


def show_validation(
    training: Training,
    folder: RunFolder,
    logs: Logs,
    recent: Sequence[StepRecord],
    model: Transformer,
    result: Validation,
    hypotheses: Sequence[str],
) -> None:
    """Show a validation in metrics.json, on the terminal and in TensorBoard. recent are the steps since the last one.

    The run goes on if something of this fails.
    """
    if not is_main():
        return
    best = training.best or result
    write_metrics(folder, replace(load_metrics(folder), best=best, last=result))
    with errors_as_warnings("a validation is not shown"):
        epochs = training.step / training.steps_per_epoch, training.total_steps / training.steps_per_epoch
        example = training.valid_texts[0][0], hypotheses[0]
        for line in (
            *validation_lines(result, recent, epochs, example, training.n_graphs),
            *warnings(
                result,
                best,
                math.nan if training.teachers else mean_loss(recent),
                hypotheses,
                training.validations_since_best,
            ),
        ):
            say(line)
    logs.validation(result, [(*training.valid_texts[row], hypotheses[row]) for row in sample_rows(training, SAMPLES)])
    logs.pictures(lambda: attention_pictures(training, model), training.progress, training.is_over)


def write_metrics(folder: RunFolder, metrics: Metrics) -> None:
    """Write metrics.json, which neither resuming nor translating needs."""
    with errors_as_warnings(f"{folder.metrics_file} is not up to date"):
        save_metrics(folder, metrics)


def attention_pictures(training: Training, model: Transformer) -> Iterator[tuple[str, "Figure"]]:
    """Yield what each layer attends to in the first validation sentences, named by sentence and layer."""
    numbers = training.corpus.valid.origins()
    first = training.corpus.origins[numbers[0]]
    translator = training.translator(model).towards(first.target, first.source)
    first_rows = np.flatnonzero(numbers == numbers[0])[:PICTURED]
    for i, row in enumerate(first_rows):
        source = training.valid_texts[row][0]
        with torch.compiler.set_stance("force_eager"):
            translation, attention = translator.attention(source)
        for layer in range(training.config.n_decoder_layers):
            title = f"{source} → {translation.text} (layer {layer + 1}, step {training.step:,})"
            figure = draw(attention.maps(layer), attention.source, attention.target, title)
            yield f"attention/{i + 1}/layer_{layer + 1}", figure


# The command


def main(args: Sequence[str], prepared: Prepared | None = None) -> None:
    """Run the command."""
    options = resolve(args)
    prepared = prepared or Prepared()
    group = Group.join(choose_device(options.config.device))
    name = options.config.name
    try:
        train(options, group, TimeBudget(options.minutes, prepared.start), prepared.corpus, name)
    except StoppedError as error:
        raise StoppedError(f"{error}\n{resume_command(name, group)}") from None
    group.leave()


def train(options: TrainOptions, group: Group, budget: TimeBudget, corpus: Corpus | None, resumed_as: str) -> bool:
    """Make a new run, or resume one, from its data to its test score, and put failures into words.

    Its teacher is trained first if the budget has time for two runs, or if an earlier command was interrupted while it
    did so. corpus are the data of a new run, if they are read already. Messages advise to resume the run resumed_as: of
    a teacher, its student. Returns whether someone interrupted the last step.
    """
    folder = RunFolder(WEIGHTS / options.config.name)
    config, has_begun = options.config, options.resume
    try:
        with folder.held() if is_main() and not options.dry_run else nullcontext():
            # The teacher that an interrupted run waits for. Its data are those of the run, which may be read.
            if options.resume and (teacher := awaited_teacher(folder)):
                named = ["--data", *config.data, "--device", config.device]
                of_teacher = resolve(["--resume", "--name", teacher, *named])
                stop = train(replace(of_teacher, dry_run=options.dry_run), group, TimeBudget(0), None, resumed_as)
                if options.dry_run:
                    return False
                check_may_go_on(stop, teacher)
                options = replace(options, resume=False)

            # The run or, with time for both, its teacher and the run.
            training, metrics = load_training(options, folder, group, budget, corpus)
            config, has_begun = training.config, True  # before, the folder may hold another run
            if (runs := two_runs(training, budget)) and may_begin(runs, options, folder, budget):
                corpus = training.corpus
                start_folders(runs, training, folder)
                options = replace(options, open_fields=())
                del training, metrics
                stop = train(options.having(runs.teacher), group, budget.first_part(runs.share), corpus, resumed_as)
                check_may_go_on(stop, runs.teacher.name)
                options = options.having(runs.student)
                training, metrics = new_training(options, folder, group, budget, corpus)
            return begin(training, metrics, options, folder, budget)
    except (OSError, MemoryError, RuntimeError) as error:
        cause = cause_of(error, config, group)
        if not cause:
            raise
        advice = advice_after(error, folder, resumed_as, group) if has_begun and not options.dry_run else ""
        raise BrokenOffError(cause + advice) from None


def may_begin(runs: TwoRuns, options: TrainOptions, folder: RunFolder, budget: TimeBudget) -> bool:
    """Report two runs, and return whether they are to begin: not if this is a dry run.

    Raises ConfigError if the teacher cannot have its name.
    """
    say(runs.line(budget))
    fault = fault_of_name(runs, folder, may_replace=options.overwrite)
    if fault and not options.dry_run:
        raise ConfigError(fault)
    if fault:
        say(f"note      {fault.splitlines()[0]}")
    return not options.dry_run


def check_may_go_on(stop: bool, teacher: str) -> None:
    """Raise StoppedError if someone interrupted the last step of a teacher: its student does not begin."""
    if stop:
        raise StoppedError(f"stopped after the last step of {teacher}")


def begin(training: Training, metrics: Metrics, options: TrainOptions, folder: RunFolder, budget: TimeBudget) -> bool:
    """Make the steps of a run from where it is, and score it; of --dry-run, tell what they would take.

    Returns whether someone interrupted the last step.
    """
    config = training.config
    for line in training_lines(metrics):
        say(line)
    for note in notes_on(training):
        say(note)
    if options.dry_run:
        if config.init_from and not options.resume:
            result, hypotheses = validate(training)
            example = training.valid_texts[0][0], hypotheses[0]
            for line in validation_lines(result, [], (0, training.total_steps / training.steps_per_epoch), example, 0):
                say(line)
        minutes = seconds_per_step(training, take_step) * max(0, training.total_steps - training.step) / 60
        say(f"time      about {minutes:.1f} minutes of training, and the validations")
        if folder.config_file.exists() and not (options.resume or options.overwrite):
            say(f"note      {folder.path} already contains a run: choose another --name, or --overwrite it")
        return False
    if options.resume:
        say(f"resumed   at step {training.step:,} of {training.total_steps:,}{advice_if_over(training)}")

    # The run folder and the logs.
    if is_main():
        begin_run_folder(folder, training, metrics, options.resume)
    logs = Logs(RUNS / config.name if is_main() else None, training.progress, config.log_every)
    try:
        logs.settings(training.config)
        logs.text("config", training.config.to_json())
        logs.text("data", "\n".join(report_lines(metrics)))
        if logs.writer:
            say(f"logs      {(RUNS / config.name).resolve()}; watch with: tensorboard --logdir {RUNS.resolve()}")

        # The steps, and the test part.
        with interruption() as signals:
            loop(training, folder, logs, signals, budget)
        stop = any(training.group.all_sums(len(signals)))
        if is_main():
            finish(training, folder, logs)
        return stop
    finally:
        logs.close()


def notes_on(training: Training) -> Iterator[str]:
    """Yield warnings and notes about how a run computes and how reliable its validation is."""
    if warning := slow_precision(training.resolved.precision, training.device):
        yield warning
    if reason := training.fault_of_capture:
        yield f"note      steps are launched kernel by kernel, and slower: {reason}"
    if 0 < (n_valid := len(training.corpus.valid)) < FEW_VALID_PAIRS:
        yield (
            f"note      {n_valid} pairs are few to validate with: chance alone moves BLEU by several points; "
            "give more or, of data without a validation part, --valid-share 0.1"
        )
    if edited_parts() and (part := nonstandard_part(training.whole_model())):
        yield f"note      {part} of model.py computes something other than the engine: translating with torch"


def load_training(
    options: TrainOptions, folder: RunFolder, group: Group, budget: TimeBudget, corpus: Corpus | None
) -> tuple[Training, Metrics]:
    """Return a run at its start or where it stopped, and its description.

    corpus are the data of a new run, if they are read already.
    """
    if options.resume:
        return resumed_training(options, folder, group)
    return new_training(options, folder, group, budget, corpus)


def resumed_training(options: TrainOptions, folder: RunFolder, group: Group) -> tuple[Training, Metrics]:
    """Return a run where it stopped, and its description."""
    # What it has settled and learned.
    config, state, learned = options.config, folder.load_state(), folder.load_learned()
    resolved = Resolved.saved(state, config, group.size, follows_config=options.gives_length)
    check_shardable(config, resolved.precision)

    # The same data, tokenizer and position.
    with group.first_on_each_disk(cache_folder()):
        corpus = read_corpus(config, is_new=False)
    tokenizer = folder.load_tokenizer()
    training = Training(config, corpus, tokenizer, group, resolved, learned, teachers_of(state))
    restore(training, state)
    return training, describe(training)


def new_training(
    options: TrainOptions, folder: RunFolder, group: Group, budget: TimeBudget, corpus: Corpus | None
) -> tuple[Training, Metrics]:
    """Return a new run at its start, with the weights of the run that it starts from, if any, and its description."""
    # What may be refused before the data are read: other runs, the precision.
    config = options.config
    check_other_runs(config, folder.path)
    check_shardable(config, Resolved.of(config, choose_device(config.device), group.size).precision)
    ancestor = Ancestor.load(config.init_from) if config.init_from else None

    # The data, the sizes, the tokenizer.
    if corpus is None:
        with group.first_on_each_disk(cache_folder()):
            corpus = read_corpus(config)
    if options.open_fields:
        config = sized(config, options.open_fields, corpus, group, budget)
    tokenizer = ancestor.tokenizer if ancestor else tokenizer_for(config, corpus, group)

    # The model, and the number of steps.
    training = Training(config, corpus, tokenizer, group)
    if budget.is_open:
        budget.plan(training, take_step)
    if ancestor:
        load_parameters(training.model, ancestor.weights, config.init_from)
        training.learned = ancestor.with_words(training.learned)
    return training, describe(training, ancestor)


def tokenizer_for(config: Config, corpus: Corpus, group: Group) -> Tokenizer:
    """Learn the tokenizer of a new run."""
    with group.first_on_each_disk(cache_folder()):
        return learn_tokenizer(corpus.train, config.vocab_size, config.tagged_languages)


def sized(config: Config, fields: Collection[str], corpus: Corpus, group: Group, budget: TimeBudget) -> Config:
    """Return a config whose open fields suit the number of the pairs and the time, and say which they are."""
    n_pairs, steps = corpus.report.train, math.inf
    if budget.is_open:
        smallest = with_size(config, SIZES[0], fields)
        smallest = replace(smallest, self_distillation=0.0)
        training = Training(smallest, corpus, tokenizer_for(smallest, corpus, group), group)
        per_step = seconds_per_step(training, take_step)
        steps = group.broadcast(budget.estimated_steps(training, per_step))
    config = with_size(config, size_for(n_pairs, steps, fields), fields)
    layers = f"{config.n_encoder_layers}+{config.n_decoder_layers} layers"
    say(
        f"sizes     for {n_pairs:,} pairs: d_model {config.d_model}, {layers}, at most {config.vocab_size:,} tokens, "
        f"dropout {config.dropout:g}; a preset or flags choose others"
    )
    return config


def begin_run_folder(folder: RunFolder, training: Training, metrics: Metrics, resume: bool) -> None:
    """Write config, tokenizer and metrics; a new run leaves nothing of an earlier one of its name."""
    if resume:
        before = load_metrics(folder)
        resumption = Resumption(training.step, changes(folder.load_config(), training.config))
        metrics = replace(
            metrics,
            resumed=[*before.resumed, resumption],
            **{name: getattr(before, name) for name in ("unrelated", "rounds", "last", "seconds", "test", "examples")},
            best=training.best or before.best,  # a kill may have come between saving it and its report
        )
        if before.init_from:  # the run that it started from is not read again, and need not exist
            metrics = replace(metrics, init_from=before.init_from, sides=before.sides, rare_tokens=before.rare_tokens)
        folder.save_learned(training.learned)  # before the config, which may have held it
        folder.save_config(training.config)
    else:
        folder.start(training.config, training.tokenizer)
        folder.save_learned(training.learned)
        for events in (RUNS / training.config.name).rglob(EVENTS):
            events.unlink()
    folder.sign(training.config)
    write_metrics(folder, metrics)


def finish(training: Training, folder: RunFolder, logs: Logs) -> None:
    """Learn what the best model is unsure of, score it on the test part, and print where everything is."""
    best, metrics = training.best, load_metrics(folder)
    assert best is not None, "a run is validated at its end"
    metrics.seconds = round(training.seconds, 1)
    metrics.batches.steps = training.total_steps  # with --minutes, known after the half
    say(f"best      step {best.step:,}: valid BLEU {best.bleu:.1f}  chrF {best.chrf:.1f}; {training.seconds:,.0f} s")
    _, _, model = folder.load_model(training.device)
    translator = training.translator(model)
    write_metrics(folder, metrics)
    folder.save_learned(replace(training.learned, unsure_below=unsure_below(training, translator)))
    if (n := len(sample_rows(training, CONFIDENCE_SAMPLE))) < FEW_FOR_CONFIDENCE:
        say(
            f'note      the limit of the doubt "unsure" is rough: learned from {n} validation sentences, '
            f"fewer than {FEW_FOR_CONFIDENCE}"
        )
    test_pairs = list(training.corpus.test)
    if test_pairs:
        numbers, origins = training.corpus.test.origins(), training.corpus.origins
        directions = training.corpus.directions(training.corpus.test)
        hypotheses = translator.in_directions([source for source, _ in test_pairs], directions, bar="testing")
        scores = score_corpus(hypotheses, [target for _, target in test_pairs], numbers, origins)
        metrics.test, metrics.examples = scores, first_examples(test_pairs, hypotheses)
        logs.test(scores.bleu, scores.chrf, scores.by_data, training.step)
        for line in (f"test      {scores}", *indented(by_data_lines(scores.by_data))):
            say(line)
    write_metrics(folder, metrics)
    name = shlex.quote(training.config.name)
    target = target_flag(training.config)
    say(f'weights   {folder.path}; translate with: python translate.py --run {name} {target}"…"')
    say(f"          or score it by beam search with: python evaluate.py --run {name} --beam 5")


if __name__ == "__main__":
    run_worker(partial(run_command, partial(main, prepared=prepared)))
