"""The command that translates: its arguments, a file, standard input, or what is typed at its prompt."""

import io
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO, Literal, NamedTuple, TextIO

from tapis.attention import draw, quiet, to_html
from tapis.commands.documents import Documents, check_report, format_of, is_begun, read_document, write_document
from tapis.config import ConfigError, TapisError, TranslatingPrecision, flag
from tapis.documents.formats import FORMAT_OF_ENDING, FORMATS, TABLES, DocumentFormat
from tapis.engine.engine import Engine
from tapis.glossary import Glossary, is_spaceless
from tapis.memory import Memory, write_memory
from tapis.release import RunFiles
from tapis.search import Search
from tapis.system.cli import TranslateOptions, check_written, parse
from tapis.system.files import check_writable, digest, digest_files, is_within, write_text, write_whole
from tapis.system.parts import UnfinishedFile
from tapis.system.terminal import Progress, escape_controls, listed, say
from tapis.text.languages import can_identify
from tapis.text.line_blocks import LINES_AT_ONCE, LineReader, check_shard, count_lines, lines_of_shard
from tapis.text.lines import COMPRESSED_ENDINGS, Pair, check_ending, compressed, file_type, open_bytes
from tapis.text.marks import take_out
from tapis.text.markup import Markup, has_markdown, plain
from tapis.text.sentences import has_letters
from tapis.text.tmx import read_tmx_file
from tapis.threads import ahead
from tapis.translation import Translation
from tapis.translator import Translator
from tapis.typed_text import sentences_as_translated, translate_lines, without_added_stop

CLEAR = 0.99  # probability of a language
SPREADSHEETS = (".xlsx", ".xlsm", ".xls", ".ods", ".numbers")
# Nor are these, and they are no lines of text
NOT_TRANSLATED = (".doc", ".rtf", ".pdf", ".ppt", ".pptx", ".pptm", ".ppsx", ".odp", ".pages", ".key")
FILES_OF_MODEL = ("config.json", "learned.json", "tokenizer.json", "model.safetensors", "model.bin")


def run(kind: type[Translator], args: Sequence[str]) -> None:
    """Run the command. `kind` loads the translator: that of the package, or of a checkout."""
    options = parse(TranslateOptions, args)
    task = task_of(options)
    glossary = Glossary.read(options.glossary) if options.glossary else None
    search = Search(options.beam, options.n_best, options.length_penalty)
    precision = precision_for(kind, options)
    folder = kind.files.find(options.run)
    translator = kind.load(folder.path, options.device, precision, plain=options.plain)
    translator = translator.towards(options.target, options.source)
    if glossary:
        translator = translator.with_glossary(glossary)
    if not options.run:
        say(f"run {folder.path.name}")
    warn_of_unidentified(translator)
    if options.attention:
        draw_attention(translator, options, search)

    source = translator.sources[0]
    check_source_of_memory(translator, options)
    memory = Memory.read(options.memory, source, translator.target) if options.memory else None
    if options.write_memory and options.write_memory.exists():
        read_tmx_file(options.write_memory, source, translator.target)  # an error comes now, not after the work
    check_outputs(options, task)
    translate = LineTranslation(translator, options, search, memory)
    n_failed = 0
    if task.kind == "sentences":
        sentences = [sentence.replace("\n", " ") for sentence in options.sentences]
        text = translate(sentences)
        shown = text if options.output else printable_on(sys.stdout, text)
        write_answer(shown.encode("utf-8", "replace"), options.output)
    elif task.kind == "lines" and not task.file and not options.output and sys.stdin.isatty():
        converse(translator, translate)
    elif task.kind == "lines" and options.output:
        with UnfinishedFile(options.output, made_by(folder, options)) as part:
            if options.write_memory and part.n_lines_before:
                missing = f"the first {part.n_lines_before:,} lines, which an earlier command translated"
                say(f"warning: {options.write_memory} will not have {missing}")
            translate_into(part, task.file, options, translate)
            part.finish()
    elif task.kind == "lines":
        translate_into(None, task.file, options, translate)
    else:
        n_failed = translate_documents(task, options, translate)
    if options.write_memory:
        write_memory(options.write_memory, translate.translated, source, translator.target)
    if n_failed:
        command = "the same command, with another --report," if options.report else "the same command"
        raise TapisError(
            f"not translated: {n_failed:,} of the files, which the warnings name\n"
            f"once they are mended, {command} translates them; to keep one as it is, copy it to the output"
        )


