"""A new run, before torch is imported, which takes seconds: its command line, and its data.

This module does not import torch.
"""

import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from config import Config
from pairs.origins import check_files
from pairs.report_lines import data_lines
from tapis.config import ConfigError
from tapis.release import WEIGHTS, RunFiles
from tapis.system.terminal import is_main, say
from tapis.text.lines import DataError
from training.cli import TrainOptions, named, parse_training, value_of
from training.sizes import open_fields

if TYPE_CHECKING:
    from pairs.corpus import Corpus


@dataclass(frozen=True)
class Prepared:
    """What a command has done before it imports torch."""

    corpus: "Corpus | None" = None
    """The data of a new run, if they are read and reported"""
    start: float = field(default_factory=time.perf_counter)
    """When the command started, in seconds of `time.perf_counter`"""


def prepare(args: Sequence[str]) -> Prepared:
    """Check train.py's line, and read, clean, split and report the data of a new run.

    The data are left for later where another run must be looked at first (to resume it, to start from it, or to learn
    from its translations), and where several processes share the work. Raises a TapisError if the line is wrong, or
    names data that are not there, or not what they should be.
    """
    prepared = Prepared()
    preset, flags, options = parse_training(args)
    if options.resume or options.config.init_from:
        return prepared
    check_files(options.config)
    options = options_of_new_run(preset, flags, options)
    check_is_new(options)
    if not ("TORCHELASTIC_RUN_ID" in os.environ or options.config.back_translator or options.config.teacher):
        prepared = replace(prepared, corpus=read_corpus(options.config))
    if sys.stderr and sys.stderr.isatty() and is_main():
        say("loading   PyTorch")
    return prepared


def read_corpus(config: Config, *, is_new: bool = True) -> "Corpus":
    """Read, clean, split and report the data of a run.

    Raises DataError for what they are and, of a new run, if memory runs out: one that is resumed needs all of them.
    """
    from pairs.corpus import load_corpus  # noqa: PLC0415 - it takes more than a second

    try:
        corpus = load_corpus(config)
    except MemoryError:
        if not is_new:
            raise
        advice = "use fewer pairs, or a machine with more memory"
        raise DataError(f"out of memory while preparing the data: {advice}") from None
    for line in data_lines(corpus.report):
        say(line)
    return corpus


def options_of_new_run(preset: str, flags: Sequence[str], options: TrainOptions) -> TrainOptions:
    """Complete what `parse_training` returned for a run that neither is resumed nor starts from another run."""
    options = with_open_fields(options, preset, flags)
    check_minutes(options)
    return options.having(named(options, preset))


def with_open_fields(options: TrainOptions, preset: str, flags: Sequence[str]) -> TrainOptions:
    """Return the options with `open_fields`: of a line with --data and no preset, the sizes that it does not name."""
    if preset or not value_of("--data", flags):
        return options
    return replace(options, open_fields=tuple(open_fields(flags)))


def check_minutes(options: TrainOptions) -> None:
    """Raise ConfigError if --minutes is negative or endless, given with --steps, or given to go on with a run."""
    if not 0 <= options.minutes < math.inf or (options.minutes and options.resume):
        raise ConfigError("--minutes must be positive, and is for a new run; with --resume, give --steps")
    if options.minutes and options.config.steps:
        raise ConfigError("--minutes chooses the number of steps: leave out --steps")


def check_is_new(options: TrainOptions) -> None:
    """Raise ConfigError if a new run would take the name of one that exists."""
    folder = RunFiles[Config](WEIGHTS / options.config.name)
    if folder.config_file.exists() and not (options.overwrite or options.dry_run):
        raise ConfigError(
            f"{folder.path} already contains a run: resume it with --resume,\n"
            "choose another --name, or start afresh with --overwrite"
        )
