"""Every form of data gives the same pairs; everything broken is named by its place."""

import gzip
import json
from pathlib import Path

import pytest

from text.readers import DataError, Pair, lines, read_parts

PAIRS = [
    ("One.", "Un."),
    ("Two, “or so”.", "Deux, « environ »."),
    ("Three\u2028lines", "Trois\x0blignes"),
    ("😀", "e\u0301"),
]
LINES = [["".join(pair[side] + "\n" for pair in PAIRS) for side in (0, 1)]][0]


def read(data: str = "data", source: str = "en", target: str = "fr") -> dict[str, list[Pair]]:
    return {name: list(part.pairs) for name, part in read_parts(data, source, target).items()}


def write(name: str, content: str | bytes) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)


def parquet(name: str, **columns: list[object]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    Path(name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), name)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_folder_of_parts(ending: str) -> None:
    for part in ("train", "valid", "test"):
        write(f"data/{part}.en{ending}", LINES[0])
        write(f"data/{part}.fr{ending}", LINES[1])
    assert read() == {"train": PAIRS, "valid": PAIRS, "test": PAIRS}
    assert read(source="fr", target="en")["train"] == [(b, a) for a, b in PAIRS]


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_two_files(ending: str) -> None:
    write(f"sub/books.en{ending}", LINES[0])
    write(f"sub/books.fr{ending}", LINES[1])
    assert read("sub/books") == {"train": PAIRS}


JSONL = "".join(json.dumps({"en": en, "fr": fr}) + "\n" for en, fr in PAIRS)
HUB_JSONL = "".join(json.dumps({"id": 1, "translation": {"en": en, "fr": fr}}) + "\n\n" for en, fr in PAIRS)
TSV = "".join(f"{en}\t{fr}\n" for en, fr in PAIRS)
CSV = "".join(f'"{en}","{fr}"\n' for en, fr in PAIRS)


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("tsv", TSV),
        ("tsv", "en\tfr\n" + TSV),
        ("tsv", TSV.replace("\n", "\r\n")),
        ("tsv", "\ufeff" + TSV),
        ("tsv", "id\tFR\tEN\n" + "".join(f"1\t{fr}\t{en}\n" for en, fr in PAIRS)),
        ("csv", CSV),
        ("csv", "fr,en\n" + "".join(f'"{fr}","{en}"\n' for en, fr in PAIRS)),
        ("jsonl", JSONL),
        ("jsonl", HUB_JSONL),
    ],
)
def test_one_file(kind: str, content: str, ending: str) -> None:
    write(f"data.{kind}{ending}", content)
    assert read(f"data.{kind}{ending}") == {"train": PAIRS}


def test_parquet_with_columns_or_translations() -> None:
    parquet("a.parquet", id=list(range(4)), fr=[p[1] for p in PAIRS], en=[p[0] for p in PAIRS])
    parquet("b.parquet", translation=[{"en": en, "fr": fr} for en, fr in PAIRS])
    assert read("a.parquet") == read("b.parquet") == {"train": PAIRS}


def test_a_quoted_csv_field_may_hold_lines_and_commas() -> None:
    write("data.csv", 'en,fr\n"a, b","c ""d""\ne"\n')
    assert read("data.csv") == {"train": [("a, b", 'c "d"\ne')]}


def test_null_is_an_empty_side() -> None:
    write("data.jsonl", '{"en": null, "fr": "x"}\n')
    assert read("data.jsonl") == {"train": [("", "x")]}


def test_a_missing_last_line_feed_is_no_line() -> None:
    write("f", "a\n\nb")
    assert list(lines(Path("f"))) == ["a", "", "b"]
    write("empty", "")
    assert list(lines(Path("empty"))) == []


BAD = "a\tb\n"

