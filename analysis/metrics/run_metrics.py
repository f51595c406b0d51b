"""Metrics of single runs as rows and tables, and what else is read off one run by name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.metrics.facts import DEFAULT, Settings
from analysis.metrics.registry import METRICS, metric, metric_values
from analysis.metrics.targets import common_extent
from analysis.statistics.arrays import Curve, FloatArray

if TYPE_CHECKING:
    import pandas as pd

    from analysis.results.run import Run


def paired_difference(run: Run, other: Run, name: str, settings: Settings) -> float:
    """Return metric `name` of `run` minus that of `other`, a run at the same seed, both up to the end of the shorter one.

    Costs of the target accuracy are cut at the cost that both runs reach. The result depends on these two runs alone, so that
    seeds added later do not change it. NaN where a run has no finite value. ValueError: no metric has the name.
    """
    extent = common_extent([run, other])
    cost = metric(name).cost
    within_both = replace(settings, until=extent)
    values = []
    for measured in (run, other):
        value = metric_values(measured, [name], within_both)[name]
        # min() of a NaN and a number depends on their order.
        if cost is not None and not math.isnan(value):
            value = min(value, extent.amount(cost))
        values.append(value)
    return values[0] - values[1] if all(map(math.isfinite, values)) else math.nan


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
    """Oracle that the AoI regret is measured against; empty: none."""
    values: Mapping[str, float]
    """Metrics by name (`analysis.metrics.registry`); NaN: it does not exist."""

    def __getitem__(self, name: str) -> float:
        return self.values[name]


def aoi_regret(rounds: pd.DataFrame) -> Curve:
    """Return the curve of AoI regret over rounds, the running sum of ages minus the oracle's (Li et al., eq. 14)."""
    regrets = (rounds["sum_age"] - rounds["oracle_sum_age"]).to_numpy(dtype=np.float64, na_value=math.nan)
    measured = ~np.isnan(regrets)
    return rounds["round"].to_numpy(dtype=np.float64)[measured], np.cumsum(regrets[measured])


def oracle_name(run: Run) -> str:
    """Return the oracle that the AoI regret of a run is measured against; empty: no ages, or no oracle."""
    oracle = str((run.summary.get("aoi") or {}).get("oracle") or "")
    return "" if oracle == "none" else oracle


def delivery_shares(run: Run) -> FloatArray:
    """Return the deliveries of each client per round of a run, (K,); empty where the run did not count them."""
    successes = (run.summary.get("aoi") or {}).get("successes") or []
    rounds = int(run.summary.get("rounds") or 0)
    return np.asarray(successes, np.float64) / rounds if rounds else np.empty(0)


def run_metrics(run: Run, names: Iterable[str] | None = None, settings: Settings = DEFAULT) -> RunMetrics:
    """Return metrics of one run, measured as `settings` say; `names` None: all of `METRICS`. ValueError: unknown name."""
    end_s = run.columns(["end_s"])["end_s"]
    names = METRICS if names is None else names
    return RunMetrics(
        variant=run.variant,
        label=run.label,
        seed=run.seed,
        rounds=end_s.size,
        simulated_s=float(end_s[-1]) if end_s.size else 0.0,
        oracle=oracle_name(run),
        values=metric_values(run, names, settings),
    )


def metrics_table(runs: Iterable[Run], names: Sequence[str] | None = None, settings: Settings = DEFAULT) -> pd.DataFrame:
    """Return a row for each run: variant, label, seed, rounds, simulated_s and oracle, then a column for each metric."""
    import pandas as pd

    requested = list(METRICS if names is None else names)
    rows = [run_metrics(run, requested, settings) for run in runs]
    columns: dict[str, list[Any]] = {}
    for field in ("variant", "label", "seed", "rounds", "simulated_s", "oracle"):
        columns[field] = [getattr(row, field) for row in rows]
    for name in requested:
        columns[name] = [row[name] for row in rows]
    return pd.DataFrame(columns)
