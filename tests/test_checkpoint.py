"""What a run folder gives back, what it refuses, and that it is never half-written."""

import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from checkpoint import CheckpointError, RunFolder, parameters
from config import Config, TapisError
from model import Transformer
from store import write_whole
from tokenizer import Tokenizer

CPU = torch.device("cpu")


def test_what_is_saved_is_what_is_loaded(run_folder: RunFolder, model: Transformer, tiny: Config) -> None:
    config, tokenizer, loaded = RunFolder.find("tiny").load_model(CPU)
    assert config == tiny
    assert tokenizer.encode(["The cat"]) == run_folder.load_tokenizer().encode(["The cat"])
    for name, parameter in parameters(model).items():
        assert torch.equal(parameters(loaded)[name], parameter)
    assert loaded.projection.linear.weight is loaded.src_embed.embedding.weight
    assert not loaded.training


def test_a_tied_matrix_is_saved_once(model: Transformer) -> None:
    assert "projection.linear.weight" not in parameters(model)
    assert sum(w.numel() for w in parameters(model).values()) == sum(p.numel() for p in model.parameters())


def test_the_release_is_the_folder_without_training(run_folder: RunFolder) -> None:
    run_folder.save_metrics({"best": 1})
    run_folder.save_state({"step": 1})
    names = {path.name for path in run_folder.path.iterdir()}
    assert names == {"config.json", "tokenizer.json", "model.safetensors", "metrics.json", "training"}
    assert [path.name for path in (run_folder.path / "training").iterdir()] == ["state.pt"]


def test_runs_are_found_by_name_folder_or_time(run_folder: RunFolder, tiny: Config, tokenizer: Tokenizer) -> None:
    later = RunFolder(Path("weights/later"))
    later.start(replace(tiny, name="later"), tokenizer)
    later.save_model({"x": torch.zeros(1)})
    os.utime(run_folder.model_file, (1, 1))
    assert RunFolder.find("").path.name == "later"
    os.utime(later.model_file, (0, 0))
    assert RunFolder.find("").path.name == "tiny"
    assert RunFolder.find(str(later.path)).path == later.path
    with pytest.raises(CheckpointError, match=r"no run 'other'.*\n.*later, tiny"):
        RunFolder.find("other")


def test_without_any_run_the_way_to_one_is_named() -> None:
    with pytest.raises(CheckpointError, match=r"python train\.py demo"):
        RunFolder.find("")


def test_a_run_before_its_first_validation_says_so(tiny: Config, tokenizer: Tokenizer) -> None:
    RunFolder(Path("weights/tiny")).start(tiny, tokenizer)
    with pytest.raises(CheckpointError, match="--resume --name tiny"):
        RunFolder.find("tiny").load_model(CPU)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
@pytest.mark.parametrize("damage", ["cut", "empty", "noise", "pickle"])
def test_a_damaged_file_is_named(run_folder: RunFolder, name: str, damage: str) -> None:
    path = run_folder.path / name
    whole = path.read_bytes()
    bomb = pickle.dumps(_Bomb())
    path.write_bytes({"cut": whole[: len(whole) // 2], "empty": b"", "noise": os.urandom(500), "pickle": bomb}[damage])
    with pytest.raises(TapisError, match=name.replace(".", r"\.")):
        run_folder.load_model(CPU)
    assert not Path("exploded").exists()


class _Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("exploded",)


def test_a_training_state_cannot_execute(run_folder: RunFolder) -> None:
    run_folder.state_file.parent.mkdir()
    run_folder.state_file.write_bytes(pickle.dumps(_Bomb()))
    with pytest.raises(CheckpointError, match=r"state\.pt is damaged"):
        run_folder.load_state()
    assert not Path("exploded").exists()


def test_weights_of_another_model_are_refused(run_folder: RunFolder, tiny: Config) -> None:
    run_folder.save_model(parameters(Transformer(300, replace(tiny, d_model=32))))
    with pytest.raises(CheckpointError, match="does not fit"):
        run_folder.load_model(CPU)


def test_a_failed_write_leaves_the_old_file_and_no_other(run_folder: RunFolder) -> None:
    before = {path: path.read_bytes() for path in run_folder.path.iterdir()}
    with pytest.raises(TypeError):
        run_folder.save_metrics({"not JSON": object()})
    with pytest.raises(AttributeError):
        run_folder.save_model({"not": None})  # type: ignore[dict-item]

    def half(path: Path) -> None:
        path.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_whole(run_folder.model_file, half)
    assert {path: path.read_bytes() for path in run_folder.path.iterdir()} == before


def test_starting_afresh_leaves_nothing_of_before(run_folder: RunFolder, tiny: Config, tokenizer: Tokenizer) -> None:
    run_folder.save_state({"step": 5})
    run_folder.start(tiny, tokenizer)
    assert {path.name for path in run_folder.path.iterdir()} == {"config.json", "tokenizer.json"}
