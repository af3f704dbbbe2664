"""Files: atomic writes, content hashes, and the paths of cached results."""

import contextlib
import hashlib
import io
import math
import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def digest(*parts: object) -> str:
    """Return a hash of the parts, in order, as 32 hexadecimal digits. Parts other than bytes are hashed as `str`."""
    total = hashlib.sha256()
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
        total.update(str(len(raw)).encode() + b":" + raw)
    return total.hexdigest()[:32]


def digest_files(paths: Iterable[Path]) -> str:
    """Return a hash of the files' contents, in order, as 32 hexadecimal digits; 1 GB takes about a second."""
    total = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()[:32]


def cache_folder() -> Path:
    """Return the folder of cached results, within that of the library `datasets`, whether it exists or not."""
    settings = os.environ
    home = settings.get("HF_HOME") or f"{settings.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    return Path(settings.get("HF_DATASETS_CACHE") or f"{home}/datasets").expanduser() / "tapis"


def machine_secret() -> str:
    """Return a random text that the cache of this machine keeps. What is hashed with it was made on this machine."""
    file = cache_folder() / "secret"
    if not file.is_file():
        write_whole(file, lambda temporary: temporary.write_text(secrets.token_hex(32), encoding="utf-8"), 0o600)
    return file.read_text(encoding="utf-8")


def cache_file(kind: str, key: str, ending: str) -> Path:
    """Return the path in the cache for a result of this kind and key, whether it exists or not."""
    return cache_folder() / f"{kind}-{key}{ending}"


def read_bounded(file: Path, max_bytes: int) -> str:
    """Return the text of a UTF-8 file, which anybody may have made: a regular file of at most so many bytes.

    Raises OSError if it cannot be read, is something else than a regular file (a pipe, a device), or is larger. Raises
    UnicodeDecodeError if it is not UTF-8.
    """
    check_regular(file)
    with file.open("rb") as raw:
        content = raw.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(f"it has more than {max_bytes:,} bytes")
    return content.decode("utf-8").replace("\r\n", "\n")


def is_same_file(one: Path, other: Path) -> bool:
    """Return whether two paths are those of one file, through links and in any spelling, or would be if it existed."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return one.samefile(other)
    except OSError:  # one of them does not exist
        return False


def is_within(file: Path, folder: Path) -> bool:
    """Return whether a file is a folder or in it, through links and in any spelling."""
    return Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder))


def last_part(path: str) -> str:
    """Return the name of a file or folder, whatever folder it is in; of "." and "..", that of the folder."""
    return Path(path).name if not path or Path(path).name.strip(".") else Path(path).resolve().name


class ExpandsTooMuchError(OSError):
    """A stream is longer than expected: a decompression bomb."""

    def __init__(self, name: str, max_bytes: int) -> None:
        super().__init__(f"{name} expands to more than {max_bytes:,} bytes")
        self.name = name


class Bounded(io.RawIOBase):
    """What another stream has, read from start to end. Raises ExpandsTooMuchError after so many bytes."""

    def __init__(self, stream: Any, max_bytes: int, name: str = "it") -> None:
        """Take a binary stream with a method `read`, and its name in the error."""
        self.stream = stream
        self.max_bytes = max_bytes
        self.name = name
        self.n_left = max_bytes

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.stream.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        content = self.stream.read(len(buffer))
        self.n_left -= len(content)
        if self.n_left < 0:
            raise ExpandsTooMuchError(self.name, self.max_bytes)
        buffer[: len(content)] = content
        return len(content)


def check_regular(file: Path) -> None:
    """Raise OSError unless the file is a regular one, which reading comes to the end of, or a link to one."""
    if not stat.S_ISREG(file.stat().st_mode):
        raise OSError("it is no regular file")


def check_stored(file: Path) -> None:
    """Raise OSError unless the file is a regular one whose content takes about as much of the disk as it is long.

    A sparse file of a few bytes can be read as terabytes of zeros.
    """
    check_regular(file)
    status = file.stat()
    if status.st_size > 2**24 and getattr(status, "st_blocks", math.inf) * 512 < status.st_size / 16:
        with file.open("rb") as opened:  # some file systems count the blocks of a new file only seconds later
            has_hole = os.lseek(opened.fileno(), 0, os.SEEK_HOLE) < status.st_size
        if has_hole:
            raise OSError("it is a sparse file, of which most does not exist")


def write_whole(path: Path, write: Callable[[Path], object], mode: int | None = None) -> None:
    """Write a file atomically: after a failure or a kill, `path` holds the old file or the new one, never a part.

    `write` receives the path of a temporary file beside `path`, which then replaces it. `mode` has the permission bits
    of the file; by default, the umask decides. Raises OSError, with `path` in its message, if the file cannot be
    written, or is a pipe or a device, which a file must not replace.
    """
    temporary = None
    try:
        if path.exists() and not path.is_dir():
            check_regular(path)

        # Write to a temporary file in the same folder, and flush it to disk.
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=_temporary_prefix(path), dir=path.parent)
        os.close(handle)
        write(Path(temporary))
        flush_to_disk(Path(temporary))

        # Move it over the old file, readable by whom the umask allows (mkstemp's files are their owner's alone).
        umask = os.umask(0o077)  # which can be read only by setting it
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask if mode is None else mode)  # noqa: PTH101
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
        if isinstance(error, OSError):
            raise _not_written(path, error) from error
        raise


def _not_written(path: Path, error: OSError) -> OSError:
    """Return the error of a file that cannot be written."""
    return OSError(f"{path} cannot be written: {error.strerror or error}")


def check_writable(path: Path) -> None:
    """Raise OSError, as `write_whole` does, if no file can be written there. Makes its folder."""
    try:
        if path.exists():
            check_regular(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise _not_written(path, error) from error


def _temporary_prefix(path: Path) -> str:
    """Return how the names of temporary files for a path begin. The path's own may have all 255 bytes of a name."""
    return f".{path.name[:50]}."


def flush_to_disk(file: Path) -> None:
    """Wait until a file's content is on the disk."""
    with file.open("rb+") as opened:
        os.fsync(opened.fileno())


def whole_folder(path: Path, write: Callable[[Path], None]) -> None:
    """Create a folder atomically: `path` appears with all its files, or not at all.

    `write` fills a temporary folder beside `path`, which is then renamed. `path` must not exist, or be an empty folder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=_temporary_prefix(path), dir=path.parent) as temporary:
        # Not the temporary folder itself: TemporaryDirectory removes it, and only its owner may read it.
        filled = Path(temporary) / "filled"
        filled.mkdir()
        write(filled)
        for file in filled.iterdir():
            flush_to_disk(file)

        if path.is_dir():
            path.rmdir()
        os.replace(filled, path)  # noqa: PTH105


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically. Raises OSError as `write_whole` does."""
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
