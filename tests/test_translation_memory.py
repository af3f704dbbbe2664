"""Translation memories: exact matches are taken, near ones shown, and what was translated is written."""

import csv
import io
import json
from pathlib import Path
from unittest.mock import Mock

import pytest
from conftest import Command
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import RunFolder
from decoding.translator import Translator
from tapis.commands.translate import check_source_of_memory
from tapis.config import ConfigError
from tapis.memory import Match, Memory, write_memory
from tapis.system.cli import TranslateOptions
from tapis.text.markup import plain
from tapis.text.tmx import read_tmx
from tapis.translation import Translation
from tapis.typed_text import translate_lines

FLAGS = ["translate.py", "--run", "tiny", "--device", "cpu"]
SIDE = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1).map(lambda text: f"x {text} x")


@given(st.dictionaries(SIDE, SIDE, min_size=1))
def test_what_is_written_is_read_again(pairs: dict[str, str]) -> None:
    Path("memory.tmx").unlink(missing_ok=True)
    write_memory(Path("memory.tmx"), pairs.items(), "en", "fr")
    memory = Memory.read(Path("memory.tmx"), "en", "fr")
    for source in pairs:
        assert memory.exact(f"  {source} ") is not None
    again = Path("memory.tmx").read_bytes()
    write_memory(Path("memory.tmx"), [], "en", "fr")
    assert Path("memory.tmx").read_bytes() == again


def test_a_memory_is_of_one_source_language() -> None:
    """Texts whose language is identified line by line would stand there under a wrong one."""
    file = Path("m.tmx")
    for options in (TranslateOptions(memory=file), TranslateOptions(write_memory=file)):
        check_source_of_memory(Mock(sources=["en"], target="fr"), options)
        with pytest.raises(ConfigError, match="need --source: the model translates en, de into fr"):
            check_source_of_memory(Mock(sources=["en", "de"], target="fr"), options)


@pytest.mark.usefixtures("run_folder")
def test_a_file_that_cannot_be_made_is_told_before_the_work(called: Command) -> None:
    Path("in.html").write_text("<p>A cat.", encoding="utf-8")
    Path("file").touch()
    Path("folder.html").mkdir()
    for flag, file in (("--write-memory", "new.tmx"), ("--output", "new.html"), ("--report", "new.tsv")):
        done = called(*FLAGS, "--input", "in.html", flag, f"file/{file}")
        assert done.returncode == 1 and f"file/{file} cannot be written" in done.stderr and done.stdout == ""
    done = called(*FLAGS, "--input", "in.html", "--output", "folder.html")
    assert done.returncode == 2 and "folder.html is no regular file" in done.stderr


def test_the_last_translation_of_a_text_counts() -> None:
    write_memory(Path("memory.tmx"), [("A <b>cat</b> & a dog.", "Un <b>chat</b>."), ("A cat.", "Un chat.")], "en", "fr")
    write_memory(Path("memory.tmx"), [("A cat.", "Un matou."), ("", "x"), ("y", " ")], "en", "fr")
    pairs = list(read_tmx(Path("memory.tmx"), "en", "fr"))
    assert pairs == [("A <b>cat</b> & a dog.", "Un <b>chat</b>."), ("A cat.", "Un chat."), ("A cat.", "Un matou.")]
    assert Memory.read(Path("memory.tmx"), "en", "fr").exact("A cat.") == "Un matou."


MEMORY = """<?xml version="1.0" encoding="{}"?>\r
<!DOCTYPE tmx SYSTEM "tmx14.dtd"><!-- </body> -->
<tmx version="1.4"><header srclang="en-US"><note>Ours</note></header><body>
<tu changedate="20260101T000000Z"><prop type="x">é</prop><note>&lt;/body></note>
<tuv xml:lang="en-US"><seg>A <bpt i="1">&lt;b></bpt>cat<ept i="1">&lt;/b></ept>.\x02</seg></tuv>
<tuv xml:lang="fr-FR"><seg>Un  chat.</seg></tuv><tuv xml:lang="de"><seg>Eine Katze.</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>A cat.</seg></tuv><tuv xml:lang="fr"><seg>Un matou.</seg></tuv></tu>
  </body >
<!-- é --></tmx>"""


CODECS = ["utf-8", "utf-16-le", "utf-16-be"]


