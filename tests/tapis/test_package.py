"""The package alone: it stands without torch, is imported from any folder, and its wheel has all that it needs."""

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import Distribution, distribution, version
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import ROOT, Command
from packaging.requirements import Requirement

from tapis.engine.engine import library, variants

RELEASE = ROOT / "tests/formats/format-5.tar.gz"
TRAINING = (
    "torch",
    "datasets",
    "tensorboard",
    "torchmetrics",
    "matplotlib",
    "sacrebleu",
)  # which translating needs not

TRANSLATES = f"""
import json, sys
from tapis import Search, Translator
translator = Translator.load({str(RELEASE)!r})
ranked = translator.text(["The <b>cat</b> is here.", ""], Search(5, 2), markup="html", with_doubts=True)
log_p = translator.log_probabilities([("A cat.", "Un chat.")])
"""
SERVES = f"""
from starlette.testclient import TestClient
from tapis.commands.serve import application
from tapis.serving.limits import ApiKeys
from tapis.serving.models import find_models
from tapis.system.cli import ServeOptions
models = find_models([{str(RELEASE)!r}], Translator.files, Translator.load, 1)
with TestClient(application(ServeOptions(), models, ApiKeys()), base_url="http://localhost") as client:
    answer = client.post("/translate", json={{"q": "The cat is here.", "source": "en", "target": "fr"}}).json()
    page = client.get("/").text
assert "<title>" in page and isinstance(answer["translatedText"], str)
"""
ENDS = f"""
loaded = sorted(set({TRAINING!r}) & set(sys.modules))
print(json.dumps([loaded, [[one.text for one in texts] for texts in ranked], log_p[0][1]]))
"""

CLIENT = "httpx" if find_spec("httpx") else "httpx2"  # what starlette's TestClient asks with

compiled = pytest.mark.skipif(library() is None, reason="engine.c was not compiled")


