"""Many runs of one scenario: variants and grids of keys, each with the same seeds, so that differences are paired."""

from __future__ import annotations

import itertools
import math
import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from netsim.simulation import Simulation
from scenarios.build.simulation import build
from scenarios.registry.in_process import named_in_text, refuse_unnamed
from scenarios.runs import checkpoint
from scenarios.runs.folders import (
    MANIFEST,
    begun,
    check_sweep,
    ended,
    extend_sweep,
    make,
    open_sweep,
    read_summary,
    write_manifest,
)
from scenarios.runs.interrupts import StopRequest, stop_requests
from scenarios.runs.lock import locked
from scenarios.runs.marker import MARKER, Marker
from scenarios.runs.own_code import Fingerprint, latest, own_code, refuse_changed
from scenarios.runs.reading import override, parse, to_toml
from scenarios.runs.run import go_on, run
from scenarios.runs.unfinished import INTERRUPTED, noted_code
from scenarios.schema.cautions import Caution, cautions_of
from scenarios.schema.errors import UserError, did_you_mean, located
from scenarios.schema.scenario import Scenario

MOST_VARIANTS = 1000
_STOP = -1
"""Where in the file of counts the wish to stop stands."""
_TAKEN = ("figures", "report", "comparison.parquet", MANIFEST, MARKER)


@dataclass(frozen=True)
class Planned:
    """One run of a sweep."""

    variant: str
    label: str
    seed: int
    scenario: Scenario

    @property
    def path(self) -> str:
        """Its folder below the sweep's."""
        return f"{self.variant}/seed-{self.seed}"


@dataclass(frozen=True)
class Plan:
    """All runs of a sweep, checked before any of them begins."""

    name: str
    runs: list[Planned]
    baseline: str
    target_accuracy: float | None
    smoothing_s: float = 0.0
    cautions: dict[Caution, list[str]] = field(default_factory=dict)
    """What is warned of before any run begins, and which variants it is about."""

    @property
    def variants(self) -> list[str]:
        """The names of all variants, in order."""
        return list(dict.fromkeys(p.variant for p in self.runs))


def plan(tables: Mapping[str, Any], source: str, *, strict: bool = False) -> Plan:
    """The runs that the `[sweep]` table asks for; raises UserError for any wrong key of any variant.

    With `strict` also for whatever is only warned of, in any run: what is drawn from a seed may give rise to a warning, too.
    """
    base = parse(tables, source)
    named = _variants(base, source)
    section = base.sweep
    baseline = section.baseline or next(iter(named))
    if baseline not in named:
        raise UserError(f"{source}: sweep.baseline = {baseline!r}: no such variant; {did_you_mean(baseline, named)}")
    seeds = section.seeds or [base.seed]
    if len(set(seeds)) < len(seeds):
        raise UserError(f"{source}: sweep.seeds = {seeds}: names a seed twice; give each once")
    without = {key: value for key, value in tables.items() if key != "sweep"}
    runs = []
    cautions: dict[Caution, list[str]] = {}
    for name, (label, changes) in named.items():
        place = f"{source} (variant {name})" if len(named) > 1 else source
        with located(place):
            changed_tables = override(without, changes)
        changed = parse(changed_tables, place)
        with located(place):
            for caution in build(changed, learner=False, strict=strict).cautions:
                cautions.setdefault(caution, []).append(name)
        planned = [Planned(name, label, seed, changed.model_copy(update={"seed": seed})) for seed in seeds]
        for p in planned if strict else ():
            with located(f"{place}, seed {p.seed}"):
                build(p.scenario, learner=False, strict=True)
        runs += planned
    return Plan(base.name, runs, baseline, section.target_accuracy, section.smoothing_s, cautions)


