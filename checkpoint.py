"""What the folder of a run holds, and the only place that knows it.

    weights/<name>/
        config.json  tokenizer.json     written when the training starts
        model.safetensors               the best weights by validation; with the two above, what translates
        metrics.json                    scores, data report, hardware, seconds, versions
        training/state.pt               last weights, optimizer, position: only for resuming

Every file is written under a temporary name and then moved over its own, so that a kill leaves the old one or the new
one. Nothing that is loaded can execute: safetensors, JSON, and `torch.load` with weights_only.
"""

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from config import Config, ConfigError, TapisError
from model import Transformer
from store import write_whole
from tokenizer import Tokenizer

WEIGHTS = Path("weights")  # in the folder where the command is typed, like runs/
RUNS = Path("runs")


class CheckpointError(TapisError):
    """A run folder is missing, incomplete or damaged, and what to do about it."""


def parameters(model: nn.Module) -> dict[str, Tensor]:
    """The weights by name, a tied matrix once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def load_parameters(model: nn.Module, weights: dict[str, Tensor], whence: str) -> None:
    """Copies weights into the model. Raises CheckpointError where their names or shapes are not the model's."""
    own = parameters(model)
    if own.keys() != weights.keys() or any(own[name].shape != weights[name].shape for name in own):
        raise CheckpointError(f"{whence} does not fit its config.json and tokenizer.json: files of two runs were mixed")
    for name, parameter in own.items():
        parameter.copy_(weights[name])


class RunFolder:
    """weights/<name>, or the folder of that path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.json"
        self.tokenizer_file = path / "tokenizer.json"
        self.model_file = path / "model.safetensors"
        self.metrics_file = path / "metrics.json"
        self.state_file = path / "training" / "state.pt"

    @classmethod
    def find(cls, name: str) -> "RunFolder":
        """A run by name or by folder; with no name, the one that saved a model last."""
        runs = sorted(WEIGHTS.glob("*/model.safetensors"), key=lambda path: path.stat().st_mtime)
        if not name:
            if not runs:
                raise CheckpointError(f"no trained model in {WEIGHTS}/\ntype first: python train.py demo")
            return cls(runs[-1].parent)
        for path in (WEIGHTS / name, Path(name)):
            if (path / "config.json").is_file():
                return cls(path)
        there = ", ".join(run.parent.name for run in runs) or "none yet; type first: python train.py demo"
        raise CheckpointError(f"no run {name!r}, neither in {WEIGHTS}/ nor as a folder\nruns in {WEIGHTS}/: {there}")

    def start(self, config: Config, tokenizer: Tokenizer) -> None:
        """Begins a run: nothing of an earlier one of the same name stays."""
        if self.path.exists():
            shutil.rmtree(self.path)
        self.save_config(config)
        write_whole(self.tokenizer_file, lambda path: path.write_text(tokenizer.to_json(), encoding="utf-8"))

    def save_config(self, config: Config) -> None:
        write_whole(self.config_file, lambda path: path.write_text(config.to_json(), encoding="utf-8"))

    def load_config(self) -> Config:
        try:
            return Config.from_json(self.config_file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ConfigError) as error:
            raise CheckpointError(f"{self.config_file} cannot be used: {error}") from None

    def load_tokenizer(self) -> Tokenizer:
        if not self.tokenizer_file.is_file():
            raise CheckpointError(f"{self.tokenizer_file} is missing: the run is incomplete, train it again")
        return Tokenizer.load(self.tokenizer_file)

    def save_model(self, weights: dict[str, Tensor]) -> None:
        """The best weights so far."""
        held = {name: weight.contiguous().cpu() for name, weight in weights.items()}
        write_whole(self.model_file, lambda path: safetensors.torch.save_file(held, path))

    def load_model(self, device: torch.device) -> tuple[Config, Tokenizer, Transformer]:
        """What translating needs, the model in evaluation mode on the device."""
        config, tokenizer = self.load_config(), self.load_tokenizer()
        if not self.model_file.is_file():
            raise CheckpointError(
                f"{self.path} has no model yet: its training did not reach its first validation\n"
                f"go on with: python train.py --resume --name {self.path.name}"
            )
        try:
            weights = safetensors.torch.load_file(self.model_file)
        except (OSError, safetensors.SafetensorError) as error:
            raise CheckpointError(f"{self.model_file} is damaged ({error}): copy it again, or train again") from None
        model = Transformer(len(tokenizer), config)
        load_parameters(model, weights, str(self.model_file))
        return config, tokenizer, model.to(device).eval()

    def save_metrics(self, metrics: dict[str, Any]) -> None:
        text = json.dumps(metrics, indent=2, ensure_ascii=False) + "\n"
        write_whole(self.metrics_file, lambda path: path.write_text(text, encoding="utf-8"))

    def load_metrics(self) -> dict[str, Any]:
        metrics: dict[str, Any] = {}
        if self.metrics_file.is_file():
            with contextlib.suppress(ValueError):
                metrics = json.loads(self.metrics_file.read_text(encoding="utf-8"))
        return metrics

    def save_state(self, state: dict[str, Any]) -> None:
        """Tensors, numbers and strings in dicts and lists: what weights_only can load again."""
        write_whole(self.state_file, lambda path: torch.save(state, path))

    def load_state(self) -> dict[str, Any]:
        if not self.state_file.is_file():
            raise CheckpointError(
                f"{self.state_file} is missing, so there is nothing to resume\nstart afresh, with --overwrite"
            )
        try:
            state: dict[str, Any] = torch.load(self.state_file, map_location="cpu", weights_only=True)
        except Exception as error:  # pickle, zip and torch each raise their own
            reason = str(error).splitlines()[0]
            raise CheckpointError(
                f"{self.state_file} is damaged ({reason})\nthe best model still translates; to train, start afresh"
            ) from None
        return state
