"""Sentences → sentences, on the command line and in Python.

    python translate.py "The cat is sitting on the mat."     one line of output for each argument
    python translate.py --doubts "The cat is tired."         and what makes the translation doubtful
    python translate.py --input text.en --output text.fr     N lines in, N lines out; a line may be a paragraph
    python translate.py < text.en > text.fr                  the same, as it is translated
    python translate.py --format html PAGE.html > OUT.html   a page: only its text is translated;
                                                             also markdown, and srt for subtitles

Standard output carries the translations and nothing else. On a terminal, without arguments, it prompts.

In Python:

    from translate import Search, Translator
    translate = Translator.load("weights/demo")
    translate(["The cat is sitting on the mat."])

The package `tapis` has the same command and the same names, and computes on CPUs. Those here use torch, too, where
there is a GPU or where it is asked for.
"""

from collections.abc import Sequence
from functools import partial

from tapis.system.cli import TranslateOptions, answer_early, parse, run_command

answer_early(__name__, partial(parse, TranslateOptions))

from decoding.translator import Translator
from tapis import Search, Translation
from tapis.commands.translate import run

__all__ = ["Search", "Translation", "Translator", "main"]  # the stable names of Tapis in Python


def main(args: Sequence[str]) -> None:
    """Run the command."""
    run(Translator, args)


if __name__ == "__main__":
    run_command(main)
