"""Moves of runs: from one folder of a sweep to another, or from a worker that cannot reach the sweep's folder."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from netsim.records import atomic
from scenarios.runs.folders.lock import hold_lock
from scenarios.runs.folders.marker import MARKER, Marker
from scenarios.runs.folders.replacement import SUMMARY, check_run, make, open_run, writing


def sent_back(run: Path) -> dict[str, bytes]:
    """Return the files of a complete run, by their names."""
    marker = Marker.read(run)
    return {} if marker is None else {name: (run / name).read_bytes() for name in marker.present()}


def receive(out: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a complete run, which was simulated elsewhere, into its folder; raises UserError."""
    check_run(out, True, files)
    make(out)
    with hold_lock(out):
        open_run(out, files)
        # A folder without a summary is no complete run.
        with writing(out):
            for name in sorted(files, key=lambda name: name == SUMMARY):
                atomic.write(out / name, files[name])


def move_run(sweep: Path, before: str, now: str) -> bool:
    """Rename the folder of a complete run below a sweep's, `before`, if nothing is in the way at `now`; whether it could be."""
    marker = Marker.read(sweep)
    source, target = sweep / before, sweep / now
    if marker is None or before not in marker.runs or source.is_symlink() or not (source / MARKER).is_file():
        return False
    marker.claim(runs=[now])
    target.parent.mkdir(exist_ok=True)
    try:
        if target.is_dir():
            target.rmdir()
        source.rename(target)
    except OSError:  # something of the user's lies there
        return False
    with suppress(OSError):
        source.parent.rmdir()
    return True
