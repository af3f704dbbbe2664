"""The server: its command, its page with requests at the same time and malicious ones, a real client and browser."""

import http.client
import json
import os
import re
import signal
import socket
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
from decoding.attention import tables
from decoding.search import Search
from decoding.translator import Translator
from system.cli import ServeOptions

gradio_client = pytest.importorskip("gradio_client")

ENDED = 1 if sys.platform == "win32" else -signal.SIGTERM  # the code of a server that SIGTERM ended in order
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
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/gradio_api/heartbeat/abc", timeout=20):
        start, logged = time.monotonic(), log.read_text()
        served.terminate()
        assert served.wait(20) == ENDED
    assert time.monotonic() - start < 10  # an open page does not hold it up
    assert log.read_text() == logged


def client(page: str) -> Any:
    return gradio_client.Client(
        page, verbose=False, httpx_kwargs={"timeout": 60}
    )  # for fifty requests at once on two cores


def test_by_default_it_listens_on_this_machine_only() -> None:
    assert ServeOptions().host == "127.0.0.1"


@pytest.mark.parametrize("package", ["gradio", "uvicorn", "prometheus_client"])
def test_without_its_packages_the_error_says_how_to_install_them(
    command: Command, tmp_path: Path, package: str, demo_run: RunFolder
) -> None:
    (tmp_path / f"{package}.py").write_text(f"raise ImportError(name={package!r})")
    done = command("serve.py", "--run", str(demo_run.path), PYTHONPATH=str(tmp_path))
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
def test_what_it_cannot_serve_is_an_error(
    page: str, trained: Trained, forked: Command, monkeypatch: pytest.MonkeyPatch, args: list[str], code: int, says: str
) -> None:
    monkeypatch.chdir(trained.args[0])
    done = forked("serve.py", "--device", "cpu", *(arg.replace("PORT", str(PORT)) for arg in args))
    assert done.returncode == code and "Traceback" not in done.stderr
    assert says.replace("PORT", str(PORT)) in done.stderr


