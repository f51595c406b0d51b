"""Metrics of single runs as rows and tables, and what else is read off one run by name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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
    first, second = (metric_values(measured, [name], within_both)[name] for measured in (run, other))
    if cost is not None:
        first, second = (min(value, extent.amount(cost)) if not math.isnan(value) else value for value in (first, second))
    return first - second if math.isfinite(first) and math.isfinite(second) else math.nan


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
    values = (rounds["sum_age"] - rounds["oracle_sum_age"]).to_numpy(dtype=np.float64, na_value=math.nan)
    measured = ~np.isnan(values)
    return rounds["round"].to_numpy(dtype=np.float64)[measured], np.cumsum(values[measured])


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
    """Return a row for each run: variant, label, seed, rounds, simulated_s and oracle, then a column for each metric."""
    import pandas as pd

    requested = list(METRICS if names is None else names)
    measured = [run_metrics(run, requested, settings) for run in runs]
    facts = ("variant", "label", "seed", "rounds", "simulated_s", "oracle")
    table = {name: [getattr(row, name) for row in measured] for name in facts}
    return pd.DataFrame(table | {name: [row[name] for row in measured] for name in requested})
