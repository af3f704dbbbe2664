"""Requests that arrive together, translated together: a bounded queue, and one thread that empties it in batches.

A model translates fifty sentences in little more time than five. So a request does not wait for its turn alone: while
one batch is translated, the next requests gather.

The queue is fair between clients (start-time fair queuing, Goyal et al. 1996): a request begins, in the queue's own
time, when the client's earlier requests end, and the one that begins first is taken first. A client that sends much
waits for itself. `Lanes` has two such queues, so that little requests do not wait for large ones.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")  # what the requests of a batch have in common
R = TypeVar("R")  # the result of a line

GATHER_SECONDS = 0.004  # while there are several clients, a batch waits this long for more requests
MAX_WORK = 25_000  # of several requests in one batch, so that no batch takes much longer than others
MAX_RETRY_SECONDS = 60
QUICK_WORK = 1_000  # requests of less work have a queue of their own
MAX_QUICK_WORK = 6_000  # of several such requests in one batch: the next one waits for it

Check = Callable[[], None]
"""Called every few steps of a translation; raises AbandonedError if nobody waits for it any more"""
TranslateBatch = Callable[[list[str], Check], list[R]]


class QueueFullError(Exception):
    """Too many requests wait."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"too many requests wait; try again in {retry_after} s")
        self.retry_after = retry_after
        """Seconds until those that wait are likely to be answered, from 1 to MAX_RETRY_SECONDS"""


class AbandonedError(Exception):
    """Nobody waits for a translation any more."""


class Awaited(Future[R]):
    """A result that somebody waits for, until it is cancelled, also while it is computed."""

    is_abandoned = False

    def cancel(self) -> bool:
        self.is_abandoned = True
        return super().cancel()


@dataclass(frozen=True, eq=False)
class _Request(Generic[K, R]):
    kind: K
    lines: Sequence[str]
    answer: Awaited[list[R]]
    client: str
    work: float
    arrived: float
    """In the queue's own time"""


