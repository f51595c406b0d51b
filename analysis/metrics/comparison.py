"""Comparison of the variants of a sweep, as plain data: means over seeds and paired differences to the baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from analysis.files import replace_file
from analysis.metrics.facts import Settings
from analysis.metrics.registry import METRICS, Kind, metric, names_of
from analysis.metrics.run_metrics import metrics_table
from analysis.metrics.targets import UNLIMITED, Cost, Extent, least_extent, run_extent
from analysis.results.sweep import Sweep
from analysis.statistics.arrays import FloatArray
from analysis.statistics.intervals import Interval, PairedDifference, mean_interval, paired_differences, restricted_mean
from netsim.core.rows import FORMAT

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

TARGETS: dict[str, Cost] = {name: metric_.cost for name, metric_ in METRICS.items() if metric_.cost is not None}
"""Metrics of what the target accuracy cost, with their kind of cost. Values are cut at the cost that every run spends."""


Equal = Literal["time", "bytes"]
"""The point at which final accuracies are compared: the common end in simulated time, or the common number of bytes sent."""


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One variant: each metric as a mean over seeds with its interval; `row["regret"]` is the interval of the metric regret."""

    variant: str
    label: str
    seeds: int
    reached: Mapping[str, int]
    """Metric of `TARGETS` to the number of seeds in which the target accuracy was reached within the horizon."""
    values: Mapping[str, Interval]
    """Metric to its mean over seeds: the restricted mean of a target's cost; mean inf of a leak: without protection."""
    oracle: str = ""
    """Oracle that the AoI regret is measured against; empty: none; names joined by "or" where runs differ."""

    def __getitem__(self, name: str) -> Interval:
        return self.values[name]


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """One variant minus the baseline at the same seeds; `row["regret"]` is the difference in the metric regret."""

    variant: str
    label: str
    values: Mapping[str, PairedDifference]
    same_oracle: bool = True
    """True if the AoI regrets of both are against one oracle; otherwise their difference is meaningless."""

    def __getitem__(self, name: str) -> PairedDifference:
        return self.values[name]


@dataclass(frozen=True)
class Comparison:
    """The numbers that tables of a sweep show, and the settings that they were computed with."""

    name: str
    baseline: str
    target_accuracy: float | None
    smoothing_s: float
    """Simulated seconds over which evaluations are averaged on the way to the target; 0: the first evaluation at the target."""
    horizons: Mapping[str, float]
    """Metric of `TARGETS` to its horizon, the cost that every run spends; inf where no run counts it."""
    asked_horizon_s: float | None
    """Requested horizon in seconds; None: the end of the shortest run."""
    last: int
    """Evaluations averaged for the final accuracy."""
    until: Extent
    """Extent that all compared runs reach; final accuracies and cumulated metrics are taken there."""
    extents: Sequence[tuple[str, int, Extent]]
    """Label, seed and extent of each run."""
    equal: Equal
    """The quantity that is equal between runs where final accuracies are compared."""
    confidence: float
    metrics: tuple[str, ...]
    """The metrics that were computed, in the order of tables."""
    asked: tuple[str, ...]
    """Metrics requested by name; empty: tables show those of the study's subject."""
    rounds_alike: bool
    """True if a round has the same meaning for all variants."""
    runs: pd.DataFrame
    """A row a run, with the columns of `metrics_table`."""
    rows: list[ComparisonRow]
    differences: list[DifferenceRow]

    @property
    def horizon_s(self) -> float:
        """Horizon in seconds to which times to the target are restricted."""
        return self.horizons["target_s"]

    def has(self, name: str) -> bool:
        """Return True if any run has a value of the metric that is worth showing: rounds that take no time have no latency."""
        if name not in self.metrics:
            return False
        if name == "target_s" and self.target_accuracy is not None:
            return True
        return bool(metric(name).worth_showing(self.runs[name].to_numpy(np.float64)))

    def shown_metrics(self) -> tuple[str, ...]:
        """Return the names of the metrics that tables show: the requested ones, otherwise those that suit the study, in order.

        A study with a learner shows accuracy, its cost, latency of rounds, leak and regret; a study without one also shows the
        outcomes of updates and their cost. Where a round has another meaning for each server, updates per second replace the
        latency of rounds.
        """
        if self.asked:
            return self.asked
        kinds: tuple[Kind, ...] = ("learning", "regret", "consensus")
        if not self.rounds_alike or not self.has("final_accuracy"):
            kinds = (*kinds, "time", "participation")
        shown = {*names_of(kinds), "delivered_j", "mean_round_s"}
        if not self.rounds_alike:
            shown -= {"mean_round_s"}
        return tuple(name for name in self.metrics if name in shown and self.has(name))

    @property
    def oracles(self) -> tuple[str, ...]:
        """Oracles that AoI regrets are measured against: one name, or several where runs differ."""
        return tuple(dict.fromkeys(name for name in self.runs["oracle"] if name))


