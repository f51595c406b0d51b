"""Coverage of the intervals of a fit: a known world is run with many seeds, and each run's own tables are fitted.

`python -m tests.scenarios.fit.coverage [SEEDS]` prints the shares (200 seeds take some minutes); a test plays a few seeds.
"""

from __future__ import annotations

import sys
from typing import Any

from analysis import Run
from scenarios.fit.estimate import Estimates, estimate
from scenarios.fit.log import attempts_log, read_log
from scenarios.runs.in_memory import run_in_memory
from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build

WORLD: dict[str, Any] = {
    "name": "world",
    "rounds": 40,
    "clients": {"count": 20},
    "server": {"per_round": 10, "deadline_s": 6.0},
    "policy": {"kind": "random"},
    "downlink": {"delay": {"kind": "weibull", "scale_s": 0.5, "shape": 1.5}},
    "compute": {"delay": {"kind": "log-normal", "median_s": 3.0, "sigma": 0.4}},
    "uplink": {
        "delay": {"kind": "gamma", "mean_s": 1.0, "shape": 3.0},
        "channel": {"kind": "bernoulli", "success": 0.9},
    },
}
TRUTH = {
    ("download", "weibull"): {"scale_s": 0.5, "shape": 1.5},
    ("compute", "log-normal"): {"median_s": 3.0, "sigma": 0.4},
    ("upload", "gamma"): {"mean_s": 1.0, "shape": 3.0},
}
LOST = 0.1


def fitted(seed: int) -> Estimates:
    """Return the estimates of a run of the world, from a log in which phases end at the deadline that the server sees."""
    study = parse(WORLD | {"seed": seed}, "world")
    run = Run(run_in_memory(build(study), study))
    log = attempts_log(run.clients, run.rounds)
    close_s = log["round"].map(run.rounds.set_index("round")["start_s"]) + WORLD["server"]["deadline_s"]
    log = log.assign(outcome=log["outcome"].where(log["end_s"] <= close_s, "late"), end_s=log["end_s"].clip(upper=close_s))
    return estimate(read_log(log[log["start_s"] < close_s]))


def coverage(seeds: int) -> dict[str, float]:
    """Return the share of `seeds` runs in which the interval of each parameter holds its true value."""
    held: dict[str, int] = {}
    for seed in range(1, seeds + 1):
        estimates = fitted(seed)
        intervals = {}
        for (phase, kind), truth in TRUTH.items():
            (law,) = [law for law in estimates.phases[phase, "all"].laws if law.kind == kind]
            intervals |= {f"{phase} {name}": (law.parameters[name], value) for name, value in truth.items()}
        intervals["lost"] = (estimates.losses["upload", "all"].laws[0].lost, LOST)
        for name, (interval, value) in intervals.items():
            held[name] = held.get(name, 0) + (interval.low <= value <= interval.high)
    return {name: count / seeds for name, count in held.items()}


if __name__ == "__main__":
    for label, share in coverage(int(sys.argv[1]) if len(sys.argv) > 1 else 200).items():
        print(f"{label:20s} {100 * share:5.1f} %")
