"""On a CPU without instructions for narrow numbers, nothing computes in bf16, fp16 or int8 unless it is asked to."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import first
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from config import Config
from machine.devices import choose_device, choose_precision
from pairs.corpus import Corpus
from tapis.engine import engine
from tapis.search import Search
from tapis.text.tokenizer import Tokenizer
from train import take_step
from training.trainer import Training
from training.validation import validate

NARROW = {torch.bfloat16, torch.float16, torch.int8}


class NoNarrowNumbers(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises where an operation reads or writes numbers of 16 bits, or integers of 8 bits with a sign."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
        assert not {tensor.dtype for tensor in tensors} & NARROW, func
        return result


@pytest.fixture(autouse=True)
def _old_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A CPU of 2013: AVX2 and nothing newer. Without the engine, which computes in 8 bits with AVX2, too."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    monkeypatch.setattr(engine, "library", lambda: None)
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a search in threads of its own would escape NoNarrowNumbers
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture
def training(tiny: Config, small: Corpus, tokenizer: Tokenizer) -> Training:
    """As train.py makes it for a machine that it asks."""
    precision = choose_precision("auto", choose_device("cpu"))
    config = replace(tiny, precision=precision, optimizer="muon", subword_dropout=0.1, self_distillation=0.5, steps=4)
    return Training(config, replace(small, train=first(small.train, 30)), tokenizer)


@pytest.mark.parametrize(
    "work",
    [
        lambda training: [take_step(training, step) for step in (1, 2)],
        validate,
        lambda training: training.make_rounds(),
        lambda training: training.translator()(["A cat.", "Two cats are here."], Search(beam=3)),
    ],
    ids=["steps with Muon", "validation", "self-distillation", "beam search"],
)
def test_nothing_computes_in_narrow_numbers(training: Training, work: Callable[[Training], object]) -> None:
    training.step = 2  # self-distillation is due
    training.model.eval()
    with NoNarrowNumbers():  # type: ignore[no-untyped-call]
        work(training)


def test_the_check_sees_narrow_numbers() -> None:
    with pytest.raises(AssertionError), NoNarrowNumbers():  # type: ignore[no-untyped-call]
        torch.ones(2, 2).bfloat16()
