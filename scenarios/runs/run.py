"""One run of a scenario into a folder: its beginning, its resumption, its checkpoints and its files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.results.checksums import FILES, DamagedFileError
from analysis.results.sources import COLUMNS, RunFolder
from netsim.core.collector import exempt_existing_objects, pause_collector
from netsim.core.protocols import Notes, State
from netsim.records import atomic
from netsim.records.sinks import ParquetRecorder
from netsim.records.tables import UNFINISHED, DamagedPieceError
from netsim.records.wanted import WantedTables
from netsim.simulation import Simulation
from scenarios.registry.in_process import refuse_unnamed
from scenarios.runs.ending import make_folder, report_state
from scenarios.runs.failures import name_own_failures
from scenarios.runs.folders import checkpoint
from scenarios.runs.folders.identity import changed_files, named_files, run_id, study_digest
from scenarios.runs.folders.lock import hold_lock
from scenarios.runs.folders.marker import Marker
from scenarios.runs.folders.own_code import latest, note_code, own_code, refuse_changed
from scenarios.runs.folders.replacement import (
    SCENARIO,
    SUMMARY,
    check_run,
    not_a_run,
    open_run,
    read_run_marker,
    write_json,
)
from scenarios.runs.reading import parse, to_toml
from scenarios.runs.summary.books import refuse_unbalanced
from scenarios.runs.summary.fixed_tables import NAMES, make_fixed_tables
from scenarios.runs.summary.machine import Effort
from scenarios.runs.summary.running_sums import Summing, Totals, change_points_s, summary
from scenarios.runs.training_machines import AS_THE_SCENARIO_SAYS, TrainingMachines
from scenarios.runs.unfinished import INTERRUPTED, checksums, read_unfinished, version
from scenarios.runs.wall_limit import WallLimit
from scenarios.schema.errors import UserError, name_source
from scenarios.schema.scenario import Scenario
from scenarios.wiring.world import World
from scenarios.workers.interrupts import StopRequest, stop_requests

_FIXED_TABLES = tuple(f"{name}.parquet" for name in NAMES)
CHECKPOINT_S = 60.0
"""Seconds of wall time between two checkpoints of a run."""
FIRST_CHECKPOINT_S = 2.0
"""Seconds of wall time up to the first checkpoint."""


def run(
    scenario: Scenario,
    out: str | Path,
    *,
    overwrite: bool = False,
    strict: bool = False,
    after_round: Callable[[Simulation], None] | None = None,
    checkpoint_s: float = CHECKPOINT_S,
    wall: WallLimit | None = None,
    machines: TrainingMachines = AS_THE_SCENARIO_SAYS,
) -> Notes:
    """Run `scenario` into the folder `out` and return its summary.

    Ctrl-C or SIGTERM ends the run at the close of the round: the files hold the complete rounds, and the summary says so. Every
    `checkpoint_s` seconds of wall time, and at such an end, the state is saved for `go_on`, until the run is complete. Warnings
    are in the summary. `wall`: wall time after which the run ends as by Ctrl-C. `machines`: where its clients train. `strict`:
    True to refuse a scenario with warnings. Raises UserError, with nothing written and nothing deleted, for the user's mistakes.
    """
    check_run(Path(out), overwrite)
    built = machines.build(scenario, strict=strict)
    return simulate(
        built, scenario, Path(out), overwrite=overwrite, after_round=after_round, checkpoint_s=checkpoint_s, wall=wall
    )


def prepare(
    scenario: Scenario,
    source: str,
    out: Path | None,
    *,
    overwrite: bool,
    strict: bool,
    event_limit: int | None,
    machines: TrainingMachines = AS_THE_SCENARIO_SAYS,
) -> World:
    """Check the folder `out` (None: in memory), and then build and return the simulation of `scenario`; raises UserError.

    The folder comes first, so that a wrong one is refused before a learner is built. `source`: name of the scenario in messages.
    """
    if out is not None:
        check_run(out, overwrite)
    with name_source(source):
        built = machines.build(scenario, strict=strict)
    built.simulation.limit_events(event_limit)
    return built


def simulate(
    built: World,
    scenario: Scenario,
    out: Path,
    *,
    overwrite: bool = False,
    after_round: Callable[[Simulation], None] | None = None,
    checkpoint_s: float = CHECKPOINT_S,
    more_files: Sequence[str] = (),
    wall: WallLimit | None = None,
) -> Notes:
    """Run a simulation that is built already into the folder `out`, as `run` does, and return its summary.

    `after_round`: callback after each round; `more_files`: names of files that it writes into the folder. `checkpoint_s`: wall
    time from one checkpoint to the next. `wall`: limit of the wall time.
    """
    refuse_unnamed(scenario.model_dump(exclude={"sweep"}, exclude_none=True, by_alias=True))
    fixed_tables = make_fixed_tables(built, scenario)
    files = [*files_of(scenario, fixed_tables), *more_files]
    check_run(out, overwrite, files)
    # The workers start before anything is written, as they may be refused.
    with stop_requests() as stop, (wall or WallLimit()).enforce(stop), built.start_workers(), make_folder(out), hold_lock(out):
        # Check again, because another process may have begun a run there.
        check_run(out, overwrite, files)
        return _start_run(
            built, scenario, out, files, fixed_tables, stop=stop, after_round=after_round, checkpoint_s=checkpoint_s
        )


def _start_run(
    built: World,
    scenario: Scenario,
    out: Path,
    files: list[str],
    fixed_tables: Mapping[str, pa.Table],
    *,
    stop: StopRequest,
    after_round: Callable[[Simulation], None] | None,
    checkpoint_s: float,
) -> Notes:
    """Write the scenario and the fixed tables of a run into its folder, simulate it from the beginning, and return its summary.

    `files`: names of all files that the run writes. `fixed_tables`: tables that are known before the run, by name. The other
    arguments are those of `_simulate`.
    """
    with report_state(out):
        # First the marker that lists the files: netsim removes only listed files, so that a killed process leaves no other.
        marker = open_run(out, files)
        atomic.write(out / SCENARIO, to_toml(scenario).encode())
        for name, table in fixed_tables.items():
            with atomic.open_replacement(out / f"{name}.parquet") as file:
                pq.write_table(table, file, compression="zstd")
        return _simulate(
            built, scenario, marker, state=None, stop=stop, after_round=after_round, checkpoint_s=checkpoint_s
        )


def go_on(
    out: str | Path,
    *,
    script: Mapping[str, object] | None = None,
    after_round: Callable[[Simulation], None] | None = None,
    checkpoint_s: float = CHECKPOINT_S,
    allow_changed_code: bool = False,
    begin: Callable[[Simulation], None] = lambda simulation: None,
    wall: WallLimit | None = None,
    machines: TrainingMachines = AS_THE_SCENARIO_SAYS,
) -> Notes:
    """Finish a run that was interrupted, from its last checkpoint, and return its summary.

    The tables equal those of a run that never stopped, byte for byte. `script`: key `script` that replaces the scenario's.
    `begin` is called with the simulation before it goes on. `wall`, `machines`: for the rest of the run, as in `run`. Raises
    UserError, also if the user's own components have changed, unless `allow_changed_code` (the summary then says so), and if a
    script acts differently than before the checkpoint.
    """
    folder = Path(out)
    if not folder.is_dir():
        raise not_a_run(folder)
    with stop_requests() as stop, (wall or WallLimit()).enforce(stop), hold_lock(folder):
        with pause_collector():
            scenario, state = read_unfinished(folder)
            if scenario.flower is not None:
                problem = f"{folder}: a Flower app cannot go on from where it was, since its state is in its own program"
                raise UserError(f"{problem}; run it again: netsim run {folder / SCENARIO} --out {folder} --overwrite")
            if script:
                scenario = parse({**scenario.model_dump(exclude_none=True, by_alias=True), **script}, str(out))
            if state is not None:
                _refuse_changed_files(folder, state, scenario)
            if state is not None and not allow_changed_code:
                refuse_changed(str(out), latest(state["own_code"]), own_code(scenario))
            built = machines.build(scenario)
        begin(built.simulation)
        if state is None:  # interrupted before the first checkpoint: begin again
            fixed_tables = make_fixed_tables(built, scenario)
            files = files_of(scenario, fixed_tables)
            check_run(folder, True, files)
            with built.start_workers():
                return _start_run(
                    built, scenario, folder, files, fixed_tables, stop=stop, after_round=after_round, checkpoint_s=checkpoint_s
                )
        with built.start_workers(), report_state(folder):
            marker = read_run_marker(folder)
            return _simulate(
                built, scenario, marker, state=state, stop=stop, after_round=after_round, checkpoint_s=checkpoint_s
            )


def _refuse_changed_files(out: Path, state: State, scenario: Scenario) -> None:
    """Raise UserError if a data file that the scenario names has changed since the run in `out` began."""
    changed = changed_files(state, scenario)
    if changed:
        remedy = f"undo the change, or run it again: netsim run {out / SCENARIO} --out {out} --overwrite"
        raise UserError(f"{out}: {changed[0]}, which its scenario names, has changed since the run began; {remedy}")


def _simulate(
    built: World,
    scenario: Scenario,
    marker: Marker,
    *,
    state: State | None,
    stop: StopRequest,
    after_round: Callable[[Simulation], None] | None,
    checkpoint_s: float,
) -> Notes:
    """Simulate a run, write its files, and return its summary.

    `marker`: list of files in the run's folder. `state`: state of the last checkpoint, from which the run goes on; None: it
    begins. `stop`: request to stop early, such as an interrupt. `after_round`: callback after each round. `checkpoint_s`: wall
    time from one checkpoint to the next.
    """
    out, simulation, totals = marker.folder, built.simulation, Totals(starts_s=change_points_s(built.channels))
    effort = Effort(0.0 if state is None else state["wall_time_s"])
    if state is not None:
        # Restore the state before the tables of the interrupted run are opened: it may be refused.
        with name_own_failures(scenario, simulation):
            simulation.load_state_dict(state["simulation"])
        totals.load_state_dict(state["totals"])
    tables = ParquetRecorder(out, tables_of(scenario))
    if state is not None:
        tables.load_state_dict(state["tables"])
    simulation.record_to(Summing(tables, totals))
    code = note_code([] if state is None else state["own_code"], own_code(scenario), simulation.server.round + 1)
    files = checksums(out, [name for name in (SCENARIO, *_FIXED_TABLES) if name in marker.files])
    data = named_files(scenario) if state is None else state["data_files"]

    def save_checkpoint() -> None:
        """Save the state from which the run can be resumed, if it can."""
        if not simulation.resumable:
            return
        marker.claim([checkpoint.FILE, *tables.pieces_to_come()])
        states = {"simulation": simulation.state_dict(), "tables": tables.state_dict(), "totals": totals.state_dict()}
        with _refuse_unsaved_state():
            facts = {"version": version(), "files": files, "data_files": data, "own_code": code}
            checkpoint.save(out, facts | {"wall_time_s": effort.wall_s(), **states})

    try:
        with name_own_failures(scenario, simulation), exempt_existing_objects():
            ending = _simulate_rounds(simulation, save_checkpoint, stop, after_round, checkpoint_s)
        stop.let_end()
        with name_own_failures(scenario, simulation), _refuse_damage():
            simulation.close()
            run_folder = RunFolder(out, tables.digests)
            present = {name: partial(run_folder.open, name) for name in COLUMNS if f"{name}.parquet" in tables.digests}
            content = summary(built, scenario, totals, ending, effort, present) | summary_identity(scenario, code)
        write_json(out / SUMMARY, content | {FILES: files | tables.digests})
    except Exception as error:
        # Complete the tables, because the rounds before a component's mistake help to find it.
        if not isinstance(error, OSError) and not (out / SUMMARY).exists():
            with suppress(Exception):
                simulation.close()
        raise
    finally:
        tables.discard()
    if ending != INTERRUPTED:
        with suppress(OSError):  # all that counts is written
            marker.remove(UNFINISHED)
    refuse_unbalanced(content["books"], out)
    if stop.asked and not stop.limited and ending != INTERRUPTED:
        raise KeyboardInterrupt(f"the run had come to its end, and its results are complete: {out}")
    return content


def summary_identity(scenario: Scenario, code: list[Notes]) -> Notes:
    """Return the identity of a run for its summary. `code`: fingerprints of the user's code that it used."""
    if len(code) > 1:
        return {"own_code": code, "run_id": None}  # a run of different code has no identity
    return {"own_code": code, "run_id": run_id(study_digest(scenario, latest(code)), scenario.seed)}


