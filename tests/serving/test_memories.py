"""Translation memories of the server: by the languages of the files; what they have is taken, or shown."""

from pathlib import Path

import pytest
from conftest import Command

from checkpoint import RunFolder
from decoding.translator import Translator
from tapis.config import ConfigError
from tapis.memory import Match, write_memory
from tapis.release import Release
from tapis.search import Search
from tapis.serving.models import MOST_COMPARED, MOST_PAIRS, Kind, Models, find_models
from tapis.system.cli import ServeOptions
from tapis.text.lines import DataError

pytest.importorskip("granian")

PAIRS = [("A cat.", "Un <matou> !"), ("The dog sleeps now.", "Le chien dort.")]


@pytest.fixture
def models(run_folder: RunFolder) -> Models:
    return find_models([str(run_folder.path)], Release, lambda path: Translator.load(path, "cpu"), 1)


def test_what_the_memory_has_is_taken_and_what_is_like_it_is_shown(models: Models) -> None:
    lines = ["A  cat.", "", "The dog sleeps.", "Nothing like it."]
    usual = models.translator_of(Kind("tiny", "en", "fr", Search()))(lines, lambda: None)
    write_memory(Path("m.tmx"), PAIRS, "en", "fr")
    models.read_memory(Path("m.tmx"))
    found = models.translator_of(Kind("tiny", "en", "fr", Search(), with_details=True))(lines, lambda: None)
    texts = [answer.translations[0].text for answer in found]
    assert texts == ["Un <matou> !", *(answer.translations[0].text for answer in usual[1:])]
    exact, blank, near, other = (answer.remembered for answer in found)
    assert exact == Match(1.0, "A  cat.", "Un <matou> !") and blank is other is None
    assert near and near.target == "Le chien dort." and 0.7 < near.similarity < 1

    # In a page, its text is no markup; and tags go around its words.
    of_page = models.translator_of(Kind("tiny", "en", "fr", Search(), "html"))
    texts = [answer.translations[0].text for answer in of_page(["A cat.", "A <b>cat.</b>"], lambda: None)]
    assert texts == ["Un &lt;matou&gt; !", "Un <b>&lt;matou&gt; !</b>"]
    assert not any(answer.remembered for answer in of_page(["The dog sleeps."], lambda: None)), "nobody would see it"


def test_only_so_many_lines_are_compared(models: Models) -> None:
    write_memory(Path("m.tmx"), PAIRS, "en", "fr")
    models.read_memory(Path("m.tmx"))
    kind = Kind("tiny", "en", "fr", Search(), with_details=True)
    answers = models.translator_of(kind)(["The dog sleeps."] * (MOST_COMPARED + 5), lambda: None)
    # A batch of several requests has fewer: nobody's lines take the place of another's.
    assert ServeOptions().max_lines < MOST_COMPARED
    assert [answer.remembered is not None for answer in answers] == [True] * MOST_COMPARED + [False] * 5


def test_a_memory_of_other_languages_is_an_error(models: Models, called: Command) -> None:
    write_memory(Path("m.tmx"), PAIRS, "en", "de")
    with pytest.raises(DataError, match=r"m\.tmx"):
        models.read_memory(Path("m.tmx"))
    models.pairs[("en", "de")] = "tiny"
    models.read_memory(Path("m.tmx"))
    assert list(models.memories) == [("en", "de")]
    with pytest.raises(ConfigError, match="there is another one for en-de"):
        models.read_memory(Path("m.tmx"))
    models.memories.clear()
    models.pairs |= {(f"l{i}", "fr"): "tiny" for i in range(MOST_PAIRS)}
    with pytest.raises(ConfigError, match=r"name its language pair, such as m\.en-fr\.tmx"):
        models.read_memory(Path("m.tmx"))
    Path("m.tmx").rename("m.en-de.tmx")
    models.read_memory(Path("m.en-de.tmx"))
    assert list(models.memories) == [("en", "de")]
    done = called("serve.py", "--run", "tiny", "--device", "cpu", "--memory", "m.csv")
    assert (done.returncode, done.stdout) == (2, "") and "a translation memory is a .tmx file" in done.stderr
