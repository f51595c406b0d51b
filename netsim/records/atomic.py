"""Small files, written atomically: a reader finds the whole old or the whole new content, even if the process or machine stops.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from io import BufferedRandom


def temporary(path: Path) -> Path:
    """Return the temporary path, in the same folder, to which the content of `path` is first written."""
    return path.with_name(f".{path.name}.netsim-tmp")


@contextmanager
def open_replacement(path: Path) -> Iterator[BufferedRandom]:
    """Yield a file, open to write and read, that replaces `path` when the block ends without an error; otherwise `path` stays
    as it was.
    """
    unfinished = temporary(path)
    # Remove a symbolic link of that name instead of following it; mode "x" refuses to open one.
    unfinished.unlink(missing_ok=True)
    try:
        with unfinished.open("x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def write(path: Path, content: bytes) -> None:
    """Put `content` at `path` in one step; raises OSError."""
    with open_replacement(path) as file:
        file.write(content)


def _sync(folder: Path) -> None:
    """Flush the folder, so that a power cut does not undo the renaming.

    Some file systems cannot; the file is there in any case.
    """
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
