"""A double of the Hugging Face hub on loopback: as much of its HTTP API as loading a dataset or a model needs."""

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


def entry(folder: Path, path: Path) -> dict[str, object]:
    """A file or folder as the hub's API describes it."""
    kind = "directory" if path.is_dir() else "file"
    return {"type": kind, "oid": path.name, "size": path.stat().st_size, "path": str(path.relative_to(folder))}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """A hub on loopback with one dataset or model, owner/books, of the files in the folder that it yields."""
    folder = Path("hub").absolute()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            files = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
            path = re.sub(r"^/(api/)?(datasets/|models/)?owner/books", r"/\1repo", self.path.partition("?")[0])
            body, status = b"{}", 404
            headers = {"X-Repo-Commit": "0" * 40}
            if path.startswith("/repo/resolve/"):
                name = path.removeprefix("/repo/resolve/").partition("/")[2]
                if name in files:
                    body, status = files[name].read_bytes(), 200
                    headers["ETag"] = f'"{hash(body)}"'
                else:
                    headers["X-Error-Code"] = "EntryNotFound"
            elif path.startswith("/api/repo/tree"):
                place = folder / path.removeprefix("/api/repo/tree/").partition("/")[2]
                if place.is_dir():
                    body, status = json.dumps([entry(folder, p) for p in sorted(place.iterdir())]).encode(), 200
                else:
                    headers["X-Error-Code"] = "EntryNotFound"
            elif path.startswith("/api/repo"):
                siblings = [{"rfilename": name} for name in files]
                info = {
                    "id": "owner/books",
                    "sha": "0" * 40,
                    "siblings": siblings,
                    "tags": [],
                    "downloads": 0,
                    "likes": 0,
                }
                body, status = json.dumps({**info, "private": False, "gated": False, "disabled": False}).encode(), 200
            self.send_response(status)
            for name, value in {
                **headers,
                "Content-Length": str(len(body)),
                "Content-Type": "application/json",
            }.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_POST(self) -> None:
            wanted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["paths"]
            body = json.dumps([entry(folder, folder / p) for p in wanted if (folder / p).exists()]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", folder
    server.shutdown()
    server.server_close()
    thread.join()
