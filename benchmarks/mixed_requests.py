"""Whether `serve.py` keeps requests of many kinds from many clients apart, and its memory flat.

    python benchmarks/mixed_requests.py RUN SENTENCES

Each client sends requests of all kinds, one at a time, with sentences of the file SENTENCES: a text, a list, HTML,
alternatives, a text whose language is detected, a file, what the page asks for. Every answer is compared with that to
the same request when it was sent alone, before: `other` counts those that belong to another request, which must not
happen, and `differ` those that belong to none, which rounding may cause. The memory is the server's.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Annotated, NamedTuple

import psutil
import tyro

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from load import answer_to, as_http, served  # noqa: E402

from checkpoint import RunFolder  # noqa: E402
from tapis.text.lines import lines  # noqa: E402

N_SENTENCES = 150  # that requests have
KINDS = ("text", "list", "HTML", "alternatives", "auto", "detect", "file", "page")
BOUNDARY = "a-boundary-that-no-sentence-has"


@dataclass(frozen=True)
class Options:
    """Send requests of many kinds from many clients."""

    run: Annotated[str, tyro.conf.Positional]
    """The run to serve"""
    sentences: Annotated[Path, tyro.conf.Positional]
    """File of sentences to translate"""
    clients: int = 64
    """Clients at the same time"""
    requests: int = 10_000
    """Requests of each round"""
    rounds: int = 3
    """Rounds, after each of which the memory is looked at"""


class Request(NamedTuple):
    """A request, without what an answer has of its own time, such as the name of a file."""

    kind: str
    sentence: str
    raw: bytes


class Connection(NamedTuple):
    """A client's connection to the server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


def main() -> None:
    options = tyro.cli(Options)
    config = RunFolder.find(options.run).load_config()
    sentences = list(islice(lines(options.sentences), N_SENTENCES))
    requests = list(all_requests(sentences, (config.source, config.target)))
    # More waiting requests than a server usually has: here, none is refused.
    with served(["--run", str(RunFolder.find(options.run).path), "--max-waiting", str(options.clients)]) as port:
        (server,) = psutil.Process().children()
        expected = asyncio.run(ask_one_by_one(port, requests))
        print(f"alone: {len(expected)} requests; memory {megabytes(server)} MB", flush=True)
        for _ in range(options.rounds):
            print(asyncio.run(ask_at_once(port, requests, expected, options)), f"{megabytes(server)} MB", flush=True)


def all_requests(sentences: Sequence[str], pair: tuple[str, str]) -> Iterator[Request]:
    """Yield a request of each kind for each sentence, the kinds in turn."""
    languages = {"source": pair[0], "target": pair[1]}
    for sentence in sentences:
        bodies = {
            "text": {"q": sentence, **languages},
            "list": {"q": [sentence, "", f"{sentence}\n{sentence}"], **languages},
            "HTML": {"q": f"<p>{sentence}</p><p><b>{sentence}</b></p>", "format": "html", **languages},
            "alternatives": {"q": sentence, "alternatives": 2, **languages},
            "auto": {"q": sentence, **languages, "source": "auto"},
            "page": {"q": sentence, **languages},
        }
        for kind in KINDS:
            if kind == "detect":
                raw = as_http("POST", "/detect", json.dumps({"q": sentence}).encode())
            elif kind == "file":
                raw = as_http(
                    "POST", "/translate_file", form(sentence, languages), f"multipart/form-data; boundary={BOUNDARY}"
                )
            else:
                path = "/page/translate" if kind == "page" else "/translate"
                raw = as_http("POST", path, json.dumps(bodies[kind]).encode())
            yield Request(kind, sentence, raw)


def form(text: str, fields: dict[str, str]) -> bytes:
    """Return a form with a file that has this text."""
    parts = [f'name="{name}"\r\n\r\n{value}' for name, value in fields.items()]
    parts.append(f'name="file"; filename="a.txt"\r\n\r\n{text}')
    return (
        "".join(f"--{BOUNDARY}\r\nContent-Disposition: form-data; {part}\r\n" for part in parts).encode()
        + f"--{BOUNDARY}--\r\n".encode()
    )


async def ask(request: Request, connection: Connection) -> bytes:
    """Return the answer to a request; of a file, the file. Empty if it was refused."""
    status, content = await answer_to(request.raw, *connection)
    if status != 200:
        return b""
    if request.kind == "file":
        place = json.loads(content)["translatedFileUrl"]
        status, content = await answer_to(as_http("GET", "/" + place.split("/", 3)[3]), *connection)
    return content if status == 200 else b""


async def ask_one_by_one(port: int, requests: Sequence[Request]) -> dict[Request, bytes]:
    """Return the answer to each request."""
    connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
    answers = {request: await ask(request, connection) for request in requests}
    connection.writer.close()
    assert all(answers.values()), "a request was refused"
    return answers


async def ask_at_once(port: int, requests: Sequence[Request], expected: dict[Request, bytes], options: Options) -> str:
    """Return what came of requests from many clients, as a line."""
    numbers = count()
    given: list[tuple[Request, bytes]] = []

    async def send() -> None:
        connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
        while (number := next(numbers)) < options.requests:
            request = requests[number % len(requests)]
            given.append((request, await ask(request, connection)))
        connection.writer.close()

    start = time.perf_counter()
    clients = await asyncio.gather(*(send() for _ in range(options.clients)), return_exceptions=True)
    seconds = time.perf_counter() - start
    n_lost = options.requests - sum(bool(content) for _, content in given)
    n_broken = sum(client is not None for client in clients)
    wrong = [(request.kind, content) for request, content in given if content and content != expected[request]]
    known = {(request.kind, content) for request, content in expected.items()}
    n_of_other = sum(one in known for one in wrong)
    return (
        f"{options.requests} requests of {options.clients} clients, {options.requests / seconds:.0f} a second: "
        f"{n_lost} lost, {n_broken} connections broken, {n_of_other} of another, {len(wrong) - n_of_other} differ;"
    )


def megabytes(process: psutil.Process) -> int:
    return round(process.memory_info().rss / 1e6)


if __name__ == "__main__":
    main()
