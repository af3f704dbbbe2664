"""The metrics of a server, for Prometheus."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tapis.serving.batches import Check, TranslateBatch

K = TypeVar("K")
R = TypeVar("R")

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)  # upper ends of the ranges that are counted
LINES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("tapis_requests", "Requests answered", ["path", "status"], registry=self.registry)
        self.request_seconds = Histogram(
            "tapis_request_seconds", "Time from request to answer", ["path"], buckets=SECONDS, registry=self.registry
        )
        self.batch_lines = Histogram(
            "tapis_batch_lines", "Lines translated together", buckets=LINES, registry=self.registry
        )
        self.characters = Counter("tapis_characters", "Characters translated", registry=self.registry)
        self.waiting = Gauge("tapis_waiting_requests", "Requests that wait in a queue", registry=self.registry)

    def text(self) -> bytes:
        """Return all values in Prometheus' format."""
        return generate_latest(self.registry)

    def counted(self, translator_of: Callable[[K], TranslateBatch[R]]) -> Callable[[K], TranslateBatch[R]]:
        """Wrap the argument of `Batches`, so that lines and characters are counted as they are translated."""

        def counted_translator_of(kind: K) -> TranslateBatch[R]:
            translate = translator_of(kind)

            def counted_translate(lines: list[str], check: Check) -> list[R]:
                results = translate(lines, check)
                self.batch_lines.observe(len(lines))
                self.characters.inc(sum(map(len, lines)))
                return results

            return counted_translate

        return counted_translator_of


class MeasuredRequests:
    """Counts the requests to some paths by status, and their time."""

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: Sequence[str]) -> None:
        self.app = app
        self.metrics = metrics
        self.paths = set(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in self.paths:
            await self.app(scope, receive, send)
            return
        path = scope["path"]
        start = time.perf_counter()
        status = 500

        async def send_and_note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        finally:
            self.metrics.requests.labels(path, status).inc()
            self.metrics.request_seconds.labels(path).observe(time.perf_counter() - start)
