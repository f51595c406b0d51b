"""Assignment of sub-channels: a scheduler assigns them as a round opens, and observes the outcomes of transmissions.

A round has places, and the scheduler gives each a sub-channel; to the scheduler a place is a client. Without a policy
the place of a client is its number. With one, clients take the places in the order in which they are chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from netsim.core.errors import ParameterError
from netsim.core.scheduling import ChannelScheduler, SlotView
from netsim.core.state import StateFields
from netsim.servers.rounds.checks import check_schedule

if TYPE_CHECKING:
    from netsim.clients.pool import ClientPool
    from netsim.clients.update import Update
    from netsim.core.protocols import FloatArray, IntArray, Learner, State
    from netsim.core.streams import Stream
    from netsim.network.spectrum import Spectrum


class Assignment(Protocol):
    """Interface: assigns sub-channels to the attempts of a round."""

    unused_columns: Sequence[str]
    """Columns of an attempt's record that have no content with this assignment."""

    def open(self, number: int, chosen: IntArray) -> None:
        """Prepare round `number`, in which `chosen` (n,) begin an attempt at once."""

    def channels(self, clients: IntArray) -> list[int] | None:
        """Assign sub-channels to attempts that `clients` (n,) begin now, and return them (n,); None if none are assigned. Call it
        once for each attempt.
        """

    def close(self) -> None:
        """Handle the close of the round."""

    def state_dict(self) -> State:
        """Return the state at a round boundary."""

    def load_state_dict(self, state: State) -> None:
        """Restore the state at a round boundary."""


class NoAssignment(StateFields):
    """Null object: every client has a link of its own, or waits in one queue."""

    unused_columns: Sequence[str] = ("channel", "good", "jammed", "collided")

    def open(self, number: int, chosen: IntArray) -> None:
        """Do nothing: no sub-channels are assigned."""

    def channels(self, clients: IntArray) -> list[int] | None:
        """Return None: no sub-channels are assigned."""

    def close(self) -> None:
        """Do nothing: no scheduler observes the round."""


class ScheduledAssignment(StateFields):
    """Assignment by a scheduler, which assigns a sub-channel to each place.

    `places`: number of places; None: a place for each client. `refill`: clients take and leave places during a round; otherwise
    the clients of a round take the places from the first on, and wait if their sub-channel is still held from an earlier round.
    Raises ValueError for fewer sub-channels than places without contention.
    """

    state_fields = ("scheduler", "_place_of", "_tried")
    unused_columns: Sequence[str] = ()

    def __init__(
        self,
        *,
        pool: ClientPool,
        spectrum: Spectrum,
        scheduler: ChannelScheduler,
        draws: Stream,
        places: int | None = None,
        refill: bool = False,
        learner: Learner,
    ) -> None:
        count = pool.count if places is None else places
        if count > spectrum.count and not spectrum.contention:
            clients_in_words = f"{count} clients" if places is None else f"{count} clients of a round"
            raise ParameterError("channels", spectrum.count, f"must be at least the {clients_in_words}")
        self.pool = pool
        self.spectrum = spectrum
        self.scheduler = scheduler
        self.count = count
        """Number of places."""
        self.view: SlotView
        """View of the scheduler at the beginning of the present round."""
        self._by_client = places is None
        """True if the place of a client is its number."""
        self._refill = refill
        self._learner = learner
        self._ones: FloatArray = np.ones(count)
        self._draws = draws
        self._channels: list[int] = []
        """Sub-channel of each place in the present round."""
        self._place_of: dict[int, int] = {}
        """Place of each client with an attempt."""
        self._places_used = 0
        """Number of places given to clients in the present round."""
        self._tried: list[tuple[int, int, bool]] = []
        """Transmissions that ended since the last close: place, sub-channel, and True if the update arrived."""
        pool.follow(self._on_end)

    def open(self, number: int, chosen: IntArray) -> None:
        """Let the scheduler assign the sub-channels of the round's places."""
        if not self._refill:
            self._places_used = 0
        self.view = SlotView(number, self._ages(number, chosen), self._contributions(chosen), draws=self._draws.generator)
        assigned = self.scheduler.assign(self.view)
        self._channels = check_schedule(assigned, self.count, self.spectrum.count, self.spectrum.contention)

    def _ages(self, number: int, chosen: IntArray) -> IntArray:
        """Return the age (places,) of the client at each place after the last round, in rounds.

        The age is 1 after a delivery, at the start (Li et al. eq. 8), and for an empty place.
        """
        last_delivery = self.pool.last_delivery
        if self._by_client:
            return number - last_delivery
        ages: IntArray = np.ones(self.count, np.int64)
        if self._refill:
            # Clients keep their places from round to round.
            for client, place in self._place_of.items():
                ages[place] = number - last_delivery[client]
        else:
            # The chosen clients take the places in their order; clients beyond the last place share a place with others.
            with_place = chosen[: self.count]
            ages[: len(with_place)] = number - last_delivery[with_place]
        return ages

    def _contributions(self, chosen: IntArray) -> FloatArray:
        """Return the marginal contributions (places,) to the model of the clients at the places; ones if unknown."""
        by_client = self._learner.contribution()
        if by_client is None:
            return self._ones
        if self._by_client:
            return by_client
        with_place = chosen[: self.count]
        by_place = self._ones.copy()
        by_place[: len(with_place)] = by_client[with_place]
        return by_place

    def channels(self, clients: IntArray) -> list[int]:
        """Give each of `clients` (n,) a place, and return the sub-channels of these places. Call it once for each attempt.

        With `refill` they get the first free places; otherwise the places that follow those of the last call.
        """
        listed = clients.tolist()
        if self._by_client:
            return [self._channels[client] for client in listed]
        if self._refill:
            taken_places = set(self._place_of.values())
            places = [place for place in range(self.count) if place not in taken_places]
        else:
            # If there are more clients than places, places are reused in turn.
            places = [(self._places_used + i) % self.count for i in range(len(listed))]
            self._places_used += len(listed)
        # More places may be free than there are clients: the first ones are taken.
        self._place_of |= dict(zip(listed, places, strict=False))
        return [self._channels[self._place_of[client]] for client in listed]

    def _on_end(self, update: Update) -> None:
        """Free the place of an ended attempt, and note for the scheduler if its transmission arrived.

        A sub-channel that was used without a delivery within the round counts as reward 0 (Li et al., Algorithms 1 and 2: every
        play has a reward of 0 or 1). An attempt of a client that went away gives no observation.
        """
        place = update.client if self._by_client else self._place_of.pop(update.client)
        # An upload that has not begun starts at NaN, and comparisons with NaN are False: such a client has not used its channel.
        outcome = update.outcome
        too_late = outcome == "late" and update.upload_start_s >= 0.0
        if outcome == "delivered" or too_late or (outcome == "lost" and update.good is not None):
            assert update.channel is not None
            self._tried.append((place, update.channel, outcome == "delivered"))

    def close(self) -> None:
        """Report the transmissions that ended since the last close to the scheduler, in the order of their places."""
        # Sorted, so that what a scheduler learns does not depend on the order of ends at one instant.
        tried, self._tried = sorted(self._tried), []
        channels = np.array([channel for _, channel, _ in tried], np.int64)
        arrived = np.array([has_arrived for _, _, has_arrived in tried], np.bool_)
        self.scheduler.observe(self.view, channels, arrived)
