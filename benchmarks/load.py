"""How many sentences a second `serve.py` translates, and how long clients wait, at 1, 8 and 64 clients.

    python benchmarks/load.py RUN SENTENCES

Each client sends one sentence of the file SENTENCES at a time to /translate, and the next one once it has the answer.
Clients and server share this machine. Three servers are compared with translating the file offline, in one batch after
another: `serve.py`, the same with one request at a time (`--max-lines 1`), and `serve.py` with the CTranslate2 export
of RUN in 8 bits. Answers are compared with the offline translations: `other` counts those that belong to another
sentence, which must not happen, and `differ` those that no sentence has, which rounding may cause.

Then a server starts five times, for one sentence each. Last, one client sends a large request, and another sends single
sentences, one after the other, until it is answered.
"""

import asyncio
import json
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from checkpoint import RunFolder  # noqa: E402
from decoding.translator import Translator  # noqa: E402
from exporting.ctranslate2 import to_ctranslate2  # noqa: E402
from tapis.system.files import whole_folder  # noqa: E402
from tapis.text.lines import lines  # noqa: E402
from tapis.typed_text import translate_lines  # noqa: E402

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
LARGE = 9_900  # characters of a large request; a server accepts 10,000


@dataclass(frozen=True)
class Options:
    """Measure a server under load."""

    run: Annotated[str, tyro.conf.Positional]
    """The run to serve"""
    sentences: Annotated[Path, tyro.conf.Positional]
    """File of sentences to translate"""
    clients: tuple[int, ...] = (1, 8, 64)
    """Clients at the same time"""
    requests: int = 2000
    """Requests of each measurement, at most"""
    seconds: float = 60.0
    """Seconds of each measurement, at most"""
    rounds: int = 2
    """How often each server is measured, in turn"""


class Load(NamedTuple):
    """What clients saw in one measurement."""

    seconds: float
    latencies: list[float]
    n_lost: int
    n_of_other: int
    n_different: int


def main() -> None:
    options = tyro.cli(Options)
    sentences = list(lines(options.sentences))
    run = RunFolder.find(options.run).path.resolve()
    config = RunFolder(run).load_config()

    with tempfile.TemporaryDirectory() as temporary:
        export = Path(temporary) / "export"
        whole_folder(export, lambda into: to_ctranslate2(RunFolder(run), into, "int8"))
        servers = {
            "serve.py": (run, []),
            "one at a time": (run, ["--max-lines", "1"]),
            "CTranslate2": (export, []),
        }
        expected, rates = {}, {}
        for _ in range(options.rounds):
            for folder in (run, export):  # in each round, as the speed of a shared machine changes
                expected[folder], rates[folder] = offline(folder, sentences)
                print(f"offline, {folder.name:<12} {rates[folder]:7.1f} sentences/s", flush=True)
            print(f"{'server':<14} clients  sentences/s  of offline   mean ms  95 % ms  ratio  lost  other  differ")
            for label, (folder, flags) in servers.items():
                with served([*flags, "--run", str(folder)]) as port:
                    for n_clients in options.clients:
                        pair = config.source, config.target
                        load = asyncio.run(measured(port, pair, expected[folder], n_clients, options))
                        print(f"{label:<14} {n_clients:>7}  {row(load, rates[folder])}", flush=True)

    request = as_request({"q": sentences[0]}, (config.source, config.target))
    starts = [seconds_to_answer(run, request) for _ in range(5)]
    print(f"start to the first answer: {statistics.median(starts):.2f} s, median of {len(starts)}", flush=True)

    print(f"{'large request':<28} status  seconds  one-line requests beside it: n   50 % ms  95 % ms")
    with served(["--run", str(run)]) as port:
        for _ in range(options.rounds):
            for label, body in large_requests(sentences).items():
                large = as_request(body, (config.source, config.target))
                small = [as_request({"q": one}, (config.source, config.target)) for one in sentences]
                status, seconds, latencies = asyncio.run(beside(port, large, small))
                print(f"{label:<28} {status:>6}  {seconds:7.2f}  {beside_row(latencies)}", flush=True)


def offline(run: Path, sentences: Sequence[str]) -> tuple[dict[str, str], float]:
    """Return the translation of each sentence, and how many are translated in a second: the better of two times."""
    translator = Translator.load(run)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        results = translate_lines(translator, sentences)
        seconds.append(time.perf_counter() - start)
    translations = {one: ranked[0].text for one, ranked in zip(sentences, results, strict=True)}
    return translations, len(sentences) / min(seconds)


