"""Overlays of networks: the published table, runs of events beside exact means, files of links, and the command."""

from __future__ import annotations

import itertools
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import netsim
from models.overlays.silos import Silos
from scenarios.cli.main import main
from scenarios.networks import read_network, shipped_networks
from scenarios.overlays import OVERLAYS, cycle_times
from scenarios.papers.overlays_table import COLUMNS, MODELS, PUBLISHED, Cell, compute_cells
from scenarios.schema.errors import UserError

PEERS: dict[str, Any] = {
    "name": "silos",
    "rounds": 1,
    "clients": {"count": 11},
    "server": {"kind": "fl-da", "per_round": 2},
    "policy": {"kind": "bp-index", "mu": 0.1},
    "slots": {"start": "zero"},
    "opinions": {"synthetic": {"worth": {"from": 0.3, "to": 0.7}}},
    "output": {"beliefs_table": True},
}
CSV = "a,b,km,bytes_per_s\nParis,Lyon,400,125e6\nLyon,Nice,300,\nNice,Turin,150,\nTurin,Paris,600,\n"


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("key", PUBLISHED, ids=" ".join)
def test_the_published_table(key: tuple[str, str]) -> None:
    silos = Silos(read_network(key[1]), *MODELS[key[0]])
    for name, value in zip(COLUMNS, PUBLISHED[key], strict=True):
        cycle_ms = OVERLAYS[name](silos).cycle_ms()
        assert Cell(*key, name, value, cycle_ms, cycle_ms).agrees, (name, cycle_ms)


@pytest.mark.slow
@pytest.mark.parametrize("key", PUBLISHED, ids=" ".join)
def test_the_published_table_by_events(key: tuple[str, str]) -> None:
    found = compute_cells({key: PUBLISHED[key]})
    assert len(found) == 6
    assert all(cell.agrees for cell in found), found


def test_a_cell_that_differs() -> None:
    assert Cell("m", "n", "ring", 10.0, 10.14, 10.14).agrees
    assert not Cell("m", "n", "ring", 10.0, 10.16, 10.16).agrees
    assert not Cell("m", "n", "ring", 10.0, 10.1, 10.1001).agrees
    assert Cell("m", "n", "matcha", 10.0, 10.4, 10.4).agrees
    assert not Cell("m", "n", "matcha", 10.0, 10.6, 10.6).agrees


@pytest.mark.parametrize("name", ["geant", "exodus", "ebone"])
def test_routes_and_trees_are_those_of_networkx(name: str) -> None:
    """The published code takes both from NetworkX. Half the links of Exodus and Ebone have 0 km, so that ties abound."""
    import networkx as nx

    network = read_network(name)
    graph = nx.Graph()
    graph.add_nodes_from(range(len(network.sites)))
    graph.add_weighted_edges_from((cable.a, cable.b, cable.km) for cable in network.cables)
    for source, (_, paths) in nx.all_pairs_dijkstra(graph):
        assert [tuple(paths[target]) for target in graph] == [way.sites for way in network.ways[source]]
    # Where access is slow, the degrees decide, and so which of the lightest trees it is.
    silos = Silos(network, *MODELS["inaturalist"], up_bits_per_s=1e8, down_bits_per_s=1e8)
    weights = silos.path_ms
    pairs = nx.Graph()
    pairs.add_weighted_edges_from((a, b, weights[a, b]) for a in graph for b in graph if a < b)
    tree = nx.minimum_spanning_tree(pairs)
    assert {(arc.source, arc.target) for arc in OVERLAYS["mst"](silos).arcs} == set(tree.to_directed().edges)


@pytest.mark.parametrize(("name", "most"), [("gaia", 1), ("geant", 24), ("exodus", 40), ("ebone", 42)])
def test_paths_of_a_star_that_cross_one_link_in_one_direction(name: str, most: int) -> None:
    silos = Silos(read_network(name), *MODELS["inaturalist"])
    crossed = Counter(
        hop
        for arc in OVERLAYS["star-direct"](silos).arcs
        for hop in itertools.pairwise(silos.underlay.ways[arc.source][arc.target].sites)
    )
    assert max(crossed.values()) == most


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(
    ("name", "model", "ring_ms"),
    [("exodus", "femnist", 24.7), ("exodus", "inaturalist", 103.9), ("exodus", "sent140", 50.9), ("ebone", "sent140", 43.9)],
)
def test_rings_where_ties_abound(name: str, model: str, ring_ms: float) -> None:
    """Times of the published algorithm on NetworkX: its spanning tree, matching and Eulerian tour."""
    silos = Silos(read_network(name), *MODELS[model])
    assert OVERLAYS["ring"](silos).cycle_ms() == pytest.approx(ring_ms, abs=0.06)


