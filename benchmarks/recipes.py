r"""Compares training recipes by the BLEU of several sets, over several seeds.

    python benchmarks/recipes.py OUT A.json B.json --data FOLDER --source en --target de --minutes 60 --seeds 3 \
        --sets FOLDER/valid OTHER/test

A recipe is a file with the lines that make a run, each a script of the checkout, or another program, with its arguments
(recipes_multi30k/ has some):

    {"commands": ["train.py multi30k --data {data} --target {target} --minutes {minutes} --seed {seed} --name run"]}

Its lines run one after another in a folder of their own, OUT/RECIPE/SEED, where they find the files and the runs that
earlier lines left. {data}, {source}, {target} and {minutes} are the options of these names, {minutes:0.2} is a fifth of
them, and {seed} counts from 1. The latest run then translates the source side of each set, by "translate.py --beam 5"
or by what the recipe has as "translate". A set is named without its language: FOLDER/valid are FOLDER/valid.en and
FOLDER/valid.de.

The recipes take turns: each is trained with the first seed, then each with the second. What is done is not done again,
and a run that was interrupted is resumed, so that the same command goes on after any end. OUT/table.md grows with
each run. It has the mean and the standard deviation over the seeds, and the difference from the first recipe with its
95 % interval and p-value, by a bootstrap over seeds and sentences.
"""

import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tapis.scoring import bleu_tokenizer  # noqa: E402
from tapis.system.files import write_text  # noqa: E402
from tapis.text.lines import lines  # noqa: E402
from tapis.threads import n_cores  # noqa: E402

SAMPLES = 2000  # of the bootstrap

Counts = NDArray[np.int64]
"""For each sentence, what BLEU adds up: matches and n-grams of the orders 1 to 4, lengths of hypothesis, reference"""


@dataclass(frozen=True)
class Options:
    """Compare training recipes by the BLEU of several sets, over several seeds."""

    out: Annotated[Path, tyro.conf.Positional]
    """Folder for the runs, their translations, and the table"""
    recipes: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Files of recipes; differences are from the first"""
    data: Path
    """Folder of the training data"""
    sets: tuple[Path, ...]
    """What to score on, each as FOLDER/NAME of two files, FOLDER/NAME.SOURCE and FOLDER/NAME.TARGET"""
    source: str = "en"
    """Language to translate from"""
    target: str = "de"
    """Language to translate into"""
    minutes: float = 60
    """Time of a recipe, for those that ask for it"""
    seeds: int = 3
    """Seeds, from 1"""
    at_once: int = 1
    """Runs at the same time, each with its share of the cores"""


@dataclass(frozen=True)
class Recipe:
    """The lines that make a run."""

    name: str
    commands: list[str]
    translate: str = "translate.py --beam 5"

    @classmethod
    def load(cls, path: Path) -> "Recipe":
        """Read a recipe, which is named by its file."""
        return cls(path.stem, **json.loads(path.read_text(encoding="utf-8")))


class Minutes(float):
    """A time, of which a recipe may take a share: f"{minutes:0.2}" is a fifth of it."""

    def __format__(self, share: str) -> str:
        return f"{float(self) * float(share or 1):.3g}"


# Running a recipe


def run(options: Options, recipe: Recipe, seed: int) -> None:
    """Do what is left of a recipe with one seed. Raises CalledProcessError if a line fails."""
    folder = options.out / recipe.name / str(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for number, command in enumerate(recipe.commands):
        done = folder / f"seconds-{number}"
        line = line_of(options, command, seed)
        if not done.exists():
            with seconds_added(folder / f"spent-{number}") as spent:
                run_line(options, folder, resuming(folder, line))
            spent.rename(done)
    for prefix in options.sets:
        hypotheses = hypotheses_file(folder, prefix)
        if not hypotheses.exists():
            files = ["--input", f"{prefix.absolute()}.{options.source}", "--output", str(hypotheses.absolute())]
            run_line(options, folder, [*shlex.split(recipe.translate), *files])


@contextmanager
def seconds_added(file: Path) -> Iterator[Path]:
    """Add the seconds that the block takes, also if it fails, to those in the file."""
    before = float(file.read_text(encoding="utf-8")) if file.exists() else 0.0
    start = time.perf_counter()
    try:
        yield file
    finally:
        write_text(file, f"{before + time.perf_counter() - start:.1f}")


def line_of(options: Options, command: str, seed: int) -> list[str]:
    """Return the words of a line of a recipe."""
    names = {"data": options.data.absolute(), "source": options.source, "target": options.target, "seed": seed}
    return shlex.split(command.format(**names, minutes=Minutes(options.minutes)))


def run_line(options: Options, folder: Path, line: Sequence[str]) -> None:
    """Run a script of the checkout, or another program, in a folder. What it prints is added to the file log."""
    threads = max(1, n_cores() // options.at_once)
    with (folder / "log").open("ab") as log:
        subprocess.run(
            [sys.executable, str(ROOT / line[0]), *line[1:]] if line[0].endswith(".py") else line,
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            stdout=log,
            stderr=log,
            check=True,
        )


def resuming(folder: Path, line: list[str]) -> list[str]:
    """Return the line that goes on with a run that was interrupted; the line itself, where nothing was."""
    if line[0] == "train.py" and "--name" in line:
        name = line[line.index("--name") + 1]
        states = [folder / "weights" / run / "training" / "state.safetensors" for run in (name, f"{name}-teacher")]
        if (folder / "weights" / name / "config.json").exists() and any(state.exists() for state in states):
            return ["train.py", "--resume", "--name", name]
        return [*line, "--overwrite"]
    return line


def hypotheses_file(folder: Path, prefix: Path) -> Path:
    """Return the file of a run's translations of a set."""
    return folder / f"{prefix.parent.name}-{prefix.name}.txt"


