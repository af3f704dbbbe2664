"""The command lines of a checkout: the flags of train.py, export.py and evaluate.py.

`python train.py [preset] [--flag value …]`: each field of `Config` is a flag of the same name, but for its pairs, which
`LanguageOptions` has several ways to type. A flag that is not given keeps the preset's value. This module does not
import torch.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import tyro

from config import PRESETS, Config, DataSettings, RunSettings, TrainingSettings
from tapis.config import (
    ConfigError,
    ModelSettings,
    can_be_part_of_file_name,
    direction_of,
    name_of_pair,
    pairs_of_all,
)
from tapis.system.cli import EvaluateOptions, parse, reject_repeated, with_hyphens

T = TypeVar("T")

DEFAULT_PRESET = "opus_books"


@dataclass(frozen=True)
class LanguageOptions:
    """The languages that the model translates."""

    source: str = "en"
    """Language to translate from"""
    target: str = "fr"
    """Language to translate into"""
    pairs: tuple[str, ...] = ()
    """Language pairs of one model, such as en-de de-en, in place of --source and --target; or all, for every pair of
    --languages"""
    languages: tuple[str, ...] = ()
    """The languages of --pairs all"""

    @classmethod
    def of(cls, config: Config) -> "LanguageOptions":
        """Return the flags of a run."""
        return cls(config.source, config.target, config.pairs if len(config.pairs) > 1 else ())

    def as_pairs(self) -> tuple[str, ...]:
        """Return what is typed as `Config.pairs`. Raises ConfigError if it cannot be."""
        if (self.pairs == ("all",)) != bool(self.languages):
            raise ConfigError("--pairs all and --languages go together: --pairs all --languages en de fr")
        if not self.languages:
            directions = map(direction_of, self.pairs) if self.pairs else [(self.source, self.target)]
            return tuple(name_of_pair(*direction) for direction in directions)
        if len(set(self.languages)) != len(self.languages) or len(self.languages) == 1:
            raise ConfigError(f"--languages {' '.join(self.languages)}: name two or more, each once")
        return tuple(pairs_of_all(self.languages))


@dataclass(frozen=True)
class TrainOptions:
    """Train a Transformer to translate. Presets, named before the flags: opus_books, demo, multi30k, base, big.

    Without a preset, --data chooses the sizes of the model, by the number of pairs and by --minutes.
    """

    languages: tyro.conf.OmitArgPrefixes[LanguageOptions]
    data: tyro.conf.OmitArgPrefixes[DataSettings]
    model: tyro.conf.OmitArgPrefixes[ModelSettings]
    training: tyro.conf.OmitArgPrefixes[TrainingSettings]
    run: tyro.conf.OmitArgPrefixes[RunSettings]
    minutes: float = 0.0
    """Train for about this many minutes in total, instead of --epochs; with time to spare, train a teacher first"""
    dry_run: tyro.conf.FlagCreatePairsOff[bool] = False
    """Load, split and tokenize the data, print a report with the expected training time, and exit"""
    resume: tyro.conf.FlagCreatePairsOff[bool] = False
    """Continue the run weights/NAME of --name exactly where it stopped"""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the existing run weights/NAME and, where --minutes trains a teacher again, the one that it had"""
    open_fields: tyro.conf.Suppress[tuple[str, ...]] = ()
    """The fields that training/sizes.py settles"""
    gives_length: tyro.conf.Suppress[bool] = False
    """Whether the line that resumes a run has --epochs or --steps"""

    @classmethod
    def of(cls, config: Config) -> "TrainOptions":
        """Return the options of a run."""
        return cls(
            LanguageOptions.of(config),
            _group(config, DataSettings),
            _group(config, ModelSettings),
            _group(config, TrainingSettings),
            _group(config, RunSettings),
        )

    def having(self, config: Config) -> "TrainOptions":
        """Return the same options for another config."""
        new = TrainOptions.of(config)
        return replace(
            self, languages=new.languages, data=new.data, model=new.model, training=new.training, run=new.run
        )

    @cached_property
    def config(self) -> Config:
        """What is asked of the run. Raises ConfigError if the settings do not fit together."""
        groups = self.data, self.model, self.training, self.run
        values = {one.name: getattr(group, one.name) for group in groups for one in fields(group)}
        return Config(**values, pairs=self.languages.as_pairs())


def _group(config: Config, kind: type[T]) -> T:
    """Return the settings of one kind."""
    return kind(**{one.name: getattr(config, one.name) for one in fields(kind)})  # type: ignore[arg-type]


