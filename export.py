"""A run in the forms of others: for CTranslate2, for Hugging Face's transformers, and as a release to give away.

    python export.py --run NAME --to ctranslate2 OUT --quantization int8
    python export.py --run NAME --to huggingface OUT
    python export.py --run NAME --release OUT --license cc-by-4.0        and OUT.tar.gz beside it

`translate.py --run OUT` takes the first and the last. Every OUT is made whole or not at all.
"""

from functools import partial

from system.cli import ExportOptions, answer_early, parse, run_command

answer_early(__name__, partial(parse, ExportOptions))  # before torch, which takes more than a second

import gzip
import json
import shutil
import sys
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
from decoding.search import NEVER
from decoding.ctranslate2 import CONFIG, EngineError, is_exported
from system.hub import is_hub_id, write_sums
from model import MultiHeadAttentionBlock, Transformer
from system.files import whole_folder, write_whole
from text.tokenizer import BLANK, SPECIAL, Tokenizer
from decoding.translator import EXTRA_LENGTH

EXAMPLE = """# pip install ctranslate2 tokenizers; python example.py "A sentence." "Another sentence."
import sys
from pathlib import Path

import ctranslate2
import tokenizers

here = Path(__file__).parent
tokenizer = tokenizers.Tokenizer.from_file(str(here / "tokenizer.json"))
translator = ctranslate2.Translator(str(here))
sources = [tokenizer.encode(" " + sentence, add_special_tokens=False).tokens for sentence in sys.argv[1:]]
for result in translator.translate_batch(sources, beam_size=5):
    ids = [tokenizer.token_to_id(token) for token in result.hypotheses[0]]
    print(tokenizer.decode(ids).strip())
"""


def positions(config: Config) -> int:
    """How long a source or a translation may be elsewhere, in tokens: with room to spare."""
    return 4 * (config.max_length + EXTRA_LENGTH)


def ctranslate2_specification(model: Transformer, tokens: list[str]) -> Any:
    """The model in CTranslate2's terms, for `save`; tokens are those of the vocabulary, by id."""
    from ctranslate2.specs import TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec  # noqa: PLC0415

    config = model.config
    pre = config.norm == "pre"
    spec = TransformerSpec(
        TransformerEncoderSpec(config.n_encoder_layers, config.n_heads, pre_norm=pre),
        TransformerDecoderSpec(config.n_decoder_layers, config.n_heads, pre_norm=pre),
    )

    def numpy(values: Tensor) -> Any:
        return values.detach().float().cpu().contiguous().numpy().copy()  # it is changed in place later

    def linear(into: Any, *layers: nn.Linear) -> None:
        into.weight = numpy(torch.cat([layer.weight for layer in layers]))
        if layers[0].bias is not None:
            into.bias = numpy(torch.cat([layer.bias for layer in layers]))

    def norm(into: Any, layer: Any) -> None:
        into.gamma, into.beta = numpy(layer.alpha), numpy(layer.bias)

    def attention(into: Any, residual: Any, block: Any, own: bool) -> None:
        first = [block.w_q, block.w_k, block.w_v]
        groups = [first, [block.w_o]] if own else [first[:1], first[1:], [block.w_o]]
        for part, layers in zip(into.linear, groups, strict=True):
            linear(part, *layers)
        norm(into.layer_norm, residual.norm)

    block: Any
    for side, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        for into, block in zip(side.layer, stack.blocks, strict=True):
            attention(into.self_attention, block.residuals[0], block.self_attention, own=True)
            if stack is model.decoder:
                attention(into.attention, block.residuals[1], block.cross_attention, own=False)
            linear(into.ffn.linear_0, block.feed_forward.linear_1)
            linear(into.ffn.linear_1, block.feed_forward.linear_2)
            norm(into.ffn.layer_norm, block.residuals[-1].norm)
        if pre:
            norm(side.layer_norm, stack.norm)
        side.position_encodings.encodings = numpy(model.src_position.sinusoids(positions(config)))
    spec.encoder.embeddings[0].weight = numpy(model.src_embed.embedding.weight)
    spec.decoder.embeddings.weight = numpy(model.tgt_embed.embedding.weight)
    linear(spec.decoder.projection, model.projection.linear)
    spec.config.add_source_eos = True
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = tokens[BOS], tokens[EOS], tokens[UNK]
    spec.config.decoder_start_token = tokens[BOS]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    return spec


