"""Sentences in, sentences out: the number of lines, the order, and that a batch changes nothing."""

import gzip
import io
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import ROOT, Command
from hypothesis import given
from hypothesis import strategies as st

from checkpoint import RunFolder
from decoding.translator import Translator
from machine.devices import choose_device
from tapis.commands.translate import is_name_of_file, task_of
from tapis.config import ConfigError
from tapis.documents.common import DocumentError, decoded
from tapis.search import Search
from tapis.system.cli import TranslateOptions
from tapis.typed_text import translate_lines

CPU = torch.device("cpu")


def test_lines_in_are_lines_out(run_folder: RunFolder, command: Command) -> None:
    text = "One.\n\nTwo\u2028still two.\r\n \x0b\n\x00\ud7ff</s>\nlast, with no end of line"
    done = command("translate.py", "--device", "cpu", text=text)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    assert len(lines) == 6 + 1 and lines[6] == ""
    assert lines[1] == lines[3] == ""
    assert done.stderr == "run tiny\n"


def test_each_argument_gives_one_line(run_folder: RunFolder, called: Command) -> None:
    done = called("translate.py", "--run", "tiny", "One.", "Two\nlines.", "")
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 3, "")


@pytest.mark.parametrize("args", [[], ["--input", "in.en"]])
def test_a_closed_pipe_ends_quietly(run_folder: RunFolder, args: list[str]) -> None:
    Path("in.en").write_text("a\n" * 10, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "translate.py"), "--run", "tiny", *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdout.close()
    process.stdin.write(b"a\n" * 10)
    process.stdin.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--run", "nope", "x"], 1, "no run 'nope'"),
        (["--rnu", "x"], 2, "did you mean --run"),
        (["--device", "cuda", "x"], 2, "--device cuda"),
    ],
)
def test_errors_are_at_most_two_lines(
    run_folder: RunFolder, forked: Command, args: list[str], code: int, says: str
) -> None:
    if "cuda" in args and choose_device("auto").type == "cuda":
        pytest.skip("there is a GPU here")
    done = forked("translate.py", *args)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_input_that_is_not_utf8_is_an_error(run_folder: RunFolder) -> None:
    import subprocess
    import sys

    from conftest import ROOT

    done = subprocess.run(
        [sys.executable, str(ROOT / "translate.py"), "--run", "tiny"], input=b"\xff\n", capture_output=True, check=False
    )
    assert done.returncode == 1
    assert b"not UTF-8" in done.stderr and b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("encoding", "name"),
    [("utf-16", "UTF-16"), ("utf-16-le", "UTF-16LE"), ("utf-16-be", "UTF-16BE"), ("latin-1", "WINDOWS-1252")],
)
@pytest.mark.parametrize("text", ["The cat is here.\nIs it?\n", "The café is here.\nNo.\n"])
def test_the_error_about_another_encoding_names_it(text: str, encoding: str, name: str) -> None:
    raw = text.encode(encoding)
    if encoding == "latin-1" and text.isascii():
        assert decoded(raw) == text
        return
    with pytest.raises(DocumentError, match=rf"^is not UTF-8, but .*iconv -f {name} -t UTF-8\)$"):
        decoded(raw)


@given(st.text())
def test_text_in_utf8_is_not_taken_for_another_encoding(text: str) -> None:
    if "\0" not in text:
        assert decoded(text.encode()) == text


def test_n_best_lines_hold_score_and_text(
    trained: "subprocess.CompletedProcess[str]", forked: Command, called: Command
) -> None:
    run = str(Path(trained.args[0]) / "weights/demo")
    lines = "The cat is sitting on the mat. The dog is sleeping.\n\n"
    done = forked("translate.py", "--run", run, "--beam", "3", "--n-best", "2", text=lines)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.removesuffix("\n").split("\n")]
    assert len(rows) == 3 and all(len(row) == 2 for row in rows)
    assert float(rows[0][0]) >= float(rows[1][0])
    assert rows[0][1].startswith("Le chat est assis sur le tapis. ") and rows[0][1] != rows[1][1]
    assert rows[2][1] == ""
    refused = called("translate.py", "--run", run, "--n-best", "2", "x")
    assert refused.returncode == 2 and "--n-best 2" in refused.stderr