def _variants(base: Scenario, source: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Every variant's label and the keys it changes, by its name."""
    section = base.sweep
    variants = [(v.name, v.label or v.name, dict(v.set)) for v in section.variants] or [("", "", {})]
    short = _short(list(section.grid))
    values = [[(key, value, _word(value, i)) for i, value in enumerate(values)] for key, values in section.grid.items()]
    number = math.prod([len(variants), *map(len, section.grid.values())])
    if number > MOST_VARIANTS:
        raise UserError(f"{source}: sweep.grid: makes {number:,} variants; at most {MOST_VARIANTS:,} are allowed")
    named: dict[str, tuple[str, dict[str, Any]]] = {}
    labels: dict[str, str] = {}
    for (name, label, changes), setting in itertools.product(variants, itertools.product(*values)):
        suffix = [f"{short[key]}={word}" for key, _, word in setting]
        full_name = "+".join([*([name] if name else []), *suffix]) or _word(base.method.kind, 0)
        full_label = ", ".join([*([label] if label else []), *suffix]) or base.method.kind
        if full_name in named:
            raise UserError(f"{source}: sweep: two variants are named {full_name!r}; give each its own name, each value once")
        if full_name in _TAKEN:
            raise UserError(f"{source}: sweep.variants: {full_name!r} is taken by a file of the sweep; rename the variant")
        if full_label in labels:
            both = f"{labels[full_label]} and {full_name}"
            raise UserError(f"{source}: sweep.variants: {both} have the same label {full_label!r}; tell them apart")
        changes = changes | {key: value for key, value, _ in setting}
        shared = [key for key in changes if key.split(".")[0] in ("seed", "sweep")]
        if shared:
            raise UserError(f"{source}: sweep: variant {full_name!r} sets {shared[0]}, which all share; set it outside of it")
        named[full_name] = (full_label, changes)
        labels[full_label] = full_name
    return named


def _short(keys: list[str]) -> dict[str, str]:
    """Each key by its last word where that is enough to tell it from the others, else in full."""
    last = [key.rsplit(".", 1)[-1] for key in keys]
    return {key: name if last.count(name) == 1 else key for key, name in zip(keys, last, strict=True)}


def _word(value: Any, position: int) -> str:
    """A value within a folder's name; one that is no short word goes by its position in the list."""
    named = str(named_in_text(value)).rpartition(":")[2]
    text = "".join(c if (c.isascii() and c.isalnum()) or c in ".-" else "_" for c in (named if callable(value) else str(value)))
    return text if not isinstance(value, dict | list) and len(text) <= 40 else f"no{position + 1}"


def with_grid(tables: Mapping[str, Any], grid: Mapping[str, list[Any]], seeds: list[int] | None) -> dict[str, Any]:
    """A scenario's tables with more keys in the sweep's grid, and other seeds."""
    changes: dict[str, Any] = {}
    if grid:
        table = tables.get("sweep", {})
        before = table.get("grid", {}) if isinstance(table, dict) else {}
        changes["sweep.grid"] = {**before, **grid} if isinstance(before, dict) else grid
    if seeds is not None:
        changes["sweep.seeds"] = seeds
    return override(tables, changes)


def sweep(
    planned: Plan,
    out: str | Path,
    *,
    overwrite: bool = False,
    resume: bool = False,
    jobs: int | None = None,
    progress: Callable[[list[int]], None] | None = None,
    allow_changed_code: bool = False,
) -> Path:
    """Run all runs of a plan on `jobs` processes (default: all cores) into folders below `out`; returns `out`.

    `resume`: runs of an earlier attempt that are complete stay as they are, those cut off go on from their last checkpoint.
    Where the code of the user's own components is another than theirs, that is refused, unless `allow_changed_code`.
    A run that goes wrong by a mistake of the user's, such as in a component of the user's own, keeps no other from its end; it is
    told when all have ended. `progress` is called some times a second with the rounds done of every run. Interrupted
    (KeyboardInterrupt), the sweep keeps the runs that are complete, and `sweep.json` lists these. Raises UserError: before any
    run with nothing written and nothing deleted, for whatever the user can fix.
    """
    from joblib import Parallel, delayed

    folder = Path(out)
    workers = Parallel(n_jobs=min(jobs or os.cpu_count() or 1, len(planned.runs)))
    paths = [p.path for p in planned.runs]
    for p in planned.runs:
        refuse_unnamed(p.scenario.model_dump(exclude_none=True, by_alias=True))
    check_sweep(folder, overwrite or resume, paths)
    # What a scenario trains is built once before anything is replaced; the rest was built as the sweep was planned.
    workers(delayed(_try)(p) for p in _learners(planned.runs))
    make(folder)
    with locked(folder):
        check_sweep(folder, overwrite or resume, paths)  # another process may have begun a sweep there since
        code = [own_code(p.scenario) for p in planned.runs]
        if resume:
            _check_code(planned.runs, code, folder, allow_changed_code)
        if resume and Marker.read(folder) is not None:
            extend_sweep(folder, paths)
        else:
            open_sweep(folder, _manifest(planned, []), paths)
        with stop_requests() as stop, counting(len(planned.runs), progress, stop) as counts_file:
            try:
                failed = workers(
                    delayed(_simulate)(p, folder / p.path, counts_file, i, resume, code[i]) for i, p in enumerate(planned.runs)
                )
            finally:
                write_manifest(folder, _manifest(planned, complete(planned, folder)))
            stopped = bool(open_counts(counts_file)[_STOP])
    if stopped:
        raise KeyboardInterrupt
    refuse_failed(failed, f"the others are complete: {folder}")
    return folder


def refuse_failed(failed: Iterable[str | None], others: str) -> None:
    """Raise UserError where runs have failed, with what each says; `others`: what became of those that have not."""
    told = [text for text in failed if text is not None]
    if told:
        raise UserError("\n".join([*told, f"{len(told)} {'run' if len(told) == 1 else 'runs'} failed; {others}"]))


def later_cautions(planned: Plan, folder: Path) -> dict[Caution, list[str]]:
    """What the complete runs of a sweep were warned of that the plan did not know, and which runs it is about."""
    found: dict[Caution, list[str]] = {}
    for p in complete(planned, folder):
        for caution in cautions_of(read_summary(folder / p.path)):
            if caution not in planned.cautions:
                found.setdefault(caution, []).append(p.path)
    return found


def complete(planned: Plan, folder: Path) -> list[Planned]:
    """The runs of a sweep that have ended otherwise than by an interrupt, and whose summaries can be read."""
    return [p for p in planned.runs if _is_complete(folder / p.path)]


def _is_complete(run: Path) -> bool:
    try:
        return ended(run) not in (None, INTERRUPTED)
    except UserError:
        return False


@contextmanager
def counting(runs: int, progress: Callable[[list[int]], None] | None, stop: StopRequest) -> Iterator[str]:
    """A file with a number for each run, which the runs' processes write and `progress` is told of, and one that stops them."""
    with tempfile.TemporaryDirectory(prefix="netsim-") as scratch:
        file = str(Path(scratch) / "rounds")
        counts = np.memmap(file, np.int64, "w+", shape=(runs + 1,))
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.2):
                if stop.asked:
                    counts[_STOP] = 1
                if progress is not None:
                    progress(counts[:_STOP].tolist())

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield file
        finally:
            over.set()
            watcher.join()
            if progress is not None:
                progress(counts[:_STOP].tolist())


