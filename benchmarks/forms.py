"""The forms of a trained model: how large, how much memory, how fast, and what they score.

    python benchmarks/forms.py                             the run trained last, on the validation part of its data
    python benchmarks/forms.py --run NAME --sentences 500

Our own model in fp32, bf16 and int8, and what `export.py --to ctranslate2` makes of it, in float32 and int8, where
CTranslate2 is installed. Each form starts as a command does, and then has a process of its own to translate in. "same"
counts the translations that are ours in fp32.
"""

import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch  # noqa: E402
import tyro  # noqa: E402
from measure import command_seconds  # noqa: E402

from checkpoint import RunFolder  # noqa: E402
from config import TranslatingPrecision  # noqa: E402
from corpus import load_corpus  # noqa: E402
from decode import Search  # noqa: E402
from evaluate import score  # noqa: E402
from export import to_ctranslate2  # noqa: E402
from hardware import choose_device, device_label, peak_gigabytes  # noqa: E402
from store import whole_folder  # noqa: E402
from translate import Translator  # noqa: E402


@dataclass(frozen=True)
class Options:
    """Compare the forms of a trained model."""

    run: str = ""
    """Run under weights/, or a folder; by default the run trained last"""
    sentences: int = 1000
    """Of the validation part, at most"""
    rounds: int = 3
    """How often each thing is timed, for the median"""


@dataclass(frozen=True)
class Form:
    """What translates: a folder, in a precision."""

    name: str
    run: str
    precision: TranslatingPrecision
    files: list[str]
    """What of the folder it needs"""

    def megabytes(self) -> float:
        return sum((Path(self.run) / file).stat().st_size for file in self.files) / 1e6


@dataclass(frozen=True)
class Measured:
    """What a form came to."""

    one: float
    """Seconds for one sentence"""
    all: float
    """Seconds for all of them, greedy"""
    beam: float
    """Seconds for all of them, beam 5"""
    memory: float
    """Gigabytes resident, at most"""
    scores: tuple[float, float]
    """BLEU, greedy and beam 5"""
    found: tuple[list[str], list[str]]
    """The translations of both"""


def measured(form: Form, sources: Sequence[str], references: Sequence[str], rounds: int) -> Measured:
    """In a process of its own."""
    translator = Translator.load(form.run, "cpu", form.precision)
    translator(sources[:50])  # warms up

    def timed(search: Search, some: Sequence[str]) -> tuple[float, list[str]]:
        start = time.perf_counter()
        found = translator(some, search)
        return time.perf_counter() - start, found

    one = [timed(Search(), [source])[0] for _ in range(rounds) for source in sources[:20]]
    greedy, beam = ([timed(search, sources) for _ in range(rounds)] for search in (Search(), Search(beam=5)))
    memory = peak_gigabytes(torch.device("cpu"))
    target = translator.config.target
    bleu = score(greedy[0][1], references, target).bleu, score(beam[0][1], references, target).bleu
    seconds = [statistics.median(time for time, _ in runs) for runs in (greedy, beam)]
    return Measured(statistics.median(one), seconds[0], seconds[1], memory, bleu, (greedy[0][1], beam[0][1]))


def forms(folder: RunFolder, out: Path) -> list[Form]:
    """All that can be had here."""
    files = ["config.json", "tokenizer.json", "model.safetensors"]
    path = str(folder.path.absolute())
    found = [Form(f"Tapis, {kind}", path, kind, files) for kind in ("fp32", "bf16", "int8")]
    if find_spec("ctranslate2"):
        for kind in ("float32", "int8"):
            into = out / kind
            whole_folder(into, partial(to_ctranslate2, folder, quantization=kind))
            found.append(Form(f"CTranslate2, {kind}", str(into), "auto", [file.name for file in into.iterdir()]))
    return found


def main() -> None:
    options = tyro.cli(Options)
    folder = RunFolder.find(options.run)
    pairs = load_corpus(folder.load_config()).valid[: options.sentences]
    sources, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    os.environ["PYTHONWARNINGS"] = "ignore"
    print(f"{device_label(choose_device('cpu'))}, torch {torch.__version__}; run {folder.path.name}; ", end="")
    print(f"{len(pairs):,} sentences of its validation part; medians of {options.rounds}")
    columns = (
        "MB on disk",
        "GB resident",
        "start-up s",
        "one, ms",
        "all, s",
        "beam 5, s",
        "BLEU",
        "beam 5",
        "same",
        "beam 5",
    )
    print(f"{'':<22}" + "".join(f"{column:>12}" for column in columns))
    with tempfile.TemporaryDirectory() as out:
        exact: Measured | None = None
        for form in forms(folder, Path(out)):
            one = ["translate.py", "--run", form.run, "--precision", form.precision, sources[0]]
            start = statistics.median(command_seconds(*one) for _ in range(options.rounds))
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                found = pool.apply(measured, (form, sources, references, options.rounds))
                pool.close()  # not killed, so that it puts away what it opened
                pool.join()
            exact = exact or found
            both = zip(found.found, exact.found, strict=True)
            same = [sum(a == b for a, b in zip(one, other, strict=True)) for one, other in both]
            cells = (f"{form.megabytes():.1f}", f"{found.memory:.2f}", f"{start:.2f}", f"{1000 * found.one:.1f}")
            more = (f"{found.all:.2f}", f"{found.beam:.2f}", *(f"{bleu:.2f}" for bleu in found.scores), *map(str, same))
            print(f"{form.name:<22}" + "".join(f"{cell:>12}" for cell in (*cells, *more)), flush=True)


if __name__ == "__main__":
    main()