@dataclass(frozen=True)
class ExportOptions:
    """Convert a trained model for another program (--to FORMAT OUT), or package it as a release (--release OUT)."""

    out: Annotated[Path | None, tyro.conf.Positional] = None
    """Folder to create, with --to; with --to web, a file"""
    run: str = ""
    """Name of a run in weights/, folder, release archive, or hub id; by default the most recent run"""
    to: Literal["", "ctranslate2", "huggingface", "web"] = ""
    """Format to convert to: CTranslate2, Hugging Face's transformers, or one HTML file that translates in a browser"""
    quantization: Literal["float32", "float16", "int8"] = "float32"
    """Type of the weights in CTranslate2's format"""
    release: Path | None = None
    """Folder to create with all files that translating needs and a model card, and an archive of it, OUT.tar.gz"""
    license: str = "unknown"
    """License of the release or of the HTML file, as the hub names it: mit, cc-by-4.0, …"""

    def __post_init__(self) -> None:
        if bool(self.to) == bool(self.release):
            raise ConfigError(
                "give one of --to ctranslate2 OUT, --to huggingface OUT, --to web OUT.html, --release OUT"
            )
        if self.to == "web" and (not self.out or self.out.suffix.lower() not in (".html", ".htm")):
            raise ConfigError("--to web needs a file to create, whose name ends in .html: --to web OUT.html")
        if bool(self.to) != bool(self.out):
            raise ConfigError("--to needs OUT, the folder to create: --to ctranslate2 OUT")
        if self.quantization != "float32" and self.to != "ctranslate2":
            raise ConfigError("--quantization is for --to ctranslate2")
        if self.license != "unknown" and self.to in ("ctranslate2", "huggingface"):
            raise ConfigError("--license is for --release and --to web")
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", self.license):
            raise ConfigError(f"--license {self.license!r}: it must be an identifier in lower case, such as cc-by-4.0")


@dataclass(frozen=True)
class OwnEvaluateOptions(EvaluateOptions):
    """Score a trained model: BLEU, chrF and sacreBLEU's signature."""

    split: Literal["valid", "test"] = "test"
    """Part of the run's own data to score, if no files are given"""
    data: tuple[str, ...] = ()
    """The run's own data, which must be named if another machine made the run"""


def parse_training(args: Sequence[str]) -> tuple[str, list[str], TrainOptions]:
    """Parse train.py's line, `[preset] [flags]`. Returns the preset's name, the flags, and the resulting options.

    The name is empty if the line has none. The options are then those of DEFAULT_PRESET.

    With --init-from, the other flags are left for `training.options.resolve`, which knows the settings of that run. So
    are those with --resume that do not fit the preset.
    """
    preset, flags = "", with_hyphens(args)
    if flags and not flags[0].startswith("-"):
        preset = flags.pop(0)
        if preset not in PRESETS:
            raise ConfigError(f"no preset {preset!r}; there are {', '.join(PRESETS)} ({DEFAULT_PRESET} by default)")
    start = PRESETS[preset or DEFAULT_PRESET]

    names = {argument.partition("=")[0] for argument in flags}
    if "--pairs" in names and {"--source", "--target"} & names:
        raise ConfigError("--pairs names the languages: leave out --source and --target")
    if (run := value_of("--init-from", flags)) and not {"--resume", "--help", "-h"} & names:
        reject_repeated(TrainOptions, flags)
        return preset, flags, TrainOptions.of(replace(start, init_from=run))
    try:
        return preset, flags, parse_over(start, flags)
    except ConfigError:
        if not ("--resume" in names and (run := value_of("--name", flags))):
            raise
        # The flags may fit the settings of that run.
        reject_repeated(TrainOptions, flags)
        return preset, flags, replace(TrainOptions.of(replace(start, name=run)), resume=True)


def parse_over(config: Config, flags: Sequence[str]) -> TrainOptions:
    """Parse train.py's flags, which change a config. Raises ConfigError if the result is none."""
    misplaced = dict.fromkeys(PRESETS, "one preset may be named, before the flags")
    options = parse(TrainOptions, flags, TrainOptions.of(config), misplaced)
    if {"--source", "--target"} & {argument.partition("=")[0] for argument in flags}:
        options = replace(options, languages=replace(options.languages, pairs=(), languages=()))
    _ = options.config  # raises
    return options


def value_of(name: str, flags: Sequence[str]) -> str:
    """Return the value of a flag, `--name value` or `--name=value`; empty if the flag is not given, or has none."""
    for place, argument in enumerate(flags):
        given, equals, value = argument.partition("=")
        if given == name:
            if not equals:
                value = flags[place + 1] if place + 1 < len(flags) else ""
            return "" if value.startswith("-") else value
    return ""


def named(options: TrainOptions, preset: str) -> Config:
    """Return the config with a name for its run: its own, or PRESET-SOURCE-TARGET, with all pairs if there are several.

    For --pairs all, it is PRESET-all and the languages. A run whose sizes are open is named by its data, not by a
    preset.
    """
    if options.open_fields:
        preset = name_of_data(options.config.data[0])
    config = options.config
    pairs = [f"{source}-{target}" for source, target in config.directions]
    if options.languages.languages:
        pairs = ["all", *config.all_languages]
    return config if config.name else replace(config, name="-".join([preset or DEFAULT_PRESET, *pairs]))


def name_of_data(data: str) -> str:
    """Return the name of data without folder, owner and endings; nothing if it cannot be part of a file name."""
    path = Path(data) if Path(data).name not in ("", "..") else Path(data).resolve()
    name = path.name.partition(".")[0]
    return name if can_be_part_of_file_name(name) else ""


def target_flag(config: Config) -> str:
    """Return the flag, and a space, that translating with a run needs; empty unless it has several target languages."""
    return "--target LANGUAGE " if len(config.tagged_languages) > 1 else ""
