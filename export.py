"""Converts a run for other programs: CTranslate2, Hugging Face's transformers, a browser, or a release to publish.

    python export.py --run NAME --to ctranslate2 OUT --quantization int8
    python export.py --run NAME --to huggingface OUT
    python export.py --run NAME --to web OUT.html
    python export.py --run NAME --release OUT --license cc-by-4.0        also writes OUT.tar.gz

`translate.py --run OUT` accepts the first and the last. OUT is created complete or not at all.
"""

from functools import partial

from system.cli import ExportOptions, answer_early, parse, run_command, target_flag

answer_early(__name__, partial(parse, ExportOptions))  # before torch, which takes more than a second

import gzip
import json
import re
import shutil
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from tokenizers import Tokenizer as Inner
from tokenizers import decoders, normalizers, processors
from torch import Tensor, nn

from checkpoint import RunFolder
from config import BOS, EOS, PAD, UNK, Config, ConfigError
from decoding.ctranslate2 import CONFIG, EngineError, is_exported
from decoding.lengths import PAPERS_EXTRA_LENGTH
from decoding.scoring import Scores
from decoding.search import NEVER_GENERATED
from decoding.web import MOST_INPUTS, web_page
from model import MultiHeadAttentionBlock, Transformer
from system.files import whole_folder, write_text, write_whole
from system.hub import is_hub_id, write_sums
from system.terminal import escape_controls, say
from text.corpus import origins
from text.report import DataReport
from text.tokenizer import SPECIAL_TOKENS, WORD_PREFIX, Tokenizer
from training.report import AncestorRecord, Metrics, load_metrics, save_metrics

# Written beside a CTranslate2 model: it translates without Tapis.
EXAMPLE_SCRIPT = """# pip install ctranslate2 tokenizers; python example.py {argument}"A sentence." "Another sentence."
import sys
from pathlib import Path

import ctranslate2
import tokenizers

here = Path(__file__).parent
tokenizer = tokenizers.Tokenizer.from_file(str(here / "tokenizer.json"))
tokenizer.encode_special_tokens = True  # "</s>" in a sentence is text
translator = ctranslate2.Translator(str(here))
never = [[token] for token in {never}]
{prefix}
sources = [prefix + tokenizer.encode(" " + sentence, add_special_tokens=False).tokens for sentence in sentences]
for result in translator.translate_batch(sources, beam_size=5, suppress_sequences=never):
    ids = [tokenizer.token_to_id(token) for token in result.hypotheses[0]]
    print(tokenizer.decode(ids).strip())
"""


TAGS_OF_EXAMPLE = """prefix, sentences = [f"<2{language}>" for language in sys.argv[1:2]], sys.argv[2:]
if not sentences or prefix not in never:
    sys.exit("example.py: give a language to translate into, of {languages}, and one or more sentences")"""


def example_script(tokenizer: Tokenizer) -> str:
    """Return the script that translates with an export, whose first argument is a target language if it has several."""
    tokens = tokenizer.tokens()
    never = [tokens[i] for i in (*NEVER_GENERATED, *tokenizer.tags.values())]
    if not tokenizer.tags:
        return EXAMPLE_SCRIPT.format(argument="", never=never, prefix="prefix, sentences = [], sys.argv[1:]")
    prefix = TAGS_OF_EXAMPLE.replace("{languages}", ", ".join(tokenizer.tags))
    return EXAMPLE_SCRIPT.format(argument="LANGUAGE ", never=never, prefix=prefix)


TOKEN_IDS = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD, "decoder_start_token_id": BOS}


def max_positions(config: Config) -> int:
    """The maximum length of a source or a translation in the exported model, in tokens, with room to spare."""
    return 4 * (config.max_length + PAPERS_EXTRA_LENGTH)


# CTranslate2


