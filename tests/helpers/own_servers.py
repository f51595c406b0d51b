"""Servers of a user's own, put together of the engine's parts, with close rules that the engine does not have."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from netsim.core.closing import ClosingRule, RoundState
from netsim.servers.kinds.semi_synchronous import semi_synchronous_server
from netsim.servers.kinds.synchronous import synchronous_server
from netsim.servers.rounds.close import EndsOfRound
from netsim.servers.rounds.dispatch import PolicyDispatch, SelectionRule
from netsim.servers.rounds.loop import RoundLoop
from netsim.servers.rounds.round_server import RoundServer


@dataclass(frozen=True)
class Quiet(ClosingRule):
    """A round closes once nothing of it has ended for `quiet_s`: the look moves with the time of the last end.

    It waits for a first delivery.
    """

    quiet_s: float

    def closes(self, state: RoundState) -> Any:
        return (state.ended == state.expected) | state.looking

    def next_look_s(self, state: RoundState) -> Any:
        return state.now_s + self.quiet_s + 1e6 * (state.delivered < 1)


@dataclass(frozen=True)
class Bonus(ClosingRule):
    """A round lasts for `least_s`, and `bonus_s` more for each update that has arrived: the look moves with their number."""

    bonus_s: float
    least_s: float = 0.0

    def closes(self, state: RoundState) -> Any:
        due: Any = self.next_look_s(state)
        return (state.ended == state.expected) | ((state.now_s >= due) & state.looking)

    def next_look_s(self, state: RoundState) -> Any:
        return state.start_s + self.least_s + self.bonus_s * (1 + state.delivered)


@dataclass(frozen=True)
class Countdown(ClosingRule):
    """A rule with a mistake: it answers how many attempts are still to end."""

    def closes(self, state: RoundState) -> Any:
        return state.expected - state.ended

    def next_look_s(self, state: RoundState) -> Any:
        return state.start_s + 9.0


class CountdownServer:
    """Rounds that close by `Countdown`."""

    def __init__(self, *, per_round: int):
        self.per_round = per_round

    def compose(self, world: Any) -> RoundServer:
        channels, pool = world.channels_and_pool(self.per_round)
        selecting = SelectionRule(policy=world.policy(self.per_round), streams=world.streams, need=self.per_round)
        return synchronous_server(pool=pool, selecting=selecting, learner=world.learner, wait=Countdown(), channels=channels)


class QuietServer:
    """Rounds that close by `Quiet`, or with `bonus` by `Bonus`."""

    def __init__(self, *, per_round: int, quiet_s: float = 0.0, bonus_s: float = 0.0, least_s: float = 0.0):
        self.per_round = per_round
        self.rule = Quiet(quiet_s) if quiet_s else Bonus(bonus_s, least_s)

    def compose(self, world: Any) -> RoundServer:
        channels, pool = world.channels_and_pool(self.per_round)
        selecting = SelectionRule(policy=world.policy(self.per_round), streams=world.streams, need=self.per_round)
        return synchronous_server(pool=pool, selecting=selecting, learner=world.learner, wait=self.rule, channels=channels)


class AfterQuorum(EndsOfRound):
    """Close `grace_s` after the `quorum`-th delivery, and before if no client is at work any more. It states no cause."""

    def __init__(self, pool: Any, quorum: int, grace_s: float) -> None:
        super().__init__()
        self.pool, self.quorum, self.grace_s = pool, quorum, grace_s
        self.number, self.arrived = 0, 0
        pool.follow(self.on_end)

    def open(self, number: int, start_s: float, expected: int) -> None:
        self.number = number
        self.event = self.pool.clock.event()
        self.arrived = sum(not end.censored for end in self.ends)

    def on_end(self, update: Any) -> None:
        self.ends.append(update)
        self.arrived += not update.censored
        if not update.censored and self.arrived == self.quorum:
            self.pool.clock.call_in(self.grace_s, self.close, self.number)
        elif not self.pool.in_flight:
            self.close(self.number)

    def close(self, number: int) -> None:
        if number == self.number and not self.event.triggered:
            self.event.succeed()

    def wait(self) -> Generator[Any, Any, None]:
        if not self.pool.in_flight:
            self.close(self.number)
        yield self.event


class _Grace:
    per_round: int
    quorum: int
    grace_s: float

    def compose(self, world: Any) -> RoundServer:
        channels, pool = world.channels_and_pool(self.per_round)
        rule = SelectionRule(policy=world.policy(self.per_round), streams=world.streams)
        loop = RoundLoop(
            pool=pool,
            dispatch=PolicyDispatch(pool=pool, rule=rule, learner=world.learner, carry_over=True),
            close=AfterQuorum(pool, self.quorum, self.grace_s),
            learner=world.learner,
            instruments=channels.instruments,
            assignment=channels.assignment,
            outlast=True,
        )
        return RoundServer(loop=loop, recording=channels.recording)


class GraceByQuorum(_Grace):
    """Rounds that close some time after a number of deliveries, called `quorum`."""

    def __init__(self, *, per_round: int, quorum: int, grace_s: float):
        self.per_round, self.quorum, self.grace_s = per_round, quorum, grace_s


class GraceByFirst(_Grace):
    """The same, where the number is called `first`, as one of netsim's own servers calls its own."""

    def __init__(self, *, per_round: int, first: int, grace_s: float):
        self.per_round, self.quorum, self.grace_s = per_round, first, grace_s


class OwnSemiSynchronous:
    """The semi-synchronous server, put together again under names of its own."""

    def __init__(self, *, chosen: int, length_s: float):
        self.chosen, self.length_s = chosen, length_s

    def compose(self, world: Any) -> RoundServer:
        channels, pool = world.channels_and_pool(self.chosen)
        selecting = SelectionRule(policy=world.policy(self.chosen), streams=world.streams)
        return semi_synchronous_server(
            pool=pool, selecting=selecting, learner=world.learner, round_s=self.length_s, channels=channels
        )
