"""The forms of a trained model: how large, how much memory, how fast, and what they score.

    python benchmarks/forms.py                             the run trained last, on the validation part of its data
    python benchmarks/forms.py --run NAME --sentences 500

Our own model in fp32, bf16 and int8, and what `export.py --to ctranslate2` makes of it, in float32 and int8, where
CTranslate2 is installed. Each form has a process of its own to translate in, and they take turns; "start-up" is a whole
`translate.py` for one sentence. "same" counts the translations that are ours in fp32.
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

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch  # noqa: E402
import tyro  # noqa: E402
from measure import Contender, alternate, command_seconds, ratio  # noqa: E402

from checkpoint import RunFolder  # noqa: E402
from config import TranslatingPrecision  # noqa: E402
from decoding.scoring import score  # noqa: E402
from decoding.search import Search  # noqa: E402
from decoding.translator import Translator  # noqa: E402
from export import to_ctranslate2  # noqa: E402
from system.devices import choose_device, choose_translating, device_label, peak_gigabytes  # noqa: E402
from system.files import whole_folder  # noqa: E402
from text.corpus import load_corpus  # noqa: E402


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


def translating(form: Form) -> Callable[[Sequence[str], int], tuple[list[str], float]]:
    """What the process of a form does: translates with a beam, and says how many gigabytes it had at most so far."""
    translator = Translator.load(form.run, "cpu", form.precision)

    def work(sources: Sequence[str], beam: int) -> tuple[list[str], float]:
        return translator(sources, Search(beam)), peak_gigabytes(torch.device("cpu"))

    return work


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
    config = folder.load_config()
    pairs = load_corpus(config).valid[: options.sentences]
    sources, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    os.environ["PYTHONWARNINGS"] = "ignore"
    print(f"{device_label(choose_device('cpu'))}, torch {torch.__version__}; run {folder.path.name}; ", end="")
    print(f"{len(pairs):,} sentences of its validation part; medians of {options.rounds} turns")
    with tempfile.TemporaryDirectory() as out:
        all_forms = {form.name: form for form in forms(folder, Path(out))}
        processes = {name: Contender(partial(translating, form)) for name, form in all_forms.items()}
        found = {name: [process(sources, beam)[1] for beam in (1, 5)] for name, process in processes.items()}

        def start(name: str) -> float:
            form = all_forms[name]
            return command_seconds("translate.py", "--run", form.run, "--precision", form.precision, sources[0])

        def one(name: str) -> float:
            return statistics.median(processes[name]([source], 1)[0] for source in sources[:20])

        def whole(beam: int, name: str) -> float:
            return processes[name](sources, beam)[0]

        timed = [
            alternate({name: partial(work, name) for name in all_forms}, options.rounds)
            for work in (start, one, partial(whole, 1), partial(whole, 5))
        ]
        sizes = {name: form.megabytes() for name, form in all_forms.items()}
    columns = ("MB on disk", "GB resident", "start-up s", "one, ms", "all, s", "beam 5, s")
    print(f"{'':<22}" + "".join(f"{column:>12}" for column in (*columns, "BLEU", "beam 5", "same", "beam 5")))
    exact = next(iter(found.values()))
    for name, results in found.items():
        seconds = [statistics.median(runs[name]) for runs in timed]
        bleu = [f"{score(said, references, config.target).bleu:.2f}" for said, _ in results]
        both = zip(results, exact, strict=True)
        same = [str(sum(a == b for a, b in zip(said, ours, strict=True))) for (said, _), (ours, _) in both]
        cells = (f"{sizes[name]:.1f}", f"{results[-1][1]:.2f}", f"{seconds[0]:.2f}", f"{1000 * seconds[1]:.1f}")
        more = (f"{seconds[2]:.2f}", f"{seconds[3]:.2f}", *bleu, *same)
        print(f"{name:<22}" + "".join(f"{cell:>12}" for cell in (*cells, *more)))
    ours = f"Tapis, {choose_translating('auto', torch.device('cpu'))}"
    for name in found:
        if name != ours:
            times = (f"{ratio(runs[name], runs[ours]):.2f}" for runs in timed[1:])
            print(f"{ours} has {' / '.join(times)} times the speed of {name} (one / all / beam 5)")


if __name__ == "__main__":
    main()
