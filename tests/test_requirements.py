"""What is installed: the same versions everywhere, with their hashes, and everything that pyproject.toml asks for."""

import re
import tomllib
from pathlib import Path

import pytest
from conftest import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HASHED = ("core", "serve", "dev", "audit")


def pins(file: Path) -> dict[str, str]:
    """The version of each package that a file names."""
    found = re.findall(r"^([\w.-]+)==([^\s;]+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def asked_for(extras: list[str]) -> set[str]:
    """The packages that pyproject.toml names, and those of some of its extras, without torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    return {str(canonicalize_name(Requirement(line).name)) for line in lines} - {"tapis", "torch"}


@pytest.mark.parametrize("name", HASHED)
def test_each_package_is_pinned_as_in_the_constraints_and_has_hashes(name: str) -> None:
    file = ROOT / "requirements" / f"{name}.txt"
    constraints = pins(ROOT / "constraints.txt")
    for package, version in pins(file).items():
        assert constraints.get(package, version) == version, f"{package}: make lock"
    entries = re.split(r"^(?=\S)", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert entries
    for entry in entries:
        assert re.search("==.*--hash=sha256:[0-9a-f]{64}", entry, re.DOTALL), entry.partition("\n")[0]


def test_what_the_project_needs_has_hashes() -> None:
    everything = ["serve", "export", "dev", "ja", "ko"]
    for name, extras in (("core", []), ("serve", ["serve"]), ("dev", everything)):
        assert asked_for(extras) <= pins(ROOT / "requirements" / f"{name}.txt").keys(), "make lock"
    assert "torch" not in pins(ROOT / "requirements" / "dev.txt") and "torch" in pins(ROOT / "constraints.txt")


def test_workflows_may_write_nothing_and_name_what_they_use_by_its_content() -> None:
    for file in (ROOT / ".github/workflows").glob("*.yml"):
        text = file.read_text(encoding="utf-8")
        assert re.search(r"^permissions:\n  contents: read\b", text, re.MULTILINE)
        used = re.findall(r"uses: *(\S+)", text)
        assert used and all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action in used)
