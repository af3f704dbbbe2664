"""A web page with a model in it: one HTML file that translates in a browser, without a server and without a network.

The sources of the page are in tapis/web/, which the page of a server shares. `web_page` puts them and the model
together.
Weights are in 8 bits, rounded as for the engine, and the engine itself computes with them, compiled to WebAssembly. The
file holds, in this order:

    page.css      how the page looks
    page.js       shows the page
    offline.js    checks the five parts below by their checksums, and starts the worker
    engine        the tokenizer and all that is around the model, as text
    worker        the script of the page's worker, as text: it runs the engine
    module        the model and the search (tapis/engine/engine.c) as WebAssembly, in Base64
    description   what the model is, its sizes, its vocabulary, and where each weight is, as JSON
    weights       in Base64: numbers of 32 bits, then of 16 bits, then of 8 bits
"""

import base64
import html
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from config import FACTS, Config
from model import LayerNormalization, Transformer
from tapis.config import Learned
from tapis.engine.weights import quantize_rows
from tapis.text.tokenizer import Tokenizer
from tapis.web import engine_module, filled_in, web_files

# The files that a worker of the page runs, in the order of what they need.
ENGINE = (
    *("tokenizer.js", "engine.js", "sentences.js", "letter_case.js", "loops.js", "doubts.js"),
    *("mark_patterns.js", "marks.js", "alignment.js", "placement.js", "notices.js", "translator.js"),
)
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'wasm-unsafe-eval' blob:; worker-src blob:; "
    "style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"
)
LOADING = "Loading the model. If this line stays, the file is damaged or the browser is too old."
# What the page reads of the config, by the same names
PAGE_FIELDS = [name for name, facts in FACTS.items() if facts.is_on_page]
EMBEDDINGS = ("src_embed", "tgt_embed")
REMAINDERS = 65_534  # steps of a remainder between two numbers of 8 bits


def web_page(
    config: Config,
    learned: Learned,
    tokenizer: Tokenizer,
    model: Transformer,
    title: str,
    facts: Mapping[str, str],
) -> str:
    """Return the text of the file. facts says what the model is: names and values, shown in this order."""
    table, weights = pack_weights(model)
    description = {
        "config": {
            **{name: getattr(config, name) for name in PAGE_FIELDS},
            **asdict(learned),
            "eps": next(module.eps for module in model.modules() if isinstance(module, LayerNormalization)),
        },
        "directions": config.directions,
        "repairs": "unicode" not in config.skip_rules,
        "tags": tokenizer.tags,
        "tokens": tokenizer.tokens(),
        "merges": [token for pair in tokenizer.merges for token in pair],
        "first_text_id": tokenizer.first_text_id,
        "weights": table,
        "facts": list(facts.items()),
    }
    files = web_files()
    parts = (
        checked("engine", "\n".join(files[name] for name in ENGINE)),
        checked("worker", files["worker.js"]),
        checked("module", base64.b64encode(engine_module()).decode("ascii")),
        checked("description", as_json(description)),
        checked("weights", base64.b64encode(weights).decode("ascii")),
    )
    return filled_in(
        {
            "policy": f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            "description": html.escape(title),
            "head": f"<style>\n{files['page.css']}</style>\n{script(files['page.js'])}\n{script(files['offline.js'])}",
            "status": LOADING,
            "parts": "\n".join(parts),
        }
    )


def as_json(value: object) -> str:
    """Return JSON that may stand in a script: with letters as they are, but for `<` and lone surrogates."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return re.sub("[<\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", text)


def script(code: str) -> str:
    """Return a script that the page runs."""
    assert "</script" not in code.lower()
    return f"<script>\n{code}</script>"


def checked(name: str, content: str) -> str:
    """Return a part that the page reads as text, with its size in bytes and its checksum."""
    assert "</script" not in content.lower() and "<!--" not in content
    raw = content.encode()
    return (
        f'<script type="text/plain" id="{name}" data-size="{len(raw)}" data-crc="{zlib.crc32(raw)}">{content}</script>'
    )


def pack_weights(model: Transformer) -> tuple[dict[str, dict[str, Any]], bytes]:
    """Return a table and the bytes of all weights: by name, the type, the shape and the offset of each.

    Matrices are int8, and NAME.scale has a number for each of their rows. engine.c reads embeddings in 32 bits. Here
    they have a remainder of 16 bits: (NAME + NAME.remainder / 65,534) · NAME.scale. In 8 bits, they would change 8 % of
    a Multi30k model's translations. Weights that are tied are stored once.
    """
    floats: dict[str, NDArray[np.float32]] = {}
    remainders: dict[str, NDArray[np.int16]] = {}
    integers: dict[str, NDArray[np.int8]] = {}
    names: dict[str, str] = {}  # by which each weight is stored
    name_of_weight: dict[int, str] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        names[name] = name_of_weight.setdefault(id(weight), name)
        if names[name] != name:
            continue
        values = weight.detach().float().cpu().numpy()
        if values.ndim == 1:
            floats[name] = values
            continue
        rounded, scale = quantize_rows(values)
        integers[name], floats[f"{name}.scale"] = rounded, scale
        if name.startswith(EMBEDDINGS):
            remainders[f"{name}.remainder"] = remainder_of(values, rounded, scale)

    # Store the widest numbers first, so that each begins at a multiple of its size
    stored: dict[str, dict[str, Any]] = {}
    raw = bytearray()
    for kind, arrays, numpy_type in (
        ("float32", floats, "<f4"),
        ("int16", remainders, "<i2"),
        ("int8", integers, "i1"),
    ):
        for name, array in arrays.items():
            stored[name] = {"type": kind, "shape": list(array.shape), "offset": len(raw)}
            raw += array.astype(numpy_type).tobytes()

    # List every name, also those of tied weights.
    table = dict(stored)
    for name, first in names.items():
        table[name] = stored[first]
        for part in ("scale", "remainder"):
            if f"{first}.{part}" in stored:
                table[f"{name}.{part}"] = stored[f"{first}.{part}"]
    return table, bytes(raw)


def remainder_of(
    values: NDArray[np.float32], rounded: NDArray[np.int8], scale: NDArray[np.float32]
) -> NDArray[np.int16]:
    """Return what rounding to 8 bits has taken from values, in 65,534 steps of a number of 8 bits."""
    return ((values.astype(np.float64) / scale - rounded) * REMAINDERS).round().astype(np.int16)


def rounded_embedding(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return an embedding as the page reads it, in 24 bits."""
    rounded, scale = quantize_rows(values)
    remainder = remainder_of(values, rounded, scale).astype(np.float64)
    return ((rounded + remainder / REMAINDERS) * scale).astype(np.float32)
