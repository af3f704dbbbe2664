"""What a run prints on standard error: the report of its data and model, its validations, and warnings."""

import math
from collections.abc import Iterator, Sequence

from decoding.scoring import by_data_lines
from pairs.report import DataReport
from pairs.report_lines import data_lines, example_lines, rule_lines
from training.metrics import Metrics
from training.records import RoundReport, StepRecord, Validation, mean_loss, tokens_per_second
from training.trainer import Training
from training.unrelated import FEWEST_JUDGED, Unrelated

MAX_IN_BYTES = 0.02  # share of a side's characters above which the tokenizer does not suit it


def report_lines(metrics: Metrics) -> list[str]:
    """Return the report of a run that begins as lines, for the terminal and TensorBoard."""
    return [*data_lines(metrics.data), *training_lines(metrics)]


def training_lines(metrics: Metrics) -> list[str]:
    """Return the part of the report that follows on that of the data, once the data are in tokens."""
    return [*token_lines(metrics), *left_lines(metrics.data), *ancestor_lines(metrics), *model_lines(metrics)]


def token_lines(metrics: Metrics) -> list[str]:
    """Return the lengths of sentences in tokens, and the vocabulary."""
    lines = []
    for language, side in metrics.sides.items():
        percentiles = "  ".join(f"{p} % ≤ {length:,}" for p, length in side.percentiles.items())
        counts = f"{side.tokens:,}, {side.tokens_per_word} a word"
        lines.append(f"tokens    {language}: {counts}; {percentiles} in a sentence")
    return [*lines, f"          vocabulary {metrics.vocabulary:,}"]


def left_lines(data: DataReport) -> list[str]:
    """Return which pairs are too long to train on and, of several sources, how many of each an epoch has."""
    sources = data.of_each_source()
    lines = []
    for source in sources:
        if source.over_long.pairs:
            name = f" ({source.name})" if len(sources) > 1 else ""
            effect = f"dropped: more tokens on one side than --max-length{name}"
            lines += rule_lines(source, "over-long", source.over_long, effect)
    if len(sources) > 1:
        lines += [f"          {source.name}: {left_of(source)}; weight {source.weight:g}" for source in sources]
    if sum(not source.monolingual for source in sources) > 1:
        lines.append(f"          together: {left_of(data)}; {data.pairs_in_an_epoch:,} pairs in an epoch")
    elif lines and len(sources) == 1:
        lines.append(f"          {left_of(data)}")
    return lines


def left_of(data: DataReport) -> str:
    """Return how much there is to train on."""
    return f"{data.trained_on:,} {'sentences' if data.monolingual else 'pairs'} to learn from"


def ancestor_lines(metrics: Metrics) -> list[str]:
    """Return the run that this one starts from, and how the data suit its tokenizer; nothing if there is none."""
    if not metrics.init_from:
        return []
    lines = [f"start     from the weights and the tokenizer of {metrics.init_from.name}"]
    for language, side in metrics.sides.items():
        facts = [f"{side.tokens_per_word} tokens a word"]
        if side.tokens_per_word_there is not None:
            facts.append(f"{side.tokens_per_word_there} in its data")
        if side.rare_there is not None:
            facts.append(f"{side.rare_there:.2%} of the tokens rare in its data")
        lines.append(f"          {language}: {', '.join(facts)}")
        if side.characters_in_bytes > MAX_IN_BYTES:
            lines.append(
                f"warning   {side.characters_in_bytes:.0%} of the characters of {language} are spelled in bytes: "
                "the vocabulary does not cover its script"
            )
    return lines


def model_lines(metrics: Metrics) -> list[str]:
    """Return the batches, the size of the model, and where it is computed."""
    batches = metrics.batches
    terms = [f"terms     {metrics.terms:,} words of the sources may be given translations"] if metrics.terms else []
    return [
        *terms,
        f"batches   {batches.in_an_epoch:,} an epoch, at most {batches.tokens_a_side_at_most:,} tokens a side, "
        f"{batches.padding:.1%} padding; {batches.steps:,} steps in all",
        f"model     {metrics.parameters:,} parameters",
        f"device    {metrics.hardware}, {metrics.precision}",
    ]


