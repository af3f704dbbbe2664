"""The command that translates: its arguments, a file, standard input, or what is typed at its prompt."""

import io
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO, TextIO

from tapis.attention import draw, quiet, to_html
from tapis.config import ConfigError, TapisError
from tapis.search import Search
from tapis.system.cli import TranslateOptions, parse
from tapis.system.files import write_text, write_whole
from tapis.system.terminal import escape_controls, say
from tapis.text.documents import FORMATS, srt_warnings
from tapis.text.languages import can_identify
from tapis.text.lines import file_type, not_utf8, open_bytes, utf16_name
from tapis.text.marks import take_out
from tapis.text.markup import Markup
from tapis.text.sentences import has_letters
from tapis.threads import chunks
from tapis.translation import Translation
from tapis.translator import Translator
from tapis.typed_text import sentences_as_translated, translate_lines

CLEAR = 0.99  # probability of a language
MOST_WARNINGS = 10  # about lines of a document
LINES_AT_ONCE = 1000  # of a file: enough to sort by length, few enough to see results soon
TABLES = (".csv", ".tsv", ".xlsx", ".xls", ".ods")
FORMAT_OF_ENDING = {".html": "html", ".htm": "html", ".md": "markdown", ".srt": "srt"}


def run(kind: type[Translator], args: Sequence[str]) -> None:
    """Run the command. `kind` loads the translator: that of the package, or of a checkout."""
    options = parse(TranslateOptions, args)
    file = file_to_translate(options)
    search = Search(options.beam, options.n_best, options.length_penalty)
    # PyTorch alone shows the attention within a stack of layers.
    is_for_torch = options.attention_of != "source" and options.precision == "auto"
    precision = "fp32" if is_for_torch else options.precision
    translator = kind.load(options.run, options.device, precision, plain=options.plain)
    translator = translator.towards(options.target, options.source)
    if not options.run:
        say(f"run {translator.config.name}")
    warn_of_unidentified(translator)
    if options.attention:
        if options.format != "text":
            raise ConfigError(f"--attention draws one sentence, and --format {options.format} translates a file")
        draw_attention(translator, options, search)

    if not options.output:
        translate_to(sys.stdout, file, translator, options, search)
        return

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", errors="replace", newline="") as out:
            translate_to(out, file, translator, options, search)

    write_whole(options.output, write)


def file_to_translate(options: TranslateOptions) -> Path | None:
    """Return the file that is named on the command line; None for sentences and standard input.

    Raises ConfigError for sentences that are names of files, for tables, where the output would replace the file, and
    for flags that documents do not take.
    """
    file = options.input
    if file and options.sentences:
        raise ConfigError("--input FILE is translated alone: leave out the sentences")
    if options.format != "text":
        if options.doubts:
            raise ConfigError(f"--doubts marks lines, and --format {options.format} translates a file as a whole")
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


def translate_to(
    out: TextIO, file: Path | None, translator: Translator, options: TranslateOptions, search: Search
) -> None:
    """Translate what the command line asks for: a file, its sentences, standard input, or what is typed."""

    def answer(lines: Sequence[str]) -> None:
        if not options.source:
            warn_of_unlearned(translator, lines)
        for ranked in translate_lines(translator, lines, search, with_doubts=options.doubts):
            for translation in ranked:
                print_translation(out, translation, search.n_best > 1, options.doubts)
        out.flush()

    name = str(file) if file else "standard input"
    if options.sentences and options.format == "text":
        answer([sentence.replace("\n", " ") for sentence in options.sentences])
    elif options.format == "text" and not file and not options.output and sys.stdin.isatty():
        converse(translator, answer)
    else:
        opened: AbstractContextManager[BinaryIO] = open_bytes(file) if file else nullcontext(sys.stdin.buffer)
        with opened as raw:
            if options.format == "text":
                answer_lines(raw, name, answer)
            else:
                translate_document(out, decoded(raw.read(), name), name, translator, options, search)


def warn_of_unidentified(translator: Translator) -> None:
    """Say on standard error if the language of a text matters and cannot be identified."""
    languages = translator.sources
    if len(languages) > 1 and not can_identify(languages):
        say(
            f"warning: py3langid cannot tell {', '.join(languages)} apart: texts are split into sentences as "
            f"{languages[0]}, unless --source names another language"
        )


def warn_of_unlearned(translator: Translator, lines: Sequence[str]) -> None:
    """Say on standard error if a line is in a language that the model knows and has not learned to translate from."""
    if set(translator.languages) <= set(translator.sources):
        return
    for line in lines:
        text = take_out(line).text  # without markup
        language, share = translator.identify(text)
        if language not in translator.sources and share > CLEAR and has_letters(text):
            pair = f"{language}-{translator.target}"
            say(f"warning: the model has not learned {pair}, and this seems to be {language}: {line}")
            return


def translate_document(
    out: TextIO, document: str, name: str, translator: Translator, options: TranslateOptions, search: Search
) -> None:
    """Write the translation of a document, whose name is for warnings."""
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


def print_translation(out: TextIO, translation: Translation, with_score: bool, with_doubts: bool) -> None:
    """Write a line: the score if wanted, the text, and the doubts if wanted, separated by tabs."""
    text = printable_on(out, translation.text)
    score = f"{translation.score:.4f}\t" if with_score else ""
    marks = f"\t{','.join(translation.doubts)}" if with_doubts else ""
    out.write(f"{score}{text}{marks}\n")


def printable_on(out: TextIO, text: str) -> str:
    """Return the text as it is; where a terminal would obey some of its characters, with escapes in their place."""
    return escape_controls(text) if out.isatty() else text


def answer_lines(raw: BinaryIO, name: str, answer: Callable[[Sequence[str]], None]) -> None:
    """Answer a file, many lines at a time. Only a line feed ends a line. Raises TapisError if it is not UTF-8."""
    for n_chunk, chunk in enumerate(chunks(raw, LINES_AT_ONCE)):
        text = decoded(b"".join(chunk), name)
        text = text if n_chunk else text.removeprefix("\ufeff")  # a byte order mark
        answer(text.removesuffix("\n").split("\n"))


def decoded(raw: bytes, name: str) -> str:
    """Return the text of UTF-8. Raises TapisError, which begins with a name, for what is another encoding."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise TapisError(f"{name} is {not_utf8(raw)}") from None
    if utf16_name(raw):  # of ASCII alone, which UTF-8 has no error in
        raise TapisError(f"{name} is {not_utf8(raw)}")
    return text


def converse(translator: Translator, answer: Callable[[Sequence[str]], None]) -> None:
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
        answer([line.removesuffix("\n")])


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
