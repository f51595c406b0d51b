"""Jammers of the clients' own links: by hand, resending, probes, tables, scripts, resuming and mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import netsim
from scenarios.runs.reading import override, parse
from scenarios.runs.run import go_on, run
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.networks import Cut
from tests.helpers.random_worlds import copied
from tests.helpers.servers import CHANNELS, scenario_of

SECOND = {"delay": {"kind": "constant", "value_s": 1.0}}
TWO: dict[str, Any] = {
    "name": "two",
    "rounds": 1,
    "clients": {"count": 2},
    "server": {"per_round": 2},
    "policy": {"kind": "all"},
    "payload": {"down_bytes": 5, "up_bytes": 7},
    "downlink": SECOND,
    "uplink": SECOND,
}
"""Models of two clients arrive at 1 s, their updates at 2 s."""


def jammer(jams: str, client: int, **keys: Any) -> dict[str, Any]:
    """A jammer of the link of one client, for one second."""
    return {"name": "van", "law": {"kind": "sweep"}, "jams": jams, "reach": [client], "dwell_s": 1.0, "budget": 1} | keys


def outcomes(*jammers: dict[str, Any], **more: Any) -> list[tuple[float, str, str | None, int, bool | None]]:
    """Return the end, outcome, cause, bytes up and mark of jamming of the updates of one round, by client."""
    rows = _played(TWO | {"jammers": list(jammers)} | more).updates
    return [(row.outcome_s, row.outcome, row.cause, row.bytes_up, row.jammed) for row in sorted(rows, key=lambda row: row.client)]


def _played(tables: dict[str, Any]) -> MemoryRecorder:
    simulation, records = build(parse(tables)).simulation, MemoryRecorder()
    simulation.record_to(records)
    simulation.run()
    simulation.close()
    return records


SAFE = (2.0, "delivered", None, 7, False)


def test_a_jammed_uplink_loses_the_update_and_a_jammed_downlink_the_model() -> None:
    assert outcomes(jammer("uplink", 0, start=1.5)) == [(2.0, "lost", "jammed", 7, True), SAFE]
    assert outcomes(jammer("downlink", 1, start=0.5)) == [SAFE, (1.0, "lost", "jammed", 0, True)]
    assert outcomes(jammer("downlink", 1, start=1.5)) == [SAFE, SAFE]


def test_what_ends_as_jamming_begins_or_begins_as_it_ends_is_not_hit() -> None:
    assert outcomes(jammer("uplink", 0, start=2.0)) == [SAFE, SAFE]
    assert outcomes(jammer("uplink", 0, start=0.0)) == [SAFE, SAFE]
    # The dwell ends, by a call of the clock later than that of the model's arrival, as the update begins.
    assert outcomes(jammer("uplink", 0, start=0.5, dwell_s=0.5)) == [SAFE, SAFE]
    assert outcomes(jammer("uplink", 0, start=1.0))[0] == (2.0, "lost", "jammed", 7, True)
    at_once = {"uplink": {}, "jammers": [jammer("uplink", 0, start=1.0)]}
    assert [row.outcome for row in _played(TWO | at_once).updates if row.client == 0] == ["lost"]


def test_each_sending_is_struck_by_itself_and_the_pause_is_none() -> None:
    """Client 0 sends over [1, 2), [2.5, 3.5) and [4, 5); its jammer is heard over one second from `start` on."""
    again = {"uplink": SECOND | {"max_resends": 2, "resend_after_s": 0.5}}
    for start, expected in (
        (1.25, (3.5, "delivered", None, 14, False)),
        (2.25, SAFE),  # not sent then: the first sending got through
    ):
        assert outcomes(jammer("uplink", 0, start=start), **again) == [expected, SAFE]
    both = jammer("uplink", 0, start=1.75, budget=2)
    records = _played(TWO | again | {"jammers": [both]})
    first = next(row for row in records.updates if row.client == 0)
    # Dwells over [1.75, 2.75) and [2.75, 3.75) strike a sending each; one that is struck twice counts once.
    assert (first.outcome_s, first.outcome, first.bytes_up) == (5.0, "delivered", 21)
    assert [(row.start_s, row.end_s, row.hit, row.destroyed) for row in records.jams] == [(1.75, 2.75, 2, 2), (2.75, 3.75, 0, 0)]
    short = jammer("uplink", 0, start=2.1, dwell_s=0.3)
    lossy = override(TWO | again, {"outages": [{"name": "mast", "clients": [0], "from_s": 1.5, "to_s": 1.75}]})
    assert [row.hit for row in _played(lossy | {"jammers": [short]}).jams] == [0]


def test_a_loss_has_one_cause_an_outage_first_and_the_channel_last() -> None:
    hit = jammer("uplink", 0, start=1.5)
    mast = {"outages": [{"name": "mast", "clients": [0], "from_s": 1.5, "to_s": 1.75}]}
    assert outcomes(hit, **mast)[0][2:] == ("mast", 7, True)
    bad = {"uplink": SECOND | {"channel": {"kind": "bernoulli", "success": [0.0, 1.0]}}}
    assert outcomes(**bad)[0][2] == "channel"
    assert outcomes(hit, **bad)[0][2:] == ("jammed", 7, True)
    # The channel would have lost it: hit, but not destroyed by the jammer.
    assert [(row.hit, row.destroyed) for row in _played(TWO | bad | {"jammers": [hit]}).jams] == [(1, 0)]


def test_bytes_that_share_a_bandwidth_are_struck_and_a_deadline_ends_what_is_under_way() -> None:
    shared = {"uplink": {"shared": {"bandwidth_bytes_per_s": 7.0}}}
    # Both send 7 bytes from 1 s on, at 3.5 bytes/s each.
    assert outcomes(jammer("uplink", 1, start=2.5), **shared) == [(3.0, *SAFE[1:]), (3.0, "lost", "jammed", 7, True)]
    cut = {"server": {"per_round": 2, "deadline_s": 1.75, "stragglers": "cancel"}}
    assert outcomes(jammer("uplink", 0, start=1.5), **cut)[0] == (1.75, "late", None, 7, True)


def test_answers_to_probes_are_jammed_as_updates_are() -> None:
    """Questions arrive at 1 s, answers at 2 s, then models at 3 s and updates at 4 s."""
    asking = {"policy": {"kind": "tests.helpers.asking:Highest"}, "server": {"per_round": 1}}
    records = _played(TWO | asking | {"jammers": [jammer("uplink", 0, start=1.5), jammer("downlink", 1, start=0.5, name="b")]})
    found = [(row.client, row.outcome, row.cause, row.outcome_s, row.bytes_up) for row in records.probes]
    assert found == [(1, "lost", "jammed", 1.0, 0), (0, "lost", "jammed", 2.0, 8)]
    assert [(row.jammer, row.hit, row.destroyed) for row in records.jams] == [("b", 1, 1), ("van", 1, 1)]
    # The round counts transfers of all kinds; none of the update was hit.
    assert [row.jammed for row in records.rounds] == [2]
    assert [(row.outcome, row.outcome_s, row.jammed) for row in records.updates] == [("delivered", 4.0, False)]


def test_without_a_hit_events_give_what_arrays_give() -> None:
    far = {"jammers": [jammer("uplink", 0, start=1e6)]}
    tables = scenario_of("synchronous") | {"clients": {"count": 30}, "server": {"per_round": 12, "deadline_s": 0.9}}
    tables["uplink"] = tables["uplink"] | {"channel": {"kind": "bernoulli", "success": 0.7}}
    quick, slow = build(parse(tables)), build(parse(tables | far))
    assert quick.server.clients.whole_rounds.possible
    assert not slow.server.clients.whole_rounds.possible
    columns = ("client", "outcome", "cause", "outcome_s", "upload_start_s", "upload_end_s", "bytes_up")
    rows = [[tuple(getattr(row, name) for name in columns) for row in _played(one).updates] for one in (tables, tables | far)]
    assert repr(rows[0]) == repr(rows[1])


BUSY: dict[str, Any] = override(
    scenario_of("buffered", rounds=40),
    {
        "downlink.delay": {"kind": "constant", "value_s": 0.1},
        "downlink.max_resends": 1,
        "uplink.max_resends": 2,
        "uplink.resend_after_s": 0.05,
        "uplink.delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.3},
        "uplink.channel": {"kind": "bernoulli", "success": 0.8},
        "payload": {"down_bytes": 3, "up_bytes": 5},
        "availability": {"kind": "markov", "mean_on_s": 4.0, "mean_off_s": 1.0},
        "energy": {"send_w": 2.0, "receive_w": 1.0, "compute_w": 3.0, "idle_w": 0.5},
    },
)
NOISE: list[dict[str, Any]] = [
    {"name": "timed", "law": {"kind": "random"}, "jams": "uplink", "at_once": 4, "dwell_s": 0.3},
    {"name": "rounds", "law": {"kind": "reactive", "target": "used"}, "jams": "downlink", "at_once": 3, "budget": 60},
]


@pytest.mark.parametrize("kind", ["buffered", "semi-synchronous", "asynchronous", "safa"])
def test_what_was_sent_arrived_was_lost_or_is_under_way(kind: str) -> None:
    tables = override(BUSY, {"server": scenario_of(kind)["server"], "jammers": NOISE})
    if kind == "asynchronous":
        tables = override(tables, CHANNELS | {"uplink.resend_after_s": 0.0})
    if kind in ("asynchronous", "safa"):
        del tables["policy"]
    simulation, records = build(parse(tables)).simulation, MemoryRecorder()
    simulation.record_to(records)
    simulation.run()
    simulation.close()
    jamming = simulation.server.clients.medium.jamming
    for links, column, size in ((jamming.down, "bytes_down", 3), (jamming.up, "bytes_up", 5)):
        sendings = sum(getattr(row, column) for row in records.updates) // size
        assert sum(links.begun) == sendings > sum(links.delivered) > 0
        struck = [row.hit for row in records.jams if row.jammer == ("timed" if links is jamming.up else "rounds")]
        assert 0 < sum(struck) <= links.hit
        # What is hit is not delivered, however many attempts a model takes on its way.
        assert sum(links.delivered) + links.hit <= sendings
        assert all(len(sent) <= 1 for sent in links.under_way)
    assert sum(row.hit for row in records.jams) > 10
    assert len(records.jams) == simulation.server.counts()["jam_dwells"]
    assert sum(row.destroyed for row in records.jams) <= sum(row.hit for row in records.jams)
    if kind != "asynchronous":
        # An update that got through its link arrived, in time or late.
        assert sum(jamming.up.delivered) == sum(row.outcome == "delivered" for row in records.updates)


def test_a_model_that_is_hit_in_one_round_and_would_arrive_in_the_next_is_lost() -> None:
    """Models of 1 s, rounds of 0.6 s: client 0 is hit in the first round, and its model is lost in the second."""
    tables = {key: TWO[key] for key in ("name", "clients", "downlink")} | {
        "rounds": 2,
        "server": {"kind": "asynchronous", "round_s": 0.6},
        "channels": {"count": 2, "states": {"kind": "stationary", "means": [1.0, 1.0]}},
        "scheduler": {"kind": "random"},
        "jammers": [jammer("downlink", 0, start=0.2, dwell_s=0.1)],
    }
    found = sorted((row.client, row.round, row.outcome, row.cause, row.outcome_s) for row in _played(tables).updates)
    assert found == [
        (0, 1, "late", None, 0.6),
        (0, 2, "lost", "jammed", 1.0),
        (1, 1, "late", None, 0.6),
        (1, 2, "delivered", None, 1.0),
    ]


def test_cost_and_damage_agree_in_all_tables() -> None:
    done = netsim.run(BUSY | {"jammers": NOISE})
    assert len(done.jams) >= done.rounds["jam_dwells"].sum() > 60
    assert done.jams["hit"].sum() >= done.rounds["jammed"].sum() > 10
    assert 0 < (done.clients["cause"] == "jammed").sum() <= done.clients["jammed"].sum() <= done.jams["hit"].sum()
    assert done.summary["books"]["balanced"]


def test_a_run_goes_on_with_jammed_transmissions_under_way() -> None:
    scenario = parse(BUSY | {"jammers": NOISE})

    def simulated() -> tuple[Any, MemoryRecorder]:
        simulation, records = build(scenario).simulation, MemoryRecorder()
        simulation.record_to(records)
        return simulation, records

    whole, expected = simulated()
    whole.run()
    whole.close()
    first, _ = simulated()
    pool = first.server.clients
    for round in range(5, 40):
        first.run(until_round=round)
        hit = [update for update in pool.alive.values() if update.jammed and update.phase in ("download", "upload")]
        if hit and all(links.senders() for links in pool.medium.jamming.links):
            break
    assert first.server.round < 40
    second, records = simulated()
    second.load_state_dict(copied(first.state_dict()))
    second.run()
    second.close()
    assert repr(records.rounds) == repr(expected.rounds[round:])
    assert repr(records.jams) == repr(expected.jams[-len(records.jams) :])
    assert repr(records.updates) == repr(expected.updates[-len(records.updates) :])


def test_sub_channels_and_links_between_clients_are_jammed_each_by_jammers_of_its_own() -> None:
    noise = {"law": {"kind": "random"}, "at_once": 4, "dwell_s": 0.2}
    jammers = [noise | {"name": "a", "jams": "channels"}, noise | {"name": "b", "jams": "peers"}]
    tables = override(scenario_of("fl-da"), CHANNELS | {"jammers": jammers, "output.messages_table": True})
    records = _played(tables)
    hit = {name: sum(row.hit for row in records.jams if row.jammer == name) for name in "ab"}
    updates = sum(row.jammed is True for row in records.updates)
    assert updates == hit["a"] > 0
    assert sum(row.cause == "jammed" for row in records.messages) == hit["b"] > 0
    # Rounds are slots, and end with them: nothing is under way.
    assert sum(row.jammed or 0 for row in records.rounds) == hit["a"] + hit["b"]
    assert sum(row.jam_dwells or 0 for row in records.rounds) == len(records.jams)


def test_opinions_are_jammed_also_beside_links_between_clients_that_nobody_uses() -> None:
    tables = override(
        scenario_of("fl-fa"), {"opinions.delay": {"kind": "constant", "value_s": 0.1}, "output.messages_table": True}
    )
    noise = {"name": "noise", "law": {"kind": "random"}, "at_once": 4, "dwell_s": 0.05}
    for more in ({}, {"peers": {"topology": {"kind": "complete"}}}):
        records = _played(tables | {"jammers": [noise]} | more)
        assert sum(row.cause == "jammed" for row in records.messages) == sum(row.jammed or 0 for row in records.rounds) > 0
        assert netsim.run(tables | {"jammers": [noise]} | more).jammed == {"noise": "opinions"}


def from_a_quarter(world: Any) -> Any:
    """Jam the uplink from 1.25 s on."""
    yield world.after(1.25)
    jamming = world.start_jammer("van")
    yield world.after(0.25)
    jamming.stop()


def of_two(world: Any) -> Any:
    """Start a jammer that does not exist."""
    yield world.after(0.1)
    world.start_jammer("vna")


def test_a_script_starts_and_stops_jammers_of_every_target() -> None:
    resting = jammer("uplink", 1, start="script", budget=None, dwell_s=100.0)
    assert outcomes(resting, script=f"{__name__}:from_a_quarter") == [SAFE, (2.0, "lost", "jammed", 7, True)]
    tables = override(scenario_of("fl-da", rounds=1), {"script": f"{__name__}:of_two"})
    both = [resting, resting | {"name": "b", "jams": "peers", "reach": [0]}]
    with pytest.raises(UserError, match="there is no such jammer; there are b, van"):
        _played(tables | {"jammers": both})


FLDA = override(scenario_of("fl-da"), CHANNELS)


@pytest.mark.parametrize(
    ("tables", "keys", "words"),
    [
        (
            TWO,
            {"jams": "channels"},
            ['jammers.0.jams = "channels"', "no sub-channels; give [channels]", "or set jams to 'uplink' or 'downlink'"],
        ),
        (TWO, {"jams": None}, ['jammers.0.jams = "channels"', "there are no sub-channels"]),
        (TWO, {"jams": "peers"}, ['jammers.0.jams = "peers"', "no client sends another a message", "set server.kind"]),
        (TWO, {"jams": "opinions"}, ['jammers.0.jams = "opinions"', "set server.kind = 'fl-fa'"]),
        (
            TWO,
            {"jams": "uplinks"},
            ['jammers.0.jams = "uplinks"', "must be 'channels', 'peers', 'opinions', 'uplink' or 'downlink'"],
        ),
        (TWO, {"reach": None, "cables": "all"}, ['jammers.0.jams = "uplink"', "leave out cables"]),
        (TWO, {"reach": [2]}, ["jammers.0.reach = [2]", "all from 0 to 1"]),
        (TWO, {"reach": None, "links": [[0, 1]]}, ["jammers.0.links", "jams = 'peers'", "give reach"]),
        (FLDA, {"jams": None}, ["jammers.0.jams", "'peers' or 'channels'"]),
        (
            override(FLDA, {"slots.start": "zero"}),
            {"jams": "peers"},
            ['jammers.0.jams = "peers"', "slots.start = 'zero'", "set slots.start to 'agreement', or set jams to 'channels'"],
        ),
        (override(FLDA, {"slots.start": "zero"}), {"jams": None, "reach": None, "links": [[0, 1]]}, ["slots.start = 'zero'"]),
        (FLDA, {"jams": "opinions"}, ['jammers.0.jams = "opinions"', "'channels', 'peers', 'uplink' or 'downlink'"]),
    ],
)
def test_a_mistake_is_told_with_key_and_remedy(tables: dict[str, Any], keys: dict[str, Any], words: list[str]) -> None:
    one = {key: value for key, value in (jammer("uplink", 0) | keys).items() if value is not None}
    with pytest.raises(UserError) as caught:
        build(parse(tables | {"jammers": [one]}))
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


def test_jammers_of_different_targets_have_names_of_their_own() -> None:
    with pytest.raises(UserError, match=r"jammers.1.name = .van.: is used twice"):
        build(parse(FLDA | {"jammers": [jammer("channels", 0), jammer("peers", 0)]}))


def test_peers_have_no_links_to_a_server_to_jam() -> None:
    peers = {key: TWO[key] for key in ("name", "rounds", "clients")} | {
        "server": {"kind": "peers", "protocol": {"kind": "d-psgd"}},
        "peers": {"topology": {"kind": "complete"}},
    }
    with pytest.raises(UserError, match=r'jammers.0.jams = "uplink": .* sends no models and updates; set jams to .peers.'):
        build(parse(peers | {"jammers": [jammer("uplink", 0)]}))


def test_links_to_an_edge_are_jammed_and_those_above_it_are_not(tmp_path: Path) -> None:
    edges = {"tiers": [{"name": "town", "count": 2, "rounds": 2}], "uplink": SECOND}
    tables = override(BUSY, {"server": {"per_round": 2}, "edges": edges, "jammers": NOISE})
    scenario = parse(tables)
    whole = netsim.run(tables)
    assert (whole.clients["cause"] == "jammed").sum() > 5
    assert "jammed" not in whole.arrow("edges", ["cause"]).column("cause").to_pylist()
    assert whole.rounds["jam_dwells"].sum() <= len(whole.jams)
    assert whole.jams["hit"].sum() >= whole.rounds["jammed"].sum() > 5

    def cut(simulation: Any) -> None:
        if simulation.server.round == 4:
            raise Cut

    with pytest.raises(Cut):
        run(scenario, tmp_path / "cut", after_round=cut, checkpoint_s=0)
    go_on(tmp_path / "cut", checkpoint_s=0)
    assert netsim.open_run(tmp_path / "cut").jams.equals(whole.jams)
    assert netsim.open_run(tmp_path / "cut").clients.equals(whole.clients)