def test_fifty_requests_at_once_get_their_own_answers(page: str, translator: Translator) -> None:
    """Sentences of different lengths, with their attention maps, beside requests to the API that need attention."""
    rests = ["tired", "old and small", "here", "on the mat", "sitting in the big house"]
    sentences = [f"The {noun} is {rest}." for noun in NOUNS for rest in rests]
    expected = [results[0].text for results in translator.text(sentences, Search(beam=5, n_best=5))]
    last_layer = translator.config.n_decoder_layers - 1

    def map_of(sentence: str) -> str:
        _, attention = translator.attention(sentence, Search(beam=5, n_best=5))
        return tables(attention.maps(last_layer), attention.source, attention.target)

    def marked(sentence: str) -> str:
        body = json.dumps({"q": f"<b>{sentence}</b>", "source": "en", "target": "fr"}).encode()
        request = urllib.request.Request(f"{page}/translate", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(json.load(answer)["translatedText"])

    with ThreadPoolExecutor(50) as pool:
        answers = pool.map(lambda s: client(page).predict(s, "demo", api_name="/translate"), sentences)
        marked_answers = list(pool.map(marked, sentences))
        given = list(answers)
    assert [answer[0] for answer in given] == expected
    assert [cells_of(answer[2]) for answer in given] == [cells_of(map_of(sentence)) for sentence in sentences]
    greedy = [results[0].text for results in translator.text(sentences)]
    assert marked_answers == [f"<b>{translation}</b>" for translation in greedy]


def cells_of(attention_map: str) -> list[str]:
    """The tokens of an attention map. Weights depend on the batch by rounding."""
    return re.findall(r"<th[^>]*>([^<]*)", attention_map)


def test_an_answer_has_alternatives_an_attention_map_and_a_speed(page: str, translator: Translator) -> None:
    best, alternatives, attention_map, speed = client(page).predict(SENTENCE, "demo", api_name="/translate")
    assert best == TRANSLATION and "sentences/s" in speed
    n_best = translator.n_best([SENTENCE], Search(beam=5, n_best=5))[0]
    assert [row[:2] for row in alternatives["data"]] == [[f"{one.score:.3f}", one.text] for one in n_best]
    assert alternatives["data"][0][2] == "" and alternatives["data"][-1][2] == "unsure"
    assert attention_map.count("<table>") == 1 + translator.config.n_heads


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
            assert error.code in (400, 404, 413, 422) or (error.code == 500 and "gradio" in path)
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
    client = pytest.importorskip("libretranslatepy").LibreTranslateAPI(page, api_key="any, since it needs none")
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


def ask(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Any]:
    """The status, the headers and the body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection.request(method, path, content, {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, answer.headers, text


def test_pages_of_other_sites_cannot_read_answers(page: str) -> None:
    """Gradio has a rule of its own, by which each site may, unless the server is called localhost."""
    foreign = {"Host": "tapis.example.org", "Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    for path in ("/translate", "/gradio_api/call/translate", "/gradio_api/info"):
        for method in ("OPTIONS", "GET"):
            _, headers, _ = ask(PORT, method, path, **foreign)
            assert "Access-Control-Allow-Origin" not in headers


def test_nobody_uploads_files(page: str) -> None:
    for path in ("upload", "upload/", "process_recording", "component_server", "run-history/connect", "vibe-edit"):
        status, _, text = ask(PORT, "POST", f"/gradio_api/{path}", b"x")
        assert status == 404 and b"this server takes no files" in text
    assert ask(PORT, "GET", "/gradio_api/runs")[0] == 404
    assert ask(PORT, "POST", "/gradio_api/queue/join", b"x" * 500_000)[0] == 413


@pytest.fixture(scope="module")
def with_keys(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Any]]:
    """The port and the process of a server that asks for a key."""
    port = own_port(6)
    folder = tmp_path_factory.mktemp("keys")
    (folder / "keys").write_text("right", encoding="utf-8")
    flags = ["--port", str(port), "--device", "cpu", "--precision", "fp32", "--beam", "5"]
    command = [sys.executable, str(ROOT / "serve.py"), *flags, "--api-key-file", str(folder / "keys")]
    with (folder / "log").open("w") as log:
        served = subprocess.Popen(command, cwd=trained.args[0], stderr=log)
    eventually(lambda: served.poll() is not None or answers(port), 100)
    assert served.poll() is None, (folder / "log").read_text()
    yield port, served
    served.kill()
    served.wait(20)
    assert not (folder / "log").read_text()


def answers(port: int) -> bool:
    try:
        return ask(port, "GET", "/health")[0] == 200
    except OSError:
        return False


def test_a_server_with_keys_asks_for_one_and_finishes_what_has_begun(with_keys: tuple[int, Any]) -> None:
    port, served = with_keys
    assert ask(port, "GET", "/gradio_api/info")[0] == 401
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for password, status in (("wrong", 400), ("right", 200)):
        assert ask(port, "POST", "/login", f"username=any&password={password}".encode(), **form)[0] == status
    client = pytest.importorskip("libretranslatepy").LibreTranslateAPI(f"http://127.0.0.1:{port}", "right")
    assert client.translate(SENTENCE, "en", "fr", timeout=60) == TRANSLATION
    client.api_key = "wrong"
    with pytest.raises(urllib.error.HTTPError, match="403") as error:
        client.translate(SENTENCE, "en", "fr", timeout=60)
    error.value.close()

    # What has begun is answered when the server is stopped: it asks for the body once it has begun.
    sentences = [f"The {noun} is tired." for noun in NOUNS for _ in range(12)]
    body = json.dumps({"q": sentences, "source": "en", "target": "fr", "api_key": "right"}).encode()
    head = f"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(f"{head}Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n".encode())
        assert b"100 Continue" in connection.recv(1000)
        served.terminate()
        eventually(lambda: not answers(port))
        connection.sendall(body)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert len(json.load(answer)["translatedText"]) == len(sentences)
    assert served.wait(40) == ENDED
