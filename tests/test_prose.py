"""The commands of pages, run in page order in one folder, and what the pages show of their output.

What takes long is shortened: a run has a few steps and starts from the demo's weights. Output is compared line by line,
without its numbers.
"""

import difflib
import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import ROOT, Command
from document_samples import DOCX, PO

pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="the pages are for a shell")

# Commands that are not run, by a part of them, and why.
LEFT_OUT = {
    "git clone": "needs the address",
    "make demo": "installs, and trains for minutes",
    ". .venv": "is the tests' own environment",
    "pip install": "installs",
    "tensorboard": "runs until it is stopped",
    "serve.py": "runs until it is stopped; tests/test_serve.py",
    "curl": "asks the server; tests/test_serve.py",
    "--pairs": "needs three languages; tests/test_pairs.py",
    "--run four": "is a model of three languages",
    "my-edit": "is a run of minutes; tests/test_change_the_model.py",
    "OWNER/NAME": "needs the hub; tests/test_export.py",
    "hf auth": "logs in",
    '--run OUT "': "is a release that was changed; tests/test_export.py",
    "--name large": "needs a folder of Multi30k, and an hour",
    "--name evening": "needs the same, and four hours",
    "--run evening": "scores its run",
    "--name small": "needs the same",
    "--run small": "exports its run",
}
TMX = """<?xml version="1.0"?>
<tmx version="1.4"><header srclang="en" datatype="plaintext" segtype="sentence" adminlang="en"
creationtool="a" creationtoolversion="1" o-tmf="a"/><body><tu><tuv xml:lang="en"><seg>The cat is here.</seg></tuv>
<tuv xml:lang="fr"><seg>Voici le chat.</seg></tuv></tu></body></tmx>
"""
BRIEF = "--init-from weights/demo --steps 2"
# What takes long, and what is typed in place of it, by regular expressions.
SHORTER = {
    r"--minutes \d+( --seed 2 --name \w+)": rf"{BRIEF}\1",
    r"--data pairs.csv (.*) --minutes 60": rf"--data pairs.csv \1 {BRIEF}",
    r"--minutes \d+": f"{BRIEF} --name mine-en-fr --overwrite",
    r"--resume --name mine-en-fr$": "--resume --name mine-en-fr --steps 3",
    r"--steps \d{4,}": "--steps 4",
    r"--init-from mine-en-fr": "--init-from mine-en-fr --steps 2",
    r"--target en --name back": "--target en --name back --steps 2 --batch-tokens 512",
    r"--back-translator back": f"--back-translator back --least-bleu 0 {BRIEF}",
    r"--drop-unrelated": f"--drop-unrelated {BRIEF}",
    r"--data best": f"--data best {BRIEF}",
    r"--license NAME": "--license mit",
    r"--name better$": "--name better --steps 2 --overwrite",
    r"^(python export.py .* --to (ctranslate2|huggingface) OUT\b)": r"rm -rf OUT; \1",
}


@dataclass
class Shown:
    """A command of a page."""

    command: str
    output: list[str] = field(default_factory=list)


def shown_in(page: Path) -> list[Shown]:
    """The commands of a page, each with the output that the page shows below it."""
    commands: list[Shown] = []
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("$ "):
                commands.append(Shown(line[2:].partition("  #")[0].strip()))
            elif line.strip() not in ("", "…"):
                commands[-1].output.append(line)
    return commands


def without_numbers(line: str) -> str:
    return re.sub(r"[\d.,]*\d", "#", line).strip()


def looks_like(shown: str, printed: list[str]) -> bool:
    """Whether a printed line is nearly the shown one, but for numbers; a translation may have another word.

    Of a line with tabs, only their number counts: which sentence is the worst depends on the model.
    """
    if "\t" in shown:
        return any(one.count("\t") == shown.count("\t") for one in printed)
    shown = without_numbers(shown)
    return any(difflib.SequenceMatcher(None, shown, without_numbers(one)).ratio() > 0.7 for one in printed)


def run_line(line: str, forked: Command) -> tuple[int, str]:
    """Run a line of a shell in the current folder: a script of the project in a fork, anything else by bash.

    Returns the exit code, and what it printed.
    """
    words = list(shlex.shlex(line, posix=True, punctuation_chars="|<>;&"))
    if words[0] == "python" and (ROOT / words[1]).is_file() and not {"|", ";", "&&", "<(", ">("} & set(words):
        words = shlex.split(line)[1:]
        text, output = "", None
        for sign in ("<", ">"):
            if sign in words:
                at = words.index(sign)
                file = Path(words[at + 1])
                text, output = (file.read_text(encoding="utf-8"), output) if sign == "<" else (text, file)
                del words[at : at + 2]
        done = forked(*words, text=text)
        if output:
            output.write_text(done.stdout, encoding="utf-8")
        return done.returncode, done.stderr + (done.stdout if not output else "")
    python, root = map(shlex.quote, (sys.executable, str(ROOT)))
    line = re.sub(r"\bpython (\w+\.py)", lambda found: f"{python} {root}/{found[1]}", line)
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    return done.returncode, done.stdout + done.stderr


