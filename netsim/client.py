"""The clients, and the life of one update: selected, download, local training, wait for a sub-channel, upload, and a named end.

All that is kept of a client between updates is an entry in a few arrays. An update is the unit that moves: each of its steps is
one timed callback, and it ends exactly once, as delivered, lost (a transmission failed), late (it arrived after its round had
closed, or was called off then) or aborted (the client went away, or was selected anew). Until then it is in flight.

The time of an event is passed along from step to step: this is the path that every update of a run takes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import numpy as np

from netsim.channel import Medium, RoundDraw
from netsim.clock import Clock
from netsim.interfaces import Accountant, Availability, BoolArray, IntArray, State
from netsim.streams import Stream
from netsim.trace import Recorder, UpdateRow

DOWNLOAD, COMPUTE, WAIT, UPLOAD, ENDED = "download", "compute", "wait", "upload", "ended"
OUTCOMES = ("delivered", "lost", "late", "aborted")
_NAN = float("nan")
_EVER = float("inf")
_DRAWN = ("download", "downlink", "compute", "upload", "uplink")
# What an update is made of, as plain data; its draws and its pending call are made anew from these.
_FIELDS = (
    "client",
    "round",
    "version",
    "age_rounds",
    "place",
    "phase",
    "due_s",
    "leaves_s",
    "survives",
    "censored",
    "epsilon",
    "leak",
    "outcome",
    "selected_s",
    "download_start_s",
    "download_end_s",
    "compute_start_s",
    "compute_end_s",
    "upload_start_s",
    "upload_end_s",
    "outcome_s",
)
# The columns of an update's record carry the names of its fields; those that only other servers fill come last.
_COLUMNS = tuple(name for name in UpdateRow._fields if name not in UpdateRow._field_defaults)
_RECORDED: Callable[[Update], tuple[Any, ...]] = attrgetter(*_COLUMNS)
_NOT_RECORDED = (None,) * (len(UpdateRow._fields) - len(_COLUMNS))


class RoundDraws:
    """What the updates of one round will need, drawn as the round begins."""

    __slots__ = ("clients", "compute", "downlink", "download", "started_s", "uplink", "upload")

    def __init__(self, medium: Medium, round: int, time_s: float, clients: IntArray) -> None:
        self.clients = clients
        self.started_s = time_s
        self.download: RoundDraw[float] = medium.download.draw(round, time_s, clients)
        self.downlink: RoundDraw[bool] = medium.downlink.draw(round, time_s, clients)
        self.compute: RoundDraw[float] = medium.compute.draw(round, time_s, clients)
        self.upload: RoundDraw[float] = medium.upload.draw(round, time_s, clients)
        self.uplink: RoundDraw[bool] = medium.uplink.draw(round, time_s, clients)

    def state_dict(self) -> State:
        """The values as drawn: a channel's state has moved on since, so they could not all be drawn again."""
        drawn = {name: getattr(self, name).state_dict() for name in _DRAWN}
        return {"clients": self.clients.copy(), "started_s": self.started_s, **drawn}

    def load_state_dict(self, state: State) -> None:
        """Take the values as they were drawn."""
        for name in _DRAWN:
            getattr(self, name).load_state_dict(state[name])


class Update:
    """One client's part in one round. Times are seconds, NaN where a step was not reached."""

    __slots__ = (*_FIELDS, "draws", "order")

    def __init__(
        self, client: int, round: int, version: int, age_rounds: int, place: int, leaves_s: float, now_s: float, draws: RoundDraws
    ) -> None:
        self.client = client
        self.round = round
        self.version = version
        self.age_rounds = age_rounds
        self.place = place
        """Position among the clients of its round: where its draws are."""
        self.leaves_s = leaves_s
        """When the client will go away; known to the engine, to nobody else."""
        self.draws = draws
        self.phase = DOWNLOAD
        self.due_s = now_s
        self.order = -1
        """The number of its next step among the calls of the clock; -1: none is set."""
        self.survives = True
        """Whether the upload gets through, settled as it begins."""
        self.censored = True
        self.epsilon = self.leak = _NAN
        self.outcome = ""
        self.selected_s = self.download_start_s = now_s
        self.download_end_s = self.compute_start_s = self.compute_end_s = _NAN
        self.upload_start_s = self.upload_end_s = self.outcome_s = _NAN

    def row(self) -> UpdateRow:
        """The record of this update."""
        return UpdateRow._make(_RECORDED(self) + _NOT_RECORDED)


