"""Every knob of a training: one frozen, typed, checked `Config`, its presets and its JSON; and what errors are.

A preset is a `Config`; on the command line each field is a flag of the same name (cli.py).
"""

import dataclasses
import json
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

PAD, UNK, BOS, EOS = range(4)  # the first ids of every vocabulary
LENGTH_PENALTY = 1.5  # of beam search, where none is asked for

DeviceName = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["auto", "fp32", "bf16", "fp16"]
TranslatingPrecision = Literal[Precision, "int8"]
RuleName = Literal[
    "unicode",
    "empty-side",
    "identical-sides",
    "headings",
    "swapped-columns",
    "wrong-language",
    "length-ratio",
    "duplicates",
    "held-out",
]


class TapisError(Exception):
    """Something the user can put right: one or two lines that say what is wrong and what to type instead."""

    exit_code = 1
    from_any = False
    """Of several processes with the same error on one machine, the first one says it; whether any should"""


class ConfigError(TapisError):
    """A flag or a field is out of its range, or two of them do not fit together."""

    exit_code = 2


@dataclass(frozen=True)
class Config:
    """What a training is made of."""

    # Data
    data: str = "Helsinki-NLP/opus_books"
    """Hub id, folder in its layout, folder of train/valid/test.<language>, .tsv .csv .jsonl .parquet file, or demo"""
    source: str = "en"
    """Language to translate from"""
    target: str = "fr"
    """Language to translate into"""
    valid_share: float = 0.02
    """Share of the pairs kept for validation when the data has no valid part"""
    test_share: float = 0.02
    """Share of the pairs kept for the test when the data has no test part"""
    skip_rules: tuple[RuleName, ...] = ()
    """Cleaning rules to leave out"""
    vocab_size: int = 16_000
    """Joint subword vocabulary, at most"""
    max_length: int = 128
    """Longest side of a training pair, in tokens; longer pairs are dropped and counted"""

    # Model
    d_model: int = 256
    """Width of the model"""
    n_heads: int = 4
    """Attention heads"""
    n_encoder_layers: int = 3
    """Encoder blocks"""
    n_decoder_layers: int = 3
    """Decoder blocks"""
    d_ff: int = 1024
    """Width inside the feed-forward blocks"""
    dropout: float = 0.1
    """Share of activations dropped in training"""
    norm: Literal["pre", "post"] = "pre"
    """Normalization before each sublayer, or after it as in the paper"""
    tie_embeddings: bool = True
    """One matrix for source embeddings, target embeddings and projection"""

    # Training
    epochs: int = 10
    """Passes over the training pairs"""
    steps: int = 0
    """Updates of the weights in all; 0 for as many as --epochs takes"""
    patience: int = 0
    """Validations without a better one after which the training ends; 0 for never"""
    batch_tokens: int = 4096
    """Budget of a batch: sentences times the length of its longest side, in tokens"""
    accumulate: int = 1
    """Batches per optimizer step"""
    optimizer: Literal["adam", "muon"] = "adam"
    """Adam for everything, as in the paper, or Muon for the matrices of the blocks and Adam for the rest"""
    lr: float = 1e-3
    """Highest learning rate, reached at the end of the warm-up"""
    warmup_steps: int = 1000
    """Steps of linear warm-up, at most a tenth of the training"""
    schedule: Literal["linear", "inverse_sqrt"] = "linear"
    """Decay after the warm-up: to zero over the second half, in a straight line, or the paper's inverse square root"""
    plain: bool = False
    """Compute by the plain formulas of model.py alone: slower, for reading and debugging"""
    subword_dropout: float = 0.0
    """Share of the tokens that fall, in training, into the two that they were merged from"""
    self_distillation: float = 0.0
    """Share of the steps, the last ones, that learn from the own translations that come nearest to the targets"""
    label_smoothing: float = 0.1
    """Share of the target probability spread over the vocabulary"""
    clip_norm: float = 1.0
    """Gradients longer than this are scaled down to it; 0 for never"""
    seed: int = 1
    """Seed of the initialization, the batch order and dropout"""

    # Run
    name: str = ""
    """Folder under weights/ and runs/; by default PRESET-SOURCE-TARGET"""
    device: DeviceName = "auto"
    """Where to compute; auto takes cuda, then mps, then cpu"""
    precision: Precision = "auto"
    """bf16 and fp16 are autocast; auto takes bf16 where the hardware is fast at it, fp16 on older GPUs"""
    valid_every: int = 0
    """Steps between validations; 0 for once an epoch"""
    save_minutes: float = 5.0
    """Minutes between saves of the training state, besides those at every validation"""
    log_every: int = 10
    """Steps between TensorBoard scalars"""

    def __post_init__(self) -> None:
        for field in fields(self):
            allowed = get_args(field.type)
            if field.name != "skip_rules" and allowed and getattr(self, field.name) not in allowed:
                raise ConfigError(f"{flag(field.name)} is {getattr(self, field.name)}; it takes {', '.join(allowed)}")
        if unknown := set(self.skip_rules) - set(get_args(RuleName)):
            raise ConfigError(f"--skip-rules has no {', '.join(unknown)}; there are {', '.join(get_args(RuleName))}")
        for (low, high), names in _RANGES.items():
            for name in names:
                if not low <= getattr(self, name) <= high:
                    raise ConfigError(f"{flag(name)} is {getattr(self, name)}; it must be from {low} to {high}")
        if self.d_model % 2 or self.d_model % self.n_heads:
            raise ConfigError(f"--d-model ({self.d_model}) must be even and a multiple of --n-heads ({self.n_heads})")
        if self.batch_tokens < self.max_length + 1:
            raise ConfigError(
                f"--batch-tokens ({self.batch_tokens}) must hold a sentence of --max-length ({self.max_length}) + 1"
            )
        if self.source == self.target:
            raise ConfigError(f"--source and --target are both {self.source}")
        for name in ("source", "target", "name"):
            value = getattr(self, name)
            if value in (".", "..") or any(c in r'/\:*?"<>|' or not c.isprintable() for c in value):
                raise ConfigError(f"{flag(name)} {value!r} cannot be part of a file name")
        if self.valid_share + self.test_share > 0.5:
            raise ConfigError("--valid-share and --test-share together must leave half of the pairs for training")

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Config":
        """The inverse of `to_json`. Unknown, missing and ill-typed fields are named in a ConfigError."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"not JSON ({error})") from None
        if not isinstance(values, dict):
            raise ConfigError("not a JSON object")
        types = {field.name: type(field.default) for field in fields(cls)}
        if wrong := sorted(values.keys() ^ types.keys()):
            more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
            raise ConfigError(f"fields missing or unknown: {', '.join(wrong[:5])}{more}"[:300])
        for name, expected in types.items():
            if expected is float and type(values[name]) is int:
                values[name] = float(values[name])
            if expected is tuple and type(values[name]) is list:
                values[name] = tuple(map(str, values[name]))
            if type(values[name]) is not expected:
                raise ConfigError(f"{name} is {values[name]!r}; {expected.__name__} expected")
        return cls(**values)


def flag(name: str) -> str:
    """A field's name as it is typed."""
    return "--" + name.replace("_", "-")


