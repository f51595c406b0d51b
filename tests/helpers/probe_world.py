"""A small scenario in which clients are asked, and what came of it."""

from __future__ import annotations

from typing import Any

from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.small_worlds import constant


def world(asked: list[list[int]], rounds: list[list[int]], clients: int = 3, **tables: Any) -> dict[str, Any]:
    scenario: dict[str, Any] = {
        "name": "asked",
        "rounds": len(rounds),
        "clients": {"count": clients},
        "server": {"per_round": 1, "when_short": "proceed"},
        "policy": {"kind": "tests.helpers.asking:Asking", "rounds": rounds, "asked": asked},
        "payload": {"down_bytes": 1000, "up_bytes": 500, "header_bytes": 2},
        # An evaluation takes a third: probes are answered at 1.75, 2 and 2.75 s.
        "downlink": constant(0.25, 0.5, 0.25),
        "compute": constant(3.0, 3.0, 6.0),
        "uplink": constant(0.5, 0.5, 0.5),
    }
    for name, table in tables.items():
        scenario[name] = scenario.get(name, {}) | table if isinstance(table, dict) else table
    return scenario


def played(tables: dict[str, Any]) -> tuple[Any, MemoryRecorder]:
    simulation, records = build(parse(tables)).simulation, MemoryRecorder()
    simulation.record_to(records)
    simulation.run()
    simulation.close()
    return simulation, records


def probes(records: MemoryRecorder, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(getattr(row, column) for column in columns) for row in records.probes]


LEARNER: dict[str, Any] = {
    "data": {"kind": "digits", "samples": 90},
    "partition": {"kind": "label-dirichlet", "concentration": 0.3},
    "network": {"kind": "mlp", "hidden": [6]},
    "optimizer": {"kind": "sgd", "learning_rate": 0.1},
    "batch_size": 8,
}


ROUGH: dict[str, Any] = {
    "name": "rough",
    "rounds": 8,
    "clients": {"count": 8},
    "server": {"per_round": 1, "deadline_s": 3.0},
    "policy": {"kind": "tests.helpers.asking:Highest"},
    "probe": {"deadline_s": 1.2, "samples": 5},
    "downlink": {
        "delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.3},
        "channel": {"kind": "gilbert-elliott", "to_bad": 0.2, "to_good": 0.6},
    },
    "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.3, "mean_excess_s": 1.2}},
    "uplink": {
        "delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.3},
        "channel": {"kind": "gilbert-elliott", "to_bad": 0.2, "to_good": 0.6},
        "sub_channels": 2,
    },
    "availability": {"kind": "markov", "mean_on_s": 8.0, "mean_off_s": 2.0},
    "payload": {"down_bytes": 100, "up_bytes": 50},
    "learner": LEARNER,
}


def with_policy(policy: dict[str, Any], rounds: int, **tables: Any) -> dict[str, Any]:
    """That world, with a policy that comes along."""
    return world([], [[0]] * rounds, **tables) | {"policy": policy}
