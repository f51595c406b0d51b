"""Many runs of one scenario on the workers of this machine or of a cluster, with their results in one folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from netsim.core.protocols import Notes
from scenarios.registry.in_process import refuse_unnamed
from scenarios.runs.ending import make_folder
from scenarios.runs.folders import checkpoint
from scenarios.runs.folders.identity import run_id, study_digest
from scenarios.runs.folders.lock import hold_lock
from scenarios.runs.folders.marker import Marker
from scenarios.runs.folders.own_code import own_code
from scenarios.runs.folders.replacement import check_sweep, clear_sweep, extend_sweep, read_summary, write_manifest
from scenarios.schema.cautions import Caution, cautions_of
from scenarios.schema.errors import UserError
from scenarios.sweeps import sequential_stopping
from scenarios.sweeps.attempts import attempt_all, relay_progress
from scenarios.sweeps.cluster import open_workers
from scenarios.sweeps.dataset import check_tables, gather_tables
from scenarios.sweeps.earlier_runs import WantedRun, find_renamed_runs, find_state, find_states, read_manifest
from scenarios.sweeps.failure_list import Failures
from scenarios.sweeps.options import NO_LIMITS, REFUSE, THIS_MACHINE, Earlier, Limits, Machines
from scenarios.sweeps.plan import Plan, PlannedRun, add_grid, choose_variants, plan, plan_grid, plan_more_seeds
from scenarios.sweeps.relocation import move_run
from scenarios.sweeps.worker_run import LearnerTrial, RunResult, WorkerRun
from scenarios.sweeps.workers import SweepProgress, Workers
from scenarios.workers.interrupts import StopRequest, stop_requests
from scenarios.workers.processes import Killed

__all__ = ["Plan", "PlannedRun", "add_grid", "choose_variants", "later_cautions", "plan", "plan_grid", "sweep"]


def sweep(
    planned: Plan,
    out: str | Path,
    *,
    machines: Machines = THIS_MACHINE,
    earlier: Earlier = REFUSE,
    progress: Callable[[SweepProgress], None] | None = None,
    tables: Iterable[str] = (),
    limits: Limits = NO_LIMITS,
) -> Path:
    """Run all runs of a plan into folders below `out`, and return `out`.

    Every run ends at its `limits`. `tables` of all runs are gathered into one data set (see `dataset`). `progress` is called
    several times a second with the state of the runs. If a run fails, the others go on; the error is raised when all have ended.
    After an interruption (KeyboardInterrupt) the complete runs stay, and are listed in `sweep.json`.

    Raises UserError for a mistake that the user can fix. Mistakes in the arguments and the scenario are found before the first
    run, with nothing written and nothing deleted. Raises DefectError if netsim itself failed.
    """
    folder = Path(out)
    paths = [run.path for run in planned.runs]
    for run in planned.first_runs:
        refuse_unnamed(run.scenario.model_dump(exclude_none=True, by_alias=True))
    check_sweep(folder, earlier.overwrite or earlier.resume, paths)
    wanted_tables = check_tables(tables)
    modules = planned.modules("scenarios.sweeps.worker_run")
    with open_workers(machines, runs=planned.most_runs, modules=modules) as workers:
        # Learners are built once before anything is replaced. All else was built as the sweep was planned.
        _try_learners(workers, planned.runs)
        # The folder appears together with its first files, so that Ctrl-C leaves a usable folder or none.
        with make_folder(folder), hold_lock(folder), stop_requests() as stop:
            check_sweep(folder, earlier.overwrite or earlier.resume, paths)  # again: another process may have begun a sweep there
            running = _RunningSweep(planned, folder, workers, machines.send_back, limits)
            workers.check_reach(folder)
            running.prepare(earlier)
            with relay_progress(workers, progress, stop):
                try:
                    running.simulate(stop, machines.retries)
                    while not stop.asked and running.add_seeds(earlier):
                        running.simulate(stop, machines.retries)
                finally:
                    running.write_manifest()
            if wanted_tables and not stop.asked:
                gather_tables(folder, wanted_tables)
    if stop.asked:
        raise KeyboardInterrupt
    running.failures.raise_if_any(f"the others are complete: {folder}")
    return folder


class _RunningSweep:
    """Sweep in progress. It takes over the results of an earlier attempt, simulates runs, and lists the complete ones."""

    def __init__(self, planned: Plan, folder: Path, workers: Workers, send_back: bool, limits: Limits) -> None:
        self._planned, self._folder, self._workers = planned, folder, workers
        self._send_back, self._limits = send_back, limits
        self._wanted: dict[int, WantedRun] = {}
        """Runs by their number, in the order in which they are planned."""
        self._complete: set[int] = set()
        """Numbers of complete runs."""
        self._cut_off: set[int] = set()
        """Numbers of runs that resume from a checkpoint."""
        self._stopping_entry: Notes | None = None
        """Entry "until" of `sweep.json`; None before seeds were added, or if they are fixed."""
        self.failures = Failures(folder)

    def prepare(self, earlier: Earlier) -> None:
        """Prepare the folder: take over the results of an earlier attempt with `earlier.resume`, otherwise remove them.

        Raises UserError before anything is changed.
        """
        wanted = dict(enumerate(_identify(self._planned.runs)))
        if earlier.resume and Marker.read(self._folder) is not None:
            self._take_over(wanted, earlier.allow_changed_code)
            return
        self._wanted = wanted
        clear_sweep(self._folder, self._manifest(), [run.path for run in self._planned.runs])

    def add_seeds(self, earlier: Earlier) -> bool:
        """Plan more seeds if the differences of variants are not known well enough. Return True if any were added.

        The entry "until" of `sweep.json` is brought up to date in any case. With `earlier.resume`, results of the added runs that
        an earlier attempt left are taken over.
        """
        if self._planned.until is None:
            return False
        runs = [run.planned for run in self._wanted.values()]
        seed_count = len({run.seed for run in runs})
        complete_paths = [self._wanted[index].planned.path for index in self._complete]
        folders = {path: self._folder / path for path in complete_paths}
        differences = sequential_stopping.differences(self._planned, runs, folders)
        self._stopping_entry = sequential_stopping.stopping_entry(self._planned, seed_count, differences)
        added_count = sequential_stopping.seeds_to_add(self._planned, seed_count, differences)
        more = _identify(plan_more_seeds(self._planned, runs, added_count)) if added_count else []
        wanted = dict(enumerate(more, start=len(self._wanted)))
        if earlier.resume:
            self._take_over(wanted, earlier.allow_changed_code)
        else:
            extend_sweep(self._folder, [run.planned.path for run in more])
            self._wanted |= wanted
        return bool(more)

    def _take_over(self, wanted: dict[int, WantedRun], allow_changed_code: bool) -> None:
        """Add runs, by number, to the wanted ones, and note which of them an earlier attempt completed or began.

        A run may be complete (also under the name of another variant: its folder is then moved), cut off (it resumes from its
        checkpoint), damaged (it counts as failed, and is not simulated), or missing. All states are read before anything is
        changed: ChangedError, for a run of other code, must leave the folder as it was.
        """
        damaged: dict[int, str] = {}
        states = find_states(
            wanted,
            self._folder,
            allow_changed_code=allow_changed_code,
            damaged=damaged.__setitem__,
            event_limit=self._limits.event_limit,
        )
        missing = {index: wanted[index] for index, state in states.items() if state == "nothing"}
        renamed = find_renamed_runs(missing, self._folder)
        paths = [run.planned.path for run in wanted.values()]
        extend_sweep(self._folder, paths)
        if not self._wanted:
            # The first runs of this attempt. The list of failures on disk is the earlier attempt's: a run that fails again is
            # listed again. Seeds that are added later must not remove the failures of this attempt.
            self.failures.remove_file()
        self._wanted |= wanted
        for index, path in renamed.items():
            if path not in paths and move_run(self._folder, path, wanted[index].planned.path):
                states[index] = "complete"
        for index, text in damaged.items():
            self.failures.add(wanted[index].planned, text)
        for index, state in states.items():
            if state == "cut off":
                self._cut_off.add(index)
            elif state == "complete":
                # A run that was simulated with other code, which the user allowed, is listed under its own identity.
                identity = read_summary(self._folder / wanted[index].planned.path).get("run_id")
                self._wanted[index] = replace(self._wanted[index], id=identity or wanted[index].id)
                self._complete.add(index)

    def simulate(self, stop: StopRequest, retries: int) -> None:
        """Simulate all runs that are neither complete nor failed, and note the outcome of each as it ends.

        A run whose worker was killed is attempted again, at most `retries` times. A request to `stop` ends the loop early.
        """
        for index in self._complete:
            self._workers.mark_complete(index, self._wanted[index].planned.scenario.rounds)
        failed = {index for index, run in self._wanted.items() if run.planned.path in self.failures.paths}
        has_ended = self._complete | failed
        missing = [index for index in self._wanted if index not in has_ended]

        def work(index: int) -> WorkerRun:
            """Return the work of the run with the number `index`: from its checkpoint if the worker can reach that."""
            run = self._wanted[index]
            out = None if self._send_back else self._folder / run.planned.path
            resume = index in self._cut_off and out is not None
            return WorkerRun(run.planned, run.code, out, resume=resume, limits=self._limits)

        def on_loss(index: int, killed: Killed, again: bool) -> None:
            """Note that the worker of a run was killed, and whether the run is attempted `again`."""
            planned = self._wanted[index].planned
            self.failures.on_loss(planned, killed.reason, again)
            # The next attempt goes on from a checkpoint, which has no count of events.
            if checkpoint.exists(self._folder / planned.path) and self._limits.event_limit is None:
                self._cut_off.add(index)

        for index, result in attempt_all(self._workers, missing, work, stop, retries=retries, on_loss=on_loss):
            if isinstance(result, RunResult):  # else `Killed`: `on_loss` noted the failure
                self._note_result(index, result, stop)

    def _note_result(self, index: int, result: RunResult, stop: StopRequest) -> None:
        """Note the result of the run with the number `index`: complete, stopped or failed."""
        planned = self._wanted[index].planned
        if result.stopped:
            stop.asked = True
            with suppress(UserError):  # a damaged run is not complete
                # The run may have come to its end before it saw the stop. One with a limit of events is simulated again anyway.
                if find_state(self._wanted[index], self._folder, allow_changed_code=True) == "complete":
                    self._complete.add(index)
        elif result.error:
            self.failures.add(planned, result.error, trace=result.trace, defect=result.defect)
        else:
            result.write_files(self._folder / planned.path)
            self._complete.add(index)
            # Its workers have reported fewer rounds if it ended before its last round, by its time limit or for want of clients.
            self._workers.mark_complete(index, planned.scenario.rounds)

    def write_manifest(self) -> None:
        """Write `sweep.json`, the list of complete and missing runs."""
        write_manifest(self._folder, self._manifest())

    def _manifest(self) -> Notes:
        """Return the content of `sweep.json`: the complete runs, and the missing ones, in the order of variants and seeds."""

        rank_of = {variant: rank for rank, variant in enumerate(self._planned.variants)}
        # The sort is stable: runs of added seeds come after their variant's first ones.
        by_variant = sorted(self._wanted.items(), key=lambda item: rank_of[item[1].planned.variant])
        complete: list[Notes] = []
        missing: list[Notes] = []
        for index, run in by_variant:
            planned = run.planned
            entry: Notes = {"variant": planned.variant, "label": planned.label, "seed": planned.seed}
            if index in self._complete:
                complete.append(entry | {"path": planned.path, "id": run.id})
            else:
                missing.append(entry)
        manifest: Notes = {
            "format": 1,
            "name": self._planned.name,
            "baseline": self._planned.baseline,
            "target_accuracy": self._planned.target_accuracy,
            "smoothing_s": self._planned.smoothing_s,
            "runs": complete,
            "missing": missing,
        }
        if self._stopping_entry is not None:
            manifest["until"] = self._stopping_entry
        return manifest


def later_cautions(planned: Plan, folder: Path) -> dict[Caution, str]:
    """Return the cautions of complete runs that the sweep's plan did not have, each with its runs as text; "" stands for all."""
    from analysis.documents.run_names import runs_in_words

    runs_of: dict[Caution, list[tuple[str, int]]] = {}
    runs = read_manifest(folder).get("runs", ())
    for entry in runs:
        for caution in cautions_of(read_summary(folder / entry["path"])):
            if caution not in planned.cautions:
                runs_of.setdefault(caution, []).append((entry["label"], entry["seed"]))
    texts = {}
    for caution, labelled_seeds in runs_of.items():
        texts[caution] = "" if len(labelled_seeds) == len(runs) else runs_in_words(labelled_seeds)
    return texts


