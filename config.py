"""The configuration of a training run: the frozen, validated `Config`, its presets and its JSON; and `TapisError`.

Each preset is a `Config`. On the command line, each field is a flag of the same name (system/cli.py).
"""

import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import product
from typing import Any, Literal, TypeVar, get_args, get_origin

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
    """Whether each process of a distributed run prints it. By default, only the first process of each machine
    does, since the others usually raise the same error."""


class ConfigError(TapisError):
    """A flag or a field has an invalid value, or two of them conflict."""

    exit_code = 2


@dataclass(frozen=True)
class Facts:
    """What is true of a field of `Config`, besides its type, its default and its help. Nothing else lists fields."""

    range: tuple[float, float] = (0, 0)
    """The least and the greatest value; (0, 0) for no limits"""
    defines_model: bool = False
    """Whether it determines what the weights mean. A model is loaded only with the value it was saved with"""
    is_resumable: bool = False
    """Whether it may change on --resume: it affects neither the model nor the data nor the batches"""
    init_from: Literal["kept", "fixed", "fresh"] = "kept"
    """With --init-from: that of the run unless it is given (kept), always that of the run (fixed), or, since it says
    nothing about another run, the default (fresh)"""
    is_on_page: bool = False
    """Whether a page of `export.py --to web` needs it"""
    since: int = 0
    """The format of config.json that added it"""
    before: object = None
    """The value with which runs of earlier formats were made"""


Value = TypeVar("Value")


def setting(default: Value, **facts: Any) -> Value:
    """Return a field of a dataclass with a default, and with facts as `Facts` takes them."""
    return dataclasses.field(default=default, metadata={"facts": Facts(**facts)})


# The settings by kind. Each kind is a group of flags in train.py --help, under its docstring.


@dataclass(frozen=True)
class DataSettings:
    """Where the pairs are from, and how they are cleaned, split and cut into tokens."""

    data: tuple[str, ...] = ("Helsinki-NLP/opus_books",)
    """One or more sources of pairs, each of them demo, a hub id, a folder (hub layout or train/valid/test.<language>),
    or a .tsv, .csv, .jsonl, .parquet, .tmx or OPUS .zip file"""
    data_weights: tuple[float, ...] = setting((), since=2, before=())
    """One weight for each source of --data: with 2, an epoch has each of its pairs twice, with 0.5 half of them; by
    default 1"""
    columns: tuple[str, ...] = setting((), since=2, before=())
    """The columns of the source and the target side in tables: two numbers from 1, or two names of the header"""
    monolingual: tuple[str, ...] = setting((), init_from="fresh", since=3, before=())
    """Files of sentences in a language to translate into, one per line, named by it: NEWS.fr. They are translated
    back during the run, and learned from as targets"""
    monolingual_weight: float = setting(1.0, init_from="fresh", since=3, before=1.0)
    """Weight of each sentence of --monolingual, as in --data-weights"""
    back_translator: str = setting("", init_from="fresh", since=3, before="")
    """The run that translates --monolingual, once, before the first step; by default the model itself does it twice"""
    temperature: float = setting(1.0, range=(1.0, 100.0), since=2, before=1.0)
    """Share of each language pair in an epoch: 1 by its size, higher more equal (size to the power of 1/temperature)"""
    valid_share: float = setting(0.02, range=(0.0, 0.5))
    """Share of the pairs used for validation if the data has no validation part"""
    test_share: float = setting(0.02, range=(0.0, 0.5))
    """Share of the pairs used for testing if the data has no test part"""
    skip_rules: tuple[RuleName, ...] = ()
    """Cleaning rules to skip"""
    # Every vocabulary has the 4 special tokens and the 256 bytes.
    vocab_size: int = setting(16_000, range=(260, 1_000_000), init_from="fixed")
    """Maximum size of the subword vocabulary that both languages share"""
    max_length: int = setting(128, range=(2, 10_000), defines_model=True, is_on_page=True)
    """Maximum length of each side of a training pair, in tokens; longer pairs are dropped and counted"""


