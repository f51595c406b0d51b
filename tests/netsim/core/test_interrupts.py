"""Interrupts of the command that come where Python would lose them, or turn them into another error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.commands import ROOT, start

SCENARIO = """
name = "own"
rounds = 3
clients = { count = 4 }
server = { per_round = 2 }
policy = { kind = "mine:Mine" }
"""

IN_SET_NAME = """
import os, signal, time
class Interrupted:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), {signal})
        time.sleep(0.3)
class Mine:
    field = Interrupted()
    def __init__(self):
        for _ in range(600):
            time.sleep(0.1)
"""

IN_A_WEAK_CALLBACK = """
import os, signal, time, weakref
class Mine:
    def __init__(self):
        thing = type("Thing", (), {{}})()
        self.dropped = weakref.ref(thing, lambda gone: os.kill(os.getpid(), {signal}))
        del thing
        for _ in range(600):
            time.sleep(0.1)
"""

IN_A_VALIDATOR = """
import os, signal, time
from typing import Literal
from pydantic import BaseModel
class Interrupting(str):
    sent = True
    def __hash__(self):
        if not Interrupting.sent:
            Interrupting.sent = True
            os.kill(os.getpid(), {signal})
        return str.__hash__(self)
class Mine:
    def __init__(self):
        class Model(BaseModel, defer_build=True):
            field: Literal[Interrupting("x")]
        Interrupting.sent = False
        Model(field="x")
        for _ in range(600):
            time.sleep(0.1)
"""

INTERRUPTED_TWICE = """
import os, signal, time
from pathlib import Path
os.kill(os.getpid(), signal.SIGINT)
Path("held-back").touch()
signal.setitimer(signal.ITIMER_REAL, 0.0)
os.kill(os.getpid(), signal.SIGINT)
while True:
    time.sleep(0.01)
"""
# The timer stands still, as it does between its alarm and the next: the second interrupt may come there.


# One handler treats all three signals: each is sent once, and each place is tried.
@pytest.mark.parametrize(
    ("module", "number"),
    [(IN_SET_NAME, signal.SIGINT), (IN_A_WEAK_CALLBACK, signal.SIGTERM), (IN_A_VALIDATOR, signal.SIGHUP)],
)
def test_an_interrupt_where_python_or_a_library_catches_it_ends_the_command_in_one_line(
    module: str, number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(module.format(signal=int(number)), encoding="utf-8")
    (tmp_path / "own.toml").write_text(SCENARIO, encoding="utf-8")
    started = start(tmp_path, "check", "own.toml")
    _, err = started.communicate(timeout=300)
    assert (started.returncode, err) == (130, "interrupted\n")


def test_a_second_interrupt_ends_an_import_at_once(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(INTERRUPTED_TWICE, encoding="utf-8")
    (tmp_path / "own.toml").write_text(SCENARIO, encoding="utf-8")
    started = start(tmp_path, "check", "own.toml")
    _, err = started.communicate(timeout=300)
    assert (started.returncode, err) == (130, "interrupted\n")
    assert (tmp_path / "held-back").exists()


AT_THE_END = """
import atexit, os, sys
from netsim import _command
atexit.register(os.kill, os.getpid(), int(sys.argv.pop()))
_command()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_changes_nothing_once_the_command_has_ended(number: signal.Signals) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", AT_THE_END, "--version", str(int(number))],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
