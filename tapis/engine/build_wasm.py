"""Compile the engine to WebAssembly, for the page of `export.py --to web`: wasm.c → tapis/web/engine.wasm.

    pip install ziglang==0.17.1
    python -m tapis.engine.build_wasm

The module is committed, since an export must not need a compiler. The compiler is pinned: it writes the same bytes on
every machine, which a test compares. ziglang has clang, its linker and a C library for WebAssembly.
"""

import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

COMPILER = "0.17.1"  # of ziglang
EXPORTS = ("malloc", "free", "layout", "use_positions", "translate_wasm_simd128", "force_wasm_simd128", "release")
PACKAGE = Path(__file__).parent.parent
MODULE = PACKAGE / "web" / "engine.wasm"


def has_compiler() -> bool:
    """Return whether this Python has the pinned compiler."""
    try:
        return version("ziglang") == COMPILER
    except PackageNotFoundError:
        return False


def build(module: Path) -> None:
    """Compile the module to a file, with the flags of the native engine."""
    settings = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    (extension,) = settings["tool"]["setuptools"]["ext-modules"]
    linker = ["--no-entry", "--strip-all", *(f"--export={name}" for name in EXPORTS)]
    command = [sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-wasi", "-mexec-model=reactor", "-msimd128"]
    command += [*extension["extra-compile-args"], *(f"-Wl,{argument}" for argument in linker)]
    subprocess.run([*command, "-o", str(module), "wasm.c"], cwd=PACKAGE / "engine", check=True)


if __name__ == "__main__":
    if not has_compiler():
        sys.exit(f"build_wasm.py: install the pinned compiler: pip install ziglang=={COMPILER}")
    build(MODULE)