@dataclass(frozen=True)
class ModelSettings:
    """What the model is."""

    init_from: str = setting("", since=2, before="")
    """Start from the weights and the tokenizer of another run: its name, folder, release archive, or hub id"""
    # A sum of so many products of 8 bits fits into 32 (decoding/compiled.c); so for d_ff.
    d_model: int = setting(256, range=(2, 65_536), defines_model=True, init_from="fixed", is_on_page=True)
    """Width of the embeddings and of every layer's output"""
    n_heads: int = setting(4, range=(1, 1024), defines_model=True, init_from="fixed", is_on_page=True)
    """Attention heads per layer"""
    n_encoder_layers: int = setting(3, range=(1, 1000), defines_model=True, init_from="fixed", is_on_page=True)
    """Encoder layers"""
    n_decoder_layers: int = setting(3, range=(1, 1000), defines_model=True, init_from="fixed", is_on_page=True)
    """Decoder layers"""
    d_ff: int = setting(1024, range=(2, 65_536), defines_model=True, init_from="fixed")
    """Inner width of the feed-forward layers"""
    dropout: float = setting(0.1, range=(0.0, 0.9))
    """Probability of dropping an activation during training"""
    norm: Literal["pre", "post"] = setting("pre", defines_model=True, init_from="fixed", is_on_page=True)
    """Layer normalization before each sublayer (pre) or after it, as in the paper (post)"""
    tie_embeddings: bool = setting(True, defines_model=True, init_from="fixed")
    """Share one matrix among source embeddings, target embeddings and output projection"""


@dataclass(frozen=True)
class TrainingSettings:
    """How it learns."""

    epochs: int = setting(10, range=(1, 1_000_000), is_resumable=True, init_from="fresh")
    """Passes over the training pairs"""
    steps: int = setting(0, range=(0, 1_000_000_000), is_resumable=True, init_from="fresh")
    """Optimizer steps in total, instead of --epochs; 0 to use --epochs"""
    patience: int = setting(0, range=(0, 1_000_000), is_resumable=True, init_from="fresh")
    """Stop after this many validations in a row without improvement; 0 for never"""
    batch_tokens: int = setting(4096, range=(1, 100_000_000))
    """Maximum size of a batch: sentences times the length of the longest side, in tokens"""
    accumulate: int = setting(1, range=(1, 100_000))
    """Batches per optimizer step"""
    optimizer: Literal["adam", "muon"] = "adam"
    """adam for all parameters, as in the paper; muon for the matrices of the layers, with Adam for the rest"""
    lr: float = setting(1e-3, range=(1e-12, 100.0))
    """Peak learning rate, reached at the end of the warm-up"""
    warmup_steps: int = setting(1000, range=(0, 100_000_000))
    """Steps of linear warm-up, limited to a tenth of the run"""
    schedule: Literal["linear", "inverse_sqrt"] = "linear"
    """Decay of the learning rate: linear to zero over the second half, or inverse square root, as in the paper"""
    subword_dropout: float = setting(0.0, range=(0.0, 0.9))
    """Share of training tokens to split into the two tokens that they were merged from"""
    augment: float = setting(0.0, range=(0.0, 0.9), since=4, before=0.0)
    """Share of the training sources to rewrite as people type them: in small letters, without a full stop, mistyped"""
    # --minutes fixes the number of steps half-way.
    self_distillation: float = setting(0.0, range=(0.0, 0.5))
    """Share of the steps, at the end, that train on the model's own translations closest to the references"""
    label_smoothing: float = setting(0.1, range=(0.0, 0.9))
    """Share of the target probability spread over the whole vocabulary"""
    clip_norm: float = setting(1.0, range=(0, 1_000_000_000))
    """Gradients with a larger norm are scaled down to this; 0 to disable"""
    seed: int = setting(1, range=(0, 2**31 - 1))
    """Random seed of the initialization, the batch order and dropout"""


@dataclass(frozen=True)
class RunSettings:
    """Where and how the run computes, and how often it reports and saves."""

    name: str = ""
    """Name of the run's folders in weights/ and runs/; by default PRESET-SOURCE-TARGET, or PRESET and all pairs"""
    device: DeviceName = setting("auto", is_resumable=True, init_from="fresh")
    """Device to compute on; auto prefers cuda, then mps, then cpu"""
    precision: Precision = setting("auto", init_from="fresh")
    """Precision of matrix products; auto chooses bf16 or fp16 if the hardware accelerates it"""
    shard: bool = setting(False, is_resumable=True, init_from="fresh", since=1, before=False)
    """Divide weights, gradients and moments among processes, for models too large for one GPU; needs adam, not fp16"""
    plain: bool = setting(False, init_from="fresh", since=1, before=False)
    """Compute with the plain formulas of model.py, without fast/: slower, for reading and debugging"""
    valid_every: int = setting(0, range=(0, 1_000_000_000), is_resumable=True, init_from="fresh")
    """Steps between validations; 0 for one each epoch"""
    save_minutes: float = setting(5.0, range=(0, 1_000_000), is_resumable=True, init_from="fresh")
    """Minutes between saves of the training state, in addition to one after each validation"""
    log_every: int = setting(10, range=(1, 1_000_000), is_resumable=True, init_from="fresh")
    """Steps between TensorBoard scalars"""


