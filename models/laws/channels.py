"""Laws of sub-channels: the success of transmissions in a round; one sub-channel for each entity.

Each law has `step(u)` (advance every sub-channel by one round), `good(u, entities)` (True for transmissions over the
sub-channels `entities` (n,) that survive) and `success_probability(entities)` (in the long run; (n,)). `u` are uniforms in
[0, 1). Laws can follow one another at change points: the next law takes over the `state_dict` of the last one, whatever its
parameters. A law with memory that gets an empty state draws its state at its next step.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_doc import Doc
from numpy.typing import NDArray

from models.errors import ParameterError
from models.laws.delays import FloatArray, IntArray, PerClient, check_same_clients, per_client, pick, spread
from netsim.core.state import State, StateFields

BoolArray = NDArray[np.bool_]


class Memoryless(StateFields):
    """Base class of laws without state: rounds are independent, and a step changes nothing."""

    memoryless = True

    def step(self, u: FloatArray) -> None:
        pass


class Perfect(Memoryless):
    """Every transmission gets through.

    Example:
        >>> import numpy as np
        >>> Perfect().good(np.array([0.1, 0.9]), np.array([0, 1]))
        array([ True,  True])
    """

    def good(self, u: FloatArray, entities: IntArray) -> BoolArray:
        return np.ones(len(entities), dtype=np.bool_)

    def success_probability(self, entities: IntArray) -> FloatArray:
        return np.ones(len(entities))


class Bernoulli(Memoryless):
    """Transmissions get through independently, with probability `success`.

    Example:
        >>> import numpy as np
        >>> Bernoulli(success=0.5).good(np.array([0.1, 0.9]), np.array([0, 1]))
        array([ True, False])
    """

    def __init__(
        self,
        *,
        success: Annotated[PerClient, Doc("Probability that a transmission gets through.")],
    ) -> None:
        self._success = per_client("success", success, high=1.0, unit="")

    def good(self, u: FloatArray, entities: IntArray) -> BoolArray:
        return np.asarray(u < pick(self._success, entities))

    def success_probability(self, entities: IntArray) -> FloatArray:
        return spread(self._success, entities)


class GilbertElliott:
    """Two-state Markov sub-channels (Gilbert 1960, Elliott 1963), one step a round.

    A good sub-channel turns bad with probability `to_bad`, a bad one good with `to_good`; a transmission is lost with
    probability `loss_good` or `loss_bad`. The first step draws the state from the stationary law, so that no warm-up is needed.
    `clients` is the number of sub-channels.

    Example:
        >>> import numpy as np
        >>> law = GilbertElliott(clients=2, to_bad=0.1, to_good=0.3)
        >>> law.step(np.array([0.1, 0.9]))
        >>> law.good(np.array([0.5, 0.5]), np.array([0, 1]))
        array([False,  True])
    """

    memoryless = False

    def __init__(
        self,
        *,
        clients: int,
        to_bad: Annotated[PerClient, Doc("Probability that a good sub-channel turns bad from one round to the next.")],
        to_good: Annotated[PerClient, Doc("Probability that a bad sub-channel turns good from one round to the next.")],
        loss_good: Annotated[PerClient, Doc("Probability that a transmission is lost while its sub-channel is good.")] = 0.0,
        loss_bad: Annotated[PerClient, Doc("Probability that a transmission is lost while its sub-channel is bad.")] = 1.0,
    ) -> None:
        if clients < 1:
            raise ParameterError("clients", clients, "must be >= 1")
        self._clients = clients
        self._to_bad = per_client("to_bad", to_bad, high=1.0, unit="")
        self._to_good = per_client("to_good", to_good, high=1.0, unit="")
        self._loss_good = per_client("loss_good", loss_good, high=1.0, unit="")
        self._loss_bad = per_client("loss_bad", loss_bad, high=1.0, unit="")
        check_same_clients(
            clients=np.empty(clients),
            to_bad=self._to_bad,
            to_good=self._to_good,
            loss_good=self._loss_good,
            loss_bad=self._loss_bad,
        )
        moves = np.add(self._to_bad, self._to_good)
        if not np.all(moves > 0.0):
            raise ParameterError("to_good", to_good, "to_bad + to_good must be > 0, or a sub-channel would never change state")
        self._bad_share = np.broadcast_to(self._to_bad / moves, (clients,))
        """(K,) stationary probability of being bad."""
        self._bad: BoolArray | None = None
        """(K,) True for bad sub-channels; None before the first step."""

    def step(self, u: FloatArray) -> None:
        if self._bad is None:
            self._bad = np.asarray(u < self._bad_share)
        else:
            # One uniform for each sub-channel: a good one turns bad below to_bad, a bad one turns good below to_good.
            self._bad = np.where(self._bad, u >= self._to_good, u < self._to_bad)

    def good(self, u: FloatArray, entities: IntArray) -> BoolArray:
        if self._bad is None:
            raise RuntimeError("a Gilbert-Elliott law has no state before its first step")
        loss = np.where(self._bad[entities], pick(self._loss_bad, entities), pick(self._loss_good, entities))
        return np.asarray(u >= loss)

    def success_probability(self, entities: IntArray) -> FloatArray:
        bad_share = self._bad_share[entities]
        loss_while_good = (1.0 - bad_share) * pick(self._loss_good, entities)
        loss_while_bad = bad_share * pick(self._loss_bad, entities)
        return np.asarray(1.0 - loss_while_good - loss_while_bad)

    def state_dict(self) -> State:
        return {} if self._bad is None else {"bad": self._bad.copy()}

    def load_state_dict(self, state: State) -> None:
        bad = state.get("bad")
        if bad is not None and np.shape(bad) != (self._clients,):
            raise ParameterError(
                "bad", bad, f"must be one state for each of {self._clients} clients", shown=f" has shape {np.shape(bad)}"
            )
        self._bad = None if bad is None else np.array(bad, dtype=np.bool_)
