"""The configuration of a training run: the frozen, validated `Config`, its presets and its JSON.

Each preset is a `Config`. On the command line, each field is a flag of the same name (training/cli.py).
"""

import dataclasses
import json
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal, get_args

from tapis.config import (
    FORMAT,
    ConfigError,
    DeviceName,
    Learned,
    ModelConfig,
    Precision,
    can_be_part_of_file_name,
    check_names,
    facts_of,
    read_config_json,
    setting,
)

TAUGHT = 0.8  # share of the teachers' probabilities in the target of a token

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


MIN_WEIGHT = 0.001  # of a source, and one over its largest


# The settings by kind. Each kind is a group of flags in train.py --help, under its docstring.


@dataclass(frozen=True)
class DataSettings:
    """Where the pairs are from, and how they are cleaned, split and cut into tokens."""

    data: tuple[str, ...] = ("Helsinki-NLP/opus_books",)
    """One or more sources of pairs, each of them demo, a hub id, a folder (hub layout or train/valid/test.<language>),
    the common start of two files (NAME for NAME.en and NAME.fr), or a spreadsheet, .jsonl, .parquet, .tmx or OPUS .zip
    file"""
    data_weights: tuple[float, ...] = setting((), since=2, before=())
    """One weight for each source of --data: with 2, an epoch has each of its pairs twice, with 0.5 half of them; by
    default 1"""
    columns: tuple[str, ...] = setting((), since=2, before=())
    """The columns of the source and the target side in tables: two numbers from 1, or two names of the header"""
    monolingual: tuple[str, ...] = setting((), init_from="fresh", since=3, before=())
    """Files of sentences in a language to translate into, one per line, named by it: NEWS.fr. They are translated
    back during the run, and learned from as targets"""
    monolingual_weight: float = setting(1.0, range=(MIN_WEIGHT, 1 / MIN_WEIGHT), init_from="fresh", since=3, before=1.0)
    """Weight of each sentence of --monolingual, as in --data-weights"""
    back_translator: str = setting("", init_from="fresh", since=3, before="")
    """The run that translates --monolingual, once, before the first step; by default the model itself does it twice"""
    temperature: float = setting(1.0, range=(1.0, 100.0), since=2, before=1.0)
    """Balance of the language pairs in an epoch: the share of each is proportional to its size to the power of
    1/temperature; 1 is natural"""
    valid_share: float = setting(0.02, range=(0.0, 0.5))
    """Share of the pairs used for validation if the data has no validation part; some 5,000 pairs at most"""
    test_share: float = setting(0.02, range=(0.0, 0.5))
    """Share of the pairs used for testing if the data has no test part; some 5,000 pairs at most"""
    skip_rules: tuple[RuleName, ...] = ()
    """Cleaning rules to skip"""
    # Every vocabulary has the 4 special tokens and the 256 bytes.
    vocab_size: int = setting(16_000, range=(260, 1_000_000), init_from="fixed")
    """Maximum size of the subword vocabulary that both languages share"""


