"""Tests of the readers: every data format gives the same pairs, and every defect is reported with its location."""

import gzip
import io
import json
import lzma
import os
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import readable
from hypothesis import given
from hypothesis import strategies as st

from config import Config
from pairs import readers
from pairs.origins import check_files
from pairs.readers import PART_NAMES, PARTS, read_parts, read_text, takes_columns
from pairs.unreadable import Unreadable
from tapis.system.files import digest_files
from tapis.system.hub import FILE_ENDINGS
from tapis.text.lines import MAX_LINE_BYTES, DataError, Pair, lines

PAIRS = [
    ("One.", "Un."),
    ("Two, “or so”.", "Deux, « environ »."),
    ("Three\u2028lines", "Trois\x0blignes"),
    ("😀", "e\u0301"),
]
SOURCE_TEXT = "".join(source + "\n" for source, _ in PAIRS)
TARGET_TEXT = "".join(target + "\n" for _, target in PAIRS)


def zstd(raw: bytes) -> bytes:
    """Compress into one frame."""
    return pa.compress(raw, codec="zstd", asbytes=True)


COMPRESS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd}
ENDINGS = ["", *COMPRESS]


def read(
    data: str = "data", source: str = "en", target: str = "fr", columns: tuple[str, ...] = ()
) -> dict[str, list[Pair]]:
    """Read all pairs of each part."""
    return {name: list(readable(part)) for name, part in read_parts(data, source, target, columns).items()}


