"""One server for people and programs: a page that translates, and the HTTP API of LibreTranslate.

    python serve.py [--run NAME …]      then open the address that it prints; /docs describes the API

Requests that arrive together are translated together. The server needs an extra: `pip install -e ".[serve]"`. It
listens on this machine only, unless --host says otherwise, and needs no API key, unless --api-key-file is given. It
answers to the names of this machine's loopback interface, and to those of --host and --allow-host.
"""

from collections.abc import Sequence
from functools import partial

from tapis.system.cli import ServeOptions, answer_early, parse, run_command

answer_early(__name__, partial(parse, ServeOptions))

from decoding.translator import Translator
from tapis.commands.serve import run


def main(args: Sequence[str]) -> None:
    """Run the command."""
    run(Translator, args)


if __name__ == "__main__":
    run_command(main)