def to_ctranslate2(folder: RunFolder, into: Path, quantization: str) -> None:
    """Fills a folder as engine.py says. Raises EngineError where CTranslate2 is not installed."""
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
    (into / "example.py").write_text(EXAMPLE, encoding="utf-8")
    write_sums(into)


ENDS = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD, "decoder_start_token_id": BOS}


def to_hugging_face(folder: RunFolder, into: Path) -> None:
    """Fills a folder that `AutoModelForSeq2SeqLM` and `AutoTokenizer` of transformers load.

    Marian is our model with norm "post", Pegasus with "pre": same sinusoids, same scale, ReLU. They have all sines
    before all cosines, so that the dimensions between the blocks are put in that order, and biases in attention, which
    are 0. Both have one matrix for all embeddings. Raises ConfigError for a model that has three.
    """
    config, tokenizer, model = folder.load_model(torch.device("cpu"))
    if not config.tie_embeddings:
        raise ConfigError("--to huggingface: Marian and Pegasus have one matrix for all embeddings, this run has three")
    order = torch.cat([torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)])
    weights: dict[str, Tensor] = {"model.shared.weight": model.src_embed.embedding.weight[:, order]}

    def put(name: str, weight: Tensor, bias: Tensor | None) -> None:
        weights[f"{name}.weight"] = weight
        weights[f"{name}.bias"] = torch.zeros(len(weight)) if bias is None else bias

    def norm(name: str, layer: Any) -> None:
        put(name, layer.alpha[order], layer.bias[order])

    def attention(name: str, block: MultiHeadAttentionBlock) -> None:
        for letter, layer in (("q", block.w_q), ("k", block.w_k), ("v", block.w_v)):
            put(f"{name}.{letter}_proj", layer.weight[:, order], None)
        put(f"{name}.out_proj", block.w_o.weight[order], None)

    block: Any
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for i, block in enumerate(stack.blocks):
            name = f"model.{side}.layers.{i}"
            attention(f"{name}.self_attn", block.self_attention)
            norm(f"{name}.self_attn_layer_norm", block.residuals[0].norm)
            if side == "decoder":
                attention(f"{name}.encoder_attn", block.cross_attention)
                norm(f"{name}.encoder_attn_layer_norm", block.residuals[1].norm)
            first, second = block.feed_forward.linear_1, block.feed_forward.linear_2
            put(f"{name}.fc1", first.weight[:, order], first.bias)
            put(f"{name}.fc2", second.weight[order], second.bias[order])
            norm(f"{name}.final_layer_norm", block.residuals[-1].norm)
        if config.norm == "pre":
            norm(f"model.{side}.layer_norm", stack.norm)
        weights[f"model.{side}.embed_positions.weight"] = model.src_position.sinusoids(positions(config))[:, order]
    kept = {name: weight.detach().contiguous() for name, weight in weights.items()}
    (into / "model.safetensors").write_bytes(safetensors.torch.save(kept, {"format": "pt"}))
    dump(into / "config.json", hugging_face_config(config, len(tokenizer)))
    dump(into / "generation_config.json", {**ENDS, "suppress_tokens": NEVER, "max_length": positions(config)})
    hugging_face_tokenizer(tokenizer).save(str(into / "tokenizer.json"))
    names = dict(zip(("pad_token", "unk_token", "bos_token", "eos_token"), SPECIAL, strict=True))
    more = {"model_max_length": config.max_length, "clean_up_tokenization_spaces": False}
    dump(into / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names, **more})


def hugging_face_config(config: Config, vocab_size: int) -> dict[str, Any]:
    """The config.json of Marian or Pegasus."""
    pre = config.norm == "pre"
    sides = {"layers": (config.n_encoder_layers, config.n_decoder_layers)}
    sides |= {"attention_heads": (config.n_heads,) * 2, "ffn_dim": (config.d_ff,) * 2}
    each = {f"{side}_{name}": both[i] for name, both in sides.items() for i, side in enumerate(("encoder", "decoder"))}
    return {
        "architectures": ["PegasusForConditionalGeneration" if pre else "MarianMTModel"],
        "model_type": "pegasus" if pre else "marian",
        "vocab_size": vocab_size,
        "d_model": config.d_model,
        **each,
        "activation_function": "relu",
        "scale_embedding": True,
        "max_position_embeddings": positions(config),
        "dropout": config.dropout,
        **ENDS,
        "forced_eos_token_id": None,
    }