def _join_names(oracles: pd.Series[str]) -> str:
    """Return the distinct names of oracles, joined by "or"; empty if there are none."""
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
    metrics: Sequence[str] = (),
) -> Comparison:
    """Return the comparison of the variants of `sweep`: means over seeds, and differences to the baseline at equal seeds.

    Runs may end at different times, so that all are measured up to a point that each of them reaches.

    `target_accuracy`, `smoothing_s`: None for those of the sweep, if it has them. `horizon_s`: times to the target are restricted
    to it; None: the end of the shortest run. `equal`: final accuracies are compared at the common end in time, or at the number
    of bytes that every run sent. `last`: evaluations averaged for the final accuracy. `metrics`: those that tables show; empty:
    those that suit the study.

    ValueError: a setting out of bounds, such as a horizon beyond the end of the shortest run, a metric that does not exist, or
    runs at equal bytes that send none.
    """
    _check_settings(target_accuracy, equal, last)
    requested = tuple(metric(name).name for name in dict.fromkeys(metrics))
    names = (*METRICS, *(name for name in requested if name not in METRICS))
    target = sweep.target_accuracy if target_accuracy is None else target_accuracy
    smooth = sweep.smoothing_s if smoothing_s is None else smoothing_s
    extents = [(run.label, run.seed, run_extent(run)) for run in sweep]
    common = least_extent(extent for _, _, extent in extents)
    if equal == "bytes":
        _refuse_without_bytes(extents)
    horizon = _resolve_horizon(horizon_s, common.time_s)
    # Either time or bytes limit the final accuracy, not both.
    if equal == "bytes":
        until = Extent(time_s=UNLIMITED.time_s, rounds=common.rounds, sent_bytes=common.sent_bytes)
    else:
        until = Extent(time_s=common.time_s, rounds=common.rounds, sent_bytes=UNLIMITED.sent_bytes)
    horizons = {name: common.amount(cost) for name, cost in TARGETS.items()} | {"target_s": horizon}
    table = metrics_table(sweep, names, Settings(target, smooth, last, until))
    rows = _rows(sweep, table, names, horizons if target is not None else {}, confidence)
    differences = _differences(sweep, table, rows, horizons, confidence) if len(sweep) else []
    return Comparison(
        name=sweep.name,
        baseline=sweep.baseline,
        target_accuracy=target,
        smoothing_s=smooth,
        horizons=horizons,
        asked_horizon_s=horizon_s,
        last=last,
        until=until,
        extents=extents,
        equal=equal,
        confidence=confidence,
        metrics=names,
        asked=requested,
        rounds_alike=_has_rounds_alike(sweep),
        runs=table,
        rows=rows,
        differences=differences,
    )


def _refuse_without_bytes(extents: Sequence[tuple[str, int, Extent]]) -> None:
    """Raise ValueError for a run that sends no bytes, and so cannot be compared at equal bytes."""
    for label, seed, extent in extents:
        if extent.rounds and math.isinf(extent.sent_bytes):
            raise ValueError(
                f"equal bytes: {label}, seed {seed}, sends none (payload.down_bytes and payload.up_bytes are 0); compare "
                "at a common time, or give messages a size"
            )


