"""Memory that training frees is used again."""

from __future__ import annotations

import platform
import resource

import pytest
import torch

from models.fl.store.memory import keep_freed_memory


def faults(repetitions: int) -> int:
    """Pages that the system maps while five blocks of a megabyte are filled and freed together, again and again."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(repetitions):
        blocks = [torch.ones(2**18) for _ in range(5)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have rules of their own")
def test_freed_memory_is_not_mapped_again() -> None:
    keep_freed_memory()
    faults(1)
    # Each repetition would map 1,000 pages otherwise.
    assert faults(10) < 1000
