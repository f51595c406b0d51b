"""Relations of runs over a network, two kinds of messages on one cable by hand, and mistakes through the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import netsim
from scenarios.cli.main import main
from tests.helpers.networks import LINE, SHARED

TIMES = ["begin_s", "end_s"]


def transfers(**changes: Any) -> Any:
    return netsim.run(SHARED | {"output": {"transfers_table": True}} | changes).transfers


def test_a_link_that_no_transfer_uses_changes_nothing() -> None:
    spare = {"a": "root.1.0", "b": "nowhere", "bandwidth_bytes_per_s": 1.0, "delay_s": 9.0}
    network = SHARED["network"] | {"clients": [f"root.{edge}.{leaf}" for edge in range(2) for leaf in range(3)]}
    with_spare = network | {"links": [*network["links"], spare]}
    assert transfers(network=network).equals(transfers(network=with_spare))


def test_twice_the_bandwidths_and_twice_the_bytes_change_no_time() -> None:
    def doubled(factor: float) -> Any:
        generator = SHARED["network"]["generator"] | {"level_bytes_per_s": [600.0 * factor, 500.0 * factor]}
        web = {"name": "web", "kind": "poisson", "from": "root.1", "to": "root", "per_s": 0.5, "size_bytes": 300.0 * factor}
        network = SHARED["network"] | {"generator": generator, "links": [], "background": [web]}
        return transfers(network=network, payload={"down_bytes": int(700 * factor), "up_bytes": int(1300 * factor)})

    one, two = doubled(1.0), doubled(2.0)
    assert one[TIMES].to_numpy() == pytest.approx(two[TIMES].to_numpy(), rel=1e-9)
    updates = one["kind"].isin(["model", "update"])
    assert (two["size_bytes"][updates] == 2 * one["size_bytes"][updates]).all()


def test_an_update_and_the_traffic_of_others_share_a_cable_by_hand() -> None:
    """Of `near` (1000 bytes/s) the other traffic takes 400 from 0 s on; the update of 1200 bytes has 600 and takes 2 s."""
    links = [link | {"delay_s": 0.0} for link in LINE["links"]]
    line = {"name": "line", "kind": "constant", "from": "y", "to": "s", "bytes_per_s": 400.0}
    tables = {"name": "two", "rounds": 1, "clients": {"count": 2}, "server": {"per_round": 2}, "policy": {"kind": "all"}}
    network = LINE | {"links": links, "background": [line]}
    run = netsim.run(tables | {"payload": {"up_bytes": [0, 1200]}, "network": network})
    assert run.rounds["end_s"].tolist() == pytest.approx([2.0], rel=1e-9)


HEAD = """name = "n"
rounds = 1
clients.count = 1
server.per_round = 1
policy.kind = "all"
payload.up_bytes = 500
"""
NETWORK = '[network]\nserver = "s"\nclients = ["x"]\n'
CABLE = '[[network.links]]\na = "x"\nb = "s"\nbandwidth_bytes_per_s = 1e3\n'
ROUTE = '[[network.routes]]\nfrom = "x"\nto = "s"\nlinks = ["far"]\n'


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (NETWORK + CABLE + '[[network.links]]\na = "y"\nb = "z"\n', ["no route joins x and y", "add a link"]),
        (NETWORK.replace('"x"', '"q"') + CABLE, ["network.clients.0 = 'q'", "is no node"]),
        (NETWORK.replace('["x"]', '["x", "x"]') + CABLE, ["network.clients", "name one for each"]),
        (NETWORK + CABLE + ROUTE, ["network.routes.0.links.0", "no cable"]),
        (NETWORK + CABLE + '[[network.links]]\na = "s"\nb = "s"\n', ["is a loop", "leave it out"]),
        (NETWORK + CABLE.replace("bandwidth_bytes_per_s = 1e3", ""), ["'x-s' has no bandwidth", "give it"]),
        (NETWORK + CABLE.replace("1e3", "1e15"), ["network.links.0.bandwidth_bytes_per_s", "look at the units"]),
        (NETWORK + CABLE + CABLE, ["network.links.1.name = 'x-s'", "a name of its own"]),
        (NETWORK + 'source = "bare.graphml"\n', ["network.source", "bare.graphml", "neither km nor delay_s", "give every edge"]),
    ],
    ids=["apart", "no-node", "too-many-nodes", "no-route", "loop", "no-bandwidth", "units", "twice", "graphml"],
)
def test_the_command_line_tells_a_mistake_in_one_message(
    network: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "n.toml").write_text(HEAD + network, encoding="utf-8")
    graph = '<graph edgedefault="undirected"><node id="x"/><node id="s"/><edge source="x" target="s"/></graph>'
    (tmp_path / "bare.graphml").write_text(f'<graphml xmlns="http://graphml.graphdrawing.org/xmlns">{graph}</graphml>')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["netsim", "run", "n.toml", "--out", "out"])
    with pytest.raises(SystemExit) as caught:
        main()
    told = capsys.readouterr().err
    assert caught.value.code == 2
    assert [word for word in ["n.toml", *words] if word not in " ".join(told.split())] == [], told
    assert "Traceback" not in told
    assert not (tmp_path / "out").exists()
