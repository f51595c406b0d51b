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
from scenarios.sweeps.attempts import attempt_all, watching
from scenarios.sweeps.cluster import open_workers
from scenarios.sweeps.dataset import check_tables, gather_tables
from scenarios.sweeps.earlier_runs import WantedRun, find_under_other_variants, look, look_at_all, read_manifest
from scenarios.sweeps.failure_list import Failures
from scenarios.sweeps.options import NO_LIMITS, REFUSE, THIS_MACHINE, Earlier, Limits, Machines
from scenarios.sweeps.plan import Plan, Planned, add_grid, choose_variants, further, plan, plan_grid
from scenarios.sweeps.relocation import move_run
from scenarios.sweeps.worker_run import Done, OneRun, Trial
from scenarios.sweeps.workers import SweepProgress, Workers
from scenarios.workers.interrupts import StopRequest, stop_requests
from scenarios.workers.processes import Killed

__all__ = ["Plan", "Planned", "add_grid", "choose_variants", "later_cautions", "plan", "plan_grid", "sweep"]


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
    """Run all runs of a plan into folders below `out`; returns `out`.

    Every run ends at its `limits`. `tables` of all runs are gathered into one data set (see `dataset`).
    If a run fails, the others go on; the error is raised when all have ended. `progress` is called some times a second with the
    state of the runs. Interrupted (KeyboardInterrupt), the sweep keeps the runs that are complete, and lists them in
    `sweep.json`. Raises UserError for a mistake that the user can fix: before the first run, with nothing written and nothing
    deleted. Raises DefectError where netsim itself failed.
    """
    folder = Path(out)
    paths = [p.path for p in planned.runs]
    for p in planned.one_each:
        refuse_unnamed(p.scenario.model_dump(exclude_none=True, by_alias=True))
    check_sweep(folder, earlier.overwrite or earlier.resume, paths)
    wanted_tables = check_tables(tables)
    modules = planned.modules("scenarios.sweeps.worker_run")
    with open_workers(machines, runs=planned.most_runs, modules=modules) as workers:
        # What a scenario trains is built once before anything is replaced; the rest was built as the sweep was planned.
        _try_learners(workers, planned.runs)
        # A folder appears with all that it holds from the beginning, so that Ctrl-C leaves a whole folder or none.
        with make_folder(folder), hold_lock(folder), stop_requests() as stop:
            check_sweep(folder, earlier.overwrite or earlier.resume, paths)  # another process may have begun a sweep there since
            under_way = _UnderWay(planned, folder, workers, machines.send_back, limits)
            workers.require(folder)
            under_way.prepare(earlier)
            with watching(workers, progress, stop):
                try:
                    under_way.simulate(stop, machines.retries)
                    while not stop.asked and under_way.add_seeds(earlier):
                        under_way.simulate(stop, machines.retries)
                finally:
                    under_way.list_runs()
            if wanted_tables and not stop.asked:
                gather_tables(folder, wanted_tables)
    if stop.asked:
        raise KeyboardInterrupt
    under_way.failures.refuse(f"the others are complete: {folder}")
    return folder


