"""Runs of an earlier attempt of a sweep that need not be simulated again."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from analysis.results.sources import RunFolder, read_json
from netsim.core.protocols import Notes
from netsim.simulation import BY_EVENTS
from scenarios.runs.folders import checkpoint
from scenarios.runs.folders.identity import changed_files
from scenarios.runs.folders.own_code import Fingerprint, latest, refuse_changed
from scenarios.runs.folders.replacement import MANIFEST, read_beginning, read_ending, read_summary
from scenarios.runs.reading import to_toml
from scenarios.runs.unfinished import INTERRUPTED, read_unfinished, version
from scenarios.schema.errors import UserError
from scenarios.sweeps.plan import Planned
from scenarios.sweeps.sequential_stopping import describe

Found = Literal["complete", "cut off", "nothing"]
"""State of a run in its folder: complete, resumable from a checkpoint, or neither."""


@dataclass(frozen=True)
class WantedRun:
    """A run of a sweep, its identity, and the fingerprint of the user's own code for it."""

    planned: Planned
    id: str
    code: Fingerprint


def read_manifest(folder: Path) -> Notes:
    """Return the content of the list of a sweep's runs; empty if there is no readable one."""
    try:
        return read_json(folder / MANIFEST, "the list of a sweep's runs")
    except (OSError, ValueError):
        return {}


def progress_of(folder: Path) -> tuple[int, int]:
    """Return the number of complete runs of a sweep and the number of its runs."""
    content = read_manifest(folder)
    complete = len(content.get("runs", ()))
    return complete, complete + len(content.get("missing", ()))


def told_until(folder: Path) -> list[str]:
    """Return lines on the seeds that a sweep added; none if it adds no seeds."""
    noted = read_manifest(folder).get("until")
    return [] if noted is None else describe(noted)


def find_under_other_variants(wanted: Mapping[int, WantedRun], folder: Path) -> dict[int, str]:
    """Return by wanted number the path at which the same run lies, complete, under the name of another variant."""
    entries = read_manifest(folder).get("runs")
    path_of_id = {
        entry["id"]: entry["path"]
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict) and isinstance(entry.get("id"), str) and isinstance(entry.get("path"), str)
    }
    return {
        index: path_of_id[run.id]
        for index, run in wanted.items()
        if run.id in path_of_id and _complete_run_id(folder / path_of_id[run.id]) == run.id
    }


def _complete_run_id(out: Path) -> str | None:
    """Return the identity of a run that can be read, and that no limit of events cut short."""
    try:
        content = read_summary(out)
    except UserError:
        return None
    if RunFolder(out).find_damages():
        return None
    return None if content["ended"] == BY_EVENTS else content.get("run_id")


def look(wanted: WantedRun, folder: Path, *, allow_changed_code: bool, event_limit: int | None = None) -> Found:
    """Return the state of a run in `folder`.

    A run with a limit of events, now or before, is complete only if it came to its own end; otherwise it is simulated again,
    because its number of events is not stored.

    Raises ChangedError where it is complete, or can go on, but was simulated with other code of the user's (unless
    `allow_changed_code`, then it warns) or by another version of netsim; UserError where it is damaged.
    """
    out = folder / wanted.planned.path
    if read_beginning(out) != to_toml(wanted.planned.scenario):
        return "nothing"
    how = read_ending(out)
    if how in (None, INTERRUPTED):
        if not checkpoint.exists(out) or event_limit is not None:
            return "nothing"
        _, state = read_unfinished(out)
        if state is not None and changed_files(state, wanted.planned.scenario):
            return "nothing"
        _refuse_code(out, latest([] if state is None else state["own_code"]), wanted.code, allow_changed_code)
        return "cut off"
    content = read_summary(out)
    if how == BY_EVENTS or not content.get("books", {}).get("balanced", True):
        return "nothing"
    if content.get("run_id") == wanted.id:
        return _find_damage(out)
    by = content.get("versions", {}).get("netsim")
    if by != version():
        raise ChangedError(f"{out}: was simulated by netsim {by}, this is {version()}; name another folder, or give --overwrite")
    noted = content.get("own_code", [])
    _refuse_code(out, latest(noted), wanted.code, allow_changed_code)
    # What is left are files that the scenario names; a run that is of two versions of the code has no identity.
    return "nothing" if content.get("run_id") is not None and latest(noted) == wanted.code else _find_damage(out)


def _find_damage(out: Path) -> Found:
    damages = RunFolder(out).find_damages()
    if damages:
        raise UserError("\n".join(damages))
    return "complete"


class ChangedError(UserError):
    """Error: a folder holds runs that do not belong to the sweep."""


def _refuse_code(out: Path, before: Fingerprint, now: Fingerprint, allow: bool) -> None:
    try:
        refuse_changed(str(out), before, now)
    except UserError as error:
        if not allow:
            raise ChangedError(str(error)) from error
        warnings.warn(f"{error} (allowed: this sweep mixes them)", stacklevel=2)


def look_at_all(
    wanted: Mapping[int, WantedRun],
    folder: Path,
    *,
    allow_changed_code: bool,
    damaged: Callable[[int, str], None],
    event_limit: int | None = None,
) -> dict[int, Found]:
    """Return the result of `look` for every run, by number. Unreadable runs are left out and reported to `damaged`."""
    states: dict[int, Found] = {}
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        for index, w in wanted.items():
            try:
                states[index] = look(w, folder, allow_changed_code=allow_changed_code, event_limit=event_limit)
            except ChangedError:
                raise
            except UserError as error:
                damaged(index, str(error))
    if noted:  # one example is enough
        warnings.warn(str(noted[0].message), stacklevel=2)
    return states
