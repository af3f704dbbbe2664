"""Simulated CUDA graphs, streams and events, for simulated_gpu.py.

A capture records the operations on the simulated GPU, and a replay computes them again, on the same tensors, as one
launch. As on a real GPU, a capture computes nothing: what it would have changed is as before, the random state too, and
what it made is undefined until the first replay. It raises where the host would wait, and for a copy from the host.
A graph keeps only the memory that was made in its capture. A replay raises if other memory that it uses was freed, and
if another graph that was captured on the same stream has ended, which frees the memory in which cuBLAS works.

What all this cannot show: that graphs of one pool overwrite each other.
"""

import math
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

# Operations that reserve memory and compute nothing.
RESERVES = ("empty", "new_empty")


@dataclass
class Operation:
    """An operation on CPU tensors, which hold the numbers of the simulated ones."""

    func: Any
    args: Any
    kwargs: dict[str, Any]
    on_host: list[Tensor] = field(default_factory=list)
    """Of its arguments those on the CPU, which a GPU takes by their values"""
    made: list[tuple[int, Tensor]] = field(default_factory=list)
    """Of its results those with memory of their own, by their place among them"""

    def has_made(self, result: Any) -> None:
        given = {memory(tensor) for tensor in tensors_in([self.args, list(self.kwargs.values())])}
        self.made = [(place, x) for place, x in enumerate(tensors_in(result)) if memory(x) not in given]

    @property
    def is_launch(self) -> bool:
        """Whether a GPU has something to compute: not for views, nor for memory that is only reserved."""
        name = self.func._schema.name.split("::")[1]
        return not name.startswith(RESERVES) and bool(self.made or self.func._schema.is_mutable)

    def changed(self) -> list[Tensor]:
        """The tensors that it writes to."""
        declared = self.func._schema.arguments
        given = [*zip(declared, self.args, strict=False), *((a, self.kwargs.get(a.name)) for a in declared)]
        written = [value for a, value in given if a.alias_info is not None and a.alias_info.is_write]
        return tensors_in(written)

    def let_go(self, of: Container[int]) -> None:
        """Keep some memory, given by its addresses, no longer alive."""
        self.args, self.kwargs = (map_values(partial(weakened, of=of), x) for x in (self.args, self.kwargs))

    def compute_again(self) -> None:
        args, kwargs = (map_values(strengthened, x) for x in (self.args, self.kwargs))
        results = tensors_in(self.func(*args, **kwargs))
        for place, result in self.made:
            result.copy_(results[place])


class WeakTensor:
    """A tensor that does not keep its memory alive."""

    def __init__(self, tensor: Tensor) -> None:
        self.storage = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
        self.dtype, self.shape, self.stride = tensor.dtype, tensor.size(), tensor.stride()
        self.offset = tensor.storage_offset()

    def tensor(self) -> Tensor:
        storage = torch.UntypedStorage._new_with_weak_ptr(self.storage.cdata)
        if storage is None:
            raise RuntimeError(f"a graph reads memory that was freed: {self.dtype} {tuple(self.shape)}")
        return torch.empty(0, dtype=self.dtype).set_(storage, self.offset, self.shape, self.stride)


def weakened(x: Any, of: Container[int]) -> Any:
    return WeakTensor(x) if isinstance(x, Tensor) and memory(x) in of else x


def strengthened(x: Any) -> Any:
    return x.tensor() if isinstance(x, WeakTensor) else x


def map_values(change: Callable[[Any], Any], x: Any) -> Any:
    """The same with each value in lists, tuples and dicts changed."""
    if isinstance(x, list | tuple):
        return type(x)([map_values(change, item) for item in x])
    if isinstance(x, dict):
        return {name: map_values(change, value) for name, value in x.items()}
    return change(x)


