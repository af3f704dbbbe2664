"""Training speed: a step of ours against the same work by a textbook's loop and by MarianMT, taking turns.

    python benchmarks/training.py                                        synthetic pairs, as long as captions
    python benchmarks/training.py --data FOLDER --source en --target fr  real ones

All train models of the same sizes, with dropout, label smoothing, clipping, Adam and the same precision. The textbook
(`torch.nn.Transformer`, cross-entropy over all positions) even gets our batches. MarianMT, where `transformers` is
installed, gets as many sentences in random order, padded to the longest, as its users do. Each has its own process,
theirs with the memory allocator and oneDNN's caches as they come; a second textbook has those as we do. "Tapis,
--plain" computes by the formulas of model.py alone: beside it stands what fast/ is worth. Tokens are source and target
tokens that are not padding.
"""

import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import cast

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
import tyro  # noqa: E402
from measure import Contender, Work, alternate, matmul_rate, ratio, synchronize  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from config import PAD, Config, Precision  # noqa: E402
from dataset import Batch  # noqa: E402
from fast.packing import PackedBatch  # noqa: E402
from model import PositionalEncoding  # noqa: E402
from system.devices import DTYPES, autocast, choose_device, choose_precision, device_label  # noqa: E402
from text.corpus import load_corpus  # noqa: E402
from text.tokenizer import learn_tokenizer  # noqa: E402
from train import take_step  # noqa: E402
from training.trainer import Training  # noqa: E402

Logits = Callable[[Batch], Tensor]
OURS, PLAIN = "Tapis", "Tapis, --plain"
TEXTBOOK, WITH_OURS = "torch.nn.Transformer, our batches", "the same, with our settings of memory"
MARIAN = "MarianMT, random order, dynamic padding"
STEPS = 4  # of a turn; the first, not timed, lets caches and the allocator settle


@dataclass(frozen=True)
class Options(Work):
    """Time training steps, ours and others'."""

    batch_tokens: int = 4096
    rounds: int = 3
    """Turns of each contender"""
    precision: Precision = "auto"
    subword_dropout: float = 0.0
    """As for train.py; what falls apart makes the sentences of a batch differ in length"""


class Textbook(nn.Module):
    """A translator around `torch.nn.Transformer`, as tutorials write it, with one matrix for all three ends."""

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
        hidden = torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool, device=tgt.device).triu(1)  # torch's True
        scale = self.embedding.embedding_dim**0.5
        vectors = self.transformer(
            self.dropout(self.position(self.embedding(src) * scale)),
            self.dropout(self.position(self.embedding(tgt) * scale)),
            tgt_mask=hidden,
            src_key_padding_mask=src == PAD,
            tgt_key_padding_mask=tgt == PAD,
            memory_key_padding_mask=src == PAD,
            tgt_is_causal=True,
        )
        logits: Tensor = self.generator(vectors)
        return logits


def marian(vocab_size: int, config: Config) -> nn.Module | None:
    """MarianMT of the same sizes; None where `transformers` is not installed."""
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


def plain_step(model: nn.Module, logits: Logits, config: Config, device: torch.device) -> Callable[[Batch], None]:
    """One update as a tutorial's loop makes it."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step(batch: Batch) -> None:
        batch = batch.to(device)
        optimizer.zero_grad()
        with autocast(device, config.precision):
            loss = F.cross_entropy(
                logits(batch).flatten(0, 1),
                batch.labels.flatten(),
                ignore_index=PAD,
                label_smoothing=config.label_smoothing,
            )
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
        optimizer.step()
        loss.item()

    return step


def flops_per_token(step: Callable[[], int]) -> float:
    """Of the matrix products of a step, forward and backward, padding included."""
    with FlopCounterMode(display=False) as counter:
        n_tokens = step()
    return float(counter.get_total_flops()) / n_tokens


class Shuffled:
    """Batches of sentences in random order, on average as many as ours have."""

    def __init__(self, training: Training) -> None:
        self.pairs, self.split = training.train_pairs, training.config.subword_dropout
        self.rows = np.random.default_rng(1).permutation(len(self.pairs))
        self.size = len(self.rows) // len(training.epoch_batches[1])

    def __call__(self, i: int) -> Batch:
        start = i * self.size % (len(self.rows) - self.size)
        return self.pairs.batch(self.rows[start : start + self.size], self.split, np.random.default_rng((1, i)))


def contender(name: str, config: Config) -> Callable[[int, int], tuple[int, float]]:
    """Of a name: the work of a turn, (number of its first batch, steps) → its tokens, and FLOP a token."""
    if name not in (OURS, WITH_OURS):
        config = replace(config, plain=True)  # memory and oneDNN's caches as they come
    corpus = load_corpus(config)
    training = Training(config, corpus, learn_tokenizer(corpus.train, config.vocab_size))
    step = steps(name, training)
    flops = flops_per_token(partial(step, 0))

    def turn(place: int, n: int) -> tuple[int, float]:
        n_tokens = sum(step(place + i) for i in range(n))
        synchronize(training.device)
        return n_tokens, flops

    return turn


def steps(name: str, training: Training) -> Callable[[int], int]:
    """A contender's step, which takes the number of a batch, from 0, and gives its tokens."""
    config, device, size = training.config, training.device, len(training.tokenizer)

    def plain(model: nn.Module, logits: Logits, batches: Callable[[int], Batch]) -> Callable[[int], int]:
        step = plain_step(model.to(device).train(), logits, config, device)

        def update(i: int) -> int:
            batch = batches(i)
            step(batch)
            return batch.n_tokens

        return update

    if name in (OURS, PLAIN):
        return lambda i: take_step(training, i + 1).n_tokens
    if name == MARIAN:
        hf = cast(nn.Module, marian(size, config))

        def logits(batch: Batch) -> Tensor:
            mask = (batch.src != PAD).long()
            return cast(Tensor, hf(input_ids=batch.src, attention_mask=mask, decoder_input_ids=batch.tgt).logits)

        return plain(hf, logits, Shuffled(training))
    book = Textbook(size, config)
    return plain(
        book,
        lambda batch: cast(Tensor, book(batch.src, batch.tgt)),
        lambda i: plain_batch(training, i + 1),
    )


