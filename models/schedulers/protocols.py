"""Structural types of schedulers and matchers, of what they read of the engine and of the world, and checks that they share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple, Protocol

import numpy as np
from annotated_doc import Doc
from numpy.typing import NDArray

from models.errors import ParameterError
from netsim.core.state import State as State

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class SlotView(Protocol):
    """State of a round before its channels are assigned (`netsim.core.protocols.SlotView`)."""

    @property
    def round(self) -> int:
        """Number of the round, from 1."""

    @property
    def ages(self) -> IntArray:
        """(K,) age of information of each client at the end of the last round, in rounds; 1 after a success."""

    @property
    def contribution(self) -> FloatArray:
        """(K,) marginal contribution C_i of each client; equal for all clients if nothing is learned."""

    @property
    def rng(self) -> np.random.Generator:
        """Random generator of the scheduler for this round."""


class Matcher(Protocol):
    """Matcher that gives each of K clients one of K channels; called once a round."""

    def match(self, view: SlotView, ranked: list[int]) -> list[int]:
        """Return the channel of each client, in the order of the clients: a permutation of `ranked` (K channels, best first).

        Lists, because an array costs more than a few channels do.
        """

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


ChosenMatcher = Annotated[Matcher | None, Doc("Assignment of the chosen sub-channels to clients.")]


class Declared(NamedTuple):
    """Change declared on one channel, after which the scheduler was reset."""

    channel: int
    detector: str
    """Kind of the detector, as a scenario names it."""
    observations: int
    """Observations of the channel since the scheduler's last reset."""


class Scheduler(Protocol):
    """Scheduler that gives each of K clients one of N >= K channels, round after round."""

    matcher: Matcher

    @property
    def restarts(self) -> list[int]:
        """Rounds in which a change was declared; empty without detection. A copy."""

    @property
    def forgets(self) -> bool:
        """True if `means` drops the observations before a change; a wrapper then need not forget them itself."""

    @property
    def declared(self) -> Sequence[Declared]:
        """Changes declared in the last `observe`."""

    def assign(self, view: SlotView) -> IntArray:
        """Return the channel of each client; (K,), distinct."""

    def observe(self, view: SlotView, channels: IntArray, good: BoolArray) -> None:
        """Learn from the closed round: the `channels` (n,) that were used, n <= K, and True in `good` (n,) where an update got
        through.
        """

    def means(self) -> FloatArray:
        """Return the empirical success of each channel, by which it may be ranked; (N,), nan without observations."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class Truth(Protocol):
    """True states of the channels, for oracles."""

    def means(self, round: int) -> FloatArray:
        """Return the probability (N,) of each channel to be Good in `round`.

        The same array object is returned as long as the means are the same.
        """

    def states(self, round: int) -> BoolArray:
        """Return True for each channel that is Good in `round`; (N,)."""


def check_at_least_one(clients: int, channels: int) -> None:
    """Raise ParameterError unless there is at least one client and one channel."""
    for name, count in (("clients", clients), ("channels", channels)):
        if count < 1:
            raise ParameterError(name, count, "must be >= 1")


def check_sizes(clients: int, channels: int) -> None:
    """Raise ParameterError unless 1 <= `clients` <= `channels`."""
    check_at_least_one(clients, channels)
    if channels < clients:
        raise ParameterError("channels", channels, f"must be >= the number of clients, {clients}, each of which has its own")


def check_rounds(rounds: int) -> None:
    """Raise ParameterError unless `rounds` >= 1."""
    if rounds < 1:
        raise ParameterError("rounds", rounds, "must be >= 1")


def check_finite(name: str, value: float, *, zero: bool = False) -> None:
    """Raise ParameterError, naming the parameter, unless `value` is finite and > 0 (>= 0 if `zero`)."""
    is_allowed = value >= 0 if zero else value > 0
    if not (math.isfinite(value) and is_allowed):
        wanted = ">= 0" if zero else "> 0"
        raise ParameterError(name, value, f"must be finite and {wanted}")
