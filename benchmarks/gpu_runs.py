"""Commands of the project on a GPU, timed from their start to their end: parts of gpu_visit.py.

    python benchmarks/gpu_runs.py demo                        the demo, up to a translated sentence
    python benchmarks/gpu_runs.py tests                       the tests of a GPU
    python benchmarks/gpu_runs.py multi30k --data FOLDER      the preset multi30k, up to its scores

Runs and the cache of prepared data are in a temporary folder.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import tyro  # noqa: E402
from gpu_visit import PartOptions  # noqa: E402

SENTENCE = "The cat sits on the mat."


@dataclass(frozen=True)
class Options(PartOptions):
    """Time commands of the project on a GPU."""

    what: Annotated[Literal["demo", "tests", "multi30k"], tyro.conf.Positional] = "demo"
    """Which of them"""


def run_command(folder: Path, script: str, *arguments: str) -> float:
    """Run a command of the project in a folder, where also its cache is. Returns its seconds."""
    begun = time.perf_counter()
    environment = {**os.environ, "HF_DATASETS_CACHE": str(folder / "cache")}
    subprocess.run([sys.executable, str(ROOT / script), *arguments], cwd=folder, env=environment, check=True)
    return time.perf_counter() - begun


def load_metrics(folder: Path, run: str) -> dict[str, Any]:
    """Return what a run in a folder has reported."""
    metrics: dict[str, Any] = json.loads((folder / f"weights/{run}/metrics.json").read_text(encoding="utf-8"))
    return metrics


def tiny_run(folder: Path, target: str, device: str) -> list[str]:
    """Write a folder of a few pairs. Returns the flags of train.py for a tiny run on them."""
    data, draw = folder / "data", Random(1)
    data.mkdir()
    for part, n in (("train", 200), ("valid", 10), ("test", 10)):
        for language in ("en", target):
            lines = [" ".join(draw.choices("abcdefghij", k=5)) + f" {language}{i}.\n" for i in range(n)]
            (data / f"{part}.{language}").write_text("".join(lines), encoding="utf-8")
    sizes = {"d-model": 16, "n-heads": 2, "d-ff": 32, "vocab-size": 300, "steps": 4, "valid-every": 4}
    return ["--data", str(data), f"--device={device}", *(f"--{name}={size}" for name, size in sizes.items())]


def demo(options: Options, folder: Path) -> None:
    """Print how long the demo takes from the command to a translated sentence."""
    flags = tiny_run(folder, "fr", options.device) if options.simulate else []
    training = run_command(folder, "train.py", "demo", "--overwrite", *flags)
    print(f"{SENTENCE} → ", end="", flush=True)
    translating = run_command(folder, "translate.py", "--run", "demo", SENTENCE)
    metrics = load_metrics(folder, "demo")
    print(
        f"{training + translating:.1f} s from the command to the sentence: train.py {training:.1f} s, of which "
        f"{metrics['seconds']:.1f} s of steps and validations; translate.py {translating:.1f} s\n"
        f"test BLEU {metrics['test']['bleu']:.1f}"
    )


def tests(options: Options) -> None:
    """Run the tests of a GPU, and print what they do at once. In miniature, they are only collected.

    Warnings are no errors here: other versions of the packages than those of CI give others.
    """
    settings = ["--override-ini=addopts=-ra", "--override-ini=filterwarnings="]
    command = [sys.executable, "-m", "pytest", "tests/gpu", "-q", "-s", "--tb=short", *settings]
    if options.simulate:
        command.append("--collect-only")
    sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)


def multi30k(options: Options, folder: Path) -> None:
    """Print how long the run of Multi30k takes, and its scores."""
    flags = tiny_run(folder, "de", options.device) if options.simulate else ["--data", options.data]
    data = flags[1]
    if not data:
        print("skipped: no --data")
        return
    run = partial(run_command, folder)
    run("benchmarks/timed_run.py", "multi30k", *flags, "--source", "en", "--target", "de", "--name", "multi30k")
    print(f"test BLEU {load_metrics(folder, 'multi30k')['test']['bleu']:.2f}, greedy", flush=True)

    # Beam search, and BLEU as published tables count it.
    hypotheses = str(options.out / "multi30k.hyp")
    seconds = run("evaluate.py", "--run", "multi30k", "--beam", "5", "--output", hypotheses)
    print(f"evaluate.py --beam 5 took {seconds:.1f} s", flush=True)
    if find_spec("sacremoses"):
        run("benchmarks/published_bleu.py", hypotheses, f"{data}/test.de", "de")
    else:
        print("no sacremoses here: benchmarks/published_bleu.py can score multi30k.hyp elsewhere")


def main() -> None:
    options = tyro.cli(Options)
    with tempfile.TemporaryDirectory() as name:
        if options.what == "demo":
            demo(options, Path(name))
        elif options.what == "tests":
            tests(options)
        else:
            multi30k(options, Path(name))


if __name__ == "__main__":
    main()
