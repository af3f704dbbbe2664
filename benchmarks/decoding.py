"""Decoding speed: greedy and beam search, ours against CTranslate2 and Hugging Face's generate, taking turns.

    python benchmarks/decoding.py                                        synthetic sentences, as long as captions
    python benchmarks/decoding.py --data FOLDER --source en --target fr  the sentences of the data's test part

The model is untrained, and every engine is made to give --length tokens for every sentence, so that all do the same
work. CTranslate2 holds the very same weights, and its translations are compared with ours. Hugging Face's MarianMT has
the same sizes. Engines that are not installed (`pip install ctranslate2 transformers`) are left out. Speeds are in
tokens of translation a second, the encoder's time included.

Not yet to be quoted: in one process, the waiting threads of one engine slow the next one down.
"""

import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch  # noqa: E402
import tyro  # noqa: E402
from measure import Work, alternate, ratio, synchronize  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from training import marian  # noqa: E402

from config import BOS, EOS, PAD, UNK, Config, Precision  # noqa: E402
from corpus import load_corpus  # noqa: E402
from dataset import pad  # noqa: E402
from decode import NEVER, Search, beam_search, greedy_search  # noqa: E402
from hardware import autocast, choose_device, device_label, keep_freed_memory  # noqa: E402
from model import Transformer  # noqa: E402
from train import trained_tokenizer  # noqa: E402
from translate import model_step  # noqa: E402

# (source ids of a batch, beam) → their translations
Engine = Callable[[Sequence[list[int]], int], list[list[int]]]

THREADS = torch.get_num_threads()  # CTranslate2, with one thread to a batch, changes torch's own number to that


@dataclass(frozen=True)
class Options(Work):
    """Time decoding, ours and others'."""

    sentences: int = 1000
    """Of a whole test set, at most"""
    length: int = 20
    """Of every translation, in tokens"""
    batch: int = 128
    """Sentences of a batch, where there are enough"""
    rounds: int = 3
    """Turns of each engine"""


def ours(model: Transformer, length: int, device: torch.device, precision: Precision) -> Engine:
    """Our search, with no end before length."""

    def engine(sources: Sequence[list[int]], beam: int) -> list[list[int]]:
        with torch.inference_mode(), autocast(device, precision):
            step = model_step(model, pad(sources).to(device))

            def endless(tokens: Tensor, rows: Tensor | None) -> Tensor:
                logits = step(tokens, rows)
                logits[:, EOS] = -torch.inf
                return logits

            limits = torch.full((len(sources),), length, device=device)
            if beam == 1:
                return greedy_search(endless, limits)
            return [found[0].ids for found in beam_search(endless, limits, Search(beam))]

    return engine


