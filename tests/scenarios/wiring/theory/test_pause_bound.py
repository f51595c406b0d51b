"""The bound of Theorem 3 in summaries: where its conditions hold, with its numbers, and what is missing where they do not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.theory.regret import delta_max_bound, regret_bound
from scenarios.runs.reading import override, parse
from scenarios.runs.run import run

MEANS_S = [0.1, 0.2, 0.4, 0.8]
WORLD: dict[str, Any] = {
    "name": "bound",
    "rounds": 20,
    "clients": {"count": 4},
    "server": {"per_round": 2},
    "policy": {"kind": "pause", "alpha": 2.0, "gamma": 1.0},
    "uplink": {"delay": {"kind": "constant", "value_s": MEANS_S}},
    "privacy": {"sensitivity": 0.1, "schedule": {"kind": "geometric", "epsilon_total": 10.0, "eta": 0.04}},
    "metrics": {"reward": {"kind": "pause-reward", "alpha": 2.0, "gamma": 1.0, "history": "shared"}},
}


def notes(folder: Path, **changes: Any) -> Any:
    return run(parse(override(WORLD, {key.replace("__", "."): value for key, value in changes.items()})), folder / "run")["pause"]


def test_the_bound_with_its_numbers(tmp_path: Path) -> None:
    # mu = 0.05 / latency = 1/2, 1/4, 1/8, 1/16: the two slowest are closest.
    found = notes(tmp_path)
    assert found["genie_history"] == "shared"
    assert found["no_bound"] is None
    bound = found["bound"]
    assert bound["delta"] == pytest.approx(1 / 16)
    assert (
        bound["delta_max"] == pytest.approx(2 * 2.0 + 1.0 + 1 / 2 - 1 / 16) == delta_max_bound(2.0, 1.0, np.array([0.5, 0.0625]))
    )
    given = {"clients": 4, "per_round": 2, "delta_max": bound["delta_max"], "delta": bound["delta"]}
    assert bound["expected_regret_at_most"] == regret_bound(20, **given)
    for n in (1, 20, 3000):
        drawn = bound["constant"] + bound["per_log_round"] * math.log(n)
        assert drawn == pytest.approx(regret_bound(n, **given), rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"policy": {"kind": "random"}}, "policy.kind = 'random'"),
        ({"policy__zeta": 3.0}, "policy.zeta = 3.0"),
        ({"policy__detector": {"kind": "page-hinkley"}}, "policy.detector"),
        ({"policy__alpha": 3.0}, "policy.alpha = 3.0 is not metrics.reward.alpha = 2.0"),
        ({"metrics__reward__history": "own"}, "metrics.reward.history = 'own'"),
        ({"server__deadline_s": 0.5}, "server.deadline_s"),
        ({"server__first": 1}, "server.first"),
        ({"uplink__channel": {"kind": "bernoulli", "success": 0.9}}, "may be lost"),
        ({"uplink__sub_channels": 1}, "uplink.sub_channels"),
        ({"uplink__changes": [{"at_round": 4, "delay": {"value_s": 1.0}}]}, "uplink.changes"),
        ({"availability": {"kind": "markov", "mean_on_s": 50.0, "mean_off_s": 1.0}}, "availability.kind = 'markov'"),
        ({"privacy__schedule": {"kind": "explicit", "epsilons": [1.0] * 30}}, "privacy.schedule"),
        ({"time_limit_s": 900.0}, "time_limit_s"),
        ({"uplink__delay": {"kind": "constant", "value_s": 0.2}}, "equally fast"),
        ({"channels": {"count": 4}, "scheduler": {"kind": "random"}}, "channels: latencies depend on the sub-channel"),
        ({"energy": {"battery": {"capacity_j": 5.0}, "send_w": 3.0}}, "energy.battery: "),
        ({"script": "tests.helpers.scripted:waits"}, "script: it may change laws"),
    ],
)
def test_a_condition_that_is_not_met_is_named(changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    found = notes(tmp_path, **changes)
    assert found["bound"] is None
    assert found["no_bound"].startswith("Theorem 3 says nothing of this run: ")
    assert told in found["no_bound"]


def test_without_the_reward_nothing_is_said(tmp_path: Path) -> None:
    assert notes(tmp_path, metrics={}) is None