# Scores


@dataclass
class Scored:
    """What the runs of a recipe have on one set."""

    counts: list[Counts] = field(default_factory=list)
    """Of each seed"""

    @property
    def bleu(self) -> list[float]:
        """BLEU of each seed."""
        return [bleu_of(counts.sum(axis=0)) for counts in self.counts]


def counts_of(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Counts:
    """Return what BLEU adds up, a row for each sentence."""
    bleu = BLEU(tokenize=bleu_tokenizer(language), effective_order=True)  # which the counts do not depend on
    scores = [
        bleu.sentence_score(hypothesis, [reference])
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]
    return np.array([[*one.counts, *one.totals, one.sys_len, one.ref_len] for one in scores], dtype=np.int64)


def bleu_of(total: Counts) -> float:
    """Return corpus BLEU of counts that were summed over sentences: the sacreBLEU score, without smoothing."""
    numbers = total.tolist()
    score = BLEU.compute_bleu(numbers[:4], numbers[4:8], numbers[8], numbers[9], smooth_method="none")
    return float(score.score)


def difference(first: Scored, other: Scored) -> tuple[float, float, float, float]:
    """Return by how much the other's mean BLEU is higher, the 95 % interval, and the two-sided p-value.

    Bootstrap: each sample draws sentences and, for both recipes alike, seeds, with replacement.
    """
    n_seeds = min(len(first.counts), len(other.counts))
    n_sentences = len(first.counts[0])
    draw = np.random.default_rng(1)

    def mean(scored: Scored, seeds: Counts, weights: Counts) -> float:
        return statistics.fmean(bleu_of(weights @ scored.counts[seed]) for seed in seeds)

    everything = np.arange(n_seeds), np.ones(n_sentences, dtype=np.int64)
    observed = mean(other, *everything) - mean(first, *everything)
    samples = []
    for _ in range(SAMPLES):
        seeds = draw.integers(n_seeds, size=n_seeds)
        weights = np.bincount(draw.integers(n_sentences, size=n_sentences), minlength=n_sentences)
        samples.append(mean(other, seeds, weights) - mean(first, seeds, weights))
    low, high = np.quantile(samples, [0.025, 0.975]).tolist()
    one_sided = min(np.mean(np.array(samples) <= 0), np.mean(np.array(samples) >= 0))
    return observed, low, high, min(1.0, 2 * max(float(one_sided), 1 / SAMPLES))


# The table


def table(options: Options, recipes: Sequence[Recipe]) -> str:
    """Return a row for each recipe that has a run, in Markdown."""
    names = [f"{prefix.parent.name} {prefix.name}" for prefix in options.sets]
    columns = ["recipe", "seeds", "minutes"]
    for name in names:
        columns += [name, "of each seed", f"beside {recipes[0].name}"]
    rows = [columns, ["---"] * len(columns)]
    baseline: dict[Path, Scored] = {}
    for recipe in recipes:
        folders = finished(options, recipe)
        if folders:
            minutes = statistics.fmean(minutes_of(folder) for folder in folders)
            row = [recipe.name, str(len(folders)), f"{minutes:.1f}"]
            for prefix in options.sets:
                scored = scored_on(options, folders, prefix)
                row += cells(scored, baseline.setdefault(prefix, scored))
            rows.append(row)
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def cells(scored: Scored, baseline: Scored) -> list[str]:
    """Return the cells of one set: the mean and the deviation, the seeds, and the difference from the first recipe."""
    bleu = scored.bleu
    deviation = f" ± {statistics.stdev(bleu):.2f}" if len(bleu) > 1 else ""
    beside = ""
    if scored is not baseline:
        observed, low, high, p_value = difference(baseline, scored)
        beside = f"{observed:+.2f} ({low:+.2f} to {high:+.2f}; p {p_value:.3f})"
    return [f"{statistics.fmean(bleu):.2f}{deviation}", ", ".join(f"{one:.2f}" for one in bleu), beside]


def finished(options: Options, recipe: Recipe) -> list[Path]:
    """Return the folders of the runs of a recipe that have translated every set."""
    folders = [options.out / recipe.name / str(seed) for seed in range(1, options.seeds + 1)]
    return [one for one in folders if all(hypotheses_file(one, prefix).exists() for prefix in options.sets)]


def minutes_of(folder: Path) -> float:
    """Return how long the lines of a recipe took, without translating the sets."""
    return sum(float(file.read_text(encoding="utf-8")) for file in folder.glob("seconds-*")) / 60


def scored_on(options: Options, folders: Sequence[Path], prefix: Path) -> Scored:
    """Return what the runs in these folders have on a set."""
    references = list(lines(Path(f"{prefix}.{options.target}")))
    return Scored([counts_of(list(lines(hypotheses_file(one, prefix))), references, options.target) for one in folders])


def main() -> None:
    options = tyro.cli(Options)
    recipes = [Recipe.load(path) for path in options.recipes]

    def run_and_show(job: tuple[Recipe, int]) -> None:
        recipe, seed = job
        run(options, recipe, seed)
        write_text(options.out / "table.md", table(options, recipes))
        print(f"{recipe.name} with seed {seed} is done", flush=True)

    jobs: list[tuple[Recipe, int]] = [(recipe, seed) for seed in range(1, options.seeds + 1) for recipe in recipes]
    with ThreadPoolExecutor(options.at_once) as pool:
        waiting: list[Any] = [pool.submit(run_and_show, job) for job in jobs]
        for one in waiting:
            one.result()
    print((options.out / "table.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
