"""How long the commands take to start, beside `import torch`.

    python benchmarks/startup.py                  with the latest run
    python benchmarks/startup.py --run NAME

Each command runs from its start to its end, as a user runs it; train.py, until it has reported. The commands take turns
with `python -c "import torch"`.
"""

import statistics
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch  # noqa: E402
import tyro  # noqa: E402
from measure import alternate, command_cost, command_seconds, ratio, seconds_until  # noqa: E402

from checkpoint import RunFolder  # noqa: E402
from machine.devices import choose_device, device_label  # noqa: E402

SENTENCE = "The cat sits on the mat."


@dataclass(frozen=True)
class Options:
    """Time commands from their start to their end."""

    run: str = ""
    """Run under weights/, or a folder; by default the latest run"""
    rounds: int = 9
    """Turns of each command"""


def main() -> None:
    options = tyro.cli(Options)
    folder = RunFolder.find(options.run).path.absolute()
    commands = {
        "import torch": ["-c", "import torch"],
        "tapis translate, one sentence": ["-m", "tapis", "translate", "--run", str(folder), SENTENCE],
        "translate.py, one sentence": ["translate.py", "--run", str(folder), SENTENCE],
        "the same in fp32, by torch": ["translate.py", "--precision", "fp32", "--run", str(folder), SENTENCE],
        "translate.py --help": ["translate.py", "--help"],
        "train.py --help": ["train.py", "--help"],
    }
    megabytes = {name: command_cost(*command)[1] for name, command in commands.items()}  # and the files are in memory
    turns = {name: partial(command_seconds, *command) for name, command in commands.items()}
    dry_run = ["train.py", "demo", "--dry-run"]
    turns["train.py demo, its data reported"] = partial(seconds_until, " pairs read", *dry_run)
    turns["train.py demo, all reported"] = partial(seconds_until, "device  ", *dry_run)
    seconds = alternate(turns, options.rounds)

    label = device_label(choose_device("cpu"))
    print(f"{label}, torch {torch.__version__}; run {folder.name}; medians of {options.rounds} rounds\n")
    print(f"{'':<34} {'seconds':>8} {'of import torch':>16} {'MB':>6}")
    for name, values in seconds.items():
        of_torch = ratio(values, seconds["import torch"])
        memory = f"{megabytes[name]:>6.0f}" if name in megabytes else ""
        print(f"{name:<34} {statistics.median(values):>8.2f} {of_torch:>15.2f}× {memory}")


if __name__ == "__main__":
    main()