def precision_for(kind: type[Translator], options: TranslateOptions) -> TranslatingPrecision:
    """Return the precision to translate in. PyTorch alone shows the attention within a stack of layers."""
    if options.attention_of == "source":
        return options.precision
    if kind is Translator:
        raise ConfigError(f"--attention-of {options.attention_of} needs PyTorch: use translate.py of a checkout")
    return "fp32" if options.precision == "auto" else options.precision


def check_source_of_memory(translator: Translator, options: TranslateOptions) -> None:
    """Raise ConfigError if texts for a translation memory may be in several languages."""
    if (options.memory or options.write_memory) and len(translator.sources) > 1:
        into = f"{', '.join(translator.sources)} into {translator.target}"
        raise ConfigError(f"--memory and --write-memory need --source: the model translates {into}")


def translate_documents(task: "Task", options: TranslateOptions, translate: "LineTranslation") -> int:
    """Translate a document, an archive of documents or a folder of them, and write the report about them.

    Return how many files of a folder could not be translated.
    """
    sources = translate.translator.sources
    source = sources[0] if len(sources) == 1 else ""
    memory = translate.memory if options.report else None
    documents = Documents(translate.of_document, options.column, memory, source)
    n_failed = 0
    if task.kind == "folder":
        assert task.file and options.output
        records = [file for file in (options.report, options.write_memory) if file]
        if records and is_begun(task.file, options.output):
            for file in records:
                say(f"warning: {file} gets no texts of the files that are in {options.output} already")
        n_failed = documents.translate_folder(task.file, options.output)
    else:
        name = str(task.file) if task.file else "standard input"
        content = read_document(task.file)
        if task.format:
            result = documents.translated(content, name, task.format)
        else:
            result = documents.translated_archive(content, name)
        if sys.stdout.isatty() and not options.output:
            result = escape_controls(result.decode("utf-8", "replace")).encode()
        write_answer(result, options.output)
    if options.report:
        documents.write_report(options.report)
    return n_failed


def write_answer(content: bytes, output: Path | None) -> None:
    """Write content to a file, compressed as its name says, or to standard output."""
    if output:
        write_document(output, content)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()


class Task(NamedTuple):
    """What the command line asks to translate."""

    kind: Literal["sentences", "lines", "document", "archive", "folder"]
    file: Path | None = None
    """None for sentences and standard input"""
    format: DocumentFormat | None = None
    """Of a document"""


def task_of(options: TranslateOptions) -> Task:
    """Return what to translate.

    Raises ConfigError for sentences that are names of files, for spreadsheets and other documents that are not
    translated, for files that would be overwritten, and for flags that what is translated does not take.
    """
    check_shard(options.shard)
    for name, file in (("memory", options.memory), ("write_memory", options.write_memory)):
        if file and file_type(file) != ".tmx":
            raise ConfigError(f"{flag(name)} {file}: a translation memory is a .tmx file")
    for written in (options.output, options.write_memory):
        if written:
            check_ending(written)
    if options.input and options.sentences:
        raise ConfigError("--input FILE is translated alone: leave out the sentences")
    task = _task_of_files(options)
    check_report(options, is_document=task.kind not in ("sentences", "lines"))

    # Flags that do not belong together
    given = [
        name for name in ("attention_of", "layer", "head") if getattr(options, name) != getattr(TranslateOptions, name)
    ]
    if given and not options.attention:
        raise ConfigError(f"{flag(given[0])} is for --attention FILE")
    if task.kind in ("sentences", "lines"):
        if options.shard and not task.file:
            raise ConfigError("--shard is for the lines of a file, named by --input")
        if options.shard and task.file and task.file.exists() and not is_file(task.file):
            raise ConfigError(f"--shard is for a file, whose lines can be counted, and {task.file} is none")
        if options.column:
            raise ConfigError("--column is for tables: .csv or .tsv")
    else:
        of_lines = [flag(name) for name in ("doubts", "shard", "keep_going", "attention") if getattr(options, name)]
        if of_lines or options.n_best > 1:
            first = next(iter(of_lines), "--n-best")
            raise ConfigError(f"{first} is for lines, and {task.file or options.format} is a document: see --format")
    check_can_be_shown(options, task)
    check_files(options, task)
    return task


