"""Jammers of the cables of `[network]`: by hand, ties of times, tables, scripts, resuming and mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import netsim
from scenarios.runs.reading import parse
from scenarios.runs.run import go_on, run
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.networks import LINE, SHARED

AT_ONCE: dict[str, Any] = LINE | {"links": [link | {"delay_s": 0.0} for link in LINE["links"]]}
TWO: dict[str, Any] = {
    "name": "two",
    "rounds": 1,
    "clients": {"count": 2},
    "server": {"per_round": 2},
    "policy": {"kind": "all"},
    "network": AT_ONCE,
    "output": {"transfers_table": True},
}
ALL_KINDS: list[dict[str, Any]] = [
    {"name": "timed", "law": {"kind": "random"}, "cables": "all", "dwell_s": 2.0},
    {"name": "rounds", "law": {"kind": "reactive", "target": "used"}, "cables": ["root-root.0", "root-root.1"], "budget": 6},
]


def jammer(*cables: str, **keys: Any) -> dict[str, Any]:
    return {"name": "truck", "law": {"kind": "sweep"}, "cables": list(cables), "dwell_s": 1.0, "budget": 1} | keys


def outcomes(up_bytes: Any, *jammers: dict[str, Any], **more: Any) -> list[tuple[float, str, str | None]]:
    """Return the end, outcome and cause of the updates of one round, by client."""
    rows = netsim.run(TWO | {"payload": {"up_bytes": up_bytes}, "jammers": list(jammers)} | more).clients.sort_values("client")
    causes = [cause if isinstance(cause, str) else None for cause in rows["cause"]]
    return list(zip(rows["outcome_s"], rows["outcome"].astype(str), causes, strict=True))


def test_a_jammed_cable_loses_what_crosses_it_and_nothing_else() -> None:
    """Both have 500 bytes/s: client 0 ends after 1 s, client 1, not over `far`, after 1.5 s. A hit transfer takes its time."""
    untouched, other = (1.0, "delivered", None), (1.5, "delivered", None)
    both = {"at_once": 2, "budget": 2, "start": 0.5}
    assert outcomes([500, 1000]) == [untouched, other]
    assert outcomes([500, 1000], jammer("far", start=0.5)) == [(1.0, "lost", "jammed"), other]
    assert outcomes([500, 1000], jammer("near", start=1.25)) == [untouched, (1.5, "lost", "jammed")]
    assert outcomes([500, 1000], jammer("far", "near", law={"kind": "sweep", "width": 2}, **both)) == [
        (1.0, "lost", "jammed"),
        (1.5, "lost", "jammed"),
    ]


def test_what_ends_as_jamming_begins_or_begins_as_it_ends_is_not_hit() -> None:
    safe = [(1.0, "delivered", None), (1.5, "delivered", None)]
    assert outcomes([500, 1000], jammer("far", start=1.0)) == safe
    later = {"compute": {"delay": {"kind": "constant", "value_s": 1.5}}}
    # The dwell of one second from 0.5 s on is over as the updates begin, at 1.5 s.
    assert outcomes([500, 1000], jammer("near", start=0.5), **later) == [(2.5, *safe[0][1:]), (3.0, *safe[1][1:])]
    assert outcomes([500, 1000], jammer("near", start=1.5), **later)[1] == (3.0, "lost", "jammed")
    # The model of client 0 arrives at 0.5 s, as the update of client 1 does; the update that begins then lets the jammer decide.
    meet = {"payload": {"down_bytes": [500, 0], "up_bytes": [1000, 500]}}
    assert outcomes(None, jammer("near", start=0.5), **meet) == [(1.5, "lost", "jammed"), (0.5, "delivered", None)]


def test_an_outage_comes_before_jamming_and_jamming_before_a_trace_that_ends(tmp_path: Path) -> None:
    digger = {"outages": [{"name": "digger", "links": ["near"], "from_s": 0.25, "to_s": 0.5}]}
    hit = jammer("near", start=0.5)
    assert [cause for *_, cause in outcomes([500, 1000], hit, network=AT_ONCE | digger)] == ["digger", "digger"]
    trace = tmp_path / "trace.csv"
    trace.write_text("time_s,bytes_per_s\n0,1000\n1,0\n", encoding="utf-8")
    near = {"name": "near", "a": "y", "b": "s", "bandwidth": {"kind": "trace", "path": str(trace), "after_end": "stop"}}
    ends = AT_ONCE | {"links": [AT_ONCE["links"][0], near]}
    assert [cause for *_, cause in outcomes([0, 2000], network=ends)] == [None, "trace-end"]
    assert [cause for *_, cause in outcomes([0, 2000], hit, network=ends)] == [None, "jammed"]


@pytest.mark.parametrize(
    "server",
    [
        {"kind": "synchronous", "per_round": 3},
        {"kind": "buffered", "concurrency": 4, "buffer": 2},
        {"kind": "semi-synchronous", "per_round": 3, "round_s": 20.0},
    ],
    ids=["synchronous", "buffered", "semi-synchronous"],
)
def test_cost_and_damage_agree_in_all_tables(server: dict[str, Any]) -> None:
    done = netsim.run(SHARED | {"server": server, "output": {"transfers_table": True}, "jammers": ALL_KINDS})
    jams, rounds, lost = done.jams, done.rounds, done.transfers["cause"] == "jammed"
    assert len(jams) >= rounds["jam_dwells"].sum() > 6
    assert (jams["jammer"] == "rounds").sum() <= 6
    assert jams["hit"].sum() >= rounds["jammed"].sum() > 0
    # An outage outranks jamming, and what the run leaves under way has no cause yet.
    assert 0 < lost.sum() <= jams["hit"].sum()
    assert 0 < (done.clients["cause"] == "jammed").sum() < lost.sum()
    assert jams["channel"].between(0, 7).all()
    assert done.summary["books"]["balanced"]


def test_messages_between_peers_are_lost_to_jammed_cables_and_training_is_not() -> None:
    """Messages leave at 0.25 s and end at 0.75 s; both are hit, and sent again 0.1 s later. Training stays at home."""
    peers = {
        "name": "peers",
        "rounds": 1,
        "clients": {"count": 2},
        "server": {"kind": "peers", "protocol": {"kind": "d-psgd", "retry_s": 0.1}},
        "compute": {"delay": {"kind": "constant", "value_s": 0.25}},
        "peers": {"topology": {"kind": "complete"}},
        "payload": {"up_bytes": 500},
        "network": AT_ONCE,
        "output": {"messages_table": True},
        "jammers": [jammer("far", start=0.5, dwell_s=0.25)],
    }
    done = netsim.run(peers)
    assert [(one.end_s, one.outcome) for one in done.messages.itertuples()] == [(0.75, "lost")] * 2 + [(1.35, "delivered")] * 2
    assert done.rounds["end_s"].tolist() == pytest.approx([1.35])
    assert done.rounds["jammed"].tolist() == done.jams["hit"].tolist() == [2]


def test_a_run_goes_on_with_jammed_transfers_under_way(tmp_path: Path) -> None:
    scenario = parse(SHARED | {"jammers": ALL_KINDS, "output": {"transfers_table": True}})
    run(scenario, tmp_path / "whole")

    def interrupt(simulation: Any) -> None:
        """Interrupt with hit transfers under way on jammed cables: the checkpoint is that of this very round."""
        network = simulation.server.clients.medium.down.network
        # Background traffic without an end never leaves its cables, so that its restore shows nowhere.
        hit = any(journey.jammed and not journey.endless for journey in network.under_way.values())
        if simulation.server.round >= 5 and any(network.jammed.jams) and hit:
            raise KeyboardInterrupt

    assert run(scenario, tmp_path / "cut", after_round=interrupt)["ended"] == "interrupted"
    assert go_on(tmp_path / "cut")["ended"] == "rounds"
    for name in ("rounds", "clients", "jams", "transfers"):
        whole, other = (pq.read_table(tmp_path / one / f"{name}.parquet") for one in ("whole", "cut"))
        assert whole.equals(other), name


MESH: dict[str, Any] = {
    "network": {key: SHARED["network"][key] for key in ("server", "clients", "generator")},
    "output": {"messages_table": True},
}
SLOTTED: dict[str, Any] = {
    "clients": {"count": 6},
    "slots": {"rounds": 2},
    "opinions": {"synthetic": {"worth": {"from": 0.4, "to": 0.9}}, "size_bytes": 40},
    "payload": {"up_bytes": 100},
    "compute": {"delay": {"kind": "constant", "value_s": 0.5}},
}
MIXED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "server": (SHARED, ["uplink", "downlink"]),
    "edges": (
        SHARED | {"server": {"per_round": 2}, "edges": {"tiers": [{"name": "town", "count": 2, "nodes": ["root.0", "root.1"]}]}},
        ["uplink"],
    ),
    "fl-fa": (
        SLOTTED | MESH | {"server": {"kind": "fl-fa", "per_round": 3}, "policy": {"kind": "round-robin"}},
        ["opinions", "uplink"],
    ),
    "fl-da": (
        SLOTTED
        | MESH
        | {
            "server": {"kind": "fl-da", "per_round": 3},
            "policy": {"kind": "bp-index"},
            "peers": {"topology": {"kind": "complete"}},
            "belief": {"message_bytes": 20},
        },
        ["peers", "downlink"],
    ),
    "peers": (
        MESH
        | {
            "clients": {"count": 6},
            "server": {"kind": "peers", "protocol": {"kind": "d-psgd", "retry_s": 0.1}},
            "peers": {"topology": {"kind": "complete"}},
            "payload": {"up_bytes": 100},
            "compute": {"delay": {"kind": "constant", "value_s": 0.5}},
        },
        ["peers"],
    ),
}


@pytest.mark.parametrize("kind", MIXED)
def test_cables_and_other_targets_are_jammed_side_by_side(kind: str, tmp_path: Path) -> None:
    tables, targets = MIXED[kind]
    noise = {"law": {"kind": "random"}, "at_once": 2, "dwell_s": 0.3, "budget": 60}
    jammers = [noise | {"name": "truck", "cables": "all"}, *(noise | {"name": name, "jams": name} for name in targets)]
    scenario = parse({"name": "mixed"} | tables | {"rounds": 6, "jammers": jammers})
    run(scenario, tmp_path / "whole")
    whole = netsim.open_run(tmp_path / "whole")
    assert whole.jammed == {"truck": "network"} | {name: name for name in targets}
    jams, rounds = whole.jams, whole.rounds
    hits = jams.groupby("jammer")["hit"].sum()
    assert hits["truck"] > 0 < hits[targets[0]]
    assert jams["hit"].sum() >= rounds["jammed"].sum() > max(hits)
    assert len(jams) >= rounds["jam_dwells"].sum() > max(jams["jammer"].value_counts())

    def interrupt(simulation: Any) -> None:
        if simulation.server.round == 3:
            raise KeyboardInterrupt

    run(scenario, tmp_path / "cut", after_round=interrupt)
    go_on(tmp_path / "cut")
    for file in sorted((tmp_path / "whole").glob("*.parquet")):
        assert pq.read_table(file).equals(pq.read_table(tmp_path / "cut" / file.name)), file.name


def half_a_second(world: Any) -> Any:
    """Jam during half a second, then leave."""
    yield world.after(0.5)
    jamming = world.start_jammer("truck")
    yield world.after(0.5)
    jamming.stop()


def test_a_script_starts_and_stops_a_jammer_of_a_cable() -> None:
    resting = jammer("near", start="script", budget=None, dwell_s=100.0)
    later = {"compute": {"delay": {"kind": "constant", "value_s": [0.0, 1.0]}}}
    played = outcomes([800, 1000], resting, script=f"{__name__}:half_a_second", **later)
    assert played == [(0.8, "lost", "jammed"), (2.0, "delivered", None)]


def at_one_second(world: Any) -> Any:
    """Jam from 1 s on."""
    yield world.after(1.0)
    world.start_jammer("truck")


def test_a_script_does_not_hit_what_ends_in_that_very_instant() -> None:
    """Scripts act before all else of an instant: the update of client 0 ends at 1 s, and has not been told of."""
    resting = jammer("near", start="script", budget=None, dwell_s=100.0)
    played = outcomes([500, 1000], resting, script=f"{__name__}:at_one_second")
    assert played == [(1.0, "delivered", None), (1.5, "lost", "jammed")]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"jammers": [jammer("fra")]}, ["jammers.0.cables.0 = 'fra'", "is no cable of the network", "did you mean 'far'"]),
        ({"jammers": [jammer("far", reach=[0])]}, ["jammers.0.cables", "give one of reach, links and cables"]),
        ({"jammers": [jammer()]}, ["jammers.0.cables"]),
        ({"jammers": [jammer("far"), jammer(name="b", cables=None)]}, ["jammers.1.jams", "there are no sub-channels"]),
        ({"jammers": [jammer("far")], "network": None, "output": {}}, ["jammers.0.cables", "there are no cables; add [network]"]),
        ({"jammers": [jammer("far"), jammer("far")]}, ["jammers.1.name", "is used twice"]),
    ],
)
def test_a_mistake_is_told_with_key_and_remedy(changes: dict[str, Any], words: list[str]) -> None:
    tables = {key: value for key, value in (TWO | changes).items() if value is not None}
    tables["jammers"] = [{key: value for key, value in one.items() if value is not None} for one in tables["jammers"]]
    with pytest.raises(UserError) as caught:
        build(parse(tables))
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)
