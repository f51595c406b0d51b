"""Mistakes in `[network]`: one message with key, value and remedy; and scripts that act on cables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from scenarios.runs.reading import parse
from scenarios.runs.run import run
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build

LINK = {"a": "x", "b": "s", "bandwidth_bytes_per_s": 1000.0}
TABLES: dict[str, Any] = {
    "name": "n",
    "rounds": 1,
    "clients": {"count": 1},
    "server": {"per_round": 1},
    "policy": {"kind": "all"},
    "payload": {"up_bytes": 500},
}
NETWORK: dict[str, Any] = {"server": "s", "clients": ["x"], "links": [LINK]}


def refusal(more: dict[str, Any] | None = None, **network: Any) -> str:
    with pytest.raises(UserError) as caught:
        build(parse(TABLES | {"network": NETWORK | network} | (more or {})))
    return str(caught.value)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        ({"links": [LINK, {"a": "y", "b": "z"}]}, ["network: links", "no route joins x and y", "add a link"]),
        ({"clients": ["y"]}, ["network.clients.0 = 'y'", "is no node of the network; known: s, x"]),
        ({"clients": ["x", "s"]}, ["network.clients", "names 2 nodes for 1 clients", "fewer clients"]),
        ({"server": "t"}, ["network.server = 't'", "is no node"]),
        ({"links": [LINK, {"a": "s", "b": "s"}]}, ["network: link", "between s and s", "is a loop", "leave it out"]),
        ({"links": [{"a": "x", "b": "s"}]}, ["cable 'x-s' has no bandwidth", "the update of 500 bytes of client 0", "give it"]),
        ({"links": [LINK, LINK]}, ["network.links.1.name = 'x-s'", "two cables"]),
        ({"links": [LINK, LINK | {"name": "again"}]}, ["network: link", "between x and s", "stands twice", "keep one"]),
        ({"bandwidth_bytes_per_s": 1e15}, ["network.bandwidth_bytes_per_s = 1000000000000000.0", "must be <= 1.25e+14"]),
        ({"links": [LINK | {"bandwidth_bytes_per_s": 1e15}]}, ["links.0.bandwidth_bytes_per_s", "the units"]),
        ({"routes": [{"from": "x", "to": "s", "links": ["far"]}]}, ["network.routes.0.links.0 = 'far'", "is no cable"]),
        ({"routes": [{"from": "x", "to": "x", "links": ["x-s", "x-s"]}]}, ["network.routes.0.links.1 = 'x-s'", "a loop"]),
        ({"routes": [{"from": "x", "to": "x", "links": ["x-s"]}]}, ["network.routes.0: ends at 's', not at 'x'"]),
        ({"source": "geent"}, ["network.source", "'geent'", "did you mean 'geant'"]),
        ({"routing": "km"}, ["network.routing = 'km'", "cable 'x-s' has no km"]),
        ({"outages": [{"name": "o", "links": ["y"], "from_s": 1.0}]}, ["network.outages.0.links.0 = 'y'", "is no cable"]),
        ({"outages": [{"name": "o"}]}, ["network.outages.0.name", "give either from_s and to_s"]),
        ({"outages": [{"name": "link", "from_s": 1.0}]}, ["network.outages.0.name", "another cause of loss"]),
        ({"background": [{"name": "b", "kind": "constant", "from": "x", "to": "s"}]}, ["background.0.bytes_per_s"]),
        ({"background": [{"name": "b", "kind": "constant", "from": "q", "to": "s", "bytes_per_s": 1.0}]}, ["0.from = 'q'"]),
        (
            {"background": [{"name": "b", "kind": "poisson", "from": "x", "to": "s", "per_s": 1.0, "size_bytes": 3e102}]},
            ["network.background.0.size_bytes = 3e+102", "must be <= 1e+15"],
        ),
        ({"generator": {"kind": "tree", "nodes": 3}, "links": []}, ["network.generator.fan_out"]),
        ({"generator": {"kind": "fat-tree", "ports": 3}, "links": []}, ["network.generator.ports = 3", "even"]),
        ({"links": [LINK | {"km": 1.0, "delay_s": 1.0}]}, ["network.links.0.km", "leave it out"]),
        ({"links": [], "source": None}, ["network.links"]),
    ],
)
def test_a_mistake_is_told_with_key_and_remedy(network: dict[str, Any], words: list[str]) -> None:
    told = refusal(**network)
    assert [word for word in words if word not in told] == [], told
    assert told.count("\n") == 0


def test_a_client_that_is_left_over_has_no_node() -> None:
    told = refusal({"clients": {"count": 2}, "server": {"per_round": 2}})
    assert "network.clients: names 1 nodes for 2 clients: client 1 has no node; name one for each" in told


def test_messages_between_peers_need_bandwidth_on_their_routes() -> None:
    links = [{"a": "x", "b": "y"}, {"a": "y", "b": "s", "bandwidth_bytes_per_s": 1000.0}]
    peers = {"server": {"kind": "peers", "protocol": {"kind": "d-psgd"}}, "peers": {"topology": {"kind": "complete"}}}
    tables = {key: table for key, table in TABLES.items() if key not in ("policy", "server")} | {"clients": {"count": 2}} | peers
    with pytest.raises(UserError, match=r"cable 'x-y' has no bandwidth, which the message of client . to . needs; give it"):
        build(parse(tables | {"network": NETWORK | {"clients": ["x", "y"], "links": links}}))


@pytest.mark.parametrize("key", ["bandwidth_bytes_per_s", "shared"])
def test_bandwidth_belongs_to_the_cables(key: str) -> None:
    value = {"bandwidth_bytes_per_s": 1.0} if key == "shared" else 1.0
    told = refusal({"uplink": {key: value}})
    assert f"uplink.{key}" in told
    assert "bandwidth belongs to the cables of [network]; leave it out" in told


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("cut.csv", "a,b,km\nx,s\n", ["give either km or delay_s"]),
        ("no.csv", "a,b\nx,s\n", ["line 1 has a, b", "name the columns a, b, and km or delay_s"]),
        ("twice.csv", "a,b,km\nx,s,1\ns,x,1\n", ["stands twice", "keep one"]),
        ("alike.csv", "a,b,km\nx,y-s,1\nx-y,s,1\ns,x,1\n", ["'x' to 'y-s' and 'x-y' to 's'", "'x-y-s'", "another name"]),
        ("units.csv", "a,b,km,bytes_per_s\nx,s,1,1e15\n", ["1e+15 bytes/s", "look at the units"]),
        ("apart.csv", "a,b,km\nx,s,1\ny,z,1\n", ["no route joins x and y", "add a link"]),
        (
            "bare.graphml",
            '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="undirected">'
            '<node id="x"/><node id="s"/><edge source="x" target="s"/></graph></graphml>',
            ["edge x - s has neither km nor delay_s", "give every edge"],
        ),
    ],
)
def test_a_mistake_in_a_file_is_told_with_the_file(name: str, text: str, words: list[str], tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    told = refusal(links=[], source=str(tmp_path / name))
    assert [word for word in ["network.source", name, *words] if word not in told] == [], told


def test_a_cable_of_a_file_can_be_changed(tmp_path: Path) -> None:
    (tmp_path / "two.csv").write_text("a,b,delay_s,bytes_per_s\nx,s,0.5,1000\n", encoding="utf-8")
    found = {}
    for change in ([], [{"name": "x-s", "bandwidth_bytes_per_s": 500.0}]):
        tables = TABLES | {"network": NETWORK | {"links": change, "source": str(tmp_path / "two.csv")}}
        run(parse(tables), tmp_path / f"run{len(change)}")
        found[len(change)] = pq.read_table(tmp_path / f"run{len(change)}" / "rounds.parquet")["end_s"].to_pylist()
    assert found == {0: [1.5], 1: [2.0]}


def halve(world: Any) -> Any:
    """Halve the bandwidth of the cable after half a second."""
    yield world.after(0.5)
    world.scale("network.links.x-s.bandwidth", bytes_per_s=0.5)


def test_a_script_acts_on_transfers_under_way(tmp_path: Path) -> None:
    """500 bytes pass before the change; the other 500 take a second."""
    tables = TABLES | {"network": NETWORK, "payload": {"up_bytes": 1000}, "script": f"{__name__}:halve"}
    run(parse(tables), tmp_path / "run")
    assert pq.read_table(tmp_path / "run" / "rounds.parquet")["end_s"].to_pylist() == [1.5]
