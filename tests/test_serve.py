"""The server: its command, its page with requests at the same time and malicious ones, a real client and browser."""

import ctypes
import http.client
import json
import os
import re
import shutil
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
from conftest import ROOT, Command, eventually
from launching import free_port

from checkpoint import RunFolder
from decoding.translator import Translator
from tapis.search import Search
from tapis.system.cli import ServeOptions
from tapis.typed_text import translate_lines

pytest.importorskip("granian")

ENDED = 1 if sys.platform == "win32" else 0  # the code of a server that SIGTERM ended in order
Trained = subprocess.CompletedProcess[str]
PORT = free_port()
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
    try:
        with socket.create_connection(("127.0.0.1", PORT)):
            start, logged = time.monotonic(), log.read_text()
            terminate_by_thread(served)
            assert served.wait(20) == ENDED
    finally:
        served.kill()
    assert time.monotonic() - start < 10  # an idle connection does not hold it up
    assert log.read_text() == logged


def terminate_by_thread(process: "subprocess.Popen[bytes]") -> None:
    """Send SIGTERM to another thread than the main one, where the system can: it must wake the main thread."""
    if sys.platform == "linux":
        thread = max(int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir())
        assert thread != process.pid
        assert ctypes.CDLL(None).tgkill(process.pid, thread, signal.SIGTERM) == 0
    else:
        process.terminate()


def test_by_default_it_listens_on_this_machine_only() -> None:
    assert ServeOptions().host == "127.0.0.1"


@pytest.mark.parametrize("package", ["granian", "prometheus_client"])
def test_without_its_packages_the_error_says_how_to_install_them(
    command: Command, tmp_path: Path, package: str, demo_run: RunFolder
) -> None:
    (tmp_path / f"{package}.py").write_text(f"raise ImportError(name={package!r})")
    done = command("serve.py", "--run", str(demo_run.path), PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (
        1,
        f'serving needs {package}, which is not installed: pip install "tapis[serve]"\n',
    )


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["--port", "70000"], 2, "--port is 70000; it must be from 1 to 65535"),
        (["--timeout", "0"], 2, "--timeout is 0.0; it must be more than 0"),
        (["--trusted-proxy", "caddy"], 2, "--trusted-proxy caddy: give an address or a network, such as 10.0.0.0/8"),
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


