"""Where sentence pairs are from: each language pair of each source of data, with a name for reports."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from config import BUILT_IN, Config
from pairs.readers import Part, local_path, read_parts, takes_columns
from tapis.system.files import is_same_file, is_within
from tapis.system.hub import is_on_hub

DEMO_FOLDER = Path(__file__).parents[1] / "demo"


class Origin(NamedTuple):
    """Where sentence pairs are from: a language pair of a source of data."""

    data: str
    """As in `Config.data`"""
    label: str
    """A short name for reports and charts: the language pair if there are several, else the source of data"""
    source: str
    target: str
    """Languages"""
    is_reversed: bool = False
    """Whether the same pairs are also there in the other direction, named first"""
    is_monolingual: bool = False
    """Whether there are target sides alone, of a file of `Config.monolingual`, for training; sources are empty"""

    @property
    def full_name(self) -> str:
        """The source of data, and the language pair if there are several."""
        is_pair = self.label == f"{self.source}-{self.target}"
        return f"{self.data} {self.label}" if is_pair else self.data

    @property
    def languages_of_data(self) -> tuple[str, str]:
        """The source and the target language in which the data are read, before pairs are turned round."""
        return (self.target, self.source) if self.is_reversed else (self.source, self.target)


def origins(config: Config) -> list[Origin]:
    """Return where the pairs of a run are from: each source of data, or language pair; then the monolingual text."""
    is_several = len(config.pairs) > 1
    monolingual = [
        Origin(file, f"{source}-{target}" if is_several else Path(file).name, source, target, is_monolingual=True)
        for file, (source, target) in config.monolingual_directions
    ]
    return [*_origins_of_pairs(config), *monolingual]


def open_parts(config: Config, origin: Origin) -> dict[str, Part]:
    """Return the parts of sentence pairs that an origin has, not read yet. Raises what `read_parts` raises."""
    name = origin.data
    # Beside a table, sources of other forms need no columns. Without any table, read_parts raises an error.
    is_beside_table = any(map(takes_columns, config.data)) and not takes_columns(name)
    columns = () if is_beside_table else config.columns
    n_pairs = len({frozenset(pair) for pair in config.directions})
    is_of_several = n_pairs > len(config.data)
    path = str(DEMO_FOLDER) if name == BUILT_IN else name
    return read_parts(path, *origin.languages_of_data, columns, is_of_several=is_of_several)


def may_be_of_data(file: Path, data: str) -> bool:
    """Return whether a file of this path may belong to a source of data.

    It is the file that `data` names, in the folder that it names, or called `data`.<ending>, as two text files are.
    """
    path = DEMO_FOLDER if data == BUILT_IN else local_path(data)
    if path.exists():
        return is_within(file, path) or is_within(file.parent, path)  # a link in the folder may lead elsewhere
    return file.name.startswith(f"{path.name}.") and is_same_file(file.parent, path.parent)


def check_files(config: Config) -> None:
    """Raise DataError if a file or folder of `Config.data` is missing, or if its form or columns cannot be found.

    This imports none of the packages that take training seconds to import. Reading takes about a second for each GB.
    Datasets on the hub are not checked.
    """
    for origin in origins(config):
        if not (origin.is_monolingual or is_on_hub(origin.data)):
            open_parts(config, origin)


def _origins_of_pairs(config: Config) -> list[Origin]:
    directions = config.directions
    if len(directions) == 1:
        names = zip(config.data, labels(config.data), strict=True)
        return [Origin(data, label, *directions[0]) for data, label in names]

    # Several pairs are of one source of data, or each of its own.
    all_data = config.data * len(directions) if len(config.data) == 1 else config.data
    result: list[Origin] = []
    known: set[tuple[str, str, str]] = set()
    for data, (source, target) in zip(all_data, directions, strict=True):
        is_reversed = (data, target, source) in known
        known.add((data, source, target))
        result.append(Origin(data, f"{source}-{target}", source, target, is_reversed))
    return result


def labels(data: Sequence[str]) -> list[str]:
    """Return a short name for each source of data, for reports and charts: the last part of its path or hub id.

    Sources whose short names are the same are numbered.
    """
    short = [Path(name).name or name for name in data]
    counts, numbers = Counter(short), Counter[str]()
    taken: set[str] = set()
    result: list[str] = []
    for name in short:
        label = name
        while (counts[name] > 1 and label == name) or label in taken:
            numbers[name] += 1
            label = f"{name}-{numbers[name]}"
        taken.add(label)
        result.append(label)
    return result
