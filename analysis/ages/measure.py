"""Ages of information by client and round, and how AoI regret differs and grows over instances."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.metrics.run_metrics import aoi_regret, oracle_name
from analysis.metrics.targets import common_extent
from analysis.results.groups import Groups
from analysis.results.run import Run
from analysis.statistics.arrays import Curve, FloatArray
from analysis.statistics.curves import last_value
from analysis.statistics.intervals import Interval, mean_interval


def ages(run: Run) -> FloatArray:
    """Return the age of information of each client after each round, in rounds, (rounds, K).

    It is 1 after a delivery in the round, and otherwise one more than before. Servers with ages record deliveries by round. For
    other servers a delivery counts in the round in whose time it came. Before the first delivery of a client its age counts from
    the start of the run. Empty without records of clients, and with slots.
    """
    if not run.has_clients or run.summary.get("slots"):
        return np.empty((0, 0))
    end_s = run.columns(["end_s"])["end_s"]
    table = run.arrow("clients", ["round", "client", "outcome", "outcome_s", "age_after_rounds"])
    client = np.asarray(table.column("client").to_numpy(), np.int64)
    # Row of the result in which an attempt counts, from 0: its round, or below the round in whose time it ended.
    row = np.asarray(table.column("round").to_numpy(), np.int64) - 1
    count = max(int((run.scenario.get("clients") or {}).get("count", 0)), int(client.max(initial=-1)) + 1)
    if not end_s.size or not count:
        return np.empty((0, 0))
    recorded = np.asarray(table.column("age_after_rounds").to_numpy(), np.float64)
    delivered = np.array([outcome == "delivered" for outcome in table.column("outcome").to_pylist()], bool)
    was_heard = np.zeros((end_s.size, count), bool)
    if np.isnan(recorded).all() and end_s[-1] > 0.0:
        # An update may be delivered rounds after the one that it was begun for.
        row = np.searchsorted(end_s, np.asarray(table.column("outcome_s").to_numpy(), np.float64))
    counts = delivered & (row < end_s.size)
    was_heard[row[counts], client[counts]] = True
    # Number of the last round up to each round in which a client was heard; 0: in none yet.
    last = np.maximum.accumulate(np.where(was_heard, np.arange(1, end_s.size + 1)[:, np.newaxis], 0), axis=0)
    return np.asarray(np.arange(1, end_s.size + 1)[:, np.newaxis] - last + (last > 0), np.float64)


MOST_VARIANTS = 8
"""Largest number of variants of which every pair is compared: more pairs would fill a page with chance findings."""


@dataclass(frozen=True, slots=True)
class Pair:
    """AoI regret of `first` minus that of `second`, on the same instances."""

    first: str
    second: str
    difference: Interval
    below: int
    """Instances on which `first` has the smaller regret."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth of the AoI regret of one variant over its runs."""

    label: str
    first_half: Interval
    second_half: Interval
    difference: Interval
    """Second half minus first, on the same instance: 0 where regret grows linearly, below where it grows slower."""
    exponent: Interval
    """Slope of log regret on log round over the last nine tenths of a run (1: linear), of the runs with regrets above 0 there."""
    left_out: int
    """Number of runs without such a slope, because their regret is not above 0 throughout. These did best."""


def pairs(groups: Groups) -> list[Pair]:
    """Return the comparison of every two variants whose AoI regrets are against the same oracle, at the seeds that both have.

    Regrets are summed over the rounds that all runs have, as in comparisons of variants.
    """
    common = common_extent(run for runs in groups.values() for run in runs).rounds
    finals = {label: _finals(runs, common) for label, runs in groups.items()}
    oracles = {label: {oracle_name(run) for run in runs} for label, runs in groups.items()}
    result = []
    for first, second in itertools.combinations([label for label, final in finals.items() if final], 2):
        if oracles[first] != oracles[second] or len(oracles[first]) > 1:
            continue
        seeds = [seed for seed in finals[first] if seed in finals[second]]
        differences = [finals[first][seed] - finals[second][seed] for seed in seeds]
        result.append(Pair(first, second, mean_interval(differences), sum(value < 0.0 for value in differences)))
    return result


def growths(groups: Groups) -> list[Growth]:
    """Return how the AoI regret of each variant grows: in both halves of a run, and by its exponent.

    Variants of which no run measures the regret are left out.
    """
    result = []
    for label, runs in groups.items():
        curves = [curve for curve in map(_regret, runs) if curve[0].size > 1]
        if not curves:
            continue
        exponents = [growth_exponent(curve) for curve in curves]
        halves: FloatArray = np.array([_halves(curve) for curve in curves])
        result.append(
            Growth(
                label,
                mean_interval(halves[:, 0]),
                mean_interval(halves[:, 1]),
                mean_interval(halves[:, 1] - halves[:, 0]),
                mean_interval(exponents),
                sum(map(math.isnan, exponents)),
            )
        )
    return result


def growth_exponent(curve: Curve) -> float:
    """Return the least-squares slope of log y on log x past the first tenth of a curve; NaN unless all y there are above 0."""
    start = int(0.1 * curve[0].size)
    x, y = curve[0][start:], curve[1][start:]
    if x.size < 2 or not (y > 0.0).all():
        return math.nan
    deviations = np.log(x) - np.log(x).mean()
    return float((deviations * np.log(y)).sum() / (deviations**2).sum())


def _halves(curve: Curve) -> tuple[float, float]:
    """Return the regret gathered in the first half of a run, and in the second half."""
    regret = curve[1]
    middle = float(regret[(regret.size - 1) // 2])
    return middle, float(regret[-1]) - middle


def _regret(run: Run) -> Curve:
    """Return the AoI regret of a run against rounds."""
    # Not `run.rounds`, which would keep the whole table of every run in memory.
    return aoi_regret(run.arrow("rounds", ("round", "sum_age", "oracle_sum_age")).to_pandas())


def _finals(runs: Sequence[Run], until: float) -> dict[int, float]:
    """Return the AoI regret of each seed up to round `until`; runs that do not measure it are left out."""
    measured = {run.seed: last_value(_regret(run), until) for run in runs}
    return {seed: regret for seed, regret in measured.items() if not math.isnan(regret)}
