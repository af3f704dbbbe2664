"""The files of a model that a user of it reads: `Release`, the folder of a run, of a release, or of the hub.

    config.json  tokenizer.json     what the model is, and its vocabulary
    model.safetensors               the weights, with digests of them and of tokenizer.json
    learned.json                    how long translations are, their words, what the model is unsure of; optional
    metrics.json                    scores, data report, hardware, seconds, versions; optional

Loading checks everything first, and never executes code: the formats are safetensors and JSON. checkpoint.py, at the
root of a checkout, adds what a run writes.
"""

import contextlib
import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import safetensors
from numpy.typing import NDArray

from tapis.config import ConfigError, Learned, ModelConfig, TapisError, facts_of, pairs_as_before
from tapis.engine.weights import Floats, check_shapes
from tapis.system.files import check_regular, check_stored, digest, read_bounded
from tapis.system.hub import check_sums, fetch
from tapis.system.terminal import in_one_line, listed
from tapis.text.tokenizer import Tokenizer

C = TypeVar("C", bound=ModelConfig)

WEIGHTS = Path("weights")  # runs are written here, in the current folder

# The config fields that determine what the weights mean. Loading fails if config.json differs from the saved model.
MODEL_FIELDS = tuple(name for name, facts in facts_of(ModelConfig).items() if facts.defines_model)
LARGEST_WEIGHT = 1e9  # what is computed from larger ones leaves the range of floats
# Enough for a million tokens and, with a source of data for each, for the pairs of 300 languages, but for the report on
# their data in metrics.json
MAX_BYTES = {"config.json": 2**24, "learned.json": 2**22, "metrics.json": 2**27, "tokenizer.json": 2**27}


class CheckpointError(TapisError):
    """A run is missing, incomplete, damaged, or in use by another process."""


def weights_digest(weights: Mapping[str, NDArray[Any]]) -> str:
    """Return a hash of the names and contents of the weights; 1 GB takes half a second to a second."""
    total = hashlib.sha256()
    for name in sorted(weights):
        total.update(name.encode() + b":")
        total.update(np.ascontiguousarray(weights[name]).data)
    return total.hexdigest()


def with_pairs(texts: dict[str, str]) -> dict[str, str]:
    """Return settings as texts, with `Config.pairs` in place of the four fields that formats before 5 had for it.

    Raises ConfigError if they name no pairs.
    """
    if "source" not in texts:
        return texts
    lists = {name: re.findall("'([^']*)'", texts.get(name, "")) for name in ("pairs", "languages")}
    pairs = pairs_as_before(texts["source"], texts.get("target", ""), **lists)
    languages = {"source", "target", "pairs", "languages"}
    return {name: text for name, text in texts.items() if name not in languages} | {"pairs": str(tuple(pairs))}


