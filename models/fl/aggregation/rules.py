"""Aggregations of delivered updates into one step of the model.

`step(model, starts, updates, arrivals, factors)` returns the step (d,) that the model (d,) makes, from `updates` (n, d), the
models `starts` (n, d) that they started from, facts on them (`Arrivals`) and their staleness factors (n,). An update is theta_k
- theta, from the model theta its client started from. Weights are computed over the delivered updates only, so that "size" is
FedAvg (PAUSE eq. 2) and, if some uploads fail, FedAvg over the successes (client analytics, eq. 2).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.errors import AnswerError, ParameterError
from models.fl.options.demands import AsksNothing, LocalSteps
from models.fl.options.parameters import (
    EqualParameters,
    FixedShareParameters,
    HingeParameters,
    MajorityVoteParameters,
    MixingParameters,
    PolynomialParameters,
)
from models.fl.protocols import Aggregation, Correction, NoCorrection, Staleness

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Facts on n delivered updates, in the order of their delivery."""

    sizes: IntArray
    """(n,) samples of each update's client."""
    staleness: IntArray
    """(n,) versions of the model made since the one that the update started from; 0: a fresh update."""
    contribution: FloatArray | None
    """(n,) the clients' marginal contributions, for an aggregation that says `needs_contribution`."""
    generator: Callable[[], np.random.Generator]
    """Function that returns the generator of this aggregation, the same at every call."""
    parameters: int | None = None
    """Number of parameters among the d numbers of an update, which come before its running statistics; None: all."""
    local: LocalSteps | None = None
    """The local steps of the updates, for an aggregation whose `demands` ask for linear or plain ones."""
    losses: FloatArray | None = None
    """(n,) loss of each update's client on its samples, for an aggregation whose `demands` ask for it; NaN if it computed none.
    """

    version: int = 0
    """Version of the model to which the updates are added; the result is the next version."""
    origins: Callable[[], Tensor] | None = None
    """Function that returns the server's models (n, d) of the versions that updates started from; None: clients received them
    exactly.
    """
    totals: tuple[int, int] = (0, 0)
    """Number of clients, and of the samples of all of them, including clients that delivered nothing."""

    def count_parameters(self, updates: Tensor) -> int:
        """Return the number of parameters in each of `updates` (n, d)."""
        return updates.shape[1] if self.parameters is None else self.parameters

    def require_steps(self) -> LocalSteps:
        """Return `local`. Raises ParameterError if it is None."""
        if self.local is None:
            raise ParameterError("local", None, "this aggregation uses the local steps of updates", shown="")
        return self.local

    def require_losses(self) -> FloatArray:
        """Return `losses`. Raises ParameterError if it is None."""
        if self.losses is None:
            raise ParameterError("losses", None, "this aggregation uses the losses of clients", shown="")
        return self.losses


class PlainUpdates(AsksNothing):
    """Defaults of an aggregation that uses nothing but the updates."""

    needs_contribution = False
    votes = False
    correction: Correction = NoCorrection()


def sum_weighted(weights: FloatArray, updates: Tensor) -> Tensor:
    """Return the sum (d,) of `updates` (n, d), each times its entry of `weights` (n,)."""
    return torch.from_numpy(weights.astype(np.float32)).to(updates.device) @ updates


class NoStaleness:
    """Staleness factor 1 for every update: old updates count in full.

    Example:
        >>> import numpy as np
        >>> NoStaleness().factor(np.array([0, 3]))
        array([1., 1.])
    """

    def factor(self, staleness: IntArray) -> FloatArray:
        return np.ones(len(staleness))


class Polynomial(PolynomialParameters):
    """Staleness factor (1 + s)^-exponent (FedAsync: Xie, Koyejo and Gupta 2019, Section 5.2; FedBuff: Nguyen et al. 2022, 1/2).

    Example:
        >>> import numpy as np
        >>> Polynomial(exponent=0.5).factor(np.array([0, 3]))
        array([1. , 0.5])
    """

    def factor(self, staleness: IntArray) -> FloatArray:
        return np.asarray((1.0 + staleness) ** -self.exponent, np.float64)


class HingeStaleness(HingeParameters):
    """Staleness factor 1 up to s = `free`, then 1/(slope (s - free) + 1) (FedAsync: Xie, Koyejo and Gupta 2019, Section 5.2).

    Example:
        >>> import numpy as np
        >>> HingeStaleness(free=2, slope=1.0).factor(np.array([0, 3]))
        array([1. , 0.5])
    """

    def factor(self, staleness: IntArray) -> FloatArray:
        return 1.0 / (self.slope * np.maximum(staleness - self.free, 0) + 1.0)