def check_can_be_shown(options: TranslateOptions, task: Task) -> None:
    """Raise ConfigError if the terminal would get a file that is no text."""
    is_text = task.kind != "archive" and task.format not in [FORMATS[name] for name in ("docx", "odt", "epub")]
    if not (is_text or options.output) and sys.stdout.isatty():
        raise ConfigError(f"{task.file or 'the document'} is no text: name a file for its translation, with --output")


def check_outputs(options: TranslateOptions, task: Task) -> None:
    """Raise OSError if a file that is written after the work cannot be made."""
    output = None if task.kind in ("lines", "folder") else options.output  # which are written in between
    for file in (output, options.report, options.write_memory):
        if file:
            check_writable(file)


def check_files(options: TranslateOptions, task: Task) -> None:
    """Raise ConfigError if a file to write is one that the command reads or also writes, or no regular file.

    Only a memory may be read and added to. A report on all files of a folder is not replaced by one on some of them.
    """
    written = {flag(name): getattr(options, name) for name in ("output", "report", "attention", "write_memory")}
    for name, file in written.items():
        is_for_folder = name == "--output" and task.kind == "folder"
        if file and os.path.exists(file) and not is_file(file) and not is_for_folder:  # noqa: PTH110
            advice = ": leave out --output to write to standard output" if name == "--output" else ""
            raise ConfigError(f"{name} {file} is no regular file{advice}")
    if task.kind == "folder" and task.file and options.output:
        for name, file in written.items():
            if file:
                _check_file_of_folder(name, file, task.file, options.output)
        if options.report and options.report.exists() and is_begun(task.file, options.output):
            raise ConfigError(
                f"--report {options.report} exists, and a new one would lack the texts of the files that are in "
                f"{options.output} already: name another file"
            )
    read = [("the file to translate", task.file), ("the file of --glossary", options.glossary)]
    memory = [("the file of --memory", options.memory)]
    check_written(written, read)
    check_written({name: file for name, file in written.items() if name != "--write-memory"}, memory)


def _check_file_of_folder(name: str, file: Path, folder: Path, output: Path) -> None:
    """Raise ConfigError if a file is in the folder to translate, or is one of the translations."""
    if is_within(file, folder):
        raise ConfigError(f"{name} {file} is in {folder}, the folder to translate: name a file elsewhere")
    if file != output and is_within(file, output):
        translated = folder / file.resolve().relative_to(output.resolve())
        if translated.exists():
            raise ConfigError(f"{name} {file} is the file for the translation of {translated}: name another one")


def _task_of_files(options: TranslateOptions) -> Task:
    """Return what to translate, by the files that are named, and their names."""
    file = options.input
    if options.format not in ("auto", "lines"):
        if len(options.sentences) > 1:
            raise ConfigError(f"--format {options.format} translates one file")
        file = Path(options.sentences[0]) if options.sentences else file
        return Task("document", file, FORMATS[options.format])
    if options.sentences:
        if all(is_file(one) or is_name_of_file(one) for one in options.sentences):
            raise ConfigError(how_to_translate(options.sentences[0]))
        return Task("sentences")
    if not file or options.format == "lines":
        return Task("lines", file)
    if file.is_dir():
        if not options.output or is_within(options.output, file):
            raise ConfigError(f"{file} is a folder: name another folder for its translations, with --output")
        return Task("folder", file)
    ending = file_type(file)
    if ending in SPREADSHEETS + NOT_TRANSLATED:
        raise ConfigError(how_to_translate(str(file)))
    if ending == ".zip":
        return Task("archive", file)
    kind = format_of(file, options.column)
    return Task("document", file, kind) if kind else Task("lines", file)