def ran(python: str, code: str, **environment: str) -> str:
    done = subprocess.run(
        [python, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@compiled
def test_translating_and_serving_load_nothing_of_training() -> None:
    loaded, texts, n_tokens = json.loads(ran(sys.executable, TRANSLATES + SERVES + ENDS, PYTHONPATH=str(ROOT)))
    assert loaded == []
    assert len(texts[0]) == 2 and texts[1] == [""] and n_tokens > 1


def test_importing_it_takes_no_library() -> None:
    code = "import tapis, sys; print(*sorted({'numpy', 'tokenizers', 'tyro', 'tqdm'} & set(sys.modules)))"
    assert ran(sys.executable, code, PYTHONPATH=str(ROOT)).split() == []
    code = "import tapis; tapis.Translator, tapis.Search, tapis.Translation, tapis.TapisError; tapis.nothing"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "AttributeError: module 'tapis' has no attribute 'nothing'" in done.stderr


def test_other_devices_and_precisions_are_refused_in_words() -> None:
    refused = "this installation computes on the CPU, in int8; for more, use a checkout"
    for flags, reason in (
        (["--device", "cuda"], f"--device cuda: {refused}"),
        (["--precision", "fp32"], f"--precision fp32: {refused}"),
        (["--plain"], f"--plain: {refused}"),
        (["--attention-of", "encoder", "--attention", "a.html"], "--attention-of encoder needs PyTorch"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "tapis", "translate", "--run", str(RELEASE), *flags, "A cat."],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2 and reason in done.stderr


@pytest.mark.parametrize(
    ("args", "code", "out", "err"),
    [
        ([], 0, "usage: tapis COMMAND", ""),
        (["--help"], 0, "usage: tapis COMMAND", ""),
        (["translate", "--help"], 0, "Sentences to translate", ""),
        (["train"], 2, "", "no command 'train'; there are translate, serve, evaluate, info"),
        (["evaluate", "--help"], 0, "usage: tapis evaluate [-h]", ""),
        (["evaluate", "--source", "a.en"], 2, "", "name two files, with --source and --reference"),
        (["evaluate", "--run", str(RELEASE), "--source", "a.en", "--reference", "a.fr"], 1, "", "a.en cannot be read"),
        (["evaluate", "--split", "test"], 2, "", "Unrecognized options: --split"),
        (["translate", "--beam", "x"], 2, "", "--beam is 'x'; it must be an integer"),
        (["translate", "--run", "nothing", "A cat."], 1, "", "no run 'nothing' in weights/"),
        (["info"], 0, "on ", ""),
        (["info", "--run", str(RELEASE)], 0, "weights, ", ""),
        (["info", "--run", "nothing"], 1, "", "no run 'nothing'"),
    ],
)
def test_the_console_command(args: list[str], code: int, out: str, err: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tapis", *args],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, out in done.stdout, err in done.stderr) == (code, True, True), done.stderr
    assert "Traceback" not in done.stderr and (done.stderr == "" or code)


@compiled
def test_the_engine_tells_what_it_computes_with() -> None:
    done = ran(sys.executable, "from tapis.__main__ import run; run(['info'])", PYTHONPATH=str(ROOT))
    assert f"the engine computes with {variants()[0]}" in done
    done = ran(
        sys.executable, "from tapis.__main__ import run; run(['info'])", PYTHONPATH=str(ROOT), TAPIS_VARIANT="plain"
    )
    assert "the engine computes with plain" in done


@compiled
def test_two_files_are_scored_without_torch_as_a_checkout_scores_them(called: Command) -> None:
    Path("a.en").write_text("The cat is here.\nA dog.\n", encoding="utf-8")
    Path("a.fr").write_text("Le chat est ici.\nUn chien.\n", encoding="utf-8")
    flags = ["--run", str(RELEASE), "--source", "a.en", "--reference", "a.fr", "--doubts", "--scores"]
    loaded = f"print('loaded', *sorted(set({TRAINING!r}) - {{'sacrebleu'}} & set(sys.modules)), file=sys.stderr)"
    code = f"import sys; sys.argv = ['tapis', 'evaluate', *{flags!r}, 'b.tsv']; import tapis.__main__ as command"
    alone = subprocess.run(
        [sys.executable, "-c", f"{code}; command.main(); {loaded}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert alone.returncode == 0 and alone.stderr.endswith("loaded\n"), alone.stderr
    ours = called("evaluate.py", *flags, "a.tsv")
    scores, doubts = alone.stdout.splitlines()
    assert "version:sacrebleu-" in scores
    assert ours.stdout.splitlines() == [
        re.sub("sacrebleu-.*", f"torchmetrics-{version('torchmetrics')}", scores),
        doubts,
    ]
    assert Path("a.tsv").read_text(encoding="utf-8") == Path("b.tsv").read_text(encoding="utf-8")


# The wheel, in an environment that has nothing else


def needed(name: str, extras: tuple[str, ...] = ()) -> dict[str, Distribution]:
    """A package and all that it needs, of those that are installed here."""
    found: dict[str, Distribution] = {}
    new = [(name, extras)]
    while new:
        name, extras = new.pop()
        found[name] = here = distribution(name)
        for line in here.requires or []:
            requirement = Requirement(line)
            wanted = [{"extra": extra} for extra in (*extras, "")]
            if requirement.marker and not any(map(requirement.marker.evaluate, wanted)):
                continue
            if requirement.name not in found:
                new.append((requirement.name, tuple(requirement.extras)))
    return found


@pytest.mark.slow
@compiled
def test_a_wheel_is_all_that_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Built, unpacked beside what it names as needed, and used, where torch cannot be imported."""
    monkeypatch.delenv("PYTHONPATH", raising=False)  # it may name a checkout
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", "dist", str(ROOT)],
        check=True,
    )
    (wheel,) = Path("dist").glob("*.whl")
    assert "-abi3-" in wheel.name and wheel.stat().st_size < 2**20
    venv.create(tmp_path / "env", symlinks=os.name != "nt")
    python = str(tmp_path / "env" / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
    site = Path(ran(python, "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip())
    zipfile.ZipFile(wheel).extractall(site)
    needs = needed("tapis", ("serve",))
    assert not {"torch", "datasets", "matplotlib"} & needs.keys()
    client = needed(CLIENT)  # of the requests below
    for dist in (needs | client).values():
        tops = {file.parts[0] for file in dist.files or [] if not file.parts[0].startswith(("..", "__", "tapis"))}
        for top in tops:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(dist.locate_file(top))).resolve())

    loaded, texts, _ = json.loads(ran(python, TRANSLATES + SERVES + ENDS))
    assert loaded == [] and len(texts[0]) == 2
    assert ran(python, "import tapis; print(tapis.__file__)").strip().startswith(str(site))
    scoring = subprocess.run([python, "-m", "tapis", "evaluate"], capture_output=True, text=True, check=False)
    assert (scoring.returncode, scoring.stderr) == (
        1,
        'scoring needs sacrebleu, which is not installed: pip install "tapis[evaluate]"\n',
    )
    for name in TRAINING:
        done = subprocess.run([python, "-c", f"import {name}"], capture_output=True, check=False)
        assert done.returncode == 1, name
