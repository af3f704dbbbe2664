"""A small double of the HTTP API behind the page: the page's own files, and canned answers."""

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tapis.web import POLICY, served_page

ATTENTION = {"source": ["▁Hello", "⟨end⟩"], "target": ["▁Bonjour", "⟨end⟩"], "rows": [[0.9, 0.1], [0.2, 0.8]]}


@dataclass(frozen=True)
class Reply:
    """An answer of the API: JSON, or the bytes of a file."""

    body: Any = None
    status: int = 200
    delay: float = 0.0
    """Seconds until it comes"""
    headers: Mapping[str, str] = field(default_factory=dict)


def error(status: int, message: str, **headers: str) -> Reply:
    return Reply({"error": message}, status, headers={name.replace("_", "-"): text for name, text in headers.items()})


def line(text: str, *doubts: str, sentences: list[tuple[str, list[str]]] | None = None) -> dict[str, Any]:
    """A translated line, of one sentence unless there are others: their texts and doubts."""
    of_line = [(text, list(doubts))] if sentences is None else sentences
    parts = [{"text": part, "doubts": marks} for part, marks in of_line]
    return {"text": text, "doubts": list(doubts), "sentences": parts}


def translation(*lines: dict[str, Any], **others: Any) -> Reply:
    empty: dict[str, Any] = {
        "detectedLanguage": None,
        "notices": [],
        "alternatives": [],
        "attention": None,
        "sentences": len(lines),
    }
    return Reply({"lines": list(lines), **empty, **others})


def reversed_lines(request: dict[str, Any]) -> Reply:
    """Translates by turning each line round, and detects German."""
    detected = {"language": "de", "confidence": 97.0} if request["source"] == "auto" else None
    lines = [line(text[::-1]) for text in request["q"].split("\n")]
    return translation(*lines, detectedLanguage=detected)


class PageDouble:
    """A server at `url`. Tests replace its answers, and read the requests that it received."""

    def __init__(self) -> None:
        self.languages: Any = [
            {"code": "en", "name": "English", "targets": ["ar", "de", "en", "fr"]},
            {"code": "de", "name": "German", "targets": ["en"]},
            {"code": "fr", "name": "French", "targets": ["de", "en", "fr"]},
            {"code": "ar", "name": "Arabic", "targets": ["ar"]},
        ]
        self.settings: dict[str, Any] = {
            **{"charLimit": 200, "apiKeys": False, "keyRequired": False, "filesTranslation": True},
            "supportedFilesFormat": [".txt", ".html", ".htm", ".md", ".srt"],
        }
        self.delay = 0.0  # seconds until languages and settings come
        self.translate: Callable[[dict[str, Any]], Reply] = reversed_lines
        self.translate_file: Callable[[dict[str, str]], Reply] | None = None
        self.requests: list[dict[str, Any]] = []  # bodies of POST /page/translate
        self.files: list[dict[str, str]] = []  # forms of POST /translate_file
        self.paths: list[str] = []  # of all requests
        self.keys_of_downloads: list[str | None] = []
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                double.paths.append(self.path)
                double.get(self)

            def do_POST(self) -> None:
                double.paths.append(self.path)
                body = self.rfile.read(int(self.headers["Content-Length"]))
                double.post(self, body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # browsers abort requests

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def get(self, handler: BaseHTTPRequestHandler) -> None:
        path = handler.path
        if path in served_page():
            media_type, content = served_page()[path]
            send(handler, 200, content, {"Content-Type": media_type, "Content-Security-Policy": POLICY})
        elif path == "/languages":
            answer(handler, Reply(self.languages, delay=self.delay))
        elif path == "/frontend/settings":
            answer(handler, Reply(self.settings, delay=self.delay))
        elif path == "/download_file/1":
            self.keys_of_downloads.append(handler.headers.get("Authorization"))
            send(handler, 200, b"translated", {"Content-Type": "text/plain"})
        else:
            answer(handler, error(404, "Not found"))

    def post(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if handler.path == "/page/translate":
            request = json.loads(body)
            self.requests.append(request)
            answer(handler, self.translate(request))
        elif handler.path == "/translate_file":
            form = form_of(body)
            self.files.append(form)
            # with another name of this server, as behind a proxy
            url = "http://elsewhere.invalid/download_file/1"
            answer(handler, self.translate_file(form) if self.translate_file else Reply({"translatedFileUrl": url}))
        else:
            answer(handler, error(404, "Not found"))


def form_of(body: bytes) -> dict[str, str]:
    """The fields of a multipart form, and the name of its file as `filename`."""
    text = body.decode()
    fields = dict(re.findall(r'name="(\w+)"(?:; filename="[^"]*"\r\n[^\r]*)?\r\n\r\n(.*?)\r\n--', text, re.DOTALL))
    names = re.findall(r'filename="([^"]*)"', text)
    return {**fields, **({"filename": names[0]} if names else {})}


def answer(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    time.sleep(reply.delay)
    headers = {"Content-Type": "application/json", **reply.headers}
    send(handler, reply.status, json.dumps(reply.body).encode(), headers)


def send(handler: BaseHTTPRequestHandler, status: int, content: bytes, headers: Mapping[str, str]) -> None:
    handler.send_response(status)
    for name, value in {**headers, "Content-Length": str(len(content))}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(content)
