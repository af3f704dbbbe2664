"""How an export names what is in it, and how long its sentences may be."""

import contextlib
from pathlib import Path

from config import Config
from tapis.lengths import PAPERS_EXTRA_LENGTH
from tapis.system.hub import is_hub_id


def language_pairs(config: Config) -> str:
    """Name the language pairs of a model: "en to de, de to en"."""
    return ", ".join(f"{source} to {target}" for source, target in config.directions)


def data_name(data: str) -> str:
    """Return a public name for the data: a hub id unchanged, of a path only the last part."""
    with contextlib.suppress(OSError):  # a name that no path can have
        if is_hub_id(data) and not Path(data).exists():
            return data
    return Path(data).name


def max_positions(config: Config) -> int:
    """Return the maximum length of a source or a translation in the exported model, in tokens, with room to spare."""
    return 4 * (config.max_length + PAPERS_EXTRA_LENGTH)
