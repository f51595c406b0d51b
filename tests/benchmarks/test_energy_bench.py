"""Cost of energy and batteries in a round of 15 updates, and in a million clients: `-m "" --benchmark-only -s` prints it."""

from __future__ import annotations

from time import process_time
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from netsim.clients.vectorised import whole_rounds
from netsim.records.in_memory import ArrowRecorder
from scenarios.runs.reading import parse
from scenarios.wiring.simulation import build

WATTS = {"idle_w": 0.3, "compute_w": 4.0, "send_w": 1.2, "receive_w": 0.9}
BATTERY = {"capacity_j": 1e6, "charge_w": 5.0, "charging": {"kind": "markov", "mean_on_s": 600.0, "mean_off_s": 600.0}}
MOST = {"energy": 1.5, "batteries": 4.0}
"""Times what a round without costs: that with batteries where updates go step by step, as its own do."""


def seconds(rounds: int, clients: int, changes: dict[str, Any]) -> float:
    """CPU seconds of rounds of 15 updates with three phases each, records in memory included."""
    tables: dict[str, Any] = {
        "name": "bench",
        "rounds": rounds,
        "clients": {"count": clients},
        "server": {"per_round": 15},
        "policy": {"kind": "random"},
        "downlink": {"delay": {"kind": "constant", "value_s": 0.1}},
        "compute": {"delay": {"kind": "gaussian", "mean_s": 1.0, "std_s": 0.2}},
        "uplink": {"delay": {"kind": "shifted-exponential", "shift_s": 0.1, "mean_excess_s": 0.1}},
    }
    simulation = build(parse(tables | changes)).simulation
    simulation.record_to(ArrowRecorder())
    start = process_time()
    simulation.run()
    return process_time() - start


def test_a_round_of_15(benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    together = whole_rounds.FROM
    worlds: dict[str, tuple[int, dict[str, Any]]] = {
        "without, together": (together, {}),
        "energy": (together, {"energy": WATTS}),
        "without": (10**9, {}),
        "energy, step by step": (10**9, {"energy": WATTS}),
        "batteries": (10**9, {"energy": WATTS | {"battery": BATTERY}}),
    }
    best = dict.fromkeys(worlds, float("inf"))

    def once() -> None:
        # In turn, so that a busy machine is so for all of them.
        for name, (start, changes) in worlds.items():
            monkeypatch.setattr(whole_rounds, "FROM", start)
            best[name] = min(best[name], seconds(1000, 100, changes))

    benchmark.pedantic(once, rounds=5, iterations=1)
    ratios = {"energy": best["energy"] / best["without, together"], "batteries": best["batteries"] / best["without"]}
    for name, seconds_of in best.items():
        print(f"\n{name}: {seconds_of * 1000:,.0f} microseconds a round")
    for name, most in MOST.items():
        print(f"{name}: {ratios[name]:.2f} times a round without")
        assert ratios[name] <= most


def test_a_million_clients(benchmark: BenchmarkFixture) -> None:
    plain = seconds(200, 1_000_000, {})
    metered = benchmark.pedantic(lambda: seconds(200, 1_000_000, {"energy": WATTS}), rounds=1, iterations=1)
    print(f"\na million clients, 200 rounds: {plain:.1f} s, with energy {metered:.1f} s")
    assert metered <= 1.3 * plain