# What --resume may change: none of these alters the model, the data or the batches.
RESUMABLE = {"epochs", "steps", "patience", "valid_every", "save_minutes", "log_every", "device"}

_RANGES: dict[tuple[float, float], tuple[str, ...]] = {
    (0.0, 0.5): ("valid_share", "test_share", "self_distillation"),  # how many steps there are is known after half
    (0.0, 0.9): ("dropout", "subword_dropout", "label_smoothing"),
    (260, 1_000_000): ("vocab_size",),  # 4 special tokens and the 256 bytes are always there
    (2, 100_000): ("max_length",),
    (2, 65_536): ("d_model",),
    (1, 1024): ("n_heads",),
    (1, 1000): ("n_encoder_layers", "n_decoder_layers"),
    (1, 100_000): ("accumulate",),
    (1, 1_000_000): ("d_ff", "epochs", "log_every"),
    (0, 100_000_000): ("warmup_steps",),
    (1, 100_000_000): ("batch_tokens",),
    (0, 1_000_000): ("patience", "save_minutes"),
    (0, 1_000_000_000): ("steps", "valid_every", "clip_norm"),
    (1e-12, 100.0): ("lr",),
    (0, 2**31 - 1): ("seed",),
}

PRESETS = {
    # Novels, 127,000 pairs in en-fr; 15 million parameters. Not measured; expected to take an evening on two CPU cores,
    # which made 7,800 tokens/s of 5,200 pairs of such novels (AMD EPYC, bf16), and minutes on a GPU.
    "opus_books": Config(),
    # The built-in English-French corpus, about a minute on two CPU cores; 1 million parameters.
    "demo": Config(
        data="demo",
        vocab_size=1000,
        d_model=128,
        n_encoder_layers=2,
        n_decoder_layers=2,
        d_ff=512,
        epochs=12,
        batch_tokens=1024,
        lr=3e-3,
        warmup_steps=100,
        name="demo",
    ),
    # Captions of photographs, 29,000 pairs: text files in the folder that --data names. 4.3 million parameters;
    # about an hour on two CPU cores. On the test part, with beam 5 and as published tables count, that reaches
    # 41.4 BLEU from English to German and 62.8 to French, and 41.0 and 62.0 with greedy search.
    "multi30k": Config(
        data="multi30k",
        vocab_size=6000,
        d_model=192,
        d_ff=768,
        dropout=0.2,
        epochs=40,
        batch_tokens=2048,
        optimizer="muon",
        lr=4e-3,
        warmup_steps=500,
        subword_dropout=0.1,
        self_distillation=0.1,
    ),
    # The paper's base model and schedule (table 3, section 5.3), 63 million parameters; for a GPU and a large corpus.
    # Not measured; at 45 % of its peak an H200 would make 2.4 million tokens/s (benchmarks/planning.py).
    "base": Config(
        vocab_size=37_000,
        d_model=512,
        n_heads=8,
        n_encoder_layers=6,
        n_decoder_layers=6,
        d_ff=2048,
        norm="post",
        batch_tokens=25_000,
        lr=7e-4,  # 512^-0.5 · 4000^-0.5
        warmup_steps=4000,
        schedule="inverse_sqrt",
        clip_norm=0.0,
    ),
}
# The paper's big model (table 3), 214 million parameters; for several GPUs and millions of pairs.
# Not measured; at 45 % of its peak an H200 would make 0.7 million tokens/s (benchmarks/planning.py).
# Its rate is 1024^-0.5 · 4000^-0.5.
PRESETS["big"] = replace(PRESETS["base"], d_model=1024, n_heads=16, d_ff=4096, dropout=0.3, lr=5e-4)