class Clients:
    """All clients of a run: who is present, who is busy, how old their last delivery is; and the updates in flight.

    `on_end` is told of every end. `charge_on`: privacy is spent as the upload begins ("upload": a message that left the device
    has been released, whether it arrives or not) or only on delivery ("delivery").
    """

    def __init__(
        self,
        *,
        clients: int,
        clock: Clock,
        medium: Medium,
        availability: Availability,
        availability_draws: Stream,
        accountant: Accountant,
        recorder: Recorder,
        charge_on: str = "upload",
    ) -> None:
        self.count = clients
        self.clock = clock
        self.medium = medium
        self.availability = availability
        self.accountant = accountant
        self.recorder = recorder
        self.open_round: int | None = None
        """The round whose updates the server still takes: an update of any other arrives late."""
        self.on_end: Callable[[Update], None] = lambda update: None
        self.busy: BoolArray = np.zeros(clients, np.bool_)
        self.last_delivery: IntArray = np.zeros(clients, np.int64)
        """(K,) round of the last delivered update; 0: none yet. The age of information after round t is t - last + 1."""
        self.in_flight: dict[int, Update] = {}
        self.started = 0
        self.uploads = 0
        self.ended = dict.fromkeys(OUTCOMES, 0)
        self._availability_draws = availability_draws
        self._charge_on_upload = charge_on == "upload"

    def selectable(self, *, busy_too: bool) -> BoolArray:
        """(K,) who is present now, has budget left and is not busy (`busy_too`: or is)."""
        self.availability.advance(self.clock.now, self._availability_draws)
        able = self.availability.on & ~self.accountant.exhausted
        return able if busy_too else able & ~self.busy

    def ever_selectable(self) -> int:
        """How many clients are present or will come, and have budget left: as many as can at most be selectable at once."""
        comes = self.availability.on | (self.availability.next_change_s < _EVER)
        return int(np.count_nonzero(comes & ~self.accountant.exhausted))

    def start(self, round: int, chosen: IntArray, version: int) -> list[Update]:
        """Send the model to `chosen` (n,); a client that is still busy drops its old update, which ends as aborted."""
        now = self.clock.now
        in_flight = self.in_flight
        listed = chosen.tolist()
        self._end_all([in_flight[client] for client in listed if client in in_flight], "aborted")
        draws = RoundDraws(self.medium, round, now, chosen)
        leaves = self.availability.next_change_s[chosen].tolist()
        last = self.last_delivery[chosen].tolist()
        updates = []
        for place, client in enumerate(listed):
            update = Update(client, round, version, round - last[place], place, leaves[place], now, draws)
            in_flight[client] = update
            updates.append(update)
        self.busy[chosen] = True
        self.started += len(updates)
        for update in updates:
            duration_s = draws.download.at(update.place, now)
            if duration_s == 0:
                self._downloaded(update, now)
            else:
                self._go(update, DOWNLOAD, duration_s, now)
        return updates

    def call_off(self, updates: Iterable[Update]) -> None:
        """The server lets stragglers know that it no longer waits: they stop and end as late."""
        self._end_all(updates, "late")

    def _end_all(self, updates: Iterable[Update], outcome: str) -> None:
        # Those first who wait in line: none of them is to take over a sub-channel only to leave it in the same instant.
        for update in sorted(updates, key=lambda update: update.phase != WAIT):
            self._end(update, outcome, self.clock.now)

    def _go(self, update: Update, phase: str, duration_s: float, now: float) -> None:
        """Enter a phase of known length: its end, or the client's departure if that comes first, is the next event."""
        due_s = now + duration_s
        # Presence is [comes, goes): whoever would end at the very moment of leaving has left.
        if due_s >= update.leaves_s:
            due_s = update.leaves_s
        # Who waited has the departure on the clock already.
        if update.phase != WAIT or due_s < update.leaves_s:
            update.order = self.clock.call_at(due_s, self._due, update)
        update.phase = phase
        update.due_s = due_s

    def _due(self, update: Update) -> None:
        now = update.due_s
        if update.phase == ENDED or now != self.clock.now:
            return  # the call of a wait that ended, or of an update that was called off
        if now == update.leaves_s:
            self._end(update, "aborted", now)
        elif update.phase == UPLOAD:
            self._uploaded(update, now)
        elif update.phase == COMPUTE:
            self._computed(update, now)
        else:
            self._downloaded(update, now)

    def _downloaded(self, update: Update, now: float) -> None:
        update.download_end_s = now
        draws = update.draws
        if not draws.downlink.at(update.place, update.download_start_s):
            self._end(update, "lost", now)
            return
        update.compute_start_s = now
        duration_s = draws.compute.at(update.place, now)
        if duration_s == 0:
            self._computed(update, now)
        else:
            self._go(update, COMPUTE, duration_s, now)

    def _computed(self, update: Update, now: float) -> None:
        update.compute_end_s = now
        if self.medium.sub_channels.take(update):
            self._transmit(update, now)
            return
        update.phase = WAIT
        update.due_s = update.leaves_s
        update.order = -1
        if update.leaves_s < _EVER:
            update.order = self.clock.call_at(update.leaves_s, self._due, update)

    def _transmit(self, update: Update, now: float) -> None:
        update.upload_start_s = now
        self.uploads += 1
        if self._charge_on_upload:
            update.epsilon, update.leak = self.accountant.charge(update.client)
        draws = update.draws
        # Asked now: after a change point that comes before the end, the law in force would be another.
        update.survives = draws.uplink.at(update.place, now)
        self._go(update, UPLOAD, draws.upload.at(update.place, now), now)

    def _uploaded(self, update: Update, now: float) -> None:
        update.upload_end_s = now
        if not update.survives:
            self._end(update, "lost", now)
            return
        if not self._charge_on_upload:
            update.epsilon, update.leak = self.accountant.charge(update.client)
        if update.round == self.open_round:
            update.censored = False
            self.last_delivery[update.client] = update.round
            self._end(update, "delivered", now)
        else:
            self._end(update, "late", now)

    def _end(self, update: Update, outcome: str, now: float) -> None:
        phase, update.phase = update.phase, ENDED
        update.outcome = outcome
        update.outcome_s = now
        # A phase that was cut short ends with the update; a step that was not reached keeps NaN.
        if phase == UPLOAD:
            update.upload_end_s = now
        elif phase == COMPUTE:
            update.compute_end_s = now
        elif phase == DOWNLOAD:
            update.download_end_s = now
        else:
            self.medium.sub_channels.waiting.remove(update)
        self.ended[outcome] += 1
        del self.in_flight[update.client]
        self.busy[update.client] = False
        self.recorder.update(update.row())
        self.on_end(update)
        if phase == UPLOAD:
            following = self.medium.sub_channels.release()
            if following is not None:
                self._transmit(following, now)

    def record_unfinished(self) -> None:
        """The run is over: record what is still in flight as such."""
        for update in sorted(self.in_flight.values(), key=lambda update: (update.round, update.place)):
            self.recorder.update(update.row()._replace(outcome="in_flight", outcome_s=self.clock.now))

    def state_dict(self) -> State:
        """Presence, ages, counts and every update in flight with what it does next."""
        # In the order in which their next steps stand on the clock, which decides between two of one instant.
        flights = sorted(self.in_flight.values(), key=lambda update: (update.order, update.round, update.place))
        return {
            "busy": self.busy.copy(),
            "last_delivery": self.last_delivery.copy(),
            "started": self.started,
            "uploads": self.uploads,
            "ended": dict(self.ended),
            "in_flight": [{name: getattr(update, name) for name in _FIELDS} for update in flights],
            "draws": {update.round: update.draws.state_dict() for update in flights},
            "held": self.medium.sub_channels.held,
            "line": [update.client for update in self.medium.sub_channels.waiting],
            "availability": self.availability.state_dict(),
            "accountant": self.accountant.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Take the state over; the updates in flight are put on the clock anew, in the order in which they were."""
        self.busy = state["busy"].copy()
        self.last_delivery = state["last_delivery"].copy()
        self.started = state["started"]
        self.uploads = state["uploads"]
        self.ended = dict(state["ended"])
        self.availability.load_state_dict(state["availability"])
        self.accountant.load_state_dict(state["accountant"])
        draws = {}
        for round, drawn in state["draws"].items():
            draws[round] = RoundDraws(self.medium, round, drawn["started_s"], drawn["clients"].copy())
            draws[round].load_state_dict(drawn)
        self.in_flight = {}
        for flight in state["in_flight"]:
            update = Update.__new__(Update)
            for name in _FIELDS:
                setattr(update, name, flight[name])
            update.draws = draws[update.round]
            update.order = -1 if update.due_s == _EVER else self.clock.call_at(update.due_s, self._due, update)
            self.in_flight[update.client] = update
        sub_channels = self.medium.sub_channels
        sub_channels.held = state["held"]
        sub_channels.waiting = deque(self.in_flight[client] for client in state["line"])
