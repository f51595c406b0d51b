"""Bandwidth over time in whole runs: by hand, one carrier against another, what is expected, and the file that comes along."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netsim.network.bandwidth.carriers import VaryingLinks
from netsim.network.bandwidth.known_links import FixedLinks, KnownLinks
from netsim.network.bandwidth.sharing import SharedMedium
from netsim.network.bandwidth.varying_medium import VaryingMedium
from scenarios.runs.reading import load, parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.scripted import built as built_with
from tests.helpers.scripted import recorded as recorded_with
from tests.helpers.small_worlds import World, constant, sized

STEPS = {"kind": "trace", "time_s": [0.0, 2.0, 5.0], "bytes_per_s": [100.0, 50.0, 200.0], "end_s": 6.0}


def test_transfers_over_three_steps() -> None:
    # Down: 250 bytes from 0 s on, 200 by 2 s, through at 3 s. Up, after a second of training and half a second of delay: from
    # 4.5 s on 25 bytes by 5 s, 225 by 6 s, and the trace again: 100 a second, 75 bytes in 0.75 s.
    it = World(
        [[0]],
        payload={"down_bytes": 250, "up_bytes": 300},
        downlink={"bandwidth": STEPS},
        compute=constant(1, 1, 1),
        uplink={"bandwidth": STEPS, **constant(0.5, 0.5, 0.5)},
    )
    it.play()
    assert it.rows("download_end_s", "upload_start_s", "upload_end_s") == [(3.0, 4.0, 6.75)]
    assert it.rounds("end_s", "bytes_up") == [(6.75, 300)]


def test_two_uploads_share_a_link_whose_rate_halves_on_the_way() -> None:
    # Client 0 begins at 1 s, client 1 at 2 s, when 0 has 50 of 100 bytes. Each 25 a second till 3 s, when the link halves: 12.5
    # each. Client 0 is through at 5 s, and 1, with 50 left, at 7 s.
    halves = {"kind": "trace", "time_s": [0.0, 3.0], "bytes_per_s": [50.0, 25.0], "after_end": "hold"}
    it = World(
        [[0, 1]],
        server={"per_round": 2},
        payload=sized(100),
        compute=constant(1, 2, 1),
        uplink={"shared": {"bandwidth": halves}},
    )
    it.play()
    assert it.rows("client", "upload_end_s") == [(0, 5.0), (1, 7.0)]
    assert isinstance(it.server.clients.medium.up, VaryingMedium)


def test_downloads_share_a_link_too() -> None:
    # 100 bytes for each of two at 100 a second in all; the own 20 bytes a second of client 1 leave 80 to client 0.
    it = World(
        [[0, 1]],
        server={"per_round": 2},
        payload=sized(100),
        downlink={"shared": {"bandwidth_bytes_per_s": 100.0}, "bandwidth_bytes_per_s": [100.0, 20.0, 100.0]},
    )
    it.play()
    assert it.rows("client", "download_end_s") == [(0, 1.25), (1, 5.0)]
    assert isinstance(it.server.clients.medium.down, SharedMedium)


def test_a_change_in_seconds_acts_on_what_is_under_way() -> None:
    # 100 bytes at 100 a second, halved at 0.5 s for client 0 only.
    change = {"at_s": 0.5, "clients": [0], "bandwidth_bytes_per_s": 50.0}
    uplink = {"bandwidth_bytes_per_s": 100.0, "changes": [change]}
    it = World([[0, 1]], server={"per_round": 2}, payload=sized(100), uplink=uplink)
    assert it.play().rows("client", "upload_end_s") == [(1, 1.0), (0, 1.5)]
    assert isinstance(it.server.clients.medium.up, KnownLinks)


LATER: dict[str, Any] = {"at_s": 0.5, "bandwidth_bytes_per_s": 1e-11}


@pytest.mark.parametrize(
    "bandwidth",
    [{"bandwidth": {"kind": "constant", "bytes_per_s": 1e-11}}, {"bandwidth_bytes_per_s": 100.0, "changes": [LATER]}],
)
def test_a_sub_channel_over_which_nothing_ever_passes_is_refused(bandwidth: dict[str, Any]) -> None:
    channels = {"count": 2} | bandwidth
    told = r"channels\.bandwidth\w*: takes 1e\+13 s on average for sub-channel 0; must be at most 1e\+12 s"
    with pytest.raises(UserError, match=told):
        World([[0, 1]], server={"per_round": 2}, payload=sized(100), channels=channels, scheduler={"kind": "random"})


def test_a_change_in_rounds_acts_on_what_is_under_way_as_the_round_opens() -> None:
    # Client 0 has 50 of its 100 bytes as round 2 opens at 0.5 s; the other 50 take 2 s, and client 1's 100 bytes 4 s.
    it = World(
        [[0], [1]],
        server={"per_round": 1, "deadline_s": 0.5, "stragglers": "finish"},
        payload=sized(100),
        uplink={"bandwidth_bytes_per_s": 100.0, "changes": [{"at_round": 2, "bandwidth_bytes_per_s": 25.0}]},
    )
    it.simulation.run()
    it.server.clients.clock.run(until=10.0)
    assert it.rows("client", "outcome", "upload_end_s") == [(0, "late", 2.5), (1, "late", 4.5)]
    assert isinstance(it.server.clients.medium.up, VaryingLinks)


def test_what_is_under_way_as_a_trace_ends_is_lost() -> None:
    # Client 0 is through at 1 s; client 1, whose training takes 1.5 s, is cut at 2 s; in round 2 everybody is, on the way down.
    ends = {"kind": "trace", "time_s": [0.0], "bytes_per_s": [100.0], "end_s": 2.0, "after_end": "stop"}
    link = {"bandwidth": ends}
    it = World(
        [[0, 1], [0, 1]],
        server={"per_round": 2},
        payload={"down_bytes": 10, "up_bytes": 90},
        compute=constant(0, 1.5, 0),
        uplink=link,
        downlink=link,
    )
    it.play()
    assert it.rows("round", "client", "outcome", "cause", "outcome_s") == [
        (1, 0, "delivered", None, 1.0),
        (1, 1, "lost", "trace-end", 2.0),
        (2, 0, "lost", "trace-end", 2.0),
        (2, 1, "lost", "trace-end", 2.0),
    ]
    assert math.isnan(it.rows("upload_start_s")[3][0])


def test_a_buffered_server_whose_links_are_all_over_goes_on_to_its_last_round() -> None:
    tables = {
        "name": "over",
        "rounds": 50,
        "clients": {"count": 4},
        "server": {"kind": "buffered", "concurrency": 2, "buffer": 2},
        "policy": {"kind": "random"},
        "payload": sized(10),
        "compute": constant(1, 1, 1, 1),
        "downlink": {"bandwidth": {**STEPS, "time_s": [0.0], "bytes_per_s": [100.0], "end_s": 5.0, "after_end": "stop"}},
    }
    simulation = build(parse(tables)).simulation
    simulation.run()
    assert simulation.ended == "rounds"
    # Two every 1.1 s; the models sent at 4.4 s arrive in time, those sent at 5.5 s do not.
    assert simulation.server.counts()["delivered"] == 10
    assert simulation.clock.now == pytest.approx(5.5)


ROUGH: dict[str, Any] = {
    "name": "rough",
    "rounds": 40,
    "clients": {"count": 12},
    "server": {"per_round": 5, "deadline_s": 6.0, "when_short": "proceed"},
    "policy": {"kind": "random"},
    "payload": {"down_bytes": 100, "up_bytes": {"from": 50, "to": 200}},
    "downlink": {"delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.2}},
    "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 1.0}},
    "uplink": {"delay": {"kind": "constant", "value_s": 0.1}, "sub_channels": 3},
    "availability": {"kind": "markov", "mean_on_s": 20.0, "mean_off_s": 4.0},
}


def rough(link: dict[str, Any], **changes: Any) -> Any:
    return ROUGH | {name: ROUGH[name] | link for name in ("downlink", "uplink")} | changes


def table(tables: dict[str, Any]) -> list[tuple[Any, ...]]:
    records = recorded_with(tables)
    return [(row.round, row.client, row.outcome, row.download_end_s, row.upload_end_s, row.outcome_s) for row in records.updates]


def same(first: list[tuple[Any, ...]], second: list[tuple[Any, ...]]) -> bool:
    """Equal but for rounding: a duration that is added to a time, and the end itself, differ in the last digit."""
    assert [row[:3] for row in first] == [row[:3] for row in second]
    assert len(first) > 100
    one, other = (np.array([row[3:] for row in rows]) for rows in (first, second))
    return bool(np.allclose(one, other, rtol=1e-9, atol=0.0, equal_nan=True))


GAUSS = {"kind": "gauss-markov", "mean_bytes_per_s": 200.0, "std_bytes_per_s": 90.0, "memory": 0.8}


def test_every_carrier_gives_the_same_times() -> None:
    """A number to add, links that are known, links that may change, and a shared link that is never full."""
    never = [{"at_round": 1000, "bandwidth_bytes_per_s": 1.0}]
    late = [{"at_s": 1e9, "bandwidth_bytes_per_s": 1.0}]
    ample = {"bandwidth_bytes_per_s": 1e6}
    plain = {"bandwidth_bytes_per_s": 100.0}
    links = [plain, plain | {"changes": late}, plain | {"changes": never}, plain | {"shared": ample}]
    kinds = [type(build(parse(rough(link))).server.clients.medium.up) for link in links]
    assert kinds == [FixedLinks, KnownLinks, VaryingLinks, SharedMedium]
    expected = table(rough(links[0]))
    assert all(same(expected, table(rough(link))) for link in links[1:])
    drawn = {"bandwidth": GAUSS}
    links = [drawn, drawn | {"changes": [{"at_round": 1000, "bandwidth": {"memory": 0.1}}]}, drawn | {"shared": ample}]
    kinds = [type(build(parse(rough(link))).server.clients.medium.up) for link in links]
    assert kinds == [KnownLinks, VaryingLinks, VaryingMedium]
    expected = table(rough(links[0]))
    assert all(same(expected, table(rough(link))) for link in links[1:])


def test_another_policy_changes_nobodys_bandwidth() -> None:
    first = {row[:2]: row[3] for row in table(rough({"bandwidth": GAUSS}, availability={"kind": "always"}))}
    other = rough({"bandwidth": GAUSS}, availability={"kind": "always"}, policy={"kind": "all"}, rounds=1)
    second = {row[:2]: row[3] for row in table(other | {"server": {"per_round": 12}})}
    both = [key for key in first.keys() & second.keys() if not math.isnan(first[key])]
    assert len(both) == 5
    assert [first[key] for key in both] == [second[key] for key in both]


def test_what_is_expected() -> None:
    """The truth takes the mean bandwidth of the long run; the latency of a round the bandwidths as they come."""
    it = build(
        parse(
            {
                "name": "expected",
                "rounds": 2,
                "clients": {"count": 2},
                "server": {"per_round": 1},
                "policy": {"kind": "random"},
                "payload": {"down_bytes": 250, "up_bytes": [300, 110]},
                "downlink": {"bandwidth": STEPS},
                "compute": constant(1, 1),
                "uplink": {"bandwidth": STEPS, "changes": [{"at_round": 2, "bandwidth": {"scale": [1.0, 0.5]}}]},
            }
        )
    )
    mean = 550.0 / 6.0
    assert it.truth.mean_latency_s(1, 0.0) == pytest.approx([1.0 + 550.0 / mean, 1.0 + 360.0 / mean])
    assert it.truth.mean_latency_s(2, 9.0) == pytest.approx([1.0 + 550.0 / mean, 1.0 + 250.0 / mean + 220.0 / mean])
    medium = it.server.clients.medium
    # Down by 3 s, training to 4 s: 50 bytes by 5 s; of the other 250, 200 by 6 s and 50 in half a second. Or 60 in 0.3 s.
    assert medium.latency_s(1, 0.0, np.array([0, 1])) == pytest.approx([6.5, 5.3])
    # A trace later everything is the same.
    assert medium.latency_s(1, 6.0, np.array([0, 1])) == pytest.approx([6.5, 5.3])


def test_what_is_expected_of_a_shared_link() -> None:
    it = build(
        parse(
            {
                "name": "expected",
                "rounds": 2,
                "clients": {"count": 2},
                "server": {"per_round": 1},
                "policy": {"kind": "random"},
                "payload": sized(100),
                "uplink": {"shared": {"bandwidth": STEPS}, "bandwidth_bytes_per_s": [20.0, 1000.0]},
            }
        )
    )
    assert it.truth.mean_latency_s(1, 0.0) == pytest.approx([5.0, 100.0 / (550.0 / 6.0)])
    assert it.server.clients.medium.latency_s(1, 1.5, np.array([0, 1])) == pytest.approx([5.0, 1.5])


def test_a_run_too_short_for_any_transfer_is_warned_of() -> None:
    tables = rough({"bandwidth": STEPS}, time_limit_s=0.4, availability={"kind": "always"})
    assert "time-limit-too-short" in [caution.name for caution in build(parse(tables)).cautions]
    # The fifth smallest update, 112.5 bytes, and the model at 200 bytes a second at most; delays and training take 0.3 s or more.
    tables["time_limit_s"] = 1.37
    assert "time-limit-too-short" not in [caution.name for caution in build(parse(tables)).cautions]


def test_a_script_changes_a_bandwidth_under_way() -> None:
    # 100 bytes at 100 a second; at 0.25 s the script leaves a tenth, and takes that back at 2.75 s: 25 + 25 + 50 bytes.
    def script(world: Any) -> Any:
        yield world.until_time(0.25)
        act = world.scale("uplink.bandwidth", bytes_per_s=0.1)
        yield world.until_time(2.75)
        act.restore()

    tables = {
        "name": "scripted",
        "rounds": 1,
        "clients": {"count": 1},
        "server": {"per_round": 1},
        "policy": {"kind": "random"},
        "payload": sized(100),
        "uplink": {"bandwidth_bytes_per_s": 100.0},
    }
    rows = recorded_with(tables, script)
    assert [row.upload_end_s for row in rows.updates] == [3.25]
    shared = tables | {"uplink": {"bandwidth_bytes_per_s": 100.0, "shared": {"bandwidth_bytes_per_s": 1000.0}}}
    rows = recorded_with(shared, script)
    assert [row.upload_end_s for row in rows.updates] == [pytest.approx(3.25, rel=1e-12)]
    made = built_with(tables, script)
    made.simulation.run()
    assert made.truth.mean_latency_s(1, 1.0).tolist() == [10.0]

    def wrong(world: Any) -> Any:
        world.change("uplink.bandwidth", rate=3.0)
        yield world.until_time(1.0)

    with pytest.raises(UserError, match=r"uplink\.bandwidth: the law has no parameter 'rate'; known: bytes_per_s"):
        recorded_with(tables, wrong)


SUB_CHANNELS: dict[str, Any] = {
    "name": "sub-channels",
    "rounds": 1,
    "clients": {"count": 2},
    "server": {"kind": "asynchronous"},
    "scheduler": {"kind": "round-robin"},
    "payload": sized(100),
    "uplink": constant(0.5, 0.5),
}


@pytest.mark.parametrize(
    ("channels", "ends"),
    [
        # 100 bytes at 50 a second after a quarter of a second of the sub-channel's delay, and half a second of the own link's.
        ({"bandwidth_bytes_per_s": 50.0}, 2.75),
        # The sub-channel's bytes begin at 0.25 s: 37.5 by 1 s, and the others at 25 a second in 2.5 s.
        ({"bandwidth_bytes_per_s": 50.0, "changes": [{"at_s": 1.0, "bandwidth_bytes_per_s": 25.0}]}, 4.0),
        ({"bandwidth": {"kind": "trace", "time_s": [0.0, 1.0], "bytes_per_s": [50.0, 25.0], "after_end": "hold"}}, 4.0),
    ],
)
def test_a_bandwidth_of_sub_channels_acts_on_what_is_under_way(channels: dict[str, Any], ends: float) -> None:
    tables = SUB_CHANNELS | {"channels": {"count": 2, "delay": {"kind": "constant", "value_s": 0.25}, **channels}}
    assert [row.upload_end_s for row in recorded_with(tables).updates] == [ends, ends]


@pytest.mark.parametrize(
    ("channels", "told"),
    [
        ({"bandwidth": {**STEPS, "after_end": "stop"}}, "channels.bandwidth.after_end: a sub-channel never ends"),
        (
            {"bandwidth": STEPS, "changes": [{"at_round": 2, "bandwidth": {"scale": 2.0}}]},
            "channels.changes: this bandwidth changes at times, and not in rounds; give at_s",
        ),
    ],
)
def test_a_bandwidth_of_sub_channels_that_cannot_be_is_refused(channels: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        build(parse(SUB_CHANNELS | {"channels": {"count": 2, **channels}}))


def test_energy_is_counted_while_bytes_are_carried() -> None:
    # One watt while receiving, two while sending: 2 s of download that is shared, 4 s of upload over steps.
    ends = {"kind": "trace", "time_s": [0.0, 3.0], "bytes_per_s": [100.0, 20.0], "after_end": "hold"}
    it = World(
        [[0, 1]],
        server={"per_round": 2},
        payload=sized(100),
        downlink={"shared": {"bandwidth_bytes_per_s": 100.0}},
        uplink={"bandwidth": ends, "changes": [{"at_round": 9, "bandwidth": {"scale": 2.0}}]},
        energy={"receive_w": 1.0, "send_w": 2.0},
    )
    it.play()
    assert it.rows("download_end_s", "upload_end_s") == [(2.0, 3.0), (2.0, 3.0)]
    assert it.rows("receive_j", "send_j") == [(2.0, 2.0), (2.0, 2.0)]


def test_the_trace_that_comes_along_is_found_wherever_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(build(load("bandwidth_trace")).server.clients.medium.up, KnownLinks)
    (tmp_path / "bandwidth_trace.csv").write_text("time_s,bytes_per_s\n0,1e6\n")
    # A file of that name in the folder one is in is the user's own.
    medium = build(load("bandwidth_trace")).server.clients.medium
    assert medium.up.alone_s(1, np.zeros(60), np.arange(60)) == pytest.approx(1.6)


@pytest.mark.parametrize("besides", [{}, {"script": "tests.helpers.scripted:waits"}, {"wide": True}])
def test_bytes_follow_the_delay_of_the_sub_channel(besides: dict[str, Any]) -> None:
    # A second of delay on the sub-channel, then 900 bytes at the 900 bytes/s that hold from 1 s on: 2 s, whatever carries them.
    trace = {"kind": "trace", "time_s": [0.0, 1.0], "bytes_per_s": [100.0, 900.0], "after_end": "hold"}
    uplink: dict[str, Any] = {"bandwidth": trace}
    if besides.pop("wide", False):
        uplink["shared"] = {"bandwidth_bytes_per_s": 1e12}
    it = World(
        [[0]],
        payload=sized(900),
        uplink=uplink,
        channels={"count": 1, "delay": {"kind": "constant", "value_s": 1.0}},
        scheduler={"kind": "random"},
        **besides,
    )
    assert it.play().rows("upload_end_s") == [(2.0,)]
