"""Write docs/flags.md: every flag of every command, with its default and what it does, as --help has it.

Type, in the folder of the project: python docs/flags.py
"""

import inspect
import sys
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tapis.config import flag  # noqa: E402
from tapis.system.cli import InfoOptions, ServeOptions, TranslateOptions  # noqa: E402
from tapis.system.help import docstrings  # noqa: E402
from training.cli import ExportOptions, OwnEvaluateOptions, TrainOptions  # noqa: E402

COMMANDS = {
    "train.py": TrainOptions,
    "translate.py": TranslateOptions,
    "evaluate.py": OwnEvaluateOptions,
    "export.py": ExportOptions,
    "serve.py": ServeOptions,
    "tapis info": InfoOptions,
}
NOT_FLAGS = ("open_fields", "gives_length")  # what options have besides flags

HEAD = """\
# Flags

Every flag of every command, with its default. The defaults of `train.py` are those of `config.py`: a preset has others,
which `python train.py PRESET --help` shows; without one, `train.py` has those of `opus_books`, and with `--data` it
[chooses the sizes](sizes.md#sizes-by-the-number-of-pairs). A flag without a default is off, or empty.
`python docs/flags.py` writes this page.
"""


def page() -> str:
    """Return the text of the page."""
    parts = [HEAD]
    for command, options in COMMANDS.items():
        parts.append(f"## {command}\n\n{first_paragraph(options)}\n")
        hints = get_type_hints(options)
        own = [one for one in fields(options) if not is_dataclass(hints[one.name])]
        groups = [hints[one.name] for one in fields(options) if is_dataclass(hints[one.name])]
        for group in groups:
            parts.append(f"### {first_paragraph(group)}\n\n{table(group, list(fields(group)))}")
        parts.append((f"### {command} itself\n\n" if groups else "") + table(options, own))
    return "\n".join(parts)


def first_paragraph(options: type) -> str:
    """Return the first paragraph of a class's docstring, on one line, without a full stop if it is a heading."""
    text = " ".join((inspect.getdoc(options) or "").split("\n\n")[0].split())
    return text if text.count(". ") else text.removesuffix(".")


def table(options: type, shown: list[Field[Any]]) -> str:
    """Return the table of some flags."""
    said = docstrings(options)
    hints = get_type_hints(options)
    rows = []
    for one in shown:
        if one.name not in said or one.name in NOT_FLAGS:
            continue
        choices = [str(choice) for choice in get_args(hints[one.name]) if isinstance(choice, str)]
        is_said = all(choice in said[one.name] for choice in choices)
        text = said[one.name] + ("" if is_said else f" ({', '.join(filter(None, choices))})")
        name = "`NAME …`" if one.name in ("sentences", "out") else f"`{flag(one.name)}`"
        rows.append(f"| {name} | {default_of(one)} | {escaped(text)} |\n")
    return "| flag | default | |\n|---|---|---|\n" + "".join(rows)


def default_of(field: Field[Any]) -> str:
    """Return the default of a field, as a person types it."""
    value = field.default if field.default is not MISSING else ""
    if isinstance(value, tuple):
        value = " ".join(map(str, value))
    if isinstance(value, float):
        value = f"{value:,g}"
    if value is True:
        return f"on; `--no-{flag(field.name)[2:]}`"
    return "" if value is None or value is False or value == "" else f"`{value}`"


def escaped(text: str) -> str:
    """Return a text as a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    (ROOT / "docs" / "flags.md").write_text(page(), encoding="utf-8")
