"""Files that grow for hours: `UnfinishedFile`, which keeps what is done when the command that writes it is interrupted.

OUT.part holds what is done, and OUT.part.json, a `Record`, says how far that is. The same command, given again, goes on
from the record. At the end, OUT.part becomes OUT.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from tapis.config import TapisError
from tapis.system.files import read_bounded, write_text
from tapis.system.terminal import in_one_line, say

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

SECONDS_BETWEEN_SAVES = 5
LARGEST_RECORD = 10_000  # bytes


@dataclass(frozen=True)
class Record:
    """How far an unfinished file is."""

    made_by: str
    """A digest of what makes it: a command with another one must not continue it"""
    n_lines: int = 0
    """Lines of the input that are done"""
    digest: str = ""
    """Of these lines"""
    n_bytes: int = 0
    """Of the output that was made from them"""

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read it from JSON. Raises ValueError if it is damaged, and OSError if it cannot be read."""
        try:
            record = cls(**json.loads(read_bounded(file, LARGEST_RECORD)))
        except (TypeError, RecursionError) as error:
            raise ValueError(error) from None
        if not all(type(number) is int and number >= 0 for number in (record.n_lines, record.n_bytes)):
            raise ValueError("its numbers are none")
        return record


class UnfinishedFile:
    """An unfinished file. One command at a time writes it, and closes it as a context manager."""

    def __init__(self, output: Path, made_by: str) -> None:
        """Open OUT.part of the output OUT, where an earlier command left it, or create it.

        Raises TapisError if it was made by others, is damaged, or is being written by another command, and OSError if
        it cannot be written.
        """
        self.output = output
        self.path = output.with_name(f"{output.name}.part")
        self.record_path = output.with_name(f"{output.name}.part.json")
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            self.file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "rb+")
        except OSError as error:
            raise OSError(f"{output} cannot be written: {error.strerror}") from None
        try:
            self._lock()
            self.record = self._earlier_record(made_by) or Record(made_by)
            self.n_lines_before = self.record.n_lines
            self.file.truncate(self.record.n_bytes)
            self.file.seek(self.record.n_bytes)
            self.save()  # before the file has anything that the record would not fit
        except BaseException:
            self.file.close()
            raise

    @property
    def how_to_start_again(self) -> str:
        return f"remove {self.path} and {self.record_path.name} to start again"

    def _lock(self) -> None:
        if fcntl:
            try:
                fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TapisError(f"{self.path} is being written by another command") from None

    def _earlier_record(self, made_by: str) -> Record | None:
        """Return the record of an earlier command. Raises TapisError if this command cannot continue there."""
        size = os.fstat(self.file.fileno()).st_size
        if not size:  # new, or an earlier command ended between its last two steps, `finish`
            return None
        advice = self.how_to_start_again
        if not self.record_path.exists():
            raise TapisError(f"{self.path} exists, without {self.record_path.name}: choose another name, or remove it")
        try:
            record = Record.read(self.record_path)
        except (OSError, ValueError) as error:
            raise TapisError(f"{self.record_path} is damaged ({in_one_line(error)}): {advice}") from None
        if record.made_by != made_by:
            raise TapisError(f"{self.path} was begun with another model or other flags: give those, or {advice}")
        if size < record.n_bytes:
            raise TapisError(f"{self.path} is shorter than {self.record_path.name} says: {advice}")
        return record

    def add(self, content: bytes, n_lines: int, digest: str) -> None:
        """Add what was made from further lines. digest is that of all lines so far. Now and then, all is saved.

        Raises OSError if the file cannot be written.
        """
        with self._named_errors():
            self.file.write(content)
        n_done, n_bytes = self.record.n_lines + n_lines, self.record.n_bytes + len(content)
        self.record = replace(self.record, n_lines=n_done, digest=digest, n_bytes=n_bytes)
        if time.monotonic() > self.saved_at + SECONDS_BETWEEN_SAVES:
            self.save()

    def save(self) -> None:
        """Wait until the file is on the disk, then write the record. Raises OSError if that fails."""
        with self._named_errors():
            self.file.flush()
            os.fsync(self.file.fileno())
        write_text(self.record_path, json.dumps(asdict(self.record)) + "\n")
        self.saved_at = time.monotonic()

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Name the file in an OSError."""
        try:
            yield
        except OSError as error:
            raise OSError(f"{self.path} cannot be written: {error.strerror}") from None

    def finish(self) -> None:
        """Give the file its name. Without this, it is left to go on from."""
        self.save()
        self.file.close()
        os.replace(self.path, self.output)  # noqa: PTH105
        self.record_path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.file.closed:
            return
        with contextlib.suppress(OSError):  # the error that ends the block matters more
            if self.record.n_lines > self.n_lines_before:
                self.save()
                say(f"{self.path} has the first {self.record.n_lines:,} lines: the same command continues there")
            elif not self.record.n_lines:
                self.path.unlink()
                self.record_path.unlink()
        with contextlib.suppress(OSError):
            self.file.close()
