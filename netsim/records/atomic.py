"""Small files, written so that a reader finds the old content or the new one, whole, whenever the process or machine stops."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from io import BufferedRandom


def temporary(path: Path) -> Path:
    """Return the place where the content of `path` is written before it replaces the old one: in the same folder."""
    return path.with_name(f".{path.name}.netsim-tmp")


@contextmanager
def replacing(path: Path) -> Iterator[BufferedRandom]:
    """A file, open to write and read, that takes the place of `path` as the block ends well; else `path` stays as it was."""
    begun = temporary(path)
    # A symbolic link of that name is removed, not followed, and "x" refuses to open one.
    begun.unlink(missing_ok=True)
    try:
        with begun.open("x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        begun.replace(path)
    except BaseException:
        with suppress(OSError):
            begun.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def write(path: Path, content: bytes) -> None:
    """Put `content` at `path` in one step; raises OSError."""
    with replacing(path) as file:
        file.write(content)


def _sync(folder: Path) -> None:
    """Without this a power cut can undo the renaming. Not every file system can; the file is there in any case."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