def hugging_face(model: nn.Module, length: int, device: torch.device) -> Engine:
    """MarianMT's generate, with no end before length."""
    model = model.to(device).eval()

    def engine(sources: Sequence[list[int]], beam: int) -> list[list[int]]:
        src = pad(sources).to(device)
        with torch.inference_mode():
            output = model.generate(  # type: ignore[operator]
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

    return engine


def specification(model: Transformer, tokens: list[str]) -> Any:
    """The model in CTranslate2's terms."""
    from ctranslate2.specs import (  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
        TransformerDecoderSpec,
        TransformerEncoderSpec,
        TransformerSpec,
    )

    config = model.config
    pre = config.norm == "pre"
    spec = TransformerSpec(
        TransformerEncoderSpec(config.n_encoder_layers, config.n_heads, pre_norm=pre),
        TransformerDecoderSpec(config.n_decoder_layers, config.n_heads, pre_norm=pre),
    )

    def numpy(values: Tensor) -> Any:
        return values.detach().float().cpu().contiguous().numpy()

    def linear(into: Any, *layers: nn.Linear) -> None:
        into.weight = numpy(torch.cat([layer.weight for layer in layers]))
        if layers[0].bias is not None:
            into.bias = numpy(torch.cat([layer.bias for layer in layers]))

    def norm(into: Any, layer: Any) -> None:
        into.gamma, into.beta = numpy(layer.alpha), numpy(layer.bias)

    def attention(into: Any, residual: Any, block: Any, own: bool) -> None:
        first = [block.w_q, block.w_k, block.w_v]
        groups = [first, [block.w_o]] if own else [first[:1], first[1:], [block.w_o]]
        for part, layers in zip(into.linear, groups, strict=True):
            linear(part, *layers)
        norm(into.layer_norm, residual.norm)

    block: Any
    for side, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        for into, block in zip(side.layer, stack.blocks, strict=True):
            attention(into.self_attention, block.residuals[0], block.self_attention, own=True)
            if stack is model.decoder:
                attention(into.attention, block.residuals[1], block.cross_attention, own=False)
            linear(into.ffn.linear_0, block.feed_forward.linear_1)
            linear(into.ffn.linear_1, block.feed_forward.linear_2)
            norm(into.ffn.layer_norm, block.residuals[-1].norm)
        if pre:
            norm(side.layer_norm, stack.norm)
        side.position_encodings.encodings = numpy(model.src_position.sinusoids(512))
    spec.encoder.embeddings[0].weight = numpy(model.src_embed.embedding.weight)
    spec.decoder.embeddings.weight = numpy(model.tgt_embed.embedding.weight)
    linear(spec.decoder.projection, model.projection.linear)
    spec.config.add_source_eos = True
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = tokens[BOS], tokens[EOS], tokens[UNK]
    spec.config.decoder_start_token = tokens[BOS]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    return spec


def ctranslate2_engines(model: Transformer, tokens: list[str], length: int, folder: Path) -> dict[str, Engine]:
    """CTranslate2's, in float32 and int8, with its threads inside a batch and over batches."""
    try:
        import ctranslate2  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
    except ImportError:
        return {}
    spec = specification(model, tokens)
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    ids = {token: i for i, token in enumerate(tokens)}

    def translated(translator: Any, pieces: int, sources: Sequence[list[int]], beam: int) -> list[list[int]]:
        results = translator.translate_batch(
            [[tokens[i] for i in source] for source in sources],
            beam_size=beam,
            length_penalty=1,
            min_decoding_length=length,
            max_decoding_length=length,
            max_batch_size=math.ceil(len(sources) / pieces),
            suppress_sequences=[[tokens[i]] for i in NEVER],
        )
        return [[ids[token] for token in result.hypotheses[0]] for result in results]

    engines: dict[str, Engine] = {}
    for kind in ("float32", "int8"):
        for name, threads in (
            ("inside", {"intra_threads": THREADS}),
            ("over", {"inter_threads": THREADS, "intra_threads": 1}),
        ):
            translator = ctranslate2.Translator(str(folder), compute_type=kind, **threads)
            pieces = THREADS if name == "over" else 1
            engines[f"CTranslate2, {kind}, threads {name} batches"] = partial(translated, translator, pieces)
    return engines


def main() -> None:
    options = tyro.cli(Options)
    with options.config(10_000) as config, tempfile.TemporaryDirectory() as out:
        compare(options, replace(config, test_share=0.1), Path(out))


def compare(options: Options, config: Config, out: Path) -> None:
    device = choose_device(config.device)
    print(f"{device_label(device)}, torch {torch.__version__}; ", end="")
    corpus = load_corpus(config)
    tokenizer = trained_tokenizer(corpus, config.vocab_size)
    sources = tokenizer.encode([source for source, _ in corpus.test][: options.sentences])
    keep_freed_memory()
    torch.manual_seed(1)
    model = Transformer(len(tokenizer), config).to(device).eval()
    tokens = [str(tokenizer.inner.id_to_token(i)) for i in range(len(tokenizer))]
    engines: dict[str, Engine] = {
        "Tapis, fp32": ours(model, options.length, device, "fp32"),
        "Tapis, bf16": ours(model, options.length, device, "bf16"),
    }
    engines |= ctranslate2_engines(model, tokens, options.length, out)
    for dtype in (torch.float32, torch.bfloat16):
        if (peer := marian(len(tokenizer), config)) is not None:
            name = "fp32" if dtype == torch.float32 else "bf16"
            engines[f"Hugging Face, {name}"] = hugging_face(peer.to(dtype), options.length, device)
    print(
        f"{options.sizes(len(tokenizer))}; {len(sources):,} sentences of "
        f"{statistics.mean(map(len, sources)):.1f} tokens; {options.length} tokens each; {options.rounds} rounds"
    )
    for title, some, size in (
        ("one sentence at a time", sources[:12], 1),
        ("64 sentences at once", sources[:64], 64),
        (f"all {len(sources):,} sentences, {options.batch} at a time", sources, options.batch),
    ):
        for beam in (1, 5):
            ordered = sorted(some, key=len)  # as Translator does
            batches = [ordered[i : i + size] for i in range(0, len(ordered), size)]
            kind = f"beam {beam}" if beam > 1 else "greedy"
            print(f"\n{f'{title}, {kind}':<46}", end="")
            measure(engines, batches, beam, options, device)


def measure(
    engines: dict[str, Engine], batches: list[list[list[int]]], beam: int, options: Options, device: torch.device
) -> None:
    """The table of one kind of work."""
    n = sum(map(len, batches))
    found: dict[str, list[list[int]]] = {}

    def turn(name: str) -> float:
        torch.set_num_threads(THREADS)
        synchronize(device)
        start = time.perf_counter()
        found[name] = [ids for batch in batches for ids in engines[name](batch, beam)]
        synchronize(device)
        return options.length * n / (time.perf_counter() - start)

    for name in engines:
        turn(name)  # warms up
    speeds = alternate({name: partial(turn, name) for name in engines}, options.rounds)
    print(f" {'tokens/s':>9} {'Tapis fp32 is':>14} {'bf16 is':>9} {'same as fp32':>13}")
    for name, values in speeds.items():
        own, fast = (ratio(speeds[f"Tapis, {precision}"], values) for precision in ("fp32", "bf16"))
        same = sum(a == b for a, b in zip(found[name], found["Tapis, fp32"], strict=True)) / n
        shown = "" if name.startswith("Hugging") else f"{same:>13.1%}"
        print(f"{name:<46} {statistics.median(values):>9,.0f} {own:>13.2f}× {fast:>8.2f}× {shown}", flush=True)
    assert all(len(ids) == options.length for name in engines for ids in found[name]), "an engine stopped early"


if __name__ == "__main__":
    main()
