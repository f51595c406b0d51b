"""Metrics, intervals, paired differences and studies against numbers worked out by hand, and intervals against scipy.stats."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.api import open_run, open_sweep
from analysis.metrics.facts import Settings
from analysis.metrics.run_metrics import aoi_regret, metrics_table, oracle_name, run_metrics
from analysis.metrics.targets import accuracy_curve, cost_to_accuracy, final_accuracy
from analysis.statistics.curves import last_value, mean_curve, moving_mean
from analysis.statistics.intervals import Interval, mean_interval, paired_differences
from analysis.stragglers.phases import phase_durations, phase_means
from tests.helpers.result_folders import EMPTY, PARTS, ROUNDS, write_run, write_sweep


@pytest.fixture
def rounds(tmp_path: Path) -> pd.DataFrame:
    return open_run(write_run(tmp_path / "run", ROUNDS)).rounds


def test_moving_mean_is_over_the_last_values() -> None:
    assert moving_mean([2.0, 4.0, 9.0, 5.0], 2).tolist() == [2.0, 3.0, 6.5, 7.0]
    assert moving_mean([2.0, 4.0, 9.0], 10).tolist() == [2.0, 3.0, 5.0]
    assert moving_mean([2.0, 4.0], 1).tolist() == [2.0, 4.0]
    assert moving_mean([], 3).tolist() == []
    with pytest.raises(ValueError, match="window = 0"):
        moving_mean([1.0], 0)


def test_time_to_accuracy_by_hand(rounds: pd.DataFrame) -> None:
    times, accuracy = accuracy_curve(rounds)
    assert times.tolist() == [1.0, 6.0, 10.0, 15.0]
    assert accuracy.tolist() == [0.2, 0.6, 0.4, 0.8]
    assert cost_to_accuracy(rounds, 0.5, "seconds") == 6.0
    assert cost_to_accuracy(rounds, 0.6, "seconds") == 6.0
    # Over the last 6 s: 0.2, 0.4, 0.5, 0.6.
    assert cost_to_accuracy(rounds, 0.45, "seconds", smoothing_s=6.0) == 10.0
    assert cost_to_accuracy(rounds, 0.81, "seconds") == math.inf
    assert cost_to_accuracy(rounds, 0.7, "seconds", smoothing_s=6.0) == math.inf


def test_run_figures_by_hand(rounds: pd.DataFrame, tmp_path: Path) -> None:
    assert final_accuracy(rounds) == 0.8
    assert final_accuracy(rounds, last=2) == pytest.approx(0.6, abs=1e-15)
    assert final_accuracy(rounds, last=10) == pytest.approx(0.5, abs=1e-15)
    metrics = run_metrics(open_run(tmp_path / "run"), settings=Settings(target_accuracy=0.5, last=2))
    assert (metrics.rounds, metrics.simulated_s, metrics["target_s"], metrics["mean_round_s"]) == (5, 15.0, 6.0, 3.0)
    # Regrets of the rounds that measured both: 2, 1, -0.5 (better than the genie once), 0.5.
    assert (metrics["max_leak"], metrics["regret"]) == (1.2, 3.0)
    assert metrics["final_accuracy"] == pytest.approx(0.6, abs=1e-15)
    assert math.isnan(run_metrics(open_run(tmp_path / "run"))["target_s"])


def test_deliveries_without_leak_are_unprotected_not_safe(tmp_path: Path) -> None:
    bare = open_run(write_run(tmp_path / "a", ROUNDS | {"max_leak": [0.0] * 5}))
    assert run_metrics(bare)["max_leak"] == math.inf
    silent = open_run(write_run(tmp_path / "b", ROUNDS | {"max_leak": [0.0] * 5, "delivered": [0] * 5}))
    assert run_metrics(silent)["max_leak"] == 0.0


def test_a_run_without_rounds_has_no_figures(tmp_path: Path) -> None:
    metrics = run_metrics(open_run(write_run(tmp_path / "run", EMPTY)), settings=Settings(target_accuracy=0.5))
    assert (metrics.rounds, metrics.simulated_s) == (0, 0.0)
    assert [name for name, value in metrics.values.items() if not math.isnan(value)] == []


def test_the_joules_of_a_delivered_update_are_the_summarys(tmp_path: Path) -> None:
    for energy, expected in ((None, math.nan), ({"per_delivered_j": None}, math.nan), ({"per_delivered_j": 2.5}, 2.5)):
        run = write_run(tmp_path / str(expected) / str(energy is None), ROUNDS, energy=energy)
        assert run_metrics(open_run(run))["delivered_j"] == pytest.approx(expected, nan_ok=True)


def test_interval_by_hand_and_against_scipy() -> None:
    # Mean 2, standard deviation 1, n = 3: half-width t(0.975, 2) / sqrt(3), t = 4.30265.
    interval = mean_interval([1.0, 2.0, 3.0])
    assert (interval.mean, interval.count) == (2.0, 3)
    assert interval.half_width == pytest.approx(4.302653 / math.sqrt(3.0), rel=1e-6)
    assert (interval.low, interval.high) == (2.0 - interval.half_width, 2.0 + interval.half_width)
    rng = np.random.default_rng(5)
    for count in (2, 5, 30):
        for confidence in (0.8, 0.95, 0.99):
            values = rng.normal(3.0, 2.0, count)
            low, high = stats.t.interval(confidence, count - 1, values.mean(), stats.sem(values))
            found = mean_interval(values, confidence)
            assert (found.low, found.high) == (pytest.approx(low, rel=1e-10), pytest.approx(high, rel=1e-10))


def test_interval_covers_as_often_as_it_says() -> None:
    # 4000 intervals of 5 normal values: the count that cover is binomial(4000, 0.9), standard deviation 19; bounds at 4 of these.
    values = np.random.default_rng(1).normal(7.0, 3.0, (4000, 5))
    covered = sum(abs(mean_interval(row, 0.9).mean - 7.0) <= mean_interval(row, 0.9).half_width for row in values)
    assert abs(covered - 3600) < 4 * 19


def test_interval_of_too_few_values() -> None:
    one = mean_interval([4.0, math.nan])
    assert (one.mean, one.count) == (4.0, 1)
    assert math.isnan(one.half_width)
    none = mean_interval([])
    assert none.count == 0
    assert math.isnan(none.mean)
    unprotected = mean_interval([math.inf, math.inf])
    assert (unprotected.mean, unprotected.count) == (math.inf, 2)
    assert math.isnan(unprotected.half_width)
    with pytest.raises(ValueError, match=r"confidence = 1\.0"):
        mean_interval([1.0, 2.0], 1.0)


def table(values: dict[str, dict[int, float]]) -> pd.DataFrame:
    rows = [(variant, seed, value) for variant, seeds in values.items() for seed, value in seeds.items()]
    return pd.DataFrame(rows, columns=["variant", "seed", "time"])


def test_differences_are_paired_by_seed() -> None:
    # Seeds listed in another order: 10-11, 20-23, 30-32 at seeds 1, 2, 3.
    frame = table({"base": {1: 11.0, 2: 23.0, 3: 32.0}, "new": {3: 30.0, 1: 10.0, 2: 20.0}})
    (found,) = paired_differences(frame, "base", "time")
    assert (found.variant, found.metric, found.seeds, found.reached, found.baseline_reached) == ("new", "time", 3, 3, 3)
    expected = stats.ttest_rel([10.0, 20.0, 30.0], [11.0, 23.0, 32.0]).confidence_interval(0.95)
    assert found.difference.mean == -2.0
    assert (found.difference.low, found.difference.high) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_differences_leave_out_what_does_not_exist() -> None:
    nan = math.nan
    frame = table(
        {
            "base": {1: 10.0, 2: 20.0, 3: 30.0, 4: nan, 5: 50.0},
            "new": {1: 9.0, 2: 18.0, 3: nan, 4: 7.0},
            "hopeless": {1: nan, 2: nan},
            "single": {1: 4.0},
            "open": {1: math.inf, 2: 19.0},
        }
    )
    new, hopeless, single, unprotected = paired_differences(frame, "base", "time")
    assert (new.seeds, new.reached, new.baseline_reached, new.difference.count) == (4, 3, 3, 2)
    assert new.difference.mean == -1.5
    assert (hopeless.seeds, hopeless.reached, hopeless.baseline_reached, hopeless.difference.count) == (2, 0, 2, 0)
    assert math.isnan(hopeless.difference.mean)
    assert (single.difference.mean, single.difference.count) == (-6.0, 1)
    assert math.isnan(single.difference.half_width)
    assert (unprotected.difference.mean, unprotected.difference.count) == (-1.0, 1)
    with pytest.raises(ValueError, match="baseline = 'other': must be one of the variants base, new"):
        paired_differences(frame, "other", "time")
    with pytest.raises(ValueError, match="metric = 'speed'"):
        paired_differences(frame, "base", "speed")


def test_metrics_table_has_a_row_a_run(tmp_path: Path) -> None:
    sweep = open_sweep(write_sweep(tmp_path / "s", {"a": {1: ROUNDS, 2: EMPTY}, "b": {1: ROUNDS}}, baseline="a"))
    frame = metrics_table(sweep, settings=Settings(target_accuracy=0.5))
    assert frame[["variant", "seed"]].to_numpy().tolist() == [["a", 1], ["a", 2], ["b", 1]]
    np.testing.assert_array_equal(frame["target_s"], [6.0, np.nan, 6.0])
    assert metrics_table([]).columns.tolist() == frame.columns.tolist()


def test_mean_curve_stays_where_all_curves_are() -> None:
    # On [1, 2]: y = 2x and y = 10 - x; at 1, 1.5, 2: (2, 9), (3, 8.5), (4, 8).
    left = (np.array([0.0, 2.0]), np.array([0.0, 4.0]))
    right = (np.array([1.0, 3.0]), np.array([9.0, 7.0]))
    x, mean, half = mean_curve([left, right], points=3)
    assert x.tolist() == [1.0, 1.5, 2.0]
    assert mean.tolist() == [5.5, 5.75, 6.0]
    assert half[2] == pytest.approx(mean_interval([4.0, 8.0]).half_width)
    x, mean, _ = mean_curve([left, right], grid=np.array([0.0, 1.0, 2.0, 3.0]))
    assert (x.tolist(), mean.tolist()) == ([1.0, 2.0], [5.5, 6.0])
    x, mean, half = mean_curve([left, (np.empty(0), np.empty(0))])
    assert (x.tolist(), mean.tolist()) == ([0.0, 2.0], [0.0, 4.0])
    assert np.isnan(half).all()
    # A curve that lies between two points of the grid is not lost.
    assert [one.tolist() for one in mean_curve([right], grid=np.array([0.0, 10.0]))[:2]] == [[1.0, 3.0], [9.0, 7.0]]
    assert mean_curve([left, (np.array([5.0]), np.array([1.0]))])[0].size == 0
    assert mean_curve([])[0].size == 0


@pytest.fixture
def parts(tmp_path: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    bounds = {"round": [1, 2, 3], "start_s": [0.0, 5.0, 9.0], "end_s": [5.0, 9.0, 10.0]}
    run = open_run(write_run(tmp_path / "parts", bounds, PARTS))
    return run.rounds, run.clients


def test_phases_by_hand(parts: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    _, clients = parts
    # Client 2 in round 1: waits 0.25 s before its download and 0.25 s for its sub-channel.
    assert phase_durations(clients).loc[2].tolist() == [0.75, 2.0, 0.5, 1.75]
    means = phase_means(clients)
    assert means["count"].tolist() == [6, 6, 6, 5]
    assert means.loc["upload_s", "mean_s"] == pytest.approx((0.5 + 1.75 + 1.0 + 10.0 + 0.5) / 5)
    assert means.loc["wait_s", "mean_s"] == pytest.approx((0.5 + 0.5 + 0.5) / 6)


def test_interval_is_plain_data() -> None:
    assert Interval(1.0, 0.5, 3) == Interval(1.0, 0.5, 3)


def test_the_last_value_of_a_curve_by_hand() -> None:
    curve = np.array([1.0, 2.0, 4.0]), np.array([10.0, 20.0, 40.0])
    assert [last_value(curve, until) for until in (math.inf, 4.0, 3.9, 2.0, 1.0)] == [40.0, 40.0, 20.0, 20.0, 10.0]
    assert math.isnan(last_value(curve, 0.5))


def test_rounds_that_measured_nothing_are_left_out_of_sums() -> None:
    ages = {"round": [1, 2, 3], "sum_age": pd.array([5.0, None, 9.0], "Float64"), "oracle_sum_age": [3.0, 4.0, 5.0]}
    rounds, sums = aoi_regret(pd.DataFrame(ages))
    assert (rounds.tolist(), sums.tolist()) == ([1.0, 3.0], [2.0, 6.0])


@pytest.mark.parametrize(
    ("said", "name"), [({"oracle": "genie"}, "genie"), ({"oracle": "none"}, ""), ({"oracle": None}, ""), ({}, ""), (None, "")]
)
def test_what_ages_are_measured_against(said: dict[str, str | None] | None, name: str) -> None:
    run: Any = SimpleNamespace(summary={"aoi": said})
    assert oracle_name(run) == name
