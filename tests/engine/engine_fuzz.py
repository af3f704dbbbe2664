"""Random models, sentences and settings for the engine, in a library that tests compile with sanitizers.

    python tests/engine/engine_fuzz.py LIBRARY SEED CASES

Whatever is given, a search must end with results that fit its settings: ids that are generated, lengths within limits,
scores in order, and weights of attention that sum to 1. What the library reads or writes beyond its memory ends the
process.
"""

import ctypes
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tapis.config import EOS, ModelConfig
from tapis.engine import engine
from tapis.engine.weights import weight_shapes
from tapis.search import Search


def case(seed: int) -> None:
    """Try one random case."""
    random = np.random.default_rng(seed)

    # A model of any shape
    n_heads = int(random.choice([1, 2, 3, 5]))
    d_model = n_heads * 2 * int(random.integers(1, 12))
    n_tokens = int(random.integers(6, 200))
    config = replace(
        ModelConfig(),
        d_model=d_model,
        n_heads=n_heads,
        d_ff=int(random.integers(2, 70)),
        n_encoder_layers=int(random.integers(1, 3)),
        n_decoder_layers=int(random.integers(1, 3)),
        norm="pre" if random.integers(2) else "post",
        tie_embeddings=bool(random.integers(2)),
        max_length=int(random.integers(2, 20)),
    )
    size = 10.0 ** random.integers(-3, 4)
    weights = {
        name: (random.standard_normal(shape) * size).astype(np.float32)
        for name, shape in weight_shapes(config, n_tokens).items()
    }
    tags = list(range(4, 4 + int(random.integers(0, min(4, n_tokens - 5)))))
    model = engine.Engine(weights, config, tags, str(random.choice(engine.variants())))

    # A search of any sentences
    longest = int(random.choice([1, 5, 90]))
    n = int(random.choice([0, 1, 3, 70]))
    sources = [random.integers(4, n_tokens, random.integers(0, longest + 1)).tolist() for _ in range(n)]
    limits = random.integers(-2, 25, n).tolist()
    beam = int(random.choice([1, 1, 2, 5, 12]))
    search = Search(beam, int(random.integers(1, beam + 1)), float(random.choice([0, 1.5, 10])))
    results = model(sources, limits, search)
    assert len(results) == n
    for hypotheses, limit in zip(results, limits, strict=True):
        assert 1 <= len(hypotheses) <= search.n_best
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert all(map(math.isnan, scores)) if beam == 1 else scores == sorted(scores, reverse=True)
        for hypothesis in hypotheses:
            assert len(hypothesis.ids) <= max(1, limit)
            assert all(EOS < token < n_tokens and token not in tags for token in hypothesis.ids)

    # Forced decoding of any translations
    targets = [random.integers(4, n_tokens, random.integers(0, 12)).tolist() for _ in range(n)]
    log_p, attention = model.log_probabilities(sources, targets), model.attention(sources, targets)
    assert len(log_p) == len(attention) == n and all(value <= 1e-3 for value in log_p)
    for one, source, target in zip(attention, sources, targets, strict=True):
        assert one.shape == (config.n_decoder_layers, n_heads, len(target) + 1, len(source) + 1)
        np.testing.assert_allclose(one.sum(axis=-1), 1, rtol=1e-4)


if __name__ == "__main__":
    library, first, n_cases = ctypes.CDLL(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    engine.library = lambda: library  # type: ignore[assignment]
    for seed in range(first, first + n_cases):
        try:
            case(seed)
        except BaseException:
            print(f"seed {seed}", file=sys.stderr)
            raise
    print(f"{n_cases} cases")
