"""Cost of a round of the asynchronous server, records on disk included; `-m "" --benchmark-only -s` prints the figures."""

from __future__ import annotations

from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from models.jammers import Reactive
from models.sub_channels import PiecewiseStationary
from netsim.off import NoLearner
from netsim.oracle import AgeOracle
from netsim.trace import ParquetRecorder
from tests.async_world import Table, World, world

ROUNDS = 20_000


def rounds_per_second(folder: Path, it: World) -> float:
    """Rounds a second of one core's time, with the tables of rounds, clients and jamming written to disk."""
    recorder = ParquetRecorder(folder, clients=True, jams=True)
    it.simulation.record_to(recorder)
    start = process_time()
    it.play()
    it.simulation.close()
    return ROUNDS / (process_time() - start)


def fig2a(scheduler: Any, **more: Any) -> World:
    """The setting of the channel study's Fig. 2(a): N = 5, K = 2, five breakpoints; an oracle beside."""
    law = PiecewiseStationary(channels=5, generator=np.random.default_rng(1), horizon_rounds=ROUNDS, breakpoints=5)

    def meter(streams: Any) -> AgeOracle:
        return AgeOracle(scheduler=Table([[0, 1]]), clients=2, channels=5, streams=streams)

    return world(scheduler=scheduler, channels=5, law=law, rounds=ROUNDS, learner=NoLearner(), meter=meter, **more)


@pytest.mark.parametrize("jammed", [False, True])
def test_the_engine_alone(benchmark: BenchmarkFixture, tmp_path: Path, jammed: bool) -> None:
    jammers = [{"law": Reactive(target="worked"), "dwell_rounds": 1}] if jammed else []
    rate = benchmark.pedantic(
        lambda: rounds_per_second(tmp_path, fig2a(Table([[0, 1]]), jammers=jammers)), rounds=3, iterations=1
    )
    print(f"\nengine, 2 clients on 5 sub-channels{', a reactive jammer' if jammed else ''}: {rate:,.0f} rounds/s of one core")
    assert rate >= 3_000 if jammed else rate >= 5_000
