"""The documents: their links, their flags, their examples in Python, and the length of the README."""

import re
import subprocess
import sys
from dataclasses import is_dataclass
from pathlib import Path
from typing import get_type_hints

import pytest
from conftest import ROOT

from tapis.config import flag
from tapis.system.cli import parse
from tapis.system.help import docstrings
from tapis.system.usage import all_fields

sys.path += [str(ROOT / "docs"), str(ROOT / "docs/pictures")]

from figures import figures
from flags import COMMANDS, NOT_FLAGS, page

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "requirements").glob("*.md")])
# Flags of other programs that appear beside ours.
OTHER_FLAGS = {"--logdir", "--help", "--nproc-per-node", "--nnodes", "--no-tie-embeddings"}

documents = pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))


def commands_shown(text: str) -> list[tuple[str, set[str]]]:
    """The commands of ours in a text, each with its flags."""
    shown = []
    for line in text.replace("\\\n", " ").splitlines():
        for match in re.finditer(r"(?<![\w/-])(\w+\.py)\b([^`|;)]*)", line):
            if match[1] in COMMANDS:
                shown.append((match[1], set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", match[2]))))
    return shown


@documents
def test_commands_have_the_flags_that_documents_show(file: Path) -> None:
    if file.parent.name == "lab":
        pytest.skip("a diary, which shows commands as they were")
    for command, flags in commands_shown(file.read_text(encoding="utf-8")):
        known = {flag(field.name) for field in all_fields(COMMANDS[command])}
        assert flags - known <= OTHER_FLAGS, command


def anchors(file: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in plain}


@documents
def test_links_lead_somewhere(file: Path) -> None:
    text = re.sub(r"```.*?```", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


def test_the_readme_is_one_page() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 8192


def test_the_page_of_flags_is_what_the_commands_have() -> None:
    """Written by docs/flags.py."""
    text = page()
    assert (ROOT / "docs" / "flags.md").read_text(encoding="utf-8") == text, "python docs/flags.py"
    for options in COMMANDS.values():
        for field in all_fields(options):
            shown = field.name in ("sentences", "out", *NOT_FLAGS) or f"| `{flag(field.name)}` |" in text
            assert shown, field.name


@pytest.mark.parametrize("options", COMMANDS.values(), ids=COMMANDS)
def test_the_help_of_a_flag_is_broken_only_where_the_terminal_ends(
    options: type, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "5000")
    with pytest.raises(SystemExit):
        parse(options, ["--help"])
    printed = capsys.readouterr().out.splitlines()
    kinds = get_type_hints(options)
    groups = [kind for kind in kinds.values() if isinstance(kind, type) and is_dataclass(kind)]
    said = {
        name: text
        for found in map(docstrings, [options, *groups])
        for name, text in found.items()
        if name not in NOT_FLAGS
    }
    assert said
    assert [text for text in said.values() if not any(text in line for line in printed)] == []


def test_the_figures_have_the_shapes_of_the_model() -> None:
    """Drawn by docs/pictures/figures.py, which runs the model."""
    for name, text in figures().items():
        file = ROOT / "docs/pictures" / name
        assert file.read_text(encoding="utf-8") == text, "python docs/pictures/figures.py"
        for path in re.findall(r">((?:\w+/)*\w+\.py|\w+/)(?=[:<])", text):
            assert (ROOT / path).exists(), path


@pytest.mark.parametrize("name", ["README.md", "docs/python.md", "docs/translating.md"])
def test_the_python_examples_print_what_they_say(trained: "subprocess.CompletedProcess[str]", name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = [block.partition("```")[0] for block in text.split("```python\n")[1:]]
    assert blocks
    script = "\n".join([f"import sys; sys.path[0:0] = [{str(ROOT)!r}]", *blocks])
    run = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(run, cwd=trained.args[0], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    printed = [line for line in script.splitlines() if line.startswith("print(")]
    assert done.stdout.splitlines() == [line.partition("#")[2].strip() for line in printed]
