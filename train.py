"""Trains a Transformer to translate: the loop, with its saves and logs, and the command.

    python train.py                     novels, English to French, from the hub
    python train.py demo                the built-in corpus, about a minute
    python train.py --data FOLDER --source de --target en --name NAME
    python train.py --resume --name NAME
    torchrun --nproc-per-node 8 train.py base --data FOLDER      eight GPUs; on several machines, as torchrun says

`main` gets the pairs, the tokenizer and the run folder ready; `run` is the loop over the steps of a `Training`.
"""

from system.cli import TrainOptions, answer_early, is_out_of_memory, named, parse, parse_training, run_command

answer_early(__name__, parse_training)  # before torch, which takes more than a second

import math
import os
import platform
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, fields, replace
from importlib.metadata import version
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from decoding.attention import draw
from checkpoint import RUNS, WEIGHTS, CheckpointError, RunFolder, parameters
from config import RESUMABLE, Config, ConfigError, TapisError, flag
from text.corpus import load_corpus
from evaluate import score
from system.devices import choose_device, choose_precision, device_label, peak_gigabytes
from system.distributed import Group
from training.report import EVENTS, Logs, StepLog, overview, say, speaks, tokens_per_second, warnings
from text.tables import Ints
from text.tokenizer import learn_tokenizer
from training.trainer import Training, half_is_over, step_seconds, steps_until
from translate import Translator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PACKAGES = ("torch", "tokenizers", "datasets", "torchmetrics", "sacrebleu")  # whose versions metrics.json notes
PICTURED = 2  # validation sentences of which TensorBoard shows the attention


class StoppedError(TapisError):
    """The user, or the system, ended the training; it can be resumed."""

    exit_code = 130


class BrokenOffError(TapisError):
    """Something outside of the training ended it: the disk, the memory, another of its processes."""

    from_any = True


@contextmanager
def interruption() -> Iterator[list[int]]:
    """While entered, the first SIGINT or SIGTERM only goes on the list, so that the loop ends between two steps.

    A second one ends at once.
    """
    came: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)
        if speaks():  # not by sys.stderr, in the middle of whose writing it may have come
            os.write(2, b"\nending after this step; once more to end at once\n")

    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(training: Training, folder: RunFolder, logs: Logs, signals: Sequence[int], deadline: float = math.inf) -> None:
    """The loop, from training.step to the last step. Raises StoppedError once interrupted, with all of it saved.

    With a deadline (of `time.perf_counter`), how many steps there are is known once half of the time is over: as many
    again. Of several processes, the leader alone writes.
    """
    config, group = training.config, training.group
    say(f"logs      {(RUNS / config.name).resolve()}; watch with: tensorboard --logdir {RUNS.resolve()}")
    hidden = None if group.leads else True
    bar = tqdm(total=training.total_steps, initial=training.step, unit="step", disable=hidden, dynamic_ncols=True)
    window: list[StepLog] = []  # the steps since the last validation
    valid_every = config.valid_every or training.steps_per_epoch
    # When it began, had it never stopped: what earlier lives of it took counts.
    first, saved, began = training.step + 1, time.perf_counter(), time.perf_counter() - training.seconds
    try:
        while not training.is_over:
            if training.is_to_distill:
                training.distill()
                say(f"targets   from step {training.step + 1:,} on the nearest of the model's own translations")
            window.append(training.update(training.step + 1))
            training.step += 1
            training.tokens += window[-1].n_tokens
            training.seconds = time.perf_counter() - began
            if training.step == first + 11:  # the first steps warm up
                seconds = float(np.mean([log.seconds for log in window[-10:]])) * (training.total_steps - training.step)
                say(f"time      about {seconds / 60:.1f} minutes of steps to come, and the validations")
            logs.steps(window, training.padding, training.at)
            speed = f"{tokens_per_second(window[-20:]):,.0f}"
            bar.set_postfix(loss=f"{window[-1].loss / window[-1].n_tgt:.3f}", tokens_s=speed, refresh=False)
            bar.update()
            stop, half = map(bool, group.sums(len(signals), half_is_over(training, deadline)))
            if half or (deadline < math.inf and 2 * training.step > training.total_steps):
                # The rate has been that of either number, also if the warm-up was to be a tenth of the steps at most.
                training.plan(max(2 * training.step, 10 * config.warmup_steps))
                bar.total, deadline = training.total_steps, math.inf if half else deadline
            if half:
                say(f"time      half of it is over: {training.total_steps:,} steps in all")
                logs.text("config", training.config.to_json())
            if training.step % valid_every == 0 or training.step == training.total_steps:
                keep(training, folder, logs, window)
                training.seconds = time.perf_counter() - began
                window = []
            elif time.perf_counter() - saved < 60 * config.save_minutes and not (stop or training.is_to_distill):
                continue
            if group.leads:
                folder.save_config(training.config)
                folder.save_state(training.state())
            saved = time.perf_counter()
            if stop and not training.is_over:
                so_far = f"stopped and saved at step {training.step:,} of {training.total_steps:,}"
                raise StoppedError(f"{so_far}\n{go_on(config.name, group)}")
    finally:
        bar.close()


