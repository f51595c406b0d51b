"""The server of SAFA: rounds by hand, its picks, its tolerance of lag, the cache, conservation, state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scenarios.runs.reading import override, parse
from scenarios.schema.errors import UserError
from tests.helpers.random_worlds import built, taken_up

SMALL: dict[str, Any] = {
    "name": "safa",
    "rounds": 4,
    "clients": {"count": 4},
    "server": {"kind": "safa", "per_round": 2, "lag_tolerance": 1},
    "payload": {"down_bytes": 10, "up_bytes": 10},
    "compute": {"delay": {"kind": "constant", "value_s": [1.0, 2.0, 3.0, 9.0]}},
}
AFTER_ALL = {"server.selection": "after-all"}
ROUGH: dict[str, Any] = {
    "name": "rough",
    "rounds": 40,
    "clients": {"count": 8},
    "server": {"kind": "safa", "per_round": 3, "lag_tolerance": 2, "deadline_s": 2.5},
    "payload": {"down_bytes": 10, "up_bytes": 10},
    "downlink": {
        "delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.3},
        "channel": {"kind": "bernoulli", "success": 0.9},
    },
    "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.3, "mean_excess_s": 1.2}},
    "uplink": {
        "delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.5},
        "channel": {"kind": "gilbert-elliott", "to_bad": 0.2, "to_good": 0.6},
        "sub_channels": 2,
    },
    "availability": {"kind": "markov", "mean_on_s": 8.0, "mean_off_s": 2.0},
    "privacy": {"sensitivity": 0.1, "schedule": {"kind": "geometric", "epsilon_total": 10.0, "eta": 0.1}},
}


def picks(simulation: Any) -> list[list[int]]:
    """Whose updates were picked, round by round."""
    close, found = simulation.server.loop.close, []
    for number in range(1, simulation.rounds + 1):
        simulation.run(until_round=number)
        found.append([one.client for one in close.picked])
    return found


def test_four_rounds_by_hand() -> None:
    simulation, records = built(SMALL)
    assert picks(simulation) == [[0, 1], [2, 3], [0, 1], [2, 3]]
    # Round 2: 0 and 1 were picked before, so that 2 (at 3 s) and 3 (at 9 s) come first; both are waited for.
    assert [(row.start_s, row.end_s, row.picked, row.picked_s) for row in records.rounds] == [
        (0, 2, 2, 2),
        (2, 9, 2, 7),
        (9, 11, 2, 2),
        (11, 18, 2, 7),
    ]
    # Who goes on begins nothing: 2 and 3 begin in rounds 1 and 3 only. Nobody is more than a round behind.
    assert [(row.selected, row.renewed) for row in records.rounds] == [(4, 0), (2, 0), (4, 0), (2, 0)]
    assert sorted((row.round, row.client) for row in records.updates) == [
        *((1, client) for client in range(4)),
        *((2, 0), (2, 1)),
        *((3, client) for client in range(4)),
        *((4, 0), (4, 1)),
    ]


def test_the_quota_is_filled_by_those_picked_before_once_nobody_else_is_at_work() -> None:
    simulation, records = built(override(SMALL, {"server.per_round": 3, "compute.delay.value_s": [1.0, 2.0, 3.0, 4.0]}))
    # Round 2 (from 3 s): client 3 arrives at 4 s, and is alone in having priority; the other places go to who arrives first.
    assert picks(simulation)[:2] == [[0, 1, 2], [3, 0, 1]]
    assert [(row.end_s, row.picked_s) for row in records.rounds[:2]] == [(3, 3), (5, 2)]


def test_who_works_on_a_model_that_is_too_old_is_forced_to_take_the_new_one() -> None:
    # Rounds of 1 s, by the deadline. Client 3 would take 9 s; in round 3 its model is two rounds old, one more than tolerated.
    simulation, records = built(override(SMALL, {"server.deadline_s": 1.0, "compute.delay.value_s": [1.0, 1.0, 1.0, 9.0]}))
    simulation.run()
    assert [(row.round, row.client, row.outcome, row.outcome_s) for row in records.updates if row.client == 3] == [
        (1, 3, "aborted", 2.0)
    ]
    assert [row.renewed for row in records.rounds] == [0, 0, 1, 0]
    assert simulation.server.clients.in_flight[3].begun_round == 3


def test_with_no_tolerance_whoever_is_still_at_work_begins_again() -> None:
    simulation, records = built(override(SMALL, {"server.deadline_s": 1.5, "server.lag_tolerance": 0}))
    simulation.run()
    assert [row.renewed for row in records.rounds] == [0, 3, 3, 3]
    assert {row.client for row in records.updates if row.outcome == "delivered"} == {0}


def test_a_client_whose_update_was_lost_trains_again_from_the_model_it_holds() -> None:
    lost = {"uplink.channel": {"kind": "bernoulli", "success": 1e-9}, "server.deadline_s": 20.0, "rounds": 3}
    simulation, records = built(override(SMALL, lost))
    simulation.run()
    begun = [(row.round, row.client, row.bytes_down) for row in records.updates if row.client == 0]
    # Sent the model in round 1; in round 2 one round behind, so that it goes on with it; in round 3 it has to take the new one.
    assert begun == [(1, 0, 10), (2, 0, 0), (3, 0, 10)]
    assert [row.renewed for row in records.rounds] == [0, 0, 4]
    assert [row.bytes_down for row in records.rounds] == [40, 0, 40]


def test_a_model_that_was_lost_on_its_way_is_sent_again_as_the_newest() -> None:
    lost = {"downlink.channel": {"kind": "bernoulli", "success": 1e-9}, "rounds": 3}
    simulation, records = built(override(SMALL, lost))
    simulation.run()
    assert [(row.bytes_down, row.renewed, row.lost) for row in records.rounds] == [(40, 0, 4)] * 3


def test_after_all_it_waits_for_everyone_and_tells_when_the_last_of_the_picked_came() -> None:
    simulation, records = built(override(SMALL, AFTER_ALL))
    assert picks(simulation) == [[0, 1], [2, 3], [0, 1], [2, 3]]
    assert [(row.end_s - row.start_s, row.picked_s) for row in records.rounds] == [(9, 2), (9, 9), (9, 2), (9, 9)]


def test_after_all_an_update_that_crossed_a_round_is_not_picked() -> None:
    simulation, records = built(override(SMALL, AFTER_ALL | {"server.deadline_s": 4.0, "server.per_round": 4}))
    assert picks(simulation) == [[0, 1, 2], [0, 1, 2], [0, 1, 2], [0, 1, 2]]
    # It does not arrive within its tolerance of one round, either: 9 s are more than two rounds.
    assert [row.renewed for row in records.rounds] == [0, 0, 1, 0]
    slower = AFTER_ALL | {"server.deadline_s": 4.0, "server.per_round": 4, "server.lag_tolerance": 5}
    simulation, records = built(override(SMALL, slower))
    assert picks(simulation) == [[0, 1, 2]] * 4
    assert [row.delivered for row in records.rounds] == [3, 3, 4, 3]


def test_by_speed_those_come_first_who_train_fastest() -> None:
    speed = {
        "clients.data_sizes": [10.0, 40.0, 30.0, 20.0],
        "work": {"batch_size": 10},
        "compute": {"samples_per_s": [1.0, 8.0, 5.0, 1.25]},
        "server": {"kind": "safa", "per_round": 2, "selection": "after-all", "order": "speed"},
    }
    simulation, records = built({**SMALL, **override({}, speed), "clients": {"count": 4, "data_sizes": [10.0, 40.0, 30.0, 20.0]}})
    # They take 10, 5, 6 and 16 s: the order of speed, 1, 2, 3, 0, is not that of arrival, 1, 2, 0, 3.
    assert picks(simulation) == [[1, 2], [3, 0], [1, 2], [3, 0]]
    assert [row.picked_s for row in records.rounds] == [6, 16, 6, 16]


class _Noting:
    """A learner that keeps what it is told."""

    aggregates, records_losses, round_columns = True, False, ()

    def __init__(self) -> None:
        self.version = 0
        self.told: list[tuple[list[tuple[int, int, bool]], list[int]]] = []

    def aggregate(self, deliveries: Any, want_updates: bool, want_losses: bool = False) -> None:
        whose = zip(deliveries.clients.tolist(), deliveries.versions.tolist(), deliveries.held.tolist(), strict=True)
        self.told.append((list(whose), deliveries.renewed.tolist()))
        self.version += 1

    def evaluate(self, round: int, time_s: float, last: bool) -> None:
        return None

    def retain(self, versions: list[int]) -> None:
        assert all(0 <= version <= self.version for version in versions)


def test_the_learner_is_told_what_is_held_back_and_who_was_renewed() -> None:
    simulation, _ = built(override(SMALL, {"compute.delay.value_s": [1.0, 2.0, 2.0, 9.0], "server.deadline_s": 3.0}))
    loop = simulation.server.loop
    noting = loop.learner = loop.dispatch.learner = _Noting()
    simulation.run()
    # Client 2 arrives in the instant of the close, after the second; in round 2 it has priority, and 0 comes before 1, in round
    # 3 the other way round. Client 3 never arrives.
    assert noting.told == [
        ([(0, 0, False), (1, 0, False), (2, 0, True)], []),
        ([(0, 1, False), (1, 1, True), (2, 1, False)], []),
        ([(0, 2, False), (1, 2, False), (2, 2, True)], [3]),
        ([(0, 3, False), (1, 3, True), (2, 3, False)], []),
    ]


def test_a_round_without_deliveries_makes_a_model_of_the_cache() -> None:
    simulation, _ = built(override(SMALL, {"compute.delay.value_s": 9.0, "server.deadline_s": 1.0, "rounds": 2}))
    loop = simulation.server.loop
    noting = loop.learner = loop.dispatch.learner = _Noting()
    simulation.run()
    assert noting.told == [([], []), ([], [])]


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("selection", ["first-come", "after-all"])
@pytest.mark.parametrize("after", [1, 9, 30])
def test_state_taken_out_in_mid_run_goes_on(after: int, selection: str) -> None:
    tables = override(ROUGH, {"server.selection": selection})
    expected, _ = taken_up(lambda: built(tables), after)
    assert {row.outcome for row in expected.updates} >= {"delivered", "lost", "aborted"}
    assert sum(row.renewed or 0 for row in expected.rounds) > 0


def test_no_update_enters_that_is_older_than_tolerated_and_the_books_balance() -> None:
    simulation, records = built(ROUGH)
    simulation.run()
    ends_s = [row.end_s for row in records.rounds]
    for row in records.updates:
        if row.outcome == "delivered":
            # Begun in round r from a model at most two rounds old, and in the round after the last tolerated one it is cut.
            assert np.searchsorted(ends_s, row.outcome_s) + 1 - row.round <= 2 + 1
    for row in records.rounds:
        assert row.picked is not None
        assert row.picked <= min(3, row.delivered)
    simulation.close()
    counts = simulation.server.counts()
    assert counts["selected"] == len(records.updates)
    assert counts["late"] == 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"server.per_round": 5}, "must be at most the 4 clients"),
        ({"server.per_round": 0}, "server.per_round"),
        ({"server.lag_tolerance": -1}, "server.lag_tolerance"),
        ({"server.deadline_s": 0.0}, "server.deadline_s"),
        ({"server.order": "speed"}, "server.order = .speed.: goes with selection = 'after-all'"),
        ({"server.order": "speed", **AFTER_ALL}, "nothing says how fast clients train"),
        ({"policy": {"kind": "random"}}, "policy.kind = .random.: server.kind = 'safa' selects nobody"),
        ({"metrics": {"reward": {"kind": "pause-reward"}}}, "metrics.reward"),
        ({"server.round_s": 1.0}, "server.round_s"),
    ],
)
def test_mistakes_are_refused(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        parse(override(SMALL, changes))


@pytest.mark.parametrize(("table", "kind"), [("aggregation", "equal"), ("staleness", "polynomial")])
def test_another_aggregation_than_that_of_the_cache_is_refused(table: str, kind: str) -> None:
    learner = {"data": {"kind": "digits"}, "network": {"kind": "linear"}, "optimizer": {"kind": "sgd", "learning_rate": 0.1}}
    with pytest.raises(UserError, match=rf"learner.{table}.kind = .{kind}.: leave it out"):
        parse(SMALL | {"learner": learner | {table: {"kind": kind}}})


def test_a_report_of_such_a_run_and_its_stragglers(tmp_path: Path) -> None:
    from analysis import open_run
    from analysis.stragglers.critical_path import critical_path
    from analysis.stragglers.records import run_records
    from analysis.stragglers.time_section import time_sections
    from scenarios.runs.run import run

    run(parse(ROUGH), tmp_path / "run")
    found = open_run(tmp_path / "run")
    words = repr(time_sections(found))
    assert "no client holds a round up by itself" in words
    assert "Rounds were closed by: " in words
    assert "enough arrived (" in words
    path = critical_path(run_records(found))
    assert float((path["end_s"] - path["start_s"]).sum()) == pytest.approx(float(found.rounds["end_s"].iloc[-1]))


class CountedSet(set[int]):
    """A set that counts how often it is asked for a member."""

    asked = 0

    def __iter__(self) -> Any:
        for member in super().__iter__():
            CountedSet.asked += 1
            yield member

    def __contains__(self, member: object) -> bool:
        CountedSet.asked += 1
        return super().__contains__(member)


def questions(clients: int) -> int:
    """Return how often clients of the last round's picks are looked at in five rounds."""
    delay = {"kind": "shifted-exponential", "shift_s": 0.3, "mean_excess_s": 1.0}
    study = SMALL | {"clients": {"count": clients}, "compute": {"delay": delay}}
    simulation, _ = built(study | {"server": {"kind": "safa", "per_round": clients // 3}})
    close, CountedSet.asked = simulation.server.loop.close, 0
    for number in range(1, 6):
        simulation.run(until_round=number)
        close._last = CountedSet(close._last)
    return CountedSet.asked


def test_a_round_costs_a_step_for_each_client() -> None:
    few, many = questions(100), questions(400)
    assert 0 < many < 6 * few
