"""Releases: checksums of a folder's files, release archives, and downloads from the Hugging Face hub.

`write_sums` and `check_sums` protect a folder that export.py made. `fetch` returns a local folder with the files of a
release archive or of a model on the hub. No fetched file is executed. Only the files of a release are taken from an
archive, and they are written into one flat folder, whatever their paths in the archive.
"""

import contextlib
import hashlib
import shutil
import sys
import tarfile
import zlib
from pathlib import Path
from typing import Literal

from config import TapisError
from system.files import cache_file, digest_files, whole_folder

SUMS = "SHA256SUMS"  # in sha256sum's format: `sha256sum -c SHA256SUMS` checks it
RELEASE_FILES = ("config.json", "tokenizer.json", "model.safetensors", "metrics.json", "README.md", SUMS)
HUB_TIMEOUT = 5.0  # seconds to wait for an answer of the hub
MAX_EXPANSION = 50  # skip files larger than the archive times this: a decompression bomb


class FetchError(TapisError):
    """An archive or a model on the hub cannot be fetched, or a file does not match its checksum."""


def sha256(file: Path) -> str:
    """Return the SHA-256 checksum of a file, as 64 hexadecimal digits."""
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
    if not needed and not sums_file.is_file():
        return

    # Compare each file with its line `CHECKSUM  NAME`. The names have no folders: no other folder is read.
    try:
        sums = [line.split(maxsplit=1) for line in sums_file.read_text(encoding="utf-8").splitlines()]
        changed = [name for checksum, name in sums if sha256(folder / Path(name).name) != checksum]
    except (OSError, ValueError) as error:
        raise FetchError(f"{sums_file} cannot be checked ({error}): copy the folder again") from None

    if missing := set(needed) - {name for _, name in sums}:
        raise FetchError(f"{sums_file} does not record {min(missing)}: copy the folder again")
    if changed:
        raise FetchError(f"{folder / changed[0]} is not the file that {SUMS} records: copy it again")


def is_hub_id(name: str) -> bool:
    """Whether a name has the form OWNER/NAME of the hub."""
    owner, slash, rest = name.partition("/")
    return bool(owner.strip(".~") and slash and rest) and "/" not in rest and "\\" not in name


def hub_answers(name: str, kind: Literal["dataset", "model"]) -> bool:
    """Whether the hub can be reached. Ask before a download: without network, the client retries for half a minute."""
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

    Returns None if the name is neither a file nor a hub id. Raises FetchError if the files cannot be had.
    """
    path = Path(name)
    if path.is_file():
        return unpack(path)
    # If a folder OWNER exists, OWNER/NAME is a mistyped path rather than a hub id.
    if is_hub_id(name) and not path.parent.is_dir():
        return download(name)
    return None


def unpack(archive: Path) -> Path:
    """Unpack a release archive (.tar.gz) into the cache, once, and return its folder.

    Raises FetchError if the file is damaged or no release archive.
    """
    folder = cache_file("release", digest_files([archive]), "")
    if folder.is_dir():
        with contextlib.suppress(FetchError):
            check_sums(folder)
            if (folder / "config.json").is_file():
                return folder
        shutil.rmtree(folder)  # damaged since
    max_bytes = MAX_EXPANSION * archive.stat().st_size

    def write_files(into: Path) -> None:
        with tarfile.open(archive, "r:gz") as members:
            for member in members:
                name = Path(member.name).name
                if not member.isfile() or name not in RELEASE_FILES or member.size > max_bytes:
                    continue
                content = members.extractfile(member)
                assert content  # always, for a regular file
                with (into / name).open("wb") as file:
                    shutil.copyfileobj(content, file)
        if not (into / "config.json").is_file():
            raise FetchError(f"{archive} is not a release archive: there is no config.json in it")

    try:
        whole_folder(folder, write_files)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        if folder.is_dir():  # another process was sooner
            return folder
        raise FetchError(f"{archive} cannot be unpacked ({error}): copy it again") from None
    return folder


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
        reason = "the hub cannot be reached, and there is no earlier download"
        if is_online:
            reason = " ".join(str(error).split())[:200]
        raise FetchError(f"no run {name!r}, neither here nor on the hub ({reason})") from None
    return Path(folder)
