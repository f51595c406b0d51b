"""Scripts that act on edges: moves of clients, failures, links between edges and the server; and jammers of clients' cables."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import netsim
from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.edge_tiers import constant, played, study, tier
from tests.helpers.memory_recorder import MemoryRecorder

HERE = __name__
FATES = ["lost", "finishes", "handed-over", "with-state"]
SLOW = {"compute": constant([0.5, 1.5, 0.5, 0.5]), "rounds": 4}
TABLES = ("updates", "rounds", "edges", "edge_rounds")


def scripted(name: str, *tiers: dict[str, Any], **tables: Any) -> dict[str, Any]:
    return study(*tiers, script=f"{HERE}:{name}", **tables)


def move_and_return(world: netsim.World) -> netsim.Script:
    """Moves client 1 to edge-1 at 2.4 s, in the middle of its training, and home at 9 s."""
    yield world.until_time(2.4)
    world.move(1, "edge-1")
    yield world.until_time(9.0)
    world.move(1, "edge-0")


@pytest.mark.parametrize("moving", FATES)
def test_a_move_by_a_script_is_a_move_of_the_file(moving: str, tmp_path: Path) -> None:
    edges = {"moving": moving} | ({"state_bytes": 50} if moving == "with-state" else {})
    path = tmp_path / "moves.csv"
    path.write_text("client,start_s,end_s,edge\n1,2.4,9.0,edge-1\n")
    _, expected = played(study(edges=edges | {"moves": str(path)}, **SLOW))
    _, records = played(scripted("move_and_return", edges=edges, **SLOW))
    for table in TABLES:
        assert repr(getattr(records, table)) == repr(getattr(expected, table)), table
    assert {row.edge for row in records.updates if row.client == 1} == {"edge-0", "edge-1"}
    acts = [(row.action, row.entities, row.before, row.after) for row in records.acts]
    assert acts == [("move", "[1]", '["edge-0"]', '"edge-1"'), ("move", "[1]", '["edge-1"]', '"edge-0"')]


def fail_edge(world: netsim.World) -> netsim.Script:
    """Edge 1 fails at 1.3 s, and is repaired as round 3 opens; from then on models of edge 0 take 5 s to the server."""
    yield world.until_time(1.3)
    failure = world.take_away(edges="edge-1")
    yield world.until_round(3)
    failure.bring_back()
    world.change("edges.uplink.delay", value_s=5.0, edges="edge-0")


def test_an_edge_fails_and_a_link_gets_slower_by_hand() -> None:
    """A round takes 1 s down, .1 + .5 + .1 s at the edges, and 1 s up: 2.7 s; from round 3 on 5 s up, 6.7 s."""
    _, records = played(scripted("fail_edge", rounds=4))
    assert [row.end_s for row in records.rounds] == pytest.approx([2.7, 5.4, 12.1, 18.8])
    assert [row.edges_selected for row in records.rounds] == [2, 1, 2, 2]
    assert [row.edges_delivered for row in records.rounds] == [1, 1, 2, 2]
    failed = [(row.client, row.outcome, row.cause, row.outcome_s) for row in records.updates if row.outcome != "delivered"]
    assert failed == [(client, "aborted", "above", 1.3) for client in (2, 3)]


def fail_ahead(world: netsim.World) -> netsim.Script:
    """Edge 1 fails while it goes on ahead of its next term."""
    yield world.until_time(1.9)
    world.take_away(edges=["edge-1"])


def test_an_edge_that_goes_on_fails_with_its_members() -> None:
    """Its model leaves at 1.7 s; members begin the next round at once, and are in training at 1.9 s."""
    _, records = played(scripted("fail_ahead", tier(goes_on=True), rounds=2))
    failed = [(row.client, row.outcome_s, row.cause) for row in records.updates if row.outcome == "aborted"]
    assert failed == [(2, 1.9, "above"), (3, 1.9, "above")]
    assert [row.edges_delivered for row in records.rounds] == [1, 1]


def rough(world: netsim.World) -> netsim.Script:
    """Moves, failures and changes at times that rounds do not know; looks at edges."""
    for turn in range(8):
        yield world.until_delivery(clients=turn % world.client_count, count=2)
        here = world.edge_of(turn % 4)
        world.move([turn % 4, (turn + 1) % 4], world.edge_names[1 - world.edge_names.index(here)])
        failure = world.take_away(edges=here) if turn % 3 == 1 else None
        slower = world.scale("edges.downlink.delay", value_s=1.5, edges=here)
        away = world.take_away(turn % 4)
        yield world.after(0.7)
        away.bring_back()
        slower.restore()
        if failure is not None:
            failure.bring_back()


@pytest.mark.parametrize("moving", FATES)
def test_resumed_runs_go_on_as_scripts_left_them(moving: str) -> None:
    edges = {"moving": moving} | ({"state_bytes": 50} if moving == "with-state" else {})
    tables = scripted("rough", tier(rounds=2), edges=edges, **(SLOW | {"rounds": 12}))
    _, whole = played(tables)
    assert {"move", "take_away", "scale", "restore", "bring_back"} == {row.action for row in whole.acts}
    for cut in (3, 7):
        first, second = build(parse(tables)), build(parse(tables))
        before, after = MemoryRecorder(), MemoryRecorder()
        first.simulation.record_to(before)
        first.simulation.run(until_round=cut)
        second.simulation.record_to(after)
        second.simulation.load_state_dict(deepcopy(first.simulation.state_dict()))
        second.simulation.run()
        second.simulation.close()
        for table in (*TABLES, "acts"):
            assert repr(getattr(before, table) + getattr(after, table)) == repr(getattr(whole, table)), table


CABLES = [{"name": name, "a": name[0], "b": name[1], "bandwidth_bytes_per_s": 1000.0} for name in ("xa", "ya", "as")]
NETWORK = {"server": "s", "clients": ["x", "y"], "links": CABLES}


def networked(**tables: Any) -> dict[str, Any]:
    """Two clients at x and y, whose edge is at a; 100 bytes take .1 s on each cable, or .2 s on `as` for two at once."""
    scenario = study(tier(count=1, nodes=["a"]), clients={"count": 2}, network=NETWORK, rounds=2, **tables)
    scenario["server"]["per_round"] = 1
    return scenario | {"downlink": {}, "uplink": {}, "edges": {"tiers": scenario["edges"]["tiers"]}}


def test_a_jammer_of_the_cable_between_a_client_and_its_edge() -> None:
    """The model is at edge and clients at .2 s; training lasts until .7 s, the update until .8 s. Cable xa is jammed at .75 s."""
    truck = {"name": "truck", "law": {"kind": "sweep"}, "cables": ["xa"], "dwell_s": 0.01, "start": 0.75, "budget": 1}
    _, records = played(networked(jammers=[truck]))
    first = [(row.client, row.outcome, row.cause) for row in records.updates if row.round == 1]
    assert sorted(first) == [(0, "lost", "jammed"), (1, "delivered", None)]
    assert all(row.outcome == "delivered" for row in records.updates if row.round == 2)


def wrong(world: netsim.World, *, act: str = "") -> netsim.Script:
    yield world.until_time(0.1)
    match act:
        case "move nowhere":
            world.move(0, "edge-7")
        case "move above":
            world.move(0, "cloud-0")
        case "fail nothing":
            world.take_away(edges="egde-1")
        case "edges of clients":
            world.change("compute.delay", value_s=1.0, edges="edge-0")
        case "clients of edges":
            world.change("edges.uplink.delay", value_s=1.0, clients=[0])
        case _:
            world.edge_of(99)


@pytest.mark.each_nth(5)
@pytest.mark.parametrize(
    ("act", "told"),
    [
        ("move nowhere", "edge = 'edge-7': is no edge of clients; did you mean 'edge-1'"),
        ("move above", "edge = 'cloud-0': is no edge of clients"),
        ("fail nothing", "edges: 'egde-1' is no edge; did you mean 'edge-1'"),
        ("edges of clients", "edges: compute.delay has none; its parameters may differ between clients"),
        ("clients of edges", "clients: edges.uplink.delay has none; its parameters may differ between edges"),
        ("client", "client = 99: must be a client from 0 to 3"),
    ],
)
def test_mistakes_name_edges(act: str, told: str) -> None:
    tables = study(tier(above="cloud"), {"name": "cloud", "count": 1}) | {"script": {"kind": f"{HERE}:wrong", "act": act}}
    tables["server"]["per_round"] = 1
    with pytest.raises(UserError, match=r"script .*line \d+") as caught:
        played(tables)
    assert told in str(caught.value)


def test_without_edges_there_is_nothing_to_move_to() -> None:
    flat = study() | {"script": {"kind": f"{HERE}:wrong", "act": "move nowhere"}}
    del flat["edges"]
    with pytest.raises(UserError, match=r"this scenario has no edges; add \[edges\]"):
        played(flat)
