"""Run folders: saving and loading, finding runs, rejecting damaged or mixed files, and atomic writes."""

import json
import math
import os
import pickle
import re
import shutil
import stat
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest.mock import Mock

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import RunFolder, parameters, recorded_names
from config import Config
from machine.state_file import MAX_CHARACTERS, TENSOR, read_state, state_digest, write_state
from model import Transformer
from pairs.corpus import Corpus
from tapis.config import MAX_LANGUAGES, ConfigError, Learned, TapisError, pairs_of_all
from tapis.release import MODEL_FIELDS, CheckpointError
from tapis.system.files import machine_secret, write_whole
from tapis.system.hub import SUMS
from tapis.text.tokenizer import Tokenizer

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def project_weights(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of the project's weights/, which may hold runs of a developer."""
    folder = tmp_path_factory.mktemp("project") / "weights"
    monkeypatch.setattr(RunFolder, "more_weights", [folder])
    return folder


def test_loading_returns_what_was_saved(run_folder: RunFolder, model: Transformer, tiny: Config) -> None:
    config, tokenizer, loaded = RunFolder.find("tiny").load_model(CPU)
    assert config == tiny
    assert tokenizer.encode(["The cat"]) == run_folder.load_tokenizer().encode(["The cat"])
    for name, parameter in parameters(model).items():
        assert torch.equal(parameters(loaded)[name], parameter)
    assert loaded.projection.linear.weight is loaded.src_embed.embedding.weight
    assert not loaded.training


def test_the_largest_config_can_be_read_again(tiny: Config) -> None:
    """All pairs of as many languages as there may be, with long codes, and with a source of data for each."""
    pairs = tuple(pairs_of_all([f"{number:03}_Latn" for number in range(MAX_LANGUAGES)]))
    largest = replace(tiny, pairs=pairs, data=tuple(f"/data/of/many/languages/{pair}" for pair in pairs))
    folder = RunFolder(Path("weights/tiny"))
    folder.save_config(largest)
    assert folder.load_config() == largest


def test_a_tied_matrix_is_saved_once(model: Transformer) -> None:
    assert "projection.linear.weight" not in parameters(model)
    assert sum(w.numel() for w in parameters(model).values()) == sum(p.numel() for p in model.parameters())


def test_the_state_for_resuming_is_in_a_subfolder_of_its_own(run_folder: RunFolder) -> None:
    run_folder.save_metrics({"best": 1})
    run_folder.save_state({"step": 1})
    names = {path.name for path in run_folder.path.iterdir()}
    assert names == {"config.json", "tokenizer.json", "model.safetensors", "metrics.json", "training"}
    assert [path.name for path in (run_folder.path / "training").iterdir()] == ["state.safetensors"]


def test_runs_are_found_by_name_path_or_time(run_folder: RunFolder, tiny: Config, tokenizer: Tokenizer) -> None:
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


def test_runs_of_the_project_are_found_from_any_folder(
    run_folder: RunFolder, project_weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_folder.path.parent.rename(project_weights)
    monkeypatch.chdir(tmp_path)
    for name in ("", "tiny"):
        assert RunFolder.find(name).path == project_weights / "tiny"
    assert [run.path for run in RunFolder.trained()] == [project_weights / "tiny"]


def test_runs_of_the_current_folder_precede_those_of_the_project(run_folder: RunFolder, project_weights: Path) -> None:
    for name in ("tiny", "newer"):
        shutil.copytree(run_folder.path, project_weights / name)
    os.utime(run_folder.model_file, (0, 0))
    for name in ("", "tiny"):
        assert RunFolder.find(name).path == Path("weights/tiny")
    assert [run.path for run in RunFolder.trained()] == [Path("weights/tiny"), project_weights / "newer"]


@pytest.mark.parametrize(("name", "problem"), [("", "no trained model"), ("other", "no run 'other'")])
def test_errors_name_the_folders_that_were_searched(name: str, problem: str, project_weights: Path) -> None:
    with pytest.raises(CheckpointError, match=re.escape(f"{problem} in weights/ or {project_weights}/")):
        RunFolder.find(name)


def test_a_name_that_no_file_can_have_is_an_error_in_words() -> None:
    with pytest.raises(CheckpointError, match=r"no run 'x.*can be read: File name too long"):
        RunFolder.find("x" * 300)


def test_inside_the_project_its_weights_are_searched_once(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunFolder, "more_weights", [Path("weights").resolve()])
    assert [run.path for run in RunFolder.trained()] == [Path("weights/tiny")]
    with pytest.raises(CheckpointError, match=r"no run 'other' in weights/, and"):
        RunFolder.find("other")


def test_without_any_run_the_error_says_how_to_train_one() -> None:
    with pytest.raises(CheckpointError, match=r"python train\.py demo"):
        RunFolder.find("")


def test_a_run_without_a_validated_model_can_be_continued(tiny: Config, tokenizer: Tokenizer) -> None:
    RunFolder(Path("weights/tiny")).start(tiny, tokenizer)
    with pytest.raises(CheckpointError, match="--resume --name tiny"):
        RunFolder.find("tiny").load_model(CPU)


FILES = ["config.json", "tokenizer.json", "model.safetensors", "training/state.safetensors"]


def loaded(folder: RunFolder) -> list[object]:
    """Everything in a run folder, in a form that can be compared."""
    config, tokenizer, model = folder.load_model(CPU)
    state = folder.load_state()
    weights = [*parameters(model).values(), *state["model"].values()]
    return [*(getattr(config, name) for name in MODEL_FIELDS), tokenizer.to_json(), *(w.tolist() for w in weights)]


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
                file.truncate(2**40)  # a sparse file
        case "cut" | "empty" | "noise" | "text" | "pickle" | "zeros":
            contents = {
                "cut": whole[: len(whole) // 2],
                "empty": b"",
                "noise": os.urandom(500),
                "text": b'{"a": 1}',
                "pickle": pickle.dumps(_Bomb()),
                "zeros": bytes(len(whole)),
            }
            path.write_bytes(contents[damage])
    with pytest.raises(TapisError, match=re.escape(path.name)) as error:
        loaded(saved)
    assert len(str(error.value).splitlines()) <= 2 and len(str(error.value)) < 400
    assert not Path("exploded").exists()


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no /dev/zero")
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors", "metrics.json", "SHA256SUMS"])
@pytest.mark.parametrize("kind", ["device", "pipe", "folder"])
def test_what_is_no_regular_file_is_not_read(saved: RunFolder, name: str, kind: str) -> None:
    """A device fills the memory, and a pipe is waited for."""
    file = saved.path / name
    file.unlink(missing_ok=True)
    if kind == "device":
        file.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.mkdir()
    if name == "metrics.json":  # translating does not need it
        assert saved.load_metrics() == {}
        saved.load_model(CPU)
    else:
        with pytest.raises(TapisError, match=re.escape(name)):
            saved.load_model(CPU)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no /dev/zero")
@pytest.mark.parametrize(
    ("sums", "says"),
    [
        (f"{'0' * 64}  zero\n", "it is no regular file"),
        (f"{'0' * 64}  ../tiny/zero\n", "it is no regular file"),
        (f"{'0' * 64}  config.json\n" * 2, "it names a file twice"),
        ("0" * 200_000, "it has more than 100,000 bytes"),
        ("x", "cannot be checked"),
    ],
)
def test_checksums_of_a_stranger_are_read_within_bounds(saved: RunFolder, sums: str, says: str) -> None:
    (saved.path / "zero").symlink_to("/dev/zero")
    (saved.path / "SHA256SUMS").write_text(sums)
    with pytest.raises(TapisError, match=says):
        saved.load_model(CPU)


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_harmless_or_rejected(saved: RunFolder, name: str) -> None:
    """The error names the file."""
    path = saved.path / name
    whole, before = path.read_bytes(), loaded(saved)
    random = Random(1)
    rejected = 0
    for _ in range(100):
        position, bit = random.randrange(len(whole)), 1 << random.randrange(8)
        path.write_bytes(whole[:position] + bytes([whole[position] ^ bit]) + whole[position + 1 :])
        try:
            assert loaded(saved) == before
        except TapisError as error:
            assert path.name in str(error)
            rejected += 1
    assert rejected > (10 if name == "config.json" else 80)


def test_a_run_can_be_copied_to_any_path(saved: RunFolder, tmp_path: Path) -> None:
    shutil.copytree(saved.path, tmp_path / "a b" / "été")
    assert loaded(RunFolder.find(str(tmp_path / "a b" / "été"))) == loaded(saved)


@pytest.mark.parametrize("name", FILES[:2])
def test_mixed_files_of_two_runs_are_rejected(saved: RunFolder, tiny: Config, demo: Corpus, name: str) -> None:
    """Even if the shapes of the weights are the same."""
    texts = [side for pair in demo.train[1000:2000] for side in pair]
    other = RunFolder(Path("weights/other"))
    other.start(replace(tiny, n_heads=4, norm="post"), Tokenizer.train(texts, 300))
    (saved.path / name).write_bytes((other.path / name).read_bytes())
    with pytest.raises(CheckpointError, match=re.escape(name)):
        saved.load_model(CPU)


def test_a_config_with_huge_sizes_is_rejected_without_allocating_them(saved: RunFolder, tiny: Config) -> None:
    huge = replace(tiny, d_model=65_536, d_ff=65_536, n_decoder_layers=100)
    saved.save_config(huge)
    saved.save_model({"x": torch.zeros(1)})  # with notes that match the config.json
    with pytest.raises(CheckpointError, match=r"model\.safetensors does not fit"):
        saved.load_model(CPU)


def test_only_one_process_can_lock_a_run(run_folder: RunFolder) -> None:
    with (
        run_folder.held(),
        pytest.raises(CheckpointError, match="another process writes to"),
        RunFolder(run_folder.path).held(),
    ):
        pass
    with run_folder.held():
        pass


def test_a_run_that_saved_nothing_leaves_no_folder() -> None:
    with RunFolder(Path("weights/new")).held():
        assert Path("weights/new/training/lock").exists()
    assert not Path("weights/new").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="only administrators can create symbolic links on Windows")
def test_nothing_is_written_through_symbolic_links(run_folder: RunFolder, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("kept")
    (run_folder.path / "training").symlink_to(elsewhere)
    with pytest.raises(CheckpointError, match="is a symbolic link"), run_folder.held():
        pass
    run_folder.metrics_file.symlink_to(elsewhere / "file")
    run_folder.save_metrics({"a": 1})
    assert [path.name for path in elsewhere.iterdir()] == ["file"] and (elsewhere / "file").read_text() == "kept"


class _Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("exploded",)


def test_weights_of_another_model_are_rejected(run_folder: RunFolder, tiny: Config) -> None:
    run_folder.save_model(parameters(Transformer(300, replace(tiny, d_model=32))))
    with pytest.raises(CheckpointError, match="does not fit"):
        run_folder.load_model(CPU)


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_weights_of_another_type_are_rejected(run_folder: RunFolder, model: Transformer, kind: torch.dtype) -> None:
    run_folder.save_model({name: weight.to(kind) for name, weight in parameters(model).items()})
    with pytest.raises(CheckpointError, match=r"not a model of Tapis .it has weights of type "):
        run_folder.load_model(CPU)


def test_a_sparse_file_is_not_read_for_its_weights(run_folder: RunFolder) -> None:
    """A folder of a few bytes could take any amount of memory."""
    with run_folder.model_file.open("r+b") as file:
        file.truncate(2**30)
    with pytest.raises(CheckpointError, match="it is a sparse file, of which most does not exist"):
        run_folder.load_weights()


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_weights_that_are_no_numbers_are_rejected(
    run_folder: RunFolder, model: Transformer, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = {name: weight.clone() for name, weight in parameters(model).items()}
    next(iter(weights.values())).view(-1)[7] = value
    monkeypatch.setattr(torch.Tensor, "isfinite", lambda self: torch.ones_like(self, dtype=torch.bool))  # to be saved
    run_folder.save_model(weights)
    with pytest.raises(CheckpointError, match="it has weights that are no numbers"):
        run_folder.load_model(CPU)


def test_weights_that_are_no_numbers_never_replace_the_best(run_folder: RunFolder, model: Transformer) -> None:
    before = run_folder.model_file.read_bytes()
    weights = {name: weight * math.nan for name, weight in parameters(model).items()}
    with pytest.raises(CheckpointError, match="weights are no numbers any more") as error:
        run_folder.save_model(weights)
    assert "keeps the best ones before" in str(error.value)
    assert run_folder.model_file.read_bytes() == before


@pytest.mark.parametrize("note", ["pre\nerror: no such file", ["pre"], None, "x" * 900_000])
def test_a_note_of_the_model_adds_no_line_to_an_error(run_folder: RunFolder, model: Transformer, note: object) -> None:
    with safetensors.safe_open(run_folder.model_file, "pt") as file:
        notes = json.loads(file.metadata()["tapis"])
    text = json.dumps({**notes, "norm": note})
    safetensors.torch.save_file(parameters(model), run_folder.model_file, {"tapis": text})
    with pytest.raises(CheckpointError, match=r"but the model was trained with|was not written by Tapis") as error:
        run_folder.load_model(CPU)
    assert "\n" not in str(error.value) and len(str(error.value)) < 1000


def test_checksums_end_where_a_run_goes_on(run_folder: RunFolder, tiny: Config) -> None:
    """Else a resumed run would fail at its end, when it loads the best model."""
    (run_folder.path / SUMS).write_text("0  config.json", encoding="utf-8")
    with pytest.raises(TapisError, match="is not the file that SHA256SUMS records"):
        run_folder.load_model(CPU)
    run_folder.save_config(tiny)
    run_folder.load_model(CPU)


def test_a_folder_in_the_place_of_the_model_is_an_error_and_no_run(run_folder: RunFolder) -> None:
    run_folder.model_file.unlink()
    run_folder.model_file.mkdir()
    with pytest.raises(CheckpointError, match="it is no regular file"):
        run_folder.load_model(CPU)
    assert not RunFolder.trained()


def test_a_failed_write_leaves_the_old_files_and_nothing_else(run_folder: RunFolder) -> None:
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


def test_the_secret_of_the_machine_is_never_readable_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace_file(file: str, path: Path) -> None:
        modes.append(stat.S_IMODE(Path(file).stat().st_mode))
        Path(file).rename(path)

    modes: list[int] = []
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    monkeypatch.setattr("os.replace", replace_file)
    assert machine_secret() == machine_secret() and modes == [0o600]


def test_starting_a_run_removes_the_files_of_the_earlier_one(
    run_folder: RunFolder, tiny: Config, tokenizer: Tokenizer
) -> None:
    run_folder.save_state({"step": 5})
    run_folder.start(tiny, tokenizer)
    left = {path.relative_to(run_folder.path).as_posix() for path in run_folder.path.rglob("*")}
    assert left == {"config.json", "tokenizer.json", "training"}


def test_temporary_files_of_a_killed_run_go_and_others_stay(run_folder: RunFolder) -> None:
    (run_folder.path / "training").mkdir()
    left = [
        run_folder.path / name
        for name in (
            ".model.safetensors.x1",
            "training/.state.safetensors.x2",
            "training/.made_here.x3",
            "training/.tmpx",
        )
    ]
    for file in (*left, run_folder.path / ".gitignore"):
        file.touch()
    with run_folder.held():
        assert not any(file.exists() for file in left)
    assert (run_folder.path / ".gitignore").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="there, files have no such modes")
def test_new_files_have_the_modes_that_the_person_wants(run_folder: RunFolder) -> None:
    before = os.umask(0o077)
    try:
        run_folder.save_metrics({})
        assert run_folder.metrics_file.stat().st_mode & 0o777 == 0o600
        os.umask(0o022)
        run_folder.save_metrics({})
        assert run_folder.metrics_file.stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "damaged"),
        ("[" * 100_000, "damaged"),
        ("1" * 10_000, "damaged"),
        (json.dumps({"model": {TENSOR: "state/other"}}), "damaged"),
        (json.dumps({"model": {TENSOR: {}}}), "damaged"),
        (json.dumps("x" * MAX_CHARACTERS), "it has too many objects"),
        *((text, "it is no state of Tapis") for text in ("[]", "7", '"x"', "null")),
        (json.dumps({TENSOR: "state/model"}), "it is no state of Tapis"),
    ],
    ids=lambda text: text[:20],
)
def test_a_file_that_is_no_state_is_refused(saved: RunFolder, text: str, says: str) -> None:
    """Whoever wrote it knows how its checksum is computed."""
    tensors = {"state/model": torch.ones(2)}
    notes = {"state": text, "digest": state_digest(text, tensors)}
    safetensors.torch.save_file(tensors, saved.state_file, notes)
    with pytest.raises(CheckpointError, match=says) as error:
        saved.load_state()
    assert len(str(error.value).splitlines()) == 2 and len(str(error.value)) < 400


