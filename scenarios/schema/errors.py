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
    """Something the user can fix. The text is complete: it is shown as it is."""


class ScenarioError(UserError, ValueError):
    """A user's mistake, out of a public function of `netsim`: a ValueError whose text is what the command line shows."""


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
    *(f"scenarios/{folder}" for folder in ("flower", "registry", "runs", "schema", "sweeps", "wiring")),
)
_OURS = tuple(f"{_ROOT / name}{os.sep}" for name in _NETSIM)  # not the library, whose scenarios have components of their own


def users_line(error: BaseException) -> str:
    """The line of the user's own code that an exception comes from, as the end of a sentence; empty where there is none."""
    seen = dropwhile(lambda frame: frame.filename.startswith(_OURS), traceback.extract_tb(error.__traceback__))
    theirs = list(takewhile(lambda frame: not frame.filename.startswith(_OURS), seen))
    # Of a package that is called, such as NumPy, the line that called it tells more.
    lines = [frame for frame in theirs if "site-packages" not in frame.filename] or theirs
    return f", {lines[-1].filename}, line {lines[-1].lineno}" if lines else ""


def describe_own_error(error: BaseException) -> str:
    """An exception out of a user's own class: its type, the first line of its text, and the line of code it comes from."""
    # The first frame is where netsim called; without others there is no line of the user's to show.
    frames = traceback.extract_tb(error.__traceback__)[1:]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames and frames[-1].filename[0] != "<" else ""
    return f"{type(error).__name__}: {first_line(error)}{place}"


def first_line(error: BaseException) -> str:
    """The first line of an exception's text, or as much of it as a message can hold. The exception may be of the user's code."""
    try:
        return str(error).partition("\n")[0][:_LONGEST]
    except Exception:
        return "(its text cannot be had)"
