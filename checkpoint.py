"""What the folder of a run holds, and the only place that knows it.

    weights/<name>/
        config.json  tokenizer.json     written when the training starts
        model.safetensors               the best weights by validation; with the two above, what translates
        metrics.json                    scores, data report, hardware, seconds, versions
        training/state.pt               last weights, optimizer, position: only for resuming
        training/lock                   held by the training that writes here

Every file is written under a temporary name and then moved over its own, so that a kill leaves the old one or the new
one. Nothing that is loaded can execute: safetensors, JSON, and `torch.load` with weights_only. Nothing is believed
before it is checked: model.safetensors carries digests of its weights and of tokenizer.json, and the fields of
config.json that shape the model; state.pt is a zip archive, with a checksum of each of its parts.
"""

import contextlib
import hashlib
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import filelock
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from config import Config, ConfigError, TapisError
from model import Transformer
from system.files import digest, write_text, write_whole
from system.hub import SUMS, check_sums, fetched
from text.tokenizer import Tokenizer

WEIGHTS = Path("weights")  # in the folder where the command is typed, like runs/
RUNS = Path("runs")
# Fields of the config without which the weights mean nothing, or something else.
MEANING = (
    *("source", "target", "max_length", "d_model", "n_heads", "n_encoder_layers", "n_decoder_layers", "d_ff", "norm"),
    "tie_embeddings",
)
LARGEST = {"config.json": 2**20, "metrics.json": 2**24, "tokenizer.json": 2**29}  # bytes; of a vocabulary of a million


class CheckpointError(TapisError):
    """A run folder is missing, incomplete or damaged, and what to do about it."""


def parameters(model: nn.Module) -> dict[str, Tensor]:
    """The weights by name, a tied matrix once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def check_fit(model: nn.Module, shapes: dict[str, torch.Size], whence: str) -> None:
    """Raises CheckpointError where weights of these names and shapes are not the model's."""
    if shapes != {name: parameter.shape for name, parameter in parameters(model).items()}:
        raise CheckpointError(f"{whence} does not fit its config.json and tokenizer.json: files of two runs were mixed")


def load_parameters(model: nn.Module, weights: dict[str, Tensor], whence: str) -> None:
    """Copies weights into the model. Raises CheckpointError where their names or shapes are not the model's."""
    check_fit(model, {name: weight.shape for name, weight in weights.items()}, whence)
    for name, parameter in parameters(model).items():
        parameter.copy_(weights[name])


