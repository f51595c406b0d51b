"""Every act of a script under every kind of server that it makes sense for, with an effect that can be seen in the tables."""

from __future__ import annotations

from typing import Any

import pytest

import netsim
from netsim.records.rows import UpdateRow
from netsim.records.sinks import MemoryRecorder
from scenarios.schema.errors import UserError
from tests.helpers.scripted import recorded

BASE: dict[str, Any] = {
    "name": "acts",
    "rounds": 12,
    "clients": {"count": 4},
    "downlink": {"delay": {"kind": "constant", "value_s": 0.1}},
    "compute": {"delay": {"kind": "constant", "value_s": [0.5, 0.7, 0.9, 1.1]}},
    "uplink": {"delay": {"kind": "constant", "value_s": 0.6}},
    "channels": {"count": 4},
    "scheduler": {"kind": "round-robin"},
}
JAMMED: dict[str, Any] = {
    "jammers": [{"name": "all", "law": {"kind": "pulse", "off": 0, "width": 4}, "at_once": 4, "dwell_s": 1.0, "start": "script"}]
}
SLOTS: dict[str, Any] = {
    "slots": {"rounds": 3},
    "opinions": {"synthetic": {"worth": 0.5}, "test": {"kind": "constant", "value_s": 0.3}},
}
PEERS: dict[str, Any] = {
    "peers": {"topology": {"kind": "complete"}, "delay": {"kind": "constant", "value_s": 0.05}},
    "belief": {},
    "gossip": {},
    "output": {"messages_table": True},
}
SERVERS: dict[str, dict[str, Any]] = {
    "synchronous": {"server": {"per_round": 3}, "policy": {"kind": "random"}},
    "semi-synchronous": {"server": {"kind": "semi-synchronous", "per_round": 3, "round_s": 1.5}, "policy": {"kind": "random"}},
    "buffered": {"server": {"kind": "buffered", "concurrency": 3, "buffer": 2}, "policy": {"kind": "random"}},
    "safa": {"server": {"kind": "safa", "per_round": 3}},
    "compass": {
        "server": {"kind": "compass", "min_steps": 2, "max_steps": 8},
        "rounds": 24,
        "clients": {"count": 4, "data_sizes": 100.0},
        "work": {"batch_size": 10},
        "compute": BASE["compute"] | {"seconds_per_sample": [1e-9, 0.009, 0.01, 0.014]},
    },
    "asynchronous": {"server": {"kind": "asynchronous", "round_s": 2.0}},
    "fl-fa": {"server": {"kind": "fl-fa", "per_round": 4, "when_short": "proceed"}, "policy": {"kind": "random-set"}, **SLOTS},
    "fl-da": {
        "server": {"kind": "fl-da", "per_round": 4, "when_short": "proceed"},
        "policy": {"kind": "bp-index"},
        **SLOTS,
        **PEERS,
    },
}
"""Runs of more than 15 s, whose uploads take 0.6 s on sub-channels that lose nothing."""
UNCERTAIN = ("late", "aborted", "in_flight")
"""Attempts that were cut off before it was settled what became of them."""


WIDE: list[dict[str, Any]] = [{"bandwidth_bytes_per_s": 100.0}, {"bandwidth": {"kind": "constant", "bytes_per_s": 100.0}}]


def study(server: str, **more: Any) -> dict[str, Any]:
    return BASE | SERVERS[server] | more


def met(row: UpdateRow, start_s: float, end_s: float) -> bool:
    """Whether an upload was on its way at any instant of an interval."""
    return row.upload_start_s < end_s and start_s < row.upload_end_s


def during(tables: dict[str, Any], act: Any, start_s: float = 5.05, end_s: float = 9.05) -> MemoryRecorder:
    """What a run records in which `act` of the world, from one time to another, holds; `act` gives what takes it back."""

    def script(world):
        yield world.until_time(start_s)
        back = act(world)
        yield world.until_time(end_s)
        back()

    rows = recorded(tables, script)
    assert rows.updates[-1].selected_s > end_s, "the run is too short to see that it ends"
    return rows


