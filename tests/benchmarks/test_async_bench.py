"""Cost of a round of the asynchronous server, records on disk included; `-m "" --benchmark-only -s` prints the figures."""

from __future__ import annotations

from pathlib import Path
from time import process_time
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from netsim.records.sinks import ParquetRecorder
from netsim.records.wanted import WantedTables
from scenarios.runs.reading import load, override, parse, read_file
from scenarios.wiring.simulation import build

FIG_2A = ("random", "m-exp3", "glr-cucb", "aa-m-exp3", "aa-glr-cucb", "oracle")
JAMMER = {"name": "listener", "law": {"kind": "reactive", "target": "worked"}}
ENOUGH = 5_000
"""Rounds a second of one core and policy."""


def rounds_per_second(folder: Path, changes: dict[str, Any]) -> float:
    """Rounds a second of one core in Fig. 2(a) of the channel study: N = 5, K = 2, 20,000 rounds, the oracle `means` beside.

    The tables of rounds, of clients with their ages, of declared changes and of jamming are written to disk.
    """
    study = parse(override(read_file("channels_fig2a"), changes))
    simulation = build(study).simulation
    simulation.record_to(ParquetRecorder(folder, WantedTables(jams=bool(study.jammers), detections=True)))
    start = process_time()
    simulation.run()
    simulation.close()
    return simulation.server.round / (process_time() - start)


@pytest.mark.parametrize("variant", [*FIG_2A, "glr-cucb, jammed"])
def test_fig_2a_through_the_event_engine(benchmark: BenchmarkFixture, tmp_path: Path, variant: str) -> None:
    name, _, jammed = variant.partition(", ")
    changes = next(v.set for v in load("channels_fig2a").sweep.variants if v.name == name)
    changes = changes | ({"jammers": [JAMMER]} if jammed else {})
    rates: list[float] = []
    # The best of five: what the code costs when nothing else runs.
    benchmark.pedantic(lambda: rates.append(rounds_per_second(tmp_path, changes)), rounds=5, iterations=1)
    print(f"\n{variant}: {max(rates):,.0f} rounds/s of one core")
    assert max(rates) >= (ENOUGH if not jammed else ENOUGH / 2)
