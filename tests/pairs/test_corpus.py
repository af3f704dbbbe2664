"""Tests of the corpus: splitting, leaks, reports, cached tables, the built-in demo, and datasets on the hub."""

import contextlib
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
from conftest import ROOT, SHARED, Command, eventually, needs_shared

from config import PRESETS, Config
from dataset import EncodedPairs
from pairs.batches import clean_batch, clean_in_processes, normalize
from pairs.cleaned import cleaned_table, code_files, code_key
from pairs.cleaning import RULES, Cleaner, CleanerSettings
from pairs.corpus import Corpus, load_corpus
from pairs.origins import labels, origins
from pairs.readers import Part, read_parts
from pairs.report_lines import data_lines
from pairs.tables import column
from pairs.vocabulary import learn_tokenizer
from tapis.config import pairs_of_all
from tapis.text.lines import DataError, Pair, lines
from tapis.threads import chunks

PAIRS = [(f"sentence number {i}", f"le numéro {i} de la phrase") for i in range(2000)]
SMALL = ["--vocab-size", "300", "--d-model", "16", "--d-ff", "16", "--dry-run"]
EN_FR = Config(data=("data",))


def write(folder: Path, **files: str) -> None:
    """Write text files. train_en is the file train.en."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_bytes(text.encode())


def source_text(pairs: list[Pair]) -> str:
    return "".join(source + "\n" for source, _ in pairs)


def target_text(pairs: list[Pair]) -> str:
    return "".join(target + "\n" for _, target in pairs)


# Sources


def test_duplicates_and_leaks_are_found_across_sources(tmp_path: Path) -> None:
    write(tmp_path / "data", train_en="a b\nc d\n", train_fr="e f\ng h\n", valid_en="i j\n", valid_fr="k l\n")
    write(
        tmp_path / "other",
        train_en="c d\nI, J!\nm n\no p\nu v\n",  # a duplicate of the first source, leaks of both sources, two others
        train_fr="g h\nq r\nx y\ns t\nw z\n",
        valid_en="U v.\n",
        valid_fr="y x\n",
    )
    config = replace(EN_FR, data=("data", "other"), skip_rules=("wrong-language", "swapped-columns"), test_share=0)
    corpus = load_corpus(config)
    assert list(corpus.train) == [("a b", "e f"), ("c d", "g h"), ("m n", "x y"), ("o p", "s t")]
    assert list(corpus.valid) == [("i j", "k l"), ("U v.", "y x")]
    assert corpus.train.origins().tolist() == [0, 0, 1, 1] and corpus.valid.origins().tolist() == [0, 1]
    assert corpus.train[1:3] == [("c d", "g h"), ("m n", "x y")] and corpus.train[3] == ("o p", "s t")
    assert corpus.train.select(np.array([0, 2])).origins().tolist() == [0, 1]

    one, other = corpus.report.sources
    counts = [(report.read, report.train, report.valid, report.test) for report in (one, other)]
    assert counts == [(3, 2, 1, 0), (6, 2, 1, 0)]
    assert (corpus.report.read, corpus.report.train) == (9, 4)
    assert [other.rules[rule].pairs for rule in ("duplicates", "held-out")] == [1, 2]
    assert [corpus.report.rules[rule].pairs for rule in ("duplicates", "held-out")] == [1, 2]


def test_a_source_alone_is_the_same_as_before_with_others(tmp_path: Path) -> None:
    write(tmp_path / "data", train_en=source_text(PAIRS[:1000]), train_fr=target_text(PAIRS[:1000]))
    write(tmp_path / "more", train_en=source_text(PAIRS[1000:]), train_fr=target_text(PAIRS[1000:]))
    one, two = (load_corpus(replace(EN_FR, data=data)) for data in (("data",), ("data", "more")))
    for part in ("train", "valid", "test"):
        alone, together = getattr(one, part), getattr(two, part)
        assert list(together)[: len(alone)] == list(alone)
    assert len(two.train) + len(two.valid) + len(two.test) == len(PAIRS)
    assert two.train.fingerprint() != one.train.fingerprint() and two.train.words() != one.train.words()


@pytest.mark.parametrize("line", ["word " * 9000, "字" * 90_000])
@pytest.mark.parametrize("part", ["valid", "test"])
def test_a_held_out_part_of_endless_lines_is_refused_before_training(tmp_path: Path, part: str, line: str) -> None:
    """Translating one at a validation would take all memory."""
    for language, lines_of in (("en", source_text), ("fr", target_text)):
        write(tmp_path / "data", **{f"train_{language}": lines_of(PAIRS), f"{part}_{language}": lines_of(PAIRS[:9])})
        file = tmp_path / "data" / f"{part}.{language}"
        file.write_text(file.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"the {part} part has a pair of 9,000 words.*is there one sentence per line"):
        load_corpus(replace(EN_FR, data=("data",)))


def test_a_source_given_twice_has_no_pairs_left(tmp_path: Path) -> None:
    write(tmp_path / "data", train_en=source_text(PAIRS), train_fr=target_text(PAIRS))
    with pytest.raises(DataError, match="no pairs left in the train part"):
        load_corpus(replace(EN_FR, data=("data", "data")))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (("a/books", "b/films.tsv"), ["books", "films.tsv"]),
        (("a/books", "owner/books", "talks"), ["books-1", "books-2", "talks"]),
        (("a/books", "owner/books", "books-1"), ["books-1", "books-2", "books-1-1"]),
    ],
)
def test_sources_have_short_names(data: tuple[str, ...], expected: list[str]) -> None:
    assert labels(data) == expected


def test_sources_are_named_in_a_moment_however_many_there_are() -> None:
    start = time.monotonic()
    assert labels(["a"] * 20_000)[-1] == "a-20000" and len(set(labels(["a", "a-1"] * 5000))) == 10_000
    pairs = pairs_of_all([f"l{i}" for i in range(120)])
    assert len(origins(Config(pairs=tuple(pairs)))) == len(pairs)
    files = tuple(f"n{i}.l7" for i in range(1000))
    assert len(origins(Config(pairs=tuple(pairs), monolingual=files))) == len(pairs) + 1000 * 119
    assert time.monotonic() - start < 10


def test_columns_are_chosen_in_tables_alone(tmp_path: Path) -> None:
    rows = "".join(f"{i};{target};{source}\n" for i, (source, target) in enumerate(PAIRS[:1000]))
    write(tmp_path, table_csv=rows)
    write(tmp_path / "data", train_en=source_text(PAIRS[1000:]), train_fr=target_text(PAIRS[1000:]))
    corpus = load_corpus(replace(EN_FR, data=("table.csv", "data"), columns=("3", "2")))
    assert sorted([*corpus.train, *corpus.valid, *corpus.test]) == sorted(PAIRS)
    with pytest.raises(DataError, match="--columns is for"):
        load_corpus(replace(EN_FR, columns=("3", "2")))


def test_long_texts_are_cleaned_in_small_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "data", train_en=source_text(PAIRS), train_fr=target_text(PAIRS))
    before = load_corpus(EN_FR)
    monkeypatch.setattr("pairs.cleaned.MAX_CHUNK_CHARACTERS", 300)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    sizes = []
    clean = clean_batch

    def counted(cleaner: Cleaner, pairs: list[Pair]) -> dict[str, Any]:
        sizes.append(len(pairs))
        return clean(cleaner, pairs)

    monkeypatch.setattr("pairs.batches.clean_batch", counted)
    assert list(load_corpus(EN_FR).train) == list(before.train)
    assert max(sizes) < 20 and sum(sizes) == len(PAIRS)


# Parts


def test_missing_parts_are_split_off_train(tmp_path: Path) -> None:
    write(tmp_path / "data", train_en=source_text(PAIRS), train_fr=target_text(PAIRS))
    corpus = load_corpus(replace(EN_FR, valid_share=0.1, test_share=0.05))
    assert sorted([*corpus.train, *corpus.valid, *corpus.test]) == sorted(PAIRS)
    assert 150 < len(corpus.valid) < 250
    assert 60 < len(corpus.test) < 140


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train_en": "\n", "train_fr": "c\n", "valid_en": "e\n", "valid_fr": "f\n"}, "pairs left in the train part"),
        ({"train_en": "a\n", "train_fr": "b\n", "valid_en": "\n", "valid_fr": "f\n"}, "pairs left in the valid part"),
    ],
)
def test_an_empty_part_is_an_error(tmp_path: Path, files: dict[str, str], message: str) -> None:
    write(tmp_path / "data", **files)
    with pytest.raises(DataError, match=message):
        load_corpus(EN_FR)


def test_a_small_source_needs_no_validation_part_beside_others(tmp_path: Path) -> None:
    write(tmp_path / "small", train_en=source_text(PAIRS[:5]), train_fr=target_text(PAIRS[:5]))
    write(tmp_path / "large", train_en=source_text(PAIRS[5:]), train_fr=target_text(PAIRS[5:]))
    corpus = load_corpus(replace(EN_FR, data=("small", "large")))
    small, large = corpus.report.sources
    assert (small.train, small.valid) == (5, 0) and large.valid == len(corpus.valid) > 0
    note = "no pairs to validate with: the other sources have some"
    assert note in small.notes and note not in large.notes
    with pytest.raises(DataError, match="small: no pairs left in the valid part"):
        load_corpus(replace(EN_FR, data=("small",)))


def test_report_counts_the_pairs_of_each_rule(tmp_path: Path) -> None:
    write(tmp_path / "data", train_en="a\na\nb\n\n", train_fr="c\nc\nd\nx\n", valid_en="B!\n", valid_fr="f\n")
    corpus = load_corpus(replace(EN_FR, test_share=0))
    report = corpus.report
    assert list(corpus.train) == [("a", "c")]
    assert (report.read, report.train, report.valid, report.test) == (5, 1, 1, 0)
    counts = {name: rule.pairs for name, rule in report.rules.items() if rule.pairs}
    assert counts == {"duplicates": 1, "empty-side": 1, "held-out": 1}
    assert report.rules["held-out"].examples == [("b", "d")]
    without_rules = load_corpus(replace(EN_FR, test_share=0, skip_rules=("duplicates", "held-out")))
    assert list(without_rules.train) == [("a", "c"), ("a", "c"), ("b", "d")]


def split_of(pairs: list[Pair], **options: Any) -> dict[str, list[Pair]]:
    """The parts of a corpus whose data is one part of these pairs."""
    write(Path("data"), train_en=source_text(pairs), train_fr=target_text(pairs))
    corpus = load_corpus(replace(EN_FR, skip_rules=("swapped-columns", "wrong-language"), **options))
    return {"train": list(corpus.train), "valid": list(corpus.valid), "test": list(corpus.test)}


def test_rules_that_do_not_cover_the_languages_are_not_reported_as_idle(tmp_path: Path) -> None:
    for language in ("en", "tlh"):
        lines = "".join(f"{language} sentence number {i}\n" for i in range(200))
        (tmp_path / f"train.{language}").write_text(lines, encoding="utf-8")
    report = load_corpus(replace(PRESETS["demo"], data=(str(tmp_path),), pairs=("en-tlh",))).report
    assert not {"swapped-columns", "wrong-language"} & report.rules.keys()
    assert "length-ratio" in report.rules and "py3langid cannot tell en from tlh" in report.notes[0]


def test_a_pair_stays_in_its_part_when_data_grows_or_changes_direction() -> None:
    original = split_of(PAIRS[:1000], valid_share=0.1, test_share=0.1)
    grown = split_of(PAIRS[::-1], valid_share=0.1, test_share=0.1)
    exchanged = [(target.upper() + " !", source) for source, target in PAIRS[:1000]]
    reversed_direction = split_of(exchanged, valid_share=0.1, test_share=0.1)
    for part, pairs in original.items():
        assert len(pairs) > 60
        assert set(pairs) <= set(grown[part])
        assert {normalize(target) for _, target in reversed_direction[part]} == {normalize(a) for a, _ in pairs}


def test_a_part_that_is_split_off_takes_a_number_of_pairs_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the data grows beyond it, pairs go back to train, and none from valid to test. A given part stays whole."""
    monkeypatch.setattr("pairs.corpus.MOST_HELD_OUT", 50)
    small, large, fewer = (
        split_of(pairs, valid_share=0.1, test_share=0.1) for pairs in (PAIRS[:500], PAIRS, PAIRS[:-5])
    )
    for part in ("valid", "test"):
        assert 15 < len(small[part]) < 70 and 15 < len(large[part]) < 70
        assert set(large[part]) & set(PAIRS[:500]) < set(small[part])
        assert set(fewer[part]) <= set(large[part]), "a few pairs more or less change no part"
    assert sorted(pair for part in large.values() for pair in part) == sorted(PAIRS)
    given = PAIRS[:200]
    write(Path("data"), valid_en=source_text(given), valid_fr=target_text(given))
    assert split_of(PAIRS, test_share=0)["valid"] == given


