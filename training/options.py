"""The options of a run: the command line, combined with a preset or with the settings of another.

The run is one to resume (--resume), or one to start from (--init-from).
"""

import shlex
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

from checkpoint import RunFolder, recorded_names
from config import FACTS, Config
from fast.replaced import edited_replaced_parts
from tapis.config import ConfigError, flag
from tapis.release import WEIGHTS, CheckpointError
from tapis.system.terminal import in_one_line, is_main, listed, say
from training.ancestry import MIXED_RATE, check_inherited, settings_from
from training.cli import TrainOptions, named, parse_over, parse_training, value_of
from training.new_run import check_is_new, check_minutes, options_of_new_run, with_open_fields


def resolve(args: Sequence[str]) -> TrainOptions:
    """Return the command line as options: of the preset, or with --resume of the saved run, whose config it may extend.

    Raises ConfigError for what cannot be combined or changed, CheckpointError if there is no such run.
    """
    preset, flags, options = parse_training(args)
    if not options.resume:
        if options.config.init_from:
            options = options_from_run(flags, options, preset_is_given=bool(preset))
            check_minutes(options)
            options = options.having(named(options, preset))
        else:
            options = options_of_new_run(preset, flags, options)
        check_is_new(options)
        return options.having(plain_if_edited(options.config))

    saved = saved_config(named(with_open_fields(options, preset, flags), preset).name)
    options = parse_over(saved, flags)
    if options.overwrite:
        raise ConfigError("--resume continues a run, and --overwrite replaces it: leave out one of them")
    check_minutes(options)
    check_named(RunFolder(WEIGHTS / saved.name), saved, flags)
    options = replace(options, gives_length=bool(value_of("--epochs", flags) or value_of("--steps", flags)))
    changed = changes(saved, options.config)
    if refused := [name for name in changed if not FACTS[name].is_resumable]:
        flags_refused, values = (", ".join(map(one, refused)) for one in (typed_as, partial(as_trained, saved)))
        message = f"{flags_refused} cannot change on --resume ({saved.name} was trained with {values})"
        if "init_from" not in changed and all(FACTS[name].init_from != "fixed" for name in changed):
            message += f"\na new run may start from it: --init-from {shlex.quote(saved.name)} --name NEW"
        raise ConfigError(message)
    if saved.steps and "epochs" in changed:
        raise ConfigError(f"the run {saved.name} is counted in steps ({saved.steps:,}): give --steps, not --epochs")
    if (replaced := edited_replaced_parts()) and not saved.plain:
        raise ConfigError(
            f"{listed(replaced)} of model.py was edited since {saved.name} began, which only --plain follows\n"
            "undo the edit, or start a new run"
        )
    return options


def plain_if_edited(config: Config) -> Config:
    """Return the config with `plain` if a part of model.py that a fast form replaces was edited, and print a note."""
    if not (replaced := edited_replaced_parts()) or config.plain:
        return config
    say(f"note      {listed(replaced)} of model.py was edited: training without fast forms, as with --plain")
    return replace(config, plain=True)


def typed_as(name: str) -> str:
    """Return how a message names a setting: by its flag, or, since pairs have several, by what it is."""
    return "the languages" if name == "pairs" else flag(name)


def as_trained(config: Config, name: str) -> str:
    """Return how a message names the value of a setting."""
    value = getattr(config, name)
    return (" ".join(map(str, value)) or "none") if isinstance(value, tuple) else str(value) or "none"


def options_from_run(flags: list[str], options: TrainOptions, preset_is_given: bool) -> TrainOptions:
    """Return the command line as options of a run that starts from another run, whose settings are the defaults."""
    name = options.config.init_from
    if preset_is_given:
        raise ConfigError(f"--init-from {name} takes no preset: the settings are those of the run, and of your flags")
    folder = RunFolder.find(name)
    defaults = settings_from(folder, name)
    start = replace(defaults, data_weights=(), columns=())
    options = parse_over(start, flags)
    check_sources(flags, options.config, defaults)
    check_named(folder, defaults, flags)
    if len(options.config.data) > len(defaults.data) and len(defaults.pairs) == 1:  # old data are mixed in
        options = parse_over(replace(start, lr=defaults.lr * MIXED_RATE), flags)
    check_inherited(options.config, defaults)
    if options.config.data == defaults.data:  # weights and columns belong to the run's own data
        given = options.config
        kept = replace(
            given, data_weights=given.data_weights or defaults.data_weights, columns=given.columns or defaults.columns
        )
        options = options.having(kept)
    if folder.path.resolve() == (WEIGHTS / options.config.name).resolve():
        raise ConfigError(f"--name {options.config.name} is the run to start from; choose another name")
    return options


def check_named(folder: RunFolder, config: Config, flags: Sequence[str]) -> None:
    """Raise ConfigError if another machine made the run, and the flags do not name the data that it records."""
    unnamed = {name: value for name, value in recorded_names(config).items() if not value_of(name, flags)}
    if unnamed and is_main():
        folder.check_made_here(unnamed)


def check_sources(flags: list[str], config: Config, defaults: Config) -> None:
    """Raise ConfigError for flags that would mean something else to a run of several language pairs."""
    if len(defaults.pairs) == 1:
        return
    if value_of("--source", flags) or value_of("--target", flags):
        raise ConfigError(f"{config.init_from} has several language pairs: leave out --source and --target")
    if len(config.data) > 1 == len(defaults.data) and defaults.data[0] in config.data:
        raise ConfigError(
            f"old data cannot be mixed in with several language pairs: of several sources of --data, each is of one "
            f"pair of {config.init_from}"
        )


def saved_config(name: str) -> Config:
    """Return the config of the run to resume. Raises CheckpointError if weights/ in the current folder has no such run.

    Other folders are not searched: a run writes to weights/ in the current folder only.
    """
    folder = RunFolder(WEIGHTS / name)
    if not folder.config_file.is_file():
        names = listed(sorted(file.parent.name for file in WEIGHTS.glob("*/config.json")), 100)
        raise CheckpointError(
            f"no run {name!r} in {WEIGHTS}/ of this folder to resume; there: {names}\n"
            "go to the folder where it was started, or start it without --resume"
        )
    config = folder.load_config()
    if config.name != name:  # another folder would be trained and written
        raise CheckpointError(
            f"{folder.config_file} is of a run with another name, {in_one_line(config.name)!r}: "
            "a run is resumed under its own name alone"
        )
    return config


def changes(before: Config, after: Config) -> dict[str, tuple[Any, Any]]:
    """Return the fields that differ, with their values before and after."""
    both = [(f.name, getattr(before, f.name), getattr(after, f.name)) for f in fields(Config)]
    return {name: (old, new) for name, old, new in both if old != new}
