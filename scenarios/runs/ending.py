"""Ends of runs that the user or a failing file stops: they leave a resumable run, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from netsim.records import atomic
from scenarios.runs.folders import SCENARIO, make
from scenarios.runs.marker import MARKER, Marker
from scenarios.schema.errors import UserError


@contextmanager
def make_folder(out: Path) -> Iterator[None]:
    """Create a folder, and its parents, for the block; new folders that stay empty are removed again."""
    new = [place for place in (out, *out.parents) if not place.exists()]
    try:
        make(out)
        yield
    finally:
        for place in new:
            with suppress(OSError):
                place.rmdir()


@contextmanager
def orderly(out: Path) -> Iterator[None]:
    """Report the state of the run in `out` if a file cannot be written, or the user stops it, within the block.

    A run that cannot be resumed is removed. Raises UserError for an OSError, and adds a text to a KeyboardInterrupt.
    """
    try:
        yield
    except OSError as error:
        inside = error.filename is None or Path(str(error.filename)).is_relative_to(out)
        reason = error.strerror or error
        message = f"{out}: cannot be written ({reason})" if inside else f"{error.filename}: {reason}"
        raise UserError(f"{message}; make room, or put right what is wrong there, and then: {_further(out)}") from error
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(str(error) or f"to go on: {_further(out)}") from None
    except UserError:
        _further(out)
        raise


def _further(out: Path) -> str:
    """Return how to go on with the run in a folder, in words; remove a run that has not begun."""
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
