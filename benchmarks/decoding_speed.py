"""Decoding speed: greedy and beam search of Tapis beside CTranslate2 and Hugging Face's `generate`.

    python benchmarks/decoding_speed.py                                        synthetic sentences, as long as captions
    python benchmarks/decoding_speed.py --data FOLDER --source en --target fr  the test part of real data

The model is untrained. Every engine must emit exactly --length tokens for every sentence, so that all do the same work.
CTranslate2 holds the same weights, and the last column compares its translations with those of Tapis in fp32.
Hugging Face's MarianMT has the same sizes. Engines that are not installed (`pip install ctranslate2 transformers`) are
left out. Speeds are in tokens of translation a second, with the time of the encoder.

The last line compares one sentence with what memory allows: each token of a translation needs every weight of the
decoder, but for the keys and values of the source, which are computed once.

In the rows "one sentence at a time", an engine gets a sentence when it has translated the one before, as from a person
who waits for it. Several at once, it may share out among its threads.

The engines take turns, each in a process of its own. In one process, the waiting threads of one engine would slow down
the next one.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
import tyro  # noqa: E402
from measure import Contender, Workload, alternate, cpu_precisions, ratio  # noqa: E402
from torch import nn  # noqa: E402
from training_speed import marian  # noqa: E402

from config import Config  # noqa: E402
from dataset import pad  # noqa: E402
from decoding.torch_searcher import searcher_of  # noqa: E402
from exporting.ctranslate2 import ctranslate2_specification  # noqa: E402
from fast.memory import keep_freed_memory  # noqa: E402
from machine.devices import choose_device, device_label  # noqa: E402
from model import Transformer  # noqa: E402
from pairs.corpus import load_corpus  # noqa: E402
from pairs.vocabulary import learn_tokenizer  # noqa: E402
from tapis.config import (  # noqa: E402
    EOS,
    NEVER_GENERATED,
    PAD,
    TranslatingPrecision,
)
from tapis.lengths import Lengths  # noqa: E402
from tapis.search import Search  # noqa: E402
from tapis.text.tokenizer import Tokenizer  # noqa: E402
from tapis.translator import cut_batches, search_batches  # noqa: E402

# (batches of source ids, beam) → the translation of each sentence
Engine = Callable[[Sequence[list[list[int]]], int], list[list[int]]]

THREADS = torch.get_num_threads()
INSIDE_BATCHES = "threads inside batches"
OVER_BATCHES = "threads over batches"
REFERENCE = "Tapis, fp32"  # whose translations the others are compared with


@dataclass(frozen=True)
class Options(Workload):
    """Time decoding by Tapis and by others."""

    sentences: int = 256
    """Maximum number of sentences"""
    length: int = 20
    """Length of every translation, in tokens"""
    batch: int = 128
    """Sentences in a batch when all sentences are translated"""
    beam: int = 5
    """Beam of the beam search"""
    rounds: int = 3
    """Turns of each engine"""


# The engines


def awaited(build: Callable[[], Engine]) -> Engine:
    """Build an engine that gets batches of one sentence one after another, and others all at once."""
    engine = build()

    def engine_that_is_awaited(batches: Sequence[list[list[int]]], beam: int) -> list[list[int]]:
        calls = [[batch] for batch in batches] if len(batches[0]) == 1 else [batches]
        return [ids for call in calls for ids in engine(call, beam)]

    return engine_that_is_awaited


@dataclass(frozen=True)
class FixedLengths(Lengths):
    """Lengths by which every translation has exactly `length` tokens, if its search never generates EOS."""

    length: int = 0

    def limit(self, source: int) -> int:
        return self.length


def tapis_engine(model: Transformer, length: int, device: torch.device, precision: TranslatingPrecision) -> Engine:
    """Return the search of Tapis as `Translator` makes it: batches cut to its size, shared out among threads."""
    keep_freed_memory()
    searcher = searcher_of(model.to(device), device, precision, suppressed=[EOS])

    def engine(batches: Sequence[list[list[int]]], beam: int) -> list[list[int]]:
        sources = [source for batch in batches for source in batch]
        lengths = [len(source) + 1 for source in sources]
        rows = iter(range(len(sources)))
        row_batches = [
            smaller
            for batch in batches
            for smaller in cut_batches([next(rows) for _ in batch], lengths, searcher.batch_tokens, beam)
        ]
        translations: list[list[int]] = [[] for _ in sources]
        results = search_batches(searcher, sources, row_batches, Search(beam), FixedLengths(length=length))
        for batch, batch_hypotheses in results:
            for row, hypotheses in zip(batch, batch_hypotheses, strict=True):
                translations[row] = hypotheses[0].ids
        return translations

    return engine


def hugging_face_engine(
    vocab_size: int, config: Config, length: int, device: torch.device, dtype: torch.dtype
) -> Engine:
    """Return MarianMT's `generate`, made to emit exactly `length` tokens."""
    model: Any = marian(vocab_size, config)
    model = model.to(device, dtype).eval()

    def translate_batch(sources: Sequence[list[int]], beam: int) -> list[list[int]]:
        src = pad(sources).to(device)
        output = model.generate(
            input_ids=src,
            attention_mask=(src != PAD).long(),
            num_beams=beam,
            do_sample=False,
            min_new_tokens=length,
            max_new_tokens=length,
            eos_token_id=EOS,
            use_cache=True,  # which the config turns off for training
        )
        translations: list[list[int]] = output[:, 1:].tolist()
        return translations

    def engine(batches: Sequence[list[list[int]]], beam: int) -> list[list[int]]:
        with torch.inference_mode():
            return [ids for batch in batches for ids in translate_batch(batch, beam)]

    return engine


