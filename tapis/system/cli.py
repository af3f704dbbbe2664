"""The command lines: the flags of each command, `parse`, which reads them, and `run_command`, which ends a command.

`answer_early` answers --help and wrong flags before a command spends time on its imports.
"""

import contextlib
import inspect
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, NoReturn, TextIO, TypeVar, cast

import tyro

from tapis.config import LENGTH_PENALTY, ConfigError, DeviceName, TapisError, TranslatingPrecision, flag
from tapis.search import AttentionOf
from tapis.system.addresses import is_network, is_wildcard
from tapis.system.files import is_same_file
from tapis.system.help import put_help
from tapis.system.terminal import is_first_on_machine, is_main, printable
from tapis.system.usage import all_fields, split_at_dashes, usage_error

T = TypeVar("T")


@dataclass(frozen=True)
class ModelOptions:
    """Which model to load, and how it computes."""

    run: str = ""
    """Name of a run in weights/, folder, release archive, or hub id; by default the most recent run"""
    device: DeviceName = "auto"
    """Device to compute on; auto prefers cuda, then mps, then cpu"""
    precision: TranslatingPrecision = "auto"
    """Precision of matrix products; auto chooses the fastest on this hardware"""
    plain: tyro.conf.FlagCreatePairsOff[bool] = False
    """Translate by the plain formulas of model.py in fp32, without fused or quantized layers"""


@dataclass(frozen=True)
class TranslateOptions(ModelOptions):
    """Translate sentences with a trained model."""

    sentences: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Sentences to translate, one line of output each, or with --format one file; without any, standard input is
    translated"""
    format: Literal[
        "auto", "lines", "text", "html", "markdown", "srt", "vtt", "po", "json", "yaml", "xliff", "docx", "odt", "epub"
    ] = "auto"
    """Lines, or a document, of which only the text is translated; text is plain text wrapped at a column; auto chooses
    by the name of --input: lines, unless it is that of a document"""
    input: Path | None = None
    """File to translate, which may be compressed, or a folder or .zip archive of files"""
    column: tuple[str, ...] = ()
    """Columns to translate of a table (.csv, .tsv), by their names in the first row or their numbers from 1"""
    report: Path | None = None
    """File to write that lists the texts of documents with their translations and doubts: .tsv or .html"""
    output: Path | None = None
    """File to write instead of standard output; may be compressed. Until it is whole, it is called FILE.part, and the
    same command goes on where an interrupted one ended"""
    keep_going: tyro.conf.FlagCreatePairsOff[bool] = False
    """Leave a line blank that cannot be read, and list it at the end, instead of ending there"""
    shard: str = ""
    """Translate only part N of M of the lines of --input, given as N/M, such as 2/8"""
    target: str = ""
    """Language to translate into, with a model of several"""
    source: str = ""
    """Language of the sentences, with a model of several; by default it is identified"""
    beam: int = 1
    """Beam size; 1 is greedy search"""
    n_best: int = 1
    """Translations to print per line, best first, each as SCORE<tab>TEXT; at most --beam"""
    length_penalty: float = LENGTH_PENALTY
    """Exponent of the length penalty of beam search: higher values favour longer translations"""
    glossary: Path | None = None
    """File of terms that must be translated as it says: a term, a tab and its translation on each line"""
    memory: Path | None = None
    """Translation memory (.tmx): lines and texts that it has are not translated again, but taken from it"""
    write_memory: Path | None = None
    """Translation memory (.tmx) to add the translations to, or to make"""
    doubts: tyro.conf.FlagCreatePairsOff[bool] = False
    """Append to each line a tab and the reasons to check it, empty if none: loop, short, long, numbers, copied,
    invented, unsure"""
    attention: Path | None = None
    """Draw the attention of one sentence's translation in this file, .png or .html"""
    attention_of: AttentionOf = "source"
    """What to draw: the attention of the translation to the source, or the encoder's or the decoder's own attention"""
    layer: int = 0
    """Layer to draw, from 1; 0 for the last"""
    head: int = 0
    """Attention head to draw, from 1; 0 for all heads and their mean"""


