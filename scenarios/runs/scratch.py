"""Temporary folders, which are gone as their block ends or, at the latest, with the process that made them."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def temporary_folder(parent: str | None = None) -> Iterator[Path]:
    """A folder for as long as the block lasts, in `parent`; None: where the system has its temporary files.

    Where it cannot be removed, a warning names it: what the block has found out is as good.
    """
    folder = Path(tempfile.mkdtemp(prefix="netsim-", dir=parent))
    try:
        yield folder
    finally:
        try:
            shutil.rmtree(folder)
        except OSError as error:
            warnings.warn(f"{folder}: cannot be removed ({error.strerror or error}); remove it yourself", stacklevel=3)


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A folder for what several processes need as long as the block lasts.

    Where this process is killed, another one that joblib keeps for such things removes it.
    """
    from joblib.externals.loky.backend import resource_tracker

    with temporary_folder() as folder:
        resource_tracker.register(str(folder), "folder")
        try:
            yield str(folder)
        finally:
            resource_tracker.unregister(str(folder), "folder")
