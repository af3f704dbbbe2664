"""The native engine as the exported page computes: plain C without leave to reorder sums, and embeddings of 24 bits."""

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from checkpoint import parameters
from exporting.web_page import REMAINDERS, remainder_of
from model import Transformer
from tapis.engine import engine
from tapis.engine.build_wasm import STRICT
from tapis.engine.engine import Engine
from tapis.engine.weights import quantize_rows

ROOT = Path(__file__).parent.parent


def compiled_strictly(folder: Path) -> ctypes.CDLL:
    """engine.c, compiled into a folder. Where there is no C compiler, the test is skipped."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    library = folder / "engine.so"
    source = ROOT / "tapis" / "engine" / "engine.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", *STRICT, str(source), "-o", str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library))


def rounded_embedding(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """An embedding as the page reads it, in 24 bits."""
    rounded, scale = quantize_rows(values)
    remainder = remainder_of(values, rounded, scale).astype(np.float64)
    return ((rounded + remainder / REMAINDERS) * scale).astype(np.float32)


def strict_engine(model: Transformer, tags: Sequence[int], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The engine of a model, in place of the one that was installed until the test ends."""
    library = compiled_strictly(folder)
    monkeypatch.setattr(engine, "library", lambda: library)
    weights = {name: weight.numpy() for name, weight in parameters(model).items()}
    strict = Engine(weights, model.config, tags, "plain")
    source = weights["src_embed.embedding.weight"]
    target = source if model.config.tie_embeddings else weights["tgt_embed.embedding.weight"]
    strict.model.source_embedding = strict._pointer(rounded_embedding(source))
    strict.model.target_embedding = strict._pointer(rounded_embedding(target))
    return strict
