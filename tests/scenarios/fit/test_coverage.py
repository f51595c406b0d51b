"""Coverage of the intervals of `netsim fit` on runs of a known world: a few seeds; `coverage.py` plays 200."""

from __future__ import annotations

import pytest
from scipy import stats

from tests.scenarios.fit.coverage import coverage, fitted


def test_the_deadline_cuts_part_of_the_known_world() -> None:
    estimates = fitted(1)
    shares = {phase: fit.durations.censored_share for (phase, _), fit in estimates.phases.items()}
    assert 0.02 < shares["upload"] < 0.3
    assert estimates.deadline_s == pytest.approx(6.0)


@pytest.mark.slow
def test_intervals_hold_the_truth_of_a_known_world() -> None:
    seeds = 12
    held = coverage(seeds)
    # 95 % of 12 is 11; a right interval holds the truth in less than this with probability 1e-4.
    least = stats.binom.ppf(1e-4, seeds, 0.95) / seeds
    assert min(held.values()) >= least, held
