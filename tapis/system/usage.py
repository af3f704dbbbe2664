"""What is wrong with a command line, in one or two lines.

tyro parses the command lines (tapis/system/cli.py), but it offers no public way to read its error: it prints a framed
page. So when tyro rejects a line, `usage_error` looks for the mistake itself, by the types of the options' fields. It
never decides whether a line is valid.
"""

import difflib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from functools import partial
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tyro

from tapis.config import flag

HINT = "--help lists the flags"
OTHER_NAMES = {  # of other programs, for the flags of these
    "--lr": ("learning-rate",),
    "--batch-tokens": ("batch-size", "batch", "train-batch-size", "max-tokens"),
    "--accumulate": ("gradient-accumulation-steps", "update-freq"),
    "--epochs": ("epoch", "num-epochs", "num-train-epochs", "max-epoch", "max-epochs"),
    "--steps": ("max-steps", "train-steps", "max-update"),
    "--warmup-steps": ("warmup", "warmup-updates"),
    "--d-model": ("hidden-size", "hidden-dim", "dim", "embed-dim"),
    "--d-ff": ("ffn-dim", "dim-feedforward", "intermediate-size"),
    "--n-heads": ("heads", "num-heads", "attention-heads"),
    "--n-encoder-layers --n-decoder-layers": ("layers", "num-layers", "n-layers"),
    "--n-encoder-layers": ("encoder-layers", "num-encoder-layers"),
    "--n-decoder-layers": ("decoder-layers", "num-decoder-layers"),
    "--max-length": ("max-len", "max-seq-len", "max-seq-length"),
    "--clip-norm": ("grad-clip", "max-grad-norm"),
    "--precision": ("fp16", "bf16", "fp32", "int8", "amp", "dtype"),
    "--patience": ("early-stopping",),
    "--source": ("src", "src-lang", "source-lang"),
    "--target": ("tgt", "tgt-lang", "target-lang"),
    "--data": ("dataset", "train-file", "data-dir"),
    "--name": ("output-dir", "save-dir", "run-name"),
    "--init-from": ("pretrained", "finetune", "finetune-from-model"),
    "--run": ("model", "checkpoint", "weights"),
    "--beam": ("beam-size", "num-beams"),
    "--input": ("file", "input-file"),
    "--hypothesis": ("hyp", "hypotheses", "predictions"),
    "--device": ("gpu", "gpus", "cuda"),
}
EXPLAINED = {"--batch-tokens": " (tokens of a side in a batch, not sentences)"}


@dataclass(frozen=True)
class Given:
    """A flag as typed, with the values that follow it; "" in front of the first flag."""

    flag: str
    values: list[str]


def usage_error(options: type, args: Sequence[str], misplaced: Mapping[str, str]) -> str:
    """Describe what is wrong with a command line that tyro rejected.

    options is the dataclass that the line should fill. misplaced has a hint for each argument that is valid elsewhere
    on the line.
    """
    types = flag_types(options)
    given = split_line(args, types)

    # Unknown flags, with the flag that may be meant
    unknown = [part.flag for part in given if part.flag and part.flag not in types]
    if unknown:
        meant = next((f"did you mean {guess}? " for guess in map(partial(meant_by, types), unknown) if guess), "")
        return f"Unrecognized options: {quoted(unknown)}\n{meant}{HINT}"

    # Missing or invalid values of a flag
    for part in given:
        if part.flag and (problem := value_error(types[part.flag], part.values)):
            return f"{part.flag} {problem}\n{HINT}"

    # Several values of a flag that takes one, and may be repeated
    may_repeat = {flag(one.name) for one in all_fields(options) if one.metadata.get("may_repeat")}
    for part in given:
        if part.flag in may_repeat and len(part.values) > 1:
            return f"{part.flag} takes one value: give it once for each of {quoted(part.values)}\n{HINT}"

    # Values that belong to no flag
    if surplus := surplus_values(options, given, types):
        hint = next((f"{misplaced[value]}; " for value in surplus if value in misplaced), "")
        has_positional = any(is_positional(one.type) for one in fields(options))
        at_start = given[0].values
        if at_start and "--run" in types and not has_positional and all(part.flag != "--run" for part in given):
            hint = f"did you mean --run {quoted(at_start[:1])}? "
        return f"Unrecognized options: {quoted(surplus)}\n{hint}{HINT}"
    return f"cannot parse: {quoted(args)}\n{HINT}"


