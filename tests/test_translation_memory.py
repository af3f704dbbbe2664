"""Translation memories: exact matches are taken, near ones shown, and what was translated is written."""

import csv
import io
import re
from pathlib import Path

import pytest
from conftest import Command
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import RunFolder
from tapis.memory import Match, Memory, write_memory
from tapis.text.tmx import read_tmx

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
    added = {" ".join(one.split()): " ".join(other.split()) for one, other in new}
    pairs = [(" ".join(one.split()), " ".join(other.split())) for one, other in read_tmx(Path("m.tmx"), "en", "fr")]
    assert pairs == [*known, *added.items()]
    write_memory(Path("m.tmx"), new, "en", "fr")
    assert Path("m.tmx").read_bytes() == after, "a pair is added once"


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


def test_texts_that_are_like_each_other_are_found() -> None:
    memory = Memory(
        [("The cat is on the mat.", "a"), ("The dog is on the mat.", "b"), ("Another text altogether.", "c")]
    )
    assert memory.exact("The  cat is on the mat.") == "a" and memory.exact("The cat is on the mat") is None
    assert memory.near("The cat is on the mat!") == Match(0.99, "The cat is on the mat.", "a")
    near = memory.near("The dog is on the red mat.")
    assert near and near.target == "b" and 0.9 < near.similarity < 0.99
    assert memory.near("Nothing like it at all.") is None and Memory([]).near("x") is None and memory.near("") is None


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


def test_the_report_says_100_percent_only_of_what_was_taken(run_folder: RunFolder, called: Command) -> None:
    long = "The cat " * 300 + "sleeps."  # too long to be compared
    write_memory(Path("m.tmx"), [("A man is sleeping.", "Un homme dort."), (long, "Le chat dort.")], "en", "fr")
    tagged = "<p>A man is <b>sleeping</b>.</p>"
    Path("page.html").write_text(f"{tagged}<p>A man is sleeping.</p><p><i>The</i>{long[3:]}</p>", encoding="utf-8")
    done = called(*FLAGS, "--input", "page.html", "--output", "o.html", "--report", "r.tsv", "--memory", "m.tmx")
    assert done.returncode == 0
    rows = list(csv.DictReader(io.StringIO(Path("r.tsv").read_text(encoding="utf-8")), delimiter="\t"))
    near = "99 %: A man is sleeping. → Un homme dort."
    assert [row["memory"] for row in rows] == [near, "100 %", f"99 %: {long} → Le chat dort."]
    assert [row["translation"] == "Un homme dort." for row in rows] == [False, True, False]


def test_memories_hold_texts_and_documents_markup(run_folder: RunFolder, called: Command) -> None:
    write_memory(Path("m.tmx"), [("Tom & Jerry", "R&D < <b>"), ("A cat", "x")], "en", "fr")
    Path("page.html").write_text("<p>Tom &amp; Jerry</p><p>A <b>cat</b> &amp; a dog</p>", encoding="utf-8")
    done = called(*FLAGS, "--input", "page.html", "--memory", "m.tmx", "--write-memory", "new.tmx")
    assert done.returncode == 0 and "<p>R&amp;D &lt; &lt;b&gt;</p>" in done.stdout
    pairs = list(read_tmx(Path("new.tmx"), "en", "fr"))
    assert pairs[0] == ("Tom & Jerry", "R&D < <b>") and pairs[1][0] == "A cat & a dog" and "<b>" not in pairs[1][1]


def test_the_command_writes_what_it_translated(run_folder: RunFolder, called: Command) -> None:
    write_memory(Path("m.tmx"), [("Old.", "Vieux.")], "en", "fr")
    Path("in.en").write_text("A cat.\n\nA dog.\nA cat.\n", encoding="utf-8")
    done = called(*FLAGS, "--input", "in.en", "--output", "out.fr", "--write-memory", "m.tmx")
    assert (done.returncode, done.stderr) == (0, "")
    written = re.sub("[\0-\x08\x0b\x0c\x0e-\x1f]", "", Path("out.fr").read_text(encoding="utf-8"))  # not of XML
    translations = [" ".join(line.split()) for line in written.split("\n")]
    expected = [("Old.", "Vieux."), ("A cat.", translations[0]), ("A dog.", translations[2])]
    assert list(read_tmx(Path("m.tmx"), "en", "fr")) == expected


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--memory", "none.tmx"], 1, "none.tmx cannot be read"),
        (["--memory", "x.tmx"], 1, "x.tmx line 1: not TMX"),
        (["--memory", "other.tmx"], 1, "other.tmx: no unit has both en and fr"),
        (["--memory", "x.txt"], 2, "a translation memory is a .tmx file"),
        (["--write-memory", "x.txt"], 2, "a translation memory is a .tmx file"),
        (["--write-memory", "x.tmx"], 1, "x.tmx line 1: not TMX"),
        (["--write-memory", "other.tmx"], 1, "other.tmx: no unit has both en and fr"),
        (["--write-memory", "empty.tmx"], 1, "empty.tmx: units cannot be added, since it has no <body>"),
        (["--write-memory", "cut.tmx.gz"], 1, "cut.tmx.gz is not a complete gzip file"),
    ],
)
def test_a_memory_that_is_none_is_an_error_in_words(
    args: list[str], code: int, says: str, run_folder: RunFolder, called: Command
) -> None:
    Path("x.tmx").write_text("<x/>", encoding="utf-8")
    write_memory(Path("other.tmx"), [("a", "b")], "de", "it")
    Path("empty.tmx").write_text("<tmx><body/></tmx>", encoding="utf-8")
    write_memory(Path("cut.tmx.gz"), [("a", "b")], "en", "fr")
    Path("cut.tmx.gz").write_bytes(Path("cut.tmx.gz").read_bytes()[:-9])
    done = called(*FLAGS, *args, "A cat.")
    assert done.returncode == code and says in done.stderr and len(done.stderr.splitlines()) <= 2
    assert Path("x.tmx").read_text() == "<x/>" and done.stdout == ""
