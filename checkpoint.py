"""The files in a run's folder. tapis/release.py reads those of a model, and this module adds what training writes.

    weights/<name>/
        config.json  tokenizer.json     written when the run starts: what was asked, and the vocabulary
        model.safetensors               the best weights by validation; translating needs it and the two above
        learned.json                    how long translations are, their words, what the model is unsure of; optional
        metrics.json                    scores, data report, hardware, seconds, versions
        history.csv                     a row for each validation
        training/state.safetensors      last weights, optimizer state, position; only for resuming
        training/made_here              a sign that this machine made the run from the data in config.json
        training/lock                   held by the process that trains the run

Every file is written atomically, so that a kill leaves either the old or the new version. Loading never executes code:
the formats are safetensors and JSON. Loading checks everything first: model.safetensors contains digests of its weights
and of tokenizer.json, and the config fields in `MODEL_FIELDS`; state.safetensors one of itself.
"""

import contextlib
import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import filelock
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from config import BUILT_IN, HOW_TO_GET_A_RUN, PROJECT_WEIGHTS, Config
from fast.replaced import edited_parts
from machine.distributed import part_like
from machine.state_file import read_state, write_state
from model import Transformer
from tapis.config import ConfigError, Learned
from tapis.release import MODEL_FIELDS, CheckpointError, RunFiles, weights_digest
from tapis.system.cli import is_out_of_memory
from tapis.system.files import digest, machine_secret, read_bounded, write_text, write_whole
from tapis.system.hub import SUMS
from tapis.system.terminal import in_one_line
from tapis.text.tokenizer import Tokenizer

RUNS = Path("runs")  # the logs of runs, beside WEIGHTS


