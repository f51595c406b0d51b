"""Bound on the loss of asynchronous federated learning by deliveries and ages (Li et al., Theorem 1, eq. 10, and Appendix A).

After T rounds E[F(w_T) - F*] is at most the sum of four terms:

    Omega^T (F(w_0) - F*)                                     what is left of the start
    alpha_1 sum over rounds of Omega^(...) (1 - |S_t|/K)^2 G^2      participation: |S_t| of K updates arrive
    alpha_2 sum over rounds of Omega^(...) (squared age of t)       staleness
    alpha_3 (1 - Omega^T) / (1 - Omega)                       noise and drift of the local steps

`printed_constants` has the constants of eq. 10. They do not follow from the proof, and no run is sure to stay below them:
- (57) bounds ||grad F||^2 from above, where (56), whose factor of it is negative, needs it from below:
  ||grad F||^2 >= 2 mu (F - F*) (Polyak and Lojasiewicz), with mu in the place of L in Omega. For mu < L gradient descent breaks
  the printed bound.
- Omega's last summand is 9 eta^2 L^2 lambda, where (56) has lambda^2. alpha_3 has eta^2 where (55), without its forgotten eta^2,
  gives eta^4, and lambda^3 for lambda^2: larger than what was proved while eta <= 1.
- A_1 (53) compares the mean of the arrived updates with that of all held updates, not with the gradient: it leaves out noise,
  drift and staleness. The age that counts is that of the model an update was made from, not of the client after the round.
- The sums begin with round 1, although the model moves in round 0 already. Remark 2 asks for eta < 9 L, Theorem 1 for
  eta < 1/(9 L).

`proved_constants` has constants that the same steps do give. With eta_ = eta lambda <= 1 / L, Gamma the mean of the updates
that arrived,

    F(w_(t+1)) - F(w_t) <= -eta_/2 ||grad F||^2 + eta_/2 ||Gamma - grad F||^2        (smoothness; 1 - eta_ L >= 0)

and Gamma - grad F is a sum of four terms, whose squares are at most: noise, sigma^2; participation, 4 (1 - |S|/K)^2 G^2 (eq.
50, for equal weights); drift over the local steps, L^2 eta^2 G^2 (lambda - 1)(2 lambda - 1)/6; and staleness, L^2 eta_^2 G^2
times the mean over clients of d_k^2. d_k is the age before the round, less 1, of client k: the rounds since the server sent the
model from which the client made the update that it holds. Four times the sum of these bounds the square of all. A round in
which nothing arrives is covered: F stays, and F - F* <= G^2 / (2 mu).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.errors import ParameterError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Assumptions 1 to 3 and the local steps. Raises ParameterError, naming the parameter, if they contradict each other."""

    smoothness: float
    """L: largest curvature of any F_k."""
    growth: float
    """mu of Polyak and Lojasiewicz: ||grad F||^2 >= 2 mu (F - F*); at most L."""
    gradient_norm: float
    """G: E||stochastic gradient||^2 <= G^2 at every point visited."""
    noise: float
    """sigma: E||stochastic gradient - gradient||^2 <= sigma^2."""
    step_size: float
    """eta of the local steps."""
    local_steps: int
    """lambda, the number of local steps (E in eq. 5)."""
    clients: int
    """K, the number of clients."""

    def __post_init__(self) -> None:
        for name in ("smoothness", "growth", "step_size"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ParameterError(name, value, "must be finite and > 0")
        for name in ("gradient_norm", "noise"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0.0):
                raise ParameterError(name, value, "must be finite and >= 0")
        for name in ("local_steps", "clients"):
            if getattr(self, name) < 1:
                raise ParameterError(name, getattr(self, name), "must be >= 1")
        if self.growth > self.smoothness:
            raise ParameterError("growth", self.growth, f"must be <= smoothness, {self.smoothness!r}")


class Constants(NamedTuple):
    """Factors of eq. 10."""

    omega: float
    """Omega, by which the bound shrinks in a round."""
    participation: float
    """alpha_1 G^2."""
    age: float
    """alpha_2."""
    floor: float
    """alpha_3."""


class Terms(NamedTuple):
    """The four terms after each round, each (T,), in the order of the head of this file."""

    start: FloatArray
    participation: FloatArray
    age: FloatArray
    floor: FloatArray

    @property
    def total(self) -> FloatArray:
        """Bound on E[F(w_T) - F*]; (T,)."""
        return self.start + self.participation + self.age + self.floor


def printed_constants(problem: Problem) -> Constants:
    """Return the constants of eq. 10 as printed, which its proof does not give.

    They belong to the square of the mean age after the round. Raises ParameterError unless eta < 1 / (9 L).
    """
    L, eta, steps, G2 = problem.smoothness, problem.step_size, problem.local_steps, problem.gradient_norm**2
    if not 9.0 * L * eta < 1.0:
        raise ParameterError("step_size", eta, f"Theorem 1 wants it below 1 / (9 L), {1.0 / (9.0 * L):.3g}")
    noise2 = problem.noise**2
    drift = 3.0 * L**3 * eta**2 * G2 * steps**3 * (steps - 1) * (2 * steps - 1) / 4.0
    return Constants(
        omega=1.0 - eta * steps * L + 9.0 * eta**2 * L**2 * steps,
        participation=(6.0 * L * (eta * steps) ** 2 + 2.0 * eta * steps) * G2,
        age=9.0 * problem.clients * L**3 * (eta * steps) ** 4 * (noise2 + G2),
        floor=1.5 * L * (eta * steps) ** 2 * noise2 + drift,
    )


def proved_constants(problem: Problem) -> Constants:
    """Return the constants that the steps of the proof give (see the head of this file).

    They belong to the mean over clients of (age before the round - 1)^2, `stale_squares`. Raises ParameterError unless eta
    lambda <= 1 / L.
    """
    L, eta, steps, G2 = problem.smoothness, problem.step_size, problem.local_steps, problem.gradient_norm**2
    stride = eta * steps
    if not stride * L <= 1.0:
        raise ParameterError("step_size", eta, f"times {steps} local steps it must be <= 1 / L, {1.0 / L:.3g}")
    drift = (L * eta) ** 2 * G2 * (steps - 1) * (2 * steps - 1) / 6.0
    return Constants(
        omega=1.0 - stride * problem.growth,
        participation=8.0 * stride * G2,
        age=2.0 * stride**3 * L**2 * G2,
        floor=2.0 * stride * (problem.noise**2 + drift),
    )


def stale_squares(ages: IntArray) -> FloatArray:
    """Return the mean over clients of (age before the round - 1)^2 from ages (T, K) after each round; (T,).

    `proved_constants` needs it. Ages are 1 before the first round (eq. 8): all clients start from the first model.

    Example:
        >>> import numpy as np
        >>> stale_squares(np.array([[1, 2], [2, 3], [3, 1]]))
        array([0. , 0.5, 2.5])
    """
    before = np.vstack([np.ones((1, ages.shape[1]), ages.dtype), ages[:-1]])
    squares: FloatArray = ((before - 1.0) ** 2).mean(axis=1)
    return squares


def terms(constants: Constants, *, clients: int, gap: float, delivered: IntArray, squared_ages: FloatArray) -> Terms:
    """Return the four terms of eq. 10 after each of T rounds, with rounds 1 to T in the sums.

    `gap`: F(w_0) - F*; `delivered` (T,): |S_t|; `squared_ages` (T,): the squares to which the constants belong.

    Raises:
        ParameterError: shapes that differ, or values outside their ranges.
    """
    if delivered.shape != squared_ages.shape or delivered.ndim != 1:
        shown = f" has shape {squared_ages.shape}"
        raise ParameterError("squared_ages", squared_ages, f"must be {delivered.shape}, that of delivered", shown=shown)
    if not ((delivered >= 0) & (delivered <= clients)).all():
        raise ParameterError("delivered", delivered, f"must be between 0 and the number of clients, {clients}")
    if not (math.isfinite(gap) and gap >= 0.0):
        raise ParameterError("gap", gap, "must be finite and >= 0")
    absent_squared = (1.0 - delivered / clients) ** 2
    start: FloatArray = gap * np.power(constants.omega, np.arange(1, len(delivered) + 1, dtype=np.float64))
    return Terms(
        start=start,
        participation=_accumulate(constants.omega, constants.participation * absent_squared),
        age=_accumulate(constants.omega, constants.age * squared_ages),
        floor=_accumulate(constants.omega, np.full(len(delivered), constants.floor)),
    )


def _accumulate(omega: float, added: FloatArray) -> FloatArray:
    """Return x_t = `omega` x_(t - 1) + `added`_t from x_0 = 0; (T,)."""
    values = np.empty(len(added))
    value = 0.0
    for t, addend in enumerate(added.tolist()):
        value = omega * value + addend
        values[t] = value
    return values
