"""Releases: checksums of a folder's files, release archives, and downloads from the Hugging Face hub.

`write_sums` and `check_sums` protect a folder that export.py made. `fetch` returns a local folder with the files of a
release archive or of a model on the hub. No fetched file is executed. Only the files of a release are taken from an
archive, and they are written into one flat folder, whatever their paths in the archive.
"""

import contextlib
import gzip
import hashlib
import math
import re
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any, Literal

from tapis.config import TapisError
from tapis.system.files import (
    Bounded,
    cache_file,
    check_regular,
    check_stored,
    digest_files,
    read_bounded,
    whole_folder,
)
from tapis.system.terminal import in_one_line

SUMS = "SHA256SUMS"  # in sha256sum's format: `sha256sum -c SHA256SUMS` checks it
MAX_SUMS_BYTES = 100_000
RELEASE_FILES = (
    *("config.json", "tokenizer.json", "model.safetensors", "learned.json", "metrics.json", "README.md"),
    SUMS,
)
HUB_ID = re.compile(r"(?!\.+/)[\w.-]+/[\w.-]+", re.ASCII)  # OWNER/NAME; dots alone are a folder
# What the name of a file ends in, of pairs or of a release, and that of nothing on the hub
FILE_ENDINGS = (
    *(".csv", ".tsv", ".txt", ".xlsx", ".ods", ".jsonl", ".parquet", ".tmx", ".zip"),
    *(".gz", ".xz", ".zst", ".tgz"),
)
HUB_TIMEOUT = 5.0  # seconds to wait for an answer of the hub
MAX_EXPANSION = 20  # an archive of over 1 MB that decompresses to more than this times its size is a bomb
MAX_HEADER_BYTES = 10_000  # of a member's name and attributes
MAX_MEMBERS = 20
GZIP = b"\x1f\x8b"  # how its files begin


class FetchError(TapisError):
    """An archive or a model on the hub cannot be fetched, or a file does not match its checksum."""


def sha256(file: Path) -> str:
    """Return the SHA-256 checksum of a file, as 64 hexadecimal digits. Raises OSError as `check_stored` does."""
    check_stored(file)
    with file.open("rb") as raw:
        return hashlib.file_digest(raw, "sha256").hexdigest()


def write_sums(folder: Path) -> None:
    """Write the checksums of all files in a folder to its SHA256SUMS."""
    lines = [f"{sha256(file)}  {file.name}\n" for file in sorted(folder.iterdir())]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def check_sums(folder: Path, *needed: str) -> None:
    """Raise FetchError if a file of the folder differs from its checksum, or if a `needed` file has none.

    If the folder has no SHA256SUMS and no file is `needed`, check nothing. Checking 1 GB takes a second.
    """
    sums_file = folder / SUMS
    if not needed and not sums_file.exists():
        return

    # Compare each file with its line `CHECKSUM  NAME`. The names have no folders: no other folder is read.
    try:
        lines = read_bounded(sums_file, MAX_SUMS_BYTES).splitlines()
        sums = {Path(name).name: checksum for checksum, name in (line.split(maxsplit=1) for line in lines)}
        if len(sums) < len(lines):
            raise ValueError("it names a file twice")
        changed = [name for name, checksum in sums.items() if sha256(folder / name) != checksum]
    except (OSError, ValueError) as error:
        raise FetchError(f"{sums_file} cannot be checked ({in_one_line(error)}): copy the folder again") from None

    if missing := set(needed) - sums.keys():
        raise FetchError(f"{sums_file} does not record {min(missing)}: copy the folder again")
    if changed:
        raise FetchError(f"{folder / changed[0]} is not the file that {SUMS} records: copy it again")


def is_hub_id(name: str) -> bool:
    """Return whether a name has the form OWNER/NAME of the hub, and not that of a file in a folder."""
    return HUB_ID.fullmatch(name) is not None and not name.lower().endswith(FILE_ENDINGS)


def is_on_hub(name: str) -> bool:
    """Return whether a name is a hub id. Where a folder OWNER exists, OWNER/NAME is a mistyped path instead."""
    return is_hub_id(name) and not Path(name).parent.is_dir()


def hub_answers(name: str, kind: Literal["dataset", "model"]) -> bool:
    """Return whether the hub can be reached. Ask first: without network, a download retries for half a minute."""
    import huggingface_hub  # noqa: PLC0415

    try:
        huggingface_hub.HfApi().repo_info(name, repo_type=kind, timeout=HUB_TIMEOUT)
    except huggingface_hub.errors.HfHubHTTPError:
        return True  # the hub answered, even if it has no such repository
    except Exception:  # the type depends on the network library of the installed client
        return False
    return True


