"""Facts of a scenario and of a finished run, for the rules of warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Protocol

import numpy as np

from netsim.core.protocols import Availability, DelayLaw, Draws, FloatArray, IntArray, Timeline
from netsim.simulation import BY_ABSENCE, BY_APP, BY_EVENTS, BY_ROUNDS, BY_TIME
from scenarios.schema.scenario import Scenario
from scenarios.wiring.clients.population import Population


class HasLaws(Timeline[DelayLaw], Protocol):
    """A timeline that knows all of its laws."""

    @property
    def laws(self) -> Sequence[DelayLaw]: ...


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """Facts of a scenario before its run."""

    scenario: Scenario
    population: Population
    delays: Mapping[str, HasLaws]
    """Delays of an update's phases: download, compute, upload."""
    worked: Sequence[HasLaws]
    """Times of the work of an update, which add up; empty if training takes only its delay."""
    carries: bool
    """True if bytes take time at a bandwidth that changes or is shared."""
    besides_s: Mapping[str, FloatArray | float]
    """Least seconds of each phase on top of its delay: bytes, and the delay of a sub-channel."""
    stops: bool
    """True if a trace of bandwidth ends in the run: messages in flight are then lost."""
    presence: Availability
    draws: Draws
    """The random numbers of `presence`."""

    @property
    def everyone(self) -> IntArray:
        """All clients (K,)."""
        return np.arange(self.population.count)

    @cached_property
    def least_s(self) -> dict[str, FloatArray]:
        """The least seconds (K,) of each phase of an update, without its work."""
        return {phase: shortest_s(law, self.everyone) + self.besides_s[phase] for phase, law in self.delays.items()}

    @cached_property
    def least_work_s(self) -> FloatArray:
        """The least seconds (K,) of the work of an update."""
        return np.asarray(sum((shortest_s(law, self.everyone) for law in self.worked), np.zeros(self.population.count)))


class RunSums(Protocol):
    """Sums over the rounds of a run."""

    rounds: int
    counts: dict[str, int]
    longest_wait_s: float
    """The longest time without a round in seconds: between two rounds, or before the first."""
    waited_round: int
    """The round that began after the longest wait."""


class AttemptCounts(Protocol):
    """Attempts (K,) of each client and its delivered updates (K,)."""

    selections: IntArray
    successes: IntArray


class Trained(Protocol):
    """Facts of a learner after a run."""

    @property
    def trained_updates(self) -> int: ...
    @property
    def refused_updates(self) -> int: ...

    @property
    def unscored(self) -> Unscored: ...
    @property
    def worker_facts(self) -> dict[str, Any] | None: ...


class Unscored(Protocol):
    """Test samples without finite scores at the last evaluation."""

    @property
    def of(self) -> int: ...
    @property
    def samples(self) -> int: ...
    @property
    def since_round(self) -> int | None: ...


@dataclass(frozen=True)
class Outcome:
    """Facts of a finished run."""

    scenario: Scenario
    run: RunSums
    clients: AttemptCounts
    learner: Trained | None
    ended: str
    """Reason of the end: one of the constants of `netsim.simulation`."""
    waited_for_lost_s: float = 0.0
    """Longest timeout with which an application waited for a message that was lost; inf: it waited without a timeout; 0: no
    message was lost.
    """
    standstill: str = ""
    """Text that tells which peers wait for which, if the run ended because none could go on; empty otherwise."""

    @property
    def over(self) -> bool:
        """True if the run cannot go on."""
        return self.ended in (BY_ROUNDS, BY_TIME, BY_ABSENCE, BY_EVENTS, BY_APP)


def shortest_s(timeline: HasLaws, entities: IntArray) -> FloatArray:
    """Return the least seconds (n,) that any law of a timeline allows each of `entities` (n,)."""
    zero_quantiles = np.zeros(len(entities))
    # A running minimum needs memory for one law only; there may be many laws of many clients.
    return np.asarray(reduce(np.minimum, (law.quantile(zero_quantiles, entities) for law in timeline.laws)), np.float64)


def least_s(timeline: Any, entities: IntArray) -> float:
    """Return the least seconds that any law of a timeline allows any of `entities` (n,)."""
    return float(shortest_s(timeline, entities).min())