@dataclass(frozen=True)
class Config(RunSettings, TrainingSettings, ModelSettings, DataSettings):
    """What was asked of a run.

    It is never rewritten: what a run settles itself is in `training.resolved.Resolved`, and what it learns besides the
    weights in `Learned`.
    """

    pairs: tuple[str, ...] = setting(("en-fr",), defines_model=True, init_from="fixed", since=5)
    """The language pairs that the model translates, as `name_of_pair` writes them"""

    def __post_init__(self) -> None:
        # Each field alone: one of its choices, text that fits on a line, or within its range
        for field in fields(self):
            choices, value = get_args(field.type), getattr(self, field.name)
            if not isinstance(value, tuple) and choices and value not in choices:
                raise ConfigError(f"{flag(field.name)} is {value!r}; it must be one of {', '.join(choices)}")
            texts = value if isinstance(value, tuple) else (value,)
            if unusual := next((text for text in texts if isinstance(text, str) and _CONTROL.search(text)), ""):
                raise ConfigError(f"{flag(field.name)} {unusual!r} has characters that cannot be shown")
        if unknown := set(self.skip_rules) - set(get_args(RuleName)):
            unknown_names = ", ".join(map(repr, sorted(unknown)))
            raise ConfigError(f"--skip-rules has no {unknown_names}; there are {', '.join(get_args(RuleName))}")
        for name, facts in FACTS.items():
            low, high = facts.range
            if low < high and not low <= getattr(self, name) <= high:
                raise ConfigError(f"{flag(name)} is {getattr(self, name)}; it must be from {low} to {high}")
        if not _can_be_part_of_file_name(self.name):
            raise ConfigError(f"--name {self.name!r} cannot be part of a file name")

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
        """Raise ConfigError if a language or a pair cannot be, or if the sources of data do not fit the pairs."""
        if not self.pairs:
            raise ConfigError("--pairs names no pair")
        for source, target in self.directions:
            for text in (source, target):
                if not _can_be_part_of_file_name(text) or not text:
                    raise ConfigError(f"the language {text!r} cannot be part of a file name")
                if len(self.pairs) > 1 and not re.fullmatch("[A-Za-z0-9_-]+", text):
                    raise ConfigError(f"--pairs: {text!r} cannot be a language; use a code such as de or pt-BR")
            if source == target:
                raise ConfigError(f"source and target are both {source}")
        if len(self.all_languages) > MAX_LANGUAGES:
            raise ConfigError(f"--pairs names {len(self.all_languages):,} languages; it may name {MAX_LANGUAGES}")
        if len(set(self.directions)) < len(self.directions):
            raise ConfigError(f"--pairs {' '.join(self.pairs)}: name each pair once")
        if len(self.pairs) == 1:
            return
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
        if len(self.monolingual) > MAX_FILES:
            raise ConfigError(f"--monolingual names {len(self.monolingual):,} files; it may name {MAX_FILES}")
        if len(set(self.monolingual)) != len(self.monolingual):
            raise ConfigError(f"--monolingual {' '.join(self.monolingual)}: name each file once")
        directions = set(self.directions)
        targets = {target for _, target in directions}
        learnable = {t for s, t in directions if self.back_translator or (t, s) in directions}
        for file in self.monolingual:
            language = _language_of(file)
            if language not in targets:
                known = ", ".join(sorted(targets))
                raise ConfigError(
                    f"--monolingual {file}: its name must end in a language that the model translates into, {known}"
                )
            if language not in learnable:
                learn = "" if self.init_from else "let it learn that, with --pairs, or "
                raise ConfigError(
                    f"--monolingual {file}: the model does not translate from {language}; "
                    f"{learn}name a run that does, with --back-translator"
                )

    @property
    def monolingual_directions(self) -> list[tuple[str, tuple[str, str]]]:
        """Each file of --monolingual, with a language pair that has it as targets; some of them several times."""
        known = set(self.directions)
        sources: dict[str, list[str]] = {}
        for source, target in self.directions:
            if self.back_translator or (target, source) in known:
                sources.setdefault(target, []).append(source)
        languages = [_language_of(file) for file in self.monolingual]
        return [
            (file, (source, target))
            for file, target in zip(self.monolingual, languages, strict=True)
            for source in sources.get(target, [])
        ]

    @cached_property
    def directions(self) -> tuple[tuple[str, str], ...]:
        """The language pairs that the model translates, each as source and target."""
        return tuple(map(direction_of, self.pairs))

    @property
    def source(self) -> str:
        """The source language of the first pair."""
        return self.directions[0][0]

    @property
    def target(self) -> str:
        """The target language of the first pair."""
        return self.directions[0][1]

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
        """Return all fields and the number of the format, as an indented JSON object."""
        return json.dumps({"format": FORMAT, "pairs": self.pairs, **dataclasses.asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Config":
        """Return the inverse of `to_json`, for this format and all before it.

        Raises ConfigError if the format is newer, or if a field is unknown, missing, ill-typed or out of range.
        """
        values = _json_object(text)

        # Bring an older format up to date. The first one had no number.
        format_number = values.pop("format", 0)
        if type(format_number) is not int or format_number < 0:
            raise ConfigError(f"format is {format_number!r}; a number expected")
        if format_number > FORMAT:
            raise ConfigError(
                f"it has format {format_number}, of a newer version, and this one reads up to {FORMAT}: update Tapis"
            )
        if format_number < 2 and isinstance(values.get("data"), str):
            values["data"] = [values["data"]]  # one source, then
        if format_number < 5:
            for field in fields(Learned):  # `Learned.from_json` reads them
                values.pop(field.name, None)
            values["pairs"] = _earlier_pairs(values)
        added: dict[str, Any] = {name: facts.before for name, facts in FACTS.items() if format_number < facts.since}
        values = added | values

        # Check that the fields are those of this version, and their types.
        types = {field.name: field.type for field in fields(cls)}
        if wrong := sorted(values.keys() ^ types.keys()):
            more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
            names = ", ".join(name if name.isidentifier() else repr(name) for name in wrong[:5])
            raise ConfigError(f"fields missing or unknown: {names}{more}"[:300])

        for name, expected in types.items():
            values[name] = _from_json_value(name, values[name], expected)
        return cls(**values)


def name_of_pair(source: str, target: str) -> str:
    """Return a language pair as --pairs takes it: en-de, or pt-BR:en."""
    return (":" if "-" in source + target else "-").join((source, target))


def names_of_pairs(directions: Iterable[tuple[str, str]]) -> str:
    """Return language pairs as --pairs takes them, for a message."""
    return ", ".join(name_of_pair(*direction) for direction in directions)


def direction_of(pair: str) -> tuple[str, str]:
    """Return the inverse of `name_of_pair`. Raises ConfigError if it is not clear where the source ends."""
    languages = pair.split(":") if ":" in pair else pair.split("-")
    if len(languages) != 2:
        raise ConfigError(f"--pairs {pair!r}: write SOURCE-TARGET, such as en-de, or pt-BR:en")
    return languages[0], languages[1]


def pairs_of_all(languages: Sequence[str]) -> list[str]:
    """Return the pairs of each of these languages with each of the others. Raises ConfigError if they are too many."""
    if len(languages) > MAX_LANGUAGES:
        raise ConfigError(f"--languages names {len(languages):,}; it may name {MAX_LANGUAGES}")
    return [name_of_pair(source, target) for source, target in product(languages, repeat=2) if source != target]


def pairs_as_before(source: str, target: str, pairs: Sequence[str], languages: Sequence[str]) -> list[str]:
    """Return `Config.pairs` of the four fields that formats before 5 had for them."""
    if list(pairs) == ["all"]:
        return pairs_of_all(languages)
    return [name_of_pair(*direction_of(pair)) for pair in pairs] or [name_of_pair(source, target)]


def _earlier_pairs(values: dict[str, Any]) -> list[str]:
    """Take the languages from the JSON of a format before 5. Raises ConfigError if a field is missing or ill-typed."""
    if missing := {"source", "target"} - values.keys():
        raise ConfigError(f"fields missing: {', '.join(sorted(missing))}")
    languages: dict[str, Any] = {"source": "", "target": "", "pairs": [], "languages": []}
    languages |= {name: values.pop(name) for name in languages if name in values}
    for name, value in languages.items():
        _from_json_value(name, value, str if name in ("source", "target") else tuple[str, ...])
    return pairs_as_before(**languages)


def base_language(code: str) -> str:
    """Return the code of a language without its region or script, in small letters: pt of pt-BR."""
    return re.split("[-_]", code)[0].lower()


def _language_of(file: str) -> str:
    """Return the language that the name of a file of --monolingual ends in; empty if there is none."""
    match = re.search(r"\.([A-Za-z0-9_-]+)(\.(gz|xz|zst))?$", file)
    return match[1] if match else ""


def _json_object(text: str) -> dict[str, Any]:
    """Return the JSON object of a text. Raises ConfigError if it holds none."""
    try:
        values: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not JSON ({error})") from None
    if not isinstance(values, dict):
        raise ConfigError("not a JSON object")
    return values


def _from_json_value(name: str, value: object, expected: Any) -> Any:
    """Return a field's value, after conversion of what JSON writes differently: a float without decimals, and a tuple.

    Raises ConfigError if it has another type than the field.
    """
    if expected is float and type(value) is int and abs(value) < 2**53:
        return float(value)
    if get_origin(expected) is tuple:
        if type(value) is list:
            return tuple(_from_json_value(name, item, get_args(expected)[0]) for item in value)
        expected = tuple
    elif get_origin(expected) is Literal:
        expected = type(get_args(expected)[0])
    if type(value) is not expected:
        raise ConfigError(f"{name} is {value!r}; {expected.__name__} expected")
    return value


def flag(name: str) -> str:
    """Return the command-line flag of a field: `d_model` → `--d-model`."""
    return "--" + name.replace("_", "-")


@dataclass(frozen=True)
class Learned:
    """What a run learns besides the weights. Before it is known, each is 0; so for runs before format 4."""

    length_ratio: float = setting(0.0, range=(0, 1000))
    """Target tokens for each source token of the training pairs, on average"""
    length_spread: float = setting(0.0, range=(0, 1000))
    """Deviation of target lengths from that, which one in a hundred training pairs exceeds, divided by the square root
    of the source length"""
    unsure_below: float = setting(0.0, range=(-1000, 0))
    """Mean log-probability of a token, in nats, below which two in a hundred of the model's translations are"""

    def __post_init__(self) -> None:
        for field in fields(self):
            low, high = field.metadata["facts"].range
            if not low <= getattr(self, field.name) <= high:
                raise ConfigError(f"{field.name} is {getattr(self, field.name)}; it must be from {low} to {high}")

    def to_json(self) -> str:
        """Return all fields as an indented JSON object."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Learned":
        """Return the inverse of `to_json`. Reads config.json of format 4, too, which had these fields among others.

        Raises ConfigError if a field is ill-typed or out of range.
        """
        values = _json_object(text)
        return cls(**{f.name: _from_json_value(f.name, values[f.name], float) for f in fields(cls) if f.name in values})


FACTS: dict[str, Facts] = {field.name: field.metadata.get("facts", Facts()) for field in fields(Config)}

# The format of config.json. A version of Tapis reads its own and all before it; CHANGELOG.md says what each changed.
FORMAT = 5

MIN_WEIGHT = 0.001  # of a source, and one over its largest
MAX_FILES = 1000  # of --monolingual
MAX_LANGUAGES = 300  # of --pairs all, which is 89,700 pairs


def _can_be_part_of_file_name(text: str) -> bool:
    return text not in (".", "..") and not any(c in r'/\:*?"<>|`' or not c.isprintable() for c in text)


# Characters that a terminal obeys, or that no text in UTF-8 has
_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

BUILT_IN = "demo"  # as --data names the corpus in demo/

PRESETS = {
    # Novels, 127,000 pairs in en-fr; 7.6 million parameters. Never trained on the whole corpus: the recipe was chosen
    # on Tatoeba (docs/lab). A sample of 366 pairs has 38 words a pair, about 50 tokens. At the 4,700 tokens/s
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