def ctranslate2_specification(model: Transformer, tokens: list[str]) -> Any:
    """Return the model as a `TransformerSpec` of CTranslate2. tokens is the vocabulary, in the order of the ids."""
    from ctranslate2.specs import TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec  # noqa: PLC0415

    config = model.config
    is_pre_norm = config.norm == "pre"
    spec = TransformerSpec(
        TransformerEncoderSpec(config.n_encoder_layers, config.n_heads, pre_norm=is_pre_norm),
        TransformerDecoderSpec(config.n_decoder_layers, config.n_heads, pre_norm=is_pre_norm),
    )

    def numpy(values: Tensor) -> Any:
        return values.detach().float().cpu().contiguous().numpy().copy()  # a copy: `optimize` changes it in place

    def set_linear(target: Any, *layers: nn.Linear) -> None:
        """Set one layer of CTranslate2 to our layers, concatenated over their outputs."""
        target.weight = numpy(torch.cat([layer.weight for layer in layers]))
        if layers[0].bias is not None:
            target.bias = numpy(torch.cat([layer.bias for layer in layers]))

    def set_norm(target: Any, layer: Any) -> None:
        target.gamma = numpy(layer.alpha)
        target.beta = numpy(layer.bias)

    def set_self_attention(target: Any, block: Any, residual: Any) -> None:
        """CTranslate2 has one layer for queries, keys and values, and one for the output."""
        set_linear(target.linear[0], block.w_q, block.w_k, block.w_v)
        set_linear(target.linear[1], block.w_o)
        set_norm(target.layer_norm, residual.norm)

    def set_cross_attention(target: Any, block: Any, residual: Any) -> None:
        """CTranslate2 has one layer for queries, one for keys and values, and one for the output."""
        set_linear(target.linear[0], block.w_q)
        set_linear(target.linear[1], block.w_k, block.w_v)
        set_linear(target.linear[2], block.w_o)
        set_norm(target.layer_norm, residual.norm)

    # The layers of the encoder and of the decoder
    block: Any
    for side, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        for layer, block in zip(side.layer, stack.blocks, strict=True):
            set_self_attention(layer.self_attention, block.self_attention, block.residuals[0])
            if stack is model.decoder:
                set_cross_attention(layer.attention, block.cross_attention, block.residuals[1])
            set_linear(layer.ffn.linear_0, block.feed_forward.linear_1)
            set_linear(layer.ffn.linear_1, block.feed_forward.linear_2)
            set_norm(layer.ffn.layer_norm, block.residuals[-1].norm)
        if is_pre_norm:
            set_norm(side.layer_norm, stack.norm)

    # Embeddings, positions and output projection
    for side in (spec.encoder, spec.decoder):
        side.position_encodings.encodings = numpy(model.src_position.sinusoids(max_positions(config)))
    spec.encoder.embeddings[0].weight = numpy(model.src_embed.embedding.weight)
    spec.decoder.embeddings.weight = numpy(model.tgt_embed.embedding.weight)
    set_linear(spec.decoder.projection, model.projection.linear)

    # The vocabulary and its special tokens
    spec.config.add_source_eos = True
    spec.config.bos_token = tokens[BOS]
    spec.config.eos_token = tokens[EOS]
    spec.config.unk_token = tokens[UNK]
    spec.config.decoder_start_token = tokens[BOS]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    return spec