class _UnderWay:
    """A sweep in progress: it takes over the results of an earlier attempt, and keeps the list of complete runs."""

    def __init__(self, planned: Plan, folder: Path, workers: Workers, send_back: bool, limits: Limits) -> None:
        self._planned, self._folder, self._workers = planned, folder, workers
        self._send_back, self._limits = send_back, limits
        self._wanted: dict[int, WantedRun] = {}
        self._complete: set[int] = set()
        self._cut_off: set[int] = set()
        self._until: Notes | None = None
        self.failures = Failures(folder)

    def prepare(self, earlier: Earlier) -> None:
        """Prepare the folder: with `earlier.resume` take over what an earlier attempt left, otherwise remove it.

        Raises UserError before any change.
        """
        wanted = dict(enumerate(_identify(self._planned.runs)))
        if earlier.resume and Marker.read(self._folder) is not None:
            self._take_over(wanted, earlier.allow_changed_code)
            return
        self._wanted = wanted
        clear_sweep(self._folder, self._manifest(), [p.path for p in self._planned.runs])

    def add_seeds(self, earlier: Earlier) -> bool:
        """Plan more seeds, where the differences of variants are not known well enough; whether there are any."""
        if self._planned.until is None:
            return False
        runs = [w.planned for w in self._wanted.values()]
        seeds = len({p.seed for p in runs})
        places = {self._wanted[i].planned.path: self._folder / self._wanted[i].planned.path for i in self._complete}
        differences = sequential_stopping.differences(self._planned, runs, places)
        self._until = sequential_stopping.note(self._planned, seeds, differences)
        add = sequential_stopping.seeds_to_add(self._planned, seeds, differences)
        more = _identify(further(self._planned, runs, add)) if add else []
        wanted = dict(enumerate(more, start=len(self._wanted)))
        if earlier.resume:
            self._take_over(wanted, earlier.allow_changed_code)
        else:
            extend_sweep(self._folder, [w.planned.path for w in more])
            self._wanted |= wanted
        return bool(more)

    def _take_over(self, wanted: dict[int, WantedRun], allow_changed_code: bool) -> None:
        """Add runs to the wanted ones, with what an earlier attempt left of them.

        A run is complete (also under the name of another variant), cut off, damaged (which is a failure), or not there.
        """
        damaged: dict[int, str] = {}
        states = look_at_all(
            wanted,
            self._folder,
            allow_changed_code=allow_changed_code,
            damaged=damaged.__setitem__,
            event_limit=self._limits.event_limit,
        )
        missing = {index: wanted[index] for index, what in states.items() if what == "nothing"}
        moved = find_under_other_variants(missing, self._folder)
        paths = [w.planned.path for w in wanted.values()]
        extend_sweep(self._folder, paths)
        if not self._wanted:
            self.failures.open()
        self._wanted |= wanted
        for index, before in moved.items():
            if before not in paths and move_run(self._folder, before, wanted[index].planned.path):
                states[index] = "complete"
        for index, text in damaged.items():
            self.failures.add(wanted[index].planned, text)
        for index in (index for index, what in states.items() if what == "complete"):
            # A run that was made with other code, which the user allowed, is listed under its own identity.
            identity = read_summary(self._folder / wanted[index].planned.path).get("run_id")
            self._wanted[index] = replace(self._wanted[index], id=identity or wanted[index].id)
            self._complete.add(index)
        self._cut_off |= {index for index, what in states.items() if what == "cut off"}

    def simulate(self, stop: StopRequest, retries: int) -> None:
        """All runs that are not complete."""
        for index in self._complete:
            self._workers.complete(index, self._wanted[index].planned.scenario.rounds)
        open_runs = [i for i, w in self._wanted.items() if i not in self._complete and w.planned.path not in self.failures.paths]

        def work(index: int) -> OneRun:
            wanted = self._wanted[index]
            out = None if self._send_back else self._folder / wanted.planned.path
            resume = index in self._cut_off and out is not None
            return OneRun(wanted.planned, wanted.code, out, resume=resume, limits=self._limits)

        def on_loss(index: int, killed: Killed, again: bool) -> None:
            planned = self._wanted[index].planned
            self.failures.on_loss(planned, killed.reason, again)
            if checkpoint.exists(self._folder / planned.path) and self._limits.event_limit is None:
                self._cut_off.add(index)

        for index, done in attempt_all(self._workers, open_runs, work, stop, retries=retries, on_loss=on_loss):
            if isinstance(done, Done):
                self._keep(index, done, stop)

    def _keep(self, index: int, done: Done, stop: StopRequest) -> None:
        """Note the result of run `index`: complete, stopped or failed."""
        planned = self._wanted[index].planned
        if done.stopped:
            stop.asked = True
            with suppress(UserError):  # the run may be complete nevertheless
                # One that is limited in its events is simulated again by the attempt that goes on.
                if look(self._wanted[index], self._folder, allow_changed_code=True) == "complete":
                    self._complete.add(index)
        elif done.error:
            self.failures.add(planned, done.error, trace=done.trace, defect=done.defect)
        else:
            done.keep(self._folder / planned.path)
            self._complete.add(index)
            # A run may end before its last round, by its time limit or for want of clients.
            self._workers.complete(index, planned.scenario.rounds)

    def list_runs(self) -> None:
        """Write which runs are complete."""
        write_manifest(self._folder, self._manifest())

    def _manifest(self) -> Notes:
        """Return the content of `sweep.json`: the complete runs, and the missing ones."""

        def entry(p: Planned) -> Notes:
            return {"variant": p.variant, "label": p.label, "seed": p.seed}

        order = {variant: index for index, variant in enumerate(self._planned.variants)}
        ordered = sorted(self._wanted.items(), key=lambda item: order[item[1].planned.variant])
        return {
            "format": 1,
            "name": self._planned.name,
            "baseline": self._planned.baseline,
            "target_accuracy": self._planned.target_accuracy,
            "smoothing_s": self._planned.smoothing_s,
            "runs": [entry(w.planned) | {"path": w.planned.path, "id": w.id} for i, w in ordered if i in self._complete],
            "missing": [entry(w.planned) for i, w in ordered if i not in self._complete],
        } | ({} if self._until is None else {"until": self._until})


def later_cautions(planned: Plan, folder: Path) -> dict[Caution, str]:
    """Return the cautions of complete runs of a sweep that its plan did not have, each with the names of its runs.

    "" stands for all runs.
    """
    from analysis.documents.run_names import runs_in_words

    cautions: dict[Caution, list[tuple[str, int]]] = {}
    runs = read_manifest(folder).get("runs", ())
    for entry in runs:
        for caution in cautions_of(read_summary(folder / entry["path"])):
            if caution not in planned.cautions:
                cautions.setdefault(caution, []).append((entry["label"], entry["seed"]))
    return {caution: "" if len(about) == len(runs) else runs_in_words(about) for caution, about in cautions.items()}


def _identify(runs: Iterable[Planned]) -> list[WantedRun]:
    """Return the runs with their identities. Runs of a variant differ in the seed only, so the rest is digested once."""
    variants: dict[str, tuple[str, Any]] = {}
    wanted = []
    for p in runs:
        if p.variant not in variants:
            code = own_code(p.scenario)
            variants[p.variant] = study_digest(p.scenario, code), code
        study, code = variants[p.variant]
        wanted.append(WantedRun(p, run_id(study, p.seed), code))
    return wanted


def _try_learners(workers: Workers, runs: Iterable[Planned]) -> None:
    """Build each different learner of the runs of a sweep once on a worker, to find mistakes early; raises UserError."""
    different: dict[str, Planned] = {}
    for p in runs:
        if p.scenario.learner is not None:
            different.setdefault(repr((p.scenario.learner, p.scenario.privacy, p.scenario.clients)), p)
    trials = {index: Trial(p) for index, p in enumerate(different.values())}
    for index, done in attempt_all(
        workers, trials, trials.__getitem__, StopRequest(), retries=0, on_loss=lambda index, killed, again: None
    ):
        if isinstance(done, Killed):
            raise UserError(f"variant {trials[index].planned.variant}: its learner cannot be built: {done.reason}")
        if done.error:
            raise UserError(done.error)