@dataclass(frozen=True)
class TrainingSettings:
    """How it learns."""

    init_from: str = setting("", since=2, before="")
    """Start from the weights and the tokenizer of another run: its name, folder, release archive, or hub id"""
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
    terms: float = setting(0.0, range=(0.0, 0.9), since=8, before=0.0)
    """Share of the training sources in which one to three terms give way to their translations: the model learns to
    obey a --glossary of translate.py, and to inflect its terms"""
    # At most half of the steps: --minutes settles their number half-way.
    self_distillation: float = setting(0.0, range=(0.0, 0.5))
    """Share of the steps, at the end, that train on the model's own translations closest to the references"""
    teacher: tuple[str, ...] = setting((), init_from="fresh", since=7, before=())
    """Runs that teach this one: at each step, the probabilities that they give to each token are most of the target.
    Where one has another vocabulary, their translations closest to the references are the targets instead"""
    least_bleu: float = setting(30.0, range=(0.0, 100.0), init_from="fresh", since=6, before=0.0)
    """BLEU of translating validation pairs below which a run learns neither from its own translations nor from those of
    --teacher or --monolingual; 0 to learn from any"""
    drop_unrelated: bool = setting(False, since=7, before=False)
    """Drop training pairs whose source says nothing about the target, as the model judges after a fifth of the steps"""
    dropout: float = setting(0.1, range=(0.0, 0.9))
    """Probability of dropping an activation during training"""
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
    """Name of the run's folders in weights/ and runs/; by default PRESET-SOURCE-TARGET or, of --data without a preset,
    DATA-SOURCE-TARGET, with all pairs if there are several"""
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
class Config(RunSettings, TrainingSettings, DataSettings, ModelConfig):
    """What was asked of a run: what the model is, and the settings of its training.

    What a run settles itself is in `training.resolved.Resolved`, and what it learns besides the weights in `Learned`.
    Only this is settled here before the first step: a name and sizes that nobody named, `plain` where an edit of
    model.py needs it, no self-distillation where --minutes has no time for it, and what differs in a teacher and its
    student where it has time for both (training/two_runs.py).
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := set(self.skip_rules) - set(get_args(RuleName)):
            unknown_names = ", ".join(map(repr, sorted(unknown)))
            raise ConfigError(f"--skip-rules has no {unknown_names}; there are {', '.join(get_args(RuleName))}")
        if not can_be_part_of_file_name(self.name):
            raise ConfigError(f"--name {self.name!r} cannot be part of a file name")

        # Fields that depend on each other
        self._check_data()
        self._check_data_of_pairs()
        self._check_monolingual()
        if len(set(self.teacher)) != len(self.teacher) or not all(self.teacher):
            raise ConfigError(f"--teacher {' '.join(self.teacher)}: name each run once")
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

    def _check_data_of_pairs(self) -> None:
        """Raise ConfigError if the sources of data do not fit the language pairs."""
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
        if self.back_translator and not self.monolingual:
            raise ConfigError("--back-translator is for --monolingual, which names no file")
        if len(self.monolingual) > MAX_FILES:
            raise ConfigError(f"--monolingual names {len(self.monolingual):,} files; it may name {MAX_FILES}")
        if len(set(self.monolingual)) != len(self.monolingual):
            raise ConfigError(f"--monolingual {' '.join(self.monolingual)}: name each file once")
        targets = {target for _, target in self.directions}
        back_sources = self._back_sources()
        for file in self.monolingual:
            language = _language_of(file)
            if language not in targets:
                known = ", ".join(sorted(targets))
                raise ConfigError(
                    f"--monolingual {file}: its name must end in a language that the model translates into, {known}"
                )
            if language not in back_sources:
                learn = "" if self.init_from else "let it learn that, with --pairs, or "
                raise ConfigError(
                    f"--monolingual {file}: the model does not translate from {language}; "
                    f"{learn}name a run that does, with --back-translator"
                )

    def _back_sources(self) -> dict[str, list[str]]:
        """Return, by target language, the languages that text in it can be translated back into.

        The model itself must translate in that direction, or --back-translator does.
        """
        known = set(self.directions)
        sources: dict[str, list[str]] = {}
        for source, target in self.directions:
            if self.back_translator or (target, source) in known:
                sources.setdefault(target, []).append(source)
        return sources

    @property
    def monolingual_directions(self) -> list[tuple[str, tuple[str, str]]]:
        """Each file of --monolingual, with a language pair that has it as targets; some of them several times."""
        back_sources = self._back_sources()
        languages = [_language_of(file) for file in self.monolingual]
        return [
            (file, (source, target))
            for file, target in zip(self.monolingual, languages, strict=True)
            for source in back_sources.get(target, [])
        ]

    def to_json(self) -> str:
        """Return all fields and the number of the format, as an indented JSON object."""
        return json.dumps({"format": FORMAT, "pairs": self.pairs, **dataclasses.asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Config":
        """Return the inverse of `to_json`, for this format and all before it.

        Raises ConfigError if the format is newer, or if a field is unknown, missing, ill-typed or out of range.
        """
        values = read_config_json(text)
        format_number = values["format"]
        if format_number < 2 and isinstance(values.get("data"), str):
            values["data"] = [values["data"]]  # one source, then
        if format_number < 5:
            for field in fields(Learned):
                values.pop(field.name, None)  # `Learned.from_json` reads them
        later = {name for name, facts in FACTS.items() if format_number < facts.since}
        check_names((values.keys() ^ FACTS.keys()) - {"format"} - later)
        return cls._from_values(values)


def _language_of(file: str) -> str:
    """Return the language that the name of a file of --monolingual ends in; empty if there is none."""
    match = re.search(r"\.([A-Za-z0-9_-]+)(\.(gz|xz|zst))?$", file)
    return match[1] if match else ""


FACTS = facts_of(Config)

MAX_FILES = 1000  # of --monolingual


PROJECT_WEIGHTS = [Path(__file__).resolve().parent / "weights"]  # where runs are searched by name, after ./weights
HOW_TO_GET_A_RUN = "none is trained yet; type first: python train.py demo"

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
    # 1.3 million tokens/s on an H100 (docs/performance.md). Never trained to its end.
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
