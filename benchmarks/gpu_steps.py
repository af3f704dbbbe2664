"""Training steps of the presets on a GPU: parts of gpu_visit.py.

    python benchmarks/gpu_steps.py times --presets base multi30k      step times by design, beside a textbook loop
    python benchmarks/gpu_steps.py profile --presets base             where the time of a step goes
    python benchmarks/gpu_steps.py memory --presets base              the peak of memory, and the largest batch

The pairs are synthetic. The variants share a process and take turns on the same batches, which are as large as the
preset's. cuDNN's attention is off for all of them, as in Tapis.
"""

import gzip
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

BEGUN = time.monotonic()  # before the imports that take seconds, which are in the time of the part
ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
import tyro  # noqa: E402
from gpu_visit import PartOptions  # noqa: E402
from measure import (  # noqa: E402
    Profile,
    alternate_while_working,
    longest_uses,
    matmul_rate,
    print_failure,
    profile_of,
    ratio,
    synchronize,
    synthetic,
)
from training_speed import CountedStep, Textbook, textbook_step  # noqa: E402

from config import PRESETS, Config  # noqa: E402
from dataset import Batch, EncodedPairs, collate  # noqa: E402
from machine.devices import DTYPES, choose_device, choose_precision, peak_gigabytes  # noqa: E402
from pairs.cleaning import RULES  # noqa: E402
from pairs.corpus import Corpus, load_corpus  # noqa: E402
from pairs.vocabulary import learn_tokenizer  # noqa: E402
from tapis.text.tokenizer import Tokenizer  # noqa: E402
from train import take_step  # noqa: E402
from training.batch_plan import BatchPlan  # noqa: E402
from training.trainer import Training  # noqa: E402


@dataclass(frozen=True)
class Options(PartOptions):
    """Measure training steps on a GPU."""

    what: Annotated[Literal["times", "profile", "memory"], tyro.conf.Positional] = "times"
    """What to measure"""
    presets: tuple[str, ...] = ("base",)
    """Presets of config.py"""


@dataclass(frozen=True)
class Effort:
    """How many steps to make."""

    warm_up: int = 5
    """Before anything is measured"""
    turn: int = 8
    """In a turn; the first one is not timed"""
    rounds: int = 5
    """Turns of each variant, at most"""
    profiled: int = 3


FULL, SMALL = Effort(), Effort(warm_up=1, turn=2, rounds=1, profiled=1)
TIMED_BATCHES = 5  # that the host makes


# The variants: each prepares a new run, which is not compiled


def as_in_long_runs(training: Training) -> None:
    """Compile, as train.py does after 200 steps of a run that takes long."""
    if training.may_compile:
        training.compile()


def not_compiled(training: Training) -> None:
    """Leave all as it is, as train.py does in short runs."""


def not_captured(training: Training) -> None:
    """Launch each kernel by itself, and compile."""
    training.captured = None
    as_in_long_runs(training)


def neither(training: Training) -> None:
    """Launch each kernel by itself."""
    training.captured = None


def neither_with_padding(training: Training) -> None:
    """Let attention take padded sentences, too."""
    training.captured = None
    training.batch_plan.in_ranges = False


DEFAULT = "Tapis"
TEXTBOOK = "torch.nn.Transformer, textbook"
VARIANTS: dict[str, Callable[[Training], None] | None] = {  # the last may lack time: compiling takes most of a minute
    "not compiled": not_compiled,
    TEXTBOOK: None,  # another model, by another loop
    "neither compiled nor captured": neither,
    "nor in ranges": neither_with_padding,
    DEFAULT: as_in_long_runs,
    "not captured": not_captured,
}


@dataclass
class ReadyVariant:
    """A variant that is ready."""

    step: CountedStep
    make_batch: Callable[[int], object]
    """What the host does to make the batch of a step, counted from 0"""
    device: torch.device
    training: Training | None = None
    """None if train.py does not take its steps"""
    n_steps: int = 0
    """Made so far"""

    def make_steps(self, n: int) -> tuple[int, float]:
        """Make the next n steps. Returns their tokens and seconds."""
        synchronize(self.device)
        begun = time.perf_counter()
        n_tokens = sum(self.step(self.n_steps + i) for i in range(n))
        synchronize(self.device)
        self.n_steps += n
        return n_tokens, time.perf_counter() - begun

    def batch_milliseconds(self) -> float:
        """Return the median time in which the host makes each of the next TIMED_BATCHES batches."""
        milliseconds = []
        for i in range(TIMED_BATCHES):
            begun = time.perf_counter()
            self.make_batch(self.n_steps + i)
            milliseconds.append(1000 * (time.perf_counter() - begun))
        return statistics.median(milliseconds)


