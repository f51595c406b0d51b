"""Folders of results: checks what may be replaced before anything is written, and replaces it only then."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from analysis.results.checksums import add_checksum
from analysis.results.sources import read_json
from netsim.core.protocols import Notes
from netsim.records import atomic
from scenarios.runs.folders import checkpoint
from scenarios.runs.folders.marker import MARKER, Marker
from scenarios.schema.errors import UserError

SCENARIO = "scenario.toml"
SUMMARY = "summary.json"
MANIFEST = "sweep.json"
FAILURES = "failures.json"
DATASET = "dataset"
_EARLIER = f"of a version of netsim that left no list of its files ({MARKER}), so that these cannot be told from yours"
_REMEDY = "remove it, and go on with the run or run it again: netsim resume {0}"


@contextmanager
def writing(out: Path, kind: str = "folder") -> Iterator[None]:
    """Turn an OSError of the block, which writes to `out`, into a UserError. `kind`: "folder" or "file", for the remedy."""
    try:
        yield
    except OSError as error:
        raise UserError(f"--out {str(out)!r}: cannot be written ({error.strerror or error}); name another {kind}") from error


def check_place(out: Path) -> None:
    """Raise UserError unless `out` is a folder that can be written, or could be made one; writes nothing."""
    if "\0" in str(out) or not _has_utf8_name(str(out.absolute())):
        raise UserError(f"--out {str(out)!r}: tables can be written to folders only whose names are UTF-8; name another folder")
    existing = out
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        raise UserError(f"--out {str(out)!r}: {existing} is a file; name a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"--out {str(out)!r}: {existing} cannot be written (permission denied); name another folder")


def _has_utf8_name(name: str) -> bool:
    """Return True if a name can be written in UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _names(folder: Path) -> set[str]:
    """Return the names in a folder, without the temporary file that a killed process may leave."""
    if not folder.is_dir():
        return set()
    return {entry.name for entry in folder.iterdir()} - {atomic.temporary(folder / MARKER).name}


def _read_marker(out: Path) -> Marker | None:
    """Return the marker in `out`, or None for a new or an empty folder; raises UserError for a folder with other files."""
    with writing(out):
        check_place(out)
        names = _names(out)
    marker = Marker.read(out)
    if marker is not None or not names:
        return marker
    if MANIFEST in names:
        problem = f"holds a sweep {_EARLIER}"
    elif {SCENARIO, "rounds.parquet"} <= names:
        problem = f"holds a run {_EARLIER}"
    else:
        problem = "is a folder with other things in it"
    raise UserError(f"--out {str(out)!r}: {problem}; name a new or an empty folder")


def check_run(out: Path, overwrite: bool, files: Iterable[str] = ()) -> None:
    """Raise UserError unless a run may write `files` into the folder `out`.

    It may if the folder does not exist, is empty, or holds an earlier run and `overwrite` is True.
    """
    marker = _read_marker(out)
    if marker is None:  # new or empty
        return
    if marker.kind != "run":
        raise UserError(f"--out {str(out)!r}: holds a sweep; name a new or an empty folder")
    present = marker.present()
    if present and not overwrite:
        resume_text = f", or go on with it: netsim resume {out}" if checkpoint.exists(out) else ""
        raise UserError(
            f"--out {str(out)!r}: already holds a run ({', '.join(present)}); give --overwrite or another folder{resume_text}"
        )
    marker.check()
    marker.check_free(files)


def make(out: Path) -> None:
    """Make a folder, and those above it; raises UserError."""
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)


def open_run(out: Path, files: Iterable[str]) -> Marker:
    """Remove the files of an earlier run from `out`, list `files` as those of the new run, and return the marker."""
    with writing(out):
        marker = Marker.read(out) or Marker(out, "run")
        marker.remove()
        marker.claim(files)
    return marker


def not_a_run(folder: Path) -> UserError:
    """Return the error of a folder that should hold a run, with the folder to name."""
    remedy = "name one that netsim run has left" if folder.is_dir() else "there is no such folder"
    if (folder / MANIFEST).is_file():
        remedy = f"this is a sweep: name one of its runs, as {folder}/VARIANT/seed-SEED"
    return UserError(f"{folder}: is not the folder of a run; {remedy}")


def read_run_marker(out: Path) -> Marker:
    """Return the marker of a run that is resumed in `out`.

    Raises:
        UserError: no marker, that of a sweep, or a file that it lists is a link or no plain file.
    """
    marker = Marker.read(out)
    if marker is not None and marker.kind != "run":
        raise not_a_run(out)
    if marker is None:
        raise UserError(f"{out}: holds a run {_EARLIER}; run it again: netsim run {out / SCENARIO} --out FOLDER")
    marker.check()
    return marker


