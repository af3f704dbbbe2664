"""What several test modules need: small configs, small data, and the commands run as a user runs them."""

import contextlib
import importlib
import io
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from filelock import FileLock
from hypothesis import settings
from launching import Launched, import_packages

from checkpoint import RunFolder, parameters
from config import PRESETS, Config
from decoding.translator import CheckoutFiles, Translator
from model import Transformer
from pairs.batches import clean_batch
from pairs.cleaning import RULES, Cleaner
from pairs.corpus import Corpus, load_corpus
from pairs.readers import Part
from pairs.tables import Pairs
from pairs.unreadable import Unreadable
from tapis.attention import draw
from tapis.system.cli import run_command
from tapis.system.files import digest, write_text
from tapis.text.lines import Pair
from tapis.text.tokenizer import Tokenizer

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "data"

# In a browser with axe-core: the violations of a page, and the rules that it passes.
CHECK_ACCESSIBILITY = """
const done = arguments[0];
const describe = ({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ")}`;
axe.run(document, { iframes: false }).then(
  ({ violations, passes }) => done([violations.map(describe), passes.map(({ id }) => id)]),
  (error) => done([[error.message], []]),
);
"""

Command = Callable[..., "subprocess.CompletedProcess[str]"]

pytest_plugins = ["hub_double"]
# The same examples in every run, however busy the machine is.
settings.register_profile("tapis", deadline=None, derandomize=True, database=None)
settings.register_profile("thorough", settings.get_profile("tapis"), max_examples=2_000)
settings.load_profile("tapis")

# Tests with these start other processes or train a model: `make quick` leaves them out.
SLOW_FIXTURES = {"command", "launch", "forked", "trained", "once", "page", "browser", "board", "few"}


def first(pairs: Pairs, n: int) -> Pairs:
    """The first of some pairs."""
    return pairs.select(np.arange(n))


def pairs_of(*texts: tuple[str, str]) -> Pairs:
    """A table in memory of these pairs, as they are."""
    rows = datasets.Dataset.from_dict(clean_batch(Cleaner("en", "fr", RULES), texts))
    return Pairs(rows, np.arange(len(texts)), digest(texts))


def readable(part: Part) -> Iterator[Pair]:
    """The pairs of a part, without the rows that cannot be read."""
    return (row for row in part.rows if not isinstance(row, Unreadable))


def scrambled(model: Transformer) -> Transformer:
    """The model with weights that no symmetry hides behind, in evaluation mode."""
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def needs_shared(name: str) -> pytest.MarkDecorator:
    """Skips, by name, what needs real data that is not part of the project."""
    return pytest.mark.skipif(not (SHARED / name).is_dir(), reason=f"no real data {name} beside the project")


def eventually(done: Any, seconds: float = 40.0) -> Any:
    """What done() gives once it is not false."""
    deadline = time.monotonic() + seconds
    while not (found := done()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.2)
    return found


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], str]) -> tuple[Path, str]:
    """The folder of that name, where one of the testing processes has called make, and what make returned."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with FileLock(f"{folder}.lock"):
        result = folder / "result"
        if not result.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a process that failed
            folder.mkdir()
            result.write_text(make(folder), encoding="utf-8")
    return folder, result.read_text(encoding="utf-8")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks slow tests. Starts with the test that trains the demo, and ends with those that wait for it."""

    for item in items:
        if SLOW_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("slow")

    def rank(item: pytest.Item) -> int:
        return 0 if "reaches_90_bleu" in item.name else 1 + ("trained" in getattr(item, "fixturenames", ()))

    items.sort(key=rank)


