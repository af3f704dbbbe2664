"""The server's command: the models that it loads, the address that it listens on, and how it ends."""

import asyncio
import contextlib
import gc
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tapis.config import TapisError
from tapis.system.addresses import is_wildcard, plain_address
from tapis.system.cli import ClosedStreamError, ServeOptions, parse
from tapis.system.terminal import printable, say
from tapis.text.languages import can_identify
from tapis.translator import Translator
from tapis.web import served_page

try:
    from fastapi import FastAPI
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.server.embed import Server
    from granian.utils.proxies import wrap_asgi_with_proxy_headers
    from starlette.types import ASGIApp

    from tapis.serving.api import Api, Limits, add_page, api_app, calls
    from tapis.serving.batches import Batches, Lanes
    from tapis.serving.connections import Connections
    from tapis.serving.limits import ApiKeys, PlainAddresses, bracketed
    from tapis.serving.metrics import Metrics
    from tapis.serving.models import Models, find_models
except ImportError as error:
    raise SystemExit(f'serving needs {error.name}, which is not installed: pip install "tapis[serve]"') from None

MAX_CONNECTIONS = 1024  # at once; further ones wait to be accepted
HEADER_SECONDS = 10  # for sending the headers of a request, and between two requests of a connection
HEADER_BYTES = 16_384  # of a request, its first line included; it may have 100 headers
GARBAGE_THRESHOLD = 50_000  # new objects until Python collects garbage; 700 by default


def run(kind: type[Translator], args: Sequence[str]) -> None:
    """Run the command: serve until it is stopped, and then finish the requests that it has.

    `kind` loads the translators: that of the package, or of a checkout.
    """
    options = parse(ServeOptions, args)
    keys = ApiKeys.read(options.api_key_file) if options.api_key_file else ApiKeys()
    load = partial(kind.load, device=options.device, precision=options.precision, plain=options.plain)
    models = find_models(options.run, kind.files, load, options.loaded)
    for glossary in options.glossary:
        models.read_glossary(glossary)
    for memory in options.memory:
        models.read_memory(memory)
    # This takes most of a second, which requests that name their language need not wait for.
    threading.Thread(target=load_identifier, args=[models], name="identifier", daemon=True).start()
    app = application(options, models, keys)
    address = listening_address(options)
    runs = printable(", ".join(models.configs))
    with contextlib.suppress(ClosedStreamError):  # a server needs no standard output
        print(f"serving {runs} at {url_of(options)} (API: /docs)", flush=True)

    # Exclude the objects that exist now from garbage collection: it would go through them while requests wait.
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)
    proxies = list(map(plain_address, options.trusted_proxy))
    connections = Connections(options.port, MAX_CONNECTIONS, proxies)
    connections.watch()
    asyncio.run(serve(behind_proxies(app, proxies), address, options, connections))


def behind_proxies(app: ASGIApp, proxies: list[str]) -> ASGIApp:
    """Return an application that takes the address of a client from the header X-Forwarded-For of these proxies."""
    return PlainAddresses(wrap_asgi_with_proxy_headers(app, proxies))


def url_of(options: ServeOptions) -> str:
    """Return the address of the page: with a name that the server answers to, which 0.0.0.0 is not."""
    host = options.allow_host[0] if is_wildcard(options.host) else options.host
    return f"http://{bracketed(host)}:{options.port}"


def load_identifier(models: Models) -> None:
    """Load py3langid, and say on standard error which languages it cannot tell apart."""
    for target in models.target_languages:
        languages = models.languages_of_texts(target)
        if not can_identify(languages):
            say(
                f"warning: py3langid cannot tell {', '.join(languages)} apart: "
                f"requests to translate into {target} should name their source language"
            )


def listening_address(options: ServeOptions) -> str:
    """Return the address of --host that can be listened on. Raises TapisError if there is none."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        with socket.create_server((options.host, options.port), family=family) as listener:
            return str(listener.getsockname()[0])
    except PermissionError:
        raise TapisError(f"port {options.port} needs privileges: choose a --port from 1024 on") from None
    except OSError:
        address = f"port {options.port} at {options.host}"
        raise TapisError(f"{address} is taken, or not this machine's: choose another --port or --host") from None


async def serve(app: ASGIApp, address: str, options: ServeOptions, connections: Connections) -> None:
    """Answer requests until SIGTERM or SIGINT, and then finish those that have begun, within twice --timeout."""
    server = Server(
        app,
        address,
        options.port,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        websockets=False,
        backlog=1024,
        backpressure=MAX_CONNECTIONS,
        http1_settings=HTTP1Settings(header_read_timeout=1000 * HEADER_SECONDS, max_buffer_size=HEADER_BYTES),
        log_enabled=False,
    )
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.call_soon(server.stop)
        loop.call_later(2 * options.timeout, connections.close)  # of clients that do not read their answers

    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            # Unlike the handler below, it wakes a loop that waits, whatever the thread that got the signal.
            loop.add_signal_handler(number, stop)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))
    await server.serve()


def application(options: ServeOptions, models: Models, keys: ApiKeys) -> FastAPI:
    """Return the API, and the page unless --no-page leaves it out, as an application for a web server."""
    metrics = Metrics()
    batches = Lanes(metrics.counted(models.translator_of), options.max_waiting, options.max_lines)
    hosts = (*options.allow_host, *(() if is_wildcard(options.host) else (options.host,)))
    limits = Limits(
        max_characters=options.char_limit,
        max_seconds=options.timeout,
        max_work=options.work_limit,
        keys=keys,
        origins=options.cors,
        hosts=hosts,
    )
    # Each connection has one request, so that this queue has room for all: what was translated is never refused.
    documents: Batches[Callable[[], Any], Any] = Batches(calls, MAX_CONNECTIONS, max_lines=1)
    metrics.waiting.set_function(lambda: batches.n_waiting + documents.n_waiting)
    app = api_app(Api(models, batches, documents, metrics, limits, options.beam))
    if not options.no_page:
        add_page(app, served_page())
    return app
