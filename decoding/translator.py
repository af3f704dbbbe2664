"""The translator of a checkout: that of the package, and by torch where there is a GPU, or where it is asked for.

This module does not import torch. Where the engine computes, nothing needs it, and it takes seconds.
"""

import platform
import sys
from pathlib import Path

import tapis.translator
from config import HOW_TO_GET_A_RUN, PROJECT_WEIGHTS
from fast.replaced import edited_parts, edited_replaced_parts
from tapis.config import DeviceName, ModelConfig, TranslatingPrecision
from tapis.engine.engine import variants
from tapis.release import Release, RunFiles
from tapis.search import Searcher
from tapis.system.terminal import listed, say
from tapis.text.tokenizer import Tokenizer

# What the drivers of GPUs put into /dev: NVIDIA's, AMD's, and Windows' for its Linux.
GPU_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


class CheckoutFiles(Release):
    """The folder of a model, also by its name in the weights/ of this checkout."""

    more_weights = PROJECT_WEIGHTS
    where_from = HOW_TO_GET_A_RUN


class Translator(tapis.translator.Translator):
    """Sentences → sentences."""

    files = CheckoutFiles

    @classmethod
    def load_searcher(
        cls, folder: RunFiles[ModelConfig], device: DeviceName, precision: TranslatingPrecision, plain: bool
    ) -> tuple[ModelConfig, Tokenizer, Searcher]:
        # The engine computes the paper's model. A run that does not record whether it was trained for that model is
        # compared, if model.py has been edited.
        trained, is_edited = folder.nonstandard_part(), bool(edited_parts())
        is_for_engine = not plain and precision in ("auto", "int8") and bool(variants())
        is_for_engine &= device == "cpu" or (device == "auto" and not may_have_gpu())
        if is_for_engine and (trained == "" or (trained is None and not is_edited)):
            return super().load_searcher(folder, device, precision, plain)

        from checkpoint import RunFolder  # noqa: PLC0415
        from decoding.standard import nonstandard_part  # noqa: PLC0415
        from decoding.torch_searcher import TorchSearcher, searcher_of  # noqa: PLC0415
        from fast.memory import keep_freed_memory  # noqa: PLC0415
        from machine.devices import choose_device, slow_precision  # noqa: PLC0415

        if not plain:
            keep_freed_memory()  # otherwise beam search takes a quarter longer on CPUs
        where = choose_device(device)
        if precision != "int8" and (warning := slow_precision(precision, where)):
            say(warning)
        config, tokenizer, model = RunFolder(folder.path).load_model(where)
        searcher = searcher_of(model, where, precision, plain, list(tokenizer.tags.values()))
        found = nonstandard_part(model) if is_edited else ""
        if trained is not None and trained != found:
            say(
                f"warning   {found or trained} of model.py is not as it was when {folder.path.name} was trained: "
                "expect wrong translations"
            )
        elif found and is_for_engine:
            say(f"note      {found} of model.py computes something other than the engine: translating with torch")
        if not plain and isinstance(searcher, TorchSearcher) and searcher.is_plain:
            edited = listed(edited_replaced_parts())
            say(f"note      {edited} of model.py was edited: translating without fast forms, in fp32")
        return config, tokenizer, searcher


def may_have_gpu() -> bool:
    """Return whether this machine may have a GPU that torch computes on: only torch knows, which takes seconds."""
    if sys.platform == "linux":
        return any(Path(file).exists() for file in GPU_FILES)
    return sys.platform == "win32" or platform.machine() == "arm64"
