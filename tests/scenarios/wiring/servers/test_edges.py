"""Mistakes of `[edges]`: one message with key, value and remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scenarios.runs.reading import parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.edge_tiers import learning, study, tier
from tests.helpers.peer_training import LEARNER

NETWORK = {
    "links": [{"a": "s", "b": "a"}, {"a": "s", "b": "b"}],
    "server": "s",
    "clients": ["a", "b", "a", "b"],
    "bandwidth_bytes_per_s": 1000.0,
}
GROUPS = {"count": 4, "groups": [{"name": "a", "count": 2}, {"name": "b", "count": 2}]}


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no members": (study({"name": "edge"}), r"edges\.tiers\.0\.name = .edge.: give one of count, groups, table, nearest"),
    "two ways": (study(tier(groups=["a"])), r"edges\.tiers\.0\.groups = .*give one of count, groups, table, nearest"),
    "more edges than clients": (study(tier(count=5)), r"edges\.tiers\.0\.count = 5: nobody belongs to edge 'edge-4'"),
    "unknown group": (
        study({"name": "edge", "groups": ["a", "c"]}, clients=GROUPS),
        r"edges\.tiers\.0\.groups\.1 = 'c': is no group of clients",
    ),
    "a client without an edge": (
        study({"name": "edge", "groups": ["a"]}, clients=GROUPS, server={"per_round": 1}),
        r"edges\.tiers\.0\.groups: client 2 belongs to no edge; give each client one",
    ),
    "nearest without a network": (
        study({"name": "edge", "nearest": "hops"}),
        r"edges\.tiers\.0\.nearest = .hops.: there are no routes",
    ),
    "nearest by km that nobody gives": (
        study({"name": "edge", "nearest": "km", "nodes": ["a", "b"]}, network=NETWORK),
        r"edges\.tiers\.0\.nearest = 'km': cable 's-.' has no km; give it, or set nearest = 'delay'",
    ),
    "an edge to which nobody is nearest": (
        study({"name": "edge", "nearest": "hops", "nodes": ["a", "b", "s"]}, network=NETWORK, server={"per_round": 1}),
        r"edges\.tiers\.0\.nearest = 'hops': nobody is nearest to edge 'edge-2' at 's'; leave its node out of nodes",
    ),
    "a count at a nearest edge": (
        study(tier(nearest="hops", nodes=["a", "b"]), network=NETWORK),
        r"edges\.tiers\.0\.nearest = .*give one of",
    ),
    "unknown tier": (
        study(tier(above="regoin"), tier(name="region")),
        r"edges\.tiers\.0\.above = .regoin.: is no tier; did you mean 'region'\? Or leave it out",
    ),
    "a circle": (
        study(tier(above="region"), tier(name="region", above="edge")),
        r"edges\.tiers\.0\.above = .region.: is a circle: edge below region below edge",
    ),
    "above itself": (study(tier(above="edge")), r"edges\.tiers\.0\.above = .edge.: is a circle"),
    "one name twice": (study(tier(), tier()), r"edges\.tiers\.1\.name = .edge.: is used twice"),
    "groups of edges": (
        study({"name": "region", "groups": ["a"]}, tier(above="region"), clients=GROUPS),
        r"edges\.tiers\.0\.groups = .*are groups of clients, and the members of this tier are edges",
    ),
    "counts of siblings": (study(tier(), tier(name="other")), r"edges\.tiers\.0\.count = 2: does not say which clients"),
    "too many edges a round": (study(server={"per_round": 3}), r"server\.per_round = 3: must be at most the 2 edges"),
    "first above per_round": (
        study(tier(server={"kind": "synchronous", "per_round": 1, "first": 2})),
        r"edges\.tiers\.0\.server\.first = 2: must be at most the 1 members",
    ),
    "unknown rule": (study(tier(server={"kind": "sfa"})), r"edges\.tiers\.0\.server\.kind = .sfa.: unknown server 'sfa'"),
    "contention": (
        study(tier(server={"kind": "synchronous", "contention": True})),
        r"edges\.tiers\.0\.server\.contention = true: is about the sub-channels of \[channels\], which belong to one server",
    ),
    "server without edges": (
        study(server={"kind": "compass"}),
        r"server\.kind = .compass.: assigns local steps to its members, and edges make rounds; set kind = 'synchronous', "
        r"'semi-synchronous', 'buffered' or 'safa', or leave \[edges\] out",
    ),
    "urgent notices to edges": (
        study(server={"kind": "buffered", "concurrency": 2, "staleness_bound": 2, "urgent_notices": True}),
        r"server\.urgent_notices = true: shortens the training of clients, and the members are edges; leave it out",
    ),
    "more at work than clients": (
        study(tier(server={"kind": "buffered", "concurrency": 5})),
        r"edges\.tiers\.0\.server\.concurrency = 5: must be at most the 4 clients of the scenario",
    ),
    "more picked than edges": (
        study(
            tier(name="region", count=1, server={"kind": "safa", "per_round": 4}), tier(above="region"), server={"per_round": 1}
        ),
        r"edges\.tiers\.0\.server\.per_round = 4: must be at most the 3 edges of the scenario",
    ),
    "a quorum without a deadline": (
        study(tier(server={"kind": "synchronous", "at_least": 1})),
        r"edges\.tiers\.0\.server\.at_least = 1: is of rounds with a deadline; give deadline_s",
    ),
    "steps in the wrong order": (
        study(
            tier(server={"kind": "compass", "min_steps": 9, "max_steps": 4}),
            clients={"count": 4, "data_sizes": 10.0},
            compute={"seconds_per_sample": 0.1},
            work={"batch_size": 5},
        ),
        r"edges\.tiers\.0\.server\.max_steps = 4: must be at least the 9 steps of min_steps",
    ),
    "steps for edges": (
        study(tier(name="region", server={"kind": "compass"}), tier(count=4, above="region")),
        r"edges\.tiers\.0\.server\.kind = .compass.: assigns local steps to its members, and edges make rounds; set kind = .*",
    ),
    "steps without a speed": (
        study(tier(server={"kind": "compass"})),
        r"edges\.tiers\.0\.server\.kind = .compass.: gives clients steps by their speed; give one of seconds_per_sample",
    ),
    "a policy of an edge that selects nobody": (
        study(tier(server={"kind": "safa"}, policy={"kind": "all"})),
        r"edges\.tiers\.0\.policy\.kind = .all.: server\.kind = 'safa' selects nobody: all members take part; leave it out",
    ),
    "edges in the order of their speed": (
        {key: table for key, table in study().items() if key != "policy"}
        | {"server": {"kind": "safa", "per_round": 2, "selection": "after-all", "order": "speed"}},
        r"server\.order = .speed.: edges have no speed of their own",
    ),
    "an aggregation beside a cache": (
        learning(tier(server={"kind": "safa"}), learner=LEARNER | {"aggregation": {"kind": "median"}}),
        r"learner\.aggregation\.kind = .median.: leave it out: the cache is averaged by the clients' samples",
    ),
    "shared bandwidth": (
        study(edges={"uplink": {"shared": {"bandwidth_bytes_per_s": 1e6}}}),
        r"edges\.uplink\.shared.*a bandwidth that all share belongs to one server",
    ),
    "sub-channels": (study(uplink={"sub_channels": 2}), r"uplink\.sub_channels = 2: belongs to one server"),
    "a policy that knows latencies": (study(policy={"kind": "fastest"}), r"policy\.kind = 'fastest': goes by expected latencies"),
    "an aggregation over one server": (
        learning(learner=LEARNER | {"aggregation": {"kind": "scaffold"}}),
        r"learner\.aggregation\.kind = .scaffold.: scaffold is not defined over edges yet",
    ),
    "nodes without a network": (study(tier(nodes=["a", "b"])), r"edges\.tiers\.0\.nodes.*there are no nodes; add \[network\]"),
    "a network without nodes of edges": (
        study(network=NETWORK),
        r"edges\.tiers\.0\.nodes.*must name the nodes of the edges",
    ),
    "too few nodes": (study(tier(nodes=["a"]), network=NETWORK), r"edges\.tiers\.0\.nodes: names 1 nodes for 2 edges"),
    "unknown node": (study(tier(nodes=["a", "q"]), network=NETWORK), r"edges\.tiers\.nodes = 'q': is no node of the network"),
    "a state without a size": (
        study(edges={"moves": "moves.csv", "moving": "with-state"}),
        r"edges\.moving = .with-state.: moves the state of a client; give state_bytes",
    ),
    "a state that does not move": (
        study(edges={"moves": "moves.csv", "moving": "handed-over", "state_bytes": 10}),
        r"edges\.state_bytes = 10: no state moves; set moving = 'with-state'",
    ),
    "a state without bytes": (study(edges={"moves": "moves.csv", "state_bytes": 0}), r"edges\.state_bytes = 0"),
    "sub-channels with states": (
        study(channels={"count": 2, "states": {"kind": "stationary"}}),
        r"channels = .\.\..: are of one server; leave them out",
    ),
    "a jammer of sub-channels": (
        study(jammers=[{"name": "truck", "law": {"kind": "sweep"}}]),
        r"jammers = .*jam sub-channels of one server; set jams = 'uplink' or 'downlink', or give them cables",
    ),
    "probes that nobody sends": (
        study(probe={"timed": False}),
        r"probe = .\.\..: no policy of an edge of clients asks before it selects .*leave it out",
    ),
    "probes of edges": (
        learning(policy={"kind": "power-of-choice", "candidates": 2}),
        r"policy\.kind = .power-of-choice.: asks before it selects, and edges have no loss, battery or speed of their own",
    ),
    "probes of edges by a tier": (
        learning(tier(name="region", policy={"kind": "power-of-choice", "candidates": 2}), tier(count=4, above="region")),
        r"edges\.tiers\.0\.policy\.kind = .power-of-choice.: asks before it selects, and edges have no loss",
    ),
    "probes that take time": (
        learning(tier(policy={"kind": "power-of-choice", "candidates": 2})),
        r"probe\.timed = true: a run may be saved while an edge waits for answers.*set it to false",
    ),
    "probes by a server that selects one at a time": (
        learning(tier(server={"kind": "buffered"}, policy={"kind": "power-of-choice", "candidates": 2}), probe={"timed": False}),
        r"edges\.tiers\.0\.policy\.kind = .power-of-choice.: asks clients for their loss before it selects: the buffered server",
    ),
    "an edge whose round may never end": (
        study(tier(policy={"kind": "fedcs", "round_s": 3.0, "asked": 1.0}), probe={"timed": False}),
        r"edges\.tiers\.0\.server\.deadline_s.*policy\.kind = .fedcs. may find nobody, and the round would never end; set it",
    ),
    "tests of an edge's model": (
        learning(
            tier(policy={"kind": "tifl", "tiers": 2, "probabilities": "adaptive", "timeout_s": 9.0}), probe={"timed": False}
        ),
        r"edges\.tiers\.0\.policy\.kind = .tifl.: has clients test the model on test data of their own, which an edge does not",
    ),
    "nobody moves": (study(edges={"moving": "finishes"}), r"edges\.moving = .finishes.: nobody moves; give moves or a script"),
    "unknown key": (study(tier(round=2)), r"edges\.tiers\.0\.round = 2: unknown key; did you mean 'rounds'"),
}


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_key_and_remedy(name: str) -> None:
    tables, told = MISTAKES[name]
    with pytest.raises(UserError, match=told):
        build(parse(tables), learner=False)


TABLES = {
    "an edge of nobody's": ("member,edge\n0,x\n1,x\n2,y\n", r"client 3 belongs to no edge"),
    "twice": ("member,edge\n0,x\n0,y\n1,x\n2,y\n3,y\n", r"line 3: member '0' belongs to 'x' already"),
    "unknown": ("member,edge\n0,x\n1,x\n2,y\n3,y\n9,y\n", r"line 6: member '9' is not known; must be a client from 0 to 3"),
    "columns": ("client,edge\n0,x\n", r"must begin with a line of the column names member, edge"),
    "empty": ("member,edge\n0,\n", r"line 2: must have a value for each of member, edge"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_mistake_in_a_table_names_file_and_line(name: str, tmp_path: Path) -> None:
    rows, told = TABLES[name]
    file = tmp_path / "members.csv"
    file.write_text(rows)
    with pytest.raises(UserError, match=rf"edges\.tiers\.0\.table.*{told}"):
        build(parse(study({"name": "edge", "table": str(file)})))


MOVES = {
    "overlap": ("0,1,5,edge-1\n0,4,9,edge-1\n", r"line 3: client 0 from 4 to 9 s overlaps with 1 to 5 s.*let one stay end"),
    "unknown edge": ("0,1,5,edge-7\n", r"line 2: edge = 'edge-7': is no edge of clients"),
    "unknown client": ("4,1,5,edge-1\n", r"line 2: client = '4': must be a client from 0 to 3"),
    "times": ("0,5,1,edge-1\n", r"line 2: start_s = 5, end_s = 1: must be seconds"),
}


@pytest.mark.parametrize("name", MOVES)
def test_a_mistake_in_a_trace_of_moves_names_file_and_line(name: str, tmp_path: Path) -> None:
    rows, told = MOVES[name]
    file = tmp_path / "moves.csv"
    file.write_text(f"client,start_s,end_s,edge\n{rows}")
    with pytest.raises(UserError, match=rf"edges\.moves.*{told}"):
        build(parse(study(edges={"moves": str(file)})))


def test_a_way_to_an_edge_that_carries_no_bytes_is_refused(tmp_path: Path) -> None:
    cables = [
        {"a": "s", "b": "a", "bandwidth_bytes_per_s": 9.0},
        {"a": "s", "b": "b"},
        {"a": "b", "b": "x", "bandwidth_bytes_per_s": 9.0},
    ]
    file = tmp_path / "moves.csv"
    file.write_text("client,start_s,end_s,edge\n0,1,5,edge-1\n")
    network = {"links": cables, "server": "s", "clients": ["a", "a", "x", "x"]}
    tables = study(tier(nodes=["a", "b"]), network=network, clients={"count": 4}) | {"downlink": {}, "uplink": {}}
    tables["edges"] = {"tiers": tables["edges"]["tiers"], "moves": str(file), "model_bytes": 0}
    with pytest.raises(UserError, match=r"cable 's-b' has no bandwidth, which the model of client 0 needs"):
        build(parse(tables))


def test_a_table_says_who_belongs_to_which_edge(tmp_path: Path) -> None:
    file = tmp_path / "members.csv"
    file.write_text("member,edge\n3,lyon\n0,paris\n1,lyon\n2,paris\n")
    built = build(parse(study({"name": "edge", "table": str(file)})))
    members = {edge.name: edge.members.is_member.nonzero()[0].tolist() for edge in built.server.edges}
    assert members == {"lyon": [1, 3], "paris": [0, 2]}


def test_members_belong_to_the_nearest_edge() -> None:
    """A line s - a - b - c - d with cables of 5, 1, 2 and 9 ms (and so of 9, 1, 1 and 9 km); edges at a and d, clients at a to d.

    Client c is 3 ms from a and 9 ms from d, but one cable from d and two from a; client s is at the server, 5 ms from a.
    """
    lengths = {"s": ("a", 0.005, 9.0), "a": ("b", 0.001, 1.0), "b": ("c", 0.002, 1.0), "c": ("d", 0.009, 9.0)}
    cables = [{"a": one, "b": other, "delay_s": delay, "km": km} for one, (other, delay, km) in lengths.items()]
    network = {
        "links": [{k: v for k, v in cable.items() if k != "km"} for cable in cables],
        "server": "s",
        "clients": list("sabcd"),
    }
    network["bandwidth_bytes_per_s"] = 1e6
    base = study({"name": "edge", "nearest": "delay", "nodes": ["a", "d"]}, clients={"count": 5}, network=network)
    base |= {"downlink": {}, "uplink": {}}
    expected = {"delay": [[0, 1, 2, 3], [4]], "hops": [[0, 1, 2], [3, 4]]}
    for measure, members in expected.items():
        tables = base | {"edges": {"tiers": [{"name": "edge", "nearest": measure, "nodes": ["a", "d"]}]}}
        edges = build(parse(tables)).server.edges
        assert [edge.members.is_member.nonzero()[0].tolist() for edge in edges] == members
    km = [{k: v for k, v in cable.items() if k != "delay_s"} for cable in cables]
    tables = base | {
        "network": network | {"links": km},
        "edges": {"tiers": [{"name": "edge", "nearest": "km", "nodes": ["a", "d"]}]},
    }
    assert [len(edge.members.is_member.nonzero()[0]) for edge in build(parse(tables)).server.edges] == [4, 1]
    # Of a tier above, the members are edges: those at a and b belong to a region at s, those at c and d to one at d.
    tiers = [
        {"name": "region", "nearest": "delay", "nodes": ["s", "d"]},
        {"name": "edge", "above": "region", "nearest": "delay", "nodes": ["a", "b", "d"]},
    ]
    built = build(parse(base | {"edges": {"tiers": tiers}}))
    assert [edge.above for edge in built.server.edges] == [None, None, "region-0", "region-0", "region-1"]
