"""The energy of all clients: joules of each attempt, total power over time, and batteries.

A client draws `receive_w` while it is sent the model, `compute_w` while it trains and `send_w` while it sends. Otherwise it draws
`idle_w` while it is present (also while it waits for a sub-channel) and `off_w` while it is absent. It draws nothing while its
battery is empty. Tests of the model, opinions and messages between clients draw further power on top.

Energy is counted twice, independently. The first account sums the joules of the phases of each attempt, and the idle energy of
each client. The second is the integral of power over time, to which every change of state is reported. A run compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from netsim.clients.power.power_integral import COMPUTING, IDLE, RECEIVING, SENDING, ActivityEnergy, PhaseEnergy, PowerIntegral
from netsim.clients.power.powers import KnownPhases, Powers
from netsim.clients.steps.stages import STAGE_OF

if TYPE_CHECKING:
    from netsim.clients.power.battery import Batteries
    from netsim.core.protocols import Availability, BoolArray, Draws, FloatArray, IntArray, State

_EVER = float("inf")
COLUMNS = {"compute_j": COMPUTING, "send_j": SENDING, "receive_j": RECEIVING, "idle_j": IDLE}
"""Columns of a round, and the states whose energy they hold."""


class Drawing(Protocol):
    """The attributes of an attempt that this module reads and records (`netsim.clients.update.Update`)."""

    client: int
    phase: str
    phase_start_s: float
    drawing: int
    """State of the client in the present phase."""
    watts: tuple[float, ...]
    """Powers of the client by state, watts."""
    metered_s: float
    """Time up to which the columns of the attempt include the energy of this state."""
    receive_j: float
    compute_j: float
    send_j: float
    away_s: float
    """Time at which its client will go away."""
    departure_s: float
    """Time at which the client will go away or its battery will be empty, if nothing changes before."""


@dataclass(frozen=True, slots=True)
class FollowedPresence:
    """A law of presence (of clients, or at a charger) and the stream from which it draws."""

    presence: Availability
    draws: Draws

    def changes(self, now_s: float) -> Iterator[tuple[IntArray, FloatArray]]:
        """Advance the law to `now_s` and yield each change, as `Availability.changes` does."""
        return self.presence.changes(now_s, self.draws)


class Energy:
    """Energy and batteries of the K clients.

    It stands in for the presence law of the clients: a client is `on` if it is present with enough charge. `followed`: presence
    of the clients. `batteries`: None for mains power. `charger`: presence of the clients at a charger, or None.
    """

    def __init__(
        self,
        *,
        powers: Powers,
        followed: FollowedPresence,
        batteries: Batteries | None = None,
        charger: FollowedPresence | None = None,
    ) -> None:
        self.powers = powers
        self.followed = followed
        self.presence = followed.presence
        self.batteries = batteries
        self.charger = charger
        self.integral = PowerIntegral()
        """Second account: the integral of power over time."""
        self._pending_w, self._pending_j = self.integral.pending_w, self.integral.pending_j
        self.besides = ActivityEnergy()
        """Energy of tests, opinions and messages."""
        self.spent = PhaseEnergy()
        """Energy of attempts in their phases."""
        self.phases = KnownPhases(powers=powers, integral=self.integral, spent=self.spent)
        """Account of attempts that are simulated together as arrays."""
        self._catch_up: Callable[[float], None] = lambda now_s: None
        self.aborted = 0
        """Number of attempts aborted by an empty battery so far, without probes. Listeners to ends of attempts count them."""
        clients = len(powers.idle_w)
        self._present: BoolArray = self.presence.on.copy()
        """True (K,) for clients that were present at the last change accounted for."""
        self._base_w: FloatArray = np.zeros(clients)
        """Power (K,) that each client draws outside of phases, watts."""
        self._base_j: FloatArray = np.zeros(clients)
        """Joules (K,) that each client would have drawn up to `_base_s` without any phase."""
        self._base_s: FloatArray = np.zeros(clients)
        """Time (K,) of the last change of `_base_w`."""
        self._same = powers.same
        """Power by state as plain numbers, if all clients draw the same; otherwise None."""
        self._owed_j: FloatArray | None = None
        """Joules (K,) drawn by tests and messages that are not yet subtracted from the batteries."""
        if batteries is not None:
            batteries.listen(self._rebase)
        self._rebase(np.arange(clients), self._base_s.copy())

    def listen(self, catch_up: Callable[[float], None]) -> None:
        """Set the callback that is called with the present time before energy is read. It accounts for attempts that were
        simulated as arrays (`WholeRounds`).
        """
        self._catch_up = catch_up

    @property
    def on(self) -> BoolArray:
        """True (K,) for clients that are present and have enough charge to be selected."""
        return self.presence.on if self.batteries is None else self.presence.on & self.batteries.ready

    @property
    def next_change_s(self) -> FloatArray:
        """Time (K,) of the next change of presence, charging or readiness of each client, if nothing else happens; inf: never."""
        if self.batteries is None:
            return self.presence.next_change_s
        soonest = np.minimum(self.presence.next_change_s, self.batteries.next_s)
        return soonest if self.charger is None else np.minimum(soonest, self.charger.presence.next_change_s)

    def ever_on(self) -> BoolArray:
        """Return True (K,) for clients that are on or may become so: present at some time, and with enough charge or a charger
        that supplies more than they draw.
        """
        presence, batteries = self.presence, self.batteries
        comes_or_goes = presence.next_change_s < _EVER
        ever_present = presence.on | comes_or_goes
        if batteries is None:
            return ever_present
        if self.charger is None:
            return ever_present & batteries.ready
        charger, powers = self.charger.presence, self.powers
        gains_while_present = batteries.charge_w > powers.idle_w
        gains_while_absent = comes_or_goes & (batteries.charge_w > powers.off_w)
        # An empty client draws nothing until it is ready again; from then on its charge must not fall.
        gains_while_empty = batteries.dead & (batteries.charge_w > 0.0) & (batteries.charge_w >= powers.idle_w)
        gains = gains_while_present | gains_while_absent | gains_while_empty
        ever_at_charger = charger.on | (charger.next_change_s < _EVER)
        return ever_present & (batteries.ready | (gains & ever_at_charger))

    @property
    def alive(self) -> BoolArray:
        """True (K,) for clients that are present and whose battery is not empty, even if its charge is too low for selection."""
        return self.presence.on if self.batteries is None else self.presence.on & ~self.batteries.dead

    def advance(self, now_s: float) -> None:
        """Bring presence, charges and powers up to `now_s`.

        Each change is applied at its own time: a charge depends on the order of changes.
        """
        batteries = self.batteries
        if batteries is None:
            for clients, times_s in self.followed.changes(now_s):
                self._present[clients] = self.presence.on[clients]
                self._rebase(clients, times_s)
            return
        changes = [
            _Changes(_OF_PRESENCE, clients, times_s, self.presence.on[clients])
            for clients, times_s in self.followed.changes(now_s)
        ]
        if self.charger is not None:
            plugged_in = self.charger.presence
            changes += [
                _Changes(_OF_CHARGING, clients, times_s, plugged_in.on[clients])
                for clients, times_s in self.charger.changes(now_s)
            ]
        for kind, clients, times_s, on in _sort_changes(changes):
            if kind == _OF_CHARGING:
                batteries.change(clients, times_s, charging=on)
            else:
                # Process battery events up to this time first: they still see the presence before the change.
                batteries.change(clients, times_s, draw_w=self._resting_w(clients, on))
                self._present[clients] = on
                self._rebase(clients, times_s)
        batteries.advance(now_s)

    def on_move(self, clients: IntArray, now_s: float) -> None:
        """Handle that a script moved clients (n,). Everything must be advanced to `now_s` before."""
        on, times_s = self.presence.on[clients], np.full(len(clients), now_s)
        if self.batteries is not None:
            self.batteries.change(clients, times_s, draw_w=self._resting_w(clients, on))
        self._present[clients] = on
        self._rebase(clients, times_s)

    def _resting_w(self, clients: IntArray, present: BoolArray) -> FloatArray:
        """Return the powers (n,) of `clients` (n,) outside of phases, watts: idle where `present` (n,), else off."""
        return np.where(present, self.powers.idle_w[clients], self.powers.off_w[clients])

    def _rebase(self, clients: IntArray, times_s: FloatArray) -> None:
        """Recompute the power that `clients` (n,) draw outside of phases, from `times_s` (n,) on, in both accounts."""
        watts = self._resting_w(clients, self._present[clients])
        if self.batteries is not None:
            watts[self.batteries.dead[clients]] = 0.0
        # Both accounts at the same time: the integral adds the change of power, the sum closes the piece at the old power.
        before = self._base_w[clients]
        self.integral.add_changes(IDLE, watts - before, times_s)
        self._base_j[clients] += before * (times_s - self._base_s[clients])
        self._base_w[clients], self._base_s[clients] = watts, times_s

    def begin(self, attempt: Drawing, now: float) -> None:
        """Begin to account for an attempt. If its update was in a phase already, energy from now on belongs to this attempt."""
        attempt.receive_j = attempt.compute_j = attempt.send_j = 0.0
        attempt.metered_s = now
        attempt.watts = self._watts_of(attempt.client)
        if self.batteries is not None:
            attempt.departure_s = min(attempt.away_s, self.batteries.empty_s.item(attempt.client))

    def _watts_of(self, client: int) -> tuple[float, ...]:
        """Return the powers of a client by state, watts."""
        if self._same is not None:
            return self._same
        return tuple(watts.item(client) for watts in self.powers.by_state)

    def account(self, attempt: Drawing, now: float) -> None:
        """Add the energy that `attempt` has drawn in its present state since `metered_s` to its columns and to `spent`.

        `spent` also gets the idle energy of that time, which the client does not draw while it works.
        """
        state = attempt.drawing
        if state:
            watts, seconds = attempt.watts, now - attempt.metered_s
            attempt.metered_s = now
            joules = watts[state] * seconds
            if state == COMPUTING:
                attempt.compute_j += joules
            elif state == SENDING:
                attempt.send_j += joules
            else:
                attempt.receive_j += joules
            self.spent.phases_j[state].append(joules)
            self.spent.displaced_j.append(watts[IDLE] * seconds)

    def change(self, attempt: Drawing, state: int, now: float) -> None:
        """Move the client of `attempt` to another state. Called in every phase of every update, so it must be fast."""
        before, watts, pending_w, pending_j = attempt.drawing, attempt.watts, self._pending_w, self._pending_j
        if before:
            self.account(attempt, now)
        attempt.drawing = state
        attempt.metered_s = now
        # Outside of phases `_rebase` sets the power of a client; it does not know of phases. So going from IDLE to a phase takes
        # the idle power off here, and going back adds it. Two calls of `PowerIntegral.change`, written out for speed.
        old, new, elapsed_s = watts[before], watts[state], now - self.integral.anchor_s
        pending_w[before].append(-old)
        pending_w[state].append(new)
        pending_j[before].append(-(old * elapsed_s))
        pending_j[state].append(new * elapsed_s)
        if self.batteries is not None:
            self._draw(self.batteries, attempt, state, now)

    def _draw(self, batteries: Batteries, attempt: Drawing, state: int, now: float) -> None:
        """Change the power that the client of `attempt` draws from its battery to that of `state`, from now on, and update the
        departure of the attempt.
        """
        client, watts = attempt.client, attempt.watts[state]
        if state == IDLE and not self._present[client]:
            watts = self.powers.off_w.item(client)
        if batteries.dead[client] or batteries.empty_s[client] <= now:
            # The client is off; it will draw `watts` from when it is on again.
            batteries.run_empty(client, now)
            batteries.draw_w[client] = watts
        else:
            batteries.draw(client, watts, now)
        attempt.departure_s = min(attempt.away_s, batteries.empty_s.item(client))

    def runs_empty(self, attempt: Drawing, now: float) -> bool:
        """Return True if an empty battery ends `attempt` now, False if the departure of its client does."""
        if self.batteries is None or now >= attempt.away_s:
            return False
        return bool(self.batteries.dead[attempt.client] or self.batteries.empty_s[attempt.client] <= now)

    def resume(self, attempt: Drawing) -> None:
        """Continue the account of an attempt that was restored from a saved state."""
        attempt.watts = self._watts_of(attempt.client)

    def go_on(self, attempt: Drawing) -> None:
        """Follow `attempt` by events from now on. The power of its present phase was already added when the phase began."""
        attempt.drawing, attempt.metered_s = STAGE_OF[attempt.phase].power, attempt.phase_start_s
        self.resume(attempt)

    def predict(self, attempt: Drawing, now: float) -> None:
        """Recompute the time until which the client of `attempt` stays on (`departure_s`)."""
        if self.batteries is not None:
            empty = self.batteries.dead[attempt.client]
            attempt.departure_s = min(attempt.away_s, now if empty else self.batteries.empty_s.item(attempt.client))

    def next_charging_s(self, client: int) -> float:
        """Return the time at which `client` next comes to a charger or leaves it; inf: never."""
        return _EVER if self.charger is None else self.charger.presence.next_change_s.item(client)

    def spend(self, state: int, clients: IntArray, start_s: FloatArray, end_s: FloatArray) -> None:
        """Account for tests of the model or opinions: distinct `clients` (n,) draw the power of `state` from `start_s` (n,) to
        `end_s` (n,), on top of the power of updates.
        """
        watts = self._watts_in(state)[clients]
        self.integral.plan(state, watts, start_s, end_s)
        self.besides.add(state, watts, start_s, end_s)
        self._owe(clients, watts * (end_s - start_s))

    def spend_on_air(self, state: int, clients: IntArray, seconds: FloatArray) -> None:
        """Account for messages: distinct `clients` (n,) drew the power of `state` for `seconds` (n,) in total up to now, on top
        of the power of updates.
        """
        joules = self._watts_in(state)[clients] * seconds
        self.integral.pulse(state, float(joules.sum()))
        self.besides.joules[state] += float(joules.sum())
        self._owe(clients, joules)

    def _watts_in(self, state: int) -> FloatArray:
        """Return the powers (K,) of the clients in a state other than IDLE, watts."""
        powers = self.powers
        return {RECEIVING: powers.receive_w, COMPUTING: powers.compute_w, SENDING: powers.send_w}[state]

    def _owe(self, clients: IntArray, joules: FloatArray) -> None:
        """Note that the batteries of `clients` (n,) owe `joules` (n,), which `charge` subtracts."""
        if self.batteries is not None:
            if self._owed_j is None:
                self._owed_j = np.zeros(len(self._base_w))
            self._owed_j[clients] += joules

    def charge(self, now_s: float) -> None:
        """Subtract the joules that tests and messages have drawn since the last call from the batteries. Everything must be
        advanced to `now_s`.
        """
        owed, self._owed_j = self._owed_j, None
        if owed is not None and self.batteries is not None:
            clients = np.flatnonzero(owed)
            self.batteries.change(clients, np.full(len(clients), now_s), taken_j=owed[clients])

    def totals(self, now_s: float) -> dict[str, float]:
        """Return the columns of a round that are sums since the start of the run, joules. Everything must be advanced to `now_s`.
        """
        self._catch_up(now_s)
        self.spent.settle()
        joules = self.integral.joules(now_s)
        by_state = {name: joules[state] for name, state in COLUMNS.items()}
        return {**by_state, "besides_j": sum(self.besides.joules_until(now_s))}

    @property
    def round_columns(self) -> list[str]:
        """Return the columns of rounds that `totals` and `now` fill."""
        return [*COLUMNS, "besides_j", *self.now()]

    def now(self) -> dict[str, int]:
        """Return the columns of a round that describe the instant of its close: the number of empty batteries, if there are any.
        """
        if self.batteries is None:
            return {}
        return {"batteries_empty": int(np.count_nonzero(self.batteries.dead))}

    def accounts(self, now_s: float) -> dict[str, tuple[float, float]]:
        """Return the joules up to `now_s` in both accounts, by column of a round: (sum, integral).

        The sum is over attempts, tests, opinions, messages and idle times; the integral is that of power over time. They must
        agree up to rounding: a run checks it.
        """
        self._catch_up(now_s)
        self.spent.settle()
        integral, besides = self.integral.joules(now_s), self.besides.joules_until(now_s)
        # Joules of attempts by state; idle times take the place of state 0.
        of_attempts = [self.idle_j(now_s), *self.spent.attempts_j[RECEIVING:]]
        return {name: (of_attempts[state] + besides[state], integral[state]) for name, state in COLUMNS.items()}

    def idle_j(self, now_s: float) -> float:
        """Return the joules that all clients drew outside of phases: as if they were in none, less the displaced energy."""
        self.spent.settle()
        without_phases_j = self._base_j + self._base_w * (now_s - self._base_s)
        return float(without_phases_j.sum()) - self.spent.idle_j

    def state_dict(self) -> State:
        """Return both accounts, charges, and presence at chargers. The pool of clients saves their presence."""
        state: State = {
            "integral": self.integral.state_dict(),
            "besides": self.besides.state_dict(),
            "spent": self.spent.state_dict(),
            "owed_j": None if self._owed_j is None else self._owed_j.copy(),
            "aborted": self.aborted,
            "here": self._present.copy(),
            "base_w": self._base_w.copy(),
            "base_j": self._base_j.copy(),
            "base_s": self._base_s.copy(),
        }
        if self.batteries is not None:
            state["batteries"] = self.batteries.state_dict()
        if self.charger is not None:
            state["charger"] = self.charger.presence.state_dict()
        return state

    def load_state_dict(self, state: State) -> None:
        """Restore both accounts, charges, and presence at chargers, as `state_dict` returned them."""
        self.integral.load_state_dict(state["integral"])
        self.besides.load_state_dict(state["besides"])
        self.spent.load_state_dict(state["spent"])
        self._owed_j = None if state["owed_j"] is None else state["owed_j"].copy()
        self.aborted = state["aborted"]
        self._present[:], self._base_w[:] = state["here"], state["base_w"]
        self._base_j[:], self._base_s[:] = state["base_j"], state["base_s"]
        if self.batteries is not None:
            self.batteries.load_state_dict(state["batteries"])
        if self.charger is not None:
            self.charger.presence.load_state_dict(state["charger"])


_OF_PRESENCE, _OF_CHARGING = 0, 1
"""Kinds of changes. At one instant presence changes first."""


class _Changes(NamedTuple):
    """Changes of several clients; arrays (n,)."""

    kind: int
    clients: IntArray
    times_s: FloatArray
    on: BoolArray
    """True where the client is present, or at a charger, from then on."""


def _sort_changes(changes: list[_Changes]) -> Iterator[_Changes]:
    """Split changes into batches of one kind in which each client occurs at most once, as `Batteries.change` needs them.

    The batches keep the order of each client's changes. Clients do not affect each other, so no other order matters.
    """
    if not changes:
        return
    kinds = np.concatenate([np.full(len(change.clients), change.kind, np.int8) for change in changes])
    clients = np.concatenate([change.clients for change in changes])
    times_s = np.concatenate([change.times_s for change in changes])
    on = np.concatenate([change.on for change in changes])
    order = np.lexsort((kinds, times_s, clients))
    kinds, clients, times_s, on = kinds[order], clients[order], times_s[order], on[order]
    # Place of the first change of each client, and its number of changes.
    is_first = np.concatenate(([True], clients[1:] != clients[:-1]))
    firsts = np.flatnonzero(is_first)
    numbers = np.diff(np.append(firsts, len(clients)))
    # Rank 0 takes the first change of every client, rank 1 the second of every client that has two, and so on.
    for rank in range(int(numbers.max())):
        places = firsts[numbers > rank] + rank
        for kind in (_OF_PRESENCE, _OF_CHARGING):
            batch = places[kinds[places] == kind]
            if batch.size:
                yield _Changes(kind, clients[batch], times_s[batch], on[batch])
