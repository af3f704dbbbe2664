"""The models of a server: which one translates a language pair, and those in memory."""

import sys
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from checkpoint import CheckpointError, RunFolder
from config import Config, ConfigError
from decoding.search import Search
from decoding.translator import Translator
from decoding.typed_text import Translation
from text.cleaning import language_shares


class Kind(NamedTuple):
    """What lines have in common that are translated together."""

    run: str
    source: str
    """Empty: the language of each line is identified"""
    target: str
    search: Search
    is_html: bool = False
    with_doubts: bool = False


class Models:
    """Trained runs by name, of which the last used are in memory."""

    def __init__(self, configs: dict[str, Config], load: Callable[[str], Translator], n_loaded: int) -> None:
        """Of two runs for one language pair, the first translates it. load is called with a run's name."""
        self.configs = configs
        self.pairs: dict[tuple[str, str], str] = {}  # the run for each language pair
        for run, config in configs.items():
            for pair in config.directions:
                self.pairs.setdefault(pair, run)
        self._load = lru_cache(maxsize=n_loaded)(load)
        self._lock = threading.Lock()

    @property
    def languages(self) -> list[str]:
        """All languages of all models, in alphabetical order."""
        return sorted({language for pair in self.pairs for language in pair})

    def targets(self, source: str) -> list[str]:
        """The languages that a language is translated into."""
        return [target for one, target in self.pairs if one == source]

    def run_for(self, source: str, target: str) -> str:
        """The run that translates a language pair. Raises ConfigError if none does."""
        if (source, target) not in self.pairs:
            known = ", ".join("-".join(pair) for pair in self.pairs)
            raise ConfigError(f"no model translates {source}-{target}; there are {known}")
        return self.pairs[source, target]

    def identify(self, text: str, target: str) -> tuple[str, float]:
        """The language that a text to translate is in, and its probability.

        It is one of those that are translated into the target language, or that language itself. Raises ConfigError if
        nothing is translated into it.
        """
        languages = [source for source, one in self.pairs if one == target]
        if not languages:
            known = ", ".join(dict.fromkeys(target for _, target in self.pairs))
            raise ConfigError(f"no model translates into {target}, but into {known}")
        return language_shares(text, (*languages, target))[0]

    def translator(self, run: str, target: str = "", source: str = "") -> Translator:
        """The translator of a run, from memory or from its files. Raises a TapisError if they cannot be used."""
        with self._lock:  # one model at a time is loaded, and none twice
            translator = self._load(run)
        return translator.towards(target, source)

    def translate(self, kind: Kind, lines: Sequence[str]) -> list[list[Translation]]:
        """The translations of lines of one kind, best first."""
        translator = self.translator(kind.run, kind.target, kind.source)
        return translator.text(lines, kind.search, is_html=kind.is_html, with_doubts=kind.with_doubts)


def trained_configs() -> dict[str, Config]:
    """The config of each trained run, the most recent first. Prints an error for each that cannot be read."""
    configs = {}
    for folder in RunFolder.trained():
        try:
            configs[folder.path.name] = folder.load_config()
        except CheckpointError as error:
            print(f"left out: {error}", file=sys.stderr)
    return configs