def to_ctranslate2(folder: RunFolder, into: Path, quantization: str) -> None:
    """Fill a folder with the run in CTranslate2's format; decoding/ctranslate2.py lists the files.

    Raises EngineError if CTranslate2 is not installed.
    """
    config, tokenizer, model = folder.load_model(torch.device("cpu"))
    try:
        spec = ctranslate2_specification(model, tokenizer.tokens())
    except ImportError:
        raise EngineError('CTranslate2 is not installed: pip install -e ".[export]"') from None
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    spec.save(str(into))
    (into / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    (into / CONFIG).write_text(config.to_json(), encoding="utf-8")
    (into / "example.py").write_text(example_script(tokenizer), encoding="utf-8")
    write_sums(into)


# Hugging Face


def to_hugging_face(folder: RunFolder, into: Path) -> None:
    """Fill a folder that `AutoModelForSeq2SeqLM` and `AutoTokenizer` of transformers load.

    Our model is Marian with norm "post" and Pegasus with norm "pre": they have the same sinusoids, embedding scale and
    ReLU. They differ from it in three ways. All sines precede all cosines, so the columns of d_model are reordered.
    Attention has biases, which are set to 0. All embeddings share one matrix; raises ConfigError if ours do not.
    """
    config, tokenizer, model = folder.load_model(torch.device("cpu"))
    if not config.tie_embeddings:
        raise ConfigError("--to huggingface: Marian and Pegasus have one matrix for all embeddings, this run has three")

    # [0, 2, 4, …, 1, 3, 5, …]: the sines, in our even columns, before the cosines, in our odd columns
    order = torch.cat([torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)])
    weights: dict[str, Tensor] = {}

    def put(name: str, weight: Tensor, bias: Tensor | None) -> None:
        weights[f"{name}.weight"] = weight
        weights[f"{name}.bias"] = torch.zeros(len(weight)) if bias is None else bias

    def put_norm(name: str, layer: Any) -> None:
        put(name, layer.alpha[order], layer.bias[order])

    def put_attention(name: str, block: MultiHeadAttentionBlock) -> None:
        put(f"{name}.q_proj", block.w_q.weight[:, order], None)
        put(f"{name}.k_proj", block.w_k.weight[:, order], None)
        put(f"{name}.v_proj", block.w_v.weight[:, order], None)
        put(f"{name}.out_proj", block.w_o.weight[order], None)

    # Embeddings, positions and the layers of both sides, by the names that transformers gives them
    weights["model.shared.weight"] = model.src_embed.embedding.weight[:, order]
    block: Any
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        sinusoids = model.src_position.sinusoids(max_positions(config))
        weights[f"model.{side}.embed_positions.weight"] = sinusoids[:, order]
        for i, block in enumerate(stack.blocks):
            name = f"model.{side}.layers.{i}"
            put_attention(f"{name}.self_attn", block.self_attention)
            put_norm(f"{name}.self_attn_layer_norm", block.residuals[0].norm)
            if side == "decoder":
                put_attention(f"{name}.encoder_attn", block.cross_attention)
                put_norm(f"{name}.encoder_attn_layer_norm", block.residuals[1].norm)
            first, second = block.feed_forward.linear_1, block.feed_forward.linear_2
            put(f"{name}.fc1", first.weight[:, order], first.bias)
            put(f"{name}.fc2", second.weight[order], second.bias[order])
            put_norm(f"{name}.final_layer_norm", block.residuals[-1].norm)
        if config.norm == "pre":
            put_norm(f"model.{side}.layer_norm", stack.norm)

    # The model and its settings
    contiguous = {name: weight.detach().contiguous() for name, weight in weights.items()}
    (into / "model.safetensors").write_bytes(safetensors.torch.save(contiguous, {"format": "pt"}))
    write_json(into / "config.json", hugging_face_config(config, len(tokenizer)))
    generation = {
        **TOKEN_IDS,
        "suppress_tokens": [*NEVER_GENERATED, *tokenizer.tags.values()],
        "max_length": max_positions(config),
    }
    write_json(into / "generation_config.json", generation)

    # The tokenizer and its settings
    hugging_face_tokenizer(tokenizer).save(str(into / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": SPECIAL_TOKENS[PAD],
        "unk_token": SPECIAL_TOKENS[UNK],
        "bos_token": SPECIAL_TOKENS[BOS],
        "eos_token": SPECIAL_TOKENS[EOS],
        "model_max_length": config.max_length,
        "clean_up_tokenization_spaces": False,
    }
    write_json(into / "tokenizer_config.json", settings)


def hugging_face_config(config: Config, vocab_size: int) -> dict[str, Any]:
    """Return the config.json of Marian or Pegasus for this model."""
    is_pre_norm = config.norm == "pre"
    return {
        "architectures": ["PegasusForConditionalGeneration" if is_pre_norm else "MarianMTModel"],
        "model_type": "pegasus" if is_pre_norm else "marian",
        "vocab_size": vocab_size,
        "d_model": config.d_model,
        "encoder_layers": config.n_encoder_layers,
        "decoder_layers": config.n_decoder_layers,
        "encoder_attention_heads": config.n_heads,
        "decoder_attention_heads": config.n_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": "relu",
        "scale_embedding": True,
        "max_position_embeddings": max_positions(config),
        "dropout": config.dropout,
        **TOKEN_IDS,
        "forced_eos_token_id": None,
    }


def hugging_face_tokenizer(tokenizer: Tokenizer) -> Inner:
    """Return our tokenizer with the steps that our code adds around it: a blank before each text, EOS after it."""
    inner = Inner.from_str(tokenizer.to_json())
    inner.normalizer = normalizers.Prepend(WORD_PREFIX)
    eos = SPECIAL_TOKENS[EOS]
    inner.post_processor = processors.TemplateProcessing(single=f"$A {eos}", special_tokens=[(eos, EOS)])
    inner.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(WORD_PREFIX, 1, 0)])
    return inner


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Writes a JSON file."""
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


# The browser


def to_web(folder: RunFolder, file: Path, license: str) -> None:
    """Write a run as one HTML file that translates in a browser; decoding/web.py describes it.

    Raises ConfigError if a layer is wider than the page can compute.
    """
    config, tokenizer, model = folder.load_model(torch.device("cpu"))
    if max(config.d_model, config.d_ff) > MOST_INPUTS:
        raise ConfigError(f"--to web: d_model and d_ff may be at most {MOST_INPUTS}")
    title = f"Translate {language_pairs(config)}"
    page = web_page(config, tokenizer, model, title, web_facts(config, load_metrics(folder), model, license))
    write_text(file, page)


def web_facts(config: Config, metrics: Metrics, model: Transformer, license: str) -> dict[str, str]:
    """What the page says of its model, by name, besides its languages. What is not known is left out."""
    scored = {"test": metrics.test, "validation": metrics.best}
    facts = {
        "Name": config.name,
        "Data": ", ".join(map(data_name, config.data)),
        "BLEU": ", ".join(f"{scores.bleu:.1f} ({part} part)" for part, scores in scored.items() if scores),
        "Parameters": f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        "Layers": f"{config.n_encoder_layers} encoder, {config.n_decoder_layers} decoder, of {config.d_model} numbers",
        "Licence": license if license != "unknown" else "",
        "Made with": "Tapis",
        "Limits": "Translations can be fluent and wrong. Nothing that you type leaves this page.",
    }
    return {name: value for name, value in facts.items() if value}


# The release


def to_release(folder: RunFolder, into: Path, license: str) -> None:
    """Fill a folder with the run and a model card, without the training state and without paths of this machine.

    license is the hub's identifier, such as mit or cc-by-4.0.
    """
    config, _, _ = folder.load_model(torch.device("cpu"))  # checks all files
    metrics = load_metrics(folder)
    public = replace(
        config,
        data=tuple(map(data_name, config.data)),
        monolingual=distinct_names(config.monolingual),
        init_from=data_name(config.init_from),
        back_translator=data_name(config.back_translator),
    )
    names = [origin.full_name for origin in origins(public)]
    sources = [replace(report, name=name) for name, report in zip(names, metrics.data.sources, strict=False)]
    metrics.data = replace(metrics.data, name=", ".join(public.data), sources=sources)
    metrics.init_from = public_ancestor(metrics.init_from)

    released = RunFolder(into)
    released.save_config(public)
    shutil.copyfile(folder.tokenizer_file, released.tokenizer_file)  # unchanged: the model file has its digest
    shutil.copyfile(folder.model_file, released.model_file)
    save_metrics(released, metrics)
    (into / "README.md").write_text(card(released.load_config(), metrics, license), encoding="utf-8")
    write_sums(into)


def distinct_names(files: Sequence[str]) -> tuple[str, ...]:
    """Return the name of each file without its folder, with a number before it if several files have it."""
    names = [Path(file).name for file in files]
    numbered = [f"{number}-{name}" for number, name in enumerate(names, start=1)]
    return tuple(
        with_number if names.count(name) > 1 else name for name, with_number in zip(names, numbered, strict=True)
    )


def data_name(data: str) -> str:
    """Return a public name for the data: a hub id unchanged, of a path only the last part."""
    return data if is_hub_id(data) and not Path(data).exists() else Path(data).name


def public_ancestor(record: AncestorRecord | None) -> AncestorRecord | None:
    """Return the record of the run that a run started from, and of those before it, without paths of this machine."""
    if not record:
        return None
    data = [data_name(name) for name in record.data]
    return replace(record, data=data, init_from=public_ancestor(record.init_from))


def card(config: Config, metrics: Metrics, license: str) -> str:
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
        "Use": USE.format(name=config.name, target=" --target LANGUAGE" if config.tagged_languages else ""),
        "Data": about_data(config, metrics.data, as_text(data)),
        "Training": about_training(config, metrics) + about_ancestors(metrics.init_from),
        "Scores": about_scores(metrics.test),
        "Examples": about_examples(metrics.examples),
        "Limits": LIMITS.format(max_length=config.max_length, data=as_text(data)),
    }
    size = f" of {metrics.parameters:,} parameters" if metrics.parameters else ""
    summary = f"A Transformer{size} that translates {language_pairs(config)}, trained from scratch with Tapis."
    text = "\n\n".join(f"## {title}\n\n{section}" for title, section in sections.items() if section)
    return f"---\n{metadata.to_yaml()}\n---\n\n# {as_text(config.name)}\n\n{summary}\n\n{text}\n"


USE = """With Tapis, in the folder of its code, where `{name}` is this folder, its archive, or its id on the hub:

