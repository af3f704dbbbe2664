"""CTranslate2 as a searcher, in the place of our own model, and what an exported folder holds.

A folder that `export.py --to ctranslate2` made:

    OUT/
        model.bin  config.json  *_vocabulary.json     CTranslate2's own files
        tokenizer.json  tapis.json  learned.json      ours: texts ↔ tokens, the config of the run, what it learned
        example.py                                    translates with these files and without our code
        SHA256SUMS

CTranslate2 holds the same weights, possibly in int8, and runs its own search. In float32 it gives the translations of
decoding/search.py, except for ties, and except with a beam where our search continues after K results.
"""

import json
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tapis.config import (
    BOS,
    EOS,
    NEVER_GENERATED,
    UNK,
    ConfigError,
    DeviceName,
    Learned,
    ModelConfig,
    TapisError,
    TranslatingPrecision,
)
from tapis.release import MAX_BYTES, RunFiles
from tapis.search import AttentionOf, Hypothesis, LogitsStep, Search, go_on, length_penalty
from tapis.system.files import check_regular, read_bounded
from tapis.system.hub import check_sums
from tapis.system.terminal import in_one_line
from tapis.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from tapis.threads import n_threads, spread

C = TypeVar("C", bound=ModelConfig)
T = TypeVar("T")
U = TypeVar("U")

CONFIG = "tapis.json"
LEARNED = "learned.json"
MODEL, VOCABULARY = "model.bin", "shared_vocabulary.json"  # of CTranslate2
# What CTranslate2's own config.json says; whatever else it has is null or false.
ENGINE_CONFIG = {
    "add_source_eos": True,
    "bos_token": SPECIAL_TOKENS[BOS],
    "eos_token": SPECIAL_TOKENS[EOS],
    "unk_token": SPECIAL_TOKENS[UNK],
    "decoder_start_token": SPECIAL_TOKENS[BOS],
}
NO_LOG_PROBABILITIES = "an exported model computes no log-probabilities; the run that it was made of does"
BINARY_VERSION = 6  # of model.bin
TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")  # of the variables of model.bin, by their codes
# The numbers of a model.bin that are no weights, of the encoder or of the decoder, as type and value.
NUMBERS = {
    "scale_embeddings": ("int8", 1),
    "alignment_heads": ("int16", 1),
    "alignment_layer": ("int16", -1),
    "activation": ("int8", 0),
    "alibi": ("int8", 0),
    "alibi_use_positive_positions": ("int8", 0),
    "scale_alibi": ("int8", 0),
    "start_from_zero_embedding": ("int8", 0),
    "embeddings_merge": ("int8", 0),
    "multi_query_attention": ("int8", 0),
}
ENCODINGS = [f"{side}/position_encodings/encodings" for side in ("encoder", "decoder")]
# CTranslate2's names of precisions; its default is the one of the export.
COMPUTE = {"auto": "default", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "int8": "int8"}


class EngineError(TapisError):
    """An exported folder cannot be used."""


def is_exported(folder: Path) -> bool:
    """Return whether a folder holds an export for CTranslate2, and not a run."""
    return (folder / CONFIG).is_file()


def config_of(folder: RunFiles[C]) -> C:
    """Return the config of a run, or of the run that was exported. Raises a TapisError if it cannot be read."""
    return exported_config(folder.path, folder.config_type) if is_exported(folder.path) else folder.load_config()


def exported_config(folder: Path, kind: type[C]) -> C:
    """Return the config of the run that was exported. Raises EngineError if it cannot be read."""
    try:
        return kind.from_json(read_bounded(folder / CONFIG, MAX_BYTES["config.json"]))
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise EngineError(f"{folder / CONFIG} cannot be used: {error}") from None


def exported_learned(folder: Path) -> Learned:
    """Return what the run that was exported learned besides the weights. Raises EngineError if it cannot be read."""
    file = folder / LEARNED if (folder / LEARNED).exists() else folder / CONFIG  # of a run before format 5
    try:
        return Learned.from_json(read_bounded(file, MAX_BYTES["learned.json"]))
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise EngineError(f"{file} cannot be used: {error}") from None