def meant_by(types: Mapping[str, Any], name: str) -> str:
    """Return the flag that is called otherwise elsewhere, or the most similar one; "" if there is none."""
    for flags, others in OTHER_NAMES.items():
        if name.removeprefix("--") in others and set(flags.split()) <= types.keys():
            return flags.replace(" ", " and ") + EXPLAINED.get(flags, "")
    return next(iter(difflib.get_close_matches(name, [*types, "--help"], 1)), "")


def all_fields(options: type) -> list[Field[Any]]:
    """Return the fields of an options dataclass, each group of them replaced by its own."""
    hints = get_type_hints(options)  # without tyro's annotations
    groups = [all_fields(hints[one.name]) if is_dataclass(hints[one.name]) else [one] for one in fields(options)]
    return [one for group in groups for one in group]


def flag_types(options: type) -> dict[str, Any]:
    """Return the flags of an options dataclass, with the type of each field. A group of fields adds its own flags."""
    types: dict[str, Any] = {}
    hints = get_type_hints(options)
    for field in fields(options):
        if is_dataclass(hints[field.name]):
            types |= flag_types(hints[field.name])
        elif not is_positional(field.type):
            types[flag(field.name)] = hints[field.name]
            if field.type is bool:  # without an annotation, tyro adds the negative flag
                types[flag(f"no_{field.name}")] = bool
    return types


def is_positional(annotation: Any) -> bool:
    """Return whether a field is given by its place on the line, without a flag."""
    return tyro.conf.Positional in get_args(annotation)


def split_line(args: Sequence[str], types: dict[str, Any]) -> list[Given]:
    """Split a command line at its flags; `--flag=value` is a flag and a value. After `--`, there are no flags."""
    given = [Given("", [])]
    flags, texts = split_at_dashes(args)
    for arg in flags:
        name, equals, value = arg.partition("=")
        name = name.replace("_", "-")
        if not arg.startswith("-") or is_number(arg):
            given[-1].values.append(arg)
        elif equals and types.get(name) is not bool:
            given.append(Given(name, [value]))
        else:
            given.append(Given(arg if equals else name, []))
    return [*given, Given("", texts[1:])] if texts else given


def split_at_dashes(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line before its first argument `--`, which only positional arguments follow."""
    end = [*args, "--"].index("--")
    return list(args[:end]), list(args[end:])


def is_number(text: str) -> bool:
    """Return whether a text reads as a number, negative ones included: they are values, not flags."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def value_error(kind: Any, values: Sequence[str]) -> str:
    """Return what is wrong with the values after a flag of this type; "" if nothing is."""
    if kind is bool or (get_origin(kind) is tuple and not values):
        return ""
    if not values:
        return "needs a value"

    # A flag takes one value, unless it is a tuple.
    is_tuple = get_origin(kind) is tuple
    item_kind = get_args(kind)[0] if is_tuple else kind
    for value in values if is_tuple else values[:1]:
        if expected := expected_instead(item_kind, value):
            return f"is {value!r}; it must be {expected}"
    return ""


def expected_instead(kind: Any, value: str) -> str:
    """Describe the values of this type if `value` is not one; return "" if it is. Texts and paths are valid."""
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        return "" if value in choices else f"one of {', '.join(filter(None, choices))}"
    if kind in (int, float):
        try:
            kind(value)
        except ValueError:
            return "an integer" if kind is int else "a number"
    return ""


def surplus_values(options: type, given: Sequence[Given], types: dict[str, Any]) -> list[str]:
    """Return the values that belong neither to a flag nor to a positional field, whose values must stand together."""
    positional = [get_type_hints(options)[field.name] for field in fields(options) if is_positional(field.type)]
    surplus = []
    for part in given:
        kind = types.get(part.flag, bool)
        n_taken = len(part.values) if get_origin(kind) is tuple else 0 if kind is bool else 1
        free = part.values[n_taken:]
        if free and positional:
            free = [] if get_origin(positional.pop()) is tuple else free[1:]
        surplus += free
    return surplus


def quoted(args: Sequence[str]) -> str:
    """Return arguments as they would be typed, on one line."""
    return ", ".join(" ".join(shlex.quote(arg).split()) for arg in args)