def _has_rounds_alike(sweep: Sweep) -> bool:
    """Return True if a round has the same meaning for all variants, judged by the first run of each."""
    # Backwards, so that the first seed of each variant is the one that stays.
    first_seeds = {entry.variant: entry.seed for entry in reversed(sweep.entries)}
    meanings = {sweep.run(variant, seed).round_meaning for variant, seed in first_seeds.items()}
    return len(meanings) <= 1


def _rows(
    sweep: Sweep, table: pd.DataFrame, names: Sequence[str], horizons: Mapping[str, float], confidence: float
) -> list[ComparisonRow]:
    """Return a row for each variant, with its means over seeds; costs of the target are cut at their `horizons`."""
    rows = []
    runs_of = {str(name): group for name, group in table.groupby("variant", sort=False)}
    for variant, label in sweep.labels.items():
        runs = runs_of[variant]
        intervals = {name: mean_interval(runs[name].to_numpy(), confidence) for name in names}
        for name, limit in horizons.items():
            intervals[name] = restricted_mean(runs[name].to_numpy(), limit, confidence)
        # Without a horizon no run counts: a comparison with NaN is false.
        reached = {name: int((runs[name] <= horizons.get(name, math.nan)).sum()) for name in TARGETS}
        rows.append(
            ComparisonRow(
                variant=variant,
                label=label,
                seeds=len(runs),
                reached=reached,
                values=intervals,
                oracle=_join_names(runs["oracle"]),
            )
        )
    return rows


def _differences(
    sweep: Sweep, table: pd.DataFrame, rows: Sequence[ComparisonRow], horizons: Mapping[str, float], confidence: float
) -> list[DifferenceRow]:
    """Return a row for each other variant with its differences to the baseline; costs of the target are cut at `horizons`."""
    differences: dict[str, dict[str, PairedDifference]] = {variant: {} for variant in sweep.labels if variant != sweep.baseline}
    for name in rows[0].values:
        for difference in paired_differences(table, sweep.baseline, name, horizon=horizons.get(name), confidence=confidence):
            differences[difference.variant][name] = difference
    oracles = {row.variant: row.oracle for row in rows}
    difference_rows = []
    for variant, by_metric in differences.items():
        oracle = oracles[variant]
        # "A or B" is the text for runs of one variant that have different oracles.
        same_oracle = oracle == oracles[sweep.baseline] and " or " not in oracle
        difference_rows.append(DifferenceRow(variant, sweep.labels[variant], by_metric, same_oracle=same_oracle))
    return difference_rows


def _check_settings(target_accuracy: float | None, equal: str, last: int) -> None:
    """Raise ValueError for a setting out of bounds."""
    if target_accuracy is not None and not 0.0 <= target_accuracy <= 1.0:
        raise ValueError(f"target_accuracy = {target_accuracy!r}: must be in [0, 1]")
    if equal not in ("time", "bytes"):
        raise ValueError(f"equal = {equal!r}: must be 'time' or 'bytes'")
    if last < 1:
        raise ValueError(f"last = {last!r}: must be >= 1 evaluation")


def _resolve_horizon(horizon_s: float | None, shortest_s: float) -> float:
    """Return the horizon in seconds, by default the end of the shortest run; raises ValueError if no run could reach it."""
    if horizon_s is None:
        return shortest_s
    if not 0.0 < horizon_s <= shortest_s:
        raise ValueError(f"horizon_s = {horizon_s:g}: must be > 0 and at most {shortest_s:g} s, where the shortest run ends")
    return horizon_s


def write_comparison(sweep: Sweep, path: str | Path | None = None, *, comparison: Comparison | None = None) -> Path:
    """Write a row for each variant, with columns NAME_mean, NAME_half_width, NAME_count and NAME_difference_...; return the file.

    Default: `comparison.parquet` beside `sweep.json`; a path that ends in .csv gives CSV. ValueError: another ending.
    """
    import pyarrow.csv
    import pyarrow.parquet

    path = sweep.path / "comparison.parquet" if path is None else Path(path)
    if path.suffix not in (".parquet", ".csv"):
        raise ValueError(f"path = {str(path)!r}: must end in .parquet or .csv")
    table = _flat_table(compare(sweep) if comparison is None else comparison)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as temporary:
        if path.suffix == ".csv":
            pyarrow.csv.write_csv(table, temporary)
        else:
            pyarrow.parquet.write_table(table, temporary)
    return path


