"""Whatever `--data` names → pairs of raw texts for each part there is; what is broken is named by file and line.

`read_parts` tells apart a folder of train/valid/test.<language> files, two files NAME.<source> and NAME.<target>, one
.tsv, .csv, .jsonl or .parquet file (text files plain or .gz), a folder in the hub's layout, and a hub id. Pairs come
as iterators: a file is read once, from its start to its end, and an error in its last line is still an error. Only a
hub id touches the network, and no dataset's code is ever run.
"""

import contextlib
import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from config import TapisError
from system.files import digest, digest_files
from system.hub import hub_answers, is_hub_id
from text.sentences import whole_characters

Pair = tuple[str, str]
PARTS = ("train", "valid", "test")
HUB_PARTS = {"train": "train", "validation": "valid", "valid": "valid", "dev": "valid", "test": "test"}


class DataError(TapisError):
    """The data cannot be had or cannot be used, and what to do about it."""


@dataclass(frozen=True)
class Part:
    """One part of the data: its raw pairs, source side first, and a key of its content."""

    pairs: Iterable[Pair]
    """Read once; raises DataError, in words, where the data is broken"""
    key: str


def read_parts(data: str, source: str, target: str) -> dict[str, Part]:
    """The parts that data has. Raises DataError where there is no such data."""
    path = Path(data).expanduser()
    if path.is_dir():
        languages = _languages(path)
        return _read_folder(path, source, target, languages) if languages else _read_hub(str(path), source, target)
    if path.is_file():
        pairs = _read_file(path, source, target)
        try:
            return {"train": Part(pairs, digest_files([path]))}
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from None
    if halves := [half for half in (_find(path, source), _find(path, target)) if half]:
        if len(halves) == 1:
            raise DataError(f"{halves[0]} is there, but not its other language ({source} or {target})")
        return {"train": _aligned(halves[0], halves[1])}
    if is_hub_id(data):
        return _read_hub(data, source, target)
    raise DataError(
        f"--data {data}: no such file or folder, and no hub id (OWNER/NAME)\n"
        "type a file, a folder of train/valid/test.<language> files, or: python train.py demo"
    )


# Text files


def lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or .gz, with or without BOM, ended by LF or CRLF."""
    start = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                try:
                    text = raw.decode("utf-8")
                except UnicodeDecodeError as error:
                    where = f"line {number:,}, at byte {start + error.start:,}"
                    raise DataError(f"{path} {where}: not UTF-8 (convert it first, with iconv for example)") from None
                start += len(raw)
                yield (text.removeprefix("\ufeff") if number == 1 else text).removesuffix("\n").removesuffix("\r")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file: {error}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None


def _aligned(source: Path, target: Path) -> Part:
    try:
        return Part(_line_by_line(source, target), digest_files([source, target]))
    except OSError as error:
        raise DataError(f"{error.filename} cannot be read: {error.strerror}") from None


def _line_by_line(source: Path, target: Path) -> Iterator[Pair]:
    """Both must have as many lines."""
    sides, count = (lines(source), lines(target)), 0
    for left in sides[0]:
        right = next(sides[1], None)
        if right is None:
            total = count + 1 + sum(1 for _ in sides[0])
            raise DataError(f"{source} has {total:,} lines, {target} {count:,}: they must be pairs")
        count += 1
        yield left, right
    if more := sum(1 for _ in sides[1]):
        raise DataError(f"{source} has {count:,} lines, {target} {count + more:,}: they must be pairs")


def _find(stem: Path, language: str) -> Path | None:
    """stem.language, plain or .gz."""
    names = [stem.with_name(f"{stem.name}.{language}{ending}") for ending in ("", ".gz")]
    return next((path for path in names if path.is_file()), None)


def _languages(folder: Path) -> list[str]:
    """The languages of a folder's train.<language> files."""
    names = (path.name.removesuffix(".gz").split(".") for path in folder.glob("train.*") if path.is_file())
    return sorted({name[1] for name in names if len(name) == 2 and f".{name[1]}" not in _READERS})


def _read_folder(folder: Path, source: str, target: str, languages: list[str]) -> dict[str, Part]:
    if missing := [language for language in (source, target) if language not in languages]:
        raise DataError(
            f"{folder} has no train.{missing[0]}\nchoose among these with --source and --target: {', '.join(languages)}"
        )
    parts = {}
    for part in PARTS:
        halves = [_find(folder / part, language) for language in (source, target)]
        if halves[0] and halves[1]:
            parts[part] = _aligned(halves[0], halves[1])
        elif there := halves[0] or halves[1]:
            missing_one = source if there == halves[1] else target
            raise DataError(f"{folder / part}.{missing_one} is missing beside {there.name}")
    return parts


# Files of pairs


def _read_file(path: Path, source: str, target: str) -> Iterator[Pair]:
    kind = Path(path.name.removesuffix(".gz")).suffix
    if kind not in _READERS or (path.suffix == ".gz" and kind == ".parquet"):  # which is compressed already
        kinds = ", ".join(_READERS)
        raise DataError(
            f"--data {path}: one file must end in {kinds}, or be one of the first three with .gz\n"
            f"two files, NAME.{source} and NAME.{target}, are given as --data NAME"
        )
    return _READERS[kind](path, source, target)


def _read_tsv(path: Path, source: str, target: str) -> Iterator[Pair]:
    return _columns(path, ((n, line.split("\t")) for n, line in enumerate(lines(path), 1)), source, target)


