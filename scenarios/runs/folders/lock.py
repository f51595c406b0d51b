"""Locks on folders of results, so that one process at a time writes there."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from netsim.core.protocols import Notes
from netsim.core.user_warnings import warn_user
from scenarios.schema.errors import UserError


@contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of an existing folder within the block; raises UserError if another process holds it.

    The operating system keeps the lock with the open folder, not in a file: it always ends with the process, and is never
    stale. On file systems without locks of folders (some network file systems), a file beside the folder is used.
    """
    handle, by_file = os.open(folder, os.O_RDONLY), False
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"{folder}: another process writes there; wait until it has ended, or name another folder") from error
        except OSError:
            by_file = True
        with _hold_lock_file(folder) if by_file else nullcontext():
            yield
    finally:
        os.close(handle)


def lock_file(folder: Path) -> Path:
    """Return the path of the lock file for a folder that cannot be locked itself."""
    resolved = folder.resolve()
    return resolved.with_name(f".{resolved.name}.netsim-lock")


@contextmanager
def _hold_lock_file(folder: Path) -> Iterator[None]:
    """Hold a lock by a file beside the folder within the block; raises UserError if another process holds it."""
    path, this_process = lock_file(folder), _describe_process(os.getpid())
    while not _create_lock_file(path, this_process):
        holder = _read_holder(path)
        if holder is not None and not _has_ended(holder):
            writer = f"process {holder['pid']} on {holder['host']} writes there" if holder else "another process writes there"
            raise UserError(f"{folder}: {writer}; wait until it has ended, or name another folder (has it ended? remove {path})")
        if holder is not None:
            _remove_stale_lock(path, holder)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()


def _create_lock_file(path: Path, content: Notes) -> bool:
    """Create the lock file; return False if another process has it.

    If it cannot be created for another reason, warn and return True: the run goes on without a lock.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            json.dump(content, file)
    except FileExistsError:
        return False
    except OSError as error:
        message = f"{path}: cannot be made ({error.strerror}), and the folder cannot be locked"
        warn_user(f"{message}; see that no second process writes there")
    return True


def _read_holder(path: Path) -> Notes | None:
    """Return the process that a lock file names; {} if it is unreadable, None if the file no longer exists."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    is_readable = isinstance(content, dict) and isinstance(content.get("pid"), int) and "host" in content
    return content if is_readable else {}


def _describe_process(pid: int) -> Notes:
    """Describe a process of this machine.

    `started` distinguishes it from a later process of the same number, if the system reports it.
    """
    started = None
    with suppress(OSError, IndexError):
        started = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    return {"pid": pid, "host": socket.gethostname(), "started": started}


def _has_ended(holder: Notes) -> bool:
    """Return True if a lock is stale: its process ran on this machine and has ended."""
    if not holder or holder["host"] != socket.gethostname():
        return False
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    # Another process may have got the number of the ended one.
    return bool(_describe_process(holder["pid"])["started"] != holder.get("started"))


def _remove_stale_lock(path: Path, stale: Notes) -> None:
    """Remove a stale lock, but keep a lock by which another process has replaced it meanwhile."""
    # A rename is atomic, so only one of several processes gets the file; its content cannot change between check and removal.
    aside = path.with_name(f"{path.name}-{os.getpid()}")
    with suppress(FileNotFoundError):
        path.rename(aside)
        if _read_holder(aside) == stale:
            aside.unlink()
        else:
            aside.rename(path)
