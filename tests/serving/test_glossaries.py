"""Glossaries of the server: one for each language pair, by the names of the files."""

from pathlib import Path

import pytest
from conftest import Command

from checkpoint import RunFolder
from config import Config
from decoding.translator import Translator
from tapis.config import ConfigError, TapisError
from tapis.memory import write_memory
from tapis.release import Release
from tapis.search import Search
from tapis.serving.models import Kind, Models, find_models

pytest.importorskip("granian")


def models_of(run_folder: RunFolder) -> Models:
    return find_models([str(run_folder.path)], Release, lambda path: Translator.load(path, "cpu"), 1)


def test_the_name_of_a_glossary_says_its_language_pair(run_folder: RunFolder) -> None:
    models = models_of(run_folder)
    for name in ("terms.tsv", "terms.en-fr.tsv"):
        Path(name).write_text("cat\tmatou\n", encoding="utf-8")
        models.glossaries.clear()
        models.read_glossary(Path(name))
        assert list(models.glossaries) == [("en", "fr")]
    with pytest.raises(ConfigError, match=r"there is another one for en-fr"):
        models.read_glossary(Path("terms.tsv"))

    # It is for requests of that pair.
    (answer,) = models.translator_of(Kind("tiny", "en", "fr", Search()))(["The cat."], lambda: None)
    assert "matou" in answer.translations[0].text


def test_a_word_that_ends_like_a_language_names_none(run_folder: RunFolder) -> None:
    models = models_of(run_folder)
    models.pairs = dict.fromkeys([("en", "fr"), ("en", "de"), ("pt-BR", "en")], "tiny")
    write_memory(Path("kitchen-de.tmx"), [("A cat.", "Un chat.")], "en", "fr")
    models.read_memory(Path("kitchen-de.tmx"))
    assert list(models.memories) == [("en", "fr")]
    for name in ("golden-fr.tsv", "terms.xen-de.tsv"):
        with pytest.raises(ConfigError, match="must end in a language pair that is served"):
            models.read_glossary(Path(name))
    for name in ("my_en-de.tsv", "terms.pt-BR-en.tsv", "en-fr.tsv"):
        Path(name).write_text("cat\tmatou\n", encoding="utf-8")
        models.read_glossary(Path(name))
    assert list(models.glossaries) == [("en", "de"), ("pt-BR", "en"), ("en", "fr")]


def test_a_glossary_of_no_pair_is_an_error(run_folder: RunFolder, tiny: Config) -> None:
    models = models_of(run_folder)
    models.pairs = {("en", "fr"): "tiny", ("fr", "en"): "tiny"}
    Path("terms.tsv").write_text("cat\tmatou\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"must end in a language pair that is served, such as terms\.en-fr\.tsv"):
        models.read_glossary(Path("terms.tsv"))
    models.pairs = {("en", "fr"): "tiny"}
    Path("terms.de-en.tsv").write_text("cat\tmatou\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"must end in a language pair that is served, such as terms\.en-fr\.tsv"):
        models.read_glossary(Path("terms.de-en.tsv"))
    Path("terms.en-fr.tsv").write_text("cat\n", encoding="utf-8")
    with pytest.raises(TapisError, match="line 1"):
        models.read_glossary(Path("terms.en-fr.tsv"))


def test_the_command_ends_before_it_listens_if_a_glossary_is_wrong(run_folder: RunFolder, called: Command) -> None:
    Path("terms.tsv").write_text("cat\n", encoding="utf-8")
    done = called("serve.py", "--run", "tiny", "--device", "cpu", "--glossary", "terms.tsv")
    assert (done.returncode, done.stdout) == (1, "") and "terms.tsv line 1" in done.stderr
