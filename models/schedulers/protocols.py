"""What schedulers and matchers are, and what they see of the engine and of the world: structural types and shared checks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
from annotated_doc import Doc
from numpy.typing import NDArray

from models.errors import ParameterError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
State = dict[str, Any]


class SlotView(Protocol):
    """What a scheduler may know as a round begins (`netsim.core.protocols.SlotView`)."""

    @property
    def round(self) -> int:
        """Counts from 1."""

    @property
    def ages(self) -> IntArray:
        """(K,) age of information of each client at the end of the last round, in rounds; 1: it succeeded then."""

    @property
    def contribution(self) -> FloatArray:
        """(K,) marginal contribution C_i of each client; all alike where nothing is learned."""

    @property
    def rng(self) -> np.random.Generator:
        """The scheduler's own stream of this round."""


class Matcher(Protocol):
    """Gives each of K clients one of K channels; called once a round."""

    def match(self, view: SlotView, ranked: list[int]) -> list[int]:
        """The channel of each client, in the order of the clients: a permutation of `ranked` (K channels, best first).

        Lists, since K is small beside the cost of an array.
        """

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


ChosenMatcher = Annotated[Matcher | None, Doc("Who gets which of the chosen sub-channels.")]


class Declared(NamedTuple):
    """A change declared on one channel, after which the scheduler was reset."""

    channel: int
    detector: str
    """The kind of the detector, as a scenario names it."""
    observations: int
    """How many observations of the channel it had seen since the scheduler's last reset."""


class Scheduler(Protocol):
    """Gives each of K clients one of N >= K channels, round after round."""

    matcher: Matcher

    @property
    def restarts(self) -> list[int]:
        """The rounds in which a change was declared; empty where none is looked for. A copy."""

    @property
    def forgets(self) -> bool:
        """Whether `means` drops what came before a change: such means need no forgetting from outside."""

    @property
    def declared(self) -> Sequence[Declared]:
        """The changes declared in the last `observe`."""

    def assign(self, view: SlotView) -> IntArray:
        """The channel of each client; (K,), distinct."""

    def observe(self, view: SlotView, channels: IntArray, good: BoolArray) -> None:
        """Learn from the round just closed: `channels` (n,) that were used, n <= K, and whether each let its update through."""

    def means(self) -> FloatArray:
        """Empirical success of each channel, by which it may be ranked; (N,), nan where there is no observation."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class Truth(Protocol):
    """The world as oracles know it."""

    def means(self, round: int) -> FloatArray:
        """The probability of each channel to be Good in that round; (N,), another array where it is another one."""

    def states(self, round: int) -> BoolArray:
        """Whether each channel is Good in that round; (N,)."""


def check_at_least_one(clients: int, channels: int) -> None:
    """Raise ValueError unless there is a client and a channel."""
    for name, count in (("clients", clients), ("channels", channels)):
        if count < 1:
            raise ParameterError(name, count, "must be >= 1")


def check_sizes(clients: int, channels: int) -> None:
    """Raise ValueError unless 1 <= `clients` <= `channels`."""
    check_at_least_one(clients, channels)
    if channels < clients:
        raise ParameterError("channels", channels, f"must be >= the number of clients, {clients}, each of which has its own")


def check_rounds(rounds: int) -> None:
    """Raise ValueError unless `rounds` >= 1."""
    if rounds < 1:
        raise ParameterError("rounds", rounds, "must be >= 1")


def check_finite(name: str, value: float, *, zero: bool = False) -> None:
    """Raise ValueError, naming the parameter, unless `value` is finite and > 0 (>= 0 where `zero`)."""
    if not (math.isfinite(value) and (value > 0 or (zero and value == 0))):
        raise ParameterError(name, value, f"must be finite and {'>= 0' if zero else '> 0'}")
