"""A user's mistake: one message that names the key, the value and the remedy; the command line ends with exit code 2."""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
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
    """Put `source`, the name of a file (and variant), in front of the UserErrors that the block raises."""
    try:
        yield
    except UserError as error:
        text = str(error)
        # The block may have put the same name in front already.
        if not text.startswith(f"{source}:"):
            text = f"{source}: {text}"
        raise UserError(text) from error


_LONGEST = 500
"""Longest text of a user's exception in a message, characters."""
_ROOT = Path(__file__).resolve().parents[2]
_NETSIM = (
    "netsim",
    "models",
    "analysis",
    *(f"scenarios/{folder}" for folder in ("flower", "registry", "runs", "schema", "sweeps", "wiring", "workers")),
)
_NETSIM_PATHS = tuple(f"{_ROOT / name}{os.sep}" for name in _NETSIM)
"""Beginnings of the paths of netsim's code. The library is not among them: components of its scenarios count as users' code."""

_PACKAGES = tuple(sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib", "stdlib"))
"""Beginnings of the paths of installed packages and of Python's own modules."""


def users_line(error: BaseException) -> str:
    """Return ", FILE, line N" for the line of the user's code that raised an exception; empty if the user's code did not run."""
    calls = groupby(traceback.extract_tb(error.__traceback__), lambda frame: frame.filename.startswith(_NETSIM_PATHS))
    # Calls go from netsim into other code, and perhaps back into netsim: each list is one stay outside.
    stays = [list(frames) for is_netsim, frames in calls if not is_netsim]
    if not stays:
        return ""
    shown = stays[0][-1]
    for frames in stays:
        own_frames = [frame for frame in frames if not frame.filename.startswith(_PACKAGES)]
        # Of a call by way of a package (torch, for a user's network), or an error in one (NumPy), the user's line is more useful.
        if own_frames:
            shown = own_frames[-1]
            break
    return f", {shown.filename}, line {shown.lineno}"


def describe_own_error(error: BaseException) -> str:
    """Describe an exception of a user's class: type, first line of the text, and line of code."""
    text = f"{type(error).__name__}: {first_line(error)}"
    # The first frame is netsim's call; without further frames there is no line of the user to show.
    frames = traceback.extract_tb(error.__traceback__)[1:]
    # Code that was typed or generated has no file: its name is such as "<string>".
    if not frames or frames[-1].filename.startswith("<"):
        return text
    return f"{text} ({frames[-1].filename}, line {frames[-1].lineno})"


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's text, cut to the length of a message."""
    try:
        return str(error).partition("\n")[0][:_LONGEST]
    except Exception:  # a user's exception may fail to turn into text
        return "(its text cannot be had)"
