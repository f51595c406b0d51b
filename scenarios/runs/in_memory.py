"""One run in memory: it writes no files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from analysis.results.sources import COLUMNS, OpenTable, RunInMemory, TableInMemory
from netsim.core.collector import exempt_existing_objects
from netsim.records.in_memory import ArrowRecorder
from netsim.simulation import Simulation
from scenarios.runs.failures import name_own_failures
from scenarios.runs.folders.own_code import note_code, own_code
from scenarios.runs.reading import to_toml
from scenarios.runs.run import summary_identity, tables_of
from scenarios.runs.summary.books import refuse_unbalanced
from scenarios.runs.summary.fixed_tables import make_fixed_tables
from scenarios.runs.summary.machine import Effort
from scenarios.runs.summary.running_sums import Summing, Totals, change_points_s, summary
from scenarios.runs.wall_limit import WallLimit
from scenarios.schema.scenario import Scenario
from scenarios.wiring.world import World
from scenarios.workers.interrupts import stop_requests


@contextmanager
def _open_table(table: object) -> Iterator[OpenTable]:
    """Context manager that opens a table in memory as it would be opened from a file."""
    yield TableInMemory(table)


def run_in_memory(
    built: World,
    scenario: Scenario,
    *,
    after_round: Callable[[Simulation], None] | None = None,
    wall: WallLimit | None = None,
) -> RunInMemory:
    """Run `built`, made from `scenario`, to its end; return the tables and the summary that `run` would write.

    Memory grows with the number of rounds. An interrupt, or the limit `wall`, ends it without a result. Raises UserError.
    """
    simulation = built.simulation
    totals = Totals(starts_s=change_points_s(built.channels))
    recorder = ArrowRecorder(tables_of(scenario))
    simulation.record_to(Summing(recorder, totals))
    code = note_code([], own_code(scenario), 1)
    effort = Effort()
    limit = wall or WallLimit()
    failures = name_own_failures(scenario, simulation)
    with stop_requests() as stop, limit.enforce(stop), failures, built.start_workers(), exempt_existing_objects():

        def on_round(simulation: Simulation) -> None:
            """Callback at the close of a round: call `after_round`, and stop if asked."""
            if after_round is not None:
                after_round(simulation)
            stop.check()

        try:
            simulation.run(after_round=on_round)
        finally:
            stop.let_end()  # no further interrupt while workers end
        if stop.asked and not stop.limited:
            raise KeyboardInterrupt
    with name_own_failures(scenario, simulation):
        simulation.close()
        tables: dict[str, Any] = dict(recorder.tables)
        tables |= make_fixed_tables(built, scenario)
        opened = {name: partial(_open_table, tables[name]) for name in COLUMNS if name in tables}
        content = summary(built, scenario, totals, simulation.ended or "", effort, opened) | summary_identity(scenario, code)
    refuse_unbalanced(content["books"], f"{scenario.name}, seed {scenario.seed}", "Nothing is kept; ")
    return RunInMemory(summary=content, scenario_text=to_toml(scenario), tables=tables)
