"""Ctrl-C, SIGTERM and SIGHUP of the command `netsim`: a KeyboardInterrupt that reaches the command, wherever it is raised."""

from __future__ import annotations

import signal
import sys
from types import FrameType

_RETRY_S = 0.05
"""Seconds after which an interrupt comes again that was held back, or lost."""
_HELD_BACK = ("<frozen importlib._bootstrap", "/pydantic/_internal/")
"""Parts of the file names of Python's import system, and of Pydantic where it builds validators, at their first use."""


def raise_interrupts() -> None:
    """Let SIGINT, SIGTERM and SIGHUP raise a KeyboardInterrupt in the main thread that no import and no finaliser swallows.

    Python's own handler raises it at once, and then it can be lost, or end as another error with a traceback. Modules that are
    being imported catch it (`__set_name__` and extension modules turn it into a RuntimeError or an ImportError), and so does
    Pydantic where it builds a validator; finalisers and callbacks of weak references drop it. A signal that the process was
    started to ignore stays ignored (`nohup`).
    """
    before = sys.unraisablehook
    is_waiting = False  # an interrupt of the user's, for the timer; the timer itself stands still between its alarm and the next

    def interrupt(number: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt: during an import as it ends, at the second signal of the user's at once."""
        nonlocal is_waiting
        is_second = is_waiting and number != signal.SIGALRM
        is_waiting = _is_held_back(frame) and not is_second
        signal.setitimer(signal.ITIMER_REAL, _RETRY_S if is_waiting else 0.0)
        if not is_waiting:
            raise KeyboardInterrupt

    def on_dropped(dropped: sys.UnraisableHookArgs) -> None:
        """Interrupt again where Python had to drop the interrupt."""
        nonlocal is_waiting
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            is_waiting = True
            signal.setitimer(signal.ITIMER_REAL, _RETRY_S)
        else:
            before(dropped)

    sys.unraisablehook = on_dropped
    signal.signal(signal.SIGALRM, interrupt)  # by the timer
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, interrupt)


def ignore_interrupts_at_the_end() -> None:
    """Ignore all of these signals from here on: the process only ends, and an interrupt would only add a traceback."""
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    # Python gives back SIGALRM before it ends, so that a late timer would kill the process.
    for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _is_held_back(frame: FrameType | None) -> bool:
    """Return True if `frame` runs, directly or not, for the import of a module or the building of a validator."""
    while frame is not None:
        file = frame.f_code.co_filename
        if any(part in file for part in _HELD_BACK):
            return True
        frame = frame.f_back
    return False