def capture_note(training: Training | None) -> str:
    """Return what a line says of a run whose steps could not be captured; empty for others."""
    if training and training.captured and not training.captured.pool.can_capture:
        return "  its capture failed"
    fault = training.fault_of_capture if training else ""
    return f"  not captured: {fault}" if fault else ""


def ready_variant(name: str, config: Config, corpus: Corpus, tokenizer: Tokenizer) -> ReadyVariant:
    """Prepare a variant."""
    training = Training(config, corpus, tokenizer)
    device, plan, prepare = training.device, training.batch_plan, VARIANTS[name]
    if prepare:
        prepare(training)
        return ReadyVariant(
            lambda i: take_step(training, i + 1).n_tokens, lambda i: plan.make_batches(i + 1), device, training
        )

    # The textbook loop takes the same batches, with padding.
    pairs, rows = training.train_pairs, plan.batches_of_first_epoch
    model = Textbook(len(tokenizer), config).to(device).train()
    step = textbook_step(model, lambda batch: model(batch.src, batch.tgt), config, device)

    def batch_of(i: int) -> Batch:
        random = np.random.default_rng((1, i))
        return collate(*pairs.ids(rows[i % len(rows)], random, subword_dropout=config.subword_dropout))

    def counted_step(i: int) -> int:
        batch = batch_of(i)
        step(batch)
        return batch.n_tokens

    return ReadyVariant(counted_step, batch_of, device)


# The workload


@contextmanager
def preset_workload(name: str, options: Options) -> Iterator[tuple[Config, Corpus, Tokenizer]]:
    """While entered: the config of a preset, long enough to be compiled, synthetic pairs, their tokenizer.

    The pairs for multi30k are as long as captions. Those for the other presets have 25 words a side, of so many
    different ones that the vocabulary has the preset's size. So few pairs are cleaned by one process.
    """
    config = replace(PRESETS[name], skip_rules=tuple(RULES), steps=100_000, device=options.device)
    config = replace(config, precision=choose_precision("auto", choose_device(config.device)))
    n_pairs, mean_length, n_words = (19_000, 13, 12_000) if name == "multi30k" else (19_000, 25, 60_000)
    if options.simulate:
        n_pairs, mean_length, n_words = 200, 5, 300
        config = replace(config, d_model=32, n_heads=4, d_ff=64, n_encoder_layers=1, n_decoder_layers=1)
        config = replace(config, vocab_size=400, batch_tokens=512, max_length=100)
    with synthetic(n_pairs, mean_length, n_words) as file:
        config = replace(config, data=(file,))
        corpus = load_corpus(config)
        yield config, corpus, learn_tokenizer(corpus.train, config.vocab_size)


def flops_of_epoch(config: Config, vocab_size: int, pairs: EncodedPairs) -> float:
    """Return the FLOP of the matrix products that train on all pairs once, forward and backward, without padding.

    The products of attention count in full, also where the future is masked.
    """
    src, tgt = (lengths.astype(np.float64) for lengths in (pairs.src_lengths, pairs.tgt_lengths))  # with the end token
    square, feed_forward = config.d_model**2, 2 * config.d_model * config.d_ff

    # Products with weights: each token takes part in one multiplication and one addition for each weight.
    encoder = config.n_encoder_layers * (4 * square + feed_forward) * src.sum()
    decoder = config.n_decoder_layers * ((6 * square + feed_forward) * tgt.sum() + 2 * square * src.sum())
    projection = config.d_model * vocab_size * tgt.sum()

    # Attention multiplies queries by keys, and weights by values.
    scores = config.n_encoder_layers * src @ src + config.n_decoder_layers * (tgt @ tgt + tgt @ src)

    forward = 2 * (encoder + decoder + projection) + 4 * config.d_model * scores
    return float(3 * forward)  # backward has two products for each of these


def print_workload(name: str, config: Config, corpus: Corpus, tokenizer: Tokenizer) -> float:
    """Describe the workload of a preset. Returns the FLOP of a token."""
    training = Training(config, corpus, tokenizer)
    pairs = training.train_pairs
    n_parameters = sum(parameter.numel() for parameter in training.model.parameters())
    n_tokens = int(pairs.src_lengths.sum() + pairs.tgt_lengths.sum())
    flops_per_token = flops_of_epoch(config, len(tokenizer), pairs) / n_tokens
    print(
        f"{name}: {n_parameters:,} parameters, vocabulary {len(tokenizer):,}, {config.precision}, "
        f"{n_tokens / training.batches_per_epoch:,.0f} tokens a step, {training.padding_share:.1%} padding, "
        f"{flops_per_token / 1e9:.3f} GFLOP a token",
        flush=True,
    )
    return flops_per_token


