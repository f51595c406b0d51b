"""Bandwidth over time: a transfer costs one search in its trace, and a round over traces little more than one over delays."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from models.laws.bandwidth.traces import Trace
from netsim.core.streams import Stream
from netsim.network.bandwidth.varying_medium import fair_level
from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build

ROUNDS = 400
LUMPED: dict[str, Any] = {
    "name": "lumped",
    "rounds": ROUNDS,
    "clients": {"count": 100},
    "server": {"per_round": 15},
    "policy": {"kind": "random"},
    "payload": {"down_bytes": 1000, "up_bytes": 1000},
    "downlink": {"delay": {"kind": "constant", "value_s": 0.1}},
    "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.2, "mean_excess_s": 1.0}},
    "uplink": {"delay": {"kind": "shifted-exponential", "shift_s": 0.2, "mean_excess_s": 1.0}},
}


def best_s(call: Any, times: int = 5) -> float:
    """Process time of the fastest of several calls."""
    took = []
    for _ in range(times):
        began = time.process_time()
        call()
        took.append(time.process_time() - began)
    return min(took)


def transfers_s(folder: Path, points: int, lasts: float) -> float:
    """2,000 transfers of one client each, in a trace of so many steps, each over `lasts` of them."""
    file = folder / f"{points}.csv"
    if not file.is_file():
        rates = np.random.default_rng(1).integers(1, 100, points).tolist()
        file.write_text("time_s,bytes_per_s\n" + "\n".join(f"{i},{rate}" for i, rate in enumerate(rates)))
    law = Trace(clients=1, draws=Stream(seed=1, name="bench"), path=str(file))
    who, size = np.zeros(1, np.int64), np.array([50.0 * lasts])
    starts = np.random.default_rng(2).uniform(0.0, points, (2000, 1))
    return best_s(lambda: [law.ends_s(start, size, who) for start in starts])


def test_a_transfer_is_one_search(benchmark: Any, tmp_path: Path) -> None:
    few = transfers_s(tmp_path, 1000, 10.0)
    many = benchmark.pedantic(transfers_s, args=(tmp_path, 1_000_000, 10.0), rounds=1)
    long = transfers_s(tmp_path, 1_000_000, 500_000.0)
    benchmark.extra_info |= {"points": many / few, "steps": long / many}
    # log 10^6 is twice log 10^3, and most of the cost is not in the search.
    assert many < 2.5 * few
    assert long < 1.5 * many


def round_s(link: dict[str, Any]) -> float:
    """A round of 15 updates whose links are `link`."""
    tables = LUMPED | {name: LUMPED[name] | link for name in ("downlink", "uplink")}
    return best_s(lambda: build(parse(tables)).simulation.run(), times=7) / ROUNDS


def test_a_round_over_traces_costs_little_more_than_one_over_delays(benchmark: Any) -> None:
    steps = {"time_s": np.arange(600.0).tolist(), "bytes_per_s": np.random.default_rng(3).uniform(1e3, 5e3, 600).tolist()}
    lumped = round_s({})
    traced = benchmark.pedantic(round_s, args=({"bandwidth": {"kind": "trace", "offset": "random", **steps}},), rounds=1)
    benchmark.extra_info |= {"ratio": traced / lumped}
    assert traced < 2.0 * lumped


def test_a_level_costs_a_few_steps_over_the_limits(benchmark: Any) -> None:
    limits = np.random.default_rng(4).exponential(size=100_000)
    few = best_s(lambda: [fair_level(limits[:1000], 300.0) for _ in range(100)])
    many = benchmark.pedantic(lambda: best_s(lambda: fair_level(limits, 30_000.0)), rounds=1)
    # A hundred times the limits, of which each step settles half: sorting would cost a factor of 1.7 on top.
    assert many < 1.5 * few
