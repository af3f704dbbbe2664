"""Files of any length: blocks of lines, shards, lines that cannot be read, and outputs that survive an interruption."""

import contextlib
import gzip
import io
import json
import lzma
import os
import random
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from itertools import repeat
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest
from conftest import ROOT, Command
from hypothesis import given
from hypothesis import strategies as st
from launching import Launched

from checkpoint import RunFolder
from tapis.commands import translate
from tapis.commands.translate import LineTranslation
from tapis.config import TapisError
from tapis.search import Search
from tapis.system import parts
from tapis.system.cli import TranslateOptions
from tapis.system.parts import Record, UnfinishedFile
from tapis.system.terminal import Progress
from tapis.text.line_blocks import LineReader, count_lines, lines_of_shard
from tapis.text.lines import MAX_LINE_BYTES, DataError, compressed, open_bytes
from tapis.threads import ahead
from tapis.translator import Translator
from tapis.typed_text import translate_lines

FLAGS = ["translate.py", "--run", "tiny", "--device", "cpu"]
WORDS = ["a", "cat", "the", "dog", "sits", "red", "on", "mat"]


def test_work_that_nobody_waits_for_is_stopped() -> None:
    """After Ctrl-C, or when the reader of the results ends."""
    stopped = Event()
    results = ahead(lambda item: item if item == 0 else stopped.wait(60), iter(range(10)), 2, stopped.set)
    assert next(results) == (0, 0)
    begin = time.monotonic()
    results.close()
    assert stopped.is_set() and time.monotonic() - begin < 30


def test_a_translation_that_nobody_waits_for_ends(run_folder: RunFolder) -> None:
    translate = LineTranslation(Translator.load(run_folder.path), TranslateOptions(), Search())
    assert translate(["The cat."]).count("\n") == 1
    translate.is_stopped.set()
    with pytest.raises(CancelledError):
        translate(["The cat."])


