"""The models of a server: which one translates a language pair, and those in memory."""

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unicodedata import category

from tapis.attention import Attention
from tapis.config import ConfigError, ModelConfig, TapisError, name_of_pair, names_of_pairs
from tapis.ctranslate2 import config_of
from tapis.glossary import Glossary
from tapis.memory import Match, Memory
from tapis.release import CheckpointError, Release, RunFiles
from tapis.search import Search
from tapis.serving.batches import Check, TranslateBatch
from tapis.system.files import last_part
from tapis.system.terminal import say
from tapis.text.languages import foreign_language, language_shares, repair
from tapis.text.marks import take_out
from tapis.text.markup import Markup, plain
from tapis.text.sentences import replace_lone_surrogates
from tapis.translation import Translation
from tapis.translator import Translator
from tapis.typed_text import sentences_as_translated, translate_lines

MOST_COMPARED = 300  # lines of a batch that are compared with a memory; a single request may have far more
MOST_PAIRS = 20  # for which a memory is read: the file is read once for each


class Kind(NamedTuple):
    """What lines have in common that are translated in one batch."""

    run: str
    source: str
    target: str
    search: Search
    markup: Markup = ""
    with_details: bool = False
    """Whether the doubts and the sentences of the answers are wanted"""
    with_attention: bool = False
    """Whether their attention is wanted, too, for which a line takes a search of its own"""


class Answer(NamedTuple):
    """The translations of a line, best first; its details if they are wanted."""

    translations: list[Translation]
    sentences: tuple[str, ...] = ()
    """The sentences of the line, as the model saw them"""
    attention: Attention | None = None
    """Of the only sentence of a line, if the model gives access to it"""
    unknown: str = ""
    """The letters, numbers and symbols of the line that the model has not learned, each once"""
    remembered: Match | None = None
    """What the memory has that is like the line"""


class ForeignTextError(ConfigError):
    """A text is clearly in a language that no model translates into the target language."""

    def __init__(self, message: str, language: str) -> None:
        super().__init__(message)
        self.language = language


