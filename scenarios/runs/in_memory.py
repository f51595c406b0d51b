"""One run that writes nothing: its tables and its summary stay in memory."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from analysis.results import Sweep, SweepEntry
from analysis.sources import COLUMNS, OpenTable, RunInMemory, TableInMemory
from netsim.records.in_memory import ArrowRecorder
from netsim.simulation import Simulation
from scenarios.build.simulation import Built, build
from scenarios.registry.in_process import adopt, objects
from scenarios.runs.books import refuse_unbalanced
from scenarios.runs.collector import long_lived
from scenarios.runs.failures import refusing
from scenarios.runs.interrupts import StopRequest
from scenarios.runs.own_code import own_code, used
from scenarios.runs.reading import to_toml
from scenarios.runs.run import label_counts, partition_table, tables_of
from scenarios.runs.summary import Summing, Totals, change_points_s, summary
from scenarios.runs.sweep import Plan, Planned, counting, open_counts, refuse_failed
from scenarios.schema.errors import UserError
from scenarios.schema.scenario import Scenario


@contextmanager
def _opened(table: Any) -> Iterator[OpenTable]:
    yield TableInMemory(table)


def run_in_memory(built: Built, scenario: Scenario, *, after_round: Callable[[Simulation], None] | None = None) -> RunInMemory:
    """Run `built`, made of `scenario`, to its end; the tables and the summary are those that `run` writes.

    Memory grows with the number of rounds. An interrupt ends it, and nothing is left. Raises UserError.
    """
    simulation = built.simulation
    totals = Totals(starts_s=change_points_s(built.channels))
    recorder = ArrowRecorder(**tables_of(scenario))
    simulation.record_to(Summing(recorder, totals))
    code = used([], own_code(scenario), 1)
    started = time.perf_counter()
    with refusing(scenario, simulation), long_lived():
        simulation.run(after_round=after_round)
    simulation.close()
    tables: dict[str, Any] = dict(recorder.tables)
    counts = label_counts(built)
    if counts is not None:
        tables["partition"] = partition_table(counts)
    opened = {name: partial(_opened, tables[name]) for name in COLUMNS if name in tables}
    told = summary(built, scenario, totals, simulation.ended or "", time.perf_counter() - started, opened) | {"own_code": code}
    refuse_unbalanced(told["books"], f"{scenario.name}, seed {scenario.seed}", "Nothing is kept; ")
    return RunInMemory(summary=told, scenario_text=to_toml(scenario), tables=tables)


def sweep_in_memory(planned: Plan, *, jobs: int | None = None, progress: Callable[[list[int]], None] | None = None) -> Sweep:
    """Run all runs of a plan on `jobs` processes (default: all cores), and keep what they leave in memory.

    `progress` is called some times a second with the rounds done of every run. A run that goes wrong by a mistake of the user's
    is `missing`, with a warning. Raises UserError where all do.
    """
    from joblib import Parallel, delayed

    workers = Parallel(n_jobs=min(jobs or os.cpu_count() or 1, len(planned.runs)))
    given = objects()
    with counting(len(planned.runs), progress, StopRequest()) as counts_file:
        left = workers(delayed(_in_worker)(p, given, counts_file, i) for i, p in enumerate(planned.runs))
    entries, missing, failed = [], [], []
    for p, done in zip(planned.runs, left, strict=True):
        if isinstance(done, str):
            failed.append(done)
            missing.append((p.label, p.seed))
            continue
        told, text, tables = done
        source = RunInMemory(summary=told, scenario_text=text, tables=tables)
        entries.append(SweepEntry(p.variant, p.label, p.seed, Path(p.path), source))
    if not entries:
        refuse_failed(failed, "there was no other")
    for text in failed:
        warnings.warn(f"{text} (this run failed, and is missing)", stacklevel=3)
    return Sweep(
        path=Path(),
        name=planned.name,
        entries=entries,
        baseline=planned.baseline,
        target_accuracy=planned.target_accuracy,
        smoothing_s=planned.smoothing_s,
        missing=missing,
    )


def _in_worker(planned: Planned, given: dict[str, Any], counts_file: str, index: int) -> tuple[dict[str, Any], str, Any] | str:
    """What a run leaves, or what went wrong in it by a mistake of the user's.

    `given`: the classes that only the process knows that asks for it.
    """
    adopt(given)
    counts = open_counts(counts_file)

    def count(simulation: Simulation) -> None:
        counts[index] = simulation.server.round

    try:
        done = run_in_memory(build(planned.scenario), planned.scenario, after_round=count)
    except UserError as error:
        return f"variant {planned.variant}, seed {planned.seed}: {error}"
    return done.summary(), done.scenario_text(), done.tables
