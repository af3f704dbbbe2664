"""How an export names what is in it, and how long its sentences may be."""

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from config import Config
from tapis.lengths import PAPERS_EXTRA_LENGTH
from tapis.system.files import last_part
from tapis.system.hub import is_on_hub


def language_pairs(config: Config) -> str:
    """Name the language pairs of a model: "en to de, de to en"."""
    return ", ".join(f"{source} to {target}" for source, target in config.directions)


def data_name(data: str) -> str:
    """Return a public name for data or a run: a hub id unchanged, of a path only the last part."""
    with contextlib.suppress(OSError):  # a name that no path can have
        if is_on_hub(data):
            return data
    return last_part(data)


def public(config: Config) -> Config:
    """Return a config without paths of this machine: of each, the last part is left. Hub ids stay."""
    return replace(
        config,
        data=tuple(map(data_name, config.data)),
        monolingual=distinct(list(map(last_part, config.monolingual))),
        init_from=data_name(config.init_from),
        back_translator=data_name(config.back_translator),
        teacher=distinct(list(map(data_name, config.teacher))),
    )


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, with a number before each that occurs several times."""
    counts = Counter(names)
    return tuple(f"{number}-{name}" if counts[name] > 1 else name for number, name in enumerate(names, start=1))


def max_positions(config: Config) -> int:
    """Return the maximum length of a source or a translation in the exported model, in tokens, with room to spare."""
    return 4 * (config.max_length + PAPERS_EXTRA_LENGTH)