@pytest.mark.parametrize("encoding", ["UTF-8", "utf-8-sig", "UTF-16", "UTF-16-LE", "UTF-16-BE", "windows-1252"])
@given(new=st.lists(st.tuples(SIDE, SIDE)))
def test_writing_only_adds(encoding: str, new: list[tuple[str, str]]) -> None:
    """Whatever else a memory has stays, byte for byte."""
    declared = encoding.removesuffix("-sig").removesuffix("-LE").removesuffix("-BE")
    before = MEMORY.format(declared).encode(encoding)
    Path("m.tmx").write_bytes(before)
    write_memory(Path("m.tmx"), [("A cat.", "Un chat."), *new], "en", "fr")
    after = Path("m.tmx").read_bytes()
    end = next(before.index(tag) for tag in map("</body >".encode, CODECS) if tag in before)
    assert after[:end] == before[:end] and after.endswith(before[end:])

    known = [("A cat.", "Un chat."), ("A cat.", "Un matou.")]
    added = {" ".join(one.split()): " ".join(other.split()) for one, other in [("A cat.", "Un chat."), *new]}
    pairs = [(" ".join(one.split()), " ".join(other.split())) for one, other in read_tmx(Path("m.tmx"), "en", "fr")]
    assert pairs == [*known, *added.items()]
    write_memory(Path("m.tmx"), new, "en", "fr")
    assert Path("m.tmx").read_bytes() == after, "nothing is added that the memory says"


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
def test_a_memory_is_compressed_as_its_name_says(ending: str) -> None:
    file = Path(f"m.tmx{ending}")
    for number in (1, 2):
        write_memory(file, [(f"A cat {number}.", "Un chat.")], "en", "fr")
        assert not file.read_bytes().startswith(b"<?xml")
        assert len(list(read_tmx(file, "en", "fr"))) == number


def test_units_are_added_to_a_memory_without_units() -> None:
    write_memory(Path("m.tmx"), [], "en", "fr")
    write_memory(Path("m.tmx"), [("A cat.", "Un chat.")], "en", "fr")
    assert list(read_tmx(Path("m.tmx"), "en", "fr")) == [("A cat.", "Un chat.")]


def test_a_unit_without_a_text_translates_nothing() -> None:
    memory = Memory([("", "Bonjour"), (" ", "x"), ("A cat.", ""), ("x" + " y" * 5000, "z")])
    assert memory.exact("") is memory.exact("  ") is memory.exact("A cat.") is None
    assert memory.exact_in("&#" + "9" * 5000 + ";", "html") is None
    assert memory.near("x y y") is None, "a text of thousands of words is compared with nothing"


@pytest.mark.parametrize(
    ("source", "target", "is_used"),
    [
        ("Delete <ph>{0}</ph>", "<ph>{0}</ph> wirklich", False),
        ("Delete", "Löschen", True),
        ("Delete", "Löschen von <ut>{0}</ut>", False),
        ("Delete<it pos='begin'>&lt;b></it>", "Löschen", False),
        ("<bpt i='1'>&lt;b></bpt>Delete<ept i='1'/>", "<hi>Löschen</hi>", True),
        ("<bpt i='1'>&lt;a title='<sub>x <ph/></sub>'></bpt>Delete<ept i='1'/>", "Löschen", True),
    ],
)
def test_a_unit_with_placeholders_is_no_translation_of_the_rest(source: str, target: str, is_used: bool) -> None:
    """Though it is a pair to train with, and new units may be added behind it."""
    variants = f'<tuv xml:lang="en"><seg>{source}</seg></tuv><tuv xml:lang="de"><seg>{target}</seg></tuv>'
    unit = f"<tmx><header/><body><tu>{variants}</tu></body></tmx>"
    Path("m.tmx").write_text(unit, encoding="utf-8")
    assert (Memory.read(Path("m.tmx"), "en", "de").exact("Delete") is not None) == is_used
    ((text, translation),) = read_tmx(Path("m.tmx"), "en", "de")
    assert text == "Delete"
    write_memory(Path("m.tmx"), [(text, translation)], "en", "de")
    assert len(list(read_tmx(Path("m.tmx"), "en", "de"))) == (1 if is_used else 2)


def test_a_text_is_found_in_any_unicode_form() -> None:
    """What is written stays as it is."""
    pair = ("Le cafe\u0301 est ici.", "Der Kaffee ist da\u200f.")
    write_memory(Path("memory.tmx"), [pair], "fr", "de")
    assert list(read_tmx(Path("memory.tmx"), "fr", "de")) == [pair]
    memory = Memory.read(Path("memory.tmx"), "fr", "de")
    for text in (pair[0], "Le café est ici.", "Le\u00a0café  est\u200b ici."):
        assert memory.exact(text) == pair[1]
        near = memory.near(text)
        assert near and near.similarity == 1
    content = Path("memory.tmx").read_bytes()
    write_memory(Path("memory.tmx"), [("Le café est ici.", pair[1]), ("\u200b", "x")], "fr", "de")
    assert Path("memory.tmx").read_bytes() == content


