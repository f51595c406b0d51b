"""Intervals cover as often as they say; the best is in its set; equivalence needs an interval, not the lack of a difference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from analysis.statistics.inference import bootstrap_interval, set_of_best, simultaneous_confidence, simultaneous_interval, verdict
from analysis.statistics.intervals import Interval, mean_interval


def covers_at_least(hits: int, trials: int, share: float) -> bool:
    """Whether `hits` is no less than binomial error allows where the true share is at least `share`: one chance in 10,000."""
    return hits >= stats.binom.ppf(1e-4, trials, share)


@pytest.mark.parametrize(("law", "mean", "count"), [("normal", 3.0, 5), ("normal", 3.0, 20), ("exponential", 2.0, 10)])
def test_bootstrap_intervals_cover_as_often_as_they_say(law: str, mean: float, count: int) -> None:
    rng = np.random.default_rng(7)
    trials = 600
    hits = 0
    for _ in range(trials):
        values = rng.normal(mean, 2.0, count) if law == "normal" else rng.exponential(mean, count)
        found = bootstrap_interval(values, resamples=600)
        hits += found.low <= mean <= found.high
    assert covers_at_least(hits, trials, 0.95)
    # Nor far more often than they say: they would be too wide to tell anything.
    assert hits <= stats.binom.ppf(1 - 1e-4, trials, 0.97)


def test_bootstrap_interval_of_skewed_values_is_skewed_and_the_same_twice() -> None:
    values = np.random.default_rng(2).exponential(1.0, 30)
    found = bootstrap_interval(values)
    assert found == bootstrap_interval([*values, math.nan])
    plain = mean_interval(values)
    assert found.high - plain.mean > 1.1 * (plain.mean - found.low)
    for too_little in ([], [1.0, 2.0, 3.0, 4.0], [2.0] * 9):
        assert math.isnan(bootstrap_interval(too_little).low)
    with pytest.raises(ValueError, match="confidence = 1"):
        bootstrap_interval(values, 1.0)


def test_simultaneous_intervals_hold_together() -> None:
    assert simultaneous_confidence(0.95, 5) == pytest.approx(0.99)
    assert simultaneous_confidence(0.95, 0) == 0.95
    rng = np.random.default_rng(3)
    trials, variants, seeds = 800, 6, 8
    # Differences to one baseline depend on each other: they share its noise.
    noise = rng.normal(0.0, 1.0, (trials, seeds, variants + 1))
    differences = noise[:, :, 1:] - noise[:, :, :1]
    together = alone = 0
    for trial in differences:
        of_all = [simultaneous_interval(trial[:, one], variants) for one in range(variants)]
        together += all(interval.low <= 0.0 <= interval.high for interval in of_all)
        alone += all(interval.low <= 0.0 <= interval.high for interval in map(mean_interval, trial.T))
    assert covers_at_least(together, trials, 0.95)
    # One by one they do not: this is what is to be prevented.
    assert not covers_at_least(alone, trials, 0.95)


def test_the_verdict_on_a_margin() -> None:
    assert verdict(Interval(0.0, 0.9, 5), 1.0) == "equivalent"
    assert verdict(Interval(0.0, 1.1, 5), 1.0) == "open"
    assert verdict(Interval(-3.0, 1.9, 5), 1.0) == "different"
    assert verdict(Interval(0.0, math.nan, 1), 1.0) == "open"


def test_equivalence_is_claimed_falsely_as_seldom_as_it_says() -> None:
    # A difference of exactly the margin is no equivalence: it is claimed in 2.5 of 100 cases at most.
    rng = np.random.default_rng(4)
    trials = 2000
    claimed = sum(verdict(mean_interval(rng.normal(1.0, 0.7, 10)), 1.0) == "equivalent" for _ in range(trials))
    assert claimed <= stats.binom.ppf(1 - 1e-4, trials, 0.025)
    assert claimed > 0


def test_the_set_of_best_by_hand() -> None:
    # Differences to the second: 1, 1, 1 (no scatter), and -2, 0, -1 (t = 1.73 < 6.2, the 97.5 % quantile's is 4.3).
    values = np.array([[2.0, 1.0, 3.0], [3.0, 2.0, 2.0], [5.0, 4.0, 5.0]])
    found = set_of_best(values, higher=False)
    assert (found.index, found.members.tolist(), found.seeds) == (1, [False, True, True], 3)
    assert set_of_best(-values, higher=True).members.tolist() == [False, True, True]
    # A seed that one of them lacks counts for none; what has no value at all is no candidate.
    lacking = np.array([[1.0, 2.0, math.nan], [1.0, 2.0, math.nan], [0.0, math.nan, math.nan]])
    found = set_of_best(lacking, higher=True)
    assert (found.index, found.members.tolist(), found.seeds) == (1, [False, True, False], 2)
    assert set_of_best(np.full((3, 2), math.nan), higher=True).index == -1
    assert set_of_best(np.array([[1.0, 2.0]]), higher=True).members.tolist() == [True, True]


def test_the_best_is_in_its_set_as_often_as_it_says() -> None:
    rng = np.random.default_rng(6)
    trials, seeds = 1000, 6
    # Five variants equally good and one worse: each of the five is "the best", so that this is the hardest case for the first.
    means = np.array([0.0, 0.0, 0.0, 0.0, 0.0, -1.5])
    scales = np.array([0.2, 1.0, 1.0, 2.0, 1.0, 1.0])
    kept = left_out = 0
    for _ in range(trials):
        shared = rng.normal(0.0, 3.0, (seeds, 1))
        found = set_of_best(shared + means + scales * rng.normal(size=(seeds, 6)), higher=True)
        kept += bool(found.members[0])
        left_out += not found.members[5]
    assert covers_at_least(kept, trials, 0.95)
    # It does leave out what is worse, although each seed alone is noise of standard deviation 3.
    assert left_out > trials / 3
