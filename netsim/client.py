"""The clients, and the life of one update: selected, download, local training, wait for a sub-channel, upload, and a named end.

All that is kept of a client between updates is an entry in a few arrays. An update is the unit that moves: each of its steps is
one timed callback, and it ends exactly once, as delivered, lost (a transmission failed), late (it arrived after its round had
closed, or was called off then) or aborted (the client went away, or was selected anew). Until then it is in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from netsim.channel import Medium, RoundDraw
from netsim.clock import Clock
from netsim.interfaces import Accountant, Availability, BoolArray, IntArray, State
from netsim.streams import Stream
from netsim.trace import Recorder, UpdateRow

DOWNLOAD, COMPUTE, WAIT, UPLOAD, ENDED = "download", "compute", "wait", "upload", "ended"
OUTCOMES = ("delivered", "lost", "late", "aborted")
_NAN = float("nan")
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

    __slots__ = (*_FIELDS, "draws")

    def __init__(
        self,
        *,
        client: int,
        round: int,
        version: int,
        age_rounds: int,
        place: int,
        leaves_s: float,
        now_s: float,
        draws: RoundDraws,
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
        self.censored = True
        self.epsilon = self.leak = _NAN
        self.outcome = ""
        self.selected_s = self.download_start_s = now_s
        self.download_end_s = self.compute_start_s = self.compute_end_s = _NAN
        self.upload_start_s = self.upload_end_s = self.outcome_s = _NAN

    def row(self, outcome: str) -> UpdateRow:
        """The record of this update."""
        return UpdateRow(
            self.round,
            self.client,
            outcome,
            self.selected_s,
            self.download_start_s,
            self.download_end_s,
            self.compute_start_s,
            self.compute_end_s,
            self.upload_start_s,
            self.upload_end_s,
            self.outcome_s,
            self.censored,
            self.version,
            self.age_rounds,
            self.epsilon,
            self.leak,
        )


class Clients:
    """All clients of a run: who is present, who is busy, how old their last delivery is; and the updates in flight.

    `accepts` is asked as an update arrives: True makes it delivered, False late. `on_end` is told of every end.
    `charge_on`: privacy is spent as the upload begins ("upload": a message that left the device has been released, whether it
    arrives or not) or only on delivery ("delivery").
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
        self.accepts: Callable[[Update], bool] = lambda update: True
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
        self._next = {DOWNLOAD: self._downloaded, COMPUTE: self._computed, UPLOAD: self._uploaded}

    def selectable(self, *, busy_too: bool) -> BoolArray:
        """(K,) who is present now, has budget left and is not busy (`busy_too`: or is)."""
        self.availability.advance(self.clock.now, self._availability_draws)
        able = self.availability.on & ~self.accountant.exhausted
        return able if busy_too else able & ~self.busy

    def start(self, round: int, chosen: IntArray, version: int) -> list[Update]:
        """Send the model to `chosen` (n,); a client that is still busy drops its old update, which ends as aborted."""
        now = self.clock.now
        draws = RoundDraws(self.medium, round, now, chosen)
        leaves = self.availability.next_change_s[chosen].tolist()
        last = self.last_delivery[chosen].tolist()
        updates = []
        for place, client in enumerate(chosen.tolist()):
            if client in self.in_flight:
                self._end(self.in_flight[client], "aborted")
            update = Update(
                client=client,
                round=round,
                version=version,
                age_rounds=round - last[place],
                place=place,
                leaves_s=leaves[place],
                now_s=now,
                draws=draws,
            )
            self.in_flight[client] = update
            updates.append(update)
        self.busy[chosen] = True
        self.started += len(updates)
        for update in updates:
            self._go(update, DOWNLOAD, draws.download.at(update.place, now))
        return updates

    def call_off(self, update: Update) -> None:
        """The server lets a straggler know that it no longer waits: it stops and ends as late."""
        self._end(update, "late")

    def _go(self, update: Update, phase: str, duration_s: float) -> None:
        """Enter a phase of known length: its end, or the client's departure if that comes first, is the next event."""
        update.phase = phase
        due = self.clock.now + duration_s
        # Presence is [comes, goes): whoever would end at the very moment of leaving has left.
        update.due_s = due if due < update.leaves_s else update.leaves_s
        if duration_s == 0 and phase != UPLOAD:
            self._next[phase](update)
        else:
            self.clock.call_at(update.due_s, self._due, update)

    def _due(self, update: Update) -> None:
        if update.phase == ENDED or update.due_s != self.clock.now:
            return  # the call of a wait that ended, or of an update that was called off
        if update.due_s == update.leaves_s:
            self._end(update, "aborted")
        else:
            self._next[update.phase](update)

    def _downloaded(self, update: Update) -> None:
        now = update.download_end_s = self.clock.now
        if not update.draws.downlink.at(update.place, update.download_start_s):
            self._end(update, "lost")
            return
        update.compute_start_s = now
        self._go(update, COMPUTE, update.draws.compute.at(update.place, now))

    def _computed(self, update: Update) -> None:
        update.compute_end_s = self.clock.now
        if self.medium.sub_channels.take(update):
            self._transmit(update)
            return
        update.phase = WAIT
        update.due_s = update.leaves_s
        if update.leaves_s < float("inf"):
            self.clock.call_at(update.leaves_s, self._due, update)

    def _transmit(self, update: Update) -> None:
        now = update.upload_start_s = self.clock.now
        self.uploads += 1
        if self._charge_on_upload:
            update.epsilon, update.leak = self.accountant.charge(update.client)
        self._go(update, UPLOAD, update.draws.upload.at(update.place, now))

    def _uploaded(self, update: Update) -> None:
        update.upload_end_s = self.clock.now
        if not update.draws.uplink.at(update.place, update.upload_start_s):
            self._end(update, "lost")
            return
        if not self._charge_on_upload:
            update.epsilon, update.leak = self.accountant.charge(update.client)
        if self.accepts(update):
            update.censored = False
            self.last_delivery[update.client] = update.round
            self._end(update, "delivered")
        else:
            self._end(update, "late")

    def _end(self, update: Update, outcome: str) -> None:
        now = self.clock.now
        phase, update.phase = update.phase, ENDED
        update.outcome = outcome
        update.outcome_s = now
        # A phase that was cut short ends with the update; a step that was not reached keeps NaN.
        if phase == DOWNLOAD and update.download_end_s != update.download_end_s:
            update.download_end_s = now
        elif phase == COMPUTE and update.compute_end_s != update.compute_end_s:
            update.compute_end_s = now
        elif phase == UPLOAD and update.upload_end_s != update.upload_end_s:
            update.upload_end_s = now
        self.ended[outcome] += 1
        del self.in_flight[update.client]
        self.busy[update.client] = False
        self.recorder.update(update.row(outcome))
        sub_channels = self.medium.sub_channels
        if phase == WAIT:
            sub_channels.waiting.remove(update)
        self.on_end(update)
        if phase == UPLOAD:
            following = sub_channels.release()
            if following is not None:
                self._transmit(following)

    def state_dict(self) -> State:
        """Presence, ages, counts and every update in flight with what it does next."""
        flights = [{name: getattr(update, name) for name in _FIELDS} for update in self.in_flight.values()]
        return {
            "busy": self.busy.copy(),
            "last_delivery": self.last_delivery.copy(),
            "started": self.started,
            "uploads": self.uploads,
            "ended": dict(self.ended),
            "in_flight": flights,
            "draws": {update.round: update.draws.state_dict() for update in self.in_flight.values()},
            "held": self.medium.sub_channels.held,
            "line": [update.client for update in self.medium.sub_channels.waiting],
            "availability": self.availability.state_dict(),
            "accountant": self.accountant.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Take the state over; the updates in flight are put on the clock anew, in the order in which they are due."""
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
            self.in_flight[update.client] = update
        sub_channels = self.medium.sub_channels
        sub_channels.held = state["held"]
        sub_channels.waiting = deque(self.in_flight[client] for client in state["line"])
        for update in self.in_flight.values():
            if update.due_s < float("inf"):
                self.clock.call_at(update.due_s, self._due, update)
