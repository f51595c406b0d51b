"""What checkpoints cost, one every 100 rounds, of the processor time of a run; and how soon a resume goes on.

Their time is taken within the run, around each of them: differences between runs with and without are lost in the noise of a
machine that others use.

python -m tests.reliability.checkpoints --repeats 5
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from netsim.simulation import Simulation
from scenarios.runs import run as runs
from scenarios.runs.reading import load, override, parse
from scenarios.runs.unfinished import version
from scenarios.wiring.simulation import build
from tests.reliability.campaign import say

EVERY = 100
STUDIES: dict[str, dict[str, Any]] = {
    "quickstart": {"rounds": 300},
    "pause_fig2_3": {"rounds": 300},
    "latency_scale": {"rounds": 300},
    "bp_ucb_timing": {"rounds": 200, "slots.rounds": 2},
    "channels_fig2a": {"rounds": 5000},
}
"""Scenarios that come along, with changes."""


def _rounds(spent_s: list[float]) -> Callable[..., str]:
    """The loop over the rounds of a run, with a checkpoint after each EVERY, whose processor time it adds to `spent_s`."""

    def loop(simulation: Simulation, keep: Callable[[], None], stop: Any, after_round: Any, checkpoint_s: float) -> str:
        def between(simulation: Simulation) -> None:
            if simulation.server.round % EVERY == 0:
                started = time.process_time()
                keep()
                spent_s.append(time.process_time() - started)

        simulation.run(after_round=between)
        return simulation.ended or ""

    return loop


def cost(name: str, changes: dict[str, Any]) -> tuple[list[float], float]:
    """Seconds of the processor that each checkpoint of a run takes, and those of the run without, its building left out."""
    scenario = parse(override(load(name).model_dump(exclude_none=True, by_alias=True), changes))
    built = build(scenario)
    spent_s: list[float] = []
    with tempfile.TemporaryDirectory() as scratch, patch.object(runs, "_simulate_rounds", _rounds(spent_s)):
        started = time.process_time()
        runs.simulate(built, scenario, Path(scratch) / "run")
        return spent_s, time.process_time() - started - sum(spent_s)


def resumed_after(name: str, changes: dict[str, Any]) -> tuple[float, float]:
    """Seconds of the processor from the beginning of a resume to its first round, and those of building the scenario alone."""
    scenario = parse(override(load(name).model_dump(exclude_none=True, by_alias=True), changes))
    first: list[float] = []

    def interrupt(simulation: Simulation) -> None:
        if simulation.server.round == min(EVERY, scenario.rounds // 2):
            raise KeyboardInterrupt

    def note(simulation: Simulation) -> None:
        first.append(time.process_time())
        raise KeyboardInterrupt

    folder = Path(tempfile.mkdtemp())
    try:
        runs.run(scenario, folder / "run", after_round=interrupt)
        started = time.process_time()
        build(scenario)
        built_s = time.process_time() - started
        started = time.process_time()
        runs.go_on(folder / "run", after_round=note)
        return first[0] - started, built_s
    finally:
        shutil.rmtree(folder)


def campaign() -> None:
    """A table of all."""
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.checkpoints")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=STUDIES)
    given = parser.parse_args()
    say(f"checkpoints: netsim {version()}, every {EVERY} rounds, medians of {given.repeats} runs, seconds of the processor")
    for name, changes in STUDIES.items():
        if given.only in (None, name):
            runs_s = [cost(name, changes) for _ in range(given.repeats)]
            each_s = statistics.median(one for spent_s, _ in runs_s for one in spent_s)
            without_s = statistics.median(rest_s for _, rest_s in runs_s)
            ratio = statistics.median(sum(spent_s) / rest_s for spent_s, rest_s in runs_s)
            resumed_s, built_s = resumed_after(name, changes)
            resume = f"first round of a resume after {resumed_s:.2f} s, of it building {built_s:.2f} s"
            say(f"{name:16s} {without_s:7.2f} s  {1e3 * each_s:6.2f} ms each  {ratio:+7.1%}  {resume}")


if __name__ == "__main__":
    sys.exit(campaign())
