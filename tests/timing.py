"""The processor's time that something takes, whatever else the machine and the test process are busy with."""

import gc
import time
from collections.abc import Callable


def seconds_of(action: Callable[[], object]) -> float:
    """Return the processor's seconds that a call takes."""
    gc.disable()  # it would visit what all tests before have made
    try:
        before = time.process_time()
        action()
        return time.process_time() - before
    finally:
        gc.enable()


def takes_less_than(seconds: float, action: Callable[[], object]) -> bool:
    """Return whether one of three calls does: on a shared machine, some calls take several times as long as others."""
    return any(seconds_of(action) < seconds for _ in range(3))
