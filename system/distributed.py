"""Several processes as one training, by torch.distributed: who this one is, and what they tell one another.

`torchrun --nproc-per-node N train.py …` starts the same command N times, on one machine or on several, and says in the
environment who is who. All hold the same weights and make the same steps; of a step's batches each computes its own
share, and the gradients are summed over all. A command that was started alone is a group of one, and says nothing.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
from torch import distributed

from config import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """The processes of one training, as one of them sees it. Every method but `leads` must be called by all."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Among those on this machine: the number of its GPU"""

    @classmethod
    def join(cls) -> "Group":
        """The group that torchrun started; alone, a group of one. On GPUs they talk by NCCL, on CPUs by Gloo."""
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            return cls()
        rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        if torch.cuda.is_available():
            if local >= torch.cuda.device_count():
                raise ConfigError(f"--nproc-per-node: this machine has {torch.cuda.device_count()} GPUs")
            torch.cuda.set_device(local)
        if size > 1:
            both = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            # The others wait while one of them prepares the data, which may take hours.
            distributed.init_process_group(both, timeout=timedelta(days=1))
        return cls(rank, size, local)

    @property
    def leads(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0

    def all_sums(self, *numbers: float) -> list[float]:
        """Each number summed over the processes."""
        if self.size == 1:
            return list(numbers)
        summed = torch.tensor(numbers, dtype=torch.float64)
        distributed.all_reduce(summed)
        return [float(number) for number in summed]

    def gather(self, mine: list[T]) -> list[T]:
        """What all have, one from each in turn: what was dealt out by [rank::size], together again."""
        if self.size == 1:
            return mine
        lists: list[list[T]] = [[] for _ in range(self.size)]
        distributed.all_gather_object(lists, mine)
        return [lists[i % self.size][i // self.size] for i in range(sum(map(len, lists)))]

    def broadcast(self, value: T) -> T:
        """The leader's value."""
        values = [value]
        if self.size > 1:
            distributed.broadcast_object_list(values, device=torch.device("cpu"))
        return values[0]

    @contextmanager
    def first_on_each_machine(self) -> Iterator[None]:
        """One process of each machine does what is inside before the others: they find on disk what it prepared."""
        if self.size > 1 and self.local_rank:
            self.all_sums(0)
        yield
        if self.size > 1 and not self.local_rank:
            self.all_sums(0)

    def leave(self) -> None:
        """Ends what `join` began."""
        if self.size > 1:
            distributed.destroy_process_group()


ALONE = Group()
