"""Read raw sentence pairs from whatever `--data` names, and report broken input by file and line.

`read_parts` accepts:

- a folder of train/valid/test.<language> files, where line N of one language translates line N of the other;
- NAME, for the two files NAME.<source> and NAME.<target>;
- one table of sentence pairs: a .csv or .tsv file, or a .txt file with tabs (spreadsheets.py), a .xlsx or .ods file
  (workbooks.py), a .parquet file (parquet.py) or a .jsonl file;
- one .tmx file, a translation memory (tmx.py);
- one .zip file of two parallel text files, as OPUS offers them (moses_zip.py);
- a dataset in the hub's layout: a local folder, or a hub id (OWNER/NAME).

Text files may be compressed (.gz, .xz or .zst). Pairs are streamed, from the start of a file to its end, so an error
may be raised late in the iteration. Before and after, the file is hashed for the keys of caches. Only a hub id uses the
network, and no code from a dataset is ever executed.
"""

import contextlib
import functools
import json
import re
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from pairs.columns import are_found_by_language, find_fields, is_number, quoted
from pairs.moses_zip import read_moses_zip
from pairs.parquet import RECORD, fields_of_parquet, read_parquet
from pairs.spreadsheets import Table, open_table
from pairs.unreadable import RawRow, Unreadable, check_share, not_in_utf8, text_pairs
from pairs.workbooks import open_workbook
from tapis.system.files import digest, digest_files
from tapis.system.hub import hub_answers, is_on_hub
from tapis.system.terminal import in_one_line, listed
from tapis.text.lines import (
    COMPRESSED_ENDINGS,
    ESCAPED,
    MAX_LINE_BYTES,
    DataError,
    file_type,
    line_pairs,
    lines,
    without_compressed_ending,
)
from tapis.text.sentences import replace_lone_surrogates
from tapis.text.tmx import read_tmx

PARTS = ("train", "valid", "test")
CLOCK_STEP = 2_000_000_000  # nanoseconds: two changes within it may leave the same time of change
MOST_TYPED = 3  # files that an error names to be typed

# The usual names of parts, as the hub's library `datasets` knows them, and the part that each becomes.
PART_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "valid"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}


@dataclass(frozen=True)
class Part:
    """One part of the data (train, valid or test), before cleaning."""

    rows: Iterable[RawRow]
    """Raw sentence pairs, and the rows that cannot be read, which are skipped. Can be iterated once; raises DataError
    where the data is broken."""
    key: str
    """Hash of the content, used in cache keys"""
    unused: Sequence[str] = ()
    """Of the train part: names of other files or splits beside the data that look like data and that no part uses"""
    forms: Sequence[str] = ()
    """How its tables are written, for the report: their encoding, separator and header, where these were found"""


def read_parts(
    data: str, source: str, target: str, columns: tuple[str, ...] = (), *, is_of_several: bool = False
) -> dict[str, Part]:
    """Return the parts that `data` provides, keyed by their names in PARTS.

    Args:
        data: a path or hub id, in one of the forms that the module docstring lists.
        source: language code of the source side.
        target: language code of the target side.
        columns: which columns of a table are the source and the target side, each by its number from 1 or by its name
            in the header. In .jsonl and .parquet files, the names of two fields. Empty: found by the languages. The
            two languages themselves: found by them, too, but in a header that names them.
        is_of_several: whether the data have other language pairs, too. The header of a table must then name the
            languages: its first two columns, or two sides, would be the same for every pair. In the hub's layout, a
            table may be in the folder of its pair instead.

    Raises DataError where the data does not exist or has no such language pair.

    """
    path = local_path(data)

    if path.is_file():
        named = (source, target) if is_of_several and _is_table(path) else columns
        return {"train": _read_file(path, source, target, named)}
    if columns:
        raise _no_columns(data)

    if path.is_dir():
        languages = _languages(path)
        if languages or "train" in _stems_of_parts(path, source, target):
            return _read_folder(path, source, target, languages)
        return _read_layout(path, source, target, is_of_several)

    # NAME.<source> and NAME.<target>
    source_file = _find_language_file(path, source)
    target_file = _find_language_file(path, target)
    if source_file and target_file:
        return {"train": _read_parallel_files(source_file, target_file)}
    if source_file or target_file:
        missing_language = target if source_file else source
        guess = _renaming(path, source, target)
        raise DataError(
            f"{source_file or target_file} exists, but {path}.{missing_language} does not" + (guess and f"\n{guess}")
        )

    if path.exists():
        raise DataError(f"--data {data} is neither a file nor a folder")
    guess = _renaming(path, source, target)
    if is_on_hub(data) and not guess:
        return _read_hub(data, source, target)

    raise DataError(
        f"--data {data}: no such file or folder{'' if guess else ', and not a hub id (OWNER/NAME)'}\n"
        + (
            guess
            or f"there are no {path}.{source} and {path}.{target} either; pass such a NAME of two files, a file or a "
            "folder of train/valid/test.<language> files, or try: python train.py demo"
        )
    )


