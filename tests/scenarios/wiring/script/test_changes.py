"""What a script changes: at once, for what begins from then on, under the same draws; and what it takes back."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from scenarios.schema.errors import UserError
from scenarios.wiring.laws import Law
from tests.helpers.scripted import THREE, built, recorded
from tests.helpers.suites import each_nth


def test_a_change_in_mid_phase_holds_for_what_begins_after_it():
    # Uploads begin at 1, 2 and 4 s. At 3 s an upload comes to take 10 s: the first two end at 3 and 4 s all the same,
    # the third at 14 s, and in the next round all three take 10 s: 14 + 4 + 10 = 28 s.
    def script(world):
        yield world.until_time(3.0)
        world.change("uplink.delay", value_s=10.0)

    made = built(THREE, script)
    rows = recorded(THREE, script)
    made.simulation.run()
    assert [row.outcome_s for row in rows.updates] == [3.0, 4.0, 14.0, 25.0, 26.0, 28.0]
    assert [(act.round, act.time_s, act.before, act.after) for act in rows.acts] == [(1, 3.0, "2.0", "10.0")]
    assert made.truth.mean_latency_s(2, 20.0).tolist() == [11.0, 12.0, 14.0]
    # Of the time before, the truth is still what it was.
    assert made.truth.mean_latency_s(1, 2.9).tolist() == [3.0, 4.0, 6.0]


def test_who_waits_for_a_sub_channel_begins_after_the_change():
    # One sub-channel: 1 to 3 s, then 3 to 13 s, then 13 to 23 s.
    def script(world):
        yield world.until_time(2.5)
        world.change("uplink.delay", value_s=10.0)

    tables = THREE | {"rounds": 1, "uplink": {"delay": {"kind": "constant", "value_s": 2.0}, "sub_channels": 1}}
    rows = recorded(tables, script)
    assert [row.upload_start_s for row in rows.updates] == [1.0, 3.0, 13.0]
    assert [row.outcome_s for row in rows.updates] == [3.0, 13.0, 23.0]


def test_restored_parameters_are_those_that_would_be_in_force():
    # Client 0 computes for 1 s; from 10 s on for 3 s, by the scenario. The script multiplies by 10 from 4 s to 12 s: the round
    # of 0 to 3 s is as it was, that from 3 s, too; those from 6 s and from 18 s on take 10 and, the factor gone, 3 s.
    def script(world):
        yield world.until_time(4.0)
        slow = world.scale("compute.delay", value_s=10.0, clients=[0])
        yield world.until_time(12.0)
        slow.restore()

    tables = THREE | {
        "rounds": 5,
        "clients": {"count": 1},
        "server": {"per_round": 1},
        "compute": {
            "delay": {"kind": "constant", "value_s": 1.0},
            "changes": [{"at_s": 10.0, "delay": {"value_s": 3.0}}],
        },
    }
    rows = recorded(tables, script)
    assert [row.compute_end_s - row.compute_start_s for row in rows.updates] == [1.0, 1.0, 10.0, 3.0, 3.0]
    assert [(act.action, act.before, act.after, act.of) for act in rows.acts] == [
        ("scale", "1.0", "10.0", None),
        ("restore", "30.0", "3.0", 1),
    ]


def test_two_changes_of_one_parameter_are_taken_back_in_any_order():
    def script(world):
        first = world.change("compute.delay", value_s=5.0)
        second = world.change("compute.delay", value_s=7.0, clients=1)
        seen.append(world.value("compute.delay", "value_s").tolist())
        first.restore()
        seen.append(world.value("compute.delay", "value_s").tolist())
        second.restore()
        seen.append(world.value("compute.delay", "value_s").tolist())
        yield world.until_round(1)

    seen: list[list[float]] = []
    recorded(THREE, script)
    assert seen == [[5.0, 7.0, 5.0], [1.0, 7.0, 4.0], [1.0, 2.0, 4.0]]


TRANSFER: dict[str, Any] = {
    "name": "transfer",
    "rounds": 1,
    "clients": {"count": 2},
    "server": {"per_round": 2},
    "policy": {"kind": "all"},
    "payload": {"down_bytes": 100, "up_bytes": 100},
}


@pytest.mark.parametrize("direction", ["downlink", "uplink"])
def test_a_transfer_under_way_follows_a_bandwidth_that_changes(direction: str) -> None:
    # 100 bytes at 50 a second. At 1 s client 0 comes to 10 a second: 50 bytes, then 30 in 3 s; from 4 s on 20 more at 50.
    def script(world):
        yield world.until_time(1.0)
        slow = world.change(f"{direction}.bandwidth", bytes_per_s=10.0, clients=0)
        yield world.until_time(4.0)
        slow.restore()

    tables = TRANSFER | {direction: {"bandwidth_bytes_per_s": 50.0}}
    rows = recorded(tables, script)
    assert sorted(row.outcome_s for row in rows.updates) == pytest.approx([2.0, 4.4])
    made = built(tables, script)
    made.simulation.run()
    assert made.truth.mean_latency_s(1, 2.0).tolist() == [10.0, 2.0]
    assert made.truth.mean_latency_s(1, 4.0).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("direction", ["downlink", "uplink"])
@pytest.mark.parametrize("own", [None, 80.0])
def test_transfers_that_share_a_link_follow_its_bandwidth(direction: str, own: float | None) -> None:
    # Two of 100 bytes share 100 a second: 50 each in the first second, 25 each in the next at half of it, the rest in half a
    # second. A bandwidth of their own of 80 a second limits nobody.
    def script(world):
        yield world.until_time(1.0)
        half = world.scale(f"{direction}.shared.bandwidth", bytes_per_s=0.5)
        yield world.until_time(2.0)
        half.restore()

    section: dict[str, Any] = {"shared": {"bandwidth_bytes_per_s": 100.0}}
    tables = TRANSFER | {direction: section if own is None else section | {"bandwidth_bytes_per_s": own}}
    assert [row.outcome_s for row in recorded(tables, script).updates] == pytest.approx([2.5, 2.5])
    # Without a script that acts, the same as without a script.
    plain = TRANSFER | {direction: section}
    assert [row.outcome_s for row in recorded(plain).updates] == [2.0, 2.0]

    def refused(world):
        world.change(f"{direction}.shared.bandwidth", bytes_per_s=1.0, clients=[0])
        yield world.until_round(1)

    with pytest.raises(UserError, match=r"clients: .*shared.bandwidth has none; its parameters are of no client"):
        recorded(tables, refused)


def test_a_bandwidth_that_a_script_changes_is_one_that_changes_at_a_time() -> None:
    path = {"kind": "gauss-markov", "mean_bytes_per_s": 60.0, "std_bytes_per_s": 20.0, "memory": 0.5, "step_s": 0.7}
    tables = TRANSFER | {"rounds": 5, "clients": {"count": 3}, "server": {"per_round": 3}, "uplink": {"bandwidth": path}}

    def script(world):
        yield world.until_time(2.9)
        world.change("uplink.bandwidth", scale=0.4, clients=[1])

    change = {"at_s": 2.9, "clients": [1], "bandwidth": {"scale": 0.4}}
    expected = recorded(tables | {"uplink": {"bandwidth": path, "changes": [change]}})
    found = recorded(tables, script)
    ends = [row.outcome_s for row in found.updates]
    assert ends == pytest.approx([row.outcome_s for row in expected.updates])
    assert ends != pytest.approx([row.outcome_s for row in recorded(tables).updates])


ONE_CHANNEL: dict[str, Any] = TRANSFER | {
    "rounds": 2,
    "clients": {"count": 1},
    "server": {"per_round": 1},
    "scheduler": {"kind": "round-robin"},
}


def test_a_script_and_change_points_of_a_sub_channel_act_together() -> None:
    # 100 bytes at 50 a second, from 3 s on at 25. The script halves it from 1 s on. Round 1 began before: 2 s. Round 2 begins at
    # 2 s: 25 bytes by 3 s, then 12.5 a second: 6 s more.
    def script(world):
        yield world.until_time(1.0)
        world.scale("channels.bandwidth", bytes_per_s=0.5)

    change = {"at_s": 3.0, "bandwidth_bytes_per_s": 25.0}
    tables = ONE_CHANNEL | {"channels": {"count": 1, "bandwidth_bytes_per_s": 50.0, "changes": [change]}}
    rows = recorded(tables, script)
    assert [row.outcome_s for row in rows.updates] == [2.0, 9.0]
    assert [(act.before, act.after) for act in rows.acts] == [("50.0", "25.0")]


def test_a_script_and_change_points_in_rounds_of_a_sub_channel_act_together() -> None:
    # As above, but the change point is round 2's: 100 bytes at 12.5 a second.
    def script(world):
        yield world.until_time(1.0)
        world.scale("channels.bandwidth", bytes_per_s=0.5)

    change = {"at_round": 2, "bandwidth_bytes_per_s": 25.0}
    tables = ONE_CHANNEL | {"channels": {"count": 1, "bandwidth_bytes_per_s": 50.0, "changes": [change]}}
    assert [row.outcome_s for row in recorded(tables, script).updates] == [2.0, 10.0]


def test_a_script_ends_no_bandwidth_of_a_sub_channel(tmp_path) -> None:
    (tmp_path / "up.csv").write_text("time_s,bytes_per_s\n0,50\n9,50\n")
    trace = {"kind": "trace", "path": str(tmp_path / "up.csv")}

    def script(world):
        yield world.until_time(1.0)
        world.change("channels.bandwidth", after_end="stop")

    with pytest.raises(UserError, match=r"channels\.bandwidth\.after_end: a sub-channel never ends; repeat or hold its trace"):
        recorded(ONE_CHANNEL | {"channels": {"count": 1, "bandwidth": trace}}, script)


RANDOM: dict[str, Any] = {
    "name": "random",
    "rounds": 30,
    "clients": {"count": 6, "groups": [{"name": "near", "share": 0.5}, {"name": "far", "share": 0.5}]},
    "server": {"per_round": 3, "first": 2},
    "policy": {"kind": "random"},
    "downlink": {"delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.2}},
    "compute": {"delay": {"kind": "log-normal", "median_s": 0.3, "sigma": 1.0}},
    "uplink": {
        "delay": {"kind": "gaussian", "mean_s": 0.5, "std_s": 0.2},
        "channel": {"kind": "gilbert-elliott", "to_bad": 0.2, "to_good": 0.4},
    },
}
CHANNELS: dict[str, Any] = {
    "channels": {
        "count": 6,
        "delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.4},
        "channel": {"kind": "gilbert-elliott", "to_bad": 0.3, "to_good": 0.3},
    },
    "scheduler": {"kind": "random"},
}
SERVERS: dict[str, dict[str, Any]] = {
    "synchronous": {"kind": "synchronous", "per_round": 3, "first": 2},
    "semi-synchronous": {"kind": "semi-synchronous", "per_round": 3, "round_s": 1.0},
    "buffered": {"kind": "buffered", "concurrency": 3, "buffer": 2},
    "safa": {"kind": "safa", "per_round": 3},
    "compass": {"kind": "compass", "min_steps": 2, "max_steps": 8},
    "asynchronous": {"kind": "asynchronous", "round_s": 1.5},
}
LAWS: dict[str, tuple[str, dict[str, Any]]] = {
    "downlink.delay": ("delay", {"mean_excess_s": 1.5}),
    "downlink.channel": ("channel", {"success": 0.5}),
    "compute.delay": ("delay", {"median_s": 1.0, "sigma": 0.2}),
    "uplink.delay": ("delay", {"mean_s": 1.7}),
    "uplink.channel": ("channel", {"to_bad": 0.8, "loss_good": 0.1}),
    "channels.delay": ("delay", {"mean_excess_s": 1.4}),
    "channels.channel": ("channel", {"to_good": 0.05}),
}


def _study(server: str) -> dict[str, Any]:
    tables = RANDOM | {"server": SERVERS[server]}
    tables["downlink"] = RANDOM["downlink"] | {"channel": {"kind": "bernoulli", "success": 0.95}}
    tables |= CHANNELS
    if server == "compass":
        tables["compute"] = tables["compute"] | {"samples_per_s": 20.0}
        tables["work"] = {"batch_size": 4}
        tables["clients"] = tables["clients"] | {"data_sizes": 100.0}
    if server in ("safa", "compass", "asynchronous"):
        tables.pop("policy")
    return tables


@pytest.mark.each_nth(5)
@pytest.mark.parametrize(("target", "server"), each_nth(5, itertools.product(LAWS, SERVERS)))
def test_a_script_changes_what_a_change_point_changes(server: str, target: str) -> None:
    section, what = target.split(".")
    kind, parameters = LAWS[target]
    assert what == kind
    some = {"channels": [0, 3]} if section == "channels" else {"clients": "far"}

    def script(world):
        yield world.until_time(7.3)
        world.change(target, **some, **parameters)

    plain = _study(server)
    known = {"at_s": 7.3, "clients": next(iter(some.values())), kind: parameters}
    expected = recorded(plain | {section: plain[section] | {"changes": [known]}})
    found = recorded(plain, script)
    assert found.updates == expected.updates or str(found.updates) == str(expected.updates)
    assert str(found.rounds) == str(expected.rounds)
    assert str(expected.updates) != str(recorded(plain).updates)


def test_a_law_without_loss_or_time_may_come_to_have_some():
    # Nothing is drawn of laws that take no time and lose nothing: from the change on it is.
    def script(world):
        yield world.until_time(0.5)
        world.change("downlink.channel", success=0.0, clients=[0])
        yield world.until_time(3.5)
        world.change("downlink.delay", value_s=5.0)

    tables = THREE | {
        "rounds": 3,
        "downlink": {"delay": {"kind": "constant", "value_s": 0.0}, "channel": {"kind": "bernoulli", "success": 1.0}},
    }
    rows = recorded(tables, script)
    outcomes = [[row.outcome for row in rows.updates if row.client == client] for client in range(3)]
    assert outcomes == [["delivered", "lost", "lost"], ["delivered"] * 3, ["delivered"] * 3]
    # Rounds of 6 s, of 5 + 6 s with the download.
    assert [row.end_s for row in rows.rounds] == [6.0, 17.0, 28.0]


def test_means_of_sub_channels_from_a_table_change_and_come_back():
    def script(world):
        yield world.until_round(11)
        bad = world.change("channels.states", means=0.0, channels=[1])
        yield world.until_round(21)
        bad.restore()

    tables = {
        "name": "states",
        "rounds": 30,
        "clients": {"count": 2},
        "server": {"kind": "asynchronous"},
        "channels": {"count": 2, "states": {"kind": "piecewise-stationary", "starts": [16], "means": [[1.0, 1.0], [1.0, 1.0]]}},
        "scheduler": {"kind": "round-robin"},
    }
    rows = recorded(tables, script)
    lost = np.array([[row.round, row.channel] for row in rows.updates if row.outcome == "lost"])
    assert sorted(set(lost[:, 0])) == list(range(11, 21))
    assert set(lost[:, 1]) == {1}
    assert [(act.target, act.entities, act.before, act.after) for act in rows.acts] == [
        ("channels.states", "[1]", "1.0", "0.0"),
        ("channels.states", "[1]", "0.0", "1.0"),
    ]


def test_the_asynchronous_server_follows_as_well():
    # Two rounds of 1 s; then 0.5 s of computing and 3 s of sending.
    def script(world):
        yield world.until_round(3)
        world.change("uplink.delay", value_s=3.0)
        world.change("compute.delay", value_s=0.5)

    tables = {
        "name": "four",
        "rounds": 4,
        "clients": {"count": 3},
        "server": {"kind": "asynchronous"},
        "channels": {"count": 4},
        "scheduler": {"kind": "round-robin"},
        "uplink": {"delay": {"kind": "constant", "value_s": 1.0}},
    }
    assert [row.end_s for row in recorded(tables, script).rounds] == [1.0, 2.0, 5.5, 9.0]


def test_a_jammers_law_changes_and_goes_on_from_where_it_was() -> None:
    # It sweeps over four sub-channels, one a round, and from round 4 on two at once.
    def script(world):
        yield world.until_round(4)
        world.change("jammers.sweeper", width=2)

    tables = {
        "name": "swept",
        "rounds": 6,
        "clients": {"count": 2},
        "server": {"kind": "asynchronous"},
        "channels": {"count": 4},
        "scheduler": {"kind": "round-robin"},
        "jammers": [{"name": "sweeper", "law": {"kind": "sweep"}, "at_once": 2}],
    }
    rows = recorded(tables, script)
    jammed = [sorted(row.channel for row in rows.jams if row.round == round) for round in range(1, 7)]
    assert jammed == [[0], [1], [2], [0, 3], [0, 1], [1, 2]]
    assert [(act.target, act.parameter, act.before, act.after) for act in rows.acts] == [("jammers.sweeper", "width", "1", "2")]


def test_the_presence_of_clients_changes_from_the_next_sojourn_on() -> None:
    # Present for 2 s and away for 2 s on average; from 50 s on group "b" is away for very short times only.
    def script(world):
        yield world.until_time(50.0)
        world.change("availability", mean_off_s=1e-3, clients="b")

    tables = {
        "name": "presence",
        "rounds": 200,
        "clients": {"count": 40, "groups": [{"name": "a", "share": 0.5}, {"name": "b", "share": 0.5}]},
        "server": {"kind": "semi-synchronous", "per_round": 40, "round_s": 1.0},
        "policy": {"kind": "all"},
        "availability": {"kind": "markov", "mean_on_s": 2.0, "mean_off_s": 2.0},
    }
    rows, plain = recorded(tables, script), recorded(tables)
    share = {}
    for name, updates in (("script", rows.updates), ("plain", plain.updates)):
        for group in (0, 1):
            late = [row for row in updates if row.selected_s >= 70.0 and row.client // 20 == group]
            share[name, group] = len(late) / (20 * 130)
    assert share["script", 0] == share["plain", 0]
    assert 0.4 < share["plain", 1] < 0.6
    assert share["script", 1] > 0.98
    assert [row for row in rows.updates if row.selected_s < 50.0] == [row for row in plain.updates if row.selected_s < 50.0]


def test_a_law_that_is_changed_again_and_again_is_laid_over_once_an_act(monkeypatch):
    laid, count = Law.apply_overlay, []
    monkeypatch.setattr(Law, "apply_overlay", lambda law, *given: count.append(1) or laid(law, *given))

    def script(world):
        for act in range(40):
            yield world.after(0.25)
            world.change("compute.delay", value_s=1.0 + act / 100, clients=[act % 3])

    recorded(THREE | {"rounds": 4}, script)
    assert 40 <= len(count) <= 80