def go_on(name: str, group: Group) -> str:
    """What to type to go on with the run of that name."""
    command = "python" if group.size == 1 else "torchrun …"
    return f"go on with: {command} train.py --resume --name {name}"


def keep(training: Training, folder: RunFolder, logs: Logs, window: Sequence[StepLog]) -> None:
    """Validates the weights, and keeps them where they are the best yet."""
    result, hypotheses = training.validate()
    training.stale += 1
    is_best = training.best is None or result.rank() > training.best.rank()
    if is_best:
        training.best, training.stale = result, 0
    if not training.group.leads:
        return
    rows = [(*pair, hypothesis) for pair, hypothesis in zip(training.valid_texts, hypotheses, strict=True)]
    logs.validation(result, rows, training.at)
    pictured = [source for source, _, _ in rows[:PICTURED]]
    logs.pictures(lambda: pictures(training, pictured), training.at, training.is_over)
    loss = sum(log.loss for log in window) / sum(log.n_tgt for log in window)
    graphs = f"  {training.graphs} graphs" if training.graphs else ""
    epochs = [step / training.steps_per_epoch for step in (training.step, training.total_steps)]
    say(
        f"epoch {epochs[0]:.3g}/{epochs[1]:.3g}  step {training.step:,}  "
        f"train loss {loss:.3f}  valid loss {result.loss:.3f}  perplexity {result.perplexity:.2f}  "
        f"BLEU {result.bleu:.1f}  chrF {result.chrf:.1f}  {tokens_per_second(window):,.0f} tokens/s{graphs}"
    )
    say(f"    {rows[0][0]} → {rows[0][2]}")
    if is_best:
        folder.save_model(parameters(training.model))
    best = training.best or result
    for line in warnings(result, best, loss, hypotheses, training.stale):
        say(line)
    folder.save_metrics({**folder.load_metrics(), "best": asdict(best), "last": asdict(result)})


def pictures(training: Training, sources: Sequence[str]) -> Iterator[tuple[str, "Figure"]]:
    """What each layer attends to in each of these sentences; the name of a figure goes by their number."""
    for i, (source, (translation, found)) in enumerate(zip(sources, training.attention(sources), strict=True)):
        for layer in range(training.config.n_decoder_layers):
            title = f"{source} → {translation} (layer {layer + 1}, step {training.step:,})"
            yield f"attention/{i + 1}/layer_{layer + 1}", draw(found.maps(layer), found.source, found.target, title)