def open_counts(file: str) -> Any:
    """The rounds done of every run, as `counting` shows them, to be written by whoever runs one."""
    return np.memmap(file, np.int64, "r+")


def _learners(runs: Iterable[Planned]) -> list[Planned]:
    """One run for each learner that the runs of a sweep train."""
    different: dict[str, Planned] = {}
    for p in runs:
        if p.scenario.learner is not None:
            different.setdefault(repr((p.scenario.learner, p.scenario.privacy, p.scenario.clients)), p)
    return list(different.values())


def _try(planned: Planned) -> None:
    with located(f"variant {planned.variant}"):
        build(planned.scenario)


def _simulate(planned: Planned, out: Path, counts_file: str, index: int, resume: bool, code: Fingerprint) -> str | None:
    """Run one of them; what went wrong by a mistake of the user's, if anything did."""
    counts = open_counts(counts_file)
    if counts[_STOP]:
        return None
    where = f"variant {planned.variant}, seed {planned.seed}"
    try:
        same = resume and _begun(planned, out)
        if same and ended(out) not in (None, INTERRUPTED):
            counts[index] = planned.scenario.rounds
            return None
    except UserError as error:
        return f"{where}: {error}"

    def count(simulation: Simulation) -> None:
        counts[index] = simulation.server.round
        if counts[_STOP]:
            raise KeyboardInterrupt

    with located(where):
        # Processes import the code one after the other, and keep what they have imported.
        refuse_changed("while the sweep was under way", code, own_code(planned.scenario))
    try:
        if same and checkpoint.exists(out):
            # Whether the code of the attempt before may be another was asked before any run began.
            summary = go_on(out, after_round=count, allow_changed_code=True)
        else:
            summary = run(planned.scenario, out, overwrite=True, after_round=count)
    except UserError as error:
        return f"{where}: {error}"
    except KeyboardInterrupt:
        counts[_STOP] = 1
        return None
    if summary["ended"] == INTERRUPTED:
        counts[_STOP] = 1
    return None


def _begun(planned: Planned, out: Path) -> bool:
    """Whether what is in `out` is of the same scenario."""
    return begun(out) == to_toml(planned.scenario)


def _check_code(runs: list[Planned], code: list[Fingerprint], folder: Path, allow: bool) -> None:
    """Raise UserError, or with `allow` warn, where runs of an earlier attempt that will stay used other code of the user's."""
    for p, now in zip(runs, code, strict=True):
        out = folder / p.path
        try:
            # A run that is simulated again from the start uses the present code only.
            if not _begun(p, out) or (ended(out) in (None, INTERRUPTED) and not checkpoint.exists(out)):
                continue
            before = latest(noted_code(out))
        except UserError:
            continue  # what is damaged is told as it is to go on
        try:
            refuse_changed(str(out), before, now)
        except UserError as error:
            if not allow:
                raise
            warnings.warn(f"{error} (allowed: this sweep mixes them)", stacklevel=3)
            return


def _manifest(planned: Plan, runs: list[Planned]) -> dict[str, Any]:
    done = {p.path for p in runs}
    return {
        "format": 1,
        "name": planned.name,
        "baseline": planned.baseline,
        "target_accuracy": planned.target_accuracy,
        "smoothing_s": planned.smoothing_s,
        "runs": [{"variant": p.variant, "label": p.label, "seed": p.seed, "path": p.path} for p in runs],
        "missing": [{"variant": p.variant, "label": p.label, "seed": p.seed} for p in planned.runs if p.path not in done],
    }
