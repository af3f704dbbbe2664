"""Scores of a run: BLEU by torchmetrics, and pairs from several origins.

tapis/scoring.py says how scores are counted. A run's BLEU comes from torchmetrics. During training, where a GPU would
wait for that as long as it translates, it comes from sacrebleu; a test holds both equal. chrF is always sacrebleu's:
torchmetrics averages over n-gram orders in another way, which differs by up to a tenth of a point and takes thirty
times as long.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from pairs.origins import Origin
from pairs.tables import Ints
from tapis.scoring import Scores, bleu_tokenizer, score, signature

Scorer = Callable[[Sequence[str], Sequence[str], str], Scores]
"""(hypotheses, references, their language) → scores"""


def torchmetrics_score(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Scores:
    """Return what `tapis.scoring.score` does, with BLEU from torchmetrics."""
    from torchmetrics.functional.text import sacre_bleu_score  # noqa: PLC0415 - most of a second

    scores = score(hypotheses, references, language)
    tokenizer = bleu_tokenizer(language)
    bleu = 100 * float(sacre_bleu_score(hypotheses, [[one] for one in references], tokenize=tokenizer))
    return replace(scores, bleu=bleu, signature=signature(tokenizer, "torchmetrics"))


def score_corpus(
    hypotheses: Sequence[str],
    references: Sequence[str],
    numbers: Ints,
    origins: Sequence[Origin],
    scored: Scorer = torchmetrics_score,
) -> Scores:
    """Score pairs from several origins, with those of each origin under `by_data`.

    With several language pairs, the scores are the means over these; with several sources of data in one language pair,
    those of all pairs together. numbers has, for each pair, the number of its origin in origins. Of these, monolingual
    text comes last and has no pairs to score.
    """
    origins = [origin for origin in origins if not origin.is_monolingual]
    if len(origins) == 1:
        return scored(hypotheses, references, origins[0].target)
    of_origin = {}
    for number, origin in enumerate(origins):
        chosen = np.flatnonzero(numbers == number).tolist()
        if chosen:
            texts = [hypotheses[i] for i in chosen], [references[i] for i in chosen]
            of_origin[origin.label] = scored(*texts, origin.target)
    by_data = {label: {"bleu": scores.bleu, "chrf": scores.chrf} for label, scores in of_origin.items()}
    if len({(origin.source, origin.target) for origin in origins}) == 1:
        return replace(scored(hypotheses, references, origins[0].target), by_data=by_data)
    return Scores(
        **{
            name: sum(getattr(scores, name) for scores in of_origin.values()) / len(of_origin)
            for name in ("bleu", "chrf", "brevity")
        },
        signature=" and ".join(dict.fromkeys(scores.signature for scores in of_origin.values())),
        by_data=by_data,
    )


def by_data_lines(by_data: dict[str, dict[str, float]]) -> list[str]:
    """Return a line for each language pair, or each source of data, of `Scores.by_data`."""
    return [f"{label}: BLEU {scores['bleu']:.1f}  chrF {scores['chrf']:.1f}" for label, scores in by_data.items()]
