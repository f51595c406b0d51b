"""Corners of the engine, worked out by hand: what happens in one instant, at a limit, or across a change point."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.random_worlds import copied
from tests.helpers.small_worlds import World, constant

NOTHING = constant(0, 0, 0)
PRIVATE = {"sensitivity": 1.0, "schedule": {"kind": "explicit", "epsilons": [4.0, 2.0, 1.0]}}
# One sub-channel for three clients that are ready at once and send for two seconds each.
LINE = {"uplink": constant(2, 2, 2) | {"sub_channels": 1}, "privacy": PRIVATE}


def presence(folder: Path, *intervals: str) -> dict[str, Any]:
    path = folder / "presence.csv"
    path.write_text("\n".join(["client,on_s,off_s", *intervals]) + "\n")
    return {"kind": "trace", "path": str(path)}


def test_who_waits_in_line_never_transmits_when_called_off() -> None:
    # Client 0 sends from 0 to 2, client 1 from 2; at 3 the round closes and calls off both client 1, which sends, and client 2,
    # which waits. Client 2 must not take over the free sub-channel on the way out: it releases nothing, and sends no bytes.
    server = {"per_round": 3, "deadline_s": 3.0, "stragglers": "cancel"}
    world = World([[0, 1, 2]], server=server, payload={"up_bytes": 10}, **LINE).play()
    assert world.rows("client", "outcome", "outcome_s") == [(0, "delivered", 2), (2, "late", 3), (1, "late", 3)]
    assert [np.isnan(row.upload_start_s) for row in world.records.updates] == [False, True, False]
    assert world.server.clients.accountant.participations.tolist() == [1, 1, 0]
    assert world.rounds("bytes_up") == [(20,)]


def test_who_waits_in_line_never_transmits_when_selected_anew() -> None:
    # The same, with all three selected again at 3: client 1's sub-channel must not pass to client 2's old update.
    server = {"per_round": 3, "deadline_s": 3.0, "reselect_busy": True}
    world = World([[0, 1, 2], [0, 1, 2]], server=server, **LINE).play()
    assert world.rows("round", "client", "outcome")[:3] == [(1, 0, "delivered"), (1, 2, "aborted"), (1, 1, "aborted")]
    assert np.isnan(world.records.updates[1].upload_start_s)
    # From 3 on client 0 sends again, to 5; client 1 begins at 5, and the round closes at 6.
    assert world.rows("round", "client", "outcome", "upload_start_s")[3:5] == [(2, 0, "delivered", 3), (2, 1, "in_flight", 5)]
    assert world.server.clients.accountant.participations.tolist() == [2, 2, 0]


def test_a_sub_channel_that_is_called_off_passes_to_a_straggler_of_another_round() -> None:
    # Round 1: client 0 sends until 8, and the deadline passes at 1. Round 2: client 1 queues from 1. At 2 the server
    # selects client 0 again: its old update gives up the sub-channel, which passes to client 1 at once (2 to 3); then client 0.
    uplink = constant(8, 1, 1) | {"sub_channels": 1}
    world = World([[0], [1], [0]], server={"deadline_s": 1.0, "reselect_busy": True}, uplink=uplink).play()
    assert world.rows("round", "client", "outcome", "upload_start_s", "outcome_s") == [
        (1, 0, "aborted", 0, 2),
        (2, 1, "late", 2, 3),
        (3, 0, "in_flight", 3, 3),
    ]


def test_a_transmission_keeps_the_channel_law_under_which_it_began() -> None:
    # At 2 every channel becomes hopeless. Client 0 sends from 1 to 6: it began before. Client 1 sends from 3 to 4: lost. It ends
    # first, so that the engine has looked up the new law before client 0 arrives.
    uplink = constant(5, 1, 1) | {"channel": {"kind": "bernoulli", "success": 1.0}}
    uplink["changes"] = [{"at_s": 2.0, "channel": {"success": 0.0}}]
    world = World([[0, 1]], compute=constant(1, 3, 1), uplink=uplink, server={"per_round": 2}).play()
    assert world.rows("client", "outcome", "upload_start_s", "outcome_s") == [(1, "lost", 3, 4), (0, "delivered", 1, 6)]


def test_a_change_in_rounds_leaves_a_straggler_its_own_law() -> None:
    # From round 2 on uploads take 4 s. The straggler of round 1 begins its upload in round 2, and still takes 1 s: 3 to 4.
    uplink = constant(1, 1, 1) | {"changes": [{"at_round": 2, "delay": {"value_s": 4.0}}]}
    world = World([[0], [1]], compute=constant(3, 0, 0), uplink=uplink, server={"deadline_s": 2.0}).play()
    assert world.rows("round", "client", "outcome", "upload_start_s", "outcome_s") == [
        (1, 0, "late", 3, 4),
        (2, 1, "in_flight", 2, 4),
    ]


def test_a_spent_budget_ends_the_run_though_clients_come_and_go() -> None:
    # Three releases each, two clients a round: nobody can be found for a fourth, however often clients come back.
    world = World(
        [[0, 1]] * 5,
        clients=2,
        uplink=constant(0.5, 0.5),
        privacy=PRIVATE,
        availability={"kind": "markov", "mean_on_s": 1e6, "mean_off_s": 1.0, "start": "on"},
        server={"per_round": 2, "when_short": "wait"},
    ).play()
    assert world.simulation.ended == "nobody left"
    assert world.rounds("round", "end_s") == [(1, 0.5), (2, 1.0), (3, 1.5)]


def test_nobody_left_does_not_wait_for_those_who_never_come(tmp_path: Path) -> None:
    # Client 2 never comes: three clients cannot be had, though one of the others goes and comes for a long time.
    there = presence(tmp_path, "0,0,inf", *(f"1,{2 * i},{2 * i + 1}" for i in range(100)))
    world = World([[0, 1, 2]], availability=there, server={"per_round": 3, "when_short": "wait"}).play()
    assert (world.simulation.ended, world.simulation.clock.now) == ("nobody left", 0)


def test_the_server_waits_for_a_busy_client_where_no_other_will_come() -> None:
    # Two clients, both wanted; client 1 is late by a second: round 2 begins when it is free again, at 3.
    world = World(
        [[0, 1], [0, 1]],
        clients=2,
        uplink=constant(1, 3),
        server={"per_round": 2, "when_short": "wait", "deadline_s": 2.0},
    ).play()
    assert world.rounds("start_s", "end_s") == [(0, 2), (3, 5)]


def test_a_round_that_closes_at_the_time_limit_counts() -> None:
    # By an arrival, and by its deadline; no further round begins then.
    arrival = World([[0], [0], [0]], uplink=constant(2, 1, 1), time_limit_s=4.0).play()
    deadline = World([[0], [1], [2]], uplink=constant(9, 9, 9), server={"deadline_s": 2.0}, time_limit_s=4.0).play()
    for world in (arrival, deadline):
        assert (world.simulation.ended, world.simulation.clock.now) == ("time limit", 4)
        assert world.rounds("end_s") == [(2,), (4,)]
    assert arrival.rows("round", "outcome") == [(1, "delivered"), (2, "delivered")]
    assert deadline.rows("round", "outcome") == [(1, "in_flight"), (2, "in_flight")]


def test_the_time_limit_holds_while_the_server_waits(tmp_path: Path) -> None:
    there = presence(tmp_path, "0,0,1", "0,50,60")
    # The second round begins at 0.5 and loses its client at 1; the third would have to wait until 50.
    world = World([[0], [0], [0]], uplink=constant(0.5, 1, 1), availability=there, time_limit_s=1.5).play()
    assert (world.simulation.ended, world.simulation.clock.now) == ("time limit", 1.5)
    assert world.rows("round", "outcome", "outcome_s") == [(1, "delivered", 0.5), (2, "aborted", 1)]


def test_a_round_of_losses_closes_and_teaches_nothing() -> None:
    hopeless = constant(1, 2, 3) | {"channel": {"kind": "bernoulli", "success": 0.0}}
    world = World([[0, 1, 2]], uplink=hopeless, server={"per_round": 3}).play()
    assert world.rounds("start_s", "end_s", "lost", "delivered", "version") == [(0, 3, 3, 0, 0)]
    (outcome,) = world.server.loop.dispatch.policy.outcomes
    assert outcome.censored.all()
    assert outcome.latency_s.tolist() == [3, 3, 3]


def test_a_round_may_take_no_time_at_all() -> None:
    world = World([[0, 1], [0]], server={"per_round": 2}).play()
    assert world.rounds("start_s", "end_s", "delivered") == [(0, 0, 2), (0, 0, 1)]
    # Lost on the way down, in the instant of the selection.
    hopeless = NOTHING | {"channel": {"kind": "bernoulli", "success": 0.0}}
    world = World([[0, 1]], downlink=hopeless, server={"per_round": 2, "deadline_s": 1.0}).play()
    assert world.rounds("end_s", "lost") == [(0, 2)]
    assert world.rows("download_end_s", "outcome_s") == [(0, 0), (0, 0)]


def test_an_upload_that_begins_after_the_deadline_was_set_and_ends_with_it_is_in_time() -> None:
    # The deadline, 3, is on the clock since 0; the uploads since 1 and 2. The last one takes no time at all.
    world = World(
        [[0, 1, 2]], compute=constant(1, 2, 3), uplink=constant(2, 1, 0), server={"per_round": 3, "deadline_s": 3.0}
    ).play()
    assert world.rounds("end_s", "delivered") == [(3, 3)]


def test_a_deadline_of_a_round_that_closed_early_does_not_ring_in_the_next() -> None:
    # Rounds of 1 s under a deadline of 2.5 s: the alarm of round 1 rings at 2.5, in the middle of round 3.
    world = World([[0]] * 4, uplink=constant(1, 1, 1), server={"deadline_s": 2.5}).play()
    assert world.rounds("end_s", "delivered") == [(1, 1), (2, 1), (3, 1), (4, 1)]


def test_a_client_that_leaves_while_it_waits_or_sends(tmp_path: Path) -> None:
    # One sub-channel. Client 0 sends from 0 and goes at 3; client 1 waits and goes at 2; client 2 gets the sub-channel at 3.
    there = presence(tmp_path, "0,0,3", "1,0,2", "2,0,9")
    world = World([[0, 1, 2]], uplink=constant(4, 1, 1) | {"sub_channels": 1}, availability=there, server={"per_round": 3}).play()
    assert world.rows("client", "outcome", "upload_start_s", "upload_end_s", "outcome_s")[1:] == [
        (0, "aborted", 0, 3, 3),
        (2, "delivered", 3, 4, 4),
    ]
    left = world.records.updates[0]
    assert (left.client, left.outcome, left.compute_end_s, left.outcome_s) == (1, "aborted", 0, 2)
    assert np.isnan([left.upload_start_s, left.upload_end_s]).all()


def test_who_waited_long_may_leave_in_the_middle_of_the_upload(tmp_path: Path) -> None:
    # Client 1 waits from 0 to 2, sends from 2, and goes at 3, before its upload would end at 4.
    there = presence(tmp_path, "0,0,9", "1,0,3")
    world = World([[0, 1]], uplink=constant(2, 2, 2) | {"sub_channels": 1}, availability=there, server={"per_round": 2}).play()
    assert world.rows("client", "outcome", "upload_start_s", "outcome_s") == [(0, "delivered", 0, 2), (1, "aborted", 2, 3)]
    assert world.server.clients.medium.access.held == 0


def test_a_state_of_a_channel_lasts_for_a_round() -> None:
    # to_bad = to_good = 1: every round turns every sub-channel over, so that a client succeeds in every second round, and all
    # that a client does in one round meets one state, however often it is asked.
    flipping = constant(1, 1, 1) | {"channel": {"kind": "gilbert-elliott", "to_bad": 1.0, "to_good": 1.0}}
    world = World([[0, 1, 2]] * 6, uplink=flipping, server={"per_round": 3}).play()
    fates: dict[int, list[str]] = {}
    for row in world.records.updates:
        fates.setdefault(row.client, []).append(row.outcome)
    for fate in fates.values():
        assert fate in (["delivered", "lost"] * 3, ["lost", "delivered"] * 3)


def test_channels_move_on_for_those_who_are_not_selected() -> None:
    # Clients 0 and 1 play in turn; each meets the state of its sub-channel in that round, as if it had played in all of them.
    flipping = constant(1, 1, 1) | {"channel": {"kind": "gilbert-elliott", "to_bad": 1.0, "to_good": 1.0}}
    everyone = World([[0, 1, 2]] * 6, uplink=flipping, server={"per_round": 3}).play()
    some = World([[0], [1], [0], [0], [2], [1]], uplink=flipping).play()
    fate = {(row.round, row.client): row.outcome for row in everyone.records.updates}
    assert all(fate[row.round, row.client] == row.outcome for row in some.records.updates)


@pytest.mark.parametrize("after", [2, 3, 5, 6])
def test_updates_of_one_instant_keep_their_order_across_a_saved_state(after: int) -> None:
    # Three rounds of a second: client 0 trains from 0 to 3 and sends until 5; client 1 sends from 1 to 5, client 2 from 2 to 5.
    # Their last steps went onto the clock at 3, 1 and 2: at 5 they end as 1, 2, 0, and after them client 3's, sent since 4.5.
    rounds = [[0], [1], [2], [3], [3], [3], [3], [3]]
    tables: dict[str, Any] = {
        "clients": 4,
        "compute": constant(3, 0, 0, 0),
        "uplink": constant(2, 4, 3, 0.5),
        "server": {"deadline_s": 1.0},
    }
    whole = World(rounds, **tables).play()
    assert [row.client for row in whole.records.updates if row.outcome_s == 5] == [1, 2, 0, 3]
    first, second = World(rounds, **tables), World(rounds, **tables)
    first.simulation.run(until_round=after)
    second.simulation.load_state_dict(copied(first.simulation.state_dict()))
    second.play()
    assert repr(second.records.updates) == repr(whole.records.updates[-len(second.records.updates) :])
    assert repr(second.records.rounds) == repr(whole.records.rounds[after:])


@pytest.mark.parametrize("after", [2, 3, 5])
def test_departures_of_one_instant_keep_their_order_across_a_saved_state(after: int, tmp_path: Path) -> None:
    # Clients 1 and 2 both go at 3. Client 1 has been waiting for the sub-channel since 0, and gets it at 1: its departure stands
    # on the clock since 0. Client 2 trains since 0.5: its departure came later, and stays second.
    tables: dict[str, Any] = {
        "clients": 8,
        "compute": constant(0, 0, 9, 9, 9, 9, 9, 9),
        "uplink": constant(1, 5, 1, 1, 1, 1, 1, 1) | {"sub_channels": 1},
        "availability": presence(tmp_path, "1,0,3", "2,0,3") | {"absent": "always"},
        "server": {"deadline_s": 0.5, "per_round": 2},
    }
    rounds = [[0, 1], [2], [3], [4], [5], [6], [7]]
    whole = World(rounds, **tables).play()
    assert whole.rows("client", "outcome", "outcome_s")[:3] == [(0, "late", 1), (1, "aborted", 3), (2, "aborted", 3)]
    first, second = World(rounds, **tables), World(rounds, **tables)
    first.simulation.run(until_round=after)
    second.simulation.load_state_dict(copied(first.simulation.state_dict()))
    second.play()
    assert repr(second.records.updates) == repr(whole.records.updates[-len(second.records.updates) :])


@pytest.mark.parametrize("unit", ["rounds", "seconds"])
def test_who_begins_to_send_between_two_rounds_does_as_before_across_a_saved_state(unit: str, tmp_path: Path) -> None:
    # Round 1 closes at 2 s, and the server waits for client 0 until 10 s. At 5 s client 1 has trained and takes sub-channel 1,
    # with the state and the delay of round 1; by then they follow other laws, if these change in seconds.
    change = {"at_s": 4.0} if unit == "seconds" else {"at_round": 2}
    channels = {
        "count": 2,
        "channel": {"kind": "gilbert-elliott", "to_bad": 0.5, "to_good": 0.5},
        "delay": {"kind": "shifted-exponential", "shift_s": 0.5, "mean_excess_s": 0.25},
        "changes": [change | {"delay": {"shift_s": 1.5}}],
    }
    tables: dict[str, Any] = {
        "clients": 2,
        "compute": constant(1, 5),
        "channels": channels,
        "scheduler": {"kind": "round-robin"},
        "availability": presence(tmp_path, "0,0,2.5", "0,10,99") | {"absent": "always"},
        "server": {"deadline_s": 2.0, "per_round": 2, "when_short": "wait"},
    }
    fates = set()
    for seed in range(1, 9):
        first, second, whole = (World([[0, 1], [0, 1]], **tables | {"seed": seed}) for _ in range(3))
        first.simulation.run(until_round=1)
        second.simulation.load_state_dict(copied(first.simulation.state_dict()))
        (straggler,) = [row for row in whole.play().records.updates if (row.round, row.client) == (1, 1)]
        assert straggler.upload_start_s == 5.0 < 5.0 + (1.5 if unit == "seconds" else 0.5) < straggler.upload_end_s
        assert repr(second.play().records.updates) == repr(whole.records.updates[-len(second.records.updates) :])
        assert repr(straggler) in map(repr, second.records.updates)
        fates.add(straggler.good)
    assert fates == {True, False}


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([], "non-empty"),
        ([0, 0], "named twice"),
        ([3], "selectable now"),
        ([-1], "selectable now"),
        ([0.0], "client indices"),
        ([[0]], "client indices"),
    ],
)
def test_what_a_policy_returns_is_checked(chosen: Any, message: str) -> None:
    world = World([[0]])
    world.server.loop.dispatch.policy.select = lambda view: np.array(chosen)
    with pytest.raises(ValueError, match=f"policy: select returned.*{message}"):
        world.play()


@pytest.mark.parametrize("metered", [False, True])
def test_a_client_that_leaves_as_its_turn_comes_does_not_transmit(tmp_path: Path, metered: bool) -> None:
    # Clients 0, which sends, and 1, which waits, both go at 2. Client 2 waits behind them and sends from 2 to 3.
    there = presence(tmp_path, "0,0,2", "1,0,2", "2,0,9")
    tables = LINE | {"uplink": constant(4, 1, 1) | {"sub_channels": 1}, "energy": {"send_w": 1.0} if metered else None}
    tables |= {"payload": {"up_bytes": 12}, "availability": there, "server": {"per_round": 3}}
    world = World([[0, 1, 2]], **{name: table for name, table in tables.items() if table is not None}).play()
    assert sorted(world.rows("client", "outcome", "outcome_s", "bytes_up")) == [
        (0, "aborted", 2, 12),
        (1, "aborted", 2, 0),
        (2, "delivered", 3, 12),
    ]
    assert world.server.clients.accountant.participations.tolist() == [1, 0, 1]
    assert world.server.clients.medium.access.held == 0


def test_a_client_that_leaves_as_its_sub_channel_becomes_free_does_not_transmit(tmp_path: Path) -> None:
    # Client 0 misses the close of round 1 at 1 s and holds the sub-channel; client 1 waits for it from 1 s on. Both go at 2.
    there = presence(tmp_path, "0,0,2", "1,0,2", "2,0,9")
    tables: dict[str, Any] = {"channels": {"count": 1}, "scheduler": {"kind": "random"}, "availability": there}
    world = World([[0], [1], [2]], uplink=constant(4, 1, 1), server={"deadline_s": 1.0}, privacy=PRIVATE, **tables).play()
    assert sorted(world.rows("client", "outcome", "outcome_s"))[:2] == [(0, "aborted", 2), (1, "aborted", 2)]
    assert world.server.clients.accountant.participations.tolist() == [1, 0, 1]
