"""Folders that travel: checksums of their files, archives of them, and the hub.

`write_sums` and `check_sums` are for a folder that was made to be given away (export.py); `fetched` gives the folder,
on this machine, of an archive or of a model on the hub. Nothing that is fetched is run, and of an archive nothing is
unpacked but the files that a release has, each beside the others.
"""

import hashlib
import shutil
import sys
import tarfile
import zlib
from pathlib import Path
from typing import Literal

from config import TapisError
from system.files import cache_file, digest_files, whole_folder

SUMS = "SHA256SUMS"  # in the form of sha256sum, whose option -c checks it
RELEASED = ("config.json", "tokenizer.json", "model.safetensors", "metrics.json", "README.md", SUMS)
HUB_SECONDS = 5.0  # how long the hub may take to answer that it is there
SWELLS = 50  # a file of an archive is at most so many times as large as the archive, else it is a bomb


class FetchError(TapisError):
    """What was asked for cannot be fetched, or is not what was given away."""


def sha256(file: Path) -> str:
    """The checksum of a file, in hexadecimal digits."""
    with file.open("rb") as raw:
        return hashlib.file_digest(raw, "sha256").hexdigest()


def write_sums(folder: Path) -> None:
    """Records the checksums of all files of a folder."""
    lines = [f"{sha256(file)}  {file.name}\n" for file in sorted(folder.iterdir())]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def check_sums(folder: Path, *needed: str) -> None:
    """Raises FetchError where a file is not the one that was recorded, or none was of a file that needs it.

    Where no sums are recorded and none are needed, nothing is checked. 1 GB takes a second.
    """
    file = folder / SUMS
    if not needed and not file.is_file():
        return
    try:
        sums = [line.split(maxsplit=1) for line in file.read_text(encoding="utf-8").splitlines()]
        wrong = [name for total, name in sums if sha256(folder / Path(name).name) != total]
    except (OSError, ValueError) as error:
        raise FetchError(f"{file} cannot be checked ({error}): copy the folder again") from None
    if missing := set(needed) - {name for _, name in sums}:
        raise FetchError(f"{file} does not record {min(missing)}: copy the folder again")
    if wrong:
        raise FetchError(f"{folder / wrong[0]} is not the file that {SUMS} records: copy it again")


def is_hub_id(name: str) -> bool:
    """Whether a name reads OWNER/NAME."""
    owner, slash, rest = name.partition("/")
    return bool(owner.strip(".~") and slash and rest) and "/" not in rest and "\\" not in name


def hub_answers(name: str, kind: Literal["dataset", "model"]) -> bool:
    """Whether the hub can be reached. Asked first, since its client retries a dead line for half a minute."""
    import huggingface_hub  # noqa: PLC0415

    try:
        huggingface_hub.HfApi().repo_info(name, repo_type=kind, timeout=HUB_SECONDS)
    except huggingface_hub.errors.HfHubHTTPError:
        return True  # it answered, if only to say no
    except Exception:  # whatever the network library of the installed version raises
        return False
    return True


def fetched(name: str) -> Path | None:
    """The folder of what a name means elsewhere, an archive or a model on the hub; None where it is neither."""
    path = Path(name)
    if path.is_file():
        return unpacked(path)
    # Where there is a folder OWNER, OWNER/NAME is a path that was mistyped.
    return downloaded(name) if is_hub_id(name) and not path.parent.is_dir() else None


def unpacked(archive: Path) -> Path:
    """The files of a release's archive (.tar.gz), in a folder of the cache. Raises FetchError where it is none."""
    folder = cache_file("release", digest_files([archive]), "")
    if folder.is_dir():
        return folder
    most = SWELLS * archive.stat().st_size

    def write(into: Path) -> None:
        with tarfile.open(archive, "r:gz") as members:
            for member in members:
                name = Path(member.name).name
                if not member.isfile() or name not in RELEASED or member.size > most:
                    continue
                content = members.extractfile(member)
                assert content  # of a file there is one
                with (into / name).open("wb") as file:
                    shutil.copyfileobj(content, file)
        if not (into / "config.json").is_file():
            raise FetchError(f"{archive} is no archive of a release: there is no config.json in it")

    try:
        whole_folder(folder, write)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise FetchError(f"{archive} cannot be unpacked ({error}): copy it again") from None
    return folder


def downloaded(name: str) -> Path:
    """The folder of a model on the hub; what was fetched once is used again where the hub cannot be reached."""
    import huggingface_hub  # noqa: PLC0415
    from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415

    if not sys.stderr.isatty():
        disable_progress_bars()
    there = hub_answers(name, "model")
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=list(RELEASED), local_files_only=not there))
    except Exception as error:  # the hub's client raises a dozen kinds
        reason = " ".join(str(error).split())[:200] if there else "the hub cannot be reached, and no copy is here"
        raise FetchError(f"no run {name!r}, neither here nor on the hub ({reason})") from None
