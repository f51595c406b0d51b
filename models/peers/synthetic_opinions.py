"""Opinions by a law instead of by training, for studies of time: no model is computed.

Every client has a worth in [0, 1]. A slot brings the model to the mean worth of the updates delivered in it; a client's opinion
is a mixture of that level and of its own worth, with noise. So the best set is known, and regret can be measured exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from models.errors import ParameterError
from models.laws.delays import FloatArray, IntArray, PerClient, check_same_clients, per_client, spread
from netsim.core.state import StateFields


class Draws(Protocol):
    """Addressed random numbers of a stream."""

    def uniforms(self, index: int, size: int) -> FloatArray:
        """Return the uniforms (`size`,) in [0, 1) at `index`."""


class Delivered(Protocol):
    """Part of the engine's `Deliveries` that is read here."""

    @property
    def clients(self) -> IntArray:
        """(n,) clients of the delivered updates."""


class SyntheticOpinions(StateFields):
    """Opinions by a law, in the place of a learner.

    After a slot, level = `memory` level + (1 - `memory`) mean worth of the updates delivered (unchanged without any), at first
    `start`. The opinion of client n is (1 - `own`) level + `own` worth_n + `noise` z, clipped to [0, 1], z standard normal at
    (slot, client). With `own` = 0 no opinion depends on the client's own worth. `worth` is a number or (K,).
    """

    state_fields = ("version", "_level", "_sum", "_count", "_slots")
    aggregates = True
    """True: deliveries change the opinions."""
    round_columns: Sequence[str] = ()

    def __init__(
        self,
        *,
        clients: int,
        per_round: int,
        draws: Draws,
        worth: PerClient,
        own: float = 0.2,
        noise: float = 0.02,
        memory: float = 0.0,
        start: float = 0.1,
    ) -> None:
        values = per_client("worth", worth, high=1.0, unit="")
        check_same_clients(clients=np.empty(clients), worth=values)
        for name, value in (("own", own), ("memory", memory), ("start", start)):
            if not 0 <= value <= 1:
                raise ParameterError(name, value, "must lie in [0, 1]")
        if not 0 <= noise <= 1e6:
            raise ParameterError("noise", noise, "must be >= 0, and at most 1e+06: opinions lie in [0, 1]")
        self.worth: FloatArray = spread(values, np.arange(clients))
        """(K,) worth of each client."""
        self.version = 0
        self.records_losses = False
        self._draws = draws
        self._own, self._noise, self._memory, self._start = own, noise, memory, start
        self._best = float(np.sort(self.worth)[-per_round:].mean())
        """Mean worth of the best set."""
        self._level = start
        # Sum of the worths of the updates delivered in the present slot, and their number.
        self._sum, self._count = 0.0, 0
        self._slots = 0
        """Slots since the last reset."""

    def aggregate(self, deliveries: Delivered, want_updates: bool, want_losses: bool = False) -> None:
        """Count the delivered updates."""
        self._sum += float(self.worth[deliveries.clients].sum())
        self._count += len(deliveries.clients)
        self.version += 1

    def evaluate(self, round: int, time_s: float, last: bool) -> None:
        """Do nothing: there is no model."""

    def retain(self, versions: list[int]) -> None:
        """Do nothing: no versions of a model are kept."""

    def contribution(self) -> None:
        """Return None: the contributions of clients are unknown."""

    def opinions(self, slot: int) -> FloatArray:
        """Return the opinions (K,) after `slot`; called once a slot (0: before the first). Moves the level first."""
        if slot > 0:
            self._slots += 1
        if self._count:
            # `_sum / _count` is the mean worth of the updates delivered in the slot.
            self._level = self._memory * self._level + (1 - self._memory) * self._sum / self._count
            self._sum, self._count = 0.0, 0
        return self._opinions(slot, self._level)

    def best_opinion(self, slot: int) -> float:
        """Return the average opinion after `slot` if the best set had been trained in every slot since the reset.

        It has the noise of `opinions` in the same slot, and is called after it.
        """
        # The level moves from `start` towards the mean worth of the best set, by the factor `memory` a slot.
        level = self._best + self._memory**self._slots * (self._start - self._best)
        return float(self._opinions(slot, level).mean())

    def _opinions(self, slot: int, level: float) -> FloatArray:
        """Return the opinions (K,) after `slot` at a level."""
        from scipy.special import ndtri

        z = ndtri(self._draws.uniforms(slot, len(self.worth)))
        noise = self._noise * z if self._noise else 0.0
        return np.clip((1 - self._own) * level + self._own * self.worth + noise, 0.0, 1.0)

    def values(self) -> FloatArray | None:
        """Return (K,) values such that the expected regret of a set is the mean value of the best set less that of its members.

        None with a `memory`, where the reward of a slot depends on earlier sets, too. Clipping to [0, 1] is ignored.
        """
        return None if self._memory else (1 - self._own) * self.worth

    def reset(self) -> None:
        """Set the level to that before slot 1."""
        self._level = self._start
        self._sum, self._count = 0.0, 0
        self._slots = 0
