"""A run for Hugging Face's transformers: a model of Marian or Pegasus."""

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from tokenizers import Tokenizer as Inner
from tokenizers import decoders, normalizers, processors
from torch import Tensor

from checkpoint import RunFolder
from config import Config
from decoding.standard import check_standard
from exporting.naming import max_positions
from model import MultiHeadAttentionBlock
from tapis.config import BOS, EOS, NEVER_GENERATED, PAD, UNK, ConfigError
from tapis.text.tokenizer import SPECIAL_TOKENS, WORD_PREFIX, Tokenizer

TOKEN_IDS = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD, "decoder_start_token_id": BOS}


def to_hugging_face(folder: RunFolder, into: Path) -> None:
    """Fill a folder that `AutoModelForSeq2SeqLM` and `AutoTokenizer` of transformers load.

    Our model is Marian with norm "post" and Pegasus with norm "pre": they have the same sinusoids, embedding scale and
    ReLU. They differ from it in three ways. All sines precede all cosines, so the columns of d_model are reordered.
    Attention has biases, which are set to 0. All embeddings share one matrix; raises ConfigError if ours do not.
    """
    config, tokenizer, model = folder.load_model(torch.device("cpu"))
    check_standard(model, folder.nonstandard_part(), "Hugging Face's transformers")
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
    """Write a JSON file."""
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
