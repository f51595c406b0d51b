"""Workers in this process, for tests of the queue and of what a learner makes of workers; a small scenario that is trained."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from scenarios.workers.processes import Killed
from scenarios.workers.training import Ticket, TrainingWorkers, train
from tests.helpers.commands import tables

NETWORK = """
import os, signal
from pathlib import Path
from torch import nn

class Net(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(inputs[0] * inputs[1] * inputs[2], classes))
        self.register_buffer("kept", __import__("torch").zeros(1))

    def forward(self, x):
        if self.training and os.getpid() != PARENT:
            on_training(os)
        return self.layers(x)

PARENT = 0

def on_training(os):
    pass
"""
"""Module of a network that does something as it is trained elsewhere than in the process `PARENT`."""
ONCE = """
    try:
        Path({mark!r}).touch(exist_ok=False)  # only the first of the workers
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.{signal})
"""
"""Act that sends a signal to the first worker that trains, and to no other."""


class WorkersHere(TrainingWorkers):
    """`count` workers whose jobs are computed as this process waits, in the order in which they were begun.

    `kills(ticket)`: returns True to end the worker in the midst of a ticket. `room`: most tickets whose vectors are held.
    """

    def __init__(self, count: int, kills: Callable[[Ticket], bool] = lambda ticket: False, room: int = 1000) -> None:
        super().__init__(count)
        self.begun: list[tuple[int, int]] = []
        """Client and round of each job that a worker began."""
        self.held = 0
        """Tickets whose vectors are held."""
        self._kills, self._room, self._at_work = kills, room, list[tuple[int, Ticket]]()

    def open(self, stack: ExitStack) -> None:
        assert self._recipe is not None
        self._bench = self._recipe.portable().make(self._x, self._y)
        self._free = list(range(self.count))

    def send(self, line: int, ticket: Ticket) -> bool:
        from models.fl.training.stacks import Vectors

        if self.held == self._room:
            return False
        self.held += 1
        parts = ticket.starts
        shift = None if parts.shift is None else parts.shift.clone()
        ticket.place = Vectors(parts.rows.clone(), [moment.clone() for moment in parts.moments], shift)
        self.begun.append((ticket.stack.clients[0], ticket.stack.rounds[0]))
        self._at_work.append((line, ticket))
        return True

    def tend(self) -> None:
        for line, _ in self._broken:
            self._free.append(line)
        self._broken.clear()
        at_work, self._at_work = self._at_work, []
        for line, ticket in at_work:
            killed = self._kills(ticket)
            outcome: Any = Killed("it was killed") if killed else train(self._bench, f"worker {line}", ticket.stack, ticket.place)
            self.on_end(line, ticket, outcome)

    def fetch(self, ticket: Ticket, ends: Any) -> None:
        for value, there in zip(ends.parts(), ticket.place.parts(), strict=False):
            value.copy_(there)

    def release(self, ticket: Ticket) -> None:
        self.held -= ticket.place is not None
        ticket.place = None


def small(workers: int, **server: Any) -> dict[str, Any]:
    """Return the tables of a scenario; `server`: its table, by default a buffered one."""
    return {
        "name": "workers",
        "rounds": 4,
        "clients": {"count": 8},
        "server": server or {"kind": "buffered", "concurrency": 4, "buffer": 2},
        "policy": {"kind": "random"},
        "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.5, "mean_excess_s": 1.0}},
        "uplink": {"channel": {"kind": "bernoulli", "success": 0.8}},
        "learner": {
            "data": {"kind": "digits", "samples": 160, "test_samples": 50},
            "network": {"kind": "cnn", "channels": [2], "hidden": 4, "norm": "batch"},
            "optimizer": {"kind": "adam", "learning_rate": 0.01},
            "optimizer_state": "kept",
            "max_steps": 2,
            "workers": workers,
        },
    }


def results(folder: Path) -> dict[str, bytes]:
    """Return the content of the tables of a run, by file."""
    return {name: content for name, content in tables(folder).items() if name.endswith(".parquet")}


def own_network(tmp_path: Path, monkeypatch: Any, module: str, act: str, workers: int = 0) -> dict[str, Any]:
    """Return a scenario whose network executes `act` as a worker trains it."""
    text = NETWORK.replace("PARENT = 0", f"PARENT = {os.getpid()}").replace("    pass\n", act)
    (tmp_path / f"{module}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return small(workers) | {"learner": small(workers)["learner"] | {"network": {"kind": f"{module}:Net"}}}