def follow(page: Path, forked: Command) -> int:
    """Run the commands of a page in the current folder, some of them shortened, and compare what they print.

    Returns how many were run.
    """
    ran = 0
    for shown in shown_in(page):
        if any(part in shown.command for part in LEFT_OUT):
            continue
        line = shown.command
        for long, short in SHORTER.items():
            line, n = re.subn(long, short, line)
            if n and BRIEF in short:
                break
        code, printed = run_line(line, forked)
        assert code in (0, 141), f"{line}\n{printed}"
        for one in shown.output:
            assert looks_like(one, printed.splitlines()), f"{shown.command}\n{one}\n\n{printed}"
        ran += 1
    return ran


@pytest.fixture
def with_the_demo(trained: "subprocess.CompletedProcess[str]") -> None:
    """The current folder has the demo's corpus and a run of it, as that of the project after `make demo`."""
    shutil.copytree(ROOT / "demo", "demo")
    shutil.copytree(Path(trained.args[0]) / "weights", "weights")


def first_lines(file: str, n: int) -> list[str]:
    return Path(file).read_text(encoding="utf-8").splitlines(keepends=True)[:n]


def files_of_a_user() -> None:
    """Write the files that the pages take as given."""
    for language in ("en", "fr"):
        Path(f"mine.{language}").write_text("".join(first_lines(f"demo/train.{language}", 1000)), encoding="utf-8")
        shutil.copy(f"demo/test.{language}", f"test.{language}")
        shutil.copy(f"demo/valid.{language}", f"valid.{language}")
        shutil.copy(f"demo/test.{language}", f"news.{language}")
        Path(f"train.{language}").write_text("".join(first_lines(f"demo/train.{language}", 300)), encoding="utf-8")
    sources, targets = (Path(f"test.{language}").read_text(encoding="utf-8").splitlines() for language in ("en", "fr"))
    rows = [f'{i},"{source}","{target}"\n' for i, (source, target) in enumerate(zip(sources, targets, strict=True))]
    Path("pairs.csv").write_text("id,en,fr\n" + "".join(rows), encoding="utf-8")
    text = "".join(one + "\n" for one in sources[:24])
    Path("text.en").write_text(text, encoding="utf-8")
    Path("big.en.gz").write_bytes(gzip.compress(text.encode()))
    for i in range(1, 9):
        Path(f"{i}.fr.gz").write_bytes(gzip.compress(b""))
    shutil.copy("test.fr", "out.fr")
    for name in ("a.fr", "b.fr", "other.fr"):
        shutil.copy("test.fr", name)
    Path("terms.tsv").write_text("garden\tparc\nmat\tpaillasson\n", encoding="utf-8")
    Path("letter.docx").write_bytes(DOCX)
    Path("messages.po").write_text(PO, encoding="utf-8")
    Path("products.csv").write_text("name,description\nA1,The cat is here.\n", encoding="utf-8")
    Path("manual").mkdir()
    Path("manual", "one.md").write_text("The *cat* is here.\n", encoding="utf-8")
    Path("PAGE.html").write_text("<p>The <b>cat</b> is here.</p>", encoding="utf-8")
    Path("old.tmx").write_text(TMX, encoding="utf-8")
    Path("new").mkdir()
    for name in (f"{part}.{language}" for part in ("train", "valid", "test") for language in ("en", "fr")):
        Path("new", name).write_text("".join(first_lines(f"demo/{name}", 40)), encoding="utf-8")
    for name in ("NEW", "OLD"):
        shutil.copytree("new", name)
    for language in ("en", "fr"):
        Path("OLD", f"train.{language}").write_text("".join(first_lines(f"demo/train.{language}", 90)[40:]), "utf-8")
    shutil.copy("terms.tsv", "terms.en-fr.tsv")
    shutil.copy("letter.docx", "manual.docx")
    for name in ("mine-en-fr", "mine", "other", "new", "old", "A", "B"):
        shutil.copytree("weights/demo", f"weights/{name}")
    Path("weights/demo/model.safetensors").touch()  # the most recent


@pytest.mark.usefixtures("with_the_demo")
def test_the_tutorial_can_be_followed_with_nothing_but_the_demo(forked: Command) -> None:
    assert follow(ROOT / "docs/tutorial.md", forked) >= 20
    assert Path("mine.html").stat().st_size > 1_000_000


@pytest.mark.parametrize(
    ("page", "at_least"),
    [
        ("README.md", 10),
        ("docs/recipes.md", 25),
        ("docs/translating.md", 13),
        ("docs/evaluating.md", 13),
        ("docs/documents.md", 7),
        ("docs/terms.md", 2),
        ("docs/fine-tuning.md", 2),
        ("docs/sharing.md", 6),
    ],
)
@pytest.mark.usefixtures("with_the_demo")
def test_a_page_can_be_followed(page: str, at_least: int, forked: Command) -> None:
    files_of_a_user()
    assert follow(ROOT / page, forked) >= at_least