def test_slow_access_makes_a_tree_of_small_degree() -> None:
    # By the published algorithm: a tree of degree 3, on weights that count access in both directions.
    silos = Silos(read_network("geant"), *MODELS["femnist"], up_bits_per_s=1e9, down_bits_per_s=1e9)
    assert OVERLAYS["mst"](silos).cycle_ms() == pytest.approx(64.31, abs=0.01)
    assert OVERLAYS["delta-mbst"](silos).cycle_ms() == pytest.approx(52.87, abs=0.01)


def test_the_worked_ring_of_gaia() -> None:
    silos = Silos(read_network("gaia"), *MODELS["inaturalist"])
    ring = OVERLAYS["ring"](silos)
    tour = "Virginia, Sao Paulo, Dublin, Frankfurt, Mumbai, Singapore, Sydney, Seoul, Tokyo, Oregon, California"
    assert ", ".join(silos.underlay.sites[arc.source] for arc in ring.arcs) == tour
    delays = (silos.message_ms(ring.arcs) + silos.work_ms).round(3).tolist()
    assert delays == [138.119, 153.977, 83.635, 130.276, 107.505, 127.921, 144.878, 84.232, 142.604, 81.378, 104.629]
    assert ring.cycle_ms() == pytest.approx(118.10497622, abs=1e-8)


@pytest.mark.each_nth(3)
@pytest.mark.parametrize("name", OVERLAYS)
def test_a_run_of_events_has_the_exact_mean(name: str, tmp_path: Path) -> None:
    file = tmp_path / "towns.csv"
    file.write_text(CSV)
    for silos in (Silos(read_network(str(file)), 1e7, 20.0, 2, 1e9, 5e8), Silos(read_network("gaia"), 5e7, 5.0)):
        (found,) = cycle_times(silos, [name])
        assert found.simulated_ms == pytest.approx(found.cycle_ms, rel=1e-9)


def test_flows_equal_fixed_shares_where_nothing_is_shared() -> None:
    # On Gaia every pair has a cable of its own; a ring sends one message up and one down.
    silos = Silos(read_network("gaia"), *MODELS["inaturalist"])
    for one in cycle_times(silos, ["ring", "mst", "star"], fluid=True):
        assert one.fluid_ms == pytest.approx(one.cycle_ms, rel=1e-9)


def test_a_cable_that_is_shared_slows_a_star_down(tmp_path: Path) -> None:
    # B, C and D hang on A by way of the hub H: four models cross the cable A - H in each direction, each of them 10 ms long.
    file = tmp_path / "hub.csv"
    file.write_text("a,b,delay_s\nA,H,0\nH,B,0\nH,C,0\nH,D,0\n")
    silos = Silos(read_network(str(file)), 1e6, 5.0, 1, 1e12, 1e12, 1e8)
    (star,) = cycle_times(silos, ["star-direct"], fluid=True)
    assert star.cycle_ms == pytest.approx(5.0 + 2 * 20.0, rel=1e-4)
    assert star.fluid_ms == pytest.approx(5.0 + 2 * 40.0, rel=1e-4)


def run(monkeypatch: Any, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["netsim", "overlays", *words])
    with pytest.raises(SystemExit) as exit:
        main()
    return int(exit.value.code or 0)


def test_json_of_the_command(monkeypatch: Any, capsys: Any) -> None:
    femnist = ("--model-bits", "4843243", "--compute-ms", "4.6")
    assert run(monkeypatch, "gaia", "--json", "--overlays", "ring,mst", "--sharing", "fluid", *femnist) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["network"] == "gaia"
    assert set(content["overlays"]) == {"ring", "mst"}
    assert set(content["overlays"]["ring"]) == {"cycle_ms", "simulated_ms", "fluid_ms", "arcs"}
    assert content["overlays"]["ring"]["cycle_ms"] == pytest.approx(57.187, abs=1e-3)
    assert content["overlays"]["ring"]["arcs"][0] == ["Virginia", "Sao Paulo"]


