"""The server of FedCompass: assignments by hand, rounds by hand, late members, equal speeds, conservation, state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.fl.aggregation.rules import Arrivals
from netsim.core.errors import ParameterError
from netsim.servers.kinds.step_groups import Group, StepScheduler
from scenarios.registry.kinds import known_names, resolve
from scenarios.runs.reading import override, parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.random_worlds import built, taken_up

SMALL: dict[str, Any] = {
    "name": "compass",
    "rounds": 6,
    "clients": {"count": 3, "data_sizes": 1000.0},
    "server": {"kind": "compass", "min_steps": 4, "max_steps": 20},
    "payload": {"down_bytes": 10, "up_bytes": 10},
    "work": {"batch_size": 10},
    # A step takes 1, 1.5 and 2 s.
    "compute": {"seconds_per_sample": [0.1, 0.15, 0.2]},
}
ROUGH: dict[str, Any] = SMALL | {
    "rounds": 40,
    "clients": {"count": 8, "data_sizes": 1000.0},
    "compute": {"seconds_per_sample": 0.02, "noise": {"kind": "log-normal", "sigma": 0.4}},
    "downlink": {
        "delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.1},
        "channel": {"kind": "bernoulli", "success": 0.9},
    },
    "uplink": {
        "delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.3},
        "channel": {"kind": "gilbert-elliott", "to_bad": 0.2, "to_good": 0.6},
        "sub_channels": 4,
    },
    "availability": {"kind": "markov", "mean_on_s": 30.0, "mean_off_s": 5.0},
    "privacy": {"sensitivity": 0.1, "schedule": {"kind": "geometric", "epsilon_total": 10.0, "eta": 0.1}},
}


def scheduler(**named: Any) -> StepScheduler:
    return StepScheduler(clients=4, **{"least": 20, "most": 100, "slack": 1.5} | named)


def test_a_client_joins_the_group_for_which_it_has_steps_enough() -> None:
    made = scheduler()
    made.groups[90] = Group(300.0, 350.0, [0])
    made.step_s[:] = [1.0, 4.0, 6.0, np.nan]
    assert made.assign(1, 200.0) == (25, None)
    assert made.groups[90].members == [0, 1]
    # 16 steps of 6 s would be too few: it makes a group that is expected when the fastest could have made 100 more.
    assert made.assign(2, 200.0) == (41, 1)
    new = made.groups[1]
    assert (new.expected_s, new.latest_s) == (200.0 + 41 * 6.0, 200.0 + 41 * 6.0 * 1.5)


def test_of_several_groups_that_with_the_most_steps_is_joined_and_of_equals_the_latest() -> None:
    made = scheduler()
    expected_s = {1: 300.0, 2: 260.0, 3: 301.0, 4: 900.0}
    made.groups = {number: Group(time_s, time_s + 90.0, [0]) for number, time_s in expected_s.items()}
    made.step_s[:] = 2.0
    assert made.assign(1, 200.0) == (50, None)
    assert made.group_of[1] == 3


def test_steps_of_a_new_group_stay_within_their_limits() -> None:
    made = scheduler()
    made.step_s[:] = [0.1, 50.0, 0.001, np.nan]
    assert made.assign(0, 0.0) == (100, 1)
    # (15 + 0.1 x 100 - 0) / 50 is no step: it is given the least. To the fastest all would be more than the most.
    assert made.assign(1, 0.0) == (20, 2)
    assert made.assign(2, 0.0) == (100, 3)
    # Of whom nothing is known it is asked the most, and it has no group.
    assert made.assign(3, 0.0) == (100, None)
    assert 3 not in made.group_of


def test_speeds_follow_the_newest_measurement() -> None:
    made = scheduler()
    made.measure(0, 30.0, 10)
    made.measure(0, 10.0, 10)
    assert made.step_s[0] == pytest.approx(0.1 * 3.0 + 0.9 * 1.0)


@pytest.mark.parametrize("named", [{"least": 0}, {"most": 19}, {"slack": 0.9}])
def test_numbers_that_make_no_sense_are_refused(named: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        scheduler(**named)


def test_rounds_by_hand() -> None:
    simulation, records = built(SMALL)
    simulation.run()
    # 20 steps each: they arrive at 20, 30 and 40 s, each alone. Client 0 then makes a group with 20 more, to 40 s; client 1 has 6
    # steps until then. At 40 s client 2 arrives alone, and that group is complete: two models.
    assert [(row.start_s, row.end_s, row.delivered) for row in records.rounds[:4]] == [
        (0, 20, 1),
        (20, 30, 1),
        (30, 40, 3),
        (40, 40, 0),
    ]
    assert [(row.client, row.selected_s, row.steps, row.outcome_s) for row in records.updates[:5]] == [
        (0, 0, 20, 20),
        (1, 0, 20, 30),
        (1, 30, 6, 39),
        (2, 0, 20, 40),
        (0, 20, 20, 40),
    ]
    # At 40 s client 2 makes a group, expected at 80 and at the latest at 100 s. The others could make more than 20 steps until
    # then: client 0 makes one of its own, to 60 s, for which client 1 has 13 steps.
    begun = {(row.client, row.selected_s): row.steps for row in records.updates}
    assert (begun[2, 40], begun[0, 40], begun[1, 40]) == (20, 20, 13)
    assert [row.groups for row in records.rounds[:4]] == [0, 1, 0, 1]


class _Noting:
    """A learner that keeps what it is told."""

    aggregates, records_losses, round_columns = True, False, ()

    def __init__(self) -> None:
        self.version = 0
        self.told: list[list[tuple[int, int, int]]] = []

    def aggregate(self, deliveries: Any, want_updates: bool, want_losses: bool = False) -> None:
        columns = (deliveries.clients, deliveries.versions, deliveries.steps)
        self.told.append(list(zip(*(column.tolist() for column in columns), strict=True)))
        self.version += 1

    def evaluate(self, round: int, time_s: float, last: bool) -> None:
        return None

    def retain(self, versions: list[int]) -> None:
        assert all(0 <= version <= self.version for version in versions)


def noted(tables: dict[str, Any]) -> tuple[Any, _Noting, MemoryRecorder]:
    simulation, records = built(tables)
    loop = simulation.server.loop
    noting = loop.learner = loop.dispatch.learner = _Noting()
    simulation.run()
    return simulation, noting, records


def test_a_model_is_made_of_one_first_update_or_of_a_group() -> None:
    _, noting, _ = noted(SMALL)
    assert noting.told[:4] == [[(0, 0, 20)], [(1, 0, 20)], [(2, 0, 20)], [(1, 2, 6), (0, 1, 20)]]


def test_clients_of_one_speed_make_one_group_and_are_synchronous() -> None:
    _, noting, records = noted(override(SMALL, {"compute.seconds_per_sample": 0.1, "rounds": 8}))
    # Three first arrivals in one instant are three models; the first who begins again makes the group of all that follow.
    assert [len(told) for told in noting.told] == [1, 1, 1, 3, 3, 3, 3, 3]
    assert [row.end_s for row in records.rounds] == [20, 20, 20, 40, 60, 80, 100, 120]
    assert {row.steps for row in records.updates} == {20}


def test_with_constant_speeds_all_members_arrive_within_a_step_of_what_was_expected() -> None:
    speeds = np.random.default_rng(5).uniform(0.05, 0.4, 9).round(3).tolist()
    simulation, records = built(override(SMALL, {"clients.count": 9, "compute.seconds_per_sample": speeds, "rounds": 40}))
    assigned: dict[tuple[int, float], float] = {}
    groups = simulation.server.loop.dispatch.scheduler
    plain = groups.assign

    def watched(client: int, now_s: float) -> Any:
        given = plain(client, now_s)
        if client in groups.group_of:
            assigned[client, now_s] = groups.groups[groups.group_of[client]].expected_s
        return given

    groups.assign = watched
    simulation.run()
    checked = 0
    for row in records.updates:
        expected_s = assigned.get((row.client, row.selected_s))
        if expected_s is not None and row.outcome == "delivered":
            assert -1e-6 <= expected_s - row.outcome_s < 10 * speeds[row.client] + 1e-6
            checked += 1
    assert checked > 60


# Client 1 becomes ten times slower at 30 s, as it begins its 6 steps: expected at 39 s, they end at 120 s.
SLOWER = {"compute.changes": [{"at_s": 29.0, "seconds_per_sample": 1.5, "clients": [1]}], "rounds": 9}


def test_who_is_later_than_its_group_enters_the_next_model_and_is_not_waited_for() -> None:
    simulation, noting, records = noted(override(SMALL, SLOWER))
    # The group of clients 0 and 1 was expected at 40 s, at the latest at 20 + 20 x 1.5 = 50 s: it closes then, without client 1.
    assert [row.end_s for row in records.rounds[:4]] == [20, 30, 40, 50]
    assert noting.told[:4] == [[(0, 0, 20)], [(1, 0, 20)], [(2, 0, 20)], [(0, 1, 20)]]
    late = next(row for row in records.updates if row.client == 1 and row.selected_s == 30)
    assert (late.outcome, late.outcome_s) == ("delivered", 120)
    which = next(i for i, told in enumerate(noting.told) if (1, 2, 6) in told)
    # It is in a model of others that closes after it, not alone; its client began again at once.
    assert len(noting.told[which]) > 1
    assert records.rounds[which].end_s > 120
    assert simulation.server.clients.in_flight[1].selected_s == 120


def test_a_first_update_is_applied_alone_though_a_late_one_waits(tmp_path: Path) -> None:
    trace = tmp_path / "presence.csv"
    trace.write_text("client,on_s,off_s\n0,0,1000\n1,0,1000\n2,0,1000\n3,101,1000\n", encoding="utf-8")
    world = {
        "clients": {"count": 4, "data_sizes": 1000.0},
        "compute": {"seconds_per_sample": [0.1, 0.15, 0.2, 0.1], "changes": SLOWER["compute.changes"]},
        "availability": {"kind": "trace", "path": str(trace)},
    }
    _, noting, records = noted(SMALL | world | {"rounds": 14})
    # The update of client 1 comes at 120 s, later than its group; client 3 delivers its first one at 121 s.
    first = next(i for i, told in enumerate(noting.told) if (3, 0, 20) in [(client, 0, steps) for client, _, steps in told])
    assert len(noting.told[first]) == 1
    assert records.rounds[first].end_s == 121
    late = next(i for i, told in enumerate(noting.told) if (1, 2, 6) in told)
    assert late > first
    assert len(noting.told[late]) > 1


def test_two_late_updates_of_one_client_both_count() -> None:
    # With so little slack nearly every update of the noisy clients is late.
    tables = ROUGH | {"availability": {"kind": "always"}, "server": SMALL["server"] | {"slack": 1.0}, "rounds": 60}
    simulation, noting, records = noted(tables)
    assert any(len({client for client, _, _ in batch}) < len(batch) for batch in noting.told)
    # What was delivered has entered one model, or waits.
    told = [entry for batch in noting.told for entry in batch]
    delivered = sum(row.outcome == "delivered" for row in records.updates)
    waits = sum(not end.censored for end in simulation.server.loop.close.pending())
    assert len(told) + waits == delivered


def test_alone_a_client_goes_on_for_ever() -> None:
    simulation, records = built(override(SMALL, {"clients.count": 1, "compute.seconds_per_sample": 0.1}))
    simulation.run()
    assert [row.end_s for row in records.rounds] == [20, 40, 60, 80, 100, 120]


def test_a_member_that_leaves_is_not_waited_for(tmp_path: Any) -> None:
    trace = tmp_path / "presence.csv"
    trace.write_text("client,on_s,off_s\n0,0,1000\n1,0,35\n2,0,1000\n", encoding="utf-8")
    simulation, records = built(override(SMALL, {"availability": {"kind": "trace", "path": str(trace)}, "rounds": 5}))
    simulation.run()
    # Client 1 goes away at 35 s: the group of 40 s is complete without it.
    assert [row.end_s for row in records.rounds[:4]] == [20, 30, 40, 40]
    assert ("aborted", 1) in {(row.outcome, row.client) for row in records.updates}


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_group_that_is_over_in_the_instant_in_which_somebody_comes_is_so_before(after: int, tmp_path: Path) -> None:
    trace = tmp_path / "presence.csv"
    trace.write_text("client,on_s,off_s\n0,0,1000\n1,0,1000\n2,0,1000\n3,50,1000\n", encoding="utf-8")
    # Client 1 becomes slow as it joins the group of client 0, which is over at 20 + 1.5 x 20 s without it.
    slow = [{"at_s": 30.0, "clients": [1], "seconds_per_sample": 2.0}]
    world = {
        "clients": {"count": 4, "data_sizes": 1000.0},
        "compute": {"seconds_per_sample": [0.1, 0.15, 0.2, 0.1], "changes": slow},
        "availability": {"kind": "trace", "path": str(trace)},
    }
    records, _ = taken_up(lambda: built(SMALL | world), after)
    assert [row.end_s for row in records.rounds[:4]] == [20, 30, 40, 50]
    assert next((row.round, row.selected_s) for row in records.updates if row.client == 3) == (5, 50)


@pytest.mark.parametrize("after", [1, 9, 30])
def test_state_taken_out_in_mid_run_goes_on(after: int) -> None:
    expected, _ = taken_up(lambda: built(ROUGH), after)
    assert {row.outcome for row in expected.updates} >= {"delivered", "lost", "aborted"}


def test_the_books_balance() -> None:
    simulation, records = built(ROUGH)
    simulation.run()
    simulation.close()
    counts = simulation.server.counts()
    assert counts["selected"] == len(records.updates)
    assert counts["late"] == 0
    assert len({(row.round, row.client) for row in records.updates}) == len(records.updates)
    assert {row.steps for row in records.updates if row.steps is not None} <= set(range(4, 21))


LEARNER: dict[str, Any] = {
    "data": {"kind": "digits"},
    "network": {"kind": "linear"},
    "optimizer": {"kind": "sgd", "learning_rate": 0.1},
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"server.min_steps": 0}, "server.min_steps"),
        ({"server.max_steps": 3}, "server.max_steps = 3: must be at least the 4 steps of min_steps"),
        ({"server.slack": 0.5}, "server.slack"),
        ({"policy": {"kind": "random"}}, "policy.kind = .random.: server.kind = 'compass' selects nobody"),
        ({"compute": {}}, "gives clients steps by their speed"),
        ({"server.per_round": 2}, "server.per_round"),
    ],
)
def test_mistakes_are_refused(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        build(parse(override(SMALL, changes)))


AGGREGATIONS = {
    "contribution": ({}, {"contribution_samples": 20, "data": {"kind": "digits", "validation_samples": 50}}),
    "majority-vote": ({"learning_rate": 0.01}, {}),
    "mixing": ({"alpha": 0.5}, {}),
}
"""Parameters, and further keys of the learner, of aggregations that need them."""


@pytest.mark.parametrize("kind", sorted(known_names("aggregation")))
def test_an_aggregation_is_refused_exactly_if_one_update_alone_would_replace_the_model(kind: str) -> None:
    given, keys = AGGREGATIONS.get(kind, ({}, {}))
    tables = {key: table for key, table in SMALL.items() if key not in ("clients", "work")} | {"clients": {"count": 3}}
    tables |= {"learner": LEARNER | keys | {"aggregation": {"kind": kind, **given}}}
    made = resolve("aggregation", kind)(**given)
    if made.demands.fresh:
        expected = "goes with updates of the present model only|server.kind = 'compass'"
    else:
        model, update = torch.zeros(3), torch.tensor([[1.0, -2.0, 4.0]])
        sizes, ones = np.array([10]), np.ones(1)
        arrivals = Arrivals(sizes, np.zeros(1, np.int64), ones, lambda: np.random.default_rng(0), totals=(3, 30))
        replaces = bool((made.step(model, model[None], update, arrivals, ones) == update[0]).all())
        if not replaces:
            parse(tables)
            return
        expected = r"learner.aggregation.kind = .*would replace the model by a client's first update"
    with pytest.raises(UserError, match=expected):
        parse(tables)


def test_mixing_that_keeps_nothing_of_the_model_is_refused() -> None:
    tables = {key: table for key, table in SMALL.items() if key not in ("clients", "work")} | {"clients": {"count": 3}}
    with pytest.raises(UserError, match=r"learner.aggregation.alpha = 1.0: would replace the model"):
        parse(tables | {"learner": LEARNER | {"aggregation": {"kind": "mixing", "alpha": 1.0}}})


def test_it_trains_with_fixed_shares() -> None:
    tables = {key: table for key, table in SMALL.items() if key not in ("clients", "work")} | {"clients": {"count": 3}}
    shares = {"aggregation": {"kind": "fixed-share", "by": "equal", "alpha": 0.9}, "staleness": {"kind": "polynomial"}}
    simulation, records = built(tables | {"learner": LEARNER | shares | {"data": {"kind": "digits", "samples": 300}}})
    simulation.run()
    accuracies = [row.accuracy for row in records.rounds]
    assert accuracies[-1] > 0.6
    assert {row.steps for row in records.updates} > {20}