def plain_batch(training: Training, step: int) -> Batch:
    """The batch of a step, without its packing."""
    ((_, batch),) = training.batches_of(step)
    return batch.batch if isinstance(batch, PackedBatch) else batch


def compare(options: Options, config: Config) -> None:
    device = choose_device(config.device)
    config = replace(
        config,
        batch_tokens=options.batch_tokens,
        precision=choose_precision(options.precision, device),
        subword_dropout=options.subword_dropout,
    )
    corpus = load_corpus(config)
    tokenizer = learn_tokenizer(corpus.train, config.vocab_size)
    dtype = DTYPES[config.precision]
    names = [PLAIN, OURS, TEXTBOOK]
    if device.type == "cpu" and sys.platform == "linux":
        names.append(WITH_OURS)
    if find_spec("transformers"):
        names.append(MARIAN)
    contenders = {name: Contender(partial(contender, name, config)) for name in names}
    for ready in contenders.values():
        ready(0, 1)
    training = Training(config, corpus, tokenizer)
    turns_taken: Counter[str] = Counter()
    flops: dict[str, float] = {}

    def turn(name: str) -> float:
        time.sleep(0.3)  # until the threads of the one before have gone to sleep
        place = STEPS * turns_taken[name]  # the same for all in a round, so that all get the same batches
        turns_taken[name] += 1
        contenders[name](place, 1)
        seconds, (n_tokens, flops[name]) = contenders[name](place + 1, STEPS - 1)
        return float(n_tokens) / seconds

    def products() -> float:
        time.sleep(0.3)
        return matmul_rate(device, dtype)

    turns: dict[str, Callable[[], float]] = {name: partial(turn, name) for name in names}
    speeds = alternate({**turns, "products": products}, options.rounds)
    peak = speeds.pop("products")
    n_parameters = sum(parameter.numel() for parameter in training.model.parameters())
    print(
        f"{device_label(device)}, {config.precision}, torch {torch.__version__}; "
        f"{options.sizes(len(training.tokenizer))}, {n_parameters:,} parameters, "
        f"batches of {config.batch_tokens:,} tokens a side, {config.subword_dropout:.0%} of them split; "
        f"{options.rounds} rounds of {STEPS - 1} steps\n"
        f"matrix products reach {statistics.median(peak) / 1e9:,.0f} GFLOP/s in {config.precision}\n"
    )
    print(f"{'':<50} {'tokens/s':>9} {'Tapis is':>9} {'of that rate':>13}")
    for name, values in speeds.items():
        share = statistics.median(v * flops[name] / p for v, p in zip(values, peak, strict=True))
        print(f"{name:<50} {statistics.median(values):>9,.0f} {ratio(speeds[OURS], values):>8.2f}× {share:>13.1%}")
    where_time_goes(training)


def where_time_goes(training: Training) -> None:
    """A profile of five steps: the operations that take the most time, themselves."""
    take_step(training, 1)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for i in range(5):
            take_step(training, i + 2)
    table = sorted(profiled.key_averages(), key=lambda entry: -entry.self_cpu_time_total)
    total = sum(entry.self_cpu_time_total for entry in table)
    print("\nwhere a step's time goes (with the profiler's own)")
    for entry in table[:14]:
        print(f"{entry.key:<50} {entry.self_cpu_time_total / total:>9.1%} {entry.count // 5:>8,} calls a step")


def main() -> None:
    options = tyro.cli(Options)
    with options.config(20_000) as config:
        compare(options, config)


if __name__ == "__main__":
    main()