def test_the_command_names_the_best(monkeypatch: Any, capsys: Any, tmp_path: Path) -> None:
    file = tmp_path / "towns.csv"
    file.write_text(CSV)
    assert run(monkeypatch, str(file), "--overlays", "star,ring", "--core-gbps", "0.5") == 0
    assert "best: ring" in capsys.readouterr().out


@pytest.mark.parametrize("suffix", ["graphml", "gml"])
def test_graphs_are_the_same_network_as_a_table(suffix: str, tmp_path: Path) -> None:
    import networkx as nx

    table, file = tmp_path / "towns.csv", tmp_path / f"towns.{suffix}"
    table.write_text(CSV)
    graph = nx.Graph()
    graph.add_edge("Paris", "Lyon", km=400, bytes_per_s=125e6)
    for a, b, km in (("Lyon", "Nice", 300), ("Nice", "Turin", 150), ("Turin", "Paris", 600)):
        graph.add_edge(a, b, km=km)
    (nx.write_graphml if suffix == "graphml" else nx.write_gml)(graph, file)
    found, expected = read_network(str(file)), read_network(str(table))
    assert found.sites == expected.sites
    assert Silos(found, 1e6, 1.0).latency_ms.tolist() == Silos(expected, 1e6, 1.0).latency_ms.tolist()
    assert Silos(found, 1e6, 1.0).core_ms.tolist() == Silos(expected, 1e6, 1.0).core_ms.tolist()


def test_all_networks_that_come_along_are_read() -> None:
    networks = {name: read_network(name) for name in shipped_networks()}
    counts = {name: (len(network.sites), len(network.cables)) for name, network in networks.items()}
    assert counts.pop("aws-north-america") == (22, 231)
    assert counts == {"gaia": (11, 55), "geant": (40, 61), "exodus": (79, 147), "ebone": (87, 161)}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "'nowhere': is no network that comes along"),
        (["absent.csv"], "absent.csv: No such file or directory"),
        (["gaia", "--overlays", "rign"], "--overlays 'rign': is no overlay; did you mean 'ring'"),
        (["gaia", "--sharing", "fair"], "--sharing 'fair': must be by-degree or fluid"),
        (["gaia", "--up-gbps", "0"], "--up-gbps 0: must be > 0"),
        (["gaia", "--up-gbps", "1e30"], "--up-gbps 1e+30: must be > 0, and at most 1e15 bits or bits/s"),
        (["gaia", "--model-bits", "-1"], "--model-bits -1: must be > 0"),
        (["gaia", "--steps", "0"], "--steps 0: must be at least 1"),
    ],
)
def test_bad_options_are_refused(monkeypatch: Any, capsys: Any, words: list[str], message: str) -> None:
    assert run(monkeypatch, *words) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert message in error
    assert "Traceback" not in error


@pytest.mark.each_nth(3)
@pytest.mark.parametrize(
    ("suffix", "text", "message"),
    [
        ("csv", "a;b;km\n", "name the columns a, b, and km or delay_s"),
        ("csv", "a,b,km\nA,B,far\n", "line 2: km = 'far' is no number"),
        ("csv", "a,b,km,delay_s\nA,B,1,1\n", "line 2: give either km or delay_s"),
        ("csv", "a,b,km\nA,,1\n", "line 2: names no node"),
        ("csv", "a,b,km,bytes_per_s\nA,B,1,125,000\n", "line 2: has more cells than line 1 has columns"),
        ("csv", "a,b,km\nA,A,1\n", "link between A and A: is a loop"),
        ("csv", "a,b,km\nA,B,1\nB,A,2\n", "between B and A: stands twice"),
        ("csv", "a,b,km\nA,B,1\nC,D,1\n", "no route joins A and C"),
        ("csv", "a,b,km,bytes_per_s\nA,B,1,0\n", "must have a bandwidth > 0"),
        ("csv", "a,b,km,bytes_per_s\nA,B,1,1e15\n", "at most 1e15 bits/s; look at the units"),
        ("csv", "a,b,km,delay_s\nA,B,1,\nB,C,,1\n", "some links have km and others delay_s"),
        ("csv", "a,b,km\n", "must be at least 2"),
        ("json", "[]", 'must be an object with "nodes"'),
        ("json", '{"nodes": ["A", "B"], "links": [[0, "B", 1]]}', "must be two numbers of nodes and km"),
        ("graphml", "<graphml>", "is no graphml"),
        ("gml", "graph [ node [ id 0 ] node [ id 1 ] edge [ source 0 target 1 ] ]", "is no gml"),
        (
            "gml",
            'graph [ node [ id 0 label "A" ] node [ id 1 label "B" ] edge [ source 0 target 1 ] ]',
            "edge A - B has neither km nor delay_s",
        ),
    ],
)
def test_bad_files_are_refused(monkeypatch: Any, capsys: Any, tmp_path: Path, suffix: str, text: str, message: str) -> None:
    file = tmp_path / f"net.{suffix}"
    file.write_text(text)
    assert run(monkeypatch, str(file)) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert message in error
    assert f"net.{suffix}" in error
    assert "Traceback" not in error


