"""The model card of a release: what the model is, how it was trained, what it scores, and what it cannot do."""

import json
import re
import shlex
from collections.abc import Sequence

from config import Config
from exporting.naming import language_pairs
from pairs.report import DataReport
from tapis.config import Learned
from tapis.scoring import Scores
from tapis.system.hub import is_hub_id
from tapis.system.terminal import escape_controls, listed
from training.metrics import AncestorRecord, Metrics
from training.records import RoundKind


def card(config: Config, learned: Learned, metrics: Metrics, license: str) -> str:
    """Return the model card in the hub's format: metadata, then text. Sections without metrics are left out.

    config is that of the release, whose data have public names. Texts of the run are shown as they are, whatever they
    would mean in Markdown.
    """
    from huggingface_hub import EvalResult, ModelCardData  # noqa: PLC0415 - takes half a second

    # The metadata
    data = ", ".join(config.data)
    results = []
    if metrics.test:
        for name in ("BLEU", "chrF"):
            result = EvalResult(
                task_type="translation",
                dataset_type=data,
                dataset_name=data,
                dataset_split="test",
                metric_type=name.lower(),
                metric_name=name,
                metric_value=round(getattr(metrics.test, name.lower()), 2),
            )
            results.append(result)
    metadata = ModelCardData(
        language=list(dict.fromkeys(language for direction in config.directions for language in direction)),
        license=license,
        library_name="tapis",
        pipeline_tag="translation",
        tags=["translation", "transformer"],
        datasets=list(filter(is_hub_id, config.data)) or None,
        metrics=["bleu", "chrf"],
        model_name=config.name,
        eval_results=results or None,
    )
    # The text
    sections = {
        "Use": USE.format(
            name=config.name,
            quoted=shlex.quote(config.name),
            python=json.dumps(config.name, ensure_ascii=False),
            target=" --target LANGUAGE" if config.tagged_languages else "",
            towards='.towards("LANGUAGE")' if config.tagged_languages else "",
        ),
        "Data": about_data(config, metrics, as_text(data)),
        "Training": about_training(config, metrics) + about_ancestors(metrics.init_from),
        "Scores": about_scores(metrics.test, metrics.data),
        "Examples": about_examples(metrics.examples),
        "Limits": LIMITS.format(longest=learned.longest_whole(config.max_length), data=as_text(data)),
    }
    size = f" of {metrics.parameters:,} parameters" if metrics.parameters else ""
    begin = "" if metrics.init_from else " from scratch"
    summary = f"A Transformer{size} that translates {as_text(language_pairs(config))}, trained{begin} with Tapis."
    text = "\n\n".join(f"## {title}\n\n{section}" for title, section in sections.items() if section)
    return f"---\n{metadata.to_yaml()}\n---\n\n# {as_text(config.name)}\n\n{summary}\n\n{text}\n"


USE = """With the package `tapis`, which needs no PyTorch. `{name}` is this folder, its archive, or its id on the hub:

```console
$ pip install CHECKOUT-OF-TAPIS
$ tapis translate --run {quoted} --beam 5{target} "…"
```

In Python:

```python
from tapis import Translator
translate = Translator.load({python}){towards}
print(translate.text("…")[0].text)
```

Tapis checks the files against `SHA256SUMS` before it loads them; `sha256sum -c SHA256SUMS` does the same. The files
contain no executable code."""

LIMITS = """The model translates text similar to its training data ({data}). On other text it can produce fluent
translations that are wrong. Sentences of more than {longest} tokens are cut into parts. Neither the data nor the
translations were checked for bias or offensive content. Have a person who reads both languages review translations that
matter."""


def as_text(text: str) -> str:
    """Return a text as Markdown that shows it, in a table, too: on one line, without markup."""
    return re.sub(r"[\\`*_\[\]<>&|~]", r"\\\g<0>", " ".join(escape_controls(text).split()))