def _identify(runs: Iterable[PlannedRun]) -> list[WantedRun]:
    """Return the runs, in their order, with their identities and the fingerprints of the user's code."""
    # Runs of a variant differ in the seed only, so all else is digested once a variant.
    variants: dict[str, tuple[str, Any]] = {}
    wanted = []
    for run in runs:
        if run.variant not in variants:
            code = own_code(run.scenario)
            variants[run.variant] = study_digest(run.scenario, code), code
        study, code = variants[run.variant]
        wanted.append(WantedRun(run, run_id(study, run.seed), code))
    return wanted


def _try_learners(workers: Workers, runs: Iterable[PlannedRun]) -> None:
    """Build each different learner of a sweep's runs once on a worker, to find mistakes before any file is written or removed.

    Learners are alike if learner, privacy and clients are. Raises UserError for the first that cannot be built, also if its
    worker was killed.
    """
    different: dict[str, PlannedRun] = {}
    for run in runs:
        scenario = run.scenario
        if scenario.learner is not None:
            different.setdefault(repr((scenario.learner, scenario.privacy, scenario.clients)), run)
    trials = {index: LearnerTrial(run) for index, run in enumerate(different.values())}

    def on_loss(index: int, killed: Killed, again: bool) -> None:
        """Do nothing: `Killed` is among the results."""

    for index, result in attempt_all(workers, trials, trials.__getitem__, StopRequest(), retries=0, on_loss=on_loss):
        if isinstance(result, Killed):
            raise UserError(f"variant {trials[index].planned.variant}: its learner cannot be built: {result.reason}")
        if result.error:
            raise UserError(result.error)
