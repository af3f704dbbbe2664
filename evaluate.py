"""Scores a run: BLEU, chrF and their signature.

    python evaluate.py                                          the test part of the run's own data
    python evaluate.py --source test.en --reference test.fr     any two files
    python evaluate.py --source F --reference G --scores S.tsv  and the probability of each reference
    python evaluate.py --run A --against B --beam 5             two runs, and whether they differ by more than chance

decoding/scoring.py says how scores are counted.
"""

from functools import partial

from training.cli import EvaluateOptions
from tapis.system.cli import answer_early, parse, run_command

answer_early(__name__, partial(parse, EvaluateOptions))  # before torch, which takes more than a second

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from checkpoint import RunFolder, recorded_names
from tapis.config import ConfigError
from tapis.doubts import doubts
from tapis.translation import DOUBTS
from decoding.scoring import by_data_lines, compare, score_corpus, sentence_chrf
from tapis.search import Search
from decoding.translator import Translator
from tapis.translator import rows_by_direction
from tapis.system.files import write_text
from tapis.system.terminal import printable, say
from config import Config
from tapis.ctranslate2 import exported_config, is_exported
from pairs.corpus import load_corpus
from pairs.origins import Origin
from pairs.readers import DataError, lines
from pairs.selection import EXTREME_LENGTH
from pairs.tables import Ints

CLEAR = 0.9  # probability of a language


def main(args: Sequence[str]) -> None:
    """Run the command: translate and score one run, or two and their difference."""
    options = parse(EvaluateOptions, args)
    if (options.source is None) != (options.reference is None):
        raise ConfigError("--source and --reference go together")
    if (options.target or options.source_language) and not options.source:
        raise ConfigError(
            "--target and --source-language are for --source and --reference; "
            "without these, all language pairs are scored"
        )
    search = Search(options.beam, length_penalty=options.length_penalty)

    # Load the run, and the one to compare it with.
    translator = load(options, options.run)
    other = load(options, options.against) if options.against else None
    if options.scores:
        check_can_force(translator)  # before the translations

    # Take the pairs. Both runs must translate all of them.
    pairs = pairs_to_score(options, translator)
    source, target = pairs.directions[0]
    translator = translator.towards(target, source)
    if other:
        try:
            other = other.towards(target, source)
            list(other.rows_of_directions(pairs.directions))
        except ConfigError as error:
            raise ConfigError(f"--against {options.against}: {error}") from None

    # Translate and score.
    say(f"run {translator.config.name}, {pairs.name}: {len(pairs.sources):,} sentences")
    hypotheses = translate_and_score(translator, pairs, search)
    if options.doubts:
        print(doubts_line(translator, pairs, hypotheses))
    if options.output:
        write_text(options.output, "".join(line + "\n" for line in hypotheses))
    if options.scores:
        write_text(options.scores, score_lines(translator, pairs, hypotheses))

    # Compare.
    if other:
        say(f"against {other.config.name}")
        other_hypotheses = translate_and_score(other, pairs, search)
        for languages, rows in rows_by_direction(pairs.directions).items():
            ours, theirs, references = (
                [texts[row] for row in rows] for texts in (hypotheses, other_hypotheses, pairs.references)
            )
            p_values = compare(ours, theirs, references, languages[1])
            label = f"{languages[0]}-{languages[1]}: " if len(set(pairs.directions)) > 1 else ""
            print(label + "  ".join(f"{metric} p = {p:.3f}" for metric, p in p_values.items()))


def config_of(run: str) -> Config:
    """Return what was asked of a run, or of the run that an export was made of."""
    folder = RunFolder.find(run)
    if is_exported(folder.path):
        return exported_config(folder.path, Config)
    return folder.load_config()


def check_can_force(translator: Translator) -> None:
    """Raise ConfigError for an export, which computes no log-probabilities."""
    if not translator.searcher.can_force:
        raise ConfigError("an exported model computes no log-probabilities; the run that it was made of does")


def load(options: EvaluateOptions, run: str) -> Translator:
    """Return the translator of a run, as the options say."""
    return Translator.load(run, options.device, options.precision, plain=options.plain)


def check_lengths(sources: Sequence[str], file: Path, translator: Translator) -> None:
    """Raise DataError if a source is far longer than a sentence: it would take hours, and gigabytes."""
    most = EXTREME_LENGTH * translator.config.max_length
    for number, source in enumerate(sources, 1):
        # A token has at least one byte, so that short sentences need not be encoded to know.
        if len(source.encode("utf-8", "replace")) > most and (n := len(translator.source_ids([source])[0])) > most:
            raise DataError(f"{file} line {number:,}: a sentence of {n:,} tokens (is there one sentence per line?)")


