"""The command that translates: its arguments, standard input, a document, or what is typed at its prompt."""

import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tapis.attention import draw, quiet, to_html
from tapis.config import ConfigError, TapisError
from tapis.search import Search
from tapis.system.cli import TranslateOptions, parse
from tapis.system.files import write_text, write_whole
from tapis.system.terminal import escape_controls, say
from tapis.text.documents import FORMATS, srt_warnings
from tapis.text.languages import can_identify
from tapis.text.lines import not_utf8, utf16_name
from tapis.text.marks import take_out
from tapis.text.markup import Markup
from tapis.text.sentences import has_letters
from tapis.threads import chunks
from tapis.translation import Translation
from tapis.translator import Translator
from tapis.typed_text import sentences_as_translated, translate_lines

CLEAR = 0.99  # probability of a language
MOST_WARNINGS = 10  # about lines of a document
LINES_AT_ONCE = 1000  # of standard input: enough to sort by length, few enough to see results soon


def run(kind: type[Translator], args: Sequence[str]) -> None:
    """Run the command. `kind` loads the translator: that of the package, or of a checkout."""
    options = parse(TranslateOptions, args)
    search = Search(options.beam, options.n_best, options.length_penalty)
    translator = kind.load(options.run, options.device, options.precision, plain=options.plain)
    translator = translator.towards(options.target, options.source)
    if not options.run:
        say(f"run {translator.config.name}")
    warn_of_unidentified(translator)
    if options.attention:
        if options.format != "text":
            raise ConfigError(f"--attention draws one sentence, and --format {options.format} translates a file")
        draw_attention(translator, options, search)

    def answer(lines: Sequence[str]) -> None:
        if not options.source:
            warn_of_unlearned(translator, lines)
        for ranked in translate_lines(translator, lines, search, with_doubts=options.doubts):
            for translation in ranked:
                print_translation(translation, search.n_best > 1, options.doubts)
        sys.stdout.flush()

    if options.format != "text":
        translate_document(translator, options, search)
    elif options.sentences:
        answer([sentence.replace("\n", " ") for sentence in options.sentences])
    elif sys.stdin.isatty():
        converse(translator, answer)
    else:
        answer_standard_input(answer)


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


def translate_document(translator: Translator, options: TranslateOptions, search: Search) -> None:
    """Translate a document, named on the command line or on standard input, to standard output."""
    if options.doubts:
        raise ConfigError(f"--doubts marks lines, and --format {options.format} translates a file as a whole")
    if len(options.sentences) > 1 or search.n_best > 1:
        raise ConfigError(f"--format {options.format} translates one file, and prints one translation of it")
    name = options.sentences[0] if options.sentences else "standard input"
    try:
        raw = Path(name).read_bytes() if options.sentences else sys.stdin.buffer.read()
    except OSError as error:
        raise TapisError(f"{name} cannot be read: {error.strerror}") from None
    document = decoded(raw, name)

    markup: Markup = options.format if options.format in ("html", "markdown") else ""

    def translated(lines: Sequence[str]) -> list[str]:
        if not options.source:
            warn_of_unlearned(translator, lines)
        return [ranked[0].text for ranked in translate_lines(translator, lines, search, markup=markup)]

    result = FORMATS[options.format](document, translated)
    if options.format == "srt":
        warn_of_lines(name, list(srt_warnings(document)))
    sys.stdout.flush()
    sys.stdout.buffer.write(for_standard_output(result).encode("utf-8"))
    sys.stdout.buffer.flush()


def warn_of_lines(name: str, warnings: Sequence[str]) -> None:
    """Print the first MOST_WARNINGS warnings about lines of a document on standard error, and how many others are."""
    for warning in warnings[:MOST_WARNINGS]:
        say(f"warning: {name} {warning}")
    if len(warnings) > MOST_WARNINGS:
        say(f"warning: {name}: {len(warnings) - MOST_WARNINGS:,} more such lines")


def print_translation(translation: Translation, with_score: bool, with_doubts: bool) -> None:
    """Print a line on standard output: the score if wanted, the text, and the doubts if wanted, separated by tabs."""
    text = for_standard_output(translation.text)
    score = f"{translation.score:.4f}\t" if with_score else ""
    marks = f"\t{','.join(translation.doubts)}" if with_doubts else ""
    sys.stdout.write(f"{score}{text}{marks}\n")


def for_standard_output(text: str) -> str:
    """Return the text as it is; where a terminal would obey some of its characters, with escapes in their place."""
    return escape_controls(text) if sys.stdout.isatty() else text


def answer_standard_input(answer: Callable[[Sequence[str]], None]) -> None:
    """Answer standard input, many lines at a time. Only a line feed ends a line. Raises TapisError if not UTF-8."""
    for chunk in chunks(sys.stdin.buffer, LINES_AT_ONCE):
        text = decoded(b"".join(chunk), "standard input")
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
    for name, number, n in (("layer", options.layer, config.n_decoder_layers), ("head", options.head, config.n_heads)):
        if not 0 <= number <= n:
            raise ConfigError(f"--{name} is {number}; the model has {n}: 1 to {n}, or 0")
    if file.suffix not in (".png", ".html"):
        raise ConfigError(f"--attention {file}: the name must end in .png or .html")
    sentences = [sentence for text in options.sentences for sentence in sentences_as_translated(translator, text)]
    if len(sentences) != 1:
        raise ConfigError(f"--attention draws one sentence, given in quotes; these are {len(sentences)}")

    # Translate, and pick the layer and the heads.
    translation, attention = translator.attention(sentences[0], search)
    layer = options.layer or config.n_decoder_layers
    maps = attention.maps(layer - 1, options.head - 1 if options.head else None)
    title = f"{sentences[0]} → {translation.text} (layer {layer} of {config.n_decoder_layers})"

    # Write the file.
    if file.suffix == ".html":
        write_text(file, to_html(maps, attention.source, attention.target, title))
    else:
        figure = draw(maps, attention.source, attention.target, title)
        with quiet():
            write_whole(file, lambda temporary: figure.savefig(temporary, format="png"))
    say(f"attention drawn in {file}")
