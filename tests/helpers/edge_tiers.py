"""Scenarios with edges between server and clients, and what they leave."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.peer_training import LEARNER


def constant(seconds: Any) -> dict[str, Any]:
    """A table of a link, or of computing, that takes so many seconds."""
    return {"delay": {"kind": "constant", "value_s": seconds}}


def tier(**keys: Any) -> dict[str, Any]:
    """A tier of two edges."""
    return {"name": "edge", "count": 2} | keys


def study(*tiers: dict[str, Any], edges: dict[str, Any] | None = None, **tables: Any) -> dict[str, Any]:
    """Four clients that take 0.5 s, links to edges of 0.1 s and from edges to the server of 1 s, each way."""
    scenario: dict[str, Any] = {
        "name": "edges",
        "rounds": 3,
        "clients": {"count": 4},
        "server": {"per_round": 2, "when_short": "proceed"},
        "policy": {"kind": "all"},
        "downlink": constant(0.1),
        "compute": constant(0.5),
        "uplink": constant(0.1),
        "payload": {"down_bytes": 100, "up_bytes": 100},
        "edges": {"downlink": constant(1.0), "uplink": constant(1.0)} | (edges or {}) | {"tiers": list(tiers or [tier()])},
    }
    return scenario | tables


def learning(*tiers: dict[str, Any], **tables: Any) -> dict[str, Any]:
    """As `study`, with a small network that is trained on digits."""
    return study(*tiers, **({"learner": LEARNER, "payload": {}} | tables))


def ready(tables: dict[str, Any]) -> tuple[Any, MemoryRecorder]:
    """The wired scenario, and its records."""
    built, records = build(parse(tables)), MemoryRecorder()
    built.simulation.record_to(records)
    return built, records


def played(tables: dict[str, Any]) -> tuple[Any, MemoryRecorder]:
    """The wired scenario at its end, and its records."""
    built, records = ready(tables)
    built.simulation.run()
    built.simulation.close()
    return built, records


def resumed(tables: dict[str, Any], cut: int) -> tuple[Any, MemoryRecorder]:
    """The same, of a run that is saved after `cut` rounds, and goes on in another simulation."""
    before, records = ready(tables)
    before.simulation.run(until_round=cut)
    built = build(parse(tables))
    built.simulation.record_to(records)
    built.simulation.load_state_dict(deepcopy(before.simulation.state_dict()))
    built.simulation.run()
    built.simulation.close()
    return built, records


def assert_alike(records: MemoryRecorder, others: MemoryRecorder) -> None:
    """Fail unless two runs left the same rows of rounds, edges and updates, to the last bit."""
    for table in ("rounds", "edges", "edge_rounds", "updates"):
        assert repr(getattr(records, table)) == repr(getattr(others, table)), table