def test_texts_that_are_like_each_other_are_found() -> None:
    memory = Memory(
        [("The cat is on the mat.", "a"), ("The dog is on the mat.", "b"), ("Another text altogether.", "c")]
    )
    assert memory.exact("The  cat is on the mat.") == "a" and memory.exact("The cat is on the mat") is None
    assert memory.near("The cat is on the mat!") == Match(0.99, "The cat is on the mat.", "a")
    near = memory.near("The dog is on the red mat.")
    assert near and near.target == "b" and 0.9 < near.similarity < 0.99
    assert memory.near("Nothing like it at all.") is None and Memory([]).near("x") is None and memory.near("") is None


def test_a_short_text_is_found_behind_long_ones() -> None:
    """Though others share as many words with it."""
    long = [(f"If the file is not there, open it again and save the file as number {n}.", "x") for n in range(40)]
    found = Memory([*long, ("Save the file.", "Enregistrez-le.")]).near("Save the file!")
    assert found and found.target == "Enregistrez-le."


def test_the_markup_of_markdown_survives_its_memory(run_folder: RunFolder, called: Command) -> None:
    """A text of the memory would be escaped as a text without markup is."""
    Path("page.md").write_text("A *cat* and [a dog](dog.md).\n\nA cat.\n", encoding="utf-8")
    first = called(*FLAGS, "--input", "page.md", "--write-memory", "memory.tmx")
    assert first.returncode == 0 and [source for source, _ in read_tmx(Path("memory.tmx"), "en", "fr")] == ["A cat."]
    write_memory(Path("memory.tmx"), [("A *cat* and [a dog](dog.md).", "Un *chat* et [un chien](dog.md).")], "en", "fr")
    again = called(*FLAGS, "--input", "page.md", "--memory", "memory.tmx")
    assert again.stdout.split("\n\n")[0] == first.stdout.split("\n\n")[0]


def test_the_command_takes_what_the_memory_has(run_folder: RunFolder, called: Command) -> None:
    write_memory(Path("m.tmx"), [("A cat.", "Un matou !"), ("The dog sleeps.", "Le chien dort.")], "en", "fr")
    flags = [*FLAGS, "--memory", "m.tmx"]
    done = called(*flags, "A  cat.", "A dog.")
    usual = called(*FLAGS, "A cat.", "A dog.")
    assert done.stdout.splitlines() == ["Un matou !", usual.stdout.splitlines()[1]]

    # In documents, with near matches in the report
    Path("page.html").write_text("<p>A cat.</p><p>The big dog sleeps.</p>", encoding="utf-8")
    done = called(*flags, "--input", "page.html", "--output", "out.html", "--report", "r.tsv")
    assert done.returncode == 0 and "<p>Un matou !</p>" in Path("out.html").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(Path("r.tsv").read_text(encoding="utf-8")), delimiter="\t"))
    assert [row["memory"] for row in rows] == ["100 %", "86 %: The dog sleeps. → Le chien dort."]