def comparison_frame(comparison: Comparison) -> pd.DataFrame:
    """Return the rows of `write_comparison` as a data frame; metrics that no run has are NaN."""
    frame: pd.DataFrame = _flat_table(comparison).to_pandas()
    return frame


def _flat_table(comparison: Comparison) -> pa.Table:
    """Return the comparison as an Arrow table, a row for each variant."""
    import pyarrow

    schema = pyarrow.schema(
        [("variant", "string"), ("label", "string"), ("seeds", "int64")]
        + [(column, "int64") for column in _REACHED.values()]
        + [("oracle", "string")]
        + [(column, "float64") for column in (*_HORIZONS.values(), "until_s")]
        + [(f"{name}{suffix}", kind) for name in comparison.metrics for suffix, kind in _FLAT],
        metadata={"netsim.table": "comparison", "netsim.format": str(FORMAT)},
    )
    # A cost that no run counts has no horizon, and without a closed round no cost has one.
    limits = {_HORIZONS[name]: limit if math.isfinite(limit) else None for name, limit in comparison.horizons.items()}
    limits["until_s"] = comparison.until.time_s if math.isfinite(comparison.until.time_s) else None
    flat = [row | limits for row in _flat_rows(comparison.rows, comparison.differences)]
    return pyarrow.Table.from_pylist(flat, schema=schema)


# Metric to the column of the written table: seeds that reached the target, and the horizon.
_REACHED = {"target_s": "reached", "target_bytes": "reached_bytes", "target_j": "reached_j"}
_HORIZONS = {"target_s": "horizon_s", "target_bytes": "horizon_bytes", "target_j": "horizon_j"}
# (suffix of a column, type) of the numbers that the written table has for each metric.
_FLAT = tuple(
    (f"{group}_{field}", "int64" if field == "count" else "float64")
    for group in ("", "_difference")
    for field in ("mean", "half_width", "count")
)


def _flat_rows(rows: Sequence[ComparisonRow], differences: Sequence[DifferenceRow]) -> list[dict[str, Any]]:
    """Return a dictionary for each variant: its cells by the column names of `write_comparison`, horizons apart."""
    difference_of = {row.variant: row for row in differences}
    flat = []
    for row in rows:
        cells: dict[str, Any] = {"variant": row.variant, "label": row.label, "seeds": row.seeds}
        cells |= {column: row.reached[name] for name, column in _REACHED.items()}
        cells["oracle"] = row.oracle or None
        for name, interval in row.values.items():
            intervals = {"": interval}
            # The baseline has no differences.
            if row.variant in difference_of and (name != "aoi_regret" or difference_of[row.variant].same_oracle):
                intervals["_difference"] = difference_of[row.variant][name].difference
            for group, shown in intervals.items():
                for field, value in asdict(shown).items():
                    # A figure that does not exist is an empty cell, not a NaN.
                    cells[f"{name}{group}_{field}"] = None if isinstance(value, float) and math.isnan(value) else value
        flat.append(cells)
    return flat


def metric_by_seed(comparison: Comparison, variants: Sequence[str], name: str) -> FloatArray:
    """Return the values of metric `name`, (seeds, variants); NaN where a variant was not run at a seed.

    A cost of the target accuracy that exceeds its horizon is replaced by the horizon.
    """
    runs = comparison.runs
    column_of = {variant: column for column, variant in enumerate(variants)}
    # Seeds in the order of the runs.
    row_of = {seed: row for row, seed in enumerate(dict.fromkeys(runs["seed"].tolist()))}
    values: FloatArray = np.full((len(row_of), len(column_of)), np.nan)
    for variant, seed, value in zip(runs["variant"].tolist(), runs["seed"].tolist(), runs[name].tolist(), strict=True):
        if variant in column_of:
            values[row_of[seed], column_of[variant]] = value
    return np.minimum(values, comparison.horizons[name]) if name in comparison.horizons else values