def local_path(data: str) -> Path:
    """Return the path that `data` may be. Raises DataError for ~NAME/… where no user is called NAME."""
    try:
        return Path(data).expanduser()
    except RuntimeError:
        raise DataError(f"{data}: this machine has no home folder {data.partition('/')[0]}") from None


def read_text(name: str) -> Part:
    """Return a file of sentences in one language, one per line: pairs with an empty source side.

    Raises DataError where the file does not exist.
    """
    path = local_path(name)
    if not path.is_file():
        raise DataError(f"--monolingual {name}: no such file")
    key = _content_key(path)
    rows = text_pairs((("", line) for line in lines(path, errors=ESCAPED)), "", str(path))
    return Part(_unchanged(check_share(rows), key, path), key)


# Parallel text files


def _read_parallel_files(source_file: Path, target_file: Path) -> Part:
    """Return a part stored as two files with one sentence per line."""
    names = str(source_file), str(target_file)
    pairs = line_pairs(lines(source_file, errors=ESCAPED), lines(target_file, errors=ESCAPED), *names)
    key = _content_key(source_file, target_file)
    return Part(_unchanged(check_share(text_pairs(pairs, *names)), key, source_file, target_file), key)


def _content_key(*files: Path, anew: bool = False) -> str:
    """Hash the contents of files. Raises DataError where one cannot be read.

    A file that several language pairs open is hashed once. With `anew`, it is hashed again.
    """
    try:
        return digest(*(digest_files([file]) if anew else _hash_of(file) for file in files))
    except OSError as error:
        name = error.filename or " or ".join(map(str, files))
        raise DataError(f"{name} cannot be read: {error.strerror}") from None


def _hash_of(file: Path) -> str:
    """Return the hash of a file, from before if the file is the same by its size and time."""
    status = file.stat()
    if time.time_ns() - status.st_mtime_ns < CLOCK_STEP:
        return digest_files([file])
    return _known_hash(file.absolute(), status.st_ino, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=1000)
def _known_hash(file: Path, inode: int, size: int, changed_at: int) -> str:
    return digest_files([file])


def _unchanged(rows: Iterable[RawRow], key: str, *files: Path) -> Iterator[RawRow]:
    """Yield the rows of files. Raises DataError at the end if the files changed since `key` was computed.

    Otherwise the cache would have the pairs of one content under the key of another.
    """
    yield from rows
    if _content_key(*files, anew=True) != key:
        raise DataError(f"{' or '.join(map(str, files))} changed while it was read: start again")


def _find_language_file(stem: Path, language: str) -> Path | None:
    """Return the file stem.<language>, with or without the ending of a compressed file, or None where none exists."""
    for ending in ("", *COMPRESSED_ENDINGS):
        path = stem.with_name(f"{stem.name}.{language}{ending}")
        if path.is_file():
            return path
    return None


