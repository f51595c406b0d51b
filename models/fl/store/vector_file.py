"""Vectors on disk that are used like vectors in memory, in a file without a name that the system maps."""

from __future__ import annotations

import math
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
        """Copy `vector` (d,) to the file; return a tensor that reads and writes it there.

        The place in the file is free again as soon as neither the tensor nor a view of it is in use.

        Raises:
            OSError: there is no room on the disk.
        """
        pages = math.ceil(vector.nbytes / _PAGE)
        # Units of pages: a mapping begins at a page.
        first = self._gaps.take(pages)
        assert first is not None
        end = _PAGE * (first + pages)
        if end > self.size:
            try:
                # Reserve the space first: to write to a mapping on a full disk would end the process by a signal.
                os.posix_fallocate(self._file.fileno(), self.size, end - self.size)
            except OSError:
                self._gaps.give(first, pages)
                raise
            self.size = end
        numbers = np.memmap(self._file, np.float32, "r+", offset=_PAGE * first, shape=vector.shape)
        # The tensor and all its views keep the array alive, so that its end is the end of them all. Not at exit: the file is
        # gone then anyway.
        weakref.finalize(numbers, self._gaps.give, first, pages).atexit = False
        kept = torch.from_numpy(numbers)
        kept.copy_(vector)
        return kept
