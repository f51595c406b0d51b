"""Runs small enough to be worked out by hand: every event time of every update, and every count of every round."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.small_worlds import World, constant, sized

INF = float("inf")
TIMES = (
    *("download_start_s", "download_end_s", "compute_start_s", "compute_end_s"),
    *("upload_start_s", "upload_end_s", "outcome_s"),
)


def test_three_clients_three_rounds() -> None:
    world = World(
        [[0, 1], [1, 2], [2, 0]], downlink=constant(1, 2, 3), compute=constant(10, 20, 30), uplink=constant(0.5, 0.25, 0.125)
    ).play()
    # Round 1 from 0. Client 0: 1 + 10 + 0.5 = 11.5; client 1: 2 + 20 + 0.25 = 22.25, which closes the round.
    # Round 2 from 22.25. Client 1: 24.25, 44.25, 44.5; client 2: 25.25, 55.25, 55.375.
    # Round 3 from 55.375. Client 0: 56.375, 66.375, 66.875; client 2: 58.375, 88.375, 88.5.
    assert world.rows("round", "client", *TIMES) == [
        (1, 0, 0, 1, 1, 11, 11, 11.5, 11.5),
        (1, 1, 0, 2, 2, 22, 22, 22.25, 22.25),
        (2, 1, 22.25, 24.25, 24.25, 44.25, 44.25, 44.5, 44.5),
        (2, 2, 22.25, 25.25, 25.25, 55.25, 55.25, 55.375, 55.375),
        (3, 0, 55.375, 56.375, 56.375, 66.375, 66.375, 66.875, 66.875),
        (3, 2, 55.375, 58.375, 58.375, 88.375, 88.375, 88.5, 88.5),
    ]
    # Ages before the round, in rounds since the last delivery: client 2 has none before round 2, client 0 one in round 1.
    assert world.rows("outcome", "age_rounds", "censored") == [
        ("delivered", 1, False),
        ("delivered", 1, False),
        ("delivered", 1, False),
        ("delivered", 2, False),
        ("delivered", 2, False),
        ("delivered", 1, False),
    ]
    assert world.rounds("round", "start_s", "end_s", "selected", "delivered", "in_flight") == [
        (1, 0, 22.25, 2, 2, 0),
        (2, 22.25, 55.375, 2, 2, 0),
        (3, 55.375, 88.5, 2, 2, 0),
    ]
    # The policy learns latencies in the order in which it selected.
    assert [outcome.latency_s.tolist() for outcome in world.server.loop.dispatch.policy.outcomes] == [
        [11.5, 22.25],
        [22.25, 33.125],
        [33.125, 11.5],
    ]


DEADLINE = {
    "compute": constant(1, 4.5, 12),
    "uplink": constant(0.25, 0.25, 0.25) | {"channel": {"kind": "bernoulli", "success": [1.0, 0.0, 1.0]}},
}


def test_a_deadline_a_loss_and_a_straggler() -> None:
    world = World([[0, 2], [1, 0], [0, 1]], server={"deadline_s": 5.0}, **DEADLINE).play()
    # Round 1 from 0: client 0 at 1.25; client 2 would need 12.25, the deadline closes the round at 5.
    # Round 2 from 5: client 0 at 6.25; client 1 computes to 9.5, its upload is lost at 9.75: nothing of the round is left.
    # Round 3 from 9.75: client 0 at 11; client 2 arrives at 12.25, two rounds late; client 1 is lost at 9.75 + 4.75 = 14.5.
    assert world.rows("round", "client", "outcome", "outcome_s", "censored") == [
        (1, 0, "delivered", 1.25, False),
        (2, 0, "delivered", 6.25, False),
        (2, 1, "lost", 9.75, True),
        (3, 0, "delivered", 11, False),
        (1, 2, "late", 12.25, True),
        (3, 1, "lost", 14.5, True),
    ]
    assert world.rounds("end_s", "selected", "delivered", "lost", "late", "aborted", "in_flight") == [
        (5, 2, 1, 0, 0, 0, 1),
        (9.75, 2, 1, 1, 0, 0, 1),
        (14.5, 2, 1, 1, 1, 0, 0),
    ]
    # The straggler is busy at the beginning of rounds 2 and 3; censored latencies are the time the server waited.
    assert [view.selectable.tolist() for view in world.server.loop.dispatch.policy.seen] == [
        [True, True, True],
        [True, True, False],
        [True, True, False],
    ]
    outcomes = world.server.loop.dispatch.policy.outcomes
    assert [outcome.latency_s.tolist() for outcome in outcomes] == [[1.25, 5], [4.75, 1.25], [1.25, 4.75]]
    assert [outcome.censored.tolist() for outcome in world.server.loop.dispatch.policy.outcomes] == [
        [False, True],
        [True, False],
        [False, True],
    ]


def test_stragglers_that_are_called_off_are_free_at_once() -> None:
    world = World([[0, 2], [2]], server={"deadline_s": 5.0, "stragglers": "cancel"}, **DEADLINE).play()
    assert world.rows("round", "client", "outcome", "compute_end_s", "upload_start_s", "outcome_s")[:2] == [
        (1, 0, "delivered", 1, 1, 1.25),
        (1, 2, "late", 5, pytest.approx(np.nan, nan_ok=True), 5),
    ]
    assert world.server.loop.dispatch.policy.seen[1].selectable.all()
    assert world.rounds("late", "in_flight") == [(1, 0), (1, 0)]


def test_a_busy_client_selected_anew_aborts_its_old_update() -> None:
    world = World([[0, 2], [2]], server={"deadline_s": 5.0, "reselect_busy": True}, **DEADLINE).play()
    # Its first update dies at 5; the second needs 12.25 and is still in flight as the run ends at the deadline, 10.
    assert world.rows("round", "client", "outcome", "outcome_s")[1:] == [(1, 2, "aborted", 5), (2, 2, "in_flight", 10)]
    assert world.rounds("aborted", "in_flight") == [(0, 1), (1, 1)]


def test_the_first_of_many() -> None:
    # Clients 0 and 1 arrive in the same instant; one delivery closes the round, so the other is late though it is as fast.
    world = World([[0, 1, 2], [0]], uplink=constant(2, 2, 3), server={"per_round": 3, "first": 1}).play()
    assert world.rows("round", "client", "outcome", "outcome_s") == [
        (1, 0, "delivered", 2),
        (1, 1, "late", 2),
        (1, 2, "late", 3),
        (2, 0, "delivered", 4),
    ]
    assert world.rounds("start_s", "end_s", "late", "in_flight") == [(0, 2, 1, 1), (2, 4, 1, 0)]


def test_arriving_exactly_at_the_deadline_is_in_time() -> None:
    world = World([[0, 1]], uplink=constant(2, 2.25, 0), server={"deadline_s": 2.0}).play()
    assert world.rows("client", "outcome") == [(0, "delivered"), (1, "in_flight")]
    assert world.rounds("end_s") == [(2,)]


def test_the_line_before_one_sub_channel() -> None:
    world = World(
        [[0, 1, 2]], compute=constant(1, 2, 1.5), uplink=constant(4, 1, 0.5) | {"sub_channels": 1}, server={"per_round": 3}
    ).play()
    # Client 0 holds the sub-channel from 1 to 5. Client 2 has waited since 1.5, client 1 since 2: 5 to 5.5, then 5.5 to 6.5.
    assert world.rows("client", "compute_end_s", "upload_start_s", "upload_end_s") == [
        (0, 1, 1, 5),
        (2, 1.5, 5, 5.5),
        (1, 2, 5.5, 6.5),
    ]


def test_a_client_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    trace = tmp_path / "presence.csv"
    trace.write_text("client,on_s,off_s\n0,0,3\n0,7,100\n1,0,100\n2,0,3\n2,7,100\n")
    world = World(
        [[0, 1], [1], [0, 2]],
        compute=constant(4, 2, 1),
        uplink=constant(0.5, 0.5, 0.5) | {"sub_channels": 1},
        availability={"kind": "trace", "path": str(trace)},
        server={"per_round": 2, "when_short": "wait"},
    ).play()
    # Round 1: client 1 delivers at 2.5, client 0 leaves at 3 in the middle of its training. Then client 1 is alone until 7.
    # Round 2 from 7: client 1 at 9.5. Round 3 from 9.5: client 2 at 10.5 + 0.5, client 0, who is back, at 13.5 + 0.5.
    assert world.rows("round", "client", "outcome", "compute_end_s", "outcome_s") == [
        (1, 1, "delivered", 2, 2.5),
        (1, 0, "aborted", 3, 3),
        (2, 1, "delivered", 9, 9.5),
        (3, 2, "delivered", 10.5, 11),
        (3, 0, "delivered", 13.5, 14),
    ]
    assert world.rounds("start_s", "end_s", "aborted") == [(0, 3, 1), (7, 9.5, 0), (9.5, 14, 0)]


def test_a_policy_may_not_have_who_is_absent(tmp_path: Path) -> None:
    trace = tmp_path / "presence.csv"
    trace.write_text("client,on_s,off_s\n1,0,100\n")
    world = World([[0]], availability={"kind": "trace", "path": str(trace)})
    with pytest.raises(ValueError, match="every client must be selectable"):
        world.play()


def test_a_round_waits_for_those_who_come(tmp_path: Path) -> None:
    trace = tmp_path / "presence.csv"
    trace.write_text("client,on_s,off_s\n0,0,100\n1,2.5,4\n1,6,100\n2,3,100\n")
    world = World(
        [[0, 1, 2], [0, 1, 2]],
        uplink=constant(0.5, 0.5, 0.5),
        availability={"kind": "trace", "path": str(trace)},
        server={"per_round": 3, "when_short": "wait"},
    ).play()
    # All three are there from 3 to 4, and again from 6 on; the first round lasts from 3 to 3.5, the second begins at once.
    assert world.rounds("start_s", "end_s") == [(3, 3.5), (3.5, 4)]
    # Presence is [comes, goes): the second upload of client 1 would end at the very moment it leaves.
    assert world.rows("round", "client", "outcome")[3:] == [(2, 0, "delivered"), (2, 1, "aborted"), (2, 2, "delivered")]


def test_nobody_left_ends_the_run(tmp_path: Path) -> None:
    trace = tmp_path / "presence.csv"
    trace.write_text("client,on_s,off_s\n0,0,1\n")
    world = World([[0], [0], [0]], uplink=constant(0.5, 1, 1), availability={"kind": "trace", "path": str(trace)}).play()
    assert world.simulation.ended == "nobody left"
    # The second round begins at 0.5; its update would end at 1, when the client goes.
    assert world.rows("round", "outcome", "outcome_s") == [(1, "delivered", 0.5), (2, "aborted", 1)]


def test_a_change_point_in_mid_round_meets_the_phase_that_begins_after_it() -> None:
    changes = [{"at_s": 2.0, "delay": {"value_s": 8.0}}]
    world = World(
        [[0, 1], [0]],
        compute=constant(1, 3, 1),
        uplink=constant(4, 4, 4) | {"changes": changes},
    ).play()
    # Client 0 begins its upload at 1, under the old law; client 1 at 3, under the new.
    assert world.rows("round", "client", "upload_start_s", "upload_end_s") == [(1, 0, 1, 5), (1, 1, 3, 11), (2, 0, 12, 20)]


def test_a_time_limit_cuts_the_run() -> None:
    world = World([[0], [0], [0]], uplink=constant(2, 1, 1), time_limit_s=5.0).play()
    assert world.simulation.ended == "time limit"
    assert world.rounds("end_s") == [(2,), (4,)]
    assert world.rows("round", "outcome", "outcome_s")[2:] == [(3, "in_flight", 5)]


PRIVATE = {"sensitivity": 1.0, "schedule": {"kind": "explicit", "epsilons": [4.0, 2.0, 1.0]}}


@pytest.mark.parametrize(("charge_on", "leaks"), [("upload", [4, 6, 7]), ("delivery", [None, None, None])])
def test_when_a_release_is_charged(charge_on: str, leaks: list[float | None]) -> None:
    lossy = constant(1, 1, 1) | {"channel": {"kind": "bernoulli", "success": 0.0}}
    world = World([[0], [0], [0]], uplink=lossy, privacy=PRIVATE | {"charge_on": charge_on}).play()
    found = [None if np.isnan(leak) else leak for (leak,) in world.rows("leak")]
    assert found == leaks
    assert world.server.clients.accountant.max_leak() == (7 if charge_on == "upload" else 0)


def test_a_spent_budget_makes_unselectable() -> None:
    world = World([[0], [0], [0], [1]], uplink=constant(1, 1, 1), privacy=PRIVATE).play()
    assert world.rows("client", "epsilon", "leak") == [(0, 4, 4), (0, 2, 6), (0, 1, 7), (1, 4, 4)]
    assert [view.selectable.tolist() for view in world.server.loop.dispatch.policy.seen][3] == [False, True, True]


def test_lost_downlinks_are_never_trained() -> None:
    lossy = constant(1, 1, 1) | {"channel": {"kind": "bernoulli", "success": [0.0, 1.0, 1.0]}}
    world = World([[0, 1]], downlink=lossy, compute=constant(2, 2, 2), payload=sized(10), server={"per_round": 2}).play()
    assert world.rows("client", "outcome", "download_end_s", "outcome_s") == [(0, "lost", 1, 1), (1, "delivered", 1, 3)]
    assert np.isnan(world.records.updates[0].compute_start_s)
    # Two models went down, one came back.
    assert world.rounds("bytes_down", "bytes_up") == [(20, 10)]


def test_bytes_take_time() -> None:
    world = World(
        [[0, 1]],
        downlink={"bandwidth_bytes_per_s": [100.0, 50.0, 1.0]},
        uplink=constant(0.5, 0.5, 0.5) | {"bandwidth_bytes_per_s": 200.0},
        payload=sized(100), server={"per_round": 2},
    ).play()
    # Down: 1 s and 2 s; up: half a second for the bytes and half for the delay.
    assert world.rows("client", "download_end_s", "upload_end_s") == [(0, 1, 2), (1, 2, 3)]