def describe(training: Training) -> dict[str, Any]:
    """What is about to be trained on what, for report.overview and metrics.json."""
    config, corpus, pairs = training.config, training.corpus, training.train_pairs
    too_long = corpus.train.select(pairs.too_long)
    over_long = {"pairs": len(too_long), "examples": too_long[:2]}
    words = np.subtract(corpus.train.words(), too_long.words())

    def side(lengths: Ints, which: int) -> dict[str, Any]:
        return {
            "tokens": int((lengths - 1).sum()),  # without EOS
            "tokens per word": round(float((lengths - 1).sum()) / max(1, words[which]), 2),
            "percentiles": {str(p): int(np.percentile(lengths - 1, p)) for p in (50, 95, 99, 100)},
        }

    return {
        "data": {"name": config.data, **corpus.report, "over-long": over_long, "trained on": len(pairs)},
        "sides": {config.source: side(pairs.src_lengths, 0), config.target: side(pairs.tgt_lengths, 1)},
        "vocabulary": len(training.tokenizer),
        "batches": {
            "in an epoch": len(training.dealt),
            "tokens a side, at most": config.batch_tokens,
            "padding": round(training.padding, 4),
            "steps": training.total_steps,
        },
        "parameters": sum(parameter.numel() for parameter in training.model.parameters()),
        "hardware": device_label(training.device),
        "precision": config.precision,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }


def resolve(args: Sequence[str]) -> TrainOptions:
    """The command line as options: of the preset, or of the saved run with --resume, whose config it may extend."""
    preset, flags, options = parse_training(args)
    config = named(options.config, preset)
    if not 0 <= options.minutes < math.inf or (options.minutes and options.resume):
        raise ConfigError("--minutes must be positive, and is for a new training; with --resume, give --steps")
    if not options.resume:
        precision = choose_precision(config.precision, choose_device(config.device))
        return replace(options, config=replace(config, precision=precision))
    saved = RunFolder.find(config.name).load_config()
    options = parse(TrainOptions, flags, TrainOptions(config=saved))
    changed = changes(saved, options.config)
    if refused := [flag(name) for name in changed if name not in RESUMABLE]:
        raise ConfigError(f"{', '.join(refused)} cannot change on --resume: the run {saved.name} has another value")
    if saved.steps and "epochs" in changed:
        raise ConfigError(f"the run {saved.name} is counted in steps ({saved.steps:,}): give --steps, not --epochs")
    return options


def changes(before: Config, after: Config) -> dict[str, list[Any]]:
    """The fields that differ, with their values before and after."""
    both = [(f.name, getattr(before, f.name), getattr(after, f.name)) for f in fields(Config)]
    return {name: [old, new] for name, old, new in both if old != new}


def dealt_out(config: Config, resume: bool, group: Group) -> Config:
    """The config with a batch for every process in a step, which a run to resume must have already."""
    if config.accumulate >= group.size:
        return config
    if resume:
        raise ConfigError(
            f"the steps of the run {config.name} have {config.accumulate} batches (--accumulate), too few for "
            f"{group.size} processes\nresume it with at most {config.accumulate}"
        )
    return replace(config, accumulate=group.size)


def main(args: Sequence[str]) -> None:
    options = resolve(args)
    group = Group.join()
    folder = RunFolder(WEIGHTS / options.config.name)
    try:
        with folder.held() if group.leads and not options.dry_run else nullcontext():
            train(options, folder, group)
    except (OSError, MemoryError, RuntimeError) as error:
        what = broken_off(error, options.config, group)
        if not what:
            raise
        stays = not options.dry_run and folder.state_file.is_file()
        after = f"\nwhat was saved last stays; {go_on(options.config.name, group)}" if stays else ""
        raise BrokenOffError(what + after) from None
    finally:
        group.leave()


def broken_off(error: Exception, config: Config, group: Group) -> str:
    """In words, what ended a training from outside; nothing where it was something else."""
    if isinstance(error, OSError):
        return "" if isinstance(error, BrokenPipeError) else str(error)
    if is_out_of_memory(error):
        peak = peak_gigabytes(choose_device(config.device))
        less = f"a --batch-tokens below {config.batch_tokens:,} takes less, and --accumulate makes up for it"
        return f"out of memory, after a peak of {peak:.1f} GB: {less}"
    if group.size > 1 and any(name in str(error) for name in ("gloo", "NCCL")):  # they raise no more than RuntimeError
        return "another process of this training has ended"
    return ""