def write(name: str, content: str | bytes) -> None:
    """Write a file, compressed as its name says."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(COMPRESS.get(path.suffix, bytes)(raw))


def write_parquet(name: str, **columns: list[object]) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), name)


@pytest.mark.parametrize("ending", ENDINGS)
def test_folder_of_parallel_files(ending: str) -> None:
    for part in ("train", "valid", "test"):
        write(f"data/{part}.en{ending}", SOURCE_TEXT)
        write(f"data/{part}.fr{ending}", TARGET_TEXT)
    assert read() == {"train": PAIRS, "valid": PAIRS, "test": PAIRS}
    assert read(source="fr", target="en")["train"] == [(b, a) for a, b in PAIRS]


@pytest.mark.parametrize("ending", ENDINGS)
def test_pair_of_parallel_files(ending: str) -> None:
    write(f"sub/books.en{ending}", SOURCE_TEXT)
    write(f"sub/books.fr{ending}", TARGET_TEXT)
    assert read("sub/books") == {"train": PAIRS}


def test_files_of_a_pair_may_be_compressed_differently() -> None:
    write("books.en.zst", SOURCE_TEXT)
    write("books.fr.xz", TARGET_TEXT)
    assert read("books") == {"train": PAIRS}


JSONL = "".join(json.dumps({"en": en, "fr": fr}) + "\n" for en, fr in PAIRS)
HUB_JSONL = "".join(json.dumps({"id": 1, "translation": {"en": en, "fr": fr}}) + "\n\n" for en, fr in PAIRS)
TSV = "".join(f"{en}\t{fr}\n" for en, fr in PAIRS)
CSV = "".join(f'"{en}","{fr}"\n' for en, fr in PAIRS)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("tsv", TSV),
        ("tsv", "en\tfr\n" + TSV),
        ("tsv", TSV.replace("\n", "\r\n")),
        ("tsv", "\ufeff" + TSV),
        ("tsv", "\ufeff\ufeff" + TSV),
        ("tsv", "id\tFR\tEN\n" + "".join(f"1\t{fr}\t{en}\n" for en, fr in PAIRS)),
        ("csv", CSV),
        ("csv", "fr,en\n" + "".join(f'"{fr}","{en}"\n' for en, fr in PAIRS)),
        ("jsonl", JSONL),
        ("jsonl", HUB_JSONL),
    ],
)
def test_single_file_formats(kind: str, content: str, ending: str) -> None:
    write(f"data.{kind}{ending}", content)
    assert read(f"data.{kind}{ending}") == {"train": PAIRS}


@pytest.mark.parametrize("ending", COMPRESS)
def test_files_compressed_in_several_pieces_are_read_whole(ending: str) -> None:
    whole = TSV.encode()
    compress = COMPRESS[ending]
    for cut in (0, 7, len(whole) // 2):
        Path(f"d.tsv{ending}").write_bytes(compress(whole[:cut]) + compress(whole[cut:]))
        assert read(f"d.tsv{ending}") == {"train": PAIRS}


def test_parquet_with_columns_or_translation_records() -> None:
    sources, targets = zip(*PAIRS, strict=True)
    write_parquet("a.parquet", id=list(range(4)), fr=list(targets), en=list(sources))
    write_parquet("b.parquet", translation=[{"en": en, "fr": fr} for en, fr in PAIRS])
    assert read("a.parquet") == read("b.parquet") == {"train": PAIRS}


def test_quoted_csv_field_may_contain_line_breaks_and_commas() -> None:
    write("data.csv", 'en,fr\n"a, b","c ""d""\ne"\n')
    assert read("data.csv") == {"train": [("a, b", 'c "d"\ne')]}


def test_columns_name_the_fields_of_records() -> None:
    sources, targets = zip(*PAIRS, strict=True)
    write("d.jsonl", "".join(json.dumps({"Text": en, "text": fr, "id": 1}) + "\n" for en, fr in PAIRS))
    write_parquet("d.parquet", text=list(targets), id=list(range(4)), Text=list(sources))
    assert read("d.jsonl", columns=("Text", "text")) == {"train": PAIRS}
    assert read("d.parquet", columns=("Text", "text")) == {"train": PAIRS}


@pytest.mark.parametrize("name", ["d.jsonl", "d.parquet"])
def test_fields_of_other_names_are_an_error_that_says_how_to_choose_them(name: str) -> None:
    if name == "d.jsonl":
        write(name, '{"from": "a", "to": "b"}\n' * 9)
    else:
        columns: dict[str, list[object]] = {"from": ["a"] * 9, "to": ["b"] * 9}
        write_parquet(name, **columns)
    message = r'no field "en" \(fields: from, to\).*\ntype: --data d.* --columns and'
    with pytest.raises(DataError, match=message) as error:
        read(name)
    assert len(str(error.value).splitlines()) == 2
    assert read(name, columns=("from", "to")) == {"train": [("a", "b")] * 9}
    with pytest.raises(DataError, match=r'no field "too" \(fields: from, to\)[^\n]*$'):
        read(name, columns=("from", "too"))


def test_fields_come_before_those_of_a_translation() -> None:
    write("d.jsonl", '{"a": "x", "b": "y", "translation": {"en": "1", "fr": "2", "de": "3"}}\n')
    assert read("d.jsonl", columns=("b", "a")) == {"train": [("y", "x")]}
    assert read("d.jsonl", columns=("de", "en")) == {"train": [("3", "1")]}


def test_part_key_depends_on_columns_and_file_type() -> None:
    for name in ("a.tsv", "b.tsv", "a.csv"):
        write(name, "x\ty\n")
    keys = [
        read_parts(data, "en", "fr", columns)["train"].key
        for data, columns in [("a.tsv", ()), ("a.tsv", ("1", "2")), ("a.tsv", ("2", "1")), ("a.csv", ())]
    ]
    assert len(set(keys)) == len(keys)
    assert read_parts("b.tsv", "en", "fr")["train"].key == keys[0]


@pytest.mark.parametrize("data", ["data", "books", "d.tmx", "d.zip", "owner/books", "nowhere"])
def test_columns_are_for_tables(data: str) -> None:
    for name in ("data/train.en", "data/train.fr", "books.en", "books.fr", "d.tmx", "d.zip"):
        write(name, "")
    with pytest.raises(DataError, match=rf"^--columns is for \.csv, \.tsv, .* files, not for --data {data}$"):
        read(data, columns=("1", "2"))


@pytest.mark.parametrize("names", [("English", "Français"), ("eng", "fra"), ("en_GB", "fr-FR"), ("Source", "Target")])
@pytest.mark.parametrize("is_record", [False, True])
def test_fields_are_found_by_the_names_of_languages(names: tuple[str, str], is_record: bool) -> None:
    records: list[dict[str, object]] = [{"id": 1} | dict(zip(names, pair, strict=True)) for pair in PAIRS]
    records = [{"translation": {name: record[name] for name in names}} for record in records] if is_record else records
    write("d.jsonl", "\n" + "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    pq.write_table(pa.Table.from_pylist(records), "d.parquet")
    for name in ("d.jsonl", "d.parquet"):
        part = read_parts(name, "en", "fr")["train"]
        assert (list(readable(part)), part.forms) == (PAIRS, [f'fields "{names[0]}", "{names[1]}"'])


@pytest.mark.parametrize("name", ["d.jsonl", "d.parquet"])
def test_columns_of_json_and_parquet_are_chosen_by_name_only(name: str) -> None:
    write("d.jsonl", JSONL)
    write_parquet("d.parquet", en=["a"], fr=["b"])
    with pytest.raises(DataError, match=f"^{name} has fields, not numbered columns: type --columns"):
        read(name, columns=("en", "2"))


@pytest.mark.parametrize("odd", ['{"en": "x", "fr"', "null", "[1]", '{"en": "x"}', '{"en": "x", "fr": 5}', "x"])
def test_an_odd_line_of_json_is_skipped_and_located(odd: str) -> None:
    write("d.jsonl", JSONL + odd + "\n" + JSONL)
    rows = list(read_parts("d.jsonl", "en", "fr")["train"].rows)
    assert [*rows[:4], *rows[5:]] == PAIRS * 2
    assert isinstance(rows[4], Unreadable) and rows[4].location == "d.jsonl line 5"


LINES_OF_FILES: dict[str, tuple[str, str, str]] = {  # how a pair of ASCII is written; what is read
    "two files": ("{en}", "{fr}", "d"),
    "a table": ("{en}\t{fr}", "", "d.tsv"),
    "a table in quotes": ('"{en}";"{fr}"', "", "d.csv"),
    "JSON": ('{{"en": "{en}", "fr": "{fr}"}}', "", "d.jsonl"),
    "a zip": ("{en}", "{fr}", "d.zip"),
}


@pytest.mark.parametrize("kind", LINES_OF_FILES)
@given(data=st.data())
def test_a_line_that_is_not_utf8_is_skipped_and_located(kind: str, data: st.DataObject) -> None:
    """Wherever it is, and whatever its bytes are: every other pair is read."""
    bad = data.draw(st.binary(min_size=1, max_size=4).filter(is_not_utf8))
    n_good, is_target = data.draw(st.integers(1, 30)), data.draw(st.booleans())
    place = data.draw(st.integers(0, n_good))
    texts = [(f"Sentence {i} é", f"Phrase {i} é") for i in range(n_good)]
    raw = [(source.encode(), target.encode()) for source, target in texts]
    raw.insert(place, (b"x", b"x" + bad) if is_target else (b"x" + bad, b"x"))

    *formats, name = LINES_OF_FILES[kind]
    contents = [b"".join(line_in(one, *pair) for pair in raw) for one in formats if one]
    if kind == "a zip":
        with zipfile.ZipFile(name, "w") as archive:
            for side, content in zip(("en", "fr"), contents, strict=True):
                archive.writestr(f"a.{side}", content)
    elif len(contents) == 1:
        write(name, contents[0])
    else:
        for side, content in zip(("en", "fr"), contents, strict=True):
            write(f"{name}.{side}", content)

    rows = list(read_parts(name, "en", "fr")["train"].rows)
    assert [row for row in rows if not isinstance(row, Unreadable)] == texts
    (row,) = [row for row in rows if isinstance(row, Unreadable)]
    assert f"line {place + 1}, character" in row.location and row.problem.startswith("not UTF-8")


def line_in(form: str, source: bytes, target: bytes) -> bytes:
    """Return a line of a form, whose texts may be no text."""
    sides = {"en": source.decode(errors="surrogateescape"), "fr": target.decode(errors="surrogateescape")}
    return (form.format(**sides) + "\n").encode(errors="surrogateescape")


def is_not_utf8(raw: bytes) -> bool:
    """Return whether bytes within a line are not UTF-8, nor read as UTF-16."""
    return not set(raw) & set(b'\n\r\0"\t;{}\\\xff\xfe') and "\ufffd" in raw.decode(errors="replace")


def test_a_translation_that_is_null_is_a_pair_of_empty_sides() -> None:
    write("d.jsonl", '{"translation": null}\n' * 50 + HUB_JSONL)
    assert read("d.jsonl") == {"train": [("", "")] * 50 + PAIRS}


def test_null_becomes_an_empty_side() -> None:
    write("data.jsonl", '{"en": null, "fr": "x"}\n')
    assert read("data.jsonl") == {"train": [("", "x")]}


def test_final_line_break_is_optional() -> None:
    write("f", "a\n\nb")
    assert list(lines(Path("f"))) == ["a", "", "b"]
    write("empty", "")
    assert list(lines(Path("empty"))) == []


@given(st.lists(st.text("ab 😀\t", max_size=5), min_size=1), st.booleans())
def test_cr_alone_ends_lines_where_no_lf_does(texts: list[str], is_ended: bool) -> None:
    write("f", "\r".join(texts) + "\r" * is_ended)
    assert list(lines(Path("f"))) == (texts if is_ended or texts[-1] else texts[:-1])
    write("f", "\r".join(["a", *texts, "a"]) + "\n")
    assert list(lines(Path("f"))) == ["\r".join(["a", *texts, "a"])]


def test_cr_alone_ends_lines_in_every_form() -> None:
    write("d.tsv", "a\tb\rc\td\r")
    write("d.csv", 'a,"b"\rc,d')
    write("d.en", "a\rc\r")
    write("d.fr", "b\nd\n")
    assert read("d.tsv") == read("d.csv") == read("d") == {"train": [("a", "b"), ("c", "d")]}


def test_lines_that_end_in_cr_may_be_long_but_not_endless() -> None:
    write("f", "a\tb\r" * 1_000_000)
    assert sum(line == "a\tb" for line in lines(Path("f"))) == 1_000_000
    write("f", b"b\r" + b"a" * 20 * MAX_LINE_BYTES)
    with pytest.raises(DataError, match=r"^f line 2: longer than 1 MB"):
        list(lines(Path("f")))


@pytest.mark.parametrize("ending", ENDINGS)
def test_lines_may_be_long_but_not_endless(ending: str) -> None:
    longest = b"a" * (MAX_LINE_BYTES - 1) + b"\n"
    write(f"f{ending}", longest + b"b")
    assert [len(line) for line in lines(Path(f"f{ending}"))] == [MAX_LINE_BYTES - 1, 1]
    write(f"f{ending}", b"b\n" + b"a" * 20 * MAX_LINE_BYTES)
    with pytest.raises(DataError, match=rf"^f{ending} line 2: longer than 1 MB"):
        list(lines(Path(f"f{ending}")))


GOOD_ROW = "a\tb\n"

# Case → files, --data, and a pattern of the message. A name that ends in ! is written without compression.
BROKEN: dict[str, tuple[dict[str, str | bytes], str, str]] = {
    "row with three columns": (
        {"d.tsv": GOOD_ROW * 6 + "x\ty\tz\n" * 2},
        "d.tsv",
        "d.tsv line 7: 3 columns, expected 2",
    ),
    "row with one column": ({"d.tsv": GOOD_ROW + "xy\n" * 2}, "d.tsv", "d.tsv line 2: 1 column, expected 2"),
    "short row under a header": ({"d.csv": "id,en,fr\n1,a\n"}, "d.csv", "d.csv line 2: 2 columns, expected 3"),
    "unclosed quote": ({"d.csv": '"a","b"\n"c,d\n"e,f\n'}, "d.csv", r"d.csv line 2: not CSV"),
    "quote inside a word": ({"d.csv": '"a","b"\n"c"x,d\n"e"x,f\n'}, "d.csv", r"d.csv line 2: not CSV"),
    "field that is too long": (
        {"d.csv": "a," + "b" * 200_000 + "\n"},
        "d.csv",
        r"d.csv line 1: a cell of more than 131,072 characters",
    ),
    "lines that are not JSON": (
        {"d.jsonl": '{"en": "a", "fr": "b"}\n{"en":\n{"en":\n'},
        "d.jsonl",
        "d.jsonl line 2: not JSON",
    ),
    "deeply nested JSON": ({"d.jsonl": "[" * 100_000}, "d.jsonl", "d.jsonl line 1: not JSON"),
    "JSON list": ({"d.jsonl": "[1, 2]\n"}, "d.jsonl", r'd.jsonl line 1: expected {"en": …, "fr": …}, got \[1, 2\]'),
    "missing language": (
        {"d.jsonl": '{"en": "a", "de": "b"}\n'},
        "d.jsonl",
        r'd.jsonl line 1: no field "fr" \(fields: en, de\)',
    ),
    "number instead of text": (
        {"d.jsonl": '{"en": "a", "fr": 5}\n'},
        "d.jsonl",
        'd.jsonl line 1: "fr" must be a string, got 5',
    ),
    "record without fields": ({"d.jsonl": "{}\n"}, "d.jsonl", r'line 1: no field "en" \(fields: none\)'),
    "rows of Latin-1 in UTF-8": (
        {"d.tsv": b"\xc3\xa4\tb\n" * 2 + b"c\td\xe9\n" * 2},
        "d.tsv",
        "d.tsv line 3, character 4: not UTF-8",
    ),
    "rows that are not in the code page": (
        {"d.csv": b"\xe4;b\n\x81;c\n\x8d;d\n"},
        "d.csv",
        r"d.csv line 2: not in Windows-1252, as .* \(save it as UTF-8\)",
    ),
    "Latin-1 in a folder": (
        {"data/train.en": b"ok\n" * 400 + b"a\xff\n" * 6, "data/train.fr": "x\n" * 406},
        "data",
        r"train.en line 401, character 2: not UTF-8, but in another encoding, such as Windows-1252",
    ),
    "truncated gzip file": (
        {"d.tsv.gz!": gzip.compress(GOOD_ROW.encode() * 999)[:-20]},
        "d.tsv.gz",
        "not a complete gzip file",
    ),
    "plain text named .gz": ({"d.tsv.gz!": b"a\tb\n"}, "d.tsv.gz", "not a complete gzip file"),
    "damaged gzip file": (
        {"d.tsv.gz!": gzip.compress(b"a\tb\n")[:10] + b"\xff" * 30},
        "d.tsv.gz",
        "not a complete gzip file",
    ),
    "truncated xz file": (
        {"d.tsv.xz!": lzma.compress(GOOD_ROW.encode() * 999)[:-20]},
        "d.tsv.xz",
        "^d.tsv.xz is not a complete xz file: ",
    ),
    "plain text named .xz": ({"d.tsv.xz!": b"a\tb\n"}, "d.tsv.xz", "^d.tsv.xz is not a complete xz file: "),
    "truncated zstd file": (
        {"d.tsv.zst!": zstd(GOOD_ROW.encode() * 99_999)[:-3]},
        "d.tsv.zst",
        "^d.tsv.zst is not a complete zstd file: Truncated",
    ),
    "second zstd frame truncated": (
        {"d.tsv.zst!": zstd(GOOD_ROW.encode() * 99) + zstd(GOOD_ROW.encode() * 99)[:-3]},
        "d.tsv.zst",
        "^d.tsv.zst is not a complete zstd file: Truncated",
    ),
    "plain text named .zst": ({"d.tsv.zst!": b"a\tb\n"}, "d.tsv.zst", "^d.tsv.zst is not a complete zstd file: "),
    "zstd file with a window of 2 GB": (  # magic number, frame descriptor, window descriptor, empty block
        {"d.tsv.zst!": b"\x28\xb5\x2f\xfd\x00" + bytes([21 << 3]) + b"\x01\x00\x00"},
        "d.tsv.zst",
        "^d.tsv.zst is not a complete zstd file: .*too much memory",
    ),
    "Parquet compressed again": (
        {"d.parquet.zst": b""},
        "d.parquet.zst",
        "all but .xlsx, .ods, .parquet, .zip may add .gz, .xz",
    ),
    "file that is not Parquet": ({"d.parquet": b"PAR1 nonsense"}, "d.parquet", "not a valid Parquet file"),
    "empty Parquet file": ({"d.parquet": b""}, "d.parquet", "not a valid Parquet file"),
    "unknown file type": (
        {"d.doc": b"x"},
        "d.doc",
        r"must end in .csv, .tsv, .txt, .xlsx, .ods, .jsonl, .parquet, .tmx, .zip;",
    ),
    "file of one language": (
        {"books.en": "a\n"},
        "books.en",
        r"for two files, NAME.en and NAME.fr, type: --data NAME",
    ),
    "one of two files": ({"books.en": "a\n"}, "books", r"books.en exists, but books.fr does not"),
    "target file with fewer lines": (
        {"data/train.en": "a\n" * 29_000, "data/train.fr": "b\n" * 28_999},
        "data",
        r"train.en and data/train.fr must have the same number of lines, but have 29,000 and 28,999",
    ),
    "target file with more lines": (
        {"data/train.en": "a\n", "data/train.fr": "b\nc\nd\n"},
        "data",
        "train.en and data/train.fr must have the same number of lines, but have 1 and 3",
    ),
    "part in one language": (
        {"data/train.en": "a\n", "data/train.fr": "b\n", "data/valid.fr": "c\n"},
        "data",
        "valid.en is missing, but valid.fr exists",
    ),
    "folder of other languages": (
        {"data/train.de": "a\n", "data/train.cs": "b\n"},
        "data",
        r"no train.en\navailable languages \(choose with --source and --target, or --pairs\): cs, de",
    ),
    "files that end in .txt": (
        {"data/train.en.txt": "a\n", "data/train.fr.txt": "b\n"},
        "data",
        r"data has no train.en .*\nrename train.en.txt to train.en, and train.fr.txt to train.fr$",
    ),
    "one file that ends in .txt": (
        {"data/train.en": "a\n", "data/train.fr.txt": "b\n"},
        "data",
        r"data has no train.fr\nrename train.fr.txt to train.fr$",
    ),
    "two files that end in .txt": (
        {"data/books.en.txt": "a\n", "data/books.fr.txt": "b\n"},
        "data/books",
        r"no such file or folder\nrename books.en.txt to books.en, and books.fr.txt to books.fr$",
    ),
    "two files that are compressed otherwise": (
        {"books.en.bz2": "", "books.fr.txt.7z": ""},
        "books",
        r"no such file or folder\ndecompress books.en.bz2 and books.fr.txt.7z$",
    ),
    "one file that is compressed otherwise": (
        {"data/train.en.txt": "", "data/train.fr.Z": ""},
        "data",
        r"data has no train.en .*\ndecompress train.fr.Z, and rename train.en.txt to train.en$",
    ),
    "folder of single files": (
        {f"data/{name}": "" for name in ("b.tmx", "a.csv.gz", "c c.xlsx", "d.ods", ".e.tmx", "notes.md", "valid.csv")},
        "data",
        r"data has no train.en .*\nfor .* type: --data data/a.csv.gz data/b.tmx 'data/c c.xlsx' \(.*also d.ods\)$",
    ),
    "folder without data": (
        {"data/notes.md": "hello"},
        "data",
        r"data has no train.en and train.fr, and is not a dataset in the hub's layout\n",
    ),
    "nothing": ({}, "data", r"no such file or folder.*\n.*python train.py demo"),
    "path that does not exist": ({}, "/no/such/file.tsv", "no such file or folder"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_data_is_reported_with_its_location(case: str) -> None:
    files, data, message = BROKEN[case]
    for name, content in files.items():
        if isinstance(content, bytes) and name.endswith("!"):  # content that is written as it is
            Path(name[:-1]).write_bytes(content)
        else:
            write(name, content)
    with pytest.raises(DataError, match=message) as error:
        read(data)
    assert len(str(error.value).splitlines()) <= 2


def test_unreadable_file_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    write("d.tsv", GOOD_ROW)

    def refuse(*args: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=r"d\.tsv cannot be read: Permission denied"):
        read("d.tsv")


# Bombs: small files that would fill the memory or the disk


@pytest.mark.parametrize("ending", COMPRESS)
def test_a_compressed_file_expands_to_a_hundred_times_its_size_at_most(ending: str) -> None:
    path = Path(f"bomb.tsv{ending}")
    path.write_bytes(COMPRESS[ending](b"a b c\td e f\n" * 1_000_000))
    n_pairs = 0
    with pytest.raises(
        DataError, match=f"^bomb.tsv{ending} expands to more than 10 MB, far more than compressed text does: "
    ):
        for _ in readable(read_parts(str(path), "en", "fr")["train"]):
            n_pairs += 1
    assert n_pairs < 1_000_000


@pytest.mark.parametrize("between", [b"", bytes(4), bytes(100_000)])
def test_all_streams_of_an_xz_file_are_read(between: bytes) -> None:
    """As xz does; lzma.open stops at the padding between them."""
    one, other = (lzma.compress(text.encode()) for text in ("a\n" * 50_000, "b\n"))
    Path("two.xz").write_bytes(one + between + other + between)
    assert list(lines(Path("two.xz"))) == [*["a"] * 50_000, "b"]
    for damaged in (one + between + b"\xfe" + other[1:], one + between + other[:-3], one + between + b"rest"):
        Path("two.xz").write_bytes(damaged)
        with pytest.raises(DataError, match=r"two\.xz is not a complete xz file"):
            list(lines(Path("two.xz")))


@pytest.mark.parametrize("name", ["bomb.tsv.gz", "bomb.jsonl.xz", "bomb.zip"])
def test_empty_lines_count_in_what_a_compressed_file_expands_to(name: str) -> None:
    """They take no space, but a second for every 50,000."""
    line = {"bomb.tsv.gz": "\t\n", "bomb.jsonl.xz": "\n", "bomb.zip": "\n"}[name]
    if name == "bomb.zip":
        with zipfile.ZipFile(name, "w", zipfile.ZIP_DEFLATED) as archive:
            for language in ("en", "fr"):
                archive.writestr(f"x.{language}", line * 1_000_000)
    else:
        write(name, line * 1_000_000)
    n_pairs = 0
    with pytest.raises(DataError, match="expands to more than 10 MB"):
        for _ in readable(read_parts(name, "en", "fr")["train"]):
            n_pairs += 1
    assert n_pairs <= 500_000


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("d.csv", '"x\n",' + '"\na",' * 1_000_000, "a row of more than 1,000,000 characters"),
        ("d.csv", "en,fr\n" + '"\na",' * 1_000_000, "a row of more than 1,000,000 characters"),
        ("d.tsv", "some words\tdes mots\n" + ("a\t" * 150_000 + "\n") * 30, "line 2: 150001 columns, expected 2"),
    ],
)
def test_a_row_of_endless_cells_takes_little_memory(name: str, content: str, says: str) -> None:
    write(name, content)
    tracemalloc.start()
    with pytest.raises(DataError, match=says):
        read(name)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6


def test_a_file_that_changes_while_it_is_read_is_not_cached() -> None:
    write("d.tsv", "a\tb\n" * 5)
    pairs = iter(readable(read_parts("d.tsv", "en", "fr")["train"]))
    next(pairs)
    write("d.tsv", "c\td\n" * 5)
    with pytest.raises(DataError, match=r"^d\.tsv changed while it was read: start again$"):
        list(pairs)


def test_a_file_of_many_pairs_is_hashed_once_and_a_changed_one_again(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []

    def hashing(files: list[Path]) -> str:
        hashed.extend(map(str, files))
        return digest_files(files)

    monkeypatch.setattr(readers, "digest_files", hashing)
    for language in ("en", "fr", "de"):
        write(f"data/train.{language}", SOURCE_TEXT)
        os.utime(f"data/train.{language}", ns=(10**18, 10**18))
    keys = [read_parts("data", *pair)["train"].key for pair in (("en", "fr"), ("en", "de"), ("fr", "de"), ("en", "fr"))]
    assert len(hashed) == 3 and keys[0] == keys[3]

    # A change of the same size shows by the time of the file, and at the end of reading in any case.
    rows = iter(readable(read_parts("data", "en", "fr")["train"]))
    next(rows)
    write("data/train.en", SOURCE_TEXT.upper())
    os.utime("data/train.en", ns=(10**18, 10**18))
    with pytest.raises(DataError, match=r"changed while it was read"):
        list(rows)
    write("data/train.en", SOURCE_TEXT.upper())
    assert read_parts("data", "en", "fr")["train"].key != keys[0]


def test_the_files_of_a_zip_expand_to_a_hundred_times_its_size_at_most() -> None:
    with zipfile.ZipFile("bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for language in ("en", "fr"):
            archive.writestr(f"x.{language}", "a b c\n" * 2_000_000)
    with pytest.raises(DataError, match=r"^bomb.zip: x.en expands to more than 10 MB"):
        for _ in readable(read_parts("bomb.zip", "en", "fr")["train"]):
            pass


def parquet_of(values: list[str], rows: int) -> None:
    """A file that has each value once, and says it many times; without values it says null."""
    column = pa.nulls(rows, pa.string())
    if values:
        column = pa.DictionaryArray.from_arrays(pa.array([i % len(values) for i in range(rows)], pa.int32()), values)
    pq.write_table(pa.table({"en": column, "fr": column}), "bomb.parquet", compression="zstd")


@pytest.mark.parametrize(
    ("values", "rows", "says"),
    [
        (["a" * 900_000], 65_536, "expands to more than 10 MB"),  # 118 GB
        (["a"], 10_000_000, "expands to more than 10 MB"),
        (["a" * 2_000_000], 10, 'rows 1 to 10: "en" has a text of 2,000,000 bytes'),
        (["a" * 9_000_000], 65_536, 'rows 1 to 1,024: "en" has a text of 9,000,000 bytes'),
        ([], 10_000_000, "expands to more than 10 MB"),
        (["a" * 50_000_000], 10, "expands to more than 10 MB"),
    ],
)
def test_a_parquet_file_is_read_within_bounds(values: list[str], rows: int, says: str) -> None:
    parquet_of(values, rows)
    assert Path("bomb.parquet").stat().st_size < 100_000
    pool = pa.default_memory_pool()
    before = pool.max_memory()
    with pytest.raises(DataError, match=f"bomb.parquet.*{says}"):
        for _ in readable(read_parts("bomb.parquet", "en", "fr")["train"]):
            pass
    assert pool.max_memory() - before < 300e6


def parquet_of_types(**columns: pa.Array) -> bytes:
    """A file with these columns, whose names are cut at an underscore: several may have the same."""
    table = pa.table(list(columns.values()), [name.partition("_")[0] for name in columns])
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


CHOOSE_FIELDS = "type: --data {} --columns and the names of two fields, source first"
TEXTS = pa.array(["x", None])
LATIN = pa.Array.from_buffers(pa.string(), 2, [None, *pa.array([b"\xe9", b"x"], pa.binary()).buffers()[1:]])
TWICE = pa.StructArray.from_arrays([TEXTS, TEXTS, TEXTS], ["en", "fr", "fr"])
PARQUET_ERRORS = {
    "dates": (
        {"en": TEXTS, "fr": pa.array([2**62, 0], pa.timestamp("ms"))},
        '"fr" must be texts, not of type timestamp',
    ),
    "times of a zone": ({"en": TEXTS, "fr": pa.array([0, 0], pa.timestamp("s", "No/Zone"))}, "must be texts, not"),
    "lists": ({"en": TEXTS, "fr": pa.array([["a"], []])}, '"fr" must be texts, not of type list'),
    "bytes": ({"en": TEXTS, "fr": pa.array([b"a", b"b"])}, '"fr" must be texts, not of type binary'),
    "another encoding": ({"en": TEXTS, "fr": LATIN}, 'rows 1 to 2: "fr" has a text that is not UTF-8'),
    "a column twice": ({"en": TEXTS, "fr": TEXTS, "fr_": TEXTS}, r"several fields fr \(fields: en, fr, fr\)"),
    "a field twice": ({"translation": TWICE}, r"several fields fr \(fields: en, fr, fr\)"),
    "no column": ({"en": TEXTS, "de": TEXTS}, r'no field "fr" \(fields: en, de\)'),
    "no field": ({"translation": pa.array([{"en": "a", "de\n": "b"}])}, r'no field "fr" \(fields: en, de\)'),
}


@pytest.mark.parametrize("case", PARQUET_ERRORS)
def test_columns_of_parquet_that_are_no_texts_are_errors_in_a_line(case: str) -> None:
    columns, says = PARQUET_ERRORS[case]
    Path("d.parquet").write_bytes(parquet_of_types(**columns))
    with pytest.raises(DataError, match=rf"^d\.parquet.*{says}") as error:
        read("d.parquet")
    assert str(error.value).splitlines()[1:] in ([], [CHOOSE_FIELDS.format("d.parquet")])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_texts_of_parquet_may_be_null_and_of_any_type_of_text(kind: pa.DataType) -> None:
    columns = {"en": TEXTS.cast(kind), "fr": pa.nulls(2), "junk": pa.array([2**62, 0], pa.timestamp("ms"))}
    Path("d.parquet").write_bytes(parquet_of_types(**columns))
    assert read("d.parquet") == {"train": [("x", ""), ("", "")]}
    record = pa.StructArray.from_arrays([TEXTS.cast(kind), TEXTS.cast(kind)], ["en", "fr"])
    Path("d.parquet").write_bytes(parquet_of_types(translation=record))
    assert read("d.parquet") == {"train": [("x", "x"), ("", "")]}


def test_a_null_record_is_a_pair_of_empty_sides() -> None:
    write_parquet("d.parquet", translation=[{"en": "a", "fr": "b"}, None])
    assert read("d.parquet") == {"train": [("a", "b"), ("", "")]}


@pytest.mark.parametrize("depth", [100, 900, 980, 1000, 20_000])
def test_a_nested_value_of_json_is_an_error_in_a_line(depth: int) -> None:
    """Reading nests less deeply than writing does."""
    write("d.jsonl", '{"en": "a", "fr": ' + "[" * depth + "]" * depth + "}\n")
    with pytest.raises(DataError, match=r"^d\.jsonl line 1: (\"fr\" must be a string, got (\[|a list)|not JSON)"):
        read("d.jsonl")


def test_names_of_fields_and_files_add_no_lines_to_an_error() -> None:
    write("d.jsonl", json.dumps({"en": "a", **{f"x{i}\nerror: {i}": "" for i in range(1000)}}) + "\n")
    with pytest.raises(DataError, match=r'no field "fr" \(fields: en, x0 error: 0, .*…\)') as error:
        read("d.jsonl")
    assert str(error.value).endswith(f"…)\n{CHOOSE_FIELDS.format('d.jsonl')}")
    write("data/train.en", "")
    write("data/train.a\nerror", "")
    with pytest.raises(DataError, match="available languages") as error:
        read("data")
    assert str(error.value).count("\n") == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
@pytest.mark.parametrize("place", ["books", "books/data", "books/en-fr", "books/data/fr-en"])
def test_a_local_folder_in_the_hubs_layout_is_read_without_its_readme(place: str) -> None:
    """Which could name any path or address. Here it is a pipe: reading it would never end."""
    folder = Path(place)
    folder.mkdir(parents=True)
    os.mkfifo("books/README.md")
    for split, n in (("train-00000-of-00002", 3), ("train-00001-of-00002", 2), ("validation-00000-of-00001", 1)):
        rows = [{"translation": {"en": f"a {i}", "fr": f"b {i}"}} for i in range(n)]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{split}.parquet")
    (folder / "notes.parquet").write_bytes(b"no table")
    parts = {name: list(readable(part)) for name, part in read_parts("books", "en", "fr").items()}
    assert {name: len(pairs) for name, pairs in parts.items()} == {"train": 5, "valid": 1}
    assert parts["train"][3] == ("a 0", "b 0")


def test_the_name_of_the_folder_of_a_pair_gives_the_order_of_its_sides() -> None:
    write("plain/en-fr/train.tsv", "a\tb\n")
    write("header/en-fr/train.tsv", "Source\tTarget\na\tb\n")
    write("records/en-fr/train.jsonl", '{"fr": "b", "en": "a"}\n')
    for name in ("plain", "header", "records"):
        forward, backward = (read_parts(name, *languages)["train"] for languages in (("en", "fr"), ("fr", "en")))
        assert (list(forward.rows), list(backward.rows)) == ([("a", "b")], [("b", "a")])
        assert forward.key != backward.key
    # The file alone has the source side first, and another key in the cache.
    alone = read_parts("plain/en-fr/train.tsv", "fr", "en")["train"]
    assert list(alone.rows) == [("a", "b")] and alone.key != read_parts("plain", "fr", "en")["train"].key


def test_a_local_folder_in_the_hubs_layout_lists_its_pairs() -> None:
    for name in ("en-it", "de-en", "old-files"):
        Path("books", name).mkdir(parents=True)
    with pytest.raises(DataError, match=r"books has neither en-fr nor fr-en\navailable pairs .*: de-en, en-it$"):
        read_parts("books", "en", "fr")
    with pytest.raises(DataError, match=r"no tables whose names begin with train"):
        read_parts("books", "en", "it")


@pytest.mark.parametrize("name", ["old-files", "old-new"])
def test_a_folder_with_tables_may_have_others_beside_them(name: str) -> None:
    write("books/train.csv", "en,fr\na,b\n")
    Path("books", name).mkdir()
    assert list(readable(read_parts("books", "en", "fr")["train"])) == [("a", "b")]


def test_tables_beside_those_of_other_pairs_are_not_taken_for_them() -> None:
    for file in ("books/train.tsv", "books/de-en/train.tsv"):
        write(file, "Ein Hund.\tA dog.\n")
    with pytest.raises(DataError, match=r"neither en-fr nor fr-en\navailable pairs .*: de-en$"):
        read_parts("books", "en", "fr")


def test_a_column_whose_name_is_no_utf8_is_an_error_in_words(tmp_path: Path) -> None:
    """One damaged byte is enough, also in a column that nobody reads."""
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table({"en": ["a"], "fr": ["b"], "zzzz": ["c"]}), file)
    file.write_bytes(file.read_bytes().replace(b"zzzz", b"zz\xffz"))
    with pytest.raises(DataError, match="is not a valid Parquet file"):
        list(readable(read_parts(str(file), "en", "fr")["train"]))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_pipe_is_no_hub_id() -> None:
    Path("folder").mkdir()
    os.mkfifo("folder/pairs.tsv")
    with pytest.raises(DataError, match=r"--data folder/pairs\.tsv is neither a file nor a folder"):
        read_parts("folder/pairs.tsv", "en", "fr")


@pytest.mark.parametrize("data", ["data/trian.tsv", "data/books", "no/such.TSV.gz", "my corpora/pairs", "corpora/été"])
def test_a_mistyped_path_is_no_hub_id(data: str) -> None:
    """The hub would be asked for an owner called data, or for a name that it allows nobody."""
    write("data/train.tsv", SMALL_TSV)
    with pytest.raises(DataError, match=f"^--data {data}: no such file or folder, and not a hub id"):
        read_parts(data, "en", "fr")
    with pytest.raises(DataError, match=f"^--data {data}: no such file or folder, and not a hub id"):
        check_files(Config(data=(data,)))


def test_no_file_of_pairs_has_a_name_as_on_the_hub() -> None:
    assert {*readers._TABLE_READERS, *readers._READERS} <= set(FILE_ENDINGS)


def test_the_home_folder_of_nobody_is_an_error_in_a_line() -> None:
    says = r"^~no-such-user/x: this machine has no home folder ~no-such-user$"
    for read_it in (partial(read_parts, source="en", target="fr"), read_text, takes_columns):
        with pytest.raises(DataError, match=says):
            read_it("~no-such-user/x")
    with pytest.raises(DataError, match=says):
        check_files(Config(data=("~no-such-user/x",)))


# What lies beside the data

SMALL_TSV = "a\tb\n"


def write_part(folder: str, stem: str, form: str) -> None:
    """Write a part of one pair: two text files, or a table."""
    if form == "texts":
        write(f"{folder}/{stem}.en", "a\n")
        write(f"{folder}/{stem}.fr", "b\n")
    else:
        write(f"{folder}/{stem}.tsv", SMALL_TSV)


@pytest.mark.parametrize("form", ["texts", "table"])
@given(names=st.sets(st.sampled_from(sorted(PART_NAMES))), inner=st.booleans())
def test_every_usual_name_of_a_part_is_used_or_an_error_names_it(form: str, names: set[str], inner: bool) -> None:
    """Never is one left out without a word: those that names of files only contain are listed."""
    with tempfile.TemporaryDirectory() as folder:
        stems = {name: f"news-{name}-2014" if inner else name for name in names}
        for stem in stems.values():
            write_part(folder, stem, form)
        by_part = {part: sorted(stems[name] for name in names if PART_NAMES[name] == part) for part in PARTS}
        doubled = [of_part for of_part in by_part.values() if len(of_part) > 1]
        if len(by_part["train"]) == 1 and (inner or not doubled):
            expected = {part: [("a", "b")] for part, of_part in by_part.items() if len(of_part) == 1}
            assert read(folder) == expected
            endings = ("en", "fr") if form == "texts" else ("tsv",)
            unused = {f"{stem}.{ending}" for of_part in doubled for stem in of_part for ending in endings}
            assert set(read_parts(folder, "en", "fr")["train"].unused) == unused
        else:
            with pytest.raises(DataError) as error:
                read(folder)
            assert inner or not doubled or any(all(stem in str(error.value) for stem in of_part) for of_part in doubled)


@pytest.mark.parametrize("names", [("train_raw.csv", "train_clean.csv"), ("train.csv", "train.jsonl")])
def test_several_tables_for_the_training_part_are_an_error_that_names_them(names: tuple[str, str]) -> None:
    for name in names:
        write(f"data/{name}", "a,b\n")
    with pytest.raises(DataError, match=r"^data has several names for the train part: ") as error:
        read()
    assert all(Path(name).stem in str(error.value) for name in names)


@pytest.mark.parametrize("ending", ["", "-6b3059e1c2b5cd27"])
def test_shards_of_one_table_belong_together(ending: str) -> None:
    for i, pair in enumerate(PAIRS):
        write_parquet(f"data/train-0000{i}-of-00004{ending}.parquet", en=[pair[0]], fr=[pair[1]])
    assert read() == {"train": PAIRS}


@pytest.mark.parametrize(("present", "says"), [([1], "2 are missing"), ([0, 2], "1 is missing")])
def test_missing_shards_are_an_error(present: list[int], says: str) -> None:
    for i in present:
        write(f"books/en-fr/train-0000{i}-of-00003.jsonl", '{"en": "a", "fr": "b"}\n')
    with pytest.raises(DataError, match=rf"train-0000.-of-00003\.jsonl is one of 3 shards, of which {says}"):
        read("books")


def test_an_unpacked_zip_of_opus_is_an_error_that_says_what_to_type() -> None:
    for name in ("Books.en-fr.en", "Books.en-fr.fr", "LICENSE", "README"):
        write(f"opus/{name}", "A.\n")
    with pytest.raises(DataError, match=r"type: --data opus/Books\.en-fr$"):
        read("opus")
    assert read("opus/Books.en-fr") == {"train": [("A.", "A.")]}


@pytest.mark.parametrize("form", ["texts", "table"])
def test_files_beside_the_data_that_look_like_data_are_named(form: str) -> None:
    write_part("data", "train", form)
    write_part("data", "dev", form)
    for name in ("more.tsv", "old.en.gz", "new.tmx", "README.md", "LICENSE", ".train.en", "prepare.py", "dev.de"):
        write(f"data/{name}", "")
    assert read_parts("data", "en", "fr")["train"].unused == ["more.tsv", "new.tmx", "old.en.gz"]


@pytest.mark.parametrize("form", ["texts", "table"])
def test_a_usual_name_comes_before_one_that_contains_it(form: str) -> None:
    for stem in ("train", "train.raw", "valid", "test_2016", "test_2017"):
        write_part("data", stem, form)
    assert set(read_parts("data", "en", "fr")) == {"train", "valid"}, "neither is chosen"
    write_part("data", "test", form)
    parts = read_parts("data", "en", "fr")
    assert set(parts) == set(PARTS)
    endings = ("en", "fr") if form == "texts" else ("tsv",)
    unused = {f"{stem}.{ending}" for stem in ("train.raw", "test_2016", "test_2017") for ending in endings}
    assert set(parts["train"].unused) == unused
