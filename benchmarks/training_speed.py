"""Training speed: a training step of Tapis beside a textbook loop and MarianMT.

    python benchmarks/training_speed.py                                        synthetic pairs, as long as captions
    python benchmarks/training_speed.py --data FOLDER --source en --target fr  real pairs

The contenders take turns, each in a process of its own; on a GPU, in one process, where they start sooner. All train
models of the same sizes, with dropout, label smoothing, clipping, Adam and the same precision. Tokens are source and
target tokens without padding.

- "Tapis" is `train.take_step`. On a GPU its parts are compiled, as in a run of more than five minutes, and attention
  works without padding, if it can. "Tapis, not compiled" and "Tapis, with padding" leave out one of these.
- "Tapis, --plain" computes with the formulas of model.py alone. The difference is what fast/ is worth.
- "torch.nn.Transformer" is a loop as in tutorials, with cross-entropy over all positions. It gets the batches of Tapis.
- "the same, with Tapis's memory settings" also has the settings of fast/memory.py, for the allocator and oneDNN.
- "MarianMT" is Hugging Face's, if `transformers` is installed. Its batches have as many sentences as those of Tapis, in
  random order, padded to the longest, as its users make them.

The last column is the share of the rate of matrix products that a contender reaches, padding included.
"""

import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import cast

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
import tyro  # noqa: E402
from measure import (  # noqa: E402
    Contender,
    LocalContender,
    Workload,
    alternate,
    longest_uses,
    matmul_rate,
    profile_of,
    ratio,
    synchronize,
)
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from config import Config  # noqa: E402
from dataset import Batch, collate  # noqa: E402
from fast.memory import bound_caches, keep_freed_memory  # noqa: E402
from machine.devices import DTYPES, autocast, choose_device, choose_precision, device_label  # noqa: E402
from model import PositionalEncoding, Transformer  # noqa: E402
from pairs.corpus import load_corpus  # noqa: E402
from pairs.vocabulary import learn_tokenizer  # noqa: E402
from tapis.config import PAD, Precision  # noqa: E402
from train import take_step  # noqa: E402
from training.trainer import Training  # noqa: E402

ComputeLogits = Callable[[Batch], Tensor]
CountedStep = Callable[[int], int]  # the number of a batch, from 0 → its tokens, after a step on it

TAPIS, PLAIN = "Tapis", "Tapis, --plain"
NOT_COMPILED, PADDED = "Tapis, not compiled", "Tapis, with padding"  # on a GPU
TEXTBOOK = "torch.nn.Transformer, batches of Tapis"
TEXTBOOK_WITH_MEMORY = "the same, with Tapis's memory settings"
MARIAN = "MarianMT, random order, dynamic padding"

STEPS = 4  # of a turn; the first one is not timed, so that caches and the allocator settle


@dataclass(frozen=True)
class Options(Workload):
    """Time training steps of Tapis and of others."""

    batch_tokens: int = 4096
    """Maximum size of a batch: sentences times the length of the longest side, in tokens"""
    rounds: int = 3
    """Turns of each contender"""
    precision: Precision = "auto"
    """Precision of matrix products"""
    subword_dropout: float = 0.0
    """Share of tokens to split, as for train.py; splitting makes the sentences of a batch differ in length"""


# The contenders


class Textbook(nn.Module):
    """A translator around `torch.nn.Transformer`, as tutorials write it, with tied embeddings."""

    def __init__(self, vocab_size: int, config: Config) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, config.d_model, padding_idx=PAD)
        self.position = PositionalEncoding(config.d_model, config.max_length + 2, 0.0)
        self.dropout = nn.Dropout(config.dropout)
        self.transformer = nn.Transformer(
            config.d_model,
            config.n_heads,
            config.n_encoder_layers,
            config.n_decoder_layers,
            config.d_ff,
            config.dropout,
            batch_first=True,
        )
        self.generator = nn.Linear(config.d_model, vocab_size, bias=False)
        self.generator.weight = self.embedding.weight

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """src (B, S), tgt (B, T) → logits (B, T, V)."""
        # In torch's masks, True means "may not attend".
        tgt_mask = torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool, device=tgt.device).triu(1)
        scale = self.embedding.embedding_dim**0.5
        vectors = self.transformer(
            self.dropout(self.position(self.embedding(src) * scale)),
            self.dropout(self.position(self.embedding(tgt) * scale)),
            tgt_mask=tgt_mask,
            src_key_padding_mask=src == PAD,
            tgt_key_padding_mask=tgt == PAD,
            memory_key_padding_mask=src == PAD,
            tgt_is_causal=True,
        )
        logits: Tensor = self.generator(vectors)
        return logits


