"""The semi-synchronous server: rounds by hand, carry-over, rounds that pass with nobody, conservation, state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scenarios.runs.reading import override, parse
from scenarios.schema.errors import UserError
from tests.helpers.random_worlds import built, taken_up

SMALL: dict[str, Any] = {
    "name": "semi",
    "rounds": 4,
    "clients": {"count": 3},
    "server": {"kind": "semi-synchronous", "per_round": 3, "round_s": 2.0}, "payload": {"down_bytes": 10, "up_bytes": 10},
    "policy": {"kind": "all"},
    "compute": {"delay": {"kind": "constant", "value_s": [1.0, 3.0, 5.0]}},
}
ROUGH: dict[str, Any] = {
    "name": "rough",
    "rounds": 40,
    "clients": {"count": 8},
    "server": {"kind": "semi-synchronous", "per_round": 3, "round_s": 1.5}, "payload": {"down_bytes": 10, "up_bytes": 10},
    "policy": {"kind": "pause"},
    "downlink": {"delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.3}},
    "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.3, "mean_excess_s": 1.2}},
    "uplink": {
        "delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.5},
        "channel": {"kind": "gilbert-elliott", "to_bad": 0.2, "to_good": 0.6},
        "sub_channels": 2,
    },
    "availability": {"kind": "markov", "mean_on_s": 8.0, "mean_off_s": 2.0},
    "privacy": {"sensitivity": 0.1, "schedule": {"kind": "geometric", "epsilon_total": 10.0, "eta": 0.1}},
}


def test_four_rounds_by_hand() -> None:
    simulation, records = built(SMALL)
    simulation.run()
    assert [(row.start_s, row.end_s) for row in records.rounds] == [(0, 2), (2, 4), (4, 6), (6, 8)]
    # Client 0 is done after a second and is chosen again as each round opens; 1 and 2 go on through the closes.
    assert [(row.round, row.client, row.selected_s, row.outcome_s) for row in records.updates] == [
        (1, 0, 0, 1),
        (1, 1, 0, 3),
        (2, 0, 2, 3),
        (1, 2, 0, 5),
        (3, 0, 4, 5),
        (3, 1, 4, 7),
        (4, 0, 6, 7),
    ]
    assert {row.outcome for row in records.updates} == {"delivered"}
    counts = [(row.selected, row.delivered, row.in_flight) for row in records.rounds]
    assert counts == [(3, 1, 2), (1, 2, 1), (2, 2, 1), (2, 2, 1)]


def test_an_update_that_ends_as_the_round_does_counts_for_it() -> None:
    simulation, records = built(override(SMALL, {"compute.delay.value_s": 2.0, "rounds": 2}))
    simulation.run()
    assert [(row.selected, row.delivered) for row in records.rounds] == [(3, 3), (3, 3)]


def test_the_policy_is_told_of_every_attempt_in_the_round_in_which_it_ends() -> None:
    simulation, _ = built(SMALL)
    told: list[tuple[int, list[int], list[float]]] = []
    policy = simulation.server.loop.dispatch.policy
    policy.observe = lambda outcome: told.append((outcome.round, outcome.clients.tolist(), outcome.latency_s.tolist()))
    simulation.run()
    assert told == [(1, [0], [1.0]), (2, [1, 0], [3.0, 1.0]), (3, [2, 0], [5.0, 1.0]), (4, [1, 0], [3.0, 1.0])]


def test_a_round_passes_with_nobody_and_the_run_ends_when_nobody_is_left(tmp_path: Path) -> None:
    trace = tmp_path / "presence.csv"
    trace.write_text("client,on_s,off_s\n0,0,1.5\n0,6,7.5\n1,0,1.5\n2,0,1.5\n", encoding="utf-8")
    there = {"compute.delay.value_s": 1.0, "rounds": 9, "availability": {"kind": "trace", "path": str(trace)}}
    simulation, records = built(override(SMALL, there))
    simulation.run()
    assert [(row.selected, row.delivered) for row in records.rounds] == [(3, 3), (0, 0), (0, 0), (1, 1)]
    assert simulation.ended == "nobody left"


def test_models_are_made_of_what_arrived_whichever_version_it_started_from() -> None:
    simulation, _ = built(SMALL)
    made: list[tuple[int, list[int], list[int]]] = []

    class Noting:
        version, aggregates, records_losses, round_columns = 0, True, False, ()

        def aggregate(self, deliveries: Any, want_updates: bool, want_losses: bool = False) -> None:
            made.append((deliveries.round, deliveries.clients.tolist(), deliveries.versions.tolist()))
            self.version += 1

        def retain(self, versions: Any) -> None:
            """All models are kept."""

        def evaluate(self, round: int, time_s: float, last: bool) -> None:
            return None

    loop = simulation.server.loop
    loop.learner = loop.dispatch.learner = Noting()
    simulation.run()
    assert made == [(1, [0], [0]), (2, [1, 0], [0, 1]), (3, [2, 0], [0, 2]), (4, [1, 0], [2, 3])]


@pytest.mark.parametrize("after", [1, 9, 30])
def test_state_taken_out_in_mid_run_goes_on(after: int) -> None:
    expected, state = taken_up(lambda: built(ROUGH), after)
    assert {row.outcome for row in expected.updates} >= {"delivered", "lost", "aborted"}
    assert state["server"]["loop"]["pool"]["alive"]


def test_the_books_balance() -> None:
    simulation, records = built(ROUGH)
    simulation.run()
    simulation.close()
    counts = simulation.server.counts()
    ends = sum(counts[name] for name in ("delivered", "lost", "late", "aborted", "in_flight"))
    assert counts["selected"] == len(records.updates) == ends
    assert counts["late"] == 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"server.round_s": 0.0}, "server.round_s"),
        ({"server.per_round": 4}, "must be at most the 3 clients"),
        ({"metrics": {"reward": {"kind": "pause-reward"}}}, "metrics.reward"),
        ({"server.deadline_s": 1.0}, "server.deadline_s"),
    ],
)
def test_mistakes_are_refused(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        parse(override(SMALL, changes))