class CTranslate2Searcher:
    """CTranslate2's translator as a searcher. Scores are those of `Hypothesis`."""

    can_force = False

    def __init__(self, folder: Path, tokenizer: Tokenizer, device: DeviceName, precision: TranslatingPrecision) -> None:
        """Raise EngineError if CTranslate2 or the folder cannot be used, ConfigError for what the hardware lacks."""
        try:
            import ctranslate2  # noqa: PLC0415
        except ImportError:
            raise EngineError(f'{folder} is for CTranslate2, not installed here: pip install -e ".[export]"') from None
        self.tokens = tokenizer.tokens()
        self.suppressed = [*NEVER_GENERATED, *tokenizer.tags.values()]
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        if device not in ("auto", "cpu", "cuda"):
            raise ConfigError(f"--device {device}: an export for CTranslate2 computes on cpu or cuda")
        is_cuda = device == "cuda" or (device == "auto" and ctranslate2.get_cuda_device_count() > 0)
        kind = "cuda" if is_cuda else "cpu"
        # Translator gives each thread of a CPU batches of its own: as many workers as threads, of one thread each.
        self.at_once = workers = 1 if is_cuda else n_threads()
        self.batch_tokens = 16_384 if is_cuda else 4096
        try:
            self.translator = ctranslate2.Translator(
                str(folder), kind, compute_type=COMPUTE[precision], inter_threads=workers, intra_threads=1
            )
        except ValueError as error:  # a precision that this hardware lacks
            raise ConfigError(f"--precision {precision}: {error}") from None
        except (RuntimeError, LookupError) as error:
            advice = "try --device cpu, or export it again" if is_cuda else "export it again"
            raise EngineError(f"{folder} cannot be loaded ({in_one_line(error)}): {advice}") from None

    def __call__(
        self, sources: Sequence[list[int]], limits: Sequence[int], search: Search, check: Callable[[], None] = go_on
    ) -> list[list[Hypothesis]]:
        check()  # CTranslate2 cannot be interrupted while it searches
        has_scores = search.beam > 1
        try:
            results = self.translator.translate_batch(
                [[self.tokens[i] for i in source] for source in sources],
                beam_size=search.beam,
                num_hypotheses=search.beam,
                # CTranslate2's penalty is a power of the length: 1 gives the mean over the tokens, EOS included.
                length_penalty=1,
                return_scores=has_scores,
                return_end_token=True,
                min_decoding_length=0,
                max_decoding_length=max(limits),
                max_input_length=0,
                suppress_sequences=[[self.tokens[i]] for i in self.suppressed],
            )
        except (RuntimeError, ValueError, LookupError) as error:
            longest = max(map(len, sources))
            is_too_long = "position" in str(error)
            what = f"a sentence of {longest:,} tokens is too long for" if is_too_long else "CTranslate2 fails with"
            raise EngineError(f"{what} the export ({in_one_line(error)})") from None
        hypotheses = []
        for result, limit in zip(results, limits, strict=True):
            means = result.scores if has_scores else [math.nan] * len(result.hypotheses)
            ranked = [
                self._hypothesis(tokens, mean, limit, search)
                for tokens, mean in zip(result.hypotheses, means, strict=True)
            ]
            ranked.sort(key=lambda hypothesis: -hypothesis.score)
            hypotheses.append(ranked[: search.n_best])
        return hypotheses

    def log_probabilities(
        self, sources: Sequence[list[int]], targets: Sequence[list[int]], check: Callable[[], None] = go_on
    ) -> list[float]:
        raise ConfigError(NO_LOG_PROBABILITIES)

    def attention(
        self,
        sources: Sequence[list[int]],
        targets: Sequence[list[int]],
        check: Callable[[], None] = go_on,
        of: AttentionOf = "source",
    ) -> list[NDArray[np.float32]]:
        raise ConfigError("an exported model shows no attention; the run that it was made of does")

    def steps(self, source: list[int], check: Callable[[], None] = go_on) -> AbstractContextManager[LogitsStep]:
        raise ConfigError("an exported model does not say what may follow; the run that it was made of does")

    def spread(self, work: Callable[[T], U], items: Sequence[T]) -> Iterator[U]:
        return spread(work, items) if self.at_once > 1 else map(work, items)

    def _hypothesis(self, tokens: Sequence[str], mean: float, limit: int, search: Search) -> Hypothesis:
        """Return a hypothesis of CTranslate2, whose score is the mean log P of its tokens, as one of ours."""
        ids = [self.ids[token] for token in tokens]  # EOS is among them, unless the search ended at its limit
        score = mean * len(ids) / length_penalty(len(ids), search.length_penalty)
        return Hypothesis([i for i in ids if i != EOS][:limit], score)


