"""Atomic writes: new content is written under another name, then renamed."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces the file `path` if the block succeeds; else `path` stays as it was.

    OSError: `path` is a device, a pipe or a folder, which a file must not replace.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    temporary = path.with_name(f".{path.name}.netsim-tmp")
    temporary.unlink(missing_ok=True)
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
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
    """Replace the file `path` by `content`, completely or not at all. OSError: it cannot be written."""
    with replace_file(path) as temporary:
        temporary.write_bytes(content)
