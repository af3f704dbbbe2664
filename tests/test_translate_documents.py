"""Documents given to the command: files by their names, folders, archives, columns of tables, and the report."""

import csv
import gzip
import io
import os
import stat
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Command
from document_samples import DOCX, PO, VTT, XHTML, zipped

from checkpoint import RunFolder, parameters
from config import Config
from model import Transformer
from tapis.memory import write_memory
from tapis.system.files import whole_folder, write_text
from tapis.text.tmx import read_tmx
from tapis.text.tokenizer import Tokenizer

FLAGS = ["translate.py", "--run", "tiny", "--device", "cpu"]


@pytest.mark.parametrize("compressed", ["", ".gz"])
def test_the_name_of_a_file_says_what_it_is(compressed: str, run_folder: RunFolder, called: Command) -> None:
    from tapis.text.lines import compressed as as_named

    documents = {"a.xhtml": XHTML.encode(), "a.po": PO.encode(), "a.vtt": VTT.encode(), "A.DOCX": DOCX}
    for name, content in documents.items():
        Path(f"{name}{compressed}").write_bytes(as_named(content, Path(f"x{compressed}")))
        done = called(*FLAGS, "--input", f"{name}{compressed}", "--output", f"out-{name}")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        translated = Path(f"out-{name}").read_bytes()
        assert translated != content and translated[:20] == content[:20]
        assert called(
            *FLAGS, "--format", "lines", "--input", f"{name}{compressed}", "--output", "lines"
        ).returncode == (1 if name == "A.DOCX" else 0)


