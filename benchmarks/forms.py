"""The forms in which one trained model can be used: their size, memory, speed and scores.

    python benchmarks/forms.py                             the latest run, on the validation part of its data
    python benchmarks/forms.py --run NAME --sentences 500

The forms are Tapis in fp32, in bf16 where the CPU has instructions for it, in int8 and, if CTranslate2 is installed,
what `export.py --to ctranslate2` makes of the model, in float32 and int8. They take turns, each in its own process.

"start-up" is a whole `translate.py` for one sentence. "one" is the median of twenty sentences, one at a time. "same"
counts the translations that equal those of Tapis in fp32.
"""

import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch  # noqa: E402
import tyro  # noqa: E402
from measure import Contender, alternate, command_seconds, cpu_precisions, ratio  # noqa: E402

from checkpoint import RunFolder  # noqa: E402
from decoding.torch_searcher import choose_translating  # noqa: E402
from decoding.translator import Translator  # noqa: E402
from exporting.ctranslate2 import to_ctranslate2  # noqa: E402
from machine.devices import choose_device, device_label, peak_gigabytes  # noqa: E402
from pairs.corpus import load_corpus  # noqa: E402
from tapis.config import TranslatingPrecision  # noqa: E402
from tapis.scoring import score  # noqa: E402
from tapis.search import Search  # noqa: E402
from tapis.system.files import whole_folder  # noqa: E402

BEAMS = (1, 5)
COLUMNS = ("MB on disk", "GB resident", "start-up s", "one, ms", "all, s", "beam 5, s", "BLEU", "beam 5")


@dataclass(frozen=True)
class Options:
    """Compare the forms of a trained model."""

    run: str = ""
    """Run under weights/, or a folder; by default the latest run"""
    sentences: int = 1000
    """Maximum number of sentences of the validation part"""
    rounds: int = 3
    """Turns of each form"""


@dataclass(frozen=True)
class Form:
    """A folder that can translate, and the precision to do it in."""

    name: str
    folder: str
    precision: TranslatingPrecision
    files: list[str]
    """The files of the folder that translating needs"""

    def megabytes(self) -> float:
        return sum((Path(self.folder) / file).stat().st_size for file in self.files) / 1e6


class Output(NamedTuple):
    """The translations by one form, and the memory that its process took."""

    translations: list[str]
    gigabytes: float
    """Peak since the process started"""


def available_forms(folder: RunFolder, exports: Path) -> list[Form]:
    """Return the forms that this machine can compute. Writes the exports."""
    files = ["config.json", "tokenizer.json", "model.safetensors"]
    path = str(folder.path.absolute())
    found = [Form(f"Tapis, {precision}", path, precision, files) for precision in cpu_precisions()]
    if find_spec("ctranslate2"):
        for quantization in ("float32", "int8"):
            export = exports / quantization
            whole_folder(export, partial(to_ctranslate2, folder, quantization=quantization))
            export_files = [file.name for file in export.iterdir()]
            found.append(Form(f"CTranslate2, {quantization}", str(export), "auto", export_files))
    return found


def translate_with(form: Form) -> Callable[[Sequence[str], int], Output]:
    """Return what the process of a form does: (sources, beam) → translations."""
    translator = Translator.load(form.folder, "cpu", form.precision)

    def translate(sources: Sequence[str], beam: int) -> Output:
        return Output(translator(sources, Search(beam)), peak_gigabytes(torch.device("cpu")))

    return translate


class Timings(NamedTuple):
    """The seconds of each form, by its name, for each round."""

    start_up: dict[str, list[float]]
    one: dict[str, list[float]]
    greedy: dict[str, list[float]]
    beam: dict[str, list[float]]


def measure(forms: dict[str, Form], processes: dict[str, Contender], sources: Sequence[str], rounds: int) -> Timings:
    """Let the forms take turns, first at starting, then at one sentence, then at all of them."""

    def start_up(name: str) -> float:
        form = forms[name]
        return command_seconds("translate.py", "--run", form.folder, "--precision", form.precision, sources[0])

    def one(name: str) -> float:
        return statistics.median(processes[name]([source], 1)[0] for source in sources[:20])

    def all_sentences(beam: int, name: str) -> float:
        return processes[name](sources, beam)[0]

    works = (start_up, one, partial(all_sentences, 1), partial(all_sentences, 5))
    return Timings(*(alternate({name: partial(work, name) for name in forms}, rounds) for work in works))


def print_table(
    forms: dict[str, Form],
    outputs: dict[str, list[Output]],
    megabytes: dict[str, float],
    timings: Timings,
    references: Sequence[str],
    language: str,
) -> None:
    """Print a line for each form. Its outputs are those of greedy search and of a beam of 5."""
    exact = next(iter(outputs.values()))  # of Tapis in fp32
    print(f"{'':<22}" + "".join(f"{column:>12}" for column in (*COLUMNS, "same", "beam 5")))
    for name in forms:
        start_up, one, greedy, beam = (statistics.median(seconds[name]) for seconds in timings)
        bleu = [score(output.translations, references, language).bleu for output in outputs[name]]
        same = [
            sum(a == b for a, b in zip(output.translations, other.translations, strict=True))
            for output, other in zip(outputs[name], exact, strict=True)
        ]
        cells = [
            f"{megabytes[name]:.1f}",
            f"{outputs[name][-1].gigabytes:.2f}",
            f"{start_up:.2f}",
            f"{1000 * one:.1f}",
            f"{greedy:.2f}",
            f"{beam:.2f}",
            *(f"{points:.2f}" for points in bleu),
            *(str(n) for n in same),
        ]
        print(f"{name:<22}" + "".join(f"{cell:>12}" for cell in cells))


def main() -> None:
    options = tyro.cli(Options)
    os.environ["PYTHONWARNINGS"] = "ignore"  # of the processes to come

    # The run, and the sentences
    folder = RunFolder.find(options.run)
    config = folder.load_config()
    pairs = load_corpus(config).valid[: options.sentences]
    sources = [source for source, _ in pairs]
    references = [target for _, target in pairs]
    print(
        f"{device_label(choose_device('cpu'))}, torch {torch.__version__}; run {folder.path.name}; "
        f"{len(pairs):,} sentences of its validation part; medians of {options.rounds} rounds"
    )

    # Translate once, for the scores, then measure.
    with tempfile.TemporaryDirectory() as exports:
        forms = {form.name: form for form in available_forms(folder, Path(exports))}
        processes = {name: Contender(partial(translate_with, form)) for name, form in forms.items()}
        outputs = {name: [process(sources, beam)[1] for beam in BEAMS] for name, process in processes.items()}
        timings = measure(forms, processes, sources, options.rounds)
        megabytes = {name: form.megabytes() for name, form in forms.items()}

    # Print the table, and the default form beside the others.
    print_table(forms, outputs, megabytes, timings, references, config.target)
    default = f"Tapis, {choose_translating('auto', torch.device('cpu'))}"
    for name in forms:
        if name != default:
            speeds = (ratio(seconds[name], seconds[default]) for seconds in (timings.one, timings.greedy, timings.beam))
            shown = " / ".join(f"{speed:.2f}" for speed in speeds)
            print(f"{default} has {shown} times the speed of {name} (one / all / beam 5)")


if __name__ == "__main__":
    main()
