"""Everything of the world acts on the messages of an app: times that a reader can add up, as in `test_by_hand`.

A request has 32 bytes and a reply 27; without another word a download takes 1 s, work 2 s at client 0, an upload 3 s.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

import netsim
from tests.helpers.flower import client, request, run, server, world

UP = 27
TWO_S = {"delay": {"kind": "constant", "value_s": 2.0}}


def ask(*nodes: int) -> Callable[[Any, Any], None]:
    """Return a main function that sends a message to each of these nodes, all together."""
    return lambda grid, context: grid.send_and_receive([request(node) for node in nodes])


def ends(done: netsim.Run) -> list[float]:
    """Return the times at which messages ended, in order of their clients."""
    return done.clients.sort_values(["client", "selected_s"], kind="stable")["outcome_s"].tolist()


def test_replies_share_the_bandwidth_of_the_server() -> None:
    done = run(ask(2, 3), compute=TWO_S, uplink={"shared": {"bandwidth_bytes_per_s": 10.0}})
    assert ends(done) == pytest.approx([1.0 + 2.0 + 2 * UP / 10.0] * 2)


def test_bandwidth_follows_a_trace() -> None:
    # 10 bytes in the second after the work, and the other 17 at 34 bytes a second.
    trace = {"kind": "trace", "time_s": [0.0, 4.0], "bytes_per_s": [10.0, 34.0], "after_end": "hold"}
    assert ends(run(ask(2), uplink={"bandwidth": trace})) == pytest.approx([4.5])


def test_messages_cross_the_cables_of_a_network() -> None:
    cables = [{"a": "s", "b": node, "delay_s": delay_s} for node, delay_s in (("x", 0.5), ("y", 1.5), ("z", 0.0))]
    network = {"server": "s", "clients": ["x", "y", "z"], "links": cables, "bandwidth_bytes_per_s": 10.0}
    done = run(ask(2, 3), compute=TWO_S, network=network, downlink={}, uplink={})
    assert ends(done) == pytest.approx([2 * 0.5 + 3.2 + 2.0 + 2.7, 2 * 1.5 + 3.2 + 2.0 + 2.7])


def test_an_outage_loses_messages() -> None:
    done = run(ask(2, 3), outages=[{"name": "storm", "clients": [0], "from_s": 0.0, "to_s": 2.0}], flower={"lost": "error"})
    table = done.clients.sort_values("client")
    assert table["outcome"].tolist() == ["lost", "delivered"]
    assert table["cause"].tolist()[0] == "storm"


def test_a_client_that_leaves_goes_on_with_its_queue_as_it_returns(tmp_path: Path) -> None:
    presence = tmp_path / "presence.csv"
    presence.write_text("client,on_s,off_s\n0,0,4\n0,20,1000\n1,0,1000\n2,0,1000\n", encoding="utf-8")
    done = run(ask(2, 2), availability={"kind": "trace", "path": str(presence)}, flower={"lost": "error"})
    assert done.clients["outcome"].tolist() == ["aborted", "delivered"]
    assert ends(done) == [4.0, 20.0 + 6.0]


def test_energy_is_that_of_the_phases() -> None:
    done = run(ask(2), energy={"receive_w": 1.0, "compute_w": 2.0, "send_w": 4.0}, clients=1)
    joules = done.rounds[["receive_j", "compute_j", "send_j"]].to_numpy().tolist()
    assert joules == [[1.0 * 1.0, 2.0 * 2.0, 4.0 * 3.0]]


def test_a_change_point_in_seconds() -> None:
    # The first reply leaves at 3 s, the second at 9 s.
    done = run(ask(2, 2), uplink={**_constant(3.0), "changes": [{"at_s": 8.0, "delay": {"value_s": 7.0}}]})
    assert ends(done) == [6.0, 9.0 + 7.0]


def slower_from_8_s(world: netsim.World) -> netsim.Script:
    """Uploads take 7 s from 8 s on."""
    yield world.until_time(8.0)
    world.change("uplink.delay", value_s=7.0)


def test_a_script_acts_on_the_messages() -> None:
    done = run(ask(2, 2), script=f"{__name__}:slower_from_8_s")
    assert ends(done) == [6.0, 9.0 + 7.0]


def test_classes_of_devices_have_their_speeds(tmp_path: Path) -> None:
    devices = tmp_path / "devices.csv"
    devices.write_text("class,share,samples_per_s,up_bytes_per_s\nphone,0.5,2,9\nlaptop,0.5,10,27\n", encoding="utf-8")
    tables = world(2, compute={}, uplink={}) | {"clients": {"count": 2, "devices": str(devices)}, "flower": {"app": "x"}}
    done = netsim.run(tables, app=(server(ask(2, 3)), client()))
    assert ends(done) == pytest.approx([1.0 + 10 / 2 + UP / 9, 1.0 + 10 / 10 + UP / 27])


def _constant(seconds: float) -> dict[str, Any]:
    return {"delay": {"kind": "constant", "value_s": seconds}}
