"""Dataclasses as JSON, and JSON that anybody may have written as dataclasses.

A record is an instance of a dataclass whose fields are of the types str, literals of it, int, float, bool, list, tuple,
dict with names as keys, other records, or one of these or None.
"""

import dataclasses
import re
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from tapis.system.terminal import escape_controls

T = TypeVar("T")


def to_json_value(record: Any) -> dict[str, Any]:
    """Return the fields of a record by their names, as `json.dumps` takes them, without those that are None."""
    return dataclasses.asdict(
        record, dict_factory=lambda items: {name: value for name, value in items if value is not None}
    )


def from_json_value(kind: type[T], value: object) -> T:
    """Return the record of this kind that a JSON object holds.

    A field that is missing or of another type gets its default. Texts are such as a terminal may show. Raises
    ValueError where it has none, and for what is no JSON object. Names count without regard to what separates their
    words: earlier versions wrote "trained on".
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"no {kind.__name__}")
    given = {re.sub(r"\W+", "_", str(name)): field_value for name, field_value in value.items()}
    hints = get_type_hints(kind)
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name not in given:
            continue  # the constructor misses it if it must be there
        try:
            fields[field.name] = _checked(hints[field.name], given[field.name])
        except ValueError:
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                raise
    try:
        return kind(**fields)
    except TypeError:
        raise ValueError(f"an incomplete {kind.__name__}") from None


def _checked(kind: Any, value: object) -> Any:
    """Return the JSON value as a value of this kind. Raises ValueError if it is none."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        if value is None and NoneType in arguments:
            return None
        (kind,) = (argument for argument in arguments if argument is not NoneType)
        return _checked(kind, value)
    if dataclasses.is_dataclass(kind):
        return from_json_value(kind, value)  # type: ignore[arg-type]
    if origin:
        return _checked_container(origin, arguments, value)

    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300  # NaN is none
    if kind is float and is_number:
        return float(value)  # type: ignore[arg-type]
    if kind is Any or (isinstance(value, kind) and (kind not in (int, float) or is_number)):
        return escape_controls(value) if isinstance(value, str) else value
    raise ValueError(f"no {kind}")


def _checked_container(container: Any, kinds: tuple[Any, ...], value: object) -> Any:
    """Return the JSON value as a dict, a list, a tuple or a literal of these kinds. Raises ValueError if it is none."""
    if container is dict and isinstance(value, Mapping):
        return {escape_controls(str(name)): _checked(kinds[1], one) for name, one in value.items()}
    if container is list and isinstance(value, list):
        return [_checked(kinds[0], one) for one in value]
    if container is Literal and isinstance(value, str) and value in kinds:
        return value
    if container is tuple and isinstance(value, list) and len(value) == len(kinds):
        return tuple(_checked(kind, one) for kind, one in zip(kinds, value, strict=True))
    raise ValueError(f"no {container}")
