"""The predictive check: run the fitted scenario with many seeds, and compare its rounds with those of the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis import Run
from scenarios.fit.durations import LEVEL
from scenarios.fit.log import Log, attempts_log, read_log
from scenarios.runs.in_memory import run_in_memory
from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Prediction:
    """Figure of rounds: measured value, simulated mean over seeds, and 95 % prediction band from `low` to `high`."""

    name: str
    measured: float
    simulated: float
    low: float
    high: float

    @property
    def agrees(self) -> bool:
        """True if the measured figure lies in the band."""
        return bool(self.low <= self.measured <= self.high)


def round_figures(log: Log, deadline_s: float | None, first: int | None = None) -> dict[str, float]:
    """Return figures of a log's rounds by name: mean and 90 % quantile of lengths, mean times of arrivals, shares of outcomes.

    A round ends with its last update, at the deadline, or at its delivery number `first`. The time of the n-th arrival is a mean
    over the rounds with n arrivals or more.
    """
    attempts = log.attempts()
    seconds = attempts["seconds"] if deadline_s is None else attempts["seconds"].clip(upper=deadline_s)
    lengths = seconds.groupby(attempts["round"]).max()
    if first is not None:
        deliveries = attempts[attempts["delivered"]].sort_values(["round", "seconds"])
        closing = deliveries[deliveries.groupby("round").cumcount() == first - 1]
        lengths.update(closing.set_index("round")["seconds"])
    figures = {"mean round (s)": float(lengths.mean()), "90 % quantile of rounds (s)": float(lengths.quantile(0.9))}
    arrived = attempts[attempts["delivered"]].sort_values(["round", "seconds"])
    rank = arrived.groupby("round").cumcount() + 1
    usual_size = int(attempts.groupby("round").size().median())
    for n in sorted({max(1, usual_size // 4), max(1, usual_size // 2), max(1, 3 * usual_size // 4)}):
        times = arrived.loc[rank == n, "seconds"]
        if len(times):
            figures[f"arrival {n} of a round (s)"] = float(times.mean())
    figures["late (%)"] = 100.0 * float(attempts["late"].mean())
    figures["lost (%)"] = 100.0 * float(attempts["lost"].mean())
    if len(log.classes) > 1:
        for group, share in attempts.groupby("group")["delivered"].mean().items():
            figures[f"delivered of {group} (%)"] = 100.0 * float(share)
    return figures


def predict(
    tables: Mapping[str, object],
    log: Log,
    *,
    deadline_s: float | None,
    first: int | None = None,
    seeds: int,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Prediction]:
    """Run the scenario of `tables` with seeds 1 to `seeds` for as many rounds as `log` has, and compare the figures of rounds.

    Figures are those of `round_figures`, which takes `deadline_s` and `first`. A seed without a figure, such as an arrival that
    none of its rounds has, is left out of the mean and band. `progress` is called with the number of finished runs.
    """
    measured = round_figures(log, deadline_s, first)
    simulated: dict[str, list[float]] = {name: [] for name in measured}
    for seed in range(1, seeds + 1):
        study = parse({**tables, "seed": seed, "rounds": max(1, log.rounds)}, "the fitted scenario")
        run = Run(run_in_memory(build(study), study))
        figures = round_figures(_simulated_log(run.clients, run.rounds), deadline_s, first)
        for name, values in simulated.items():
            values.append(figures.get(name, np.nan))
        progress(seed)
    return [_compare_figure(name, measured[name], np.array(values)) for name, values in simulated.items()]


def _simulated_log(clients: pd.DataFrame, rounds: pd.DataFrame) -> Log:
    """Return the log of a simulated run, from its tables."""
    return read_log(attempts_log(clients, rounds))


def _compare_figure(name: str, measured: float, values: Any) -> Prediction:
    """Return the prediction of a figure from its simulated `values` (seeds,), some of which may be NaN."""
    if np.isnan(values).all():
        return Prediction(name, measured, np.nan, np.nan, np.nan)
    # The measured figure is one more value of the same distribution, so the band is a prediction interval. It stays within 0
    # and, for a share, 100 %.
    spread = np.nanstd(values, ddof=1) if np.isfinite(values).sum() > 1 else 0.0
    mean = float(np.nanmean(values))
    half_width = _prediction_factor(int(np.isfinite(values).sum())) * float(spread)
    largest = 100.0 if name.endswith("(%)") else np.inf
    return Prediction(name, measured, mean, max(0.0, mean - half_width), min(largest, mean + half_width))


def _prediction_factor(number: int) -> float:
    """Return the half-width, in standard deviations, of the 95 % prediction interval of a normal sample of `number` values."""
    from scipy import stats

    return float(stats.t.ppf((1 + LEVEL) / 2, max(1, number - 1)) * np.sqrt(1 + 1 / number))
