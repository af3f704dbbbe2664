"""The engine: a Transformer in 8 bits with the searches around it, computed by engine.c.

A batch is one call; `Engine.steps`, for searches in Python, makes one for each step. pip compiles engine.c where it
finds a C compiler, and a wheel has it compiled, for all kinds of CPU at once. 8 bits lose no BLEU that could be
measured (docs/lab). Where the weights come from is not its concern: a release, or a model in training.
"""

import ctypes
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import c_float, c_int64, c_long, c_void_p
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tapis.config import EOS, ConfigError, ModelConfig
from tapis.engine.weights import DEPTH, PANEL, Floats, block_names, check_shapes, pack_linear, sinusoids
from tapis.search import AttentionOf, Hypothesis, LogitsStep, Search, finite, go_on, length_penalty
from tapis.threads import n_threads, spread

T = TypeVar("T")
U = TypeVar("U")

VARIANTS = ("avx512_vnni", "avx_vnni", "avx2", "neon_dotprod", "plain")  # of engine.c, best first
SHORT_SUMS = ("avx2",)  # those that add products of four numbers in 16 bits
LAYOUT_VERSION = 6  # as in engine.c
EPSILON = 1e-5  # of the normalizations, as in model.py


# The library


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled library. None if there is none, or if it was compiled from another version of engine.c."""
    spec = find_spec("tapis.engine._engine")
    if not (spec and spec.origin) or sys.byteorder != "little":
        return None
    structures = (_Norm, _Linear, _Block, _Model, _Source, _Step, _Sentences, _Search, _Results, _Forced)
    layout = [LAYOUT_VERSION, PANEL, DEPTH, *map(ctypes.sizeof, structures)]
    try:
        compiled = ctypes.CDLL(spec.origin)
        found = list((c_long * len(layout)).in_dll(compiled, "layout"))
    except (OSError, ValueError):  # for another system, or without this name
        return None
    return compiled if found == layout else None


def variants() -> list[str]:
    """Return the compiled variants that this CPU can compute, best first; none without a compiled library.

    TAPIS_VARIANT in the environment names one that is to be used in place of those before it.
    """
    compiled = library()
    there = [name for name in VARIANTS if hasattr(compiled, f"runs_{name}") and compiled[f"runs_{name}"]()]  # type: ignore[index]
    wanted = os.environ.get("TAPIS_VARIANT", "")
    return there[there.index(wanted) :] if wanted in there else there


def check_compiled() -> None:
    """Raise ConfigError where there is no compiled library."""
    if not variants():
        raise ConfigError(
            "the engine (tapis/engine/engine.c) was not compiled, or from another version: "
            "install a C compiler, and Tapis again"
        )


# The structures of engine.c, field by field


class _Norm(ctypes.Structure):
    _fields_ = [("alpha", c_void_p), ("bias", c_void_p)]


class _Linear(ctypes.Structure):
    _fields_ = [(name, c_void_p) for name in ("weight", "column_sums", "scale", "bias")] + [
        ("n_in", c_long),
        ("n_out", c_long),
    ]


class _Block(ctypes.Structure):
    _fields_ = [(name, _Norm) for name in ("self_norm", "source_norm", "feed_forward_norm")] + [
        (name, _Linear) for name in ("self_qkv", "self_o", "source_q", "source_kv", "source_o", "linear_1", "linear_2")
    ]


class _Model(ctypes.Structure):
    _fields_ = [
        *((name, c_long) for name in ("d", "n_heads", "is_pre_norm", "n_encoder_layers", "n_decoder_layers")),
        *((name, ctypes.POINTER(_Block)) for name in ("encoder", "decoder")),
        *((name, _Norm) for name in ("encoder_norm", "decoder_norm")),
        *((name, c_void_p) for name in ("source_embedding", "target_embedding")),
        ("projection", _Linear),
        ("epsilon", c_float),
    ]


class _Source(ctypes.Structure):
    _fields_ = [("keys_values", c_void_p), ("starts", c_void_p), ("n_tokens", c_long), ("longest", c_long)]


class _Step(ctypes.Structure):
    _fields_ = [("keys_values", c_void_p), ("parents", c_void_p), ("weights", c_void_p), ("n_rows", c_long)]


class _Sentences(ctypes.Structure):
    _fields_ = [("tokens", c_void_p), ("lengths", c_void_p), ("n", c_long)]

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> "_Sentences":
        """Return sentences of ids without EOS."""
        closed = [[*ids, EOS] for ids in sentences]
        tokens = np.array([token for ids in closed for token in ids], np.int64)
        lengths = np.array([len(ids) for ids in closed], np.int64)
        self = cls(tokens.ctypes.data, lengths.ctypes.data, len(closed))
        self.arrays = tokens, lengths  # kept alive
        return self


_MayGoOn = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_int))


class _Search(ctypes.Structure):
    _fields_ = [
        *((name, c_long) for name in ("beam", "n_best", "first_tag", "n_tags")),
        *((name, c_void_p) for name in ("limits", "penalties", "encodings")),
        ("may_go_on", _MayGoOn),
    ]


class _Results(ctypes.Structure):
    _fields_ = [(name, c_void_p) for name in ("lengths", "scores", "ids")]


class _Forced(ctypes.Structure):
    _fields_ = [("log_p", c_void_p), ("weights", c_void_p)]


NO_MEMORY, DONE, STOPPED = range(3)  # the outcomes of a search

# Converted once: if Ctrl-C comes while numpy converts a type of ctypes, numpy drops the error and returns `object`.
LONG = np.dtype(c_long)


class Calls:
    """One search of engine.c: the settings that it is given, and what it calls back."""

    def __init__(
        self,
        limits: Sequence[int],
        search: Search,
        tags: Sequence[int],
        encodings: Floats | None,
        check: Callable[[], None],
    ) -> None:
        """Prepare a search; the arguments are those of `run_search`."""
        self.raised: list[BaseException] = []
        limits_of = np.maximum(np.array(limits, np.int64), 1)
        longest = int(limits_of.max(initial=0)) if search.beam > 1 else -1
        alpha = search.length_penalty
        penalties = np.array([_length_penalty(length, alpha) for length in range(longest + 1)], np.float32)

        def may_go_on(may: Any) -> None:
            try:
                check()
                may[0] = 1
            except BaseException as error:
                self.raised.append(error)

        self.settings = _Search(
            search.beam,
            search.n_best,
            tags[0] if tags else 0,
            len(tags),
            limits_of.ctypes.data,
            penalties.ctypes.data if search.beam > 1 else None,
            None,
            _MayGoOn() if check is go_on else _MayGoOn(may_go_on),
        )
        self.arrays = limits_of, penalties  # kept alive
        if encodings is not None:
            self.use(encodings)

    def use(self, encodings: Floats) -> None:
        """Let the search read the encodings of positions from a table."""
        self.encodings = encodings  # kept alive
        self.settings.encodings = encodings.ctypes.data

    def end(self, outcome: int) -> None:
        """Raise what `check` raised, KeyboardInterrupt, or MemoryError, if the search did not come to its end."""
        if self.raised:
            raise self.raised[0]
        if outcome == STOPPED:  # Ctrl-C came when the search called Python, before `check`
            raise KeyboardInterrupt
        if outcome != DONE:
            raise MemoryError


_length_penalty = lru_cache(10_000)(length_penalty)


def _longest(sentences: Sequence[Sequence[int]]) -> int:
    """Return the positions of the longest of these sentences, with its end."""
    return max((len(ids) for ids in sentences), default=0) + 1


def run_search(
    call: Callable[[int, _Search, _Results], int],
    limits: Sequence[int],
    search: Search,
    tags: Sequence[int],
    encodings: Floats | None = None,
    check: Callable[[], None] = go_on,
) -> list[list[Hypothesis]]:
    """Run a search of engine.c, and return its results.

    Args:
        call: starts it, given the number of sentences; returns its outcome.
        limits: caps the length of each sentence, in tokens.
        search: how to search.
        tags: ids that are never generated, one after another.
        encodings: those of the first positions, (N, D): at least as many as the longest source and the longest limit;
            None for a search without a model.
        check: is called before every eighth step: calling Python waits for its other threads. What it raises ends the
            search.

    """
    n, n_best = len(limits), search.n_best
    calls = Calls(limits, search, tags, encodings, check)
    lengths, scores = np.empty((n, n_best), LONG), np.empty((n, n_best), np.float32)
    results = _Results(lengths.ctypes.data, scores.ctypes.data, None)
    calls.end(call(n, calls.settings, results))
    all_ids = iter((c_int64 * int(np.maximum(lengths, 0).sum())).from_address(results.ids))
    if search.beam == 1:
        scores.fill(math.nan)
    hypotheses = [
        [Hypothesis(list(islice(all_ids, length)), score) for length, score in zip(*row, strict=True) if length >= 0]
        for row in zip(lengths.tolist(), scores.tolist(), strict=True)
    ]
    compiled = library()
    assert compiled
    compiled["release"](c_void_p(results.ids))
    return hypotheses


# The model


class Engine:
    """A model in 8 bits as a searcher, by engine.c in one of the `variants`, by default the best.

    Weights are rounded here, once. Any number of threads may search with it at the same time.
    """

    batch_tokens = 512  # so that what a search keeps stays in the caches, and threads end at the same time
    can_force = True

    def __init__(
        self, weights: Mapping[str, Floats], config: ModelConfig, suppressed: Sequence[int] = (), variant: str = ""
    ) -> None:
        """Take the weights of a model by name.

        The ids `suppressed`, tags of languages, are never generated. They follow one another. Raises ConfigError where
        the engine is not compiled, or if the weights are not those of a model with this config.
        """
        check_compiled()
        compiled = library()
        assert compiled
        name = variant or variants()[0]
        self.variant = name
        self.translate, self.force = compiled[f"translate_{name}"], compiled[f"force_{name}"]
        self.config = config
        self.suppressed = list(suppressed)
        self.at_once = n_threads()
        self.for_short_sums = name in SHORT_SUMS
        self.kept_alive: list[object] = []  # what the structures point to
        self.positions = sinusoids(config.max_length + 2, config.d_model)

        source, projection = weights["src_embed.embedding.weight"], "projection.linear"
        check_shapes({name: weight.shape for name, weight in weights.items()}, config, len(source))
        target = source
        if config.tie_embeddings:
            weights = {**weights, f"{projection}.weight": source}
        else:
            target = weights["tgt_embed.embedding.weight"]
        self.model = _Model(
            d=config.d_model,
            n_heads=config.n_heads,
            is_pre_norm=config.norm == "pre",
            n_encoder_layers=config.n_encoder_layers,
            n_decoder_layers=config.n_decoder_layers,
            encoder=self._blocks(weights, "encoder", config.n_encoder_layers),
            decoder=self._blocks(weights, "decoder", config.n_decoder_layers),
            encoder_norm=self._norm(weights, "encoder.norm"),
            decoder_norm=self._norm(weights, "decoder.norm"),
            source_embedding=self._pointer(source),
            target_embedding=self._pointer(target),
            projection=self._linear(weights, [projection]),
            epsilon=EPSILON,
        )

    def _pointer(self, array: NDArray[Any]) -> int:
        array = np.ascontiguousarray(array)
        self.kept_alive.append(array)
        return array.ctypes.data

    def _norm(self, weights: Mapping[str, Floats], name: str) -> _Norm:
        """Return a normalization; none where the model has none of this name."""
        if f"{name}.alpha" not in weights:
            return _Norm()
        return _Norm(self._pointer(weights[f"{name}.alpha"]), self._pointer(weights[f"{name}.bias"]))

    def _linear(self, weights: Mapping[str, Floats], names: Sequence[str]) -> _Linear:
        """Return several layers that read the same vectors, as one; none where there are no names."""
        if not names:
            return _Linear()
        packed = pack_linear(weights, names, for_short_sums=self.for_short_sums)
        return _Linear(
            weight=self._pointer(packed.weight),
            column_sums=self._pointer(packed.column_sums),
            scale=self._pointer(packed.scale),
            bias=self._pointer(packed.bias),
            n_in=packed.n_in,
            n_out=packed.n_out,
        )

    def _blocks(self, weights: Mapping[str, Floats], stack: str, n: int) -> "ctypes.Array[_Block]":
        array = (_Block * n)()
        for i in range(n):
            names = block_names(stack, i)
            norms = (self._norm(weights, name) for name in names.norms)
            array[i] = _Block(*norms, *(self._linear(weights, layers) for layers in names.linears))
        return array

    def first_positions(self, n: int) -> Floats:
        """Return the encodings of the first n positions: (n, D) at least."""
        table = self.positions  # which another thread may replace
        if n > len(table):
            table = self.positions = sinusoids(2 * n, self.config.d_model)
        return table

    def __call__(
        self, sources: Sequence[list[int]], limits: Sequence[int], search: Search, check: Callable[[], None] = go_on
    ) -> list[list[Hypothesis]]:
        sentences = _Sentences.of(sources)

        def call(n: int, settings: _Search, results: _Results) -> int:
            arguments = self.model, sentences, settings, results
            outcome: int = self.translate(*map(ctypes.byref, arguments))
            return outcome

        encodings = self.first_positions(max(_longest(sources), *limits, 0))
        results = run_search(call, limits, search, self.suppressed, encodings, check)
        return finite(results, "try --precision fp32")

    def log_probabilities(
        self, sources: Sequence[list[int]], targets: Sequence[list[int]], check: Callable[[], None] = go_on
    ) -> list[float]:
        values, _ = self._forced(sources, targets, check, with_weights=False)
        return values

    def attention(
        self,
        sources: Sequence[list[int]],
        targets: Sequence[list[int]],
        check: Callable[[], None] = go_on,
        of: AttentionOf = "source",
    ) -> list[Floats]:
        if of != "source":
            raise ConfigError(f"the engine does not show the {of}'s own attention; PyTorch does: add --precision fp32")
        _, weights = self._forced(sources, targets, check, with_weights=True)
        return weights

    def _forced(
        self,
        sources: Sequence[list[int]],
        targets: Sequence[list[int]],
        check: Callable[[], None],
        with_weights: bool,
    ) -> tuple[list[float], list[Floats]]:
        """Return log P of each target, and the weights of attention if they are wanted."""
        heads = self.config.n_decoder_layers, self.config.n_heads
        shapes = [(*heads, len(t) + 1, len(s) + 1) for s, t in zip(sources, targets, strict=True)]
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        log_p = np.empty(len(sources), np.float64)
        weights = np.empty(ends[-1] if with_weights and len(ends) else 0, np.float32)
        encodings = self.first_positions(_longest([*sources, *targets]))
        calls = Calls([], Search(), self.suppressed, encodings, check)
        forced = _Forced(log_p.ctypes.data, weights.ctypes.data if with_weights else None)
        arguments = self.model, _Sentences.of(sources), calls.settings, _Sentences.of(targets), forced
        calls.end(self.force(*map(ctypes.byref, arguments)))
        parts = np.split(weights, ends[:-1]) if with_weights and len(ends) else []
        return log_p.tolist(), [part.reshape(shape) for part, shape in zip(parts, shapes, strict=with_weights)]

    @contextmanager
    def steps(self, source: list[int], check: Callable[[], None] = go_on) -> Iterator[LogitsStep]:
        compiled = library()
        assert compiled
        calls = Calls([], Search(), self.suppressed, self.first_positions(_longest([source])), check)
        sentences = _Sentences.of([source])
        begin = compiled[f"begin_stepping_{self.variant}"]
        begin.restype = c_void_p
        stepping = c_void_p(begin(*map(ctypes.byref, (self.model, sentences, calls.settings))))
        if not stepping:
            raise MemoryError

        n_steps = 0

        def step(tokens: NDArray[np.int64], parents: NDArray[np.int64] | None) -> Floats:
            nonlocal n_steps
            n_steps += 1
            calls.use(self.first_positions(n_steps))
            logits = np.empty((len(tokens), self.model.projection.n_out), np.float32)
            pointers = [
                c_void_p(array.ctypes.data) for array in (tokens, tokens if parents is None else parents, logits)
            ]
            calls.end(compiled["next_logits"](stepping, c_long(len(tokens)), *pointers))
            return logits

        try:
            yield step
        finally:
            compiled["end_stepping"](stepping)

    def spread(self, work: Callable[[T], U], items: Sequence[T]) -> Iterator[U]:
        return spread(work, items)
