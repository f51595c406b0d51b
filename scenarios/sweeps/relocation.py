"""Moves of runs: from one folder of a sweep to another, or from a worker that cannot reach the sweep's folder."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from netsim.records import atomic
from scenarios.runs.folders.lock import hold_lock
from scenarios.runs.folders.marker import MARKER, Marker
from scenarios.runs.folders.replacement import SUMMARY, check_run, make, open_run, writing


def read_run_files(run: Path) -> dict[str, bytes]:
    """Return the contents of the files of a complete run, by name."""
    marker = Marker.read(run)
    return {} if marker is None else {name: (run / name).read_bytes() for name in marker.present()}


def write_run_files(out: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a complete run, which was simulated elsewhere, into its folder `out`; raises UserError."""
    check_run(out, True, files)
    make(out)
    with hold_lock(out):
        open_run(out, files)
        # The summary is written last, because a folder without a summary is not a complete run.
        with writing(out):
            for name in sorted(files, key=lambda name: name == SUMMARY):
                atomic.write(out / name, files[name])


def move_run(sweep: Path, path: str, new_path: str) -> bool:
    """Move the folder of a complete run from `path` to `new_path`, both below the folder of its sweep.

    Return False if it stays where it is: `path` is not a run of the sweep, or something else lies at `new_path`.
    """
    marker = Marker.read(sweep)
    source, target = sweep / path, sweep / new_path
    if marker is None or path not in marker.runs or source.is_symlink() or not (source / MARKER).is_file():
        return False
    marker.claim(runs=[new_path])
    target.parent.mkdir(exist_ok=True)
    try:
        if target.is_dir():
            target.rmdir()  # fails unless it is empty
        source.rename(target)
    except OSError:  # something of the user's lies there
        return False
    with suppress(OSError):
        source.parent.rmdir()  # the folder of the variant, if this was its last run
    return True
