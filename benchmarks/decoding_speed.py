"""Decoding speed: greedy and beam search, ours against CTranslate2 and Hugging Face's generate, taking turns.

    python benchmarks/decoding.py                                        synthetic sentences, as long as captions
    python benchmarks/decoding.py --data FOLDER --source en --target fr  the sentences of the data's test part

The model is untrained, and every engine is made to give --length tokens for every sentence, so that all do the same
work. CTranslate2 holds the very same weights, and its translations are compared with ours. Hugging Face's MarianMT has
the same sizes. Engines that are not installed (`pip install ctranslate2 transformers`) are left out. Speeds are in
tokens of translation a second, the encoder's time included. Each engine has a process of its own, and rests while
another has its turn: in one process, the waiting threads of one engine slow the next one down.
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

import torch  # noqa: E402
import tyro  # noqa: E402
from measure import Contender, Work, alternate, ratio  # noqa: E402
from torch import Tensor  # noqa: E402
from training_speed import marian  # noqa: E402

from config import EOS, PAD, Config, TranslatingPrecision  # noqa: E402
from dataset import pad  # noqa: E402
from decoding.inference import in_precision  # noqa: E402
from decoding.search import NEVER, Search, beam_search, greedy_search  # noqa: E402
from decoding.steps import fast_step  # noqa: E402
from export import ctranslate2_specification  # noqa: E402
from fast.memory import keep_freed_memory  # noqa: E402
from fast.topk import best_continuations_in_blocks  # noqa: E402
from model import Transformer  # noqa: E402
from system.devices import choose_device, device_label, spread  # noqa: E402
from text.corpus import load_corpus  # noqa: E402
from text.tokenizer import Tokenizer, learn_tokenizer  # noqa: E402

# (batches of source ids, beam) → the translation of each sentence
Engine = Callable[[Sequence[list[list[int]]], int], list[list[int]]]

THREADS = torch.get_num_threads()
OVER = "threads over batches"  # no gain for one sentence at a time


@dataclass(frozen=True)
class Options(Work):
    """Time decoding, ours and others'."""

    sentences: int = 256
    """Of a whole test set, at most"""
    length: int = 20
    """Of every translation, in tokens"""
    batch: int = 128
    """Sentences of a batch, where there are enough"""
    rounds: int = 3
    """Turns of each engine"""


def ours(model: Transformer, length: int, device: torch.device, precision: TranslatingPrecision) -> Engine:
    """Our search, with no end before length."""
    keep_freed_memory()
    prepared = in_precision(model.to(device), precision)

    def translated(beam: int, sources: Sequence[list[int]]) -> list[list[int]]:
        with torch.inference_mode():
            return searched(beam, sources)

    def searched(beam: int, sources: Sequence[list[int]]) -> list[list[int]]:
        step = fast_step(prepared, pad(sources).to(device))

        def endless(tokens: Tensor, rows: Tensor | None) -> Tensor:
            logits = step(tokens, rows)
            logits[..., EOS] = -torch.inf
            return logits

        limits = torch.full((len(sources),), length, device=device)
        if beam == 1:
            return greedy_search(endless, limits, best_continuations_in_blocks)
        return [found[0].ids for found in beam_search(endless, limits, Search(beam), best_continuations_in_blocks)]

    def engine(batches: Sequence[list[list[int]]], beam: int) -> list[list[int]]:
        return [ids for found in spread(partial(translated, beam), batches, device) for ids in found]

    return engine


def hugging_face(vocab_size: int, config: Config, length: int, device: torch.device, dtype: torch.dtype) -> Engine:
    """MarianMT's generate, with no end before length."""
    peer: Any = marian(vocab_size, config)
    peer = peer.to(device, dtype).eval()

    def translated(sources: Sequence[list[int]], beam: int) -> list[list[int]]:
        src = pad(sources).to(device)
        output = peer.generate(
            input_ids=src,
            attention_mask=(src != PAD).long(),
            num_beams=beam,
            do_sample=False,
            min_new_tokens=length,
            max_new_tokens=length,
            eos_token_id=EOS,
        )
        found: list[list[int]] = output[:, 1:].tolist()
        return found

    def engine(batches: Sequence[list[list[int]]], beam: int) -> list[list[int]]:
        with torch.inference_mode():
            return [ids for batch in batches for ids in translated(batch, beam)]

    return engine


