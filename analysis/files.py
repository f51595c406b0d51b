"""Files that a reader finds as they were before, or complete: written under another name, and renamed."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def in_place_of(path: Path) -> Iterator[Path]:
    """Where to write what takes the place of the file `path` as the block ends well; else `path` stays as it was.

    Raises OSError where a device, a pipe or a folder is there, which a file must not replace.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    begun = path.with_name(f".{path.name}.netsim-tmp")
    begun.unlink(missing_ok=True)
    try:
        yield begun
        begun.replace(path)
    except BaseException:
        with suppress(OSError):
            begun.unlink(missing_ok=True)
        raise


def refuse_links(folder: Path, *paths: Path) -> None:
    """Raise ValueError where one of `paths` that lies below `folder` is a symbolic link, or leads over one.

    Results are written into the folder that was named, not to where a link in it points. Paths elsewhere are the user's own.
    """
    folder = folder.absolute()
    for path in (path.absolute() for path in paths):
        if not path.is_relative_to(folder):
            continue
        place = folder
        for part in path.relative_to(folder).parts:
            place = place / part
            if place.is_symlink():
                remedy = "remove it, or name another place with --out"
                raise ValueError(f"{place}: is a symbolic link, which is not followed; {remedy}")


def write_whole(path: Path, content: bytes) -> None:
    """Put `content` at `path`, or leave what is there; raises OSError."""
    with in_place_of(path) as begun:
        begun.write_bytes(content)
