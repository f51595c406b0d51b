"""A user's mistake: one message that names the key, the value and the remedy; the command line ends with exit code 2."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import dropwhile, takewhile
from pathlib import Path

from analysis.suggestions import did_you_mean as did_you_mean


class UserError(Exception):
    """Error that the user can fix. The text is complete and shown unchanged."""


class ScenarioError(UserError, ValueError):
    """A user's mistake, raised by a public function of `netsim`: a ValueError with the text that the command line shows."""


class DefectError(Exception):
    """A defect of the program, not a mistake of the user's. The text is complete."""


class BooksError(DefectError):
    """The books of a run do not balance: a defect of the program. The text is complete; the files of the run are kept."""


@contextmanager
def name_source(source: str) -> Iterator[None]:
    """Say in front of a refusal which file (and variant) it is about."""
    try:
        yield
    except UserError as error:
        # Who refused may have named the place already.
        raise UserError(str(error) if str(error).startswith(f"{source}:") else f"{source}: {error}") from error


_LONGEST = 500
_ROOT = Path(__file__).resolve().parents[2]
_NETSIM = (
    "netsim",
    "models",
    "analysis",
    *(f"scenarios/{folder}" for folder in ("flower", "registry", "runs", "schema", "sweeps", "wiring", "workers")),
)
_OURS = tuple(f"{_ROOT / name}{os.sep}" for name in _NETSIM)  # except the library, whose scenarios have own components


def users_line(error: BaseException) -> str:
    """Return the line of the user's code that raised an exception, as the end of a sentence; empty if there is none."""
    seen = dropwhile(lambda frame: frame.filename.startswith(_OURS), traceback.extract_tb(error.__traceback__))
    theirs = list(takewhile(lambda frame: not frame.filename.startswith(_OURS), seen))
    # For an error inside a package such as NumPy, the line that called it is more useful.
    lines = [frame for frame in theirs if "site-packages" not in frame.filename] or theirs
    return f", {lines[-1].filename}, line {lines[-1].lineno}" if lines else ""


def describe_own_error(error: BaseException) -> str:
    """Describe an exception of a user's class: type, first line of the text, and line of code."""
    # The first frame is netsim's call; without further frames there is no line of the user to show.
    frames = traceback.extract_tb(error.__traceback__)[1:]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames and frames[-1].filename[0] != "<" else ""
    return f"{type(error).__name__}: {first_line(error)}{place}"


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's text, cut to the length of a message. A user's exception may fail even here."""
    try:
        return str(error).partition("\n")[0][:_LONGEST]
    except Exception:
        return "(its text cannot be had)"
