"""The model of model.py as a searcher, by torch: on GPUs, in 16 or 32 bits, and plain."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from checkpoint import parameters
from dataset import pad, to_device
from decoding.attention import attentions
from decoding.captured import CapturedSearch
from decoding.forced import log_probabilities
from decoding.inference import cast_again, in_precision
from decoding.search import Step, beam_search, best_continuations, greedy_search
from decoding.standard import nonstandard_part
from decoding.static_cache import source_projection
from decoding.steps import fast_step, plain_step, without_tags
from fast.attention import disable_cudnn_attention
from fast.replaced import edited_parts, edited_replaced_parts
from fast.topk import best_continuations_in_blocks
from machine.devices import DTYPES, choose_precision, spread
from model import Transformer
from tapis.config import EOS, PAD, ConfigError, TranslatingPrecision
from tapis.engine.engine import Engine, check_compiled, variants
from tapis.search import AttentionOf, Hypothesis, LogitsStep, Search, Searcher, finite, go_on

T = TypeVar("T")
U = TypeVar("U")

BATCH_TOKENS = 4096  # in a batch


def gpu_batch_tokens(memory: int, slot: int) -> int:
    """Return the tokens in a batch for a GPU with this many bytes: 512 for each GB, fewer for a large model.

    slot is the size in bytes of the keys and values of a position in all layers. A token of a batch needs up to 192
    slots (decoding/captured.py): a short sentence counts as 8 tokens and has 4 hypotheses of 64 positions, and the
    number of sentences is rounded up, to twice as many at most. That makes 64. When the room doubles, the old slots and
    the 128 new ones exist at once.
    """
    return min(65_536, memory // max(2**21, 192 * slot))


def searcher_of(
    model: Transformer,
    device: torch.device,
    precision: TranslatingPrecision = "auto",
    plain: bool = False,
    suppressed: Sequence[int] = (),
) -> Searcher:
    """Return what searches with a model in evaluation mode: the engine for int8, else torch.

    auto chooses torch for a model that the engine does not compute (`nonstandard_part`). `precision` is ignored with
    `plain`, and if torch computes a model of which `edited_replaced_parts` were edited. The ids `suppressed`, tags of
    languages, are never generated. Raises ConfigError for int8 where it cannot be computed.
    """
    is_for_engine = not plain and choose_translating(precision, device) == "int8"
    part = nonstandard_part(model) if is_for_engine else ""
    if part and precision == "int8":
        raise ConfigError(f"--precision int8 is for the paper's model: {part} of model.py computes something else")
    if is_for_engine and not part:
        weights = {name: weight.float().cpu().numpy() for name, weight in parameters(model).items()}
        return Engine(weights, model.config, suppressed)
    return TorchSearcher(model, device, precision, plain or bool(edited_replaced_parts()), suppressed)


def choose_translating(name: TranslatingPrecision, device: torch.device) -> TranslatingPrecision:
    """Return the precision for translating: auto prefers int8 where it can, else follows `choose_precision`.

    Raises ConfigError for int8 where it cannot be computed.
    """
    if name == "int8":
        if device.type != "cpu":
            raise ConfigError(f"--precision int8 is for CPUs; on {device.type}, choose bf16 or fp16")
        check_compiled()
        return "int8"
    if name == "auto" and device.type == "cpu" and variants():
        return "int8"
    return choose_precision(name, device)


class TorchSearcher:
    """Our own model as a searcher, by torch: prepared for translating in a precision, or plain, in fp32."""

    at_once = 1  # Python's lock is held for most of a search
    can_force = True

    def __init__(
        self,
        model: Transformer,
        device: torch.device,
        precision: TranslatingPrecision = "auto",
        plain: bool = False,
        suppressed: Sequence[int] = (),
    ) -> None:
        """Prepare a model; the arguments are those of `searcher_of`, but for int8, which auto is not either."""
        if precision == "int8":
            raise ConfigError("--precision int8 is for the engine")
        self.device = device
        self.batch_tokens = BATCH_TOKENS
        self.n_threads = torch.get_num_threads()
        self.original = model
        self.model = model
        self.is_plain = plain
        self.suppressed = list(suppressed)
        self.best = best_continuations
        self.step_of: Callable[[Tensor], Step] = partial(plain_step, model)
        self.precision = "fp32" if plain else choose_precision(precision, device)
        if not plain:
            disable_cudnn_attention()
            self.model = in_precision(model, self.precision)
            self.best = best_continuations_in_blocks
            self.step_of = partial(fast_step, self.model)
        self.captured: CapturedSearch | None = None
        if device.type == "cuda":
            memory = torch.cuda.get_device_properties(device).total_memory
            slot = 2 * model.config.n_decoder_layers * model.config.d_model * DTYPES[self.precision].itemsize
            self.batch_tokens = gpu_batch_tokens(memory, slot)
            if not plain and not edited_parts():  # an edited model may do what a graph cannot repeat
                with torch.inference_mode():
                    self.captured = CapturedSearch(self.model, self.suppressed, memory // 8)

    def refresh(self) -> None:
        """Take over the weights of the model, which have changed in place. What was captured is still right."""
        self.__dict__.pop("in_fp32", None)
        if self.is_plain:
            return
        with torch.inference_mode():
            cast_again(self.model, in_precision(self.original, self.precision))
            if self.captured:
                cast_again(self.captured.w_source, source_projection(self.model))

    def __call__(
        self, sources: Sequence[list[int]], limits: Sequence[int], search: Search, check: Callable[[], None] = go_on
    ) -> list[list[Hypothesis]]:
        with torch.inference_mode():
            if search.beam == 1:
                found = self._greedy_search(sources, limits, check)
                results = [[] if ids[-1:] == [PAD] else [Hypothesis(ids, math.nan)] for ids in found]
            else:
                results = self._beam_search(sources, limits, search, check)
        return finite(results, "it must be trained again" if self.precision == "fp32" else "try --precision fp32")

    def _greedy_search(
        self, sources: Sequence[list[int]], limits: Sequence[int], check: Callable[[], None]
    ) -> list[list[int]]:
        if self.captured:
            return self.captured.greedy_search(sources, limits, check)
        return greedy_search(self._step(sources, check), to_device(torch.tensor(limits), self.device), self.best)

    def _beam_search(
        self, sources: Sequence[list[int]], limits: Sequence[int], search: Search, check: Callable[[], None]
    ) -> list[list[Hypothesis]]:
        if self.captured:
            return self.captured.beam_search(sources, limits, search, check)
        return beam_search(self._step(sources, check), to_device(torch.tensor(limits), self.device), search, self.best)

    def _step(self, sources: Sequence[list[int]], check: Callable[[], None]) -> Step:
        step = self.step_of(to_device(pad(sources), self.device))
        if self.suppressed:
            step = partial(without_tags, step, self.suppressed)
        return step if check is go_on else partial(checked_step, step, check)

    @cached_property
    def in_fp32(self) -> Transformer:
        """The model that computes log-probabilities."""
        return self.original if self.is_plain else in_precision(self.original, "fp32")

    def log_probabilities(
        self, sources: Sequence[list[int]], targets: Sequence[list[int]], check: Callable[[], None] = go_on
    ) -> list[float]:
        check()
        return log_probabilities(self.in_fp32, sources, targets, self.device, self.suppressed)

    def attention(
        self,
        sources: Sequence[list[int]],
        targets: Sequence[list[int]],
        check: Callable[[], None] = go_on,
        of: AttentionOf = "source",
    ) -> list[NDArray[np.float32]]:
        check()
        with torch.inference_mode():
            return attentions(self.original, sources, targets, of)

    @contextmanager
    def steps(self, source: list[int], check: Callable[[], None] = go_on) -> Iterator[LogitsStep]:
        with torch.inference_mode():
            step = self._step([source], check)

            def flat_step(tokens: NDArray[np.int64], parents: NDArray[np.int64] | None) -> NDArray[np.float32]:
                of_sentence = [None if ids is None else torch.from_numpy(ids)[None] for ids in (tokens, parents)]
                moved = [None if ids is None else to_device(ids, self.device) for ids in of_sentence]
                assert moved[0] is not None
                logits = step(moved[0], moved[1])[0].float()
                logits[:, :EOS] = -torch.inf  # those of NEVER_GENERATED
                found: NDArray[np.float32] = logits.cpu().numpy()
                return found

            yield flat_step

    def spread(self, work: Callable[[T], U], items: Sequence[T]) -> Iterator[U]:
        # A thread that first computes while another has torch's threads set to one would stay at one.
        torch.set_num_threads(self.n_threads)
        return spread(work, items, self.device)


def checked_step(step: Step, check: Callable[[], None], *args: Any) -> Tensor:
    """Return the logits of a step, unless `check` raises an error before it."""
    check()
    return step(*args)
