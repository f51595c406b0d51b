"""Numbers of one run, and of many runs on common seeds: means with Student-t intervals, paired differences, mean curves.

NaN says that a figure does not exist (a target not reached, no evaluation, an interval from one value); it is never replaced by
a guess. Seeds are the unit of replication: every interval is over seeds, each seed counting once. Runs that are compared may end
at different times: what is compared is taken where the shortest of them ends (see `analysis.targets` for times to a target).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.metrics.facts import DEFAULT, Settings
from analysis.metrics.registry import METRICS, metric_values

if TYPE_CHECKING:
    import pandas as pd

    from analysis.results import Run

FloatArray = NDArray[np.float64]
Curve = tuple[FloatArray, FloatArray]
"""Abscissae (ascending) and values, both (n,)."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and the half-width of its confidence interval over `count` values; NaN where too few values are there."""

    mean: float
    half_width: float
    count: int

    @property
    def low(self) -> float:
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        return self.mean + self.half_width


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """The figures by which runs are compared."""

    variant: str
    label: str
    seed: int
    rounds: int
    simulated_s: float
    """Simulated seconds to the close of the last round; 0 without rounds."""
    oracle: str
    """What the AoI regret is measured against; empty where there is none."""
    values: Mapping[str, float]
    """Metrics by name (`analysis.metrics.registry`); NaN: it does not exist."""

    def __getitem__(self, name: str) -> float:
        return self.values[name]


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Metric of `variant` minus that of the baseline at the same seed, over the seeds where both exist (`difference.count`)."""

    variant: str
    metric: str
    difference: Interval
    seeds: int
    """Seeds both were run at."""
    reached: int
    """Of these, seeds where the variant's figure exists (a target was reached)."""
    baseline_reached: int
    """Of these, seeds where the baseline's figure exists."""


def moving_mean(values: ArrayLike, window: int) -> FloatArray:
    """Mean of each value and the `window` - 1 before it, or of as many as there are; shape as `values` (n,)."""
    if window < 1:
        raise ValueError(f"window = {window!r}: must be >= 1")
    array = np.asarray(values, dtype=np.float64)
    # Sums over the window itself: differences of one running sum would let an infinite value spoil all later ones.
    padded = np.concatenate([np.zeros(window - 1), array])
    sums = np.lib.stride_tricks.sliding_window_view(padded, window).sum(axis=1) if array.size else array
    return np.asarray(sums / np.minimum(np.arange(1, array.size + 1), window), dtype=np.float64)


def round_latencies_s(rounds: pd.DataFrame) -> FloatArray:
    """Seconds from start to close, a value a round."""
    return (rounds["end_s"] - rounds["start_s"]).to_numpy(dtype=np.float64)


def cumulative_regret(rounds: pd.DataFrame) -> Curve:
    """Rounds and the sum up to each of genie reward minus reward (PAUSE eq. 15); rounds that did not measure both are skipped."""
    return _cumulated(rounds, rounds["genie_reward"] - rounds["reward"])


def aoi_regret(rounds: pd.DataFrame) -> Curve:
    """Rounds and the sum up to each of sum of ages minus the oracle's (Li et al., eq. 14); empty where it was not measured."""
    return _cumulated(rounds, rounds["sum_age"] - rounds["oracle_sum_age"])


def cumulated_age_variance(rounds: pd.DataFrame) -> Curve:
    """Rounds and the sum up to each of the AoI variance (Li et al., eq. 37, as in Fig. 4); empty without ages."""
    return _cumulated(rounds, rounds["age_variance"])


def _cumulated(rounds: pd.DataFrame, column: pd.Series[float]) -> Curve:
    values = column.to_numpy(dtype=np.float64, na_value=math.nan)
    measured = ~np.isnan(values)
    return rounds["round"].to_numpy(dtype=np.float64)[measured], np.cumsum(values[measured])


