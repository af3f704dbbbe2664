"""Converts a run for other programs: CTranslate2, Hugging Face's transformers, a browser, or a release to publish.

    python export.py --run NAME --to ctranslate2 OUT --quantization int8
    python export.py --run NAME --to huggingface OUT
    python export.py --run NAME --to web OUT.html
    python export.py --run NAME --release OUT --license cc-by-4.0        also writes OUT.tar.gz

`translate.py --run OUT` accepts the first and the last. OUT is created complete or not at all.
"""

from functools import partial

from training.cli import ExportOptions, target_flag
from tapis.system.cli import answer_early, parse, run_command

answer_early(__name__, partial(parse, ExportOptions))  # before torch, which takes more than a second

import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from checkpoint import RunFolder
from tapis.config import ConfigError
from tapis.ctranslate2 import is_exported
from exporting.ctranslate2 import to_ctranslate2
from exporting.hugging_face import to_hugging_face
from exporting.release import pack, to_release
from exporting.web import to_web
from tapis.system.files import whole_folder
from tapis.system.terminal import say

NEXT_STEP = {
    "": 'try it with: python translate.py --run {out} {flag}"…"; publish it with: hf upload OWNER/NAME {out}',
    "ctranslate2": 'try it with: python translate.py --run {out} {flag}"…", or: python {example} {argument}"…"',
    "huggingface": "load it with AutoModelForSeq2SeqLM and AutoTokenizer of transformers",
    "web": "open it in a browser; it needs no network",
}


def main(args: Sequence[str]) -> None:
    """Run the command: make the export or the release, and print what was made."""
    # Check where to write, and what to export.
    options = parse(ExportOptions, args)
    out = options.release or options.out
    assert out  # ExportOptions checks it
    is_file = options.to == "web"
    if not out.name:
        raise ConfigError(f"{out} cannot be written: name a new folder")
    archive = out.with_name(f"{out.name}.tar.gz")
    if options.release and archive.exists():
        raise ConfigError(f"{archive} already exists: name a new folder")
    if out.exists() and (is_file or not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} already exists: name a new {'file' if is_file else 'folder'}")
    folder = RunFolder.find(options.run)
    if is_exported(folder.path):
        raise ConfigError(f"{folder.path} is an export already: name the run that it was made from")
    if not options.run:
        say(f"run {folder.path.name}")

    # Write the file, or the folder and, of a release, the archive.
    fill: dict[str, Callable[[Path], None]] = {
        "": lambda into: to_release(folder, into, options.license),
        "ctranslate2": lambda into: to_ctranslate2(folder, into, options.quantization),
        "huggingface": lambda into: to_hugging_face(folder, into),
    }
    if is_file:
        to_web(folder, out, options.license)
    else:
        whole_folder(out, fill[options.to])
    outputs = [out]
    if options.release:
        try:
            pack(out, archive)
        except BaseException:
            shutil.rmtree(out)
            raise
        outputs.append(archive)

    # Print the size and the next step, and the paths on standard output.
    size = sum(file.stat().st_size for file in ([out] if is_file else out.iterdir()))
    config = folder.load_config()
    next_step = NEXT_STEP[options.to].format(
        out=shlex.quote(str(out)),
        example=shlex.quote(str(out / "example.py")),
        flag=target_flag(config),
        argument="LANGUAGE " if config.tagged_languages else "",
    )
    say(f"{size / 1e6:,.1f} MB; {next_step}")
    print(*outputs, sep="\n")


if __name__ == "__main__":
    run_command(main)
