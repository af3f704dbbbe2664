"""Tests of zips of two text files: the same pairs as the files have, and every defect reported."""

import random
import zipfile
from pathlib import Path

import pytest
from conftest import readable

from pairs.readers import PARTS, read_parts
from tapis.text.lines import DataError, Pair

SOURCE_TEXT = "One.\nTwo, “or so”.\n\n"
TARGET_TEXT = "Un.\r\nDeux.\r\n😀\r\n"
FILES: dict[str, str | bytes] = {
    "README": "From OPUS.",
    "LICENSE": "",
    "Books.en-fr.en": SOURCE_TEXT,
    "Books.en-fr.fr": TARGET_TEXT,
    "Books.en-fr.ids": "1\n2\n3\n",
}


def read(name: str, source: str = "en", target: str = "fr") -> list[Pair]:
    return list(readable(read_parts(name, source, target)["train"]))


def write_zip(name: str, files: dict[str, str | bytes], method: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(name, "w", method) as archive:
        for member, content in files.items():
            archive.writestr(member, content)


def with_header_byte(raw: bytes, offset: int, value: int) -> bytes:
    """A zip with one byte changed in each entry of its directory, and the same in the header of each file."""
    changed = bytearray(raw)
    for signature, shift in ((b"PK\x01\x02", 0), (b"PK\x03\x04", -2)):
        position = raw.find(signature)
        while position >= 0:
            changed[position + offset + shift] = value
            position = raw.find(signature, position + 1)
    return bytes(changed)


def error_of(name: str, source: str = "en", target: str = "fr") -> str:
    with pytest.raises(DataError) as error:
        read(name, source, target)
    message = str(error.value)
    assert message.startswith(name) and len(message.splitlines()) <= 2
    return message


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("folder", ["", "moses/"])
def test_zip_has_the_pairs_of_its_files(method: int, folder: str) -> None:
    Path("books.en").write_bytes(SOURCE_TEXT.encode())
    Path("books.fr").write_bytes(TARGET_TEXT.encode())
    members = {folder + name: content for name, content in FILES.items()}
    for language in ("en", "fr"):  # which macOS adds
        members[f"__MACOSX/._Books.en-fr.{language}"] = "x"
    write_zip("en-fr.txt.zip", members, method)
    assert read("en-fr.txt.zip") == read("books")
    assert read("en-fr.txt.zip", "fr", "en") == read("books", "fr", "en")
    assert sorted(path.name for path in Path().iterdir()) == ["books.en", "books.fr", "en-fr.txt.zip"]


def test_other_languages_are_listed() -> None:
    write_zip("d.zip", FILES)
    assert error_of("d.zip", "en", "de").splitlines() == [
        "d.zip holds no files NAME.en and NAME.de",
        "available languages (choose with --source and --target, or --pairs): en, fr",
    ]


def test_other_files_are_listed() -> None:
    write_zip("d.zip", {"a.en": "", "b.fr": ""})
    assert error_of("d.zip").endswith("\nfiles in it, to be unpacked first: a.en, b.fr")
    write_zip("d.zip", {"memory.tmx": ""})
    assert error_of("d.zip").endswith("\nfiles in it, to be unpacked first: memory.tmx")
    write_zip("d.zip", {})
    assert error_of("d.zip").endswith("\nfiles in it, to be unpacked first: none")


def test_several_pairs_of_files_are_listed() -> None:
    write_zip("d.zip", {f"{stem}.{language}": "" for stem in "ab" for language in ("en", "fr")})
    assert error_of("d.zip").startswith("d.zip holds 2 pairs of files: a, b\nunpack it, and type: --data NAME")


def test_a_zip_of_several_parts_is_to_be_unpacked_and_read_as_a_folder() -> None:
    write_zip("d.zip", {f"c/{part}.{language}": "a\n" for part in PARTS for language in ("en", "fr")})
    assert "--data FOLDER, if they are train, valid and test" in error_of("d.zip")
    with zipfile.ZipFile("d.zip") as archive:
        archive.extractall()
    assert set(read_parts("c", "en", "fr")) == set(PARTS)


def test_a_file_that_is_in_the_zip_twice_is_an_error() -> None:
    write_zip("x.zip", {"a.en": "a\n", "a.fr": "b\n"})
    with zipfile.ZipFile("x.zip", "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("a.fr", "c\n")
    assert error_of("x.zip") == "x.zip is not a complete zip file: it has a.fr twice"


def test_errors_name_the_file_in_the_zip() -> None:
    write_zip("d.zip", {"a.en": b"ok\n\xff\n\xff\n", "a.fr": "x\ny\nz\n"})
    assert error_of("d.zip").startswith("d.zip: a.en line 2, character 1: not UTF-8")
    write_zip("d.zip", {"a.en": "a\n", "a.fr": "b\nc\n"})
    assert error_of("d.zip") == "d.zip: a.en and d.zip: a.fr must have the same number of lines, but have 1 and 2"


def test_endless_line_is_an_error() -> None:
    write_zip("d.zip", {"a.en": "a\n" + "b" * 30_000_000, "a.fr": "c\nd\n"})
    assert Path("d.zip").stat().st_size < 100_000
    assert error_of("d.zip").startswith("d.zip: a.en line 2: longer than 1 MB")


def test_encrypted_and_unknown_zips_are_errors() -> None:
    write_zip("d.zip", FILES)
    whole = Path("d.zip").read_bytes()
    Path("d.zip").write_bytes(with_header_byte(whole, 8, 1))  # the flag of encryption
    assert error_of("d.zip").startswith("d.zip is encrypted: unpack it")
    Path("d.zip").write_bytes(with_header_byte(whole, 10, 9))  # a compression method that Python lacks
    assert error_of("d.zip").startswith("d.zip: it is compressed by a rare method\nunpack it")
    Path("d.zip").write_bytes(b"hello")
    assert error_of("d.zip") == "d.zip is not a complete zip file: File is not a zip file"


def test_damaged_zips_are_read_or_rejected() -> None:
    write_zip("d.zip", FILES)
    whole = Path("d.zip").read_bytes()
    pairs = read("d.zip")
    rng = random.Random(0)
    n_rejected = 0
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        damaged = damaged[: rng.choice([len(whole), rng.randrange(len(whole))])]
        Path("d.zip").write_bytes(damaged)
        try:
            assert read("d.zip") == pairs
        except DataError as error:
            n_rejected += 1
            assert str(error).startswith("d.zip") and len(str(error).splitlines()) <= 2
    assert n_rejected > 150


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_expand_without_limit_are_refused(method: int) -> None:
    with zipfile.ZipFile("d.zip", "w", method) as archive:
        archive.writestr("d.en", b"\n" * 100_000_000)
        archive.writestr("d.fr", b"a\n")
    with pytest.raises(DataError, match="a rare method\nunpack it, and type: --data NAME"):
        for part in read_parts("d.zip", "en", "fr").values():
            list(readable(part))