def is_file(path: str | Path) -> bool:
    """Return whether a file of this name exists. A long sentence is none, where `Path.is_file` raises an error."""
    return os.path.isfile(path)  # noqa: PTH113


def is_name_of_file(text: str) -> bool:
    """Return whether a text is most likely the name of a file: a word that ends as names of text and documents do.

    Endings of programs do not count, since `Node.js` is a word. Where no spaces separate words, a sentence may end in a
    name.
    """
    endings = {".txt", ".zip", *FORMAT_OF_ENDING, *TABLES, *SPREADSHEETS, *NOT_TRANSLATED, *COMPRESSED_ENDINGS}
    is_word = len(text.split()) == 1 and "://" not in text and not is_spaceless(text)
    return is_word and Path(text.strip()).suffix.lower() in endings


def how_to_translate(name: str) -> str:
    """Return the error about a file that was given as text: how to translate its content instead."""
    ending, quoted = file_type(Path(name)), shlex.quote(name)
    if ending in SPREADSHEETS:
        return f"{name} is a spreadsheet: save it as .csv, and translate a column of that, with --input and --column"
    if ending in NOT_TRANSLATED:
        return f"{name}: {ending} files are not translated: save it as .docx, .odt, .html or .txt"
    column = " --column NAME" if ending in TABLES else ""
    problem = f"{name} is a file: translate its text with --input {quoted}{column}"
    if not is_file(name):
        problem = f"no such file: {name}; --input FILE translates a file"
    return f"{problem}\nto translate the name itself, give it on standard input: echo {quoted} | …"


class LineTranslation:
    """Translates lines, as the flags of the command ask for: from the memory what it has, and all else by the model."""

    def __init__(
        self, translator: Translator, options: TranslateOptions, search: Search, memory: Memory | None = None
    ) -> None:
        self.is_stopped = Event()
        self.translator = translator.checked_by(self.go_on)
        self.options = options
        self.search = search
        self.memory = memory
        self.must_warn = not options.source
        self.translated: list[Pair] = []  # what is to be written to a memory
        # Of two calls at the same time, one computes while the other takes lines apart, or puts them together.
        self.at_once = 2 if isinstance(translator.searcher, Engine) and not options.write_memory else 1

    def __call__(self, lines: Sequence[str]) -> str:
        """Return a text that has each line, translated, on a line or several."""
        with_doubts, with_score = self.options.doubts, self.search.n_best > 1
        results = self.ranked(lines, "", with_doubts)
        self.record(lines, [ranked[0] for ranked in results], "")
        return "".join(printed(one, with_score, with_doubts) for ranked in results for one in ranked)

    def go_on(self) -> None:
        """Raise CancelledError, which nobody sees, in threads whose translations are no longer wanted."""
        if self.is_stopped.is_set():
            raise CancelledError

    def of_document(self, lines: Sequence[str], markup: Markup) -> list[Translation]:
        """Return the best translation of each line of a document, without full stops that the lines have not."""
        results = self.ranked(lines, markup, self.options.report is not None)
        best = [without_added_stop(line, ranked[0], markup) for line, ranked in zip(lines, results, strict=True)]
        self.record(lines, best, markup)
        return best

    def ranked(self, lines: Sequence[str], markup: Markup, with_doubts: bool) -> list[list[Translation]]:
        """Return the translations of each line, best first."""
        if self.must_warn:
            self.must_warn = not warn_of_unlearned(self.translator, lines)
        return translate_lines(
            self.translator, lines, self.search, markup=markup, with_doubts=with_doubts, memory=self.memory
        )

    def record(self, lines: Sequence[str], translations: Sequence[Translation], markup: Markup) -> None:
        """Keep lines and their translations for the memory that is to be written, if any."""
        if self.options.write_memory:
            self.translated += [
                (plain(line, markup), plain(one.text, markup))
                for line, one in zip(lines, translations, strict=True)
                if not has_markdown(line, markup)
            ]


