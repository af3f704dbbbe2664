"""Memory settings: freed memory stays with the process, and oneDNN's caches are bounded."""

import os
import platform

import pytest
import torch

from fast.memory import bound_caches, keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_is_kept() -> None:
    """Most of the blocks of 32 MiB, allocated and freed in turn, reuse freed memory: they cause no page faults.

    Larger blocks would not do: after a failed allocation, such as in another test, glibc maps them in any case.
    """
    resource = pytest.importorskip("resource")
    keep_freed_memory()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(40):
        torch.ones(2**23)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert faults < 40 * 2**25 / resource.getpagesize() / 2


def test_cache_sizes_in_the_environment_have_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"LRU_CACHE_CAPACITY": "7"})
    bound_caches()
    assert os.environ == {"LRU_CACHE_CAPACITY": "7", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128"}
