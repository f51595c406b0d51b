"""`work.partial_share`: some updates are made with a part of the passes, in less time, and are used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scenarios.runs.reading import override, parse
from scenarios.schema.errors import UserError
from scenarios.wiring.simulation import build
from tests.helpers.memory_recorder import MemoryRecorder

TABLES: dict[str, Any] = {
    "name": "partial",
    "rounds": 6,
    "clients": {"count": 8, "data_sizes": 40.0},
    "server": {"per_round": 8},
    "policy": {"kind": "random"},
    "compute": {"seconds_per_sample": 0.1},
    "work": {"epochs": 4, "batch_size": 10, "partial_share": 0.5},
}
LEARNER = {
    "data": {"kind": "digits", "samples": 160, "test_samples": 40},
    "network": {"kind": "linear"},
    "optimizer": {"kind": "sgd", "learning_rate": 0.1},
}


def rows_of(tables: dict[str, Any]) -> tuple[list[Any], Any]:
    recorder, built = MemoryRecorder(), build(parse(tables))
    built.simulation.record_to(recorder)
    built.simulation.run()
    return recorder.updates, built


def test_expected_latencies_count_the_parts_in_where_a_trainer_is_eager() -> None:
    pytest.importorskip("torch", reason="needs torch, which is not installed: pip install 'netsim[fl]'")
    mean_s = []
    for kind in ("Unhurried", "UntilGood"):
        trained = LEARNER | {"trainer": {"kind": f"tests.helpers.own_trainers:{kind}"}, "epochs": 4, "batch_size": 10}
        tables = override(TABLES, {"learner": trained, "work": {"partial_share": 0.5}, "clients": {"count": 4}})
        mean_s.append(build(parse(tables | {"server": {"per_round": 4}})).truth.mean_latency_s(1, 0.0))
    assert mean_s[0] == pytest.approx([12.0] * 4)
    assert mean_s[1] == pytest.approx(mean_s[0])


@pytest.mark.parametrize("server", [{"per_round": 8}, {"kind": "buffered", "concurrency": 4, "buffer": 2}])
def test_a_share_of_the_updates_is_of_fewer_passes_and_takes_less_time(server: dict[str, Any]) -> None:
    rows, _ = rows_of(override(TABLES, {"server": server, "rounds": 20}))
    assert {row.samples for row in rows} == {40, 80, 120, 160}
    assert all(row.steps == row.samples / 10 for row in rows)
    ended = [row for row in rows if row.outcome == "delivered"]
    assert ended
    for row in ended:
        assert row.compute_end_s - row.compute_start_s == pytest.approx(0.1 * row.samples)


def test_expected_latencies_count_the_parts_in() -> None:
    # A pass takes 4 s: in half of all updates all four, else 1, 2 or 3 of them.
    rows, built = rows_of(override(TABLES, {"rounds": 400}))
    assert built.truth.mean_latency_s(1, 0.0) == pytest.approx([0.5 * 16.0 + 0.5 * 8.0] * 8)
    assert built.truth.mean_ratio(2.0, 1, 0.0) == pytest.approx([0.5 / 8 + (1 / 2 + 1 / 4 + 1 / 6) / 6] * 8)
    played = [row.outcome_s - row.selected_s for row in rows]
    assert sum(played) / len(played) == pytest.approx(12.0, abs=0.3)
    slowest_s = [1 - 0.5**8, 1 - (1 / 3) ** 8, 1 - (1 / 6) ** 8]
    expected_s = 4.0 + 4.0 * sum(slowest_s)
    assert built.truth.round_s(np.arange(8), 1, 0.0) == pytest.approx(expected_s)


def test_the_latency_of_a_round_that_was_not_played_is_of_the_part_that_was_drawn() -> None:
    rows, built = rows_of(TABLES)
    last = [row for row in rows if row.round == 6]
    drawn_s = built.server.clients.medium.latency_s(6, last[0].selected_s, np.array([row.client for row in last]))
    assert drawn_s == pytest.approx([row.outcome_s - row.selected_s for row in last])


def test_fedcs_takes_clients_that_are_expected_to_fit_by_the_part_that_they_do() -> None:
    # 12 s are expected where a whole update takes 16 s.
    fits = {"policy": {"kind": "fedcs", "round_s": 12.5, "asked": 1.0, "uploads": "parallel"}, "server.deadline_s": 16.0}
    rows, _ = rows_of(override(TABLES, fits))
    assert len(rows) == 48


def test_a_learner_trains_what_was_asked_for() -> None:
    pytest.importorskip("torch")
    trained = {key: value for key, value in TABLES.items() if key != "clients"} | {"clients": {"count": 8}, "learner": LEARNER}
    rows, whole = rows_of(override(trained, {"work.partial_share": 1.0, "work.epochs": 2, "rounds": 2}))
    assert {(row.samples, row.steps) for row in rows} == {(20, 2)}
    # All do one pass in place of two: as if they had been asked for one.
    _, one = rows_of(override(trained, {"work": {"epochs": 1, "batch_size": 10}, "rounds": 2}))
    assert np.array_equal(whole.trained.state_dict()["models"], one.trained.state_dict()["models"])


def test_no_share_changes_nothing() -> None:
    rows, _ = rows_of(override(TABLES, {"work.partial_share": 0.0}))
    assert {row.samples for row in rows} == {160}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"work": {"steps": 8, "batch_size": 10, "partial_share": 0.5}}, "work.partial_share = 0.5: is of passes; give epochs"),
        ({"work.epochs": 1}, "work.partial_share = 0.5: no client does more than one pass"),
        ({"work.partial_share": 1.5}, "work.partial_share = 1.5"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        build(parse(override(TABLES, changes)))


def test_a_pass_of_its_own_goes_with_whole_work_only() -> None:
    trained = {key: value for key, value in TABLES.items() if key != "clients"} | {"clients": {"count": 8}}
    learner = LEARNER | {"aggregation": {"kind": "q-ffl"}}
    with pytest.raises(UserError, match=r"work\.partial_share = 0\.5: q-ffl has clients go through all their samples"):
        parse(trained | {"learner": learner})
