"""All that is measured on a GPU, by two commands that take minutes: for a machine that is lent for 15 minutes.

    python benchmarks/gpu_visit.py --out visit --data FOLDER
    python benchmarks/gpu_visit.py --out visit --minutes 4 --parts steps-multi30k profile memory big

The first takes 8 minutes at most, in which each of its parts has its full time; the second takes 4. Three minutes are
left for the start of the machine.

    python benchmarks/gpu_visit.py --out visit --parts versions steps     some parts, in this order
    python benchmarks/gpu_visit.py --out visit --simulate                 in miniature, on a machine without a GPU

Each part is a process of its own with a time limit. What it prints goes to the terminal and to OUT/report.txt at once.
A part that fails prints the end of its error, all of which is in OUT/errors.txt, and the others go on. The exit code is
1 if a part failed.

The machine needs no network, only Python with PyTorch for its GPU. Bring the other packages as wheels, but none that it
has: they would come first, and need not suit what they need themselves. Where there is a network, collect those that
are rarely there already, for its version of Python:

    pip download --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux_2_28_x86_64 \
        --platform manylinux2014_x86_64 --dest wheels tyro docstring-parser typeguard datasets dill multiprocess \
        py3langid sentencex babel sacremoses

and install them there:

    python -m pip install --no-index --no-deps --target packages wheels/*.whl
    PYTHONPATH=$PWD/packages python benchmarks/gpu_visit.py --out visit --data FOLDER

Besides, it needs the other dependencies in pyproject.toml, and for one part each: transformers for decoding beside
Hugging Face, pytest, hypothesis and sortedcontainers for the tests, joblib with sacremoses for BLEU as published tables
count it.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

FOLDER = Path(__file__).parent
SHORTEST = 10  # seconds that must be left for a part to begin
SECONDS_TO_STOP = 8  # of a run, which saves its state


@dataclass(frozen=True)
class Part:
    """What is measured in a process of its own."""

    name: str
    seconds: float
    """Time limit"""
    command: tuple[str, ...]
    """A file of this folder and its arguments, besides `PartOptions`"""


FIRST = [  # the most important first; together 8 minutes at most
    Part("versions", 20, ("gpu_machine.py",)),
    Part("demo", 50, ("gpu_runs.py", "demo")),
    Part("tests", 120, ("gpu_runs.py", "tests")),
    Part("steps", 110, ("gpu_steps.py", "times", "--presets", "base")),
    Part("decoding", 70, ("gpu_decoding.py",)),
    Part("multi30k", 110, ("gpu_runs.py", "multi30k")),
]
SECOND = [  # 4 minutes at most
    Part("steps-multi30k", 60, ("gpu_steps.py", "times", "--presets", "multi30k")),
    Part("profile", 70, ("gpu_steps.py", "profile", "--presets", "base", "multi30k")),
    Part("memory", 40, ("gpu_steps.py", "memory", "--presets", "base")),
    Part("big", 60, ("gpu_steps.py", "times", "--presets", "big")),
]
PARTS = [*FIRST, *SECOND]


@dataclass(frozen=True)
class PartOptions:
    """What every part is told."""

    out: Path = Path("visit")
    """Folder to write files to"""
    data: str = ""
    """Folder of Multi30k, as for train.py; without it, the part multi30k is skipped"""
    simulate: bool = False
    """Do everything in miniature, without a GPU"""
    seconds: float = 600.0
    """Time limit of the part"""

    @property
    def device(self) -> Literal["cpu", "cuda"]:
        return "cpu" if self.simulate else "cuda"


@dataclass(frozen=True)
class Options:
    """Measure all there is to measure on a GPU."""

    out: Path
    """Folder to write the report and other files to"""
    data: str = ""
    """Folder of Multi30k, as for train.py; without it, the part multi30k is skipped"""
    parts: tuple[str, ...] = ()
    """Parts to do, in this order; by default those of the first command"""
    minutes: float = 8.0
    """Time in all: a part ends when it is over, and none begins afterwards"""
    simulate: bool = False
    """Do everything in miniature, without a GPU"""


class Report:
    """Prints lines, and writes them to a file at once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def print(self, line: str) -> None:
        print(line, flush=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def visit(options: Options) -> bool:
    """Do the parts. Returns whether none failed."""
    known = {part.name: part for part in PARTS}
    if unknown := set(options.parts) - known.keys():
        sys.exit(f"--parts: no {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    options.out.mkdir(parents=True, exist_ok=True)
    report = Report(options.out / "report.txt")
    begun = time.monotonic()
    failed, skipped = [], []
    for part in [known[name] for name in options.parts] or FIRST:
        part_begun = time.monotonic()
        left = 60 * options.minutes - (part_begun - begun)
        if left < SHORTEST:
            skipped.append(part.name)
            continue
        report.print(f"\n== {part.name}")
        failure = run_part(part, min(part.seconds, left), options, report)
        if failure:
            failed.append(part.name)
            report.print(failure)
        report.print(f"== {part.name} took {time.monotonic() - part_begun:.1f} s")
    report.print(f"\n{time.monotonic() - begun:.0f} s in all; failed: {', '.join(failed) or 'none'}")
    if skipped:
        report.print(f"skipped for lack of time: {', '.join(skipped)}")
    return not failed


def run_part(part: Part, seconds: float, options: Options, report: Report) -> str:
    """Run a part in a process of its own. Returns how it failed; empty if it did not."""
    file, *arguments = part.command
    arguments += ["--out", str(options.out.absolute()), "--seconds", f"{seconds:.0f}"]
    arguments += ["--data", str(Path(options.data).absolute())] if options.data else []
    arguments += ["--simulate"] if options.simulate else []
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        process = subprocess.Popen(
            [sys.executable, "-u", str(FOLDER / file), *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )

        def copy_lines() -> None:
            assert process.stdout
            for line in process.stdout:
                report.print(line.rstrip("\n"))

        copying = threading.Thread(target=copy_lines, daemon=True)
        copying.start()
        try:
            failure = f"FAILED with exit code {process.returncode}" if process.wait(seconds) else ""
        except subprocess.TimeoutExpired:
            failure = f"FAILED: stopped after {seconds:.0f} s"
            stop(process, copying)
        copying.join(5)
        if process.stdout and not copying.is_alive():
            process.stdout.close()
        errors.seek(0)
        text = errors.read()

    if text:
        with (options.out / "errors.txt").open("a", encoding="utf-8") as file_of_errors:
            file_of_errors.write(f"== {part.name}\n{text}\n")
    if not failure:
        return ""
    last_lines = text.strip().splitlines()[-15:]
    return "\n".join([failure, *(f"    | {line[:300]}" for line in last_lines)])


def stop(process: "subprocess.Popen[str]", copying: threading.Thread) -> None:
    """End a process and those that it started, which have a few seconds to print what they know."""
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGTERM)  # it leads a group of its own
        copying.join(SECONDS_TO_STOP)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main() -> None:
    sys.exit(0 if visit(tyro.cli(Options)) else 1)


if __name__ == "__main__":
    main()
