"""The command lines: their flags, read by one function, and how a command ends.

`python train.py [preset] [--flag value …]`: each field of `Config` is a flag of the same name, and what is not given
keeps the preset's value. Nothing here imports torch, so that help and wrong flags are answered at once
(`answer_early`), before a command spends a second or two on its imports.
"""

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import tyro

from config import LENGTH_PENALTY, PRESETS, Config, ConfigError, DeviceName, TapisError, TranslatingPrecision

T = TypeVar("T")


@dataclass(frozen=True)
class TrainOptions:
    """Train a Transformer to translate. Presets, named before the flags: opus_books, demo, multi30k, base, big."""

    config: tyro.conf.OmitArgPrefixes[Config]
    minutes: float = 0.0
    """Wall-clock time for the whole command, instead of --epochs: how many --steps fit is measured over half of it"""
    dry_run: tyro.conf.FlagCreatePairsOff[bool] = False
    """Load, split and tokenize the data, print what it is and how long the training would take, and train nothing"""
    resume: tyro.conf.FlagCreatePairsOff[bool] = False
    """Go on with weights/NAME exactly where it stopped"""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Start afresh where weights/NAME holds a run already"""


@dataclass(frozen=True)
class ModelOptions:
    """Which model, and how it computes."""

    run: str = ""
    """Run under weights/, or a folder; by default the run trained last"""
    device: DeviceName = "auto"
    """Where to compute"""
    precision: TranslatingPrecision = "auto"
    plain: tyro.conf.FlagCreatePairsOff[bool] = False
    """Translate by the plain formulas of model.py in fp32"""
    """fp32, or int8, bf16 or fp16, of which auto takes what the hardware is fastest at"""


@dataclass(frozen=True)
class TranslateOptions(ModelOptions):
    """Translate sentences with a trained model."""

    sentences: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """What to translate, one line of output each; without any, the lines of standard input"""
    beam: int = 1
    """Hypotheses that the search keeps for each sentence; 1 is greedy"""
    n_best: int = 1
    """Translations of each line, best first, each after its score and a tab; at most --beam"""
    length_penalty: float = LENGTH_PENALTY
    """0 favours short translations; the higher, the longer"""
    attention: Path | None = None
    """File to draw what the translation of one sentence attends to, .png or .html"""
    layer: int = 0
    """Layer of the decoder to draw, from 1; 0 for the last one"""
    head: int = 0
    """Head to draw, from 1; 0 for all of them and their mean"""


@dataclass(frozen=True)
class AppOptions(ModelOptions):
    """Serve a page to translate in."""

    run: str = ""
    """Run under weights/, or a folder; by default all under weights/, to choose among"""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 lets other machines in"""
    port: int = 7860
    """Port to listen on"""

    def __post_init__(self) -> None:
        if not 1 <= self.port <= 65_535:
            raise ConfigError(f"--port is {self.port}; it must be from 1 to 65535")


@dataclass(frozen=True)
class ExportOptions:
    """Give a trained model the form of other programs (--to FORM OUT), or of a release (--release OUT)."""

    out: Annotated[Path | None, tyro.conf.Positional] = None
    """Folder to make, with --to"""
    run: str = ""
    """Run under weights/, or a folder; by default the run trained last"""
    to: Literal["", "ctranslate2", "huggingface"] = ""
    """Whose form: CTranslate2's, or that of Hugging Face's transformers"""
    quantization: Literal["float32", "float16", "int8"] = "float32"
    """What CTranslate2 keeps the weights in"""
    release: Path | None = None
    """Folder to make with all that translating needs and a model card; a .tar.gz of it comes beside it"""
    license: str = "unknown"
    """Licence of the release, as the hub names it: mit, cc-by-4.0, …"""

    def __post_init__(self) -> None:
        if bool(self.to) == bool(self.release):
            raise ConfigError("one of these is needed: --to ctranslate2 OUT, --to huggingface OUT, --release OUT")
        if bool(self.to) != bool(self.out):
            raise ConfigError("--to goes with OUT, the folder to make: --to ctranslate2 OUT")
        if self.quantization != "float32" and self.to != "ctranslate2":
            raise ConfigError("--quantization is for --to ctranslate2")
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", self.license):
            raise ConfigError(f"--license {self.license}: an identifier in small letters is wanted, such as cc-by-4.0")