def load_exported(
    folder: Path, device: DeviceName, precision: TranslatingPrecision
) -> tuple[ModelConfig, Tokenizer, CTranslate2Searcher]:
    """Return what translating needs. Raises EngineError, or FetchError where a file is not the exported one."""
    tokenizer_file = folder / "tokenizer.json"
    check_sums(folder, MODEL, "config.json", VOCABULARY, CONFIG, tokenizer_file.name)
    config = exported_config(folder, ModelConfig)
    try:
        text = read_bounded(tokenizer_file, MAX_BYTES["tokenizer.json"])
    except (OSError, UnicodeDecodeError) as error:
        raise EngineError(f"{tokenizer_file} cannot be read ({in_one_line(error)}): export it again") from None
    tokenizer = Tokenizer.from_json(text, str(tokenizer_file))
    if not tokenizer.has_tags_of(config.tagged_languages):
        raise EngineError(f"{tokenizer_file} has other languages than {folder / CONFIG}: export it again")
    try:
        check_engine_files(folder, config, tokenizer)
    except (OSError, ValueError, LookupError, AttributeError, RecursionError, struct.error) as error:
        raise EngineError(
            f"{folder} does not hold what export.py writes ({in_one_line(error)}): export it again"
        ) from None
    return config, tokenizer, CTranslate2Searcher(folder, tokenizer, device, precision)


class Variable(NamedTuple):
    """A variable of a model.bin."""

    shape: tuple[int, ...]
    kind: str
    """One of `TYPES`"""
    value: int
    """The number that it is; 0 where it has a shape, or is no integer"""
    is_finite: bool


def check_engine_files(folder: Path, config: ModelConfig, tokenizer: Tokenizer) -> None:
    """Check that the files for CTranslate2 are as export.py writes them.

    Raises OSError, ValueError, LookupError, AttributeError or struct.error if they are not.

    CTranslate2 trusts them: with a vocabulary longer than the embeddings, or with a matrix of another shape, it reads
    beyond its memory.
    """
    # The vocabulary, and CTranslate2's config.
    others = {file.name for pattern in ("*vocabulary*", "vmap*") for file in folder.glob(pattern)} - {VOCABULARY}
    if others:
        raise ValueError(f"{min(others)} is none of its files")
    if json.loads(read_bounded(folder / VOCABULARY, MAX_BYTES["tokenizer.json"])) != tokenizer.tokens():
        raise ValueError(f"{VOCABULARY} has other tokens than tokenizer.json")
    engine_config = json.loads(read_bounded(folder / "config.json", MAX_BYTES["config.json"]))
    settings = {name: value for name, value in engine_config.items() if value is not None and value is not False}
    if json.dumps(settings, sort_keys=True) != json.dumps(ENGINE_CONFIG, sort_keys=True):  # where 1 is not true
        raise ValueError("config.json has other settings")

    # The weights, and the numbers beside them
    check_variables(read_variables(folder / MODEL), config, len(tokenizer))


def check_variables(variables: dict[str, Variable], config: ModelConfig, n_tokens: int) -> None:
    """Raise ValueError unless the variables of a model.bin are those of a model with this config.

    Every name, shape, type and number is checked, since CTranslate2 crashes on others, and takes unknown ones to mean
    another kind of model.
    """
    # The numbers
    heads, is_pre_norm = ("int16", config.n_heads), ("int8", int(config.norm == "pre"))
    numbers = {**NUMBERS, "num_heads": heads, "pre_norm": is_pre_norm}
    for name, variable in variables.items():
        side, _, part = name.partition("/")
        is_right = side in ("encoder", "decoder") and (variable.kind, variable.value) == numbers.get(part)
        if not variable.shape and not is_right:
            raise ValueError(f"{name} of {MODEL} is not that of {CONFIG}")
    shapes = expected_shapes(config, n_tokens)
    required = {f"{side}/{name}" for side in ("encoder", "decoder") for name in ("num_heads", "pre_norm")}
    if missing := (shapes.keys() | required) - variables.keys():
        raise ValueError(f"{MODEL} has no {min(missing)}")

    # The matrices and vectors. All have one type of floats, except that matrices may be in int8 and then have scales.
    kind = variables[ENCODINGS[0]].kind
    for name, variable in variables.items():
        if not variable.shape:
            continue
        layer, _, part = name.rpartition("/")
        weight = variables.get(f"{layer}/weight")
        is_int8 = weight is not None and weight.kind == "int8"
        if part in ("bias", "weight_scale"):  # one for each row of a matrix
            is_right = variable.shape == shapes.get(f"{layer}/weight", ())[:1] and (part == "bias" or is_int8)
        elif name in ENCODINGS:  # as many positions as there are: CTranslate2 checks them
            is_right = variable.shape[1:] == (config.d_model,)
        else:
            is_right = variable.shape == shapes.get(name)
        if part == "weight" and is_int8:
            is_right &= f"{layer}/weight_scale" in variables
        else:
            is_right &= variable.kind == ("float32" if part == "weight_scale" else kind) in ("float32", "float16")
        if not is_right:
            raise ValueError(f"{name} of {MODEL} is not that of {CONFIG}")
        if not variable.is_finite:
            raise ValueError(f"{name} of {MODEL} has values that are no numbers")