def parameters(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights by name, detached. A tied matrix appears once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def check_fit(model: nn.Module, shapes: dict[str, torch.Size], source: str) -> None:
    """Raise CheckpointError if weights with these names and shapes do not fit the model. source names their file."""
    if shapes != {name: parameter.shape for name, parameter in parameters(model).items()}:
        raise CheckpointError(
            f"{source} does not fit config.json and tokenizer.json: the folder mixes the files of two runs"
        )


def load_parameters(model: nn.Module, weights: dict[str, Tensor], source: str) -> None:
    """Copy weights into the model. Raises CheckpointError if they do not fit it. source names their file."""
    check_fit(model, {name: weight.shape for name, weight in weights.items()}, source)
    for name, parameter in parameters(model).items():
        parameter.copy_(part_like(parameter, weights[name]))


class _SkipInitialization(TorchFunctionMode):
    """While active, new layers leave their weights uninitialized, since the weights of a file replace them.

    On the device "meta" this also saves an import: there, torch.nn.init would import torch's compiler, which takes as
    long as importing torch.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def recorded_names(config: Config) -> dict[str, str]:
    """Return the files and hub ids that a config records, as flags and values for a shell; not the built-in corpus."""
    recorded = {
        "--data": shlex.join(name for name in config.data if name != BUILT_IN),
        "--monolingual": shlex.join(config.monolingual),
        "--back-translator": shlex.join(filter(None, [config.back_translator])),
        "--teacher": shlex.join(config.teacher),
    }
    return {name: value for name, value in recorded.items() if value}


def _sign_of(config: Config) -> str:
    return digest(machine_secret(), json.dumps(recorded_names(config)))


class RunFolder(RunFiles[Config]):
    """The folder of a run, weights/<name> or any other path; it need not exist yet."""

    config_type = Config
    more_weights = PROJECT_WEIGHTS
    where_from = HOW_TO_GET_A_RUN

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.history_file = path / "history.csv"
        self.state_file = path / "training" / "state.safetensors"
        self.lock_file = path / "training" / "lock"
        self.sign_file = path / "training" / "made_here"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder for the process that trains the run. The system releases the lock of a killed process.

        Removes temporary files that a killed run left and, at the end, the folder itself if it holds no run.
        Raises CheckpointError if another process holds the lock.
        """
        training = self.lock_file.parent
        if training.is_symlink():
            raise CheckpointError(f"{training} is a symbolic link; Tapis writes only inside the folder of a run")
        training.mkdir(parents=True, exist_ok=True)

        lock = filelock.FileLock(self.lock_file, timeout=0)
        try:
            lock.acquire()
        except filelock.Timeout:
            raise CheckpointError(
                f"another process writes to {self.path}\nwait until it ends, or choose another --name"
            ) from None

        try:
            for file in (self.config_file, self.tokenizer_file, self.sign_file, *self._later_files()):
                for temporary in file.parent.glob(f".{file.name}.*"):  # left by a killed run
                    temporary.unlink()
            for temporary in training.glob(".tmp*"):  # of safetensors, which writes beside the path that it is given
                temporary.unlink()
            yield
        finally:
            lock.release()
            is_empty = not self.config_file.exists()
            if is_empty:
                self.lock_file.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # a folder that has other files stays
                    for folder in (training, self.path, self.path.parent):
                        folder.rmdir()

    def _later_files(self) -> tuple[Path, ...]:
        """Return those that a run writes after it has begun."""
        return self.model_file, self.state_file, self.metrics_file, self.history_file, self.learned_file

    def start(self, config: Config, tokenizer: Tokenizer) -> None:
        """Start a run: remove the files of an earlier run, and write the config and the tokenizer."""
        for file in (*self._later_files(), self.tokenizer_file):
            file.unlink(missing_ok=True)
        self.save_config(config)
        write_text(self.tokenizer_file, tokenizer.to_json())

    def sign(self, config: Config) -> None:
        """Record that this machine trains the run from the data that the config names."""
        write_text(self.sign_file, _sign_of(config))

    def check_made_here(self, unnamed: dict[str, str]) -> None:
        """Raise ConfigError unless `sign` was called on this machine for the data in config.json.

        unnamed has the recorded names that would be read and are not on the command line, as `recorded_names` does. A
        stranger's config must not choose the files and addresses that this machine reads.
        """
        with contextlib.suppress(OSError, UnicodeDecodeError):  # no sign is one of another machine
            if read_bounded(self.sign_file, 1000) == _sign_of(self.load_config()):
                return
        flags = " ".join(f"{name} {value}" for name, value in unnamed.items())
        raise ConfigError(
            f"{self.path} was not made on this machine, and records files or ids of its own\n"
            f"if they may be read, name them: {flags}"
        )

    def save_config(self, config: Config) -> None:
        """Write config.json. Checksums of the files before are of no use from then on."""
        (self.path / SUMS).unlink(missing_ok=True)
        write_text(self.config_file, config.to_json())

    def save_learned(self, learned: Learned) -> None:
        """Write learned.json."""
        write_text(self.learned_file, learned.to_json())

    def save_model(self, weights: dict[str, Tensor], nonstandard_part: str = "") -> None:
        """Write the best weights so far, with the notes by which `load_model` checks them and the other files.

        nonstandard_part is what `decoding.standard.nonstandard_part` returns for their model.

        Raises CheckpointError, and keeps those before, if they are not finite.
        """
        if not all(bool(weight.isfinite().all()) for weight in weights.values()):
            raise CheckpointError(
                f"the model's weights are no numbers any more; {self.model_file} keeps the best ones before\n"
                "train again, with a smaller --lr"
            )
        on_cpu = {name: weight.contiguous().cpu() for name, weight in weights.items()}
        config = self.load_config()
        notes = {
            "weights": weights_digest({name: weight.view(torch.uint8).numpy() for name, weight in on_cpu.items()}),
            "tokenizer": digest(self.read(self.tokenizer_file)),
            "nonstandard_part": nonstandard_part,
            **{name: str(getattr(config, name)) for name in MODEL_FIELDS},
        }
        content = safetensors.torch.save(on_cpu, {"tapis": json.dumps(notes)})
        write_whole(self.model_file, lambda path: path.write_bytes(content))

    def load_model(self, device: torch.device) -> tuple[Config, Tokenizer, Transformer]:
        """Load the config, the tokenizer, and the best model, in evaluation mode on the device.

        Raises what `load_weights` raises.
        """
        config, tokenizer, weights = self.load_weights()
        with _SkipInitialization():
            model = Transformer(len(tokenizer), config)
        load_parameters(
            model, {name: torch.from_numpy(weight) for name, weight in weights.items()}, str(self.model_file)
        )
        return config, tokenizer, model.to(device).eval()

    def check_shapes(self, shapes: dict[str, tuple[int, ...]], config: Config, tokenizer: Tokenizer) -> None:
        """Ask the model of model.py. On "meta" it takes no memory, however large the sizes in config.json are."""
        # The table of positions takes memory even on "meta", and is not a weight, unless model.py was edited.
        positions = config.max_length if edited_parts() else 2
        with torch.device("meta"), _SkipInitialization():
            empty = Transformer(len(tokenizer), replace(config, max_length=positions))
        check_fit(empty, {name: torch.Size(shape) for name, shape in shapes.items()}, str(self.model_file))

    def save_metrics(self, metrics: dict[str, Any]) -> None:
        """Write metrics.json."""
        text = json.dumps(metrics, indent=2, ensure_ascii=False) + "\n"
        write_text(self.metrics_file, text)

    def load_metrics(self) -> dict[str, Any]:
        """Read metrics.json; empty if it is missing or damaged, since translating does not need it."""
        metrics: Any = {}
        with contextlib.suppress(ValueError, RecursionError, CheckpointError):
            metrics = json.loads(self.read(self.metrics_file))
        return metrics if isinstance(metrics, dict) else {}

    def save_state(self, state: dict[str, Any]) -> None:
        """Write the training state, of what `machine.state_file.write_state` takes."""
        write_whole(self.state_file, lambda path: write_state(path, state))

    def load_state(self) -> dict[str, Any]:
        """Read the training state, with its tensors on the CPU. Raises CheckpointError if it is missing or damaged.

        Raises OSError or MemoryError if the system cannot read it.
        """
        if not self.state_file.is_file():
            advice = "start again with --overwrite"
            if self.model_file.is_file():
                advice += f", or from the best weights with --init-from {shlex.quote(self.path.name)} --name OTHER"
            raise CheckpointError(f"{self.state_file} is missing: there is nothing to resume\n{advice}")
        try:
            return read_state(self.state_file)
        except Exception as error:  # safetensors, json and torch raise different types
            if is_out_of_memory(error) or (isinstance(error, OSError) and error.errno):
                raise
            raise CheckpointError(
                f"{self.state_file} is damaged ({in_one_line(error)})\n"
                "the best model can still translate; to train, start again with --overwrite"
            ) from None