BROKEN: dict[str, tuple[dict[str, str | bytes], str, str]] = {
    "a row of three columns": ({"d.tsv": BAD * 6 + "x\ty\tz\n"}, "d.tsv", "d.tsv line 7: 3 columns, expected 2"),
    "a row of one column": ({"d.tsv": BAD + "xy\n"}, "d.tsv", "d.tsv line 2: 1 column, expected 2"),
    "an empty line in a table": ({"d.tsv": BAD + "\n" + BAD}, "d.tsv", "d.tsv line 2: 1 column, expected 2"),
    "a short row under a header": ({"d.csv": "id,en,fr\n1,a\n"}, "d.csv", "d.csv line 2: 2 columns, expected 3"),
    "an open quote": ({"d.csv": 'a,b\n"c,d\n'}, "d.csv", r"d.csv line 2: not CSV"),
    "a quote in a word": ({"d.csv": 'a,b\n"c"x,d\n'}, "d.csv", r"d.csv line 2: not CSV"),
    "an enormous field": ({"d.csv": "a," + "b" * 200_000 + "\n"}, "d.csv", r"d.csv line 1: not CSV \(field larger"),
    "a line that is not JSON": ({"d.jsonl": '{"en": "a", "fr": "b"}\n{"en":\n'}, "d.jsonl", "d.jsonl line 2: not JSON"),
    "JSON as deep as a mine": ({"d.jsonl": "[" * 100_000}, "d.jsonl", "d.jsonl line 1: not JSON"),
    "a list": ({"d.jsonl": "[1, 2]\n"}, "d.jsonl", r'd.jsonl line 1: expected {"en": …, "fr": …}, found \[1, 2\]'),
    "another language": (
        {"d.jsonl": '{"en": "a", "de": "b"}\n'},
        "d.jsonl",
        'd.jsonl line 1: no "fr"; there are en, de',
    ),
    "a number": ({"d.jsonl": '{"en": "a", "fr": 5}\n'}, "d.jsonl", 'd.jsonl line 1: "fr" is 5; text expected'),
    "no columns": ({"d.jsonl": "{}\n"}, "d.jsonl", 'line 1: no "en"; there are no fields'),
    "Latin-1 in a table": ({"d.tsv": b"a\tb\nc\td\xe9\n"}, "d.tsv", "d.tsv line 2, at byte 7: not UTF-8"),
    "UTF-16": ({"d.tsv": "a\tb\n".encode("utf-16")}, "d.tsv", "d.tsv line 1, at byte 0: not UTF-8"),
    "Latin-1 in a folder": (
        {"data/train.en": b"ok\n" * 400 + b"\xff\n", "data/train.fr": "x\n" * 401},
        "data",
        r"train.en line 401, at byte 1,200: not UTF-8",
    ),
    "half a gzip file": ({"d.tsv.gz!": gzip.compress(BAD.encode() * 999)[:-20]}, "d.tsv.gz", "not a whole gzip file"),
    "no gzip file": ({"d.tsv.gz!": b"a\tb\n"}, "d.tsv.gz", "not a whole gzip file"),
    "a damaged gzip file": (
        {"d.tsv.gz!": gzip.compress(b"a\tb\n")[:10] + b"\xff" * 30},
        "d.tsv.gz",
        "not a whole gzip file",
    ),
    "no parquet file": ({"d.parquet": b"PAR1 nonsense"}, "d.parquet", "not a whole parquet file"),
    "an empty parquet file": ({"d.parquet": b""}, "d.parquet", "not a whole parquet file"),
    "another kind of file": ({"d.xlsx": b"x"}, "d.xlsx", r"must end in .tsv, .csv, .jsonl, .parquet"),
    "a file of one language": (
        {"books.en": "a\n"},
        "books.en",
        r"two files, NAME.en and NAME.fr, are given as --data NAME",
    ),
    "one of two files": ({"books.en": "a\n"}, "books", r"books.en is there, but not its other language"),
    "one line too few": (
        {"data/train.en": "a\n" * 29_000, "data/train.fr": "b\n" * 28_999},
        "data",
        r"train.en has 29,000 lines, data/train.fr 28,999",
    ),
    "one line too many": (
        {"data/train.en": "a\n", "data/train.fr": "b\nc\nd\n"},
        "data",
        "train.en has 1 lines, data/train.fr 3",
    ),
    "a part in one language": (
        {"data/train.en": "a\n", "data/train.fr": "b\n", "data/valid.fr": "c\n"},
        "data",
        "valid.en is missing beside valid.fr",
    ),
    "a folder of other languages": (
        {"data/train.de": "a\n", "data/train.cs": "b\n"},
        "data",
        r"no train.en\nchoose among these with --source and --target: cs, de",
    ),
    "an empty folder": (
        {"data/notes.md": "hello"},
        "data",
        r"data has no train.en and train.fr, and is no dataset in the hub's layout\n",
    ),
    "nothing": ({}, "data", r"no such file or folder.*\n.*python train.py demo"),
    "a path that is no path": ({}, "/no/such/file.tsv", "no such file or folder"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_named(case: str) -> None:
    files, data, says = BROKEN[case]
    for name, content in files.items():
        if isinstance(content, bytes) and name.endswith("!"):
            Path(name[:-1]).write_bytes(content)
        else:
            write(name, content)
    with pytest.raises(DataError, match=says) as error:
        read(data)
    assert len(str(error.value).splitlines()) <= 2


def test_a_file_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    write("d.tsv", BAD)

    def refuse(*args: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=r"d\.tsv cannot be read: Permission denied"):
        read("d.tsv")
