"""Files: written whole or not at all, hashed by content, and cached under that hash."""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path


def digest(*parts: object) -> str:
    """A key of all that it is given, in words or bytes."""
    total = hashlib.sha256()
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
        total.update(str(len(raw)).encode() + b":" + raw)
    return total.hexdigest()[:32]


def digest_files(paths: Iterable[Path]) -> str:
    """A key of the contents of files, whatever their names and times: 1 GB takes about a second."""
    total = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()[:32]


def cache_file(kind: str, key: str, ending: str) -> Path:
    """Where the thing of that key is, or will be."""
    import datasets  # noqa: PLC0415

    return Path(datasets.config.HF_DATASETS_CACHE) / "tapis" / f"{kind}-{key}{ending}"


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a whole file or none: under a temporary name beside it, to the disk, then over the old one.

    Raises an OSError that names the file where it cannot be written.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        write(Path(temporary))
        with open(temporary, "rb+") as file:  # noqa: PTH123
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # noqa: PTH101 - mkstemp's files are their owner's alone
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
        if isinstance(error, OSError):
            raise OSError(f"{path} cannot be written: {error.strerror or error}") from error
        raise


def whole_folder(path: Path, write: Callable[[Path], None]) -> None:
    """Makes a whole folder of files or none, where there is none or an empty one: under a temporary name first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as temporary:
        made = Path(temporary) / "made"
        made.mkdir()
        write(made)
        if path.is_dir():
            path.rmdir()
        os.replace(made, path)  # noqa: PTH105


def write_text(path: Path, text: str) -> None:
    """Writes a UTF-8 text file whole or not at all. Raises OSError as `write_whole` does."""
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