@pytest.mark.parametrize("error", [MemoryError(), OSError(5, "Input/output error")], ids=repr)
def test_a_state_that_the_system_cannot_read_now_is_not_called_damaged(
    saved: RunFolder, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("checkpoint.read_state", Mock(side_effect=error))
    with pytest.raises(type(error)):
        saved.load_state()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc names the files that are mapped")
def test_a_state_that_was_read_keeps_no_file_mapped(saved: RunFolder) -> None:
    """Windows replaces no such file, so that no later save would succeed."""
    state = saved.load_state()
    assert state and saved.state_file.name not in Path("/proc/self/maps").read_text(encoding="utf-8")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=10,
    )
)
def test_a_state_is_read_as_it_was_written(values: object) -> None:
    """With tensors of any size among its values."""
    tensors = [torch.arange(5), torch.tensor(2.5), torch.zeros(0), torch.ones(2, 3, dtype=torch.float64).T]
    with TemporaryDirectory() as folder:
        file = Path(folder, "state")
        write_state(file, {"values": values, "tensors": {"": tensors, "more": {"x": tensors[0]}}})
        again = read_state(file)
    assert again["values"] == values
    pairs = zip([*tensors, tensors[0]], [*again["tensors"][""], again["tensors"]["more"]["x"]], strict=True)
    assert all(torch.equal(one, other) and one.dtype == other.dtype for one, other in pairs)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"length_ratio": "1"}', "length_ratio is '1'"),
        ('{"length_ratio": 1e400}', "length_ratio is inf"),
        ('{"length_spread": NaN}', "length_spread is nan"),
        ('{"unsure_below": 1}', "unsure_below is 1"),
        ("\x1b[2J", "not JSON"),
    ],
)
def test_damaged_lengths_are_refused_in_words(saved: RunFolder, text: str, says: str) -> None:
    saved.learned_file.write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=says) as error:
        saved.load_learned()
    assert len(str(error.value).splitlines()) == 1 and "\x1b" not in str(error.value)


def test_without_lengths_a_run_translates(saved: RunFolder) -> None:
    saved.learned_file.unlink(missing_ok=True)
    assert saved.load_learned() == Learned()


def test_the_advice_about_a_strangers_data_is_safe_in_a_shell(saved: RunFolder, tiny: Config) -> None:
    saved.save_config(replace(tiny, data=("a; rm -r b", "$(c)"), monolingual=("new's.fr",), back_translator="x"))
    names = recorded_names(saved.load_config())
    with pytest.raises(ConfigError) as error:
        saved.check_made_here(names)
    assert str(error.value).endswith("""--data 'a; rm -r b' '$(c)' --monolingual 'new'"'"'s.fr' --back-translator x""")


@pytest.mark.parametrize("content", [b"\xff\xfe\0", b"a" * 3000])
def test_a_damaged_sign_is_one_of_another_machine(saved: RunFolder, content: bytes) -> None:
    saved.sign_file.parent.mkdir(exist_ok=True)
    saved.sign_file.write_bytes(content)
    with pytest.raises(ConfigError, match="was not made on this machine"):
        saved.check_made_here({"--data": "x"})
