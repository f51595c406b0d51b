"""Probes: before a server selects, it sends the model to clients and asks for their loss. Answers are small messages.

A probe has the steps of an update (`netsim.clients.lifecycle`) and uses the same links. Its random numbers are its own, so that
probing changes no update. The client only evaluates the model, which costs no privacy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simpy.events import Event

from netsim.clients.lifecycle import UpdateLifecycle
from netsim.clients.steps.stages import WAIT
from netsim.clients.update import OUTCOMES, ModelDraws, SendDraws, Update
from netsim.core.alarm import Alarm
from netsim.core.errors import ParameterError
from netsim.core.null_objects import NoAccountant

if TYPE_CHECKING:
    from netsim.clients.pool import ClientPool
    from netsim.core.clock import Process
    from netsim.core.protocols import IntArray, State
    from netsim.network.medium import Medium

_NEVER = float("inf")
_JOULES = ("compute_j", "send_j", "receive_j")


@dataclass(frozen=True, slots=True)
class Question:
    """A kind of probe: its medium, and the work of an answer."""

    medium: Medium
    """Medium with the draws, sizes and durations of the probes."""
    evaluated: IntArray | None
    """Samples (K,) that each client evaluates; None if unknown."""


class Probes:
    """Asks clients of `pool`, all at once, and waits until each has answered or failed, at most `deadline_s` seconds.

    `asking`: the usual question, for the loss. `testing`: the question that asks for a test of the model, or None. Probes
    without an answer by the deadline end as late. `repeat`: callback that receives the number of earlier calls of `ask` in this
    round, so that random numbers differ. Raises ValueError for a deadline that is not > 0.
    """

    def __init__(
        self,
        *,
        pool: ClientPool,
        asking: Question,
        testing: Question | None = None,
        deadline_s: float | None = None,
        repeat: Callable[[int], None] = lambda times: None,
    ) -> None:
        if deadline_s is not None and not deadline_s > 0:
            raise ParameterError("deadline_s", deadline_s, "must be > 0 seconds")
        self.pool, self.deadline_s, self._repeat = pool, deadline_s, repeat
        self.under_way: dict[int, Update] = {}
        """Probes in flight, by client."""
        self.ends: list[Update] = []
        """Probes of the present round that have ended, in the order of ends."""
        self.started = 0
        """Number of probes begun so far."""
        self.ended = dict.fromkeys(OUTCOMES, 0)
        """Number of probes ended so far, by outcome."""
        self.joules = dict.fromkeys(_JOULES, 0.0)
        """Energy that probes have drawn, by column, if energy is counted."""
        self._questions = [asking] if testing is None else [asking, testing]
        """The usual question, and the one that asks for a test if there is one."""
        # Without a second question the second kind is left over.
        kinds = zip(self._questions, ("probe", "test"), strict=False)
        self._lives = [self._life(question, kind) for question, kind in kinds]
        """Executor of each question."""
        self._present = 0
        """Index of the present question, or the last one."""
        self._all_ended: Event | None = None
        """Event that wakes `ask` after the last probe; None if `ask` does not wait."""
        # Rings after everything else of its instant: an answer exactly at the deadline is in time.
        self._alarm = Alarm(pool.clock, self._end_late)
        pool.add_probes(self)

    def _life(self, question: Question, kind: str) -> UpdateLifecycle:
        """Return a lifecycle that runs the probes of `question`. Probes spend no privacy; all kinds end in `_on_end`.

        `kind` keeps the messages of the two questions apart on shared carriers.
        """
        pool = self.pool
        return UpdateLifecycle(
            clock=pool.clock,
            medium=question.medium,
            accountant=NoAccountant(),
            find=lambda client: self.under_way[client],
            on_end=self._on_end,
            energy=pool.energy,
            kind=kind,
        )

    @property
    def may_test(self) -> bool:
        """True if clients may be asked to test the model."""
        return len(self._questions) > 1

    @property
    def counts_samples(self) -> bool:
        """True if for some question the number of samples that a client evaluates is known."""
        return any(question.evaluated is not None for question in self._questions)

    @property
    def tests(self) -> bool:
        """True if the present question, or the last one, asks for a test of the model."""
        return self._present > 0

    @property
    def medium(self) -> Medium:
        """Medium of the present question, or the last one."""
        return self._questions[self._present].medium

    @property
    def evaluated(self) -> IntArray | None:
        """Samples (K,) that each client evaluates for the present question; None if unknown."""
        return self._questions[self._present].evaluated

    @property
    def life(self) -> UpdateLifecycle:
        """Executor of the present question, or the last one."""
        return self._lives[self._present]

    @property
    def bytes_down(self) -> int:
        """Bytes sent to clients so far."""
        return sum(life.bytes_down for life in self._lives)

    @property
    def bytes_up(self) -> int:
        """Bytes sent by clients so far."""
        return sum(life.bytes_up for life in self._lives)

    def ask(
        self, round: int, clients: IntArray, version: int, times: int = 0, test: bool = False
    ) -> Process[list[Update]]:
        """Send the model of `version` as probes to `clients` (n,), which must be present and not busy; wait for the end of all,
        and return them in the order of `clients`.

        `times`: number of earlier calls in this `round`. `test`: ask for a test of the model.
        """
        self._present = int(test)
        self._repeat(times)
        pool, now = self.pool, self.pool.clock.now
        departures = pool.presence.next_change_s[clients].tolist()
        models, sends = ModelDraws.draw(self.medium, round, now, clients), SendDraws.draw(self.medium, round, now, clients)
        probed = []
        self.ends = []
        samples = [None] * len(clients) if self.evaluated is None else self.evaluated[clients].tolist()
        for place, client in enumerate(clients.tolist()):
            # A probe takes no steps, and has no age, sub-channel or number.
            probe = Update(client, round, version, place, now, models, work=(0, samples[place], None))
            probe.begin_attempt(
                round, age_rounds=0, departure_s=departures[place], now_s=now, draws=sends, place=place, channel=None
            )
            if pool.energy is not None:
                pool.energy.begin(probe, now)
            self.under_way[client] = probe
            probed.append(probe)
        pool.busy[clients] = True
        self.started += len(probed)
        # Begin only after all exist: a probe may end within `begin`, and the last to end wakes `ask`.
        for probe in probed:
            self.life.begin(probe, now)
        if self.under_way:
            self._all_ended = pool.clock.event()
            if self.deadline_s is not None:
                self._alarm.set(now + self.deadline_s)
            yield self._all_ended
        return probed

    def _end_late(self) -> None:
        """End the probes that are still in flight at the deadline."""
        # Probes that wait in a queue first: none may take over a sub-channel only to leave it at the same instant.
        for probe in sorted(self.under_way.values(), key=lambda probe: probe.phase != WAIT):
            self.life.cut(probe, "late")

    def _on_end(self, probe: Update) -> None:
        """Handle the end of a probe: count it, free its client, and wake `ask` after the last one."""
        self.ended[probe.outcome] += 1
        self.ends.append(probe)
        self._add_energy(probe)
        del self.under_way[probe.client]
        self.pool.busy[probe.client] = False
        if not self.under_way and self._all_ended is not None:
            all_ended, self._all_ended = self._all_ended, None
            self._alarm.set(_NEVER)
            all_ended.succeed()

    def leave(self, clients: IntArray) -> None:
        """End the probes of clients (n,) that a script took away as aborted."""
        for client in clients.tolist():
            if client in self.under_way:
                self.life.cut(self.under_way[client], "aborted")

    def take_ends(self) -> list[Update]:
        """Return the probes of the present round that have ended since the last call, in the order of ends."""
        ends, self.ends = self.ends, []
        return ends

    def _add_energy(self, probe: Update) -> None:
        """Add the energy that `probe` has drawn to the totals."""
        if self.pool.energy is not None:
            for name in _JOULES:
                self.joules[name] += getattr(probe, name)

    def account_unfinished(self) -> list[Update]:
        """Add the energy up to now of the probes in flight at the end of the run to the totals; return these probes."""
        energy = self.pool.energy
        for probe in self.under_way.values():
            if energy is not None:
                energy.account(probe, self.pool.clock.now)
            self._add_energy(probe)
        return list(self.under_way.values())

    def state_dict(self) -> State:
        """Return the counts. State is saved at the close of a round, when no probe is in flight."""
        lives = [life.counts() for life in self._lives]
        return {"started": self.started, "lives": lives, "ended": dict(self.ended), "joules": dict(self.joules)}

    def load_state_dict(self, state: State) -> None:
        self.started, self.ended, self.joules = state["started"], dict(state["ended"]), dict(state["joules"])
        for life, counts in zip(self._lives, state["lives"], strict=True):
            life.load_counts(counts)