@pytest.mark.parametrize("server", SERVERS)
def test_clients_that_are_taken_away_are_aborted_and_come_back(server: str) -> None:
    rows = during(study(server), lambda world: world.take_away(2).bring_back)
    taken = [row for row in rows.updates if row.client == 2]
    for row in taken:
        assert not 5.05 < row.selected_s < 9.05
        if row.selected_s < 5.05 < row.outcome_s:
            pytest.fail("it should have been aborted")
    ended = [row for row in taken if row.outcome_s == 5.05]
    assert all(row.outcome == "aborted" for row in ended)
    # Under most servers it is at work then; the others show it at another time.
    assert ended or server in ("synchronous", "semi-synchronous", "buffered", "safa", "fl-fa", "fl-da")
    assert any(row.selected_s >= 9.05 for row in taken)
    assert [act.action for act in rows.acts] == ["take_away", "bring_back"]
    others = [row for row in rows.updates if row.client != 2 and 5.05 < row.selected_s < 9.05]
    assert others


@pytest.mark.parametrize("server", SERVERS)
def test_whoever_is_taken_away_in_mid_phase_is_aborted_in_that_phase(server: str) -> None:
    # Client 3 trains for 1.1 s: taken away 0.3 s after a training of it began.
    starts = [row.compute_start_s for row in recorded(study(server)).updates if row.client == 3]
    when_s = next(start for start in starts if start > 3.0) + 0.3
    rows = during(study(server), lambda world: world.take_away([3]).bring_back, when_s, when_s + 3.0)
    (row,) = [row for row in rows.updates if row.outcome_s == when_s and row.client == 3]
    assert row.outcome == "aborted"
    assert row.compute_end_s == when_s
    assert row.upload_start_s != row.upload_start_s, "it never began to send"


@pytest.mark.parametrize("server", SERVERS)
def test_what_meets_a_cut_off_is_lost_and_nothing_else(server: str) -> None:
    rows = during(study(server), lambda world: world.cut_off([0, 1]).reconnect)
    hit = 0
    for row in rows.updates:
        if row.outcome in UNCERTAIN:
            continue
        down = row.download_start_s < 9.05 and row.download_end_s > 5.05
        cut = row.client in (0, 1) and (down or met(row, 5.05, 9.05))
        hit += cut
        assert row.outcome == ("lost" if cut else "delivered"), row
        assert row.cause == ("cut-off" if cut else None)
    assert hit


@pytest.mark.parametrize("server", [server for server in SERVERS if server != "fl-da"])
def test_a_jammer_that_a_script_starts_and_stops_jams_between(server: str) -> None:
    rows = during(study(server, **JAMMED), lambda world: world.start_jammer("all").stop)
    hit = 0
    for row in rows.updates:
        if row.jammed is None or row.outcome in UNCERTAIN:
            continue
        hit += bool(row.jammed)
        assert row.jammed == met(row, 5.05, 9.05), row
        assert row.outcome == ("lost" if row.jammed else "delivered")
    assert hit
    # Dwells of 1 s, counted from the start.
    assert sorted({row.start_s for row in rows.jams}) == pytest.approx([5.05, 6.05, 7.05, 8.05])
    assert max(row.end_s for row in rows.jams) == 9.05
    assert [(act.action, act.target) for act in rows.acts] == [("start", "jammers.all"), ("stop", "jammers.all")]


def test_a_jammer_of_links_between_clients_is_started_and_stopped() -> None:
    jammer = JAMMED["jammers"][0] | {"law": {"kind": "pulse", "off": 0, "width": 6}, "at_once": 6}
    tables = study("fl-da", jammers=[jammer])
    del tables["channels"], tables["scheduler"]
    rows = during(tables, lambda world: world.start_jammer("all").stop)
    jammed = [row for row in rows.messages if row.cause == "jammed"]
    assert jammed
    for row in rows.messages:
        # A message of no length in time would be hit at its one instant; these take 0.05 s.
        assert (row.cause == "jammed") == (row.sent_s < 9.05 and row.end_s > 5.05)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("target", ["downlink.delay", "compute.delay", "uplink.delay", "channels.delay"])
def test_a_duration_changes_for_what_begins_meanwhile(server: str, target: str) -> None:
    some = {"channels": [0, 1]} if target.startswith("channels") else {"clients": 0}
    rows = during(study(server), lambda world: world.change(target, value_s=0.25, **some).restore)
    phase = {"downlink.delay": "download", "compute.delay": "compute"}.get(target, "upload")
    before = {"downlink.delay": 0.1, "compute.delay": 0.5, "uplink.delay": 0.6, "channels.delay": 0.6}[target]
    after = 0.85 if target == "channels.delay" else 0.25
    seen = set()
    for row in rows.updates:
        start_s, end_s = getattr(row, f"{phase}_start_s"), getattr(row, f"{phase}_end_s")
        concerned = row.channel in (0, 1) if target == "channels.delay" else row.client == 0
        if not concerned or start_s != start_s or row.outcome in UNCERTAIN:
            continue
        changed = 5.05 <= start_s < 9.05
        seen.add(changed)
        assert end_s - start_s == pytest.approx(after if changed else before)
    assert seen == {False, True}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("target", ["downlink.channel", "uplink.channel", "channels.channel"])