class _Blank(TorchFunctionMode):
    """While entered, new layers do not draw their weights, which are about to be read.

    On the device "meta", to draw them imports torch's compiler, which takes as long as to import torch.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", "") == "torch.nn.init":
            return kwargs["tensor"] if kwargs and "tensor" in kwargs else args[0]
        return func(*args, **(kwargs or {}))


def weights_digest(weights: dict[str, Tensor]) -> str:
    """A key of all their bytes, at one to two GB a second."""
    total = hashlib.sha256()
    for name in sorted(weights):
        total.update(name.encode() + b":")
        total.update(weights[name].contiguous().view(torch.uint8).numpy().data)
    return total.hexdigest()


class RunFolder:
    """weights/<name>, or the folder of that path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.json"
        self.tokenizer_file = path / "tokenizer.json"
        self.model_file = path / "model.safetensors"
        self.metrics_file = path / "metrics.json"
        self.state_file = path / "training" / "state.pt"
        self.lock_file = path / "training" / "lock"

    @classmethod
    def trained(cls) -> list["RunFolder"]:
        """The runs under weights/ that can translate, the one that saved a model last first."""
        models = sorted(WEIGHTS.glob("*/model.safetensors"), key=lambda path: -path.stat().st_mtime)
        return [cls(model.parent) for model in models]

    @classmethod
    def find(cls, name: str) -> "RunFolder":
        """A run by name or by folder, by a release's archive or hub id; with no name, the first of `trained`."""
        runs = cls.trained()
        if not name:
            if not runs:
                raise CheckpointError(f"no trained model in {WEIGHTS}/\ntype first: python train.py demo")
            return runs[0]
        for path in (WEIGHTS / name, Path(name)):
            if (path / "config.json").is_file():
                return cls(path)
        if elsewhere := fetched(name):
            return cls(elsewhere)
        there = ", ".join(run.path.name for run in runs) or "none yet; type first: python train.py demo"
        raise CheckpointError(f"no run {name!r}, neither in {WEIGHTS}/ nor as a folder\nruns in {WEIGHTS}/: {there}")

    @contextmanager
    def held(self) -> Iterator[None]:
        """For the one training that writes here. Raises CheckpointError where another does; a kill lets go."""
        training = self.lock_file.parent
        if training.is_symlink():
            raise CheckpointError(f"{training} is a link; nothing is written outside of the folder of a run")
        training.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(self.lock_file, timeout=0)
        try:
            lock.acquire()
        except filelock.Timeout:
            wait = "wait for its end, or choose another --name"
            raise CheckpointError(f"another training writes to {self.path}\n{wait}") from None
        try:
            for file in (self.config_file, self.tokenizer_file, self.model_file, self.metrics_file, self.state_file):
                for left in file.parent.glob(f".{file.name}.*"):  # half-written, by one that was killed
                    left.unlink()
            yield
        finally:
            lock.release()
            if not self.config_file.exists():  # it came to nothing
                self.lock_file.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # of one that is not empty
                    for folder in (training, self.path, self.path.parent):
                        folder.rmdir()

    def start(self, config: Config, tokenizer: Tokenizer) -> None:
        """Begins a run: nothing of an earlier one of the same name stays."""
        for file in (self.model_file, self.state_file, self.metrics_file, self.tokenizer_file, self.path / SUMS):
            file.unlink(missing_ok=True)
        self.save_config(config)
        write_text(self.tokenizer_file, tokenizer.to_json())

    def read(self, file: Path) -> str:
        """A text of this folder. Raises CheckpointError where it is missing, no text, or larger than it can be."""
        try:
            if (size := file.stat().st_size) > LARGEST[file.name]:
                raise CheckpointError(f"{file} has {size:,} bytes, too many for what it should be: copy it again")
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error})"
            raise CheckpointError(f"{file} {reason}: copy it again, or train again") from None

    def save_config(self, config: Config) -> None:
        write_text(self.config_file, config.to_json())

    def load_config(self) -> Config:
        try:
            return Config.from_json(self.read(self.config_file))
        except ConfigError as error:
            raise CheckpointError(f"{self.config_file} cannot be used: {error}") from None

    def load_tokenizer(self) -> Tokenizer:
        return Tokenizer.from_json(self.read(self.tokenizer_file), str(self.tokenizer_file))

    def save_model(self, weights: dict[str, Tensor]) -> None:
        """The best weights so far, with what `load_model` checks them and the files beside them by."""
        held = {name: weight.contiguous().cpu() for name, weight in weights.items()}
        config = self.load_config()
        notes = {
            "weights": weights_digest(held),
            "tokenizer": digest(self.read(self.tokenizer_file)),
            **{name: str(getattr(config, name)) for name in MEANING},
        }
        content = safetensors.torch.save(held, {"tapis": json.dumps(notes)})
        write_whole(self.model_file, lambda path: path.write_bytes(content))

    def load_model(self, device: torch.device) -> tuple[Config, Tokenizer, Transformer]:
        """What translating needs, the model in evaluation mode on the device."""
        check_sums(self.path)
        config, text = self.load_config(), self.read(self.tokenizer_file)
        tokenizer = Tokenizer.from_json(text, str(self.tokenizer_file))
        if not self.model_file.is_file():
            raise CheckpointError(
                f"{self.model_file} is missing: the training did not reach its first validation yet\n"
                f"go on with: python train.py --resume --name {self.path.name}"
            )
        damaged = f"{self.model_file} is damaged, or not of Tapis"
        try:
            with safetensors.safe_open(self.model_file, "pt") as file:
                notes = self.notes(file.metadata())
                shapes = {name: torch.Size(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
                self.check(config, text, notes)
                with torch.device("meta"), _Blank():  # without the memory that a config.json may ask for
                    check_fit(Transformer(len(tokenizer), replace(config, max_length=2)), shapes, str(self.model_file))
                weights = {name: file.get_tensor(name) for name in shapes}
        except (OSError, safetensors.SafetensorError) as error:
            raise CheckpointError(f"{damaged} ({error}): copy it again, or train again") from None
        if weights_digest(weights) != notes["weights"]:
            raise CheckpointError(f"{damaged} (its weights are not what was saved): copy it again, or train again")
        with _Blank():
            model = Transformer(len(tokenizer), config)
        load_parameters(model, weights, str(self.model_file))
        return config, tokenizer, model.to(device).eval()

    def notes(self, metadata: dict[str, str] | None) -> dict[str, str]:
        """What `save_model` wrote beside the weights."""
        notes = None
        with contextlib.suppress(ValueError, RecursionError):
            notes = json.loads((metadata or {}).get("tapis", ""))
        if not isinstance(notes, dict) or notes.keys() != {"weights", "tokenizer", *MEANING}:
            raise CheckpointError(f"{self.model_file} was not written by Tapis, or by another version: train again")
        return notes

    def check(self, config: Config, tokenizer: str, notes: dict[str, str]) -> None:
        """Raises CheckpointError where config.json or tokenizer.json, a text, is not what the model was saved with."""
        for name in MEANING:
            if notes[name] != str(getattr(config, name)):
                now = f"{name} is {getattr(config, name)}, and the model was trained with {notes[name]}"
                raise CheckpointError(f"{self.config_file}: {now}: copy it again")
        if notes["tokenizer"] != digest(tokenizer):
            raise CheckpointError(f"{self.tokenizer_file} is not the one the model was trained with: copy it again")

    def save_metrics(self, metrics: dict[str, Any]) -> None:
        text = json.dumps(metrics, indent=2, ensure_ascii=False) + "\n"
        write_text(self.metrics_file, text)

    def load_metrics(self) -> dict[str, Any]:
        with contextlib.suppress(ValueError, RecursionError, CheckpointError):  # nothing that a training needs
            return dict(json.loads(self.read(self.metrics_file)))
        return {}

    def save_state(self, state: dict[str, Any]) -> None:
        """Tensors, numbers and strings in dicts and lists: what weights_only can load again."""

        def write(path: Path) -> None:
            try:
                torch.save(state, path)
            except RuntimeError as error:  # torch's for a write that fails, without a reason
                raise OSError("not all of it fits; is its disk full?") from error

        write_whole(self.state_file, write)

    def load_state(self) -> dict[str, Any]:
        if not self.state_file.is_file():
            raise CheckpointError(
                f"{self.state_file} is missing, so there is nothing to resume\nstart afresh, with --overwrite"
            )
        try:
            with zipfile.ZipFile(self.state_file) as archive:
                if part := archive.testzip():
                    raise ValueError(f"{part} is not what was saved")
            state: dict[str, Any] = torch.load(self.state_file, map_location="cpu", weights_only=True)
        except Exception as error:  # pickle, zip and torch each raise their own
            reason = str(error).splitlines()[0]
            raise CheckpointError(
                f"{self.state_file} is damaged ({reason})\nthe best model still translates; to train, start afresh"
            ) from None
        return state
