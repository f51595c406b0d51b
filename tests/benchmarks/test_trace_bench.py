"""Events a second of the export of a timeline: `-m "" --benchmark-only -s` prints it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from time import process_time

from pytest_benchmark.fixture import BenchmarkFixture

import netsim
from analysis import write_trace
from tests.helpers.rough_scenarios import rough

LEAST = 1.3
"""Events a second, packed, against those that encoding dictionaries of the same events gives, not packed."""


def test_events_a_second(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = netsim.run(rough(rounds=4000))
    write_trace(run, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    best = {"export": float("inf"), "encoding": float("inf")}

    def once() -> None:
        start = process_time()
        write_trace(run, tmp_path / "trace.json.gz")
        best["export"] = min(best["export"], process_time() - start)
        start = process_time()
        with (tmp_path / "plain.json").open("w") as file:
            for event in events:
                file.write(json.dumps(event, separators=(",", ":")) + ",\n")
        best["encoding"] = min(best["encoding"], process_time() - start)

    benchmark.pedantic(once, rounds=5, iterations=1)
    ratio = best["encoding"] / best["export"]
    rate = len(events) / best["export"]
    print(f"\n{len(events):,} events: {rate:,.0f} a second; {ratio:.2f} times those of encoding one by one")
    assert ratio >= LEAST
