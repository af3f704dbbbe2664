"""The house: which folder may import which, what every module explains, and that imports do no work."""

import ast
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import ROOT

# From the bottom up. A module imports from the layers below its own, and within its own folder. The package comes
# first: it imports nothing from the rest of a checkout.
LAYERS = [
    {"tapis.config"},
    {"tapis.search", "tapis.threads"},
    {"tapis.system", "tapis.web"},
    {"tapis.text"},
    {"tapis.documents"},
    {"tapis.engine"},
    {"tapis.release"},
    {"tapis"},
    {"tapis.serving"},
    {"tapis.commands"},
    {"tapis.__main__"},
    {"config"},
    {"pairs"},
    {"dataset", "model"},
    {"machine"},
    {"fast"},
    {"checkpoint"},
    {"decoding"},
    {"training"},
    {"exporting"},
    {"train", "translate", "evaluate", "export", "serve"},
]
COMMANDS = LAYERS[-1] | {"tapis.__main__"}
LAYER = {place: number for number, layer in enumerate(LAYERS) for place in layer}
FOLDERS = {place for place in LAYER if (ROOT / place.replace(".", "/")).is_dir()}
HAS_TRITON = find_spec("triton") is not None  # it comes with torch for GPUs
MODULES = sorted(
    [*ROOT.glob("*.py"), *(file for folder in FOLDERS for file in (ROOT / folder.replace(".", "/")).glob("*.py"))]
)


def name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def place(module: str) -> str:
    """The layer's name for a module: its own, or that of its folder."""
    return module if module in LAYER else module.rpartition(".")[0]


def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def imported(file: Path) -> set[str]:
    """The project's modules that a module imports, also inside functions, by their full names; not for types alone."""
    names = set()
    nodes = list(ast.walk(tree(file)))
    for_types = [
        other
        for node in nodes
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for other in ast.walk(node)
    ]
    for node in nodes:
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names if node.module in FOLDERS}
    return names & {name(module) for module in MODULES}


def test_every_module_has_a_place() -> None:
    assert {place(name(file)) for file in MODULES} == set(LAYER)


@pytest.mark.parametrize("file", MODULES, ids=name)
def test_imports_point_down(file: Path) -> None:
    here = place(name(file))
    for other in imported(file):
        there = place(other)
        assert there == here in FOLDERS or LAYER[there] < LAYER[here], f"{name(file)} imports {other}"


def test_no_imports_go_in_a_circle() -> None:
    """Also within a folder: every module can be taken away once all that it imports is gone."""
    needs = {name(file): imported(file) - {name(file)} for file in MODULES}
    while needs:
        free = {module for module, others in needs.items() if not others & needs.keys()}
        assert free, f"a circle among {sorted(needs)}"
        needs = {module: others for module, others in needs.items() if module not in free}


@pytest.mark.parametrize("file", MODULES, ids=name)
def test_only_commands_have_a_main_and_every_module_a_map(file: Path) -> None:
    functions = {node.name for node in tree(file).body if isinstance(node, ast.FunctionDef)}
    assert ("main" in functions) == (name(file) in COMMANDS)
    assert ast.get_docstring(tree(file))


def test_command_lines_and_data_are_read_without_torch() -> None:
    script = "import training.new_run, pairs.corpus, tapis.system.cli, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_imports_do_no_work() -> None:
    """Nothing is printed or written when a module is imported."""
    modules = [file for file in MODULES if "import triton" not in file.read_text(encoding="utf-8") or HAS_TRITON]
    script = "; ".join(f"import {name(file)}" for file in modules)
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout == done.stderr == b""


# What the pages about the code say of it


@pytest.mark.parametrize("page", ["architecture.md", "walkthrough.md"])
def test_pages_link_to_code_that_exists(page: str) -> None:
    """[`name`](../file.py) is a class or function of that file, or the file itself."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    links = re.findall(r"\[`([^`]+)`\]\(([^)#]+\.py)\)", text)
    assert links
    for name, target in links:
        file = (ROOT / "docs" / target).resolve()
        if name in (file.name, target.removeprefix("../")):
            assert file.is_file(), f"{page}: {target}"
            continue
        parts = name.split(".")
        names = {node.name for node in ast.walk(tree(file)) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        assert set(parts) <= names, f"{page}: {name} is not in {target}"


def stripped(text: str) -> str:
    """The lines without their indentation."""
    return "\n".join(line.strip() for line in text.strip().splitlines())


def test_the_walkthrough_quotes_the_code_as_it_is() -> None:
    page = (ROOT / "docs/walkthrough.md").read_text(encoding="utf-8")
    sources = [stripped(file.read_text(encoding="utf-8")) for file in MODULES]
    quotes = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert quotes
    for quote in quotes:
        assert any(stripped(quote) in source for source in sources), f"no module has\n{quote}"