def round_lines(report: RoundReport | Unrelated, training: Training) -> Iterator[str]:
    """Yield what a round did: what is learned from now on, and what was left out."""
    if isinstance(report, Unrelated):
        yield from unrelated_lines(report, training)
        return
    is_back = report.kind == "back-translation"
    if report.n_sentences:
        quality = ", ".join(str(one) for one in report.judged if one.is_good)
        if report.kind == "teaching":
            what = "the probabilities of --teacher, beside the references"
        elif is_back:
            what = f"{report.n_sentences:,} sentences of --monolingual, translated back by "
            what += training.config.back_translator or "the model"
        else:
            what = "the closest of "
            what += "the translations of --teacher" if training.config.teacher else "the model's own translations"
        share = f"; {training.monolingual_share:.0%} of what it learns from" if is_back else ""
        yield f"{'sources' if is_back else 'targets':<10}from step {training.step + 1:,}: {what} ({quality}){share}"
    if bad := [str(one) for one in report.judged if not one.is_good]:
        left_out = {"back-translation": "--monolingual is left out", "self-distillation": "no self-distillation"}
        what = left_out.get(report.kind, "--teacher is left out")
        yield f"note      {what}: {', '.join(bad)} in validation is below --least-bleu {training.config.least_bleu:g}"


def unrelated_lines(report: Unrelated, training: Training) -> Iterator[str]:
    """Yield how many pairs are unrelated, and the first of them."""
    if not report.n_judged:
        yield (
            "note      no pair is dropped as unrelated: the model has learned too little to judge, "
            f"or there are fewer than {FEWEST_JUDGED} pairs"
        )
        return
    share = len(report.rows) / report.n_judged
    what = "the source says nothing about the target"
    yield f"dropped   from step {training.step + 1:,}: {len(report.rows):,} pairs, {share:.2%}, where {what}"
    yield from example_lines(report.examples)


def validation_lines(
    result: Validation,
    recent: Sequence[StepRecord],
    epochs: tuple[float, float],
    example: tuple[str, str],
    graphs: int,
) -> list[str]:
    """Return the scores of a validation. recent are the steps since the last one, epochs those so far and in all.

    example is the first validation source and its translation, graphs the number of compiled graphs.
    """
    compiled = f"  {graphs} graphs" if graphs else ""
    train_loss = f"train loss {mean_loss(recent):.3f}  " if recent else ""
    speed = f"  {tokens_per_second(recent):,.0f} tokens/s{compiled}" if recent else ""
    scores = (
        f"{epochs_line(*epochs)}  step {result.step:,}  "
        f"{train_loss}valid loss {result.loss:.3f}  perplexity {result.perplexity:.2f}  "
        f"BLEU {result.bleu:.1f}  chrF {result.chrf:.1f}{speed}"
    )
    return [scores, *indented([*by_data_lines(result.by_data), f"{example[0]} → {example[1]}"])]


def epochs_line(done: float, total: float) -> str:
    """Return the epochs so far and in all: "epoch 1/12", or "epoch 1.00 of 1.36" if the run ends within one."""
    return f"epoch {done:.3g}/{total:.0f}" if total == round(total) else f"epoch {done:.2f} of {total:.2f}"


def indented(lines: Sequence[str]) -> list[str]:
    """Indent lines that belong to the line before them."""
    return [f"    {line}" for line in lines]


def warnings(
    now: Validation, best: Validation, train_loss: float, hypotheses: Sequence[str], validations_since_best: int
) -> list[str]:
    """Return what a validation shows to be wrong, and the usual causes; nothing if all seems well.

    train_loss is the mean since the validation before; NaN if no step was made, or if teachers are most of the targets,
    so that it is not comparable.
    """
    lines = []
    if len(set(hypotheses)) == 1 < len(hypotheses):
        lines.append(
            f"warning   all {len(hypotheses):,} translations of the validation part are the same; normal at first;\n"
            "          if it persists, lower --lr and check that the sides are translations of each other"
        )
    if validations_since_best and validations_since_best % 5 == 0:
        if math.isnan(train_loss):
            cause = "another --lr, more data, or another size"
        elif train_loss < now.loss - 0.5:
            cause = "the training loss is much lower: more data, a higher --dropout or a smaller model"
        else:
            cause = "the training loss is not much lower: another --lr, or a larger model"
        lines.append(
            f"warning   none of the last {validations_since_best} validations was better than that of step "
            f"{best.step:,};\n          {cause} may help, and --patience ends such runs"
        )
    return lines
