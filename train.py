"""Trains a Transformer to translate: the loop, validation and resuming; and the command.

    python train.py                     novels, English to French, from the hub
    python train.py demo                the built-in corpus, about a minute
    python train.py --data FOLDER --source de --target en --name NAME
    python train.py --resume --name NAME

`main` gets the pairs, the tokenizer and the run folder ready; `Training.run` is the loop. A step is one update of the
weights. What happens at a step is a pure function of the config, the data and the step's number: the batch order of
seed and epoch, dropout of seed and step. Resuming therefore needs the weights, the optimizers' moments and that number.
"""

import math
import platform
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from importlib.metadata import version
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.nn.utils import clip_grad_norm_
from tqdm import tqdm

from checkpoint import RUNS, WEIGHTS, CheckpointError, RunFolder, load_parameters, parameters
from config import (
    PRESETS,
    RESUMABLE,
    Config,
    ConfigError,
    TapisError,
    TrainOptions,
    flag,
    named,
    parse,
    run_command,
    take_preset,
)
from corpus import Corpus, load_corpus
from dataset import Batch, EncodedPairs, batches, padding_share
from evaluate import score
from hardware import autocast, choose_device, choose_precision, device_label, keep_freed_memory
from model import Transformer
from objective import batch_loss, learning_rate, optimizers
from readers import DataError
from report import EVENTS, Logs, StepLog, Validation, overview, perplexity, say, tokens_per_second, warnings
from store import Ints, cache_file, digest, write_whole
from tokenizer import WORDS, Tokenizer
from translate import Translator


class TrainingError(TapisError):
    """The training cannot go on, and what to do about it."""