```console
$ python translate.py --run {name} --beam 5{target} "…"
```

Tapis checks the files against `SHA256SUMS` before it loads them; `sha256sum -c SHA256SUMS` does the same. The files
contain no executable code."""

LIMITS = """The model translates text similar to its training data ({data}). On other text it can produce fluent
translations that are wrong. Sentences of more than {max_length} tokens are cut. Neither the data nor the translations
were checked for bias or offensive content. Have a person who reads both languages review translations that matter."""


def language_pairs(config: Config) -> str:
    """Name the language pairs of a model: "en to de, de to en"."""
    return ", ".join(f"{source} to {target}" for source, target in config.directions)


def as_text(text: str) -> str:
    """Return a text as Markdown that shows it, in a table, too: on one line, without markup."""
    return re.sub(r"[\\`*_\[\]<>&|~]", r"\\\g<0>", " ".join(escape_controls(text).split()))


def about_data(config: Config, report: DataReport, data: str) -> str:
    """Describe the data: how many pairs there are for what, and which cleaning rules applied."""
    if not report.read:
        return ""
    purposes = {"training": report.trained_on, "validation": report.valid, "testing": report.test}
    counts = ", ".join(f"{pairs:,} for {purpose}" for purpose, pairs in purposes.items() if pairs)
    summary = f"{data}, {language_pairs(config)}: {report.read:,} pairs, of which {counts}."
    for source in report.sources:
        if source.monolingual:
            summary += f" {as_text(source.name)}: {source.trained_on:,} sentences without translations."
    if config.monolingual:
        summary += f" {as_text(config.back_translator) or 'The model'} has translated these for the training."

    rows = "\n".join(f"| {as_text(name)} | {rule.pairs:,} |" for name, rule in report.rules.items() if rule.pairs)
    return f"{summary}\n\n| cleaning rule | pairs affected |\n|---|---|\n{rows}" if rows else summary


def about_training(config: Config, metrics: Metrics) -> str:
    """Describe the training in a table: sizes, settings, time and hardware."""
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
    """Name the run that the training started from, and those before it."""
    names = []
    while record:
        names.append(as_text(f"{record.name}, trained on {', '.join(record.data)}"))
        record = record.init_from
    return f"\n\nThe training started from the weights of {'; these from that of '.join(names)}." if names else ""


def about_scores(test: Scores | None) -> str:
    """State BLEU and chrF on the test part, with sacreBLEU's signature."""
    if not test:
        return "The data has no test part."
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


