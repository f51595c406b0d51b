"""Durations of phases and losses of transmissions, drawn at (round, client), and the rules by which draws are skipped.

A draw is skipped where it could change nothing: under a law of durations that takes no time for any client, and under a law of
channels without memory that loses nothing. A channel with memory is always drawn, because its long-run losses say nothing about
its present state.

All draws of a round from a law are made in one call. A phase that begins after a change point of the law is evaluated again with
the same uniform random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from netsim.core.streams import resend_index

if TYPE_CHECKING:
    from netsim.core.protocols import BoolArray, ChannelLaw, DelayLaw, FloatArray, IntArray, State, Timeline
    from netsim.core.streams import Stream

ValueT = TypeVar("ValueT", float, bool)
ValueCo = TypeVar("ValueCo", float, bool, covariant=True)
LawT = TypeVar("LawT")
_EVER = float("inf")


def takes_no_time(law: DelayLaw, entities: int) -> bool:
    """Return True if every duration of entities 0..`entities` - 1 is zero.

    Durations are never negative, so it is enough that means are zero.
    """
    return not law.mean_s(np.arange(entities)).any()


def loses_nothing(law: ChannelLaw, entities: int) -> bool:
    """Return True if every transmission of entities 0..`entities` - 1 survives, at any time."""
    return law.memoryless and bool((law.success_probability(np.arange(entities)) >= 1.0).all())


class SkippedDraws(Generic[LawT]):
    """Remembers if draws may be skipped under the law in force. `rule`: decides it for a law and the number of `entities`;
    `takes_no_time` or `loses_nothing`.
    """

    def __init__(self, rule: Callable[[LawT, int], bool], entities: int) -> None:
        self._rule = rule
        self._entities = entities
        self._law: LawT | None = None
        """Law that was asked about last, or None."""
        self._verdict = False
        """Answer for this law."""

    def may_skip(self, law: LawT) -> bool:
        """Return True if draws under `law` may be skipped."""
        if law is not self._law:
            self._law, self._verdict = law, self._rule(law, self._entities)
        return self._verdict


class Draw(Protocol[ValueCo]):
    """One quantity of the clients of a round, such as a duration in seconds or a survival. A place is the index of a client."""

    @property
    def certain(self) -> bool:
        """True if the value is the same for all clients at all times: zero seconds, or no loss."""

    def at(self, place: int, time_s: float) -> ValueCo:
        """Return the value of the client at `place` under the law in force at `time_s`."""

    def values_at(self, time_s: float, count: int) -> list[Any]:
        """Return the values of all `count` clients, under the law in force at `time_s`; (count,)."""

    def each_at(self, times_s: FloatArray) -> NDArray[Any] | None:
        """Return the value of each client at its time of `times_s` (n,); None if the law changes before one of these times.

        At a NaN time the value is arbitrary.
        """

    def expire(self) -> bool:
        """Handle that the law was replaced.

        Return True if values are evaluated again by themselves, False if the caller must draw again.
        """

    def state_dict(self) -> State:
        """Return the drawn values; empty if nothing was drawn."""


class Ends(Protocol):
    """Ends of one phase of the clients of a round. A place is the index of a client among them."""

    @property
    def certain(self) -> bool:
        """True if no phase takes time at any start."""

    def ends_at(self, place: int, time_s: float, start_s: float | None = None) -> float:
        """Return the end of the phase of the client at `place` that starts at `start_s` (None: now).

        The delay is that of the law in force at `time_s`, now.
        """

    def ends_of(self, starts_s: FloatArray) -> FloatArray | None:
        """Return the ends of phases that begin at `starts_s` (n,), NaN for NaN; None if the law changes before one of these
        starts.
        """

    def expire(self) -> bool:
        """Handle that the law was replaced. Return True if ends are evaluated again by themselves, False if the caller must draw
        again.
        """

    def state_dict(self) -> State:
        """Return the drawn values; empty if nothing was drawn."""


class Certain(Generic[ValueT]):
    """Draw or ends with one value for all clients throughout the round: 0 seconds, or True (no loss)."""

    certain = True

    def __init__(self, value: ValueT) -> None:
        self._value: ValueT = value

    def at(self, place: int, time_s: float) -> ValueT:
        """Return the value."""
        value: ValueT = self._value
        return value

    def ends_at(self, place: int, time_s: float, start_s: float | None = None) -> float:
        """Return the end of a phase that starts at `start_s` (None: now)."""
        return (time_s if start_s is None else start_s) + self._value

    def ends_of(self, starts_s: FloatArray) -> FloatArray:
        """Return the ends of phases that start at `starts_s` (n,)."""
        return starts_s + self._value

    def values_at(self, time_s: float, count: int) -> list[ValueT]:
        """Return the value `count` times."""
        return [self._value] * count

    def each_at(self, times_s: FloatArray) -> NDArray[Any] | None:
        """Return the value for each of `times_s`."""
        return np.full(len(times_s), self._value)

    def expire(self) -> bool:
        """Return False: under the new law the value may differ."""
        return False

    def state_dict(self) -> State:
        """Return an empty state: nothing was drawn."""
        return {}


class RoundDraw(Generic[ValueT]):
    """One quantity of every client of a round, evaluated by `source` under the law in force when it is read."""

    certain = False
    __slots__ = ("_array", "_array_until_s", "_index", "_source", "_u", "clients", "round", "until_s", "values")

    def __init__(self, source: Durations | Survivals, round: int, clients: IntArray, time_s: float, tries: int = 0) -> None:
        self._source = source
        self._index = resend_index(round, tries)
        self._u: FloatArray | None = None
        """Uniform numbers (n,) of the clients, drawn when they are needed first."""
        self.round = round
        self.clients = clients
        self.values: list[ValueT] = []
        """Values [n] under the law in force until `until_s`."""
        self.until_s = -_EVER
        """Time until which `values` hold, seconds. The list is made from the array at the first single access."""
        self._array: NDArray[Any]
        self._evaluate(time_s)

    def _evaluate(self, time_s: float) -> None:
        """Compute the array of values under the law in force at `time_s`, with the same uniform numbers each time."""
        source = self._source
        value, self._array_until_s = source.constant_value(self.round, time_s)
        if value is not None:
            self._array = np.full(len(self.clients), value)
            return
        if self._u is None:
            self._u = source.uniforms(self._index, self.clients)
        self._array, self._array_until_s = source.evaluate(self.round, time_s, self.clients, self._u)

    def _renew(self, time_s: float) -> None:
        """Bring the list of values up to date for `time_s`."""
        if time_s >= self._array_until_s:
            self._evaluate(time_s)
        self.values, self.until_s = self._array.tolist(), self._array_until_s

    def at(self, place: int, time_s: float) -> ValueT:
        """Return the value of the client at `place` under the law in force at `time_s`."""
        if time_s >= self.until_s:
            self._renew(time_s)
        return self.values[place]

    def ends_at(self, place: int, time_s: float, start_s: float | None = None) -> float:
        """Return the end of the phase of the client at `place` that starts at `start_s` (None: now), seconds."""
        return (time_s if start_s is None else start_s) + self.at(place, time_s)

    def ends_of(self, starts_s: FloatArray) -> FloatArray | None:
        """Return the ends (n,) of phases that start at `starts_s` (n,); None if the law changes before one of them."""
        # The same additions as in `ends_at`, so that both executors of updates get the same bits.
        values = self.each_at(starts_s)
        return None if values is None else starts_s + values

    def values_at(self, time_s: float, count: int) -> list[ValueT]:
        """Return the values of all `count` clients, (n,), under the law in force at `time_s`."""
        if time_s >= self.until_s:
            self._renew(time_s)
        return self.values

    def each_at(self, times_s: FloatArray) -> NDArray[Any] | None:
        """Return the values (n,) under the law in force as the round began; None if it ends before one of `times_s`."""
        until_s = self._array_until_s
        # Comparisons with NaN are False: clients that do not reach this phase do not matter.
        return self._array if until_s == _EVER or not (times_s >= until_s).any() else None

    def expire(self) -> bool:
        """Return True: the values are evaluated again when they are needed next."""
        self.until_s = self._array_until_s = 0.0
        return True

    def state_dict(self) -> State:
        """Return the values in force. They cannot be drawn again, because the states of channels have moved on."""
        return {"values": self._array.tolist(), "until_s": self._array_until_s}

    def load_state_dict(self, state: State) -> None:
        """Restore the values that were in force."""
        self.values = list(state["values"])
        self._array = np.array(self.values)
        self.until_s = self._array_until_s = state["until_s"]


class Phases(Protocol):
    """Durations of one phase of an update, for the clients of a round."""

    def draw(self, round: int, time_s: float, clients: IntArray, tries: int = 0) -> Ends:
        """Return the ends of the phases of `clients` (n,) in `round`. `tries`: times that their messages were lost before."""

    def redraw(self, round: int, time_s: float, clients: IntArray, state: State) -> Ends:
        """Return the draw that `state` was saved from."""

    def delays_s(self, round: int, time_s: float, clients: IntArray) -> list[float]:
        """Return each duration (n,) without the time of bytes, under the law in force at `time_s`."""


class Durations:
    """Durations of one phase (download, local training, upload) or of messages: a law over time, drawn at (address, place).

    The address is the round and the place is the client, unless `places` is given.
    """

    def __init__(self, *, clients: int, law: Timeline[DelayLaw], draws: Stream, places: int | None = None) -> None:
        self._places = clients if places is None else places
        self.law = law
        self._draws = draws
        self._skippable: SkippedDraws[DelayLaw] = SkippedDraws(takes_no_time, clients)
        self._no_time: Certain[float] = Certain(0.0)
        self._never_takes_time = False
        """True once it is known that the phase will never take time."""

    def draw(self, round: int, time_s: float, clients: IntArray, tries: int = 0) -> RoundDraw[float] | Certain[float]:
        """Return the durations of `clients` (n,) in `round`, seconds, of messages that were lost `tries` times before.

        The draw reads its random numbers later, by address: (round, tries, client). Durations that are 0 for the whole run need
        no draw.
        """
        # Fast path for the rest of the run, once a law that never changes is known to take no time.
        if self._never_takes_time:
            return self._no_time
        law, until_s = self.law.at(round, time_s)
        # Only a law that holds for ever and takes no time makes the draw superfluous.
        if until_s < _EVER or not self._skippable.may_skip(law):
            return RoundDraw(self, round, clients, time_s, tries)
        self._never_takes_time = self.law.fixed
        return self._no_time

    def delays_s(self, round: int, time_s: float, clients: IntArray) -> list[float]:
        """Return the durations (n,) of `clients` (n,) in `round`, seconds, under the law in force at `time_s`."""
        return self.draw(round, time_s, clients).values_at(time_s, len(clients))

    def redraw(self, round: int, time_s: float, clients: IntArray, state: State) -> RoundDraw[float] | Certain[float]:
        """Restore the draw that was saved as `state`, which is empty for a draw that was not needed."""
        if not state:
            return self._no_time
        draw: RoundDraw[float] = RoundDraw(self, round, clients, time_s)
        draw.load_state_dict(state)
        return draw

    def uniforms(self, address: int, places: IntArray) -> FloatArray:
        """Return the uniform numbers of `places` (n,) at `address`: of clients in a round, unless there are other places."""
        return self._draws.uniforms_at(address, places, self._places)

    def constant_value(self, round: int, time_s: float) -> tuple[float | None, float]:
        """Return (0.0 if the law in force takes no time for any client, else None; the time until which the law holds)."""
        law, until_s = self.law.at(round, time_s)
        return (0.0 if self._skippable.may_skip(law) else None), until_s

    def evaluate(self, round: int, time_s: float, clients: IntArray, u: FloatArray) -> tuple[FloatArray, float]:
        """Return (durations (n,) at uniform numbers `u` (n,) under the law in force, time until which the law holds)."""
        law, until_s = self.law.at(round, time_s)
        return law.quantile(u, clients), until_s


class Survivals:
    """Survival of one transmission of each client: a channel law over time, with one sub-channel for each client.

    Draws are addressed by (address, place): the round and the client, unless `places` is given.
    """

    def __init__(
        self, *, clients: int, law: Timeline[ChannelLaw], draws: Stream, state_draws: Stream, places: int | None = None
    ) -> None:
        self.clients = clients
        self._places = clients if places is None else places
        self.law = law
        self._draws = draws
        self._state_draws = state_draws
        self._current: ChannelLaw | None = None
        """Law in force, which holds the states of sub-channels; None before it was looked up."""
        self._skippable: SkippedDraws[ChannelLaw] = SkippedDraws(loses_nothing, clients)
        self._no_loss: Certain[bool] = Certain(True)
        self._never_loses = False
        """True once no transmission can ever be lost."""
        self._never_has_state = False
        """True once no sub-channel can ever have a state."""

    def current_law(self, round: int, time_s: float) -> tuple[ChannelLaw, float]:
        """Return (law in force in `round` at `time_s`, time until which it holds)."""
        law, until_s = self.law.at(round, time_s)
        if law is not self._current:
            # A change of law changes parameters only: the new law continues from the states of the old one.
            if self._current is not None:
                law.load_state_dict(self._current.state_dict())
            self._current = law
        return law, until_s

    def share_states(self, draws: Stream, places: int | None = None) -> Survivals:
        """Return a view of these sub-channels, with the same states, for other transmissions, which have their own `draws` and
        `places`.
        """
        return _SharedStates(self, draws, self._state_draws, places)

    @property
    def settled(self) -> bool:
        """True if losses depend on addressed numbers alone: no law ever changes or has states."""
        return self.law.fixed and self.current_law(0, 0.0)[0].memoryless

    def open_round(self, round: int, time_s: float) -> None:
        """Advance the state of every sub-channel by one step, to `round`. Must be called once a round, in order."""
        if self._never_has_state:
            return
        law, _ = self.current_law(round, time_s)
        if not law.memoryless:
            law.step(self._state_draws.uniforms(round, self.clients))
        self._never_has_state = law.memoryless and self.law.fixed

    def draw(self, round: int, time_s: float, clients: IntArray, tries: int = 0) -> Draw[bool]:
        """Return the survivals of the transmissions of `clients` (n,) in `round`, which were lost `tries` times before.

        Counterpart of `Durations.draw`: the draw reads its random numbers later, and where nothing can be lost there is none.
        """
        # Fast path for the rest of the run, once a law that never changes is known to lose nothing.
        if self._never_loses:
            return self._no_loss
        law, until_s = self.current_law(round, time_s)
        # Only a law that holds for ever and loses nothing makes the draw superfluous.
        if until_s < _EVER or not self._skippable.may_skip(law):
            return RoundDraw(self, round, clients, time_s, tries)
        self._never_loses = self.law.fixed
        return self._no_loss

    def redraw(self, round: int, time_s: float, clients: IntArray, state: State) -> Draw[bool]:
        """Restore the draw that was saved as `state`, which is empty for a draw that was not needed."""
        if not state:
            return self._no_loss
        draw: RoundDraw[bool] = RoundDraw(self, round, clients, time_s)
        draw.load_state_dict(state)
        return draw

    def uniforms(self, address: int, places: IntArray) -> FloatArray:
        """Return the uniform numbers of `places` (n,) at `address`: of clients in a round, unless there are other places."""
        return self._draws.uniforms_at(address, places, self._places)

    def constant_value(self, round: int, time_s: float) -> tuple[bool | None, float]:
        """Return (True if the law in force loses nothing, else None; the time until which the law holds)."""
        law, until_s = self.current_law(round, time_s)
        return (True if self._skippable.may_skip(law) else None), until_s

    def evaluate(self, round: int, time_s: float, clients: IntArray, u: FloatArray) -> tuple[BoolArray, float]:
        """Return (survivals (n,) at uniform numbers `u` (n,) under the law in force, time until which the law holds)."""
        law, until_s = self.current_law(round, time_s)
        return law.good(u, clients), until_s

    def state_dict(self) -> State:
        """Return the state of the sub-channels."""
        return {} if self._current is None else {"law": self._current.state_dict()}

    def load_state_dict(self, state: State, round: int, time_s: float) -> None:
        """Restore the state of the sub-channels at the close of `round`."""
        if "law" in state:
            self._current, _ = self.law.at(round, time_s)
            self._current.load_state_dict(state["law"])


class _SharedStates(Survivals):
    """Other transmissions over the sub-channels of `keeper`, which keeps their states, so that both meet the same Good or Bad."""

    def __init__(self, keeper: Survivals, draws: Stream, state_draws: Stream, places: int | None) -> None:
        super().__init__(clients=keeper.clients, law=keeper.law, draws=draws, state_draws=state_draws, places=places)
        self._keeper = keeper

    def current_law(self, round: int, time_s: float) -> tuple[ChannelLaw, float]:
        """Return the law of `keeper`, which holds the states."""
        return self._keeper.current_law(round, time_s)
