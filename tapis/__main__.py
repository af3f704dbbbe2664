"""The console command: `tapis translate | serve | evaluate | info`, or `python -m tapis`."""

import sys
from collections.abc import Callable, Sequence

from tapis.config import ConfigError
from tapis.system.cli import EvaluateOptions, InfoOptions, ServeOptions, TranslateOptions, parse, run_command

HELP = """usage: tapis COMMAND [--help]

Translate with a trained model. Commands:

  translate    translate sentences, standard input, or a document
  serve        serve a page that translates, and the HTTP API of LibreTranslate
  evaluate     score a model on two files, or compare two models
  info         say how this machine computes and, of a model, what it is
"""


def translate(args: Sequence[str]) -> None:
    """Run `tapis translate`."""
    parse(TranslateOptions, args)  # answers --help and wrong flags before the imports
    from tapis.commands import translate  # noqa: PLC0415
    from tapis.translator import Translator  # noqa: PLC0415

    translate.run(Translator, args)


def serve(args: Sequence[str]) -> None:
    """Run `tapis serve`."""
    parse(ServeOptions, args)
    from tapis.commands import serve  # noqa: PLC0415
    from tapis.translator import Translator  # noqa: PLC0415

    serve.run(Translator, args)


def evaluate(args: Sequence[str]) -> None:
    """Run `tapis evaluate`."""
    parse(EvaluateOptions, args)
    from tapis.commands import evaluate  # noqa: PLC0415
    from tapis.translator import Translator  # noqa: PLC0415

    evaluate.run(Translator, args)


def info(args: Sequence[str]) -> None:
    """Run `tapis info`."""
    parse(InfoOptions, args)
    from tapis.commands import info  # noqa: PLC0415

    info.run(args)


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "translate": translate,
    "serve": serve,
    "evaluate": evaluate,
    "info": info,
}


def run(args: Sequence[str]) -> None:
    """Run the command that the first argument names."""
    name = args[0] if args else "--help"
    if name in ("--help", "-h"):
        sys.stdout.write(HELP)
        return
    if name not in COMMANDS:
        raise ConfigError(f"no command {name!r}; there are {', '.join(COMMANDS)}")
    COMMANDS[name](args[1:])


def main() -> None:
    """Run the console command."""
    run_command(run)


if __name__ == "__main__":
    main()
