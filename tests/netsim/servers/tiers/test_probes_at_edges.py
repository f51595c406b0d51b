"""Edges that ask their clients before they select: as one server asks, by hand, on disk, and resumed in mid-round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis import open_run
from scenarios.runs.reading import parse
from scenarios.runs.run import run
from tests.helpers.edge_tiers import assert_alike, constant, learning, played, resumed, study, tier
from tests.helpers.random_worlds import same

RANDOM = {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.7}
LOSSY = {"kind": "bernoulli", "success": 0.7}
ALL_ASKED = {"kind": "power-of-choice", "candidates": 4}
FREE = {"timed": False}
NO_BACKHAUL = {"downlink": constant(0.0), "uplink": constant(0.0)}


def test_one_edge_without_backhaul_asks_as_a_server_does() -> None:
    # All clients are candidates, so that nothing is drawn by the policy, whose numbers would be those of the edge.
    rule = {"per_round": 2, "when_short": "proceed"}
    links = {"uplink": {"delay": RANDOM, "channel": LOSSY}, "compute": {"delay": RANDOM}, "rounds": 5, "probe": FREE}
    one = tier(count=1, server=rule | {"kind": "synchronous"}, policy=ALL_ASKED)
    tables = learning(one, server={"per_round": 1}, edges=NO_BACKHAUL, **links)
    _, tiered = played(tables)
    del tables["edges"]
    _, flat = played(tables | {"server": rule, "policy": ALL_ASKED})
    # An edge counts the model that arrives as a version of its own.
    assert same([row._replace(version=0, edge=None) for row in tiered.probes], [row._replace(version=0) for row in flat.probes])
    assert len(flat.probes) == 20
    assert len({row.loss for row in flat.probes}) == 20
    columns = ("round", "start_s", "end_s", "selected", "delivered", "lost", "probes", "probes_answered", "accuracy", "loss")
    for row, other in zip(tiered.rounds, flat.rounds, strict=True):
        assert [getattr(row, name) for name in columns] == [getattr(other, name) for name in columns]
    attempts = [[(row.round, row.client, row.outcome, row.outcome_s) for row in records.updates] for records in (tiered, flat)]
    assert attempts[0] == attempts[1]


def test_two_edges_ask_their_own_clients_by_hand() -> None:
    # Models are at the edges at 1 s; a client takes .7 s in all. Each edge asks both of its clients and selects the one that it
    # is told to, in two rounds a term; edge models are up a second after the second round, at 3.4 s.
    asked, chosen = [[0, 1, 2, 3], [1, 3]], [[1, 2], [0, 3]]
    policy = {"kind": "tests.helpers.asking:AskingMembers", "rounds": chosen, "asked": asked}
    _, records = played(study(tier(rounds=2, policy=policy), rounds=1, probe=FREE))
    assert [(row.edge, row.round, row.client, row.sent_s, row.outcome_s) for row in records.probes] == [
        ("edge-0", 1, 0, 1.0, 1.0),
        ("edge-0", 1, 1, 1.0, 1.0),
        ("edge-1", 1, 2, 1.0, 1.0),
        ("edge-1", 1, 3, 1.0, 1.0),
        ("edge-0", 2, 1, pytest.approx(1.7), pytest.approx(1.7)),
        ("edge-1", 2, 3, pytest.approx(1.7), pytest.approx(1.7)),
    ]
    assert {(row.edge, row.round, row.client) for row in records.updates} == {
        *(("edge-0", 1, 1), ("edge-1", 1, 2), ("edge-0", 2, 0), ("edge-1", 2, 3))
    }
    (row,) = records.rounds
    assert row.end_s == pytest.approx(3.4)
    assert (row.probes, row.probes_answered, row.selected, row.bytes_down) == (6, 6, 4, 400)


def test_losses_are_those_of_the_model_of_the_edge_that_asks() -> None:
    # Edge 0 has made two rounds when the server's model has not changed yet: its clients' losses have.
    policy = {"kind": "power-of-choice", "candidates": 2}
    one = tier(rounds=2, server={"kind": "synchronous", "per_round": 1}, policy=policy)
    _, records = played(learning(one, rounds=1, probe=FREE))
    losses = {(row.round, row.client): row.loss for row in records.probes}
    assert sorted(losses) == [(round, client) for round in (1, 2) for client in range(4)]
    assert all(losses[1, client] != losses[2, client] for client in range(4))


ASYNCHRONOUS: dict[str, Any] = {"server": {"kind": "buffered", "concurrency": 2}, "policy": {"kind": "random"}, "rounds": 8}
ROUGH: dict[str, Any] = ASYNCHRONOUS | {
    "uplink": {"delay": RANDOM, "channel": LOSSY},
    "compute": {"delay": RANDOM},
    "clients": {"count": 8},
    "availability": {"kind": "markov", "mean_on_s": 8.0, "mean_off_s": 3.0},
    "probe": FREE | {"samples": 5},
}
HIGHEST = tier(rounds=3, server={"kind": "synchronous", "per_round": 2}, policy={"kind": "tests.helpers.asking:Highest"})
"""Edges that ask two of their clients at random. Some edge is in the middle of a round whenever the server has closed one."""


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("cut", [1, 3, 6])
def test_resumed_in_mid_round_a_run_is_the_same_bit_for_bit(cut: int) -> None:
    tables = learning(HIGHEST, **ROUGH)
    (built, straight), (_, records) = played(tables), resumed(tables, cut)
    assert_alike(records, straight)
    assert same(records.probes, straight.probes)
    counts = built.server.counts()
    assert counts["probes"] == len(straight.probes) == sum(row.probes for row in straight.rounds) > 20


def test_edges_that_ask_different_things_share_a_table(tmp_path: Path) -> None:
    # Edges of the tier "far" ask for their loss, those of "near" send a request only, and have a deadline.
    groups = {"count": 4, "groups": [{"name": "a", "count": 2}, {"name": "b", "count": 2}]}
    far = {"name": "far", "groups": ["a"], "server": {"kind": "synchronous", "per_round": 1}}
    far["policy"] = ALL_ASKED | {"candidates": 2}
    near = {"name": "near", "groups": ["b"], "server": {"kind": "synchronous", "deadline_s": 4.0}}
    near["policy"] = {"kind": "fedcs", "round_s": 3.0, "asked": 1.0, "uploads": "parallel"}
    summary = run(parse(learning(far, near, clients=groups, probe=FREE)), tmp_path / "run")
    assert summary["books"]["balanced"]
    assert summary["totals"]["probes"] == 12
    opened = open_run(tmp_path / "run")
    assert opened.probes.groupby("edge")["loss"].count().to_dict() == {"a": 6, "b": 0}
    assert opened.rounds["probes"].tolist() == [4, 4, 4]
