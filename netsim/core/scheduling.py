"""Protocols of a scheduler of sub-channels, of an oracle beside it, and of a measure of ages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from netsim.core.protocols import BoolArray, FloatArray, IntArray, Stateful, optional


class SlotView:
    """Information that a channel scheduler has as a round begins. `draws`: source of the generator if `rng` is not given."""

    __slots__ = ("_draws", "_rng", "ages", "contribution", "round")

    def __init__(
        self,
        round: int,
        ages: IntArray,
        contribution: FloatArray,
        rng: np.random.Generator | None = None,
        draws: Callable[[int], np.random.Generator] = np.random.default_rng,
    ) -> None:
        self.round = round
        self.ages = ages
        """Age of information (K,) of each client after the last round, in rounds (at the start: 1)."""
        self.contribution = contribution
        """Marginal contribution (K,) of each client to the model, as the server knows it; ones without training."""
        self._rng, self._draws = rng, draws

    @property
    def rng(self) -> np.random.Generator:
        """The scheduler's own stream of this round.

        It must not be kept. Made at the first access, because most schedulers never use it.
        """
        if self._rng is None:
            self._rng = self._draws(self.round)
        return self._rng


class ChannelScheduler(Stateful, Protocol):
    """Assigns one of N >= K sub-channels to each of K clients, in every round."""

    contends: bool = False
    """True if it may assign one sub-channel to two clients. A class attribute: it is read before an object exists."""
    declared: Sequence[tuple[int, str, int]] = ()
    """Changes declared in the last `observe`, as (sub-channel, kind of detector, observations of the sub-channel since the last
    reset). They are recorded.
    """

    def assign(self, view: SlotView) -> IntArray:
        """Return the sub-channel of each client; (K,), distinct unless the scenario allows contention."""

    def observe(self, view: SlotView, channels: IntArray, good: BoolArray) -> None:
        """Learn from the round just closed: `channels` (n,) that were transmitted on, `good` (n,) True where the update arrived.

        Entries are in the order of the clients; n < K if some did not transmit or went away. A transmission that the close cut
        off, or that came after the close, counts as not arrived.
        """

    @optional
    def detects(self) -> bool:
        """Return True if the scheduler has a detector, so that a change that it does not declare counts as missed."""
        return False


class OracleScheduler(ChannelScheduler, Protocol):
    """A scheduler that sees the states of the sub-channels before it schedules."""

    def show(self, good: BoolArray) -> None:
        """Receive the states (N,) of the next round; True: Good."""


class AgeMeter(Stateful, Protocol):
    """Measures a scheduler from outside: it runs an oracle on the same channel states."""

    def measure(self, round: int, good: BoolArray) -> float:
        """Return the sum of the oracle's ages after `round`, given the states `good` (N,) of the channels; NaN without an
        oracle.
        """