class Trickle(io.BytesIO):
    """A stream of which each read brings one of these pieces."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        super().__init__()
        self.pieces = iter(pieces)

    def read1(self, size: int | None = -1) -> bytes:
        return next(filter(None, self.pieces), b"")


def reader_of(pieces: Iterable[bytes], *, keep_going: bool = False) -> LineReader:
    return LineReader(Trickle(pieces), "file", keep_going=keep_going)


def random_lines(n: int, seed: int = 1) -> list[str]:
    chosen = random.Random(seed)
    return [" ".join(chosen.choices(WORDS, k=chosen.randrange(1, 9))).capitalize() + "." for _ in range(n)]


@given(st.lists(st.sampled_from([b"", b"a", b"\n", b"\r\n", b"b\nc", b"\n\n", "é".encode(), "\u2028".encode()])))
def test_lines_are_those_between_line_feeds(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    expected = whole.removesuffix(b"\n").split(b"\n") if whole else []
    for most in (1, 2, 1000):
        reader, texts = reader_of(pieces), []
        while block := reader.texts(most):
            assert len(block) <= most
            texts += block
        assert [text.encode() for text in texts] == expected
    Path("counted").write_bytes(whole)
    assert count_lines(Path("counted")) == len(expected)


def test_lines_as_they_come_wait_for_no_others() -> None:
    reader = reader_of([b"one\ntwo\nthr", b"ee\n", b"four"])
    assert [reader.texts(as_they_come=True) for _ in range(4)] == [["one", "two"], ["three"], ["four"], []]


@given(st.integers(0, 100), st.integers(1, 20))
def test_shards_are_the_whole_in_nearly_equal_parts(n_lines: int, n_shards: int) -> None:
    shards = [lines_of_shard(f"{number}/{n_shards}", n_lines) for number in range(1, n_shards + 1)]
    assert [line for shard in shards for line in shard] == list(range(n_lines))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_lines_that_cannot_be_read_stay_blank_if_wanted() -> None:
    pieces = [b"\xef\xbb\xbfgood\n", b"caf\xe9\n", b"x" * (MAX_LINE_BYTES + 9), b"y\nlast"]
    reader = reader_of(pieces, keep_going=True)
    assert reader.texts() == ["good", "", "", "last"] and reader.unreadable == [2, 3]
    with pytest.raises(TapisError, match=r"file line 2 is not UTF-8.*\n.*--keep-going"):
        reader_of(pieces).texts()
    with pytest.raises(TapisError, match="file line 2 is longer than 1 MB"):
        reader_of([pieces[0], *pieces[2:]]).texts()
    for encoding in ("utf-16", "utf-16-le"):
        with pytest.raises(TapisError, match="UTF-16"):
            reader_of(["A dog is here.\n".encode(encoding)], keep_going=True).texts()
    later = reader_of([("A dog.\n" * 4).encode("utf-16-le")])
    later.take(2)  # the lines before a shard
    with pytest.raises(TapisError, match="UTF-16"):
        later.texts()


def test_a_line_without_an_end_takes_no_memory() -> None:
    tracemalloc.start()
    reader = reader_of(repeat(bytes(65536), 3000), keep_going=True)
    assert reader.texts() == [""] and reader.unreadable == [1]
    assert tracemalloc.get_traced_memory()[1] < 20 * MAX_LINE_BYTES
    tracemalloc.stop()


@pytest.mark.parametrize("name", ["in.en", "in.en.gz"])
def test_errors_of_writing_are_not_those_of_the_file_that_is_read(name: str) -> None:
    Path(name).write_bytes(compressed(b"A cat.\n", Path(name)))
    for error in (OSError(28, "No space left on device"), OSError("out.fr cannot be written"), EOFError()):
        with pytest.raises(type(error)) as raised, open_bytes(Path(name)) as file:
            assert file.readline() == b"A cat.\n"
            raise error
        assert raised.value is error


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no /proc/self/mem")
def test_a_file_that_opens_and_cannot_be_read_is_an_error_in_words() -> None:
    for size in (1, -1):
        with (
            open_bytes(Path("/proc/self/mem")) as file,
            pytest.raises(DataError, match=r"^/proc/self/mem cannot be read: Input/output error$"),
        ):
            file.read(size)


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="no /dev/fd")
def test_a_pipe_is_read_once(run_folder: RunFolder, called: Command) -> None:
    """As the shell gives it in place of a file: --input <(zcat news.gz)."""
    reading, writing = os.pipe()
    os.write(writing, b"A cat.\nA dog.\n")
    os.close(writing)
    args = [*FLAGS, "--input", f"/dev/fd/{reading}"]
    done = called(*args, "--shard", "1/2")
    assert done.returncode == 2 and "--shard is for a file, whose lines can be counted, and /dev/fd" in done.stderr
    done = called(*args)
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 2, "")
    os.close(reading)


@pytest.mark.parametrize("ending", ["", ".gz", ".xz", ".zst"])
def test_an_interrupted_output_is_gone_on_with(
    ending: str, run_folder: RunFolder, called: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translate, "LINES_AT_ONCE", 7)
    monkeypatch.setattr(parts, "SECONDS_BETWEEN_SAVES", 0)
    lines = random_lines(40)
    Path("in.en").write_text("\n".join(lines), encoding="utf-8")
    args = [*FLAGS, "--precision", "fp32", "--input", "in.en", "--output"]  # PyTorch translates a block at a time
    assert called(*args, f"whole.fr{ending}").returncode == 0

    # End in each block, in all the ways that a kill leaves the files.
    n_calls = 0

    def killed(*positional: object, **named: object) -> object:
        nonlocal n_calls
        n_calls += 1
        if n_calls % 2 == 0:
            raise KeyboardInterrupt
        return translate_lines(*positional, **named)  # type: ignore[arg-type]

    output, part = Path(f"out.fr{ending}"), Path(f"out.fr{ending}.part")
    monkeypatch.setattr(translate, "translate_lines", killed)
    for n_blocks in range(1, 6):
        done = called(*args, str(output))
        assert done.returncode == 130 and f"{part} has the first {7 * n_blocks} lines" in done.stderr
        assert not output.exists() and json.loads(Path(f"{part}.json").read_text())["n_lines"] == 7 * n_blocks
        with part.open("ab") as opened:
            opened.write(b"written after the record")
    done = called(*args, str(output))
    assert (done.returncode, done.stderr) == (0, "")
    assert output.read_bytes() == Path(f"whole.fr{ending}").read_bytes()
    assert not part.exists() and not Path(f"{part}.json").exists()
    with open_bytes(output) as file:
        assert file.read().count(b"\n") == len(lines)


def test_a_killed_command_is_gone_on_with(run_folder: RunFolder, forked: Command, launch: type[Launched]) -> None:
    Path("in.en").write_text("\n".join(random_lines(2500)), encoding="utf-8")
    args = [*FLAGS, "--input", "in.en", "--output"]
    assert forked(*args, "whole.fr").returncode == 0
    part, output = Path("out.fr.part"), Path("out.fr")

    def size_of(path: Path) -> int:
        with contextlib.suppress(FileNotFoundError):
            return path.stat().st_size
        return 0

    # Kill it where it has written more than before. A fast machine may finish sooner.
    for _ in range(3):
        size = size_of(part)
        with launch([*args, "out.fr"]):
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and size_of(part) <= size and not output.exists():
                time.sleep(0.01)
        assert output.exists() != (part.exists() and Path("out.fr.part.json").exists())
    assert forked(*args, "out.fr").returncode == 0
    assert Path("out.fr").read_bytes() == Path("whole.fr").read_bytes()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (["--beam", "2"], "begun with another model or other flags"),
        (["--shard", "1/2"], "begun with another model or other flags"),
        (["input"], "begun with another input than in.en"),
        (["short"], "begun with another input than in.en"),
        (["record"], "out.fr.part.json is damaged"),
        (["numbers"], "out.fr.part.json is damaged"),
        (["lost record"], "exists, without out.fr.part.json"),
        (["lost part"], "is shorter than out.fr.part.json says"),
    ],
)
def test_a_part_that_does_not_fit_is_an_error_and_stays(
    change: list[str], says: str, run_folder: RunFolder, called: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translate, "LINES_AT_ONCE", 2)
    source, part, record = Path("in.en"), Path("out.fr.part"), Path("out.fr.part.json")
    source.write_bytes(b"A cat.\nA dog.\nA mat.\n\xff\n")
    args = [*FLAGS, "--input", "in.en", "--output", "out.fr"]
    done = called(*args)
    assert done.returncode == 1 and "line 4 is not UTF-8" in done.stderr and part.is_file()
    source.write_bytes(b"A cat.\nA dog.\nA mat.\n")  # mended

    more = change if change[0].startswith("--") else []
    changes: dict[str, Callable[[], object]] = {
        "input": lambda: source.write_bytes(b"A cat.\nA red dog.\n"),
        "short": lambda: source.write_bytes(b"A cat.\n"),
        "record": lambda: record.write_text("{"),
        "numbers": lambda: record.write_text(record.read_text().replace('"n_lines": 2', '"n_lines": -2')),
        "lost record": record.unlink,
        "lost part": lambda: part.write_bytes(b"x"),
    }
    if not more:
        changes[change[0]]()
    before = part.read_bytes()
    done = called(*args, *more)
    assert (done.returncode, done.stdout) == (1, "") and says in done.stderr, done.stderr
    assert "remove" in done.stderr and len(done.stderr.splitlines()) <= 2
    assert part.read_bytes() == before and not Path("out.fr").exists()


def test_an_unreadable_line_can_be_mended_or_passed(
    run_folder: RunFolder, called: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translate, "LINES_AT_ONCE", 2)
    Path("in.en").write_bytes(b"A cat.\n\xff\nA dog.\nA mat.\nA \xff.\nLast.\n")
    args = [*FLAGS, "--input", "in.en", "--output", "out.fr"]
    assert called(*args).returncode == 1 and not list(Path().glob("out*"))  # nothing was translated
    done = called(*args, "--keep-going")
    said = "warning: in.en: 2 unreadable lines are blank in the translation: 2, 5\n"
    assert (done.returncode, done.stderr) == (0, said)
    lines = Path("out.fr").read_text(encoding="utf-8").splitlines()
    assert [bool(line) for line in lines] == [True, False, True, True, False, True]
    done = called(*args[:-2], "--keep-going")
    assert (done.stdout, done.stderr) == (Path("out.fr").read_text(encoding="utf-8"), said)


def test_shards_put_together_are_the_whole(run_folder: RunFolder, called: Command) -> None:
    Path("in.en.gz").write_bytes(gzip.compress("\n".join(random_lines(10)).encode() + b"\n\xff\n"))
    args = [*FLAGS, "--input", "in.en.gz"]
    whole = called(*args, "--keep-going")
    shards = [called(*args, "--shard", f"{number}/3", *["--keep-going"] * (number == 3)) for number in (1, 2, 3)]
    assert "".join(shard.stdout for shard in shards) == whole.stdout and whole.stdout.count("\n") == 11
    assert [shard.returncode for shard in shards] == [0, 0, 0]
    assert [shard.stderr for shard in shards] == ["", "", whole.stderr] and ": 11\n" in whole.stderr
    for wrong in ("0/3", "4/3", "1", "1/0", "a/b", "1/2/3", "1 / 2"):
        done = called(*args, "--shard", wrong)
        assert done.returncode == 2 and "give N/M" in done.stderr
    assert called(*FLAGS, "--shard", "1/2", "A cat.").returncode == 2


def test_outputs_are_compressed_as_their_names_say(run_folder: RunFolder, called: Command) -> None:
    for text in (["A cat.", "A dog."], []):
        Path("in.en").write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
        plain = called(*FLAGS, "--input", "in.en").stdout
        for ending, expand in ((".gz", gzip.decompress), (".xz", lzma.decompress)):
            assert called(*FLAGS, "--input", "in.en", "--output", f"out{ending}").returncode == 0
            assert expand(Path(f"out{ending}").read_bytes()).decode() == plain
    assert called(*FLAGS, "A cat.", "--output", "said.gz").returncode == 0
    assert gzip.decompress(Path("said.gz").read_bytes()).decode() == called(*FLAGS, "A cat.").stdout
    Path("page.html").write_text("<p>A cat.</p>", encoding="utf-8")
    page = [*FLAGS, "--format", "html", "--input", "page.html"]
    assert called(*page, "--output", "page.gz").returncode == 0
    assert gzip.decompress(Path("page.gz").read_bytes()).decode() == called(*page).stdout


def test_zst_needs_its_library(run_folder: RunFolder, called: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("in.zst").write_bytes(compressed(b"A cat.\n", Path("in.zst")))
    assert pa.decompress(Path("in.zst").read_bytes(), 7, "zstd", asbytes=True) == b"A cat.\n"
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for args in (["--input", "in.zst"], ["A cat.", "--output", "out.zst"]):
        done = called(*FLAGS, *args)
        assert done.returncode == 1 and "install pyarrow" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_part_has_one_writer() -> None:
    with UnfinishedFile(Path("out"), "maker") as part:
        part.add(b"one\n", 1, "digest")
        with pytest.raises(TapisError, match="another command"):
            UnfinishedFile(Path("out"), "maker")
    with UnfinishedFile(Path("out"), "maker") as part:
        assert part.record == Record("maker", 1, "digest", 4)
        part.finish()
    assert Path("out").read_bytes() == b"one\n"
    assert sorted(path.name for path in Path().iterdir()) == ["out"]


def test_a_record_that_was_left_is_of_no_matter() -> None:
    for _ in range(2):
        with UnfinishedFile(Path("out"), "maker") as part:
            part.add(b"one\n", 1, "digest")
            left = part.record_path.read_text()
            part.finish()
        part.record_path.write_text(left)  # as a kill between the last two steps leaves it
    assert Path("out").read_bytes() == b"one\n"


def test_a_pipe_is_answered_line_by_line(run_folder: RunFolder) -> None:
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "translate.py"), "--run", "tiny", "--device", "cpu"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin and process.stdout
        for _ in range(2):
            process.stdin.write("A cat.\n")
            process.stdin.flush()
            assert process.stdout.readline().endswith("\n")
        process.stdin.write("no end")
        process.stdin.close()
        assert process.stdout.read().count("\n") == 1


def test_progress_without_a_terminal_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("tapis.system.terminal.time.monotonic", lambda: now)
    progress = Progress("in.en", 10_000, 1000, "line")
    for _ in range(5):
        now += 25
        progress.update(1000)
    progress.close()
    assert capsys.readouterr().err == "in.en: 4,000 of 10,000 lines, 40 lines/s, 2 min left\n"
    progress = Progress("pipe", None, 0, "line")
    now += 100
    progress.update(1000)
    progress.close()
    assert capsys.readouterr().err == "pipe: 1,000 lines, 10 lines/s\n"