@dataclass(frozen=True)
class EvaluateOptions(ModelOptions):
    """Score a trained model on two files, or translations made elsewhere: BLEU, chrF and sacreBLEU's signature."""

    source: Path | None = None
    """File of sentences to translate, one per line"""
    reference: tuple[Path, ...] = ()
    """File of their reference translations, one per line; with --hypothesis, one or several"""
    hypothesis: Path | None = None
    """File of translations made elsewhere, to score without a model"""
    target: str = ""
    """Language of --reference, with a model that translates into several; with --hypothesis, zh, ja or ko"""
    source_language: str = ""
    """Language of --source, with a model of several; by default it is identified"""
    output: Path | None = None
    """File to write the translations to, one per line"""
    scores: Path | None = None
    """File to write a line per pair to: log-probability of the reference in nats, its tokens, chrF of the translation,
    and the translation, separated by tabs"""
    doubts: tyro.conf.FlagCreatePairsOff[bool] = False
    """Count the translations that are doubtful, as translate.py --doubts marks them"""
    against: str = ""
    """Another run that translates the same pairs, to compare with by paired bootstrap resampling; with --hypothesis,
    another file of translations"""
    beam: int = 1
    """Beam size; 1 is greedy search"""
    length_penalty: float = LENGTH_PENALTY
    """Exponent of the length penalty of beam search: higher values favour longer translations"""


@dataclass(frozen=True)
class InfoOptions:
    """Say how this machine computes and, of a model, what it is."""

    run: str = ""
    """Name of a run in weights/, folder, release archive, or hub id; its files are checked"""


@dataclass(frozen=True)
class ServeOptions:
    """Serve a page that translates, and the HTTP API of LibreTranslate."""

    run: tuple[str, ...] = ()
    """Names of runs in weights/, folders, release archives, or hub ids; of two for one language pair, the first
    translates it; by default, all runs in weights/"""
    device: DeviceName = "auto"
    """Device to compute on; auto prefers cuda, then mps, then cpu"""
    precision: TranslatingPrecision = "auto"
    """Precision of matrix products; auto chooses the fastest on this hardware"""
    plain: tyro.conf.FlagCreatePairsOff[bool] = False
    """Translate by the plain formulas of model.py in fp32, without fused or quantized layers"""
    beam: int = 1
    """Beam size of the API; 1 is greedy search"""
    glossary: tuple[Path, ...] = ()
    """Files of terms that must be translated as they say, each for the language pair that its name ends in:
    terms.en-fr.tsv"""
    memory: tuple[Path, ...] = ()
    """Translation memories (.tmx) of language pairs that are served: what they have is not translated again, and the
    page shows what is like a line"""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 accepts connections from other machines"""
    port: int = 7860
    """Port to listen on"""
    no_page: tyro.conf.FlagCreatePairsOff[bool] = False
    """Serve only the API, without the page"""
    loaded: int = 2
    """Models in memory, of which the least recently used makes room for another"""
    allow_host: tyro.conf.UseAppendAction[tuple[str, ...]] = field(default=(), metadata={"may_repeat": True})
    """A name by which clients reach the server, besides localhost and --host; may be given several times, and must be
    given once at least with --host 0.0.0.0"""
    trusted_proxy: tuple[str, ...] = ()
    """Addresses or networks of reverse proxies, whose header X-Forwarded-For is believed"""
    char_limit: int = 10_000
    """Characters of one request, at most"""
    work_limit: float = 100_000
    """Work of one request, at most: its characters, times the size of the beam, times 1.5 for HTML"""
    max_waiting: int = 256
    """Requests that wait to be translated; further ones get status 429"""
    max_lines: int = 256  # more would delay the first answers without being faster
    """Lines of several requests that are translated together"""
    timeout: float = 30.0
    """Seconds for one request"""
    api_key_file: Path | None = None
    """File of API keys, one per line; requests to translate need one of them"""
    cors: tuple[str, ...] = ()
    """Sites whose pages may read answers, such as https://example.org; * for all"""

    def __post_init__(self) -> None:
        if not 1 <= self.port <= 65_535:
            raise ConfigError(f"--port is {self.port}; it must be from 1 to 65535")
        if not 1 <= self.beam <= 1000:
            raise ConfigError(f"--beam is {self.beam}; it must be from 1 to 1000")
        for name in ("loaded", "char_limit", "work_limit", "max_waiting", "max_lines", "timeout"):
            if not 0 < getattr(self, name) < 1e9:
                raise ConfigError(f"{flag(name)} is {getattr(self, name)}; it must be more than 0 and less than 1e9")
        if is_wildcard(self.host) and not self.allow_host:
            raise ConfigError(
                f"--host {self.host} listens on all networks: name the server as clients do, with --allow-host, "
                "such as --allow-host translate.example.org or 192.168.0.7"
            )
        for name in self.allow_host:
            if not re.fullmatch(r"[A-Za-z0-9._-]+|\[?[0-9A-Fa-f:.]+\]?", name):
                raise ConfigError(f"--allow-host {name}: give a name or an address, without http:// and without a port")
        for proxy in self.trusted_proxy:
            if not is_network(proxy):
                raise ConfigError(f"--trusted-proxy {proxy}: give an address or a network, such as 10.0.0.0/8")
        for site in self.cors:
            if not re.fullmatch(r"\*|https?://(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?", site, re.ASCII):
                raise ConfigError(f"--cors {site}: name a site as browsers do, such as https://example.org")


