"""Read files, plain or compressed, as bytes or as lines of text, and define what all readers share.

Files are read as streams. No line may be longer than MAX_LINE_BYTES, and no compressed file may expand to more than
MAX_EXPANSION times its size, so that a small file can fill neither the memory nor the disk.
"""

import codecs
import contextlib
import gzip
import io
import lzma
import math
import re
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO

from tapis.config import TapisError
from tapis.system.files import Bounded, ExpandsTooMuchError
from tapis.system.terminal import in_one_line

Pair = tuple[str, str]  # source side, target side

COMPRESSED_ENDINGS = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}
MAX_LINE_BYTES = 1_000_000
MAX_EXPANSION = 100  # times the size of a compressed file, which may always have 10 MB; texts expand three- to tenfold
ALWAYS_ALLOWED_BYTES = 10_000_000
LINE_BYTES = 20  # of a line or a row that has fewer, in what a compressed file may expand to
BUFFER_BYTES = 2**16
SAMPLE_BYTES, SHORTEST_UTF16 = 1000, 8  # bytes by which UTF-16 is told, at most and at least

ESCAPED = "surrogateescape"  # errors of `lines` that leave a line which is not UTF-8 to its reader
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")


class DataError(TapisError):
    """The data cannot be found, read or used. The message says why and what to do about it."""


def without_compressed_ending(name: str) -> str:
    """Return a file name without .gz, .xz or .zst."""
    path = Path(name)
    return path.stem if path.suffix in COMPRESSED_ENDINGS else name


def file_type(path: Path) -> str:
    """Return the ending of a file name in lower case, without .gz, .xz or .zst."""
    return Path(without_compressed_ending(path.name)).suffix.lower()


def most_bytes(file: Path) -> int:
    """Return how many bytes a compressed file may expand to."""
    return max(ALWAYS_ALLOWED_BYTES, MAX_EXPANSION * file.stat().st_size)


def expands_too_much(name: str, file: Path) -> DataError:
    """Return the error about a part `name` of a compressed file that is larger than `most_bytes`."""
    return DataError(
        f"{name} expands to more than {most_bytes(file) / 1e6:,.0f} MB, far more than compressed text does: "
        "decompress it first if you trust it"
    )


