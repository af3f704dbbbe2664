"""Scores a run, or translations made elsewhere: BLEU, chrF and their signature.

    python evaluate.py                                          the test part of the run's own data
    python evaluate.py --source test.en --reference test.fr     any two files
    python evaluate.py --source F --reference G --scores S.tsv  and the probability of each reference
    python evaluate.py --run A --against B --beam 5             two runs, and whether they differ by more than chance
    python evaluate.py --hypothesis OUT.fr --reference G        a file of translations, without a model

decoding/scoring.py says how scores are counted. The package `tapis` has the same command for two files.
"""

from functools import partial

from training.cli import OwnEvaluateOptions
from tapis.system.cli import answer_early, parse, run_command

answer_early(__name__, partial(parse, OwnEvaluateOptions))  # before torch, which takes more than a second

from collections.abc import Sequence
from dataclasses import replace

from checkpoint import RunFolder, recorded_names
from tapis.commands.evaluate import PairsToScore, check_outputs, check_pairs, evaluate, pairs_of_files, score_files
from tapis.config import ConfigError
from decoding.scoring import by_data_lines, score_corpus, torchmetrics_score
from decoding.translator import Translator
from config import Config
from tapis.ctranslate2 import config_of
from pairs.corpus import load_corpus
from pairs.origins import may_be_of_data
from pairs.readers import takes_columns
from tapis.system.files import last_part
from tapis.system.terminal import say


def main(args: Sequence[str]) -> None:
    """Run the command: translate and score one run, or two and their difference."""
    options = parse(OwnEvaluateOptions, args)
    if options.hypothesis:
        score_files(options)
        return
    if (options.source is None) != (not options.reference):
        raise ConfigError("--source and --reference go together")
    if (options.target or options.source_language) and not options.source:
        raise ConfigError(
            "--target and --source-language are for --source and --reference; "
            "without these, all language pairs are scored"
        )
    if options.source and (options.data or options.split != "test"):
        raise ConfigError("--split and --data are for the run's own data, not for --source and --reference")
    check_outputs(options)
    folder = RunFolder.find(options.run)  # once: while this command works, another run may become the most recent
    if options.source:
        evaluate(
            Translator, options, folder, lambda translator: pairs_of_files(options, translator, torchmetrics_score)
        )
    else:
        config = config_of_own_data(options, folder)
        check_data_not_overwritten(options, config.data)
        if options.against and not options.data:
            note_other_parts(config, options.against)
        evaluate(Translator, options, folder, lambda _: own_pairs(config, options.split))


def config_of_own_data(options: OwnEvaluateOptions, folder: RunFolder) -> Config:
    """Return the config by which the run's own data are read. Raises ConfigError if another machine made the run."""
    config = replace(config_of(folder), monolingual=(), back_translator="", teacher=())
    if options.data:
        # These belong to the sources that the run was trained on.
        columns = config.columns if any(map(takes_columns, options.data)) else ()
        config = replace(config, data=options.data, data_weights=(), columns=columns)
    elif unnamed := recorded_names(config):
        folder.check_made_here(unnamed)
    return config


def note_other_parts(config: Config, other: str) -> None:
    """Say if another run may have learned from a part of these data, as far as its config tells.

    A release has the last parts of paths alone.
    """
    configs = config, config_of(RunFolder.find(other))
    parts, others = ((sorted(map(last_part, one.data)), one.valid_share, one.test_share) for one in configs)
    if parts != others:
        say(
            f"note      {other} was trained on other data, or with other shares for validation and test: "
            "it may have learned from these pairs"
        )


def check_data_not_overwritten(options: OwnEvaluateOptions, data: Sequence[str]) -> None:
    """Raise ConfigError if a file to write exists and may be one of the data."""
    for name, file in (("--output", options.output), ("--scores", options.scores)):
        for one in data:
            if file and file.exists() and may_be_of_data(file, one):
                raise ConfigError(
                    f"{name} {file} exists, and may be a file of --data {one}, which is not overwritten: "
                    "name another file"
                )


def own_pairs(config: Config, split: str) -> PairsToScore:
    """Return a part of the run's own data. Raises DataError if it is empty, or cannot be read.

    With several language pairs or sources of data, each has a line of scores.
    """
    name = f"{split} part of {', '.join(config.data)}"
    corpus = load_corpus(config)
    pairs = corpus.valid if split == "valid" else corpus.test
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    check_pairs(name, sources, references)

    def score_lines(hypotheses: Sequence[str]) -> list[str]:
        scores = score_corpus(hypotheses, references, pairs.origins(), corpus.origins)
        return [str(scores), *by_data_lines(scores.by_data)]

    return PairsToScore(name, sources, references, corpus.directions(pairs), score_lines)


if __name__ == "__main__":
    run_command(main)
