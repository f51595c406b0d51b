"""Clients that move between edges: each fate of an update by hand, over links and over a network, and resumed in a move."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.fl.store.models import ModelId
from models.fl.training.local_work import Update
from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build
from tests.helpers.edge_tiers import assert_alike, constant, learning, played, ready, resumed, study, tier
from tests.helpers.peer_training import LEARNER
from tests.helpers.suites import each_nth

RANDOM = {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.7}

MOVE = "client,start_s,end_s,edge\n1,2.4,100,edge-1\n"
SLOW = {"compute": constant([0.5, 1.5, 0.5, 0.5]), "rounds": 2}


def _moving(folder: Path, moving: str, rows: str = MOVE) -> dict[str, Any]:
    file = folder / "moves.csv"
    file.write_text(rows)
    return {"moves": str(file), "moving": moving}


def test_an_update_of_a_client_that_moves_is_lost(tmp_path: Path) -> None:
    # Client 1 computes from 1.1 to 2.6 s for edge 0 and moves at 2.4 s: edge 0 closes then, with client 0's update.
    # Edge 1, which closed at 1.7 s, has it in the next round, from 4.4 s on, in which it ends at 6.1 s.
    _, records = played(study(edges=_moving(tmp_path, "lost"), **SLOW))
    moved = [row for row in records.updates if row.outcome != "delivered"]
    assert [(row.client, row.edge, row.outcome, row.cause, row.outcome_s) for row in moved] == [
        (1, "edge-0", "aborted", "moved", 2.4)
    ]
    assert [(row.edge, row.end_s) for row in records.edge_rounds] == [
        ("edge-1", pytest.approx(1.7)),
        ("edge-0", pytest.approx(2.4)),
        ("edge-0", pytest.approx(5.1)),
        ("edge-1", pytest.approx(6.1)),
    ]
    assert {(row.client, row.edge) for row in records.updates if row.round == 2} == {
        (0, "edge-0"),
        (1, "edge-1"),
        (2, "edge-1"),
        (3, "edge-1"),
    }


def test_an_update_of_a_client_that_moves_is_finished_over_the_old_link(tmp_path: Path) -> None:
    # As above, but edge 0 closes at 2.7 s with both updates; the next round opens at 3.7 s, and edge 1's lasts from 4.7 to 6.4 s.
    _, records = played(study(edges=_moving(tmp_path, "finishes"), **SLOW))
    assert all(row.outcome == "delivered" for row in records.updates)
    (mine,) = (row for row in records.updates if row.client == 1 and row.round == 1)
    assert (mine.edge, mine.outcome_s) == ("edge-0", pytest.approx(2.7))
    assert [(row.edge, row.end_s) for row in records.edge_rounds][1:] == [
        ("edge-0", pytest.approx(2.7)),
        ("edge-0", pytest.approx(5.4)),
        ("edge-1", pytest.approx(6.4)),
    ]


def test_an_edge_waits_for_a_client_that_has_come_and_is_still_busy(tmp_path: Path) -> None:
    # Edge 0 has the model at .5 s, with all clients but the own ones of edge 1: 2 and 3 moved there at .2 s. Client 1 moves to
    # edge 1 at .9 s and is busy until 2.2 s. Edge 1, which has the model at 1 s, waits for it: 2.2 + 1.7 s, and 1 s up.
    edges = _moving(tmp_path, "finishes", "client,start_s,end_s,edge\n2,0.2,99,edge-0\n3,0.2,99,edge-0\n1,0.9,99,edge-1\n")
    edges["downlink"] = constant([0.5, 1.0])
    _, records = played(study(edges=edges, compute=constant([0.5, 1.5, 0.5, 0.5]), rounds=1))
    assert [(row.edge, row.end_s) for row in records.edge_rounds] == [
        ("edge-0", pytest.approx(2.2)),
        ("edge-1", pytest.approx(3.9)),
    ]
    assert records.rounds[0].end_s == pytest.approx(4.9)


def test_an_update_of_a_client_that_moves_is_handed_over_and_counts_at_the_new_edge(tmp_path: Path) -> None:
    """Edge 0 has the model at 1 s; client 1 has it at 1.1 s, computes until 2.6 s and moves at 2.4 s.

    Edge 0 closes then, with client 0's update. Client 1 ends its training and sends the update to edge 1, where it is at 2.7 s.
    Edge 1 closed its first round at 1.7 s and sent its model; it takes the update in its second, from 4.4 s on. In this it also
    asks client 1 again, which takes 1.7 s: it closes at 6.1 s.
    """
    _, records = played(study(edges=_moving(tmp_path, "handed-over"), **SLOW))
    mine = [row for row in records.updates if row.client == 1]
    assert [(row.edge, row.outcome, row.cause, row.begun_by) for row in mine] == [
        ("edge-0", "aborted", "handed-over", "open"),
        ("edge-1", "delivered", None, "earlier"),
        ("edge-1", "delivered", None, "open"),
    ]
    old, new, again = mine
    assert (old.compute_start_s, old.compute_end_s, old.outcome_s) == (pytest.approx(1.1), 2.4, 2.4)
    assert (new.selected_s, new.compute_start_s) == (2.4, 2.4)
    assert (new.compute_end_s, new.upload_end_s, new.outcome_s) == tuple(map(pytest.approx, (2.6, 2.7, 2.7)))
    assert (new.round, new.begun_after, again.round) == (2, old.number, 2)
    assert (old.bytes_down, old.bytes_up, new.bytes_down, new.bytes_up) == (100, 0, 0, 100)
    assert [(row.edge, row.end_s, row.delivered) for row in records.edge_rounds] == [
        ("edge-1", pytest.approx(1.7), 2),
        ("edge-0", pytest.approx(2.4), 1),
        ("edge-0", pytest.approx(5.1), 1),
        ("edge-1", pytest.approx(6.1), 4),
    ]


def test_what_a_client_sends_as_it_moves_is_sent_again_over_the_new_link(tmp_path: Path) -> None:
    """Client 1 sends from 2.6 s on and moves at 2.65 s: it sends again from then on, until 2.75 s.

    Both sendings have 100 bytes.
    """
    moves = "client,start_s,end_s,edge\n1,2.65,100,edge-1\n"
    _, records = played(study(edges=_moving(tmp_path, "handed-over", moves), **SLOW))
    old, new, *_ = (row for row in records.updates if row.client == 1)
    assert (old.upload_end_s, new.upload_start_s, new.upload_end_s) == tuple(map(pytest.approx, (2.65, 2.65, 2.75)))
    assert (old.bytes_up, new.bytes_up) == (100, 100)


@pytest.mark.parametrize("moving", ["handed-over", "with-state"])
def test_a_client_that_has_no_model_yet_has_nothing_to_hand_over(moving: str, tmp_path: Path) -> None:
    """Client 1 is sent the model from 1 to 1.1 s, and moves at 1.05 s."""
    moves = "client,start_s,end_s,edge\n1,1.05,100,edge-1\n"
    _, records = played(study(edges=_moving(tmp_path, moving, moves) | _state(moving), **SLOW))
    first = next(row for row in records.updates if row.client == 1)
    assert (first.outcome, first.cause, first.outcome_s) == ("aborted", "moved", 1.05)


def test_a_client_that_moves_with_its_state_goes_on_once_the_state_is_there(tmp_path: Path) -> None:
    """Client 1 moves at 2.4 s with .2 s of training left, and 50 bytes of state.

    At 100 bytes/s and a delay of .3 s, these are up from edge 0 at 3.2 s and down at edge 1 at 4 s. The client trains until
    4.2 s, and its update is there at 4.3 s. Models of 100 bytes take 1.3 s each way: edge 1 began at 1.3 s, closed at 2 s, and
    begins its second round at 2 + 1.3 + 1.3 = 4.6 s at the soonest, which then takes the update.
    """
    edges = _moving(tmp_path, "with-state") | {"state_bytes": 50}
    link = constant(0.3) | {"bandwidth_bytes_per_s": 100.0}
    compute = {"compute": constant([0.5, 1.2, 0.5, 0.5])}
    _, records = played(study(edges=edges | {"downlink": link, "uplink": link}, **SLOW | compute))
    old, new, *_ = (row for row in records.updates if row.client == 1)
    assert (old.compute_start_s, old.compute_end_s) == (pytest.approx(1.4), 2.4)
    times = (new.download_start_s, new.download_end_s, new.compute_start_s, new.compute_end_s, new.outcome_s)
    assert times == tuple(map(pytest.approx, (2.4, 4.0, 4.0, 4.2, 4.3)))
    assert (new.bytes_down, new.bytes_up, new.round, new.edge) == (0, 100, 2, "edge-1")
    # Two rounds of two edges, 100 bytes each way, and 50 bytes over two links.
    assert sum(row.backhaul_bytes for row in records.rounds) == 2 * 2 * 200 + 100


def test_a_state_that_is_lost_on_its_way_takes_the_update_with_it(tmp_path: Path) -> None:
    """The link up from edge 0 loses everything: the state, too, which leaves at 2.4 s and would be up at 3.4 s."""
    edges = _moving(tmp_path, "with-state") | {"state_bytes": 50}
    never = constant(1.0) | {"channel": {"kind": "bernoulli", "success": [1e-9, 1.0]}}
    _, records = played(study(edges=edges | {"uplink": never}, **SLOW))
    _, new, *_ = (row for row in records.updates if row.client == 1)
    assert (new.outcome, new.cause, new.outcome_s) == ("lost", "channel", pytest.approx(3.4))


def test_a_state_that_is_lost_is_sent_again(tmp_path: Path) -> None:
    """The second sending leaves half a second after the first was lost, and is lost a second later. Each counts 50 bytes."""
    edges = _moving(tmp_path, "with-state") | {"state_bytes": 50}
    never = constant(1.0) | {"channel": {"kind": "bernoulli", "success": [1e-9, 1.0]}}
    again = never | {"max_resends": 1, "resend_after_s": 0.5}
    _, records = played(study(edges=edges | {"uplink": again}, **SLOW))
    _, new, *_ = (row for row in records.updates if row.client == 1)
    assert (new.outcome, new.cause, new.outcome_s) == ("lost", "channel", pytest.approx(4.9))
    models = sum(row.bytes_down + row.bytes_up for row in records.edges)
    assert sum(row.backhaul_bytes for row in records.rounds) == models + 2 * 50


def test_an_update_that_is_handed_over_counts_with_its_age(tmp_path: Path) -> None:
    """At edge 1, version 1 is the model that arrived at 1 s, version 2 that of its first round, version 3 the model that arrived
    at 4.4 s. Client 1's update began at 1 s, as version 1 was the newest, at edge 0 from the same model. Edge 1 folds it at
    6.1 s into version 3, so that its age is 2 and its factor 1 / (1 + 2). The updates of its own members, and the second one of
    client 1, are of version 3: of age 0.
    """
    learner = LEARNER | {"staleness": {"kind": "polynomial", "exponent": 1.0}}
    tables = learning(edges=_moving(tmp_path, "handed-over"), learner=learner, **SLOW)
    built, _ = ready(tables)
    start = np.array(built.trained.model.numpy())
    built.simulation.run(until_round=1)
    middle = np.array(built.trained.model.numpy())
    built.simulation.run()
    alone = build(parse(tables)).trained
    assert alone is not None
    one, other = (ModelId(-9, "version", number) for number in (1, 2))
    for id, model in ((one, start), (other, middle)):
        alone.store.put(id, alone.model.new_tensor(model))
    # (client, round, start): the handed-over update was begun in round 1, the others in round 2.
    updates = [Update(1, 1, one, np.inf), *(Update(client, 2, other, np.inf) for client in (1, 2, 3))]
    steps = alone.train(updates).numpy() - np.stack([start, middle, middle, middle])
    sizes = np.array([alone.data_sizes[client] for client in (1, 1, 2, 3)], float)
    factors = np.array([1 / 3, 1.0, 1.0, 1.0])
    expected = middle + (sizes / sizes.sum() * factors) @ steps
    np.testing.assert_allclose(built.server.edges[1].models._versions.model.numpy(), expected, atol=2e-6)
    # Nothing is kept of it.
    assert not built.server.edges[1].models._adopted


CABLES = [{"a": "s", "b": "a"}, {"a": "s", "b": "b", "delay_s": 0.3}, {"a": "a", "b": "x"}, {"a": "b", "b": "y"}]
NETWORK = {"links": CABLES, "server": "s", "clients": ["x", "y"], "bandwidth_bytes_per_s": 1000.0}


def _networked(folder: Path, moving: str, **edges: Any) -> dict[str, Any]:
    """Two clients at x and y behind edges at a and b; client 0 moves from edge 0 to edge 1 at .4 s."""
    tables = study(tier(nodes=["a", "b"]), clients={"count": 2}, network=NETWORK, rounds=2) | {"downlink": {}, "uplink": {}}
    moves = _moving(folder, moving, "client,start_s,end_s,edge\n0,0.4,100,edge-1\n")
    return tables | {"edges": {"tiers": tables["edges"]["tiers"]} | moves | edges}


@pytest.mark.parametrize(("moving", "arrives_s"), [("finishes", 0.8), ("handed-over", 1.1), ("with-state", 1.55)])
def test_over_a_network_an_update_takes_the_route_to_the_edge_that_it_goes_to(
    moving: str, arrives_s: float, tmp_path: Path
) -> None:
    """100 bytes take .1 s on cables of 1 kB/s; the cable s - b has a delay of .3 s besides.

    Client 0 has the model at .2 s, trains until .7 s, and moves at .4 s. To edge 0 at a, its update takes .1 s: .8 s. To edge 1
    at b it crosses x - a, a - s and s - b at once: .3 + .1 s. With 150 bytes of state, these take .3 + .15 s from a to b first.
    """
    edges = {"state_bytes": 150} if moving == "with-state" else {}
    _, records = played(_networked(tmp_path, moving, **edges))
    first = next(row for row in records.updates if row.client == 0 and row.outcome == "delivered")
    assert first.outcome_s == pytest.approx(arrives_s)
    # In its next round it gets the model from edge 1, over s - b, and sends it there.
    second = next(row for row in records.updates if row.client == 0 and row.selected_s > first.outcome_s)
    assert second.edge == "edge-1"
    assert second.download_end_s - second.download_start_s == pytest.approx(0.4, abs=0.11)


def test_a_state_crosses_the_network_once(tmp_path: Path) -> None:
    """Two rounds of models of 100 bytes each way for two edges, and 150 bytes of state."""
    _, records = played(_networked(tmp_path, "with-state", state_bytes=150))
    sent = sum(row.bytes_down + row.bytes_up for row in records.edges)
    assert sum(row.backhaul_bytes for row in records.rounds) == sent + 150


def _state(moving: str) -> dict[str, Any]:
    return {"state_bytes": 50} if moving == "with-state" else {}


ROWS = "client,start_s,end_s,edge\n" + "".join(f"{n % 4},{n + 0.3},{n + 3.1},edge-{n % 2}\n" for n in range(1, 40, 2))
FATES = ["lost", "finishes", "handed-over", "with-state"]
LINK = {"delay": RANDOM, "channel": {"kind": "bernoulli", "success": 0.9}}
AGAIN = {"channel": {"kind": "bernoulli", "success": 0.4}, "max_resends": 5, "resend_after_s": 1.5}
NEVER = {"channel": {"kind": "bernoulli", "success": [1e-9, 1.0]}, "max_resends": 3, "resend_after_s": 1.0}
VARYING = {"bandwidth": {"kind": "markov-levels", "levels_bytes_per_s": [50.0, 300.0], "mean_stay_s": [1.0, 1.0]}}


def _rough(folder: Path, moving: str, kind: str) -> dict[str, Any]:
    """Clients that move often: over random links with losses, after which messages may be sent again, over links whose bandwidth
    changes, over a network, or training.
    """
    make = learning if kind == "learner" else study
    tables = make(tier(rounds=2), compute={"delay": RANDOM}, rounds=10)
    tables["edges"] |= _moving(folder, moving, ROWS + "0,3.3,9.1,edge-1\n") | _state(moving)
    if kind == "network":
        network = {"links": CABLES, "server": "s", "clients": ["x", "y", "x", "y"], "bandwidth_bytes_per_s": 150.0}
        tables["edges"] = {name: value for name, value in tables["edges"].items() if name not in ("downlink", "uplink")}
        tables["edges"]["tiers"] = [tier(rounds=2, nodes=["a", "b"])]
        return tables | {"network": network, "downlink": {}, "uplink": {}}
    link = LINK | {"bandwidth": VARYING, "again": AGAIN}.get(kind, {})
    tables["edges"] |= {"downlink": link, "uplink": link}
    return tables | {
        "uplink": link if kind == "again" else LINK,
        "availability": {"kind": "markov", "mean_on_s": 8.0, "mean_off_s": 2.0},
        "time_limit_s": 80.0,
    }


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("kind", ["links", "again", "bandwidth", "network", "learner"])
@pytest.mark.parametrize("moving", FATES[1:])
def test_resumed_in_the_middle_clients_move_on(moving: str, kind: str, tmp_path: Path) -> None:
    tables = _rough(tmp_path, moving, kind)
    whole_built, whole = played(tables)
    for cut in (3, 6):
        built, records = resumed(tables, cut)
        assert_alike(records, whole)
        if kind == "learner":
            np.testing.assert_array_equal(built.trained.model.numpy(), whole_built.trained.model.numpy())
    assert len({row.edge for row in whole.updates if row.client == 1}) == 2
    causes = {row.cause for row in whole.updates}
    assert ("handed-over" in causes) == (moving in ("handed-over", "with-state"))


RULES: dict[str, dict[str, Any]] = {
    "safa": {"kind": "safa", "per_round": 1, "lag_tolerance": 1},
    "compass": {"kind": "compass", "min_steps": 1, "max_steps": 5},
    "buffered": {"kind": "buffered", "buffer": 2},
    "semi-synchronous": {"kind": "semi-synchronous", "round_s": 1.1},
    "quorum": {"kind": "synchronous", "deadline_s": 0.9, "at_least": 1},
}


@pytest.mark.parametrize(("moving", "rule", "goes_on"), each_nth(6, product(FATES, RULES, (False, True))))
def test_clients_move_between_edges_of_any_rule(moving: str, rule: str, goes_on: bool, tmp_path: Path) -> None:
    tables = _rough(tmp_path, moving, "learner")
    # Two edges of this rule, and clients of a third that come and go.
    groups = [{"name": "a", "count": 2}, {"name": "b", "count": 2}, {"name": "edge-1", "count": 2}]
    tiers = [
        {"name": "near", "groups": ["a", "edge-1"], "rounds": 2, "goes_on": goes_on, "server": RULES[rule]},
        {"name": "far", "groups": ["b"], "server": {"kind": "buffered"}},
    ]
    tables |= {
        "clients": {"count": 6, "groups": groups},
        "compute": {"delay": RANDOM, "seconds_per_sample": 0.001},
        "learner": LEARNER if rule == "safa" else LEARNER | {"aggregation": {"kind": "fixed-share"}},
    }
    visited = ["b", "edge-1", "a"]
    rows = [f"{n % 6},{n * 0.7 + 0.3},{n * 0.7 + 3.1},{visited[n % 3]}\n" for n in range(1, 60)]
    moves = "".join(["client,start_s,end_s,edge\n", *rows])
    tables["edges"] |= {"tiers": tiers} | _moving(tmp_path, moving, moves)
    whole_built, whole = played(tables)
    counts = whole_built.server.counts()
    assert counts["selected"] == sum(counts[outcome] for outcome in ("delivered", "lost", "late", "aborted", "in_flight"))
    assert len(whole.rounds) >= 4
    for cut in (1, 3):
        built, records = resumed(tables, cut)
        assert_alike(records, whole)
        np.testing.assert_array_equal(built.trained.model.numpy(), whole_built.trained.model.numpy())


@pytest.mark.parametrize("kind", ["links", "network", "learner"])
@pytest.mark.parametrize("moving", FATES)
def test_whatever_begins_ends_though_clients_move(moving: str, kind: str, tmp_path: Path) -> None:
    built, records = played(_rough(tmp_path, moving, kind))
    counts = built.server.counts()
    assert counts["selected"] == sum(counts[outcome] for outcome in ("delivered", "lost", "late", "aborted", "in_flight"))
    numbers = sorted(row.number for row in records.updates)
    assert numbers == list(range(1, counts["selected"] + 1))
    assert sum(row.bytes_up for row in records.updates) == counts["bytes_up"]
    assert sum(row.bytes_down for row in records.updates) == counts["bytes_down"]
    # An update that goes on does so where another attempt of its client was handed over, in the same instant.
    by_number = {row.number: row for row in records.updates}
    going_on = [row for row in records.updates if row.begun_by == "earlier"]
    assert len(going_on) == sum(row.cause == "handed-over" for row in records.updates)
    for row in going_on:
        before = by_number[row.begun_after]
        assert (before.client, before.cause, before.outcome_s) == (row.client, "handed-over", row.selected_s)
        assert before.edge != row.edge
    if kind == "learner":
        held = sum(len(edge.models._adopted) for edge in built.server.edges)
        assert held <= counts["in_flight"] + 2
        assert len(built.trained.store) <= 3 * 3 + counts["in_flight"] + held


@pytest.mark.parametrize(
    ("moving", "link"),
    [("handed-over", {}), ("with-state", {}), ("with-state", VARYING), ("with-state", NEVER)],
    ids=["arrived", "delay of a state", "bytes of a state", "pause before a state is sent again"],
)
def test_resumed_while_a_move_is_under_way(moving: str, link: dict[str, Any], tmp_path: Path) -> None:
    """As above, client 1 moves at 2.4 s; the first round of the server closes later, while the state is on its way up or down.

    Handed over, the update is at edge 1 by then, and waits for the edge's next round.
    """
    edges = _moving(tmp_path, moving) | {"downlink": constant(1.0), "uplink": constant(1.0) | link}
    edges |= {"state_bytes": 400} if moving == "with-state" else {}
    tables = learning(edges=edges, payload={"down_bytes": 100, "up_bytes": 100}, **SLOW)
    if link is NEVER:
        # The state is lost at 3.4 s, and leaves again at 4.4 s.
        tables["server"] = tables["server"] | {"deadline_s": 4.0}
    expected, whole = played(tables)
    first, _ = ready(tables)
    first.simulation.run(until_round=1)
    state = first.simulation.state_dict()["server"]["moves"]
    assert list(state["left"]) == ([1] if moving == "with-state" else [])
    if link is NEVER:
        assert state["states"]["sendings"] == {1: [0, 1, 1, 4.4]}
    built, records = resumed(tables, 1)
    assert_alike(records, whole)
    np.testing.assert_array_equal(built.trained.model.numpy(), expected.trained.model.numpy())