def expected_shapes(config: ModelConfig, n_tokens: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the matrices and layer normalizations of a model in CTranslate2, by their names."""
    d = config.d_model
    self_attention = {"self_attention/linear_0": (3 * d, d), "self_attention/linear_1": (d, d)}
    cross_attention = {"attention/linear_0": (d, d), "attention/linear_1": (2 * d, d), "attention/linear_2": (d, d)}
    feed_forward = {"ffn/linear_0": (config.d_ff, d), "ffn/linear_1": (d, config.d_ff)}
    matrices = {
        "encoder/embeddings_0": (n_tokens, d),
        "decoder/embeddings": (n_tokens, d),
        "decoder/projection": (n_tokens, d),
    }
    norms = ["encoder/layer_norm", "decoder/layer_norm"] if config.norm == "pre" else []
    for side, n_layers, sublayers in (
        ("encoder", config.n_encoder_layers, {**self_attention, **feed_forward}),
        ("decoder", config.n_decoder_layers, {**self_attention, **cross_attention, **feed_forward}),
    ):
        for i in range(n_layers):
            for name, shape in sublayers.items():
                matrices[f"{side}/layer_{i}/{name}"] = shape
                norms.append(f"{side}/layer_{i}/{name.partition('/')[0]}/layer_norm")
    shapes: dict[str, tuple[int, ...]] = {f"{name}/weight": shape for name, shape in matrices.items()}
    return shapes | {f"{name}/{part}": (d,) for name in norms for part in ("gamma", "beta")}


def read_variables(path: Path) -> dict[str, Variable]:
    """Return the variables of a model.bin by name, without its weights. Raises OSError, ValueError or struct.error."""
    check_regular(path)
    with path.open("rb") as file:

        def number(kind: str) -> Any:
            return struct.unpack(f"<{kind}", file.read(struct.calcsize(kind)))[0]

        def string() -> str:
            raw = file.read(number("H"))
            if raw.find(b"\0") != len(raw) - 1:  # CTranslate2 takes the last byte away, whatever it is
                raise ValueError(f"{path.name} has a name without an end")
            return str(raw[:-1].decode())

        def variable(name: str) -> Variable:
            shape = tuple(number("I") for _ in range(number("B")))
            kind, n_bytes = TYPES[number("B")], number("I")
            if kind == "bfloat16":
                raise ValueError(f"{name} of {path.name} is in {kind}")
            n_values = math.prod(shape)
            if n_bytes != n_values * np.dtype(kind).itemsize or n_bytes > n_all - file.tell():
                raise ValueError(f"{name} of {path.name} has a wrong size")
            values = np.fromfile(file, kind, n_values)
            is_finite = bool(np.isfinite(values).all())
            return Variable(shape, kind, 0 if shape or not is_finite else int(values[0]), is_finite)

        n_all = path.stat().st_size
        if (version := number("I")) != BINARY_VERSION or string() != "TransformerSpec":
            raise ValueError(f"{path.name} is of another kind or version ({version})")
        number("I")  # the revision of the kind
        variables: dict[str, Variable] = {}

        def add(name: str, variable: Variable) -> None:
            if name in variables:  # CTranslate2 would take the first one
                raise ValueError(f"{path.name} has {name} twice")
            variables[name] = variable

        for _ in range(number("I")):
            name = string()
            add(name, variable(name))
        for _ in range(number("I")):
            alias, name = string(), string()
            add(alias, variables[name])
            if f"{name}_scale" in variables:
                add(f"{alias}_scale", variables[f"{name}_scale"])
        if file.tell() != n_all:
            raise ValueError(f"{path.name} has another length than it says")
    return variables
