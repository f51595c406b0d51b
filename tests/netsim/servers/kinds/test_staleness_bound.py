"""The buffered server with a bound on staleness: it waits, or sends notices; by hand, as properties, with energy, resumed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netsim.core.errors import ParameterError
from netsim.servers.kinds.staleness_bound import UrgentNotices, WaitForOld
from scenarios.runs.reading import override, parse
from scenarios.schema.errors import UserError
from tests.helpers.memory_recorder import MemoryRecorder
from tests.helpers.random_worlds import built, copied, same, taken_up

# Passes of 10 steps and 1 s at the fast clients; client 3 takes 10 s for each of its 4 passes.
SMALL: dict[str, Any] = {
    "name": "bound",
    "rounds": 12,
    "clients": {"count": 4, "data_sizes": 100.0},
    "server": {"kind": "buffered", "concurrency": 4, "buffer": 2, "staleness_bound": 3},
    "policy": {"kind": "all"},
    "payload": {"down_bytes": 10, "up_bytes": 10},
    "work": {"batch_size": 10, "epochs": 4},
    "compute": {"seconds_per_sample": [0.01, 0.01, 0.01, 0.1]},
}
URGENT = {"server.urgent_notices": True}
ROUGH: dict[str, Any] = SMALL | {
    "rounds": 60,
    "clients": {"count": 12, "data_sizes": 100.0},
    "server": {"kind": "buffered", "concurrency": 8, "buffer": 2, "staleness_bound": 3},
    "policy": {"kind": "random"},
    "compute": {"seconds_per_sample": {"from": 0.002, "to": 0.02}, "noise": {"kind": "log-normal", "sigma": 0.6}},
    "downlink": {"delay": {"kind": "constant", "value_s": 0.1}},
    "uplink": {"delay": {"kind": "constant", "value_s": 0.1}, "channel": {"kind": "bernoulli", "success": 0.9}},
    "availability": {"kind": "markov", "mean_on_s": 40.0, "mean_off_s": 5.0},
}


class _Noting:
    """A learner that keeps the staleness, and the steps, of what it is told."""

    aggregates, records_losses, round_columns = True, False, ()

    def __init__(self) -> None:
        self.version = 0
        self.told: list[list[tuple[int, int, int]]] = []

    def aggregate(self, deliveries: Any, want_updates: bool, want_losses: bool = False) -> None:
        columns = (deliveries.clients, self.version - deliveries.versions, deliveries.steps)
        self.told.append(list(zip(*(np.asarray(column).tolist() for column in columns), strict=True)))
        self.version += 1

    def evaluate(self, round: int, time_s: float, last: bool) -> None:
        return None

    def retain(self, versions: list[int]) -> None:
        return None

    def oldest(self) -> int:
        return max(staleness for told in self.told for _, staleness, _ in told)


def noted(tables: dict[str, Any]) -> tuple[_Noting, MemoryRecorder, Any]:
    simulation, records = built(tables)
    loop = simulation.server.loop
    noting = loop.learner = loop.dispatch.learner = _Noting()
    simulation.run()
    return noting, records, simulation


def test_without_a_bound_a_slow_update_grows_old() -> None:
    tables = {**SMALL, "server": {key: value for key, value in SMALL["server"].items() if key != "staleness_bound"}, "rounds": 20}
    noting, _, _ = noted(tables)
    assert noting.oldest() > 3


def test_the_server_waits_for_an_update_that_would_grow_too_old() -> None:
    noting, records, _ = noted(SMALL)
    # Models at 4, 8 and 12 s, of all three fast clients; the fourth waits for client 3, which takes 40 s.
    assert [row.end_s for row in records.rounds[:4]] == [4, 8, 12, 40]
    assert noting.oldest() == 3
    # The model after it is made of all that arrived meanwhile.
    assert 3 in [client for client, _, _ in noting.told[3]]
    assert len(noting.told[3]) == 4


def test_notices_cut_training_at_the_end_of_the_present_pass() -> None:
    noting, records, _ = noted(override(SMALL, URGENT | {"rounds": 30}))
    slow = [row for row in records.updates if row.client == 3]
    # Its update began in round 1; as round 4 closes it is three rounds old. The pass that it is in then is its last.
    told_s = records.rounds[3].end_s
    passes = int(np.ceil(told_s / 10.0))
    assert (slow[0].selected_s, slow[0].outcome_s) == (0, passes * 10.0)
    assert (slow[0].samples, slow[0].steps) == (passes * 100, passes * 10)
    assert passes < 4
    # The learner trains so many steps.
    assert next(steps for told in noting.told for client, _, steps in told if client == 3) == passes * 10
    # Nobody is waited for.
    assert records.rounds[3].end_s < 40


def test_a_notice_takes_its_time_and_one_that_comes_in_the_last_pass_changes_nothing() -> None:
    _, records, _ = noted(override(SMALL, URGENT | {"server.notice_s": 11.0}))
    first = next(row for row in records.updates if row.client == 3)
    told_s = records.rounds[3].end_s + 11.0
    assert first.outcome_s == 10.0 * np.ceil(told_s / 10.0)
    _, records, _ = noted(override(SMALL, URGENT | {"server.notice_s": 31.0, "rounds": 40}))
    first = next(row for row in records.updates if row.client == 3)
    assert (first.outcome_s, first.steps) == (40, 40)


def test_while_waiting_no_update_that_is_aggregated_is_older_than_the_bound() -> None:
    for bound in (1, 2, 5):
        noting, _, _ = noted(override(ROUGH, {"server.staleness_bound": bound}))
        assert noting.oldest() <= bound
        assert noting.oldest() > 0


# Clients 0 to 2 end in one instant, again and again.
TIES = {"compute.seconds_per_sample": 0.01, "server.buffer": 1, "rounds": 40}


@pytest.mark.parametrize("urgent", [False, True])
def test_a_bound_that_nothing_comes_near_changes_nothing(urgent: bool) -> None:
    far = {"server.staleness_bound": 10**6, "server.urgent_notices": urgent}
    without, _, _ = noted(override(SMALL, TIES | {"server.staleness_bound": "none"}))
    bounded, _, _ = noted(override(SMALL, TIES | far))
    assert bounded.told == without.told
    assert {len(batch) for batch in without.told} == {1}


@pytest.mark.parametrize("bound", [1, 2, 3])
def test_an_update_that_came_in_the_instant_of_a_model_does_not_grow_too_old_for_the_next(bound: int) -> None:
    without, _, _ = noted(override(SMALL, TIES | {"server.staleness_bound": "none"}))
    bounded, _, _ = noted(override(SMALL, TIES | {"server.staleness_bound": bound}))
    assert bounded.oldest() <= bound
    assert without.oldest() == 3


def test_with_notices_none_is_older_than_the_bound_and_what_was_aggregated_in_one_pass() -> None:
    checked = 0
    for bound in (1, 3):
        _, records, _ = noted(override(ROUGH, URGENT | {"server.staleness_bound": bound, "rounds": 120}))
        ends_s = np.array([row.end_s for row in records.rounds])
        for row in records.updates:
            closes_s = ends_s[(np.arange(len(ends_s)) + 1 >= row.round + bound) & (ends_s >= row.compute_start_s)]
            if row.outcome != "delivered" or row.steps is None or not len(closes_s):
                continue
            # From the first close on at which it is over the bound, and trains, it takes at most one pass and its upload.
            pass_s = (row.compute_end_s - row.compute_start_s) / (row.steps / 10)
            latest_s = closes_s[0] + pass_s + row.upload_end_s - row.upload_start_s
            assert row.outcome_s <= latest_s + 1e-6
            aggregated = int(np.searchsorted(ends_s, row.outcome_s)) + 1
            before = int(np.searchsorted(ends_s, row.compute_start_s, side="left"))
            told = max(row.round + bound, before + 1)
            assert aggregated <= told + 1 + int(((ends_s > closes_s[0]) & (ends_s <= latest_s)).sum())
            checked += row.steps < 40
        assert {row.steps for row in records.updates if row.outcome == "delivered"} <= {10, 20, 30, 40}
    assert checked > 20


@pytest.mark.each_nth(5)
@pytest.mark.parametrize("urgent", [False, True])
@pytest.mark.parametrize("after", [1, 9, 30])
def test_state_taken_out_in_mid_run_goes_on(after: int, urgent: bool) -> None:
    tables = override(ROUGH, {"server.urgent_notices": urgent, **({"server.notice_s": 0.7} if urgent else {})})
    taken_up(lambda: built(tables), after)


@pytest.mark.each_nth(2)
@pytest.mark.parametrize("seed", [2, 3, 10])
def test_notices_of_one_instant_and_what_they_end_together_keep_their_order_after_a_resume(seed: int) -> None:
    # Few different times: notices reach several clients at once, and training cut short ends at the same time as others', or as
    # it was to end before.
    rng = np.random.default_rng(seed)
    tables = {
        "name": "ties",
        "seed": seed,
        "rounds": 14,
        "clients": {"count": 8, "data_sizes": 20.0},
        "server": {"kind": "buffered", "concurrency": 6, "buffer": 1, "staleness_bound": 2, "urgent_notices": True},
        "policy": {"kind": "random"},
        "work": {"batch_size": 10, "epochs": 12},
        "downlink": {"delay": {"kind": "constant", "value_s": rng.choice([0.5, 1.0, 2.0], 8).tolist()}},
        "compute": {"seconds_per_sample": rng.choice([0.025, 0.05, 0.005], 8).tolist()},
        "uplink": {"delay": {"kind": "constant", "value_s": 0.5}},
    }
    simulation, whole = built(tables)
    simulation.run()
    for after in range(1, 14):
        first, before = built(tables)
        first.run(until_round=after)
        second, rest = built(tables)
        second.load_state_dict(copied(first.state_dict()))
        second.run()
        assert same(before.updates + rest.updates, whole.updates), after


def test_shorter_training_draws_less_energy() -> None:
    power = {"energy": {"compute_w": 2.0, "send_w": 0.0, "receive_w": 0.0, "idle_w": 0.0}}
    _, records, _ = noted(override(SMALL, URGENT) | power)
    first = next(row for row in records.updates if row.client == 3)
    assert first.outcome_s < 40
    assert first.compute_j == pytest.approx(2.0 * first.outcome_s)


def test_it_trains_so_many_steps() -> None:
    tables = {key: table for key, table in SMALL.items() if key not in ("work", "clients")} | {"clients": {"count": 4}}
    learner = {
        "data": {"kind": "digits", "samples": 400},
        "network": {"kind": "linear"},
        "optimizer": {"kind": "sgd", "learning_rate": 0.1},
        "aggregation": {"kind": "port", "bound": 3},
        "batch_size": 10,
        "epochs": 4,
    }
    simulation, records = built(override(tables, URGENT) | {"learner": learner})
    simulation.run()
    assert records.rounds[-1].accuracy > 0.5
    assert min(row.steps or 40 for row in records.updates) < 40


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"server.staleness_bound": 0}, "server.staleness_bound"),
        ({"server.urgent_notices": True, "server.staleness_bound": None}, "server.urgent_notices = true: needs staleness_bound"),
        ({"server.notice_s": 1.0}, "server.notice_s = 1.0: is of urgent notices"),
        ({**URGENT, "server.notice_s": -1.0}, "server.notice_s"),
        ({**URGENT, "clients": {"count": 4}, "work": {"steps": 4, "batch_size": 10}}, "nothing says what an epoch is"),
    ],
)
def test_mistakes_are_refused(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        parse({key: value for key, value in override(SMALL, changes).items() if value is not None})


def test_numbers_that_make_no_sense_are_refused() -> None:
    simulation, _ = built(SMALL)
    with pytest.raises(ParameterError, match="staleness_bound = 0"):
        WaitForOld(pool=simulation.server.clients, bound=0)
    with pytest.raises(ParameterError, match="notice_s"):
        UrgentNotices(pool=simulation.server.clients, bound=1, notice_s=-1.0)
