"""CTranslate2 in the place of our model: what a folder of `export.py --to ctranslate2` holds, and searching with it.

    OUT/
        model.bin  config.json  *_vocabulary.json     CTranslate2's own
        tokenizer.json  tapis.json                    ours: texts ↔ tokens, and the config of the run
        example.py                                    how to translate with these and none of our code
        SHA256SUMS

The engine holds the same weights, perhaps in int8, and searches with hypotheses of its own. In float32 it gives the
translations of decode.py, but for ties and, with a beam, where ours goes on after as many results as the beam is wide.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import torch

from config import EOS, Config, ConfigError, TapisError, TranslatingPrecision
from decoding.search import NEVER, Hypothesis, Search, length_penalty
from system.hub import check_sums
from text.tokenizer import Tokenizer

CONFIG = "tapis.json"
# CTranslate2's names; its default is what the weights were exported in.
COMPUTE = {"auto": "default", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "int8": "int8"}


class EngineError(TapisError):
    """An exported folder cannot be used."""


def is_exported(folder: Path) -> bool:
    """Whether a folder holds a model in CTranslate2's form, and not a run."""
    return (folder / CONFIG).is_file()


class Engine:
    """CTranslate2's translator, as a search over ids."""

    def __init__(
        self, folder: Path, tokenizer: Tokenizer, device: torch.device, precision: TranslatingPrecision
    ) -> None:
        try:
            import ctranslate2  # noqa: PLC0415 - a part of the extra `export`
        except ImportError:
            raise EngineError(f'{folder} is for CTranslate2, not installed here: pip install -e ".[export]"') from None
        self.tokens = tokenizer.tokens()
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        kind = "cuda" if device.type == "cuda" else "cpu"
        # Translator has each thread of a CPU search batches of its own: so many workers, of one thread each.
        workers = torch.get_num_threads() if kind == "cpu" else 1
        try:
            self.inner = ctranslate2.Translator(
                str(folder), kind, compute_type=COMPUTE[precision], inter_threads=workers, intra_threads=1
            )
        except ValueError as error:  # a precision that this hardware has not
            raise ConfigError(f"--precision {precision}: {error}") from None
        except RuntimeError as error:
            raise EngineError(f"{folder} cannot be loaded ({error}): export it again") from None

    def __call__(self, sources: Sequence[list[int]], limits: Sequence[int], search: Search) -> list[list[Hypothesis]]:
        """The n best translations of each source; limits cap their lengths. Scores are those of `Hypothesis`."""
        beam = search.beam > 1
        results = self.inner.translate_batch(
            [[self.tokens[i] for i in source] for source in sources],
            beam_size=search.beam,
            num_hypotheses=search.beam,
            # Its own is a power of the length: 1 gives the mean over the tokens, EOS included, of which ours is made.
            length_penalty=1,
            return_scores=beam,
            return_end_token=True,
            min_decoding_length=0,
            max_decoding_length=max(limits),
            max_input_length=0,
            suppress_sequences=[[self.tokens[i]] for i in NEVER],
        )
        found = []
        for result, limit in zip(results, limits, strict=True):
            scores = result.scores if beam else [math.nan] * len(result.hypotheses)
            n_best = []
            for tokens, mean in zip(result.hypotheses, scores, strict=True):
                ids = [self.ids[token] for token in tokens]  # perhaps with EOS
                score = mean * len(ids) / float(length_penalty(len(ids), search.length_penalty))
                n_best.append(Hypothesis([i for i in ids if i != EOS][:limit], score))
            found.append(sorted(n_best, key=lambda one: -one.score)[: search.n_best])
        return found


def load_engine(
    folder: Path, device: torch.device, precision: TranslatingPrecision
) -> tuple[Config, Tokenizer, Engine]:
    """What translating needs. Raises EngineError, or FetchError where a file is not the one that was exported."""
    file = folder / "tokenizer.json"
    check_sums(folder, "model.bin", CONFIG, file.name)
    config = Config.from_json((folder / CONFIG).read_text(encoding="utf-8"))
    tokenizer = Tokenizer.from_json(file.read_text(encoding="utf-8"), str(file))
    return config, tokenizer, Engine(folder, tokenizer, device, precision)