def last_value(curve: Curve, until: float = math.inf) -> float:
    """The last value of a curve, up to the abscissa `until`; NaN of an empty one."""
    values = curve[1][curve[0] <= until]
    return float(values[-1]) if values.size else math.nan


def oracle_name(run: Run) -> str:
    """What the AoI regret of a run is measured against; empty where it has no ages, or no oracle."""
    oracle = str((run.summary.get("aoi") or {}).get("oracle") or "")
    return "" if oracle == "none" else oracle


def delivery_shares(run: Run) -> FloatArray:
    """Deliveries of each client over the rounds of a run; (K,), empty where the run did not count them."""
    successes = (run.summary.get("aoi") or {}).get("successes") or []
    rounds = int(run.summary.get("rounds") or 0)
    return np.asarray(successes, np.float64) / rounds if rounds else np.empty(0)


def run_metrics(run: Run, names: Iterable[str] | None = None, settings: Settings = DEFAULT) -> RunMetrics:
    """Metrics of one run, measured as `settings` say; `names` None: all of `METRICS`. ValueError: a name that no metric has."""
    rounds = run.columns(["round", "end_s"])
    count = rounds["round"].size
    return RunMetrics(
        variant=run.variant,
        label=run.label,
        seed=run.seed,
        rounds=count,
        simulated_s=float(rounds["end_s"][-1]) if count else 0.0,
        oracle=oracle_name(run),
        values=metric_values(run, METRICS if names is None else names, settings),
    )


def metrics_table(runs: Iterable[Run], names: Sequence[str] | None = None, settings: Settings = DEFAULT) -> pd.DataFrame:
    """`run_metrics` of each run, a row a run: variant, label, seed, rounds, simulated_s, oracle, and a column a metric."""
    import pandas as pd

    asked = list(METRICS if names is None else names)
    found = [run_metrics(run, asked, settings) for run in runs]
    facts = ("variant", "label", "seed", "rounds", "simulated_s", "oracle")
    table = {name: [getattr(row, name) for row in found] for name in facts}
    return pd.DataFrame(table | {name: [row[name] for row in found] for name in asked})


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """Mean and Student-t interval of the values that are numbers; one value has no interval, infinite values have no width."""
    array = np.asarray(values, dtype=np.float64).ravel()
    array = array[~np.isnan(array)]
    if array.size == 0:
        return Interval(math.nan, math.nan, 0)
    if not np.isfinite(array).all():
        # Infinities of both signs would make NaN with a warning; leaks and times know the positive one only.
        return Interval(math.inf if array.max() == math.inf else -math.inf, math.nan, array.size)
    half = float(_half_width(array[:, np.newaxis], confidence)[0])
    return Interval(float(array.mean()), half, array.size)


def restricted_mean(times_s: ArrayLike, horizon_s: float, confidence: float = 0.95) -> Interval:
    """Mean of min(time, `horizon_s`) over runs that all last until the horizon, with its Student-t interval; NaNs are left out.

    The same of bytes or joules in the place of times, with a horizon that all runs spend.

    Where no run reached the target the mean is the horizon and has no interval: that all runs agree says little of the next one.
    A 95 % interval covers as often as it claims where most runs reach it and there are 20 seeds; in 92 of 100 cases with 5 seeds
    of exponential times, of which a third miss it (simulated in `tests/analysis/test_targets.py`); and more rarely
    where nearly all runs, or nearly none, reach it, for then few seeds do not show the others.
    """
    times = np.asarray(times_s, np.float64)
    interval = mean_interval(np.minimum(times, horizon_s), confidence)
    return interval if (times <= horizon_s).any() else Interval(interval.mean, math.nan, interval.count)


