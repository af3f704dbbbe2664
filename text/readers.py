"""Read raw sentence pairs from whatever `--data` names, and report broken input by file and line.

`read_parts` accepts:

- a folder of train/valid/test.<language> files, where line N of one language translates line N of the other;
- NAME, for the two files NAME.<source> and NAME.<target>;
- one .tsv, .csv, .jsonl or .parquet file of sentence pairs;
- a dataset in the hub's layout: a local folder, or a hub id (OWNER/NAME).

Text files may be compressed (.gz). Pairs are streamed: each file is read once, from start to end, so an error may be
raised late in the iteration. Only a hub id uses the network, and no code from a dataset is ever executed.
"""

import contextlib
import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from config import TapisError
from system.files import digest, digest_files
from system.hub import hub_answers, is_hub_id
from text.sentences import replace_lone_surrogates

Pair = tuple[str, str]  # source side, target side
PARTS = ("train", "valid", "test")

# The splits of a hub dataset that are used, and the part that each becomes.
HUB_SPLITS = {"train": "train", "validation": "valid", "valid": "valid", "dev": "valid", "test": "test"}


class DataError(TapisError):
    """The data cannot be found, read or used. The message says why and what to do about it."""


@dataclass(frozen=True)
class Part:
    """One part of the data (train, valid or test), before cleaning."""

    pairs: Iterable[Pair]
    """Raw sentence pairs. Can be iterated once; raises DataError where the data is broken."""
    key: str
    """Hash of the content, used in cache keys"""


def read_parts(data: str, source: str, target: str) -> dict[str, Part]:
    """Return the parts that `data` provides, keyed by their names in PARTS.

    Args:
        data: a path or hub id, in one of the forms that the module docstring lists.
        source: language code of the source side.
        target: language code of the target side.

    Raises DataError where the data does not exist or has no such language pair.

    """
    path = Path(data).expanduser()

    if path.is_dir():
        languages = _languages(path)
        if languages:
            return _read_folder(path, source, target, languages)
        return _read_hub(str(path), source, target)

    if path.is_file():
        return {"train": _read_file(path, source, target)}

    # NAME.<source> and NAME.<target>
    source_file = _find_language_file(path, source)
    target_file = _find_language_file(path, target)
    if source_file and target_file:
        return {"train": _read_parallel_files(source_file, target_file)}
    if source_file or target_file:
        missing_language = target if source_file else source
        raise DataError(f"{source_file or target_file} exists, but {path}.{missing_language} does not")

    if is_hub_id(data):
        return _read_hub(data, source, target)

    raise DataError(
        f"--data {data}: no such file or folder, and not a hub id (OWNER/NAME)\n"
        "pass a file or a folder of train/valid/test.<language> files, or try: python train.py demo"
    )


# Parallel text files


def lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file without their line endings.

    The file may be gzip-compressed (.gz), start with a byte order mark, and end its lines with LF or CRLF. Raises
    DataError where the file cannot be read, decompressed or decoded.
    """
    bytes_before_line = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for line_number, raw_line in enumerate(file, 1):
                try:
                    line = raw_line.decode("utf-8")
                except UnicodeDecodeError as error:
                    location = f"line {line_number:,}, byte {bytes_before_line + error.start:,}"
                    raise DataError(f"{path} {location}: not UTF-8 (convert the file, e.g. with iconv)") from None
                bytes_before_line += len(raw_line)
                if line_number == 1:
                    line = line.removeprefix("\ufeff")  # byte order mark
                yield line.removesuffix("\n").removesuffix("\r")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is not a complete gzip file: {error}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None


def _read_parallel_files(source_file: Path, target_file: Path) -> Part:
    """A part stored as two files with one sentence per line."""
    return Part(_line_pairs(source_file, target_file), _content_key(source_file, target_file))


def _content_key(*files: Path) -> str:
    """Hash the contents of files. Raises DataError where one cannot be read."""
    try:
        return digest_files(files)
    except OSError as error:
        name = error.filename or " or ".join(map(str, files))
        raise DataError(f"{name} cannot be read: {error.strerror}") from None


def _line_pairs(source_file: Path, target_file: Path) -> Iterator[Pair]:
    """Pair the lines of two files. Raises DataError after the last pair where one file has more lines."""
    line_pairs = zip_longest(lines(source_file), lines(target_file))
    for n_pairs, (source_line, target_line) in enumerate(line_pairs):
        if source_line is None or target_line is None:
            # One file has ended. Count the remaining lines of the other for the message.
            n_longer = n_pairs + 1 + sum(1 for _ in line_pairs)
            n_source = n_pairs if source_line is None else n_longer
            n_target = n_pairs if target_line is None else n_longer
            raise DataError(
                f"{source_file} and {target_file} must have the same number of lines, "
                f"but have {n_source:,} and {n_target:,}"
            )
        yield source_line, target_line


def _find_language_file(stem: Path, language: str) -> Path | None:
    """The file stem.<language> or stem.<language>.gz, or None where neither exists."""
    for ending in ("", ".gz"):
        path = stem.with_name(f"{stem.name}.{language}{ending}")
        if path.is_file():
            return path
    return None


def _languages(folder: Path) -> list[str]:
    """The languages for which the folder has a train.<language> file, sorted."""
    languages = set()
    for path in folder.glob("train.*"):
        name_parts = path.name.removesuffix(".gz").split(".")
        if path.is_file() and len(name_parts) == 2 and f".{name_parts[1]}" not in _READERS:
            languages.add(name_parts[1])
    return sorted(languages)


def _read_folder(folder: Path, source: str, target: str, languages: list[str]) -> dict[str, Part]:
    for language in (source, target):
        if language not in languages:
            raise DataError(
                f"{folder} has no train.{language}\n"
                f"available languages (choose with --source and --target): {', '.join(languages)}"
            )

    parts = {}
    for name in PARTS:
        source_file = _find_language_file(folder / name, source)
        target_file = _find_language_file(folder / name, target)
        if source_file and target_file:
            parts[name] = _read_parallel_files(source_file, target_file)
        elif source_file:
            raise DataError(f"{folder / name}.{target} is missing, but {source_file.name} exists")
        elif target_file:
            raise DataError(f"{folder / name}.{source} is missing, but {target_file.name} exists")
    return parts


# Single files of sentence pairs


def _read_file(path: Path, source: str, target: str) -> Part:
    file_type = Path(path.name.removesuffix(".gz")).suffix
    is_compressed_parquet = path.suffix == ".gz" and file_type == ".parquet"  # Parquet compresses its own columns
    if file_type not in _READERS or is_compressed_parquet:
        raise DataError(
            f"--data {path}: a single file must end in {', '.join(_READERS)}; all but .parquet may add .gz\n"
            f"for two files, NAME.{source} and NAME.{target}, type: --data NAME"
        )
    return Part(_READERS[file_type](path, source, target), _content_key(path))


def _read_tsv(path: Path, source: str, target: str) -> Iterator[Pair]:
    numbered_rows = ((number, line.split("\t")) for number, line in enumerate(lines(path), 1))
    return _select_columns(path, numbered_rows, source, target)


def _read_csv(path: Path, source: str, target: str) -> Iterator[Pair]:
    reader = csv.reader((line + "\n" for line in lines(path)), strict=True)

    def numbered_rows() -> Iterator[tuple[int, list[str]]]:
        try:
            for row in reader:
                yield reader.line_num, row
        except csv.Error as error:
            raise DataError(f"{path} line {reader.line_num:,}: not CSV ({error})") from None

    return _select_columns(path, numbered_rows(), source, target)


def _select_columns(
    path: Path, numbered_rows: Iterator[tuple[int, list[str]]], source: str, target: str
) -> Iterator[Pair]:
    """Yield the source and target columns of a table.

    If the first row names both languages, it is a header and the columns may come in any order. Otherwise every row
    must have two columns, source first. Raises DataError at a row with another number of columns.
    """
    first_row = next(numbered_rows, None)
    if first_row is None:
        return

    header = [name.strip().lower() for name in first_row[1]]
    if source.lower() in header and target.lower() in header:
        n_columns = len(header)
        source_column = header.index(source.lower())
        target_column = header.index(target.lower())
        data_rows = numbered_rows
    else:
        n_columns = 2
        source_column = 0
        target_column = 1
        data_rows = chain([first_row], numbered_rows)

    for number, row in data_rows:
        if len(row) != n_columns:
            actual = "1 column" if len(row) == 1 else f"{len(row)} columns"
            raise DataError(f"{path} line {number:,}: {actual}, expected {n_columns} ({source} and {target})")
        yield row[source_column], row[target_column]


def _read_jsonl(path: Path, source: str, target: str) -> Iterator[Pair]:
    for number, line in enumerate(lines(path), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path} line {number:,}: not JSON ({error})") from None
        yield _pair_of_record(record, source, target, f"{path} line {number:,}")


def _pair_of_record(record: Any, source: str, target: str, location: str) -> Pair:
    """The sentence pair of one record: {"en": …, "fr": …}, or the same under "translation", as on the hub.

    null becomes an empty side. Raises DataError, which starts with `location`, where the record has another form.
    """
    if isinstance(record, dict) and isinstance(record.get("translation"), dict):
        record = record["translation"]
    if not isinstance(record, dict):
        raise DataError(f'{location}: expected {{"{source}": …, "{target}": …}}, got {json.dumps(record)[:40]}')

    for language in (source, target):
        if language not in record:
            fields = ", ".join(map(str, record)) or "none"
            raise DataError(f'{location}: no field "{language}" (fields: {fields})')
        if not isinstance(record[language], str | None):
            raise DataError(f'{location}: "{language}" must be a string, got {json.dumps(record[language])[:40]}')
    return replace_lone_surrogates(record[source] or ""), replace_lone_surrogates(record[target] or "")


def _read_parquet(path: Path, source: str, target: str) -> Iterator[Pair]:
    import pyarrow as pa  # noqa: PLC0415 - takes 0.1 s, which the other formats do not need
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        with pq.ParquetFile(path) as table:
            # Without a usable column, read all of them, so that the error can list the fields.
            columns = [name for name in table.schema_arrow.names if name in ("translation", source, target)]
            row_number = 0
            for batch in table.iter_batches(columns=columns or None):
                for record in batch.to_pylist():
                    row_number += 1
                    yield _pair_of_record(record, source, target, f"{path} row {row_number:,}")
    except pa.ArrowException as error:
        raise DataError(f"{path} is not a valid Parquet file: {str(error).splitlines()[0]}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from None


_READERS: dict[str, Callable[[Path, str, str], Iterator[Pair]]] = {
    ".tsv": _read_tsv,
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}


# Datasets in the hub's layout


def _read_hub(name: str, source: str, target: str) -> dict[str, Part]:
    """Read a dataset from the hub, or from a local folder in the hub's layout.

    Where the hub cannot be reached, a copy that an earlier run downloaded is used.
    """
    import datasets  # noqa: PLC0415 - takes 0.5 s, which other data does not need
    import huggingface_hub  # noqa: PLC0415

    # Without a connection, stop the hub's client from retrying for half a minute.
    is_local = Path(name).is_dir()
    is_offline = not is_local and not hub_answers(name, "dataset")
    if is_offline:
        datasets.config.HF_HUB_OFFLINE = True
        huggingface_hub.constants.HF_HUB_OFFLINE = True

    # load the language pair
    datasets.disable_progress_bars()
    try:
        splits = _load_language_pair(name, source, target)
    except DataError:
        raise
    except Exception as error:  # datasets, pyarrow and the hub's client each raise exceptions of their own
        if is_offline:
            raise DataError(
                f"the hub cannot be reached for {name}, and no downloaded copy of {source}-{target} exists\n"
                "try: python train.py demo, or: python train.py --data FOLDER"
            ) from None
        reason = " ".join(str(error).split())[:200]
        if is_local:
            raise DataError(
                f"{name} has no train.{source} and train.{target}, and is not a dataset in the hub's layout\n({reason})"
            ) from None
        raise DataError(f"{name} cannot be loaded: {reason}") from None

    # turn its splits into parts
    parts = {}
    for split_name, rows in splits.items():
        if split_name in HUB_SPLITS:
            parts[HUB_SPLITS[split_name]] = Part(_hub_pairs(name, rows, source, target), digest(rows._fingerprint))
    if "train" not in parts:
        raise DataError(f"{name} has no train split, only {', '.join(splits)}")
    return parts


def _hub_pairs(name: str, rows: Iterable[Any], source: str, target: str) -> Iterator[Pair]:
    for number, record in enumerate(rows, 1):
        yield _pair_of_record(record, source, target, f"{name} row {number:,}")


def _load_language_pair(name: str, source: str, target: str) -> Any:
    """The splits of a language pair, which the hub stores under only one of its two orders (en-fr or fr-en).

    Raises DataError where the dataset lacks the pair, and otherwise whatever `datasets` raises.
    """
    import datasets  # noqa: PLC0415

    forward = f"{source}-{target}"
    backward = f"{target}-{source}"

    # A downloaded copy has no list of language pairs: try both orders.
    if datasets.config.HF_HUB_OFFLINE and not Path(name).is_dir():
        with contextlib.suppress(ValueError):
            return datasets.load_dataset(name, forward)
        return datasets.load_dataset(name, backward)

    available = datasets.get_dataset_config_names(name)
    if forward in available:
        return datasets.load_dataset(name, forward)
    if backward in available:
        return datasets.load_dataset(name, backward)
    if available == ["default"]:  # a dataset without named language pairs
        return datasets.load_dataset(name, "default")
    raise DataError(
        f"{name} has neither {forward} nor {backward}\n"
        f"available pairs (choose with --source and --target): {', '.join(available)}"
    )
