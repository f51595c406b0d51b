"""Logs of servers that close a round at the n-th delivery: durations are cut there, and the scenario closes so, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import netsim
from scenarios.fit.estimate import estimate
from scenarios.fit.log import read_log
from scenarios.fit.prediction import round_figures

CLIENTS, FIRST = 20, 10


def cut_log(rounds: int = 20) -> pd.DataFrame:
    """Return a log of log-normal times of which each round's last ten are cut off at the tenth."""
    rng = np.random.default_rng(0)
    seconds = rng.lognormal(1.0, 0.5, (rounds, CLIENTS))
    close_s = np.sort(seconds)[:, FIRST - 1 : FIRST]
    return pd.DataFrame(
        {
            "client": np.tile(np.arange(CLIENTS), rounds),
            "round": np.repeat(np.arange(1, rounds + 1), CLIENTS),
            "seconds": np.minimum(seconds, close_s).ravel(),
            "outcome": np.where(seconds > close_s, "late", "").ravel(),
        }
    )


def test_a_close_at_the_nth_delivery_is_told_from_a_deadline() -> None:
    estimates = estimate(read_log(cut_log()))
    assert (estimates.first, estimates.deadline_s) == (FIRST, None)
    (law,) = [law for law in estimates.phases["total", "all"].laws if law.kind == "log-normal"]
    assert law.parameters["median_s"].low < np.e < law.parameters["median_s"].high
    # A deadline that happens to leave ten in each round cuts all others after equal times.
    equal = cut_log().assign(seconds=lambda rows: np.where(rows["outcome"] == "late", 5.0, rows["seconds"]))
    estimates = estimate(read_log(equal))
    assert (estimates.first, estimates.deadline_s) == (None, 5.0)


@pytest.mark.slow
def test_the_predictive_check_closes_rounds_as_the_log_did(tmp_path: Path) -> None:
    fitted = netsim.fit(cut_log(), out=tmp_path / "out", seeds=10)
    assert netsim.load(fitted.scenario).server.first == FIRST
    figures = {prediction.name: prediction for prediction in fitted.check}
    assert figures["late (%)"].simulated == pytest.approx(50.0)
    assert figures["mean round (s)"].agrees


def test_a_round_lasts_until_its_nth_delivery_by_hand() -> None:
    rows = {"client": [0, 1, 2] * 2, "round": [1] * 3 + [2] * 3, "seconds": [1.0, 3.0, 9.0, 2.0, 4.0, 4.0]}
    log = read_log(pd.DataFrame({**rows, "outcome": ["", "", "overdue", "", "lost", "late"]}))
    # Round 1 closes at its second delivery; round 2 has one only, and ends with its last update.
    assert round_figures(log, None, 2)["mean round (s)"] == pytest.approx((3.0 + 4.0) / 2)
    assert round_figures(log, None)["mean round (s)"] == pytest.approx((9.0 + 4.0) / 2)


def test_a_runs_own_tables_tell_how_its_rounds_closed(tmp_path: Path) -> None:
    world = {
        "name": "world",
        "rounds": 20,
        "clients": {"count": 20},
        "server": {"per_round": 10, "first": 6, "reselect_busy": True},
        "policy": {"kind": "random"},
        "compute": {"delay": {"kind": "gamma", "mean_s": 2.0, "shape": 3.0}},
    }
    netsim.run(world, out=tmp_path / "run")
    log = read_log(tmp_path / "run")
    assert log.first == 6
    attempts = log.attempts()
    counts = attempts.groupby("round")["delivered"].sum()
    assert (counts == 6).all()
    # Training is the only phase: its rows are late, too, and so are those of the last round, which the run's end cut.
    assert (attempts["late"] | attempts["delivered"]).groupby(attempts["round"]).all().iloc[-1]
    assert attempts["late"].sum() > 20