def test_losses_change_for_what_begins_meanwhile(server: str, target: str) -> None:
    section = target.split(".")[0]
    certain = {section: BASE[section] | {"channel": {"kind": "bernoulli", "success": 1.0}}}
    some = {"channels": [0, 1]} if section == "channels" else {"clients": [0]}
    rows = during(study(server, **certain), lambda world: world.change(target, success=0.0, **some).restore)
    seen = set()
    for row in rows.updates:
        start_s = row.download_start_s if section == "downlink" else row.upload_start_s
        if start_s != start_s or row.outcome in UNCERTAIN:
            continue
        concerned = row.channel in (0, 1) if section == "channels" else row.client == 0
        lost = concerned and 5.05 <= start_s < 9.05
        seen.add(lost)
        assert row.outcome == ("lost" if lost else "delivered"), row
        assert row.cause == (("sub-channel" if section == "channels" else "channel") if lost else None)
    assert seen == {False, True}


@pytest.mark.parametrize("server", ["fl-fa", "fl-da"])
def test_tests_of_the_model_last_what_the_script_says(server: str) -> None:
    rows = during(study(server), lambda world: world.change("opinions.test.delay", value_s=1.0, clients=3).restore)
    lasted = {round(row.opinion_s or 0.0, 9) for row in rows.rounds}
    assert lasted == {0.3, 1.0}


def test_opinions_and_messages_follow_as_well() -> None:
    lossy = {"opinions": SLOTS["opinions"] | {"channel": {"kind": "bernoulli", "success": 1.0}}}
    rows = during(study("fl-fa", **lossy), lambda world: world.change("opinions.channel", success=0.0, clients=[1, 2]).restore)
    assert {row.opinions_missing for row in rows.rounds} == {0, 2}
    wide = {"opinions": SLOTS["opinions"] | {"bandwidth_bytes_per_s": 100.0, "size_bytes": 10}}
    rows = during(study("fl-fa", **wide), lambda world: world.change("opinions.bandwidth", bytes_per_s=20.0, clients=3).restore)
    assert {round(row.opinion_s or 0.0, 9) for row in rows.rounds} == {0.3 + 0.1, 0.3 + 0.5}
    rows = during(study("fl-da"), lambda world: world.change("peers.delay", value_s=0.2, clients=[1]).restore)
    for row in rows.messages:
        slow = row.source == 1 and 5.05 <= row.sent_s < 9.05
        assert row.end_s - row.sent_s == pytest.approx(0.2 if slow else 0.05, abs=1e-5)  # light takes its time
    assert any(row.source == 1 and 5.05 <= row.sent_s < 9.05 for row in rows.messages)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("bandwidth", WIDE)
def test_bytes_on_sub_channels_take_the_time_that_the_script_says(server: str, bandwidth: dict[str, Any]) -> None:
    wide = {"channels": {"count": 4} | bandwidth, "payload": {"up_bytes": 50}}
    act = "channels.bandwidth"
    rows = during(study(server, **wide), lambda world: world.change(act, bytes_per_s=40.0, channels=[0, 1]).restore)
    seen = set()
    for row in rows.updates:
        if row.channel is None or row.upload_start_s != row.upload_start_s or row.outcome in UNCERTAIN:
            continue
        changed = row.channel in (0, 1) and 5.05 <= row.upload_start_s < 9.05
        seen.add(changed)
        # What is under way goes on as it was: a delay of 0.6 s, then 50 bytes.
        assert row.upload_end_s - row.upload_start_s == pytest.approx(0.6 + (1.25 if changed else 0.5))
    assert seen == {False, True}


