"""Ends of runs that the user or a failing file stops: they leave a resumable run, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from netsim.records import atomic
from scenarios.runs.folders.marker import MARKER, Marker
from scenarios.runs.folders.replacement import SCENARIO, make
from scenarios.schema.errors import UserError


@contextmanager
def make_folder(out: Path) -> Iterator[None]:
    """Create a folder and its parents for the block; after it, remove those new folders that are still empty."""
    new = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        make(out)
        yield
    finally:
        for folder in new:
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def report_state(out: Path) -> Iterator[None]:
    """Say how to go on if the user stops the run in `out`, or a file of it cannot be written, within the block.

    An OSError becomes a UserError, and a KeyboardInterrupt without a text gets one. With these, and with a UserError, what is
    left of a run that cannot be resumed is removed.
    """
    try:
        yield
    except OSError as error:
        inside = error.filename is None or Path(str(error.filename)).is_relative_to(out)
        reason = error.strerror or error
        message = f"{out}: cannot be written ({reason})" if inside else f"{error.filename}: {reason}"
        raise UserError(f"{message}; make room, or put right what is wrong there, and then: {_clear_or_resume(out)}") from error
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(str(error) or f"to go on: {_clear_or_resume(out)}") from None
    except UserError:
        _clear_or_resume(out)  # removes a run that has not begun
        raise


def _clear_or_resume(out: Path) -> str:
    """Remove the files of a run that has not begun; return how to go on: by `netsim resume`, or by running it again."""
    if (out / SCENARIO).is_file():
        return f"netsim resume {out}"
    with suppress(OSError, UserError):
        marker = Marker.read(out)
        if marker is not None:
            try:
                marker.remove()
            finally:
                if not marker.present():
                    (out / MARKER).unlink(missing_ok=True)
                    atomic.temporary(out / MARKER).unlink(missing_ok=True)
    return "run it again, of which nothing is left"
