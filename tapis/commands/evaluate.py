"""The command that scores: pairs translated by one model, or by two that are compared, or translations in files."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tapis.config import ConfigError, flag
from tapis.ctranslate2 import NO_LOG_PROBABILITIES
from tapis.doubts import doubts
from tapis.release import RunFiles
from tapis.search import Search
from tapis.system.cli import EvaluateOptions, check_written, parse
from tapis.system.files import check_writable, write_text
from tapis.system.terminal import printable, say
from tapis.text.lines import DataError, lines
from tapis.text.sentences import EXTREME_LENGTH
from tapis.translation import DOUBTS
from tapis.translator import Translator, rows_by_direction

try:
    from tapis.scoring import Scores, compare, compared, score, sentence_chrf
except ImportError as error:
    raise SystemExit(f'scoring needs {error.name}, which is not installed: pip install "tapis[evaluate]"') from None

CLEAR = 0.9  # probability of a language


@dataclass(frozen=True)
class PairsToScore:
    """What is scored."""

    name: str
    sources: list[str]
    references: list[str]
    directions: list[tuple[str, str]]
    """The source and target language of each pair"""
    score_lines: Callable[[Sequence[str]], list[str]]
    """Returns the scores of translations, as lines to print"""


def run(kind: type[Translator], args: Sequence[str]) -> None:
    """Run the command on two files. `kind` loads the translators: that of the package, or of a checkout."""
    options = parse(EvaluateOptions, args)
    if options.hypothesis:
        score_files(options)
        return
    if not (options.source and options.reference):
        raise ConfigError("name two files, with --source and --reference, or with --hypothesis and --reference")
    check_outputs(options)
    folder = kind.files.find(options.run)
    evaluate(kind, options, folder, lambda translator: pairs_of_files(options, translator, score))


def score_files(options: EvaluateOptions) -> None:
    """Score a file of translations, and compare it with another one. Raises ConfigError for flags of a model."""
    # Check the flags, and read the files.
    for_files = ("hypothesis", "reference", "against", "target")
    for one in fields(options):
        if one.name not in for_files and getattr(options, one.name) != one.default:
            raise ConfigError(f"--hypothesis is scored without a model: leave out {flag(one.name)}")
    if not options.reference:
        raise ConfigError("--hypothesis needs --reference FILE, or several files after one --reference")
    assert options.hypothesis
    files = [options.hypothesis, *([Path(options.against)] if options.against else [])]
    systems, references = ([list(lines(file)) for file in some] for some in (files, options.reference))
    for file, texts in zip((*files[1:], *options.reference), (*systems[1:], *references), strict=True):
        if len(texts) != len(systems[0]):
            raise DataError(
                f"{files[0]} has {len(systems[0]):,} lines, and {file} has {len(texts):,}: one each is needed"
            )
    if not systems[0]:
        raise DataError(f"{files[0]} is empty")

    # Score them. A line for each metric of each file, and one for their difference.
    comparisons = compared(systems, references, options.target)
    for number, file in enumerate(files):
        say(f"{file}: {len(systems[0]):,} lines")
        for name, comparison in comparisons.items():
            one_score = comparison.scores[number]
            interval = f"(95 %: {one_score.low:.1f} to {one_score.high:.1f})"
            print(f"{name} {one_score.value:.1f}  {interval}  {comparison.signature}")
    if options.against:
        print(p_value_line({name: comparison.p_value or 0.0 for name, comparison in comparisons.items()}))


def check_outputs(options: EvaluateOptions) -> None:
    """Raise ConfigError if a file to write is one that the command reads, or writes a second time."""
    check_written(
        {"--output": options.output, "--scores": options.scores},
        [("the file of --source", options.source), *(("the file of --reference", file) for file in options.reference)],
    )


def evaluate(
    kind: type[Translator],
    options: EvaluateOptions,
    folder: RunFiles[Any],
    pairs_to_score: Callable[[Translator], PairsToScore],
) -> None:
    """Translate and score the pairs with the run of a folder, or also with another one, and compare the two."""
    search = Search(options.beam, length_penalty=options.length_penalty)

    # Load the run, and the one to compare it with.
    translator = load(kind, options, folder.path)
    other = load(kind, options, options.against) if options.against else None
    if options.scores:
        check_can_force(translator)  # before the translations

    # Take the pairs. Both runs must translate all of them.
    pairs = pairs_to_score(translator)
    source, target = pairs.directions[0]
    translator = translator.towards(target, source)
    if other:
        try:
            other = other.towards(target, source)
            list(other.rows_of_directions(pairs.directions))
        except ConfigError as error:
            raise ConfigError(f"--against {options.against}: {error}") from None

    # What is written after all the work must be writable before it.
    for file in filter(None, (options.output, options.scores)):
        check_writable(file)

    # Translate and score.
    say(f"run {options.run or folder.path.name}, {pairs.name}: {len(pairs.sources):,} sentences")
    hypotheses = translate_and_score(translator, pairs, search)
    if options.doubts:
        print(doubts_line(translator, pairs, hypotheses))
    if options.output:
        write_text(options.output, "".join(line + "\n" for line in hypotheses))
    if options.scores:
        write_text(options.scores, lines_of_pairs(translator, pairs, hypotheses))

    # Compare.
    if other:
        say(f"against {options.against}")
        other_hypotheses = translate_and_score(other, pairs, search)
        for languages, rows in rows_by_direction(pairs.directions).items():
            ours, theirs, references = (
                [texts[row] for row in rows] for texts in (hypotheses, other_hypotheses, pairs.references)
            )
            p_values = compare(ours, theirs, references, languages[1])
            label = f"{languages[0]}-{languages[1]}: " if len(set(pairs.directions)) > 1 else ""
            print(label + p_value_line(p_values))


def p_value_line(p_values: Mapping[str, float]) -> str:
    """Return the line that says by how much of a chance two systems differ as they do."""
    return "  ".join(f"{metric} p = {p:.3f}" for metric, p in p_values.items())


def load(kind: type[Translator], options: EvaluateOptions, run: str | Path) -> Translator:
    """Return the translator of a run, as the options say."""
    return kind.load(run, options.device, options.precision, plain=options.plain)


def check_can_force(translator: Translator) -> None:
    """Raise ConfigError for an export, which computes no log-probabilities."""
    if not translator.searcher.can_force:
        raise ConfigError(NO_LOG_PROBABILITIES)


def pairs_of_files(
    options: EvaluateOptions, translator: Translator, scored: Callable[[Sequence[str], Sequence[str], str], Scores]
) -> PairsToScore:
    """Return the pairs of two files, which `scored` scores as `score` does. Raises DataError if they are not pairs.

    Raises ConfigError if there are several references, or if the languages are not clear.
    """
    assert options.source and options.reference
    if len(options.reference) > 1:
        raise ConfigError("a model is scored on one --reference; --hypothesis takes several")
    translator = translator.towards(options.target)
    sources, references = list(lines(options.source)), list(lines(options.reference[0]))
    check_lengths(sources, options.source, translator)
    if options.scores:  # for which the model reads the references, too
        check_lengths(references, options.reference[0], translator)
    languages = options.source_language or language_of(options.source, sources, translator), translator.target
    name = str(options.source)
    check_pairs(name, sources, references)

    def score_lines(hypotheses: Sequence[str]) -> list[str]:
        return [str(scored(hypotheses, references, translator.target))]

    return PairsToScore(name, sources, references, [languages] * len(sources), score_lines)


def check_pairs(name: str, sources: Sequence[str], references: Sequence[str]) -> None:
    """Raise DataError unless there is a reference for each source, and a source."""
    if len(sources) != len(references) or not sources:
        raise DataError(f"{name}: {len(sources):,} sources and {len(references):,} references; they must be pairs")


def check_lengths(lines_of_file: Sequence[str], file: Path, translator: Translator) -> None:
    """Raise DataError if a line is far longer than a sentence: it would take hours, and gigabytes."""
    most = EXTREME_LENGTH * translator.config.max_length
    for number, line in enumerate(lines_of_file, 1):
        # A token has at least one byte, so that short sentences need not be encoded to know.
        if len(line.encode("utf-8", "replace")) > most and (n := len(translator.source_ids([line])[0])) > most:
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


def translate_and_score(translator: Translator, pairs: PairsToScore, search: Search) -> list[str]:
    """Translate, print the scores on standard output and the speed on standard error, and return the hypotheses."""
    start = time.perf_counter()
    hypotheses = translator.in_directions(pairs.sources, pairs.directions, search, bar="translating")
    seconds = time.perf_counter() - start
    say(f"translated in {seconds:.1f} s, {len(hypotheses) / seconds:.0f} sentences/s")
    for line in pairs.score_lines(hypotheses):
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


def lines_of_pairs(translator: Translator, pairs: PairsToScore, hypotheses: Sequence[str]) -> str:
    """Return the lines of --scores, one for each pair."""
    given = list(zip(pairs.sources, pairs.references, strict=True))
    log_p = translator.log_probabilities_in_directions(given, pairs.directions)
    chrf = sentence_chrf(hypotheses, pairs.references)
    return "".join(
        f"{value:.4f}\t{n_tokens}\t{one_chrf:.2f}\t{hypothesis}\n"
        for (value, n_tokens), one_chrf, hypothesis in zip(log_p, chrf, hypotheses, strict=True)
    )
