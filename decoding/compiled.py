"""A Transformer in 8 bits, with the search around it, computed by compiled.c: one call for each batch.

pip compiles it where it finds a C compiler, for all kinds of CPU at once. Without it, torch computes, one operation
after another, in 16 or 32 bits (inference.py). 8 bits lose no BLEU that could be measured (docs/lab).
"""

import ctypes
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from ctypes import c_float, c_int64, c_long, c_void_p
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from config import EOS, ConfigError, TranslatingPrecision
from decoding.search import Hypothesis, Search, go_on, length_penalty
from model import DecoderBlock, EncoderBlock, LayerNormalization, Transformer
from system.devices import choose_precision, cpu_features

# The variants of compiled.c, best first, and the instruction sets that each needs.
VARIANTS = {
    "avx512_vnni": {"avx512_f", "avx512_bw", "avx512_dq", "avx512_vl", "avx512_vnni", "fma3"},
    "avx_vnni": {"avx2", "avx_vnni", "fma3"},
    "avx2": {"avx2", "fma3"},
    "neon_dotprod": {"dot"},
    "plain": set(),
}
LAYOUT_VERSION, PANEL = 2, 32  # as in compiled.c; PANEL is the number of columns of packed weights side by side


# The library


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled library. None if there is none, or if it was compiled from another version of compiled.c."""
    spec = find_spec("decoding._compiled")
    if not (spec and spec.origin) or sys.byteorder != "little":
        return None
    structures = (_Norm, _Linear, _Block, _Model, _Source, _Step, _Search, _Results)
    layout = [LAYOUT_VERSION, PANEL, *map(ctypes.sizeof, structures)]
    try:
        compiled = ctypes.CDLL(spec.origin)
        found = list((c_long * len(layout)).in_dll(compiled, "layout"))
    except (OSError, ValueError):  # for another system, or without this name
        return None
    return compiled if found == layout else None


def variants() -> list[str]:
    """Return the compiled variants that this CPU can compute, best first; none without a compiled library."""
    compiled, features = library(), cpu_features()
    return [name for name, needs in VARIANTS.items() if hasattr(compiled, f"step_{name}") and needs <= features]


def choose_translating(name: TranslatingPrecision, device: torch.device) -> TranslatingPrecision:
    """Return the precision for translating: auto prefers int8 where it can, else follows `choose_precision`.

    Raises ConfigError for int8 where it cannot be computed.
    """
    can_compute = device.type == "cpu" and bool(variants())
    if name == "int8" and device.type != "cpu":
        raise ConfigError(f"--precision int8 is for CPUs; on {device.type}, choose bf16 or fp16")
    if name == "int8" and not can_compute:
        raise ConfigError(
            "--precision int8 needs decoding/compiled.c, which was not compiled, or from another version: "
            "install a C compiler, and Tapis again (pip install -e .)"
        )
    if name == "int8" or (name == "auto" and can_compute):
        return "int8"
    return choose_precision(name, device)


# The structures of compiled.c, field by field


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
    _fields_ = [("keys_values", c_void_p), ("parents", c_void_p), ("n_rows", c_long)]


_Positions = ctypes.CFUNCTYPE(c_void_p, c_long)
_MayGoOn = ctypes.CFUNCTYPE(ctypes.c_int)


class _Search(ctypes.Structure):
    _fields_ = [
        *((name, c_long) for name in ("beam", "n_best", "first_tag", "n_tags")),
        *((name, c_void_p) for name in ("limits", "penalties")),
        ("positions", _Positions),
        ("may_go_on", _MayGoOn),
    ]


class _Results(ctypes.Structure):
    _fields_ = [(name, c_void_p) for name in ("lengths", "scores", "ids")]


NO_MEMORY, DONE, STOPPED = range(3)  # the outcomes of a search


@lru_cache(10_000)
def _length_penalty(length: int, alpha: float) -> float:
    """Return `length_penalty` of one length, as beam_search computes it: torch rounds many at once otherwise."""
    return float(length_penalty(length, alpha))


def run_search(
    call: Callable[[int, _Search, _Results], int],
    limits: Sequence[int],
    search: Search,
    tags: Sequence[int],
    positions: Callable[[int], Tensor] | None = None,
    check: Callable[[], None] = go_on,
) -> list[list[Hypothesis]]:
    """Run a search of compiled.c, and return its results.

    Args:
        call: starts it, given the number of sentences; returns its outcome.
        limits: caps the length of each sentence, in tokens.
        search: how to search.
        tags: ids that are never generated, one after another.
        positions: returns the encodings of the first so many positions.
        check: is called before each step. What it raises ends the search.

    """
    raised: list[BaseException] = []
    alive: list[Tensor] = []  # the tables that the search may still read

    def may_go_on() -> int:
        try:
            check()
        except BaseException as error:
            raised.append(error)
        return not raised

    def pointer_to_positions(n: int) -> int:
        assert positions
        alive[:] = [positions(n)]
        return alive[0].data_ptr()

    n, n_best = len(limits), search.n_best
    lengths, scores = torch.empty(n, n_best, dtype=torch.int64), torch.empty(n, n_best)
    limits_of = torch.tensor(limits, dtype=torch.int64).clamp_min(1)
    lengths_of_results = range(int(limits_of.max()) + 1 if search.beam > 1 else 0)
    penalties = torch.tensor([_length_penalty(length, search.length_penalty) for length in lengths_of_results])
    settings = _Search(
        search.beam,
        n_best,
        tags[0] if tags else 0,
        len(tags),
        limits_of.data_ptr(),
        penalties.data_ptr(),
        _Positions(pointer_to_positions),
        _MayGoOn() if check is go_on else _MayGoOn(may_go_on),
    )
    results = _Results(lengths.data_ptr(), scores.data_ptr(), None)
    outcome = call(n, settings, results)
    if raised:
        raise raised[0]
    if outcome != DONE:
        raise MemoryError
    all_ids = iter((c_int64 * int(lengths.clamp_min(0).sum())).from_address(results.ids))
    if search.beam == 1:
        scores.fill_(math.nan)
    hypotheses = [
        [Hypothesis(list(islice(all_ids, length)), score) for length, score in zip(*row, strict=True) if length >= 0]
        for row in zip(lengths.tolist(), scores.tolist(), strict=True)
    ]
    compiled = library()
    assert compiled
    compiled["release"](c_void_p(results.ids))
    return hypotheses


# The model


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows of x (N, D) → int8 (N, D) and their scales (N, 1), the largest entry of each row over 127."""
    scale = x.abs().amax(dim=1, keepdim=True).clamp_min(1e-30) / 127
    return (x * scale.reciprocal()).round_().to(torch.int8), scale