def _usual_name(name: str) -> str:
    """Return the first usual name of a part among the words of a file's name; nothing without one."""
    return next((word for word in re.findall(r"[a-z]+", name.lower()) if word in PART_NAMES), "")


def _stems(folder: Path, language: str) -> set[str]:
    """Return what the names of a language's text files have before its code: train for train.en.gz."""
    names = [without_compressed_ending(path.name) for path in folder.glob("*") if path.is_file()]
    stems = {name.removesuffix(f".{language}") for name in names if name.endswith(f".{language}")}
    return {stem for stem in stems if stem and not stem.startswith(".")}


def _languages(folder: Path) -> list[str]:
    """Return the languages for which the folder has a file train.<language> or training.<language>, sorted."""
    languages = set()
    for path in folder.glob("train*.*"):
        stem, *endings = without_compressed_ending(path.name).split(".")
        is_train = PART_NAMES.get(stem) == "train"
        if path.is_file() and is_train and len(endings) == 1 and f".{endings[0]}" not in _FILE_TYPES:
            languages.add(endings[0])
    return sorted(languages)


def _read_folder(folder: Path, source: str, target: str, languages: list[str]) -> dict[str, Part]:
    """Read a folder of text files. `languages` are those of files train.<language>; without them, names contain it."""
    for language in (source, target):
        if languages and language not in languages:
            available = listed(languages, 100)
            raise DataError(
                f"{folder} has no train.{language}\n"
                + (
                    _renaming(folder / "train", source, target)
                    or f"available languages (choose with --source and --target, or --pairs): {available}"
                )
            )

    parts = {}
    used = []
    for part, stem in _stems_of_parts(folder, source, target).items():
        source_file = _find_language_file(folder / stem, source)
        target_file = _find_language_file(folder / stem, target)
        if source_file and target_file:
            parts[part] = _read_parallel_files(source_file, target_file)
            used += [source_file, target_file]
        elif source_file:
            raise DataError(f"{folder / stem}.{target} is missing, but {source_file.name} exists")
        elif target_file:
            raise DataError(f"{folder / stem}.{source} is missing, but {target_file.name} exists")
    return _with_unused(parts, _unused_files([folder], used, source, target))


def _stems_of_parts(folder: Path, source: str, target: str) -> dict[str, str]:
    """Return for each part the name of its text files without the language. Both files must exist for a longer name."""
    in_source, in_target = _stems(folder, source), _stems(folder, target)
    return _names_of_parts(str(folder), in_source | in_target, in_source & in_target)


def _names_of_parts(data: str, names: Collection[str], longer_names: Collection[str]) -> dict[str, str]:
    """Return for each part the name of its files, without their endings.

    A usual name, such as dev, comes before a longer name that contains one, such as news-dev. Of several longer ones,
    such as test_2016 and test_2017, none is used. Raises DataError where a part has several usual names.
    """
    found = {}
    for part in PARTS:
        usual = sorted(name for name in names if PART_NAMES.get(name) == part)
        longer = [name for name in longer_names if PART_NAMES.get(_usual_name(name)) == part]
        if len(usual) > 1:
            raise _several_names(data, part, usual)
        if usual or len(longer) == 1:
            found[part] = (usual or longer)[0]
    return found


def _several_names(data: str, part: str, names: Sequence[str]) -> DataError:
    return DataError(
        f"{data} has several names for the {part} part: {listed(names)}\n"
        f"keep one, and move the others away; call tables that belong together {part}-00000-of-00002 and so on"
    )


def _unused_files(folders: Iterable[Path], used: Collection[Path], source: str, target: str) -> list[str]:
    """Return the names of the files in some folders that are not used and look like data in one of two languages."""
    endings = {f".{source.lower()}", f".{target.lower()}", *_FILE_TYPES}
    found = [path for folder in folders for path in sorted(folder.glob("*")) if path not in used and path.is_file()]
    return [path.name for path in found if not path.name.startswith(".") and file_type(path) in endings]