def test_a_column_of_a_table_is_translated(run_folder: RunFolder, called: Command) -> None:
    Path("t.csv").write_text("id;text\n1;A cat.\n2;A dog.\n", encoding="utf-8")
    done = called(*FLAGS, "--input", "t.csv", "--column", "text")
    assert done.returncode == 0
    rows = [line.split(";", 1) for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["id", "1", "2"] and rows[0][1] == "text" and rows[1][1] != "A cat."
    for column in ([], ["--column", "no"]):
        done = called(*FLAGS, "--input", "t.csv", *column)
        assert done.returncode == 1 and "with --column: id, text, or its number" in done.stderr


def test_a_table_is_read_in_the_code_page_of_the_language_of_the_model(
    tiny: Config, tokenizer: Tokenizer, model: Transformer, called: Command
) -> None:
    folder = RunFolder(Path("weights/tiny"))
    folder.start(replace(tiny, pairs=("ru-en",)), tokenizer)
    folder.save_model(parameters(model))
    Path("t.csv").write_bytes("id;text\n1;Кошка.\n".encode("cp1251"))
    done = called(*FLAGS, "--input", "t.csv", "--column", "text")
    # In the warning, or in the error about a letter that an untrained model wrote
    assert "Windows-1251" in done.stderr


def test_rows_that_may_be_cut_wrongly_cause_one_warning(run_folder: RunFolder, called: Command) -> None:
    Path("t.csv").write_text("id;text\n1;A cat.;x\n2\n3;A dog.\n", encoding="utf-8")
    done = called(*FLAGS, "--input", "t.csv", "--column", "text", "--output", "o.csv")
    assert done.returncode == 0 and done.stderr.startswith("warning: t.csv: 2 of 4 rows have another number of cells")
    assert done.stderr.endswith(": row 2, row 3\n") and len(done.stderr.splitlines()) == 1


def test_folders_and_archives_keep_their_structure(run_folder: RunFolder, called: Command) -> None:
    files = {"a.md": "# A cat\n", "in/b.txt": "A dog.\n", "in/c.png": "not text", "in/deeper/page.html": "<p>A cat</p>"}
    for name, text in files.items():
        Path("from", name).parent.mkdir(parents=True, exist_ok=True)
        Path("from", name).write_text(text, encoding="utf-8")
    Path("from/link.md").symlink_to("/etc/hostname")
    done = called(*FLAGS, "--input", "from", "--output", "to")
    assert done.returncode == 0 and done.stderr == "warning: from/link.md is a link, and left out\n"
    found = {str(path.relative_to("to")): path.read_text() for path in Path("to").rglob("*") if path.is_file()}
    assert found.keys() == files.keys() and found["in/c.png"] == "not text"
    assert all(found[name] != text for name, text in files.items() if name != "in/c.png")

    Path("from.zip").write_bytes(zipped(files))
    assert called(*FLAGS, "--input", "from.zip", "--output", "to.zip").returncode == 0
    with zipfile.ZipFile("to.zip") as archive:
        assert {name: archive.read(name).decode() for name in archive.namelist()} == found

    # What is there already stays, and the rest is done.
    Path("to/a.md").write_text("mine", encoding="utf-8")
    Path("to/in/b.txt").unlink()
    assert called(*FLAGS, "--input", "from", "--output", "to").returncode == 0
    assert Path("to/a.md").read_text() == "mine" and Path("to/in/b.txt").read_text() == found["in/b.txt"]


def test_links_in_an_archive_lead_where_they_led(run_folder: RunFolder, called: Command) -> None:
    link = zipfile.ZipInfo("index.md")
    link.create_system = 3  # Unix, whose permission bits say what is a link
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile("from.zip", "w") as archive:
        archive.writestr("a dog.md", "A dog.\n")
        archive.writestr(link, "a dog.md")
    assert called(*FLAGS, "--input", "from.zip", "--output", "to.zip").returncode == 0
    with zipfile.ZipFile("to.zip") as archive:
        assert archive.read("a dog.md") != b"A dog.\n" and archive.read("index.md") == b"a dog.md"
        assert archive.getinfo("index.md").external_attr == link.external_attr


def test_the_report_lists_each_text_with_its_doubts(run_folder: RunFolder, called: Command) -> None:
    Path("page.html").write_text("<h1>A cat</h1><p>A <b>dog</b> &amp; 12.</p>", encoding="utf-8")
    args = [*FLAGS, "--input", "page.html", "--output", "out.html", "--report"]
    assert called(*args, "r.tsv").returncode == 0
    rows = list(csv.DictReader(io.StringIO(Path("r.tsv").read_text(encoding="utf-8")), delimiter="\t"))
    assert [(row["document"], row["number"], row["source"]) for row in rows] == [
        ("page.html", "1", "A cat"),
        ("page.html", "2", "A dog & 12."),
    ]
    assert any(row["doubts"] for row in rows)  # of an untrained model
    assert called(*args, "r.html").returncode == 0
    page = Path("r.html").read_text(encoding="utf-8")
    Path("a.po").write_text(PO, encoding="utf-8")
    assert called(*FLAGS, "--input", "a.po", "--output", "out.po", "--report", "po.tsv").returncode == 0
    rows = list(csv.DictReader(io.StringIO(Path("po.tsv").read_text(encoding="utf-8")), delimiter="\t"))
    assert [row["source"] for row in rows if row["doubts"] == "left: it has a translation"] == ["old"]
    assert "<td>A dog &amp; 12.</td>" in page and "2 texts, " in page


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.docx", b"no archive", "a.docx: this is no whole zip archive"),
        ("a.zip", b"no archive", "a.zip: this is no whole zip archive"),
        ("a.json", b"{", "a.json: this is not JSON"),
        ("a.html", "<p>A cat".encode("utf-16"), "a.html is not UTF-8, but UTF-16"),
    ],
)
def test_a_document_that_cannot_be_read_leaves_the_output_as_it_was(
    name: str, content: bytes, says: str, run_folder: RunFolder, called: Command
) -> None:
    Path(name).write_bytes(content)
    Path("out").write_text("before", encoding="utf-8")
    done = called(*FLAGS, "--input", name, "--output", "out")
    assert done.returncode == 1 and says in done.stderr and len(done.stderr.splitlines()) <= 2
    assert Path("out").read_text(encoding="utf-8") == "before"


