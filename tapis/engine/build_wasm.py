"""Compile the engine to WebAssembly, for the page of `export.py --to web`: engine.c → tapis/web/engine.wasm.

    pip install ziglang==0.17.1
    python -m tapis.engine.build_wasm

The module is committed, since an export must not need a compiler. The compiler is pinned, so that a test can compare
the bytes. ziglang has clang, its linker and a C library for WebAssembly.

Unlike the native engine, the module adds numbers in the order of the source (no -fassociative-math). It therefore
computes the same as the variant `plain`, compiled in this way; a test compares ids, scores and attention. -Os halves
the module of -O3, which needs a tenth to a fifth less time.
"""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

COMPILER = "0.17.1"  # of ziglang
STRICT = ("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-ffinite-math-only")
EXPORTS = ("malloc", "free", "layout", "translate_wasm_simd128", "force_wasm_simd128", "release")
PACKAGE = Path(__file__).parent.parent
MODULE = PACKAGE / "web" / "engine.wasm"


def has_compiler() -> bool:
    """Return whether this Python has the pinned compiler."""
    try:
        return version("ziglang") == COMPILER
    except PackageNotFoundError:
        return False


def build(module: Path) -> None:
    """Compile the module to a file."""
    linker = ["--no-entry", "--strip-all", *(f"--export={name}" for name in EXPORTS)]
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        "wasm32-wasi",
        "-mexec-model=reactor",
        "-msimd128",
        "-Os",
    ]
    command += [*STRICT, *(f"-Wl,{argument}" for argument in linker)]
    subprocess.run([*command, "-o", str(module), "engine.c"], cwd=PACKAGE / "engine", check=True)


if __name__ == "__main__":
    if not has_compiler():
        sys.exit(f"build_wasm.py: install the pinned compiler: pip install ziglang=={COMPILER}")
    build(MODULE)