def made_by(folder: RunFiles[Any], options: TranslateOptions) -> str:
    """Return a digest of a model and of the flags that change its translations."""
    files = [folder.path / name for name in FILES_OF_MODEL if (folder.path / name).is_file()]
    files += [file for file in (options.glossary, options.memory) if file]
    flags = replace(options, run="", sentences=(), input=None, output=None, keep_going=False)
    flags = replace(flags, glossary=None, memory=None, write_memory=None, report=None)
    return digest(digest_files(files), flags)


def translate_into(
    part: UnfinishedFile | None, file: Path | None, options: TranslateOptions, translate: LineTranslation
) -> None:
    """Translate a file or standard input line by line: to standard output, or into a part, from where it ends.

    Raises TapisError for a line that cannot be read, without --keep-going, and if the part is of another input.
    """
    name = str(file) if file else "standard input"
    # A pipe can be read only once: its lines are not counted.
    n_lines = count_lines(file) if file and is_file(file) else None
    wanted = range(sys.maxsize) if n_lines is None else lines_of_shard(options.shard, n_lines)
    n_done = part.record.n_lines if part else 0
    opened: AbstractContextManager[BinaryIO] = open_bytes(file) if file else nullcontext(sys.stdin.buffer)
    with opened as stream:
        # Skip the lines before the shard, and those whose translations the part has.
        reader = LineReader(stream, name, keep_going=options.keep_going)
        while reader.n_taken < wanted.start and reader.take(min(LINES_AT_ONCE, wanted.start - reader.n_taken)):
            pass
        n_skipped = wanted.start + n_done
        while reader.n_taken < n_skipped and reader.texts(min(LINES_AT_ONCE, n_skipped - reader.n_taken)):
            pass
        if part and n_done and reader.digest.hexdigest() != part.record.digest:
            raise TapisError(f"{part.path} was begun with another input than {name}: {part.how_to_start_again}")

        # Translate the others, block by block.
        is_shown = bool(file) and len(wanted) > LINES_AT_ONCE and (bool(part) or not sys.stdout.isatty())
        is_awaited = not (file or part)

        def blocks() -> Iterator[tuple[list[str], str]]:
            """Yield lines, and the digest of all lines until their end."""
            while lines := reader.texts(min(LINES_AT_ONCE, wanted.stop - reader.n_taken), as_they_come=is_awaited):
                yield lines, reader.digest.hexdigest()

        total = None if n_lines is None else len(wanted)
        at_once = 1 if is_awaited else translate.at_once
        results = ahead(lambda block: translate(block[0]), blocks(), at_once, translate.is_stopped.set)
        with closing(Progress(name, total, n_done, "line", shown=is_shown)) as progress, closing(results):
            for (lines, digest_so_far), text in results:
                if part:
                    part.add(compressed(text.encode("utf-8", "replace"), part.output), len(lines), digest_so_far)
                else:
                    sys.stdout.write(printable_on(sys.stdout, text))
                    sys.stdout.flush()
                progress.update(len(lines))
        if part and not part.record.n_bytes:
            part.add(compressed(b"", part.output), 0, "")  # a compressed file of nothing has bytes, too
    warn_of_unreadable(reader)


def warn_of_unreadable(reader: LineReader) -> None:
    """List the lines that could not be read on standard error."""
    if numbers := reader.unreadable:
        listed_numbers = listed(f"{number:,}" for number in numbers)
        say(f"warning: {reader.name}: {len(numbers):,} unreadable lines are blank in the translation: {listed_numbers}")


