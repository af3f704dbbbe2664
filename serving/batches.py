"""Requests that arrive together, translated together: a bounded queue, and one thread that empties it in batches.

A model translates fifty sentences in little more time than five. So a request does not wait for its turn alone: while
one batch is translated, the next ones gather, and all that can be translated together are.
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


class QueueFullError(Exception):
    """Too many requests wait."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"too many requests wait; try again in {retry_after} s")
        self.retry_after = retry_after
        """Seconds until those that wait are likely to be answered"""


class _Request(NamedTuple, Generic[K, R]):
    kind: K
    lines: Sequence[str]
    answer: Future[list[R]]

    @property
    def n_characters(self) -> int:
        return sum(map(len, self.lines))


class Batches(Generic[K, R]):
    """A queue of requests, and the thread that answers them in order, those of one kind together.

    Close it, or use it as a context: what waits then is still answered.
    """

    def __init__(self, translate: Callable[[K, list[str]], list[R]], max_waiting: int, max_lines: int = MAX_LINES):
        """translate returns a result for each line; it is called by one thread. At most max_waiting requests wait."""
        self.translate = translate
        self.max_waiting = max_waiting
        self.max_lines = max_lines
        self.seconds_per_character = 0.0  # lately
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

    def close(self) -> None:
        """Accepts no more requests, and returns once those that wait are answered."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    @property
    def n_waiting(self) -> int:
        """Requests that wait to be translated."""
        return len(self._waiting)

    def submit(self, kind: K, lines: Sequence[str]) -> Future[list[R]]:
        """Queues a request. The result has as many items as lines; a cancelled one is not translated.

        Raises QueueFullError.
        """
        request = _Request(kind, lines, Future[list[R]]())
        with self._changed:
            if self._closed or len(self._waiting) >= self.max_waiting:
                n_characters = sum(waiting.n_characters for waiting in self._waiting)
                raise QueueFullError(max(1, math.ceil(n_characters * self.seconds_per_character)))
            self._waiting.append(request)
            self._changed.notify()
        return request.answer

    def _answer_all(self) -> None:
        while (batch := self._next_batch()) is not None:
            if batch:
                self._answer(batch)

    def _next_batch(self) -> list[_Request[K, R]] | None:
        """Waits for requests, and takes those of the first one's kind. Returns None once closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return None
        if self._has_several_clients:
            time.sleep(GATHER_SECONDS)
        with self._changed:
            batch: list[_Request[K, R]] = []
            left: deque[_Request[K, R]] = deque()
            n_lines = 0
            for request in self._waiting:
                fits = not batch or (request.kind == batch[0].kind and n_lines + len(request.lines) <= self.max_lines)
                if not fits:
                    left.append(request)
                elif request.answer.set_running_or_notify_cancel():
                    batch.append(request)
                    n_lines += len(request.lines)
            self._waiting = left
            self._has_several_clients = len(batch) > 1
        return batch

    def _answer(self, batch: list[_Request[K, R]]) -> None:
        """Translates requests of one kind together. If that fails, each is translated alone, to fail alone."""
        start = time.perf_counter()
        lines = [line for request in batch for line in request.lines]
        try:
            results = self.translate(batch[0].kind, lines)
        except Exception as error:
            if len(batch) == 1:
                batch[0].answer.set_exception(error)
            else:
                for request in batch:
                    self._answer([request])
            return
        self.seconds_per_character = (time.perf_counter() - start) / max(1, sum(map(len, lines)))
        end = 0
        for request in batch:
            end, begin = end + len(request.lines), end
            request.answer.set_result(results[begin:end])
