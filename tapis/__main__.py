"""The console command: `tapis translate | serve | evaluate | info`, or `python -m tapis`."""

import sys
from collections.abc import Sequence
from importlib import import_module

from tapis.config import ConfigError
from tapis.system.cli import EvaluateOptions, InfoOptions, ServeOptions, TranslateOptions, parse, run_command

HELP = """usage: tapis COMMAND [--help]

Translate with a trained model. Commands:

  translate    translate sentences, standard input, or a document
  serve        serve a page that translates, and the HTTP API of LibreTranslate
  evaluate     score a model on two files, or compare two models
  info         say how this machine computes and, of a model, what it is
"""


# The flags of each command, which a module of the same name in tapis/commands runs
COMMANDS: dict[str, type] = {
    "translate": TranslateOptions,
    "serve": ServeOptions,
    "evaluate": EvaluateOptions,
    "info": InfoOptions,
}


def run(args: Sequence[str]) -> None:
    """Run the command that the first argument names."""
    name, *flags = args or ["--help"]
    if name in ("--help", "-h"):
        sys.stdout.write(HELP)
        return
    if name not in COMMANDS:
        raise ConfigError(f"no command {name!r}; there are {', '.join(COMMANDS)}")
    parse(COMMANDS[name], flags, prog=f"tapis {name}")  # answers --help and wrong flags before the imports
    from tapis.translator import Translator  # noqa: PLC0415

    import_module(f"tapis.commands.{name}").run(Translator, flags)


def main() -> None:
    """Run the console command."""
    run_command(run)


if __name__ == "__main__":
    main()
