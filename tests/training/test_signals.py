"""Signals that end a run between two steps."""

import io
import os
import signal
import sys
from unittest.mock import Mock

import pytest

from training.signals import interruption


def test_a_signal_may_come_while_a_line_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error is buffered, and Python refuses to write to it from a signal that came while it is written to."""

    class Busy(io.StringIO):
        inside = False

        def write(self, text: str) -> int:
            assert not self.inside, "reentrant"
            self.inside = True
            signal.raise_signal(signal.SIGTERM)
            self.inside = False
            return super().write(text)

    monkeypatch.setattr(sys, "stderr", Busy())
    with interruption() as received:
        sys.stderr.write("a line")
    assert received == [signal.SIGTERM]


def test_a_signal_is_received_where_nobody_reads_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C also ends the `tee` that reads them."""
    monkeypatch.setattr(os, "write", Mock(side_effect=BrokenPipeError))
    with interruption() as received:
        signal.raise_signal(signal.SIGINT)
    assert received == [signal.SIGINT]


def test_a_second_signal_ends_at_once_and_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interruption() as received:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    assert received == [signal.SIGINT] and signal.getsignal(signal.SIGINT) is before