def marian(vocab_size: int, config: Config) -> nn.Module | None:
    """Return a MarianMT of the same sizes. None if `transformers` is not installed."""
    try:
        from transformers import MarianConfig, MarianMTModel  # noqa: PLC0415
    except ImportError:
        return None
    model: nn.Module = MarianMTModel(
        MarianConfig(
            vocab_size=vocab_size,
            d_model=config.d_model,
            encoder_layers=config.n_encoder_layers,
            decoder_layers=config.n_decoder_layers,
            encoder_attention_heads=config.n_heads,
            decoder_attention_heads=config.n_heads,
            encoder_ffn_dim=config.d_ff,
            decoder_ffn_dim=config.d_ff,
            dropout=config.dropout,
            max_position_embeddings=512,
            scale_embedding=True,
            pad_token_id=PAD,
            decoder_start_token_id=PAD,
            use_cache=False,
        )
    )
    return model


class RandomBatches:
    """Batches of sentences in random order, with as many sentences as those of Tapis have on average."""

    def __init__(self, training: Training) -> None:
        self.pairs = training.train_pairs
        self.subword_dropout = training.config.subword_dropout
        self.rows = np.random.default_rng(1).permutation(len(self.pairs))
        self.n_sentences = len(self.rows) // training.batches_per_epoch

    def __call__(self, i: int) -> Batch:
        start = i * self.n_sentences % (len(self.rows) - self.n_sentences)
        rows = self.rows[start : start + self.n_sentences]
        random = np.random.default_rng((1, i))
        return collate(*self.pairs.ids(rows, random, subword_dropout=self.subword_dropout))


def textbook_step(
    model: nn.Module, compute_logits: ComputeLogits, config: Config, device: torch.device
) -> Callable[[Batch], None]:
    """Return one training step as tutorials write it."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step(batch: Batch) -> None:
        batch = batch.to(device)
        optimizer.zero_grad()
        with autocast(device, config.precision):
            loss = F.cross_entropy(
                compute_logits(batch).flatten(0, 1),
                batch.labels.flatten(),
                ignore_index=PAD,
                label_smoothing=config.label_smoothing,
            )
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
        optimizer.step()
        loss.item()  # waits for a GPU, as a loop that logs the loss does

    return step


def plain_batch(training: Training, i: int) -> Batch:
    """Return the batch number i of Tapis, from 0, not packed."""
    ((_, batch),) = training.batch_plan.batches_of(step=i + 1)
    return cast(Batch, batch)


def counted_step(name: str, training: Training) -> CountedStep:
    """Return the step of a contender on the numbered batches of a run."""
    config, device, vocab_size = training.config, training.device, len(training.tokenizer)
    if name in (TAPIS, PLAIN, NOT_COMPILED, PADDED):
        return lambda i: take_step(training, i + 1).n_tokens

    # The other contenders differ in the model and the batches.
    model: nn.Module
    batch_of: Callable[[int], Batch]
    if name == MARIAN:
        model = cast(nn.Module, marian(vocab_size, config))
        batch_of = RandomBatches(training)

        def compute_logits(batch: Batch) -> Tensor:
            mask = (batch.src != PAD).long()
            return cast(Tensor, model(input_ids=batch.src, attention_mask=mask, decoder_input_ids=batch.tgt).logits)

    else:
        model = Textbook(vocab_size, config)
        batch_of = partial(plain_batch, training)

        def compute_logits(batch: Batch) -> Tensor:
            return cast(Tensor, model(batch.src, batch.tgt))

    step = textbook_step(model.to(device).train(), compute_logits, config, device)

    def update(i: int) -> int:
        batch = batch_of(i)
        step(batch)
        return batch.n_tokens

    return update


def contender(name: str, config: Config) -> Callable[[int, int], tuple[int, float]]:
    """Return the turn of a contender: (number of its first batch, steps) → its tokens, and the FLOP of a token."""
    if name == TEXTBOOK_WITH_MEMORY:
        bound_caches()
        keep_freed_memory()
    if name not in (TAPIS, NOT_COMPILED, PADDED):
        config = replace(config, plain=True)  # without fast modules and memory settings, and with plain batches
    corpus = load_corpus(config)
    training = Training(config, corpus, learn_tokenizer(corpus.train, config.vocab_size))
    if name == PADDED:
        training.batch_plan.in_ranges = False
    step = counted_step(name, training)
    flops = flops_per_token(step)
    if training.device.type == "cuda" and name in (TAPIS, PADDED):
        training.compile()

    def turn(first_batch: int, n_steps: int) -> tuple[int, float]:
        n_tokens = sum(step(first_batch + i) for i in range(n_steps))
        synchronize(training.device)
        return n_tokens, flops

    return turn


def flops_per_token(step: CountedStep) -> float:
    """Return the FLOP of a step's matrix products, forward and backward, padding included, divided by its tokens."""
    with FlopCounterMode(display=False) as counter:
        n_tokens = step(0)
    return float(counter.get_total_flops()) / n_tokens