class RunFiles(Generic[C]):
    """The folder of a model: a run, weights/<name>, or any other path; it need not exist yet."""

    config_type: type[C]
    """What its config.json is read as"""
    more_weights: ClassVar[list[Path]] = []
    """Folders in which runs are searched by name, besides ./weights"""
    where_from: ClassVar[str] = "name one: --run, with a folder, the archive of a release, or an id on the hub"
    """What to do where there is no run"""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.json"
        self.tokenizer_file = path / "tokenizer.json"
        self.model_file = path / "model.safetensors"
        self.learned_file = path / "learned.json"
        self.metrics_file = path / "metrics.json"

    @classmethod
    def weights_folders(cls) -> list[Path]:
        """Return the folders in which runs are searched: ./weights, then `more_weights` that are others."""
        return [WEIGHTS, *(folder for folder in cls.more_weights if folder != WEIGHTS.resolve())]

    @classmethod
    def trained(cls) -> list[Self]:
        """Return all runs with a model: those of ./weights, then those of `more_weights`, the most recent first.

        The most recent run is the one whose model was saved last. A run of the others is left out if ./weights has
        one of the same name.
        """
        runs: dict[str, Self] = {}
        for weights in cls.weights_folders():
            files = filter(Path.is_file, weights.glob("*/model.safetensors"))
            models = sorted(files, key=lambda file: file.stat().st_mtime, reverse=True)
            for model in models:
                runs.setdefault(model.parent.name, cls(model.parent))
        return list(runs.values())

    @classmethod
    def find(cls, name: str) -> Self:
        """Find a run: by its name in ./weights, its path, its name in `more_weights`, its archive or hub id.

        An empty name finds the first of `trained`. Raises CheckpointError if there is no such run, and FetchError if an
        archive or a model on the hub cannot be fetched.
        """
        runs = cls.trained()
        searched = " or ".join(f"{weights}/" for weights in cls.weights_folders())
        if not name:
            if not runs:
                raise CheckpointError(f"no trained model in {searched}\n{cls.where_from}")
            return runs[0]

        try:
            for path in (WEIGHTS / name, Path(name), *(folder / name for folder in cls.more_weights)):
                if (path / "config.json").is_file():
                    return cls(path)
            if fetched := fetch(name):
                return cls(fetched)
        except OSError as error:  # an archive that may not be read, a name that is too long
            raise CheckpointError(f"no run {in_one_line(name)!r} can be read: {error.strerror or error}") from None

        names = listed((run.path.name for run in runs), 100)
        available = f"available runs: {names}" if runs else cls.where_from
        raise CheckpointError(f"no run {name!r} in {searched}, and no folder of that path\n{available}")

    def read(self, file: Path) -> str:
        """Return the text of a JSON file of this folder.

        Raises CheckpointError if the file is missing, is not a regular file of UTF-8, or exceeds `MAX_BYTES`.
        """
        try:
            return read_bounded(file, MAX_BYTES[file.name])
        except (OSError, UnicodeDecodeError) as error:
            reason = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({in_one_line(error)})"
            raise CheckpointError(f"{file} {reason}: copy it again, or train again") from None

    def load_config(self) -> C:
        """Read config.json. Raises CheckpointError if it is missing or invalid."""
        try:
            return self.config_type.from_json(self.read(self.config_file))
        except ConfigError as error:
            raise CheckpointError(f"{self.config_file} cannot be used: {error}") from None

    def load_learned(self) -> Learned:
        """Read learned.json, or config.json of an earlier format. Nothing is known where the file is missing.

        Raises CheckpointError if it is damaged.
        """
        file = self.learned_file if self.learned_file.exists() else self.config_file
        try:
            return Learned.from_json(self.read(file))
        except ConfigError as error:
            raise CheckpointError(f"{file} cannot be used: {error}") from None

    def load_tokenizer(self) -> Tokenizer:
        """Read tokenizer.json. Raises a TapisError if it is missing or invalid."""
        return Tokenizer.from_json(self.read(self.tokenizer_file), str(self.tokenizer_file))

    def load_weights(self) -> tuple[C, Tokenizer, dict[str, Floats]]:
        """Load the config, the tokenizer, and the weights by name, which a tied matrix has once.

        Raises CheckpointError if a file is missing or damaged, or if the files are not of the same run, and FetchError
        if the folder is a release and a file does not match its checksum.
        """
        check_sums(self.path)
        config = self.load_config()
        tokenizer_text = self.read(self.tokenizer_file)
        tokenizer = Tokenizer.from_json(tokenizer_text, str(self.tokenizer_file))
        if not tokenizer.has_tags_of(config.tagged_languages):
            raise CheckpointError(f"{self.tokenizer_file} has other languages than {self.config_file}: copy them again")
        if not self.model_file.exists():
            raise CheckpointError(
                f"{self.model_file} is missing: the run has not reached its first validation yet\n"
                f"continue it with: python train.py --resume --name {shlex.quote(self.path.name)}"
            )

        # Check the notes and the shapes before the weights are read.
        damaged = f"{self.model_file} is damaged, or not a model of Tapis"
        try:
            check_stored(self.model_file)
            with safetensors.safe_open(self.model_file, "np") as file:
                notes = self.notes(file.metadata())
                self.check(config, tokenizer_text, notes)
                slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
                if others := {piece.get_dtype() for piece in slices.values()} - {"F32"}:
                    raise OSError(f"it has weights of type {min(others)}")
                self.check_shapes({name: tuple(one.get_shape()) for name, one in slices.items()}, config, tokenizer)
                weights = {name: file.get_tensor(name) for name in slices}
        except (OSError, RuntimeError, safetensors.SafetensorError) as error:
            raise CheckpointError(f"{damaged} ({in_one_line(error)}): copy it again, or train again") from None
        if weights_digest(weights) != notes["weights"]:
            raise CheckpointError(f"{damaged} (the weights differ from those saved): copy it again, or train again")
        if not all(bool((np.abs(weight) < LARGEST_WEIGHT).all()) for weight in weights.values()):
            raise CheckpointError(
                f"{damaged} (it has weights that are no numbers, or as large as none are): "
                "train again, with a smaller --lr"
            )
        return config, tokenizer, weights

    def nonstandard_part(self) -> str | None:
        """Return the class or the weight in which the trained model differs from the paper's; "" if it does not differ.

        Return None if model.safetensors does not record it: the file is older, missing or damaged.
        """
        with contextlib.suppress(OSError, RuntimeError, safetensors.SafetensorError, CheckpointError):
            check_regular(self.model_file)
            with safetensors.safe_open(self.model_file, "np") as file:
                note = self.notes(file.metadata()).get("nonstandard_part")
                return None if note is None else in_one_line(note)
        return None

    def check_shapes(self, shapes: dict[str, tuple[int, ...]], config: C, tokenizer: Tokenizer) -> None:
        """Raise CheckpointError if weights of these names and shapes are not those of the config."""
        try:
            check_shapes(shapes, config, len(tokenizer))
        except ConfigError:
            raise CheckpointError(
                f"{self.model_file} does not fit config.json and tokenizer.json: the folder mixes the files of two runs"
            ) from None

    def notes(self, metadata: dict[str, str] | None) -> dict[str, str]:
        """Return the notes of `save_model` from the file's metadata. Raises CheckpointError if they are not there."""
        notes: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            notes = json.loads((metadata or {}).get("tapis", ""))
        if (
            not isinstance(notes, dict)
            or not notes.keys() >= {"weights", "tokenizer"}
            or not all(isinstance(note, str) for note in notes.values())
        ):
            raise CheckpointError(
                f"{self.model_file} was not written by Tapis, or by a version that is too old: train again"
            )
        return notes

    def check(self, config: C, tokenizer_text: str, notes: dict[str, str]) -> None:
        """Raise CheckpointError if config.json or tokenizer.json is not the one that the model was saved with."""
        with contextlib.suppress(ConfigError):
            notes = with_pairs(notes)
        for name in MODEL_FIELDS:
            value = str(getattr(config, name))
            if notes.get(name, value) != value:  # a file of an earlier format may lack one
                raise CheckpointError(
                    f"{self.config_file}: {name} is {in_one_line(value)}, but the model was trained with "
                    f"{in_one_line(notes[name])}: copy it again"
                )
        if notes["tokenizer"] != digest(tokenizer_text):
            raise CheckpointError(f"{self.tokenizer_file} is not the one the model was trained with: copy it again")


class Release(RunFiles[ModelConfig]):
    """The folder of a model, to translate with."""

    config_type = ModelConfig
