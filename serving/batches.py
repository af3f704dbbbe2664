"""Requests that arrive together, translated together: a bounded queue, and one thread that empties it in batches.

A model translates fifty sentences in little more time than five. So a request does not wait for its turn alone: while
one batch is translated, the next requests gather.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K")  # what the requests of a batch have in common
R = TypeVar("R")  # the result of a line

GATHER_SECONDS = 0.004  # while there are several clients, a batch waits this long for more requests
MAX_LINES = 256  # of several requests in one batch; more would delay the first answers without being faster
MAX_CHARACTERS = 25_000  # of several requests in one batch, so that no batch takes much longer than others
MAX_RETRY_SECONDS = 60


class QueueFullError(Exception):
    """Too many requests wait."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"too many requests wait; try again in {retry_after} s")
        self.retry_after = retry_after
        """Seconds until those that wait are likely to be answered, from 1 to MAX_RETRY_SECONDS"""


class _Request(NamedTuple, Generic[K, R]):
    kind: K
    lines: Sequence[str]
    answer: Future[list[R]]

    @property
    def n_characters(self) -> int:
        return sum(map(len, self.lines))


class Batches(Generic[K, R]):
    """A queue of requests, and the thread that answers them in order, those of one kind together.

    Use it as a context manager, or call `close`.
    """

    def __init__(
        self,
        translator_of: Callable[[K], Callable[[list[str]], list[R]]],
        max_waiting: int,
        max_lines: int = MAX_LINES,
    ) -> None:
        """translator_of gives the function that translates lines of a kind, one result for each.

        One thread calls it, and the functions that it returns. At most max_waiting requests wait.
        """
        self.translator_of = translator_of
        self.max_waiting = max_waiting
        self.max_lines = max_lines
        self.seconds_per_character = 0.0  # of the last batch
        self._waiting: deque[_Request[K, R]] = deque()
        self._closed = False
        self._has_several_clients = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._answer_all, name="batches", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Batches[K, R]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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

    def submit(self, kind: K, lines: Sequence[str]) -> Future[list[R]]:
        """Queue a request. The result has as many items as lines. If it is cancelled in time, it is not translated.

        Raises QueueFullError.
        """
        request = _Request(kind, lines, Future[list[R]]())
        with self._changed:
            if len(self._waiting) >= self.max_waiting:
                self._waiting = deque(waiting for waiting in self._waiting if not waiting.answer.cancelled())
            if self._closed or len(self._waiting) >= self.max_waiting:
                n_characters = sum(waiting.n_characters for waiting in self._waiting)
                seconds = math.ceil(n_characters * self.seconds_per_character)
                raise QueueFullError(min(max(1, seconds), MAX_RETRY_SECONDS))
            self._waiting.append(request)
            self._changed.notify()
        return request.answer

    def _answer_all(self) -> None:
        while True:
            batch = self._next_batch()
            if batch is None:
                return
            if batch:
                self._answer(batch)

    def _next_batch(self) -> list[_Request[K, R]] | None:
        """Wait for requests, and take those of the first one's kind. Returns None once closed and empty."""
        with self._changed:
            # If a request came during the last batch, more are likely to come now.
            self._has_several_clients |= bool(self._waiting)
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return None
            has_room = sum(len(request.lines) for request in self._waiting) < self.max_lines
        if has_room and self._has_several_clients:
            time.sleep(GATHER_SECONDS)
        with self._changed:
            batch, remaining = self._split_queue()
            self._waiting = remaining
            self._has_several_clients = len(batch) > 1
        return batch

    def _split_queue(self) -> tuple[list[_Request[K, R]], deque[_Request[K, R]]]:
        """The next batch, and the requests that go on waiting. A single request may be larger than the limits."""
        batch: list[_Request[K, R]] = []
        remaining: deque[_Request[K, R]] = deque()
        n_lines = n_characters = 0
        for request in self._waiting:
            is_small = (
                n_lines + len(request.lines) <= self.max_lines and n_characters + request.n_characters <= MAX_CHARACTERS
            )
            if batch and not (is_small and request.kind == batch[0].kind):
                remaining.append(request)
            elif request.answer.set_running_or_notify_cancel():
                batch.append(request)
                n_lines += len(request.lines)
                n_characters += request.n_characters
        return batch, remaining

    def _answer(self, batch: list[_Request[K, R]]) -> None:
        """Translate requests of one kind together."""
        try:
            translate = self.translator_of(batch[0].kind)
        except Exception as error:
            for request in batch:
                request.answer.set_exception(error)
        else:
            self._answer_by(translate, batch)

    def _answer_by(self, translate: Callable[[list[str]], list[R]], batch: list[_Request[K, R]]) -> None:
        """Translate requests together. If that fails, each is translated alone, so that no other fails with it."""
        lines = [line for request in batch for line in request.lines]
        start = time.perf_counter()
        try:
            results = translate(lines)
        except Exception as error:
            if len(batch) == 1:
                batch[0].answer.set_exception(error)
                return
            for request in batch:
                self._answer_by(translate, [request])
            return
        self.seconds_per_character = (time.perf_counter() - start) / max(1, sum(map(len, lines)))

        begin = 0
        for request in batch:
            end = begin + len(request.lines)
            request.answer.set_result(results[begin:end])
            begin = end