def train(options: TrainOptions, folder: RunFolder, group: Group) -> None:
    """A new training or one to resume, from its data to its test score."""
    config = dealt_out(options.config, options.resume, group)
    if folder.config_file.exists() and not (options.resume or options.overwrite or options.dry_run):
        raise ConfigError(
            f"{folder.path} holds a run already: go on with it by --resume,\n"
            "or choose another --name, or start it afresh by --overwrite"
        )
    deadline = time.perf_counter() + 60 * options.minutes if options.minutes else math.inf
    with group.one_first():
        corpus = load_corpus(config)
        tokenizer = folder.load_tokenizer() if options.resume else learn_tokenizer(corpus.train, config.vocab_size)
    training = Training(config, corpus, tokenizer, group)
    if options.resume:
        training.restore(folder.load_state())
    elif options.minutes:
        steps = group.agreed(steps_until(deadline, training))
        config = replace(config, steps=steps, warmup_steps=min(config.warmup_steps, steps // 20))
        training = Training(config, corpus, tokenizer, group)  # the steps that were measured are forgotten
    report = describe(training)
    about = overview(report)
    for line in about:
        say(line)
    if options.dry_run:
        minutes = step_seconds(training) * training.total_steps / 60
        say(f"time      about {minutes:.1f} minutes of training, and the validations")
        return
    if options.resume:
        over = ": nothing is left to train; --epochs or --steps makes it longer" if training.is_over else ""
        say(f"resumed   at step {training.step:,} of {training.total_steps:,}{over}")
    if group.leads:
        if options.resume:
            once_more = {"step": training.step, "changed": changes(folder.load_config(), config)}
            report["resumed"] = [*folder.load_metrics().get("resumed", []), once_more]
            folder.save_config(config)
        else:
            folder.start(config, training.tokenizer)
            for old in (RUNS / config.name).rglob(EVENTS):
                old.unlink()
        folder.save_metrics({**folder.load_metrics(), **report})
    logs = Logs(RUNS / config.name if group.leads else None, training.at, config.log_every)
    try:
        logs.run(config)
        logs.text("config", config.to_json())
        logs.text("data", "\n".join(about))
        with interruption() as interrupted:
            run(training, folder, logs, interrupted, deadline)
        if group.leads:
            finish(training, folder, logs)
    finally:
        logs.close()


def finish(training: Training, folder: RunFolder, logs: Logs) -> None:
    """Scores the best model on the test part, and says where everything is."""
    best, metrics = training.best, folder.load_metrics()
    if best is None:
        raise CheckpointError(f"{folder.path} has no validated model")
    metrics["seconds"] = round(training.seconds, 1)
    metrics.setdefault("batches", {})["steps"] = training.total_steps  # with --minutes, known after the half
    _, _, model = folder.load_model(training.device)
    say(f"best      step {best.step:,}: valid BLEU {best.bleu:.1f}  chrF {best.chrf:.1f}; {training.seconds:,.0f} s")
    if training.corpus.test:
        translator = Translator(model, training.tokenizer, training.config, training.device)  # as evaluate.py does it
        hypotheses = translator([source for source, _ in training.corpus.test], bar="testing")
        scores = score(hypotheses, [target for _, target in training.corpus.test], training.config.target)
        metrics["test"] = asdict(scores)
        some = zip(training.corpus.test[:5], hypotheses[:5], strict=True)
        metrics["examples"] = [[*pair, hypothesis] for pair, hypothesis in some]  # for the card of a release
        logs.test(scores.bleu, scores.chrf, training.step)
        say(f"test      {scores}")
    folder.save_metrics(metrics)
    name = training.config.name
    say(f'weights   {folder.path}; translate with: python translate.py --run {name} "…"')
    say(f"          or score it by beam search with: python evaluate.py --run {name} --beam 5")


if __name__ == "__main__":
    run_command(main)
