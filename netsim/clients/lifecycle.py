"""The life of an update: download, local training, access to the uplink, upload, and an end with a name.

Each step is one timed callback. An attempt ends exactly once, as delivered, lost (a transmission failed), late (the server had
stopped waiting for it, or cancelled it) or aborted (the client went away, or was selected again). Until then it is in flight.

The time of an event is passed along from step to step: this is the path that every update of a run takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from netsim.clients.energy import DRAWS
from netsim.clients.power_integral import IDLE, RECEIVING, SENDING
from netsim.clients.rules import USUAL, UpdateRules
from netsim.clients.serving import Serving, TakesAll
from netsim.clients.update import COMPUTE, DOWNLOAD, ENDED, KEPT, UPLOAD, WAIT, Update

if TYPE_CHECKING:
    from netsim.clients.energy import Energy
    from netsim.core.clock import Clock
    from netsim.core.protocols import Accountant, IntArray
    from netsim.network.access import UplinkAccess
    from netsim.network.carriers import Port
    from netsim.network.medium import Medium

_EVER = float("inf")


class UpdateLifecycle:
    """What happens to an update, from step to step.

    `find`: the update of a client whose bytes are carried. `energy`: what clients draw, and their batteries. `kind`: the name of
    its messages on carriers, different for each life on one medium.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        medium: Medium,
        accountant: Accountant,
        find: Callable[[int], Update],
        rules: UpdateRules = USUAL,
        energy: Energy | None = None,
        kind: str = "update",
    ) -> None:
        self.clock, self.medium, self.accountant = clock, medium, accountant
        self.retry = rules.retry
        self.instant = rules.instant
        self.uploads = 0
        """Uploads begun so far."""
        self.bytes_down = 0
        """Bytes of the models sent so far, and of those on their way."""
        self.bytes_up = 0
        """Bytes of the uploads begun so far."""
        self.sending = 0
        """Uploads under way."""
        self.serving: Serving = TakesAll()
        """The server, which says which updates it takes: others that arrive are late."""
        self.on_end: Callable[[Update], None] = lambda update: None
        """Told of every attempt that ends, in the midst of the event that ended it."""
        self.life_of: Callable[[Update], UpdateLifecycle] = lambda sender: self
        """Callback that returns the life of a sender in the queue. Probes replace it: they wait in one queue with updates."""
        self._find, self._energy = find, energy
        self.charges_on_upload = rules.charge_on == "upload"
        """Whether privacy is spent as an upload begins; otherwise as it arrives."""
        self._access: UplinkAccess[Update] = medium.access
        self._own_link, self._waits = medium.access.own_link, not medium.access.free
        self._take, self._begin, self._loss = medium.access.take, medium.access.begin, medium.access.loss
        self._outages = medium.outages
        self._down_bytes, self._up_bytes = medium.sizes.of_models(medium.clients), medium.sizes.of_updates(medium.clients)
        self._down, self._up = medium.ports(kind)
        self._carries_down, self._carries_up = medium.down.carries, medium.up.carries
        # Whether all that is sent in a round sets out in one go where every update is ready at once.
        self._together = medium.access.free and not rules.instant and energy is None
        # What follows once the delay of a link has passed.
        self._received = partial(self._carry, self._down, RECEIVING) if self._carries_down else self._downloaded
        self._sent = partial(self._carry, self._up, SENDING) if self._carries_up else self._uploaded
        for port, following in ((self._down, self._downloaded), (self._up, self._uploaded)):
            port.on_end = partial(self._carried, following)
            port.on_stop = partial(self._carried, self._stopped)
        self._battery = energy is not None and energy.batteries is not None
        self._charged = energy is not None and energy.charger is not None

    def begin_all(self, updates: Sequence[Update], now: float) -> None:
        """The model is sent to the clients of `updates`, which share their draws."""
        if self._together and updates[0].model_draws.at_once:
            self._send_all(updates, now)
        else:
            for update in updates:
                self.begin(update, now)

    def _send_all(self, updates: Sequence[Update], now: float) -> None:
        """What the steps of `begin` come to where all is sent at once: half of their cost would be calls from one to the next."""
        draws, count = updates[0].send_draws, len(updates)
        survive, duration_s = draws.uplink.values_at(now, count), draws.upload.values_at(now, count)
        down, up, charge = self._down_bytes, self._up_bytes, self.accountant.charge if self.charges_on_upload else None
        call_at, due = self.clock.call_at, self._due
        for place, update in enumerate(updates):
            update.download_start_s = update.download_end_s = update.compute_start_s = update.compute_end_s = now
            update.samples, update.steps = update.work_samples, update.work_steps
            update.upload_start_s = now
            client = update.client
            update.bytes_down, update.bytes_up = down[client], up[client]
            if charge is not None:
                update.charged = True
                update.epsilon, update.leak = charge(client)
                update.budget = update.epsilon
            update.survives = survive[place]
            due_s = now + duration_s[place]
            if due_s >= update.departure_s:
                due_s = update.departure_s
            update.phase, update.phase_start_s, update.due_s = UPLOAD, now, due_s
            update.order = call_at(due_s, due, update)
        self.uploads += count
        self.sending += count
        self.bytes_down += sum([update.bytes_down for update in updates])
        self.bytes_up += sum([update.bytes_up for update in updates])

    def begin(self, update: Update, now: float) -> None:
        """The model is sent to the update's client."""
        update.bytes_down = self._down_bytes[update.client]
        self.bytes_down += update.bytes_down
        if update.model_draws.at_once:
            update.download_start_s = update.download_end_s = update.compute_start_s = update.compute_end_s = now
            update.samples, update.steps = update.work_samples, update.work_steps
            self._offer(update, now)
            return
        update.download_start_s = now
        duration_s = update.model_draws.download.at(update.place, now)
        if duration_s:
            self._go(update, DOWNLOAD, duration_s, now)
        else:
            self._received(update, now)

    def proceed(self, update: Update, now: float) -> None:
        """A new attempt has begun: send what is kept; what is still under way goes on by itself."""
        if update.phase == KEPT:
            self._offer(update, now)

    def cut(self, update: Update, outcome: str) -> None:
        """The attempt is over, by a decision of the server's."""
        self._end(update, outcome, self.clock.now)

    def drop(self, update: Update) -> None:
        """What is still being made, of no attempt at present, is lost."""
        if self._carries_down and update.client in self._down:
            self._down.leave(update.client)
        update.phase, update.due_s = ENDED, _EVER
        if self._energy is not None:
            self._energy.change(update, IDLE, self.clock.now)

    def schedule(self, update: Update) -> None:
        """Put the next step on the clock."""
        update.order = -1 if update.due_s == _EVER else self.clock.call_at(update.due_s, self._due, update)

    def _go(self, update: Update, phase: str, duration_s: float, now: float) -> None:
        """Enter a phase of known length: its end, or the client's departure if that comes first, is the next event."""
        due_s = now + duration_s
        if self._energy is not None:
            if self._battery:
                update.ends_s = due_s
            self._energy.change(update, DRAWS[phase], now)
        # Presence is [comes, goes): whoever would end at the very moment of leaving has left.
        if due_s >= update.departure_s:
            due_s = update.departure_s
        # Who waited has the departure on the clock already, unless another power has changed it.
        if update.phase != WAIT or due_s < update.departure_s or self._energy is not None:
            update.order = self.clock.call_at(due_s, self._due, update)
        update.phase, update.phase_start_s, update.due_s = phase, now, due_s
        if self._charged:
            self._watch(update)

    def _due(self, update: Update) -> None:
        now = self.clock.now
        # Else the call of a wait that ended, of a step that was timed again, or of an attempt that was cut.
        if update.due_s != now or update.order != self.clock.calling:
            return
        if now == update.departure_s:
            self.leave(update, now)
        elif update.phase == UPLOAD:
            self._sent(update, now)
        elif update.phase == COMPUTE:
            update.compute_from(update.phase_start_s)
            update.compute_end_s = now
            self._offer(update, now)
        else:
            self._received(update, now)

    def _downloaded(self, update: Update, now: float) -> None:
        update.download_start_s, update.download_end_s = update.phase_start_s, now
        draws = update.model_draws
        arrives = draws.downlink.at(update.place, update.phase_start_s)
        if not arrives or self._outages is not None:
            cause = None if self._outages is None else self._outages.cause(update.client, update.phase_start_s, now)
            if cause is not None or not arrives:
                self._end(update, "lost", now, cause or "channel")
                return
        self.train(update, now)

    def train(self, update: Update, now: float) -> None:
        """Its client has the model."""
        draws = update.model_draws
        update.compute_from(now)
        duration_s = draws.compute.at(update.place, now)
        if update.work_samples:
            duration_s += update.work_samples * draws.sample.at(update.place, now)
        if duration_s:
            self._go(update, COMPUTE, duration_s, now)
        else:
            update.compute_end_s = now
            self._offer(update, now)

    def replan(self, update: Update, ends_s: float) -> None:
        """Its present phase ends at another time than it was to."""
        if self._energy is not None:
            update.ends_s = ends_s
            self.predict(update)
        else:
            update.due_s = min(ends_s, update.departure_s)
            self.schedule(update)

    def _offer(self, update: Update, now: float) -> None:
        """What is finished is sent, or waits for its turn."""
        if not self._waits or self._take(update):
            self.transmit(update, now)
        else:
            update.phase, update.phase_start_s = WAIT, now
            self._until_departure(update, IDLE, now)

    def _until_departure(self, update: Update, state: int, now: float) -> None:
        """What comes next is not known, but for the client's departure."""
        if self._energy is not None:
            update.ends_s = _EVER
            self._energy.change(update, state, now)
        update.due_s = update.departure_s
        self.schedule(update)
        if self._charged:
            self._watch(update)

    def _watch(self, update: Update) -> None:
        """Look again as the update's client comes to a charger or leaves it, if that is before the next step."""
        assert self._energy is not None
        next_s = self._energy.next_charging_s(update.client)
        if next_s < update.due_s:
            self.clock.call_at(next_s, self._look, update)

    def _look(self, update: Update) -> None:
        if update.phase not in (ENDED, KEPT):
            assert self._energy is not None
            self._energy.advance(self.clock.now)
            self.predict(update)

    def predict(self, update: Update) -> None:
        """Something other than its own phases has changed what is in the battery of an update's client, or charges it."""
        assert self._energy is not None
        self._energy.predict(update, self.clock.now)
        due_s = min(update.ends_s, update.departure_s)
        if due_s != update.due_s:
            update.due_s = due_s
            self.schedule(update)
        if self._charged:
            self._watch(update)

    def resume(self, update: Update) -> None:
        """As `schedule`, of an update restored from a saved state."""
        if self._energy is not None:
            self._energy.resume(update)
        self.schedule(update)
        if self._charged and update.phase not in (ENDED, KEPT):
            self._watch(update)

    def transmit(self, update: Update, now: float) -> None:
        """It has access to the uplink."""
        update.upload_start_s = now
        self.uploads += 1
        self.sending += 1
        update.bytes_up = self._up_bytes[update.client]
        self.bytes_up += update.bytes_up
        if self.charges_on_upload and not update.charged:
            self._charge(update)
        draws = update.send_draws
        # The access first: a jammer whose dwell begins in this instant strikes before.
        way_s = 0.0 if self._own_link else self._begin(update, now)
        # Asked now: after a change point that comes before the end, the law in force would be another.
        update.survives = draws.uplink.at(update.send_place, now)
        place = update.send_place
        duration_s = draws.upload.after(place, now, way_s) if way_s else draws.upload.at(place, now)
        if duration_s or not self.instant:
            self._go(update, UPLOAD, duration_s, now)
        else:
            update.phase, update.phase_start_s, update.due_s = UPLOAD, now, now
            self._sent(update, now)

    def _charge(self, update: Update) -> None:
        update.charged = True
        update.epsilon, update.leak = self.accountant.charge(update.client)
        update.budget = update.epsilon

    def _carry(self, port: Port, state: int, update: Update, now: float) -> None:
        """The delay has passed: the bytes follow."""
        self._until_departure(update, state, now)
        port.join(update.client, update.client)

    def _carried(self, following: Callable[[Update, float], None], client: int) -> None:
        """The bytes of a client's message are through, or will never be."""
        update, now = self._find(client), self.clock.now
        if now == update.departure_s:
            self.leave(update, now)
        else:
            following(update, now)

    def _stopped(self, update: Update, now: float) -> None:
        """The link carries nothing any more."""
        self._end(update, "lost", now, "trace-end")

    def _uploaded(self, update: Update, now: float) -> None:
        cause = None if self._outages is None else self._outages.cause(update.client, update.upload_start_s, now)
        if cause is None and not self._own_link:
            cause = self._loss(update)
        if cause is None and not update.survives:
            cause = "channel"
        if cause is not None:
            self._end(update, "lost", now, cause)
            return
        if not self.charges_on_upload:
            self._charge(update)
        if self.serving.takes(update.begun_round):
            update.censored = False
            self._end(update, "delivered", now)
        else:
            self._end(update, "late", now)

    def leave(self, update: Update, now: float) -> None:
        """End an attempt as aborted, since its client goes away or its battery is empty."""
        empty = self._energy is not None and self._energy.runs_empty(update, now)
        self._end(update, "aborted", now, "battery" if empty else None)

    def _end(self, update: Update, outcome: str, now: float, cause: str | None = None) -> None:
        phase = update.phase
        update.outcome, update.outcome_s, update.cause = outcome, now, cause
        if self._energy is not None:
            if self.retry and outcome == "late" and phase in (DOWNLOAD, COMPUTE):
                self._energy.account(update, now)
            else:
                self._energy.change(update, IDLE, now)
        # A phase that was cut short ends with the update; a step that was not reached keeps NaN.
        if phase == UPLOAD:
            update.upload_end_s = now
            self.sending -= 1
            if self._carries_up and update.client in self._up:
                self._up.leave(update.client)
            update.phase = KEPT if self.retry and outcome != "delivered" else ENDED
        elif phase == WAIT:
            self._access.withdraw(update)
            update.phase = KEPT if self.retry else ENDED
        elif self.retry and outcome == "late":
            # The attempt is over, and the client goes on making the update: the phase is recorded in the attempt in which it
            # ends.
            update.untell_phase()
            self.on_end(update)
            return
        else:
            if phase == COMPUTE:
                update.compute_from(update.phase_start_s)
                update.compute_end_s = now
            else:
                update.download_start_s, update.download_end_s = update.phase_start_s, now
                if self._carries_down and update.client in self._down:
                    self._down.leave(update.client)
            update.phase = ENDED
        update.due_s = _EVER
        self.on_end(update)
        if phase == UPLOAD and self._waits:
            self._pass_on(update, now)

    def _pass_on(self, update: Update, now: float) -> None:
        """Free the sub-channel of `update` and start the next upload in its queue."""
        # A departure comes before a beginning of its instant: a client that leaves now gives its place away.
        while (following := self._access.next_after(update)) is not None and following.departure_s <= now:
            self.life_of(following).leave(following, now)
        following = self._access.end(update, delivered=update.outcome == "delivered")
        if following is not None:
            following.sent_after = update.number or None
            self.life_of(following).transmit(following, now)


class Asking(Protocol):
    """What asks clients for their loss beside their updates (`netsim.clients.probes`), as far as the pool looks at it."""

    under_way: dict[int, Update]
    joules: dict[str, float]

    @property
    def medium(self) -> Medium:
        """The links, with the draws, sizes and durations of what is asked, or was last."""

    @property
    def bytes_down(self) -> int:
        """Sent to clients so far."""

    @property
    def bytes_up(self) -> int:
        """Sent by clients so far."""

    def leave(self, clients: IntArray) -> None:
        """Clients (n,) were taken away from outside."""
