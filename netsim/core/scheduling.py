"""Protocols of a scheduler of sub-channels, of an oracle beside it, and of a measure of ages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from netsim.core.protocols import BoolArray, FloatArray, IntArray, Stateful, optional


class SlotView:
    """View of a channel scheduler as a round begins. `draws`: makes the generator of a round, where `rng` is not given."""

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
        """(K,) age of information of each client after the last round, in rounds (at the start: 1)."""
        self.contribution = contribution
        """(K,) each client's marginal contribution to the model, as far as the server knows it; ones where nothing is trained."""
        self._rng, self._draws = rng, draws

    @property
    def rng(self) -> np.random.Generator:
        """The scheduler's own stream of this round; not to be kept. Made as it is first asked for, which most never do."""
        if self._rng is None:
            self._rng = self._draws(self.round)
        return self._rng


class ChannelScheduler(Stateful, Protocol):
    """Gives each of K clients one of N >= K sub-channels, round after round."""

    contends: bool = False
    """True if it may give two clients one sub-channel. Read from the class, before there is an object."""
    declared: Sequence[tuple[int, str, int]] = ()
    """The changes it declared in the last `observe`, each as (sub-channel, kind of detector, observations of the sub-channel
    since the last reset). They are recorded."""

    def assign(self, view: SlotView) -> IntArray:
        """The sub-channel of each client; (K,), distinct unless the scenario allows contention."""

    def observe(self, view: SlotView, channels: IntArray, good: BoolArray) -> None:
        """Learn from the round just closed: `channels` (n,) that were transmitted on, `good` (n,) True where the update arrived.

        In the order of the clients; n < K where some did not transmit, or went away. A transmission that the close cut off, or
        that came after it, did not arrive.
        """

    @optional
    def detects(self) -> bool:
        """Return True if it watches for changes, so that a change that it does not declare is missed."""
        return False


class OracleScheduler(ChannelScheduler, Protocol):
    """A scheduler that may see the states of the sub-channels before it schedules."""

    def show(self, good: BoolArray) -> None:
        """The states (N,) of the round to come."""


class AgeMeter(Stateful, Protocol):
    """Measures a scheduler from outside: what an oracle would have reached on the same channel states."""

    def measure(self, round: int, good: BoolArray) -> float:
        """Sum of the oracle's ages after `round`, in which exactly the channels `good` (N,) let an update through (NaN: none)."""
