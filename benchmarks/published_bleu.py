"""BLEU as the published tables for Multi30k count it: on lowercased Moses tokens. Needs sacremoses.

    python translate.py --run NAME --beam 5 < test.en > test.hyp
    python benchmarks/published_bleu.py test.hyp test.de de

Both sides are lowercased, their punctuation is normalized, and they are cut into Moses's tokens, which are escaped.
The references of Multi30k's test2016 come out as the lines of the data set's own `lc.norm.tok` files. The usual score,
cased and on sacreBLEU's 13a tokens, is printed beside it.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import sacrebleu
import tyro

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tapis.scoring import score  # noqa: E402


@dataclass(frozen=True)
class Options:
    """Score translations as the published tables for Multi30k do."""

    hypotheses: Annotated[Path, tyro.conf.Positional]
    """File of translations, one a line"""
    references: Annotated[Path, tyro.conf.Positional]
    """File of their references"""
    language: Annotated[str, tyro.conf.Positional]
    """Language of both"""


def moses_tokens(lines: list[str], language: str) -> list[str]:
    """Return each line lowercased, with normalized punctuation and a space between Moses's tokens."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer  # noqa: PLC0415 - only here

    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    return [tokenizer.tokenize(normalizer.normalize(line.lower()), return_str=True, escape=True) for line in lines]


def main() -> None:
    options = tyro.cli(Options)
    hypotheses, references = (
        path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        for path in (options.hypotheses, options.references)
    )
    if len(hypotheses) != len(references):
        sys.exit(f"{len(hypotheses)} translations, but {len(references)} references")
    tokens = [moses_tokens(lines, options.language) for lines in (hypotheses, references)]
    published = sacrebleu.corpus_bleu(tokens[0], [tokens[1]], tokenize="none", force=True)
    print(f"as published tables count  BLEU {published.score:.2f}")
    print(f"as train.py counts         {score(hypotheses, references, options.language)}")


if __name__ == "__main__":
    main()