class Models:
    """Trained runs by name, of which the last used are in memory.

    Several threads may use them. While one translates with a model that made room for another, both are in memory.
    """

    def __init__(self, configs: dict[str, ModelConfig], load: Callable[[str], Translator], max_loaded: int) -> None:
        """Of two runs for one language pair, the first translates it. load is called with a run's name."""
        self.configs = configs
        self.pairs: dict[tuple[str, str], str] = {}  # the run for each language pair
        for run, config in configs.items():
            for pair in config.directions:
                self.pairs.setdefault(pair, run)

        # What requests ask for, found once: there may be as many pairs as the square of 300 languages.
        self._targets: dict[str, list[str]] = {}
        self._sources: dict[str, list[str]] = {}
        for source, target in self.pairs:
            self._targets.setdefault(source, []).append(target)
            self._sources.setdefault(target, []).append(source)
        self.languages = sorted({*self._targets, *self._sources})
        """All languages of all models, in alphabetical order"""
        self.target_languages = list(self._sources)
        """The languages that any of the models translates into"""

        self.glossaries: dict[tuple[str, str], Glossary] = {}
        """By language pair; read before the first request"""
        self.memories: dict[tuple[str, str], Memory] = {}
        """The same"""
        self._load = load
        self._max_loaded = max_loaded
        self._loaded: OrderedDict[str, Translator] = OrderedDict()  # the last used at the end
        self._using_loaded = threading.Lock()
        self._loading = threading.Lock()  # which takes a second, while others use what is loaded

    def targets(self, source: str) -> list[str]:
        """Return the languages that a language is translated into."""
        return self._targets.get(source, [])

    def run_for(self, source: str, target: str) -> str:
        """Return the run that translates a language pair. Raises ConfigError if none does."""
        if (source, target) not in self.pairs:
            raise ConfigError(f"no model translates {source}-{target}; there are {names_of_pairs(self.pairs)}")
        return self.pairs[source, target]

    def languages_of_texts(self, target: str) -> list[str]:
        """Return what a text to translate into a language may be in: a source language of it, or that language."""
        return [*self._sources.get(target, ()), target]

    def identify(self, text: str, target: str) -> tuple[str, float]:
        """Return the language of a text to translate, and its probability.

        It is one of those that are translated into the target language, or that language itself. Raises ConfigError if
        nothing is translated into it, and ForeignTextError if the text is clearly in another language.
        """
        if target not in self.target_languages:
            raise ConfigError(f"no model translates into {target}, but into {', '.join(self.target_languages)}")
        languages = self.languages_of_texts(target)
        if foreign := foreign_language(text, languages):
            raise ForeignTextError(
                f"the text seems to be in another language ({foreign}) than the server's models translate into "
                f"{target}: {', '.join(languages)}; name its source language to have it translated all the same",
                foreign,
            )
        return language_shares(text, languages)[0]

    def n_tokens(self, run: str, lines: Sequence[str]) -> int:
        """Return how many tokens lines have for a run or, if it is not in memory, could have in rare characters."""
        translator = self._loaded.get(run)
        texts = [replace_lone_surrogates(line) for line in lines if line.strip()]
        if not translator:
            return sum(len(text.encode()) - sum(map(str.isascii, text)) for text in texts)
        return sum(map(len, translator.tokenizer.encode(texts)))

    def read_glossary(self, file: Path) -> None:
        """Read the glossary of a language pair, which the name of the file says: terms.en-fr.tsv.

        With one language pair, the name need not say one. Raises ConfigError if it is of none that is served, and
        TapisError if it cannot be read.
        """
        is_named = ends_in("[a-z]{2,3}-[a-z]{2,3}", file)
        pair = self._named_pair(file) or (next(iter(self.pairs)) if len(self.pairs) == 1 and not is_named else None)
        if not pair:
            raise ConfigError(
                f"--glossary {file}: its name must end in a language pair that is served, such as "
                f"terms.{name_of_pair(*next(iter(self.pairs)))}.tsv"
            )
        if pair in self.glossaries:
            raise ConfigError(f"--glossary {file}: there is another one for {pair[0]}-{pair[1]}")
        self.glossaries[pair] = Glossary.read(file)
        self.load(self.pairs[pair]).with_glossary(self.glossaries[pair])  # an export takes none

    def _named_pair(self, file: Path) -> tuple[str, str] | None:
        """Return the language pair that the name of a file ends in, without its suffix; None if it ends in none."""
        named = [pair for pair in self.pairs if ends_in("[-:]".join(map(re.escape, pair)), file)]
        return max(named, key=lambda one: len(one[0]), default=None)

    def read_memory(self, file: Path) -> None:
        """Read the translation memory of one or several language pairs that are served; of one that its name ends in.

        Raises TapisError if it cannot be read, or is of none of them, and ConfigError if a pair has one already.
        """
        if file.suffix != ".tmx":
            raise ConfigError(f"--memory {file}: a translation memory is a .tmx file")
        named = self._named_pair(file)
        pairs = [named] if named else list(self.pairs)
        if len(pairs) > MOST_PAIRS:
            raise ConfigError(
                f"--memory {file}: name its language pair, such as {file.stem}.{name_of_pair(*pairs[0])}.tmx"
            )
        problem: TapisError | None = None
        n_before = len(self.memories)
        for pair in pairs:
            try:
                memory = Memory.read(file, *pair)
            except TapisError as error:
                problem = problem or error
                continue
            if pair in self.memories:
                raise ConfigError(f"--memory {file}: there is another one for {name_of_pair(*pair)}")
            memory.prepare()
            self.memories[pair] = memory
        if problem and len(self.memories) == n_before:
            raise problem

    def load(self, run: str) -> Translator:
        """Return the translator of a run, from memory or from its files. Raises a TapisError if they cannot be used."""
        if translator := self._last_used(run):
            return translator
        with self._loading:
            if translator := self._last_used(run):  # another thread has loaded it meanwhile
                return translator
            with self._using_loaded:  # make room first, so that there are never more models in memory
                while len(self._loaded) >= self._max_loaded:
                    self._loaded.popitem(last=False)
            translator = self._load(run)
            with self._using_loaded:
                self._loaded[run] = translator
            return translator

    def _last_used(self, run: str) -> Translator | None:
        """Return the translator of a run if it is in memory, and note that it was used."""
        with self._using_loaded:
            if run in self._loaded:
                self._loaded.move_to_end(run)
            return self._loaded.get(run)

    def translator_of(self, kind: Kind) -> TranslateBatch[Answer]:
        """Return what translates lines of a kind. Raises a TapisError if the run's files cannot be used."""
        translator = self.load(kind.run).towards(kind.target, kind.source)
        pair = kind.source, kind.target
        if glossary := self.glossaries.get(pair):
            translator = translator.with_glossary(glossary)
        return partial(answers_of, translator, kind, self.memories.get(pair))


