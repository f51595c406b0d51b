"""The variants of a sweep side by side, as plain data: means over seeds and paired differences to the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from analysis.results import Sweep
from analysis.sources import FORMAT
from analysis.statistics import Interval, PairedDifference, mean_interval, metrics_table, paired_differences, restricted_mean
from analysis.targets import UNLIMITED, Cost, Extent, common_extent

if TYPE_CHECKING:
    import pandas as pd

METRICS = (
    *("target_s", "target_bytes", "target_j", "final_accuracy", "mean_round_s", "max_leak", "delivered_j", "regret"),
    *("aoi_regret", "cumulated_age_variance"),
)
"""Figures that are compared, in the order of the tables; fields of `RunMetrics`, `ComparisonRow` and `DifferenceRow`."""


TARGETS: dict[str, Cost] = {"target_s": "seconds", "target_bytes": "bytes", "target_j": "joules"}
"""Figures that say what the target accuracy cost; restricted to what every run spent."""


Equal = Literal["time", "bytes"]
"""Where final accuracies are compared: at the common end in simulated time, or at the common number of bytes sent."""


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One variant: each figure as a mean over seeds with its interval."""

    variant: str
    label: str
    seeds: int
    reached: int
    """Seeds in which the target accuracy was reached by the horizon in seconds."""
    reached_bytes: int
    reached_j: int
    target_s: Interval
    """Restricted mean: of min(time, horizon)."""
    target_bytes: Interval
    """Likewise of bytes sent, both ways."""
    target_j: Interval
    """Likewise of joules that all clients drew, idle ones included."""
    final_accuracy: Interval
    mean_round_s: Interval
    max_leak: Interval
    """Mean inf: updates arrived without protection."""
    delivered_j: Interval
    regret: Interval
    aoi_regret: Interval
    """Against `oracle`."""
    cumulated_age_variance: Interval
    oracle: str = ""
    """What the AoI regret is measured against; empty where there is none, names joined by "or" where runs differ."""


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """One variant minus the baseline at the same seeds."""

    variant: str
    label: str
    target_s: PairedDifference
    target_bytes: PairedDifference
    target_j: PairedDifference
    final_accuracy: PairedDifference
    mean_round_s: PairedDifference
    max_leak: PairedDifference
    delivered_j: PairedDifference
    regret: PairedDifference
    aoi_regret: PairedDifference
    cumulated_age_variance: PairedDifference
    same_oracle: bool = True
    """Whether the AoI regrets of both are against one oracle; else their difference says nothing."""


@dataclass(frozen=True)
class Comparison:
    """Everything the tables of a sweep show, and the settings it was computed with."""

    name: str
    baseline: str
    target_accuracy: float | None
    smoothing_s: float
    """Simulated seconds over which evaluations are averaged on the way to the target; 0: the first evaluation at the target."""
    horizon_s: float
    """Times to the target are restricted to it."""
    horizon_bytes: float
    """Bytes to the target are restricted to it: what every run sent."""
    horizon_j: float
    """Joules to the target are restricted to it: what the clients of every run drew; inf where no run counts energy."""
    last: int
    """Evaluations averaged for the final accuracy."""
    until: Extent
    """How far all compared runs go; where the final accuracy and cumulated figures are taken."""
    equal: Equal
    """What is equal between the runs where their final accuracies are compared."""
    confidence: float
    runs: pd.DataFrame
    """A row a run, columns as `RunMetrics`."""
    rows: list[ComparisonRow]
    differences: list[DifferenceRow]

    def has(self, metric: str) -> bool:
        """Whether any run has this figure. Leaks that no run limits or protects, and rounds without time, are no figures."""
        values = self.runs[metric]
        if metric == "target_bytes":
            return self.horizon_bytes > 0.0 and bool(values.notna().any())
        if metric == "max_leak":
            leaks = values.to_numpy(np.float64)
            return bool((np.isfinite(leaks) & (leaks > 0.0)).any())
        if metric == "mean_round_s":
            return bool((values > 0.0).any())
        return bool(values.notna().any()) or (metric == "target_s" and self.target_accuracy is not None)

    @property
    def oracles(self) -> tuple[str, ...]:
        """What AoI regrets are measured against: one name, or several where runs differ."""
        return tuple(dict.fromkeys(name for name in self.runs["oracle"] if name))


def _names(oracles: pd.Series[str]) -> str:
    return " or ".join(dict.fromkeys(name for name in oracles if name))


def compare(
    sweep: Sweep,
    *,
    target_accuracy: float | None = None,
    smoothing_s: float | None = None,
    horizon_s: float | None = None,
    equal: Equal = "time",
    last: int = 10,
    confidence: float = 0.95,
) -> Comparison:
    """Compare the variants of `sweep`. `target_accuracy` and `smoothing_s` None take the sweep's own, where it has them.

    Runs may end at different times. Times to the target are restricted to `horizon_s` (None: the end of the shortest run), and
    final accuracies are compared at that common end, or where as many bytes were sent (`equal`).
    ValueError: a horizon beyond the end of the shortest run.
    """
    target = sweep.target_accuracy if target_accuracy is None else target_accuracy
    smooth = sweep.smoothing_s if smoothing_s is None else smoothing_s
    common = common_extent(sweep)
    horizon = _checked_horizon(horizon_s, common.time_s)
    by_bytes = Extent(UNLIMITED.time_s, common.rounds, common.sent_bytes)
    until = by_bytes if equal == "bytes" else Extent(common.time_s, common.rounds, UNLIMITED.sent_bytes)
    horizons = {name: common.of(cost) for name, cost in TARGETS.items()} | {"target_s": horizon}
    table = metrics_table(sweep, target_accuracy=target, smoothing_s=smooth, last=last, until=until)
    rows = []
    for variant, label in sweep.labels.items():
        mine = table[table["variant"] == variant]
        intervals = {metric: mean_interval(mine[metric].to_numpy(), confidence) for metric in METRICS}
        seconds, sent, joules = (int((mine[name] <= horizons[name]).sum()) for name in TARGETS)
        if target is not None:
            intervals |= {name: restricted_mean(mine[name].to_numpy(), limit, confidence) for name, limit in horizons.items()}
        oracle = _names(mine["oracle"])
        rows.append(ComparisonRow(variant, label, len(mine), seconds, sent, joules, **intervals, oracle=oracle))
    differences = _differences(sweep, table, rows, horizons, confidence) if len(sweep) else []
    return Comparison(
        sweep.name,
        sweep.baseline,
        target,
        smooth,
        horizon,
        common.sent_bytes,
        common.drawn_j,
        last,
        until,
        equal,
        confidence,
        table,
        rows,
        differences,
    )