# The parts


def step_times(name: str, options: Options, until: float) -> bool:
    """Print the step times of a preset's variants. Returns whether none failed.

    No variant is started after 60 % of the time until `until`, and no further round after 90 %.
    """
    effort = SMALL if options.simulate else FULL
    begun = time.monotonic()

    def share_of_time() -> float:
        return (time.monotonic() - begun) / (until - begun)

    with preset_workload(name, options) as (config, corpus, tokenizer):
        device = choose_device(config.device)
        flops_per_token = print_workload(name, config, corpus, tokenizer)

        # Start the variants, and print at once how that went.
        contenders: dict[str, ReadyVariant] = {}
        failed = False
        for variant in VARIANTS:
            if share_of_time() > 0.6:
                print(f"    {variant}: not started, for lack of time", flush=True)
                continue
            variant_begun = time.perf_counter()
            try:
                made = ready_variant(variant, config, corpus, tokenizer)
                _, warm_up = made.make_steps(effort.warm_up)
                ready = time.perf_counter() - variant_begun
                n_tokens, seconds = made.make_steps(effort.turn)
            except Exception as error:  # of the compiler, of memory, of anything
                print_failure(variant, error)
                failed = True
                continue
            contenders[variant] = made
            print(
                f"    {variant}: ready in {ready:.1f} s, of which {warm_up:.1f} s for {effort.warm_up} steps; "
                f"then {1000 * seconds / effort.turn:.1f} ms a step, {n_tokens / seconds:,.0f} tokens/s",
                flush=True,
            )
        if not contenders:
            return False

        # Let them take turns. One that fails is left out of the tables.
        milliseconds: dict[str, list[float]] = {variant: [] for variant in contenders}
        speeds: dict[str, list[float]] = {variant: [] for variant in contenders}
        rates: list[float] = []

        def turn(variant: str) -> float:
            contenders[variant].make_steps(1)
            n_tokens, seconds = contenders[variant].make_steps(effort.turn - 1)
            milliseconds[variant].append(1000 * seconds / (effort.turn - 1))
            return n_tokens / seconds

        turns: dict[str, Callable[[], float]] = {variant: partial(turn, variant) for variant in contenders}
        while turns and (not rates or (len(rates) < effort.rounds and share_of_time() < 0.9)):
            for variant, values in alternate_while_working(turns, 1).items():
                speeds[variant] += values
            for variant in contenders.keys() - turns.keys():
                del contenders[variant], speeds[variant]
                failed = True
            rates.append(matmul_rate(device, DTYPES[config.precision]))
        if not contenders:
            return False

        # Print the times, and then what the host does.
        rate = statistics.median(rates)
        reference = speeds.get(DEFAULT) or next(iter(speeds.values()))
        print(
            f"{name}: medians of {len(rates)} rounds of {effort.turn - 1} steps; "
            f"{config.precision} products reach {rate / 1e12:,.1f} TFLOP/s\n"
            f"    {'':<32} {'ms':>8} {'tokens/s':>11} {'Tapis is':>9} {'of that rate':>13}"
        )
        for variant, values in speeds.items():
            speed = statistics.median(values)
            print(
                f"    {variant:<32} {statistics.median(milliseconds[variant]):>8.2f} {speed:>11,.0f} "
                f"{ratio(reference, values):>8.2f}× {speed * flops_per_token / rate:>13.1%}"
                f"{capture_note(contenders[variant].training)}",
                flush=True,
            )
        print(f"    {'in a step':<32} {'kernels':>8} {'launches':>9} {'waits':>6} {'to make its batch':>19}")
        for variant, made in contenders.items():
            profiled = profile_of(partial(made.make_steps, 1), device, effort.profiled)
            print(
                f"    {variant:<32} {profiled.n_kernels:>8,.0f} {profiled.launches:>9,.0f} {profiled.waits:>6,.1f} "
                f"{made.batch_milliseconds():>16.2f} ms",
                flush=True,
            )
    return not failed


