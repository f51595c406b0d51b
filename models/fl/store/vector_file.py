"""Vectors on disk that are used like vectors in memory: a file that the system maps, and that has no name."""

from __future__ import annotations

import os
import sys
import tempfile
import weakref

import numpy as np
import torch
from torch import Tensor

from models.fl.store.gaps import Gaps

_PAGE = 4096
"""Bytes of a page of memory. A mapping must begin at one."""


class VectorFile:
    """File in the system's folder of temporary files that holds vectors; its pages are in memory as far as there is room.

    The file has no name, so that the system removes it with this process, however the process ends.

    >>> file = VectorFile()
    >>> file.copy(torch.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="netsim-")  # noqa: SIM115 - closed with this object
        self._gaps = Gaps(sys.maxsize)
        self.size = 0
        """Bytes of the file: the most that were in use at a time."""

    def copy(self, vector: Tensor) -> Tensor:
        """Return `vector` (d,) in the file; its place is used again once nothing refers to the tensor or a view of it.

        Raises:
            OSError: there is no room on the disk.
        """
        pages = -(-vector.nbytes // _PAGE)
        first = self._gaps.take(pages)
        assert first is not None
        end = _PAGE * (first + pages)
        if end > self.size:
            try:
                # Not by writing to a mapping, where a full disk would end the process by a signal.
                os.posix_fallocate(self._file.fileno(), self.size, end - self.size)
            except OSError:
                self._gaps.give(first, pages)
                raise
            self.size = end
        numbers = np.memmap(self._file, np.float32, "r+", offset=_PAGE * first, shape=vector.shape)
        # A tensor and all its views keep the array alive.
        weakref.finalize(numbers, self._gaps.give, first, pages).atexit = False
        kept = torch.from_numpy(numbers)
        kept.copy_(vector)
        return kept
