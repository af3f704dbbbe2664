"""What protects a server from its requests: limits on their bodies, and keys."""

import asyncio
import hmac
from collections.abc import Iterable
from pathlib import Path

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from config import ConfigError


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
        deadline = asyncio.get_running_loop().time() + self.max_seconds
        n_bytes, is_complete, has_started = 0, False, False

        async def receive_within_limits() -> Message:
            nonlocal n_bytes, is_complete
            if is_complete:
                return await receive()  # the end of the connection, which may be far away
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise _RefusedBodyError(408, f"the request did not arrive in {self.max_seconds:g} s") from None
            n_bytes += len(message.get("body", b""))
            is_complete = not message.get("more_body", False)
            if n_bytes > self.max_bytes:
                raise _RefusedBodyError(413, f"the request has more than {self.max_bytes:,} bytes")
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
            headers = {"Connection": "close"}  # the rest of the body is not read
            await JSONResponse({"error": str(refused)}, refused.status, headers)(scope, receive, send)


class ApiKeys:
    """The keys that a server accepts; without any, it accepts every request."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self.keys = [key.encode() for key in keys]

    @classmethod
    def read(cls, file: Path) -> "ApiKeys":
        """The keys of a file, one per line; blank lines and lines that begin with # are none.

        Raises ConfigError if it cannot be read or has no keys.
        """
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise ConfigError(f"--api-key-file {file} is not UTF-8: {error.reason}") from None
        except OSError as error:
            raise ConfigError(f"--api-key-file {file} cannot be read: {error.strerror}") from None
        keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
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
