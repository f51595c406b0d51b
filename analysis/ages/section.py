"""The sections of a report on ages of information."""

from __future__ import annotations

import math

import numpy as np

from analysis.ages.measure import MOST_VARIANTS, growths, pairs
from analysis.documents.blocks import Section, Table
from analysis.documents.numbers import MISSING, format_interval
from analysis.metrics.run_metrics import delivery_shares, oracle_name
from analysis.results.groups import Groups
from analysis.statistics.intervals import mean_interval

AGE_WORDS = (
    "AoI regret: age of information minus that of the oracle on the same channel states, summed over clients and rounds. The "
    "oracle `means` knows the present means and lets its clients rotate over the best channels, `means-age` gives the best of "
    "them to the oldest client, and `csi` sees the states themselves.",
    "AoI variance: sum over clients of (age - mean age)² after a round; cumulated: summed over rounds.",
)


def age_table(groups: Groups) -> Table | None:
    """Return ages and deliveries of each variant, means over its runs with intervals; None where no run has ages."""
    rows = []
    for label, runs in groups.items():
        aged = [run for run in runs if run.summary.get("aoi")]
        if not aged:
            continue
        shares = [delivery_shares(run) for run in aged]
        # One list for each column, with a value for each run.
        columns: list[list[float]] = [
            [_number(run.summary["aoi"]["mean_age_rounds"]) for run in aged],
            [run.summary["aoi"]["cumulated_age_variance"] / max(1, run.summary["rounds"]) for run in aged],
        ]
        for statistic in (np.min, np.mean, np.max):
            percent = [100.0 * float(statistic(share)) if share.size else math.nan for share in shares]
            columns.append(percent)
        oracles = " or ".join(dict.fromkeys(oracle_name(run) or MISSING for run in aged))
        rows.append([label, oracles, *(format_interval(mean_interval(values)) for values in columns)])
    header = ["", "oracle", "mean age (rounds)", "AoI variance of a round"]
    header += [f"rounds with a delivery (%), {who}" for who in ("least served client", "mean", "most served")]
    caption = "Age of information and deliveries of each variant, means over its runs"
    return Table("ages", caption, (header, rows), words=(0, 1)) if rows else None


def instance_sections(groups: Groups) -> list[Section]:
    """Return a section with two tables: pairwise differences of AoI regrets on the same instances, and growth of the regrets.

    Empty for a single variant, for a single seed, and for more than `MOST_VARIANTS` variants.
    """
    if not 1 < len(groups) <= MOST_VARIANTS or max(map(len, groups.values())) < 2:
        return []
    paired = pairs(groups)
    if not paired:
        return []
    pair_rows = [
        [pair.first, pair.second, format_interval(pair.difference, signed=True), f"{pair.below} of {pair.difference.count}"]
        for pair in paired
    ]
    growth_rows = [
        [
            growth.label,
            format_interval(growth.first_half),
            format_interval(growth.second_half),
            format_interval(growth.difference, signed=True),
            format_interval(growth.exponent),
            f"{growth.left_out} of {growth.left_out + growth.exponent.count}",
        ]
        for growth in growths(groups)
    ]
    differences = (["this", "minus this", "difference of AoI regrets", "instances on which the first is lower"], pair_rows)
    growth = (["", "first half", "second half", "second minus first", "exponent of growth", "runs without"], growth_rows)
    words = (
        "The exponent is the slope of log regret on log round over the last nine tenths of a run, 1 where regret grows linearly. "
        "A run whose regret is not above 0 throughout has none and is left out; where runs are, the mean is of those that did "
        "worse, and says little."
    )
    blocks = [
        Table("aoi-regret-pairs", "AoI regrets of every two variants on the same instances", differences, words=(0, 1)),
        Table("aoi-regret-growth", "Growth of the AoI regret", growth, note=words),
    ]
    return [Section("AoI regret over instances", blocks)]


def _number(value: float | None) -> float:
    """Return a number of a summary; NaN for None."""
    return math.nan if value is None else value
