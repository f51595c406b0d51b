"""A limit of a run's wall time: then the run stops as by Ctrl-C."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from scenarios.schema.errors import UserError
from scenarios.workers.interrupts import GRACE_S, StopRequest

END_S = 30.0
"""Seconds after the stop at which a process for one run alone is ended if it does not stop."""


class WallLimit:
    """Limit of the wall time of simulating a run, or the rest of a resumed run."""

    def __init__(self, most_s: float | None = None, *, may_end_process: bool = False) -> None:
        """Set the limit to `most_s` seconds; None: no limit. Raises UserError.

        `may_end_process`: True if the process serves only this run, so that the limit may end it.
        """
        if most_s is not None and not 0 < most_s <= threading.TIMEOUT_MAX:
            raise UserError(f"--wall-limit (wall_limit_s) = {most_s!r}: must be a number of seconds > 0")
        self._most_s, self._may_end = most_s, may_end_process
        self.reached = False
        """True if the limit was reached before the end of the run."""

    @property
    def reason(self) -> str:
        """Text that says that the limit was reached."""
        return f"the wall limit of {self._most_s:g} s was reached"

    @contextmanager
    def enforce(self, stop: StopRequest) -> Iterator[None]:
        """Stop the simulation in the block by `stop` when the limit is reached.

        It stops at the close of a round, or after `GRACE_S` seconds anywhere, by a KeyboardInterrupt. If it does not stop for
        another `END_S`, the process ends; the run can be resumed from its last checkpoint.
        """
        if self._most_s is None:
            yield
            return
        most_s, ended, thread = self._most_s, threading.Event(), threading.get_ident()

        def watch() -> None:
            """Wait in a thread for the limit or the end of the block; at the limit stop the simulation, or the process."""
            if ended.wait(most_s) or not stop.limit(thread):
                return
            self.reached = True
            if self._may_end and not ended.wait(GRACE_S + END_S) and not stop.is_ending:
                os.write(2, f"{self.reason}, and the run does not stop: the process ends; go on from its checkpoint\n".encode())
                os._exit(130)

        threading.Thread(target=watch, daemon=True).start()
        try:
            yield
        except KeyboardInterrupt as error:
            if self.reached:
                note = f"; {error}" if str(error) else ""
                raise KeyboardInterrupt(f"{self.reason}{note}") from error
            raise
        finally:
            ended.set()
