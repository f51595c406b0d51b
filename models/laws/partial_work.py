"""Clients that do only a part of their passes: the stragglers of FedProx.

Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, "Federated Optimization in Heterogeneous Networks", MLSys 2020, Section 5.2: a
share of the clients that are selected do a number of passes that is uniform on 1 .. E - 1; their updates are used as they are.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from models.errors import ParameterError
from models.laws.work import Amounts, Work

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Draws(Protocol):
    """Addressed uniforms (`netsim.core.streams.Stream`)."""

    def uniforms_at(self, index: int, entities: IntArray, size: int) -> FloatArray:
        """Return the draws in [0, 1) of `entities` (n,) out of `size` at `index`; shape (n,)."""


class LikelyAmount(NamedTuple):
    """One of the amounts of work that an update may be asked for."""

    probability: FloatArray
    """(K,) probability that an update of each client is asked for it."""
    samples: IntArray
    """(K,) samples that it processes."""


class PartialWork:
    """Law of work in which a `share` of updates does only a part of `work`: 1 to epochs - 1 of its passes, all equally likely.

    Draws are addressed by client and round. `epochs`: passes of the whole `work`, (K,) or one number; a client of a single pass
    always does all of it.

    Raises:
        ParameterError: no client does several passes, or the steps of a pass are unknown.
    """

    def __init__(self, *, work: Work, epochs: int | IntArray, share: float, draws: Draws) -> None:
        if not 0 <= share <= 1:
            raise ParameterError("partial_share", share, "must be between 0 and 1")
        self._epochs = np.broadcast_to(np.asarray(epochs, np.int64), work.drawn.shape)
        if self._epochs.max() < 2:
            raise ParameterError("partial_share", share, "no client does more than one pass, which has no parts; raise epochs")
        self._work, self._share, self._draws = work, share, draws
        self._steps_of_pass = work.steps_of_pass()

    @property
    def samples(self) -> IntArray:
        """(K,) samples of the whole work."""
        return self._work.samples

    @property
    def drawn(self) -> IntArray:
        """(K,) steps of the whole work."""
        return self._work.drawn

    @property
    def a_pass(self) -> IntArray:
        """(K,) steps of a pass."""
        return self._steps_of_pass

    @property
    def amounts_asked(self) -> int:
        """Number of amounts of work that an update may be asked for: 1 pass, 2 passes, .., all."""
        return int(self._epochs.max())

    def likely_amount(self, passes: int) -> LikelyAmount:
        """Return the work of `passes` passes, from 1, with its probability for each client.

        The most passes that any client does (`amounts_asked`) stand for the whole work of every client.
        """
        clients, whole_steps = np.arange(len(self._epochs)), self._work.drawn
        partial_share = np.where(self._epochs > 1, self._share, 0.0)
        if passes == self.amounts_asked:
            return LikelyAmount(1.0 - partial_share, np.asarray(self._work.samples))
        # A partial update does 1 .. epochs - 1 passes, each with the same probability.
        share_of_each = partial_share / np.maximum(self._epochs - 1, 1)
        probability = np.where(passes < self._epochs, share_of_each, 0.0)
        steps = np.minimum(passes * self._steps_of_pass, whole_steps)
        samples = self._work.amounts(clients, steps).samples
        return LikelyAmount(probability, np.asarray(samples, np.int64))

    eager = False
    """False: the amounts of work are known before training runs."""

    def begin(self, round: int, version: int, clients: IntArray, steps: IntArray | None) -> Amounts:
        """Return the work of updates that begin now, as `amounts`: it does not depend on round or version."""
        return self.amounts(clients, steps)

    def amounts(self, clients: IntArray, steps: IntArray | None = None) -> Amounts:
        """Return the work of updates of `clients` (n,) in `steps` (n,), as `plan_steps` gave them; None: all of it."""
        return self._work.amounts(clients, steps)

    def plan_steps(self, round: int, clients: IntArray) -> IntArray | None:
        """Draw the steps (n,) that updates of `clients` (n,) begun in `round` are asked for."""
        u = self._draws.uniforms_at(round, clients, len(self._epochs))
        epochs, whole_steps = self._epochs[clients], self._work.drawn[clients]
        is_partial = (u < self._share) & (epochs > 1)
        # Given u < share, u / share is uniform: one draw decides on both. A share of 0 must not divide.
        passes = 1 + np.floor(u / max(self._share, 1e-300) * (epochs - 1)).astype(np.int64)
        partial_steps = np.minimum(passes, epochs - 1) * self._steps_of_pass[clients]
        return np.where(is_partial, np.minimum(partial_steps, whole_steps), whole_steps)