@pytest.mark.parametrize("bandwidth", WIDE)
def test_bytes_of_messages_take_the_time_that_the_script_says(bandwidth: dict[str, Any]) -> None:
    wide = {"peers": PEERS["peers"] | bandwidth, "belief": {"message_bytes": 10}, "gossip": {"header_bytes": 10, "pair_bytes": 0}}
    tables = study("fl-da", **wide)
    rows = during(tables, lambda world: world.scale("peers.bandwidth", bytes_per_s=0.5, clients=[1]).restore)
    for row in rows.messages:
        slow = row.source == 1 and 5.05 <= row.sent_s < 9.05
        assert row.end_s - row.sent_s == pytest.approx(0.05 + (0.2 if slow else 0.1), abs=1e-5)  # light takes its time
    assert any(row.source == 1 and 5.05 <= row.sent_s < 9.05 for row in rows.messages)


@pytest.mark.parametrize("links", [{"links": [(0, 1), (2, 1)]}, {"groups": [[1], [3]]}])
def test_messages_over_links_that_a_script_cuts_are_lost(links: dict[str, Any]) -> None:
    rows = during(study("fl-da"), lambda world: world.cut_links(**links).heal)
    hit = 0
    for row in rows.messages:
        ends = {row.source, row.target}
        down = ends in ({0, 1}, {1, 2}) if "links" in links else bool(ends & {1, 3})
        cut = down and row.sent_s < 9.05 and row.end_s > 5.05
        hit += cut
        assert (row.outcome, row.cause) == (("lost", "cut") if cut else ("delivered", None))
    assert hit
    assert [(act.action, act.target) for act in rows.acts] == [("cut_links", "peers.links"), ("heal_links", "peers.links")]


@pytest.mark.parametrize("update", ["synchronous", "asynchronous"])
def test_clients_whose_link_is_healed_tell_each_other_what_they_know(update: str) -> None:
    # Client 3 is cut off from the others, whose messages take 1 s where they are client 2's; healed at 0.5 s, it hears of all.
    def script(world, *, heals: bool):
        cut = world.cut_links(groups=[[3]])
        yield world.until_time(0.8)
        if heals:
            cut.heal()

    tables = study("fl-da", rounds=1) | {"belief": {"update": update, "max_exchanges": 3}, "gossip": {"forwarding": "flooding"}}
    tables["peers"] = PEERS["peers"] | {"delay": {"kind": "constant", "value_s": [0.05, 0.05, 1.0, 0.05]}}
    rounds = {heals: recorded(tables, script, heals=heals).rounds[0] for heals in (True, False)}
    assert rounds[True].messages > rounds[False].messages
    if update == "asynchronous":
        # What was not heard is said again as soon as the link is healed.
        sent_s = [row.sent_s for row in recorded(tables, script, heals=True).messages if 3 in (row.source, row.target)]
        assert 0.8 in sent_s
    assert rounds[True].disagreement == 0.0
    assert rounds[False].disagreement > 0.0


def test_links_that_there_are_not_are_refused() -> None:
    def stranger(world):
        yield world.until_time(1.0)
        world.cut_links([(0, 4)])

    def both(world):
        yield world.until_time(1.0)
        world.cut_links()

    with pytest.raises(UserError, match=r"line \d+: links has \(0, 4\): these two are not neighbours"):
        recorded(study("fl-da"), stranger)
    with pytest.raises(UserError, match=r"line \d+: links = \[\]: give either links or groups"):
        recorded(study("fl-da"), both)
    with pytest.raises(UserError, match=r"line \d+: there are no links between clients over which messages take time"):
        recorded(study("fl-fa"), both)


def test_a_script_may_wait_for_a_slot() -> None:
    def script(world):
        yield world.until_slot(3)
        seen.append((world.slot, world.round, world.time_s))

    seen: list[tuple[int, int, float]] = []
    rows = recorded(study("fl-fa"), script)
    # Slots of three communication rounds: two slots are six of them.
    assert seen == [(3, 6, rows.rounds[2].start_s)]


def test_a_server_waits_for_clients_that_a_script_will_bring_back() -> None:
    def script(world):
        yield world.until_time(3.0)
        away = world.take_away(None)
        yield world.until_time(20.0)
        away.bring_back()

    for server in SERVERS:
        rows = recorded(study(server, rounds=30), script)
        assert not [row for row in rows.updates if 3.0 <= row.selected_s < 20.0], server
        assert [row for row in rows.updates if row.selected_s >= 20.0], server


def test_a_run_ends_when_a_script_takes_everybody_away_for_good() -> None:
    def script(world):
        yield world.until_time(3.0)
        world.take_away(None)

    for server in SERVERS:
        rows = recorded(study(server), script)
        assert rows.updates[-1].selected_s <= 3.0, server


