"""A temporary folder that is gone with the process that made it, however that ends."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A folder for what several processes need as long as the block lasts.

    Where this process is killed, another one that joblib keeps for such things removes it.
    """
    from joblib.externals.loky.backend import resource_tracker

    with tempfile.TemporaryDirectory(prefix="netsim-") as folder:
        resource_tracker.register(folder, "folder")
        try:
            yield folder
        finally:
            resource_tracker.unregister(folder, "folder")
