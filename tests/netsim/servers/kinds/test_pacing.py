"""The buffered server paced by latency (Pisces): by hand, as properties, resumed, refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netsim.core.errors import ParameterError
from netsim.servers.kinds.pacing import LatencyPacing
from scenarios.runs.reading import override, parse
from scenarios.schema.errors import UserError
from tests.helpers.buffered_worlds import Noting, tables
from tests.helpers.random_worlds import built, taken_up

PACED = {"kind": "buffered", "concurrency": 2, "pacing": "latency", "unknown_latency_s": 6.0}
ROUGH: dict[str, Any] = {
    "name": "paced",
    "rounds": 60,
    "clients": {"count": 30},
    "server": {"kind": "buffered", "concurrency": 8, "pacing": "latency", "unknown_latency_s": 3.0},
    "payload": {"down_bytes": 10, "up_bytes": 10},
    "policy": {"kind": "random"},
    "compute": {"delay": {"kind": "log-normal", "median_s": 1.0, "sigma": 0.8}},
    "uplink": {"delay": {"kind": "constant", "value_s": 0.1}, "channel": {"kind": "bernoulli", "success": 0.9}},
    "availability": {"kind": "markov", "mean_on_s": 40.0, "mean_off_s": 5.0},
}


def simulated(scenario: dict[str, Any]) -> tuple[Any, Noting, Any]:
    simulation, records = built(scenario)
    server: Any = simulation.server
    server.loop.learner = server.loop.dispatch.learner = learner = Noting()
    simulation.run()
    return records, learner, simulation


def test_three_rounds_by_hand() -> None:
    # Clients 0, 1, 2 take 1, 2 and 5 s, 6 s as long as nothing is known; two are at work.
    # 0 s: 0 and 1 begin. 1 s: 0 is done, 2 begins, of which nothing is known: a model is due at 6/2 = 3 s. 2 s: 1 is done.
    # 3 s: round 1 is over. 0 begins; 4 s: it is done, 1 begins; as long as 2 is at work a model is due at 3 + 3 = 6 s.
    # 6 s: 1 and 2 are done, nobody is at work: round 2. 0 (1 s) and 1 (2 s) begin: due at 6 + 2/2 = 7 s, as 0 is done: round 3.
    records, learner, _ = simulated(tables(server=PACED))
    assert [(row.start_s, row.end_s) for row in records.rounds] == [(0.0, 3.0), (3.0, 6.0), (6.0, 7.0)]
    assert [sorted(deliveries.clients.tolist()) for deliveries in learner.given] == [[0, 1], [0, 1, 2], [0]]
    assert [row.in_flight for row in records.rounds] == [1, 0, 1]


def test_latencies_are_those_of_the_last_deliveries() -> None:
    _, _, simulation = simulated(tables(server=PACED))
    assert simulation.server.loop.close.pacing.latency_s.tolist() == [1.0, 2.0, 5.0]


def test_the_server_may_look_at_multiples_of_a_time_only() -> None:
    # Due at 3 s, looked at 4 s. 0 and then 1 begin; at 7 s all three are done: the model is made as the server looks, at 8 s.
    records, learner, _ = simulated(tables(server=PACED | {"check_every_s": 4.0}))
    assert [row.end_s for row in records.rounds[:2]] == [4.0, 8.0]
    assert [sorted(deliveries.clients.tolist()) for deliveries in learner.given[:2]] == [[0, 1], [0, 1, 2]]


def test_a_round_in_which_all_is_lost_closes_as_nobody_is_at_work() -> None:
    # At 1 s 0 is lost, 2 s 1, 6 s 2, which began at 1 s: nobody is left to ask.
    lost = {"uplink": {"channel": {"kind": "bernoulli", "success": 0.0}}}
    for check in ({}, {"check_every_s": 4.0}):
        records, learner, _ = simulated(tables(server=PACED | check, **lost))
        assert [row.end_s for row in records.rounds] == [6.0, 12.0, 18.0]
        assert not learner.given


def test_models_are_apart_by_the_greatest_latency_over_those_at_work() -> None:
    # 60 s over 20 at work: models are 3 s apart at least; looked for every 5 s, at multiples of it.
    same_for_all = ROUGH | {
        "clients": {"count": 60},
        "compute": {"delay": {"kind": "constant", "value_s": {"from": 7.0, "to": 60.0}}},
        "uplink": {},
        "rounds": 80,
    }
    del same_for_all["availability"]
    server = {"kind": "buffered", "concurrency": 20, "pacing": "latency", "unknown_latency_s": 60.0}
    records, _, _ = simulated(same_for_all | {"server": server})
    apart_s = np.diff([0.0, *(row.end_s for row in records.rounds)])
    assert apart_s[:3].min() >= 3.0 - 1e-9
    records, _, _ = simulated(same_for_all | {"server": server | {"check_every_s": 5.0}})
    ends_s = np.array([row.end_s for row in records.rounds])
    np.testing.assert_array_equal(ends_s % 5.0, 0.0)
    assert len(np.unique(np.diff(ends_s))) > 1


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("concurrency", [1, 3, 8])
def test_with_constant_latencies_no_update_is_older_than_those_at_work_are_many(seed: int, concurrency: int) -> None:
    latencies_s = np.random.default_rng(seed).uniform(0.1, 20.0, 30).tolist()
    scenario = {key: value for key, value in ROUGH.items() if key not in ("availability", "uplink")} | {
        "seed": seed,
        "rounds": 150,
        "compute": {"delay": {"kind": "constant", "value_s": latencies_s}},
        "server": {"kind": "buffered", "concurrency": concurrency, "pacing": "latency", "unknown_latency_s": 20.0},
    }
    _, learner, _ = simulated(scenario)
    staleness = np.concatenate([number - deliveries.versions for number, deliveries in enumerate(learner.given)])
    assert staleness.max() <= concurrency
    assert concurrency == 1 or staleness.max() > 1
    # By deliveries some would be: the slowest takes far longer than the others.
    by_count = scenario | {"server": {"kind": "buffered", "concurrency": concurrency}}
    _, other, _ = simulated(by_count)
    oldest = max(int((number - deliveries.versions).max()) for number, deliveries in enumerate(other.given))
    assert concurrency == 1 or oldest > concurrency


def test_every_model_is_made_as_soon_as_it_is_due_and_not_before() -> None:
    # Worked out again from the table of attempts, at every end of an attempt: the greatest last latency of those at work then.
    records, _, _ = simulated(ROUGH | {"availability": {"kind": "always"}, "rounds": 150})
    known_s, looked_at = np.full(30, 3.0), 0
    ended = sorted((row for row in records.updates if row.outcome != "in_flight"), key=lambda row: row.outcome_s)
    for row in records.rounds[:100]:  # who is at work as the run ends has no row; by then none that is at work here

        def due_s(now_s: float, start_s: float = row.start_s) -> float:
            at_work = [one.client for one in records.updates if one.selected_s < now_s and not one.outcome_s <= now_s]
            return start_s + float(known_s[at_work].max(initial=0.0)) / 8

        arrived = False
        for update in (one for one in ended if row.start_s < one.outcome_s <= row.end_s):
            if update.outcome == "delivered":
                arrived = True
                known_s[update.client] = update.outcome_s - update.selected_s
            if arrived and update.outcome_s < row.end_s:
                assert due_s(update.outcome_s) > update.outcome_s
                looked_at += 1
        assert arrived
        assert row.end_s >= due_s(row.end_s) - 1e-9
        # By the clock, or as somebody ended.
        assert abs(row.end_s - due_s(row.end_s)) < 1e-9 or row.end_s in [one.outcome_s for one in ended]
    assert looked_at > 50


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("after", [1, 9, 30])
@pytest.mark.parametrize("check_every_s", [None, 0.5])
def test_state_taken_out_in_mid_run_goes_on(after: int, check_every_s: float | None) -> None:
    scenario = override(ROUGH, {} if check_every_s is None else {"server.check_every_s": check_every_s})
    taken_up(lambda: built(scenario), after)


def test_it_goes_with_a_bound_on_staleness() -> None:
    scenario = override(ROUGH, {"server.staleness_bound": 2, "server.unknown_latency_s": 0.01, "rounds": 100})
    _, learner, _ = simulated(scenario)
    assert max(int((number - deliveries.versions).max()) for number, deliveries in enumerate(learner.given)) == 2


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"server.buffer": 3}, 'server.buffer = 3: leave it out: with pacing = "latency"'),
        ({"server.pacing": "deliveries"}, 'server.unknown_latency_s = 3.0: is of pacing by latency; set pacing = "latency"'),
        ({"server.check_every_s": 0.0}, "server.check_every_s = 0.0: must be > 0"),
        ({"server.pacing": "speed"}, "server.pacing"),
        ({"policy": {"kind": "pause"}}, "policy.kind = 'pause' goes by how many updates make a model"),
        ({"policy": {"kind": "random-set"}}, "policy.kind = .*random-set"),
        ({"policy": {"kind": "bsfl"}}, "set server.buffer, and leave pacing out"),
        ({"policy": {"kind": "genie"}}, "set server.buffer, and leave pacing out"),
    ],
)
def test_mistakes_are_refused(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        parse(override(ROUGH, changes))


def test_times_that_make_no_sense_are_refused() -> None:
    for name in ("unknown_latency_s", "check_every_s"):
        with pytest.raises(ParameterError, match=name):
            LatencyPacing(**{name: 0.0})
