"""Ctrl-C and SIGTERM: the first one ends the run after the step at hand, the second one at once."""

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tapis.system.terminal import is_main


@contextmanager
def interruption() -> Iterator[list[int]]:
    """While entered, collects the first SIGINT or SIGTERM in the list. A second one raises KeyboardInterrupt."""
    received: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        if is_main():  # not through sys.stderr, which the signal may have interrupted
            with contextlib.suppress(OSError):  # Ctrl-C ends the reader of a pipe, too
                os.write(2, b"\nending after this step; once more to end at once\n")

    handlers_before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in handlers_before.items():
            signal.signal(number, handler)