def _with_unused(parts: Mapping[str, Part], unused: Sequence[str]) -> dict[str, Part]:
    """Return parts, of which train has the names of what is not used."""
    return {**parts, "train": replace(parts["train"], unused=unused)}


# Single files of sentence pairs


def _read_file(path: Path, source: str, target: str, columns: tuple[str, ...]) -> Part:
    # find the type of the file
    type_of_file = file_type(path)
    is_compressed_twice = path.suffix in COMPRESSED_ENDINGS and type_of_file in _COMPRESSED_TYPES
    if type_of_file not in (*_TABLE_READERS, *_READERS) or is_compressed_twice:
        raise DataError(
            f"--data {path}: a single file must end in {', '.join((*_TABLE_READERS, *_READERS))}; "
            f"all but {listed(_COMPRESSED_TYPES)} may add {', '.join(COMPRESSED_ENDINGS)}\n"
            f"for two files, NAME.{source} and NAME.{target}, type: --data NAME"
        )

    # read it
    if type_of_file in _TABLE_READERS:
        table = _TABLE_READERS[type_of_file](path, source, target, columns)
    elif columns:
        raise _no_columns(str(path))
    else:
        table = Table("", _READERS[type_of_file](path, source, target))
    key = _content_key(path)
    forms = [table.form] if table.form else []
    return Part(_unchanged(check_share(table.rows), key, path), digest(type_of_file, *columns, key), forms=forms)


def takes_columns(data: str) -> bool:
    """Return whether --columns can choose the columns of some data: whether it is a file of a table."""
    return _is_table(local_path(data))


def _no_columns(data: str) -> DataError:
    *first_types, last_type = _TABLE_READERS
    return DataError(f"--columns is for {', '.join(first_types)} and {last_type} files, not for --data {data}")


def _how_to_choose_fields(path: Path) -> str:
    return f"\ntype: --data {in_one_line(shlex.quote(str(path)))} --columns and the names of two fields, source first"


def _open_jsonl(path: Path, source: str, target: str, columns: tuple[str, ...]) -> Table:
    names = _first_fields(path)
    fields = _choose_fields(path, names, source, target, columns)
    advice = "" if columns or set(fields) <= set(names) else _how_to_choose_fields(path)
    return Table(_form_of_fields(fields, source, target), _read_jsonl(path, *fields, advice))


def _read_jsonl(path: Path, source_field: str, target_field: str, advice: str) -> Iterator[RawRow]:
    for number, line in enumerate(lines(path, errors=ESCAPED), 1):
        if not line.strip():
            continue
        if row := not_in_utf8(line, f"{path} line {number:,}"):
            yield row
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield Unreadable(f"{path} line {number:,}", f"not JSON ({error})")
            continue
        yield _pair_of_record(record, source_field, target_field, f"{path} line {number:,}", advice)


def _first_fields(path: Path) -> list[str]:
    """Return the names of the fields of the first record of a .jsonl file; none if it is not a record."""
    line = next((line for line in lines(path, errors=ESCAPED) if line.strip()), "")
    with contextlib.suppress(ValueError, RecursionError):
        record = json.loads(line)
        return _names_of_fields(record)
    return []


def _names_of_fields(record: Any) -> list[str]:
    """Return the names of the fields of a record, or of its translation; none if it is not a record."""
    if not isinstance(record, dict):
        return []
    inner = record.get(RECORD)
    return list(inner if isinstance(inner, dict) else record)


def _choose_fields(
    path: Path, names: Sequence[str], source: str, target: str, columns: tuple[str, ...]
) -> tuple[str, str]:
    """Return the two fields of a record, given the names of all."""
    if are_found_by_language(columns, source, target):
        return find_fields(names, source, target, or_sides=not columns)
    if any(map(is_number, columns)):
        raise DataError(f"{path} has fields, not numbered columns: type --columns and the names of two fields")
    source_field, target_field = columns
    return source_field, target_field