def pack(folder: Path, archive: Path) -> None:
    """Write a folder as a .tar.gz archive. The same files always give the same bytes."""

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        """Remove what depends on this machine: the time and the owner."""
        member.mtime = 0
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    def write(path: Path) -> None:
        with (
            path.open("wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=0) as zipped,
            tarfile.open(None, "w", zipped) as tar,
        ):
            for member in sorted(folder.iterdir()):
                tar.add(member, f"{folder.name}/{member.name}", filter=anonymous)

    write_whole(archive, write)


# The command

NEXT_STEP = {
    "": 'try it with: python translate.py --run {out} {flag}"…"; publish it with: hf upload OWNER/NAME {out}',
    "ctranslate2": 'try it with: python translate.py --run {out} {flag}"…", or: python {out}/example.py {argument}"…"',
    "huggingface": "load it with AutoModelForSeq2SeqLM and AutoTokenizer of transformers",
    "web": "open it in a browser; it needs no network",
}


def main(args: Sequence[str]) -> None:
    """Runs the command: makes the export or the release, and prints what was made."""
    # Check where to write, and what to export.
    options = parse(ExportOptions, args)
    out = options.release or options.out
    assert out  # ExportOptions checks it
    is_file = options.to == "web"
    if not out.name:
        raise ConfigError(f"{out} cannot be written: name a new folder")
    archive = out.with_name(f"{out.name}.tar.gz")
    if options.release and archive.exists():
        raise ConfigError(f"{archive} already exists: name a new folder")
    if out.exists() and (is_file or not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} already exists: name a new {'file' if is_file else 'folder'}")
    folder = RunFolder.find(options.run)
    if is_exported(folder.path):
        raise ConfigError(f"{folder.path} is an export already: name the run that it was made from")
    if not options.run:
        say(f"run {folder.path.name}")

    # Write the file, or the folder and, of a release, the archive.
    fill: dict[str, Callable[[Path], None]] = {
        "": lambda into: to_release(folder, into, options.license),
        "ctranslate2": lambda into: to_ctranslate2(folder, into, options.quantization),
        "huggingface": lambda into: to_hugging_face(folder, into),
    }
    if is_file:
        to_web(folder, out, options.license)
    else:
        whole_folder(out, fill[options.to])
    outputs = [out]
    if options.release:
        try:
            pack(out, archive)
        except OSError:
            shutil.rmtree(out)
            raise
        outputs.append(archive)

    # Print the size and the next step, and the paths on standard output.
    size = sum(file.stat().st_size for file in ([out] if is_file else out.iterdir()))
    config = folder.load_config()
    next_step = NEXT_STEP[options.to].format(
        out=out,
        flag=target_flag(config),
        argument="LANGUAGE " if config.tagged_languages else "",
    )
    say(f"{size / 1e6:,.1f} MB; {next_step}")
    print(*outputs, sep="\n")


if __name__ == "__main__":
    run_command(main)
