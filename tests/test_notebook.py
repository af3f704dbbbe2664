"""The pages that run: the notebooks, and the script behind docs/walkthrough.md."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from conftest import ROOT
from nbclient import NotebookClient

Outputs = list[list[dict[str, Any]]]  # of each cell


def outputs_of(notebook: Any) -> Outputs:
    return [list(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]


def printed(outputs: list[dict[str, Any]]) -> str:
    """What a cell printed and returned, as text."""
    return "".join(output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs)


def shapes_in(text: str) -> list[str]:
    """The shapes in a text, such as (2, 8)."""
    return re.findall(r"\(\d+(?:, \d+)+\)", text)


def shapes(outputs: Outputs) -> list[list[str]]:
    """The shapes that each cell printed."""
    return [shapes_in(printed(cell)) for cell in outputs]


def n_images(outputs: Outputs) -> int:
    return sum("image/png" in output.get("data", {}) for cell in outputs for output in cell)


NOTEBOOKS = {"tour": 3, "own_pairs": 1}  # and how many pictures each draws


def committed(name: str) -> Any:
    """A notebook as it is committed."""
    return nbformat.read(ROOT / f"notebooks/{name}.ipynb", as_version=4)  # type: ignore[no-untyped-call]


def execute(notebook: Any, folder: Path) -> Outputs:
    """Run a notebook in a folder, and return what its cells print."""
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    folder.mkdir()
    NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    return outputs_of(notebook)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_committed_with_its_outputs_and_without_noise(name: str) -> None:
    notebook = committed(name)
    outputs = outputs_of(notebook)
    assert n_images(outputs) == NOTEBOOKS[name]
    assert [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"] == [
        *range(1, len(outputs) + 1)
    ]
    assert not any(cell.metadata for cell in notebook.cells)
    assert (ROOT / f"notebooks/{name}.ipynb").stat().st_size < 150_000


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_tour_runs_and_prints_the_same_shapes(trained: "subprocess.CompletedProcess[str]", tmp_path: Path) -> None:
    """In a folder with the project's files and the weights of another run, which print other numbers."""
    for file in ROOT.glob("*.py"):
        shutil.copy(file, tmp_path)
    for folder in ("tapis", "pairs", "fast", "decoding", "training", "machine"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copytree(Path(trained.args[0]) / "weights", tmp_path / "weights")
    tour = committed("tour")
    before = outputs_of(tour)
    outputs = execute(tour, tmp_path / "notebooks")
    assert shapes(outputs) == shapes(before)
    assert sum(map(len, shapes(outputs))) >= 10
    assert n_images(outputs) == 3
    assert any("Le chat est assis sur le tapis." in printed(cell) for cell in outputs)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_notebook_of_own_pairs_goes_from_two_files_to_a_page(tmp_path: Path) -> None:
    """With a few pairs and steps: all of it but the quality."""
    for file in ROOT.iterdir():
        if file.name not in ("notebooks", "demo", "weights", "runs"):
            (tmp_path / file.name).symlink_to(file)
    (tmp_path / "demo").mkdir()
    for language in ("en", "fr"):
        lines = (ROOT / f"demo/train.{language}").read_text(encoding="utf-8").splitlines(keepends=True)
        (tmp_path / f"demo/train.{language}").write_text("".join(lines[:700]), encoding="utf-8")
    notebook = committed("own_pairs")
    before = outputs_of(notebook)
    for cell in notebook.cells:
        cell.source = cell.source.replace('"--minutes"', '"--steps"').replace("MINUTES = 3", "MINUTES = 20")
    outputs = execute(notebook, tmp_path / "notebooks")
    assert n_images(outputs) == 1
    assert [bool(cell) for cell in outputs] == [bool(cell) for cell in before]
    assert "BLEU" in printed(outputs[5])
    assert (tmp_path / "notebooks/mine.html").stat().st_size > 500_000


def test_the_notebook_takes_the_files_of_its_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "train.py").touch()
    (tmp_path / "mine.en").write_text("A cat.\n", encoding="utf-8")
    (tmp_path / "mine.de").write_text("Eine Katze.\n", encoding="utf-8")
    namespace: dict[str, Any] = {}
    for cell in [cell for cell in committed("own_pairs").cells if cell.cell_type == "code"][:2]:
        exec(cell.source.replace('"en", "fr"\n', '"en", "de"\n'), namespace)
    assert (namespace["sources"], namespace["targets"]) == (["A cat."], ["Eine Katze."])
    assert (tmp_path / "mine.en").read_text(encoding="utf-8") == "A cat.\n"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no signals on Windows")
def test_interrupting_the_notebook_lets_a_script_end(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    handled = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"  # also where it is ignored
    slow = """
import pathlib, time
try:
    print("begun", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(1)
    pathlib.Path("saved").touch()
"""
    (tmp_path / "slow.py").write_text(handled + slow, encoding="utf-8")
    install = next(cell for cell in committed("own_pairs").cells if cell.cell_type == "code")
    with subprocess.Popen(
        [sys.executable, "-u", "-c", f"{handled}{install.source}\nrun('slow.py')"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "begun\n"  # at once, not when the script ends
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
    until = time.monotonic() + 30
    while not (tmp_path / "saved").exists():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_the_walkthrough_prints_the_sections_of_its_page(trained: "subprocess.CompletedProcess[str]") -> None:
    run = str(Path(trained.args[0]) / "weights/demo")
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs/walkthrough.py"), run],
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    page = (ROOT / "docs/walkthrough.md").read_text(encoding="utf-8")
    titles = re.findall(r"^--- (.+)$", done.stdout, re.MULTILINE)
    assert titles == re.findall(r"^## (\d+\. .+)$", page, re.MULTILINE)
    blocks = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert shapes_in(done.stdout) == [shape for block in blocks for shape in shapes_in(block)]
    assert "Le chat est assis sur le tapis." in done.stdout
    assert done.stderr == ""
