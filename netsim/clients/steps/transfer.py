"""The transfer of a message between server and clients: the model down, the update up."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from netsim.clients.steps.stages import DOWNLOADING, UPLOADING, Stage
from netsim.clients.steps.step import Executor, Step
from netsim.clients.vectorised.columns import DOWN, UP, start_row
from netsim.network.losses import cause_of_loss

if TYPE_CHECKING:
    from collections.abc import Callable

    from netsim.clients.update import Update
    from netsim.clients.vectorised.forecast import Forecast
    from netsim.core.protocols import IntArray
    from netsim.network.access import UplinkAccess
    from netsim.network.bandwidth.carriers import Port
    from netsim.network.medium import Medium
    from netsim.network.own_link_jamming import JammedOwnLinks


class Direction(NamedTuple):
    """Names of what a transfer in one direction reads and records."""

    stage: Stage
    draws: str
    """Attribute of an update that holds the draws."""
    place: str
    """Attribute of an update with its place among them."""
    delay: str
    """Name of the draw of the delay."""
    survival: str
    """Name of the draw that decides if the client's own link lets the message through."""
    bytes: str
    """Column of the bytes sent."""
    bytes_row: int
    """Row of the bytes sent (`netsim.clients.vectorised.columns`)."""
    resending: str
    """Attribute of the medium with the rule by which lost messages are sent again."""


DOWNWARD = Direction(DOWNLOADING, "model_draws", "place", "download", "downlink", "bytes_down", DOWN, "down_resending")
UPWARD = Direction(UPLOADING, "send_draws", "send_place", "upload", "uplink", "bytes_up", UP, "up_resending")


