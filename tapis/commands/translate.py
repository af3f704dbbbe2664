"""The command that translates: its arguments, a file, standard input, or what is typed at its prompt."""

import io
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from tapis.attention import draw, quiet, to_html
from tapis.config import ConfigError, TapisError, flag
from tapis.engine.engine import Engine
from tapis.release import RunFiles
from tapis.search import Search
from tapis.system.cli import TranslateOptions, parse
from tapis.system.files import digest, digest_files, write_text, write_whole
from tapis.system.parts import Part
from tapis.system.terminal import Progress, escape_controls, listed, say
from tapis.text.documents import FORMATS, srt_warnings
from tapis.text.languages import can_identify
from tapis.text.line_blocks import LINES_AT_ONCE, LineReader, check_shard, count_lines, lines_of_shard
from tapis.text.lines import check_ending, compressed, file_type, not_utf8, open_bytes, utf16_name
from tapis.text.marks import take_out
from tapis.text.markup import Markup
from tapis.text.sentences import has_letters
from tapis.threads import ahead
from tapis.translation import Translation
from tapis.translator import Translator
from tapis.typed_text import sentences_as_translated, translate_lines

CLEAR = 0.99  # probability of a language
MOST_WARNINGS = 10  # about lines of a document
TABLES = (".csv", ".tsv", ".xlsx", ".xls", ".ods")
FORMAT_OF_ENDING = {".html": "html", ".htm": "html", ".md": "markdown", ".srt": "srt"}
FILES_OF_MODEL = ("config.json", "learned.json", "tokenizer.json", "model.safetensors", "model.bin")


def run(kind: type[Translator], args: Sequence[str]) -> None:
    """Run the command. `kind` loads the translator: that of the package, or of a checkout."""
    options = parse(TranslateOptions, args)
    file = file_to_translate(options)
    search = Search(options.beam, options.n_best, options.length_penalty)
    # PyTorch alone shows the attention within a stack of layers.
    is_for_torch = options.attention_of != "source" and options.precision == "auto"
    precision = "fp32" if is_for_torch else options.precision
    folder = kind.files.find(options.run)
    translator = kind.load(folder.path, options.device, precision, plain=options.plain)
    translator = translator.towards(options.target, options.source)
    if not options.run:
        say(f"run {translator.config.name}")
    warn_of_unidentified(translator)
    if options.attention:
        if options.format != "text":
            raise ConfigError(f"--attention draws one sentence, and --format {options.format} translates a file")
        draw_attention(translator, options, search)

    lines = LineTranslation(translator, options, search)
    if options.format != "text":
        answer(options, lambda out: translate_document(out, file, translator, options, search))
    elif options.sentences:
        sentences = [sentence.replace("\n", " ") for sentence in options.sentences]
        answer(options, lambda out: out.write(printable_on(out, lines(sentences))))
    elif not file and not options.output and sys.stdin.isatty():
        converse(translator, lines)
    elif options.output:
        with Part(options.output, made_by(folder, options)) as part:
            translate_into(part, file, options, lines)
            part.finish()
    else:
        translate_into(None, file, options, lines)


def answer(options: TranslateOptions, write: Callable[[TextIO], object]) -> None:
    """Write a short answer, or a document, to standard output, or to a file once it is whole."""
    if not options.output:
        write(sys.stdout)
        return
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="utf-8", errors="replace", newline="", write_through=True)
    write(out)
    content = compressed(raw.getvalue(), options.output)
    write_whole(options.output, lambda temporary: temporary.write_bytes(content))


def file_to_translate(options: TranslateOptions) -> Path | None:
    """Return the file that is named on the command line; None for sentences and standard input.

    Raises ConfigError for sentences that are names of files, for tables, where the output would replace the file, and
    for flags that documents do not take.
    """
    file = options.input
    check_shard(options.shard)
    if options.shard and not file:
        raise ConfigError("--shard is for the lines of a file, named by --input")
    if options.output:
        check_ending(options.output)
    if file and options.sentences:
        raise ConfigError("--input FILE is translated alone: leave out the sentences")
    if options.format != "text":
        if of_lines := [name for name in ("doubts", "shard", "keep_going") if getattr(options, name)]:
            whole = f"--format {options.format} translates a file as a whole"
            raise ConfigError(f"{flag(of_lines[0])} is for lines, and {whole}")
        if len(options.sentences) > 1 or options.n_best > 1:
            raise ConfigError(f"--format {options.format} translates one file, and prints one translation of it")
        file = Path(options.sentences[0]) if options.sentences else file
    elif options.sentences and all(map(is_file, options.sentences)):
        raise ConfigError(how_to_translate(options.sentences[0]))
    elif file and file_type(file) in TABLES:
        raise ConfigError(how_to_translate(str(file)))
    if file and options.output and options.output.resolve() == file.resolve():
        raise ConfigError(f"--output {options.output} is the file to translate, which is not overwritten")
    return file


def is_file(path: str | Path) -> bool:
    """Return whether a file of this name exists. A long sentence is none, where `Path.is_file` raises an error."""
    return os.path.isfile(path)  # noqa: PTH113


def how_to_translate(name: str) -> str:
    """Return the error about a file that was given as text: how to translate its content instead."""
    ending, quoted = file_type(Path(name)), shlex.quote(name)
    if ending in TABLES:
        return f"{name} is a table: save its column of texts as a text file, one text a line, and give that to --input"
    flags = f"--format {FORMAT_OF_ENDING[ending]} {quoted}" if ending in FORMAT_OF_ENDING else f"--input {quoted}"
    return (
        f"{name} is a file: translate its text with {flags}\n"
        f"to translate the name itself, give it on standard input: echo {quoted} | …"
    )