def ends_in(pair: str, file: Path) -> bool:
    """Return whether the name of a file, without its suffix, ends in a language pair, given as a regular expression."""
    return bool(re.search(rf"(?<![^\W_]){pair}\Z", file.stem))


def answers_of(
    translator: Translator, kind: Kind, memory: Memory | None, lines: Sequence[str], check: Check
) -> list[Answer]:
    """Return the answers to lines of one kind: of those that the memory has, its translation."""
    translator = translator.checked_by(check)
    ranked = translate_lines(
        translator, lines, kind.search, markup=kind.markup, with_doubts=kind.with_details, memory=memory
    )
    if not kind.with_details:
        return list(map(Answer, ranked))
    answers = []
    n_compared = 0
    for line, translations in zip(lines, ranked, strict=True):
        best = translations[0]
        if not line.strip():
            answers.append(Answer(translations))
            continue
        if best.is_remembered:
            answers.append(Answer(translations, (line,), remembered=Match(1.0, plain(line, kind.markup), best.text)))
            continue
        near = None
        if memory and n_compared < MOST_COMPARED:
            n_compared += 1
            check()
            near = memory.near(line)
        sentences = tuple(sentences_as_translated(translator, line))
        known = translator.tokenizer.known_characters
        unknown = dict.fromkeys(c for c in repair(take_out(line).text) if c not in known and category(c)[0] in "LMNS")
        attention = None
        if kind.with_attention and len(sentences) == 1 and translator.searcher.can_force:
            _, attention = translator.attention(sentences[0], kind.search)
        answers.append(Answer(translations, sentences, attention, "".join(unknown), near))
    return answers


def find_models(
    runs: Sequence[str], files: type[RunFiles[ModelConfig]], load: Callable[[Path], Translator], max_loaded: int
) -> Models:
    """Return the models of some runs, given as to `RunFiles.find`, or of all trained runs. The first is loaded.

    load is called with the folder of a run. Raises a TapisError if a named run cannot be used, or if there is no run.
    """
    folders = named_folders(runs, files) if runs else trained_folders(files)
    if not folders:
        folders = {"": files.find("").path}  # says why there is none
    models = Models(
        {name: config_of(Release(folder)) for name, folder in folders.items()},
        lambda run: load(folders[run]),
        max_loaded,
    )
    models.load(next(iter(folders)))
    return models


def named_folders(runs: Sequence[str], files: type[RunFiles[ModelConfig]]) -> dict[str, Path]:
    """Return the folders of runs by name: the last part of a path, so that nobody sees where it is, or a hub id."""
    folders: dict[str, Path] = {}
    for run in runs:
        name = last_part(run) if Path(run).exists() else run
        if name in folders:
            raise ConfigError(f"--run has two runs of the name {name}")
        folders[name] = files.find(run).path
    return folders


def trained_folders(files: type[RunFiles[ModelConfig]]) -> dict[str, Path]:
    """Return the folder of each trained run, the most recent first. Prints an error for each that cannot be read."""
    folders = {}
    for folder in files.trained():
        try:
            folder.load_config()
        except CheckpointError as error:
            say(f"left out: {error}")
        else:
            folders[folder.path.name] = folder.path
    return folders
