"""The public functions of `netsim` for notebooks and scripts: they do the work of the commands (docs/python.md)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pydantic import PrivateAttr, ValidationError

import analysis
from analysis import Run, Sweep
from models.fl.data.files import DATASETS
from netsim.core.user_warnings import warn_user
from netsim.simulation import Simulation
from scenarios import arguments
from scenarios.registry.components import component_model
from scenarios.registry.in_process import place_of, place_of_object, register_name
from scenarios.registry.kinds import BUILT_IN, shared_names
from scenarios.runs import run as written
from scenarios.runs.in_memory import run_in_memory
from scenarios.runs.progress import rounds_done
from scenarios.runs.reading import override, parse, read_file
from scenarios.runs.training_machines import TrainingMachines
from scenarios.runs.unfinished import INTERRUPTED, read_unfinished
from scenarios.runs.wall_limit import WallLimit
from scenarios.schema import scenario as schema
from scenarios.schema.cautions import Caution, cautions_of
from scenarios.schema.errors import ScenarioError, UserError, did_you_mean, name_source
from scenarios.schema.section import Tables
from scenarios.schema.servers.kinds import KINDS
from scenarios.sweeps import sweep as written_sweep
from scenarios.sweeps.comparison_files import add_comparison
from scenarios.sweeps.in_memory import sweep_in_memory
from scenarios.sweeps.options import Earlier, Limits, Machines
from scenarios.sweeps.plan import Plan
from scenarios.sweeps.workers import SweepProgress
from scenarios.wiring.script.waits import Script
from scenarios.wiring.script.world import World

if TYPE_CHECKING:
    import pandas as pd

    from scenarios.fit.fit import Fit

__all__ = [
    "Run",
    "Scenario",
    "Script",
    "Sweep",
    "World",
    "fit",
    "load",
    "open_run",
    "open_sweep",
    "register",
    "resume",
    "run",
    "sweep",
]

P = ParamSpec("P")
T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Called with the rounds done and the most rounds that there are; a share of a time limit counts as that share of the rounds."""