def _form_of_fields(fields: tuple[str, str], source: str, target: str) -> str:
    """Return the names of fields for the report, where they are not the languages themselves."""
    return "" if fields == (source, target) else f"fields {', '.join(map(quoted, fields))}"


def _pair_of_record(record: Any, source: str, target: str, location: str, advice: str) -> RawRow:
    """Return the sentence pair of one record: {"en": …, "fr": …}, or the same under "translation", as on the hub.

    `source` and `target` are the names of the two fields. null becomes an empty side, and as a translation two. A
    record of another form is unreadable; `location` is where it is, and `advice` what to do if it lacks a field.
    """
    if isinstance(record, dict) and "translation" in record:
        has_both_fields = source in record and target in record
        translation = record["translation"]
        if translation is None and not has_both_fields:
            return "", ""
        record = record if has_both_fields or not isinstance(translation, dict) else translation
    if not isinstance(record, dict):
        return Unreadable(location, f'expected {{"{source}": …, "{target}": …}}, got {_shown(record)}')

    for language in (source, target):
        if language not in record:
            return Unreadable(location, f'no field "{language}" (fields: {listed(record)}){advice}')
        if not isinstance(record[language], str | None):
            return Unreadable(location, f'"{language}" must be a string, got {_shown(record[language])}')
    return replace_lone_surrogates(record[source] or ""), replace_lone_surrogates(record[target] or "")


def _shown(value: Any) -> str:
    """Return the start of a value of JSON, or its kind if it is nested too deeply to be written."""
    try:
        return in_one_line(json.dumps(value, default=repr), 40)
    except RecursionError:
        return f"a {type(value).__name__}"


def _open_parquet(path: Path, source: str, target: str, columns: tuple[str, ...]) -> Table:
    fields = _choose_fields(path, fields_of_parquet(path), source, target, columns)
    advice = "" if columns else _how_to_choose_fields(path)
    return Table(_form_of_fields(fields, source, target), read_parquet(path, *fields, advice))


def _read_memory(path: Path, source: str, target: str) -> Iterator[RawRow]:
    note = yield from read_tmx(path, source, target)
    if note:
        yield Unreadable("", note)


# Readers by the ending of the file. Those of tables also take the columns.
_TABLE_READERS: dict[str, Callable[[Path, str, str, tuple[str, ...]], Table]] = {
    ".csv": open_table,
    ".tsv": open_table,
    ".txt": open_table,
    ".xlsx": open_workbook,
    ".ods": open_workbook,
    ".jsonl": _open_jsonl,
    ".parquet": _open_parquet,
}
_READERS: dict[str, Callable[[Path, str, str], Iterator[RawRow]]] = {".tmx": _read_memory, ".zip": read_moses_zip}
_FILE_TYPES = {*_TABLE_READERS, *_READERS} - {".txt"}  # of data in a folder, where .txt may be anything
_COMPRESSED_TYPES = (".xlsx", ".ods", ".parquet", ".zip")  # compressed in themselves
_OTHER_COMPRESSED = {".bz2", ".7z", ".lzma", ".lz", ".lz4", ".z", ".rar"}  # which are not read


# Datasets in the hub's layout

# The name of the folder of a pair: two codes of languages, such as en-pt_BR
_PAIR = re.compile("-".join(["[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8}){0,2}"] * 2))

# What the name of a shard has beside that of its table
_SHARD = re.compile(r"-(?P<number>\d{5})-of-(?P<total>\d{5})(-[0-9a-f]{16})?(?=\.)")


