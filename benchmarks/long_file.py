"""A file of any length: the rate of `tapis translate --input FILE --output OUT`, its memory, and what kills leave.

    python benchmarks/long_file.py RUN FILE                         the rate, beside that of the search alone
    python benchmarks/long_file.py RUN FILE --lines 1000000 --rounds 1
    python benchmarks/long_file.py RUN FILE --kills 50              SIGKILL at random moments, and goes on each time

FILE is repeated until it has --lines lines. "Search" has the model loaded, and translates all lines in one call of
`Translator.n_best`, as sentences. "Command" is a process of its own, from its start to its end. They take turns.
With --kills, the output must be, in the end, that of a command that nothing interrupted, byte for byte.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Annotated

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import tyro  # noqa: E402
from measure import alternate, command_cost, ratio  # noqa: E402

from tapis.search import Search  # noqa: E402
from tapis.system.terminal import say  # noqa: E402
from tapis.text.lines import lines  # noqa: E402
from tapis.translator import Translator  # noqa: E402


@dataclass(frozen=True)
class Options:
    """Time the translation of a long file, and interrupt it."""

    run: Annotated[str, tyro.conf.Positional]
    """Run that translates, in int8"""
    file: Annotated[Path, tyro.conf.Positional]
    """Text to translate, one sentence per line"""
    lines: int = 10_000
    """Lines of the file that is translated"""
    beam: int = 1
    """Beam size"""
    rounds: int = 3
    """Turns of each contender"""
    kills: int = 0
    """Kills, instead of measuring the rate"""
    seed: int = 1
    """Random seed of the moments of the kills"""


def command(options: Options, source: Path, output: Path) -> list[str]:
    """Return the command that translates a file, as arguments of Python."""
    flags = ["--run", options.run, "--beam", str(options.beam), "--input", str(source), "--output", str(output)]
    return ["-m", "tapis", "translate", *flags]


def compare(options: Options, source: Path, output: Path) -> None:
    """Print the rates of the search and of the command, their ratio, and the memory of the command."""
    translator = Translator.load(options.run)
    sentences = list(lines(source))
    translator.n_best(sentences[:1000], Search(options.beam))  # to warm up

    def search() -> float:
        start = time.perf_counter()
        translator.n_best(sentences, Search(options.beam))
        return len(sentences) / (time.perf_counter() - start)

    memory: list[float] = []

    def whole_command() -> float:
        seconds, megabytes = command_cost(*command(options, source, output))
        memory.append(megabytes)
        return len(sentences) / seconds

    rates = alternate({"search": search, "command": whole_command}, options.rounds)
    for name, figures in rates.items():
        print(f"{name:<8} {statistics.median(figures):7,.0f} lines/s  {ratio(figures, rates['search']):.3f}")
    print(f"memory of the command {max(memory):,.0f} MB")


def interrupt(options: Options, source: Path, output: Path) -> None:
    """Kill the command at random moments, and compare its output with that of one that nothing interrupted."""
    expected = output.with_name("expected")
    seconds, _ = command_cost(*command(options, source, expected))
    print(f"uninterrupted: {seconds:.1f} s")
    draw = Random(options.seed)
    n_kills, n_finished = 0, 0
    while n_kills < options.kills:
        process = subprocess.Popen([sys.executable, *command(options, source, output)])
        try:
            process.wait(draw.uniform(0, 1.2 * seconds))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            n_kills += 1
            continue
        n_finished += 1
        check(process.returncode == 0 and output.read_bytes() == expected.read_bytes(), "an output differs")
        output.unlink()
    command_cost(*command(options, source, output))
    check(output.read_bytes() == expected.read_bytes(), "the last output differs")
    left = {path.name for path in output.parent.iterdir()} - {source.name, output.name, expected.name}
    check(not left, f"files are left: {left}")
    print(f"{n_kills} kills, {n_finished + 1} outputs, all the same")


def check(is_right: bool, trouble: str) -> None:
    """End the benchmark in words if something is wrong."""
    if not is_right:
        say(f"error: {trouble}")
        raise SystemExit(1)


def main() -> None:
    options = tyro.cli(Options)
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "in", Path(folder) / "out"
        texts = list(lines(options.file))
        with source.open("w", encoding="utf-8") as file:
            file.writelines(f"{text}\n" for text in islice(cycle(texts), options.lines))
        (interrupt if options.kills else compare)(options, source, output)


if __name__ == "__main__":
    main()
