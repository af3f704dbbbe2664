"""A whole run by train.py, and how long each kind of its work took.

    python benchmarks/timed_run.py multi30k --data FOLDER --source en --target de --name NAME

The arguments are those of train.py, which runs in this process. The time counts from the start of the imports. A run
that is stopped, by SIGTERM or Ctrl-C, prints the table, too.
"""

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()
ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

from tapis.system.cli import run_command, share_cores  # noqa: E402

share_cores()  # as train.py does when it is run

import train  # noqa: E402

SECONDS: dict[str, list[float]] = defaultdict(list)
"""Of each call, by the kind of work"""
FIRST_BEGAN: dict[str, float] = {}
"""When the first call of a kind of work began, in seconds after the start"""


def timed(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that notes how long its calls take."""

    def timing(*args: Any, **kwargs: Any) -> Any:
        begun = time.perf_counter()
        FIRST_BEGAN.setdefault(kind, begun - STARTED)
        try:
            return function(*args, **kwargs)
        finally:
            SECONDS[kind].append(time.perf_counter() - begun)

    return timing


def main() -> None:
    # Time what the loop and the command call by name.
    train.load_training = timed("preparing", train.load_training)
    train.take_step = timed("steps", train.take_step)
    train.validate_and_keep_best = timed("validations", train.validate_and_keep_best)
    train.save = timed("saves", train.save)
    train.Training.make_rounds = timed("rounds", train.Training.make_rounds)  # type: ignore[method-assign, attr-defined]
    train.finish = timed("test part", train.finish)
    imports = time.perf_counter() - STARTED
    try:
        run_command(train.main)
    finally:
        print_table(imports)


def print_table(imports: float) -> None:
    """Print the seconds of each kind of work. imports are those of the imports."""
    total = time.perf_counter() - STARTED
    print(f"{total:.1f} s in all, of which")
    print(f"    {'imports':<20} {imports:>8.1f} s")
    for kind, seconds in SECONDS.items():
        print(f"    {kind:<20} {sum(seconds):>8.1f} s in {len(seconds):,}")
    print(f"    {'other':<20} {total - imports - sum(map(sum, SECONDS.values())):>8.1f} s")
    if steps := SECONDS["steps"]:
        median, mean = 1000 * statistics.median(steps), 1000 * statistics.mean(steps)
        print(f"a step: {median:.2f} ms (median), {mean:.2f} ms (mean); the first ten took {sum(steps[:10]):.1f} s")
        print(f"the first step began after {FIRST_BEGAN['steps']:.1f} s")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
