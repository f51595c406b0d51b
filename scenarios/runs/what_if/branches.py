"""Simulates a finished run again up to a round, and then that round once more, from the same state, with one difference.

The draws of a round are addressed by what they are for, the round and the client, so that they are the same with and without the
difference; the state at the boundary before it, and the selection, are the run's own. Held fixed: everything up to the selection
of the round (the history, what the policy had learnt, whom it selected, probes, the consensus phase of a slot, the sub-channels
assigned). Not held fixed: what follows within the round from the difference, such as who waits for a sub-channel, who shares a
bandwidth with whom, and whom the buffered server asks later in the round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from netsim.clients.columns import plain
from netsim.core.clock import NothingScheduledError
from netsim.core.protocols import IntArray, Selection, State
from netsim.servers.loop import Alteration, ClosedRound, NobodyLeftError, RoundLoop
from netsim.simulation import Simulation
from scenarios.runs.failures import refusing
from scenarios.runs.what_if.changes import Change
from scenarios.schema.scenario import Scenario
from scenarios.wiring.multiplied import Multiplier
from scenarios.wiring.simulation import build
from scenarios.wiring.world import World


class _OverError(Exception):
    """Signal: the requested round has closed."""


@dataclass(frozen=True, slots=True)
class End:
    """State of one attempt as its round closed."""

    client: int
    selected_s: float
    ended_s: float
    """Time at which it ended, seconds; after the close, or inf, if the close did not wait for it."""
    delivered: bool


@dataclass(frozen=True, slots=True)
class Closed:
    """Close of a round. `attempts`: attempts that belong to the round."""

    round: int
    start_s: float
    end_s: float
    attempts: tuple[End, ...]

    @property
    def delivered(self) -> int:
        """Number of updates that it took in."""
        return sum(end.delivered for end in self.attempts)

    @property
    def last(self) -> int | None:
        """The only client whose attempt ended at the close; None: no client, or several."""
        clients = [end.client for end in self.attempts if end.ended_s == self.end_s]
        return clients[0] if len(clients) == 1 else None


class _Watch(Alteration):
    """Instrument that keeps the selected clients and the close of every round."""

    def __init__(self) -> None:
        self.selected: dict[int, IntArray | Selection] = {}
        self.closed_rounds: dict[int, Closed] = {}
        self.taken_part: dict[int, list[int]] = {}

    def change_selection(self, loop: RoundLoop, number: int, chosen: IntArray) -> IntArray:
        self.selected[number] = loop.dispatch.selection
        # If rounds consist of the attempts that end in them, clients at work take part, too.
        self.taken_part[number] = sorted({*chosen.tolist(), *(loop.pool.in_flight if loop.close.takes_all else ())})
        return chosen

    def on_close(self, closed: ClosedRound) -> None:
        self.closed_rounds[closed.number] = _closed_round(closed)
        # Of a server that asks for clients in mid-round they are known only now.
        asked = set(closed.clients.tolist())
        self.taken_part[closed.number] = sorted({*self.taken_part[closed.number], *asked})


class _OneRound(Alteration):
    """Change of round `number` in one respect; it stops the simulation as that round closes."""

    def __init__(self, number: int, change: Change, multiplier: Multiplier | None) -> None:
        self.number, self.client, self.deadline_s, self.factor = number, change.client, change.deadline_s, change.factor
        self.result: Closed | None = None
        self._all_chosen: IntArray | None = None
        """Chosen clients, the removed one included, until the others begin."""
        self._multiplier = multiplier

    def watch(self, loop: RoundLoop) -> None:
        """Make the difference in the rounds of `loop`."""

        def opens(number: int) -> None:
            if number == self.number and self.factor is not None and self._multiplier is not None:
                self._multiplier.multiply(self.factor)

        loop.alter(self)
        loop.follow_openings(opens)

    def change_selection(self, loop: RoundLoop, number: int, chosen: IntArray) -> IntArray:
        if number != self.number:
            return chosen
        if self.deadline_s is not None:
            loop.close.limit(self.deadline_s)
        if self.client is None:
            return chosen
        pool = loop.pool
        loop.dispatch.leave_out(self.client)
        pool.abort([self.client])
        if self.client not in chosen:
            return chosen
        self._all_chosen = chosen
        staying: IntArray = chosen[chosen != self.client]
        return staying

    def channels(self, loop: RoundLoop, clients: IntArray) -> list[int] | None:
        """Return the sub-channels of the first clients as if all chosen clients began: that of the removed client stays free."""
        if self._all_chosen is None:
            return super().channels(loop, clients)
        chosen, self._all_chosen = self._all_chosen, None
        channels_ = super().channels(loop, chosen)
        if channels_ is None:
            return None
        place = dict(zip(chosen.tolist(), channels_, strict=True))
        return [place[client] for client in clients.tolist()]

    def on_close(self, closed: ClosedRound) -> None:
        if closed.number == self.number:
            self.result = _closed_round(closed, but=self.client)
            raise _OverError


def _closed_round(closed: ClosedRound, *, but: int | None = None) -> Closed:
    told = zip(*(plain(closed.attempts.column(name)) for name in ("client", "selected_s", "outcome_s", "censored")), strict=True)
    ends = tuple(
        End(client, float(selected_s), float("inf") if np.isnan(outcome_s) else float(outcome_s), not censored)
        for client, selected_s, outcome_s, censored in told
        if client != but
    )
    return Closed(closed.number, float(closed.start_s), float(closed.end_s), ends)


def rounds_per_unit(scenario: Scenario) -> int:
    """Return the number of communication rounds that a simulation runs at once: 1, or those of a slot."""
    return scenario.slots.rounds if scenario.slots is not None else 1


class Replay:
    """A scenario simulated again, round after round; at each boundary the next round can be run with a difference.

    `multiplied`: the difference is a factor of the bandwidths, with `link` of that cable's alone. Their transfers are then timed
    by events from the beginning of the run, so that those under way as the round opens go on at the new bandwidth.
    """

    def __init__(self, scenario: Scenario, *, multiplied: bool = False, link: str | None = None) -> None:
        self.scenario = scenario
        self.multiplied, self.link = multiplied, link
        multiplier = Multiplier(link) if multiplied else None
        self.built: World = build(scenario, multiplier=multiplier)
        self.limits_bandwidth = bool(multiplier)
        """True if there are bandwidths to multiply."""
        self.per_unit = rounds_per_unit(scenario)
        """Number of communication rounds that the simulation runs at once."""
        self._watch = _Watch()
        self.built.simulation.server.loop.alter(self._watch)

    def rounds(self, upto: int, after_round: Callable[[int], None] | None = None) -> Iterator[tuple[State | None, list[int]]]:
        """Yield, for each unit up to that of round `upto`, the state before it (None: the beginning) and its rounds.

        The unit is simulated, so that its selection is known, before it is yielded.
        """
        simulation = self.built.simulation
        while self.done < upto:
            before = self.done
            state = simulation.state_dict() if before else None
            with refusing(self.scenario, simulation):
                simulation.run(until_round=simulation.server.round + 1, after_round=_told_of(after_round))
            if self.done == before:
                return
            yield state, list(range(before + 1, self.done + 1))

    @property
    def done(self) -> int:
        """Communication rounds closed."""
        return self.built.simulation.server.round * self.per_unit

    def closed_round(self, number: int) -> Closed:
        """Return the close of a round that was simulated."""
        return self._watch.closed_rounds[number]

    def taken_part(self, number: int) -> list[int]:
        """Return the clients that had an attempt in a round that was simulated, ascending."""
        return sorted(self._watch.taken_part[number])

    def again(self, state: State | None, number: int, change: Change, *, limit_s: float) -> Closed | None:
        """Run round `number` once more from `state`, with a difference; None if it does not close up to `limit_s`."""
        multiplier = Multiplier(self.link) if self.multiplied else None
        built = build(self.scenario, trained=self.built.trained if state else None, multiplier=multiplier)
        simulation = built.simulation
        loop = simulation.server.loop
        alteration = _OneRound(number, change, multiplier)
        alteration.watch(loop)
        if state is not None:
            simulation.load_state_dict(state)
        loop.dispatch.repeat(self._watch.selected[number])
        simulation.limit_time(limit_s)
        try:
            with refusing(self.scenario, simulation):
                simulation.run(until_round=simulation.server.round + 1)
        except (_OverError, NobodyLeftError, NothingScheduledError):
            pass
        return alteration.result


def _told_of(after_round: Callable[[int], None] | None) -> Callable[[Simulation], None] | None:
    return None if after_round is None else lambda simulation: after_round(simulation.server.round)