@dataclass(frozen=True)
class EvaluateOptions(ModelOptions):
    """Score a trained model: BLEU, chrF and the signature."""

    split: Literal["valid", "test"] = "test"
    """Part of the run's own data to score, where no files are given"""
    source: Path | None = None
    """File of sentences to translate, one a line"""
    reference: Path | None = None
    """File of their translations, one a line"""
    output: Path | None = None
    """File to write the hypotheses to, one a line"""
    against: str = ""
    """Second run, of the same languages, to compare with by paired bootstrap"""
    beam: int = 1
    """Hypotheses that the search keeps for each sentence; 1 is greedy"""
    length_penalty: float = LENGTH_PENALTY
    """0 favours short translations; the higher, the longer"""


def parse(options: type[T], args: Sequence[str], default: T | None = None) -> T:
    """A command's line as a dataclass, whose docstring heads its help; --help prints and exits with 0.

    Raises a ConfigError for a wrong flag: what is wrong, and what was perhaps meant, out of tyro's framed page.
    """
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            parsed: T = tyro.cli(options, description=options.__doc__, args=list(args), default=default)  # type: ignore[assignment]
            return parsed
    except SystemExit as exit:
        if not exit.code:
            raise
        lines = [line.strip("│╭╰─╮╯ ") for line in printed.getvalue().splitlines()]
        message, _, rest = "\n".join(lines[1:]).partition("\n\n")
        meant = re.search(r"^--\S+", rest.partition("Perhaps you meant")[2], re.MULTILINE)
        hint = f"did you mean {meant.group()}? " if meant else ""
        if options is TrainOptions and PRESETS.keys() & set(message.split()[-1:]):
            hint = "one preset may be named, before the flags; "
        raise ConfigError(f"{' '.join(message.split())}\n{hint}--help lists the flags") from None


def parse_training(args: Sequence[str]) -> tuple[str, list[str], TrainOptions]:
    """train.py's line, `[preset] [flags]`: the preset's name, the flags, and what both come to."""
    preset, *flags = args if args and not args[0].startswith("-") else ("opus_books", *args)
    if preset not in PRESETS:
        raise ConfigError(f"no preset {preset!r}; there are {', '.join(PRESETS)} (opus_books when none is named)")
    return preset, flags, parse(TrainOptions, flags, TrainOptions(config=PRESETS[preset]))


def named(config: Config, preset: str) -> Config:
    """The config with its run's name filled in."""
    return config if config.name else replace(config, name=f"{preset}-{config.source}-{config.target}")


def answer_early(name: str, read: Callable[[Sequence[str]], object]) -> None:
    """What a command's file, of that __name__, calls above its slow imports: answers --help and wrong flags.

    read takes the line and raises what is wrong with it; to read it twice costs less than a tenth of a second.
    """
    if name == "__main__":
        run_command(read)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python, or torch on any device, had no more memory; on a CPU and on mps torch says so in words alone."""
    words = ("can't allocate memory", "out of memory")
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(w in str(error) for w in words))


def run_command(main: Callable[[Sequence[str]], object]) -> None:
    """Runs a command's main and ends the process: 0, 2 for a wrong flag, 1 for another error, 130 for Ctrl-C.

    Errors that the user can put right are printed on standard error without a traceback.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
    try:
        main(sys.argv[1:])
        sys.stdout.flush()
    except TapisError as error:
        if error.from_any or os.environ.get("LOCAL_RANK", "0") == "0":
            print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except (MemoryError, RuntimeError) as error:  # training has words of its own
        if not is_out_of_memory(error):
            raise
        print(f"{Path(sys.argv[0]).name}: out of memory: shorter lines, or a lower --beam, take less", file=sys.stderr)
        sys.exit(1)
    except OSError as error:  # a full disk, a folder that may not be written to
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        sys.exit(1)