def test_monolingual_text_makes_the_parts_of_pairs_no_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run scores its test part without this text (evaluate.py): the part must have no pair that it learned from."""
    monkeypatch.setattr("pairs.corpus.MOST_HELD_OUT", 50)
    for name in ("a.fr", "b.fr"):
        Path(name).write_text(f"Le chat de {name} dort.\n", encoding="utf-8")
    alone = split_of(PAIRS, test_share=0.1)
    beside_text = split_of(PAIRS, test_share=0.1, monolingual=("a.fr", "b.fr"), back_translator="other")
    assert (alone["valid"], alone["test"]) == (beside_text["valid"], beside_text["test"])


def test_given_parts_are_repaired_and_lose_only_empty_sides(tmp_path: Path) -> None:
    given = [("The king sleeps.", "Le roi dort."), ("The king sleeps.", "Le roi dort."), ("Paris", "Paris"), ("x", "")]
    given.append(("Le chat dort bien.", "The cat\x92s asleep."))
    write(
        tmp_path / "data",
        train_en=source_text(PAIRS),
        train_fr=target_text(PAIRS),
        valid_en=source_text(given),
        valid_fr=target_text(given),
    )
    corpus = load_corpus(replace(EN_FR, test_share=0))
    assert list(corpus.valid) == [*given[:3], ("The cat’s asleep.", "Le chat dort bien.")]
    assert corpus.report.rules["swapped-columns"].examples == [("Le chat dort bien.", "The cat’s asleep.")]


def test_training_pairs_that_share_a_side_with_validation_are_dropped(tmp_path: Path) -> None:
    train = [("A cat.", "x"), ("y", "un  CHIÉN"), ("z", "w"), ("?!", "…")]
    valid = [("a cat", "q"), ("r", "Un chien!"), ("!?", "!")]
    write(
        tmp_path / "data",
        train_en=source_text(train),
        train_fr=target_text(train),
        valid_en=source_text(valid),
        valid_fr=target_text(valid),
    )
    corpus = load_corpus(replace(EN_FR, test_share=0))
    assert list(corpus.train) == train[2:]
    assert corpus.report.rules["held-out"].pairs == 2


# Cached tables


def test_cached_tables_are_those_of_all_code_that_was_imported() -> None:
    folders = ("pairs.", "tapis.text.")
    loaded = f"import sys, pairs.corpus; print(*sorted(name for name in sys.modules if name.startswith({folders})))"
    done = subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True, check=True)
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in code_files()]
    assert names == done.stdout.split()


def test_cached_tables_are_those_of_the_packages_that_know_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_key.__wrapped__()
    for package in ("py3langid", "babel"):
        monkeypatch.setattr("pairs.cleaned.version", lambda name, new=package: "new" if name == new else version(name))
        assert code_key.__wrapped__() != before


def test_unchanged_data_is_not_cleaned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "data", train_en=source_text(PAIRS), train_fr=target_text(PAIRS))
    before = load_corpus(EN_FR)
    cleaning_calls = []
    monkeypatch.setattr("pairs.batches.clean_batch", lambda *args: cleaning_calls.append(args))
    (tmp_path / "data").rename(tmp_path / "moved")
    again = load_corpus(replace(EN_FR, data=("moved",)))
    assert list(again.train) == list(before.train) and again.train.key == before.train.key
    assert again.report == replace(before.report, name="moved") and not cleaning_calls


def test_changed_data_is_cleaned_again(tmp_path: Path) -> None:
    write(tmp_path / "data", train_en=source_text(PAIRS), train_fr=target_text(PAIRS))
    before = load_corpus(EN_FR)
    write(tmp_path / "data", train_en=source_text([(source + "!", target) for source, target in PAIRS]))
    after = load_corpus(EN_FR)
    assert after.train[0] == (before.train[0][0] + "!", before.train[0][1])
    assert after.train.key != before.train.key


def test_broken_data_leaves_no_table(tmp_path: Path) -> None:
    write(tmp_path / "data", train_en="a\n" * 5000, train_fr="b\n" * 4999)
    cache = Path(datasets.config.HF_DATASETS_CACHE) / "tapis"
    cache.mkdir(exist_ok=True)
    before = set(cache.iterdir())
    for _ in range(2):
        with pytest.raises(DataError, match="must have the same number of lines"):
            load_corpus(EN_FR)
    assert set(cache.iterdir()) == before


def test_a_numeric_column_is_read_without_the_texts_beside_it(demo: Corpus) -> None:
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        hashes, is_repaired = (column(demo.train.rows, name) for name in ("source_hash", "repaired"))
    finally:
        pa.set_memory_pool(before)
    assert pool.max_memory() < 100_000 < demo.train.rows.data.nbytes
    assert hashes.tolist() == demo.train.rows["source_hash"][:]
    assert is_repaired.dtype == bool and is_repaired.tolist() == demo.train.rows["repaired"][:]


@pytest.mark.slow
def test_several_processes_clean_like_one() -> None:
    pairs = [*PAIRS, ("Le roi dort bien.", "The king sleeps well."), ("", "x")] * 2
    cleaner = Cleaner("en", "fr")

    def clean(n_processes: int) -> list[dict[str, Any]]:
        return list(clean_in_processes(lambda: cleaner, chunks(pairs, 300), n_processes))

    assert clean(2) == clean(1)
    assert sum(len(batch["source"]) for batch in clean(1)) == len(pairs)


def test_preparing_prints_its_progress_where_there_is_no_terminal(
    demo: Corpus, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapis.system.terminal.SECONDS_BETWEEN_REPORTS", 0)
    for module in ("pairs.vocabulary", "dataset"):
        monkeypatch.setattr(f"{module}.MANY_PAIRS", 100)
    monkeypatch.setattr("pairs.cleaned.PAIRS_OF_A_PROCESS", 100)
    monkeypatch.setattr("pairs.cleaned.n_cores", lambda: 2)
    in_this_process = partial(clean_in_processes, n_processes=1)
    monkeypatch.setattr(
        "pairs.cleaned.clean_in_processes", lambda cleaner, batches, _: in_this_process(cleaner, batches)
    )

    cleaned_table(Part(PAIRS, "of this test"), CleanerSettings("en", "fr", tuple(RULES)))
    pairs = demo.train.select(np.arange(1500))
    EncodedPairs.of(pairs, learn_tokenizer(pairs, 444))
    lines = [line.partition(" pairs")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        *("cleaning: 1,000", "cleaning: 2,000"),
        *("counting words: 1,000 of 1,500", "counting words: 1,500 of 1,500"),
        *("encoding: 1,000 of 1,500", "encoding: 1,500 of 1,500"),
    ]


# The demo


def test_demo_files_match_the_output_of_their_script() -> None:
    spec = importlib.util.spec_from_file_location("make_corpus", ROOT / "demo" / "make_corpus.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_corpus"] = module  # dataclasses look up their own module
    spec.loader.exec_module(module)
    for part, pairs in module.make().items():
        for side, language in enumerate(("en", "fr")):
            assert list(lines(ROOT / "demo" / f"{part}.{language}")) == [pair[side] for pair in pairs]


def test_demo_pairs_are_distinct_and_parts_share_no_side(demo: Corpus) -> None:
    assert demo.report.read == len(demo.train) + len(demo.valid) + len(demo.test)
    for side in (0, 1):
        parts = [{pair[side] for pair in part} for part in (demo.train, demo.valid, demo.test)]
        assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]
    assert len(set(demo.train)) == len(demo.train) > 5000


def test_tutorial_sentence_is_only_in_the_test_part(demo: Corpus) -> None:
    tutorial_sentences = {"The cat sits on the mat.", "The cat is sitting on the mat."}
    assert not tutorial_sentences & {en for en, _ in [*demo.train, *demo.valid]}
    assert {fr for en, fr in demo.test if en in tutorial_sentences} == {"Le chat est assis sur le tapis."}


def test_demo_french_has_elision_contraction_and_agreement(demo: Corpus) -> None:
    wrong = re.compile(
        r"\b(le|la|de|ne|que|je|ma|sa|ce) [aeiouéêœhAEIOUÉ]|\b(à|de) les?\b"
        r"|\b(la|une|cette|ma|sa) (chat|chien|roi|tapis)\b"
        r"|\b(le|un|ce) (vache|souris|reine|fille|table|maison)\b|\bun [a-z]+s (chat|chien)\b"
    )
    for _, fr in [*demo.train, *demo.valid, *demo.test]:
        assert not wrong.search(fr), fr
        assert unicodedata.is_normalized("NFC", fr)
    train_text = " ".join(fr for _, fr in demo.train)
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
        assert form in train_text


# The hub


def test_an_unreachable_hub_is_reported_within_seconds(command: Command, tmp_path: Path) -> None:
    """The hub's client would retry for half a minute and print each attempt."""
    start = time.monotonic()
    result = command("train.py", HF_ENDPOINT="http://127.0.0.1:9", HF_HOME=str(tmp_path / "hf"))
    assert time.monotonic() - start < 20  # of which a slow machine takes ten to import
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        "train.py: the hub cannot be reached for Helsinki-NLP/opus_books, and no downloaded copy of en-fr exists",
        "try: python train.py demo, or: python train.py --data FOLDER",
    ]


