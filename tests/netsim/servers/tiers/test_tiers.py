"""Edges on the clock: rounds by hand, rules at each tier, edges that fail or have no members, losses, resumed in mid-round."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.edge_tiers import assert_alike, constant, played, resumed, study, tier

Trace = Callable[[str], dict[str, Any]]
RANDOM = {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.7}
MARKOV = {"kind": "markov", "mean_on_s": 8.0, "mean_off_s": 3.0}


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """Function from the lines of a CSV file to presence by it."""

    def write(rows: str) -> dict[str, Any]:
        file = tmp_path / "presence.csv"
        file.write_text(f"client,start_s,end_s\n{rows}")
        return {"kind": "trace", "path": str(file)}

    return write


def test_two_edges_of_two_clients_by_hand() -> None:
    # The model is at the edges at 1 s. Edge 0: clients take .1 + .5 + .1 and .1 + 1 + .1, so rounds end at 2.2 and 3.4 s;
    # edge 1: .1 + 2 + .1, at 3.2 and 5.4 s. Their models are up a second later; the server waits for both: 6.4 s.
    _, records = played(study(tier(rounds=2), compute=constant([0.5, 1.0, 2.0, 0.5]), rounds=1))
    assert [(row.edge, row.round, row.end_s) for row in records.edge_rounds] == [
        ("edge-0", 1, pytest.approx(2.2)),
        ("edge-1", 1, pytest.approx(3.2)),
        ("edge-0", 2, pytest.approx(3.4)),
        ("edge-1", 2, pytest.approx(5.4)),
    ]
    assert [(row.edge, row.term_start_s, row.outcome_s) for row in records.edges] == [
        ("edge-0", 1.0, pytest.approx(4.4)),
        ("edge-1", 1.0, pytest.approx(6.4)),
    ]
    (row,) = records.rounds
    assert row.end_s == pytest.approx(6.4)
    # 2 rounds of 4 clients; 2 models down and 2 up between edges and server.
    assert (row.selected, row.delivered, row.bytes_down, row.bytes_up) == (8, 8, 800, 800)
    assert (row.edges_selected, row.edges_delivered, row.backhaul_bytes) == (2, 2, 400)
    assert {update.edge for update in records.updates if update.client < 2} == {"edge-0"}


@pytest.mark.parametrize(("steps", "rounds", "round_s"), [(60, 1, 2.795), (30, 2, 2.918), (15, 4, 3.165), (6, 10, 3.904)])
def test_a_round_takes_its_steps_its_edge_rounds_and_the_way_to_the_server(steps: int, rounds: int, round_s: float) -> None:
    # T = k1 k2 t_step + k2 t_edge + t_cloud, with .024, .1232 and 1.232 s; half of each way is down, half up.
    tables = study(
        tier(rounds=rounds),
        edges={"downlink": constant(0.616), "uplink": constant(0.616)},
        downlink=constant(0.0616),
        uplink=constant(0.0616),
        compute=constant(0.024 * steps),
    )
    _, records = played(tables)
    lengths = [row.end_s - row.start_s for row in records.rounds]
    assert lengths == pytest.approx([60 * 0.024 + rounds * 0.1232 + 1.232] * 3)
    assert lengths == pytest.approx([round_s] * 3, abs=5e-4)


def test_one_edge_for_all_is_a_server_with_the_delay_of_its_link() -> None:
    links = {"uplink": {"delay": RANDOM, "channel": {"kind": "bernoulli", "success": 0.8}}, "compute": {"delay": RANDOM}}
    tables = study(tier(count=1), server={"per_round": 1}, **links)
    _, tiered = played(tables)
    del tables["edges"]
    _, flat = played(tables | {"server": {"per_round": 4}})
    # Attempts are those of the flat run, each round's two seconds and its predecessors' later.
    for row in flat.updates:
        (same,) = (one for one in tiered.updates if (one.client, one.round) == (row.client, row.round))
        assert same.outcome == row.outcome
        assert same.outcome_s - row.outcome_s == pytest.approx(2 * row.round - 1)
    assert [row.end_s for row in tiered.rounds] == pytest.approx([row.end_s + 2 * row.round for row in flat.rounds])


def test_three_tiers_by_hand() -> None:
    # Down: 1 s to a region, 1 s to an edge; two rounds of .7 s; 1 s up to the region, which does that twice (6.8 s); 1 s up.
    _, records = played(study(tier(name="region", rounds=2), tier(count=4, above="region", rounds=2), clients={"count": 8}))
    assert [row.end_s for row in records.rounds] == pytest.approx([8.8, 17.6, 26.4])
    above = {row.edge: row.above for row in records.edges}
    assert above == {
        **dict.fromkeys(["region-0", "region-1"]),
        **dict.fromkeys(["edge-0", "edge-1"], "region-0"),
        **dict.fromkeys(["edge-2", "edge-3"], "region-1"),
    }
    # In each round of the server: 2 of each region, 2 of each edge in each of those.
    assert Counter(row.edge for row in records.edge_rounds) == dict.fromkeys(["region-0", "region-1"], 6) | dict.fromkeys(
        ["edge-0", "edge-1", "edge-2", "edge-3"], 12
    )


def test_rules_at_each_tier_by_hand() -> None:
    # Clients take .2 s for the ways and 1, 2, 3, 4 s of work. Edge 0 closes at its first delivery, 1 + 1.2 s; edge 1 by its
    # deadline of 3.5 s with the first of its two updates; its model is there at 5.5 s. The server waits for the first: 3.2 s.
    first, deadline = {"kind": "synchronous", "first": 1}, {"kind": "synchronous", "deadline_s": 3.5}
    groups = {"count": 4, "groups": [{"name": "a", "count": 2}, {"name": "b", "count": 2}]}
    tiers = [
        {"name": "near", "groups": ["a"], "server": first},
        {"name": "far", "groups": ["b"], "server": deadline},
    ]
    tables = study(*tiers, clients=groups, compute=constant([1.0, 2.0, 3.0, 4.0]), rounds=1, server={"per_round": 2, "first": 1})
    _, records = played(tables)
    assert [(row.edge, row.end_s, row.close_rule) for row in records.edge_rounds] == [("a", pytest.approx(2.2), "deliveries")]
    assert records.rounds[0].end_s == pytest.approx(3.2)
    _, records = played(tables | {"server": {"per_round": 2}})
    assert [(row.edge, row.end_s, row.close_rule) for row in records.edge_rounds] == [
        ("a", pytest.approx(2.2), "deliveries"),
        ("b", pytest.approx(4.5), "deadline"),
    ]
    assert records.rounds[0].end_s == pytest.approx(5.5)


def test_an_asynchronous_server_makes_a_model_of_each_edge_that_answers() -> None:
    # Terms of 2.7 s and 4.2 s: edge 0 answers at 2.7, 5.4, ...; edge 1 at 4.2, 8.4, ...
    tables = study(
        compute=constant([0.5, 0.5, 2.0, 2.0]), rounds=4, server={"kind": "buffered", "concurrency": 2}, policy={"kind": "random"}
    )
    _, records = played(tables)
    assert [row.end_s for row in records.rounds] == pytest.approx([2.7, 4.2, 5.4, 8.1])


def test_asynchronous_edges_below_a_synchronous_server() -> None:
    # Edge 0 closes at each delivery: clients 0 and 1 take .7 s and 1.2 s, so its third delivery is that of client 0 at 1 + 1.4.
    rule = {"kind": "buffered", "buffer": 1}
    tables = study(tier(rounds=3, server=rule), compute=constant([0.5, 1.0, 0.5, 1.0]), rounds=1)
    _, records = played(tables)
    ends = [row.end_s for row in records.edge_rounds if row.edge == "edge-0"]
    assert ends == pytest.approx([1.7, 2.2, 2.4])


def test_an_edge_without_members_does_not_take_part(trace: Trace) -> None:
    # The clients of edge 1 are away until 6 s; it takes part in the round that opens after that.
    rows = "0,0,100\n1,0,100\n2,6,100\n3,6,100\n"
    _, records = played(study(availability=trace(rows), rounds=4))
    assert [(row.round, row.edge, row.outcome) for row in records.edges] == [
        (1, "edge-0", "delivered"),
        (2, "edge-0", "delivered"),
        (3, "edge-0", "delivered"),
        (4, "edge-0", "delivered"),
        (4, "edge-1", "delivered"),
    ]
    assert [row.end_s for row in records.rounds] == pytest.approx([2.7, 5.4, 8.1, 10.8])


def test_an_edge_whose_members_all_leave_answers_nothing_and_the_round_goes_on(trace: Trace) -> None:
    # The clients of edge 1 leave at 1.3 s, in mid-update: the edge has nothing to send.
    rows = "0,0,100\n1,0,100\n2,0,1.3\n3,0,1.3\n"
    _, records = played(study(availability=trace(rows), rounds=1))
    assert [(row.edge, row.outcome, row.cause, row.outcome_s) for row in records.edges] == [
        ("edge-1", "aborted", "nothing", pytest.approx(1.3)),
        ("edge-0", "delivered", None, pytest.approx(2.7)),
    ]
    assert records.rounds[0].aborted == 2


def test_what_an_edge_that_fails_coordinates_is_lost(trace: Trace) -> None:
    # Edge 1 goes away at 1.3 s and is back at 4 s.
    edges = {"availability": trace("0,0,100\n1,0,1.3\n1,4,100\n")}
    _, records = played(study(edges=edges, rounds=3))
    failed = next(row for row in records.edges if row.outcome == "aborted")
    assert (failed.edge, failed.cause, failed.outcome_s) == ("edge-1", None, pytest.approx(1.3))
    lost = [(row.client, row.outcome, row.cause) for row in records.updates if row.outcome != "delivered"]
    assert lost == [(2, "aborted", "above"), (3, "aborted", "above")]
    # The second round opens at 2.7 s without it, the third with it.
    assert [row.edge for row in records.edges if row.round == 2] == ["edge-0"]
    assert sorted(row.edge for row in records.edges if row.round == 3) == ["edge-0", "edge-1"]


def test_models_are_lost_on_the_way_between_edges_and_server() -> None:
    lossy = constant(1.0) | {"channel": {"kind": "bernoulli", "success": 0.6}}
    _, records = played(study(tier(count=4), edges={"downlink": lossy, "uplink": lossy}, rounds=200, server={"per_round": 4}))
    outcomes = Counter(row.outcome for row in records.edges)
    # Both ways get through with probability .36: within 4 standard deviations of 800 attempts.
    assert abs(outcomes["delivered"] / 800 - 0.36) < 4 * (0.36 * 0.64 / 800) ** 0.5
    assert {row.cause for row in records.edges if row.outcome == "lost"} == {"channel"}
    arrived = [row for row in records.edges if row.download_end_s == 1.0 + row.download_start_s]
    assert len(records.edge_rounds) == sum(row.term_start_s == row.term_start_s for row in arrived)


WORLDS: dict[str, dict[str, Any]] = {
    "all": study(tier(rounds=3)),
    "asynchronous above": study(tier(rounds=2), server={"kind": "buffered", "concurrency": 2}, policy={"kind": "random"}),
    "asynchronous": study(
        tier(rounds=2, server={"kind": "buffered", "buffer": 2}),
        server={"kind": "buffered", "concurrency": 2},
        policy={"kind": "random"},
    ),
    "slotted above": study(tier(rounds=2), server={"kind": "semi-synchronous", "per_round": 2, "round_s": 2.5}),
    "deadline above": study(tier(rounds=3), server={"per_round": 2, "deadline_s": 4.0}),
    "cancelled": study(tier(rounds=3), server={"per_round": 2, "first": 1, "stragglers": "cancel", "when_short": "proceed"}),
    "safa below": study(tier(rounds=3, server={"kind": "safa", "per_round": 2, "lag_tolerance": 1}), clients={"count": 7}),
    "safa below, going on": study(tier(rounds=3, goes_on=True, server={"kind": "safa", "deadline_s": 0.9}), clients={"count": 7}),
    "compass below": study(
        tier(rounds=3, server={"kind": "compass", "min_steps": 1, "max_steps": 6}),
        clients={"count": 7, "data_sizes": 30.0},
        compute={"seconds_per_sample": 0.02},
        work={"batch_size": 10},
    ),
    "compass below, going on": study(
        tier(rounds=2, goes_on=True, server={"kind": "compass", "min_steps": 1, "max_steps": 6}),
        clients={"count": 7, "data_sizes": 30.0},
        compute={"seconds_per_sample": 0.02},
        work={"batch_size": 10},
        server={"per_round": 2, "deadline_s": 4.0},
    ),
    "bound below": study(tier(rounds=3, server={"kind": "buffered", "staleness_bound": 1}), clients={"count": 7}),
    "bound": study(
        tier(rounds=2, server={"kind": "buffered", "staleness_bound": 2}),
        server={"kind": "buffered", "concurrency": 2, "staleness_bound": 1},
        policy={"kind": "random"},
    ),
    "urgent notices below": study(
        tier(rounds=3, server={"kind": "buffered", "staleness_bound": 1, "urgent_notices": True, "notice_s": 0.1}),
        clients={"count": 7, "data_sizes": 30.0},
        compute={"seconds_per_sample": 0.02},
        work={"batch_size": 10, "epochs": 4},
    ),
    "paced below": study(
        tier(rounds=3, server={"kind": "buffered", "pacing": "latency", "unknown_latency_s": 1.0}), clients={"count": 7}
    ),
    "first below": study(tier(rounds=2, server={"kind": "synchronous", "first": 1}), server={"per_round": 2, "first": 1}),
    "three tiers": study(
        tier(name="region", rounds=2),
        tier(count=4, above="region", rounds=2),
        clients={"count": 8},
        server={"kind": "buffered", "concurrency": 2},
        policy={"kind": "random"},
    ),
}


def rough(tables: dict[str, Any]) -> dict[str, Any]:
    """The scenario with random times, losses and absences of clients and edges."""
    link = {"delay": RANDOM, "channel": {"kind": "bernoulli", "success": 0.9}}
    edges = {**tables["edges"], "downlink": link, "uplink": link, "availability": MARKOV}
    return tables | {
        "rounds": 12,
        "time_limit_s": 60.0,
        "downlink": link,
        "uplink": link,
        "compute": tables["compute"] | {"delay": RANDOM},
        "availability": MARKOV,
        "edges": edges,
    }


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("name", WORLDS)
def test_resumed_in_the_middle_a_run_is_the_same_bit_for_bit(name: str) -> None:
    _, whole = played(rough(WORLDS[name]))
    for cut in (1, 4, 7):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, records = resumed(rough(WORLDS[name]), cut)
        assert_alike(records, whole)


@pytest.mark.parametrize("name", WORLDS)
def test_whatever_begins_ends_or_is_in_flight(name: str) -> None:
    built, records = played(rough(WORLDS[name]))
    pool, counts = built.server.clients, built.server.counts()
    assert counts["selected"] == sum(counts[outcome] for outcome in ("delivered", "lost", "late", "aborted", "in_flight"))
    assert len(records.updates) == counts["selected"]
    assert Counter(row.outcome for row in records.updates) == Counter(
        {name: count for name, count in {**pool.ended, "in_flight": pool.under_way}.items() if count}
    )
    # What the rounds say adds up to that, but for what came after the last of them.
    assert sum(row.selected for row in records.rounds) <= counts["selected"]
    numbers = sorted(row.number for row in records.edges)
    assert numbers == list(range(1, len(numbers) + 1))
    sent = sum(row.bytes_down + row.bytes_up for row in records.edges)
    nodes = built.server.edges[0].edges
    assert sent == nodes.life.bytes_down + nodes.life.bytes_up
    # Each edge coordinates its own members only.
    homes = {row.client: row.edge for row in records.updates}
    assert all(homes[row.client] == row.edge for row in records.updates)


def test_edges_on_a_network_by_hand() -> None:
    # Cables of 1 kB/s and no delay: server - a - client 0, server - b - client 1; edges at a and b. 100 bytes take .1 s on each.
    # The model is at a and b at .1 s; each client has it at .2 s, works .5 s, and is back at .8 s; up to the server: .9 s.
    cables = [{"a": "s", "b": "a"}, {"a": "s", "b": "b"}, {"a": "a", "b": "x"}, {"a": "b", "b": "y"}]
    network = {"links": cables, "server": "s", "clients": ["x", "y"], "bandwidth_bytes_per_s": 1000.0}
    tables = study(tier(nodes=["a", "b"]), clients={"count": 2}, network=network, rounds=2)
    tables |= {"downlink": {}, "uplink": {}}
    tables["edges"] = {"tiers": tables["edges"]["tiers"]}
    _, records = played(tables)
    assert [row.end_s for row in records.rounds] == pytest.approx([0.9, 1.8])
    (first, _) = (row for row in records.edges if row.round == 1)
    assert (first.term_start_s, first.term_end_s) == (pytest.approx(0.1), pytest.approx(0.8))
    # Both edges at a: each model crosses the cable s - a, which they share, so that it takes .2 s each way.
    tables["edges"]["tiers"][0]["nodes"] = ["a", "a"]
    tables["network"]["clients"] = ["x", "x"]
    _, records = played(tables)
    # .2 s down, .2 s on a - x which both models share, .5 s, .2 s back, .2 s up.
    assert records.rounds[0].end_s == pytest.approx(1.3)


def test_resumed_in_the_middle_transfers_of_edges_go_on() -> None:
    cables = [{"a": "s", "b": "a"}, {"a": "s", "b": "b"}]
    network = {"links": cables, "server": "s", "clients": ["a", "b", "a", "b"], "bandwidth_bytes_per_s": 150.0}
    tables = study(tier(rounds=2, nodes=["a", "b"]), network=network, rounds=8, compute={"delay": RANDOM})
    tables |= {"server": {"kind": "buffered", "concurrency": 2}, "policy": {"kind": "random"}}
    _, whole = played(tables)
    _, records = resumed(tables, 3)
    assert_alike(records, whole)