# The benchmark


def compare(options: Options, config: Config) -> None:
    """Let the contenders take turns, and print the table."""
    device = choose_device(config.device)
    config = replace(
        config,
        batch_tokens=options.batch_tokens,
        precision=choose_precision(options.precision, device),
        subword_dropout=options.subword_dropout,
    )
    corpus = load_corpus(config)
    tokenizer = learn_tokenizer(corpus.train, config.vocab_size)

    # Start the contenders. The first call returns when a contender is ready, so that no turn waits for another's start.
    names = [PLAIN, TAPIS, TEXTBOOK]
    if device.type == "cuda":
        names += [NOT_COMPILED, PADDED]
    if device.type == "cpu" and sys.platform == "linux":
        names.append(TEXTBOOK_WITH_MEMORY)
    if find_spec("transformers"):
        names.append(MARIAN)
    kind = LocalContender if device.type == "cuda" else Contender
    contenders = {name: kind(partial(contender, name, config)) for name in names}
    for start in contenders.values():
        start(0, 1)

    # Let them take turns, with the rate of matrix products measured in each round too.
    turns_taken: Counter[str] = Counter()
    flops: dict[str, float] = {}

    def turn(name: str) -> float:
        time.sleep(0.3)  # until the threads of the contender before are asleep
        first_batch = STEPS * turns_taken[name]  # all contenders get the same batches in a round
        turns_taken[name] += 1
        contenders[name](first_batch, 1)
        seconds, (n_tokens, flops[name]) = contenders[name](first_batch + 1, STEPS - 1)
        return float(n_tokens) / seconds

    def products() -> float:
        time.sleep(0.3)
        return matmul_rate(device, DTYPES[config.precision])

    turns: dict[str, Callable[[], float]] = {name: partial(turn, name) for name in names}
    speeds = alternate({**turns, "products": products}, options.rounds)
    product_rates = speeds.pop("products")

    # Print what was compared, the table, and the profile.
    n_parameters = sum(parameter.numel() for parameter in Transformer(len(tokenizer), config).parameters())
    print(
        f"{device_label(device)}, {config.precision}, torch {torch.__version__}; "
        f"{options.model_label(len(tokenizer))}, {n_parameters:,} parameters, "
        f"batches of {config.batch_tokens:,} tokens a side, {config.subword_dropout:.0%} of them split; "
        f"medians of {options.rounds} rounds of {STEPS - 1} steps\n"
        f"matrix products reach {statistics.median(product_rates) / 1e9:,.0f} GFLOP/s in {config.precision}\n"
    )
    print(f"{'':<50} {'tokens/s':>9} {'Tapis is':>9} {'of that rate':>13}")
    for name, values in speeds.items():
        shares = [v * flops[name] / rate for v, rate in zip(values, product_rates, strict=True)]
        print(
            f"{name:<50} {statistics.median(values):>9,.0f} {ratio(speeds[TAPIS], values):>8.2f}× "
            f"{statistics.median(shares):>13.1%}"
        )
    tapis = contenders[TAPIS] if device.type == "cuda" else LocalContender(partial(contender, TAPIS, config))
    print_profile(tapis, device)


def print_profile(tapis: Callable[[int, int], object], device: torch.device) -> None:
    """Print the operations that take the most time of a step, from a profile of five steps in this process."""
    tapis(0, 1)
    batches = count(1)
    profiled = profile_of(lambda: tapis(next(batches), 1), device, 5)
    uses = profiled.kernels if device.type == "cuda" else profiled.host
    total = sum(use.seconds for use in uses.values())
    print("\nthe operations that take the most time of a step, the profiler's own work included")
    for name, use in longest_uses(uses, 14):
        print(f"{name:<50} {use.seconds / total:>9.1%} {use.calls:>8,.0f} calls a step")


def main() -> None:
    options = tyro.cli(Options)
    with options.config(20_000) as config:
        compare(options, config)


if __name__ == "__main__":
    main()
