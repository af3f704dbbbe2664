"""Trains and searches on a GPU, or on a simulated one, and prints a line of JSON for each piece of work.

test_gpu.py starts it; where there is no GPU, with guard.cpp preloaded. Each line has the name of the work, its result
and, on a simulated GPU, its waits for the GPU by reason and place. The names also go to stderr, when the work begins.
"""

import json
import os
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import datasets
import numpy as np
import torch

ROOT = Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT)]

from simulated_gpu import JOURNAL, SimulatedGpu, simulate  # noqa: E402
from simulated_graph import CAPTURING  # noqa: E402

from checkpoint import RunFolder, parameters  # noqa: E402
from config import PRESETS, Config  # noqa: E402
from decoding.captured import CapturedSearch  # noqa: E402
from decoding.torch_searcher import TorchSearcher  # noqa: E402
from decoding.translator import Translator  # noqa: E402
from fast.capture import LateNumbers  # noqa: E402
from fast.graphs import GraphPool  # noqa: E402
from fast.packed_batch import PackedBatch  # noqa: E402
from machine.distributed import Group  # noqa: E402
from model import Transformer  # noqa: E402
from pairs.corpus import Corpus, load_corpus  # noqa: E402
from pairs.vocabulary import learn_tokenizer  # noqa: E402
from tapis.config import DeviceName  # noqa: E402
from tapis.search import Search  # noqa: E402
from tapis.text.tokenizer import Tokenizer  # noqa: E402
from train import notes_on, take_step  # noqa: E402
from training.failures import TrainingError  # noqa: E402
from training.state import restore, state_of  # noqa: E402
from training.trainer import Training  # noqa: E402
from training.validation import validate  # noqa: E402

BEGUN = time.monotonic()

TINY = replace(
    PRESETS["demo"],
    d_model=64,
    n_heads=2,
    d_ff=128,
    vocab_size=300,
    batch_tokens=256,
    epochs=1,
    warmup_steps=4,
    least_bleu=0.0,
    device="cuda",
    precision="bf16",
    name="tiny",
)
SHALLOW = replace(TINY, n_encoder_layers=1, n_decoder_layers=1)
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
    print(f"{time.monotonic() - BEGUN:.1f} s: {name}", file=sys.stderr, flush=True)
    JOURNAL.take()
    CAPTURING.take_launches()
    result = do()
    waits = {f"{what} at {place}": n for (what, place), n in JOURNAL.take().items()}
    launches = CAPTURING.take_launches()
    print(json.dumps({"work": name, "waits": waits, "launches": launches, "result": result}), flush=True)


def losses(training: Training, steps: Sequence[int]) -> list[float]:
    """Take steps, and return the loss of each for a target token."""
    records = [take_step(training, step) for step in steps]
    training.advance(records[-1])
    return [record.loss / record.n_tgt for record in records]


def waits_before_the_next_batches(training: Training, step: int) -> int:
    """Take a step, and return how often it had waited when it prepared the next batches."""
    prepare, waits = training.batch_plan.prepare, -1

    def counting(next_steps: Iterable[int]) -> None:
        nonlocal waits
        waits = JOURNAL.waits.total()
        prepare(next_steps)

    training.plan_steps(step + 1, training.resolved.warmup_steps)  # there is a next one
    training.batch_plan.prepare = counting  # type: ignore[method-assign, assignment]
    losses(training, [step])
    return waits


def longest_search(training: Training, sentences: Sequence[str], search: Search) -> int:
    """Translate sentences in one batch, and return for how many tokens the search went on."""
    translator, n_tokens = training.translator(), 0

    def count() -> None:
        nonlocal n_tokens
        n_tokens += 1

    translator.checked_by(count)(sentences, search)
    return n_tokens