def test_clients_are_brought_back_when_a_straggler_ends() -> None:
    # The round closes at the second delivery. All three clients are needed for the next one: two are taken away until the third,
    # which is still at work, has ended.
    def script(world):
        yield world.until_delivery(count=2)
        away = world.take_away([0, 1])
        told.append((yield world.until_end(clients=2)))
        away.bring_back()

    told: list[Any] = []
    tables = study("synchronous", clients={"count": 3}, rounds=2) | {"server": {"per_round": 3, "first": 2}}
    rows = recorded(tables | {"compute": {"delay": {"kind": "constant", "value_s": [0.5, 0.7, 5.0]}}}, script)
    assert [(end.outcome, end.time_s) for end in told] == [("late", pytest.approx(5.7))]
    assert [row.start_s for row in rows.rounds] == [0.0, pytest.approx(5.7)]


def test_what_is_being_made_between_two_rounds_is_lost_with_its_client() -> None:
    # Rounds of 2 s. Client 0 trains for 5 s; at 2 s its attempt is over and it goes on, unless it is taken away just then.
    def script(world):
        yield world.until_round(2)
        away = world.take_away(0)
        yield world.until_round(3)
        away.bring_back()

    slow = study("asynchronous", rounds=6, compute={"delay": {"kind": "constant", "value_s": [5.0, 0.5, 0.5, 0.5]}})
    ends = {
        name: [(row.round, row.outcome) for row in recorded(slow, act).updates if row.client == 0]
        for name, act in (("as it is", None), ("taken away", script))
    }
    assert ends["as it is"] == [(1, "late"), (2, "late"), (3, "delivered"), (4, "late"), (5, "late"), (6, "delivered")]
    assert ends["taken away"] == [(1, "late"), (3, "late"), (4, "late"), (5, "delivered"), (6, "late")]


@pytest.mark.parametrize("server", SERVERS)
def test_clients_that_are_away_draw_what_absent_ones_draw(server: str) -> None:
    # 2 W idle, 5 W at work, 0.5 W away; the sum over attempts and idleness is checked against an integral of power in every run.
    def script(world):
        yield world.until_time(5.05)
        away = world.take_away([1, 3])
        yield world.until_time(9.05)
        away.bring_back()

    watts = {"energy": {"idle_w": 2.0, "compute_w": 5.0, "send_w": 5.0, "receive_w": 5.0, "off_w": 0.5}}
    run = netsim.run(study(server, **watts), script=script)
    assert run.summary["books"]["balanced"]
    rounds = run.rounds
    seconds = float(rounds["end_s"].iloc[-1])
    idle_j = float(rounds["idle_j"].sum())
    at_work_s = float((rounds["compute_j"] + rounds["send_j"] + rounds["receive_j"]).sum()) / 5.0
    if server.startswith("fl-"):
        return  # tests of the model draw as well
    assert idle_j == pytest.approx(2.0 * (4 * seconds - at_work_s) - 1.5 * 8.0, rel=1e-9)


def test_absences_may_overlap() -> None:
    def script(world):
        first = world.take_away([0, 1])
        second = world.take_away([1, 2])
        yield world.until_time(4.0)
        first.bring_back()
        yield world.until_time(8.0)
        second.bring_back()

    rows = recorded(study("asynchronous"), script)
    first = {client: min(row.selected_s for row in rows.updates if row.client == client) for client in range(4)}
    assert first == {0: 4.0, 1: 8.0, 2: 8.0, 3: 0.0}


def test_what_jammers_refuse_is_told_with_the_line() -> None:
    def unknown(world):
        yield world.until_time(1.0)
        world.start_jammer("al")

    def twice(world):
        yield world.until_time(1.0)
        world.start_jammer("all")
        world.start_jammer("all")

    def resting(world):
        yield world.until_time(1.0)
        world.stop_jammer("all")

    tables = study("synchronous", **JAMMED)
    with pytest.raises(UserError, match=r"line .*'al': there is no such jammer; there are all"):
        recorded(tables, unknown)
    with pytest.raises(UserError, match=r"line .*this jammer is at work already; stop it before it is started again"):
        recorded(tables, twice)
    with pytest.raises(UserError, match=r"line .*this jammer rests already; start it before it is stopped"):
        recorded(tables, resting)
    with pytest.raises(UserError, match=r"this scenario has no jammers; add \[\[jammers\]\]"):
        recorded(study("synchronous"), resting)
    with pytest.raises(UserError, match=r'jammers.0.start = "script": without a script nobody starts it'):
        recorded(tables)
