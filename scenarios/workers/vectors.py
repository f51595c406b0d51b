"""Vectors in files that several processes map: in shared memory, and beyond its bound in a file on disk."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.fl.store.gaps import Gaps
from scenarios.workers.scratch import scratch_folder

Numbers = NDArray[np.float32]
_SHARED_MEMORY = "/dev/shm"
_PAGE = 1024
"""Numbers that fit a page of memory. Blocks begin at pages, since a mapping must."""


class Block(NamedTuple):
    """Consecutive numbers of a file."""

    file: str
    first: int
    size: int

    def numbers(self) -> Numbers:
        """Return the numbers, shared by all processes that map the block."""
        return _map_block(self)


@lru_cache(maxsize=64)
def _map_block(block: Block) -> Numbers:
    """Return the numbers of a block, as a mapping of its file."""
    # Mappings are cached: the pages of a new one are mapped one by one, and the same blocks are used again and again.
    return np.memmap(block.file, np.float32, "r+", offset=4 * block.first, shape=(block.size,))


def forget_mappings() -> None:
    """Close all mappings of blocks: a deleted file takes memory as long as it is mapped."""
    _map_block.cache_clear()


class _File:
    """A file of limited size, cut into blocks."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self.path, most = str(path), most_bytes // 4
        self._gaps = Gaps(most)
        path.touch()
        # An empty file takes no memory: pages are allocated when they are written.
        os.truncate(path, 4 * most)

    def take(self, count: int) -> Block | None:
        first = self._gaps.take(_whole_pages(count))
        return None if first is None else Block(self.path, first, count)

    def give(self, block: Block) -> None:
        self._gaps.give(block.first, _whole_pages(block.size))


def _whole_pages(count: int) -> int:
    return -(-count // _PAGE) * _PAGE


class SharedVectors:
    """Blocks in shared memory, at most `memory_bytes` of them, and beyond that in a file in the folder `spill`."""

    def __init__(self, *, memory: Path, memory_bytes: int, spill: Path, spill_bytes: int) -> None:
        self.memory, self.spill = memory, spill
        self.most_bytes = memory_bytes + spill_bytes
        self._files = [_File(memory / "vectors", memory_bytes), _File(spill / "spilled-vectors", spill_bytes)]
        self.spilled = 0
        """Number of blocks that were placed on disk."""

    @classmethod
    def open(cls, stack: ExitStack, memory_bytes: int | None) -> SharedVectors:
        """Return vectors in new folders, which `stack` removes: in shared memory, and on disk for what does not fit there.

        Each folder takes at most half of what is free.

        `memory_bytes`: a smaller limit of the shared memory, or None.
        """
        spill = Path(stack.enter_context(scratch_folder()))
        memory = Path(stack.enter_context(scratch_folder(_SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None)))
        half = shutil.disk_usage(memory).free // 2
        shared = half if memory_bytes is None else min(half, memory_bytes)
        stack.callback(forget_mappings)
        return cls(memory=memory, memory_bytes=shared, spill=spill, spill_bytes=shutil.disk_usage(spill).free // 2)

    @property
    def file(self) -> str:
        """File of the blocks in shared memory."""
        return self._files[0].path

    def take(self, count: int) -> Block | None:
        """Return a block of `count` numbers, in shared memory if there is room and else on disk; None if neither has room."""
        block = self._files[0].take(count)
        if block is None:
            block = self._files[1].take(count)
            self.spilled += block is not None
        return block

    def give(self, block: Block) -> None:
        """Free a block for reuse."""
        self._files[block.file != self.file].give(block)
