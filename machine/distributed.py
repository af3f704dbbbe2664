"""Several processes that train one model: which process this is, and how they exchange values (torch.distributed).

`torchrun --nproc-per-node N train.py …` starts the same command N times, on one machine or on several, and describes
the processes in environment variables. Every process holds the same weights and takes the same steps. Each computes its
share of a step's batches, and the gradients are summed over all processes. A command started without torchrun is a
group of one process, and its methods communicate nothing.
"""

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import torch
from torch import Tensor, distributed
from torch.nn import functional as F

from tapis.config import ConfigError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

T = TypeVar("T")

# Within a step, processes wait for one another as long as a batch takes. A machine that has lost its power or its
# network is noticed after this time at the latest.
STEP_TIMEOUT = timedelta(minutes=30)
# While one process prepares the data, or translates more than the others, they wait longer.
WORK_TIMEOUT = timedelta(days=1)


@dataclass(frozen=True)
class Group:
    """The processes of one run, seen from one of them. All processes must call a method together."""

    rank: int = 0
    """Number of this process, from 0; `tapis.system.terminal.is_main` tells whether it is 0"""
    size: int = 1
    """Number of processes"""
    local_rank: int = 0
    """Number of this process on its machine, from 0, which is also the number of its GPU"""
    patient_group: "ProcessGroup | None" = None
    """Connections with WORK_TIMEOUT, by Gloo; all others have STEP_TIMEOUT"""

    @classmethod
    def join(cls, device: torch.device) -> "Group":
        """Join the processes that torchrun started, to compute on `device`. Without torchrun, return a group of one.

        Gradients are exchanged by NCCL between GPUs and by Gloo between CPUs. Raises ConfigError, in every process of a
        machine, if they are to compute on GPUs and that machine has fewer GPUs than processes.
        """
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            return cls()
        rank = int(os.environ["RANK"])
        size = int(os.environ["WORLD_SIZE"])
        local_rank = int(os.environ["LOCAL_RANK"])

        # Give each process of this machine its own GPU.
        uses_gpus = device.type == "cuda"
        if uses_gpus:
            local_size, gpus = int(os.environ["LOCAL_WORLD_SIZE"]), torch.cuda.device_count()
            if local_size > gpus:
                raise ConfigError(
                    f"--nproc-per-node {local_size}: each process needs its own GPU; GPUs of this machine: {gpus}\n"
                    f"give --nproc-per-node {gpus} or less, or --device cpu"
                )
            torch.cuda.set_device(local_rank)

        # Connect the processes.
        if size == 1:
            return cls(rank, size, local_rank)
        backend = "cpu:gloo,cuda:nccl" if uses_gpus else "gloo"
        distributed.init_process_group(backend, timeout=STEP_TIMEOUT)
        return cls(rank, size, local_rank, distributed.new_group(backend="gloo", timeout=WORK_TIMEOUT))

    def all_sums(self, *numbers: float) -> list[float]:
        """Return each number summed over the processes."""
        if self.size == 1:
            return list(numbers)
        return [float(total) for total in self.sum_on_device(torch.tensor(numbers, dtype=torch.float64))]

    def sum_on_device(self, x: Tensor) -> Tensor:
        """Return a tensor summed over the processes, on its device: the host does not wait for a GPU."""
        if self.size == 1:
            return x
        total = x.clone()
        distributed.all_reduce(total)
        return total

    def gather(self, local_items: list[T]) -> list[T]:
        """Return the items of all processes, in the order that they had before each process took `items[rank::size]`.

        Three processes with [a, d], [b, e], [c] all receive [a, b, c, d, e].
        """
        if self.size == 1:
            return local_items
        lists: list[list[T]] = [[] for _ in range(self.size)]
        distributed.all_gather_object(lists, local_items, group=self.patient_group)
        total = sum(len(items) for items in lists)
        return [lists[i % self.size][i // self.size] for i in range(total)]

    def broadcast(self, value: T) -> T:
        """Return the main process's value."""
        if self.size == 1:
            return value
        values = [value]
        distributed.broadcast_object_list(values, group=self.patient_group)
        return values[0]

    @contextmanager
    def first_on_each_disk(self, folder: Path) -> Iterator[None]:
        """Of the processes that share `folder`, one runs the block before the others: they find its results there.

        On a single machine that is the main process. On several, the first process of each, unless the machine sees
        the folder of the main process.
        """
        is_first = self._is_first_on_disk(folder)
        if not is_first:
            self._wait()
        yield
        if is_first:
            self._wait()

    def _is_first_on_disk(self, folder: Path) -> bool:
        """Return whether no other process prepares data in `folder` for this one."""
        if self.size == 1:
            return True
        # The main process leaves a file. A process that sees the file shares the folder.
        marker = folder / self.broadcast(f".shared-{uuid4().hex}")
        if self.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            marker.touch()
        self._wait()
        is_shared = marker.exists()
        self._wait()
        if self.rank == 0:
            marker.unlink()
        return self.rank == 0 or (self.local_rank == 0 and not is_shared)

    def _wait(self) -> None:
        """Wait until all processes have reached this point."""
        if self.size > 1:
            distributed.barrier(group=self.patient_group)

    def leave(self) -> None:
        """Disconnect from the other processes, which must do so too. Not after a failure: see `run_worker`."""
        if self.size > 1:
            distributed.destroy_process_group()


def mean_in_order(
    _: object,
    bucket: distributed.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[Tensor]:
    """Replace the all-reduce of DistributedDataParallel on CPUs: a hook that adds up gradients in the order of ranks.

    Gloo's own order differs from element to element. In the order of ranks, the sum of a batch of each process equals,
    to the last bit, that of one process which takes the same batches one after another; if the number of processes is a
    power of two, by which multiplying and dividing is exact, so does the mean. Each process adds up its share of the
    elements, so that as much is sent as for an all-reduce.
    """
    gradient: Tensor = bucket.buffer()  # (n,)
    size = distributed.get_world_size()
    shares = F.pad(gradient, (0, -len(gradient) % size))
    by_rank = torch.empty_like(shares)
    distributed.all_to_all_single(by_rank, shares)
    local_share, *others = by_rank.chunk(size)
    for other in others:
        local_share += other
    distributed.all_gather(list(shares.chunk(size)), local_share.div_(size))

    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(gradient.copy_(shares[: len(gradient)]))
    return done


# Tensors that processes may hold in parts (training/sharding.py)


def whole(x: T) -> T:
    """Return a tensor as a whole, if this process holds a part of it; anything else as it is.

    All processes must call it together.
    """
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def collected(x: T) -> Any:
    """Return a tensor of which processes hold parts as a whole, on the CPU of the main process; others get None.

    Anything else is returned as it is. All processes must call it together.
    """
    if not hasattr(x, "full_tensor"):
        return x
    full: Any = whole(x)
    return full.cpu() if distributed.get_rank() == 0 else None


def local_part(x: Tensor) -> Tensor:
    """Return the part of a tensor that this process holds."""
    return x.to_local() if hasattr(x, "to_local") else x


def part_like(example: Tensor, x: Tensor) -> Tensor:
    """Return the part of x that this process holds of `example`, or x if it holds all of that.

    All processes must call it together.
    """
    if not hasattr(example, "device_mesh"):
        return x
    from torch.distributed.tensor import distribute_tensor  # noqa: PLC0415 - a second, for what few use

    return distribute_tensor(x.to(example.device), example.device_mesh, example.placements)  # type: ignore[attr-defined]


def run_worker(command: Callable[[], object]) -> None:
    """Run a command that ends in sys.exit if it fails. A process that torchrun started ends without finalization.

    At the end of a process that failed, NCCL would wait for the other processes, which wait for this one. And a thread
    of torch that asks for Python's lock during finalization aborts the process ("terminate called without an active
    exception"), whereupon torchrun stops the others.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        command()
        return
    code = 1
    try:
        command()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


ALONE = Group()
