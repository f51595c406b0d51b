"""Attempts of a round while their steps are computed as arrays, one step after the other.

Each step of a recipe (`Step.foresee`) calls `begin`, and then `run` or `lose`, with its row of the times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from netsim.clients.steps.stages import STAGES
from netsim.clients.vectorised.columns import ABORTED, ARRIVES, AWAY, CAUSE, CLIENT, END, LOST, OUTCOME, start_row
from netsim.network.losses import CHANNEL, causes_of_losses

if TYPE_CHECKING:
    from netsim.clients.update import ModelDraws, SendDraws
    from netsim.core.protocols import BoolArray, FloatArray, IntArray
    from netsim.network.outages import ClientOutages

# Rows in which the last stage ends, and in which each of the three stages ends.
_LAST_END = start_row(STAGES[-1]) + 1
_ENDS = [start_row(stage) + 1 for stage in STAGES]


def possible_causes(outages: ClientOutages | None) -> list[str]:
    """Return the names of what can destroy messages of attempts simulated as arrays: the clients' own links, and `outages`."""
    if outages is None:
        return [CHANNEL]
    return [CHANNEL, *(outage.name for outage in outages)]


class Forecast:
    """Attempts of a round while their steps are computed.

    `times` (11, n) and `counts` (18, n) have the rows named in `netsim.clients.vectorised.columns`, and are filled in place.
    `models`, `sends`: draws (random numbers) of the updates and of the attempts. `steps` (n,): local steps requested of each
    update; None: as planned. `leaves`: True if some client may go away. `causes`: names that the row CAUSE points to.
    """

    __slots__ = ("_causes", "_leaves", "_moved", "all_arrive", "counts", "model_draws", "send_draws", "steps", "times")

    def __init__(
        self,
        times: FloatArray,
        counts: IntArray,
        models: ModelDraws,
        sends: SendDraws,
        steps: IntArray | None,
        *,
        leaves: bool,
        causes: list[str],
    ) -> None:
        self.times, self.counts, self.steps = times, counts, steps
        self.model_draws, self.send_draws = models, sends
        self._leaves, self._causes = leaves, causes
        self._moved = False
        """True once a step has taken time. Until then every row of `times` holds the start already, and nothing is copied."""
        self.all_arrive = True
        """True while no attempt has ended early."""

    @property
    def clients(self) -> IntArray:
        """Clients (n,) of the attempts."""
        clients: IntArray = self.counts[CLIENT]
        return clients

    def begin(self, row: int) -> FloatArray:
        """Begin the step that starts at `row` of the times when the step before ends, as a step that takes no time.

        Return its starts (n,), NaN for attempts that are over.
        """
        # `starts_s` is a view: what is written to it is in the table.
        times = self.times
        starts_s: FloatArray = times[row]
        if self._moved:
            starts_s[:] = times[row - 1]
            times[row + 1] = starts_s
        if not self.all_arrive:
            starts_s[self.counts[ARRIVES] == 0] = np.nan
            times[row + 1] = starts_s
        return starts_s

    def run(self, row: int, ends_s: FloatArray) -> None:
        """Run the step that starts at `row` until `ends_s` (n,), or until the client leaves if that is earlier: aborted then."""
        times, counts = self.times, self.counts
        times[row + 1] = ends_s
        self._moved = True
        if self._leaves:
            # Presence is [comes, goes): a client that would end at the very moment of leaving has left.
            leaves_before = ends_s >= times[AWAY]
            if leaves_before.any():
                times[row + 1, leaves_before] = times[AWAY, leaves_before]
                counts[OUTCOME, leaves_before], counts[ARRIVES, leaves_before] = ABORTED, 0
                self.all_arrive = False

    def lose(self, row: int, survives: BoolArray | None, outages: ClientOutages | None) -> None:
        """End attempts as lost whose transfer, which starts at `row`, is destroyed by its link or by one of `outages` (or None).

        `survives` (n,): True where the client's own link lets the message through; None: everywhere.
        """
        counts, times = self.counts, self.times
        sent, starts_s, ends_s = counts[ARRIVES] == 1, times[row], times[row + 1]
        # Of several causes of one loss the last is kept: they come in rising order of precedence.
        for lost, cause in causes_of_losses(sent, survives, outages, counts[CLIENT], starts_s, ends_s):
            counts[OUTCOME, lost], counts[CAUSE, lost], counts[ARRIVES, lost] = LOST, self._causes.index(cause), 0
        self.all_arrive = self.all_arrive and bool((counts[ARRIVES] == 1).all())

    def end(self) -> None:
        """Set the end of each attempt to the end of its last step."""
        times = self.times
        # The maximum ignores NaN, which stands for steps that were not reached.
        times[END] = times[_LAST_END] if self.all_arrive else np.fmax.reduce(times[_ENDS])