def _read_csv(path: Path, source: str, target: str) -> Iterator[Pair]:
    reader = csv.reader((line + "\n" for line in lines(path)), strict=True)

    def rows() -> Iterator[tuple[int, list[str]]]:
        try:
            for row in reader:
                yield reader.line_num, row
        except csv.Error as error:
            raise DataError(f"{path} line {reader.line_num:,}: not CSV ({error})") from None

    return _columns(path, rows(), source, target)


def _columns(path: Path, rows: Iterator[tuple[int, list[str]]], source: str, target: str) -> Iterator[Pair]:
    """Two columns, source first; or any, named by a first row that has both languages in it."""
    first = next(rows, None)
    if first is None:
        return
    header = [name.strip().lower() for name in first[1]]
    is_header = source.lower() in header and target.lower() in header
    width, left, right = 2, 0, 1
    if is_header:
        width, left, right = len(header), header.index(source.lower()), header.index(target.lower())
    for number, row in rows if is_header else chain([first], rows):
        if len(row) != width:
            columns = f"{len(row)} column{'s' * (len(row) != 1)}"
            raise DataError(f"{path} line {number:,}: {columns}, expected {width} ({source} and {target})")
        yield row[left], row[right]


def _read_jsonl(path: Path, source: str, target: str) -> Iterator[Pair]:
    for number, line in enumerate(lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path} line {number:,}: not JSON ({error})") from None
        yield _translation(row, source, target, f"{path} line {number:,}")


def _translation(row: Any, source: str, target: str, where: str) -> Pair:
    """{"en": …, "fr": …}, or the same under "translation", as on the hub."""
    if isinstance(row, dict) and isinstance(row.get("translation"), dict):
        row = row["translation"]
    if not isinstance(row, dict):
        raise DataError(f'{where}: expected {{"{source}": …, "{target}": …}}, found {json.dumps(row)[:40]}')
    for language in (source, target):
        if language not in row:
            raise DataError(f'{where}: no "{language}"; there are {", ".join(map(str, row)) or "no fields"}')
        if not isinstance(row[language], str | None):
            raise DataError(f'{where}: "{language}" is {json.dumps(row[language])[:40]}; text expected')
    return whole_characters(row[source] or ""), whole_characters(row[target] or "")


def _read_parquet(path: Path, source: str, target: str) -> Iterator[Pair]:
    import pyarrow as pa  # noqa: PLC0415 - a tenth of a second that other formats do without
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        with pq.ParquetFile(path) as table:
            number = 0
            wanted = [name for name in table.schema_arrow.names if name in ("translation", source, target)]
            for batch in table.iter_batches(columns=wanted or None):
                for row in batch.to_pylist():
                    number += 1
                    yield _translation(row, source, target, f"{path} row {number:,}")
    except pa.ArrowException as error:
        raise DataError(f"{path} is not a whole parquet file: {str(error).splitlines()[0]}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from None


_READERS: dict[str, Callable[[Path, str, str], Iterator[Pair]]] = {
    ".tsv": _read_tsv,
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}


# The hub, and folders in its layout


def _read_hub(name: str, source: str, target: str) -> dict[str, Part]:
    """The parts of a dataset in the hub's layout, on the hub or in a folder, in either order of the pair."""
    import datasets  # noqa: PLC0415 - half a second that no other data needs
    import huggingface_hub  # noqa: PLC0415

    is_offline = not Path(name).is_dir() and not hub_answers(name, "dataset")
    if is_offline:  # what an earlier run has fetched is still used, and a dead line not retried
        datasets.config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = True
    datasets.disable_progress_bars()
    try:
        loaded = _load_pair(name, source, target)
    except DataError:
        raise
    except Exception as error:  # datasets, pyarrow and the hub's client each raise their own
        if is_offline:
            raise DataError(
                f"the hub cannot be reached for {name}, and no earlier copy of {source}-{target} is here\n"
                "type instead: python train.py demo, or: python train.py --data FOLDER"
            ) from None
        reason = " ".join(str(error).split())[:200]
        if Path(name).is_dir():
            raise DataError(
                f"{name} has no train.{source} and train.{target}, and is no dataset in the hub's layout\n({reason})"
            ) from None
        raise DataError(f"{name} cannot be loaded: {reason}") from None
    parts = {}
    for part, rows in loaded.items():
        if part in HUB_PARTS:
            pairs = (_translation(row, source, target, f"{name} row {n:,}") for n, row in enumerate(rows, 1))
            parts[HUB_PARTS[part]] = Part(pairs, digest(rows._fingerprint))
    if "train" not in parts:
        raise DataError(f"{name} has no train split, only {', '.join(loaded)}")
    return parts


def _load_pair(name: str, source: str, target: str) -> Any:
    """The splits of the pair, which the hub stores once, in either order. Raises what `datasets` raises."""
    import datasets  # noqa: PLC0415

    either = [f"{source}-{target}", f"{target}-{source}"]
    if datasets.config.HF_HUB_OFFLINE and not Path(name).is_dir():  # copies have no list of pairs, so both are tried
        with contextlib.suppress(ValueError):
            return datasets.load_dataset(name, either[0])
        return datasets.load_dataset(name, either[1])
    pairs = datasets.get_dataset_config_names(name)
    found = [pair for pair in either if pair in pairs] or (pairs if pairs == ["default"] else [])
    if not found:
        raise DataError(
            f"{name} has neither {either[0]} nor {either[1]}\n"
            f"choose among these with --source and --target: {', '.join(pairs)}"
        )
    return datasets.load_dataset(name, found[0])