def about_data(config: Config, metrics: Metrics, data: str) -> str:
    """Describe the data: how many pairs there are for what, who translated or taught, which cleaning rules applied."""
    report = metrics.data
    if not report.read:
        return ""
    purposes = {"training": report.trained_on, "validation": report.valid, "testing": report.test}
    counts = ", ".join(f"{pairs:,} for {purpose}" for purpose, pairs in purposes.items() if pairs)
    summary = f"{data}, {as_text(language_pairs(config))}: {report.read:,} pairs, of which {counts}."
    for source in report.sources:
        if source.monolingual:
            summary += f" {as_text(source.name)}: {source.trained_on:,} sentences without translations."
    if config.monolingual and was_learned(metrics, "back-translation"):
        summary += f" {as_text(config.back_translator) or 'The model'} has translated these for the training."
    if teachers := teachers_of(config, metrics):
        summary += f" It was taught by {as_text(listed(teachers))}."

    rows = "\n".join(f"| {as_text(name)} | {rule.pairs:,} |" for name, rule in report.rules.items() if rule.pairs)
    return f"{summary}\n\n| cleaning rule | pairs affected |\n|---|---|\n{rows}" if rows else summary


def was_learned(metrics: Metrics, kind: RoundKind) -> bool:
    """Return whether a run learned from a round of this kind. Earlier versions recorded none: then it did."""
    of_kind = [one for one in metrics.rounds if one.kind == kind]
    return not of_kind or any(one.n_sentences for one in of_kind)


def teachers_of(config: Config, metrics: Metrics) -> list[str]:
    """Return the teachers of a run, without those that translated too badly to learn from."""
    judged = [one for report in metrics.rounds if report.kind in ("distillation", "teaching") for one in report.judged]
    bad = {one.by for one in judged if not one.is_good} - {one.by for one in judged if one.is_good}
    return [name for name in config.teacher if name not in bad]


def about_training(config: Config, metrics: Metrics) -> str:
    """Describe the run in a table: sizes, settings, time and hardware."""
    rows = {
        "layers": f"{config.n_encoder_layers} encoder, {config.n_decoder_layers} decoder",
        "d_model, d_ff, heads": f"{config.d_model}, {config.d_ff}, {config.n_heads}",
        "vocabulary": f"{metrics.vocabulary:,} joint byte-level BPE tokens" if metrics.vocabulary else "",
        "optimizer": f"{config.optimizer}, {config.schedule} schedule, learning rate {config.lr:g}",
        "steps": f"{metrics.best.step:,} to the best weights" if metrics.best else "",
        "time": f"{metrics.seconds / 60:,.1f} minutes" if metrics.seconds is not None else "",
        "hardware": f"{metrics.hardware}, {metrics.precision}" if metrics.hardware else "",
        "versions": ", ".join(f"{name} {version}" for name, version in metrics.versions.items()),
    }
    shown = "\n".join(f"| {name} | {as_text(value)} |" for name, value in rows.items() if value)
    return f"| | |\n|---|---|\n{shown}"


def about_ancestors(record: AncestorRecord | None) -> str:
    """Name the run that this one started from, and those before it."""
    names = []
    while record:
        names.append(as_text(f"{record.name}, trained on {', '.join(record.data)}"))
        record = record.init_from
    return f"\n\nThe training started from the weights of {'; these from that of '.join(names)}." if names else ""


def about_scores(test: Scores | None, data: DataReport) -> str:
    """State BLEU and chrF on the test part, with sacreBLEU's signature, or why there are none, if that is known."""
    if not test and data.test:
        return "The run did not reach its end, where it scores the test part."
    if not test:
        return "The data has no test part." if data.read else ""
    rows = "\n".join(
        f"| {as_text(label)} | {scores['bleu']:.1f} | {scores['chrf']:.1f} |"
        for label, scores in test.by_data.items()
        if scores.keys() >= {"bleu", "chrf"}
    )
    signature = " ".join(test.signature.replace("`", "").split())
    table = f"\n\n| | BLEU | chrF |\n|---|---|---|\n{rows}" if rows else ""
    return (
        f"Test part, greedy search, cased: BLEU {test.bleu:.1f}, chrF {test.chrf:.1f}, brevity penalty "
        f"{test.brevity:.3f}. Signature: `{signature}`{table}"
    )


def about_examples(examples: Sequence[Sequence[str]]) -> str:
    """List the first sentences of the test part with their translations."""
    if not examples:
        return ""
    rows = "\n".join("| " + " | ".join(map(as_text, row)) + " |" for row in examples)
    return (
        "The first sentences of the test part, not selected, with greedy search:\n\n"
        f"| source | reference | translation |\n|---|---|---|\n{rows}"
    )
