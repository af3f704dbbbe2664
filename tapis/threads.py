"""Dividing work: among the threads of a CPU, and into chunks."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def n_cores() -> int:
    """Return how many cores this process may use; a cluster may have given it a few of many."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def n_threads() -> int:
    """Return how many threads may compute: OMP_NUM_THREADS, as for other libraries, or `n_cores`."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) else n_cores()


def spread(work: Callable[[T], U], items: Sequence[T]) -> Iterator[U]:
    """Yield `work(item)` for each item, in order; threads work on different items at the same time."""
    threads = min(n_threads(), len(items))
    if threads < 2:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(work, items)


def ahead(
    work: Callable[[T], U], items: Iterable[T], n: int, stop: Callable[[], None]
) -> Generator[tuple[T, U], None, None]:
    """Yield each item with `work(item)`, in order, while threads work on the n − 1 items after it.

    What iterating over the items raises is raised after the items before it. `stop` is called where the results are no
    longer wanted, after Ctrl-C or an error of their reader: work that goes on would hold up the end.
    """
    waiting: deque[tuple[T, Future[U]]] = deque()
    failure: BaseException | None = None
    items = iter(items)
    with ThreadPoolExecutor(n) as pool:
        try:
            while True:
                while not failure and len(waiting) < n:
                    try:
                        item = next(items)
                    except BaseException as error:  # the end is one, too
                        failure = error
                    else:
                        waiting.append((item, pool.submit(work, item)))
                if not waiting:
                    break
                item, result = waiting.popleft()
                yield item, result.result()
        except BaseException:
            stop()
            raise
    if not isinstance(failure, StopIteration):
        assert failure
        raise failure


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of `size`. The last list may be shorter."""
    chunk: list[T] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