def hub_layout(folder: Path, pair: str = "en-fr") -> None:
    """Write a dataset in the hub's layout: one Parquet file per language pair, and a README that lists the pairs."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / pair).mkdir(parents=True)
    first, second = pair.split("-")
    rows = [{first: a, second: b} for a, b in PAIRS[:300]]
    table = pa.table({"id": [str(i) for i in range(300)], "translation": rows})
    pq.write_table(table, folder / pair / "train-00000-of-00001.parquet")
    readme = f"---\nconfigs:\n- config_name: {pair}\n  data_files:\n  - split: train\n    path: {pair}/train-*\n---\n"
    (folder / "README.md").write_text(readme, encoding="utf-8")


def test_rows_of_the_hub_are_read_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the same as `datasets` gives one by one, of which only the first is looked at so."""
    schema = pa.schema({"id": pa.string(), "translation": pa.struct({"en": pa.string(), "fr": pa.string()})})
    records = [{"id": str(i), "translation": {"en": en, "fr": fr}} for i, (en, fr) in enumerate(PAIRS)]
    with pa.OSFile("split.arrow", "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for batch in chunks(records, 300):
            writer.write_batch(pa.RecordBatch.from_pylist(batch, schema))
    split = datasets.Dataset.from_file("split.arrow")
    assert list(split) == records
    one_by_one = datasets.Dataset.__iter__
    monkeypatch.setattr(datasets.Dataset, "__iter__", lambda rows: islice(one_by_one(rows), 1))
    monkeypatch.setattr("pairs.readers.hub_answers", lambda *_: True)
    monkeypatch.setattr("pairs.readers._load_language_pair", lambda *_: {"train": split})
    assert list(read_parts("owner/books", "en", "fr")["train"].rows) == PAIRS
    with pytest.raises(DataError, match=r'no field "it".*\n.*download a file of it, and type: --data FILE --columns'):
        list(read_parts("owner/books", "en", "it")["train"].rows)


def test_a_dataset_without_names_of_pairs_is_found_offline(
    hub: tuple[str, Path], command: Command, tmp_path: Path
) -> None:
    endpoint, folder = hub
    hub_layout(folder)
    (folder / "en-fr").rename(folder / "data")
    (folder / "README.md").unlink()
    for address in (endpoint, "http://127.0.0.1:9"):
        done = command("train.py", "--data", "owner/books", *SMALL, HF_ENDPOINT=address, HF_HOME=str(tmp_path / "hf"))
        assert done.returncode == 0, done.stderr
        assert "owner/books: 300 pairs read" in done.stderr


@pytest.mark.parametrize(
    ("configurations", "is_loaded"),
    [(["default"], True), (["main"], True), (["main", "other"], False), (["de-fr"], False), (["main", "en-fr"], True)],
)
def test_a_single_configuration_of_a_dataset_may_have_any_name_but_that_of_another_pair(
    configurations: list[str], is_loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = datasets.Dataset.from_dict({"en": ["a"], "fr": ["b"]})
    loaded: list[str] = []
    monkeypatch.setattr("pairs.readers.hub_answers", lambda *_: True)
    monkeypatch.setattr(datasets, "get_dataset_config_names", lambda _: configurations)

    def load_dataset(_: str, configuration: str) -> dict[str, datasets.Dataset]:
        loaded.append(configuration)
        return {"train": split}

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    if is_loaded:
        assert list(read_parts("owner/books", "en", "fr")["train"].rows) == [("a", "b")]
        assert loaded == configurations[-1:]
    else:
        with pytest.raises(
            DataError, match=r"neither en-fr nor fr-en\navailable pairs .*: " + ", ".join(configurations)
        ):
            read_parts("owner/books", "en", "fr")


def test_fields_of_a_dataset_may_have_the_names_of_languages(
    hub: tuple[str, Path], command: Command, tmp_path: Path
) -> None:
    endpoint, folder = hub
    folder.mkdir()
    rows = [f"{json.dumps({'id': str(i), 'French': fr, 'English': en})}\n" for i, (en, fr) in enumerate(PAIRS[:300])]
    (folder / "train.jsonl").write_text("".join(rows), encoding="utf-8")
    # Other tests have a dataset of this name and version.
    places = {"HF_HOME": str(tmp_path / "hf"), "HF_DATASETS_CACHE": str(tmp_path / "cache")}
    done = command("train.py", "--data", "owner/books", *SMALL, HF_ENDPOINT=endpoint, **places)
    assert done.returncode == 0, done.stderr
    assert "owner/books: 300 pairs read" in done.stderr and 'fields "English", "French"' in done.stderr


def test_hub_pair_is_found_in_either_order_and_offline(hub: tuple[str, Path], command: Command, tmp_path: Path) -> None:
    endpoint, folder = hub
    hub_layout(folder)
    args = ["--data", "owner/books", *SMALL]
    online = {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hf")}
    reverse = command("train.py", *args, "--source", "fr", "--target", "en", **online)
    assert reverse.returncode == 0, reverse.stderr
    assert "owner/books: 300 pairs read" in reverse.stderr
    missing = command("train.py", *args, "--target", "it", **online)
    assert missing.returncode == 1
    assert missing.stderr.splitlines() == [
        "train.py: owner/books has neither en-it nor it-en",
        "available pairs (choose with --source and --target, or --pairs): en-fr",
    ]
    offline = command("train.py", *args, HF_ENDPOINT="http://127.0.0.1:9", HF_HOME=str(tmp_path / "hf"))
    assert offline.returncode == 0, offline.stderr
    assert "300 pairs read" in offline.stderr


@pytest.mark.parametrize(
    "data",
    [
        "data_files: {}/secret.tsv",
        "data_files: [{{split: train, path: ['{}/secret.tsv']}}]",
        "data_files: http://127.0.0.1:9/secret.tsv",
        "data_files: hf://datasets/owner/other/secret.tsv",
        "data_files: ../../../../owner/other/secret.tsv",
        "data_files: zip://secret.tsv::{}/secret.zip",
        "data_dir: {}",
        "data_dir: ../../other",
    ],
)
def test_a_dataset_of_the_hub_names_nothing_outside_of_its_repository(
    hub: tuple[str, Path], command: Command, tmp_path: Path, data: str
) -> None:
    endpoint, folder = hub
    hub_layout(folder)
    (tmp_path / "secret.tsv").write_text("en\tfr\na\tb\n", encoding="utf-8")
    card = f"---\nconfigs:\n- config_name: en-fr\n  {data.format(tmp_path, tmp_path)}\n---\n"
    (folder / "README.md").write_text(card, encoding="utf-8")
    options = {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hf")}
    done = command("train.py", "--data", "owner/books", *SMALL, **options)
    assert done.returncode == 1 and len(done.stderr.splitlines()) <= 2
    assert "owner/books names data outside of its repository" in done.stderr


def test_local_folder_in_hub_layout_needs_no_network(command: Command, tmp_path: Path) -> None:
    hub_layout(tmp_path / "books", "en-it")
    # Its Italian is French.
    args = ["--data", "books", "--source", "it", "--target", "en", "--skip-rules", "wrong-language", *SMALL]
    result = command("train.py", *args, HF_ENDPOINT="http://127.0.0.1:9", HF_HOME=str(tmp_path / "hf"))
    assert result.returncode == 0, result.stderr
    assert "books: 300 pairs read" in result.stderr


@pytest.mark.parametrize("long", ["word " * (8 * EN_FR.max_length + 1), "字" * 20_000])
def test_extremely_long_pairs_are_not_drawn_for_validation(long: str) -> None:
    extreme = [(f"{i} {long}", f"{i} {long}x") for i in range(50)]
    parts = split_of([*PAIRS[:100], *extreme], valid_share=0.2, test_share=0.2)
    assert max(len(source) for source, _ in (*parts["valid"], *parts["test"])) < 100
    assert min(map(len, parts.values())) > 10 and sum(map(len, parts.values())) == 150


def test_vowel_signs_distinguish_words_and_accents_do_not() -> None:
    assert normalize("लड़का दौड़ रहा है") != normalize("लड़की दौड़ रही है")
    assert normalize("ดุ") != normalize("ดู")
    assert normalize("かき") != normalize("かぎ") and normalize("क्या") != normalize("कया")
    assert normalize("ދަތް") != normalize("ދިތް") and normalize("ᬓᬶ") != normalize("ᬓᬸ")
    assert normalize("Déjà vu !") == normalize("deja vu") and normalize("שָׁלוֹם") == normalize("שלום")
    assert normalize("I ❤️") == normalize("I") and normalize("❤️") != normalize("☺️")


# In a file of its own: the processes that clean import no more than that.
DYING = """
import os, threading
from pathlib import Path
from pairs.cleaning import Cleaner, Verdict

class DyingCleaner(Cleaner):
    # Ends its process while it sends its result, as the system does where memory is short.
    def judge(self, raw_pairs):
        if not raw_pairs:  # the sample, in the main process
            return []
        threading.Timer(1, os._exit, (9,)).start()
        Path("judged").touch()
        pair = ("x" * 2_000_000, "more than a pipe holds")
        return [Verdict(pair, repaired=False, swapped=False, dropped=None)] * len(raw_pairs)
"""


def test_a_killed_process_of_the_cleaning_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("dying.py").write_text(DYING, encoding="utf-8")
    monkeypatch.syspath_prepend(Path.cwd())
    dying = importlib.import_module("dying")

    def slow_batches() -> Iterator[list[Pair]]:
        yield PAIRS[:1]
        eventually(Path("judged").exists)
        time.sleep(3)
        yield PAIRS[:1]

    with pytest.raises(DataError, match="a process that cleans the data was killed"):
        list(clean_in_processes(lambda: dying.DyingCleaner("en", "fr"), slow_batches(), 2))


SLOW = """
import os, time
from pairs.cleaning import Cleaner

class SlowCleaner(Cleaner):
    def judge(self, raw_pairs):
        os.write(1, f"{os.getpid()}\\n".encode())  # whole, beside the other process
        time.sleep(1)
        return super().judge(raw_pairs)
"""
KILLED = """
from pairs.batches import clean_in_processes
from slow import SlowCleaner

if __name__ == "__main__":
    list(clean_in_processes(lambda: SlowCleaner("en", "fr"), iter([[("a", "b")]] * 20), 2))
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="no /proc to see processes in")
def test_cleaning_leaves_no_process_behind_when_it_is_killed() -> None:
    Path("killed.py").write_text(KILLED, encoding="utf-8")
    Path("slow.py").write_text(SLOW, encoding="utf-8")  # the processes do not run the main module again
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path.cwd())])}
    with subprocess.Popen([sys.executable, "killed.py"], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        workers: set[int] = set()
        while len(workers) < 2:
            workers.add(int(process.stdout.readline()))
        process.kill()

    def lives(worker: int) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return Path(f"/proc/{worker}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
        return False

    deadline = time.monotonic() + 30
    while any(map(lives, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(lives, workers))


def test_unreadable_rows_are_reported_with_their_lines_also_from_the_cache() -> None:
    rows = [f"The cat number {i} sleeps.\tLe chat numéro {i} dort.\n" for i in range(300)]
    text = "".join([*rows[:100], "\n", "no tab\n", *rows[100:], "one\ttwo\tthree\n", "\n"])
    for folder in (Path("first"), Path("second"), Path("second")):
        folder.mkdir(exist_ok=True)
        (folder / "d.tsv").write_text(text, encoding="utf-8")
        corpus = load_corpus(Config(data=(str(folder / "d.tsv"),), pairs=("en-fr",), valid_share=0.2))
        unreadable = corpus.report.unreadable
        assert unreadable.pairs == 4 and corpus.report.read == 304
        assert unreadable.examples == [
            ("d.tsv line 101", "a blank line"),
            ("d.tsv line 102", "1 column, expected 2 (en and fr)"),
        ]
        assert sorted([*corpus.train, *corpus.valid, *corpus.test]) == sorted(
            (source, target) for source, target in (row.strip().split("\t") for row in rows)
        )
        lines = data_lines(corpus.report)
        assert any("unreadable, dropped" in line for line in lines)
        assert any(line.strip() == "d.tsv line 101 | a blank line" for line in lines)


def test_an_unreadable_row_may_quote_what_no_table_can_hold(tmp_path: Path) -> None:
    lines = [json.dumps({"en": source, "fr": target}) for source, target in PAIRS[:300]]
    (tmp_path / "d.jsonl").write_text("\n".join([*lines, r'{"\ud800": "x"}']), encoding="utf-8")
    report = load_corpus(replace(EN_FR, data=(str(tmp_path / "d.jsonl"),), valid_share=0.2)).report
    assert report.unreadable.examples == [("d.jsonl line 301", 'no field "en" (fields: \ufffd)')]


def test_the_report_of_a_text_shows_where_a_line_cannot_be_read(tmp_path: Path) -> None:
    name = f"{'long' * 15}.fr"
    sentences = [f"Le chat numéro {i} dort.\n".encode() for i in range(300)]
    (tmp_path / name).write_bytes(b"".join([*sentences, b"Le chien \xff dort.\n"]))
    write(tmp_path / "data", train_en=source_text(PAIRS[:300]), train_fr=target_text(PAIRS[:300]))
    data, monolingual = (str(tmp_path / "data"),), (str(tmp_path / name),)
    config = Config(data=data, pairs=("en-fr", "fr-en"), monolingual=monolingual, valid_share=0.2)
    lines = data_lines(load_corpus(replace(config, skip_rules=tuple(RULES))).report)
    assert any(line.strip().startswith(f"{name} line 301, character 10 | not UTF-8") for line in lines)


@needs_shared("opus_books")
@pytest.mark.parametrize("languages", [("en", "fr"), ("it", "en")])
def test_opus_books_is_read_in_either_direction(languages: tuple[str, str], forked: Command) -> None:
    data = ["--data", str(SHARED / "opus_books"), "--source", languages[0], "--target", languages[1]]
    result = forked("train.py", *data, *SMALL)
    assert result.returncode == 0, result.stderr
    assert f"tokens    {languages[0]}:" in result.stderr and "swapped-columns" in result.stderr
    assert PRESETS["opus_books"].data == ("Helsinki-NLP/opus_books",)
