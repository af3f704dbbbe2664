"""The models of a server: which translates what, and how many are in memory."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from checkpoint import RunFolder
from config import Config
from decoding.translator import CheckoutFiles, Translator
from exporting.ctranslate2 import to_ctranslate2
from tapis.config import ConfigError
from tapis.ctranslate2 import EngineError
from tapis.release import CheckpointError
from tapis.search import Search, go_on
from tapis.serving.models import Kind, Models, answers_of, find_models, trained_folders
from tapis.system.files import whole_folder


class Loaded:
    """In the place of a translator: counts those in memory."""

    n = peak = 0

    def __init__(self, run: str) -> None:
        Loaded.n += 1
        Loaded.peak = max(Loaded.peak, Loaded.n)
        self.run = run

    def __del__(self) -> None:
        Loaded.n -= 1


def test_the_least_recently_used_model_makes_room_first() -> None:
    loads: list[str] = []

    def load(run: str) -> Any:
        loads.append(run)
        return Loaded(run)

    models = Models({name: Config(pairs=(f"en-{name}",)) for name in ("fr", "de", "es")}, load, 2)
    for run in ("fr", "de", "fr", "es", "fr", "de"):
        assert models.load(run).run == run  # type: ignore[attr-defined]
    assert loads == ["fr", "de", "es", "de"]
    assert Loaded.peak == 2


class NotGoneThrough(dict[tuple[str, str], str]):
    """Language pairs that are too many to look at each for a request."""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        raise AssertionError("each pair was looked at")


def test_requests_do_not_go_through_all_pairs() -> None:
    pairs = ("en-fr", "fr-en", "en-de", "de-nl")
    models = Models({"all": Config(pairs=pairs)}, lambda run: None, 1)  # type: ignore[arg-type, return-value]
    models.pairs = NotGoneThrough(models.pairs)
    assert models.languages == ["de", "en", "fr", "nl"] and models.target_languages == ["fr", "en", "de", "nl"]
    assert [models.targets(one) for one in models.languages] == [["nl"], ["fr", "de"], ["en"], []]
    assert [models.languages_of_texts(one) for one in ("de", "xx")] == [["en", "de"], ["xx"]]
    assert models.identify("The weather is very nice today.", "de")[0] == "en"
    assert models.run_for("en", "fr") == "all"


def test_an_error_names_some_of_many_pairs() -> None:
    pairs = tuple(f"l{i}-en" for i in range(100))
    models = Models({"all": Config(pairs=pairs)}, lambda run: None, 1)  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigError, match=r"no model translates en-fr; there are l0-en, .*, l19-en and 80 more\Z"):
        models.run_for("en", "fr")


def test_a_model_that_is_loading_holds_up_no_other() -> None:
    may_end, has_begun = threading.Event(), threading.Event()

    def load(run: str) -> Any:
        if run == "slow":
            has_begun.set()
            assert may_end.wait(20)
        return Loaded(run)

    models = Models({name: Config(pairs=(f"en-{name}",)) for name in ("fr", "slow")}, load, 2)
    models.load("fr")
    slow = threading.Thread(target=models.load, args=("slow",))
    slow.start()
    assert has_begun.wait(20)
    assert models.load("fr").run == "fr"  # type: ignore[attr-defined]
    may_end.set()
    slow.join()


def test_the_tokens_of_a_run_that_is_not_loaded_are_as_many_as_could_be() -> None:
    models = Models({"fr": Config(pairs=("en-fr",))}, lambda run: None, 1)  # type: ignore[arg-type, return-value]
    assert models.n_tokens("fr", ["plain", "", " "]) == 0
    assert models.n_tokens("fr", ["é", "𓀀 a𓀀"]) == 2 + 4 + 4


def test_the_tokens_of_lone_surrogates_are_those_of_what_replaces_them(run_folder: RunFolder) -> None:
    """A file of JSON may have them, as escapes."""
    models = find_models(["tiny"], CheckoutFiles, load, 1)
    assert models.n_tokens("tiny", ["a \ud800 cat"]) == models.n_tokens("tiny", ["a \ufffd cat"]) > 0


def load(folder: Path) -> Translator:
    return Translator.load(folder, "cpu", "fp32")


def test_runs_are_named_without_their_place(run_folder: RunFolder) -> None:
    whole_folder(Path("elsewhere/out"), lambda into: to_ctranslate2(run_folder, into, "float32"))
    models = find_models([str(run_folder.path.resolve()), str(Path("elsewhere/out").resolve())], CheckoutFiles, load, 1)
    assert list(models.configs) == ["tiny", "out"]
    assert models.run_for("en", "fr") == "tiny"
    kind = Kind("out", "en", "fr", Search(2, 2), with_details=True)
    answer = answers_of(models.load("out"), kind, None, ["A cat."], go_on)[0]
    assert len(answer.translations) == 2 and answer.sentences == ("A cat.",) and answer.attention is None
    with pytest.raises(ConfigError, match="two runs of the name tiny"):
        find_models(["tiny", str(run_folder.path.resolve())], CheckoutFiles, load, 1)
    with pytest.raises(CheckpointError, match="no run 'nothing'"):
        find_models(["nothing"], CheckoutFiles, load, 1)
    for damaged in (b"{", b"\xff"):
        Path("elsewhere/out/tapis.json").write_bytes(damaged)
        with pytest.raises(EngineError, match=r"tapis\.json cannot be used"):
            find_models(["elsewhere/out"], CheckoutFiles, load, 1)


def test_the_folder_that_one_is_in_has_its_name(run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run_folder.path)
    assert list(find_models(["."], CheckoutFiles, load, 1).configs) == ["tiny"]


def test_attention_is_that_of_the_sentence_that_the_model_saw(run_folder: RunFolder) -> None:
    models = find_models(["tiny"], CheckoutFiles, load, 1)
    kind = Kind("tiny", "en", "fr", Search(2, 2), with_details=True, with_attention=True)
    (answer,) = models.translator_of(kind)(["THE <b>CAT</b> IS SITTING."], go_on)
    assert answer.sentences == ("The cat is sitting.",) and answer.attention
    assert "".join(answer.attention.source).startswith("▁The")
    (answer,) = models.translator_of(kind._replace(with_attention=False))(["A cat."], go_on)
    assert answer.sentences == ("A cat.",) and not answer.attention


def test_a_damaged_run_is_left_out(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(CheckoutFiles, "more_weights", [])  # without a developer's runs
    broken = Path("weights/broken")
    shutil.copytree(run_folder.path, broken)
    (broken / "config.json").write_text("{", encoding="utf-8")
    assert list(trained_folders(CheckoutFiles)) == ["tiny"]
    assert "left out: weights/broken/config.json" in capsys.readouterr().err
    shutil.rmtree(run_folder.path)
    with pytest.raises(CheckpointError, match=r"config\.json cannot be used"):
        find_models([], CheckoutFiles, load, 1)
