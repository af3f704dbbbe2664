"""CTranslate2 as a searcher, in the place of our own model, and what an exported folder holds.

A folder that `export.py --to ctranslate2` made:

    OUT/
        model.bin  config.json  *_vocabulary.json     CTranslate2's own files
        tokenizer.json  tapis.json                    ours: texts ↔ tokens, and the config of the run
        example.py                                    translates with these files and without our code
        SHA256SUMS

CTranslate2 holds the same weights, possibly in int8, and runs its own search. In float32 it gives the translations of
search.py, except for ties, and except with a beam where our search continues after K results.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from config import EOS, Config, ConfigError, TapisError, TranslatingPrecision
from decoding.search import NEVER_GENERATED, Hypothesis, Search, go_on, length_penalty
from system.hub import check_sums
from text.tokenizer import Tokenizer

CONFIG = "tapis.json"
# CTranslate2's names of precisions; its default is the one of the export.
COMPUTE = {"auto": "default", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "int8": "int8"}


class EngineError(TapisError):
    """An exported folder cannot be used."""


def is_exported(folder: Path) -> bool:
    """Whether a folder holds an export for CTranslate2, and not a run."""
    return (folder / CONFIG).is_file()


def exported_config(folder: Path) -> Config:
    """The config of the run that was exported. Raises EngineError if it cannot be read."""
    try:
        return Config.from_json((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise EngineError(f"{folder / CONFIG} cannot be used: {error}") from None


class CTranslate2Searcher:
    """CTranslate2's translator as a searcher. Scores are those of `Hypothesis`."""

    def __init__(
        self, folder: Path, tokenizer: Tokenizer, device: torch.device, precision: TranslatingPrecision
    ) -> None:
        """Raises EngineError if CTranslate2 or the folder cannot be used, ConfigError for a precision it lacks."""
        try:
            import ctranslate2  # noqa: PLC0415 - part of the extra `export`
        except ImportError:
            raise EngineError(f'{folder} is for CTranslate2, not installed here: pip install -e ".[export]"') from None
        self.tokens = tokenizer.tokens()
        self.suppressed = [*NEVER_GENERATED, *tokenizer.tags.values()]
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        kind = "cuda" if device.type == "cuda" else "cpu"
        self.releases_lock = kind == "cpu"
        # Translator gives each thread of a CPU batches of its own: as many workers as threads, of one thread each.
        workers = torch.get_num_threads() if kind == "cpu" else 1
        try:
            self.translator = ctranslate2.Translator(
                str(folder), kind, compute_type=COMPUTE[precision], inter_threads=workers, intra_threads=1
            )
        except ValueError as error:  # a precision that this hardware lacks
            raise ConfigError(f"--precision {precision}: {error}") from None
        except RuntimeError as error:
            raise EngineError(f"{folder} cannot be loaded ({error}): export it again") from None

    def __call__(
        self, sources: Sequence[list[int]], limits: Sequence[int], search: Search, check: Callable[[], None] = go_on
    ) -> list[list[Hypothesis]]:
        check()  # CTranslate2 cannot be interrupted while it searches
        has_scores = search.beam > 1
        try:
            results = self.translator.translate_batch(
                [[self.tokens[i] for i in source] for source in sources],
                beam_size=search.beam,
                num_hypotheses=search.beam,
                # CTranslate2's penalty is a power of the length: 1 gives the mean over the tokens, EOS included.
                length_penalty=1,
                return_scores=has_scores,
                return_end_token=True,
                min_decoding_length=0,
                max_decoding_length=max(limits),
                max_input_length=0,
                suppress_sequences=[[self.tokens[i]] for i in self.suppressed],
            )
        except RuntimeError as error:
            if "position" not in str(error):
                raise
            longest = max(map(len, sources))
            raise EngineError(f"a sentence of {longest:,} tokens is too long for the export ({error})") from None
        hypotheses = []
        for result, limit in zip(results, limits, strict=True):
            means = result.scores if has_scores else [math.nan] * len(result.hypotheses)
            ranked = [
                self._hypothesis(tokens, mean, limit, search)
                for tokens, mean in zip(result.hypotheses, means, strict=True)
            ]
            ranked.sort(key=lambda hypothesis: -hypothesis.score)
            hypotheses.append(ranked[: search.n_best])
        return hypotheses

    def _hypothesis(self, tokens: Sequence[str], mean: float, limit: int, search: Search) -> Hypothesis:
        """A hypothesis of CTranslate2, whose score is the mean log P of its tokens, as one of ours."""
        ids = [self.ids[token] for token in tokens]  # EOS is among them, unless the search ended at its limit
        score = mean * len(ids) / float(length_penalty(len(ids), search.length_penalty))
        return Hypothesis([i for i in ids if i != EOS][:limit], score)


def load_exported(
    folder: Path, device: torch.device, precision: TranslatingPrecision
) -> tuple[Config, Tokenizer, CTranslate2Searcher]:
    """What translating with an export needs. Raises EngineError, or FetchError where a file is not the exported one."""
    tokenizer_file = folder / "tokenizer.json"
    check_sums(folder, "model.bin", CONFIG, tokenizer_file.name)
    config = exported_config(folder)
    tokenizer = Tokenizer.from_json(tokenizer_file.read_text(encoding="utf-8"), str(tokenizer_file))
    if not tokenizer.has_tags_of(config.tagged_languages):
        raise EngineError(f"{tokenizer_file} has other languages than {folder / CONFIG}: export it again")
    return config, tokenizer, CTranslate2Searcher(folder, tokenizer, device, precision)
