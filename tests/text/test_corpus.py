"""Reading, cleaning, splitting, leaks; the built-in demo; the hub through its double, where real data is at hand."""

import importlib.util
import re
import sys
import time
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pytest
from conftest import ROOT, SHARED, Command, needs_shared

from config import PRESETS, Config
from text.cleaning import Cleaner
from text.corpus import Corpus, _mapped, load_corpus, normalize
from text.readers import DataError, Pair, lines
from text.tables import chunks

PAIRS = [(f"sentence number {i}", f"le numéro {i} de la phrase") for i in range(2000)]
SMALL = ["--vocab-size", "300", "--d-model", "16", "--d-ff", "16", "--dry-run"]
EN_FR = Config(data="data")


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_bytes(text.encode())


def text(lines: list[str]) -> str:
    return "".join(line + "\n" for line in lines)


# Parts


def test_missing_parts_are_taken_out_of_train(tmp_path: Path) -> None:
    write(tmp_path / "data", train_en=text([p[0] for p in PAIRS]), train_fr=text([p[1] for p in PAIRS]))
    corpus = load_corpus(replace(EN_FR, valid_share=0.1, test_share=0.05))
    assert sorted([*corpus.train, *corpus.valid, *corpus.test]) == sorted(PAIRS)
    assert 150 < len(corpus.valid) < 250
    assert 60 < len(corpus.test) < 140


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"train_en": "\n", "train_fr": "c\n", "valid_en": "e\n", "valid_fr": "f\n"}, "no pairs in the train part"),
        ({"train_en": "a\n", "train_fr": "b\n", "valid_en": "\n", "valid_fr": "f\n"}, "no pairs in the valid part"),
    ],
)
def test_a_part_that_is_empty_is_named(tmp_path: Path, files: dict[str, str], says: str) -> None:
    write(tmp_path / "data", **files)
    with pytest.raises(DataError, match=says):
        load_corpus(EN_FR)


def test_every_rule_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "data", train_en="a\na\nb\n\n", train_fr="c\nc\nd\nx\n", valid_en="B!\n", valid_fr="f\n")
    corpus = load_corpus(replace(EN_FR, test_share=0))
    report = corpus.report
    assert list(corpus.train) == [("a", "c")]
    assert (report["read"], report["train"], report["valid"], report["test"]) == (5, 1, 1, 0)
    counts = {name: rule["pairs"] for name, rule in report["rules"].items() if rule["pairs"]}
    assert counts == {"duplicates": 1, "empty-side": 1, "held-out": 1}
    assert report["rules"]["held-out"]["examples"] == [("b", "d")]
    off = load_corpus(replace(EN_FR, test_share=0, skip_rules=("duplicates", "held-out")))
    assert list(off.train) == [("a", "c"), ("a", "c"), ("b", "d")]


def parts(pairs: list[Pair], **options: Any) -> dict[str, list[Pair]]:
    """Train, valid and test of a corpus of these pairs."""
    write(Path("data"), train_en=text([a for a, _ in pairs]), train_fr=text([b for _, b in pairs]))
    corpus = load_corpus(replace(EN_FR, skip_rules=("swapped-columns", "wrong-language"), **options))
    return {"train": list(corpus.train), "valid": list(corpus.valid), "test": list(corpus.test)}


def test_a_pair_stays_on_its_side_for_ever() -> None:
    before = parts(PAIRS[:1000], valid_share=0.1, test_share=0.1)
    after = parts(PAIRS[::-1], valid_share=0.1, test_share=0.1)
    turned = parts([(b.upper() + " !", a) for a, b in PAIRS[:1000]], valid_share=0.1, test_share=0.1)
    for part, pairs in before.items():
        assert len(pairs) > 60
        assert set(pairs) <= set(after[part])
        assert {normalize(a) for _, a in turned[part]} == {normalize(a) for a, _ in pairs}


def test_given_parts_are_repaired_but_not_thinned(tmp_path: Path) -> None:
    given = [("The king sleeps.", "Le roi dort."), ("The king sleeps.", "Le roi dort."), ("Paris", "Paris"), ("x", "")]
    given.append(("Le chat dort bien.", "The cat\x92s asleep."))
    write(
        tmp_path / "data",
        train_en=text([p[0] for p in PAIRS]),
        train_fr=text([p[1] for p in PAIRS]),
        valid_en=text([p[0] for p in given]),
        valid_fr=text([p[1] for p in given]),
    )
    corpus = load_corpus(replace(EN_FR, test_share=0))
    assert list(corpus.valid) == [*given[:3], ("The cat’s asleep.", "Le chat dort bien.")]
    assert corpus.report["rules"]["swapped-columns"]["examples"] == [("Le chat dort bien.", "The cat’s asleep.")]


