"""The lock of a folder where the file system locks none: a file beside it, and what becomes of one that is stale."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scenarios.runs.folders import lock
from scenarios.runs.folders.lock import hold_lock, lock_file
from scenarios.schema.errors import UserError

HOLDER = """
import errno, fcntl, sys
from pathlib import Path
from scenarios.runs.folders.lock import hold_lock
def none(*arguments):
    raise OSError(errno.ENOLCK, "no locks")
fcntl.flock = none
with hold_lock(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def start_holder(out: Path) -> subprocess.Popen[str]:
    """Start a process that holds the lock until it is killed, or until this process ends."""
    command = [sys.executable, "-c", HOLDER, str(out)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def none(*arguments: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("fcntl.flock", none)
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def hold(out: Path, **changes: Any) -> None:
    lock_file(out).write_text(json.dumps(lock._describe_process(os.getpid()) | changes), encoding="utf-8")


def test_who_comes_second_is_refused_and_what_a_killed_process_left_is_recognised(out: Path) -> None:
    process = start_holder(out)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        told = rf"out: process {process.pid} on \S+ writes there; wait .*\(has it ended\? remove .*/\.out\.netsim-lock\)"
        with pytest.raises(UserError, match=told), hold_lock(out):
            pass
        assert lock_file(out).is_file()
    finally:
        process.kill()
        process.communicate()
    with hold_lock(out):
        assert json.loads(lock_file(out).read_text())["pid"] == os.getpid()
        with pytest.raises(UserError, match=f"process {os.getpid()} on"), hold_lock(out):
            pass
    assert [entry.name for entry in out.parent.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("changes", "stale"),
    [
        ({"started": "1"}, True),  # a later process has the number
        ({"pid": 2**22 + 1}, True),  # there is none of that number
        ({"pid": 2**22 + 1, "host": "elsewhere"}, False),  # nobody here can tell
        ({"pid": "me"}, False),
    ],
)  # fmt: skip
def test_whether_a_lock_is_stale(out: Path, changes: dict[str, Any], stale: bool) -> None:
    hold(out, **changes)
    if stale:
        with hold_lock(out):
            pass
        assert not lock_file(out).exists()
    else:
        with pytest.raises(UserError, match="writes there; wait until it has ended"), hold_lock(out):
            pass
        assert lock_file(out).is_file()


def test_a_lock_of_another_machine_is_named(out: Path) -> None:
    hold(out, host=f"{socket.gethostname()}-other")
    with pytest.raises(UserError, match=rf"on {socket.gethostname()}-other writes there"), hold_lock(out):
        pass


def test_one_that_came_meanwhile_is_not_removed(out: Path) -> None:
    hold(out)
    lock._remove_stale_lock(lock_file(out), {"pid": 1, "host": "x", "started": None})
    assert json.loads(lock_file(out).read_text())["pid"] == os.getpid()


def test_where_none_can_be_made_there_is_a_warning(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "lock_file", lambda folder: folder / "no" / "such" / "lock")
    with pytest.warns(UserWarning, match="see that no second process writes there"), hold_lock(out):
        pass
