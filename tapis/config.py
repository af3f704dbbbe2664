"""What a model is, as its files say: `ModelConfig`, which config.json holds, `Learned`, and their JSON; `TapisError`.

The training of a checkout adds to `ModelConfig` what its runs were asked besides (config.py at its root).
"""

import dataclasses
import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import islice, product
from typing import Any, Literal, Self, TypeVar, get_args, get_origin

PAD, UNK, BOS, EOS = range(4)  # the first token ids of every vocabulary
LENGTH_PENALTY = 1.5  # default of beam search
ALWAYS_WHOLE = 20  # tokens: a sentence of fewer is not cut, however short those of the training were
NEVER_GENERATED = [PAD, UNK, BOS]  # they are no text; all ids before EOS

DeviceName = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["auto", "fp32", "bf16", "fp16"]
TranslatingPrecision = Literal[Precision, "int8"]

# The format of config.json. A version of Tapis reads its own and all before it; CHANGELOG.md says what each changed.
FORMAT = 8

MAX_LANGUAGES = 300  # of --pairs all, which is 89,700 pairs

# Characters that a terminal obeys, or that no text in UTF-8 has
_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class TapisError(Exception):
    """An error that the user can correct; its message, one or two lines, says what is wrong and what to do.

    Commands print the message without a traceback (`tapis.system.cli.run_command`).
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
    """What is true of a field of a config, besides its type, its default and its help. Nothing else lists fields."""

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


def facts_of(kind: type) -> dict[str, Facts]:
    """Return the facts of each field of a dataclass."""
    return {field.name: field.metadata.get("facts", Facts()) for field in fields(kind)}


@dataclass(frozen=True)
class ModelSettings:
    """What the model is."""

    # A sum of so many products of 8 bits fits into 32 (tapis/engine/engine.c); so for d_ff.
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
    norm: Literal["pre", "post"] = setting("pre", defines_model=True, init_from="fixed", is_on_page=True)
    """Layer normalization before each sublayer (pre) or after it, as in the paper (post)"""
    tie_embeddings: bool = setting(True, defines_model=True, init_from="fixed")
    """Share one matrix among source embeddings, target embeddings and output projection"""
    max_length: int = setting(128, range=(2, 10_000), defines_model=True, is_on_page=True)
    """Maximum length of each side of a training pair, in tokens; longer pairs are dropped and counted"""


@dataclass(frozen=True)
class ModelConfig(ModelSettings):
    """What translating must know of a model: the part of config.json that no training needs."""

    name: str = ""
    """Name of the run that trained it"""
    skip_rules: tuple[str, ...] = ()
    """Cleaning rules that its pairs skipped: without "unicode", sentences are translated as they are"""
    pairs: tuple[str, ...] = setting(("en-fr",), defines_model=True, init_from="fixed", since=5)
    """The language pairs that the model translates, as `name_of_pair` writes them"""
    terms: float = setting(0.0, range=(0.0, 0.9), since=8, before=0.0)
    """Share of its training sources that had terms with their translations: a model of any share but 0 obeys them"""

    def __post_init__(self) -> None:
        # Each field alone: one of its choices, text that fits on a line, or within its range
        for field in fields(self):
            choices, value = get_args(field.type), getattr(self, field.name)
            if not isinstance(value, tuple) and choices and value not in choices:
                raise ConfigError(f"{flag(field.name)} is {value!r}; it must be one of {', '.join(choices)}")
            texts = value if isinstance(value, tuple) else (value,)
            if unusual := next((text for text in texts if isinstance(text, str) and _CONTROL.search(text)), ""):
                raise ConfigError(f"{flag(field.name)} {unusual!r} has characters that cannot be shown")
        for name, facts in facts_of(type(self)).items():
            low, high = facts.range
            if low < high and not low <= getattr(self, name) <= high:
                raise ConfigError(f"{flag(name)} is {getattr(self, name)}; it must be from {low} to {high}")

        # Fields that depend on each other
        self._check_languages()
        if self.d_model % 2 or self.d_model % self.n_heads:
            raise ConfigError(f"--d-model ({self.d_model}) must be even and a multiple of --n-heads ({self.n_heads})")

    def _check_languages(self) -> None:
        """Raise ConfigError if a language or a pair cannot be."""
        if not self.pairs:
            raise ConfigError("--pairs names no pair")
        for source, target in self.directions:
            for text in (source, target):
                if not can_be_part_of_file_name(text) or not text:
                    raise ConfigError(f"the language {text!r} cannot be part of a file name")
                if len(self.pairs) > 1 and not re.fullmatch("[A-Za-z0-9_-]+", text):
                    raise ConfigError(f"--pairs: {text!r} cannot be a language; use a code such as de or pt-BR")
            if source == target:
                raise ConfigError(f"source and target are both {source}")
        if len(self.all_languages) > MAX_LANGUAGES:
            raise ConfigError(f"--pairs names {len(self.all_languages):,} languages; it may name {MAX_LANGUAGES}")
        if len(set(self.directions)) < len(self.directions):
            raise ConfigError(f"--pairs {' '.join(self.pairs)}: name each pair once")

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

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the fields of this class from the text of a config.json, of this format and all before it.

        Raises ConfigError if the format is newer, or if a field is missing, ill-typed or out of range.
        """
        return cls._from_values(read_config_json(text))

    @classmethod
    def _from_values(cls, values: dict[str, Any]) -> Self:
        """Return the fields of this class, once read. Raises ConfigError if one is missing, ill-typed or no value.

        Those that were added after the format of the values are as they were before.
        """
        facts = facts_of(cls)
        values = {name: one.before for name, one in facts.items() if values["format"] < one.since} | values
        types = {field.name: field.type for field in fields(cls)}
        check_names(types.keys() - values.keys())
        return cls(**{name: field_from_json(name, values[name], expected) for name, expected in types.items()})