def warn_of_unidentified(translator: Translator) -> None:
    """Say on standard error if the language of a text matters and cannot be identified."""
    languages = translator.sources
    if len(languages) > 1 and not can_identify(languages):
        say(
            f"warning: py3langid cannot tell {', '.join(languages)} apart: texts are split into sentences as "
            f"{languages[0]}, unless --source names another language"
        )


def warn_of_unlearned(translator: Translator, lines: Sequence[str]) -> bool:
    """Say on standard error if a line is in a language that the model knows and has not learned to translate from.

    Return whether there is such a line.
    """
    if set(translator.languages) <= set(translator.sources):
        return False
    for line in lines:
        text = take_out(line).text  # without markup
        language, share = translator.identify(text)
        if language not in translator.sources and share > CLEAR and has_letters(text):
            pair = f"{language}-{translator.target}"
            say(f"warning: the model has not learned {pair}, and this seems to be {language}: {line}")
            return True
    return False


def printed(translation: Translation, with_score: bool, with_doubts: bool) -> str:
    """Return a line: the score if wanted, the text, and the doubts if wanted, separated by tabs."""
    score = f"{translation.score:.4f}\t" if with_score else ""
    marks = f"\t{','.join(translation.doubts)}" if with_doubts else ""
    return f"{score}{translation.text}{marks}\n"


def printable_on(out: TextIO, text: str) -> str:
    """Return the text as it is; where a terminal would obey some of its characters, with escapes in their place."""
    return escape_controls(text) if out.isatty() else text


def converse(translator: Translator, translate: Callable[[Sequence[str]], str]) -> None:
    """Prompt on the terminal until an end of file."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # the terminal may have another encoding
    say(f"{', '.join(translator.sources)} → {translator.target}; an end of file (Ctrl-D) ends")
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print(file=sys.stderr)
            return
        print(printable_on(sys.stdout, translate([line.removesuffix("\n")])), end="", flush=True)


def draw_attention(translator: Translator, options: TranslateOptions, search: Search) -> None:
    """Draw the attention of the one sentence of the command line. Raises ConfigError if that is not possible."""
    # Check what was asked for.
    config, file = translator.config, options.attention
    assert file
    n_layers = config.n_encoder_layers if options.attention_of == "encoder" else config.n_decoder_layers
    for name, number, n in (("layer", options.layer, n_layers), ("head", options.head, config.n_heads)):
        if not 0 <= number <= n:
            raise ConfigError(f"--{name} is {number}; the model has {n}: 1 to {n}, or 0")
    if file.suffix not in (".png", ".html"):
        raise ConfigError(f"--attention {file}: the name must end in .png or .html")
    if file.suffix == ".png" and not find_spec("matplotlib"):
        raise ConfigError(
            f"--attention {file}: pictures need matplotlib: pip install matplotlib, or name an .html file"
        )
    sentences = [sentence for text in options.sentences for sentence in sentences_as_translated(translator, text)]
    if len(sentences) != 1:
        raise ConfigError(f"--attention draws one sentence, given in quotes; these are {len(sentences)}")

    # Translate, and pick the layer and the heads.
    translation, attention = translator.attention(sentences[0], search, options.attention_of)
    layer = options.layer or n_layers
    maps = attention.maps(layer - 1, options.head - 1 if options.head else None)
    stack = "" if options.attention_of == "source" else f"{options.attention_of} "
    title = f"{sentences[0]} → {translation.text} ({stack}layer {layer} of {n_layers})"

    # Write the file.
    if file.suffix == ".html":
        write_text(file, to_html(maps, attention.source, attention.target, title))
    else:
        figure = draw(maps, attention.source, attention.target, title)
        with quiet():
            write_whole(file, lambda temporary: figure.savefig(temporary, format="png"))
    say(f"attention drawn in {file}")
