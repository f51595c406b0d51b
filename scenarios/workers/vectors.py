"""Vectors in files that several processes map: in shared memory, and beyond its bound in a file on disk."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float32]
_PAGE = 1024
"""Numbers that fit a page of memory. Blocks begin at pages, since a mapping must."""


class Block(NamedTuple):
    """Consecutive numbers of a file."""

    file: str
    first: int
    size: int

    def numbers(self) -> Numbers:
        """Return the numbers, shared by all processes that map the block."""
        return _mapped(self)


@lru_cache(maxsize=64)
def _mapped(block: Block) -> Numbers:
    # Kept, because the pages of a new mapping are mapped one by one, and the same blocks are used again and again.
    return np.memmap(block.file, np.float32, "r+", offset=4 * block.first, shape=(block.size,))


def forget_mappings() -> None:
    """Close all mappings of blocks: a deleted file takes memory as long as it is mapped."""
    _mapped.cache_clear()


class _File:
    """A file of limited size, cut into blocks by first fit: the first gap that is large enough is used."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path, self._most = str(path), most_bytes // 4
        self._gaps: list[tuple[int, int]] = [(0, self._most)]
        path.touch()
        # An empty file takes no memory: pages are allocated when they are written.
        os.truncate(path, 4 * self._most)

    def take(self, count: int) -> Block | None:
        size = -(-count // _PAGE) * _PAGE
        for place, (first, free) in enumerate(self._gaps):
            if free >= size:
                self._gaps[place : place + 1] = [(first + size, free - size)] if free > size else []
                return Block(self._path, first, count)
        return None

    def give(self, block: Block) -> None:
        size = -(-block.size // _PAGE) * _PAGE
        gaps = sorted([*self._gaps, (block.first, size)])
        merged = gaps[:1]
        for first, free in gaps[1:]:
            last, before = merged[-1]
            if last + before == first:
                merged[-1] = (last, before + free)
            else:
                merged.append((first, free))
        self._gaps = merged


class SharedVectors:
    """Blocks in shared memory, at most `memory_bytes` of them, and beyond that in a file in the folder `spill`."""

    def __init__(self, *, memory: Path, memory_bytes: int, spill: Path, spill_bytes: int) -> None:
        self._files = [_File(memory / "vectors", memory_bytes), _File(spill / "spilled-vectors", spill_bytes)]
        self.spilled = 0
        """Number of blocks that were placed on disk."""

    def take(self, count: int) -> Block | None:
        """Return a block of `count` numbers, or None if none is free."""
        block = self._files[0].take(count)
        if block is None:
            block = self._files[1].take(count)
            self.spilled += block is not None
        return block

    def give(self, block: Block) -> None:
        """Free a block for reuse."""
        self._files[block.file != self._files[0]._path].give(block)
