"""The terminal: lines and progress bars on standard error, from the main process alone."""

import os
import sys
from typing import Any

from tqdm import tqdm


def is_main() -> bool:
    """Whether this is the main process: the one, of all that torchrun started, that writes files and prints."""
    return os.environ.get("RANK", "0") == "0"


def say(line: str) -> None:
    """Prints a line on standard error, above the progress bar if there is one. Only the main process prints."""
    if is_main():
        tqdm.write(line, file=sys.stderr)


def progress_bar(
    description: str, total: int | None, unit: str, *, initial: int = 0, shown: bool = True, leave: bool = True
) -> "tqdm[Any]":
    """A progress bar on standard error, which only the main process shows, and only on a terminal."""
    return tqdm(
        desc=description or None,
        total=total,
        initial=initial,
        unit=unit,
        unit_scale=unit == "pair",
        leave=leave,
        disable=None if shown and is_main() else True,  # None: wherever standard error is no terminal
        dynamic_ncols=True,
    )
