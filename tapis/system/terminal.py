"""The terminal: messages and progress bars on standard error, and which processes write them.

A message may quote what a stranger wrote: a name, a field, a line. A terminal obeys some characters instead of showing
them. `printable` makes them visible, and cuts what is too long to be read.
"""

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm


def is_main() -> bool:
    """Return whether this is the main process: rank 0 of those that torchrun started, or the only one.

    The main process alone writes files, and prints progress and reports.
    """
    return _number_of_process("RANK") == "0"


def is_first_on_machine() -> bool:
    """Return whether this is the first process of its machine, which prints the errors of all processes there.

    Each machine has its own standard error. The main process is the first on its machine.
    """
    return _number_of_process("LOCAL_RANK") == "0"


def _number_of_process(variable: str) -> str:
    """Return what torchrun has put into a variable. Other programs set variables of these names, too."""
    return os.environ.get(variable, "0") if "TORCHELASTIC_RUN_ID" in os.environ else "0"


SECONDS_BETWEEN_REPORTS = 60  # of progress, where there is no terminal
LONGEST_LINE, MOST_LINES = 1000, 40  # characters of a line of a message, and its lines
LONGEST_NAME = 60  # characters of a name in a list
# Control characters but ends of lines and tabs, those that turn the direction of what follows, and lone surrogates,
# which no file can hold.
_OBEYED = re.compile("\r(?!\n)|[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_controls(text: str) -> str:
    r"""Return the text with an escape (\x1b) for each character that a terminal obeys; ends of lines and tabs stay."""
    return _OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def printable(message: str) -> str:
    """Return a message as a terminal may show it: without control characters, and cut where it is too long."""
    half = LONGEST_LINE // 2
    lines = escape_controls(message).split("\n")
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES // 2], "…", *lines[-MOST_LINES // 2 :]]
    return "\n".join(line if len(line) <= LONGEST_LINE else f"{line[:half]} … {line[-half:]}" for line in lines)


def in_one_line(text: object, length: int = 200) -> str:
    """Return a foreign text, or the message of a library's error, for use in a message: on one line, cut to a length.

    What a stranger named can so neither add a line to a message nor fill the screen.
    """
    text = " ".join(str(text).split())
    return text if len(text) <= length else text[: length - 1] + "…"


def listed(names: Iterable[object], most: int = 10) -> str:
    """Return foreign names for use in a message: at most so many of them, each on one line and cut to a length."""
    names = list(names)
    shown = [in_one_line(name, LONGEST_NAME) for name in names[:most]]
    return ", ".join(shown + ["…"] * (len(names) > most)) or "none"


def say(line: str) -> None:
    """Print a line on standard error, above any progress bar. Does nothing outside the main process.

    Does nothing either if nobody reads standard error, as when a terminal was closed.
    """
    if is_main() and sys.stderr:  # it is None if it was closed at the start
        with contextlib.suppress(OSError):
            if "tqdm" in sys.modules:  # else there is no bar
                sys.modules["tqdm"].tqdm.write(printable(line), file=sys.stderr)
            else:
                print(printable(line), file=sys.stderr)


@contextmanager
def errors_as_warnings(what: str) -> Iterator[None]:
    """Print an error of the block as a warning on standard error. `what` says what the error leaves out."""
    try:
        yield
    except Exception as error:
        first_line = (str(error) or type(error).__name__).splitlines()[0]
        say(f"warning: {what} ({first_line})")


def progress_bar(
    description: str, total: int | None, unit: str, *, initial: int = 0, shown: bool = True, leave: bool = True
) -> "tqdm[Any]":
    """Return a progress bar on standard error; hidden outside the main process and when standard error is no terminal.

    `initial` is the number of units already done. With `leave`, the finished bar stays on the screen.
    """
    from tqdm import tqdm  # noqa: PLC0415 - it takes a tenth of what a translation takes from a cold start

    is_hidden = not (shown and is_main() and sys.stderr)
    return tqdm(
        desc=description or None,
        total=total,
        initial=initial,
        unit=unit,
        unit_scale=unit == "pair",
        leave=leave,
        disable=True if is_hidden else None,  # None: tqdm shows the bar only on a terminal
        dynamic_ncols=True,
    )


class Progress:
    """How far a long task is, with its rate and the time to come: a bar on a terminal, otherwise a line a minute."""

    def __init__(
        self, name: str, total: int | None, n_done: int, unit: str, *, shown: bool = True, leave: bool = False
    ) -> None:
        """Take what the lines begin with, how many units there are, if that is known, and how many are done.

        With `leave`, the bar has the name, too, and stays on the screen when it is finished.
        """
        self.name, self.total, self.unit = name, total, unit
        self.n_done = self.n_done_before = n_done
        self.started_at = self.reported_at = time.monotonic()
        self.bar = progress_bar(name if leave else "", total, unit, initial=n_done, leave=leave) if shown else None

    def update(self, n: int) -> None:
        """Count units as done."""
        if self.bar is None:
            return
        self.n_done += n
        self.bar.update(n)
        now = time.monotonic()
        if self.bar.disable and now > self.reported_at + SECONDS_BETWEEN_REPORTS:
            self.reported_at = now
            rate = (self.n_done - self.n_done_before) / (now - self.started_at)
            of_total = left = ""
            if self.total:
                of_total = f" of {self.total:,}"
                left = f", {(self.total - self.n_done) / rate / 60:,.0f} min left"
            say(f"{self.name}: {self.n_done:,}{of_total} {self.unit}s, {rate:,.0f} {self.unit}s/s{left}")

    def close(self) -> None:
        """Remove the bar, unless it is to stay."""
        if self.bar is not None:  # without a total, tqdm has no truth value
            self.bar.close()
