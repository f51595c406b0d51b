"""The critical path through tiers of edges: by hand, and against the derivative of the end of the run."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.metrics.targets import COST_COLUMNS, running_cost
from analysis.stragglers.critical_path import critical_path
from analysis.stragglers.decomposition import decompose
from analysis.stragglers.records import run_records
from tests.helpers.derivative_worlds import varied
from tests.helpers.edge_tiers import constant, study, tier
from tests.helpers.longer_phases import LONGER_S, Phase, end_s, played

LOSSY = varied(0.2, 0.5) | {"channel": {"kind": "bernoulli", "success": 0.9}}
ROUGH: dict[str, Any] = {
    "rounds": 6,
    "seed": 5,
    "downlink": varied(0.1, 0.2),
    "compute": varied(0.5, 1.0),
    "uplink": LOSSY,
    "edges": {"downlink": varied(0.3, 0.3), "uplink": LOSSY},
}
SAFA = {"kind": "safa", "per_round": 2, "lag_tolerance": 1}
STEPS = {
    "clients": {"count": 6, "data_sizes": 100.0},
    "work": {"batch_size": 10},
    "compute": ROUGH["compute"] | {"seconds_per_sample": 0.01},
}
BUFFERED = {"server": {"kind": "buffered", "concurrency": 2}, "policy": {"kind": "random"}}
WORLDS: dict[str, dict[str, Any]] = {
    "all": study(tier(rounds=3), **ROUGH),
    "first below": study(tier(rounds=2, server={"kind": "synchronous", "first": 1}), **ROUGH),
    "deadline below": study(tier(rounds=2, server={"kind": "synchronous", "deadline_s": 2.5}), **ROUGH),
    "first above": study(tier(rounds=2), **ROUGH, server={"per_round": 2, "first": 1, "when_short": "proceed"}),
    "asynchronous above": study(tier(rounds=2), **ROUGH | BUFFERED),
    "asynchronous below": study(tier(rounds=2, server={"kind": "buffered", "buffer": 2}), **ROUGH),
    "safa below": study(tier(rounds=3, server=SAFA), **ROUGH | {"clients": {"count": 6}}),
    "safa above": {
        key: table
        for key, table in study(tier(count=3, rounds=2), **ROUGH | {"clients": {"count": 6}, "server": SAFA}).items()
        if key != "policy"
    },
    "compass below": study(
        tier(rounds=3, server={"kind": "compass", "min_steps": 2, "max_steps": 8, "slack": 5.0}), **ROUGH | STEPS
    ),
    "going on": study(tier(rounds=2, goes_on=True), **ROUGH),
    "going on for long": study(tier(rounds=4, goes_on=True), **ROUGH),
    "outages": study(tier(rounds=2), **ROUGH, outages=[{"name": "mast", "mean_up_s": 9.0, "mean_down_s": 1.0}]),
    "three tiers": study(
        tier(name="region", rounds=2), tier(count=4, above="region", rounds=2), **ROUGH | {"clients": {"count": 8}, "rounds": 3}
    ),
}


def edges_of(tables: dict[str, Any]) -> list[str]:
    regions = [f"region-{n}" for n in range(2)] if len(tables["edges"]["tiers"]) > 1 else []
    return regions + [f"edge-{n}" for n in range(tables["edges"]["tiers"][-1]["count"])]


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("name", WORLDS)
def test_a_phase_that_is_longer_moves_the_end_as_often_as_the_path_holds_it(name: str) -> None:
    tables = WORLDS[name]
    path, was_s = critical_path(run_records(played(tables))), end_s(tables)
    assert path["exact"].all()
    assert path["start_s"].iloc[0] == 0
    assert path["end_s"].iloc[-1] == pytest.approx(was_s)
    assert (path["end_s"].to_numpy()[:-1] == path["start_s"].to_numpy()[1:]).all()
    of_clients = path[path["client"].notna()].groupby(["phase", "client"])["attempt"].nunique()
    of_edges = path[path["edge"].notna()].groupby(["phase", "edge"])["attempt"].nunique()
    names = edges_of(tables)
    asked = [(phase, int(client), held) for (phase, client), held in of_clients.sort_values().iloc[-3:].items()]
    asked += [(f"edge {phase}", names.index(edge), held) for (phase, edge), held in of_edges.items()]
    for phase, number, held in [*asked, ("compute", 0, of_clients.get(("compute", 0), 0))]:
        moved = (end_s(tables, Phase(phase, None, number)) - was_s) / LONGER_S
        assert moved == pytest.approx(held, abs=2e-3), (phase, number)


def test_the_path_leads_through_both_tiers_by_hand() -> None:
    # Client 3 of edge 1 takes 1 s of work, all others .5 s: the path is its own, between the ways of edge 1.
    run = played(study(rounds=1, compute=constant([0.5, 0.5, 0.5, 1.0])))
    path = critical_path(run_records(run))
    rows = zip(path["phase"], path["client"].fillna(-1), path["edge"].fillna("-"), path["end_s"].round(6), strict=True)
    assert list(rows) == [
        ("download", -1, "edge-1", 1.0),
        ("download", 3, "-", 1.1),
        ("compute", 3, "-", 2.1),
        ("upload", 3, "-", 2.2),
        ("upload", -1, "edge-1", 3.2),
    ]
    assert path["round"].tolist() == [1] * 5


def test_rounds_of_edges_are_decomposed_client_by_client() -> None:
    phases = decompose(run_records(played(study(rounds=1, compute=constant([0.5, 0.5, 0.5, 1.0])))))
    # Client 2 waits .5 s for client 3 in the round of their edge.
    assert dict(zip(phases["client"], phases["wait_s"].round(6), strict=True)) == {0: 0.0, 1: 0.0, 2: 0.5, 3: 0.0}


def test_bytes_between_edges_and_server_are_part_of_the_cost() -> None:
    # 4 clients and 2 edges, a model down and one up each, of 100 bytes: 800 + 400 bytes.
    rounds = played(study(rounds=1)).rounds
    columns = [rounds[name].to_numpy(float) for name in COST_COLUMNS["bytes"]]
    assert running_cost("bytes", columns).tolist() == [1200.0]
