"""A web page with a model in it: one HTML file that translates in a browser, without a server and without a network.

The sources of the page are in tapis/web/, which the page of a server shares. `web_page` puts them and the model
together. Weights are in 8 bits, rounded as for all variants of the engine but avx2, and the engine itself computes with
them, compiled to WebAssembly. The file holds, in this order:

    page.css      how the page looks
    page.js       shows the page
    checksum.js   tells whether a part below is as it was written
    offline.js    starts the worker, and hands it the weights
    engine        the tokenizer and all that is around the model, as text
    worker        the script of the page's worker, as text: it runs the engine
    module        the model and the search (tapis/engine/engine.c) as WebAssembly, in Base64
    description   what the model is, its sizes, its vocabulary, and where each weight is, as JSON
    weights       as the engine has them in its memory, in Base64, in parts

A browser needs most of the time until the page is ready to read the weights. The worker is therefore started by a line
before them, and each of their parts is handed to it by a line behind it: it gets ready meanwhile.
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

from checkpoint import parameters
from config import FACTS, Config
from model import Transformer
from tapis.config import Learned
from tapis.engine.engine import EPSILON
from tapis.engine.weights import block_names, pack_linear, quantize_rows
from tapis.text.tokenizer import Tokenizer
from tapis.web import engine_module, filled_in, web_file

# The files that a worker of the page runs, in the order of what they need.
ENGINE = (
    *("checksum.js", "tokenizer.js", "engine.js", "sentences.js", "letter_case.js", "loops.js", "doubts.js"),
    *("mark_patterns.js", "marks.js", "alignment.js", "placement.js", "notices.js", "translator.js"),
)
SCRIPTS = ("page.js", "checksum.js", "offline.js")
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'wasm-unsafe-eval' blob:; worker-src blob:; "
    "style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"
)
LOADING = "Loading the model. If this line stays, the file is damaged or the browser is too old."
# What the page reads of the config, by the same names
PAGE_FIELDS = [name for name, facts in FACTS.items() if facts.is_on_page]
PART = 192 * 1024  # bytes of the weights in an element: browsers take long for a large one
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
    places, weights = pack_weights(model)
    starts = range(0, len(weights), PART)
    description = {
        "config": {
            **{name: getattr(config, name) for name in PAGE_FIELDS},
            **asdict(learned),
            "eps": EPSILON,
        },
        "directions": config.directions,
        "repairs": "unicode" not in config.skip_rules,
        "tags": tokenizer.tags,
        "tokens": tokenizer.tokens(),
        "merges": [token for pair in tokenizer.merges for token in pair],
        "first_text_id": tokenizer.first_text_id,
        "weights": {**places, "size": len(weights), "n_parts": len(starts)},
        "facts": list(facts.items()),
    }
    style = f"<style>\n{web_file('page.css')}</style>"
    parts = (
        text_part("engine", "\n".join(map(web_file, ENGINE))),
        text_part("worker", web_file("worker.js")),
        text_part("module", in_base64(engine_module())),
        text_part("description", as_json(description)),
        "<script>offlineBackEnd.start()</script>",
        *(weights_part(i, weights[start : start + PART]) for i, start in enumerate(starts)),
    )
    return filled_in(
        {
            "policy": f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            "description": html.escape(title),
            "head": "\n".join([style, *(script(web_file(name)) for name in SCRIPTS)]),
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


def text_part(name: str, content: str) -> str:
    """Return a part that the page reads as text."""
    return checked_part(name, content, content.encode())


def weights_part(i: int, raw: bytes) -> str:
    """Return a part of the weights, and the line that hands it over."""
    return checked_part(f"weights-{i}", in_base64(raw), raw) + "\n<script>offlineBackEnd.handOver()</script>"


def checked_part(name: str, content: str, raw: bytes) -> str:
    """Return an element with a text, and with the size and the checksum of the bytes that it stands for."""
    assert "</script" not in content.lower() and "<!--" not in content
    return (
        f'<script type="text/plain" id="{name}" data-size="{len(raw)}" data-crc="{zlib.crc32(raw)}">{content}</script>'
    )


def in_base64(raw: bytes) -> str:
    """Return bytes as text."""
    return base64.b64encode(raw).decode("ascii")


def pack_weights(model: Transformer) -> tuple[dict[str, Any], bytes]:
    """Return where the weights are and their bytes, which the page copies into the memory of the engine.

    Places have the names of the fields of `struct model` in engine.c, and are offsets in bytes: of a normalization its
    two; of a linear layer its weight, scale and bias, followed by its sizes. None stands for a part that a model does
    not have, and for a bias of zeros.

    engine.c reads embeddings in 32 bits. Here they are as weights of linear layers, with a remainder of 16 bits:
    (weight + remainder / 65,534) · scale. In 8 bits, they would change 8 % of a Multi30k model's translations. If
    embeddings are tied, the layer of the one that there is, is the projection.
    """
    config = model.config
    weights = {name: weight.float().cpu().numpy() for name, weight in parameters(model).items()}
    raw = bytearray()

    def place(array: NDArray[Any]) -> int:
        raw.extend(bytes(-len(raw) % 4))
        offset = len(raw)
        raw.extend(array.astype(array.dtype.newbyteorder("<")).tobytes())
        return offset

    def norm(name: str) -> list[int | None]:
        parts = (weights.get(f"{name}.{part}") for part in ("alpha", "bias"))
        return [None if part is None else place(part) for part in parts]

    def linear(names: list[str]) -> list[int | None]:
        if not names:
            return [None, None, None, 0, 0]
        packed = pack_linear(weights, names)
        bias = place(packed.bias) if packed.bias.any() else None
        return [place(packed.weight), place(packed.scale), bias, packed.n_in, packed.n_out]

    def blocks(stack: str, n: int) -> list[dict[str, list[Any]]]:
        names = (block_names(stack, i) for i in range(n))
        return [{"norms": list(map(norm, one.norms)), "linears": list(map(linear, one.linears))} for one in names]

    def embedding(name: str, layer: list[int | None]) -> dict[str, Any]:
        values = weights[f"{name}.weight"]
        return {"layer": layer, "remainder": place(remainder_of(values, *quantize_rows(values)))}

    # The largest first: the page unpacks them while the rest is read
    source, target, projection = "src_embed.embedding", "tgt_embed.embedding", "projection.linear"
    if config.tie_embeddings:
        weights[f"{projection}.weight"] = weights[f"{source}.weight"]
    of_projection = linear([projection])
    of_source = embedding(source, of_projection if config.tie_embeddings else linear([source]))
    of_target = None if config.tie_embeddings else embedding(target, linear([target]))

    places = {
        "source_embedding": of_source,
        "target_embedding": of_target,
        "projection": of_projection,
        "encoder": blocks("encoder", config.n_encoder_layers),
        "decoder": blocks("decoder", config.n_decoder_layers),
        "encoder_norm": norm("encoder.norm"),
        "decoder_norm": norm("decoder.norm"),
    }
    return places, bytes(raw)


def remainder_of(
    values: NDArray[np.float32], rounded: NDArray[np.int8], scale: NDArray[np.float32]
) -> NDArray[np.int16]:
    """Return what rounding to 8 bits has taken from values, in 65,534 steps of a number of 8 bits."""
    return ((values.astype(np.float64) / scale - rounded) * REMAINDERS).round().astype(np.int16)