def language_of(file: Path, sentences: Sequence[str], translator: Translator) -> str:
    """Return the language of a file of sentences, by the first hundred.

    If these are not clear, it is the only source language that the model has learned. Raises ConfigError if there are
    several.
    """
    language, share = translator.identify(" ".join(sentences[:100]))
    if share >= CLEAR:
        return language
    if len(translator.sources) > 1:
        raise ConfigError(f"the language of {file} is not clear: name it with --source-language")
    return translator.sources[0]


class PairsToScore(NamedTuple):
    """What is scored."""

    name: str
    sources: list[str]
    references: list[str]
    directions: list[tuple[str, str]]
    """The source and target language of each pair"""
    numbers: Ints
    """The number of its origin for each pair"""
    origins: list[Origin]
    """Language pairs or sources of data"""


def pairs_to_score(options: EvaluateOptions, translator: Translator) -> PairsToScore:
    """Return the pairs of two files, or of a part of the run's own data. Raises DataError if they are not pairs.

    Raises ConfigError if the languages of the files are not clear.
    """
    if options.source and options.reference:
        name = str(options.source)
        translator = translator.towards(options.target)
        sources, references = list(lines(options.source)), list(lines(options.reference))
        check_lengths(sources, options.source, translator)
        languages = options.source_language or language_of(options.source, sources, translator), translator.target
        directions = [languages] * len(sources)
        numbers: Ints = np.zeros(len(sources), dtype=np.int64)
        origins = [Origin(name, name, *languages)]
    else:
        config = replace(config_of(options.run), monolingual=(), back_translator="")
        if options.data:
            config = replace(config, data=options.data)
        elif unnamed := recorded_names(config):
            RunFolder.find(options.run).check_made_here(unnamed)
        name = f"{options.split} part of {', '.join(config.data)}"
        corpus = load_corpus(config)
        pairs = corpus.valid if options.split == "valid" else corpus.test
        sources, references = map(list, zip(*pairs, strict=True)) if len(pairs) else ([], [])
        directions, numbers, origins = corpus.directions(pairs), pairs.origins(), corpus.origins
    if len(sources) != len(references) or not sources:
        raise DataError(f"{name}: {len(sources):,} sources and {len(references):,} references; they must be pairs")
    return PairsToScore(name, sources, references, directions, numbers, origins)


def translate_and_score(translator: Translator, pairs: PairsToScore, search: Search) -> list[str]:
    """Translate, print the scores on standard output and the speed on standard error, and return the hypotheses.

    Where the pairs are of several language pairs or sources of data, a line for each follows.
    """
    start = time.perf_counter()
    hypotheses = translator.in_directions(pairs.sources, pairs.directions, search, bar="translating")
    seconds = time.perf_counter() - start
    say(f"translated in {seconds:.1f} s, {len(hypotheses) / seconds:.0f} sentences/s")

    scores = score_corpus(hypotheses, pairs.references, pairs.numbers, pairs.origins)
    print(scores)
    for line in by_data_lines(scores.by_data):
        print(printable(line))
    return hypotheses


def doubts_line(translator: Translator, pairs: PairsToScore, hypotheses: Sequence[str]) -> str:
    """Return the line of --doubts: how many translations are doubtful, and why."""
    counts: Counter[str] = Counter()
    n_doubtful = 0
    for towards, rows in translator.rows_of_directions(pairs.directions):
        found = doubts(towards, [pairs.sources[row] for row in rows], [hypotheses[row] for row in rows])
        n_doubtful += sum(map(bool, found))
        counts.update(doubt for marks in found for doubt in marks)
    by_kind = ", ".join(f"{doubt} {counts[doubt]:,}" for doubt in DOUBTS)
    return f"doubtful {n_doubtful:,} of {len(hypotheses):,}: {by_kind}"


def score_lines(translator: Translator, pairs: PairsToScore, hypotheses: Sequence[str]) -> str:
    """Return the lines of --scores, one for each pair."""
    given = list(zip(pairs.sources, pairs.references, strict=True))
    log_p = translator.log_probabilities_in_directions(given, pairs.directions)
    chrf = sentence_chrf(hypotheses, pairs.references)
    return "".join(
        f"{value:.4f}\t{n_tokens}\t{one_chrf:.2f}\t{hypothesis}\n"
        for (value, n_tokens), one_chrf, hypothesis in zip(log_p, chrf, hypotheses, strict=True)
    )


if __name__ == "__main__":
    run_command(main)
