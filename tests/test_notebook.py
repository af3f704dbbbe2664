"""The notebook runs from its first cell to its last."""

import os
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
from conftest import ROOT
from nbclient import NotebookClient


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_tour_runs(trained: "subprocess.CompletedProcess[str]", tmp_path: Path) -> None:
    """In a folder with the project's files and the demo's weights."""
    for file in ROOT.glob("*.py"):
        shutil.copy(file, tmp_path)
    for room in ("text", "fast", "decoding", "training", "system"):
        shutil.copytree(ROOT / room, tmp_path / room)
    shutil.copytree(Path(trained.args[0]) / "weights", tmp_path / "weights")
    (tmp_path / "notebooks").mkdir()
    notebook = nbformat.read(ROOT / "notebooks/tour.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    assert all(not cell.get("outputs") for cell in notebook.cells), "clear the outputs before committing"
    resources = {"metadata": {"path": str(tmp_path / "notebooks")}}
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
    assert any("Le chat est assis sur le tapis." in str(output.get("data", {})) for output in outputs)