def print_profile(name: str, options: Options) -> None:
    """Print where the time of a preset's step goes, on the GPU and on the host, and write the trace of a step."""
    effort = SMALL if options.simulate else FULL
    with preset_workload(name, options) as (config, corpus, tokenizer):
        tapis = ready_variant(DEFAULT, config, corpus, tokenizer)
        tapis.make_steps(effort.warm_up)
        _, seconds = tapis.make_steps(effort.turn)
        profiled = profile_of(partial(tapis.make_steps, 1), tapis.device, effort.profiled)

        step, busy = 1000 * seconds / effort.turn, 1000 * profiled.kernel_seconds
        print(
            f"{name}: a step takes {step:.2f} ms (mean of {effort.turn}, without profiler); its "
            f"{profiled.n_kernels:,.0f} kernels take {busy:.2f} ms, {busy / step:.1%} of it; "
            f"{profiled.launches:,.0f} launches, {profiled.waits:,.1f} waits{capture_note(tapis.training)}\n"
            f"    {'ms':>8} {'calls':>7}  kernel"
        )
        for kernel, use in longest_uses(profiled.kernels, 25):
            print(f"    {1000 * use.seconds:>8.3f} {use.calls:>7,.1f}  {kernel[:110]}")
        print(f"    {'ms':>8} {'calls':>7}  operation of the host, by its own time, under the profiler")
        for operation, use in longest_uses(profiled.host, 20):
            print(f"    {1000 * use.seconds:>8.3f} {use.calls:>7,.1f}  {operation[:110]}", flush=True)
        one_step = profile_of(partial(tapis.make_steps, 1), tapis.device, 1)
        write_trace(one_step, options.out / f"{name}.trace.json.gz")


def write_trace(profiled: Profile, file: Path) -> None:
    """Write a trace for chrome://tracing or ui.perfetto.dev, unless it has more than 10 MB."""
    file.parent.mkdir(parents=True, exist_ok=True)
    plain = file.with_suffix("")
    profiled.trace.export_chrome_trace(str(plain))
    compressed = gzip.compress(plain.read_bytes())
    plain.unlink()
    if len(compressed) < 10e6:
        file.write_bytes(compressed)
    print(f"    trace of a step: {len(compressed) / 1e6:.2f} MB{'' if file.exists() else ', too large to keep'}\n")


def print_memory(name: str, options: Options, until: float) -> None:
    """Print the peak memory of a preset's step, with batches that double until one does not fit."""
    with preset_workload(name, options) as (config, corpus, tokenizer):
        training = Training(config, corpus, tokenizer)
        as_in_long_runs(training)
        pairs, step = training.train_pairs, 1
        most = int(max(pairs.src_lengths.sum(), pairs.tgt_lengths.sum()))
        print(
            f"{name}: peak of memory\n    {'batch tokens':>12} {'GB':>8} {'reserved':>8} {'tokens/s':>11}", flush=True
        )
        batch_tokens = config.batch_tokens
        while batch_tokens <= most and time.monotonic() < until - 10:
            training.batch_plan = BatchPlan(
                replace(config, batch_tokens=batch_tokens),
                pairs,
                training.origin_weights,
                training.group,
                in_ranges=training.batch_plan.in_ranges,
            )
            if training.captured:
                training.captured.begin_anew()  # without the graphs of smaller batches
            if training.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(training.device)
            try:
                for number in (step, step, step + 1):  # the second is captured; the third often has another shape
                    take_step(training, number)
                synchronize(training.device)
                begun = time.perf_counter()
                n_tokens = take_step(training, step).n_tokens
                synchronize(training.device)
            except torch.OutOfMemoryError:
                print(f"    {batch_tokens:>12,}   does not fit", flush=True)
                return
            speed = n_tokens / (time.perf_counter() - begun)
            reserved = peak_gigabytes(training.device)
            peak = torch.cuda.max_memory_allocated() / 1e9 if training.device.type == "cuda" else reserved
            print(
                f"    {batch_tokens:>12,} {peak:>8.2f} {reserved:>8.2f} {speed:>11,.0f}{capture_note(training)}",
                flush=True,
            )
            batch_tokens, step = 2 * batch_tokens, step + 1
        print(f"    {batch_tokens:,} not tried: the pairs have {most:,} tokens a side, or time is short")


def main() -> None:
    options = tyro.cli(Options)
    succeeded = True
    for i, name in enumerate(options.presets):
        until = BEGUN + options.seconds * (i + 1) / len(options.presets)
        if options.what == "times":
            succeeded &= step_times(name, options, until)
        elif options.what == "profile":
            if i and time.monotonic() - BEGUN > 0.6 * options.seconds:
                print(f"{name}: not profiled, for lack of time", flush=True)
                continue
            print_profile(name, options)
        else:
            print_memory(name, options, until)
    sys.exit(not succeeded)


if __name__ == "__main__":
    main()
