"""What checkpoints cost: the same run with one every 100 rounds and with none, in processor time; and how soon a resume goes on.

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


def _rounds(every: int) -> Callable[..., str]:
    """The loop over the rounds of a run, with a checkpoint after each `every` of them; 0: with none."""

    def loop(simulation: Simulation, keep: Callable[[], None], stop: Any, after_round: Any, checkpoint_s: float) -> str:
        def between(simulation: Simulation) -> None:
            if every and simulation.server.round % every == 0:
                keep()
            if after_round is not None:
                after_round(simulation)

        try:
            simulation.run(after_round=between)
        except KeyboardInterrupt:
            keep()
            return "interrupted"
        return simulation.ended or ""

    return loop


def cost(name: str, changes: dict[str, Any], every: int) -> float:
    """Seconds of the processor for a run of a scenario, its building left out."""
    scenario = parse(override(load(name).model_dump(exclude_none=True, by_alias=True), changes))
    built = runs.build(scenario)
    with tempfile.TemporaryDirectory() as scratch, patch.object(runs, "_rounds", _rounds(every)):
        started = time.process_time()
        runs.simulate(built, scenario, Path(scratch) / "run")
        return time.process_time() - started


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
        runs.build(scenario)
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
    say(f"checkpoints: netsim {version()}, every {EVERY} rounds, medians of {given.repeats} pairs, seconds of the processor")
    for name, changes in STUDIES.items():
        if given.only in (None, name):
            cost(name, changes, 0)
            pairs = [(cost(name, changes, 0), cost(name, changes, EVERY)) for _ in range(given.repeats)]
            without = statistics.median(pair[0] for pair in pairs)
            ratio = statistics.median(pair[1] / pair[0] for pair in pairs) - 1.0
            resumed_s, built_s = resumed_after(name, changes)
            resume = f"first round of a resume after {resumed_s:.2f} s, of it building {built_s:.2f} s"
            say(f"{name:16s} {without:7.2f} s  {ratio:+7.1%}  {resume}")


if __name__ == "__main__":
    sys.exit(campaign())
