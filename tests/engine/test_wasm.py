"""The engine as a WebAssembly module, run by Node.js: what engine.c computes as plain C.

The module adds numbers in the order of the source. It is compared with the variant `plain`, compiled in the same way.
"""

import base64
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from strict_engine import strict_engine
from test_engine import ODD, SMALL, WIDE, random_model

from config import Config
from exporting.web_page import pack_weights
from model import Transformer
from tapis.engine import engine
from tapis.engine.build_wasm import COMPILER, build, has_compiler
from tapis.engine.weights import DEPTH, PANEL
from tapis.search import Search
from tapis.web import engine_module, web_file

TAGS = [4, 5]
PART = 1000  # bytes of the weights that are handed over at once

# Reads one JSON object: the files of a page's engine and model, with searches and translations. Writes what is found.
RUN = """
const given = JSON.parse(require("fs").readFileSync(0));
const { code, module, config, places, weights, firstTextId, searches, pairs } = given;
const [Engine, bytesOf] = new Function(`${code}; return [Engine, bytesOf];`)();
const engine = new Engine(bytesOf(module), config, places, firstTextId);
for (const part of weights) engine.takeWeights(bytesOf(part));
console.log(JSON.stringify({
  found: searches.map(({ source, limit, beam, nBest }) => engine.translate(source, limit, { beam, nBest })),
  logP: pairs.map(([source, target]) => engine.logP(source, target)),
  attention: pairs.map(([source, target]) => engine.attention(source, target)),
}));
"""


def node() -> str:
    """Node.js. Where there is none, these tests are skipped."""
    found = shutil.which("node")
    if not found:
        pytest.skip("no Node.js")
    return found


def by_node(model: Transformer, searches: Sequence[dict[str, Any]], pairs: Sequence[Any]) -> Any:
    """What the module finds."""
    config = model.config
    places, weights = pack_weights(model)
    parts = [weights[start : start + PART] for start in range(0, len(weights), PART)]
    names = ("d_model", "n_heads", "n_decoder_layers", "norm")
    given = {
        "code": web_file("engine.js"),
        "module": base64.b64encode(engine_module()).decode(),
        "config": {**{name: getattr(config, name) for name in names}, "eps": engine.EPSILON},
        "places": {**places, "size": len(weights)},
        "weights": [base64.b64encode(part).decode() for part in parts],
        "firstTextId": TAGS[-1] + 1,
        "searches": searches,
        "pairs": pairs,
    }
    done = subprocess.run([node(), "-e", RUN], input=json.dumps(given), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(("config", "vocab_size"), [(SMALL, 300), (ODD, 333), (WIDE, 64)])
def test_the_module_computes_what_plain_c_does(
    norm: Literal["pre", "post"], config: Config, vocab_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy search, beam search and forced decoding, of models whose sizes are no multiples of anything."""
    model = random_model(vocab_size, replace(config, norm=norm, max_length=8))
    native = strict_engine(model, TAGS, tmp_path, monkeypatch)
    random = np.random.default_rng(1)
    sources = [random.integers(6, vocab_size, random.integers(0, 40)).tolist() for _ in range(20)]
    limits = [int(limit) for limit in random.integers(1, 60, 20)]
    kinds = [Search(), Search(2), Search(5), Search(5, 5)]
    cases = [(source, limit, search) for search in kinds for source, limit in zip(sources, limits, strict=True)]
    targets = [native([source], [limit], Search())[0][0].ids for source, limit in zip(sources, limits, strict=True)]
    pairs = list(zip(sources, targets, strict=True))

    asked = [{"source": s, "limit": n, "beam": search.beam, "nBest": search.n_best} for s, n, search in cases]
    answer = by_node(model, asked, pairs)

    for (source, limit, search), found in zip(cases, answer["found"], strict=True):
        (wanted,) = native([source], [limit], search)
        assert [one["ids"] for one in found] == [one.ids for one in wanted]
        if search.beam > 1:
            assert [one["score"] for one in found] == pytest.approx([one.score for one in wanted], rel=1e-6)
    of_search = [found[0]["logP"] for found in answer["found"][: len(sources)]]
    assert None in of_search  # without an end
    for one, log_p in zip(of_search, answer["logP"], strict=True):
        assert one is None or one == pytest.approx(log_p, rel=1e-5)
    assert answer["logP"] == pytest.approx(native.log_probabilities(sources, targets), rel=1e-6)
    for found, weights in zip(answer["attention"], native.attention(sources, targets), strict=True):
        np.testing.assert_allclose(found, weights[-1].mean(axis=0), rtol=1e-5)
    assert len({tuple(ids) for ids in targets}) > 10


def test_what_is_never_generated_has_no_probability_on_the_page() -> None:
    model = random_model(64, SMALL)
    answer = by_node(model, [], [([7], [8, TAGS[1], 9]), ([7], [8, 9])])
    assert answer["logP"][0] is None  # -∞ in JSON
    assert answer["logP"][1] < 0


def test_the_module_imports_nothing() -> None:
    script = "console.log(WebAssembly.Module.imports(new WebAssembly.Module(require('fs').readFileSync(0))).length)"
    done = subprocess.run([node(), "-e", script], input=engine_module(), capture_output=True, check=True)
    assert done.stdout == b"0\n"


def test_the_module_has_the_structures_that_javascript_writes() -> None:
    """Of words of 32 bits: pointers, numbers of the C type long, and floats."""
    script = """
        const { exports } = new WebAssembly.Instance(new WebAssembly.Module(require("fs").readFileSync(0)));
        console.log(JSON.stringify(Array.from(new Uint32Array(exports.memory.buffer, exports.layout.value, 13))));"""
    done = subprocess.run([node(), "-e", script], input=engine_module(), capture_output=True, check=True)
    version, panel, depth, *sizes = json.loads(done.stdout)
    assert (version, panel, depth) == (engine.LAYOUT_VERSION, PANEL, DEPTH)
    norm, linear = 2, 6
    block = 3 * norm + 7 * linear
    model = 7 + 2 * norm + 2 + linear + 1
    words = [norm, linear, block, model, 4, 4, 3, 8, 3, 2]  # as `layout` in engine.c has them
    assert sizes == [4 * n for n in words]


def test_the_module_is_what_its_source_compiles_to(tmp_path: Path) -> None:
    if not has_compiler():
        pytest.skip(f"no ziglang {COMPILER}")
    build(tmp_path / "engine.wasm")
    assert (tmp_path / "engine.wasm").read_bytes() == engine_module()