def read_config_json(text: str) -> dict[str, Any]:
    """Return the values of a config.json, as this format has them, and its format number as "format".

    Raises ConfigError if it is none, or of a newer format.
    """
    # The first format had no number.
    values = json_object(text)
    format_number = values.setdefault("format", 0)
    if type(format_number) is not int or format_number < 0:
        raise ConfigError(f"format is {format_number!r}; a number expected")
    if format_number > FORMAT:
        raise ConfigError(
            f"it has format {format_number}, of a newer version, and this one reads up to {FORMAT}: update Tapis"
        )
    if format_number < 5:
        values["pairs"] = _earlier_pairs(values)
    return values


def check_names(wrong: Iterable[str]) -> None:
    """Raise ConfigError if there are names of fields that are missing or unknown."""
    names = sorted(wrong)
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        shown = ", ".join(name if name.isidentifier() else repr(name) for name in names[:5])
        raise ConfigError(f"fields missing or unknown: {shown}{more}"[:300])


def name_of_pair(source: str, target: str) -> str:
    """Return a language pair as --pairs takes it: en-de, or pt-BR:en."""
    return (":" if "-" in source + target else "-").join((source, target))


def names_of_pairs(directions: Collection[tuple[str, str]]) -> str:
    """Return language pairs as --pairs takes them, for a message: the first 20, and how many more there are."""
    more = f" and {len(directions) - 20:,} more" if len(directions) > 20 else ""
    return ", ".join(name_of_pair(*direction) for direction in islice(directions, 20)) + more


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
        field_from_json(name, value, str if name in ("source", "target") else tuple[str, ...])
    return pairs_as_before(**languages)


def json_object(text: str) -> dict[str, Any]:
    """Return the JSON object of a text. Raises ConfigError if it holds none."""
    try:
        values: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not JSON ({error})") from None
    if not isinstance(values, dict):
        raise ConfigError("not a JSON object")
    return values


def field_from_json(name: str, value: object, expected: Any) -> Any:
    """Return a field's value, after conversion of what JSON writes differently: a float without decimals, and a tuple.

    Raises ConfigError if it has another type than the field.
    """
    if expected is float and type(value) is int and abs(value) < 2**53:
        return float(value)
    if get_origin(expected) is tuple:
        if type(value) is list:
            return tuple(field_from_json(name, item, get_args(expected)[0]) for item in value)
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
    """What a run learns besides the weights. Before it is known, each is 0 or empty; so for runs before format 4."""

    length_ratio: float = setting(0.0, range=(0, 1000))
    """Target tokens for each source token of the training pairs, on average"""
    length_spread: float = setting(0.0, range=(0, 1000))
    """Deviation of target lengths from that, which one in a hundred training pairs exceeds, divided by the square root
    of the source length"""
    unsure_below: float = setting(0.0, range=(-1000, 0))
    """Mean log-probability of a token, in nats, below which two in a hundred of the model's translations are"""
    usual_length: float = setting(0.0, range=(0, 10_000))
    """Tokens that one in a hundred sources of the training pairs exceeds; longer sentences are cut"""
    target_words: str = setting("")
    """The words of the targets in the training part, in lower case and separated by spaces (tapis/doubts.py)"""

    def __post_init__(self) -> None:
        for field in fields(self):
            low, high = field.metadata["facts"].range
            if (low, high) != (0, 0) and not low <= getattr(self, field.name) <= high:
                raise ConfigError(f"{field.name} is {getattr(self, field.name)}; it must be from {low} to {high}")

    def longest_whole(self, max_length: int) -> int:
        """Return the number of tokens above which a sentence is cut, at most max_length."""
        if not self.usual_length:
            return max_length
        return min(max_length, max(ALWAYS_WHOLE, int(self.usual_length)))  # a model is good at lengths that it has seen

    @cached_property
    def known_words(self) -> frozenset[str]:
        """The words of `target_words`."""
        return frozenset(self.target_words.split())

    def to_json(self) -> str:
        """Return all fields as an indented JSON object."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Learned":
        """Return the inverse of `to_json`. Reads config.json of format 4, too, which had these fields among others.

        Raises ConfigError if a field is ill-typed or out of range.
        """
        values = json_object(text)
        found = [field for field in fields(cls) if field.name in values]
        return cls(**{field.name: field_from_json(field.name, values[field.name], field.type) for field in found})


def can_be_part_of_file_name(text: str) -> bool:
    """Return whether every system takes a text as a part of the name of a file."""
    return text not in (".", "..") and not any(c in r'/\:*?"<>|`' or not c.isprintable() for c in text)
