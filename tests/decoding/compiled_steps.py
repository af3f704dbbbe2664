"""The parts of compiled.c that its search calls, one by one: tests compare them with torch."""

import ctypes
from ctypes import c_long, c_void_p
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from config import PAD
from decoding.compiled import CompiledTransformer, _Source, _Step, library, variants
from decoding.search import Step


def function(name: str, variant: str = "") -> Any:
    """A function of compiled.c in a variant, by default the best."""
    compiled = library()
    assert compiled
    return compiled[f"{name}_{variant or variants()[0]}"]


def compiled_best_continuations(
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


def compiled_step(model: CompiledTransformer, src: Tensor, variant: str = "") -> Step:
    """`decoding.steps.plain_step`: each step is one call of compiled.c."""
    return CompiledSteps(model, src, variant).step


class CompiledSteps:
    """The translation of one batch by a `CompiledTransformer`, step by step: the sources, and the steps so far."""

    def __init__(self, compiled: CompiledTransformer, src: Tensor, variant: str) -> None:
        """src (B, S) are ids, padded on the right."""
        self.compiled = compiled
        self.variant = variant
        self.n_layers, self.d = compiled.config.n_decoder_layers, compiled.config.d_model
        is_token = src != PAD
        tokens, lengths = src[is_token], is_token.sum(dim=1)
        self.source_keys_values = self._new_keys_values(len(tokens))
        self.starts = F.pad(lengths.cumsum(0), (1, 0))
        longest = src.size(1)
        encodings = compiled.position.first(longest)
        self.source = _Source(self.source_keys_values.data_ptr(), self.starts.data_ptr(), len(tokens), longest)
        assert function("encode", variant)(
            ctypes.byref(compiled.model),
            c_void_p(tokens.data_ptr()),
            c_void_p(lengths.data_ptr()),
            c_long(len(lengths)),
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
        self.history[n_steps] = _Step(keys_values.data_ptr(), None if parents is None else parents.data_ptr(), n_rows)

        # Compute it.
        encodings = self.compiled.position.first(n_steps + 1)
        logits = torch.empty(*tokens.shape, self.compiled.model.projection.n_out, dtype=torch.float32)
        assert function("step", self.variant)(
            ctypes.byref(self.compiled.model),
            ctypes.byref(self.source),
            self.history,
            c_long(n_steps + 1),
            c_void_p(tokens.data_ptr()),
            c_void_p(encodings[n_steps].data_ptr()),
            c_void_p(logits.data_ptr()),
        )
        return logits
