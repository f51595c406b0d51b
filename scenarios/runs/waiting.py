"""Messages about long rounds: what the open round waits for."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from scenarios.workers.calls import call_every

if TYPE_CHECKING:
    from netsim.clients.update import Update
    from netsim.simulation import Simulation

LONG_S = 10.0
"""Seconds of wall time between messages about a long round."""
_PHASES = ("downloading", "computing", "waiting to send", "sending")


def describe_wait(simulation: Simulation) -> str:
    """Return a description of what the open round waits for. It changes nothing in the run: another thread may ask."""
    pool = simulation.server.clients
    under_way = pool.under_way
    if not under_way:
        next_s = float(pool.presence.next_change_s.min())
        when = f"; the next client comes or goes at {next_s:,.10g} s" if next_s < float("inf") else ""
        present = int(pool.presence.on.sum())
        return f"clients or messages: no update is under way, {present:,} of {pool.count:,} clients are present{when}"
    # Not `pool.in_flight`: reading it would change the run. The list is a copy, since the run goes on in another thread.
    in_flight = [update for update in list(pool.alive_now.values()) if math.isnan(update.outcome_s)]
    phases = Counter(map(_phase, in_flight))
    counts = ", ".join(f"{phases[name]:,} {name}" for name in _PHASES if phases[name])
    return f"{under_way:,} updates ({counts})" if counts else f"{under_way:,} updates"


def _phase(update: Update) -> str:
    """Return the phase of an update in flight, as text. Times of steps that it has not reached are NaN."""
    if not math.isnan(update.upload_start_s):
        return "sending"
    if not math.isnan(update.compute_end_s):
        return "waiting to send"
    return "downloading" if math.isnan(update.compute_start_s) else "computing"


class Watch:
    """Watch over a run that gives messages about long rounds. It reads the run from another thread, and changes nothing."""

    def __init__(self, show: Callable[[str], None], clear: Callable[[], None] = lambda: None) -> None:
        """`show`: function called with each message. `clear`: function called when a round closes that had a message."""
        self._show, self._clear = show, clear
        self._message_given = False
        self._simulation: Simulation | None = None
        self._round_start_s = self._last_s = time.perf_counter()

    def end(self) -> None:
        """End the last message, and release the simulation."""
        self.on_close()
        self._simulation = None

    def begin(self, simulation: Simulation) -> None:
        """Watch this simulation from now on."""
        self._simulation = simulation
        self.on_close()

    def on_close(self) -> None:
        """Reset the timer: a round has closed, or another message was given."""
        self._round_start_s = self._last_s = time.perf_counter()
        if self._message_given:
            self._message_given = False
            self._clear()

    def check_round(self) -> None:
        """Give a message about the open round, if the last one, or the close before it, is `LONG_S` seconds of wall time ago."""
        now, simulation = time.perf_counter(), self._simulation
        if simulation is None or now - self._last_s < LONG_S:
            return
        message_given = self._message_given
        self._last_s, self._message_given = now, True
        if not simulation.has_begun:
            self._round_start_s = now
            if not message_given:
                self._show("the workers that train are starting")
            return
        if simulation.server.round >= simulation.rounds:
            # No further round opens: the final model is tested, which may take long.
            self._show(f"round {simulation.server.round}, the last, has closed; its model is tested")
            return
        try:
            waits = describe_wait(simulation)
        except RuntimeError:  # the run goes on in another thread, so a container may change during iteration
            waits = f"{simulation.server.in_flight:,} updates"
        round, at_s = simulation.server.round + 1, simulation.clock.now
        self._show(
            f"round {round} has taken {now - self._round_start_s:.0f} s, up to {at_s:,.10g} s simulated; it waits for {waits}"
        )


@contextmanager
def watch_run(watch: Watch) -> Iterator[None]:
    """Check the open round for messages, twice a second, within the block."""
    try:
        with call_every(LONG_S / 20, watch.check_round):
            yield
    finally:
        watch.end()
