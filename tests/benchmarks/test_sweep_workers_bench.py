"""What a sweep gains by a second worker, and what it costs beside its runs: wall times of an otherwise idle machine."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from scenarios.sweeps.options import Machines
from scenarios.sweeps.plan import plan
from scenarios.sweeps.sweep import sweep
from tests.benchmarks.growth import latency, parameters

RUN_S = 0.8


def rounds_for(tables: dict[str, Any], folder: Path) -> int:
    """Rounds of a run of about RUN_S seconds of wall time."""
    few, many = 400, 1600
    few_s, many_s = (_shortest_s(tables | {"rounds": rounds}, folder / f"{rounds}") for rounds in (few, many))
    round_s = (many_s - few_s) / (many - few)
    return max(1, round(few + (RUN_S - few_s) / round_s))


def _shortest_s(tables: dict[str, Any], folder: Path) -> float:
    # What the first run imports as it goes belongs to no round: the second one says how long they take.
    sweep(plan(tables | {"sweep": {"seeds": [1, 2]}}, "bench"), folder, machines=Machines(jobs=1))
    return min(json.loads(file.read_text())["wall_time_s"] for file in folder.rglob("summary.json"))


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
@pytest.mark.parametrize(
    ("runs", "learner", "least"),
    [(12, False, 1.6), (60, False, 1.85), pytest.param(24, True, 1.7, marks=pytest.mark.needs_torch)],
    ids=["12 runs", "60 runs", "24 runs with a learner"],
)
def test_two_workers_against_one(benchmark: Any, tmp_path: Path, runs: int, learner: bool, least: float) -> None:
    tables = parameters(hidden=64) if learner else latency()
    # One job is this process, which has imported everything: the gain counts the start of two workers in full.
    tables |= {"rounds": rounds_for(tables, tmp_path), "sweep": {"seeds": list(range(1, runs + 1))}}
    spent = {}
    for jobs in (1, 2):
        begin = time.perf_counter()
        sweep(plan(tables, "bench"), tmp_path / f"{jobs}", machines=Machines(jobs=jobs))
        spent[jobs] = time.perf_counter() - begin
    walls = [json.loads(file.read_text())["wall_time_s"] for file in (tmp_path / "1").rglob("summary.json")]
    assert len(walls) == runs
    benchmark.pedantic(lambda: None, rounds=1)
    gain, overhead = spent[1] / spent[2], spent[1] / sum(walls) - 1
    benchmark.extra_info.update(one_s=spent[1], two_s=spent[2], gain=gain, overhead=overhead)
    each_s = sum(walls) / runs
    print(f"\n{runs} runs of {each_s:.2f} s: {spent[1]:.1f} s and {spent[2]:.1f} s, gain {gain:.2f}; overhead {overhead:.1%}")
    assert gain >= least