def run_all(corpus: Corpus, tokenizer: Tokenizer, can_compile: bool) -> None:
    """Do all that a run does, in its order."""
    sentences = [source for source, _ in corpus.valid]
    run_and_report("captured sums", captured_sums)
    run_and_report("late numbers", late_numbers)
    if not can_compile:  # simulated; a refused capture may leave a real GPU unusable
        run_and_report("refused captures", refused_captures)
        run_and_report("freed memory", replay_after_memory_was_freed)

    for name, changes in CONFIGURATIONS.items():
        training = Training(replace(SHALLOW, **changes), corpus, tokenizer)
        before = losses(training, [1])  # optimizers make their state
        losses(training, [2, 2])  # a shape that comes again is captured
        run_and_report(f"a step, {name}", partial(losses, training, [2]))
        ((_, batch), *_) = training.batch_plan.batches_of(3)
        if isinstance(batch, PackedBatch):
            run_and_report(f"layout, {name}", lambda: type(batch.to(training.device).layout).__name__)  # noqa: B023
        run_and_report(f"notes, {name}", partial(notes_on_kernels, training))
        run_and_report(f"losses, {name}", lambda: [*before, *losses(training, range(3, 7))])  # noqa: B023
        run_and_report(f"waits early, {name}", partial(waits_before_the_next_batches, training, 7))

    training = Training(replace(TINY, optimizer="muon"), corpus, tokenizer)
    training.captured = None
    run_and_report("losses, not captured", lambda: losses(training, [1, 2, 2, 2, *range(3, 7)]))
    training = Training(replace(TINY, optimizer="muon"), corpus, tokenizer)
    run_and_report("losses, captured", lambda: losses(training, [1, 2, 2, 2, *range(3, 7)]))
    run_and_report("a step that is not finite", partial(overflow, training))
    run_and_report("notes of other runs", partial(notes_without_graphs, corpus, tokenizer))
    run_and_report("resumed", partial(difference_when_resumed, corpus, tokenizer))

    if can_compile:
        training = Training(SHALLOW, corpus, tokenizer)
        training.compile()
        first = losses(training, [1])
        losses(training, [2, 2, 2])  # as in "losses, bf16"
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
    run_and_report("self-distillation", lambda: len(training.make_rounds()))
    run_and_report("a step after it", partial(losses, training, [3]))
    training = Training(replace(SHALLOW, steps=4), few, tokenizer)
    training.step = 2
    run_and_report("translations after more steps", partial(translations_after_more_steps, training, sentences))

    for device in ("cpu", "cuda"):
        same_on(device, corpus, tokenizer)


def notes_without_graphs(corpus: Corpus, tokenizer: Tokenizer) -> list[str]:
    """Return the notes of runs whose steps are not captured: of several processes, and where a kernel is wrong."""
    training = Training(SHALLOW, corpus, tokenizer)
    training.group = Group(size=2)
    notes = notes_on_kernels(training)
    training._fault_of_kernels = lambda: "no kernels"  # type: ignore[method-assign]
    return [*notes, *notes_on_kernels(training)]


def notes_on_kernels(training: Training) -> list[str]:
    return [note for note in notes_on(training) if "kernel" in note]


def difference_when_resumed(corpus: Corpus, tokenizer: Tokenizer) -> float:
    """Take eight steps, and eight with a resumption after four. Return the largest difference of two weights."""
    config = replace(SHALLOW, optimizer="muon", dropout=0.2, steps=8)
    unbroken, stopped, resumed = (Training(config, corpus, tokenizer) for _ in range(3))
    losses(unbroken, range(1, 9))
    losses(stopped, range(1, 5))
    restore(resumed, state_of(stopped))
    losses(resumed, range(5, 9))
    weights = zip(unbroken.model.parameters(), resumed.model.parameters(), strict=True)
    return max(float((one - other).detach().abs().max()) for one, other in weights)


def translations_after_more_steps(training: Training, sentences: Sequence[str]) -> list[list[str]]:
    """Translate as validations do, between steps and after all weights changed, and at last with a new searcher."""
    before = training.translator()(sentences)
    losses(training, [3, 4, 3, 4])
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in training.model.parameters():  # which steps change too little for other translations
            weight.add_(0.5 * torch.randn(weight.shape, generator=random).to(weight))
    kept = training.translator()(sentences)
    training.searcher = None
    return [before, kept, training.translator()(sentences)]


def overflow(training: Training) -> dict[str, Any]:
    """Make a weight infinite, and return whether a captured step tells of it, and leaves all other weights alone."""
    weights = list(training.model.parameters())
    with torch.no_grad():
        weights[-1].view(-1)[0] = torch.inf
    before = [weight.detach().clone() for weight in weights]
    said = ""
    try:
        for _ in range(3):
            take_step(training, 2)
    except TrainingError as error:
        said = str(error)
    is_same = [bool((weight == old).all()) for weight, old in zip(weights, before, strict=True)]
    return {"said": said, "is same": all(is_same)}


def captured_sums() -> list[list[float]]:
    """Capture a running sum, and return what it is after the capture and after each of two replays."""
    device = torch.device("cuda")
    x, total = (torch.zeros(3, device=device) for _ in range(2))
    total.add_(2 * x + 1)  # kernels are loaded
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()):
        doubled = 2 * x
        total.add_(doubled.view(3) + 1)
    sums = [total.tolist()]
    for number in (1, 10):
        x.fill_(number)
        graph.replay()
        sums.append(total.tolist())
    return [*sums, doubled.tolist()]


def late_numbers() -> dict[str, Any]:
    """Read the numbers of a step twice, and return what was read, and whether their memory was freed."""
    late = LateNumbers(torch.arange(3.0, device="cuda"))
    pinned = weakref.ref(late.pinned)
    return {"read": [late.tolist(), late.tolist()], "is freed": pinned() is None}


