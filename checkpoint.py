"""The files in a run's folder; no other module knows them.

    weights/<name>/
        config.json  tokenizer.json     written when the run starts: what was asked, and the vocabulary
        model.safetensors               the best weights by validation; translating needs it and the two above
        learned.json                    how long translations are, and what the model is unsure of; optional
        metrics.json                    scores, data report, hardware, seconds, versions
        training/state.pt               last weights, optimizer state, position; only for resuming
        training/made_here              a sign that this machine made the run from the data in config.json
        training/lock                   held by the process that trains the run

Every file is written atomically, so that a kill leaves either the old or the new version. Loading never executes code:
the formats are safetensors, JSON, and `torch.load` with weights_only. Loading checks everything first:
model.safetensors contains digests of its weights and of tokenizer.json, and the config fields in `MODEL_FIELDS`;
state.pt is a zip archive with a checksum for each part.
"""

import contextlib
import hashlib
import json
import pickle
import re
import shlex
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

from config import BUILT_IN, FACTS, Config, ConfigError, Learned, TapisError, pairs_as_before
from model import Transformer
from system.distributed import part_like
from system.files import check_regular, digest, machine_secret, read_bounded, write_text, write_whole
from system.hub import SUMS, check_sums, fetch
from system.pickle_check import check_pickle
from system.terminal import in_one_line, listed
from text.tokenizer import Tokenizer

WEIGHTS = Path("weights")  # runs are written here, in the current folder, and their logs to runs/
RUNS = Path("runs")
PROJECT_WEIGHTS = Path(__file__).resolve().parent / "weights"  # also searched, after WEIGHTS

# The config fields that determine what the weights mean. Loading fails if config.json differs from the saved model.
MODEL_FIELDS = tuple(name for name, facts in FACTS.items() if facts.defines_model)
# Enough for a million tokens
MAX_BYTES = {"config.json": 2**20, "learned.json": 2**20, "metrics.json": 2**24, "tokenizer.json": 2**27}


class CheckpointError(TapisError):
    """A run is missing, incomplete, damaged, or in use by another process."""


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


def weights_digest(weights: dict[str, Tensor]) -> str:
    """Return a hash of the names and contents of the weights; 1 GB takes half a second to a second."""
    total = hashlib.sha256()
    for name in sorted(weights):
        total.update(name.encode() + b":")
        total.update(weights[name].contiguous().view(torch.uint8).numpy().data)
    return total.hexdigest()


def weights_folders() -> list[Path]:
    """Return the folders in which runs are searched: ./weights, then the project's, if that is another folder."""
    if WEIGHTS.resolve() == PROJECT_WEIGHTS:
        return [WEIGHTS]
    return [WEIGHTS, PROJECT_WEIGHTS]


def recorded_names(config: Config) -> dict[str, str]:
    """Return the files and hub ids that a config records, as flags and values for a shell; not the built-in corpus."""
    recorded = {
        "--data": shlex.join(name for name in config.data if name != BUILT_IN),
        "--monolingual": shlex.join(config.monolingual),
        "--back-translator": shlex.join(filter(None, [config.back_translator])),
    }
    return {name: value for name, value in recorded.items() if value}


def _sign_of(config: Config) -> str:
    return digest(machine_secret(), json.dumps(recorded_names(config)))


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