def hugging_face_tokenizer(tokenizer: Tokenizer) -> Inner:
    """Our tokenizer with what is ours to do around it: the blank before a text, EOS behind it."""
    inner = Inner.from_str(tokenizer.to_json())
    inner.normalizer = normalizers.Prepend(BLANK)
    end = SPECIAL[EOS]
    inner.post_processor = processors.TemplateProcessing(single=f"$A {end}", special_tokens=[(end, EOS)])
    inner.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(BLANK, 1, 0)])
    return inner


def dump(file: Path, content: dict[str, Any]) -> None:
    """Writes JSON."""
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


# The release


def to_release(folder: RunFolder, into: Path, licence: str) -> None:
    """Fills a folder with the run, without its training state and without this machine's paths, and a model card."""
    config, _, _ = folder.load_model(torch.device("cpu"))  # which checks all of it
    metrics = folder.load_metrics()
    data = data_name(config.data)
    if isinstance(metrics.get("data"), dict):
        metrics["data"]["name"] = data
    released = RunFolder(into)
    released.save_config(replace(config, data=data))
    shutil.copyfile(folder.tokenizer_file, released.tokenizer_file)  # as it is: the model holds its digest
    shutil.copyfile(folder.model_file, released.model_file)
    released.save_metrics(metrics)
    (into / "README.md").write_text(card(config, metrics, data, licence), encoding="utf-8")
    write_sums(into)


def data_name(data: str) -> str:
    """What the data is called elsewhere: a hub id as it is, of a path the last part."""
    return data if is_hub_id(data) and not Path(data).exists() else Path(data).name


def card(config: Config, metrics: dict[str, Any], data: str, licence: str) -> str:
    """The model card, in the hub's format: fields that it reads, then what people read."""
    from huggingface_hub import EvalResult, ModelCardData  # noqa: PLC0415 - half a second

    test, size = metrics.get("test"), metrics.get("parameters")
    of: Any = {"task_type": "translation", "dataset_type": data, "dataset_name": data, "dataset_split": "test"}
    results = [
        EvalResult(**of, metric_type=name.lower(), metric_name=name, metric_value=round(test[name.lower()], 2))
        for name in ("BLEU", "chrF")
        if test
    ]
    fields = ModelCardData(
        language=[config.source, config.target],
        license=licence,
        library_name="tapis",
        pipeline_tag="translation",
        tags=["translation", "transformer"],
        datasets=[data] if is_hub_id(data) else None,
        metrics=["bleu", "chrf"],
        model_name=config.name,
        eval_results=results or None,
    )
    parts = {
        "Use": USE.format(name=config.name),
        "Data": about_data(config, metrics.get("data") or {}, data),
        "Training": about_training(config, metrics),
        "Scores": about_scores(test),
        "Examples": about_examples(metrics.get("examples") or []),
        "Limits": LIMITS.format(longest=config.max_length, data=data),
    }
    large = f" of {size:,} parameters" if size else ""
    head = f"A Transformer{large} that translates {config.source} to {config.target}, trained from scratch with Tapis."
    text = "\n\n".join(f"## {title}\n\n{part}" for title, part in parts.items() if part)
    return f"---\n{fields.to_yaml()}\n---\n\n# {config.name}\n\n{head}\n\n{text}\n"


USE = """With Tapis, in the folder of its code, where `{name}` is this folder, its archive, or its id on the hub:

```console
$ python translate.py --run {name} --beam 5 "…"
```

`sha256sum -c SHA256SUMS` checks the files; Tapis does so itself. Nothing in them can execute."""

LIMITS = """It knows the kind of text it was trained on ({data}) and little else; what it has not seen it makes up,
fluently. Sentences of more than {longest} tokens are cut. It was not checked for prejudice or offence, in its data or
in what it says. A person who reads both languages should look at whatever matters."""


