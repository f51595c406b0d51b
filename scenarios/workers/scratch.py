"""Temporary folders that are removed at the end of their block or, at the latest, with the process that created them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from netsim.core.user_warnings import warn_user
from scenarios.workers.safe_path import safe_path


@contextmanager
def temporary_folder(parent: str | None = None) -> Iterator[Path]:
    """Yield a new folder in `parent`, by default in the system's folder of temporary files, and remove it after the block.

    Warns of a folder that cannot be removed; the result of the block is as good.
    """
    folder = Path(tempfile.mkdtemp(prefix="netsim-", dir=parent))
    try:
        yield folder
    finally:
        try:
            shutil.rmtree(folder)
        except OSError as error:
            warn_user(f"{folder}: cannot be removed ({error.strerror or error}); remove it yourself")


@contextmanager
def scratch_folder(parent: str | None = None) -> Iterator[str]:
    """Yield a folder in `parent`, as of `temporary_folder`, that several processes share for the length of the block.

    joblib's resource tracker, a process of its own, removes the folder if this process is killed.
    """
    with safe_path():  # both calls start the tracker if it does not run
        from joblib.externals.loky.backend import resource_tracker

    with temporary_folder(parent) as folder:
        with safe_path():
            resource_tracker.register(str(folder), "folder")
        try:
            yield str(folder)
        finally:
            with safe_path():
                resource_tracker.unregister(str(folder), "folder")
