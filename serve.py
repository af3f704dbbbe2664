"""One server for people and programs: a page that translates, and the HTTP API of LibreTranslate.

    python serve.py [--run NAME …]      then open the address that it prints; /docs describes the API

Requests that arrive together are translated together. The server needs an extra: `pip install -e ".[serve]"`. It
listens on this machine only, unless --host says otherwise, and asks for no key, unless --api-key-file has some.
"""

from functools import partial

from system.cli import ServeOptions, answer_early, parse, run_command

answer_early(__name__, partial(parse, ServeOptions))  # before torch and Gradio, which take seconds to import

import math
import socket
from collections.abc import Sequence

from checkpoint import RunFolder
from config import TapisError
from decoding.translator import Translator

try:
    import uvicorn
    from fastapi import FastAPI

    from serving.api import Api, Limits, api_app
    from serving.batches import Batches
    from serving.limits import ApiKeys
    from serving.metrics import Metrics
    from serving.models import Models, trained_configs
    from serving.page import Page, with_page
except ImportError as error:
    raise SystemExit(f'serve.py: {error.name} is not installed: pip install -e ".[serve]"') from None

VERSION = "1"  # of the API


def main(args: Sequence[str]) -> None:
    """Runs the command: serves until it is stopped, and then answers what has arrived."""
    options = parse(ServeOptions, args)
    keys = ApiKeys.read(options.api_key_file) if options.api_key_file else ApiKeys()
    models = load_models(options)
    try:
        listening = socket.create_server(
            (options.host, options.port),
            family=socket.AF_INET6 if ":" in options.host else socket.AF_INET,
            backlog=1024,
        )
    except OSError:
        address = f"port {options.port} at {options.host}"
        raise TapisError(f"{address} is taken, or not this machine's: choose another --port or --host") from None
    app = application(options, models, keys)

    host = f"[{options.host}]" if ":" in options.host else options.host
    print(f"serving {', '.join(models.configs)} at http://{host}:{options.port} (API: /docs)", flush=True)
    patience = math.ceil(options.timeout)  # for requests that have begun, when the server is stopped
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=patience)
    uvicorn.Server(config).run(sockets=[listening])


def application(options: ServeOptions, models: Models, keys: ApiKeys) -> FastAPI:
    """The API, and the page unless --no-page leaves it out, as an application for a web server."""
    metrics = Metrics()
    batches = Batches(metrics.of_batches(models.translate), options.max_waiting, options.max_lines)
    metrics.waiting.set_function(lambda: batches.n_waiting)
    limits = Limits(options.char_limit, options.timeout, keys, options.cors)
    app = api_app(Api(models, batches, metrics, limits, options.beam), VERSION)
    return app if options.no_page else with_page(app, Page(models, batches, options.timeout), keys)


def load_models(options: ServeOptions) -> Models:
    """The models of --run, or else all trained runs, of which the most recent is loaded at once.

    Raises a TapisError if one of --run, or the most recent run, cannot be used.
    """
    load = partial(Translator.load, device=options.device, precision=options.precision, plain=options.plain)
    runs = {run: load(run) for run in options.run}
    if runs:
        return Models({run: translator.config for run, translator in runs.items()}, load, options.loaded)
    first = RunFolder.find("").path.name
    models = Models(trained_configs(), load, options.loaded)
    models.translator(first, models.configs[first].target)
    return models


if __name__ == "__main__":
    run_command(main)