class Batches(Generic[K, R]):
    """A queue of requests, and the thread that answers them, those of one kind together, until `close` is called."""

    def __init__(
        self,
        translator_of: Callable[[K], TranslateBatch[R]],
        max_waiting: int,
        max_lines: int,
        max_work: float = MAX_WORK,
    ) -> None:
        """translator_of gives the function that translates lines of a kind, one result for each.

        One thread calls it, and the functions that it returns. At most max_waiting requests wait. Several requests in
        one batch have at most max_lines lines and max_work.
        """
        self.translator_of = translator_of
        self.max_waiting = max_waiting
        self.max_lines = max_lines
        self.max_work = max_work
        self.seconds_per_work = 0.0  # of the last batch
        self._waiting: list[_Request[K, R]] = []
        self._time = 0.0  # the queue's own: the start of the last request that was taken
        self._ends: dict[str, float] = {}  # of each client's last request that was taken, in this time
        self._closed = False
        self._has_several_clients = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._answer_all, name="batches", daemon=True)
        self._thread.start()

    def close(self, timeout: float | None = None) -> None:
        """Accept no more requests, and return once those that wait are answered, or after timeout seconds."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout)

    @property
    def n_waiting(self) -> int:
        """Requests that wait to be translated."""
        return len(self._waiting)

    def submit(self, kind: K, lines: Sequence[str], client: str = "", work: float = 0.0) -> Awaited[list[R]]:
        """Queue a request of a client. The result has as many items as lines. If it is cancelled, its work ends.

        work says how much there is to do; by default, it is the number of characters. Where the queue is full, a client
        with fewer requests takes the place of the latest request of the client that has most. Raises QueueFullError,
        or sets it as the exception of the request that lost its place.
        """
        work = work or float(sum(map(len, lines)))
        with self._changed:
            if len(self._waiting) >= self.max_waiting:
                self._waiting = [waiting for waiting in self._waiting if not waiting.answer.cancelled()]
            if self._closed or (len(self._waiting) >= self.max_waiting and not self._make_room(client)):
                raise self._full()
            request = _Request(kind, lines, Awaited[list[R]](), client, work, self._time)
            self._waiting.append(request)
            self._changed.notify()
        return request.answer

    def _full(self) -> QueueFullError:
        seconds = math.ceil(sum(waiting.work for waiting in self._waiting) * self.seconds_per_work)
        return QueueFullError(min(max(1, seconds), MAX_RETRY_SECONDS))

    def _make_room(self, client: str) -> bool:
        """Refuse a request of the client with most, if it has two more than this client. Return whether it had."""
        of_client: dict[str, list[_Request[K, R]]] = {client: []}
        for waiting in self._waiting:
            of_client.setdefault(waiting.client, []).append(waiting)
        most = max(of_client.values(), key=len)
        if len(most) < len(of_client[client]) + 2:
            return False
        latest = most[-1]
        self._waiting.remove(latest)
        if latest.answer.set_running_or_notify_cancel():
            latest.answer.set_exception(self._full())
        return True

    def _answer_all(self) -> None:
        while True:
            batch = self._next_batch()
            if batch is None:
                return
            if batch:
                self._answer(batch)

    def _next_batch(self) -> list[_Request[K, R]] | None:
        """Wait for requests, and take those of the first one's kind. Return None once closed and empty."""
        with self._changed:
            # If a request came during the last batch, more are likely to come now.
            self._has_several_clients |= bool(self._waiting)
            if not self._waiting:  # nor is anything translated: the past of clients no longer matters
                self._time, self._ends = 0.0, {}
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return None
            has_room = sum(len(request.lines) for request in self._waiting) < self.max_lines
        if has_room and self._has_several_clients:
            time.sleep(GATHER_SECONDS)
        with self._changed:
            batch, self._waiting = self._split_queue()
            self._has_several_clients = len(batch) > 1
        return batch

    def _split_queue(self) -> tuple[list[_Request[K, R]], list[_Request[K, R]]]:
        """Return the next batch, and the requests that go on waiting. A single request may exceed the limits."""
        batch: list[_Request[K, R]] = []
        remaining: list[_Request[K, R]] = []
        n_lines, work = 0, 0.0
        starts = self._starts()
        for request in sorted(self._waiting, key=lambda request: starts[request]):
            is_small = n_lines + len(request.lines) <= self.max_lines and work + request.work <= self.max_work
            if batch and not (is_small and request.kind == batch[0].kind):
                remaining.append(request)
            elif request.answer.set_running_or_notify_cancel():
                self._time = max(self._time, starts[request]) if not batch else self._time
                self._ends[request.client] = self._start(request, self._ends) + request.work
                batch.append(request)
                n_lines += len(request.lines)
                work += request.work
        return batch, remaining

    def _starts(self) -> dict[_Request[K, R], float]:
        """Return when each request that waits begins in the queue's own time. Cancelled requests delay no others."""
        starts: dict[_Request[K, R], float] = {}
        ends = dict(self._ends)
        for request in self._waiting:  # those of a client in the order in which they came
            starts[request] = self._start(request, ends)
            if not request.answer.cancelled():
                ends[request.client] = starts[request] + request.work
        return starts

    def _start(self, request: _Request[K, R], ends: Mapping[str, float]) -> float:
        """Return when a request begins if the client's earlier ones end as given."""
        return max(request.arrived, ends.get(request.client, 0.0))

    def _answer(self, batch: list[_Request[K, R]]) -> None:
        """Translate requests of one kind together."""
        try:
            translate = self.translator_of(batch[0].kind)
        except BaseException as error:
            for request in batch:
                request.answer.set_exception(_as_exception(error))
        else:
            self._answer_by(translate, batch)

    def _answer_by(self, translate: TranslateBatch[R], batch: list[_Request[K, R]]) -> None:
        """Translate requests together. If that fails, each is translated alone, so that no other fails with it."""

        def check() -> None:
            if all(request.answer.is_abandoned for request in batch):
                raise AbandonedError

        lines = [line for request in batch for line in request.lines]
        start = time.perf_counter()
        try:
            check()
            results = translate(lines, check)
        except BaseException as error:
            if len(batch) == 1 or isinstance(error, AbandonedError):
                for request in batch:
                    request.answer.set_exception(_as_exception(error))
                return
            for request in batch:
                self._answer_by(translate, [request])
            return
        self.seconds_per_work = (time.perf_counter() - start) / max(1.0, sum(request.work for request in batch))

        begin = 0
        for request in batch:
            end = begin + len(request.lines)
            request.answer.set_result(results[begin:end])
            begin = end


def _as_exception(error: BaseException) -> Exception:
    """Return an error as an exception: a panic of a library in Rust is none, and would end the thread of a queue.

    Python raises KeyboardInterrupt in the main thread only, and SystemExit would end the thread, not the process.
    """
    if isinstance(error, Exception):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)


class Lanes(Generic[K, R]):
    """Two queues with a thread each, which share the processor: one for requests of little work, one for the others."""

    def __init__(self, translator_of: Callable[[K], TranslateBatch[R]], max_waiting: int, max_lines: int) -> None:
        """Take the arguments of `Batches`. Two threads call translator_of. max_waiting requests wait in each queue."""
        self.quick = Batches(translator_of, max_waiting, max_lines, MAX_QUICK_WORK)
        self.long = Batches(translator_of, max_waiting, max_lines)

    @property
    def n_waiting(self) -> int:
        """Requests that wait to be translated."""
        return self.quick.n_waiting + self.long.n_waiting

    def submit(self, kind: K, lines: Sequence[str], client: str = "", work: float = 0.0) -> Awaited[list[R]]:
        """Queue a request, as `Batches.submit` does."""
        queue = self.quick if work < QUICK_WORK else self.long
        return queue.submit(kind, lines, client, work)

    def close(self, timeout: float | None = None) -> None:
        """Accept no more requests, and return once those that wait are answered, or after timeout seconds."""
        closing = [threading.Thread(target=queue.close, args=(timeout,)) for queue in (self.quick, self.long)]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()
