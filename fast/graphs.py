"""Work on a GPU as CUDA graphs: the host launches one graph where it would launch hundreds of kernels.

A graph works on tensors at fixed addresses, and nothing in it may wait for the host. Training captures its steps
(fast/capture.py), and searches capture their tokens (decoding/captured.py).
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from weakref import WeakSet

import torch

from tapis.system.terminal import say

REFUSED: list[torch.cuda.CUDAGraph] = []
"""Captures that CUDA refused to end. They are kept, since torch's allocator of pinned memory may still point to them"""
N_STREAMS = 32  # that torch has: it gives them out in turn
POOLS: "WeakSet[GraphPool]" = WeakSet()
"""All pools, each with a stream of its own"""
CHOICE_OF_STREAM = Lock()  # two threads may make a pool at the same time


class GraphPool:
    """Captures work as CUDA graphs, which share their memory, as they never run at the same time.

    All graphs of a pool must be dropped together. From torch 2.12 on, the end of one frees the memory in which cuBLAS
    works on the stream of its capture, and the others of that stream would go on to use it (pytorch issue 193402). So
    each pool has a stream of its own.
    """

    def __init__(self, device: torch.device, name: str) -> None:
        """name is what becomes slower without graphs. On a CPU, or if no stream is left, nothing is captured."""
        self.name = name
        self.can_capture = device.type == "cuda"
        self.stream: torch.cuda.Stream | None = None
        self.first: torch.cuda.CUDAGraph | None = None
        """The first graph, kept because torch takes no graph into a pool that has lost all others"""
        self.abandoned: list[torch.cuda.CUDAGraph] = []
        """Of captures that failed, and could be ended"""
        if self.can_capture:
            self.pool = torch.cuda.graph_pool_handle()
            with CHOICE_OF_STREAM:
                self.stream = unused_stream(device)
                POOLS.add(self)
            self.can_capture = self.stream is not None

    def captured(self, work: Callable[[], None]) -> "torch.cuda.CUDAGraph | None":
        """Return a graph that does the work. None where work cannot be captured; on a GPU, the user is told once.

        `work` has run before, so that its kernels are loaded. Unlike torch.cuda.graph, this does not collect garbage,
        and returns memory to the system only if there is too little. Both take longer than the capture.
        """
        if not self.can_capture:
            return None
        reason = ""
        for _ in range(2):
            try:
                graph = self._capture(work)
            except RuntimeError as error:
                (reason, *_) = str(error).splitlines() or [""]
                if not isinstance(error, torch.OutOfMemoryError):
                    break
            else:
                self.first = self.first or graph
                return graph
            torch.cuda.empty_cache()  # torch cannot do it within a capture
        self.can_capture = False
        say(f"warning   {self.name} is slower here, since it cannot be captured as a CUDA graph: {reason}")
        return None

    def _capture(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with self.on_stream(), without_garbage_collection():
            # The handle of this thread: none can be made within a capture.
            torch.cuda.current_blas_handle()  # type: ignore[no-untyped-call]
            try:
                # Another thread, which prepares batches, may allocate pinned memory at the same time.
                graph.capture_begin(self.pool, capture_error_mode="thread_local")
                work()
                graph.capture_end()
            except BaseException:
                self._abandon(graph)
                raise
        return graph

    def _abandon(self, graph: torch.cuda.CUDAGraph) -> None:
        """End a capture that failed. Raises no RuntimeError, which would hide why it failed.

        Where CUDA refuses to end it, torch's `capture_end` leaves the allocator in the capture, and the next call of
        `torch.cuda.empty_cache` would fail.
        """
        with suppress(RuntimeError):
            graph.capture_end()
            self.abandoned.append(graph)
            return
        assert self.stream
        device = self.stream.device_index
        with suppress(RuntimeError):  # the allocator is in no capture
            torch._C._cuda_endAllocateToPool(device, self.pool)
            torch._C._cuda_releasePool(device, self.pool)
            REFUSED.append(graph)

    @contextmanager
    def on_stream(self) -> Iterator[None]:
        """While entered, work is launched where captures are made, between what came before and what comes after."""
        if self.stream is None:
            yield
            return
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            yield
        torch.cuda.current_stream().wait_stream(self.stream)


def unused_stream(device: torch.device) -> torch.cuda.Stream | None:
    """Return a stream on which no other pool captures; None if torch has none left."""
    taken = [pool.stream for pool in POOLS]
    streams = (torch.cuda.Stream(device) for _ in range(N_STREAMS))  # type: ignore[no-untyped-call]
    return next((stream for stream in streams if stream not in taken), None)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """While entered, no garbage is collected: it may hold a graph, and CUDA destroys none during a capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Replayed:
    """Replaces calls of a function without arguments: it is captured at the second call, and replayed from then on.

    The first call makes what is made once: memory, the state of an optimizer, compiled kernels. It runs on the stream
    of captures, since autograd adds up gradients on the stream on which they were first needed.
    """

    def __init__(self, pool: GraphPool) -> None:
        self.pool = pool
        self.graph: torch.cuda.CUDAGraph | None = None
        self.has_run = False

    def __call__(self, work: Callable[[], None]) -> None:
        """Do the work, which is the same each time. It is not kept here, so that no cycle keeps its memory."""
        if self.has_run and self.graph is None:
            self.graph = self.pool.captured(work)
        if self.graph is not None:
            self.graph.replay()
        else:
            with self.pool.on_stream():
                work()
        self.has_run = True
