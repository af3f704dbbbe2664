"""Starts commands in forks of a process that has imported their packages, which saves the seconds that this takes.

A fork runs a script as `python -W error -W ignore::ResourceWarning script.py …` does, but for the pictures of a
training, which take longer than many runs. It cannot show what happens while packages are imported: their errors, and
what they do with environment variables. For that, and once for each command, tests start Python itself.
"""

import atexit
import multiprocessing
import os
import runpy
import socket
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib.figure
import pytest

import tapis.attention

ROOT = Path(__file__).parent.parent

# Windows has no forks: there, each process imports for itself.
_METHODS = multiprocessing.get_all_start_methods()
_FORKS: Any = multiprocessing.get_context("forkserver" if "forkserver" in _METHODS else None)


def import_packages() -> None:
    """Starts the process that will be forked. Its imports see the environment of now, with one thread."""
    if _FORKS.get_start_method() == "forkserver":
        from multiprocessing import forkserver

        _FORKS.set_forkserver_preload(["preloaded"])
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OMP_NUM_THREADS", "1")
            patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
            forkserver.ensure_running()


class Launched:
    """A command in n processes, with the environment that torchrun would give to each if there are several.

    The processes run in the current folder. Those that still run at the end of a `with` block are killed. `stdout` and
    `stderr` are files with what all of them have written.
    """

    def __init__(self, args: Sequence[str], n: int = 1, text: str = "") -> None:
        self._folder = TemporaryDirectory()
        stdin, self.stdout, self.stderr = (Path(self._folder.name, name) for name in ("in", "out", "err"))
        stdin.write_bytes(text.encode())
        self.stdout.touch()
        self.stderr.touch()
        port = free_port()
        self.processes = [
            _FORKS.Process(
                target=_run_script,
                args=(list(args), Path.cwd(), _environment(rank, n, port), [stdin, self.stdout, self.stderr]),
            )
            for rank in range(n)
        ]
        for process in self.processes:
            process.start()

    def __enter__(self) -> "Launched":
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes:
            process.kill()
            process.join()
        self._folder.cleanup()

    def wait(self, seconds: float = 280) -> tuple[int, str, str]:
        """The exit code, what was written to stdout, and to stderr. Of several exit codes, the first that is not 0."""
        deadline = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0, deadline - time.monotonic()))
        codes = [process.exitcode for process in self.processes]
        assert None not in codes, f"it did not end: {self.stderr.read_text(encoding='utf-8')}"
        failures = [code for code in codes if code != 0]
        out, err = (path.read_text(encoding="utf-8") for path in (self.stdout, self.stderr))
        return failures[0] if failures else 0, out, err


def free_port() -> int:
    """A port that no process listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _environment(rank: int, n: int, port: int) -> dict[str, str]:
    """The environment of one process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if n > 1:
        values = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": n, "LOCAL_WORLD_SIZE": n, "MASTER_PORT": port}
        environment |= {name: str(value) for name, value in values.items()}
        environment |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "tests"}
    return environment


def _run_script(args: list[str], folder: Path, environment: dict[str, str], streams: list[Path]) -> None:
    """Runs a script in this process, which was forked for it. Raises SystemExit."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, path in enumerate(streams):
        opened = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, number)
    sys.stdin, sys.stdout, sys.stderr = (open(i, "w" if i else "r", 1, "utf-8", closefd=False) for i in range(3))  # noqa: SIM115
    multiprocessing.set_start_method(_METHODS[0], force=True)  # the platform's own, as in any program
    sys.argv = [str(ROOT / args[0]), *args[1:]]
    sys.path.insert(0, str(ROOT))
    if args[0] == "train.py":
        tapis.attention.draw = lambda *_: matplotlib.figure.Figure((1, 1))
    warnings.resetwarnings()
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", ResourceWarning)  # of a server's packages when it cannot start
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        # As at the end of Python itself, which a fork leaves out.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