@contextmanager
def served(flags: Sequence[str]) -> Iterator[int]:
    """Start a server of the API, and give its port once it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    command = [sys.executable, str(ROOT / "serve.py"), "--no-page", "--port", str(port), *flags]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while True:
            assert server.poll() is None, "the server ended"
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.02)
        yield port
    finally:
        server.terminate()
        server.wait()


def seconds_to_answer(run: Path, request: bytes) -> float:
    """Start a server, and return after how many seconds it has translated a sentence."""

    async def ask(port: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        status, _ = await answer_to(request, reader, writer)
        writer.close()
        return status

    start = time.perf_counter()
    with served(["--run", str(run)]) as port:
        assert asyncio.run(ask(port)) == 200
        return time.perf_counter() - start


async def measured(
    port: int, pair: tuple[str, str], expected: dict[str, str], n_clients: int, options: Options
) -> Load:
    """Send requests from n_clients connections, each of which waits for its answer before the next request."""
    sentences = list(expected)
    requests = [as_request({"q": sentence}, pair) for sentence in sentences]
    numbers = count()
    latencies: list[float] = []
    answers: list[tuple[str, bytes]] = []
    deadline = time.perf_counter() + options.seconds

    async def send() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (number := next(numbers)) < options.requests and time.perf_counter() < deadline:
            i = number % len(sentences)
            start = time.perf_counter()
            status, content = await answer_to(requests[i], reader, writer)
            latencies.append(time.perf_counter() - start)
            answers.append((sentences[i], content if status == 200 else b""))
        writer.close()

    start = time.perf_counter()
    clients = await asyncio.gather(*(send() for _ in range(n_clients)), return_exceptions=True)
    seconds = time.perf_counter() - start

    given = [(sentence, json.loads(content)["translatedText"]) for sentence, content in answers if content]
    translations = set(expected.values())
    wrong = [translation for sentence, translation in given if translation != expected[sentence]]
    n_of_other = sum(translation in translations for translation in wrong)
    n_lost = len(answers) - len(given) + sum(client is not None for client in clients)
    return Load(seconds, latencies, n_lost, n_of_other, len(wrong) - n_of_other)


async def answer_to(request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[int, bytes]:
    """Send a request; the status and the content of its answer."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    content = await reader.readexactly(int(_LENGTH.search(head)[1]))  # type: ignore[index]
    return int(head.split()[1]), content


def large_requests(sentences: Sequence[str]) -> dict[str, dict[str, object]]:
    """Requests near the limits of a server, by what makes them large."""
    plain = " ".join(sentences)[:LARGE].rpartition(" ")[0]
    words = iter(plain.split())
    tagged = (
        " ".join(f"<b>{word}</b> <i>{next(words, '')}</i>" for word in words)[:LARGE].rpartition("</i>")[0] + "</i>"
    )
    paragraphs = "".join(f"<p>{one}</p>\n" for one in tagged.split(". "))
    return {
        "plain text": {"q": plain},
        "a line of tagged words": {"q": tagged},
        "HTML": {"q": paragraphs, "format": "html"},
        "HTML, 3 alternatives": {"q": paragraphs, "format": "html", "alternatives": 3},
        "HTML, 9 alternatives": {"q": paragraphs, "format": "html", "alternatives": 9},
    }


async def beside(port: int, large: bytes, small: Sequence[bytes]) -> tuple[int, float, list[float]]:
    """Send a large request and, until it is answered, small ones.

    The status and the seconds of the large one, and the seconds of each small one.
    """
    (reader, writer), (small_reader, small_writer) = [
        await asyncio.open_connection("127.0.0.1", port) for _ in range(2)
    ]
    start = time.perf_counter()
    answering = asyncio.ensure_future(answer_to(large, reader, writer))
    latencies: list[float] = []
    while not answering.done():
        begin = time.perf_counter()
        await answer_to(small[len(latencies) % len(small)], small_reader, small_writer)
        latencies.append(time.perf_counter() - begin)
    status, _ = await answering
    seconds = time.perf_counter() - start
    writer.close()
    small_writer.close()
    return status, seconds, latencies


def beside_row(latencies: Sequence[float]) -> str:
    n = len(latencies)
    if n < 2:
        return f"{n:30}"
    percentiles = statistics.quantiles(latencies, n=20)
    return f"{n:30}  {1000 * percentiles[9]:8.0f}  {1000 * percentiles[-1]:7.0f}"


def as_request(body: Mapping[str, object], pair: tuple[str, str]) -> bytes:
    """Return an HTTP request to translate."""
    return as_http("POST", "/translate", json.dumps({**body, "source": pair[0], "target": pair[1]}).encode())


def as_http(method: str, path: str, content: bytes = b"", media_type: str = "application/json") -> bytes:
    """Return a request of HTTP/1.1."""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media_type}"
    return f"{head}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content


def row(load: Load, offline_rate: float) -> str:
    rate = (len(load.latencies) - load.n_lost) / load.seconds
    mean = statistics.mean(load.latencies)
    late = statistics.quantiles(load.latencies, n=20)[-1]
    return (
        f"{rate:11.1f}  {rate / offline_rate:10.0%}  {1000 * mean:8.0f}  {1000 * late:7.0f}  {late / mean:5.1f}"
        f"  {load.n_lost:4}  {load.n_of_other:5}  {load.n_different:6}"
    )


if __name__ == "__main__":
    main()
