"""Tapis translates with models that it has trained: in Python, on the command line, and as a server.

    from tapis import Translator
    translate = Translator.load("demo-release.tar.gz")
    translate(["The cat is sitting on the mat."])

It needs no torch: an engine in C computes, on the CPU, in 8 bits. The training is in a checkout of the project.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tapis.config import ConfigError, TapisError
    from tapis.search import Search
    from tapis.translation import Doubt, Translation
    from tapis.translator import Translator

__all__ = ["ConfigError", "Doubt", "Search", "TapisError", "Translation", "Translator"]  # the stable names

_MODULES = {
    "ConfigError": "config",
    "Doubt": "translation",
    "Search": "search",
    "TapisError": "config",
    "Translation": "translation",
    "Translator": "translator",
}


def __getattr__(name: str) -> Any:
    """Import one of the stable names when it is first asked for, so that `import tapis` takes no time."""
    if name not in _MODULES:
        raise AttributeError(f"module 'tapis' has no attribute {name!r}")
    return getattr(import_module(f"tapis.{_MODULES[name]}"), name)