def test_a_translation_imports_no_compiler(run_folder: RunFolder) -> None:
    """torch's takes as long as torch itself, and some operations import it, those on the device meta above all."""
    script = "import sys; sys.path.insert(0, sys.argv[1]); from translate import Translator; Translator.load()(['x'])"
    script += "; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, str(ROOT)], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout == "False\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_an_error_in_words(demo_run: RunFolder) -> None:
    line = [sys.executable, str(ROOT / "translate.py"), "--run", str(demo_run.path), "--device", "cpu", "The cat."]
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "translate.py: No space left on device\n")


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of a file's size")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("output", ["", "out.fr"])
def test_a_disk_that_becomes_full_is_an_error(demo_run: RunFolder, unbuffered: str, output: str) -> None:
    """With PYTHONUNBUFFERED, Python itself takes what the system wrote a part of for written."""
    Path("in").write_text("".join(f"The {n} cat sleeps.\n" for n in range(200)), encoding="utf-8")
    line = [sys.executable, str(ROOT / "translate.py"), "--run", str(demo_run.path), "--device", "cpu", "--input", "in"]
    if output:
        line += ["--output", output]
    with Path("out").open("w", encoding="utf-8") as out:
        done = subprocess.run(
            ["sh", "-c", f"ulimit -f 1; exec {shlex.join(line)}"],  # 512 bytes, or 1,024 in some shells
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 1
    assert f"translate.py: {output and f'{output}.part cannot be written: '}File too large\n" in done.stderr


def test_the_prompt_answers_line_by_line(
    run_folder: RunFolder, called: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("A cat.\n\n"))
    done = called("translate.py", "--run", "tiny", "--device", "cpu")
    assert (done.returncode, done.stdout.count("\n")) == (0, 2)
    assert done.stderr == "en → fr; an end of file (Ctrl-D) ends\n> > > \n"


def test_a_terminal_gets_no_document_that_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for name in ("a.docx", "a.epub", "a.zip"):
        with pytest.raises(ConfigError, match=f"{name} is no text: name a file for its translation, with --output"):
            task_of(TranslateOptions(input=Path(name)))
        assert task_of(TranslateOptions(input=Path(name), output=Path("b"))).file == Path(name)
    assert task_of(TranslateOptions(input=Path("a.html"))).kind == "document"


@pytest.mark.parametrize(("kind", "start"), [("html", "<p>"), ("markdown", "# ")])
def test_a_document_may_come_from_standard_input(kind: str, start: str, run_folder: RunFolder, forked: Command) -> None:
    flags = ["--run", "tiny", "--device", "cpu", "--plain", "--format", kind]
    done = forked("translate.py", *flags, text=f"{start}The cat.")
    assert done.returncode == 0 and done.stdout.startswith(start) and done.stdout != f"{start}The cat.", done.stderr


def test_scores_are_those_of_the_length_penalty(run_folder: RunFolder, called: Command) -> None:
    translate = Translator.load(run_folder.path, "cpu", "fp32")
    flags = ["--run", "tiny", "--device", "cpu", "--precision", "fp32", "--beam", "2", "--n-best", "2"]
    printed = set()
    for penalty in ("0", "2"):
        done = called("translate.py", *flags, "--length-penalty", penalty, "A cat.")
        (ranked,) = translate_lines(translate, ["A cat."], Search(2, 2, float(penalty)))
        assert done.stdout == "".join(f"{one.score:.4f}\t{one.text}\n" for one in ranked)
        printed.add(done.stdout)
    assert len(printed) == 2


def test_a_file_is_translated_line_by_line_into_another(run_folder: RunFolder, called: Command) -> None:
    flags = ["--run", "tiny", "--device", "cpu"]
    lines = ["A cat.", "", "A dog is\there.", "The cat is sitting on the mat."]
    Path("in.en").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    Path("in.en.gz").write_bytes(gzip.compress("\n".join(lines).encode() + b"\n"))
    said = called("translate.py", *flags, *lines)
    assert said.stdout.count("\n") == len(lines)
    for name in ("in.en", "in.en.gz"):
        assert called("translate.py", *flags, "--input", name).stdout == said.stdout
        done = called("translate.py", *flags, "--input", name, "--output", "new/out.fr")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert Path("new/out.fr").read_text(encoding="utf-8") == said.stdout


@pytest.mark.parametrize(("kind", "start"), [("html", "<p>"), ("markdown", "# "), ("srt", "1\n0:1 --> 0:2\n")])
def test_a_document_may_be_read_from_a_file_and_written_to_one(
    kind: str, start: str, run_folder: RunFolder, called: Command
) -> None:
    Path("in").write_text(f"{start}The cat.\n", encoding="utf-8")
    flags = ["--run", "tiny", "--device", "cpu", "--format", kind]
    printed = called("translate.py", *flags, "in").stdout
    assert printed.startswith(start) and called("translate.py", *flags, "--input", "in").stdout == printed
    assert called("translate.py", *flags, "--input", "in", "--output", "out").stdout == ""
    assert Path("out").read_text(encoding="utf-8") == printed


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["a.txt"], "a.txt is a file: translate its text with --input a.txt"),
        (["a.txt", "b c.html"], "a.txt is a file"),
        (["b c.html"], "--input 'b c.html'"),
        (["none.docx"], "no such file: none.docx; --input FILE"),
        (["none.TXT", "a.txt"], "no such file: none.TXT"),
        (["none.en.gz"], "no such file"),
        (["table.csv"], "--input table.csv --column NAME"),
        (["table.xlsx"], "table.xlsx is a spreadsheet: save it as .csv"),
        (["--input", "table.xlsx"], "table.xlsx is a spreadsheet: save it as .csv"),
        (["letter.rtf"], "letter.rtf: .rtf files are not translated: save it as .docx"),
        (["--input", "letter.rtf"], "letter.rtf: .rtf files are not translated: save it as .docx"),
        (["--input", "a.txt", "--column", "1"], "--column is for tables"),
        (["--input", "a.txt", "--report", "r.tsv"], "--report is for documents"),
        (["--input", "b c.html", "--report", "r.txt"], "must end in .tsv or .html"),
        (["--input", "b c.html", "--shard", "1/2"], "--shard is for lines"),
        (["--input", "b c.html", "--n-best", "2", "--beam", "2"], "--n-best is for lines"),
        (["--input", "folder"], "folder is a folder: name another folder"),
        (["--input", "folder", "--output", "folder/inner"], "folder is a folder: name another folder"),
        (["--input", "a.txt", "A cat."], "leave out the sentences"),
        (["--input", "a.txt", "--output", "nothing/../a.txt"], "which is not overwritten"),
        (["--format", "html", "b c.html", "--output", "link"], "which is not overwritten"),
    ],
)
def test_names_of_files_are_not_translated_and_files_not_overwritten(
    args: list[str], says: str, run_folder: RunFolder, called: Command
) -> None:
    names = ("a.txt", "b c.html", "table.csv", "table.xlsx", "letter.rtf")
    Path("folder").mkdir()
    for name in names:
        Path(name).write_text("<p>A cat.", encoding="utf-8")
    Path("link").symlink_to("b c.html")
    done = called("translate.py", "--run", "tiny", "--device", "cpu", *args)
    assert (done.returncode, done.stdout) == (2, "") and says in done.stderr and len(done.stderr.splitlines()) <= 2
    assert {Path(name).read_text(encoding="utf-8") for name in names} == {"<p>A cat."}


