"""Rounds of many clients that are worked out together, against bare NumPy and against events: ratios within one run."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

from netsim.clients.vectorised import whole_rounds
from scenarios.runs.reading import parse
from scenarios.runs.run import simulate
from scenarios.wiring.simulation import build

CLIENTS, ROUNDS = 10_000, 20
MEANS = {"by_group": {"fast": {"from": 0.05, "to": 0.2}, "slow": {"from": 0.7, "to": 0.9}}}
EVERYONE: dict[str, Any] = {
    "name": "everyone",
    "rounds": ROUNDS,
    "clients": {"count": CLIENTS, "groups": [{"name": "fast", "share": 0.5}, {"name": "slow", "share": 0.5}]},
    "server": {"per_round": CLIENTS},
    "policy": {"kind": "all"},
    "uplink": {"delay": {"kind": "gaussian", "mean_s": MEANS, "std_s": 0.05, "floor_s": 0.05}},
    "privacy": {"sensitivity": 0.01, "schedule": {"kind": "geometric", "epsilon_total": 20.0, "eta": 0.04}},
}


def bare() -> float:
    """Updates a second of the same arithmetic in NumPy: draws, latencies, ends in their order, and nothing else."""
    rng = np.random.default_rng(1)
    half = CLIENTS // 2
    ramp = np.arange(1, half + 1) / half
    means = np.concatenate((0.05 + 0.15 * ramp, 0.7 + 0.2 * ramp))
    now, releases = 0.0, np.zeros(CLIENTS, np.int64)
    began = time.process_time()
    for _ in range(ROUNDS):
        ends = now + np.maximum(means + 0.05 * ndtri(rng.random(CLIENTS)), 0.05)
        order = ends.argsort()
        releases[order] += 1
        now = float(ends[order[-1]])
    return CLIENTS * ROUNDS / (time.process_time() - began)


def without_records(least: int) -> float:
    """Updates a second where rounds from `least` attempts on are worked out together."""
    whole_rounds.FROM = least
    simulation = build(parse(EVERYONE)).simulation
    began = time.process_time()
    simulation.run()
    return CLIENTS * ROUNDS / (time.process_time() - began)


def with_records(folder: Path, least: int) -> float:
    """As `without_records`, with all tables written to Parquet."""
    whole_rounds.FROM = least
    scenario = parse(EVERYONE)
    built = build(scenario)
    began = time.process_time()
    simulate(built, scenario, folder, overwrite=True)
    return CLIENTS * ROUNDS / (time.process_time() - began)


def test_everyone_in_every_round(benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    least, never = whole_rounds.FROM, 10**9
    monkeypatch.setattr(whole_rounds, "FROM", least)
    benchmark.pedantic(without_records, (least,), rounds=1)
    # In turn, so that what else the machine does meets all of them.
    found = [
        (bare(), without_records(least), without_records(never), with_records(tmp_path, least), with_records(tmp_path, never))
        for _ in range(4)
    ]
    sketch, arrays, events, kept, kept_events = (max(column) for column in zip(*found, strict=True))
    print(
        f"\nupdates/s, {CLIENTS:,} a round: bare NumPy {sketch:,.0f}; without records {arrays:,.0f} "
        f"(share {arrays / sketch:.2f}), by events "
        f"{events:,.0f} ({arrays / events:.0f} times); with records {kept:,.0f}, by events {kept_events:,.0f} "
        f"({kept / kept_events:.1f} times)"
    )
    assert arrays >= 0.05 * sketch
    assert arrays >= 10 * events
    assert kept >= 4 * kept_events


MILLION = """
import resource, sys, time
import numpy as np
from scenarios.wiring.simulation import build
from scenarios.runs.reading import parse
from scenarios.runs.run import simulate

scenario = parse({
    "name": "million", "rounds": 15, "clients": {"count": 1_000_000, "data_sizes": {"from": 100, "to": 300}},
    "server": {"per_round": 10_000}, "policy": {"kind": "pause"},
    "work": {"epochs": 2, "batch_size": 20},
    "compute": {"samples_per_s": {"from": 50, "to": 400}, "noise": {"kind": "log-normal", "sigma": 0.3}},
    "uplink": {"delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.2}},
    "privacy": {"sensitivity": 0.01, "schedule": {"kind": "geometric", "epsilon_total": 20.0, "eta": 0.04}},
})
built = build(scenario)
policy, spent = built.simulation.server.loop.dispatch.policy, [0.0]
for name in ("select", "observe"):
    def timed(argument, method=getattr(policy, name)):
        began = time.process_time()
        found = method(argument)
        spent[0] += time.process_time() - began
        return found
    setattr(policy, name, timed)
began = time.process_time()
simulate(built, scenario, __import__("pathlib").Path(sys.argv[1]))
took = time.process_time() - began
print(took / 15, spent[0] / 15, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)
"""


@pytest.mark.slow
def test_ten_thousand_of_a_million(benchmark: Any, tmp_path: Path) -> None:
    def figures(name: str) -> list[float]:
        command = [sys.executable, "-c", MILLION, str(tmp_path / name)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return [float(figure) for figure in told.split()[-3:]]

    found = [benchmark.pedantic(figures, ("0",), rounds=1), figures("1"), figures("2")]
    round_s, policy_s, megabytes = min(found)
    print(
        f"\n10,000 of a million by PAUSE: {1 / round_s:.1f} rounds/s, {round_s * 1000:.0f} ms a round, of which the policy takes "
        f"{policy_s * 1000:.0f}; {megabytes:.0f} MB"
    )
    assert round_s <= 14 * policy_s
    assert megabytes <= 2000
