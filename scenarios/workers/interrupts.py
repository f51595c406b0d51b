"""Ctrl-C, SIGTERM and SIGHUP as a round closes, so that a run's tables agree; at once if that takes too long."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from scenarios.workers.safe_path import safe_path

GRACE_S = 2.0
"""Seconds that a stop waits for the round to close."""


class StopRequest:
    """Request of the user, or of a limit, to stop."""

    asked = False
    """By the user, or by a limit of wall time."""
    limited = False
    """True if a limit of wall time asked."""
    is_ending = False
    """True if the run is stopping, or at its end."""
    _alarm: threading.Timer | None = None
    _thread: int | None = None
    """The thread that is interrupted where no signal can reach the block."""

    def __init__(self) -> None:
        self.signals: list[int] = []
        """Signals by which the block can be interrupted, in the main thread."""
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raise KeyboardInterrupt if a stop was asked for."""
        if self.asked:
            raise KeyboardInterrupt

    def let_end(self) -> None:
        """Let the work end by itself: withdraw an interrupt on its way. Only a second request still ends it at once."""
        with self._lock:
            self.is_ending = True
            if self._alarm is not None:
                self._alarm.cancel()
            if self._thread is not None:
                _withdraw_interrupt(self._thread)

    def limit(self, thread: int) -> bool:
        """Ask the work in `thread` to stop at its time limit, as `ask` does; return False if it stops or has ended already."""
        with self._lock:
            if self.asked or self.is_ending:
                return False
            self.asked = self.limited = True
            self._interrupt_after(GRACE_S, thread)
            return True

    def _interrupt_after(self, wait_s: float, thread: int) -> None:
        """Interrupt `thread` in `wait_s` seconds, unless the work is ending by then; repeat after twice the wait, and so on.

        One interrupt can be lost: Python drops an exception that is raised in a finaliser or in the callback of a weak reference,
        and every import has such callbacks. The wait doubles, so that the work which ends after an interrupt can end in peace.
        """
        self._alarm = threading.Timer(wait_s, self._insist, [wait_s, thread])
        self._alarm.daemon = True
        self._alarm.start()

    def _insist(self, waited_s: float, thread: int) -> None:
        """Interrupt `thread`, which was given `waited_s` seconds to stop, and set the timer of the next interrupt.

        After a signal from the user, the signal is repeated, which also wakes a thread that waits in the system. Otherwise an
        exception is raised in the thread.
        """
        with self._lock:
            if self.is_ending:
                return
            self._interrupt_after(2.0 * waited_s, thread)
            if self.signals:
                signal.pthread_kill(thread, self.signals[-1])
            else:
                self._thread = thread
                _interrupt(thread)

    def ask(self) -> None:
        """Note the wish of the user, in the main thread, which is interrupted if it has not stopped in `GRACE_S` seconds."""
        self.asked = True
        self._interrupt_after(GRACE_S, threading.get_ident())


def _interrupt(thread: int) -> None:
    """Raise KeyboardInterrupt in a thread, at its next step in Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt))


def _withdraw_interrupt(thread: int) -> None:
    """Withdraw an interrupt of a thread that was sent, and that the thread has not seen yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object())


@contextmanager
def out_of_reach() -> Iterator[None]:
    """Keep SIGINT from the threads and processes that are started in the block: a terminal sends it to all its processes.

    They inherit the signal as blocked. One that comes for this thread meanwhile is delivered after the block.
    """
    from multiprocessing import resource_tracker

    # Start the tracker now: the first child of a process starts it, which in some versions of Python unblocks the signal.
    with safe_path():
        resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_interrupts() -> None:
    """Ignore Ctrl-C in a worker: the main process stops its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Note the first SIGINT, SIGTERM or SIGHUP of the block in the request that it yields; handlers are restored after the block.

    The work is to stop as it sees the request. A second signal, or `GRACE_S` seconds without an end, raises KeyboardInterrupt.
    Signals that the process ignores stay ignored. In a thread other than the main one no handler is set: signals do not come
    there.
    """
    request = StopRequest()

    def note(number: int, frame: FrameType | None) -> None:
        if request.asked:
            raise KeyboardInterrupt
        request.ask()

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # What was started to ignore the signal (nohup, a background job of a script) goes on ignoring it.
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, note)
                request.signals.append(number)
    try:
        yield request
    finally:
        request.let_end()
        for number, handler in before.items():
            signal.signal(number, handler)