class StoppedError(TapisError):
    """The user, or the system, ended the training; it can be resumed."""

    exit_code = 130


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
        say("ending after this step; once more to end at once")

    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Training:
    """One run: its data in tokens, its model and optimizers, and where it is."""

    def __init__(self, config: Config, corpus: Corpus, tokenizer: Tokenizer) -> None:
        self.config, self.corpus, self.tokenizer = config, corpus, tokenizer
        self.device = choose_device(config.device)
        self.train_pairs = EncodedPairs(corpus.train, tokenizer, config.max_length)
        self.valid_pairs = EncodedPairs(corpus.valid, tokenizer)
        self.valid_texts = list(corpus.valid)  # asked for at every validation, and scattered over a large table
        if not len(self.train_pairs):
            raise DataError(
                f"all {len(corpus.train):,} training pairs are longer than --max-length {config.max_length}"
            )
        keep_freed_memory()  # not sooner: what preparing the data took goes back
        torch.manual_seed(config.seed)
        self.model = Transformer(len(tokenizer), config).to(self.device)
        self.optimizers = optimizers(self.model, config)
        self.epoch, self.dealt = 0, batches(self.train_pairs, config.batch_tokens, config.seed, epoch=0)
        self.padding = padding_share(self.train_pairs, self.dealt)
        self.steps_per_epoch = math.ceil(len(self.dealt) / config.accumulate)
        self.total_steps = config.steps or config.epochs * self.steps_per_epoch
        self.step = 0
        self.seconds = 0.0
        self.best: Validation | None = None
        self.stale = 0  # validations since the best

    @property
    def is_over(self) -> bool:
        """All steps are done, or patience is at its end."""
        return self.step >= self.total_steps or 0 < self.config.patience <= self.stale

    def step_batches(self, step: int) -> list[Batch]:
        """The batches of a step, counted from 1, on the CPU."""
        epoch, place = divmod(step - 1, self.steps_per_epoch)
        if epoch != self.epoch:
            self.epoch = epoch
            self.dealt = batches(self.train_pairs, self.config.batch_tokens, self.config.seed, epoch)
        n, split = self.config.accumulate, self.config.subword_dropout
        random = np.random.default_rng((self.config.seed, step))
        return [self.train_pairs.batch(rows, split, random) for rows in self.dealt[place * n : (place + 1) * n]]

    def update(self, step: int) -> StepLog:
        """One step, counted from 1: the gradient of its batches' mean loss, clipped, and the optimizers."""
        start, config = time.perf_counter(), self.config
        self.model.train()
        torch.manual_seed(int(np.random.SeedSequence((config.seed, step)).generate_state(1)[0]))
        parts = self.step_batches(step)
        n_tgt = sum(part.n_tgt for part in parts)
        loss, plain = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        for part in parts:
            with autocast(self.device, config.precision):
                part_loss, part_plain = batch_loss(self.model, part.to(self.device), config.label_smoothing)
            (part_loss / n_tgt).backward()  # type: ignore[no-untyped-call]
            loss += part_loss.detach()
            plain += part_plain
        norm = float(clip_grad_norm_(self.model.parameters(), config.clip_norm or math.inf))  # a CPU-GPU sync point
        if not math.isfinite(norm + loss.item()):
            epoch, place = divmod(step - 1, self.steps_per_epoch)
            raise TrainingError(
                f"the loss or gradient of step {step:,} (epoch {epoch + 1}, batch {place * config.accumulate + 1}) is "
                "not finite; the weights are left as they were\n"
                "try a lower --lr, a longer --warmup-steps, or --precision fp32"
            )
        lr = learning_rate(step, self.total_steps, config)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr
            optimizer.step()
            optimizer.zero_grad()
        n_tokens = sum(part.n_tokens for part in parts)
        return StepLog(step, loss.item(), plain.item(), norm, lr, n_tgt, n_tokens, time.perf_counter() - start)

    @torch.no_grad()
    def validate(self) -> tuple[Validation, list[str]]:
        """Scores the model on the whole validation part, and translates it."""
        self.model.eval()
        loss, plain, n_tgt = 0.0, 0.0, 0
        for rows in batches(self.valid_pairs, max(self.config.batch_tokens, 4096), seed=0, epoch=0):
            batch = self.valid_pairs.batch(rows)
            with autocast(self.device, self.config.precision):
                part_loss, part_plain = batch_loss(self.model, batch.to(self.device), self.config.label_smoothing)
            loss, plain, n_tgt = loss + part_loss.item(), plain + part_plain.item(), n_tgt + batch.n_tgt
        hypotheses = self.translator(self.model)([source for source, _ in self.valid_texts])
        scores = score(hypotheses, [target for _, target in self.valid_texts], self.config.target)
        return Validation(self.step, loss / n_tgt, perplexity(plain, n_tgt), scores.bleu, scores.chrf), hypotheses

    def translator(self, model: Transformer) -> Translator:
        return Translator(model, self.tokenizer, self.config, self.device)

    def run(self, folder: RunFolder, about: Sequence[str], interrupted: Sequence[int]) -> None:
        """The loop, from self.step to the last step. Raises StoppedError once interrupted, with all of it saved.

        about: the lines on the data, for TensorBoard.
        """
        config = self.config
        logs = Logs(RUNS / config.name, self.step, config.log_every)
        logs.text("config", config.to_json())
        logs.text("data", "\n".join(about))
        say(f"logs      {logs.folder.resolve()}; watch with: tensorboard --logdir {RUNS.resolve()}")
        bar = tqdm(total=self.total_steps, initial=self.step, unit="step", disable=None, dynamic_ncols=True)
        window: list[StepLog] = []  # the steps since the last validation
        valid_every = config.valid_every or self.steps_per_epoch
        started, first = time.perf_counter(), self.step + 1
        try:
            while not self.is_over:
                window.append(self.update(self.step + 1))
                self.step += 1
                if self.step == first + 11:  # the first steps warm up
                    minutes = (
                        float(np.mean([log.seconds for log in window[-10:]])) * (self.total_steps - self.step) / 60
                    )
                    say(f"time      about {minutes:.1f} minutes of steps to come, and the validations")
                logs.steps(window, self.padding)
                bar.set_postfix(
                    loss=f"{window[-1].loss / window[-1].n_tgt:.3f}",
                    tokens_s=f"{tokens_per_second(window[-20:]):,.0f}",
                    refresh=False,
                )
                bar.update()
                if self.step % valid_every == 0 or self.step == self.total_steps:
                    self.keep(folder, logs, window)
                    window = []
                elif time.perf_counter() - started < 60 * config.save_minutes and not interrupted:
                    continue
                self.seconds += time.perf_counter() - started
                started = time.perf_counter()
                folder.save_state(self.state())
                if interrupted and not self.is_over:
                    raise StoppedError(
                        f"stopped and saved at step {self.step:,} of {self.total_steps:,}\n"
                        f"go on with: python train.py --resume --name {config.name}"
                    )
        finally:
            bar.close()
            logs.close()

    def keep(self, folder: RunFolder, logs: Logs, window: Sequence[StepLog]) -> None:
        """Validates the weights, and keeps them where they are the best yet."""
        result, hypotheses = self.validate()
        rows = [(*pair, hypothesis) for pair, hypothesis in zip(self.valid_texts, hypotheses, strict=True)]
        logs.validation(result, rows)
        loss = sum(log.loss for log in window) / sum(log.n_tgt for log in window)
        say(
            f"epoch {self.step / self.steps_per_epoch:.3g}/{self.total_steps / self.steps_per_epoch:.3g}  "
            f"step {self.step:,}  "
            f"train loss {loss:.3f}  valid loss {result.loss:.3f}  perplexity {result.perplexity:.2f}  "
            f"BLEU {result.bleu:.1f}  chrF {result.chrf:.1f}  {tokens_per_second(window):,.0f} tokens/s"
        )
        say(f"    {rows[0][0]} → {rows[0][2]}")
        self.stale += 1
        if self.best is None or result.rank() > self.best.rank():
            self.best, self.stale = result, 0
            folder.save_model(parameters(self.model))
        for line in warnings(result, self.best, loss, hypotheses, self.stale):
            say(line)
        folder.save_metrics({**folder.load_metrics(), "best": asdict(self.best), "last": asdict(result)})

    def state(self) -> dict[str, Any]:
        """Everything that `restore` needs, in what `torch.load(weights_only=True)` can read."""
        return {
            "step": self.step,
            "seconds": self.seconds,
            "best": asdict(self.best) if self.best else None,
            "stale": self.stale,
            "model": parameters(self.model),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """The inverse of `state`. Raises CheckpointError where it is another run's."""
        try:
            load_parameters(self.model, state["model"], "the training state")
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
            self.step, self.seconds, self.stale = int(state["step"]), float(state["seconds"]), int(state["stale"])
            self.best = Validation(**state["best"]) if state["best"] else None
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the training state does not fit this run ({error}): start afresh") from None


def describe(training: Training) -> dict[str, Any]:
    """What is about to be trained on what, for report.overview and metrics.json."""
    config, corpus, pairs = training.config, training.corpus, training.train_pairs
    too_long = corpus.train.select(pairs.too_long)
    words = np.subtract(corpus.train.words(), too_long.words())

    def side(lengths: Ints, which: int) -> dict[str, Any]:
        return {
            "tokens": int((lengths - 1).sum()),  # without EOS
            "tokens per word": round(float((lengths - 1).sum()) / max(1, words[which]), 2),
            "percentiles": {str(p): int(np.percentile(lengths - 1, p)) for p in (50, 95, 99, 100)},
        }

    return {
        "data": {
            "name": config.data,
            **corpus.report,
            "over-long": {"pairs": len(too_long), "examples": too_long[:2]},
            "trained on": len(pairs),
        },
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
        "versions": {
            "python": platform.python_version(),
            **{
                package: version(package)
                for package in ("torch", "tokenizers", "datasets", "torchmetrics", "sacrebleu")
            },
        },
    }


def trained_tokenizer(corpus: Corpus, vocab_size: int) -> Tokenizer:
    """A tokenizer of the training pairs, kept with the other things that are prepared once."""
    path = cache_file("tokenizer", digest(corpus.train.key, vocab_size, WORDS, version("tokenizers")), ".json")
    if not path.is_file():
        tokenizer = Tokenizer.train((side for pair in corpus.train for side in pair), vocab_size)
        write_whole(path, lambda temporary: temporary.write_text(tokenizer.to_json(), encoding="utf-8"))
    return Tokenizer.load(path)


def step_seconds(training: Training, steps: int = 10) -> float:
    """The mean time of so many steps, spread over the epoch, after two to warm up. The training is of no use then."""
    chosen = np.linspace(1, training.steps_per_epoch, steps + 2).astype(int).tolist()
    return float(np.mean([training.update(step).seconds for step in chosen][2:]))


def steps_within(seconds: float, training: Training) -> int:
    """How many steps, with their validations and the scoring of the test part, take so many seconds on this machine.

    To score a pair, loss and translation, is taken to cost as much as to train on two.
    """
    start, config = time.perf_counter(), training.config
    per_step = step_seconds(training, steps=30)
    seconds = 0.95 * (seconds - (time.perf_counter() - start))  # a whole training was 9 % slower than its first steps
    per_pair = 2 * per_step * training.steps_per_epoch / len(training.train_pairs)
    scored = per_pair * len(training.valid_pairs) / (config.valid_every or training.steps_per_epoch)
    return max(1, int((seconds - per_pair * len(training.corpus.test)) / (per_step + scored)))


def resolve(args: Sequence[str]) -> TrainOptions:
    """The command line as options: of the preset, or of the saved run with --resume, whose config it may extend."""
    preset, flags = take_preset(args)
    text = f"Train a Transformer to translate. Presets, named before the flags: {', '.join(PRESETS)}."
    options = parse(TrainOptions, text, flags, TrainOptions(config=PRESETS[preset]))
    config = named(options.config, preset)
    if not 0 <= options.minutes < math.inf or (options.minutes and options.resume):
        raise ConfigError("--minutes must be positive, and is for a new training; with --resume, give --steps")
    if not options.resume:
        precision = choose_precision(config.precision, choose_device(config.device))
        return replace(options, config=replace(config, precision=precision))
    saved = RunFolder.find(config.name).load_config()
    options = parse(TrainOptions, text, flags, TrainOptions(config=saved))
    changed = [f.name for f in fields(Config) if getattr(options.config, f.name) != getattr(saved, f.name)]
    if refused := [flag(name) for name in changed if name not in RESUMABLE]:
        raise ConfigError(f"{', '.join(refused)} cannot change on --resume: the run {saved.name} has another value")
    if saved.steps and "epochs" in changed:
        raise ConfigError(
            f"the run {saved.name} is counted in steps, {saved.steps:,} of them: give --steps, not --epochs"
        )
    return options


def main(args: Sequence[str]) -> None:
    options = resolve(args)
    config = options.config
    folder = RunFolder(WEIGHTS / config.name)
    if folder.config_file.exists() and not (options.resume or options.overwrite or options.dry_run):
        raise ConfigError(
            f"{folder.path} holds a run already: go on with it by --resume,\n"
            "or choose another --name, or start it afresh by --overwrite"
        )
    started = time.perf_counter()
    corpus = load_corpus(config)
    if options.resume:
        training = Training(config, corpus, folder.load_tokenizer())
        training.restore(folder.load_state())
    else:
        training = Training(config, corpus, trained_tokenizer(corpus, config.vocab_size))
        if options.minutes:
            left = 60 * options.minutes - (time.perf_counter() - started)
            config = replace(config, steps=steps_within(left, training))
            training = Training(config, corpus, training.tokenizer)  # the steps that were measured are forgotten
    report = describe(training)
    about = overview(report)
    for line in about:
        say(line)
    if options.dry_run:
        minutes = step_seconds(training) * training.total_steps / 60
        say(f"time      about {minutes:.1f} minutes of training, and the validations")
        return
    if options.resume:
        folder.save_config(config)
        say(f"resumed   at step {training.step:,} of {training.total_steps:,}")
    else:
        folder.start(config, training.tokenizer)
        for old in (RUNS / config.name).glob(EVENTS):
            old.unlink()
    folder.save_metrics({**folder.load_metrics(), **report})
    with interruption() as interrupted:
        training.run(folder, about, interrupted)
    finish(training, folder)


def finish(training: Training, folder: RunFolder) -> None:
    """Scores the best model on the test part, and says where everything is."""
    best, metrics = training.best, folder.load_metrics()
    if best is None:
        raise CheckpointError(f"{folder.path} has no validated model")
    metrics["seconds"] = round(training.seconds, 1)
    _, _, model = folder.load_model(training.device)
    say(f"best      step {best.step:,}: valid BLEU {best.bleu:.1f}  chrF {best.chrf:.1f}; {training.seconds:,.0f} s")
    if training.corpus.test:
        hypotheses = training.translator(model)([source for source, _ in training.corpus.test])
        scores = score(hypotheses, [target for _, target in training.corpus.test], training.config.target)
        metrics["test"] = asdict(scores)
        say(f"test      {scores}")
    folder.save_metrics(metrics)
    say(f'weights   {folder.path}; translate with: python translate.py --run {training.config.name} "…"')


if __name__ == "__main__":
    run_command(main)
