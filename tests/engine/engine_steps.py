"""The parts of engine.c that its search calls, one by one: tests compare them with torch."""

import ctypes
from collections.abc import Sequence
from ctypes import c_long, c_void_p
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from checkpoint import parameters
from decoding.search import Step
from model import Transformer
from tapis.config import PAD
from tapis.engine.engine import Engine, _Sentences, _Source, _Step, library, variants


def function(name: str, variant: str = "") -> Any:
    """A function of engine.c in a variant, by default the best."""
    compiled = library()
    assert compiled
    return compiled[f"{name}_{variant or variants()[0]}"]


def engine_best_continuations(
    variant: str, logits: Tensor, n: int, scores: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`decoding.search.best_continuations`. Values are equal up to rounding; equal ones may swap."""
    n_sentences, n_hypotheses, vocab_size = logits.shape
    logits = logits.float().contiguous()
    scores = None if scores is None else scores.float().contiguous()
    values = torch.empty(n_sentences, n, dtype=torch.float32)
    places = torch.empty(n_sentences, n, dtype=torch.int64)
    function("best_continuations", variant)(
        c_void_p(logits.data_ptr()),
        None if scores is None else c_void_p(scores.data_ptr()),
        *map(c_long, (n_sentences, n_hypotheses, vocab_size, n)),
        c_void_p(values.data_ptr()),
        c_void_p(places.data_ptr()),
    )
    return values, places


def engine_of(model: Transformer, variant: str = "", suppressed: Sequence[int] = ()) -> Engine:
    """The engine with the weights of a model."""
    weights = {name: weight.numpy() for name, weight in parameters(model).items()}
    return Engine(weights, model.config, suppressed, variant)


def engine_step(model: Engine, src: Tensor, variant: str = "") -> Step:
    """`decoding.steps.plain_step`: each step is one call of engine.c."""
    return EngineSteps(model, src, variant).step


class EngineSteps:
    """The translation of one batch by a `Engine`, step by step: the sources, and the steps so far."""

    def __init__(self, engine: Engine, src: Tensor, variant: str) -> None:
        """src (B, S) are ids, padded on the right."""
        self.engine = engine
        self.variant = variant
        self.n_layers, self.d = engine.config.n_decoder_layers, engine.config.d_model
        is_token = src != PAD
        tokens, lengths = src[is_token], is_token.sum(dim=1)
        self.source_keys_values = self._new_keys_values(len(tokens))
        self.starts = F.pad(lengths.cumsum(0), (1, 0))
        longest = src.size(1)
        encodings = torch.from_numpy(engine.first_positions(longest))
        self.source = _Source(self.source_keys_values.data_ptr(), self.starts.data_ptr(), len(tokens), longest)
        sentences = _Sentences(tokens.data_ptr(), lengths.data_ptr(), len(lengths))
        assert function("encode", variant)(
            ctypes.byref(engine.model),
            ctypes.byref(sentences),
            c_void_p(encodings.data_ptr()),
            ctypes.byref(self.source),
        )
        self.history = (_Step * 1000)()
        self.kept_alive: list[tuple[Tensor, Tensor | None]] = []  # what the history points to

    def _new_keys_values(self, n: int) -> Tensor:
        """Room for the keys and values of n tokens in each layer of the decoder."""
        return torch.empty(self.n_layers, n, 2, self.d, dtype=torch.bfloat16)

    def step(self, tokens: Tensor, parents: Tensor | None) -> Tensor:
        # Enter this step into the history.
        n_rows, n_steps = tokens.numel(), len(self.kept_alive)
        keys_values = self._new_keys_values(n_rows)
        tokens = tokens.to(torch.int64).contiguous()
        parents = None if parents is None else parents.to(torch.int64).contiguous()
        self.kept_alive.append((keys_values, parents))
        self.history[n_steps] = _Step(
            keys_values.data_ptr(), None if parents is None else parents.data_ptr(), None, n_rows
        )

        # Compute it.
        encodings = torch.from_numpy(self.engine.first_positions(n_steps + 1))
        logits = torch.empty(*tokens.shape, self.engine.model.projection.n_out, dtype=torch.float32)
        assert function("step", self.variant)(
            ctypes.byref(self.engine.model),
            ctypes.byref(self.source),
            self.history,
            c_long(n_steps + 1),
            c_void_p(tokens.data_ptr()),
            c_void_p(encodings[n_steps].data_ptr()),
            c_void_p(logits.data_ptr()),
        )
        return logits