def about_data(config: Config, report: dict[str, Any], data: str) -> str:
    """Which pairs, how many of them, and what was cleaned."""
    if not report:
        return ""
    counts = ", ".join(f"{report[part]:,} to {use}" for part, use in PARTS.items() if report.get(part))
    rules = [(name, rule["pairs"]) for name, rule in report.get("rules", {}).items() if rule["pairs"]]
    table = "".join(f"| {name} | {n:,} |\n" for name, n in rules)
    found = f"\n\n| rule of cleaning | pairs it met |\n|---|---|\n{table}".rstrip() if rules else ""
    return f"{data}, {config.source} to {config.target}: of {report.get('read', 0):,} pairs, {counts}.{found}"


PARTS = {"trained on": "train on", "valid": "choose the best weights by", "test": "test"}


def about_training(config: Config, metrics: dict[str, Any]) -> str:
    """Sizes, settings and what it cost."""
    rows = {
        "layers": f"{config.n_encoder_layers} of the encoder, {config.n_decoder_layers} of the decoder",
        "d_model, d_ff, heads": f"{config.d_model}, {config.d_ff}, {config.n_heads}",
        "vocabulary": f"{metrics['vocabulary']:,} joint byte-level BPE tokens" if "vocabulary" in metrics else "",
        "optimizer": f"{config.optimizer}, {config.schedule} schedule, rate {config.lr:g}",
        "steps": f"{metrics['best']['step']:,} to the best weights" if "best" in metrics else "",
        "time": f"{metrics['seconds'] / 60:,.1f} minutes" if "seconds" in metrics else "",
        "hardware": f"{metrics['hardware']}, {metrics['precision']}" if "hardware" in metrics else "",
        "versions": ", ".join(f"{name} {version}" for name, version in metrics.get("versions", {}).items()),
    }
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows.items() if value)


def about_scores(test: dict[str, Any] | None) -> str:
    """BLEU and chrF of the test part, and how they were counted."""
    if not test:
        return "There was no test part to score."
    return (
        f"Test part, greedy search, cased: BLEU {test['bleu']:.1f}, chrF {test['chrf']:.1f}, brevity penalty "
        f"{test['brevity']:.3f}. Signature: `{test['signature']}`"
    )


def about_examples(examples: Sequence[Sequence[str]]) -> str:
    """The first sentences of the test part, not chosen."""
    if not examples:
        return ""
    rows = "\n".join(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in row)} |" for row in examples)
    return f"The first of the test part, greedy search:\n\n| source | reference | translation |\n|---|---|---|\n{rows}"


def pack(folder: Path, archive: Path) -> None:
    """Writes a folder as a .tar.gz, the same bytes for the same files."""

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime = member.uid = member.gid = 0
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


def main(args: Sequence[str]) -> None:
    options = parse(ExportOptions, args)
    out = options.release or options.out
    assert out  # ExportOptions sees to it
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ConfigError(f"{out} exists already: name a folder that does not")
    folder = RunFolder.find(options.run)
    if is_exported(folder.path):
        raise ConfigError(f"{folder.path} is an export already: name the run that it was made of")
    if not options.run:
        print(f"run {folder.path.name}", file=sys.stderr)
    fills: dict[str, Callable[[Path], None]] = {
        "": lambda into: to_release(folder, into, options.license),
        "ctranslate2": lambda into: to_ctranslate2(folder, into, options.quantization),
        "huggingface": lambda into: to_hugging_face(folder, into),
    }
    whole_folder(out, fills[options.to])
    made = [out]
    if options.release:
        made.append(out.with_name(f"{out.name}.tar.gz"))
        pack(*made)
    size = sum(file.stat().st_size for file in out.iterdir())
    print(f"{size / 1e6:,.1f} MB; {NEXT[options.to].format(out=out)}", file=sys.stderr)
    print(*made, sep="\n")


NEXT = {
    "": 'try it with: python translate.py --run {out} "…", give it away with: hf upload OWNER/NAME {out}',
    "ctranslate2": 'try it with: python translate.py --run {out} "…", or: python {out}/example.py "…"',
    "huggingface": "load it with AutoModelForSeq2SeqLM and AutoTokenizer of transformers",
}


if __name__ == "__main__":
    run_command(main)
