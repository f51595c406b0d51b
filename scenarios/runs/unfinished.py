"""Interrupted runs: the state from which they can be resumed, and reasons against it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from netsim.records.tables import check_pieces, sha256_of
from scenarios.runs.folders import checkpoint
from scenarios.runs.folders.replacement import SCENARIO, not_a_run, read_ending, read_run_marker
from scenarios.runs.reading import load
from scenarios.schema.errors import UserError
from scenarios.schema.scenario import Scenario
from scenarios.schema.section import Tables

INTERRUPTED = "interrupted"


@cache
def version() -> str:
    """Return the version of netsim. Cached, because finding it is slow."""
    return importlib.metadata.version("netsim")


def checksums(out: Path, files: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of files in the folder of a run, by name."""
    return {name: sha256_of(out / name) for name in files}


def read_unfinished(out: Path) -> tuple[Scenario, Tables | None]:
    """Return the scenario and the last checkpoint of an interrupted run; None in place of a checkpoint if there is none yet.

    Raises UserError if `out` holds no such run, or files needed to resume it were changed.
    """
    ending = read_ending(out) if out.is_dir() else None
    if ending not in (None, INTERRUPTED):
        raise UserError(f"{out}: the run has come to its end ({ending}); there is nothing to go on with")
    if not (out / SCENARIO).is_file():
        raise not_a_run(out)
    listed = read_run_marker(out).files
    # The process was killed before the first checkpoint, or the run can have none. A checkpoint that is listed, but missing after
    # an interrupt, was removed: `checkpoint.load` then raises.
    if not checkpoint.exists(out) and (ending is None or checkpoint.FILE not in listed):
        return load(str(out / SCENARIO)), None
    remedy = f"run it again: netsim run {out / SCENARIO} --out {out} --overwrite"
    try:
        state = checkpoint.load(out)
        if state["version"] != version():
            raise ValueError(f"{out}: was begun by netsim {state['version']}, this is {version()}")
        check_pieces(out, state["tables"])
    except (OSError, ValueError) as error:
        raise UserError(f"{error}; {remedy}") from error
    _check_files(out, state["files"], remedy)
    return load(str(out / SCENARIO)), state


def _check_files(out: Path, files: dict[str, str], remedy: str) -> None:
    """Raise UserError if a file that the run wrote at its beginning is missing or has changed."""
    for name, digest in files.items():
        path = out / name
        if not path.is_file():
            raise UserError(f"{path}: is missing; {remedy}")
        if sha256_of(path) == digest:
            continue
        if name == SCENARIO:
            raise UserError(f"{path}: is not the scenario that the run was begun with; undo the change, or {remedy}")
        raise UserError(f"{path}: is not as the run wrote it; {remedy}")
