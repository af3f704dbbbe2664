"""Read sentence pairs from a zip of two parallel text files, the form in which OPUS offers its corpora.

`en-fr.txt.zip` holds `NAME.en-fr.en` and `NAME.en-fr.fr`, beside a README and a LICENSE. The two files are read from
the zip as streams. Nothing is unpacked to disk.
"""

import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from pairs.unreadable import RawRow, text_pairs
from tapis.system.files import Bounded, ExpandsTooMuchError
from tapis.system.terminal import in_one_line, listed
from tapis.text.lines import ESCAPED, DataError, decoded_lines, expands_too_much, line_pairs, most_bytes

# Endings of files beside the texts, which are not languages.
OTHER_ENDINGS = {".ids", ".scores", ".txt", ".md", ".html", ".xml", ".tmx", ".tsv", ".csv", ".json", ".jsonl"}


def read_moses_zip(path: Path, source: str, target: str) -> Iterator[RawRow]:
    """Yield the pairs of the two files that end in the two languages and are called the same otherwise.

    Raises DataError where the zip is damaged or encrypted, or has no such files, or several.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            yield from _pairs(path, archive, source, target)
    except (zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, struct.error, ValueError) as error:
        raise _unusable(path, error) from None
    except ExpandsTooMuchError as error:
        raise expands_too_much(error.name, path) from None
    except NotImplementedError as error:  # a compression method that Python does not have
        raise DataError(
            f"{path}: {error}\nunpack it, and type: --data NAME, for NAME.{source} and NAME.{target}"
        ) from None
    except OSError as error:
        if error.strerror is None:  # from the decompressor, not from the system
            raise _unusable(path, error) from None
        raise DataError(f"{path} cannot be read: {error.strerror}") from None


def _unusable(path: Path, error: Exception) -> DataError:
    reason = in_one_line(error) or "it ends early"
    return DataError(f"{path} is not a complete zip file: {reason}")


def _pairs(path: Path, archive: zipfile.ZipFile, source: str, target: str) -> Iterator[RawRow]:
    source_member, target_member = _find_members(path, archive.namelist(), source, target)
    for member in (source_member, target_member):
        if archive.namelist().count(member) > 1:  # of which programs take the first, or the last
            raise zipfile.BadZipFile(f"it has {member} twice")
        if archive.getinfo(member).flag_bits & 1:
            raise DataError(
                f"{path} is encrypted: unpack it, and type: --data NAME, for NAME.{source} and NAME.{target}"
            )

        if archive.getinfo(member).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            # Python decompresses bzip2 and LZMA in pieces of any size.
            raise NotImplementedError("it is compressed by a rare method")

    source_name, target_name = (f"{path}: {in_one_line(member, 100)}" for member in (source_member, target_member))
    # A buffer makes reading lines of limited length fast.
    with (
        io.BufferedReader(Bounded(archive.open(source_member), most_bytes(path), source_name)) as source_file,
        io.BufferedReader(Bounded(archive.open(target_member), most_bytes(path), target_name)) as target_file,
    ):
        source_lines = decoded_lines(source_file, source_name, most_bytes(path), ESCAPED)
        target_lines = decoded_lines(target_file, target_name, most_bytes(path), ESCAPED)
        pairs = line_pairs(source_lines, target_lines, source_name, target_name)
        yield from text_pairs(pairs, source_name, target_name)


def _find_members(path: Path, members: Iterable[str], source: str, target: str) -> tuple[str, str]:
    """Return the names of the source and the target file. Raises DataError unless there is one such pair."""
    files = {name for name in members if not name.endswith("/") and not name.startswith("__MACOSX/")}
    stems = sorted(
        name.removesuffix(f".{source}")
        for name in files
        if name.endswith(f".{source}") and f"{name.removesuffix(f'.{source}')}.{target}" in files
    )
    if len(stems) == 1:
        return f"{stems[0]}.{source}", f"{stems[0]}.{target}"

    if stems:
        raise DataError(
            f"{path} holds {len(stems)} pairs of files: {listed(stems)}\n"
            f"unpack it, and type: --data NAME, for one pair of files NAME.{source} and NAME.{target}; "
            "or --data FOLDER, if they are train, valid and test"
        )

    endings = {PurePosixPath(name).suffix for name in files} - OTHER_ENDINGS - {""}
    languages = sorted(ending.removeprefix(".") for ending in endings)
    if languages and not {source, target} <= set(languages):
        hint = f"available languages (choose with --source and --target, or --pairs): {listed(languages)}"
    else:
        hint = f"files in it, to be unpacked first: {listed(sorted(files))}"
    raise DataError(f"{path} holds no files NAME.{source} and NAME.{target}\n{hint}")