def parse(
    options: type[T],
    args: Sequence[str],
    default: T | None = None,
    misplaced: Mapping[str, str] | None = None,
    prog: str | None = None,
) -> T:
    """Parse a command line into a dataclass. --help prints the fields' docstrings and their values in `default`.

    misplaced has words that may stand elsewhere in the line, each with the error where it does not belong. prog is the
    command as --help shows it, by default the file that was started. Raises ConfigError for a wrong line, and
    SystemExit(0) after --help.
    """

    def read(*, console_outputs: bool) -> T:
        parsed: T = tyro.cli(  # type: ignore[assignment]
            options,
            prog=prog,
            description=inspect.getdoc(options),
            args=list(args),
            default=default,
            console_outputs=console_outputs,
        )
        return parsed

    args = with_hyphens(args)
    reject_repeated(options, args)
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # for some errors tyro ignores console_outputs=False
            return read(console_outputs=False)
    except SystemExit as exit:
        is_help = not exit.code
    if is_help:
        put_help(options)
        read(console_outputs=True)  # prints the help and raises SystemExit(0)
    raise ConfigError(usage_error(options, args, dict(misplaced or {})))


def with_hyphens(args: Sequence[str]) -> list[str]:
    """Return a command line with the names of its flags as they are documented; tyro takes --d_model, too.

    What follows an argument `--` is no flag, and stays as it is.
    """
    flags, texts = split_at_dashes(args)
    parts = [argument.partition("=") if argument.startswith("--") else ("", "", argument) for argument in flags]
    return [name.replace("_", "-") + equals + value for name, equals, value in parts] + texts


def reject_repeated(options: type, args: Sequence[str]) -> None:
    """Raise ConfigError for a flag of several values that is given twice.

    Of a flag that is given twice, the last one counts, which would lose values.
    """
    names = [argument.partition("=")[0] for argument in split_at_dashes(args)[0]]
    for one in all_fields(options):
        is_single = isinstance(one.default, tuple) and not one.metadata.get("may_repeat")
        if is_single and names.count(flag(one.name)) > 1:
            raise ConfigError(f"{flag(one.name)} is given twice: all its values follow one {flag(one.name)}")


def answer_early(module_name: str, read: Callable[[Sequence[str]], T]) -> T | None:
    """Answer --help and wrong flags at once. Call it above the slow imports of a command, with its `__name__`.

    Also calls `share_cores`, which must come before torch. `read` parses the line and raises an error if the line is
    wrong; what it returns is returned. Parsing the line a second time, in `main`, takes less than a tenth of a second.
    Does nothing, and returns None, if the module is imported.
    """
    if module_name != "__main__":
        return None
    share_cores()
    return run_command(read)


def check_written(written: Mapping[str, Path | None], read: Iterable[tuple[str, Path | None]]) -> None:
    """Raise ConfigError if a file to write, by its flag, is one that the command reads, or writes a second time.

    read has each file with what it is: "the file of --source".
    """
    known = [(what, file) for what, file in read if file]
    for name, file in written.items():
        if not file:
            continue
        for what, other in known:
            if is_same_file(file, other):
                raise ConfigError(f"{name} {file} is {what}, which is not overwritten")
        known.append((f"the file of {name}", file))