@pytest.fixture(scope="session", autouse=True)
def _own_threads() -> None:
    """Processes that test at the same time share the cores, and do not wait for one another."""
    share = max(1, (os.cpu_count() or 1) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    torch.set_num_threads(min(share, torch.get_num_threads()))
    os.environ["OMP_NUM_THREADS"] = str(torch.get_num_threads())  # of the commands


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is prepared once is prepared once for all tests, and nothing of it outlives them."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["HF_DATASETS_CACHE"] = str(folder)
    datasets.config.HF_DATASETS_CACHE = str(folder)
    write_text(folder / "tapis/secret", "the same for all testing processes, which make runs for one another")
    yield
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test in a folder of its own, which is where weights/ and runs/ are, with the random state of its own."""
    monkeypatch.chdir(tmp_path)
    for kind in (RunFolder, CheckoutFiles):
        monkeypatch.setattr(kind, "more_weights", [tmp_path / "no weights"])
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)  # which a run replaces
    torch.manual_seed(0)
    yield


@pytest.fixture(scope="session")
def tiny() -> Config:
    """A model that trains a step in a millisecond."""
    return replace(
        PRESETS["demo"],
        d_model=16,
        n_heads=2,
        d_ff=32,
        vocab_size=300,
        batch_tokens=256,
        epochs=1,
        warmup_steps=4,
        least_bleu=0.0,
        precision="fp32",
        device="cpu",
        name="tiny",
    )


@pytest.fixture(scope="session")
def demo() -> Corpus:
    return load_corpus(PRESETS["demo"])


@pytest.fixture(scope="session")
def small(demo: Corpus) -> Corpus:
    """A few hundred of the demo's pairs."""
    return replace(demo, train=first(demo.train, 400), valid=first(demo.valid, 20), test=first(demo.test, 20))


@pytest.fixture(scope="session")
def few(demo: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder of a few hundred pairs, for commands that only have to end."""
    folder = tmp_path_factory.mktemp("few")
    for part, pairs in (("train", demo.train[:600]), ("valid", demo.valid[:12]), ("test", demo.test[:12])):
        for side, language in enumerate(("en", "fr")):
            text = "".join(pair[side] + "\n" for pair in pairs)
            (folder / f"{part}.{language}").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def fewer(few: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder of 60 training pairs, for what translates them all."""
    folder = tmp_path_factory.mktemp("fewer")
    for file in few.iterdir():
        n = 60 if file.stem == "train" else 4
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / file.name).write_text("".join(lines[:n]), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tokenizer(demo: Corpus) -> Tokenizer:
    return Tokenizer.train((side for pair in demo.train[:1000] for side in pair), 300)


@pytest.fixture
def model(tiny: Config, tokenizer: Tokenizer) -> Transformer:
    """Untrained."""
    return scrambled(Transformer(len(tokenizer), tiny))


@pytest.fixture(scope="session")
def command() -> Command:
    """Runs one of the commands in the current folder, with warnings as errors."""

    def run(*args: str, text: str | None = None, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-W", "error", str(ROOT / args[0]), *args[1:]],
            input=text,
            capture_output=True,
            encoding="utf-8",
            timeout=280,
            check=False,
            env={**os.environ, "PYTHONUTF8": "0", **environment},
        )

    return run


@pytest.fixture(scope="session")
def launch() -> type[Launched]:
    """Starts a command in one or several forks."""
    import_packages()
    return Launched


@pytest.fixture(scope="session")
def forked(launch: type[Launched]) -> Command:
    """Runs one of the commands in a fork: a process of its own, three seconds sooner."""

    def run(*args: str, text: str = "") -> "subprocess.CompletedProcess[str]":
        with launch(args, text=text) as process:
            return subprocess.CompletedProcess(list(args), *process.wait())

    return run


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Command:
    """The same in this process, for what needs none of its own."""

    def run(*args: str) -> "subprocess.CompletedProcess[str]":
        monkeypatch.setattr(sys, "argv", list(args))
        if args[0] == "train.py":
            train = importlib.import_module("train")
            from matplotlib.figure import Figure

            if train.draw is draw:  # four pictures take longer than many runs
                monkeypatch.setattr(train, "draw", lambda *_: Figure((1, 1)))
        code, (out, err) = 0, (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                run_command(importlib.import_module(args[0].removesuffix(".py")).main)
            except SystemExit as end:
                code = int(end.code or 0)
        for stream in (out, err):
            stream.seek(0)
        return subprocess.CompletedProcess(list(args), code, out.read(), err.read())

    return run


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, command: Command) -> "subprocess.CompletedProcess[str]":
    """The demo trained by its command, half as long as `make demo` does: in args[-1]."""

    def train(folder: Path) -> str:
        with contextlib.chdir(folder):
            done = command("train.py", "demo", "--epochs", "6")
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        return done.stderr

    folder, printed = made_once(tmp_path_factory, "trained", train)
    return subprocess.CompletedProcess([str(folder)], 0, "", printed)


@pytest.fixture
def demo_run(trained: "subprocess.CompletedProcess[str]") -> RunFolder:
    return RunFolder(Path(trained.args[0]) / "weights" / "demo")


@pytest.fixture
def translator(demo_run: RunFolder) -> Translator:
    """In fp32, which is exact enough to compare with anything."""
    return Translator.load(demo_run.path, "cpu", "fp32")


def saved_untrained(config: Config, tokenizer: Tokenizer) -> RunFolder:
    """weights/one with this config and an untrained model."""
    folder = RunFolder(Path("weights/one"))
    folder.start(config, tokenizer)
    folder.save_model(parameters(scrambled(Transformer(len(tokenizer), config))))
    return folder


@pytest.fixture
def run_folder(tiny: Config, tokenizer: Tokenizer, model: Transformer) -> RunFolder:
    """weights/tiny with an untrained model."""
    folder = RunFolder(Path("weights/tiny"))
    folder.start(tiny, tokenizer)
    folder.save_model(parameters(model))
    return folder


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A Chromium without a window. Where there is none, these tests are skipped; in CI they fail."""
    binary, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if not (binary and driver):
        assert not os.environ.get("CI"), "CI must have chromium and chromedriver"
        pytest.skip("no chromium and chromedriver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1300,1100"):
        options.add_argument(argument)
    options.binary_location = binary
    driven = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    driven.implicitly_wait(20)
    yield driven
    driven.quit()


@pytest.fixture
def browser(chromium: Any) -> Any:
    """The same, on an empty page, with an empty log: no test sees what an earlier one left."""
    chromium.get("about:blank")
    chromium.get_log("browser")
    return chromium
