"""What a run folder gives back, what it refuses, and that it is never half-written."""

import os
import pickle
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch

from checkpoint import MEANING, CheckpointError, RunFolder, parameters
from config import Config, TapisError
from model import Transformer
from system.files import write_whole
from text.corpus import Corpus
from text.tokenizer import Tokenizer

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
    with pytest.raises(CheckpointError, match=r"no run 'other'.*\n.*tiny, later"):
        RunFolder.find("other")


def test_without_any_run_the_way_to_one_is_named() -> None:
    with pytest.raises(CheckpointError, match=r"python train\.py demo"):
        RunFolder.find("")


def test_a_run_before_its_first_validation_says_so(tiny: Config, tokenizer: Tokenizer) -> None:
    RunFolder(Path("weights/tiny")).start(tiny, tokenizer)
    with pytest.raises(CheckpointError, match="--resume --name tiny"):
        RunFolder.find("tiny").load_model(CPU)


FILES = ["config.json", "tokenizer.json", "model.safetensors", "training/state.pt"]


def loaded(folder: RunFolder) -> list[object]:
    """All that a run folder gives, in what can be compared."""
    config, tokenizer, model = folder.load_model(CPU)
    state = folder.load_state()
    weights = [*parameters(model).values(), *state["model"].values()]
    return [*(getattr(config, name) for name in MEANING), tokenizer.to_json(), *(w.tolist() for w in weights)]


@pytest.fixture
def saved(run_folder: RunFolder, model: Transformer) -> RunFolder:
    run_folder.save_state({"step": 3, "model": parameters(model)})
    return run_folder


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["cut", "empty", "noise", "text", "pickle", "zeros", "huge", "folder", "gone"])
def test_a_damaged_file_is_named(saved: RunFolder, name: str, damage: str) -> None:
    path = saved.path / name
    whole = path.read_bytes()
    path.unlink()
    match damage:
        case "folder":
            path.mkdir()
        case "huge":
            with path.open("wb") as file:
                file.truncate(2**40)  # takes no room
        case "cut" | "empty" | "noise" | "text" | "pickle" | "zeros":
            to = {"cut": whole[: len(whole) // 2], "empty": b"", "noise": os.urandom(500), "text": b'{"a": 1}'}
            path.write_bytes({**to, "pickle": pickle.dumps(_Bomb()), "zeros": bytes(len(whole))}[damage])
    with pytest.raises(TapisError, match=re.escape(path.name)) as error:
        loaded(saved)
    assert len(str(error.value).splitlines()) <= 2 and len(str(error.value)) < 400
    assert not Path("exploded").exists()


@pytest.mark.parametrize("name", FILES)
def test_no_flipped_bit_goes_through(saved: RunFolder, name: str) -> None:
    """It is refused, by the file's name, or it is where it does no harm."""
    path, before, random = saved.path / name, loaded(saved), Random(1)
    whole = path.read_bytes()
    refused = 0
    for _ in range(100):
        place, bit = random.randrange(len(whole)), 1 << random.randrange(8)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        try:
            assert loaded(saved) == before
        except TapisError as error:
            assert path.name in str(error)
            refused += 1
    assert refused > (10 if name == "config.json" else 80)


def test_a_folder_works_wherever_it_is_copied_to(saved: RunFolder, tmp_path: Path) -> None:
    shutil.copytree(saved.path, tmp_path / "a b" / "été")
    assert loaded(RunFolder.find(str(tmp_path / "a b" / "été"))) == loaded(saved)


@pytest.mark.parametrize("name", FILES[:2])
def test_files_of_two_runs_are_not_mixed(saved: RunFolder, tiny: Config, demo: Corpus, name: str) -> None:
    """Also where weights of the same shapes would fit."""
    texts = [side for pair in demo.train[1000:2000] for side in pair]
    other = RunFolder(Path("weights/other"))
    other.start(replace(tiny, n_heads=4, norm="post"), Tokenizer.train(texts, 300))
    (saved.path / name).write_bytes((other.path / name).read_bytes())
    with pytest.raises(CheckpointError, match=re.escape(name)):
        saved.load_model(CPU)


def test_a_config_may_not_ask_for_all_the_memory(saved: RunFolder, tiny: Config) -> None:
    greedy = replace(tiny, d_model=65_536, d_ff=1_000_000, n_decoder_layers=100)
    saved.save_config(greedy)
    saved.save_model({"x": torch.zeros(1)})  # its notes agree with that config.json
    with pytest.raises(CheckpointError, match=r"model\.safetensors does not fit"):
        saved.load_model(CPU)


def test_one_training_at_a_time_writes_to_a_run(run_folder: RunFolder) -> None:
    with (
        run_folder.held(),
        pytest.raises(CheckpointError, match="another training writes to"),
        RunFolder(run_folder.path).held(),
    ):
        pass
    with run_folder.held():
        pass


def test_a_training_that_came_to_nothing_leaves_no_folder() -> None:
    with RunFolder(Path("weights/new")).held():
        assert Path("weights/new/training/lock").exists()
    assert not Path("weights/new").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="there, only administrators make links")
def test_nothing_is_written_through_links(run_folder: RunFolder, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("kept")
    (run_folder.path / "training").symlink_to(elsewhere)
    with pytest.raises(CheckpointError, match="is a link"), run_folder.held():
        pass
    run_folder.metrics_file.symlink_to(elsewhere / "file")
    run_folder.save_metrics({"a": 1})
    assert [path.name for path in elsewhere.iterdir()] == ["file"] and (elsewhere / "file").read_text() == "kept"


class _Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("exploded",)


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
        path.write_text("half", encoding="utf-8")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_whole(run_folder.model_file, half)
    assert {path: path.read_bytes() for path in run_folder.path.iterdir()} == before


def test_starting_afresh_leaves_nothing_of_before(run_folder: RunFolder, tiny: Config, tokenizer: Tokenizer) -> None:
    run_folder.save_state({"step": 5})
    run_folder.start(tiny, tokenizer)
    left = {path.relative_to(run_folder.path).as_posix() for path in run_folder.path.rglob("*")}
    assert left == {"config.json", "tokenizer.json", "training"}
