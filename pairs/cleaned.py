"""Tables of cleaned pairs: each raw pair of a part, judged by the rules, with what duplicates and leaks are found by.

Cleaning runs in batches, in several processes if there is much data. Its results are kept in a table on disk and
reused (tables.py).
"""

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from config import RuleName
from pairs.batches import clean_in_processes
from pairs.cleaning import CONTRAST_SAMPLE, SAMPLE, Cleaner, CleanerSettings
from pairs.readers import Part
from pairs.tables import cached_table, chunks_of_text, record_batches
from pairs.unreadable import RawRow, Unreadable
from tapis.system.files import digest, digest_files
from tapis.system.terminal import Progress
from tapis.threads import n_cores

if TYPE_CHECKING:  # takes 1.5 s
    import datasets

CLEANING_BATCH = 1000  # pairs cleaned at a time by one process
PAIRS_OF_A_PROCESS = 10_000  # cleaning so many takes longer than starting a process does
MAX_PROCESSES = 16  # that clean; each takes 100 MB
MAX_CHUNK_CHARACTERS = 50_000_000  # read at a time; 20,000 sentences have about 5 million

# One row for each raw pair of a part, as `CleanedRow` describes it.
SCHEMA = pa.schema(
    {
        "source": pa.string(),
        "target": pa.string(),
        "dropped": pa.int8(),
        "repaired": pa.bool_(),
        "swapped": pa.bool_(),
        "words_source": pa.int32(),
        "words_target": pa.int32(),
        "pair_hash": pa.int64(),
        "source_hash": pa.int64(),
        "target_hash": pa.int64(),
        "draw": pa.float64(),
    }
)

IMPORTED = r"^\s*from ((?:pairs|tapis\.text)\.\w+) import"


@cache
def code_files() -> list[Path]:
    """Return the files of corpus.py and of all that it imports from pairs/ and from tapis/text/.

    They decide what is read and kept.
    """
    project = Path(__file__).parents[1]
    found, new = set[Path](), {project / "pairs" / "corpus.py"}
    while new:
        found |= new
        texts = [file.read_text(encoding="utf-8") for file in new]
        modules = {name for text in texts for name in re.findall(IMPORTED, text, re.MULTILINE)}
        new = {project / f"{name.replace('.', '/')}.py" for name in modules} - found
    return sorted(found)


@cache
def code_key() -> str:
    """Hash the code that decides what is read and kept, for the keys of cached tables.

    It includes the packages that identify languages and know their names.
    """
    return digest(digest_files(code_files()), version("py3langid"), version("babel"))


def settings_and_training_part(
    source: str, target: str, skip_rules: tuple[RuleName, ...], train: Part
) -> tuple[CleanerSettings, Part]:
    """Return the settings of the cleaner for all parts of some data, and the training part with all its rows to read.

    Its first rows are read for that: they show whether the languages are too close for the rules about languages.
    """
    rows = iter(train.rows)
    first_rows = next(chunks_of_text(rows, CONTRAST_SAMPLE, MAX_CHUNK_CHARACTERS), [])
    sample = [row for row in first_rows if not isinstance(row, Unreadable)]
    are_close = Cleaner(source, target, skip_rules).finds_close(sample)
    settings = CleanerSettings(source, target, skip_rules, are_close)
    return settings, replace(train, rows=chain(first_rows, rows))


def cleaned_table(part: Part, settings: CleanerSettings) -> "datasets.Dataset":
    """Return the table of a part after the rules for one pair, from the cache if the same part was cleaned before."""
    key = _key(part, settings)
    return cached_table("pairs", key, SCHEMA, lambda: _cleaned_batches(iter(part.rows), settings))


def _key(part: Part, settings: CleanerSettings) -> str:
    return digest(part.key, *settings, code_key())


def turned_round(rows: "datasets.Dataset", part: Part, settings: CleanerSettings) -> "datasets.Dataset":
    """Return the table of a part with source and target exchanged."""
    exchanged = {
        **{"source": "target", "target": "source"},
        **{"words_source": "words_target", "words_target": "words_source"},
        **{"source_hash": "target_hash", "target_hash": "source_hash"},
    }

    def batches() -> Iterator[dict[str, Any]]:
        for batch in record_batches(rows):
            yield {name: batch.column(exchanged.get(name, name)) for name in SCHEMA.names}

    return cached_table("turned", _key(part, settings), SCHEMA, batches)


def _cleaned_batches(rows: Iterator[RawRow], settings: CleanerSettings) -> Iterator[dict[str, Any]]:
    """Clean all pairs. Yields batches of columns, as `clean_batch` returns them."""
    # read the first rows, for the cleaner's sample and to see whether there are many
    most_processes = min(n_cores(), MAX_PROCESSES)
    size = max(SAMPLE, PAIRS_OF_A_PROCESS * most_processes)
    first_rows = next(chunks_of_text(rows, size, MAX_CHUNK_CHARACTERS), [])
    n_processes = max(1, len(first_rows) // PAIRS_OF_A_PROCESS)
    sample = [row for row in first_rows[:SAMPLE] if not isinstance(row, Unreadable)]

    # clean them and the rest
    batches = chunks_of_text(chain(first_rows, rows), CLEANING_BATCH, MAX_CHUNK_CHARACTERS)
    with closing(Progress("cleaning", None, 0, "pair", shown=n_processes > 1, leave=True)) as progress:
        for batch in clean_in_processes(partial(settings.cleaner, sample), batches, n_processes):
            progress.update(len(batch["source"]))
            yield batch