def _read_layout(folder: Path, source: str, target: str, is_of_several: bool) -> dict[str, Part]:
    """Read a local folder in the hub's layout: tables SPLIT*.parquet, or of another type, in a folder for the pair.

    Its README.md, which may name any path or address, is not read. With is_of_several, tables outside of such a folder
    name the languages.
    """
    names = (f"{source}-{target}", f"{target}-{source}")
    places = (folder, folder / "data")
    found = [place / name for name in names for place in places if (place / name).is_dir()]
    others = [path for place in places for path in place.glob("*-*") if path.is_dir() and _PAIR.fullmatch(path.name)]
    of_other_pairs = DataError(
        f"{folder} has neither {names[0]} nor {names[1]}\navailable pairs (choose with --source and --target, or "
        f"--pairs): {listed(sorted({path.name for path in others}), 100)}"
    )
    if not found and any(any(path.glob("train*")) for path in others):  # what lies beside them is of no other pair
        raise of_other_pairs
    tables: dict[str, list[Path]] = {}
    for path in sorted(path for place in found or places for path in place.glob("*")):
        if _is_table(path) and file_type(path) in _FILE_TYPES and not path.name.startswith("."):
            tables.setdefault(Path(without_compressed_ending(_whole_name(path))).stem, []).append(path)
    names_of_parts = _names_of_parts(str(folder), tables, tables)
    files = {part: tables[name] for part, name in names_of_parts.items()}
    for part, paths in files.items():
        if len({path.with_name(_whole_name(path)) for path in paths}) > 1:  # of several types, or in several folders
            raise _several_names(str(folder), part, [str(path.relative_to(folder)) for path in paths])
        _check_shards(paths)
    if "train" not in files:
        if several := [name for name in tables if PART_NAMES.get(_usual_name(name)) == "train"]:
            raise _several_names(str(folder), "train", several)
        if others and not found:
            raise of_other_pairs
        guess = (
            _renaming(folder / "train", source, target)
            or _pairs_of_files(folder, source, target)
            or _files_of_pairs(folder)
        )
        raise DataError(
            f"{folder} has no train.{source} and train.{target}, and is not a dataset in the hub's layout\n"
            + (guess or f"({', '.join(map(str, found or [folder]))} has no tables whose names begin with train)")
        )
    columns = (source, target) if is_of_several and not found else ()
    parts = {
        part: _joined([_read_of_pair(path, source, target, columns) for path in paths]) for part, paths in files.items()
    }
    used = [path for paths in files.values() for path in paths]
    return _with_unused(parts, _unused_files([*places, *found], used, source, target))


def _read_of_pair(path: Path, source: str, target: str, columns: tuple[str, ...]) -> Part:
    """Read a table in the folder of its pair, whose name gives the order of columns without a header: fr-en."""
    if path.parent.name != f"{target}-{source}":
        return _read_file(path, source, target, columns)
    part = _read_file(path, target, source, columns[::-1])
    rows = (row if isinstance(row, Unreadable) else (row[1], row[0]) for row in part.rows)
    return replace(part, rows=rows, key=digest("exchanged", part.key))


def _whole_name(path: Path) -> str:
    """Return the name of a file, of shards of one file the same: train.parquet for train-00000-of-00002.parquet."""
    return _SHARD.sub("", path.name)


def _check_shards(paths: Sequence[Path]) -> None:
    """Raise DataError if the files of a part are some of the shards of a table, and others are missing."""
    numbers: dict[int, set[str]] = {}  # of the shards, by how many there are in all
    for path in paths:
        if shard := _SHARD.search(path.name):
            numbers.setdefault(int(shard["total"]), set()).add(shard["number"])
    for total, found in numbers.items():
        n_missing = total - len(found)
        if n_missing > 0:
            raise DataError(
                f"{paths[0]} is one of {total:,} shards, of which {n_missing:,} {'is' if n_missing == 1 else 'are'} "
                "missing: copy all of them"
            )