def pack_weight(weight: Tensor) -> Tensor:
    """Return an int8 weight (V, D) in the order of compiled.c: panels of 32 columns, four numbers of each."""
    v, d = weight.shape
    padded = F.pad(weight, (0, -d % 4, 0, -v % PANEL))
    return padded.view(-1, PANEL, padded.size(1) // 4, 4).transpose(1, 2).contiguous()


class CompiledTransformer:
    """A model in 8 bits, for translating by compiled.c in one of the `variants`, by default the best.

    Weights are rounded here, once; norms and embeddings are those of the model.
    """

    def __init__(self, model: Transformer, variant: str = "") -> None:
        compiled = library()
        assert compiled
        name = variant or variants()[0]
        self.translate = compiled[f"translate_{name}"]
        self.config = model.config
        self.position = model.tgt_position
        self.kept_alive: list[object] = []  # what the structures point to

        norms = (model.encoder.norm, model.decoder.norm)
        encoder_norm, decoder_norm = (
            self._norm(norm) if isinstance(norm, LayerNormalization) else _Norm() for norm in norms
        )
        self.model = _Model(
            d=model.config.d_model,
            n_heads=model.config.n_heads,
            is_pre_norm=model.config.norm == "pre",
            n_encoder_layers=model.config.n_encoder_layers,
            n_decoder_layers=model.config.n_decoder_layers,
            encoder=self._blocks(model.encoder.blocks),
            decoder=self._blocks(model.decoder.blocks),
            encoder_norm=encoder_norm,
            decoder_norm=decoder_norm,
            source_embedding=self._pointer(model.src_embed.embedding.weight.float()),
            target_embedding=self._pointer(model.tgt_embed.embedding.weight.float()),
            projection=self._linear([model.projection.linear]),
            epsilon=next(module.eps for module in model.modules() if isinstance(module, LayerNormalization)),
        )

    def _pointer(self, tensor: Tensor) -> int:
        tensor = tensor.detach().contiguous()
        self.kept_alive.append(tensor)
        return tensor.data_ptr()

    def _norm(self, norm: nn.Module | Tensor) -> _Norm:
        assert isinstance(norm, LayerNormalization)
        return _Norm(self._pointer(norm.alpha.float()), self._pointer(norm.bias.float()))

    def _linear(self, layers: Iterable[nn.Linear]) -> _Linear:
        """Return several layers that read the same vectors, as one."""
        weight = torch.cat([layer.weight.detach().float() for layer in layers])
        biases = [
            torch.zeros(layer.out_features) if layer.bias is None else layer.bias.detach().float() for layer in layers
        ]
        padding = (0, -len(weight) % PANEL)
        quantized, scale = quantize_rows(weight)
        packed = pack_weight(quantized)
        return _Linear(
            weight=self._pointer(packed),
            column_sums=self._pointer(F.pad(quantized.sum(dim=1, dtype=torch.int32), padding)),
            scale=self._pointer(F.pad(scale.flatten(), padding)),
            bias=self._pointer(F.pad(torch.cat(biases), padding)),
            n_in=weight.size(1),
            n_out=len(weight),
        )

    def _blocks(self, blocks: nn.ModuleList) -> ctypes.Array[_Block]:
        array = (_Block * len(blocks))()
        for i, block in enumerate(blocks):
            assert isinstance(block, EncoderBlock | DecoderBlock)
            self_attention, residuals = block.self_attention, block.residuals
            array[i] = _Block(
                self_norm=self._norm(residuals[0].norm),
                feed_forward_norm=self._norm(residuals[-1].norm),
                self_qkv=self._linear([self_attention.w_q, self_attention.w_k, self_attention.w_v]),
                self_o=self._linear([self_attention.w_o]),
                linear_1=self._linear([block.feed_forward.linear_1]),
                linear_2=self._linear([block.feed_forward.linear_2]),
            )
            if isinstance(block, DecoderBlock):
                source_attention = block.cross_attention
                array[i].source_norm = self._norm(residuals[1].norm)
                array[i].source_q = self._linear([source_attention.w_q])
                array[i].source_kv = self._linear([source_attention.w_k, source_attention.w_v])
                array[i].source_o = self._linear([source_attention.w_o])
        return array

    def __call__(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        search: Search,
        tags: Sequence[int] = (),
        check: Callable[[], None] = go_on,
    ) -> list[list[Hypothesis]]:
        """Translate sentences of ids; the arguments are those of `run_search`."""
        closed = [[*ids, EOS] for ids in sources]
        tokens = torch.tensor([token for ids in closed for token in ids])
        lengths = torch.tensor([len(ids) for ids in closed])

        def call(n: int, settings: _Search, results: _Results) -> int:
            outcome: int = self.translate(
                ctypes.byref(self.model),
                c_void_p(tokens.data_ptr()),
                c_void_p(lengths.data_ptr()),
                c_long(n),
                ctypes.byref(settings),
                ctypes.byref(results),
            )
            return outcome

        return run_search(call, limits, search, tags, self.position.first, check)