def test_a_folder_keeps_empty_folders_and_permissions(run_folder: RunFolder, called: Command) -> None:
    for folder in ("empty", "a/b/c"):
        Path("from", folder).mkdir(parents=True)
    modes = {"run.sh": 0o755, "secret.key": 0o600, "a/b/read.only": 0o444}
    for name, mode in modes.items():
        Path("from", name).write_text("x", encoding="utf-8")
        Path("from", name).chmod(mode)
    assert called(*FLAGS, "--input", "from", "--output", "to").returncode == 0
    folders = {path.relative_to("from") for path in Path("from").rglob("*") if path.is_dir()}
    assert folders == {path.relative_to("to") for path in Path("to").rglob("*") if path.is_dir()}
    assert {name: Path("to", name).stat().st_mode & 0o7777 for name in modes} == modes


def test_a_file_or_folder_may_have_the_longest_name() -> None:
    name = "é" * 127 + "x"  # of 255 bytes
    write_text(Path(name), "text")
    whole_folder(Path("in", name), lambda folder: write_text(folder / name, "text"))
    assert Path(name).read_text(encoding="utf-8") == Path("in", name, name).read_text(encoding="utf-8") == "text"


DAMAGED = {
    "a.html.gz": gzip.compress(b"<p>A cat</p>")[:-9],
    "a.json": b"{",
    "big.html": b"<p>A cat</p>" * 100,
    "t.csv": b"x\nA cat\n",
    "x.docx": b"no zip",
}