def ctranslate2_engine(
    folder: Path, tokens: list[str], length: int, device: str, precision: str, batches_at_once: int
) -> Engine:
    """Return CTranslate2's translator, made to emit exactly `length` tokens.

    It translates several batches at the same time, each with an equal share of the threads.
    """
    import ctranslate2  # noqa: PLC0415

    translator = ctranslate2.Translator(
        str(folder),
        device=device,
        compute_type=precision,
        inter_threads=batches_at_once,
        intra_threads=THREADS // batches_at_once,
    )
    id_of_token = {token: i for i, token in enumerate(tokens)}

    def engine(batches: Sequence[list[list[int]]], beam: int) -> list[list[int]]:
        results = translator.translate_batch(
            [[tokens[i] for i in source] for batch in batches for source in batch],
            beam_size=beam,
            length_penalty=1,
            min_decoding_length=length,
            max_decoding_length=length,
            max_batch_size=len(batches[0]),
            suppress_sequences=[[tokens[i]] for i in NEVER_GENERATED],
        )
        return [[id_of_token[token] for token in result.hypotheses[0]] for result in results]

    return engine


def engine_builders(
    model: Transformer, tokenizer: Tokenizer, options: Options, device: torch.device, export_folder: Path
) -> dict[str, Callable[[], Engine]]:
    """Return the available engines by name, as functions that build them in the process where they run."""
    length = options.length
    builders: dict[str, Callable[[], Engine]] = {}

    # Tapis
    precisions: list[TranslatingPrecision] = cpu_precisions() if device.type == "cpu" else ["fp32", "bf16"]
    for precision in precisions:
        builders[f"Tapis, {precision}"] = partial(tapis_engine, model, length, device, precision)

    # CTranslate2, from an export of the model
    if find_spec("ctranslate2"):
        tokens = tokenizer.tokens()
        specification = ctranslate2_specification(model, tokens)
        specification.validate()
        specification.optimize()
        specification.save(str(export_folder))
        on_cpu = device.type == "cpu"
        compute_types = ("float32", "int8") if on_cpu else ("float32", "float16", "bfloat16", "int8_float16")
        batches_at_once = {f", {INSIDE_BATCHES}": 1, f", {OVER_BATCHES}": THREADS} if on_cpu else {"": 1}
        for compute_type in compute_types:
            for threads, n in batches_at_once.items():
                builders[f"CTranslate2, {compute_type}{threads}"] = partial(
                    ctranslate2_engine, export_folder, tokens, length, device.type, compute_type, n
                )

    # Hugging Face
    if find_spec("transformers"):
        for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
            if name not in precisions:  # without instructions for it, it would take most of an hour
                continue
            builders[f"Hugging Face, {name}"] = partial(
                hugging_face_engine, len(tokenizer), model.config, length, device, dtype
            )
    return builders


# The benchmark


