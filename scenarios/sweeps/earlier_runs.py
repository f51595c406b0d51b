"""Runs that an earlier attempt of a sweep left in its folder: complete ones are kept, cut-off ones resumed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from analysis.results.sources import RunFolder, read_json
from netsim.core.protocols import Notes
from netsim.core.user_warnings import warn_user
from netsim.simulation import BY_EVENTS
from scenarios.runs.folders import checkpoint
from scenarios.runs.folders.identity import changed_files
from scenarios.runs.folders.own_code import Fingerprint, latest, refuse_changed
from scenarios.runs.folders.replacement import MANIFEST, read_beginning, read_ending, read_summary
from scenarios.runs.reading import to_toml
from scenarios.runs.unfinished import INTERRUPTED, read_unfinished, version
from scenarios.schema.errors import UserError
from scenarios.sweeps.plan import PlannedRun
from scenarios.sweeps.sequential_stopping import describe

RunState = Literal["complete", "cut off", "nothing"]
"""State of a run in its folder: complete, resumable from a checkpoint, or neither."""


@dataclass(frozen=True)
class WantedRun:
    """Run that a sweep is to have."""

    planned: PlannedRun
    id: str
    """Identity of the run (`scenarios.runs.folders.identity`)."""
    code: Fingerprint
    """Fingerprint of the user's own code for the run."""


def read_manifest(folder: Path) -> Notes:
    """Return the content of `sweep.json`, the list of a sweep's runs; empty if there is no readable one."""
    try:
        return read_json(folder / MANIFEST, "the list of a sweep's runs")
    except (OSError, ValueError):
        return {}


def progress_of(folder: Path) -> tuple[int, int]:
    """Return two numbers: the complete runs of a sweep, and all its runs."""
    content = read_manifest(folder)
    complete = len(content.get("runs", ()))
    return complete, complete + len(content.get("missing", ()))


def stopping_lines(folder: Path) -> list[str]:
    """Return lines of text on the seeds that `sweep.until` added to a sweep; none if the sweep adds no seeds."""
    entry = read_manifest(folder).get("until")
    return [] if entry is None else describe(entry)


def find_renamed_runs(wanted: Mapping[int, WantedRun], folder: Path) -> dict[int, str]:
    """Find wanted runs that are complete under the name of another variant. Return their present paths, by number.

    A run counts if `sweep.json` lists its identity, and the folder listed there holds it, undamaged.
    """
    entries = read_manifest(folder).get("runs")
    path_of_id: dict[str, str] = {}
    for entry in entries if isinstance(entries, list) else []:
        # A user may have edited the file, so each entry is checked.
        if isinstance(entry, dict) and isinstance(entry.get("id"), str) and isinstance(entry.get("path"), str):
            path_of_id[entry["id"]] = entry["path"]
    renamed = {}
    for index, run in wanted.items():
        path = path_of_id.get(run.id)
        if path is not None and _complete_run_id(folder / path) == run.id:
            renamed[index] = path
    return renamed


def _complete_run_id(out: Path) -> str | None:
    """Return the identity of a finished run; None if it cannot be read, is damaged, or was cut short by a limit of events.

    What is left of an interrupted run has no summary to read.
    """
    try:
        content = read_summary(out)
    except UserError:
        return None
    if RunFolder(out).find_damages():
        return None
    return None if content["ended"] == BY_EVENTS else content.get("run_id")


def find_state(wanted: WantedRun, folder: Path, *, allow_changed_code: bool, event_limit: int | None = None) -> RunState:
    """Return the state of a wanted run in the folder of its sweep.

    `event_limit`: limit of events of this attempt. With a limit, now or before, a run is complete only if it came to its own end.
    Otherwise it is simulated again, because its number of events is not stored.

    Raises ChangedError if the run is complete or cut off, but was simulated by another version of netsim, or with other code of
    the user's (with `allow_changed_code` that is a warning). Raises UserError if it is damaged.
    """
    out = folder / wanted.planned.path
    if read_beginning(out) != to_toml(wanted.planned.scenario):
        return "nothing"
    ending = read_ending(out)
    if ending in (None, INTERRUPTED):
        if not checkpoint.exists(out) or event_limit is not None:
            return "nothing"
        _, state = read_unfinished(out)
        if state is not None and changed_files(state, wanted.planned.scenario):
            return "nothing"
        earlier_code = latest([] if state is None else state["own_code"])
        _refuse_changed_code(out, earlier_code, wanted.code, allow=allow_changed_code)
        return "cut off"
    content = read_summary(out)
    if ending == BY_EVENTS or not content.get("books", {}).get("balanced", True):
        return "nothing"
    if content.get("run_id") == wanted.id:
        return _complete_if_undamaged(out)
    earlier_version = content.get("versions", {}).get("netsim")
    if earlier_version != version():
        reason = f"was simulated by netsim {earlier_version}, this is {version()}"
        raise ChangedError(f"{out}: {reason}; name another folder, or give --overwrite")
    earlier_code = latest(content.get("own_code", []))
    _refuse_changed_code(out, earlier_code, wanted.code, allow=allow_changed_code)
    # The identity differs, but not the scenario and the version. With equal code, a file that the scenario names has changed, so
    # that the run is simulated again. A run without identity was simulated by two versions of the user's code, which was allowed.
    files_changed = content.get("run_id") is not None and earlier_code == wanted.code
    return "nothing" if files_changed else _complete_if_undamaged(out)


def _complete_if_undamaged(out: Path) -> RunState:
    """Return "complete"; raise UserError with all damages of the run's files, if there are any."""
    damages = RunFolder(out).find_damages()
    if damages:
        raise UserError("\n".join(damages))
    return "complete"


class ChangedError(UserError):
    """Error: a run in the folder was simulated by another version of netsim or with other code of the user's."""


def _refuse_changed_code(out: Path, earlier: Fingerprint, present: Fingerprint, *, allow: bool) -> None:
    """Raise ChangedError if the user's code differs from that of the earlier attempt; with `allow` warn instead."""
    try:
        refuse_changed(str(out), earlier, present)
    except UserError as error:
        if not allow:
            raise ChangedError(str(error)) from error
        warn_user(f"{error} (allowed: this sweep mixes them)")


def find_states(
    wanted: Mapping[int, WantedRun],
    folder: Path,
    *,
    allow_changed_code: bool,
    damaged: Callable[[int, str], None],
    event_limit: int | None = None,
) -> dict[int, RunState]:
    """Return the result of `find_state` for every wanted run, by number. Nothing on disk is changed.

    Damaged runs are left out: `damaged(number, message)` is called for each. Of the warnings, which are alike, only the first is
    passed on. Raises ChangedError.
    """
    states: dict[int, RunState] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for index, run in wanted.items():
            try:
                states[index] = find_state(run, folder, allow_changed_code=allow_changed_code, event_limit=event_limit)
            except ChangedError:
                raise
            except UserError as error:
                damaged(index, str(error))
    if caught:
        warn_user(str(caught[0].message))
    return states