def _public(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator that converts a UserError to a ScenarioError, without the internal traceback."""

    @functools.wraps(function)
    def run_checked(*args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function; `from None` hides frames inside netsim, which say nothing about the user's mistake."""
        try:
            return function(*args, **kwargs)
        except UserError as error:
            raise ScenarioError(str(error)) from None

    return run_checked


class Scenario(schema.Scenario):
    """A whole study, checked: the tables of a scenario file as keywords. Cannot be changed; `load(scenario, {..})` makes another.

    Raises:
        ScenarioError: a key is unknown, missing or has a value that is not allowed.
    """

    _tables: Tables = PrivateAttr(default_factory=dict)

    def __init__(self, **tables: Any) -> None:
        """Check the `tables` of a scenario file.

        Example:
            >>> import netsim
            >>> netsim.Scenario(
            ...     name="small", rounds=3, clients={"count": 4}, server={"per_round": 2}, policy={"kind": "random"}
            ... ).rounds
            3

        Raises:
            ScenarioError: a key is unknown, missing or has a value that is not allowed.
        """
        tables = arguments.plain_data(tables)
        try:
            super().__init__(**tables)
        except ValidationError:
            _parse(tables, "scenario")
            raise
        self._tables = tables

    def tables(self) -> Tables:
        """Return the given keys, without defaults of other keys."""
        if type(self)(**self._tables).model_dump() == self.model_dump():
            return dict(self._tables)
        return self.model_dump(exclude_unset=True, exclude_none=True, by_alias=True)  # a changed copy


_parse = _public(parse)
Source = str | Path | Mapping[str, Any] | schema.Scenario
"""A scenario file, the name of one that comes with netsim, its tables, or a scenario."""
ScriptSource = str | Callable[..., Script] | Mapping[str, Any]
"""A script: its function, its "module:function", or a table of that as `kind` and of its further arguments."""


@_public
def load(source: Source, changes: Mapping[str, object] | None = None) -> Scenario:
    """Read and check a scenario: a file, the name of one that comes with netsim, or a dictionary.

    `changes`: dotted keys and their values, as `--set` of the command line has them. A `kind` may be a class of your own.
    Raises ScenarioError, a ValueError.

    >>> import netsim
    >>> netsim.load("quickstart", {"rounds": 3, "clients.count": 8}).clients.count
    8
    """
    keys = {} if changes is None else arguments.mapping_of_keys("changes", changes, "{'policy.alpha': 10}")
    wanted = arguments.plain_data(keys)
    tables, name = _tables(source)
    tables = override(tables, wanted)
    try:
        return Scenario(**tables)
    except ScenarioError:
        parse(tables, name)  # has the same text, and the name of the file
        raise


@_public
def run(
    scenario: Source,
    *,
    out: str | Path | None = None,
    seed: int | None = None,
    script: ScriptSource | None = None,
    overwrite: bool = False,
    strict: bool = False,
    event_limit: int | None = None,
    wall_limit_s: float | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: Progress | None = None,
    app: str | Path | tuple[Any, Any] | None = None,
) -> Run:
    """Run a scenario and return what came out.

    `out` None: in memory, nothing is written; else the folder that the run is written to, as `netsim run` does. `seed`: in place
    of the scenario's. `script`: what acts on the run as it goes (docs/scripts.md), in place of the scenario's. `overwrite`:
    replace an earlier run in `out`. `strict`: treat warnings as errors. `event_limit`: end after so many events, even in
    mid-round, whatever the clock says. `wall_limit_s`: end after so many seconds of simulating, by TimeoutError. `workers`:
    processes that train clients, in place of `learner.workers`. `cluster`: the address of a Dask scheduler whose workers train
    clients (docs/large-models.md). `app`: a Flower app in place of the scenario's, its folder or a ServerApp and a ClientApp
    (docs/flower.md).
    Raises ScenarioError, a ValueError, with nothing written; KeyboardInterrupt and TimeoutError: in memory nothing is left, in
    `out` what `resume` goes on from.

    >>> import netsim
    >>> small = {"rounds": 3, "clients": {"count": 4}, "server": {"per_round": 2}, "policy": {"kind": "random"}}
    >>> small["compute"] = {"delay": {"kind": "constant", "value_s": 1.0}}
    >>> netsim.run({"name": "small", **small}, seed=2).rounds["selected"].tolist()
    [2, 2, 2]
    """
    tables, name = _tables(scenario)
    changes = _app_key(app) | ({} if seed is None else {"seed": arguments.integer("seed", seed)})
    study = parse(override(tables, changes) | _script_key(script), name)
    place = None if out is None else arguments.folder_path("out", out)
    limits = _limits(event_limit, wall_limit_s)
    wall = WallLimit(limits.wall_limit_s)
    built = written.prepare(
        study,
        name,
        place,
        overwrite=overwrite,
        strict=strict,
        event_limit=limits.event_limit,
        machines=_training_machines(workers, cluster),
    )
    _warn(built.cautions)
    tell = _after_round(study, progress)
    if place is None:
        with _limit_time(wall):
            result = Run(run_in_memory(built, study, after_round=tell, wall=wall))
        _warn(caution for caution in cautions_of(result.summary) if caution not in built.cautions)
        return result
    with _limit_time(wall):
        summary = written.simulate(built, study, place, overwrite=overwrite, after_round=tell, wall=wall)
        return _finish(summary, place, shown=built.cautions, resumable=study.flower is None)


def _training_machines(workers: int | None, cluster: str | None) -> TrainingMachines:
    """Check where clients of a run are to be trained, as users gave it; UserError names the argument."""
    count = arguments.integer_or_none("workers", workers, least=0)
    return TrainingMachines(workers=count, cluster=arguments.text_or_none("cluster", cluster))


def _app_key(app: str | Path | tuple[Any, Any] | None) -> Tables:
    """Return the key of a scenario that names a Flower app; raises UserError."""
    if app is None:
        return {}
    if isinstance(app, str | Path):
        return {"flower.app": str(app)}
    if not isinstance(app, tuple | list) or len(app) != 2:
        raise UserError(f"app = {app!r}: must be the folder of a Flower app, or a pair of a ServerApp and a ClientApp")
    return {"flower.app": place_of_object("app", tuple(app))}


@_public
def resume(
    folder: str | Path,
    *,
    script: ScriptSource | None = None,
    allow_changed_code: bool = False,
    event_limit: int | None = None,
    wall_limit_s: float | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: Progress | None = None,
) -> Run:
    """Resume an interrupted or killed run in a folder from its last checkpoint, as `netsim resume` does.

    `script`: in place of the scenario's, such as the same from another module; up to the checkpoint it must do the same.
    `allow_changed_code`: go on although the code of your own components has changed. `event_limit`, `wall_limit_s`, `workers`
    and `cluster`: as in `run`; the tables do not depend on who trained the first part.
    A sweep goes on by `sweep(.., resume=True)`.
    Raises ScenarioError, a ValueError.

    >>> import netsim, tempfile
    >>> small = {"rounds": 3, "clients": {"count": 4}, "server": {"per_round": 2}, "policy": {"kind": "random"}}
    >>> small["compute"] = {"delay": {"kind": "constant", "value_s": 1.0}}
    >>> def interrupt(done, most):
    ...     if done == 2:
    ...         raise KeyboardInterrupt
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     try:
    ...         netsim.run({"name": "small", **small}, out=folder, overwrite=True, progress=interrupt)
    ...     except KeyboardInterrupt:
    ...         print(len(netsim.resume(folder).rounds))
    3
    """
    place = arguments.folder_path("folder", folder)
    limits = _limits(event_limit, wall_limit_s)
    wall = WallLimit(limits.wall_limit_s)
    if analysis.is_sweep(place):
        raise UserError(f"{folder}: holds a sweep; go on with it by sweep(scenario, out={str(folder)!r}, resume=True)")
    study, _ = read_unfinished(place)
    with name_source(str(folder)), _limit_time(wall):
        summary = written.go_on(
            place,
            script=_script_key(script),
            after_round=_after_round(study, progress),
            allow_changed_code=allow_changed_code,
            begin=lambda simulation: simulation.limit_events(limits.event_limit),
            wall=wall,
            machines=_training_machines(workers, cluster),
        )
        return _finish(summary, place)


def _make_plan(
    scenario: Source,
    script: ScriptSource | None,
    grid: Mapping[str, Sequence[object]],
    seeds: Iterable[int] | None,
    *,
    variants: Iterable[str] | None,
    strict: bool,
) -> Plan:
    """Return the plan of a sweep from the arguments of `sweep`, which are checked; warn of the cautions of its runs."""
    keys, name = _tables(scenario)
    keys |= _script_key(script)
    seed_list = None if seeds is None else arguments.list_of_values("seeds", seeds, "range(10)")
    whole_seeds = None if seed_list is None else [arguments.integer("seeds", seed) for seed in seed_list]
    grid_keys = arguments.mapping_of_keys("grid", grid, "{'policy.alpha': [1, 10]}")
    grid_lists = {key: arguments.list_of_values(f"grid[{key!r}]", values, "[1, 10]") for key, values in grid_keys.items()}
    names = None if variants is None else arguments.list_of_values("variants", variants, "['pause', 'random']")
    plain_grid = arguments.plain_data(grid_lists)
    planned = written_sweep.plan_grid(keys, name, grid=plain_grid, seeds=whole_seeds, variants=names, strict=strict)
    _warn(planned.cautions)
    return planned


def _limits(event_limit: int | None, wall_limit_s: float | None) -> Limits:
    """Check both limits, which users gave; UserError names the argument."""
    return Limits(
        event_limit=arguments.integer_or_none("event_limit", event_limit, least=1),
        wall_limit_s=arguments.seconds_or_none("wall_limit_s", wall_limit_s),
    )


def _machines(*, jobs: int | None, cluster: str | None, send_back: bool, retries: int) -> Machines:
    """Check where a sweep is to run, as users gave it; UserError names the argument."""
    return Machines(
        jobs=arguments.integer_or_none("jobs", jobs),
        cluster=arguments.text_or_none("cluster", cluster),
        send_back=send_back,
        retries=arguments.integer("retries", retries),
    )


@_public
def sweep(
    scenario: Source,
    *,
    grid: Mapping[str, Sequence[object]] | None = None,
    seeds: Iterable[int] | None = None,
    variants: Iterable[str] | None = None,
    script: ScriptSource | None = None,
    out: str | Path | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    send_back: bool = False,
    retries: int = 2,
    overwrite: bool = False,
    resume: bool = False,
    strict: bool = False,
    allow_changed_code: bool = False,
    figures: bool = True,
    tables: Iterable[str] = ("rounds",),
    event_limit: int | None = None,
    wall_limit_s: float | None = None,
    progress: Progress | None = None,
) -> Sweep:
    """Run variants of a scenario with the same seeds and return them; `grid` and `seeds` are added to its `[sweep]` table.

    `grid`: keys with lists of values, of which every combination is a variant. `variants`: of `[[sweep.variants]]` only these.
    `out` None: in memory; else the folder, with the comparison and (`figures`) the figures, as `netsim sweep` writes it;
    `resume`: complete what an earlier attempt left there. `jobs`: processes, default all cores. `cluster`: the address of a
    Dask scheduler, whose workers are used in their place, or "local:N"; its workers share the folder `out`, or with `send_back`
    their results travel back (docs/cluster.md). `retries`: how often a run is simulated again whose worker was killed.
    `tables`: of all runs, gathered in the folder `dataset`. `event_limit`: of every run; `wall_limit_s`: a run that takes
    longer fails, and the others go on. The rest as for `run`. Raises ScenarioError, a ValueError.

    >>> import netsim
    >>> small = {"rounds": 3, "clients": {"count": 4}, "server": {"per_round": 2}, "policy": {"kind": "random"}}
    >>> small["compute"] = {"delay": {"kind": "constant", "value_s": 1.0}}
    >>> runs = netsim.sweep({"name": "small", **small}, grid={"server.per_round": [1, 2]}, seeds=[1, 2], jobs=1)
    >>> [(run.variant, run.seed) for run in runs]
    [('per_round=1', 1), ('per_round=1', 2), ('per_round=2', 1), ('per_round=2', 2)]
    """
    if out is None and (resume or overwrite):
        raise UserError("resume and overwrite are about the folder of an earlier sweep; give it as out")
    machines = _machines(jobs=jobs, cluster=cluster, send_back=send_back, retries=retries)
    limits = _limits(event_limit, wall_limit_s)
    folder = None if out is None else arguments.folder_path("out", out)
    wanted = arguments.list_of_values("tables", tables, "['rounds']")
    planned = _make_plan(scenario, script, {} if grid is None else grid, seeds, variants=variants, strict=strict)
    most = sum(p.scenario.rounds for p in planned.runs)

    def tell(standing: SweepProgress) -> None:
        if progress is not None:
            progress(sum(standing.rounds), most)

    if folder is None:
        return sweep_in_memory(planned, machines=machines, limits=limits, progress=tell)
    written_sweep.sweep(
        planned,
        folder,
        machines=machines,
        earlier=Earlier(overwrite=overwrite, resume=resume, allow_changed_code=allow_changed_code),
        progress=tell,
        tables=wanted,
        limits=limits,
    )
    results = analysis.open_sweep(folder)
    add_comparison(folder, results, results.compare(), formats=("png",) if figures else ())
    _warn(written_sweep.later_cautions(planned, folder))
    return results


@_public
def fit(
    log: str | Path | pd.DataFrame,
    *,
    out: str | Path,
    by: str = "class",
    laws: Mapping[str, str] | None = None,
    deadline_s: float | None = None,
    seeds: int = 20,
    overwrite: bool = False,
) -> Fit:
    """Fit a scenario to a measured log, and check what it predicts, as `netsim fit` does (docs/fit.md).

    Args:
        log: a CSV or Parquet file, a run's folder, or a table; one row for each phase of an attempt of a client.
        out: a new or empty folder. It gets `scenario.toml`, `devices.csv`, `report.html`, and `presence.csv` if presence was
            logged.
        by: "class": clients of one class share their laws; "client": each client has its own.
        laws: a law by name for some phases, such as {"upload": "gamma"}, in place of the best one.
        deadline_s: the server's deadline, seconds; None: the longest time at which it cut an update off.
        seeds: seeds of the predictive check; 0: no check.
        overwrite: replace an earlier fit in `out`.

    Returns:
        The fit: `scenario` (its file), `estimates`, and the predictions `check` and `hold_out`.

    Raises:
        ScenarioError: a ValueError: the log cannot be read or determines no law, or the folder holds something else.

    >>> import numpy as np, pandas as pd, tempfile
    >>> rng = np.random.default_rng(1)
    >>> clients, rounds = np.arange(200) % 10, 1 + np.arange(200) // 10
    >>> log = pd.DataFrame({"client": clients, "round": rounds, "seconds": rng.gamma(3.0, 1.0, 200)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fitted = fit(log, out=folder, seeds=0)
    >>> fitted.estimates.phases["total", "all"].law.kind
    'gamma'
    """
    from scenarios.fit.fit import fit_log

    place = arguments.folder_path("out", out)
    return fit_log(log, place, by=by, laws=laws, deadline_s=deadline_s, seeds=seeds, overwrite=overwrite)


@_public
def open_run(path: str | Path) -> Run:
    """Return the run in a folder. Raises ScenarioError, a ValueError: there is none, or it is of a newer format.

    >>> import netsim, tempfile
    >>> small = {"rounds": 3, "clients": {"count": 4}, "server": {"per_round": 2}, "policy": {"kind": "random"}}
    >>> small["compute"] = {"delay": {"kind": "constant", "value_s": 1.0}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = netsim.run({"name": "small", **small}, out=folder)
    ...     print(netsim.open_run(folder).summary["rounds"])
    3
    """
    try:
        return analysis.open_run(path)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error


@_public
def open_sweep(path: str | Path) -> Sweep:
    """Return the sweep in a folder. Raises ScenarioError, a ValueError: there is none, or it is of a newer format.

    >>> import netsim, tempfile
    >>> small = {"rounds": 3, "clients": {"count": 4}, "server": {"per_round": 2}, "policy": {"kind": "random"}}
    >>> small["compute"] = {"delay": {"kind": "constant", "value_s": 1.0}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = netsim.sweep({"name": "small", **small}, seeds=[1, 2], out=folder, jobs=1, figures=False)
    ...     print(len(netsim.open_sweep(folder)))
    2
    """
    try:
        return analysis.open_sweep(path)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error


@_public
def register(group: str, name: str, target: Callable[..., Any]) -> None:
    """Let scenarios of this process say `kind = name` for a class of your own (a partition, topology or network: or a function).

    `group`: such as policy, delay, channel (`netsim list` names all). What is written of a run names the class by its module.
    Names that netsim or an installed package has are refused; one that was registered before is replaced.
    Raises ScenarioError, a ValueError.

    >>> import netsim, numpy as np
    >>> from models.policies.random import Random
    >>> class Lowest(Random):
    ...     def select(self, view):
    ...         return np.flatnonzero(view.selectable)[:2]
    >>> netsim.register("policy", "lowest", Lowest)
    >>> small = {"rounds": 3, "clients": {"count": 4}, "server": {"per_round": 2}, "policy": {"kind": "lowest"}}
    >>> small["compute"] = {"delay": {"kind": "constant", "value_s": 1.0}}
    >>> netsim.run({"name": "small", **small}).clients["client"].tolist()
    [0, 1, 0, 1, 0, 1]
    """
    groups = {group: list(shared_names(group)) for group in BUILT_IN} | {"data": list(DATASETS)}
    groups["server"] += KINDS
    if group not in groups:
        raise UserError(f"group = {group!r}: unknown; {did_you_mean(group, groups)}")
    if not isinstance(name, str) or not name.replace("-", "_").isidentifier():
        raise UserError(f"name = {name!r}: must be a word of letters, digits, '_' and '-', such as my-policy")
    if name in groups[group]:
        raise UserError(f"name = {name!r}: is the {group} of netsim, or of an installed package; choose another name")
    if not callable(target) or not hasattr(target, "__qualname__"):
        raise UserError(f"{target!r}: must be a class; give the class, not an object of it")
    if group in BUILT_IN:
        component_model(group, place_of(target))  # raises for a constructor whose arguments cannot be keys
    register_name(group, name, target)


def _tables(source: Source) -> tuple[Tables, str]:
    """Return the tables of a scenario, and its name in messages: the file, or "scenario"."""
    # Before `schema.Scenario`, of which it is a subclass: it knows the tables that it was made of.
    if isinstance(source, Scenario):
        return source.tables(), "scenario"
    if isinstance(source, schema.Scenario):
        return source.model_dump(exclude_unset=True, exclude_none=True, by_alias=True), "scenario"
    if isinstance(source, Mapping):
        return arguments.plain_data(source), "scenario"
    if isinstance(source, str | Path):
        return read_file(source), str(source)
    raise UserError(f"scenario = {source!r}: must be a file, the name of a scenario, a dictionary or a netsim.Scenario")


def _script_key(script: ScriptSource | None) -> Tables:
    """Return the key of a scenario that names a script."""
    if script is None:
        return {}
    return {"script": dict(script) if isinstance(script, Mapping) else script}


def _after_round(study: schema.Scenario, progress: Progress | None) -> Callable[[Simulation], None] | None:
    """Return the function to call after each round, which tells `progress` the rounds done; None: nobody is told."""
    if progress is None:
        return None
    return lambda simulation: progress(rounds_done(simulation, study), study.rounds)


@contextmanager
def _limit_time(wall: WallLimit) -> Iterator[None]:
    """Raise TimeoutError in place of KeyboardInterrupt where a run has reached its limit."""
    try:
        yield
    except KeyboardInterrupt as error:
        if not wall.reached:
            raise
        raise TimeoutError(str(error) if wall.reason in str(error) else f"{wall.reason}; {error}") from None


def _finish(summary: Mapping[str, object], folder: Path, *, shown: Iterable[Caution] = (), resumable: bool = True) -> Run:
    """Warn of the cautions of a finished run, except those `shown` before it, and return the run.

    Raises KeyboardInterrupt, with the remedy, if the run was interrupted.
    """
    if summary["ended"] == INTERRUPTED:
        remedy = f"to go on: netsim.resume({str(folder)!r})" if resumable else "a Flower app cannot be resumed: run it again"
        raise KeyboardInterrupt(f"after {summary['rounds']} rounds; {remedy}")
    before = set(shown)
    _warn(caution for caution in cautions_of(summary) if caution not in before)
    return analysis.open_run(folder)


def _warn(cautions: Iterable[Caution]) -> None:
    """Warn of each caution by a UserWarning."""
    for caution in cautions:
        warn_user(caution.text)