class _Weighted(PlainUpdates, ABC):
    """Base class of the sum of w_i s_i update_i: weights w that sum to 1, times staleness factors, not normalised again."""

    @abstractmethod
    def weights(self, arrivals: Arrivals) -> FloatArray:
        """Return the weight of each update (n,); they sum to 1 unless a parameter changes that."""

    def step(self, model: Tensor, starts: Tensor, updates: Tensor, arrivals: Arrivals, factors: FloatArray) -> Tensor:
        return sum_weighted(self.weights(arrivals) * factors, updates)


class BySize(_Weighted):
    """Weights w_i = |D_i| / sum |D_j|: FedAvg (McMahan et al. 2017).

    Example:
        >>> import numpy as np
        >>> import torch
        >>> arrivals = Arrivals(np.array([1, 3]), np.zeros(2, int), None, lambda: np.random.default_rng(1))
        >>> BySize().step(torch.zeros(1), torch.zeros(2, 1), torch.tensor([[1.0], [5.0]]), arrivals, np.ones(2))
        tensor([4.])
    """

    def weights(self, arrivals: Arrivals) -> FloatArray:
        return np.asarray(arrivals.sizes / arrivals.sizes.sum(), np.float64)


class Equal(EqualParameters, _Weighted):
    """Weights w_i = 1/n; with a buffer and a staleness factor it is FedBuff (Nguyen et al. 2022). w_i = 1 with `divide` "none".

    FLSim's FedBuff does not divide. Its staleness factors are 1 at the average staleness, which it takes to be 1: with (1 +
    s)^-1/2 they are those of `Polynomial` times 2^1/2, which the server optimizer's rate can express.

    Example:
        >>> import numpy as np
        >>> import torch
        >>> arrivals = Arrivals(np.array([1, 3]), np.zeros(2, int), None, lambda: np.random.default_rng(1))
        >>> Equal().step(torch.zeros(1), torch.zeros(2, 1), torch.tensor([[1.0], [5.0]]), arrivals, np.ones(2))
        tensor([3.])
    """

    def weights(self, arrivals: Arrivals) -> FloatArray:
        count = len(arrivals.sizes)
        return np.full(count, 1.0 / count if self.divide == "buffer" else 1.0)


class FixedShare(FixedShareParameters, PlainUpdates):
    """Weights alpha p_i s_i, p_i the client's share of all clients, also of those that did not deliver, s_i the staleness
    factor.

    By size, p_i = |D_i| / sum over all clients: clients that did not deliver stand for the present model, as in FedAvg of the
    code of SAFA's authors. Equal, p_i = 1/K, it is FedCompass (Li et al. 2024), whose code by default moves the model towards
    the arriving ones in place of adding updates (`form`).

    Example:
        >>> import numpy as np
        >>> import torch
        >>> arrivals = Arrivals(np.array([1, 3]), np.zeros(2, int), None, lambda: np.random.default_rng(1), totals=(4, 8))
        >>> FixedShare().step(torch.zeros(1), torch.zeros(2, 1), torch.tensor([[1.0], [5.0]]), arrivals, np.ones(2))
        tensor([2.])
    """

    def step(self, model: Tensor, starts: Tensor, updates: Tensor, arrivals: Arrivals, factors: FloatArray) -> Tensor:
        clients, samples = arrivals.totals
        shares = arrivals.sizes / samples if self.by == "size" else np.full(len(arrivals.sizes), 1.0 / clients)
        vectors = updates if self.form == "update" else starts + updates - model
        return sum_weighted(self.alpha * shares * factors, vectors)


class ByContribution(_Weighted):
    """Weights w_i = zeta_i, normalised over the delivered S, zeta_i = C_i / sum C (channel study, eq. 6, 7 and 43).

    The study prints G_i = (w_0 - w_E)/eta and w - (1/|S|) sum zeta_i G_i, which steps 1/eta too far and divides twice; this is
    w - eta sum over S of zeta_i G_i, and eta G_i is minus the update. Weights are equal if all C_i are 0.

    Example:
        >>> import numpy as np
        >>> import torch
        >>> arrivals = Arrivals(np.array([1, 3]), np.zeros(2, int), np.array([3.0, 1.0]), lambda: np.random.default_rng(1))
        >>> ByContribution().step(torch.zeros(1), torch.zeros(2, 1), torch.tensor([[1.0], [5.0]]), arrivals, np.ones(2))
        tensor([2.])
    """

    needs_contribution = True

    def weights(self, arrivals: Arrivals) -> FloatArray:
        contribution = arrivals.contribution
        if contribution is None or not contribution.sum() > 0:
            count = len(arrivals.sizes)
            return np.full(count, 1.0 / count)
        return np.asarray(contribution / contribution.sum(), np.float64)