def test_what_is_held_out_is_not_trained_on(tmp_path: Path) -> None:
    train = [("A cat.", "x"), ("y", "un  CHIÉN"), ("z", "w"), ("?!", "…")]
    valid = [("a cat", "q"), ("r", "Un chien!"), ("!?", "!")]
    write(
        tmp_path / "data",
        train_en=text([p[0] for p in train]),
        train_fr=text([p[1] for p in train]),
        valid_en=text([p[0] for p in valid]),
        valid_fr=text([p[1] for p in valid]),
    )
    corpus = load_corpus(replace(EN_FR, test_share=0))
    assert list(corpus.train) == train[2:]
    assert corpus.report["rules"]["held-out"]["pairs"] == 2


# The table on disk


def test_what_was_prepared_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "data", train_en=text([p[0] for p in PAIRS]), train_fr=text([p[1] for p in PAIRS]))
    before = load_corpus(EN_FR)
    cleaned = []
    monkeypatch.setattr("corpus.clean_batch", lambda *args: cleaned.append(args))
    (tmp_path / "data").rename(tmp_path / "moved")
    again = load_corpus(replace(EN_FR, data="moved"))
    assert list(again.train) == list(before.train) and again.train.key == before.train.key
    assert again.report == before.report and not cleaned


def test_changed_data_is_prepared_anew(tmp_path: Path) -> None:
    write(tmp_path / "data", train_en=text([p[0] for p in PAIRS]), train_fr=text([p[1] for p in PAIRS]))
    before = load_corpus(EN_FR)
    write(tmp_path / "data", train_en=text([p[0] + "!" for p in PAIRS]))
    after = load_corpus(EN_FR)
    assert after.train[0] == (before.train[0][0] + "!", before.train[0][1])
    assert after.train.key != before.train.key


def test_broken_data_leaves_no_table(tmp_path: Path) -> None:
    write(tmp_path / "data", train_en="a\n" * 5000, train_fr="b\n" * 4999)
    cache = Path(datasets.config.HF_DATASETS_CACHE) / "tapis"
    cache.mkdir(exist_ok=True)
    before = set(cache.iterdir())
    for _ in range(2):
        with pytest.raises(DataError, match="must be pairs"):
            load_corpus(EN_FR)
    assert set(cache.iterdir()) == before


@pytest.mark.slow
def test_many_processes_clean_as_one_does() -> None:
    pairs = [*PAIRS, ("Le roi dort bien.", "The king sleeps well."), ("", "x")] * 2
    cleaner = Cleaner("en", "fr")

    def table(processes: int) -> list[dict[str, Any]]:
        return list(_mapped(cleaner, chunks(pairs, 300), processes))

    assert table(2) == table(1)
    assert sum(len(batch["source"]) for batch in table(1)) == len(pairs)


# The demo


def test_the_demo_is_what_its_script_makes() -> None:
    spec = importlib.util.spec_from_file_location("make_corpus", ROOT / "demo" / "make_corpus.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_corpus"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    for part, pairs in module.make().items():
        for side, language in enumerate(("en", "fr")):
            assert list(lines(ROOT / "demo" / f"{part}.{language}")) == [pair[side] for pair in pairs]


def test_the_demo_is_distinct_and_leak_free(demo: Corpus) -> None:
    assert demo.report["read"] == len(demo.train) + len(demo.valid) + len(demo.test)
    for side in (0, 1):
        parts = [{pair[side] for pair in part} for part in (demo.train, demo.valid, demo.test)]
        assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]
    assert len(set(demo.train)) == len(demo.train) > 5000


def test_the_tutorials_sentence_is_only_in_the_test_part(demo: Corpus) -> None:
    both = {"The cat sits on the mat.", "The cat is sitting on the mat."}
    assert not both & {en for en, _ in [*demo.train, *demo.valid]}
    assert {fr for en, fr in demo.test if en in both} == {"Le chat est assis sur le tapis."}


