"""Simulates a finished run again up to a round, and then that round once more, from the same state, with one difference.

The draws of a round are addressed by purpose, round and client, so they are equal with and without the difference. Held fixed:
everything up to the selection of the round (the history, the state of the policy, its selection, probes, the consensus phase of a
slot, the assigned sub-channels). Not held fixed: everything that follows from the difference within the round, such as queues for
sub-channels, shares of a bandwidth, and the clients that the buffered server selects later in the round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from netsim.clients.vectorised.columns import plain
from netsim.core.clock import NothingScheduledError
from netsim.core.protocols import IntArray, Selection, State
from netsim.servers.rounds.loop import Alteration, ClosedRound, NobodyLeftError, RoundLoop
from netsim.simulation import Simulation
from scenarios.runs.failures import name_own_failures
from scenarios.runs.what_if.changes import Change
from scenarios.schema.scenario import Scenario
from scenarios.wiring.network.multiplied import Multiplier
from scenarios.wiring.simulation import build
from scenarios.wiring.world import World


class _ClosedError(Exception):
    """Signal: the requested round has closed."""


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """State of an attempt at the close of its round."""

    client: int
    selected_s: float
    ended_s: float
    """Time of its end, seconds; after the close of the round, or inf, if the close did not wait for it."""
    delivered: bool


@dataclass(frozen=True, slots=True)
class Closed:
    """Close of a round, with the attempts that belong to it."""

    round: int
    start_s: float
    end_s: float
    attempts: tuple[AttemptEnd, ...]

    @property
    def delivered(self) -> int:
        """Number of delivered updates."""
        return sum(end.delivered for end in self.attempts)

    @property
    def last(self) -> int | None:
        """The only client whose attempt ended at the close; None: no client, or several."""
        clients = [end.client for end in self.attempts if end.ended_s == self.end_s]
        return clients[0] if len(clients) == 1 else None


class _RoundLog(Alteration):
    """Alteration that changes nothing, but notes the selected clients and the close of every round."""

    def __init__(self) -> None:
        self.selected: dict[int, IntArray | Selection] = {}
        self.closed_rounds: dict[int, Closed] = {}
        self.participants: dict[int, list[int]] = {}

    def change_selection(self, loop: RoundLoop, number: int, chosen: IntArray) -> IntArray:
        """Keep the selection and the participants of round `number`, and return `chosen` unchanged."""
        self.selected[number] = loop.dispatch.selection
        clients = set(chosen.tolist())
        # If a round takes all attempts that end in it, clients that are still at work take part, too.
        if loop.close.takes_all:
            clients.update(loop.pool.in_flight)
        self.participants[number] = sorted(clients)
        return chosen

    def on_close(self, closed: ClosedRound) -> None:
        """Keep the close of a round, and clients that were selected in the middle of it."""
        self.closed_rounds[closed.number] = _closed_round(closed)
        # A server that selects in the middle of a round has further clients by now.
        self.participants[closed.number] = sorted({*self.participants[closed.number], *closed.clients.tolist()})


class _OneRound(Alteration):
    """Alteration of round `number` by one change. It stops the simulation as that round closes."""

    def __init__(self, number: int, change: Change, multiplier: Multiplier | None) -> None:
        self.number, self.client, self.deadline_s, self.factor = number, change.client, change.deadline_s, change.factor
        self.result: Closed | None = None
        self._all_chosen: IntArray | None = None
        """Chosen clients, the removed one included, until the others begin."""
        self._multiplier = multiplier

    def attach(self, loop: RoundLoop) -> None:
        """Let `loop` call this alteration."""

        def on_open(number: int) -> None:
            """Callback as a round opens: multiply the bandwidths in the one round."""
            if number == self.number and self.factor is not None and self._multiplier is not None:
                self._multiplier.multiply(self.factor)

        loop.alter(self)
        loop.follow_openings(on_open)

    def change_selection(self, loop: RoundLoop, number: int, chosen: IntArray) -> IntArray:
        """Change the one round: set its deadline, or remove the client, by aborting its update and returning the others."""
        if number != self.number:
            return chosen
        if self.deadline_s is not None:
            loop.close.limit(self.deadline_s)
        if self.client is None:
            return chosen
        pool = loop.pool
        loop.dispatch.leave_out(self.client)
        pool.pool.abort([self.client])
        if self.client not in chosen:
            return chosen
        self._all_chosen = chosen
        others: IntArray = chosen[chosen != self.client]
        return others

    def channels(self, loop: RoundLoop, clients: IntArray) -> list[int] | None:
        """Return the sub-channels as if all chosen clients began, so that the one of the removed client stays free."""
        if self._all_chosen is None:
            return super().channels(loop, clients)
        chosen, self._all_chosen = self._all_chosen, None
        assigned = super().channels(loop, chosen)
        if assigned is None:
            return None
        channel_of = dict(zip(chosen.tolist(), assigned, strict=True))
        return [channel_of[client] for client in clients.tolist()]

    def on_close(self, closed: ClosedRound) -> None:
        """Keep the close of the one round, and stop the simulation."""
        if closed.number == self.number:
            self.result = _closed_round(closed, without=self.client)
            raise _ClosedError


def _closed_round(closed: ClosedRound, *, without: int | None = None) -> Closed:
    """Return the close of a round with its attempts, except those of the client `without`."""
    columns = [plain(closed.attempts.column(name)) for name in ("client", "selected_s", "outcome_s", "censored")]
    ends = []
    for client, selected_s, outcome_s, censored in zip(*columns, strict=True):
        if client == without:
            continue
        ended_s = float("inf") if np.isnan(outcome_s) else float(outcome_s)
        ends.append(AttemptEnd(client=client, selected_s=float(selected_s), ended_s=ended_s, delivered=not censored))
    return Closed(
        round=closed.number, start_s=float(closed.start_s), end_s=float(closed.end_s), attempts=tuple(ends)
    )


def rounds_per_unit(scenario: Scenario) -> int:
    """Return the number of communication rounds that a simulation runs at once: 1, or those of a slot."""
    return scenario.slots.rounds if scenario.slots is not None else 1


class Replay:
    """Simulation of a scenario, round after round. From the state before a round, that round can be run with a change.

    `multiplied`: True if changes multiply bandwidths: that of the cable `link`, or all. Events then time all transfers of the
    run, so that a transfer in flight at the opening of the round goes on at the new bandwidth.
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
        self._log = _RoundLog()
        self.built.simulation.server.loop.alter(self._log)

    def rounds(self, upto: int, after_round: Callable[[int], None] | None = None) -> Iterator[tuple[State | None, list[int]]]:
        """Yield, for each unit up to that of round `upto`, the state before it (None: the beginning) and its rounds.

        A unit is one round, or one slot with several. It is yielded after its simulation, when its selection is known.
        """
        simulation = self.built.simulation
        while self.done < upto:
            before = self.done
            state = simulation.state_dict() if before else None
            with name_own_failures(self.scenario, simulation):
                simulation.run(until_round=simulation.server.round + 1, after_round=_round_callback(after_round))
            if self.done == before:
                return
            yield state, list(range(before + 1, self.done + 1))

    @property
    def done(self) -> int:
        """Number of closed communication rounds."""
        return self.built.simulation.server.round * self.per_unit

    def closed_round(self, number: int) -> Closed:
        """Return the close of a round that was simulated."""
        return self._log.closed_rounds[number]

    def participants(self, number: int) -> list[int]:
        """Return the clients that had an attempt in a round that was simulated, ascending."""
        return sorted(self._log.participants[number])

    def run_changed(self, state: State | None, number: int, change: Change, *, limit_s: float) -> Closed | None:
        """Run round `number` again from `state` with a change. Return its close; None if it does not close before `limit_s`."""
        multiplier = Multiplier(self.link) if self.multiplied else None
        # The state holds that of the learner, so that the one of the replay can be used again.
        trained = self.built.trained if state else None
        simulation = build(self.scenario, trained=trained, multiplier=multiplier).simulation
        loop = simulation.server.loop
        alteration = _OneRound(number, change, multiplier)
        alteration.attach(loop)
        if state is not None:
            simulation.load_state_dict(state)
        loop.dispatch.repeat(self._log.selected[number])
        simulation.limit_time(limit_s)
        with name_own_failures(self.scenario, simulation), suppress(_ClosedError, NobodyLeftError, NothingScheduledError):
            simulation.run(until_round=simulation.server.round + 1)
        return alteration.result


def _round_callback(after_round: Callable[[int], None] | None) -> Callable[[Simulation], None] | None:
    """Return a callback of a simulation that passes on the number of closed rounds; None without `after_round`."""
    return None if after_round is None else lambda simulation: after_round(simulation.server.round)