def paired_differences(
    table: pd.DataFrame, baseline: str, metric: str, *, horizon: float | None = None, confidence: float = 0.95
) -> list[PairedDifference]:
    """Differences of `metric` to `baseline` at the same seed, for each other variant in the order of the table.

    `table` has columns variant, seed and `metric`, a row a run. Runs share their random numbers at a seed, so the differences
    scatter less than the runs. Seeds where either figure does not exist give no difference; how many there are is reported.
    With a `horizon`, which all runs reach, the metric is a time, and differences are of min(time, horizon); where neither variant
    reached the target by then at any seed the difference is 0 and has no interval, as of `restricted_mean`.
    ValueError: unknown baseline or metric.
    """
    if metric not in table.columns:
        raise ValueError(f"metric = {metric!r}: must be a column of the table ({', '.join(map(str, table.columns))})")
    variants = list(dict.fromkeys(str(name) for name in table["variant"]))
    if baseline not in variants:
        raise ValueError(f"baseline = {baseline!r}: must be one of the variants {', '.join(variants)}")
    limit = math.inf if horizon is None else horizon
    seeds: dict[object, int] = {}
    rows = np.array([seeds.setdefault(seed, len(seeds)) for seed in table["seed"].tolist()], dtype=np.intp)
    places = {name: place for place, name in enumerate(variants)}
    columns = np.array([places[str(name)] for name in table["variant"].tolist()], dtype=np.intp)
    found: FloatArray = np.full((len(seeds), len(variants)), math.nan)
    run = np.zeros(found.shape, bool)
    found[rows, columns] = table[metric].to_numpy(dtype=np.float64)
    run[rows, columns] = True
    reached = np.isfinite(found) & (found <= limit)
    values = np.minimum(found, limit)
    # Infinite figures, such as leaks without protection, have no difference.
    values[np.isinf(values)] = math.nan
    base = variants.index(baseline)
    both = run & run[:, [base]]

    def to_baseline(one: int) -> PairedDifference:
        seeds = both[:, one]
        interval = mean_interval(values[seeds, one] - values[seeds, base], confidence)
        count, base_count = int(reached[seeds, one].sum()), int(reached[seeds, base].sum())
        if horizon is not None and count == base_count == 0:
            interval = Interval(interval.mean, math.nan, interval.count)
        return PairedDifference(variants[one], metric, interval, int(seeds.sum()), count, base_count)

    return [to_baseline(one) for one in range(len(variants)) if one != base]


def mean_curve(
    curves: Sequence[Curve], *, grid: FloatArray | None = None, points: int = 400, confidence: float = 0.95
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean over seeds of curves sampled at different abscissae: common abscissae, mean, half-width of the interval at each.

    Curves are interpolated linearly at `grid` (default: `points` equal steps), and only where every one of them has data: beyond
    the end of the shortest nothing is made up. Empty where there is no such stretch; half-widths are NaN for a single curve.
    """
    curves = [curve for curve in curves if curve[0].size]
    nothing = np.empty(0)
    if not curves:
        return nothing, nothing, nothing
    low, high = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    if low > high:
        return nothing, nothing, nothing
    if grid is None:
        # A lone curve needs no common grid: its own abscissae keep every value.
        grid = curves[0][0] if len(curves) == 1 else np.linspace(low, high, points)
    else:
        inside = grid[(grid >= low) & (grid <= high)]
        # A short curve may lie between two points of the grid.
        grid = inside if inside.size else np.unique([low, high])
    values = np.stack([np.interp(grid, x, y) for x, y in curves])
    return grid, values.mean(axis=0), _half_width(values, confidence)


def _half_width(values: FloatArray, confidence: float) -> FloatArray:
    """Half-widths of the Student-t intervals of the columns of `values` (n, points); NaN for n = 1."""
    # scipy.special, not scipy.stats: a tenth of the import time, and the report of a run should come up at once.
    from scipy.special import stdtrit

    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence = {confidence!r}: must be in (0, 1)")
    count = values.shape[0]
    if count < 2:
        return np.full(values.shape[1], math.nan)
    quantile = float(stdtrit(count - 1, 0.5 + confidence / 2))
    return np.asarray(quantile * values.std(axis=0, ddof=1) / math.sqrt(count), dtype=np.float64)