@pytest.mark.parametrize("text", ["Node.js", "etc.", "Open a.txt", "https://example.org/a.html", "打开a.txt", ".txt"])
def test_text_that_may_be_a_sentence_is_no_name_of_a_file(text: str) -> None:
    assert not is_name_of_file(text)


def test_a_file_that_cannot_be_read_leaves_the_output_as_it_was(run_folder: RunFolder, called: Command) -> None:
    Path("out").write_text("before", encoding="utf-8")
    Path("in").write_bytes(b"A cat.\n" * 1000 + b"\xff\n")  # found in the second part, after a thousand lines
    for name, says in (("none", "none cannot be read"), ("in", "in line 1,001 is not UTF-8")):
        done = called("translate.py", "--run", "tiny", "--device", "cpu", "--input", name, "--output", "out")
        assert done.returncode == 1 and says in done.stderr and Path("out").read_text(encoding="utf-8") == "before"
    files = sorted(file.name for file in Path().iterdir() if file.name != "weights")
    assert files == ["in", "out", "out.part", "out.part.json"]  # with the translations of a thousand lines


def test_a_sentence_beside_a_file_of_a_similar_name_is_translated(run_folder: RunFolder, called: Command) -> None:
    Path("cat").write_text("", encoding="utf-8")
    for text in (["cat", "A cat."], ["cat."], ["long " * 2000]):
        done = called("translate.py", "--run", "tiny", "--device", "cpu", *text)
        assert (done.returncode, done.stdout.count("\n")) == (0, len(text)), done.stderr