class Transfer(Step):
    """Step that transfers a message of an update in `direction` over `medium`: a delay, then its bytes, with possible loss.

    `port`: carries the bytes after the delay; None if the delay includes their time. `access`: access to the uplink, which may
    add losses; None if clients have links of their own. `immediate`: True if a transfer that takes no time ends within the call
    that begins it. `on_begin`: called when the message of an update leaves for the first time, or None. Jammers of the clients'
    own links strike each sending by itself.
    """

    sends_once: ClassVar[bool] = True
    """False if a lost message may be sent again: `foresee` computes one sending of each."""

    def __init__(
        self,
        executor: Executor,
        direction: Direction,
        medium: Medium,
        *,
        port: Port | None,
        immediate: bool,
        access: UplinkAccess[Any] | None = None,
        on_begin: Callable[[Update], None] | None = None,
    ) -> None:
        stage, sizes, down = direction.stage, medium.sizes, direction is DOWNWARD
        self.phase, self.power = stage.name, stage.power
        self._jamming = medium.jamming
        self._jammed = medium.jamming.down if down else medium.jamming.up
        """The clients' own links in this direction, if jammers reach them; otherwise None."""
        self.foreseeable = self.sends_once and port is None and access is None and self._jammed is None
        self.begun = self.bytes = self.under_way = 0
        """Number of transfers begun so far, their bytes, and number of transfers in flight."""
        self._medium, self._direction = medium, direction
        self._executor, self._start, self._end, self._row = executor, stage.start, stage.end, start_row(stage)
        # Draws of an update, or of a `Forecast`, which has attributes of the same names.
        draws = f"{direction.draws}.{direction.delay}", f"{direction.draws}.{direction.survival}"
        self._draws, self._place_and_draws = attrgetter(*draws), attrgetter(direction.place, *draws)
        self._bytes, self._bytes_row = direction.bytes, direction.bytes_row
        self._sizes = sizes.model_sizes(medium.clients) if down else sizes.update_sizes(medium.clients)
        """Bytes [K] of the message of each client."""
        # The same as an array for `foresee`: one number, or (K,).
        self._size = np.asarray(sizes.down if down else sizes.up)
        self._outages = medium.outages if medium.reached_by_outages else None
        """Outages that destroy these messages, or None."""
        self._port, self._access, self._immediate = port, access, immediate
        self._undisturbed = immediate and self._outages is None and port is None and access is None and self._jammed is None
        """True if nothing outside of the client's own link acts on a transfer without duration."""
        self._occupies = port is not None or self._jammed is not None
        """True if a message in flight is on a carrier, or on a link that jammers reach, and must be taken off it."""
        self._on_begin = on_begin

    def begin(self, update: Update, now: float) -> None:
        """Send the message: count and record its bytes, draw its loss, and schedule the end of its delay, as `foresee` does."""
        setattr(update, self._start, now)
        size = self._sizes[update.client]
        setattr(update, self._bytes, size)
        self.bytes += size
        self.begun += 1
        if self._on_begin is not None and not update.charged:
            self._on_begin(update)
        # Access first: a jammer whose dwell begins at this instant strikes before the message leaves.
        begins_s = now if self._access is None else self._access.begin(update, now)
        place, delay, survival = self._place_and_draws(update)
        if self._undisturbed and self.following is not None and delay.certain and survival.certain:
            # It takes no time and cannot be lost. So it ends in the call that begins it, as training of length zero does.
            update.survives = True
            setattr(update, self._end, now)
            self.following.begin(update, now)
            return
        self.under_way += 1
        # Draw survival now: at the end another law may be in force, after a change point.
        update.survives = survival.at(place, now)
        if self._jammed is not None:
            self._enter_link(update, now, self._jammed)
        ends_s = delay.ends_at(place, now, begins_s)
        if ends_s > now or not self._immediate:
            self._executor.run(update, self, ends_s, now)
        else:
            update.phase, update.phase_start_s, update.due_s = self.phase, now, now
            self.finish(update, now)

    def _enter_link(self, update: Update, now: float, link: JammedOwnLinks) -> None:
        """Expose a message that is sent now to the jammers of its `link`."""
        update.sent_s = now
        if self._access is None:
            # Access has said so already, or has found the sub-channel jammed.
            update.jammed = False
        self._jamming.catch_up()
        link.begin(update)

    def finish(self, update: Update, now: float) -> None:
        """Handle the end of the delay: the message has arrived, or its bytes go onto the carrier now."""
        if self._port is None:
            self.arrive(update, now)
        else:
            self._executor.wait(update, self.power, now)
            self._port.join(update.client, update.client, self._sizes[update.client])

    def arrive(self, update: Update, now: float, link: str | None = None) -> None:
        """Handle the end of the transfer: the message is lost, or the update goes on. `link`: cause of a loss by links of the
        network, or None.
        """
        outage = None if self._outages is None else self._outages.cause(update.client, self._sent_s(update), now)
        own_link_jamming = "jammed" if update.jammed else None
        # Access knows about jamming, also of the client's own link.
        hit = own_link_jamming if self._access is None else self._access.loss(update)
        cause = cause_of_loss(outage, hit, link, update.survives)
        if self._jammed is not None:
            self._jammed.end(update, delivered=cause is None)
        if cause is None:
            self._executor.proceed(update, now)
        else:
            self._lose(update, now, cause)

    def _sent_s(self, update: Update) -> float:
        """Return the time at which the message that arrives now was sent, seconds."""
        return update.phase_start_s

    def _lose(self, update: Update, now: float, cause: str) -> None:
        """Handle the loss of the message for `cause`: the attempt ends."""
        self._executor.end(update, "lost", now, cause)

    def listen(self, on_carried: Callable[[Transfer, int, str | None], None]) -> None:
        """Set the callback for the end of a client's bytes; it gets this step, the client, and the cause of a loss or None."""
        if self._port is not None:
            self._port.listen(partial(on_carried, self))

    def close(self, update: Update, now: float) -> None:
        """Record start and end, and take a message that is cut short off its link and the carrier."""
        # Write the start again: a transfer that goes on into a later attempt is recorded in the attempt in which it ends.
        setattr(update, self._start, update.phase_start_s)
        setattr(update, self._end, now)
        self.under_way -= 1
        if self._occupies:
            self._leave(update)

    def drop(self, update: Update) -> None:
        """Take the message off its link and the carrier without a record: the update is discarded."""
        self.under_way -= 1
        if self._occupies:
            self._leave(update)

    def _leave(self, update: Update) -> None:
        """Take the message of `update` off its link and the carrier, where it is still on them."""
        if self._port is not None and update.client in self._port:
            self._port.leave(update.client)
        if self._jammed is not None:
            self._jammed.leave(update)

    def resume(self, update: Update) -> None:
        """Count an update that is taken over in this step."""
        self.under_way += 1

    def recall(self, update: Update) -> None:
        """Set whether the message survives the client's link, as drawn when the transfer began."""
        place, _, survival = self._place_and_draws(update)
        update.survives = survival.at(place, update.phase_start_s)

    def foresee(self, forecast: Forecast) -> bool:
        """Compute bytes, ends and losses of all transfers, as `begin` and `arrive` do for one; False if a draw is not known yet.
        """
        row, counts = self._row, forecast.counts
        starts_s = forecast.begin(row)
        counts[self._bytes_row] = self._size[forecast.clients] if self._size.ndim else self._size
        # Attempts that have ended before (start NaN) send nothing.
        if not forecast.all_arrive:
            counts[self._bytes_row, np.isnan(starts_s)] = 0
        delay, survival = self._draws(forecast)
        if not delay.certain:
            ends_s = delay.ends_of(starts_s)
            if ends_s is None:
                return False
            forecast.run(row, ends_s)
        survives = None if survival.certain else survival.each_at(starts_s)
        if survives is None and not survival.certain:
            return False
        if survives is not None or self._outages is not None:
            forecast.lose(row, survives, self._outages)
        return True

    def count(self, clients: IntArray) -> None:
        """Count a transfer of each of `clients` (n,), which were simulated as arrays."""
        self.begun += len(clients)
        if self._size.ndim:
            self.bytes += int(self._size[clients].sum())
        else:
            self.bytes += len(clients) * int(self._size)