@pytest.fixture
def damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with documents that cannot be translated, one that can, and another file."""
    monkeypatch.setattr("tapis.commands.documents.LARGEST", 1000)
    Path("from").mkdir()
    for name, content in {**DAMAGED, "b.md": b"A cat\n", "c.png": b"picture"}.items():
        Path("from", name).write_bytes(content)


@pytest.mark.usefixtures("damaged")
def test_damaged_documents_do_not_stop_the_others(run_folder: RunFolder, called: Command) -> None:
    done = called(*FLAGS, "--input", "from", "--output", "to", "--report", "r.tsv", "--write-memory", "m.tmx")
    assert done.returncode == 1 and done.stderr.count("; it is left out\n") == 5, done.stderr
    assert "not translated: 5 of the files" in done.stderr
    assert sorted(path.name for path in Path("to").iterdir()) == ["b.md", "c.png"]
    assert Path("to/b.md").read_bytes() != b"A cat\n" and Path("to/c.png").read_bytes() == b"picture"
    with Path("r.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    left = {row["document"]: row["doubts"] for row in rows if row["doubts"].startswith("left: ")}
    assert left.keys() == {f"from/{name}" for name in (*DAMAGED, "c.png")}
    assert "not a complete gzip file" in left["from/a.html.gz"] and "is larger than" in left["from/big.html"]
    assert [source for source, _ in read_tmx(Path("m.tmx"), "en", "fr")] == ["A cat"]


def test_files_that_programs_leave_beside_documents_are_no_documents(run_folder: RunFolder, called: Command) -> None:
    files = {"~$a.docx": "a lock", "__MACOSX/._a.md": "attributes", "b.md": "A cat\n"}
    for name, text in files.items():
        Path("from", name).parent.mkdir(parents=True, exist_ok=True)
        Path("from", name).write_text(text, encoding="utf-8")
    Path("from.zip").write_bytes(zipped({**files, "c.po.gz": "compressed"}))
    for place in ("", ".zip"):
        done = called(*FLAGS, "--input", f"from{place}", "--output", f"to{place}")
        assert (done.returncode, done.stderr) == (0, "")
    with zipfile.ZipFile("to.zip") as archive:
        assert archive.read("c.po.gz") == b"compressed"
        for name, text in files.items():
            is_translated = name == "b.md"
            assert (archive.read(name).decode() != text) == (Path("to", name).read_text() != text) == is_translated


@pytest.mark.usefixtures("damaged")
def test_a_repeated_command_translates_what_was_mended(run_folder: RunFolder, called: Command) -> None:
    command = [*FLAGS, "--input", "from", "--output", "to"]
    assert called(*command).returncode == 1
    before = Path("to/b.md").stat().st_mtime_ns

    # With a column, and with other documents in place of the damaged ones
    Path("from/a.html.gz").write_bytes(gzip.compress(b"<p>A cat</p>"))
    Path("from/a.json").write_text('["A cat"]', encoding="utf-8")
    Path("from/big.html").write_text("<p>A cat</p>", encoding="utf-8")
    done = called(*command, "--column", "x")
    assert done.returncode == 1 and done.stderr.count("; it is left out\n") == 1  # x.docx
    assert done.stderr.startswith("warning: from/x.docx") and "2 files were in to already" in done.stderr
    assert gzip.decompress(Path("to/a.html.gz").read_bytes()) not in (b"", b"<p>A cat</p>")
    for name in ("a.json", "big.html", "t.csv"):
        assert Path("to", name).read_bytes() not in (b"", Path("from", name).read_bytes())
    assert Path("to/b.md").stat().st_mtime_ns == before

    # What is copied by hand is done.
    Path("to/x.docx").write_bytes(b"no zip")
    done = called(*command)
    assert (done.returncode, done.stderr) == (0, "7 files were in to already, and stay as they are\n")


def test_a_repeated_command_keeps_the_report(run_folder: RunFolder, called: Command) -> None:
    """It would have nothing of the files that are done. Nor is it silent about a memory that lacks them."""
    Path("from").mkdir()
    Path("from/a.md").write_text("A cat\n", encoding="utf-8")
    Path("from/b.html").write_bytes(b"\xff")
    command = [*FLAGS, "--input", "from", "--output", "to", "--report"]
    done = called(*command, "one.tsv", "--write-memory", "one.tmx")
    assert done.returncode == 1 and "the same command, with another --report, translates them" in done.stderr
    assert "one.tmx" not in done.stderr
    before = Path("one.tsv").read_bytes()

    Path("from/b.html").write_text("<p>A dog</p>", encoding="utf-8")
    done = called(*command, "one.tsv")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "--report one.tsv exists, and a new one would lack the texts of the files that are in to" in done.stderr
    assert Path("one.tsv").read_bytes() == before and not Path("to/b.html").exists()

    done = called(*command, "other.tsv", "--write-memory", "other.tmx")
    assert (done.returncode, done.stderr.splitlines()) == (
        0,
        [
            "warning: other.tsv gets no texts of the files that are in to already",
            "warning: other.tmx gets no texts of the files that are in to already",
            "1 file was in to already, and stays as it is",
        ],
    )
    assert [source for source, _ in read_tmx(Path("other.tmx"), "en", "fr")] == ["A dog"]


@pytest.mark.usefixtures("damaged")
def test_an_unreadable_file_or_folder_does_not_stop_the_others(
    run_folder: RunFolder, called: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("from/a").mkdir()
    Path("from/a/a.md").write_text("A cat", encoding="utf-8")
    unreadable = {"from/a", "from/c.png"}
    monkeypatch.setattr(
        "tapis.commands.documents.can_be_read", lambda path: path.as_posix() not in unreadable
    )  # root may read all
    done = called(*FLAGS, "--input", "from", "--output", "to", "--column", "1")
    assert done.returncode == 1 and {path.name for path in Path("to").rglob("*.*")} == {"b.md", "t.csv"}
    assert all(f"warning: {name} cannot be read; it is left out\n" in done.stderr for name in unreadable)


def test_damaged_documents_in_an_archive_stay_as_they_are(run_folder: RunFolder, called: Command) -> None:
    files = {"x.docx": "no zip", "a.json": "{", "b.md": "A cat\n", "t.csv": "x\ny\n"}
    Path("from.zip").write_bytes(zipped(files))
    done = called(*FLAGS, "--input", "from.zip", "--output", "to.zip", "--report", "r.tsv")
    assert done.returncode == 0 and done.stderr.count("it stays as it is\n") == 3, done.stderr
    assert Path("r.tsv").read_text(encoding="utf-8").count("left: ") == 3
    with zipfile.ZipFile("to.zip") as archive:
        same = {name for name, text in files.items() if archive.read(name).decode() == text}
    assert same == files.keys() - {"b.md"}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--input", "in.tsv", "--column", "b", "--output", "o", "--report", "in.tsv"], "is the file to translate"),
        (["--input", "in.html", "--output", "./x/../in.html"], "is the file to translate"),
        (["--input", "m.tmx", "--write-memory", "m.tmx"], "is the file to translate"),
        (["--glossary", "in.tsv", "--output", "in.tsv"], "--output in.tsv is the file of --glossary"),
        (["--glossary", "in.tsv", "--output", "link.tsv"], "--output link.tsv is the file of --glossary"),
        (["--glossary", "in.tsv", "--output", "hard.tsv"], "--output hard.tsv is the file of --glossary"),
        (["--memory", "m.tmx", "--output", "m.tmx"], "--output m.tmx is the file of --memory"),
        (["--glossary", "in.tsv", "--input", "in.html", "--report", "in.tsv"], "--report in.tsv is the file of"),
        (["--input", "in.html", "--output", "x.html", "--report", "x.html"], "--report x.html is the file of --output"),
        (
            ["--output", "x.html", "--attention", "a/../x.html", "A cat."],
            "--attention a/../x.html is the file of --output",
        ),
        (["--output", "n.tmx", "--write-memory", "n.tmx", "A cat."], "--write-memory n.tmx is the file of --output"),
        (["--input", "from", "--output", "to", "--report", "from/r.tsv"], "is in from, the folder to translate"),
        (["--input", "from", "--output", "to", "--report", "to/a.html"], "is the file for the translation of from/a"),
        (
            ["--input", "from", "--output", "m.tmx", "--write-memory", "m.tmx"],
            "--write-memory m.tmx is the file of --output",
        ),
    ],
)
def test_no_file_is_written_that_the_command_reads_or_writes(
    args: list[str], says: str, run_folder: RunFolder, called: Command
) -> None:
    Path("from").mkdir()
    for name in ("in.tsv", "in.html", "m.tmx", "from/a.html"):
        Path(name).write_text("a\tb\nx\ty\n", encoding="utf-8")
    Path("link.tsv").symlink_to("in.tsv")
    Path("hard.tsv").hardlink_to("in.tsv")
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    done = called(*FLAGS, *args)
    assert (done.returncode, done.stdout) == (2, "") and says in done.stderr and len(done.stderr.splitlines()) == 1
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_is_not_replaced_by_a_file(run_folder: RunFolder, called: Command) -> None:
    os.mkfifo("pipe")
    Path("a.md").write_text("A cat", encoding="utf-8")
    for args in (["--input", "a.md"], ["--input", "a.md", "--format", "lines"], ["A cat"]):
        done = called(*FLAGS, "--output", "pipe", *args)
        assert done.returncode == 2 and "leave out --output to write to standard output" in done.stderr
    with pytest.raises(OSError, match="pipe cannot be written: it is no regular file"):
        write_text(Path("pipe"), "text")
    assert Path("pipe").is_fifo() and sorted(path.name for path in Path().iterdir() if "pipe" in path.name) == ["pipe"]


def test_a_memory_may_be_read_and_added_to(run_folder: RunFolder, called: Command) -> None:
    write_memory(Path("m.tmx"), [("A cat.", "Un chat.")], "en", "fr")
    done = called(*FLAGS, "--memory", "m.tmx", "--write-memory", "m.tmx", "A cat.", "A dog.")
    assert (done.returncode, done.stderr) == (0, "")
    assert [source for source, _ in read_tmx(Path("m.tmx"), "en", "fr")] == ["A cat.", "A dog."]


def test_a_report_may_show_half_a_character(run_folder: RunFolder, called: Command) -> None:
    Path("a.json").write_text('["\\ud800 hello there"]', encoding="utf-8")
    assert called(*FLAGS, "--input", "a.json", "--output", "o.json", "--report", "r.html").returncode == 0


def test_a_document_is_not_larger_than_memory(
    run_folder: RunFolder, called: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapis.commands.documents.LARGEST", 100)
    Path("a.html").write_text("<p>A cat. " * 50, encoding="utf-8")
    done = called(*FLAGS, "--input", "a.html")
    assert done.returncode == 1 and "a.html is larger than" in done.stderr
    with Path("a.html").open(encoding="utf-8") as text:
        monkeypatch.setattr(sys, "stdin", text)
        done = called(*FLAGS, "--format", "html")
    assert done.returncode == 1 and "standard input is larger than" in done.stderr