def _simulate_rounds(
    simulation: Simulation,
    save_checkpoint: Callable[[], None],
    stop: StopRequest,
    after_round: Callable[[Simulation], None] | None,
    checkpoint_s: float,
) -> str:
    """Simulate to the end or up to an interrupt, and return the reason of the end.

    `save_checkpoint` is called every `checkpoint_s` seconds of wall time, and at an interrupt.
    """
    # Save the first checkpoint early, so that a run of long rounds has one if it is interrupted within the next round.
    due_s = time.perf_counter() + min(FIRST_CHECKPOINT_S, checkpoint_s)

    def on_round(simulation: Simulation) -> None:
        """Callback at the close of a round: call `after_round`, stop if asked, and save a checkpoint if one is due.

        An interrupt saves a checkpoint first.
        """
        nonlocal due_s
        try:
            if after_round is not None:
                after_round(simulation)
            stop.check()
        except KeyboardInterrupt:
            stop.let_end()
            save_checkpoint()
            raise
        if time.perf_counter() >= due_s:
            save_checkpoint()
            due_s = time.perf_counter() + checkpoint_s

    try:
        simulation.run(after_round=on_round)
    except KeyboardInterrupt:
        return INTERRUPTED
    return simulation.ended or INTERRUPTED  # `ended` is empty if the simulation stopped before its end