@pytest.mark.parametrize(("name", "degrees"), [("star", [10] + [1] * 10), ("ring", [2] * 11), ("complete", [10] * 11)])
def test_a_scenario_names_an_overlay(name: str, degrees: list[int]) -> None:
    topology = {"kind": "overlay", "network": "gaia", "overlay": name}
    run = netsim.run(PEERS | {"peers": {"topology": topology}})
    links = run.links
    counts = [int((links[["source", "target"]] == client).to_numpy().sum()) for client in range(11)]
    assert counts == degrees
    gaia = read_network("gaia")
    lengths = {(cable.a, cable.b): cable.km for cable in gaia.cables}
    shown = [lengths[pair] for pair in zip(links["source"], links["target"], strict=True)]
    assert links["distance_km"].tolist() == pytest.approx(shown)


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        ({"network": "geant"}, "peers.topology.network = 'geant': has 40 nodes: must have 11, one a client"),
        ({"network": "gaja"}, "peers.topology.network = 'gaja'"),
        (
            {"network": "gaia", "overlay": "matcha"},
            'peers.topology.overlay = "matcha": uses other links in each round, which a protocol of peers chooses; set '
            "server.kind = 'peers' and server.protocol = { kind = \"matcha\" }, or name another overlay",
        ),
        ({"network": "gaia", "overlay": "mcst"}, "peers.topology.overlay = 'mcst': is no overlay; did you mean 'mst'"),
    ],
)
def test_an_overlay_that_does_not_fit_is_refused(topology: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        netsim.run(PEERS | {"peers": {"topology": {"kind": "overlay"} | topology}})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("overlay", "protocol", "links"), [("matcha", "matcha", 4), ("matcha+", "matcha", 6), ("one-peer", "one-peer", 6)]
)
def test_overlays_that_change_by_round_are_topologies_of_their_protocol(
    overlay: str, protocol: str, links: int, tmp_path: Path
) -> None:
    file = tmp_path / "towns.csv"
    file.write_text(CSV)
    scenario = {
        "name": "silos",
        "rounds": 3,
        "clients": {"count": 4},
        "server": {"kind": "peers", "protocol": {"kind": protocol}},
        "payload": {"up_bytes": 1000},
        "network": {"source": str(file), "server": "Paris", "clients": ["Paris", "Lyon", "Nice", "Turin"]},
        "peers": {"topology": {"kind": "overlay", "network": str(file), "overlay": overlay}},
        "output": {"messages_table": True},
    }
    scenario["network"]["bandwidth_bytes_per_s"] = 1e6  # type: ignore[index]
    messages = netsim.run(scenario).messages
    used = {frozenset(pair) for pair in zip(messages["source"], messages["target"], strict=True)}
    assert 0 < len(used) <= links
    towns = {frozenset(pair) for pair in [(0, 1), (1, 2), (2, 3), (3, 0)]}
    assert used <= towns if overlay == "matcha" else used - towns
    scenario["server"]["protocol"] = {"kind": "d-psgd"}  # type: ignore[index]
    with pytest.raises(UserError, match=r'peers\.topology\.overlay = "'):
        netsim.run(scenario)
