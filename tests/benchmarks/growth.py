"""How the cost of a run grows with its size: exponents fitted to processor times, by `python -m tests.benchmarks.growth`.

Each size is varied by itself over a factor of 8 to 1000, all else as in the base case. Times are those from the first round to
complete files, of one thread, building not counted; the least of three. An exponent is the slope of log time over log size, by
least squares; its range is that between neighbouring sizes.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scenarios.runs.reading import parse
from scenarios.runs.run import simulate
from scenarios.wiring.simulation import build

DELAY = {"kind": "gaussian", "mean_s": {"from": 0.1, "to": 0.9}, "std_s": 0.05, "floor_s": 0.05}


def latency(*, clients: int = 300, a_round: int = 15, rounds: int = 300) -> dict[str, Any]:
    """A latency study that selects at random."""
    return {
        "name": "growth",
        "rounds": rounds,
        "clients": {"count": clients},
        "server": {"per_round": a_round},
        "policy": {"kind": "random"},
        "uplink": {"delay": DELAY},
    }


def channels(*, count: int) -> dict[str, Any]:
    """Four clients on so many sub-channels, scheduled by their means."""
    return {
        "name": "growth",
        "rounds": 500,
        "clients": {"count": 4},
        "server": {"kind": "asynchronous"},
        "scheduler": {"kind": "cucb"},
        "channels": {
            "count": count,
            "states": {"kind": "stationary", "means": [0.1 + 0.8 * i / count for i in range(count)]},
            "delay": {"kind": "constant", "value_s": 1.0},
        },
    }


def parameters(*, hidden: int) -> dict[str, Any]:
    """Training of 10 clients a round, five steps of 16, one hidden layer of this width: 75 parameters to a unit."""
    return latency(clients=50, a_round=10, rounds=20) | {
        "learner": {
            "device": "cpu",
            "network": {"kind": "mlp", "hidden": [hidden]},
            "optimizer": {"kind": "sgd", "learning_rate": 0.05},
            "batch_size": 16,
            "epochs": 5,
            "max_steps": 5,
        }
    }


def shared_link(*, clients: int) -> dict[str, Any]:
    """All clients upload over one link in each of three rounds, each with a bandwidth of its own: 0.1 to 10 times its share."""
    return {
        "name": "growth",
        "rounds": 3,
        "clients": {"count": clients},
        "server": {"per_round": clients},
        "policy": {"kind": "random"},
        "payload": {"up_bytes": 1_000},
        "compute": {"delay": {"kind": "shifted-exponential", "shift_s": 0.0, "mean_excess_s": 1.0}},
        "uplink": {
            "bandwidth_bytes_per_s": {"from": 100.0, "to": 10_000.0},
            "shared": {"bandwidth_bytes_per_s": 1_000.0 * clients},
        },
    }


def safa(*, clients: int) -> dict[str, Any]:
    """Five rounds of SAFA that pick a third of the clients."""
    return {
        "name": "growth",
        "rounds": 5,
        "clients": {"count": clients},
        "server": {"kind": "safa", "per_round": clients // 3, "lag_tolerance": 2, "deadline_s": 1.5},
        "uplink": {"delay": {"kind": "shifted-exponential", "shift_s": 0.2, "mean_excess_s": 1.0}},
    }


def flooding(*, percent: int) -> dict[str, Any]:
    """Two slots in which 80 clients flood their opinions; every pair is linked with this probability."""
    return {
        "name": "growth",
        "rounds": 2,
        "clients": {"count": 80},
        "server": {"kind": "fl-da", "per_round": 5},
        "slots": {"rounds": 1, "start": "agreement"},
        "policy": {"kind": "bp-index", "mu": 0.1},
        "opinions": {"synthetic": {"worth": {"from": 0.4, "to": 0.9}, "own": 0.2, "noise": 0.02}},
        "uplink": {"delay": {"kind": "constant", "value_s": 0.1}},
        "peers": {
            "topology": {"kind": "erdos-renyi", "probability": percent / 100},
            "bandwidth_bytes_per_s": 1e6,
            "delay": {"kind": "shifted-exponential", "shift_s": 0.0, "mean_excess_s": 0.03},
        },
        "gossip": {"forwarding": "flooding"},
    }


CASES: dict[str, tuple[Callable[[int], dict[str, Any]], Sequence[int]]] = {
    "clients, 15 of them a round": (lambda n: latency(clients=n), (300, 3_000, 30_000, 300_000)),
    "updates a round, of 10,000 clients": (lambda n: latency(clients=10_000, a_round=n, rounds=40), (10, 100, 1000, 5000)),
    "rounds, 15 of 300 clients": (lambda n: latency(rounds=n), (250, 500, 1000, 2000)),
    "sub-channels, 4 clients": (lambda n: channels(count=n), (5, 10, 20, 40)),
    "uploads over a shared link": (lambda n: shared_link(clients=n), (1_000, 2_000, 4_000, 8_000, 16_000)),
    "clients of SAFA": (lambda n: safa(clients=n), (2_000, 4_000, 8_000, 16_000)),
    "percent of the links among 80 clients that flood": (lambda n: flooding(percent=n), (10, 20, 40, 80)),
    "hidden units, 75 parameters each": (lambda n: parameters(hidden=n), (64, 256, 1024, 4096)),
}


def processor_s(tables: dict[str, Any], folder: Path) -> float:
    """Processor time of a run, the least of three."""
    spent = []
    for _ in range(3):
        study = parse(tables, "growth")
        built = build(study)
        begin = time.process_time()
        simulate(built, study, folder / "run", overwrite=True)
        spent.append(time.process_time() - begin)
    return min(spent)


def slope(sizes: Sequence[float], times: Sequence[float]) -> float:
    """The least-squares slope of log time over log size."""
    x, y = [math.log(size) for size in sizes], [math.log(spent) for spent in times]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)


def main() -> None:
    """Measure the cases named, or all of them, and print a table."""
    parser = argparse.ArgumentParser(description="Measure how the cost of a run grows with its size.")
    parser.add_argument("cases", nargs="*", metavar="WORD", help="words of the cases to measure; default: all")
    words = parser.parse_args().cases
    wanted = {name: case for name, case in CASES.items() if not words or any(word in name for word in words)}
    if not wanted:
        parser.error(f"no case has any of the words {', '.join(words)}; there are: {'; '.join(CASES)}")
    if any("hidden" in name for name in wanted):
        import torch

        torch.set_num_threads(1)
    print("| size | from - to | seconds | exponent (between neighbours) |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="netsim-growth-") as folder:
        for name, (make, sizes) in wanted.items():
            times = [processor_s(make(size), Path(folder)) for size in sizes]
            steps = [slope(sizes[i : i + 2], times[i : i + 2]) for i in range(len(sizes) - 1)]
            told = ", ".join(f"{spent:.3g}" for spent in times)
            between = f"{min(steps):.2f} to {max(steps):.2f}"
            print(f"| {name} | {sizes[0]:,} - {sizes[-1]:,} | {told} | {slope(sizes, times):.2f} ({between}) |", flush=True)


if __name__ == "__main__":
    main()
