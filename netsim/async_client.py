"""The clients of the asynchronous server: an update lives until it is delivered, and takes part in one round after another.

A client's part in a round ends exactly once: delivered, lost (the transmission failed, or the model did not reach the client),
late (the round was over while it still computed or sent) or aborted (the client went away). After a loss, a cut or a departure
the finished update is kept and sent again; an update that was still being made as its client went away is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from netsim.channel import Medium, RoundDraw
from netsim.client import COMPUTE, DOWNLOAD, OUTCOMES, UPLOAD
from netsim.clock import Clock
from netsim.interfaces import Accountant, Availability, BoolArray, IntArray, State
from netsim.jammer import Jammers
from netsim.part import IDLE, KEPT, READY, Part
from netsim.sparing import Losses, UpdateDraws, Waits
from netsim.spectrum import Spectrum
from netsim.streams import Stream

_EVER = float("inf")
_NAN = float("nan")


class AsyncClients:
    """All clients of an asynchronous server; what each does is one `Part`. K is at most the number of sub-channels.

    An upload takes the delay of the client's own link and that of its sub-channel, and fails if either loses it.
    `charge_on`: privacy is spent as an update is first sent ("upload"; sending the same again reveals nothing new) or only as it
    is delivered ("delivery"). `on_change` is told whenever a part moves on after the round has been opened.
    """

    def __init__(
        self,
        *,
        clients: int,
        clock: Clock,
        medium: Medium,
        spectrum: Spectrum,
        jammers: Jammers,
        availability: Availability,
        availability_draws: Stream,
        accountant: Accountant,
        charge_on: str = "upload",
    ) -> None:
        self.count = clients
        self.clock = clock
        self.medium = medium
        self.spectrum = spectrum
        self.jammers = jammers
        self.availability = availability
        self.accountant = accountant
        self.on_change: Callable[[], None] = lambda: None
        self.parts = [Part(client) for client in range(clients)]
        self.members: list[Part] = []
        """Who has a part in the present round, in the order of the clients."""
        self.ended = dict.fromkeys(OUTCOMES, 0)
        """Parts that have ended so far."""
        self.started = 0
        """Parts begun so far."""
        self.sent = self.models_sent = 0
        """Transmissions begun, and models sent to clients, so far."""
        self.sending = self.preparing = 0
        """Parts of the present round that are under way on a sub-channel, and before that."""
        self._availability_draws = availability_draws
        self._charge_on_upload = charge_on == "upload"
        self._everyone: IntArray = np.arange(clients)
        self._download, self._compute = Waits(medium.download), Waits(medium.compute)
        self._upload = Waits(medium.upload)
        self._downlink, self._uplink = Losses(medium.downlink), Losses(medium.uplink)
        self._draws: dict[int, UpdateDraws] = {}
        self._up: RoundDraw[float] | None = None
        self._up_link: RoundDraw[bool] | None = None
        self._round = 0
        self._settled = False
        self._leaves: list[float] = []

    def renew(self, phase: Literal["download", "compute", "upload"]) -> None:
        """The law of a phase was replaced from outside: what has not begun yet is looked up anew, at the same uniforms."""
        now = self.clock.now
        if phase == UPLOAD:
            self._up = self._upload.draw(self._round, now, self._everyone)
            return
        waits = self._download if phase == DOWNLOAD else self._compute
        for round in {part.started_round for part in self.members if part.phase == DOWNLOAD}:
            draws = self._draws[round]
            setattr(draws, phase, waits.draw(round, now, draws.clients))

    def able(self) -> BoolArray:
        """(K,) who has an update, or the budget to make one."""
        return np.array([part.phase != IDLE for part in self.parts]) | ~self.accountant.exhausted

    def present(self) -> BoolArray:
        """(K,) who of them is here now."""
        if not self._settled:
            self.availability.advance(self.clock.now, self._availability_draws)
            # Where nobody will ever come or go again, presence need not be asked for any more.
            self._settled = bool(self.availability.next_change_s.min() == _EVER)
            self._leaves = self.availability.next_change_s.tolist()
        on = self.availability.on
        return on & self.able() if True in self.accountant.exhausted.tolist() else on

    def open_round(self, round: int, version: int, present: BoolArray, channels: list[int]) -> None:
        """Give everyone present a part in `round`: who has no update is sent the model, who has one sends it."""
        now = self.clock.now
        self._round = round
        here = present.tolist()
        leaves = self._leaves
        self.members, fresh, ready = [], [], []
        for part in self.parts:
            if not here[part.client]:
                continue
            part.join(channels[part.client])
            part.leaves_s = leaves[part.client]
            self.members.append(part)
            if part.phase == IDLE:
                fresh.append(part)
            elif part.phase == READY:
                ready.append(part)
        self.started += len(self.members)
        self.preparing, self.sending = len(self.members) - len(fresh) - len(ready), 0
        self._up = self._upload.draw(round, now, self._everyone)
        self._up_link = self._uplink.draw(round, now, self._everyone)
        self._start(fresh, round, version)
        for part in ready:
            self._transmit(part, now)

    def _start(self, fresh: list[Part], round: int, version: int) -> None:
        now = self.clock.now
        if not fresh:
            return
        clients = self._everyone if len(fresh) == self.count else np.array([part.client for part in fresh])
        down_link = self._downlink.draw(round, now, clients)
        download, compute = self._download.draw(round, now, clients), self._compute.draw(round, now, clients)
        if download is not None or compute is not None:
            self._draws[round] = UpdateDraws(clients, now, download, compute)
        self.models_sent += len(fresh)
        self.preparing += len(fresh)
        at_once = download is None and compute is None and down_link is None
        for place, part in enumerate(fresh):
            part.started_round, part.version = round, version
            part.charged, part.epsilon, part.leak = False, _NAN, _NAN
            part.download_start_s = now
            if at_once:
                part.download_end_s = part.compute_start_s = part.compute_end_s = now
                self.preparing -= 1
                self._transmit(part, now)
                continue
            part.compute_start_s = _NAN
            part.reached = down_link is None or down_link.at(place, now)
            self._go(part, DOWNLOAD, 0.0 if download is None else download.at(place, now), now)

    def _go(self, part: Part, phase: str, duration_s: float, now: float) -> None:
        """Enter a phase of known length: its end, or the client's departure if that comes first, is the next event."""
        part.phase = phase
        if duration_s == 0.0 and (phase != UPLOAD or not self.spectrum.contention):
            self._advance(part, now)
            return
        due = now + duration_s
        # Presence is [comes, goes): whoever would end at the very moment of leaving has left.
        part.due_s = due if due < part.leaves_s else part.leaves_s
        self.clock.call_at(part.due_s, self._due, part)

    def _due(self, part: Part) -> None:
        now = self.clock.now
        if part.due_s != now:
            return  # the call of a transmission that was cut
        if now == part.leaves_s:
            self._leave(part, now)
        else:
            self._advance(part, now)
        self.on_change()

    def _advance(self, part: Part, now: float) -> None:
        if part.phase == UPLOAD:
            self._uploaded(part, now)
        elif part.phase == COMPUTE:
            self._computed(part, now)
        else:
            self._downloaded(part, now)

    def _downloaded(self, part: Part, now: float) -> None:
        part.download_end_s = now
        if not part.reached:
            part.phase = IDLE
            self.preparing -= 1
            self._end(part, "lost", now)
            return
        part.compute_start_s = now
        draws = self._draws.get(part.started_round)
        compute = draws.compute if draws is not None else None
        place = 0 if compute is None else int(np.searchsorted(compute.clients, part.client))
        self._go(part, COMPUTE, 0.0 if compute is None else compute.at(place, now), now)

    def _computed(self, part: Part, now: float) -> None:
        part.compute_end_s = now
        self.preparing -= 1
        self._transmit(part, now)

    def _transmit(self, part: Part, now: float) -> None:
        part.upload_start_s = now
        if self.jammers.next_s <= now:
            self.jammers.catch_up()
        if self._charge_on_upload and not part.charged:
            self._charge(part)
        self.sent += 1
        self.sending += 1
        duration = self.spectrum.delay_s(part.channel, now)
        if self._up is not None:
            duration += self._up.at(part.client, now)
        self.spectrum.begin(part, now)
        self._go(part, UPLOAD, duration, now)

    def _uploaded(self, part: Part, now: float) -> None:
        part.upload_end_s = now
        arrived = bool(part.good) and not part.jammed and not part.collided
        if arrived and self._up_link is not None:
            arrived = self._up_link.at(part.client, part.upload_start_s)
        self._off_the_air(part, delivered=arrived)
        if not arrived:
            part.phase = READY
            self._end(part, "lost", now)
            return
        if not self._charge_on_upload:
            self._charge(part)
        part.phase = IDLE
        self._end(part, "delivered", now)

    def _charge(self, part: Part) -> None:
        part.charged = part.spent = True
        part.epsilon, part.leak = self.accountant.charge(part.client)

    def _off_the_air(self, part: Part, *, delivered: bool) -> None:
        self.sending -= 1
        self.spectrum.end(part, delivered=delivered)

    def _leave(self, part: Part, now: float) -> None:
        if part.phase == UPLOAD:
            part.upload_end_s = now
            self._off_the_air(part, delivered=False)
            part.phase = READY
        else:
            if part.phase == DOWNLOAD:
                part.download_end_s = now
            else:
                part.compute_end_s = now
            self.preparing -= 1
            part.phase = IDLE
        self._end(part, "aborted", now)

    def _end(self, part: Part, outcome: str, now: float) -> None:
        part.outcome, part.outcome_s = outcome, now
        if part.phase not in (DOWNLOAD, COMPUTE):
            part.due_s = _EVER
        self.ended[outcome] += 1

    def close_round(self) -> None:
        """The round is over: transmissions under way are cut, and who still computes has missed it."""
        if self.sending or self.preparing:
            now = self.clock.now
            for part in self.members:
                if part.outcome:
                    continue
                if part.phase == UPLOAD:
                    part.upload_end_s = now
                    self._off_the_air(part, delivered=False)
                    part.phase = READY
                self._end(part, "late", now)
        if not self._draws:
            return
        needed = {part.started_round for part in self.members if part.phase == DOWNLOAD}
        self._draws = {round: draws for round, draws in self._draws.items() if round in needed}

    def state_dict(self) -> State:
        """Between two rounds: every client's update and what it does next, presence, spendings and counts."""
        return {
            "parts": [{name: getattr(part, name) for name in KEPT} for part in self.parts],
            "draws": [
                {
                    "round": round,
                    "clients": draws.clients.copy(),
                    "started_s": draws.started_s,
                    "download": None if draws.download is None else draws.download.state_dict(),
                    "compute": None if draws.compute is None else draws.compute.state_dict(),
                }
                for round, draws in self._draws.items()
            ],
            "ended": dict(self.ended),
            "counts": [self.started, self.sent, self.models_sent],
            "availability": self.availability.state_dict(),
            "accountant": self.accountant.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Take the state over; who is busy is put on the clock anew (of one instant, in whichever order: records do not tell)."""
        for part, saved in zip(self.parts, state["parts"], strict=True):
            for name in KEPT:
                setattr(part, name, saved[name])
        self._draws = {}
        for drawn in state["draws"]:
            round, clients, started_s = drawn["round"], drawn["clients"].copy(), drawn["started_s"]
            download, compute = drawn["download"], drawn["compute"]
            self._draws[round] = UpdateDraws(
                clients,
                started_s,
                None if download is None else self._download.redraw(round, started_s, clients, download),
                None if compute is None else self._compute.redraw(round, started_s, clients, compute),
            )
        self.ended = dict(state["ended"])
        self.started, self.sent, self.models_sent = state["counts"]
        self.availability.load_state_dict(state["availability"])
        self.accountant.load_state_dict(state["accountant"])
        for part in self.parts:
            if part.phase in (DOWNLOAD, COMPUTE) and part.due_s < _EVER:
                self.clock.call_at(part.due_s, self._due, part)