def share_cores() -> None:
    """Make the threads of libgomp, by which torch computes on Linux, wait for each other briefly. Call it before torch.

    After its share of an operation, a thread spins until the others have theirs, by default for milliseconds. Beside
    another busy program, threads then spin while those that they wait for have no core: two threads trained at 0.3 of
    their speed alone. With this value they sleep after some microseconds, and train at half of it or more; alone, they
    lose up to 5 % (benchmarks/busy_machine.py). Values already set in the environment have priority.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "800")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, on any device. On CPUs and mps, only torch's message tells."""
    if isinstance(error, MemoryError):
        return True
    messages = ("can't allocate memory", "out of memory")
    return isinstance(error, RuntimeError) and any(message in str(error) for message in messages)


class ClosedStreamError(TapisError):
    """A standard stream is needed that was closed when the command started."""


class ClosedStream(io.TextIOBase):
    """What replaces standard input or output where it was closed at the start: it raises an error when it is used."""

    def __init__(self, name: str) -> None:
        self.error = ClosedStreamError(f"{name} is closed")

    @property
    def buffer(self) -> NoReturn:
        """Raise ClosedStreamError."""
        raise self.error

    def readline(self, size: int = -1, /) -> NoReturn:  # type: ignore[override]
        """Raise ClosedStreamError."""
        raise self.error

    def write(self, text: str, /) -> NoReturn:
        """Raise ClosedStreamError."""
        raise self.error


def replace_closed_streams() -> None:
    """Replace the standard streams that were closed at the start, which Python sets to None.

    Messages to a closed standard error are discarded. The descriptors are opened, so that no file that the command
    writes gets one of them, and with it what a library prints.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor, which is this one
    sys.stdin = sys.stdin or cast(TextIO, ClosedStream("standard input"))
    sys.stdout = sys.stdout or cast(TextIO, ClosedStream("standard output"))
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - it stays open


def replace_unbuffered_output() -> None:
    """Give standard output a buffer where Python was told to have none (PYTHONUNBUFFERED), and flush it at each line.

    Without a buffer, Python does not notice that the system wrote only a part of a text, as when a disk becomes full.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and isinstance(sys.stdout.buffer, io.RawIOBase):
        buffered = io.BufferedWriter(sys.stdout.detach())
        sys.stdout = io.TextIOWrapper(buffered, encoding="utf-8", errors="replace", line_buffering=True)


def run_command(main: Callable[[Sequence[str]], T]) -> T:
    """Run a command's `main` with its arguments. Returns what it returns; after an error, ends the process.

    Exit codes: 2 for a wrong flag, 1 for another error that the user can correct, 130 for Ctrl-C, 141 for a closed
    pipe. Such errors are printed on standard error without a traceback. Standard input or output that was closed at the
    start is an error once it is needed.

    Of several processes, the first on each machine prints its error: the processes of one machine usually raise the
    same one, and each machine has its own standard error, where an error of that machine alone must appear. An error
    that a single process may raise has `printed_by_every_process` set. Other processes than the main one add their
    number.
    """
    replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
    replace_unbuffered_output()
    try:
        result = main(sys.argv[1:])
        sys.stdout.flush()
        return result
    except TapisError as error:
        if is_first_on_machine() or error.printed_by_every_process:
            print_error(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # such as `| head`
        discard_output()
        sys.exit(141)
    except (MemoryError, RuntimeError) as error:  # train.py raises its own error
        if not is_out_of_memory(error):
            raise
        print_error("out of memory: shorter lines or a lower --beam need less")
        sys.exit(1)
    except OSError as error:  # a full disk, a folder without write permission
        print_error(str(error) if error.filename or not error.strerror else error.strerror)
        try:
            sys.stdout.flush()
        except OSError:  # it was standard output that failed
            discard_output()
        sys.exit(1)


def discard_output() -> None:
    """Send the rest of standard output to devnull, so that Python's flush at exit does not fail, too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_error(message: str) -> None:
    """Print an error after the command's name and, except for the main process, the process's number.

    Does nothing if nobody reads standard error.
    """
    number = "" if is_main() else f" (process {os.environ['RANK']})"
    with contextlib.suppress(OSError):
        print(printable(f"{Path(sys.argv[0]).name}{number}: {message}"), file=sys.stderr)
