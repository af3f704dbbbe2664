"""One server for people and programs: a page that translates, and the HTTP API of LibreTranslate.

    python serve.py [--run NAME …]      then open the address that it prints; /docs describes the API

Requests that arrive together are translated together. The server needs an extra: `pip install -e ".[serve]"`. It
listens on this machine only, unless --host says otherwise, and needs no API key, unless --api-key-file is given.
"""

from functools import partial

from system.cli import ServeOptions, answer_early, parse, run_command

answer_early(__name__, partial(parse, ServeOptions))  # before torch and Gradio, which take seconds to import

import gc
import math
import socket
import sys
from collections.abc import Sequence

from config import TapisError
from decoding.translator import Translator
from text.cleaning import can_identify

try:
    import uvicorn
    from fastapi import FastAPI

    from serving.api import Api, Limits, api_app
    from serving.batches import Batches
    from serving.limits import ApiKeys
    from serving.metrics import Metrics
    from serving.models import Models, find_models
except ImportError as error:
    raise SystemExit(f'serve.py: {error.name} is not installed: pip install -e ".[serve]"') from None

VERSION = "1"  # of the API
GARBAGE_THRESHOLD = 50_000  # new objects until Python collects garbage; 700 by default


def main(args: Sequence[str]) -> None:
    """Runs the command: serves until it is stopped, and then finishes the requests that it has."""
    options = parse(ServeOptions, args)
    keys = ApiKeys.read(options.api_key_file) if options.api_key_file else ApiKeys()
    load = partial(Translator.load, device=options.device, precision=options.precision, plain=options.plain)
    models = find_models(options.run, load, options.loaded)
    # Identifying a language loads py3langid, so that the first request need not.
    for target in models.target_languages:
        languages = models.languages_of_texts(target)
        if not can_identify(languages):
            print(
                f"warning: py3langid cannot tell {', '.join(languages)} apart: "
                f"requests to translate into {target} should name their source language",
                file=sys.stderr,
            )
    try:
        app = application(options, models, keys)
    except ImportError as error:
        raise TapisError(f'{error.name} is not installed: pip install -e ".[serve]"') from None
    try:
        listener = socket.create_server(
            (options.host, options.port),
            family=socket.AF_INET6 if ":" in options.host else socket.AF_INET,
            backlog=1024,
        )
    except PermissionError:
        raise TapisError(f"port {options.port} needs privileges: choose a --port from 1024 on") from None
    except OSError:
        address = f"port {options.port} at {options.host}"
        raise TapisError(f"{address} is taken, or not this machine's: choose another --port or --host") from None

    host = f"[{options.host}]" if ":" in options.host else options.host
    print(f"serving {', '.join(models.configs)} at http://{host}:{options.port} (API: /docs)", flush=True)
    seconds = math.ceil(options.timeout)  # for requests that have begun, when the server is stopped
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=seconds)
    server = uvicorn.Server(config)
    app.state.is_stopping = lambda: server.should_exit

    # Exclude the objects that exist now from garbage collection: it would go through them while requests wait.
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)
    server.run(sockets=[listener])


def application(options: ServeOptions, models: Models, keys: ApiKeys) -> FastAPI:
    """The API, and the page unless --no-page leaves it out, as an application for a web server."""
    metrics = Metrics()
    batches = Batches(metrics.counted(models.translator_of), options.max_waiting, options.max_lines)
    metrics.waiting.set_function(lambda: batches.n_waiting)
    limits = Limits(options.char_limit, options.timeout, keys, options.cors)
    app = api_app(Api(models, batches, metrics, limits, options.beam), VERSION)
    if not options.no_page:
        from serving.page import Page, with_page  # noqa: PLC0415 - Gradio takes seconds, and may be missing

        app = with_page(app, Page(models, batches, options.timeout), keys)
    return app


if __name__ == "__main__":
    run_command(main)
