"""Scores a run: BLEU, chrF and their signature.

    python evaluate.py                                          the test part of the run's own data
    python evaluate.py --source test.en --reference test.fr     any two files
    python evaluate.py --source F --reference G --scores S.tsv  and the probability of each reference
    python evaluate.py --run A --against B --beam 5             two runs, and whether they differ by more than chance

decoding/scoring.py says how scores are counted.
"""

from functools import partial

from system.cli import EvaluateOptions, answer_early, parse, run_command

answer_early(__name__, partial(parse, EvaluateOptions))  # before torch, which takes more than a second

import sys
import time
from collections.abc import Sequence

from config import ConfigError
from decoding.scoring import compare, score, sentence_chrf
from decoding.search import Search
from decoding.translator import Translator
from system.files import write_text
from text.corpus import load_corpus
from text.readers import DataError, lines


def main(args: Sequence[str]) -> None:
    """Runs the command: translates and scores one run, or two and their difference."""
    options = parse(EvaluateOptions, args)
    if (options.source is None) != (options.reference is None):
        raise ConfigError("--source and --reference go together")
    search = Search(options.beam, length_penalty=options.length_penalty)

    # Load the run, and the one to compare it with.
    translator = load(options, options.run)
    other = load(options, options.against) if options.against else None
    if options.scores:
        translator.model_searcher("computes no log-probabilities")  # before the translations
    language = translator.config.target
    if other and other.config.target != language:
        raise ConfigError(
            f"--against {options.against} translates into {other.config.target}, this run into {language}"
        )

    # Translate and score.
    name, sources, references = sentences(options, translator)
    print(f"run {translator.config.name}, {name}: {len(sources):,} sentences", file=sys.stderr)
    hypotheses = translate_and_score(translator, sources, references, search)
    if options.output:
        write_text(options.output, "".join(line + "\n" for line in hypotheses))
    if options.scores:
        write_text(options.scores, score_lines(translator, sources, references, hypotheses))

    # Compare.
    if other:
        print(f"against {other.config.name}", file=sys.stderr)
        other_hypotheses = translate_and_score(other, sources, references, search)
        p_values = compare(hypotheses, other_hypotheses, references, language)
        print("  ".join(f"{metric} p = {p:.3f}" for metric, p in p_values.items()))


def load(options: EvaluateOptions, run: str) -> Translator:
    """The translator of a run, as the options say."""
    return Translator.load(run, options.device, options.precision, plain=options.plain)


def sentences(options: EvaluateOptions, translator: Translator) -> tuple[str, list[str], list[str]]:
    """What is scored, its sources and its references. Raises DataError if they are not pairs."""
    if options.source and options.reference:
        name = str(options.source)
        sources, references = list(lines(options.source)), list(lines(options.reference))
    else:
        name = f"{options.split} part of {translator.config.data}"
        corpus = load_corpus(translator.config)
        pairs = list(corpus.valid if options.split == "valid" else corpus.test)
        sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    if len(sources) != len(references) or not sources:
        raise DataError(f"{name}: {len(sources):,} sources and {len(references):,} references; they must be pairs")
    return name, sources, references


def translate_and_score(
    translator: Translator, sources: Sequence[str], references: Sequence[str], search: Search
) -> list[str]:
    """Translates, prints the scores on standard output and the speed on standard error, and returns the hypotheses."""
    start = time.perf_counter()
    hypotheses = translator(sources, search, bar="translating")
    seconds = time.perf_counter() - start
    print(f"translated in {seconds:.1f} s, {len(sources) / seconds:.0f} sentences/s", file=sys.stderr)
    print(score(hypotheses, references, translator.config.target))
    return hypotheses


def score_lines(
    translator: Translator, sources: Sequence[str], references: Sequence[str], hypotheses: Sequence[str]
) -> str:
    """The lines of --scores, one for each pair."""
    log_p = translator.log_probabilities(list(zip(sources, references, strict=True)))
    chrf = sentence_chrf(hypotheses, references)
    return "".join(
        f"{value:.4f}\t{n_tokens}\t{one_chrf:.2f}\t{hypothesis}\n"
        for (value, n_tokens), one_chrf, hypothesis in zip(log_p, chrf, hypotheses, strict=True)
    )


if __name__ == "__main__":
    run_command(main)