def translated(page: str, text: str) -> Any:
    """What the page shows for a text."""
    body = json.dumps({"q": text, "source": "en", "target": "fr"}).encode()
    request = urllib.request.Request(f"{page}/page/translate", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_fifty_requests_at_once_get_their_own_answers(page: str, translator: Translator) -> None:
    """Sentences of different lengths, with their attention, beside requests to the API that need attention."""
    rests = ["tired", "old and small", "here", "on the mat", "sitting in the big house"]
    sentences = [f"The {noun} is {rest}." for noun in NOUNS for rest in rests]
    expected = [results[0].text for results in translate_lines(translator, sentences, Search(beam=5, n_best=5))]

    def tokens_of(sentence: str) -> list[str]:
        return translator.attention(sentence, Search(beam=5, n_best=5))[1].target

    def marked(sentence: str) -> str:
        body = json.dumps({"q": f"<b>{sentence}</b>", "source": "en", "target": "fr"}).encode()
        request = urllib.request.Request(f"{page}/translate", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(json.load(answer)["translatedText"])

    with ThreadPoolExecutor(50) as pool:
        answers = pool.map(lambda sentence: translated(page, sentence), sentences)
        marked_answers = list(pool.map(marked, sentences))
        given = list(answers)
    assert [answer["lines"][0]["text"] for answer in given] == expected
    assert [answer["attention"]["target"] for answer in given] == [tokens_of(sentence) for sentence in sentences]
    greedy = [results[0].text for results in translate_lines(translator, sentences)]
    assert marked_answers == [f"<b>{translation}</b>" for translation in greedy]


def test_the_page_gets_alternatives_attention_doubts_and_notices(page: str, translator: Translator) -> None:
    answer = translated(page, SENTENCE)
    sentence = {"text": TRANSLATION, "doubts": []}
    assert answer["lines"] == [{**sentence, "sentences": [sentence]}]
    n_best = translator.n_best([SENTENCE], Search(beam=5, n_best=5))[0]
    assert [one["text"] for one in answer["alternatives"]] == [one.text for one in n_best]
    assert answer["alternatives"][-1]["doubts"] == ["unsure"]
    _, attention = translator.attention(SENTENCE, Search(beam=5, n_best=5))
    assert answer["attention"]["source"] == attention.source
    assert all(abs(sum(row) - 1) < 1e-4 for row in answer["attention"]["rows"])
    assert not answer["notices"]
    assert "ж" in translated(page, "The ж is here.")["notices"][0]


def test_the_page_keeps_lines(page: str) -> None:
    answer = translated(page, f"{SENTENCE} {SENTENCE}\n\n{SENTENCE}")
    assert [line["text"] for line in answer["lines"]] == [f"{TRANSLATION} {TRANSLATION}", "", TRANSLATION]
    assert not answer["alternatives"] and answer["attention"] is None
    assert [len(line["sentences"]) for line in answer["lines"]] == [2, 0, 1]
    answer = translated(page, "2. 1914")
    assert answer["lines"][0]["text"] == "2. 1914" and not answer["alternatives"]


def raw(port: int, request: bytes) -> bytes:
    """The first bytes of the answer to a request; empty if the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(request)
        try:
            return connection.recv(65_536)
        except ConnectionResetError:
            return b""


def test_headers_are_limited_in_size_in_number_and_in_time(page: str) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    assert b" 200 " in raw(PORT, head + b"\r\n")
    assert b" 431 " in raw(PORT, head + b"X: " + b"a" * 20_000 + b"\r\n\r\n")
    assert b" 431 " in raw(PORT, head + b"".join(b"X%d: a\r\n" % i for i in range(200)) + b"\r\n")
    start = time.monotonic()
    assert raw(PORT, head) == b""
    assert 5 < time.monotonic() - start < 20


def test_a_name_that_is_not_the_servers_is_refused(page: str) -> None:
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", ""):
        for path in ("/", "/translate", "/health", "/docs", "/metrics"):
            status, headers, text = ask(PORT, "GET", path, Host=host)
            assert status == 421 and b"--allow-host" in text
            assert headers["X-Content-Type-Options"] == "nosniff"
    assert ask(PORT, "GET", "/health", Host=f"LOCALHOST:{PORT}")[0] == 200
    assert b" 421 " in raw(PORT, b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")


def test_pages_of_other_sites_get_no_answer(page: str) -> None:
    for origin in ("https://example.org", "null", f"http://127.0.0.1:{PORT + 1}"):
        status, headers, _ = ask(PORT, "POST", "/translate", {"q": "x", "source": "en", "target": "fr"}, Origin=origin)
        assert status == 403 and "Access-Control-Allow-Origin" not in headers
    own = f"http://127.0.0.1:{PORT}"
    assert ask(PORT, "POST", "/translate", {"q": "x", "source": "en", "target": "fr"}, Origin=own)[0] == 200


@pytest.mark.browser
def test_pages_of_other_sites_can_load_nothing(page: str, browser: Any, tmp_path: Path) -> None:
    """A script tag sends no `Origin`."""
    other = tmp_path / "other.html"
    events = "onload=\"document.title = 'loaded'\" onerror=\"document.title = 'refused'\""
    other.write_text(f'<script src="{page}/page.js" {events}></script>', encoding="utf-8")
    browser.get(other.as_uri())
    eventually(lambda: browser.title in ("loaded", "refused"))
    assert browser.title == "refused"


def test_every_answer_has_security_headers(page: str) -> None:
    for method, path in (
        ("GET", "/"),
        ("GET", "/page.js"),
        ("GET", "/nothing"),
        ("PUT", "/translate"),
        ("GET", "/docs"),
    ):
        _, headers, _ = ask(PORT, method, path)
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Referrer-Policy"] == "no-referrer" and headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"q": []}',
        b'{"q": {"path": "/etc/hostname"}, "source": "en", "target": "fr"}',
        b'{"q": "' + b"a" * 100_000 + b'", "source": "en", "target": "fr"}',
        b'{"q": "' + b"a" * 5_000_000 + b'", "source": "en", "target": "fr"}',
        b"[" * 100_000,
    ],
)
def test_after_a_malformed_request_the_next_is_answered(page: str, body: bytes) -> None:
    for path in ("/page/translate", "/translate_file", "/detect", "/translate"):
        request = urllib.request.Request(page + path, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            assert error.code in (400, 413)
            error.close()
        except (ConnectionError, urllib.error.URLError):
            assert len(body) > 1_000_000  # refused while it was sent
    assert translated(page, SENTENCE)["lines"][0]["text"] == TRANSLATION


def test_the_client_of_libretranslate_translates(page: str) -> None:
    """libretranslatepy from PyPI, as it is."""
    client = pytest.importorskip("libretranslatepy").LibreTranslateAPI(page, api_key="any, since it needs none")
    english = {"code": "en", "name": "English", "targets": ["en", "fr"]}
    assert client.languages() == [english, {"code": "fr", "name": "French", "targets": ["fr"]}]
    assert client.translate(SENTENCE, "en", "fr", timeout=60) == TRANSLATION
    assert client.translate(SENTENCE, "auto", "fr", timeout=60) == TRANSLATION
    assert client.detect(SENTENCE, timeout=60)[0]["language"] == "en"


def test_the_client_translate_of_npm_translates(page: str) -> None:
    """The package of npm, as it is, in Node.js."""
    package = ROOT / ".venv/npm/node_modules/translate"
    node = shutil.which("node", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if not (node and package.is_dir()):
        pytest.skip("the npm package translate is not installed: make npm")
    script = f"""
        import {{ Translate }} from {json.dumps(package.joinpath("index.min.js").as_uri())};
        const translate = Translate({{ engine: "libre", url: "{page}/translate", from: "en", to: "fr" }});
        console.log(await translate({json.dumps(SENTENCE)}));
        await translate("x", "de").catch((error) => console.log(error.message));"""
    done = subprocess.run(
        [node, "--input-type=module", "--eval", script], capture_output=True, encoding="utf-8", timeout=60, check=True
    )
    assert done.stdout.splitlines() == [TRANSLATION, "no model translates en-de; there are en-fr"]


def test_a_browser_extension_translates(page: str) -> None:
    """What the Firefox extension libretranslate-unofficial-ff-extension sends, and what it reads of the answers."""
    own = {"Origin": "moz-extension://2c127fa4-62c7-7e4f-90e5-472b45eecfdc", "User-Agent": "Mozilla/5.0 Firefox/140.0"}
    status, _, text = ask(PORT, "GET", "/languages", **own)
    languages = json.loads(text)
    assert status == 200 and [(one["name"], one["code"]) for one in languages] == [("English", "en"), ("French", "fr")]
    for source in ("auto", "en"):
        status, _, text = ask(PORT, "POST", "/translate", {"q": SENTENCE, "source": source, "target": "fr"}, **own)
        assert status == 200 and json.loads(text)["translatedText"] == TRANSLATION


def test_the_page_that_describes_the_api_loads_nothing_from_elsewhere(page: str) -> None:
    with urllib.request.urlopen(page + "/spec", timeout=20) as answer:
        text = answer.read().decode()
    files = {"/translate_file", "/download_file/{name}", "/frontend/settings"}
    assert {"/translate", "/detect", "/languages", "/health", "/metrics", *files} == set(json.loads(text)["paths"])
    with urllib.request.urlopen(page + "/docs", timeout=20) as answer:
        content = answer.read().decode()
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", content)
    loaded = re.findall(r"(?:src|href)=\"([^\"]+)|url: '([^']+)", content)
    assert len(loaded) == 4
    for file in map("".join, loaded):
        with urllib.request.urlopen(f"{page}/{file}", timeout=20) as answer:
            assert answer.status == 200 and answer.read()


def ask(
    port: int, method: str, path: str, body: Any = None, sender: str = "127.0.0.1", **headers: str
) -> tuple[int, Any, Any]:
    """The status, the headers and the body of an answer. The request comes from the address sender."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60, source_address=(sender, 0))
    content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection.request(method, path, content, {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, answer.headers, text


@pytest.fixture(scope="module")
def with_keys(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Any]]:
    """The port and the process of a server that asks for a key."""
    port = free_port()
    folder = tmp_path_factory.mktemp("keys")
    (folder / "keys").write_text("right", encoding="utf-8")
    flags = ["--port", str(port), "--device", "cpu", "--precision", "fp32", "--beam", "5"]
    flags += ["--trusted-proxy", "127.0.0.2", "--allow-host", "one.example", "--allow-host", "two.example"]
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


def test_every_name_that_was_allowed_is_answered(with_keys: tuple[int, Any]) -> None:
    port, _ = with_keys
    given = {
        host: ask(port, "GET", "/health", Host=host)[0] for host in ("one.example", "two.example", "three.example")
    }
    assert given == {"one.example": 200, "two.example": 200, "three.example": 421}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")
def test_behind_a_trusted_proxy_clients_have_addresses_of_their_own(with_keys: tuple[int, Any]) -> None:
    """A client that guesses keys locks out itself: not the others of its proxy, nor whom it names as its proxy's."""
    port, _ = with_keys

    def status(sender: str, forwarded_for: str, key: str) -> int:
        body = {"q": "The cat.", "source": "en", "target": "fr", "api_key": key}
        return ask(port, "POST", "/translate", body, sender, **{"X-Forwarded-For": forwarded_for})[0]

    for sender, client in (("127.0.0.2", "198.51.100.7, 203.0.113.1"), ("127.0.0.3", "203.0.113.2")):
        assert [status(sender, client, f"guess {i}") for i in range(21)] == [403] * 20 + [429]
    assert status("127.0.0.2", "198.51.100.7, 203.0.113.1", "right") == 429
    assert status("127.0.0.2", "203.0.113.1, 198.51.100.7", "right") == 200
    assert status("127.0.0.2", "203.0.113.2", "right") == 200
    assert status("127.0.0.3", "198.51.100.7", "right") == 429


def test_a_server_with_keys_asks_for_one_and_finishes_what_has_begun(with_keys: tuple[int, Any]) -> None:
    port, served = with_keys
    client = pytest.importorskip("libretranslatepy").LibreTranslateAPI(f"http://127.0.0.1:{port}", "right")
    assert client.translate(SENTENCE, "en", "fr", timeout=60) == TRANSLATION
    client.api_key = "wrong"
    with pytest.raises(urllib.error.HTTPError, match="403") as error:
        client.translate(SENTENCE, "en", "fr", timeout=60)
    error.value.close()

    # What has begun is answered when the server is stopped: it asks for the body once it has begun.
    sentences = [f"The {noun} is tired." for noun in NOUNS for _ in range(12)]
    body = json.dumps({"q": sentences, "source": "en", "target": "fr", "api_key": "right"}).encode()
    head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
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
