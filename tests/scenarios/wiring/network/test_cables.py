"""Scenarios with `[network]`: times worked out by hand, losses, laws, background traffic, scripts, resuming."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from scenarios.runs.reading import parse
from scenarios.runs.run import go_on, run
from scenarios.wiring.simulation import build
from tests.helpers.networks import LINE, SHARED, Cut
from tests.helpers.small_worlds import World


def ends(network: dict[str, Any], up_bytes: Any, **more: Any) -> list[tuple[int, float, str, str | None]]:
    """Return client, end, outcome and cause of all updates of one round, by client."""
    tables = {"clients": 2, "payload": {"up_bytes": up_bytes}, "server": {"per_round": 2}, "network": network} | more
    world = World([[0, 1]], tables.pop("clients"), **tables)
    world.simulation.run()
    world.simulation.close()
    rows = sorted(world.records.updates, key=lambda row: row.client)
    return [(row.client, row.outcome_s, row.outcome, row.cause) for row in rows]


def delivered(*ends_s: float) -> list[tuple[int, float, str, None]]:
    return [(client, pytest.approx(end_s, rel=1e-12), "delivered", None) for client, end_s in enumerate(ends_s)]


def test_a_transfer_takes_the_delays_of_its_route_and_shares_its_cables() -> None:
    """Client 1 begins at 0.5 s, client 0 at 0.75 s; on `near` each then has 500 bytes/s.

    Client 1 has 250 bytes at 0.75 s, and 750 at 1.75 s, where client 0 has 500 of its 500 and ends. Client 1 has 250 left: 2 s.
    Models have no bytes: they take the delay alone, 0.75 s and 0.5 s, so that all is later by as much.
    """
    links = [{**link, "delay_s": 0.0} for link in LINE["links"]]
    assert ends(LINE | {"links": links}, [500.0, 1000.0]) == delivered(1.0, 1.5)
    # With delays: client 1 sends at 0.5 s and flows from 1.0 s; client 0 sends at 0.75 s and flows from 1.5 s.
    # At 1.5 s client 1 has 500 bytes; both then have 500 bytes/s and end at 2.5 s.
    assert ends(LINE, [500.0, 1000.0]) == delivered(2.5, 2.5)


def test_three_flows_over_two_cables() -> None:
    """A flow over both cables, one over each: 500 bytes/s for all; once the first has ended, the second has its cable alone."""
    links = [{**link, "delay_s": 0.0} for link in LINE["links"]]
    beside = {"name": "others", "kind": "constant", "from": "x", "to": "y", "bytes_per_s": 5000.0}
    network = LINE | {"links": links, "background": [beside]}
    assert ends(network, [1000.0, 2000.0]) == delivered(2.0, 3.0)


def test_full_and_half_duplex_and_fat_pipes() -> None:
    """Two models of 1,000 bytes and background traffic the other way."""
    links = [{"name": "near", "a": "y", "b": "s", "bandwidth_bytes_per_s": 1000.0}]
    against = {"name": "others", "kind": "constant", "from": "y", "to": "s", "bytes_per_s": 5000.0}
    network = {"server": "s", "clients": ["y", "y"], "links": links, "background": [against]}
    down = {"payload": {"down_bytes": 1000}}
    for duplex, end_s in (("full-duplex", 2.0), ("half-duplex", 3.0), ("fat-pipe", 1.0)):
        assert ends(network | {"duplex": duplex}, 0, **down) == delivered(end_s, end_s)


def test_a_bandwidth_that_changes_under_way() -> None:
    """500 bytes pass in 0.5 s; at 500 bytes/s the other 1,000 take 2 s."""
    near = {"name": "near", "a": "y", "b": "s", "bandwidth_bytes_per_s": 1000.0}
    near["changes"] = [{"at_s": 0.5, "bandwidth_bytes_per_s": 500.0}]
    network = {"server": "s", "clients": ["y", "s"], "links": [near]}
    assert ends(network, [1500.0, 1500.0]) == delivered(2.5, 0.0)


def test_a_trace_and_its_end() -> None:
    """1,000 bytes/s for a second, then 100; where the trace ends, what is under way is lost."""
    near: dict[str, Any] = {"name": "near", "a": "y", "b": "s"}
    network = {"server": "s", "clients": ["y", "s"], "links": [near]}
    near["bandwidth"] = {"kind": "trace", "time_s": [0.0, 1.0], "bytes_per_s": [1000.0, 100.0], "after_end": "hold"}
    assert ends(network, 1500.0)[0] == (0, pytest.approx(6.0, rel=1e-12), "delivered", None)
    near["bandwidth"] |= {"after_end": "stop", "end_s": 3.0}
    assert ends(network, 1500.0)[0] == (0, 3.0, "lost", "trace-end")


def test_an_outage_loses_what_crosses_the_cable_meanwhile() -> None:
    outage = {"name": "digger", "links": ["far"], "from_s": 0.25, "to_s": 0.5}
    links = [{**link, "delay_s": 0.0} for link in LINE["links"]]
    found = ends(LINE | {"links": links, "outages": [outage]}, [500.0, 1000.0])
    assert found == [(0, 1.0, "lost", "digger"), (1, 1.5, "delivered", None)]
    later = outage | {"from_s": 1.0, "to_s": 2.0}
    assert ends(LINE | {"links": links, "outages": [later]}, [500.0, 1000.0]) == delivered(1.0, 1.5)


def test_a_cable_loses_transfers_by_its_law() -> None:
    lossy = [dict(link) for link in LINE["links"]]
    lossy[0]["channel"] = {"kind": "bernoulli", "success": 0.0}
    found = ends(LINE | {"links": lossy}, [500.0, 1000.0])
    assert [(row[2], row[3]) for row in found] == [("lost", "link"), ("delivered", None)]
    lossy[0]["channel"] = {"kind": "bernoulli", "success": 0.5}
    tables = {"payload": {"up_bytes": 10}, "server": {"per_round": 2}, "network": LINE | {"links": lossy}}
    world = World([[0, 1]] * 400, 2, **tables)
    world.simulation.run()
    lost = [row for row in world.records.updates if row.outcome == "lost"]
    assert {row.client for row in lost} == {0}
    # Model and update cross the cable: a quarter gets through, 100 of 400 with a standard deviation of 9.
    assert 260 < len(lost) < 340


def test_drawn_delays_add_to_the_propagation_delay() -> None:
    links = [dict(link) for link in LINE["links"]]
    links[1]["delay"] = {"kind": "constant", "value_s": 1.0}
    assert ends(LINE | {"links": links}, 0) == delivered(3.5, 3.0)


def test_corrections_and_presets() -> None:
    """The worked example of the presets: 100 kB over 1 Mbit/s and 10 ms, both ways over one cable."""
    cable = {"name": "c", "a": "y", "b": "s", "delay_s": 0.01, "bandwidth_bytes_per_s": 125_000.0, "duplex": "half-duplex"}
    network = {"server": "s", "clients": ["y", "s"], "links": [cable], "corrections": {"preset": "lv08"}}
    down_s = 0.01 * 13.01
    assert ends(network, 100_000)[0] == (0, pytest.approx(down_s + 0.996079381443299, rel=1e-9), "delivered", None)
    plain = network | {"corrections": {"latency_factor": 2.0}}
    assert ends(plain, 125_000)[0] == (0, pytest.approx(1.04, rel=1e-12), "delivered", None)


def test_the_start_of_a_connection_by_hand() -> None:
    """100 kB over 400 kB/s and 0.1 s: the cable holds 80 kB; from 10 kB three doublings of 0.2 s, in which 70 kB pass."""
    cable = {"name": "c", "a": "y", "b": "s", "delay_s": 0.1, "bandwidth_bytes_per_s": 400_000.0}
    network = {"server": "s", "clients": ["y", "s"], "links": [cable]}
    plain = ends(network, 100_000)[0][1]
    growing = ends(network | {"corrections": {"first_window_bytes": 10_000.0}}, 100_000)[0][1]
    assert growing - plain == pytest.approx(3 * 0.2 - 70_000 / 400_000, rel=1e-9)
    # A window that holds the whole transfer costs nothing.
    assert ends(network | {"corrections": {"first_window_bytes": 100_000.0}}, 100_000)[0][1] == plain


def test_a_cable_that_no_message_uses_changes_nothing_and_scales_cancel() -> None:
    links = [*LINE["links"], {"a": "s", "b": "z", "bandwidth_bytes_per_s": 1.0}]
    whole = ends(LINE, [500.0, 1000.0])
    assert ends(LINE | {"links": links}, [500.0, 1000.0]) == whole
    double = [{**link, "bandwidth_bytes_per_s": 2000.0} for link in LINE["links"]]
    assert ends(LINE | {"links": double}, [1000.0, 2000.0]) == whole


@pytest.mark.parametrize("round", [3, 7])
def test_cut_off_with_flows_under_way_it_goes_on_to_the_same_bytes(round: int, tmp_path: Path) -> None:
    scenario = parse(SHARED)
    run(scenario, tmp_path / "whole")

    def cut(simulation: Any) -> None:
        if simulation.server.round == round:
            assert simulation.server.clients.medium.down.network.under_way
            raise Cut

    with pytest.raises(Cut):
        run(scenario, tmp_path / "cut", after_round=cut, checkpoint_s=0)
    go_on(tmp_path / "cut", checkpoint_s=0)
    for name in ("rounds", "clients"):
        whole, cut_off = (pq.read_table(tmp_path / run / f"{name}.parquet") for run in ("whole", "cut"))
        assert whole.equals(cut_off)


SLOTS: dict[str, Any] = {
    "name": "slots",
    "rounds": 1,
    "clients": {"count": 2},
    "slots": {"rounds": 1},
    "payload": {"up_bytes": 1000, "down_bytes": 0},
    "network": {
        "server": "s",
        "clients": ["x", "y"],
        "links": [
            {"a": "x", "b": "s", "bandwidth_bytes_per_s": 1000.0},
            {"a": "y", "b": "s", "bandwidth_bytes_per_s": 1000.0},
        ],
    },
}


def test_opinions_and_messages_between_clients_are_flows_too(tmp_path: Path) -> None:
    """An opinion of 500 bytes takes half a second; a message from client to client crosses both cables."""
    opinions = {"opinions": {"synthetic": {"worth": 0.5}, "size_bytes": 500}}
    first = SLOTS | opinions | {"server": {"kind": "fl-fa", "per_round": 2}, "policy": {"kind": "all"}}
    run(parse(first), tmp_path / "fa")
    rows = pq.read_table(tmp_path / "fa" / "rounds.parquet").to_pandas()
    assert rows["end_s"].iloc[0] == pytest.approx(1.5, rel=1e-12)
    second = SLOTS | opinions | {
        "server": {"kind": "fl-da", "per_round": 2},
        "policy": {"kind": "bp-index"},
        "peers": {"topology": {"kind": "complete"}},
        "output": {"messages_table": True},
    }
    run(parse(second), tmp_path / "da")
    messages = pq.read_table(tmp_path / "da" / "messages.parquet").to_pandas()
    seconds = (messages["end_s"] - messages["sent_s"]).to_numpy()
    assert len(seconds) > 2
    assert seconds == pytest.approx(messages["size_bytes"].to_numpy() / 1000.0, rel=1e-9)


def test_a_built_network_has_the_expected_latency_of_every_client() -> None:
    tables = {"name": "n", "rounds": 1, "server": {"per_round": 2}, "policy": {"kind": "all"}}
    scenario = parse(tables | {"clients": {"count": 2}, "payload": {"up_bytes": 500}, "network": LINE})
    expected = build(scenario).truth.mean_latency_s(1, 0.0)
    assert expected == pytest.approx([0.75 * 2 + 0.5, 0.5 * 2 + 0.5], rel=1e-12)


def test_the_expected_latency_where_a_bandwidth_changes_as_the_last_byte_passes() -> None:
    """The change comes a rounding error before the end of the bytes, at which none are left by then."""
    size_bytes, rate = 5, 3.0
    change_s = math.nextafter(size_bytes / rate, 0.0)
    assert change_s * rate == size_bytes
    near = {"name": "near", "a": "y", "b": "s"}
    near["bandwidth"] = {"kind": "trace", "time_s": [0.0, change_s], "bytes_per_s": [rate, 1.0], "after_end": "hold"}
    network = {"server": "s", "clients": ["y", "s"], "links": [near]}
    tables = {"name": "n", "rounds": 1, "server": {"per_round": 2}, "policy": {"kind": "all"}, "clients": {"count": 2}}
    scenario = parse(tables | {"payload": {"up_bytes": size_bytes}, "network": network})
    medium = build(scenario).server.clients.medium
    assert medium.latency_s(1, 0.0, np.arange(2)).tolist() == [change_s, 0.0]