def _differences(
    sweep: Sweep, table: pd.DataFrame, rows: Sequence[ComparisonRow], horizons: dict[str, float], confidence: float
) -> list[DifferenceRow]:
    """Each variant but the baseline, at equal seeds; figures of the target restricted to their `horizons`."""
    by_metric = {
        metric: {
            d.variant: d
            for d in paired_differences(table, sweep.baseline, metric, horizon=horizons.get(metric), confidence=confidence)
        }
        for metric in METRICS
    }
    oracles = {row.variant: row.oracle for row in rows}
    same = {variant: oracle == oracles[sweep.baseline] and " or " not in oracle for variant, oracle in oracles.items()}
    return [
        DifferenceRow(variant, label, **{metric: by_metric[metric][variant] for metric in METRICS}, same_oracle=same[variant])
        for variant, label in sweep.labels.items()
        if variant != sweep.baseline
    ]


def _checked_horizon(horizon_s: float | None, shortest_s: float) -> float:
    if horizon_s is None:
        return shortest_s
    if not 0.0 < horizon_s <= shortest_s:
        raise ValueError(f"horizon_s = {horizon_s:g}: must be > 0 and at most {shortest_s:g} s, where the shortest run ends")
    return horizon_s


def comparison_rows(sweep: Sweep, **settings: Any) -> list[ComparisonRow]:
    """Rows of the comparison; settings as for `compare`."""
    return compare(sweep, **settings).rows


def difference_rows(sweep: Sweep, **settings: Any) -> list[DifferenceRow]:
    """Paired differences to the sweep's baseline, a row each other variant; settings as for `compare`."""
    return compare(sweep, **settings).differences


def write_comparison(sweep: Sweep, path: str | Path | None = None, *, comparison: Comparison | None = None) -> Path:
    """Write the rows flat (NAME_mean, NAME_half_width, NAME_count, and NAME_difference... to the baseline) and return the file.

    Default: `comparison.parquet` beside `sweep.json`; a path that ends in .csv gives CSV. ValueError: another ending.
    """
    import pyarrow.csv
    import pyarrow.parquet

    path = sweep.path / "comparison.parquet" if path is None else Path(path)
    if path.suffix not in (".parquet", ".csv"):
        raise ValueError(f"path = {str(path)!r}: must end in .parquet or .csv")
    table = _flat_table(compare(sweep) if comparison is None else comparison)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path)
    return path


def comparison_frame(found: Comparison) -> pd.DataFrame:
    """The rows of `write_comparison`; figures that no run has are NaN."""
    frame: pd.DataFrame = _flat_table(found).to_pandas()
    return frame


def _flat_table(found: Comparison) -> Any:
    import pyarrow

    schema = pyarrow.schema(
        [("variant", "string"), ("label", "string"), ("seeds", "int64")]
        + [(name, "int64") for name in _REACHED]
        + [("oracle", "string")]
        + [(name, "float64") for name in _HORIZONS]
        + [(f"{metric}{suffix}", kind) for metric in METRICS for suffix, kind in _FLAT],
        metadata={"netsim.table": "comparison", "netsim.format": str(FORMAT)},
    )
    # Without a target there is no horizon; a run in which nothing closed has none either.
    limits: dict[str, float | None] = dict.fromkeys(_HORIZONS)
    if found.target_accuracy is not None:
        limits |= {name: limit for name in _HORIZONS if math.isfinite(limit := getattr(found, name))}
    flat = [row | limits for row in _flat_rows(found.rows, found.differences)]
    return pyarrow.Table.from_pylist(flat, schema=schema)


_REACHED = ("reached", "reached_bytes", "reached_j")
_HORIZONS = ("horizon_s", "horizon_bytes", "horizon_j")
_FLAT = tuple(
    (f"{group}_{field}", "int64" if field == "count" else "float64")
    for group in ("", "_difference")
    for field in ("mean", "half_width", "count")
)


def _flat_rows(rows: Sequence[ComparisonRow], differences: Sequence[DifferenceRow]) -> list[dict[str, Any]]:
    paired = {row.variant: row for row in differences}
    flat = []
    for row in rows:
        line: dict[str, Any] = {name: getattr(row, name) for name in ("variant", "label", "seeds", *_REACHED)}
        line["oracle"] = row.oracle or None
        for metric in METRICS:
            groups = {"": getattr(row, metric)}
            if row.variant in paired and (metric != "aoi_regret" or paired[row.variant].same_oracle):
                groups["_difference"] = getattr(paired[row.variant], metric).difference
            for group, interval in groups.items():
                for field, value in asdict(interval).items():
                    # A figure that does not exist is an empty cell, not a NaN.
                    line[f"{metric}{group}_{field}"] = None if isinstance(value, float) and math.isnan(value) else value
        flat.append(line)
    return flat
