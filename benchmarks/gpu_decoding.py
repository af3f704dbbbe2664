"""The speed of searches with the sizes of the preset base, beside Hugging Face's `generate`. A part of gpu_visit.py.

The weights are random, and the model never generates the end token: every translation ends when it has 25 tokens, in
all engines. Sources have about as many tokens. Hugging Face translates all of them in one batch; Tapis cuts them into
batches for the GPU, as translate.py does. The engines share a process and take turns.
"""

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
import tyro  # noqa: E402
from decoding_speed import Engine, hugging_face_engine, tapis_engine  # noqa: E402
from gpu_visit import PartOptions  # noqa: E402
from measure import alternate_while_working, print_failure, ratio, synchronize  # noqa: E402

from config import PRESETS  # noqa: E402
from machine.devices import DTYPES, choose_device  # noqa: E402
from model import Transformer  # noqa: E402
from tapis.config import TranslatingPrecision  # noqa: E402


def speed(engine: Engine, batch: list[list[int]], beam: int, length: int, device: torch.device) -> float:
    """Return the tokens of translation a second of one search."""
    synchronize(device)
    begun = time.perf_counter()
    translations = engine([batch], beam)
    synchronize(device)
    seconds = time.perf_counter() - begun
    assert {len(ids) for ids in translations} == {length}, "a translation has another length"
    return len(batch) * length / seconds


def main() -> None:
    options = tyro.cli(PartOptions)
    device = choose_device(options.device)
    config, vocab_size = replace(PRESETS["base"], dropout=0.0), 37_000
    length, rounds, numbers_of_sentences = 25, 3, [1, 64, 957]
    if options.simulate:
        config = replace(config, d_model=32, n_heads=4, d_ff=64, n_encoder_layers=1, n_decoder_layers=1)
        vocab_size, length, rounds, numbers_of_sentences = 400, 3, 1, [1, 4]
    random = np.random.default_rng(1)
    lengths = random.normal(25, 6, size=max(numbers_of_sentences)).clip(4, 50).astype(int)
    sources = [random.integers(300, vocab_size, size=n).tolist() for n in lengths]

    # Prepare the engines. One that fails is left out from then on.
    torch.manual_seed(1)
    model = Transformer(vocab_size, config).to(device).eval()
    # On a GPU from Ampere on, "auto" is bf16.
    precisions: tuple[TranslatingPrecision, ...] = ("bf16", "fp32") if device.type == "cuda" else ("auto", "fp32")
    builders: dict[str, Callable[[], Engine]] = {
        f"Tapis, {precision}": partial(tapis_engine, model, length, device, precision) for precision in precisions
    }
    if find_spec("transformers"):
        for name in ("bf16", "fp32"):
            builders[f"Hugging Face, {name}"] = partial(
                hugging_face_engine, vocab_size, config, length, device, DTYPES[name]
            )
    engines: dict[str, Engine] = {}
    for name, build in builders.items():
        try:
            engines[name] = build()
        except Exception as error:  # of any library
            print_failure(name, error)
    print(
        f"base with random weights, vocabulary {vocab_size:,}; sources of {np.mean(lengths):.1f} tokens, "
        f"translations of {length} tokens; tokens/s, medians of {rounds} rounds",
        flush=True,
    )

    # Let them take turns.
    for n_sentences in numbers_of_sentences:
        batch = sorted(sources[:n_sentences], key=len, reverse=True)
        for beam in (1, 4):
            print(f"{n_sentences} sentence{'s' * (n_sentences > 1)}, {f'beam {beam}' if beam > 1 else 'greedy'}")
            for name in list(engines):
                try:
                    speed(engines[name], batch, beam, length, device)  # warm up
                except Exception as error:  # of any library
                    print_failure(name, error)
                    del engines[name]
            turns: dict[str, Callable[[], float]] = {
                name: partial(speed, engine, batch, beam, length, device) for name, engine in engines.items()
            }
            speeds = alternate_while_working(turns, rounds)
            engines = {name: engines[name] for name in turns}
            medians = {name: statistics.median(values) for name, values in speeds.items()}
            best = max((name for name in speeds if name.startswith("Hugging")), key=medians.__getitem__, default="")
            for name, values in speeds.items():
                times = f"{ratio(values, speeds[best]):>8.2f}× {best}" if best else ""
                print(f"    {name:<22} {medians[name]:>11,.0f}{times}", flush=True)
    sys.exit(len(engines) < len(builders))


if __name__ == "__main__":
    main()