def test_the_demos_french_elides_contracts_and_agrees(demo: Corpus) -> None:
    wrong = re.compile(
        r"\b(le|la|de|ne|que|je|ma|sa|ce) [aeiouéêœhAEIOUÉ]|\b(à|de) les?\b"
        r"|\b(la|une|cette|ma|sa) (chat|chien|roi|tapis)\b"
        r"|\b(le|un|ce) (vache|souris|reine|fille|table|maison)\b|\bun [a-z]+s (chat|chien)\b"
    )
    for _, fr in [*demo.train, *demo.valid, *demo.test]:
        assert not wrong.search(fr), fr
        assert unicodedata.is_normalized("NFC", fr)
    everything = " ".join(fr for _, fr in demo.train)
    for form in (
        "l'oiseau",
        "n'aime",
        "qu'elle",
        "au jardin",
        "aux",
        "du ",
        "bel ",
        "vieil ",
        "assises",
        "pas d'",
        "?",
    ):
        assert form in everything


# The hub


def test_an_unreachable_hub_says_so_soon(command: Command, tmp_path: Path) -> None:
    """Not after the retries of its client, of which each would be a line."""
    start = time.monotonic()
    done = command("train.py", HF_ENDPOINT="http://127.0.0.1:9", HF_HOME=str(tmp_path / "hf"))
    assert time.monotonic() - start < 10
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "train.py: the hub cannot be reached for Helsinki-NLP/opus_books, and no earlier copy of en-fr is here",
        "type instead: python train.py demo, or: python train.py --data FOLDER",
    ]


def hub_layout(folder: Path, pair: str = "en-fr") -> None:
    """A folder as the hub lays out opus_books: one parquet file a pair, and a README that names the pairs."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / pair).mkdir(parents=True)
    first, second = pair.split("-")
    rows = [{first: a, second: b} for a, b in PAIRS[:300]]
    table = pa.table({"id": [str(i) for i in range(300)], "translation": rows})
    pq.write_table(table, folder / pair / "train-00000-of-00001.parquet")
    readme = f"---\nconfigs:\n- config_name: {pair}\n  data_files:\n  - split: train\n    path: {pair}/train-*\n---\n"
    (folder / "README.md").write_text(readme, encoding="utf-8")


def test_the_hub_in_either_direction_then_its_copy(hub: tuple[str, Path], command: Command, tmp_path: Path) -> None:
    endpoint, folder = hub
    hub_layout(folder)
    args = ["--data", "owner/books", *SMALL]
    there = {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hf")}
    done = command("train.py", *args, "--source", "fr", "--target", "en", **there)
    assert done.returncode == 0, done.stderr
    assert "owner/books: 300 pairs read" in done.stderr
    missing = command("train.py", *args, "--target", "it", **there)
    assert missing.returncode == 1
    assert missing.stderr.splitlines() == [
        "train.py: owner/books has neither en-it nor it-en",
        "choose among these with --source and --target: en-fr",
    ]
    gone = command("train.py", *args, HF_ENDPOINT="http://127.0.0.1:9", HF_HOME=str(tmp_path / "hf"))
    assert gone.returncode == 0, gone.stderr
    assert "300 pairs read" in gone.stderr


def test_a_hub_layout_folder_needs_no_network(command: Command, tmp_path: Path) -> None:
    hub_layout(tmp_path / "books", "en-it")
    args = ["--data", "books", "--source", "it", "--target", "en", *SMALL]
    done = command("train.py", *args, HF_ENDPOINT="http://127.0.0.1:9", HF_HOME=str(tmp_path / "hf"))
    assert done.returncode == 0, done.stderr
    assert "books: 300 pairs read" in done.stderr


@needs_shared("opus_books")
@pytest.mark.parametrize("pair", [("en", "fr"), ("it", "en")])
def test_opus_books(pair: tuple[str, str], command: Command, tmp_path: Path) -> None:
    data = ["--data", str(SHARED / "opus_books"), "--source", pair[0], "--target", pair[1]]
    done = command("train.py", *data, *SMALL, HF_HOME=str(tmp_path / "hf"))
    assert done.returncode == 0, done.stderr
    assert f"tokens    {pair[0]}:" in done.stderr and "swapped-columns" in done.stderr
    assert PRESETS["opus_books"].data == "Helsinki-NLP/opus_books"
