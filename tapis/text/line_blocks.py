"""Text of any length in blocks of lines, to translate one after another; and equal shards of a file.

In contrast to tapis/text/lines.py, only a line feed ends a line, so that N lines in are N lines out, and a line that
cannot be read may be left blank.
"""

import hashlib
import re
from collections import deque
from pathlib import Path
from typing import BinaryIO

from tapis.config import ConfigError, TapisError
from tapis.system.terminal import in_one_line
from tapis.text.lines import BUFFER_BYTES, MAX_LINE_BYTES, SAMPLE_BYTES, not_utf8, open_bytes, utf16_name

LINES_AT_ONCE = 1000  # enough to sort by length, few enough to see results soon


class LineReader:
    """The lines of a stream, in blocks."""

    def __init__(self, stream: BinaryIO, name: str, *, keep_going: bool = False) -> None:
        """Take a buffered stream, and its name in errors. With keep_going, a line that cannot be read is blank."""
        self.stream = stream
        self.name = name
        self.keep_going = keep_going
        self.n_taken = 0
        self.digest = hashlib.sha256()  # of the lines that were taken
        self.unreadable: list[int] = []
        """The numbers of the lines that cannot be read, from 1"""
        self._beginning = b""
        self._waiting: deque[bytes] = deque()
        self._unfinished = b""

    def take(self, most: int = LINES_AT_ONCE, *, as_they_come: bool = False) -> list[bytes]:
        """Return the next lines with their line feeds: `most` of them, fewer at the end of the stream, then none.

        With as_they_come, return as soon as there is one. A line that is too long is cut to MAX_LINE_BYTES + 1 bytes.
        """
        while len(self._waiting) < most and not (as_they_come and self._waiting):
            data = self.stream.read1(BUFFER_BYTES)  # type: ignore[attr-defined]  # each buffered stream has it
            if not data:
                if self._unfinished:
                    self._waiting.append(self._unfinished)
                    self._unfinished = b""
                break
            if len(self._beginning) < SAMPLE_BYTES:
                self._beginning += data[:SAMPLE_BYTES]
            first, *others = data.split(b"\n")
            self._unfinished += first[: MAX_LINE_BYTES + 1 - len(self._unfinished)]
            for other in others:
                self._waiting.append(self._unfinished + b"\n")
                self._unfinished = other
        taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        self.digest.update(b"".join(taken))
        self.n_taken += len(taken)
        return taken

    def texts(self, most: int = LINES_AT_ONCE, *, as_they_come: bool = False) -> list[str]:
        """Return the next lines without their line feeds, as many as `take` does.

        Raises TapisError for UTF-16, and, unless it may go on, for a line that is too long or not UTF-8.
        """
        n_before = self.n_taken
        raw_lines = self.take(most, as_they_come=as_they_come)
        if utf16_name(self._beginning):  # of ASCII alone, which UTF-8 has no error in
            raise TapisError(f"{self.name} is {not_utf8(self._beginning)}")
        texts = []
        for number, raw in enumerate(raw_lines, n_before + 1):
            text, trouble = _decoded(raw)
            if trouble and not self.keep_going:
                raise TapisError(
                    f"{self.name} line {number:,} is {trouble}\n"
                    "to translate all other lines, and leave such lines blank, add --keep-going"
                )
            texts.append(text.removeprefix("\ufeff") if number == 1 else text)  # a byte order mark
            if trouble:
                self.unreadable.append(number)
        return texts


def _decoded(raw: bytes) -> tuple[str, str]:
    """Return the text of a line, and what is wrong with it."""
    if len(raw) > MAX_LINE_BYTES:
        return "", f"longer than {MAX_LINE_BYTES // 1_000_000} MB (is there one sentence per line?)"
    try:
        return raw.removesuffix(b"\n").decode("utf-8"), ""
    except UnicodeDecodeError:
        return "", not_utf8(raw)


def count_lines(file: Path) -> int:
    """Return how many lines a file has. Raises DataError if it cannot be read."""
    n_feeds, last = 0, b"\n"
    with open_bytes(file) as stream:
        while data := stream.read(16 * BUFFER_BYTES):
            n_feeds += data.count(b"\n")
            last = data[-1:]
    return n_feeds + (last != b"\n")


def check_shard(shard: str) -> None:
    """Raise ConfigError unless this is N/M, with N from 1 to M, or nothing."""
    numbers = re.fullmatch(r"([1-9]\d{0,8})/([1-9]\d{0,8})", shard)
    if shard and not (numbers and int(numbers[1]) <= int(numbers[2])):
        raise ConfigError(f"--shard {in_one_line(shard)}: give N/M, such as 2/8 for the second of eight equal shards")


def lines_of_shard(shard: str, n_lines: int) -> range:
    """Return the lines, counted from 0, of shard N of M nearly equal ones, from N/M; all lines, from nothing."""
    number, count = map(int, (shard or "1/1").split("/"))
    return range(n_lines * (number - 1) // count, n_lines * number // count)
