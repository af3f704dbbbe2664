"""A run for CTranslate2, another engine, with a script that translates without Tapis."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from checkpoint import RunFolder, parameters
from decoding.standard import check_standard
from exporting.naming import max_positions, public
from model import Transformer
from tapis.config import BOS, EOS, NEVER_GENERATED, UNK, ConfigError
from tapis.ctranslate2 import CONFIG, LEARNED, EngineError
from tapis.system.hub import write_sums
from tapis.text.tokenizer import Tokenizer

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
results = translator.translate_batch(
    sources,
    beam_size=5,
    suppress_sequences=never,
    max_input_length=0,  # a sentence for which the model has too few positions is an error, and not cut
    max_decoding_length={positions},
)
for result in results:
    ids = [tokenizer.token_to_id(token) for token in result.hypotheses[0]]
    print(tokenizer.decode(ids).strip())
"""


LARGEST_FLOAT16 = 65_504

TAGS_OF_EXAMPLE = """prefix, sentences = [f"<2{language}>" for language in sys.argv[1:2]], sys.argv[2:]
if not sentences or prefix not in never:
    sys.exit("example.py: give a language to translate into, of {languages}, and one or more sentences")"""


def example_script(tokenizer: Tokenizer, positions: int) -> str:
    """Return the script that translates with an export, whose first argument is a target language if it has several.

    positions is how many tokens of a source or a translation the exported model can have.
    """
    tokens = tokenizer.tokens()
    never = [tokens[i] for i in (*NEVER_GENERATED, *tokenizer.tags.values())]
    argument, prefix = "", "prefix, sentences = [], sys.argv[1:]"
    if tokenizer.tags:
        argument, prefix = "LANGUAGE ", TAGS_OF_EXAMPLE.replace("{languages}", ", ".join(tokenizer.tags))
    return EXAMPLE_SCRIPT.format(argument=argument, never=never, prefix=prefix, positions=positions)


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
        """Set one layer for queries, keys and values, and one for the output."""
        set_linear(target.linear[0], block.w_q, block.w_k, block.w_v)
        set_linear(target.linear[1], block.w_o)
        set_norm(target.layer_norm, residual.norm)

    def set_cross_attention(target: Any, block: Any, residual: Any) -> None:
        """Set one layer for queries, one for keys and values, and one for the output."""
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
    """Fill a folder with the run in CTranslate2's format; tapis/ctranslate2.py lists the files.

    Raises EngineError if CTranslate2 is not installed.
    """
    config, tokenizer, model = folder.load_model(torch.device("cpu"))
    check_standard(model, folder.nonstandard_part(), "CTranslate2")
    largest = max(float(weight.abs().max()) for weight in parameters(model).values())
    if quantization == "float16" and largest > LARGEST_FLOAT16:
        raise ConfigError(
            f"--quantization float16: the model has weights of {largest:,.0f}, more than float16 can hold"
        )
    try:
        spec = ctranslate2_specification(model, tokenizer.tokens())
    except ImportError:
        raise EngineError('CTranslate2 is not installed: pip install -e ".[export]"') from None
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    spec.save(str(into))
    (into / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    (into / CONFIG).write_text(public(config).to_json(), encoding="utf-8")
    (into / LEARNED).write_text(folder.load_learned().to_json(), encoding="utf-8")
    (into / "example.py").write_text(example_script(tokenizer, max_positions(config)), encoding="utf-8")
    write_sums(into)
