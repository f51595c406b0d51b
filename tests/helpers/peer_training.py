"""Scenarios of training without a server, and what they leave."""

from __future__ import annotations

from typing import Any

import numpy as np

from netsim.core.rows import UpdateRow
from netsim.records.sinks import MemoryRecorder
from netsim.simulation import Simulation
from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build
from tests.helpers.random_worlds import built

CONSTANT = {"kind": "constant", "value_s": 0.0}
EXPONENTIAL = {"kind": "shifted-exponential", "shift_s": 0.0, "mean_excess_s": 1.0}
COUNT = 6
LEARNER: dict[str, Any] = {
    "data": {"kind": "digits", "samples": 120, "test_samples": 60},
    "network": {"kind": "mlp", "hidden": [6]},
    "optimizer": {"kind": "sgd", "learning_rate": 0.2},
    "batch_size": 10,
}


def study(**tables: Any) -> dict[str, Any]:
    """A ring of 5 peers that take 1 s on average, with a link's delay of 0.3 s on average."""
    scenario: dict[str, Any] = {
        "name": "peers",
        "rounds": 12,
        "clients": {"count": 5},
        "server": {"kind": "peers", "protocol": {"kind": "d-psgd"}},
        "peers": {"topology": {"kind": "ring"}, "delay": EXPONENTIAL | {"mean_excess_s": 0.3}},
        "compute": {"delay": EXPONENTIAL},
        "payload": {"up_bytes": 1000},
        "output": {"messages_table": True},
    }
    return scenario | tables


def protocol(**keys: Any) -> dict[str, Any]:
    """A `[server]` table with D-PSGD and further keys of it."""
    return {"kind": "peers", "protocol": {"kind": "d-psgd"} | keys}


def simulated(**tables: Any) -> tuple[Simulation, Any]:
    """The simulation of `study(**tables)` at its end, and its records."""
    simulation, records = built(study(**tables))
    simulation.run()
    simulation.close()
    return simulation, records


def by_round(rows: list[UpdateRow], name: str, peers: int) -> np.ndarray:
    """(rounds, K) a column of the attempts that were delivered; NaN where there is none."""
    ended = [row for row in rows if row.outcome == "delivered"]
    out = np.full((max(row.round for row in ended), peers), np.nan)
    for row in ended:
        out[row.round - 1, row.client] = getattr(row, name)
    return out


def learning(**tables: Any) -> dict[str, Any]:
    """A ring of peers that train a small network."""
    return study(**{"rounds": 4, "clients": {"count": COUNT}, "learner": LEARNER, "payload": {}} | tables)


def ready(tables: dict[str, Any]) -> tuple[Any, MemoryRecorder]:
    simulation, records = build(parse(tables)).simulation, MemoryRecorder()
    simulation.record_to(records)
    return simulation, records


def models(simulation: Any) -> np.ndarray:
    """(K, d) the peers' present models."""
    return simulation.server.learner.models().numpy()
