"""Limits on the bodies of requests, streams that end with the server, and API keys."""

import asyncio
import hmac
import re
from collections.abc import Iterable
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from config import ConfigError

GRADIO = "/gradio_api/"
PAGE_SENDS = re.compile(f"{GRADIO}(queue/join|cancel|reset|(run|api|call)/.+)/?$")
STOP_SECONDS = 0.5  # between two checks of whether the server is stopping


class _RefusedBodyError(Exception):
    """The body of a request is too long, or did not arrive in time."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class BodyLimit:
    """Refuses requests whose body is too long (status 413), or does not arrive in time (408)."""

    def __init__(self, app: ASGIApp, max_bytes: int, max_seconds: float) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self.max_seconds = max_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        too_long = f"the request has more than {self.max_bytes:,} bytes"
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdigit() and int(announced) > self.max_bytes:
            await refuse(413, too_long)(scope, receive, send)
            return
        deadline = asyncio.get_running_loop().time() + self.max_seconds
        n_bytes = 0
        is_complete = has_started = False

        async def receive_within_limits() -> Message:
            nonlocal n_bytes, is_complete
            if is_complete:
                return await receive()  # waits for the end of the connection, without a limit
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise _RefusedBodyError(408, f"the request did not arrive in {self.max_seconds:g} s") from None
            n_bytes += len(message.get("body", b""))
            is_complete = not message.get("more_body", False)
            if n_bytes > self.max_bytes:
                raise _RefusedBodyError(413, too_long)
            return message

        async def send_and_note(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self.app(scope, receive_within_limits, send_and_note)
        except _RefusedBodyError as refused:
            if has_started:
                raise
            await refuse(refused.status, str(refused))(scope, receive, send)


class PageRequests:
    """Refuses requests that Gradio accepts and the page never sends (status 404).

    With some of them, clients could fill the disk with files.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_sent = scope["type"] == "http" and scope["method"] not in ("GET", "HEAD", "OPTIONS")
        if is_sent and scope["path"].startswith(GRADIO) and not PAGE_SENDS.match(scope["path"]):
            await refuse(404, "this server takes no files")(scope, receive, send)
            return
        await self.app(scope, receive, send)


def refuse(status: int, message: str) -> JSONResponse:
    """The answer to a request whose body is not read to its end."""
    return JSONResponse({"error": message}, status, {"Connection": "close"})


class ApiKeys:
    """The keys that a server accepts; without any, it accepts every request."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self.keys = [key.encode() for key in keys]

    @classmethod
    def read(cls, file: Path) -> "ApiKeys":
        """The keys of a file, one per line; blank lines and lines that begin with # are ignored.

        Raises ConfigError if it cannot be read or has no keys.
        """
        try:
            lines = file.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise ConfigError(f"--api-key-file {file} is not UTF-8: {error.reason}") from None
        except OSError as error:
            raise ConfigError(f"--api-key-file {file} cannot be read: {error.strerror}") from None
        stripped = [line.strip() for line in lines]
        keys = [line for line in stripped if line and not line.startswith("#")]
        if not keys:
            raise ConfigError(f"--api-key-file {file} has no keys: write one per line")
        return cls(keys)

    def __bool__(self) -> bool:
        return bool(self.keys)

    def allow(self, key: str) -> bool:
        """Whether a request with this key is accepted. Takes the same time for every key of the same length."""
        given = key.encode(errors="replace")
        matches = [hmac.compare_digest(given, one) for one in self.keys]
        return any(matches) or not self.keys


class EndsWithServer:
    """Ends requests under a path when the server is stopping.

    A page keeps such streams open, and shutdown would wait for them until its time-out. The application's
    `state.is_stopping` returns whether the server is stopping.
    """

    def __init__(self, app: ASGIApp, path: str) -> None:
        self.app = app
        self.path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(self.path):
            await self.app(scope, receive, send)
            return
        state = scope["app"].state  # read now: a mounted application replaces scope["app"]
        is_open = False  # whether the answer has begun and not ended

        async def send_and_note(message: Message) -> None:
            nonlocal is_open
            is_open = message["type"] == "http.response.start" or message.get("more_body", False)
            await send(message)

        stream = asyncio.ensure_future(self.app(scope, receive, send_and_note))
        while not stream.done() and not state.is_stopping():
            await asyncio.wait({stream}, timeout=STOP_SECONDS)
        if stream.done():
            stream.result()
        else:
            stream.cancel()
            await asyncio.wait({stream})
            if is_open:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
