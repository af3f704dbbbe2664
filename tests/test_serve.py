"""The server: its command, its page with requests at the same time and malicious ones, a real client and browser."""

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Command, eventually, own_port

from checkpoint import RunFolder
from decoding.search import Search
from decoding.translator import Translator
from export import to_ctranslate2
from system.cli import ServeOptions
from system.files import whole_folder

gradio_client = pytest.importorskip("gradio_client")

from serve import load_models  # noqa: E402
from serving.batches import Batches  # noqa: E402
from serving.models import trained_configs  # noqa: E402
from serving.page import Page  # noqa: E402

Trained = subprocess.CompletedProcess[str]
PORT = own_port(1)
SENTENCE, TRANSLATION = "The cat is sitting on the mat.", "Le chat est assis sur le tapis."
NOUNS = ["cat", "dog", "man", "woman", "child", "friend", "teacher", "bird", "girl", "boy"]


@pytest.fixture(scope="session")
def page(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server, started by the command serve.py."""
    log = tmp_path_factory.mktemp("serve") / "log"
    with log.open("w") as out:
        served = subprocess.Popen(
            [sys.executable, str(ROOT / "serve.py"), "--port", str(PORT), "--device", "cpu", "--precision", "fp32"],
            cwd=trained.args[0],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    deadline = time.monotonic() + 100
    while "serving" not in log.read_text() and served.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    assert f"at http://127.0.0.1:{PORT} (API: /docs)" in log.read_text(), log.read_text()
    yield f"http://127.0.0.1:{PORT}"
    served.terminate()
    assert served.wait(40) == -signal.SIGTERM  # it ended in order, and passed the signal on
    assert "Traceback" not in log.read_text()


def client(page: str) -> Any:
    return gradio_client.Client(
        page, verbose=False, httpx_kwargs={"timeout": 60}
    )  # for fifty requests at once on two cores


def test_by_default_it_listens_on_this_machine_only() -> None:
    assert ServeOptions().host == "127.0.0.1"


@pytest.mark.parametrize("package", ["gradio", "uvicorn", "prometheus_client"])
def test_without_its_packages_the_error_says_how_to_install_them(
    command: Command, tmp_path: Path, package: str
) -> None:
    (tmp_path / f"{package}.py").write_text(f"raise ImportError(name={package!r})")
    done = command("serve.py", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (
        1,
        f'serve.py: {package} is not installed: pip install -e ".[serve]"\n',
    )


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--port", "70000"], 2, "--port is 70000; it must be from 1 to 65535"),
        (["--timeout", "0"], 2, "--timeout is 0.0; it must be more than 0"),
        (["--api-key-file", "missing"], 2, "--api-key-file missing cannot be read: No such file or directory"),
        (["--port", "PORT"], 1, "port PORT at 127.0.0.1 is taken"),
        (["--run", "nothing"], 1, "no run 'nothing'"),
    ],
)
def test_what_it_cannot_serve_is_an_error(page: str, trained: Trained, args: list[str], code: int, says: str) -> None:
    says = says.replace("PORT", str(PORT))
    line = [
        sys.executable,
        str(ROOT / "serve.py"),
        "--device",
        "cpu",
        *(arg.replace("PORT", str(PORT)) for arg in args),
    ]
    done = subprocess.run(line, cwd=trained.args[0], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == code and says in done.stderr and "Traceback" not in done.stderr


def test_fifty_concurrent_requests_get_the_right_translations(page: str, translator: Translator) -> None:
    sentences = [f"The {noun} is {what}." for noun in NOUNS for what in ("tired", "old", "here", "small", "happy")]
    expected = [results[0].text for results in translator.n_best(sentences, Search(beam=5, n_best=5))]
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda s: client(page).predict(s, "demo", api_name="/translate"), sentences))
    assert [answer[0] for answer in answers] == expected


def test_an_answer_has_alternatives_an_attention_map_and_a_speed(page: str, translator: Translator) -> None:
    best, alternatives, attention_map, speed = client(page).predict(SENTENCE, "demo", api_name="/translate")
    assert best == TRANSLATION and "sentences/s" in speed
    n_best = translator.n_best([SENTENCE], Search(beam=5, n_best=5))[0]
    assert [row[:2] for row in alternatives["data"]] == [[f"{one.score:.3f}", one.text] for one in n_best]
    assert alternatives["data"][0][2] == "" and alternatives["data"][-1][2] == "unsure"
    assert attention_map.count("<table>") == 1 + translator.config.n_heads


def test_a_damaged_run_is_not_offered_and_an_export_has_no_attention_map(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole_folder(Path("out"), lambda into: to_ctranslate2(run_folder, into, "float32"))
    broken = Path("weights/broken")
    shutil.copytree(run_folder.path, broken)
    (broken / "config.json").write_text("{", encoding="utf-8")
    monkeypatch.setattr("checkpoint.PROJECT_WEIGHTS", Path("weights").resolve())  # without a developer's runs
    assert list(trained_configs()) == ["tiny"]
    assert "left out: weights/broken/config.json" in capsys.readouterr().err

    models = load_models(ServeOptions(run=("out",), device="cpu"))
    with Batches(models.translate, 10) as batches:
        _, alternatives, attention_map, _ = Page(models, batches, 30).translate("A cat.", "out")
    assert len(alternatives) == 5 and attention_map == ""


def test_a_text_keeps_its_lines(page: str) -> None:
    best, *_ = client(page).predict(f"{SENTENCE} {SENTENCE}\n\n{SENTENCE}", "demo", api_name="/translate")
    assert best == f"{TRANSLATION} {TRANSLATION}\n\n{TRANSLATION}"
    best, alternatives, attention_map, _ = client(page).predict("2. 1914", "demo", api_name="/translate")
    assert best == "2. 1914" and not alternatives["data"] and not attention_map


@pytest.mark.parametrize(
    ("text", "run", "says"),
    [
        ("", "demo", "nothing to translate"),
        (" \n ", "demo", "nothing to translate"),
        ("a" * 2001, "demo", "2,001 characters"),
        (SENTENCE, "../../../etc", "Value: ../../../etc is not in the list of choices"),
    ],
)
def test_invalid_requests_are_explained(page: str, text: str, run: str, says: str) -> None:
    with pytest.raises(gradio_client.exceptions.AppError) as error:
        client(page).predict(text, run, api_name="/translate")
    assert says in str(error.value)


def test_the_attention_map_escapes_html(page: str) -> None:
    _, _, attention_map, _ = client(page).predict("<script>alert(1)</script>", "demo", api_name="/translate")
    assert "<script" not in attention_map


def test_other_files_are_not_served(page: str, trained: Trained) -> None:
    secret = Path(trained.args[0]) / "weights/demo/config.json"
    for path in (
        f"/gradio_api/file={secret}",
        "/gradio_api/file=weights/demo/config.json",
        "/../weights/demo/config.json",
    ):
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(page + path, timeout=20)
        assert error.value.code in (403, 404)
        error.value.close()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"data": []}',
        b'{"data": [["x"], {"a": 1}], "session_hash": 5}',
        b'{"data": ["' + b"a" * 100_000 + b'", "demo"]}',
        b'{"data": ["' + b"a" * 5_000_000 + b'", "demo"]}',
        b'{"data": ["\\ud800", "demo"]}',
        b"[" * 100_000,
    ],
)
def test_after_a_malformed_request_the_next_is_answered(page: str, body: bytes) -> None:
    for path in ("/gradio_api/call/translate", "/gradio_api/queue/join", "/gradio_api/run/translate", "/translate"):
        request = urllib.request.Request(page + path, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            assert error.code in (400, 404, 413, 422, 500)
            error.close()
        except (ConnectionError, urllib.error.URLError):
            assert len(body) > 1_000_000  # refused while it was sent
    best, *_ = client(page).predict(SENTENCE, "demo", api_name="/translate")
    assert best == TRANSLATION


@pytest.mark.browser
def test_the_page_in_a_browser(page: str, browser: Any) -> None:
    browser.get(page)
    text_box, translation_box = browser.find_elements("css selector", "textarea")[:2]
    button = browser.find_element("xpath", "//button[normalize-space()='Translate']")
    text_box.send_keys(SENTENCE)
    button.click()
    eventually(lambda: translation_box.get_attribute("value") == TRANSLATION)
    cells = eventually(lambda: browser.find_elements("css selector", ".attention td"))
    assert all(0 < cell.size["height"] < 30 for cell in cells[:20])
    assert "%" in cells[0].get_attribute("title")
    eventually(lambda: TRANSLATION in browser.find_element("tag name", "body").text)  # among the alternatives
    text_box.clear()
    text_box.send_keys("a" * 2100)
    button.click()
    eventually(lambda: "2,000 at most" in browser.find_element("tag name", "body").text)
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_the_client_of_libretranslate_translates(page: str) -> None:
    """libretranslatepy from PyPI, as it is."""
    client = pytest.importorskip("libretranslatepy").LibreTranslateAPI(page)
    assert client.languages() == [{"code": "en", "name": "English", "targets": ["fr"]}]
    assert client.translate(SENTENCE, "en", "fr", timeout=60) == TRANSLATION
    assert client.translate(SENTENCE, "auto", "fr", timeout=60) == TRANSLATION
    assert client.detect(SENTENCE, timeout=60)[0]["language"] == "en"


def test_the_page_that_describes_the_api_loads_nothing_from_elsewhere(page: str) -> None:
    for path in ("/docs", "/openapi.json"):
        with urllib.request.urlopen(page + path, timeout=20) as answer:
            text = answer.read().decode()
    assert {"/translate", "/detect", "/languages", "/health", "/metrics"} == set(json.loads(text)["paths"])
    with urllib.request.urlopen(page + "/docs", timeout=20) as answer:
        assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", answer.read().decode())


def test_what_has_begun_is_answered_when_the_server_is_stopped(trained: Trained) -> None:
    port = own_port(6)
    flags = ["--no-page", "--port", str(port), "--device", "cpu", "--precision", "fp32", "--beam", "5"]
    served = subprocess.Popen([sys.executable, str(ROOT / "serve.py"), *flags], cwd=trained.args[0])
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            urllib.request.urlopen(f"{address}/health", timeout=5).close()
        except OSError:
            return False
        return True

    eventually(answers, 100)
    sentences = [f"The {noun} is tired." for noun in NOUNS for _ in range(12)]
    body = json.dumps({"q": sentences, "source": "en", "target": "fr"}).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/health")
    assert connection.getresponse().read() == b'{"status":"ok"}'
    connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
    served.terminate()
    assert len(json.loads(connection.getresponse().read())["translatedText"]) == len(sentences)
    assert served.wait(40) == -signal.SIGTERM
    assert not answers()