@dataclass
class Recording:
    """What was recorded in a capture."""

    operations: list[Operation] = field(default_factory=list)
    made: dict[int, Tensor] = field(default_factory=dict)
    """A tensor of each memory that was made in the capture, by its address"""
    before: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Of each older memory that was changed: all its bytes, and a copy from before"""

    def keep_what_changes(self, operation: Operation) -> None:
        for tensor in operation.changed():
            address = memory(tensor)
            if address not in self.made and address not in self.before:
                content = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
                self.before[address] = content, content.clone()

    def add(self, operation: Operation) -> None:
        self.made.update((memory(x), x) for _, x in operation.made)
        if operation.is_launch:
            self.operations.append(operation)

    def let_go_of_older_memory(self) -> None:
        """As on a real GPU, where a graph keeps alive only what it has made."""
        given = tensors_in([[op.args, list(op.kwargs.values())] for op in self.operations])
        self.before.clear()
        by_value = {memory(x) for operation in self.operations for x in operation.on_host}
        older = {memory(x) for x in given} - self.made.keys() - by_value
        for operation in self.operations:
            operation.let_go(older)

    def undo(self) -> None:
        """Leave all memory as if nothing had been computed."""
        for content, copy in self.before.values():
            content.copy_(copy)
        for tensor in self.made.values():
            if tensor.is_floating_point():
                tensor.fill_(math.nan)


def memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def tensors_in(x: Any) -> list[Tensor]:
    """The tensors in lists and tuples."""
    if isinstance(x, Tensor):
        return [x]
    return [tensor for item in x for tensor in tensors_in(item)] if isinstance(x, list | tuple) else []


@dataclass
class Capturing:
    """The capture that is going on, and what the host has launched outside it."""

    recording: Recording | None = None
    is_refused: bool = False
    """Whether the capture has asked for what CUDA does not allow: it cannot be ended"""
    is_allocating: bool = False
    """Whether the allocator believes that a capture is going on"""
    launches: int = 0
    """Operations and graphs since the last `take_launches`"""

    def refuse(self, what: str) -> None:
        """Raise, as CUDA does, if a capture is going on."""
        if self.recording is not None:
            self.is_refused = True
            raise RuntimeError(f"CUDA error: operation not permitted when stream is capturing: {what}")

    def will_compute(self, operation: Operation) -> None:
        if self.recording is not None:
            self.recording.keep_what_changes(operation)

    def has_computed(self, operation: Operation, result: Any) -> None:
        operation.has_made(result)
        if self.recording is not None:
            self.recording.add(operation)
        else:
            self.launches += operation.is_launch

    def end_allocating(self, device: int, pool: Any) -> None:
        """`torch._C._cuda_endAllocateToPool`."""
        if not self.is_allocating:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self.is_allocating = False

    def empty_cache(self) -> None:
        """`torch.cuda.empty_cache`."""
        if self.is_allocating:
            raise RuntimeError("captures_underway.empty() INTERNAL ASSERT FAILED")

    def take_launches(self) -> int:
        n, self.launches = self.launches, 0
        return n


CAPTURING = Capturing()


class SimulatedGraph:
    """`torch.cuda.CUDAGraph`."""

    recording: Recording | None = None

    def __init__(self, keep_graph: bool = False) -> None: ...

    def __del__(self) -> None:
        self.reset()

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        CAPTURING.refuse("another capture")
        CAPTURING.recording, CAPTURING.is_refused, CAPTURING.is_allocating = Recording(), False, True
        self.random_state = torch.get_rng_state()
        self.stream = CURRENT[-1]

    def capture_end(self) -> None:
        if CAPTURING.recording is None:
            raise RuntimeError("CUDA error: the operation cannot be performed in the present state")
        recording, CAPTURING.recording = CAPTURING.recording, None
        recording.undo()
        torch.set_rng_state(self.random_state)
        if CAPTURING.is_refused:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
        CAPTURING.is_allocating = False
        recording.let_go_of_older_memory()
        self.recording = recording
        self.n_ended = self.stream.n_ended

    def replay(self) -> None:
        CAPTURING.refuse("a replay")
        assert self.recording is not None, "nothing was captured"
        if self.n_ended != self.stream.n_ended:
            raise RuntimeError("CUDA error: an illegal memory access was encountered: cuBLAS's memory was freed")
        CAPTURING.launches += 1
        with torch.no_grad():
            for operation in self.recording.operations:
                operation.compute_again()

    def reset(self) -> None:
        if self.recording is not None:
            self.stream.n_ended += 1
        self.recording = None

    def pool(self) -> tuple[int, int]:
        return (0, id(self))


@contextmanager
def simulated_graph(
    cuda_graph: SimulatedGraph, pool: Any = None, stream: Any = None, capture_error_mode: str = "global"
) -> Iterator[None]:
    """`torch.cuda.graph`."""
    cuda_graph.capture_begin(pool, capture_error_mode)
    try:
        yield
    except BaseException:
        cuda_graph.capture_end()
        cuda_graph.reset()
        raise
    cuda_graph.capture_end()


class SimulatedStream:
    """`torch.cuda.Stream`: all work is done as soon as it is asked for."""

    device_index = 0

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        self.n_ended = 0
        """Graphs that were captured on it and have ended"""

    def wait_stream(self, stream: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def record_event(self, event: Any = None) -> "SimulatedEvent":
        return event or SimulatedEvent()

    def query(self) -> bool:
        return True

    def __enter__(self) -> "SimulatedStream":
        CURRENT.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        CURRENT.pop()


CURRENT: list[SimulatedStream] = []
"""The streams that are entered"""


class SimulatedEvent:
    """`torch.cuda.Event`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def record(self, stream: Any = None) -> None: ...

    def wait(self, stream: Any = None) -> None: ...

    def query(self) -> bool:
        return True


def offer_graphs(wait: Callable[[str], None]) -> None:
    """Patches torch so that it offers graphs, streams and events. `wait` is told why the host waits."""
    cuda: Any = torch.cuda
    events: Any = SimulatedEvent
    streams: Any = SimulatedStream
    CURRENT.append(SimulatedStream())
    in_turn = cycle([SimulatedStream() for _ in range(32)])
    events.synchronize = streams.synchronize = lambda self: wait("synchronize")
    core: Any = torch._C
    core._cuda_endAllocateToPool, core._cuda_releasePool = CAPTURING.end_allocating, lambda device, pool: None
    cuda.empty_cache = CAPTURING.empty_cache
    cuda.CUDAGraph = cuda.graphs.CUDAGraph = SimulatedGraph
    cuda.graph = cuda.graphs.graph = simulated_graph
    cuda.graph_pool_handle = lambda: (0, 1)
    cuda.current_blas_handle = lambda: CAPTURING.refuse("a handle of cuBLAS")
    cuda.is_current_stream_capturing = lambda: CAPTURING.recording is not None
    cuda.Stream = lambda device=None, priority=0: next(in_turn)
    cuda.Event = SimulatedEvent
    cuda.stream = lambda stream: stream
    cuda.current_stream = cuda.default_stream = lambda device=None: CURRENT[-1]
    cuda.synchronize = lambda device=None: wait("synchronize")