def _renaming(stem: Path, *languages: str) -> str:
    """Return how files such as train.en.txt become stem.<language>; nothing without such files."""
    renamings, compressed = [], []
    names = sorted(path.name for path in stem.parent.iterdir() if path.is_file()) if stem.parent.is_dir() else []
    for language in languages:
        right = f"{stem.name}.{language}"
        wrong = [name for name in names if name.startswith(f"{right}.") and Path(name).suffix not in _FILE_TYPES]
        if wrong and not _find_language_file(stem, language):
            ending = Path(wrong[0]).suffix
            if ending.lower() in _OTHER_COMPRESSED:
                compressed.append(in_one_line(wrong[0]))
                continue
            right += ending if ending in COMPRESSED_ENDINGS else ""
            renamings.append(f"{in_one_line(wrong[0])} to {right}")
    steps = [f"decompress {' and '.join(compressed)}"] if compressed else []
    steps += [f"rename {', and '.join(renamings)}"] if renamings else []
    return ", and ".join(steps)


def _pairs_of_files(folder: Path, source: str, target: str) -> str:
    """Return how to type that two files of a folder are the data; nothing if it has no such files."""
    stems = sorted(_stems(folder, source) & _stems(folder, target))
    if not stems:
        return ""
    others = f" (there are also {listed(stems[1:])})" if stems[1:] else ""
    return f"for {stems[0]}.{source} and {stems[0]}.{target} in it, type: --data {folder / stems[0]}{others}"


def _files_of_pairs(folder: Path) -> str:
    """Return how to type that the first single files of pairs in a folder are the data; nothing if it has no such.

    Files of validation and test are not for training.
    """
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and file_type(path) in _FILE_TYPES)
    names = [name for name in names if not name.startswith(".")]
    names = [name for name in names if PART_NAMES.get(_usual_name(name), "train") == "train"]
    if not names:
        return ""
    typed = " ".join(in_one_line(shlex.quote(str(folder / name))) for name in names[:MOST_TYPED])
    others = f" (there are also {listed(names[MOST_TYPED:])})" if names[MOST_TYPED:] else ""
    return f"for files of pairs in it, type: --data {typed}{others}"


def _is_table(path: Path) -> bool:
    return path.is_file() and file_type(path) in _TABLE_READERS


def _joined(parts: list[Part]) -> Part:
    """Return several files as one part."""
    forms = list(dict.fromkeys(form for part in parts for form in part.forms))
    return Part(chain.from_iterable(part.rows for part in parts), digest(*(part.key for part in parts)), forms=forms)


def _read_hub(name: str, source: str, target: str) -> dict[str, Part]:
    """Read a dataset from the hub. Where it cannot be reached, a copy that an earlier run downloaded is used."""
    import datasets  # noqa: PLC0415
    import huggingface_hub  # noqa: PLC0415

    # Without a connection, stop the hub's client from retrying for half a minute.
    is_offline = not hub_answers(name, "dataset")
    if is_offline:
        datasets.config.HF_HUB_OFFLINE = True
        huggingface_hub.constants.HF_HUB_OFFLINE = True

    # load the language pair
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    try:
        with _own_files_alone(name):
            splits = _load_language_pair(name, source, target)
    except DataError:
        raise
    except Exception as error:  # datasets, pyarrow and the hub's client each raise exceptions of their own
        if is_offline:
            raise DataError(
                f"the hub cannot be reached for {name}, and no downloaded copy of {source}-{target} exists\n"
                "try: python train.py demo, or: python train.py --data FOLDER"
            ) from None
        reason = in_one_line(error)
        raise DataError(f"{name} cannot be loaded: {reason}") from None

    # turn its splits into parts
    parts = {}
    for part in PARTS:
        names = [split for split in splits if PART_NAMES.get(split) == part]
        if len(names) > 1:
            raise DataError(f"{name} has several splits for the {part} part: {listed(names)}")
        if names:
            records = splits[names[0]]
            fields = find_fields(_names_of_fields(next(iter(records), None)), source, target, or_sides=False)
            form = _form_of_fields(fields, source, target)
            rows = check_share(_hub_rows(name, _records(records), *fields))
            parts[part] = Part(rows, digest(records._fingerprint), forms=[form] if form else [])
    if "train" not in parts:
        raise DataError(f"{name} has no train split, only {listed(splits)}")
    return _with_unused(parts, [split for split in splits if split not in PART_NAMES])


