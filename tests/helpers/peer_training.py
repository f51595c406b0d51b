"""Scenarios of training without a server, and what they leave."""

from __future__ import annotations

from typing import Any

import numpy as np

from netsim.core.rows import UpdateRow
from netsim.simulation import Simulation
from tests.helpers.random_worlds import built

CONSTANT = {"kind": "constant", "value_s": 0.0}
EXPONENTIAL = {"kind": "shifted-exponential", "shift_s": 0.0, "mean_excess_s": 1.0}


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