def ctranslate2_engine(folder: Path, tokens: list[str], length: int, kind: str, together: int) -> Engine:
    """CTranslate2's translator, with so many batches at once, each with an equal share of the threads."""
    import ctranslate2  # noqa: PLC0415

    threads = THREADS // together
    translator = ctranslate2.Translator(str(folder), compute_type=kind, inter_threads=together, intra_threads=threads)
    ids = {token: i for i, token in enumerate(tokens)}

    def engine(batches: Sequence[list[list[int]]], beam: int) -> list[list[int]]:
        results = translator.translate_batch(
            [[tokens[i] for i in source] for batch in batches for source in batch],
            beam_size=beam,
            length_penalty=1,
            min_decoding_length=length,
            max_decoding_length=length,
            max_batch_size=len(batches[0]),
            suppress_sequences=[[tokens[i]] for i in NEVER],
        )
        return [[ids[token] for token in result.hypotheses[0]] for result in results]

    return engine


def main() -> None:
    options = tyro.cli(Options)
    with options.config(10_000) as config, tempfile.TemporaryDirectory() as out:
        compare(options, replace(config, test_share=0.1), Path(out))


def compare(options: Options, config: Config, out: Path) -> None:
    device = choose_device(config.device)
    print(f"{device_label(device)}, torch {torch.__version__}; ", end="")
    corpus = load_corpus(config)
    tokenizer = learn_tokenizer(corpus.train, config.vocab_size)
    sources = tokenizer.encode([source for source, _ in corpus.test][: options.sentences])
    torch.manual_seed(1)
    model = Transformer(len(tokenizer), config).eval()
    contenders = {name: Contender(build) for name, build in engines(model, tokenizer, options, device, out).items()}
    print(
        f"{options.sizes(len(tokenizer))}; {len(sources):,} sentences of "
        f"{statistics.mean(map(len, sources)):.1f} tokens; {options.length} tokens each; {options.rounds} rounds"
    )
    for title, some, size in (
        ("one sentence at a time", sources[:8], 1),
        ("64 sentences at once", sources[:64], 64),
        (f"all {len(sources):,} sentences, {options.batch} at a time", sources, options.batch),
    ):
        for beam in (1, 5):
            ordered = sorted(some, key=len, reverse=True)  # as Translator does
            batches = [ordered[i : i + size] for i in range(0, len(ordered), size)]
            kind = f"beam {beam}" if beam > 1 else "greedy"
            print(f"\n{f'{title}, {kind}':<46}", end="")
            able = {name: contender for name, contender in contenders.items() if size > 1 or OVER not in name}
            measure(able, batches, beam, options)


def engines(
    model: Transformer, tokenizer: Tokenizer, options: Options, device: torch.device, out: Path
) -> dict[str, Callable[[], Engine]]:
    """How to build each engine, where it is to run."""
    length, builds = options.length, dict[str, Callable[[], Engine]]()
    precisions: tuple[TranslatingPrecision, ...] = ("fp32", "bf16", "int8")
    for precision in precisions[: None if device.type == "cpu" else 2]:
        builds[f"Tapis, {precision}"] = partial(ours, model, length, device, precision)
    if find_spec("ctranslate2"):
        tokens = tokenizer.tokens()
        spec = ctranslate2_specification(model, tokens)
        spec.validate()
        spec.optimize()
        spec.save(str(out))
        for kind in ("float32", "int8"):
            for name, together in (("threads inside batches", 1), (OVER, THREADS)):
                build = partial(ctranslate2_engine, out, tokens, length, kind, together)
                builds[f"CTranslate2, {kind}, {name}"] = build
    if find_spec("transformers"):
        for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
            build = partial(hugging_face, len(tokenizer), model.config, length, device, dtype)
            builds[f"Hugging Face, {name}"] = build
    return builds


def measure(contenders: dict[str, Contender], batches: Sequence[list[list[int]]], beam: int, options: Options) -> None:
    """The table of one kind of work."""
    n = sum(map(len, batches))
    found: dict[str, list[list[int]]] = {}

    def turn(name: str) -> float:
        time.sleep(0.3)  # until the threads of the one before have gone to sleep
        seconds, found[name] = contenders[name](batches, beam)
        return options.length * n / seconds

    for contender in contenders.values():
        contender(batches[:1], beam)  # warms up
    speeds = alternate({name: partial(turn, name) for name in contenders}, options.rounds)
    mine = [name for name in speeds if name.startswith("Tapis")]
    print(f" {'tokens/s':>9}{''.join(f'{name:>13} is' for name in mine)} {'same as fp32':>13}")
    for name, values in speeds.items():
        ratios = "".join(f"{ratio(speeds[own], values):>15.2f}×" for own in mine)
        same = sum(a == b for a, b in zip(found[name], found["Tapis, fp32"], strict=True)) / n
        shown = "" if name.startswith("Hugging") else f"{same:>13.1%}"
        print(f"{name:<46} {statistics.median(values):>9,.0f} {ratios} {shown}", flush=True)
    assert all(len(ids) == options.length for translations in found.values() for ids in translations), "stopped early"


if __name__ == "__main__":
    main()