def fetch(name: str) -> Path | None:
    """Return a local folder with the files of a release archive or of a model on the hub.

    Returns None if the name is neither a file nor a hub id. Raises FetchError if the files cannot be had, and OSError
    if the archive cannot be read.
    """
    path = Path(name)
    if path.is_file():
        return unpack(path)
    if is_on_hub(name):
        return download(name)
    return None


def unpack(archive: Path) -> Path:
    """Unpack a release archive (.tar.gz) into the cache, once, and return its folder.

    Raises FetchError if the file is damaged or no release archive, or if the cache cannot be written, and OSError if
    the file cannot be read.
    """
    with archive.open("rb") as file:
        if file.read(2) != GZIP:  # before all of it is read
            raise FetchError(f"{archive} is not a release archive (.tar.gz): copy it again")
    folder = cache_file("release", digest_files([archive]), "")
    if folder.is_dir():
        with contextlib.suppress(FetchError):
            check_sums(folder)
            if (folder / "config.json").is_file():
                return folder
        shutil.rmtree(folder)  # damaged since
    try:
        whole_folder(folder, lambda into: _write_members(archive, into))
    except FetchError:
        raise
    except Exception as error:  # tarfile and zlib raise many types for what is no archive
        if folder.is_dir():  # another process was sooner
            return folder
        if isinstance(error, OSError) and error.errno:  # of the system, such as a full disk; those of formats have none
            raise FetchError(f"{archive} cannot be unpacked into {folder.parent}: {error.strerror}") from None
        raise FetchError(f"{archive} cannot be unpacked ({in_one_line(error)}): copy it again") from None
    return folder


class _Member(tarfile.TarInfo):
    """A header of an archive. Raises OSError for a kind or a size that a release does not have."""

    KINDS = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME)

    @classmethod
    def frombuf(cls, *args: Any) -> "_Member":
        member = super().frombuf(*args)
        if member.type not in cls.KINDS:
            raise OSError("it has links, devices or other members than files and folders")
        if not 0 <= member.size <= (MAX_HEADER_BYTES if not member.isreg() else math.inf):
            raise OSError("it has a header that is too large, or a negative size")
        return member


def _write_members(archive: Path, into: Path) -> None:
    """Unpack a release archive into a folder. Raises FetchError or OSError at the first member that no release has.

    At most MAX_EXPANSION times the archive's size is decompressed.
    """
    check_regular(archive)
    max_bytes = MAX_EXPANSION * max(2**20, archive.stat().st_size)
    with gzip.open(archive) as unzipped:
        stream: Any = Bounded(unzipped, max_bytes)
        with tarfile.open(None, "r|", stream, tarinfo=_Member) as members:
            for i, member in enumerate(members):
                if member.isdir() and i < MAX_MEMBERS:
                    continue
                name = Path(member.name).name
                is_ours = member.isreg() and not member.issparse() and name in RELEASE_FILES
                content = members.extractfile(member) if is_ours and not (into / name).exists() else None
                if not content or member.size < 0:  # which a header before it may have changed
                    raise FetchError(
                        f"{archive} is not a release archive: {in_one_line(member.name)} is none of its files"
                    )
                with (into / name).open("wb") as file:
                    shutil.copyfileobj(content, file)
        while stream.read(2**16):  # to the end, where gzip compares its checksum
            pass
    if not (into / "config.json").is_file():
        raise FetchError(f"{archive} is not a release archive: there is no config.json in it")


def download(name: str) -> Path:
    """Download a model from the hub and return its folder; if the hub cannot be reached, an earlier download.

    Raises FetchError if there is neither.
    """
    import huggingface_hub  # noqa: PLC0415
    from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415

    if not sys.stderr.isatty():
        disable_progress_bars()
    is_online = hub_answers(name, "model")
    try:
        folder = huggingface_hub.snapshot_download(
            name, allow_patterns=list(RELEASE_FILES), local_files_only=not is_online
        )
    except Exception as error:  # the client raises many types
        reason = in_one_line(error) if is_online else "the hub cannot be reached, and there is no earlier download"
        raise FetchError(f"there is no run {name!r} here, and it cannot be downloaded ({reason})") from None
    return Path(folder)