class LineTranslation:
    """Translates lines, as the flags of the command ask for, into a text that has each on a line or several."""

    def __init__(self, translator: Translator, options: TranslateOptions, search: Search) -> None:
        self.translator = translator
        self.options = options
        self.search = search
        self.must_warn = not options.source
        # Of two calls at the same time, one computes while the other takes lines apart, or puts them together.
        self.at_once = 2 if isinstance(translator.searcher, Engine) else 1

    def __call__(self, lines: Sequence[str]) -> str:
        if self.must_warn:
            self.must_warn = not warn_of_unlearned(self.translator, lines)
        with_doubts, with_score = self.options.doubts, self.search.n_best > 1
        results = translate_lines(self.translator, lines, self.search, with_doubts=with_doubts)
        return "".join(printed(one, with_score, with_doubts) for ranked in results for one in ranked)


def made_by(folder: RunFiles[Any], options: TranslateOptions) -> str:
    """Return a digest of a model and of the flags that change its translations."""
    files = [folder.path / name for name in FILES_OF_MODEL if (folder.path / name).is_file()]
    flags = replace(options, run="", sentences=(), input=None, output=None, keep_going=False)
    return digest(digest_files(files), flags)


def translate_into(
    part: Part | None, file: Path | None, options: TranslateOptions, translated: LineTranslation
) -> None:
    """Translate a file or standard input line by line: to standard output, or into a part, from where it ends.

    Raises TapisError for a line that cannot be read, without --keep-going, and if the part is of another input.
    """
    name = str(file) if file else "standard input"
    wanted = lines_of_shard(options.shard, count_lines(file)) if file else range(sys.maxsize)
    n_done = part.record.n_lines if part else 0
    opened: AbstractContextManager[BinaryIO] = open_bytes(file) if file else nullcontext(sys.stdin.buffer)
    with opened as stream:
        # Skip the lines before the shard, and those whose translations the part has.
        reader = LineReader(stream, name, keep_going=options.keep_going)
        while n_before := min(LINES_AT_ONCE, wanted.start - reader.n_taken):
            reader.take(n_before)
        while n_before := min(LINES_AT_ONCE, wanted.start + n_done - reader.n_taken):
            if not reader.texts(n_before):
                break
        if part and n_done and reader.digest.hexdigest() != part.record.digest:
            raise TapisError(f"{part.path} was begun with another input than {name}: {part.how_to_start_again}")

        # Translate the others, block by block.
        is_shown = bool(file) and len(wanted) > LINES_AT_ONCE and (bool(part) or not sys.stdout.isatty())
        is_awaited = not (file or part)

        def blocks() -> Iterator[tuple[list[str], str]]:
            """Yield lines, and the digest of all lines until their end."""
            while lines := reader.texts(min(LINES_AT_ONCE, wanted.stop - reader.n_taken), as_they_come=is_awaited):
                yield lines, reader.digest.hexdigest()

        with closing(Progress(name, len(wanted), n_done, "line", shown=is_shown)) as progress:
            for (lines, digest_so_far), text in ahead(
                lambda block: translated(block[0]), blocks(), 1 if is_awaited else translated.at_once
            ):
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


def translate_document(
    out: TextIO, file: Path | None, translator: Translator, options: TranslateOptions, search: Search
) -> None:
    """Write the translation of a document: of a file, or of standard input."""
    name = str(file) if file else "standard input"
    opened: AbstractContextManager[BinaryIO] = open_bytes(file) if file else nullcontext(sys.stdin.buffer)
    with opened as raw:
        document = decoded(raw.read(), name)
    markup: Markup = options.format if options.format in ("html", "markdown") else ""

    def translated(lines: Sequence[str]) -> list[str]:
        if not options.source:
            warn_of_unlearned(translator, lines)
        return [ranked[0].text for ranked in translate_lines(translator, lines, search, markup=markup)]

    result = FORMATS[options.format](document, translated)
    if options.format == "srt":
        warn_of_lines(name, list(srt_warnings(document)))
    out.flush()
    out.buffer.write(printable_on(out, result).encode("utf-8"))
    out.buffer.flush()


def warn_of_lines(name: str, warnings: Sequence[str]) -> None:
    """Print the first MOST_WARNINGS warnings about lines of a document on standard error, and how many others are."""
    for warning in warnings[:MOST_WARNINGS]:
        say(f"warning: {name} {warning}")
    if len(warnings) > MOST_WARNINGS:
        say(f"warning: {name}: {len(warnings) - MOST_WARNINGS:,} more such lines")


def printed(translation: Translation, with_score: bool, with_doubts: bool) -> str:
    """Return a line: the score if wanted, the text, and the doubts if wanted, separated by tabs."""
    score = f"{translation.score:.4f}\t" if with_score else ""
    marks = f"\t{','.join(translation.doubts)}" if with_doubts else ""
    return f"{score}{translation.text}{marks}\n"


def printable_on(out: TextIO, text: str) -> str:
    """Return the text as it is; where a terminal would obey some of its characters, with escapes in their place."""
    return escape_controls(text) if out.isatty() else text


def decoded(raw: bytes, name: str) -> str:
    """Return the text of UTF-8. Raises TapisError, which begins with a name, for what is another encoding."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise TapisError(f"{name} is {not_utf8(raw)}") from None
    if utf16_name(raw):  # of ASCII alone, which UTF-8 has no error in
        raise TapisError(f"{name} is {not_utf8(raw)}")
    return text


def converse(translator: Translator, translated: Callable[[Sequence[str]], str]) -> None:
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
        print(printable_on(sys.stdout, translated([line.removesuffix("\n")])), end="", flush=True)


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