def compare(options: Options, config: Config, export_folder: Path) -> None:
    """Prepare the sentences, the model and the engines, and print a table for each size of batches and each search."""
    device = choose_device(config.device)
    print(f"{device_label(device)}, torch {torch.__version__}; ", end="")
    corpus = load_corpus(config)
    tokenizer = learn_tokenizer(corpus.train, config.vocab_size)
    sources = tokenizer.encode([source for source, _ in corpus.test][: options.sentences])
    torch.manual_seed(1)
    model = Transformer(len(tokenizer), config).eval()
    builders = engine_builders(model, tokenizer, options, device, export_folder)
    engines = {name: Contender(partial(awaited, build)) for name, build in builders.items()}
    print(
        f"{options.model_label(len(tokenizer))}; {len(sources):,} sentences of "
        f"{statistics.mean(map(len, sources)):.1f} tokens; {options.length} tokens each; "
        f"medians of {options.rounds} rounds"
    )

    for title, chosen, batch_size in (
        ("one sentence at a time", sources[:8], 1),
        ("64 sentences at once", sources[:64], 64),
        (f"all {len(sources):,} sentences, {options.batch} at a time", sources, options.batch),
    ):
        longest_first = sorted(chosen, key=len, reverse=True)  # as Translator sorts them
        batches = [longest_first[i : i + batch_size] for i in range(0, len(longest_first), batch_size)]
        for beam in sorted({1, options.beam}):
            search = f"beam {beam}" if beam > 1 else "greedy"
            print(f"\n{f'{title}, {search}':<46}", end="")
            print_table(engines, batches, beam, options)
    if "Tapis, int8" in engines:
        print_against_memory(engines["Tapis, int8"], sources, model, options.length)


def print_against_memory(engine: Contender, sources: Sequence[list[int]], model: Transformer, length: int) -> None:
    """Print the time of a sentence of 15 tokens, about 12 words, and the time in which memory delivers its weights."""
    sentence = min(sources, key=lambda ids: abs(len(ids) - 15))
    seconds = statistics.median(engine([[sentence]], 1)[0] for _ in range(50))
    encoder, decoder, projection = (
        sum(weight.numel() for module in part.modules() if isinstance(module, nn.Linear) for weight in [module.weight])
        for part in (model.encoder, model.decoder, model.projection)
    )
    named = model.decoder.named_parameters()
    of_source = ("cross_attention.w_k.weight", "cross_attention.w_v.weight")
    once = sum(weight.numel() for name, weight in named if name.endswith(of_source))
    n_bytes = encoder + once + length * (decoder - once + projection)

    numbers = np.ones(2**26, dtype=np.float32)
    reading = []
    for _ in range(7):
        start = time.perf_counter()
        np.dot(numbers, numbers)
        reading.append(time.perf_counter() - start)
    delivered = n_bytes * statistics.median(reading) / numbers.nbytes
    print(
        f"\none sentence of {len(sentence)} tokens, greedy: {1000 * seconds:.2f} ms; memory delivers its weights, "
        f"{n_bytes / 1e6:.0f} MB, in {1000 * delivered:.2f} ms ({seconds / delivered:.2f}×)"
    )


def print_table(engines: dict[str, Contender], batches: Sequence[list[list[int]]], beam: int, options: Options) -> None:
    """Let the engines take turns on the same batches, and print their speeds."""
    n_sentences = sum(map(len, batches))
    translations: dict[str, list[list[int]]] = {}

    def turn(name: str) -> float:
        time.sleep(0.3)  # until the threads of the engine before are asleep
        seconds, translations[name] = engines[name](batches, beam)
        return options.length * n_sentences / seconds

    # Warm up, then measure.
    for engine in engines.values():
        engine(batches[:1], beam)
    speeds = alternate({name: partial(turn, name) for name in engines}, options.rounds)

    # Print each engine's speed, that of Tapis as a multiple of it, and the share of equal translations.
    tapis_names = [name for name in speeds if name.startswith("Tapis")]
    print(f" {'tokens/s':>9}{''.join(f'{name:>13} is' for name in tapis_names)} {'same as fp32':>13}")
    for name, values in speeds.items():
        ratios = "".join(f"{ratio(speeds[tapis], values):>15.2f}×" for tapis in tapis_names)
        n_same = sum(ids == other for ids, other in zip(translations[name], translations[REFERENCE], strict=True))
        same = "" if name.startswith("Hugging") else f"{n_same / n_sentences:>13.1%}"  # it has other weights
        print(f"{name:<46} {statistics.median(values):>9,.0f} {ratios} {same}", flush=True)

    lengths = {len(ids) for engine_translations in translations.values() for ids in engine_translations}
    assert lengths == {options.length}, f"an engine emitted translations of {lengths} tokens"


def main() -> None:
    options = tyro.cli(Options)
    with options.config(10_000) as config, tempfile.TemporaryDirectory() as export_folder:
        compare(options, replace(config, test_share=0.1), Path(export_folder))


if __name__ == "__main__":
    main()
