"""The command that says what a model is, and how this machine computes."""

import platform
from collections.abc import Sequence
from importlib.metadata import version

from tapis.config import ConfigError, name_of_pair
from tapis.ctranslate2 import is_exported
from tapis.engine.engine import variants
from tapis.system.cli import InfoOptions, parse
from tapis.system.terminal import printable
from tapis.threads import n_threads
from tapis.translator import Translator


def run(kind: type[Translator], args: Sequence[str]) -> None:
    """Run the command. With a model, its files are checked as translating checks them. `kind` finds these."""
    options = parse(InfoOptions, args)
    engine = f"the engine computes with {variants()[0]}" if variants() else "the engine was not compiled"
    print(f"tapis {version('tapis')}, Python {platform.python_version()}, {platform.machine()}")
    print(f"{engine}, on {n_threads()} thread{'s' * (n_threads() > 1)}")
    if not options.run:
        return
    folder = kind.files.find(options.run)
    if is_exported(folder.path):
        raise ConfigError(f"{folder.path} is an export for CTranslate2: name the run that it was made from")
    config, tokenizer, weights = folder.load_weights()
    n_weights = sum(weight.size for weight in weights.values())
    pairs = ", ".join(name_of_pair(*direction) for direction in config.directions)
    print(printable(f"model {config.name or folder.path.name}: {pairs}"))
    print(
        f"{n_weights:,} weights, {len(tokenizer):,} tokens, "
        f"{config.n_encoder_layers} + {config.n_decoder_layers} layers"
    )
