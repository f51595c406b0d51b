"""The bound of PAUSE's Theorem 3: drawn beside runs that meet its conditions, and the reason told of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis import draw_all, open_run
from analysis.regret.bounds import regret_bound_notes, regret_bounds
from analysis.results.run import Run
from models.theory.regret import regret_bound
from scenarios.runs.reading import override, parse
from scenarios.runs.run import run

# mu_k = 0.1 / latency = 1, 0.5, 0.25; delta = 0.25, Dmax = 2 * 100 + 5 + 0.75.
STUDY: dict[str, Any] = {
    "name": "bound",
    "rounds": 40,
    "clients": {"count": 3},
    "server": {"per_round": 2},
    "policy": {"kind": "pause", "tau_min_s": 0.1},
    "uplink": {"delay": {"kind": "constant", "value_s": [0.1, 0.2, 0.4]}},
    "privacy": {"sensitivity": 0.01, "schedule": {"kind": "geometric", "epsilon_total": 40.0, "eta": 0.04}},
    "metrics": {"reward": {"kind": "pause-reward", "tau_min_s": 0.1, "history": "shared"}},
}


def done(folder: Path, **changes: Any) -> Run:
    run(parse(override(STUDY, changes)), folder)
    return open_run(folder)


def test_the_bound_is_that_of_the_worlds_constants(tmp_path: Path) -> None:
    played = done(tmp_path / "run")
    (bound,) = regret_bounds([played])
    assert "c = 4" in bound.constants
    assert "expectations 0.25" in bound.constants
    expected = [regret_bound(n, clients=3, per_round=2, delta_max=205.75, delta=0.25) for n in (1, 40)]
    assert bound.values(np.array([1.0, 40.0])) == pytest.approx(expected)
    assert regret_bound_notes([played]) == []
    assert played.summary["final"]["regret"] < expected[1]
    assert "regret" in [path.stem for path in draw_all(played, tmp_path / "figures", regret_bounds=[bound])]


def test_it_is_not_drawn_otherwise_and_the_reason_of_the_summary_is_told(tmp_path: Path) -> None:
    played = done(tmp_path / "run", **{"metrics.reward.history": "own"})
    assert regret_bounds([played]) == []
    (note,) = regret_bound_notes([played])
    assert note.startswith("The bound of eq. 17 is not drawn for pause: Theorem 3 says nothing of this run: ")
    assert "metrics.reward.history" in note


def test_other_policies_are_not_spoken_of(tmp_path: Path) -> None:
    played = done(tmp_path / "run", policy={"kind": "random"})
    assert (regret_bounds([played]), regret_bound_notes([played])) == ([], [])