@contextmanager
def _refuse_unsaved_state() -> Iterator[None]:
    """Raise UserError if a component of the user's has a state that cannot be saved, because it is not plain data."""
    try:
        yield
    except checkpoint.StateError as error:
        raise UserError(f"{error}; let the state_dict of your own component return numbers, texts, lists and arrays") from error


@contextmanager
def _refuse_damage() -> Iterator[None]:
    """Raise UserError if another process has changed files of the run."""
    try:
        yield
    except (DamagedPieceError, DamagedFileError) as error:
        raise UserError(f"{error}; run it again") from error


def files_of(scenario: Scenario, fixed_tables: Iterable[str]) -> list[str]:
    """Return the names of the files of a complete run. `fixed_tables`: names of the tables that are written at its beginning."""
    return [SCENARIO, *tables_of(scenario).files, *(f"{name}.parquet" for name in fixed_tables), SUMMARY]


def tables_of(scenario: Scenario) -> WantedTables:
    """Return the tables that a run writes, round by round, in addition to `rounds.parquet`."""
    return WantedTables(
        clients=scenario.output.clients_table,
        jams=bool(scenario.jammers),
        detections=scenario.scheduler is not None,
        messages=scenario.output.messages_table,
        beliefs=scenario.output.beliefs_table and scenario.server.peer_to_peer,
        probes=scenario.probes,
        script=scenario.script is not None,
        transfers=scenario.output.transfers_table,
        link_loads=scenario.output.transfers_table,
        evaluations=scenario.flower is not None or (scenario.learner is not None and bool(scenario.learner.metrics)),
        communication_rounds=scenario.server.slotted and scenario.output.clients_table,
        edges=scenario.edges is not None,
        edge_rounds=scenario.edges is not None,
    )
