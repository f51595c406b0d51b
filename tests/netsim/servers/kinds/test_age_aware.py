"""The asynchronous server: a history by hand, the untimed algorithm, ages, conservation, saved states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from models.laws.availability.traces import Trace
from models.laws.changes import Piecewise
from models.laws.channels import Bernoulli
from models.privacy import ExplicitSchedule, Ledger
from netsim.core.streams import Streams
from netsim.servers.rounds.checks import check_schedule
from netsim.servers.sub_channels.age_oracle import AgeOracle
from tests.helpers.async_world import Counting, Shuffled, Table, World, Written, world
from tests.helpers.random_worlds import built, copied

# Download 1 s; training 2 s and 4 s; an upload takes 1, 2 or 3 s on channel 0, 1 or 2.
TIMES: dict[str, Any] = {"download_s": 1.0, "compute_s": [2.0, 4.0], "channel_s": [1.0, 2.0, 3.0]}
SCHEDULE = [[0, 1], [0, 1], [0, 2], [1, 0], [0, 2], [0, 1]]
STATES = [[1, 0, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0], [1, 1, 0], [0, 1, 0]]


def test_six_rounds_by_hand_that_end_with_what_is_being_sent() -> None:
    it = world(scheduler=Table(SCHEDULE), states=STATES, **TIMES).play()
    # Round 1: client 0 is ready at 3 and sends until 4; client 1 computes until 5 and misses it.
    # Round 2: client 1 sends 5..7 in vain; client 0, ready at that very 7, sends 7..8, so the round goes on.
    # Round 3: client 1 sends again 8..11; client 0 is ready at 11 and sends until 12 in vain. Round 4: client 0 again, 12..14.
    # Round 5: both are ready at 17; client 0 sends until 18, client 1 until 20 in vain. Round 6: client 1 again, 20..22.
    assert [row.end_s for row in it.recorder.rounds] == [4, 8, 12, 14, 20, 22]
    assert it.table("outcome") == [
        ["delivered", "late"],
        ["delivered", "lost"],
        ["lost", "delivered"],
        ["delivered", "late"],
        ["delivered", "lost"],
        ["late", "delivered"],
    ]
    assert it.table("age_rounds") == [[1, 1], [1, 2], [1, 3], [2, 1], [1, 2], [1, 3]]
    assert it.table("age_after_rounds") == [[1, 2], [1, 3], [2, 1], [1, 2], [1, 3], [2, 1]]
    assert it.table("age_after_s") == [[0, 4], [0, 8], [4, 1], [0, 3], [2, 9], [4, 0]]
    assert it.table("started_round") == [[1, 1], [2, 1], [3, 1], [3, 4], [5, 4], [6, 4]]
    assert it.table("version") == [[0, 0], [1, 0], [2, 0], [2, 3], [4, 3], [5, 3]]
    assert [row.sum_age for row in it.recorder.rounds] == [3, 4, 3, 3, 4, 3]
    assert [row.age_variance for row in it.recorder.rounds] == [0.5, 2.0, 0.5, 0.5, 2.0, 0.5]
    assert [call.versions.tolist() for call in it.learner.calls] == [[0], [1], [0], [2], [4], [3]]
    assert [call.rounds.tolist() for call in it.learner.calls] == [[1], [2], [1], [3], [5], [4]]
    assert [row.bytes_down for row in it.recorder.rounds] == [16, 8, 8, 8, 8, 8]
    assert [row.bytes_up for row in it.recorder.rounds] == [8, 16, 16, 8, 16, 8]


def test_a_scheduler_learns_of_the_channels_on_which_a_transmission_came_to_its_end() -> None:
    it = world(scheduler=Table(SCHEDULE), states=STATES, **TIMES).play()
    assert it.scheduler.seen == [
        (1, [1, 1], [0], [True]),
        (2, [1, 2], [0, 1], [True, False]),
        (3, [1, 3], [0, 2], [False, True]),
        (4, [2, 1], [1], [True]),
        (5, [1, 2], [0, 2], [True, False]),
        (6, [1, 3], [1], [True]),
    ]


def test_a_step_is_told_once_in_the_part_in_which_it_ended() -> None:
    it = world(scheduler=Table(SCHEDULE), states=STATES, **TIMES).play()
    second = [row for row in it.recorder.updates if row.client == 1]
    assert np.array_equal([r.download_start_s for r in second], [0, np.nan, np.nan, 12, np.nan, np.nan], equal_nan=True)
    assert np.array_equal([r.compute_start_s for r in second], [np.nan, 1, np.nan, np.nan, 13, np.nan], equal_nan=True)
    assert np.array_equal([r.compute_end_s for r in second], [np.nan, 5, np.nan, np.nan, 17, np.nan], equal_nan=True)
    assert np.array_equal([r.upload_start_s for r in second], [np.nan, 5, 8, np.nan, 17, 20], equal_nan=True)
    assert np.array_equal([r.upload_end_s for r in second], [np.nan, 7, 11, np.nan, 20, 22], equal_nan=True)


def test_rounds_that_wait_for_everyone_who_computes() -> None:
    it = world(scheduler=Table([[0, 1]]), states=[[1, 1, 1]] * 3, rounds=3, wait_for_compute=True, **TIMES).play()
    # Client 1 is the last: 1 + 4 + 2 seconds.
    assert [row.end_s for row in it.recorder.rounds] == [7, 14, 21]
    assert it.table("outcome") == [["delivered", "delivered"]] * 3


def test_rounds_of_a_fixed_length_cut_what_is_not_finished() -> None:
    it = world(scheduler=Table([[0, 2]]), states=[[1, 1, 1]] * 4, rounds=4, round_s=5.5, **TIMES).play()
    assert [row.end_s for row in it.recorder.rounds] == [5.5, 11, 16.5, 22]
    # Client 1 computes until 5, is cut at 5.5, sends again 5.5..8.5, gets the model at 11, computes until 16, is cut, 16.5..19.5.
    assert it.table("outcome") == [["delivered", "late"], ["delivered", "delivered"]] * 2
    second = [row for row in it.recorder.updates if row.client == 1]
    assert [(r.upload_start_s, r.upload_end_s) for r in second] == [(5, 5.5), (5.5, 8.5), (16, 16.5), (16.5, 19.5)]
    # What was cut did not arrive in its round, and the scheduler is told so.
    assert it.scheduler.seen[0][2:] == ([0, 2], [True, False])


def test_who_arrives_exactly_as_a_round_of_fixed_length_ends_is_in_time() -> None:
    it = world(scheduler=Table([[0, 1]]), states=[[1, 1, 1]], rounds=1, round_s=7.0, **TIMES).play()
    assert it.table("outcome") == [["delivered", "delivered"]]


def test_computing_spans_rounds_of_a_fixed_length() -> None:
    it = world(scheduler=Table([[0, 1]]), states=[[1, 1, 1]] * 6, rounds=6, round_s=2.0, **TIMES).play()
    # Client 1: model at 0, ready at 5, cut at 6, sends 6..8 (in time); again from 8: ready at 13.
    assert [row[1] for row in it.table("outcome")] == ["late", "late", "late", "delivered", "late", "late"]
    assert [row[1] for row in it.table("age_after_rounds")] == [2, 3, 4, 1, 2, 3]


def test_a_download_that_spans_rounds_is_followed_by_its_own_computing_time() -> None:
    def fresh() -> World:
        return world(
            scheduler=Table([[0]]), clients=1, states=[[1, 1, 1]] * 4, download_s=3.0, compute_s=2.5, rounds=4, round_s=2.0
        )

    resumed = fresh()
    resumed.simulation.load_state_dict(fresh().play(1).simulation.state_dict())
    for it in (fresh().play(), resumed.play()):
        # Until 3 the model is on its way, until 5.5 the client computes; then all begins again at 6.
        assert it.column("outcome")[-3:] == ["late", "delivered", "late"]
        assert it.recorder.updates[-2].outcome_s == 5.5


def test_an_update_survives_if_neither_the_channel_nor_the_own_link_loses_it() -> None:
    link = Bernoulli(success=np.array([0.0, 1.0]))
    lost = world(scheduler=Table([[0, 1]]), states=[[1, 1, 1]] * 2, rounds=2, uplink=link).play()
    assert lost.table("outcome") == [["lost", "delivered"]] * 2
    assert lost.table("good") == [[True, True]] * 2
    unreached = world(scheduler=Table([[0, 1]]), states=[[1, 1, 1]] * 2, rounds=2, downlink=link).play()
    assert unreached.table("outcome") == [["lost", "delivered"]] * 2
    assert unreached.table("started_round") == [[1, 1], [2, 2]]
    assert unreached.scheduler.seen[0][2:] == ([1], [True])


@pytest.mark.parametrize("timed", [False, True])
def test_without_delays_it_is_the_untimed_algorithm(timed: bool) -> None:
    clients, channels, rounds, seed = 4, 7, 400, 11
    success = np.linspace(0.1, 0.9, channels)
    parameters: dict[str, Any] = {"round_s": 1.0} if timed else {}
    it = world(
        scheduler=Shuffled(clients, channels),
        clients=clients,
        channels=channels,
        law=Bernoulli(success=success),
        rounds=rounds,
        seed=seed,
        **parameters,
    ).play()

    streams = Streams(seed)
    ages, version, held = np.ones(clients, int), 0, np.zeros(clients, int)
    for t in range(1, rounds + 1):
        good = streams["channels.loss"].uniforms(t, channels) < success
        chosen = streams["scheduler"].generator(t).permutation(channels)[:clients]
        fresh = ages == 1 if t > 1 else np.ones(clients, bool)
        held = np.where(fresh, version, held)
        arrived = good[chosen]
        version += bool(arrived.any())
        ages = np.where(arrived, 1, ages + 1)
        rows = it.recorder.updates[(t - 1) * clients : t * clients]
        assert [row.age_after_rounds for row in rows] == ages.tolist()
        assert [row.version for row in rows] == held.tolist()
        assert [row.channel for row in rows] == chosen.tolist()
        assert it.recorder.rounds[t - 1].version == version


@pytest.mark.slow
def test_ages_on_a_stationary_channel_are_geometric() -> None:
    success = 0.3
    it = world(scheduler=Table([[0]]), clients=1, channels=1, law=Bernoulli(success=success), rounds=20_000).play()
    delivered = np.flatnonzero(np.array(it.column("outcome")) == "delivered")
    gaps = np.diff(delivered)
    most = 12
    counts = np.bincount(np.minimum(gaps, most), minlength=most + 1)[1:]
    expected = success * (1 - success) ** np.arange(most)
    expected[-1] = 1 - expected[:-1].sum()
    assert stats.chisquare(counts, expected * len(gaps)).pvalue > 1e-3
    # E[a] = 1/mu. A cycle of length L adds up ages L (L + 1) / 2, so by renewal theory the mean over T rounds has the variance
    # Var(L (L + 1) / 2 - L / mu) mu / T.
    lengths = np.arange(1, 400)
    excess = lengths * (lengths + 1) / 2 - lengths / success
    variance = float((success * (1 - success) ** (lengths - 1)) @ excess**2) * success / 20_000
    ages = np.array(it.column("age_after_rounds"), float)
    assert abs(ages.mean() - 1 / success) < 4 * np.sqrt(variance)


def test_a_change_of_the_channels_in_seconds_takes_effect_in_mid_round() -> None:
    law = Piecewise(laws=[Bernoulli(success=0.0), Bernoulli(success=1.0)], starts=[4.0], unit="seconds")
    it = world(scheduler=Table([[0, 1]]), law=law, compute_s=[3.0, 5.0], wait_for_compute=True, rounds=1).play()
    assert it.table("outcome") == [["lost", "delivered"]]


def test_contention_loses_both_by_name_and_only_where_they_meet() -> None:
    it = world(scheduler=Table([[0, 0]]), states=[[1, 1, 1]] * 2, rounds=2, contention=True).play()
    assert it.table("collided") == [[True, True]] * 2
    assert it.table("outcome") == [["lost", "lost"]] * 2
    assert [row.collided for row in it.recorder.rounds] == [2, 2]
    times: dict[str, Any] = {"compute_s": [1.0, 3.0], "channel_s": 2.0, "wait_for_compute": True, "rounds": 1}
    apart = world(scheduler=Table([[0, 0]]), states=[[1, 1, 1]], contention=True, **times).play()
    # 1..3 and 3..5 touch without meeting.
    assert apart.table("outcome") == [["delivered", "delivered"]]


def test_schedules_are_checked() -> None:
    assert check_schedule(np.array([2, 0]), 2, 3, False) == [2, 0]
    for wrong in ([0], [0, 0], [0, 3], [-1, 0], [0.0, 1.0]):
        with pytest.raises(ValueError, match="scheduler: assign returned"):
            check_schedule(np.array(wrong), 2, 3, False)
    assert check_schedule(np.array([0, 0]), 2, 3, True) == [0, 0]
    with pytest.raises(ValueError, match="channels = 1: must be at least the 2 clients"):
        world(scheduler=Table([[0, 0]]), channels=1)
    with pytest.raises(ValueError, match="round_s = 0"):
        world(scheduler=Table([[0, 1]]), round_s=0.0)


def test_who_goes_away_keeps_a_finished_update_and_drops_an_unfinished_one(tmp_path: Any) -> None:
    path = tmp_path / "presence.csv"
    # Client 0 leaves while it sends, client 1 while it computes.
    path.write_text("client,on_s,off_s\n0,0,3.5\n0,6,inf\n1,0,4\n1,6,inf\n")
    it = world(
        scheduler=Table([[0, 1]]),
        states=[[1, 1, 1]] * 2,
        rounds=2,
        availability=Trace(clients=2, path=str(path)),
        wait_for_compute=True,
        **TIMES,
    ).play()
    assert it.table("outcome") == [["aborted", "aborted"], ["delivered", "delivered"]]
    # Nobody is there before 6 s: the second round begins then.
    assert [(row.start_s, row.end_s) for row in it.recorder.rounds] == [(0, 4), (6, 13)]
    assert it.table("started_round") == [[1, 1], [1, 2]]
    assert it.table("upload_start_s")[1] == [6, 11]


def test_privacy_is_spent_once_an_update_however_often_it_is_sent() -> None:
    def spend(charge_on: str) -> World:
        ledger = Ledger(clients=1, schedule=ExplicitSchedule(epsilons=[0.1, 0.2]))
        states = [[0], [0], [1], [0], [1], [1]]
        return world(
            scheduler=Table([[0]]), clients=1, channels=1, states=states, accountant=ledger, charge_on=charge_on, rounds=6
        ).play()

    sent, arrived = spend("upload"), spend("delivery")
    assert np.array_equal(sent.column("epsilon"), [0.1, np.nan, np.nan, 0.2, np.nan], equal_nan=True)
    assert np.array_equal(arrived.column("epsilon"), [np.nan, np.nan, 0.1, np.nan, 0.2], equal_nan=True)
    # Two updates are all that the budget allows: nobody is left for a sixth round.
    assert sent.simulation.ended == "nobody left"
    assert [call.epsilon.tolist() for call in sent.learner.calls] == [[0.1], [0.2]]


def test_the_server_says_which_versions_are_still_needed() -> None:
    learner = Counting()
    world(scheduler=Table(SCHEDULE), states=STATES, learner=learner, **TIMES).play()
    assert learner.retained == [[0], [0], [2], [3], [3], [5]]


def test_an_oracle_runs_beside_on_the_same_states() -> None:
    class Best(Table):
        def show(self, good: Any) -> None:
            self.rows = np.argsort(~good, kind="stable")[:2].reshape(1, 2)

    states = [[1, 0, 0], [0, 0, 0], [0, 1, 1]]

    def meter(streams: Streams) -> AgeOracle:
        return AgeOracle(scheduler=Best([[0, 1]]), clients=2, channels=3, streams=streams)

    it = world(scheduler=Table([[0, 1]]), states=states, rounds=3, meter=meter).play()
    # The oracle: one success in round 1, none in round 2, two in round 3; the policy gets channels 0 and 1.
    assert [row.oracle_sum_age for row in it.recorder.rounds] == [3, 5, 2]
    assert [row.sum_age for row in it.recorder.rounds] == [3, 5, 4]


def test_a_time_limit_leaves_the_open_round_to_the_clients_table_alone() -> None:
    it = world(scheduler=Table(SCHEDULE), states=STATES, time_limit_s=10.0, **TIMES).play()
    it.simulation.close()
    assert it.simulation.ended == "time limit"
    assert [row.round for row in it.recorder.rounds] == [1, 2]
    assert [(row.round, row.outcome, row.outcome_s) for row in it.recorder.updates[4:]] == [(3, "in_flight", 10)] * 2


def test_an_attempt_in_flight_at_the_end_shows_the_phase_that_began_in_it() -> None:
    def last_rows(limit_s: float) -> list[Any]:
        it = world(scheduler=Table(SCHEDULE), states=STATES, time_limit_s=limit_s, **TIMES).play()
        it.simulation.close()
        return [row for row in it.recorder.updates if row.outcome == "in_flight"]

    training, sending = last_rows(10.0)
    assert (training.compute_start_s, training.bytes_up) == (9.0, 0)
    assert (sending.upload_start_s, sending.bytes_up) == (8.0, 8)
    # Client 1 has trained since 1 s, in its attempt of round 1, which is over: that of round 2 cannot say when it will be ready.
    assert np.isnan(last_rows(4.5)[1].compute_start_s)


def test_written_states_are_what_a_test_needs() -> None:
    law = Written([[1, 0]])
    law.step(None)
    assert law.good(None, np.array([1, 0])).tolist() == [False, True]


def test_a_resumed_run_can_be_left_while_somebody_is_away_who_has_kept_an_update(tmp_path: Path) -> None:
    trace = tmp_path / "presence.csv"
    trace.write_text("client,on_s,off_s\n0,0,1.5\n0,9,100\n1,0,100\n", encoding="utf-8")
    tables = {
        "name": "left",
        "rounds": 11,
        "clients": {"count": 2},
        "server": {"kind": "asynchronous", "round_s": 1.0},
        "channels": {"count": 2},
        "scheduler": {"kind": "round-robin"},
        "uplink": {"delay": {"kind": "constant", "value_s": 0.75}, "channel": {"kind": "bernoulli", "success": [0.0, 1.0]}},
        "availability": {"kind": "trace", "path": str(trace)},
    }
    whole, expected = built(tables)
    whole.run()
    first, _ = built(tables)
    first.run(until_round=2)
    second, _ = built(tables)
    second.load_state_dict(copied(first.state_dict()))
    second.run(until_round=3)
    third, records = built(tables)
    third.load_state_dict(copied(second.state_dict()))
    third.run()
    assert repr(records.updates) == repr(expected.updates[-len(records.updates) :])
    assert [(row.round, row.client) for row in expected.updates if row.outcome == "aborted"] == [(2, 0)]
    assert next(row.started_round for row in records.updates if row.client == 0) == 1
