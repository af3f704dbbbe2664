"""Trains and searches on a GPU, or on a simulated one, and prints a line of JSON for each piece of work.

test_gpu.py starts it; where there is no GPU, with guard.cpp preloaded. Each line has the name of the work, its result
and, on a simulated GPU, its waits for the GPU by reason and place.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import datasets
import numpy as np
import torch
from torch import Tensor

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT)]

from simulated_gpu import JOURNAL, SimulatedGpu, simulate  # noqa: E402

from config import PRESETS, Config  # noqa: E402
from decoding.search import Step  # noqa: E402
from decoding.torch_searcher import TorchSearcher  # noqa: E402
from decoding.translator import Translator  # noqa: E402
from fast.packed_batch import PackedBatch  # noqa: E402
from pairs.corpus import Corpus, load_corpus  # noqa: E402
from pairs.vocabulary import learn_tokenizer  # noqa: E402
from tapis.config import DeviceName  # noqa: E402
from tapis.search import Search  # noqa: E402
from tapis.text.tokenizer import Tokenizer  # noqa: E402
from train import take_step  # noqa: E402
from training.state import restore, state_of  # noqa: E402
from training.trainer import Training  # noqa: E402
from training.validation import validate  # noqa: E402

TINY = replace(
    PRESETS["demo"],
    d_model=64,
    n_heads=2,
    d_ff=128,
    vocab_size=300,
    batch_tokens=1024,
    epochs=1,
    warmup_steps=4,
    device="cuda",
    precision="bf16",
    name="tiny",
)
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "bf16": {},
    "bf16 with Muon": {"optimizer": "muon"},
    "fp16": {"precision": "fp16"},
    "fp16 with Muon": {"precision": "fp16", "optimizer": "muon"},
    "fp32": {"precision": "fp32"},
    "the paper's recipe": {"norm": "post", "clip_norm": 0.0, "schedule": "inverse_sqrt"},
    "accumulation": {"accumulate": 3},
    "subword dropout": {"subword_dropout": 0.1},
    "embeddings that are not tied": {"tie_embeddings": False},
    "plain": {"plain": True},
}


def run_and_report(name: str, do: Callable[[], Any]) -> None:
    """Do a piece of work, and print what it gave and what it waited for."""
    JOURNAL.take()
    result = do()
    waits = {f"{what} at {place}": n for (what, place), n in JOURNAL.take().items()}
    print(json.dumps({"work": name, "waits": waits, "result": result}), flush=True)


def losses(training: Training, steps: Sequence[int]) -> list[float]:
    """Take steps, and return the loss of each for a target token."""
    records = [take_step(training, step) for step in steps]
    training.advance(records[-1])
    return [record.loss / record.n_tgt for record in records]


def waits_before_the_next_batches(training: Training, step: int) -> int:
    """Take a step, and return how often it had waited when it prepared the next batches."""
    prepare, waits = training.batch_plan.prepare, -1

    def counting(next_step: int) -> None:
        nonlocal waits
        waits = JOURNAL.waits.total()
        prepare(next_step)

    training.plan_steps(step + 1, training.resolved.warmup_steps)  # there is a next one
    training.batch_plan.prepare = counting  # type: ignore[method-assign, assignment]
    losses(training, [step])
    return waits


def longest_search(training: Training, sentences: Sequence[str], search: Search) -> int:
    """Translate sentences in one batch, and return for how many tokens the search went on."""
    translator = training.translator()
    searcher = cast(TorchSearcher, translator.searcher)
    step_of, n_steps = searcher.step_of, 0

    def counted_step_of(src: Tensor) -> Step:
        step = step_of(src)

        def counted_step(tokens: Tensor, parents: Tensor | None) -> Tensor:
            nonlocal n_steps
            n_steps += 1
            return step(tokens, parents)

        return counted_step

    searcher.step_of = counted_step_of
    translator(sentences, search)
    return n_steps


def run_all(corpus: Corpus, tokenizer: Tokenizer, can_compile: bool) -> None:
    """Do all that a run does, in its order."""
    sentences = [source for source, _ in corpus.valid]

    for name, changes in CONFIGURATIONS.items():
        training = Training(replace(TINY, **changes), corpus, tokenizer)
        before = losses(training, [1])  # optimizers make their state
        run_and_report(f"a step, {name}", partial(losses, training, [2]))
        ((_, batch), *_) = training.batch_plan.batches_of(3)
        if isinstance(batch, PackedBatch):
            run_and_report(f"layout, {name}", lambda: type(batch.layout).__name__)  # noqa: B023
        run_and_report(f"losses, {name}", lambda: [*before, *losses(training, range(3, 7))])  # noqa: B023
        run_and_report(f"waits early, {name}", partial(waits_before_the_next_batches, training, 7))

    if can_compile:
        training = Training(TINY, corpus, tokenizer)
        training.compile()
        first = losses(training, [1, 2])[:1]
        run_and_report("losses, compiled", lambda: [*first, *losses(training, range(3, 7))])
        run_and_report("graphs", lambda: training.n_graphs)

    few = replace(corpus, train=corpus.train.select(np.arange(50)))
    training = Training(replace(TINY, steps=4, self_distillation=0.5), few, tokenizer)
    training.step = 2
    run_and_report("validation", lambda: validate(training)[0].loss)
    run_and_report("attention", lambda: len(training.translator().attention(sentences[0])))
    run_and_report("state and restore", lambda: restore(training, state_of(training)))
    run_and_report("greedy search", partial(longest_search, training, sentences, Search()))
    run_and_report("beam search", partial(longest_search, training, sentences, Search(beam=5)))
    run_and_report("self-distillation", training.translate)
    run_and_report("a step after it", partial(losses, training, [3]))

    for device in ("cpu", "cuda"):
        same_on(device, corpus, tokenizer)


def same_on(device: DeviceName, corpus: Corpus, tokenizer: Tokenizer) -> None:
    """Run what must not depend on the device: fp32, without dropout."""
    config = replace(TINY, device=device, precision="fp32", dropout=0.0, optimizer="muon")
    training = Training(config, corpus, tokenizer)
    run_and_report(f"losses on {device}", partial(losses, training, range(1, 21)))
    searcher = TorchSearcher(training.model.eval(), training.device, "fp32")
    translator = Translator(searcher, tokenizer, config, training.learned)
    sentences = [source for source, _ in corpus.valid]
    run_and_report(f"greedy search on {device}", partial(translator, sentences))
    n_best = partial(translator.n_best, sentences, Search(beam=5, n_best=5))
    run_and_report(
        f"beam search on {device}", lambda: [[one.text for one in translations] for translations in n_best()]
    )


def main(cache: str) -> None:
    datasets.config.HF_DATASETS_CACHE = cache
    os.environ["HF_DATASETS_CACHE"] = str(cache)
    torch.set_num_threads(1)
    corpus = load_corpus(Config(data=("demo",)))
    corpus = replace(
        corpus,
        train=corpus.train.select(np.arange(200)),
        valid=corpus.valid.select(np.arange(10)),
        test=corpus.test.select(np.arange(10)),
    )
    tokenizer = learn_tokenizer(corpus.train, 300)
    if torch.cuda.is_available():
        run_all(corpus, tokenizer, can_compile=True)
        return
    simulate()
    with SimulatedGpu():  # type: ignore[no-untyped-call]
        run_all(corpus, tokenizer, can_compile=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
