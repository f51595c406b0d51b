"""Acts of a script on links, jammers and laws of delay and loss, with an effect that can be seen in the tables."""

from __future__ import annotations

from typing import Any

import pytest

from scenarios.schema.errors import UserError
from tests.helpers.script_worlds import BASE, PEERS, SERVERS, SLOTS, UNCERTAIN, during, met, study
from tests.helpers.scripted import recorded

JAMMED: dict[str, Any] = {
    "jammers": [{"name": "all", "law": {"kind": "pulse", "off": 0, "width": 4}, "at_once": 4, "dwell_s": 1.0, "start": "script"}]
}


WIDE: list[dict[str, Any]] = [{"bandwidth_bytes_per_s": 100.0}, {"bandwidth": {"kind": "constant", "bytes_per_s": 100.0}}]


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


@pytest.mark.each_nth(3)
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


@pytest.mark.each_nth(5)
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


@pytest.mark.each_nth(3)
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
    seen = set()
    for row in rows.messages:
        start_s = row.sent_s + 0.05
        slow_s = max(min(row.end_s, 9.05) - max(start_s, 5.05), 0.0) if row.source == 1 else 0.0
        # Half of what passes otherwise passes while the script holds, for bytes under way, too; light takes its time.
        assert 100.0 * (row.end_s - start_s - slow_s / 2) == pytest.approx(10.0, abs=1e-2)
        seen.add(slow_s > 0.0)
    assert seen == {False, True}


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


@pytest.mark.parametrize("update", ["synchronous", "asynchronous"])
def test_neighbours_and_a_client_that_is_reconnected_tell_each_other_what_they_know(update: str) -> None:
    # As above, but reconnected at 1.5 s: with synchronous updates gossip is under way then, since client 2's messages take 1 s.
    def script(world, *, links: bool):
        cut = world.cut_links(groups=[[3]]) if links else world.cut_off(3)
        yield world.until_time(1.5)
        (cut.heal if links else cut.reconnect)()

    exchanges = 1 if update == "synchronous" else 4
    tables = study("fl-da", rounds=1) | {"belief": {"update": update, "max_exchanges": exchanges}}
    tables["peers"] = PEERS["peers"] | {"delay": {"kind": "constant", "value_s": [0.05, 0.05, 1.0, 0.05]}}
    found = []
    for links in (True, False):
        rows = recorded(tables, script, links=links)
        (row,) = rows.rounds
        sent_s = [message.sent_s for message in rows.messages if 3 in (message.source, message.target)]
        assert 1.5 in sent_s
        assert row.disagreement == 0.0
        found.append((row.agreed_s, row.messages, sent_s))
    assert found[0] == found[1]


def test_a_link_that_is_healed_and_still_down_is_back_with_its_outage() -> None:
    def script(world):
        cut = world.cut_links(groups=[[3]])
        yield world.until_time(1.5)
        cut.heal()

    tables = study("fl-da", rounds=1) | {"belief": {"max_exchanges": 1}}
    outage = {"from_s": 0.0, "to_s": 1.8, "groups": [[3]]}
    tables["peers"] = PEERS["peers"] | {"delay": {"kind": "constant", "value_s": [0.05, 0.05, 1.0, 0.05]}, "outages": [outage]}
    rows = recorded(tables, script)
    sent_s = [message.sent_s for message in rows.messages if 3 in (message.source, message.target)]
    assert 1.5 not in sent_s
    assert sent_s.count(1.8) == 6
    assert rows.rounds[0].disagreement == 0.0


def test_a_message_that_sets_out_as_jamming_ends_gets_through() -> None:
    # Jammed over [0, 2) in two dwells. Messages that take 2 s are answered at 2 s, before the call that ends the second dwell.
    def nothing(world):
        yield world.until_time(0.0)

    jammer = {"name": "all", "law": {"kind": "pulse", "off": 0, "width": 6}, "at_once": 6, "budget": 12, "dwell_s": 1.0}
    tables = study("fl-da", rounds=1) | {"belief": {"exchanges": 2}, "jammers": [jammer]}
    del tables["channels"], tables["scheduler"]
    tables["opinions"] = {"synthetic": {"worth": 0.5}}
    tables["peers"] = PEERS["peers"] | {"delay": {"kind": "constant", "value_s": 2.0}, "speed_km_per_s": 1e300}
    rows = recorded(tables, nothing)
    assert {0.0, 2.0, 4.0} <= {row.sent_s for row in rows.messages}
    assert all((row.cause == "jammed") == (row.sent_s < 2.0) for row in rows.messages)
    assert sum(jam.hit for jam in rows.jams) == 12
