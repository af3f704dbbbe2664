"""What a server accepts: host names, sizes of bodies, and API keys; and what every answer tells browsers."""

import asyncio
import hmac
import ipaddress
import re
import time
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tapis.config import ConfigError
from tapis.system.addresses import plain_address
from tapis.system.terminal import say
from tapis.web import POLICY

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
HOST_HEADER = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:]+)(:[0-9]*)?", re.IGNORECASE | re.ASCII)  # a name, and its port
# Of /docs, whose framework writes a script into the page. It shows nothing of any request.
DOCS_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",  # for requests without `Origin`; those that CORS allows pass it
    "Cache-Control": "no-store",
}
WRONG_KEYS = 20  # of one client in WRONG_KEY_SECONDS; then keys that were not accepted from it before are refused
WRONG_KEY_SECONDS = 60.0
MAX_CLIENTS = 10_000  # whose wrong keys are remembered
FAILED = "the server failed; its log says why"


class Guard:
    """Answer only requests to the server's own names, and add SECURITY_HEADERS to every answer, also to failures.

    A page of another site whose name was rebound to this machine's address sends the name of that site (status 421).
    Browsers also name the site of a page in `Origin`: pages of other sites are refused (status 403) unless allowed.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str], origins: Sequence[str]) -> None:
        """Hosts are names without ports, besides those of the loopback interface."""
        self.app = app
        self.hosts = {host.lower() for host in (*LOOPBACK_NAMES, *map(bracketed, hosts))}
        self.origins = set(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        has_started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal has_started
            has_started = True
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if scope["path"] == "/docs":
                    headers["Content-Security-Policy"] = DOCS_POLICY
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self.refusal(Headers(scope=scope)) or self.app
        try:
            await answer(scope, receive, send_with_headers)
        except Exception as error:
            # Where it happened, without the message, which may have a text.
            say("".join([f"{scope['path']}: {type(error).__name__}\n", *traceback.format_tb(error.__traceback__)]))
            if has_started:
                raise
            await JSONResponse({"error": FAILED}, 500)(scope, receive, send_with_headers)

    def refusal(self, headers: Headers) -> JSONResponse | None:
        """Return the answer to a request that is not for this server; None for others."""
        hosts = headers.getlist("host")
        host = HOST_HEADER.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if host is None or bracketed(host[1]).lower() not in self.hosts:
            return refuse(421, "this server has no such name; serve.py --allow-host NAME adds one")
        origin = headers.get("origin", "")
        is_page = origin == "null" or origin.startswith(("http://", "https://"))
        is_own = origin.partition("://")[2].lower() == hosts[0].lower()
        if is_page and not is_own and not {"*", origin} & self.origins:
            allowed = "serve.py --cors SITE allows one, and a reverse proxy must pass on the header Host"
            return refuse(403, f"pages of other sites are not answered; {allowed}")
        return None


def bracketed(host: str) -> str:
    """Return a host name as it stands in a URL: an IPv6 address in its shortest form and in brackets."""
    try:
        address = ipaddress.IPv6Address(host.strip("[]"))
    except ValueError:  # a name, or an IPv4 address
        return host
    return f"[{address.compressed}]"


class _RefusedBodyError(Exception):
    """The body of a request is too long, or did not arrive in time."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class BodyLimit:
    """Refuse requests whose body is too long (status 413), or does not arrive in time (408)."""

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


def refuse(status: int, message: str) -> JSONResponse:
    """Return the answer to a request whose body is not read to its end."""
    return JSONResponse({"error": message}, status, {"Connection": "close"})


def network_of(http: Request) -> str:
    """Return the address of a client; of IPv6, its first 64 bits, since one client usually has all of these."""
    return network_of_address(http.client.host if http.client else "")


def network_of_address(address: str) -> str:
    """Return an address; of IPv6, its first 64 bits."""
    address = plain_address(address)
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:  # a name that a proxy gives
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed.version == 6 else address


class PlainAddresses:
    """Give the application the address of each client, and those in X-Forwarded-For, as `plain_address` does.

    Some proxies write the port of the client, too, which differs between the connections of one client.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("client"):
            host, port = scope["client"]
            scope["client"] = plain_address(host), port
        if scope["type"] == "http":
            scope["headers"] = [
                (name, plain_addresses(value) if name == b"x-forwarded-for" else value)
                for name, value in scope["headers"]
            ]
        await self.app(scope, receive, send)


def plain_addresses(header: bytes) -> bytes:
    """Return the value of a header X-Forwarded-For with each of its addresses as `plain_address` does, without ports.

    An address with a port is 192.0.2.7:80 or [2001:db8::1]:80.
    """
    addresses = []
    for address in header.decode("latin-1").split(","):
        match = re.fullmatch(r"\[(.+)\](?::\d+)?|([^:]+):\d+", address.strip())
        addresses.append(plain_address(match[1] or match[2] if match else address.strip()))
    return ", ".join(addresses).encode("latin-1")


class TooManyKeysError(Exception):
    """A client has sent too many wrong keys."""


class ApiKeys:
    """The keys that a server accepts; without any, it accepts every request."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self.keys = [key.encode() for key in keys]
        self._failures: dict[str, list[float]] = {}  # by client, the times of its latest wrong keys
        self._known: set[tuple[str, bytes]] = set()  # the clients that have sent a right key, with it

    @classmethod
    def read(cls, file: Path) -> "ApiKeys":
        """Return the keys of a file, one per line; blank lines and lines that begin with # are ignored.

        Raises ConfigError if it cannot be read, has no keys, or has one that a header cannot have.
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
        if not all(key.isascii() and key.isprintable() for key in keys):
            raise ConfigError(
                f"--api-key-file {file}: keys are printable ASCII, which every client can send in a header"
            )
        return cls(keys)

    def __bool__(self) -> bool:
        return bool(self.keys)

    def allow(self, key: str, client: str) -> bool:
        """Return whether a request with this key is accepted. Takes the same time for every key of the same length.

        client is the address of who sends it. After WRONG_KEYS wrong ones of one address, raises TooManyKeysError for
        all keys that were not accepted from it before: one who guesses does not lock out the others behind the address.
        """
        if not self.keys:
            return True
        given = key.encode(errors="surrogatepass")
        is_right = sum(hmac.compare_digest(given, one) for one in self.keys) > 0
        if is_right and (client, given) in self._known:
            return True
        now = time.monotonic()
        failures = [then for then in self._failures.get(client, []) if now - then < WRONG_KEY_SECONDS]
        if len(failures) >= WRONG_KEYS:
            raise TooManyKeysError
        if is_right:
            if len(self._known) >= MAX_CLIENTS:
                self._known.clear()
            self._known.add((client, given))
        elif key:  # a request without a key is no attempt to guess one
            if len(self._failures) >= MAX_CLIENTS:
                self._failures.clear()
            self._failures[client] = [*failures, now]
        return is_right