def test_stops_are_the_same_in_document_report_and_memory(
    run_folder: RunFolder, called: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop that the model adds is left out of all three; one that the memory has is in all three."""
    monkeypatch.setattr(
        Translator, "n_best", lambda self, sentences, search: [[Translation("Un chien.", -1.0)] for _ in sentences]
    )
    write_memory(Path("m.tmx"), [("cats, dogs and so on", "chats, chiens, etc.")], "en", "fr")
    Path("a.json").write_text('{"a": "cats, dogs and so on", "b": "A dog"}', encoding="utf-8")
    flags = ["--input", "a.json", "--memory", "m.tmx", "--report", "r.tsv", "--write-memory", "new.tmx"]
    done = called(*FLAGS, *flags)
    expected = ["chats, chiens, etc.", "Un chien"]
    assert list(json.loads(done.stdout).values()) == expected, done.stderr
    rows = list(csv.DictReader(io.StringIO(Path("r.tsv").read_text(encoding="utf-8")), delimiter="\t"))
    assert [row["translation"] for row in rows] == expected
    assert [target for _, target in read_tmx(Path("new.tmx"), "en", "fr")] == expected


def test_the_report_says_what_was_taken(run_folder: RunFolder, called: Command) -> None:
    pairs = [("A man is sleeping.", "Un homme dort."), ("A cat {x}.", "Un chat {x}."), ("A cat.", "Un chat.")]
    write_memory(Path("m.tmx"), pairs, "en", "fr")
    texts = {
        "A man is <b>sleeping</b>.": "100 %",
        "A man is sleeping.": "100 %",
        "A cat. A man is sleeping.": "100 %",
        "A cat. A dog runs. A man is sleeping.": "100 % of 2 of 3 sentences",
        "A <i>cat</i> {x}.": "99 %: A cat {x}. → Un chat {x}.",
        "Nothing like it at all.": "",
    }
    Path("page.html").write_text("".join(f"<p>{text}</p>" for text in texts), encoding="utf-8")
    done = called(*FLAGS, "--input", "page.html", "--output", "o.html", "--report", "r.tsv", "--memory", "m.tmx")
    assert done.returncode == 0
    rows = list(csv.DictReader(io.StringIO(Path("r.tsv").read_text(encoding="utf-8")), delimiter="\t"))
    assert [row["memory"] for row in rows] == list(texts.values())
    translations = [row["translation"] for row in rows]
    assert translations[:3] == ["Un homme dort.", "Un homme dort.", "Un chat. Un homme dort."]
    assert translations[3].startswith("Un chat. ") and translations[3].endswith(" Un homme dort.")
    assert "<b>" in Path("o.html").read_text(encoding="utf-8").partition("</p>")[0]


def test_only_a_report_searches_for_what_is_like_a_text(
    run_folder: RunFolder, called: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []
    monkeypatch.setattr(Memory, "near", lambda self, text: searched.append(text))
    write_memory(Path("m.tmx"), [("The dog sleeps.", "Le chien dort.")], "en", "fr")
    Path("page.html").write_text("<p>The big dog sleeps.</p>", encoding="utf-8")
    for report, expected in (([], []), (["--report", "r.tsv"], ["The big dog sleeps."])):
        done = called(*FLAGS, "--input", "page.html", "--memory", "m.tmx", *report)
        assert done.returncode == 0 and searched == expected, done.stderr


@pytest.mark.parametrize("line", ["\u200fA cat.", "\u2067A cat.\u2069", "\u200f<b>A cat.</b>\u200e"])
def test_what_sets_the_direction_stays_once_around_a_translation(line: str, run_folder: RunFolder) -> None:
    """However often the memory is read and written."""
    translator = Translator.load(run_folder.path, "cpu", "fp32")
    translation = line.replace("A cat.", "Un chat.")
    for _ in range(2):
        memory = Memory([(plain(line, "html"), plain(translation, "html"))])
        translation = translate_lines(translator, [line], markup="html", memory=memory)[0][0].text
        assert translation == line.replace("A cat.", "Un chat.")
    memory = Memory([("A cat.", "\u202bחתול.\u202c")])
    found = translate_lines(translator, [line], markup="html", memory=memory)[0][0].text
    assert found == line.replace("A cat.", "\u202bחתול.\u202c"), "marks that are the memory's own stay"


@pytest.mark.parametrize("translation", ["\u200fUn chat.", "\u202bUn chat.\u202c"])
def test_a_line_without_marks_gets_what_the_memory_has(translation: str, run_folder: RunFolder) -> None:
    translator = Translator.load(run_folder.path, "cpu", "fp32")
    memory = Memory([("A cat.", translation)])
    for other in ("A cat.", "- <b>A cat.</b>"):
        ((found,),) = translate_lines(translator, [other], markup="html", memory=memory)
        assert plain(found.text, "html") == plain(other, "html").replace("A cat.", translation)


def test_a_sentence_of_the_memory_stays_as_it_is_there(translator: Translator) -> None:
    pairs = [("THE CAT SLEEPS AT 3 PM.", "Le chat dort à 15 h."), ("Hello .", "wrong"), ("7", "wrong")]
    memory = Memory(pairs)
    lines = ["The dog sleeps. THE CAT SLEEPS AT 3 PM.", "THE CAT SLEEPS AT 3 PM.", "Hello {name}.", "7 7"]
    others = ["Hello <file> .", "See {x} now. The dog sleeps. THE CAT SLEEPS AT 3 PM."]
    alone, last = (ranked[0] for ranked in translate_lines(translator, others, memory=memory))
    assert not alone.is_remembered and last.text.endswith(" Le chat dort à 15 h.")
    found = [ranked[0] for ranked in translate_lines(translator, lines, memory=memory)]
    usual = [ranked[0] for ranked in translate_lines(translator, lines)]
    assert found[0].text.endswith(" Le chat dort à 15 h.") and found[1].text == "Le chat dort à 15 h."
    assert [one.is_remembered for one in found] == [False, True, False, False]
    assert [one.is_remembered for one in found[0].sentences] == [False, True]
    same = [one.text == other.text for one, other in zip(found, usual, strict=True)]
    assert same == [False, False, True, True], "a placeholder was taken out, and digits are no text"
