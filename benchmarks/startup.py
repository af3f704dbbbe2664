"""How long the commands take to start, beside importing torch.

    python benchmarks/startup.py                  with the run trained last
    python benchmarks/startup.py --run NAME

Each command runs from its start to its end, as a user would run it, in turn with `python -c "import torch"`. What is
printed is the median of its seconds, and of the ratios within each round.
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
from measure import alternate, command_seconds, ratio  # noqa: E402

from checkpoint import RunFolder  # noqa: E402
from system.devices import choose_device, device_label  # noqa: E402


@dataclass(frozen=True)
class Options:
    """Time commands from their start to their end."""

    run: str = ""
    """Run under weights/, or a folder; by default the run trained last"""
    rounds: int = 9


def main() -> None:
    options = tyro.cli(Options)
    folder = RunFolder.find(options.run).path.absolute()
    commands = {
        "import torch": ["-c", "import torch"],
        "translate.py, one sentence": ["translate.py", "--run", str(folder), "The cat sits on the mat."],
        "translate.py --help": ["translate.py", "--help"],
        "train.py --help": ["train.py", "--help"],
    }
    for command in commands.values():
        command_seconds(*command)  # files come from the disk once
    found = alternate({name: partial(command_seconds, *command) for name, command in commands.items()}, options.rounds)
    print(
        f"{device_label(choose_device('cpu'))}, torch {torch.__version__}; run {folder.name}; {options.rounds} rounds\n"
    )
    print(f"{'':<30} {'seconds':>8} {'of import torch':>16}")
    for name, values in found.items():
        print(f"{name:<30} {statistics.median(values):>8.2f} {ratio(values, found['import torch']):>15.2f}×")


if __name__ == "__main__":
    main()