class RunFolder:
    """The folder of a run, weights/<name> or any other path; it need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.json"
        self.tokenizer_file = path / "tokenizer.json"
        self.model_file = path / "model.safetensors"
        self.learned_file = path / "learned.json"
        self.metrics_file = path / "metrics.json"
        self.state_file = path / "training" / "state.pt"
        self.lock_file = path / "training" / "lock"
        self.sign_file = path / "training" / "made_here"

    @classmethod
    def trained(cls) -> list["RunFolder"]:
        """Return all runs with a model: those of ./weights, then those of the project's, the most recent first.

        The most recent run is the one whose model was saved last. A run of the project is left out if ./weights has one
        of the same name.
        """
        runs: dict[str, RunFolder] = {}
        for weights in weights_folders():
            files = filter(Path.is_file, weights.glob("*/model.safetensors"))
            models = sorted(files, key=lambda file: file.stat().st_mtime, reverse=True)
            for model in models:
                runs.setdefault(model.parent.name, cls(model.parent))
        return list(runs.values())

    @classmethod
    def find(cls, name: str) -> "RunFolder":
        """Find a run: by its name in ./weights, its path, its name in the project's weights/, its archive or hub id.

        An empty name finds the first of `trained`. Raises CheckpointError if there is no such run, and FetchError if an
        archive or a model on the hub cannot be fetched.
        """
        runs = cls.trained()
        searched = " or ".join(f"{weights}/" for weights in weights_folders())
        if not name:
            if not runs:
                raise CheckpointError(f"no trained model in {searched}\ntype first: python train.py demo")
            return runs[0]

        for path in (WEIGHTS / name, Path(name), PROJECT_WEIGHTS / name):
            if (path / "config.json").is_file():
                return cls(path)
        if fetched := fetch(name):
            return cls(fetched)

        names = listed((run.path.name for run in runs), 100)
        available = f"available runs: {names}" if runs else "none is trained yet; type first: python train.py demo"
        raise CheckpointError(f"no run {name!r} in {searched}, and no folder of that path\n{available}")

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
            for file in (self.config_file, self.tokenizer_file, *self._later_files()):
                for temporary in file.parent.glob(f".{file.name}.*"):  # left by a killed run
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
        return self.model_file, self.state_file, self.metrics_file, self.learned_file

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

    def read(self, file: Path) -> str:
        """Return the text of a JSON file of this folder.

        Raises CheckpointError if the file is missing, is not a regular file of UTF-8, or exceeds `MAX_BYTES`.
        """
        try:
            return read_bounded(file, MAX_BYTES[file.name])
        except (OSError, UnicodeDecodeError) as error:
            reason = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({in_one_line(error)})"
            raise CheckpointError(f"{file} {reason}: copy it again, or train again") from None

    def save_config(self, config: Config) -> None:
        """Write config.json. Checksums of the files before are of no use from then on."""
        (self.path / SUMS).unlink(missing_ok=True)
        write_text(self.config_file, config.to_json())

    def load_config(self) -> Config:
        """Read config.json. Raises CheckpointError if it is missing or invalid."""
        try:
            return Config.from_json(self.read(self.config_file))
        except ConfigError as error:
            raise CheckpointError(f"{self.config_file} cannot be used: {error}") from None

    def save_learned(self, learned: Learned) -> None:
        """Write learned.json."""
        write_text(self.learned_file, learned.to_json())

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

    def save_model(self, weights: dict[str, Tensor]) -> None:
        """Write the best weights so far, with the notes by which `load_model` checks them and the other files."""
        on_cpu = {name: weight.contiguous().cpu() for name, weight in weights.items()}
        config = self.load_config()
        notes = {
            "weights": weights_digest(on_cpu),
            "tokenizer": digest(self.read(self.tokenizer_file)),
            **{name: str(getattr(config, name)) for name in MODEL_FIELDS},
        }
        content = safetensors.torch.save(on_cpu, {"tapis": json.dumps(notes)})
        write_whole(self.model_file, lambda path: path.write_bytes(content))

    def load_model(self, device: torch.device) -> tuple[Config, Tokenizer, Transformer]:
        """Load the config, the tokenizer, and the best model, in evaluation mode on the device.

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
                f"continue it with: python train.py --resume --name {self.path.name}"
            )

        # Check the notes and the shapes before the weights are read. The model on "meta" takes no memory, however large
        # the sizes in config.json are.
        damaged = f"{self.model_file} is damaged, or not a model of Tapis"
        try:
            check_regular(self.model_file)
            with safetensors.safe_open(self.model_file, "pt") as file:
                notes = self.notes(file.metadata())
                self.check(config, tokenizer_text, notes)
                slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
                if others := {piece.get_dtype() for piece in slices.values()} - {"F32"}:
                    raise OSError(f"it has weights of type {min(others)}")
                shapes = {name: torch.Size(piece.get_shape()) for name, piece in slices.items()}
                with torch.device("meta"), _SkipInitialization():
                    empty = Transformer(len(tokenizer), replace(config, max_length=2))
                check_fit(empty, shapes, str(self.model_file))
                weights = {name: file.get_tensor(name) for name in shapes}
        except (OSError, RuntimeError, safetensors.SafetensorError) as error:
            raise CheckpointError(f"{damaged} ({in_one_line(error)}): copy it again, or train again") from None
        if weights_digest(weights) != notes["weights"]:
            raise CheckpointError(f"{damaged} (the weights differ from those saved): copy it again, or train again")
        if not all(bool(weight.isfinite().all()) for weight in weights.values()):
            raise CheckpointError(f"{damaged} (it has weights that are no numbers): train again, with a smaller --lr")

        # Build the model and fill it.
        with _SkipInitialization():
            model = Transformer(len(tokenizer), config)
        load_parameters(model, weights, str(self.model_file))
        return config, tokenizer, model.to(device).eval()

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

    def check(self, config: Config, tokenizer_text: str, notes: dict[str, str]) -> None:
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
        """Write the training state. It may contain tensors, numbers, strings, dicts and lists: see weights_only."""

        def write(path: Path) -> None:
            try:
                torch.save(state, path)
            except RuntimeError as error:  # torch raises it for a failed write and gives no reason
                raise OSError("the write failed; is the disk full?") from error

        write_whole(self.state_file, write)

    def load_state(self) -> dict[str, Any]:
        """Read the training state, with its tensors on the CPU. Raises CheckpointError if it is missing or damaged."""
        if not self.state_file.is_file():
            raise CheckpointError(
                f"{self.state_file} is missing: there is nothing to resume\nstart again with --overwrite"
            )
        try:
            with zipfile.ZipFile(self.state_file) as archive:
                if len(set(archive.namelist())) < len(archive.namelist()):
                    raise ValueError("it has a part twice")
                if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
                    raise ValueError("it is compressed, as no state of Tapis is")
                for part in archive.infolist():
                    if part.filename.endswith(".pkl"):
                        check_pickle(archive, part)
                damaged_part = archive.testzip()
            if damaged_part:
                raise ValueError(f"{damaged_part} does not match its checksum")
            state: dict[str, Any] = torch.load(self.state_file, map_location="cpu", weights_only=True)
            if not isinstance(state, dict):
                raise TypeError("it is no state of Tapis")
        except Exception as error:  # pickle, zipfile and torch raise different types
            reason = in_one_line(error)
            if isinstance(error, pickle.UnpicklingError):  # whose message advises to execute what the file says
                reason = "it has objects that no state of Tapis has"
            raise CheckpointError(
                f"{self.state_file} is damaged ({reason})\n"
                "the best model can still translate; to train, start again with --overwrite"
            ) from None
        return state