@contextlib.contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a file to read, and decompress it as its ending says.

    Raises DataError where the file cannot be opened, and from each reading where it cannot be read or decompressed, or
    expands to more than `most_bytes`.
    """
    with _errors_of_reading(path):
        file = _open(path)
    with io.BufferedReader(_Readable(file, path), BUFFER_BYTES) as readable:
        yield readable


class _Readable(io.RawIOBase):
    """An open file that raises DataError where it cannot be read.

    A handler around the `with` block of `open_bytes` would also get the errors of writing in that block.
    """

    def __init__(self, file: io.BufferedReader, path: Path) -> None:
        self.file = file
        self.path = path

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        with _errors_of_reading(self.path):
            n_bytes = self.file.readinto1(buffer)
        return n_bytes


@contextlib.contextmanager
def _errors_of_reading(path: Path) -> Iterator[None]:
    """Raise the errors of the block, which only reads a file, as DataError."""
    try:
        yield
    except ExpandsTooMuchError as error:
        raise expands_too_much(error.name, path) from None
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        raise _incomplete(path, error) from None
    except OSError as error:
        if error.strerror is None:  # from the decompressor, not from the system
            raise _incomplete(path, error) from None
        raise DataError(f"{path} cannot be read: {error.strerror}") from None


def _open(path: Path) -> io.BufferedReader:
    """Open a file. The buffer makes reading lines of limited length fast."""
    if path.suffix not in COMPRESSED_ENDINGS:
        return path.open("rb")
    return io.BufferedReader(Bounded(_decompressed(path), most_bytes(path), str(path)), BUFFER_BYTES)


def _decompressed(path: Path) -> Any:
    """Open a compressed file."""
    if path.suffix == ".gz":
        return gzip.open(path)
    if path.suffix == ".xz":
        return _XzStreams(path)
    # Arrow's decoder reads all frames, reports a missing end, and refuses windows of more than 128 MB.
    return _arrow(path.name).CompressedInputStream(path.open("rb"), "zstd")


def _arrow(name: str) -> Any:
    """Return the library Arrow, to read or write a .zst file. Raises DataError if it is not installed."""
    try:
        import pyarrow  # noqa: PLC0415 - takes 0.1 s, which other files do not need
    except ImportError:
        raise DataError(f"{name}: for .zst files, install pyarrow (pip install pyarrow), or use .gz or .xz") from None
    return pyarrow


def check_ending(path: Path) -> None:
    """Raise DataError if a file of this name could not be compressed as its ending says."""
    if path.suffix == ".zst":
        _arrow(path.name)


def compressed(content: bytes, path: Path) -> bytes:
    """Return content as a file of this name has it, by its ending. What is compressed piece by piece may be joined."""
    if path.suffix == ".gz":
        return gzip.compress(content, mtime=0)
    if path.suffix == ".xz":
        return lzma.compress(content)
    if path.suffix == ".zst":
        written: bytes = _arrow(path.name).compress(content, codec="zstd", asbytes=True)
        return written
    return content


class _XzStreams:
    """The streams of an .xz file, one after another, with padding of zeros between them. lzma.open stops at padding."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("rb")
        self.decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ)

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, or none at the end. Raises EOFError or LZMAError for what is no .xz file."""
        while True:
            data = b""
            if self.decompressor.eof:
                data = self.decompressor.unused_data
                while not data.strip(b"\0"):
                    data = self.file.read(BUFFER_BYTES)
                    if not data:
                        return b""
                data = data.lstrip(b"\0")
                self.decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ)
            elif self.decompressor.needs_input:
                data = self.file.read(BUFFER_BYTES)
                if not data:
                    raise EOFError("it ends before its end")
            if found := self.decompressor.decompress(data, size):
                return found

    def close(self) -> None:
        self.file.close()


def _incomplete(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} is not a complete {COMPRESSED_ENDINGS[path.suffix]} file: {in_one_line(error)}")


def lines(path: Path, encoding: str = "utf-8", errors: str = "strict") -> Iterator[str]:
    """Yield the lines of a file without their line endings.

    The file may be compressed (.gz, .xz or .zst), start with a byte order mark, and end its lines with LF or CRLF, or,
    without any LF, with CR alone. Raises DataError where the file cannot be read or decompressed, or is not UTF-8, or
    where a line is too long. With another encoding than UTF-8, U+FFFD stands for what is not in it.

    errors is that of `bytes.decode`. With ESCAPED, a lone surrogate stands for each byte that is not UTF-8, and only
    UTF-16 is an error: see `not_utf8_at`.
    """
    with _errors_of_reading(path), _open(path) as file:
        recoded = file if encoding == "utf-8" else io.BufferedReader(_Recoded(file, encoding), BUFFER_BYTES)
        max_bytes = most_bytes(path) if path.suffix in COMPRESSED_ENDINGS else math.inf
        yield from decoded_lines(recoded, str(path), max_bytes, errors)


class _Recoded(io.RawIOBase):
    """A file of another encoding, as UTF-8. U+FFFD stands for bytes that are not in the encoding."""

    def __init__(self, file: BinaryIO, encoding: str) -> None:
        self.file = file
        self.decoder = codecs.getincrementaldecoder(encoding)("replace")
        self.unread = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        is_end = False
        while not self.unread and not is_end:
            raw = self.file.read(BUFFER_BYTES)
            is_end = not raw
            self.unread = self.decoder.decode(raw, is_end).encode("utf-8")
        content, self.unread = self.unread[: len(buffer)], self.unread[len(buffer) :]
        buffer[: len(content)] = content
        return len(content)


def decoded_lines(file: BinaryIO, name: str, max_bytes: float, errors: str = "strict") -> Iterator[str]:
    """Yield the lines of an open UTF-8 file, as `lines` does. `name` is the file's name in errors.

    Raises ExpandsTooMuchError after max_bytes, where an empty line counts as LINE_BYTES: it takes time, not space.
    """
    bytes_before_line, n_counted, beginning = 0, 0, b""
    for line_number, raw_line in enumerate(_raw_lines(file), 1):
        if len(raw_line) > MAX_LINE_BYTES:
            limit = f"{MAX_LINE_BYTES // 1_000_000} MB"
            raise DataError(f"{name} line {line_number:,}: longer than {limit} (is there one sentence per line?)")
        if len(beginning) < SAMPLE_BYTES:
            beginning += raw_line
        try:
            line = raw_line.decode("utf-8")
        except UnicodeDecodeError as error:
            if errors == "strict" or utf16_name(beginning):
                location = f"line {line_number:,}, byte {bytes_before_line + error.start:,}"
                raise DataError(f"{name} {location}: {not_utf8(beginning)}") from None
            line = raw_line.decode("utf-8", errors)
        bytes_before_line += len(raw_line)
        n_counted += max(len(raw_line), LINE_BYTES)
        if n_counted > max_bytes:
            raise ExpandsTooMuchError(name, int(max_bytes))
        if line_number == 1:
            line = line.lstrip("\ufeff")  # byte order marks
        yield line.removesuffix("\n").removesuffix("\r")


def not_utf8_at(line: str) -> int:
    """Return the index of the first character of a line of `lines` that stands for a byte that is not UTF-8, or -1."""
    found = None if line.isascii() else _ESCAPED_BYTE.search(line)
    return found.start() if found else -1


def not_utf8(raw: bytes) -> str:
    """Return what bytes are that are not UTF-8, by their beginning, and how to convert them, for use in an error."""
    utf16 = utf16_name(raw)
    if utf16:
        return f"not UTF-8, but UTF-16 (save it as UTF-8, or convert it with iconv -f {utf16} -t UTF-8)"
    return (
        "not UTF-8, but in another encoding, such as Windows-1252 "
        "(save it as UTF-8, or convert it, e.g. with iconv -f WINDOWS-1252 -t UTF-8)"
    )


def utf16_name(raw: bytes) -> str:
    """Return UTF-16, UTF-16LE or UTF-16BE if bytes seem to be that, by their beginning; otherwise nothing.

    They have a byte order mark, or many zero bytes, all in odd or all in even places, as Latin letters have there.
    """
    if raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return "UTF-16"
    beginning = raw[:SAMPLE_BYTES]
    n_even, n_odd = beginning[::2].count(0), beginning[1::2].count(0)
    if len(beginning) < SHORTEST_UTF16 or max(n_even, n_odd) < len(beginning) / 3 or min(n_even, n_odd):
        return ""
    return "UTF-16LE" if n_odd else "UTF-16BE"


def _raw_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of an open file with their line endings. A line that is too long is cut after its limit.

    CR alone ends lines in a file that begins with a line longer than the limit, or has no LF. Otherwise, it is a space
    within a line.
    """
    first = file.readline(MAX_LINE_BYTES + 1)
    if first.endswith(b"\n") or b"\r" not in first:
        if first:
            yield first
            yield from iter(lambda: file.readline(MAX_LINE_BYTES + 1), b"")
        return

    unread = first
    while unread:
        *ended, unread = unread.split(b"\r")
        for line in ended:
            yield line + b"\r"
        more = file.read(BUFFER_BYTES)
        if not more or len(unread) > MAX_LINE_BYTES:
            if unread:
                yield unread
            return
        unread += more


def line_pairs(
    source_lines: Iterator[str], target_lines: Iterator[str], source_name: str, target_name: str
) -> Iterator[Pair]:
    """Pair the lines of two files. Raises DataError after the last pair where one file has more lines."""
    pairs = zip_longest(source_lines, target_lines)
    for n_pairs, (source_line, target_line) in enumerate(pairs):
        if source_line is None or target_line is None:
            # One file has ended. Count the remaining lines of the other for the message.
            n_longer = n_pairs + 1 + sum(1 for _ in pairs)
            n_source = n_pairs if source_line is None else n_longer
            n_target = n_pairs if target_line is None else n_longer
            raise DataError(
                f"{source_name} and {target_name} must have the same number of lines, "
                f"but have {n_source:,} and {n_target:,}"
            )
        yield source_line, target_line