class Mixing(MixingParameters, PlainUpdates):
    """theta <- (1 - a) theta + a theta_k for each arriving model theta_k in turn, a = `alpha` times its staleness factor.

    FedAsync (Xie, Koyejo and Gupta 2019, Algorithm 1). Its line reads x_t = (1 - a) x_{t-1} + a x_new with a = alpha s(t - tau)
    and tau the stamp of the model that the worker received. Literally, an update from the present model x_{t-1} has t - tau =
    1; but the text (Section 5.2) has s = 1 at t = tau, for an update that no other has overtaken. Staleness is t - 1 - tau
    here, so that a fresh update has 0 and counts in full. (Read literally, a would be lower; for a fresh update with the
    polynomial factor by 2^-exponent.) Late in training the paper's experiments lower alpha (by half at epoch 800, as recalled):
    `mixing_decay`.

    Example:
        >>> import numpy as np
        >>> import torch
        >>> arrivals = Arrivals(np.array([1]), np.zeros(1, int), None, lambda: np.random.default_rng(1))
        >>> Mixing(alpha=0.5).step(torch.zeros(1), torch.zeros(1, 1), torch.tensor([[4.0]]), arrivals, np.ones(1))
        tensor([2.])
    """

    def share(self, version: int) -> float:
        """Return alpha of the step to the model of `version`, from 1: times all factors of `mixing_decay` that hold by then."""
        decay = [] if self.mixing_decay is None else self.mixing_decay
        factors = [factor for first_version, factor in decay if version >= first_version]
        return self.alpha * math.prod(factors)

    def step(self, model: Tensor, starts: Tensor, updates: Tensor, arrivals: Arrivals, factors: FloatArray) -> Tensor:
        result, share = model.clone(), self.share(arrivals.version + 1)
        for start, update, factor in zip(starts, updates, factors.tolist(), strict=True):
            result.lerp_(start + update, share * factor)
        return result.sub_(model)


class MajorityVote(MajorityVoteParameters, PlainUpdates):
    """theta <- theta + learning_rate sign(sum of s_i sign(update_i)), s_i the staleness factors: signSGD with majority vote.

    Bernstein, Wang, Azizzadenesheli and Anandkumar, "signSGD", ICML 2018, Algorithm 2, where an update is minus a gradient.
    Every client has one vote, whatever its samples; a zero is no vote.

    Example:
        >>> import numpy as np
        >>> import torch
        >>> arrivals = Arrivals(np.array([1, 1, 1]), np.zeros(3, int), None, lambda: np.random.default_rng(1))
        >>> updates = torch.tensor([[1.0], [5.0], [-9.0]])
        >>> MajorityVote(learning_rate=0.5).step(torch.zeros(1), torch.zeros(3, 1), updates, arrivals, np.ones(3))
        tensor([0.5000])
    """

    votes = True

    def step(self, model: Tensor, starts: Tensor, updates: Tensor, arrivals: Arrivals, factors: FloatArray) -> Tensor:
        direction = sum_weighted(factors, updates.sign()).sign_()
        if self.tie == "random":
            # 0 or 1 for each number, also where there is no tie, becomes -1 or 1.
            drawn = arrivals.generator().integers(0, 2, len(direction), dtype=np.int8)
            direction = direction.where(direction != 0, direction.new_tensor(2.0 * drawn - 1.0))
        return direction.mul_(self.learning_rate)


AGGREGATIONS: dict[str, Callable[..., Aggregation]] = {
    "size": BySize,
    "equal": Equal,
    "fixed-share": FixedShare,
    "contribution": ByContribution,
    "mixing": Mixing,
    "majority-vote": MajorityVote,
}
STALENESS: dict[str, Callable[..., Staleness]] = {"none": NoStaleness, "polynomial": Polynomial, "hinge": HingeStaleness}


def check_factors(factors: FloatArray, staleness: IntArray) -> FloatArray:
    """Return the `factors` (n,) of a rule as float64.

    Raises:
        AnswerError: they are not numbers from 0 to 1, one for each of `staleness` (n,).
    """
    array = np.asarray(factors)
    are_numbers = array.shape == staleness.shape and array.dtype.kind in "fiub"
    if not are_numbers or not ((array >= 0) & (array <= 1)).all():
        raise AnswerError("staleness", "factor", factors, f"must be {len(staleness)} numbers between 0 and 1")
    return array.astype(np.float64)


def check_step(method: str, step: Tensor, like: Tensor) -> Tensor:
    """Return the `step` that `method`, an aggregation or a server optimizer, returned.

    Raises:
        AnswerError: it does not have the shape of `like` (d,).
    """
    if not torch.is_tensor(step) or step.shape != like.shape:
        answer = tuple(step.shape) if torch.is_tensor(step) else type(step).__name__
        raise AnswerError(method, "step", answer, f"must be a tensor of shape {tuple(like.shape)}")
    return step