def check_sweep(out: Path, overwrite: bool, runs: Iterable[str] = ()) -> None:
    """Raise UserError unless a sweep may go to `out`: a new or an empty folder or, with `overwrite`, that of an earlier sweep.

    `runs`: the folders below `out` that its runs go to.
    """
    marker = _read_marker(out)
    if marker is None:
        return
    if marker.kind != "sweep":
        raise UserError(f"--out {str(out)!r}: holds a run; name a new or an empty folder")
    if not overwrite:
        raise UserError(f"--out {str(out)!r}: already holds a sweep; give --overwrite or another folder")
    marker.check()
    marker.check_free([], runs)
    for run in dict.fromkeys([*marker.runs, *runs]):
        _check_run_of_sweep(out, out / run)


def _check_run_of_sweep(out: Path, run: Path) -> None:
    """Raise UserError unless a run of a sweep may go to the folder `run`."""
    if not _names(run):
        return
    marker = Marker.read(run)
    if marker is None or marker.kind != "run" or set(marker.foreign()) - {"report"}:
        raise UserError(f"--out {str(out)!r}: {run} holds other things than a run; name another folder")
    marker.check()


def clear_sweep(out: Path, manifest: Notes, runs: Iterable[str]) -> None:
    """Remove the runs, figures and tables of an earlier sweep from `out`, and write the manifest of the new one."""
    with writing(out):
        marker = Marker.read(out) or Marker(out, "sweep")
        for name in marker.runs:
            _remove_run(out / name)
        marker.runs = []
        marker.remove()
        marker.claim([MANIFEST], runs)
        write_manifest(out, manifest)


def extend_sweep(out: Path, runs: Iterable[str]) -> None:
    """List further runs in the marker of a sweep that goes on."""
    marker = Marker.read(out)
    if marker is not None:
        with writing(out):
            marker.claim([MANIFEST], runs)


def _remove_run(run: Path) -> None:
    """Remove the files of a run of an earlier sweep, and its folders if they are then empty."""
    marker = Marker.read(run)
    if marker is None:
        return
    marker.remove()
    (run / MARKER).unlink()
    for folder in (run, run.parent):
        with suppress(OSError):  # not empty: it holds files of the user, or another run
            folder.rmdir()


def write_manifest(out: Path, manifest: Notes) -> None:
    """Write the list of a sweep's runs in one step, so that no reader sees half of it."""
    with writing(out):
        write_json(out / MANIFEST, manifest)


def write_json(path: Path, content: Notes) -> None:
    """Put `content`, with a checksum of itself, into a file in one step; raises OSError."""
    atomic.write(path, (json.dumps(add_checksum(content), indent=2) + "\n").encode())


def add_files(out: Path, source_folder: Path) -> list[Path]:
    """Move the files below `source_folder` to the same places below `out`. Only netsim's own files are replaced.

    Returns their new paths. Raises UserError.
    """
    files = sorted(path.relative_to(source_folder) for path in source_folder.rglob("*") if path.is_file())
    marker = Marker.read(out)
    if marker is None:
        raise UserError(f"{out}: holds results {_EARLIER}; name a place elsewhere with --out")
    with writing(out):
        marker.check()
        marker.claim(file.as_posix() for file in files)
        for file in files:
            (out / file).parent.mkdir(exist_ok=True)
            with (source_folder / file).open("rb") as source, atomic.open_replacement(out / file) as target:
                shutil.copyfileobj(source, target)
    return [out / file for file in files]


def read_summary(run: Path) -> Notes:
    """Return the summary of the run in a folder; raises UserError if it cannot be read."""
    try:
        return read_json(run / SUMMARY, "a run's summary")
    except ValueError as error:
        raise UserError(f"{error}; {_REMEDY.format(run)}") from error


def read_ending(run: Path) -> str | None:
    """Return how the run in a folder ended, or None if it has not; raises UserError if the summary cannot be read."""
    if not os.path.lexists(run / SUMMARY):
        return None
    ending = read_summary(run).get("ended")
    if not isinstance(ending, str):
        raise UserError(f"{run / SUMMARY}: does not say how the run ended; {_REMEDY.format(run)}")
    return ending


def read_beginning(run: Path) -> str | None:
    """Return the text of the scenario of the run in a folder; None if no run has begun there."""
    try:
        return (run / SCENARIO).read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"{run / SCENARIO}: cannot be read ({error.strerror or error}); remove {run}, or name another") from error