def _records(split: Any) -> Iterator[Any]:
    """Yield the rows of a split as it was loaded, by batches: one by one, `datasets` takes five times as long."""
    from pairs.tables import record_batches  # noqa: PLC0415 - imports pyarrow

    for batch in record_batches(split):
        yield from batch.to_pylist()


_DOWNLOAD = "\nif two of them are its sides, download a file of it, and type: --data FILE --columns and their names"


def _hub_rows(name: str, records: Iterable[Any], source_field: str, target_field: str) -> Iterator[RawRow]:
    for number, record in enumerate(records, 1):
        row = _pair_of_record(record, source_field, target_field, f"{name} row {number:,}", _DOWNLOAD)
        _check_length(row, f"{name} row {number:,}")
        yield row


def _check_length(pair: RawRow, location: str) -> None:
    """Raise DataError, which starts with `location`, if a text of a pair is too long for a line."""
    longest = max(map(len, pair))
    if longest > MAX_LINE_BYTES:
        raise DataError(f"{location}: a text of {longest:,} characters")


@contextlib.contextmanager
def _own_files_alone(name: str) -> Iterator[None]:
    """While active, `datasets` looks for the data of a dataset in its repository on the hub alone.

    Whoever wrote the dataset's README.md may name any path of this machine, and any address, as its data. DataError is
    raised where one is named.
    """
    from datasets import data_files  # noqa: PLC0415

    resolve_pattern = data_files.resolve_pattern
    refused: list[str] = []

    def resolve_own(pattern: str, base_path: str, *args: Any, **kwargs: Any) -> list[str]:
        place = f"{base_path}/{pattern}".removeprefix("hf://datasets/")
        is_own = base_path.startswith("hf://datasets/") and not pattern.startswith("/")
        if not is_own or "://" in place or "::" in place or "\\" in place or ".." in place.split("/"):
            refused.append(pattern)
            raise FileNotFoundError(pattern)  # which `datasets` may catch, and look for an earlier copy
        found: list[str] = resolve_pattern(pattern, base_path, *args, **kwargs)
        return found

    data_files.resolve_pattern = resolve_own
    try:
        yield
    finally:
        data_files.resolve_pattern = resolve_pattern
        if refused:
            raise DataError(f"{name} names data outside of its repository: {refused[0][:200]}")


def _load_language_pair(name: str, source: str, target: str) -> Any:
    """Return the splits of a language pair, which the hub stores under only one of its two orders (en-fr or fr-en).

    Raises DataError where the dataset lacks the pair, and otherwise whatever `datasets` raises.
    """
    import datasets  # noqa: PLC0415

    forward = f"{source}-{target}"
    backward = f"{target}-{source}"

    # A downloaded copy has no list of language pairs: try all names.
    if datasets.config.HF_HUB_OFFLINE:
        for configuration in (forward, backward):
            with contextlib.suppress(ValueError):
                return datasets.load_dataset(name, configuration)
        return datasets.load_dataset(name, "default")

    available = datasets.get_dataset_config_names(name)
    if forward in available:
        return datasets.load_dataset(name, forward)
    if backward in available:
        return datasets.load_dataset(name, backward)
    if len(available) == 1 and not _PAIR.fullmatch(available[0]):  # a dataset without named language pairs
        return datasets.load_dataset(name, available[0])
    raise DataError(
        f"{name} has neither {forward} nor {backward}\n"
        f"available pairs (choose with --source and --target, or --pairs): {listed(available, 100)}"
    )
