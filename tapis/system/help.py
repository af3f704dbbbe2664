"""What --help says of each flag: the docstring of its field."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import get_type_hints


def put_help(options: type) -> None:
    """Put the docstring of each field where tyro looks for it, on one line.

    From the source, tyro keeps the end of each line that the next one does not continue with a letter.
    """
    said, kinds = docstrings(options), get_type_hints(options)
    for one in fields(options):
        kind = kinds[one.name]
        if isinstance(kind, type) and is_dataclass(kind):
            put_help(kind)
        elif text := said.get(one.name):
            one.metadata = MappingProxyType({**one.metadata, "help": text})


def docstrings(options: type) -> dict[str, str]:
    """Return the text below each field of a dataclass and of those that it extends, on one line."""
    found: dict[str, str] = {}
    for kind in reversed(options.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
        assert isinstance(body, ast.ClassDef)
        found |= dict(_documented(body))
    return found


def _documented(body: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(body.body, body.body[1:], strict=False):
        is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if is_text and isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            yield field.target.id, " ".join(str(text.value.value).split())  # type: ignore[attr-defined]
