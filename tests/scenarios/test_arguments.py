"""NumPy numbers and arrays are numbers and lists, wherever Python gives a scenario or a grid."""

from __future__ import annotations

from typing import Any

import numpy as np

import netsim
from scenarios.api import _make_plan

TABLES: dict[str, Any] = {
    "name": "study",
    "rounds": np.int64(5),
    "clients": {"count": np.int32(4)},
    "server": {"per_round": 2},
    "policy": {"kind": "random"},
    "uplink": {"delay": {"kind": "constant", "value_s": np.linspace(0.5, 2.0, 4)}},
}


def test_a_dictionary_with_numpy_values_is_a_scenario() -> None:
    for scenario in (netsim.load(TABLES), netsim.Scenario(**TABLES)):
        assert (scenario.rounds, scenario.uplink.delay.value_s) == (5, [0.5, 1.0, 1.5, 2.0])
    assert len(netsim.run(TABLES).rounds) == 5


def test_changes_take_numpy_values() -> None:
    changed = netsim.load(TABLES, {"rounds": np.int64(7), "server.deadline_s": np.float64(3.0), "sweep.seeds": np.arange(3)})
    assert (changed.rounds, changed.server.deadline_s, changed.sweep.seeds) == (7, 3.0, [0, 1, 2])


def test_a_grid_takes_numpy_values() -> None:
    planned = _make_plan(TABLES, None, {"server.per_round": np.arange(1, 4)}, np.arange(2), variants=None, strict=False)
    assert planned.variants == ["per_round=1", "per_round=2", "per_round=3"]
    assert [p.seed for p in planned.runs[:2]] == [0, 1]


def test_help_of_a_scenario_names_its_own_error() -> None:
    told = netsim.Scenario.__init__.__doc__ or ""
    assert "ScenarioError" in told
    assert "pydantic" not in told
