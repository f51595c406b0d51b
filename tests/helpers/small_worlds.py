"""Small worlds to be worked out by hand: constants that binary fractions hold exactly, and a scripted policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from netsim.core.protocols import IntArray, RoundView, State
from netsim.core.reports import RoundOutcome
from netsim.simulation import Simulation
from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder


class Script:
    """Plays written-out sets, and remembers what it was shown."""

    needs_updates = False

    def __init__(self, *, rounds: list[list[int]]) -> None:
        self._rounds = rounds
        self.seen: list[RoundView] = []
        self.outcomes: list[RoundOutcome] = []

    def select(self, view: RoundView) -> IntArray:
        self.seen.append(view)
        return np.array(self._rounds[view.round - 1], np.int64)

    def observe(self, outcome: RoundOutcome) -> None:
        self.outcomes.append(outcome)

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        return None


class World:
    """A scenario, built and recorded in memory."""

    def __init__(self, rounds: list[list[int]], clients: int | dict[str, Any] = 3, **tables: Any) -> None:
        scenario: dict[str, Any] = {
            "name": "world",
            "rounds": len(rounds),
            "clients": {"count": clients} if isinstance(clients, int) else clients,
            "server": {"per_round": 1, "when_short": "proceed"},
            "policy": {"kind": "tests.helpers.small_worlds:Script", "rounds": rounds},
        }
        for name, table in tables.items():
            scenario[name] = scenario.get(name, {}) | table if isinstance(table, dict) else table
        self.records = MemoryRecorder()
        self.simulation: Simulation = build(parse(scenario)).simulation
        self.simulation.record_to(self.records)

    @property
    def server(self) -> Any:
        return self.simulation.server

    def play(self) -> World:
        self.simulation.run()
        self.simulation.close()
        return self

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """The clients' table, in the order in which updates ended."""
        return [tuple(getattr(row, column) for column in columns) for row in self.records.updates]

    def rounds(self, *columns: str) -> list[tuple[Any, ...]]:
        return [tuple(getattr(row, column) for column in columns) for row in self.records.rounds]


def sized(bytes: int) -> dict[str, Any]:
    """The table `[payload]`: models and updates of so many bytes."""
    return {"down_bytes": bytes, "up_bytes": bytes}


def constant(*values_s: float) -> dict[str, Any]:
    """The delay of a link or of training: a constant for each client."""
    return {"delay": {"kind": "constant", "value_s": list(values_s)}}