def refused_captures() -> list[str]:
    """Return what cannot be captured. Memory can be freed after each attempt, as before all other work."""
    device = torch.device("cuda")
    x = torch.ones(3, device=device)
    waits: dict[str, Callable[[], Any]] = {
        "item": lambda: x.sum().item(),
        "nonzero": x.nonzero,
        "mask": lambda: x[x > 0],
        "copy from the host": lambda: x.copy_(torch.ones(3)),
    }
    refused = []
    for name, work in waits.items():
        if not GraphPool(device, name).captured(work):
            refused.append(name)
        torch.cuda.empty_cache()
    return refused


def replay_after_memory_was_freed() -> str:
    """Free the memory that a graph reads, and return how a replay failed; none does before."""
    device = torch.device("cuda")
    x, total = (torch.zeros(3, device=device) for _ in range(2))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total.add_(2 * x[:2].sum())
    view = x[2:]
    del x
    graph.replay()  # the view keeps the memory
    del view
    try:
        graph.replay()
    except RuntimeError as error:
        return str(error)
    return ""


def same_on(device: DeviceName, corpus: Corpus, tokenizer: Tokenizer) -> None:
    """Run what must not depend on the device: fp32, without dropout."""
    config = replace(TINY, device=device, precision="fp32", dropout=0.0, optimizer="muon", batch_tokens=1024)
    training = Training(config, corpus, tokenizer)
    run_and_report(f"losses on {device}", partial(losses, training, range(1, 11)))
    run_and_report(f"taught on {device}", partial(taught, config, corpus, tokenizer))
    searcher = TorchSearcher(training.model.eval(), training.device, "fp32")
    translator = Translator(searcher, tokenizer, config, training.learned)
    sentences = [source for source, _ in corpus.valid]
    run_and_report(f"greedy search on {device}", partial(translator, sentences))
    n_best = partial(translator.n_best, sentences, Search(beam=5, n_best=5))
    run_and_report(
        f"beam search on {device}", lambda: [[one.text for one in translations] for translations in n_best()]
    )
    if searcher.captured:
        run_and_report("searches of sizes that are forgotten", partial(results_of_sizes, translator, sentences))

        # As kernels, launched one by one; after a capture that failed; and by the plain functions of a search.
        searcher.captured = CapturedSearch(searcher.model, [], 2**30)  # the other one has graphs
        searcher.captured.pool.can_capture = False
        run_and_report("greedy search without graphs", partial(translator, sentences))
        run_and_report("a failed capture", partial(translate_where_no_capture_succeeds, translator, sentences))
        searcher.captured = None
        run_and_report("greedy search by the plain functions", partial(translator, sentences))


def taught(config: Config, corpus: Corpus, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the losses of steps beside a teacher, and of others once it was left out, with the notes of both."""
    with tempfile.TemporaryDirectory() as folder:
        teacher = RunFolder(Path(folder) / "teacher")
        narrow = replace(config, d_ff=64, device="cpu")
        teacher.start(narrow, tokenizer)
        torch.manual_seed(2)
        teacher.save_model(parameters(Transformer(len(tokenizer), narrow)))
        training = Training(replace(config, teacher=(str(teacher.path),)), corpus, tokenizer)
    with_teacher, notes = losses(training, range(1, 4)), notes_on_kernels(training)
    training.keep_teachers([])
    return {"losses": [*with_teacher, *losses(training, [4, 4, 4, 4])], "notes": [notes, notes_on_kernels(training)]}


def results_of_sizes(translator: Translator, sentences: Sequence[str]) -> list[list[list[str]]]:
    """Translate 1, 2, 4 or 8 sentences at a time, with room for all of these sizes, then with room for two of them."""
    searcher = cast(TorchSearcher, translator.searcher)
    results, most_bytes = [], 2**30
    for _ in range(2):
        captured = searcher.captured = CapturedSearch(searcher.model, [], most_bytes)
        results.append([translator(sentences[:n]) for n in (1, 2, 4, 2, 8, 2, 4, 8, 4)])
        most_bytes = sum(one.cache.n_bytes for size, one in captured.searches.items() if size.n_sentences in (2, 4))
    return results


def translate_where_no_capture_succeeds(translator: Translator, sentences: Sequence[str]) -> list[str]:
    """Translate where a GPU has no graphs."""
    searcher, captured = cast(TorchSearcher, translator.searcher), torch.cuda.CUDAGraph

    class NoGraph(captured):  # type: ignore[misc, valid-type]
        def capture_begin(self, *args: Any, **kwargs: Any) -> None:
            raise RuntimeError("no graphs here")

    cuda: Any = torch.cuda
    cuda.CUDAGraph = NoGraph
    searcher.captured = CapturedSearch(searcher.model, [], 2**30)
    try:
        return translator(sentences)
    finally:
        cuda.CUDAGraph = captured
        assert not searcher.captured.pool.can_capture


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
