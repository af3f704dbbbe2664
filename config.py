"""The configuration of a training run: the frozen, validated `Config`, its presets and its JSON; and `TapisError`.

Each preset is a `Config`. On the command line, each field is a flag of the same name (system/cli.py).
"""

import dataclasses
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

PAD, UNK, BOS, EOS = range(4)  # the first token ids of every vocabulary
LENGTH_PENALTY = 1.5  # default of beam search

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
    """An error that the user can correct; its message, one or two lines, says what is wrong and what to do.

    Commands print the message without a traceback (`system.cli.run_command`).
    """

    exit_code = 1
    printed_by_every_process = False
    """Whether each process of a distributed training prints it. By default, only the first process of each machine
    does, since the others usually raise the same error."""


class ConfigError(TapisError):
    """A flag or a field has an invalid value, or two of them conflict."""

    exit_code = 2


@dataclass(frozen=True)
class Config:
    """The data, the model and the training."""

    # Data
    data: tuple[str, ...] = ("Helsinki-NLP/opus_books",)
    """One or more sources of pairs, each of them demo, a hub id, a folder (hub layout or train/valid/test.<language>),
    or a .tsv, .csv, .jsonl, .parquet, .tmx or OPUS .zip file"""
    data_weights: tuple[float, ...] = ()
    """One weight for each source of --data: with 2, an epoch has each of its pairs twice, with 0.5 half of them; by
    default 1"""
    columns: tuple[str, ...] = ()
    """The columns of the source and the target side in tables: two numbers from 1, or two names of the header"""
    monolingual: tuple[str, ...] = ()
    """Files of sentences in a language to translate into, one per line, named by it: NEWS.fr. They are translated
    back during the training, and learned from as targets"""
    monolingual_weight: float = 1.0
    """Weight of each sentence of --monolingual, as in --data-weights"""
    back_translator: str = ""
    """The run that translates --monolingual, once, before the first step; by default the model itself does it twice"""
    source: str = "en"
    """Language to translate from"""
    target: str = "fr"
    """Language to translate into"""
    pairs: tuple[str, ...] = ()
    """Language pairs of one model, such as en-de de-en, in place of --source and --target; or all, for every pair of
    --languages"""
    languages: tuple[str, ...] = ()
    """The languages of --pairs all"""
    temperature: float = 1.0
    """Share of each language pair in an epoch: 1 by its size, higher more equal (size to the power of 1/temperature)"""
    valid_share: float = 0.02
    """Share of the pairs used for validation if the data has no validation part"""
    test_share: float = 0.02
    """Share of the pairs used for testing if the data has no test part"""
    skip_rules: tuple[RuleName, ...] = ()
    """Cleaning rules to skip"""
    vocab_size: int = 16_000
    """Maximum size of the subword vocabulary that both languages share"""
    max_length: int = 128
    """Maximum length of each side of a training pair, in tokens; longer pairs are dropped and counted"""

    # Model
    init_from: str = ""
    """Start from the weights and the tokenizer of another run: its name, folder, release archive, or hub id"""
    d_model: int = 256
    """Width of the embeddings and of every layer's output"""
    n_heads: int = 4
    """Attention heads per layer"""
    n_encoder_layers: int = 3
    """Encoder layers"""
    n_decoder_layers: int = 3
    """Decoder layers"""
    d_ff: int = 1024
    """Inner width of the feed-forward layers"""
    dropout: float = 0.1
    """Probability of dropping an activation during training"""
    norm: Literal["pre", "post"] = "pre"
    """Layer normalization before each sublayer (pre) or after it, as in the paper (post)"""
    tie_embeddings: bool = True
    """Share one matrix among source embeddings, target embeddings and output projection"""

    # Training
    epochs: int = 10
    """Passes over the training pairs"""
    steps: int = 0
    """Optimizer steps in total, instead of --epochs; 0 to use --epochs"""
    patience: int = 0
    """Stop after this many validations in a row without improvement; 0 for never"""
    batch_tokens: int = 4096
    """Maximum size of a batch: sentences times the length of the longest side, in tokens"""
    accumulate: int = 1
    """Batches per optimizer step"""
    optimizer: Literal["adam", "muon"] = "adam"
    """adam for all parameters, as in the paper; muon for the matrices of the layers, with Adam for the rest"""
    lr: float = 1e-3
    """Peak learning rate, reached at the end of the warm-up"""
    warmup_steps: int = 1000
    """Steps of linear warm-up, limited to a tenth of the training"""
    schedule: Literal["linear", "inverse_sqrt"] = "linear"
    """Decay of the learning rate: linear to zero over the second half, or inverse square root, as in the paper"""
    subword_dropout: float = 0.0
    """Share of training tokens to split into the two tokens that they were merged from"""
    augment: float = 0.0
    """Share of the training sources to rewrite as people type them: in small letters, without a full stop, mistyped"""
    self_distillation: float = 0.0
    """Share of the steps, at the end, that train on the model's own translations closest to the references"""
    length_ratio: float = 0.0
    """Target tokens for each source token on average. It limits the length of translations, and --doubts marks those
    that are far from it; 0 to learn it from the training pairs"""
    length_spread: float = 0.0
    """Deviation of target lengths from --length-ratio that one in a hundred pairs exceeds, divided by the square root
    of the source length; learned together with it"""
    unsure_below: float = 0.0
    """Mean log-probability of a token, in nats, below which --doubts marks a translation as unsure; 0 to learn it at
    the end, such that two in a hundred translations of validation sentences are below"""
    label_smoothing: float = 0.1
    """Share of the target probability spread over the whole vocabulary"""
    clip_norm: float = 1.0
    """Gradients with a larger norm are scaled down to this; 0 to disable"""
    seed: int = 1
    """Random seed of the initialization, the batch order and dropout"""

    # Run
    name: str = ""
    """Name of the run's folders in weights/ and runs/; by default PRESET-SOURCE-TARGET, or PRESET and all pairs"""
    device: DeviceName = "auto"
    """Device to compute on; auto prefers cuda, then mps, then cpu"""
    precision: Precision = "auto"
    """Precision of matrix products; auto chooses bf16 or fp16 if the hardware accelerates it"""
    shard: bool = False
    """Divide weights, gradients and moments among processes, for models too large for one GPU; needs adam, not fp16"""
    plain: bool = False
    """Compute with the plain formulas of model.py, without fast/: slower, for reading and debugging"""
    valid_every: int = 0
    """Steps between validations; 0 for one each epoch"""
    save_minutes: float = 5.0
    """Minutes between saves of the training state, in addition to one after each validation"""
    log_every: int = 10
    """Steps between TensorBoard scalars"""

    def __post_init__(self) -> None:
        # Each field alone: one of its choices, or within its range
        for field in fields(self):
            choices, value = get_args(field.type), getattr(self, field.name)
            if not isinstance(value, tuple) and choices and value not in choices:
                raise ConfigError(f"{flag(field.name)} is {value!r}; it must be one of {', '.join(choices)}")
        if unknown := set(self.skip_rules) - set(get_args(RuleName)):
            unknown_names = ", ".join(map(repr, sorted(unknown)))
            raise ConfigError(f"--skip-rules has no {unknown_names}; there are {', '.join(get_args(RuleName))}")
        for (low, high), names in _RANGES.items():
            for name in names:
                if not low <= getattr(self, name) <= high:
                    raise ConfigError(f"{flag(name)} is {getattr(self, name)}; it must be from {low} to {high}")
        for name in ("source", "target", "name"):
            text: str = getattr(self, name)
            if text in (".", "..") or any(c in r'/\:*?"<>|' or not c.isprintable() for c in text):
                raise ConfigError(f"{flag(name)} {text!r} cannot be part of a file name")

        # Fields that depend on each other
        self._check_data()
        self._check_pairs()
        self._check_monolingual()
        if self.d_model % 2 or self.d_model % self.n_heads:
            raise ConfigError(f"--d-model ({self.d_model}) must be even and a multiple of --n-heads ({self.n_heads})")
        if self.batch_tokens < self.max_length + 1:
            raise ConfigError(
                f"--batch-tokens ({self.batch_tokens}) must be greater than --max-length ({self.max_length}): "
                "a batch holds at least one sentence and its end token"
            )
        if self.source == self.target:
            raise ConfigError(f"--source and --target are both {self.source}")
        if self.valid_share + self.test_share > 0.5:
            raise ConfigError("--valid-share and --test-share must leave at least half of the pairs for training")

    def _check_data(self) -> None:
        """Raise ConfigError if the sources of data, their weights or the columns do not fit together."""
        if not self.data or not all(self.data):
            raise ConfigError("--data needs the name of a source of pairs")
        if len(self.columns) not in (0, 2):
            raise ConfigError(f"--columns names {len(self.columns)}; give two, of the source and of the target side")
        if self.data_weights and len(self.data_weights) != len(self.data):
            n_weights, n_sources = len(self.data_weights), len(self.data)
            raise ConfigError(f"--data-weights has {n_weights}, but --data names {n_sources}: give one weight for each")
        if not all(MIN_WEIGHT <= weight <= 1 / MIN_WEIGHT for weight in self.data_weights):
            raise ConfigError(f"--data-weights must be from {MIN_WEIGHT:g} to {1 / MIN_WEIGHT:,.0f}")

    def _check_pairs(self) -> None:
        """Raise ConfigError if --pairs, --languages or the sources of data do not fit together."""
        if (self.pairs == ("all",)) != bool(self.languages):
            raise ConfigError("--pairs all and --languages go together: --pairs all --languages en de fr")
        if len(set(self.languages)) != len(self.languages) or len(self.languages) == 1:
            raise ConfigError(f"--languages {' '.join(self.languages)}: name two or more, each once")
        if not self.pairs:
            return
        if len(set(self.directions)) != len(self.directions):
            raise ConfigError(f"--pairs {' '.join(self.pairs)}: name each pair once")
        for source, target in self.directions:
            for text in (source, target):
                if not re.fullmatch("[A-Za-z0-9_-]+", text):
                    raise ConfigError(f"--pairs: {text!r} cannot be a language; use a code such as de or pt-BR")
            if source == target:
                raise ConfigError(f"--pairs: {source}-{target} is one language")
        if len(self.data) not in (1, len(self.directions)):
            raise ConfigError(
                f"--data names {len(self.data)} sources for {len(self.directions)} pairs: "
                "give one that has all languages, or one for each pair"
            )
        if len(self.directions) > len(self.data) == 1 and self.data_weights:
            raise ConfigError("--data-weights is for several sources of --data; --temperature balances language pairs")
        if self.columns and len(self.data) == 1 and len({frozenset(pair) for pair in self.directions}) > 1:
            raise ConfigError("--columns names two columns, and --pairs more than two languages: name them in a header")

    def _check_monolingual(self) -> None:
        """Raise ConfigError if a file of --monolingual is of no use for the language pairs."""
        if not MIN_WEIGHT <= self.monolingual_weight <= 1 / MIN_WEIGHT:
            raise ConfigError(f"--monolingual-weight must be from {MIN_WEIGHT:g} to {1 / MIN_WEIGHT:,.0f}")
        if self.back_translator and not self.monolingual:
            raise ConfigError("--back-translator is for --monolingual, which names no file")
        if len(set(self.monolingual)) != len(self.monolingual):
            raise ConfigError(f"--monolingual {' '.join(self.monolingual)}: name each file once")
        targets = {target for _, target in self.directions}
        used = {file for file, _ in self.monolingual_directions}
        for file in self.monolingual:
            language = _language_of(file)
            if language not in targets:
                known = ", ".join(sorted(targets))
                raise ConfigError(
                    f"--monolingual {file}: its name must end in a language that the model translates into, {known}"
                )
            if file not in used:
                learn = "" if self.init_from else "let it learn that, with --pairs, or "
                raise ConfigError(
                    f"--monolingual {file}: the model does not translate from {language}; "
                    f"{learn}name a run that does, with --back-translator"
                )

    @property
    def monolingual_directions(self) -> list[tuple[str, tuple[str, str]]]:
        """Each file of --monolingual, with a language pair that has it as targets; some of them several times."""
        directions = self.directions
        return [
            (file, (source, target))
            for file in self.monolingual
            for source, target in directions
            if target == _language_of(file) and (self.back_translator or (target, source) in directions)
        ]

    @property
    def directions(self) -> list[tuple[str, str]]:
        """The language pairs that the model translates, each as source and target."""
        if self.pairs == ("all",):
            return [(source, target) for source in self.languages for target in self.languages if source != target]
        return [_direction(pair) for pair in self.pairs] or [(self.source, self.target)]

    @property
    def all_languages(self) -> list[str]:
        """The languages of all pairs, in alphabetical order."""
        return sorted({language for direction in self.directions for language in direction})

    @property
    def tagged_languages(self) -> list[str]:
        """The target languages, each with a token at the start of its sources; none with one language pair."""
        directions = self.directions
        return sorted({target for _, target in directions}) if len(directions) > 1 else []

    def to_json(self) -> str:
        """All fields and the number of the format, as an indented JSON object."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Config":
        """The inverse of `to_json`, for this format and all before it.

        Raises ConfigError if the format is newer, or if a field is unknown, missing, ill-typed or out of range.
        """
        # Parse the JSON.
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"not JSON ({error})") from None
        if not isinstance(values, dict):
            raise ConfigError("not a JSON object")

        # Bring an older format up to date. The first one had no number.
        format_number = values.pop("format", 0)
        if type(format_number) is not int or format_number < 0:
            raise ConfigError(f"format is {format_number!r}; a number expected")
        if format_number > FORMAT:
            raise ConfigError(
                f"it has format {format_number}, of a newer version, and this one reads up to {FORMAT}: update Tapis"
            )
        for since, added in ADDED_FIELDS.items():
            if format_number < since:
                values = {**added, **values}
        if format_number < 2 and isinstance(values.get("data"), str):
            values["data"] = [values["data"]]  # one source, then

        # Check that the fields are those of this version, and their types.
        types = {field.name: type(field.default) for field in fields(cls)}
        if wrong := sorted(values.keys() ^ types.keys()):
            more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
            raise ConfigError(f"fields missing or unknown: {', '.join(wrong[:5])}{more}"[:300])

        for name, expected in types.items():
            values[name] = _from_json_value(name, values[name], expected)
        return cls(**values)


def names_of_pairs(directions: Iterable[tuple[str, str]]) -> str:
    """Language pairs as --pairs takes them, for a message."""
    return ", ".join((":" if "-" in source + target else "-").join((source, target)) for source, target in directions)


def _direction(pair: str) -> tuple[str, str]:
    """Split en-de, or pt-BR:en, into its languages. Raises ConfigError if that is not clear."""
    languages = pair.split(":") if ":" in pair else pair.split("-")
    if len(languages) != 2:
        raise ConfigError(f"--pairs {pair!r}: write SOURCE-TARGET, such as en-de, or pt-BR:en")
    return languages[0], languages[1]


def base_language(code: str) -> str:
    """The code of a language without its region or script, in small letters: pt of pt-BR."""
    return re.split("[-_]", code)[0].lower()


def _language_of(file: str) -> str:
    """Return the language that the name of a file of --monolingual ends in; empty if there is none."""
    match = re.search(r"\.([A-Za-z0-9_-]+)(\.(gz|xz|zst))?$", file)
    return match[1] if match else ""


def _from_json_value(name: str, value: object, expected: type) -> object:
    """A field's value, after conversion of what JSON writes differently: a float without decimals, and a tuple.

    Raises ConfigError if it has another type than the field.
    """
    if expected is float and type(value) is int:
        return float(value)
    if expected is tuple and type(value) is list:
        element = float if name == "data_weights" else str
        return tuple(_from_json_value(name, item, element) for item in value)
    if type(value) is not expected:
        raise ConfigError(f"{name} is {value!r}; {expected.__name__} expected")
    return value


def flag(name: str) -> str:
    """Return the command-line flag of a field: `d_model` → `--d-model`."""
    return "--" + name.replace("_", "-")


# The format of config.json. A version of Tapis reads its own and all before it; CHANGELOG.md says what each changed.
FORMAT = 4

# By the format that added them: fields, each with the value that runs of earlier formats were made with.
ADDED_FIELDS: dict[int, dict[str, object]] = {
    1: {"plain": False, "shard": False},
    2: {"data_weights": (), "columns": (), "init_from": "", "pairs": (), "languages": (), "temperature": 1.0},
    3: {"monolingual": (), "monolingual_weight": 1.0, "back_translator": ""},
    4: {"augment": 0.0, "length_ratio": 0.0, "length_spread": 0.0, "unsure_below": 0.0},
}

# Fields that may change on --resume: they affect neither the model nor the data nor the batches.
RESUMABLE = {
    *("epochs", "steps", "patience", "valid_every", "save_minutes", "log_every", "device", "shard"),
    *("length_ratio", "length_spread", "unsure_below"),
}

MIN_WEIGHT = 0.001  # of a source, and one over its largest

_RANGES: dict[tuple[float, float], tuple[str, ...]] = {
    (0.0, 0.5): ("valid_share", "test_share", "self_distillation"),  # --minutes fixes the number of steps half-way
    (0.0, 0.9): ("dropout", "subword_dropout", "augment", "label_smoothing"),
    (260, 1_000_000): ("vocab_size",),  # every vocabulary has the 4 special tokens and the 256 bytes
    (2, 100_000): ("max_length",),
    (2, 65_536): ("d_model", "d_ff"),  # a sum of so many products of 8 bits fits into 32 (decoding/compiled.c)
    (1, 1024): ("n_heads",),
    (1, 1000): ("n_encoder_layers", "n_decoder_layers"),
    (1, 100_000): ("accumulate",),
    (1, 1_000_000): ("epochs", "log_every"),
    (0, 100_000_000): ("warmup_steps",),
    (1, 100_000_000): ("batch_tokens",),
    (0, 1000): ("length_ratio", "length_spread"),
    (-1000, 0): ("unsure_below",),
    (0, 1_000_000): ("patience", "save_minutes"),
    (0, 1_000_000_000): ("steps", "valid_every", "clip_norm"),
    (1e-12, 100.0): ("lr",),
    (1.0, 100.0): ("temperature",),
    (0, 2**31 - 1): ("seed",),
}

BUILT_IN = "demo"  # as --data names the corpus in demo/

PRESETS = {
    # Novels, 127,000 pairs in en-fr; 7.6 million parameters. Never trained on the whole corpus: the recipe was chosen
    # on Tatoeba (docs/lab-notes.md). A sample of 366 pairs has 38 words a pair, about 50 tokens. At the 4,700 tokens/s
    # of two CPU cores with AVX2 alone, 8 epochs would take about three hours.
    "opus_books": Config(
        vocab_size=8000,
        epochs=8,
        optimizer="muon",
        lr=4e-3,
        warmup_steps=500,
        self_distillation=0.1,
    ),
    # The built-in English-French corpus; 1 million parameters; half a minute to two minutes on two CPU cores.
    "demo": Config(
        data=("demo",),
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
    # Photo captions, 29,000 pairs, as text files in the folder that --data names; 4.3 million parameters; about an hour
    # on two CPU cores. BLEU on test2016, computed as in published tables: 41.4 en-de and 62.8 en-fr with beam 5, 41.0
    # and 62.0 with greedy search.
    "multi30k": Config(
        data=("multi30k",),
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
    # The paper's base model and schedule (table 3, section 5.3); 63 million parameters; for a GPU and a large corpus.
    # Not measured. Modelled for an H200: 1.8 million tokens/s (benchmarks/gpu_account.py).
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
# The paper's big model (table 3); 214 million parameters; for several GPUs and millions of pairs.
# Not measured. Modelled for an H200: 0.7 million tokens/s (benchmarks/gpu_account.py).
# Its learning rate is 1024^-0.5 · 4000^-0.5.
PRESETS["big"] = replace(PRESETS["base"], d_model=1024, n_heads=16, d_ff=4096, dropout=0.3, lr=5e-4)
