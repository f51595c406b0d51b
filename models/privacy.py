"""Privacy budgets and their accounting: the leak of each release of a client, and of all its releases.

PAUSE (Peleg et al.), Section III-A: the i-th participation of a client spends epsilon_i, the sum of all epsilon_i is finite
(eq. 6), and by sequential composition (Theorem 2) the leak after T releases is the sum of the first T. The learner adds the
noise that makes one release epsilon_i-private; `guarantee` puts into words what it guarantees.
"""

from __future__ import annotations

import math
import sys
from typing import Annotated, Literal, Protocol

import numpy as np
from annotated_doc import Doc
from numpy.typing import NDArray

from models.errors import ParameterError
from netsim.core.state import StateFields

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

NoiseMode = Literal["per_coordinate", "l1", "gaussian_per_coordinate", "l2", "none"]


class Schedule(Protocol):
    """Budgets of the successive releases of one client. A user's own class with these three members is accepted."""

    @property
    def total(self) -> float:
        """Sum of all budgets (eq. 6): the greatest possible leak of a client."""

    def epsilon(self, i: int) -> float:
        """Return the budget of the i-th release, i >= 1; 0 means that the client must not release again.

        It is also asked for releases that may never happen.
        """

    def leak(self, T: IntArray) -> FloatArray:
        """Return the composed leak after `T` releases (any shape, entries >= 0); non-decreasing, 0 at 0, same shape."""


class GeometricSchedule:
    """Schedule of budgets epsilon_i = epsilon_total (e^eta - 1) e^(-eta i) (PAUSE, after eq. 6).

    The leak after T releases is epsilon_total (1 - e^(-eta T)). The budget never reaches 0: where e^(-eta i) underflows, it is
    the smallest normal number.

    Example:
        >>> import numpy as np
        >>> GeometricSchedule(epsilon_total=1.0, eta=0.5).leak(np.array([0, 1, 2])).round(3)
        array([0.   , 0.393, 0.632])
    """

    def __init__(
        self,
        *,
        epsilon_total: Annotated[float, Doc("Budget of all participations together, in natural units of privacy loss, > 0.")],
        eta: Annotated[float, Doc("Decay per participation, > 0.")],
    ) -> None:
        if not (math.isfinite(epsilon_total) and epsilon_total > 0):
            raise ParameterError("epsilon_total", epsilon_total, "must be finite and > 0")
        # Beyond 700, e^eta would overflow; one release would spend all but e^(-700) of the budget anyway.
        if not 0 < eta <= 700:
            raise ParameterError("eta", eta, "must be > 0 and <= 700")
        self.total = float(epsilon_total)
        self._eta = float(eta)

    def epsilon(self, i: int) -> float:
        if i < 1:
            raise ParameterError("i", i, "participations count from 1")
        # (e^eta - 1) e^(-eta i) written as (1 - e^(-eta)) e^(-eta (i - 1)), which has no large factor.
        spend = self.total * -math.expm1(-self._eta) * math.exp(-self._eta * (i - 1))
        return max(spend, sys.float_info.min)

    def leak(self, T: IntArray) -> FloatArray:
        return -self.total * np.expm1(-self._eta * np.asarray(T, np.float64))


class ExplicitSchedule:
    """Schedule by a finite list of budgets: the i-th release spends `epsilons[i - 1]`; after the last, nothing is left.

    A client that has used up the list has `epsilon` 0 and a privacy reward of exactly 0. `Ledger.exhausted` marks it, so that
    it can be kept out of selection, and `Ledger.charge` refuses it.

    Example:
        >>> import numpy as np
        >>> ExplicitSchedule(epsilons=[0.5, 0.25]).leak(np.array([0, 1, 2, 3]))
        array([0.  , 0.5 , 0.75, 0.75])
    """

    def __init__(
        self,
        *,
        epsilons: Annotated[list[float], Doc("Budgets in the order of participations; after the last, nothing is left.")],
    ) -> None:
        if len(epsilons) == 0:
            raise ParameterError("epsilons", [], "must hold at least one budget")
        for i, value in enumerate(epsilons):
            if not (math.isfinite(value) and value > 0):
                raise ParameterError("epsilons", value, "must be finite and > 0", shown=f"[{i}] = {value!r}")
        self._epsilons = [float(value) for value in epsilons]
        if not math.isfinite(sum(self._epsilons)):
            raise ParameterError("epsilons", epsilons, "their sum must be finite; give smaller budgets", shown="")
        self._leaks = np.concatenate(([0.0], np.cumsum(np.asarray(self._epsilons))))
        """Leak by number of releases."""
        self.total = float(self._leaks[-1])

    def epsilon(self, i: int) -> float:
        if i < 1:
            raise ParameterError("i", i, "participations count from 1")
        return self._epsilons[i - 1] if i <= len(self._epsilons) else 0.0

    def leak(self, T: IntArray) -> FloatArray:
        leaks: FloatArray = self._leaks[np.minimum(T, len(self._epsilons))]
        return leaks


class NoSchedule:
    """Null object without a privacy mechanism: every release is free (epsilon inf, no noise) and leaks 0, so p_k = 1 (eq. 7)."""

    total = math.inf

    def epsilon(self, i: int) -> float:
        if i < 1:
            raise ParameterError("i", i, "participations count from 1")
        return math.inf

    def leak(self, T: IntArray) -> FloatArray:
        return np.zeros(np.shape(T))


class Ledger(StateFields):
    """Counts every client's releases and composes their leak (PAUSE, Theorem 2); satisfies `Accountant`.

    `participations` (K,) and `exhausted` (K,) are live arrays that other parts read. A client is exhausted when the schedule
    has no budget left for its next release (epsilon 0); it must not be selected any more, and `charge` refuses it.
    """

    state_fields = ("participations",)
    spends = True

    def __init__(self, *, clients: int, schedule: Schedule) -> None:
        if clients < 1:
            raise ParameterError("clients", clients, "must be >= 1")
        if not schedule.epsilon(1) > 0:
            reason = f"the budget of the first release is {schedule.epsilon(1)!r}; it must be > 0"
            raise ParameterError("schedule", schedule, reason, shown="")
        self.participations: IntArray = np.zeros(clients, np.int64)
        self.exhausted: BoolArray = np.zeros(clients, np.bool_)
        self._schedule = schedule
        self._most = 0
        """Largest number of releases of a client."""
        # Budget and leak by number of releases, extended as the counts grow, so that a charge is two look-ups.
        self._epsilons = [0.0]
        self._leaks = [0.0]
        self._table: FloatArray = np.zeros((2, 1))
        """Both as an array (2, n)."""
        self._ends = False
        """True if a budget in the table is 0: some client may be exhausted."""

    def charge(self, client: int) -> tuple[float, float]:
        """Count one more release of `client`. Return its budget epsilon_i and its composed leak, this release included.

        Raises:
            ParameterError: the client has no budget left.
        """
        count = self.participations.item(client) + 1
        if count >= len(self._leaks):
            # Twice the needed length, so that the schedule is seldom asked.
            self._extend(2 * count)
        epsilon = self._epsilons[count]
        if not epsilon > 0:
            reason = (
                f"has spent its whole privacy budget in {count - 1} releases; leave exhausted clients out of selection or use a "
                "schedule that never ends"
            )
            raise ParameterError("client", client, reason)
        self.participations[client] = count
        if count > self._most:
            self._most = count
        # Mark the client now: nothing is left for its next release.
        if not self._epsilons[count + 1] > 0:
            self.exhausted[client] = True
        return epsilon, self._leaks[count]

    def charge_all(self, clients: IntArray) -> tuple[FloatArray, FloatArray]:
        """Count one more release of each of distinct `clients` (n,), n >= 1. Return their budgets (n,) and composed leaks (n,).

        Fast path of `charge` for many clients, with the same result. Raises ParameterError if one of them has no budget left.
        """
        counts = self.participations[clients] + 1
        most = int(counts.max())
        if most >= self._table.shape[1] - 1:
            # Twice the needed length, so that the table is seldom rebuilt.
            self._extend(2 * most)
            self._table = np.array([self._epsilons[: len(self._leaks)], self._leaks])
            self._ends = not (self._table[0, 1:] > 0).all()
        epsilons: FloatArray = self._table[0, counts]
        if self._ends and not (epsilons > 0).all():
            # Raises for the first client without a budget.
            self.charge(int(clients[np.argmin(epsilons > 0)]))
        self.participations[clients] = counts
        self._most = max(self._most, most)
        if self._ends:
            self.exhausted[clients] = ~(self._table[0, counts + 1] > 0)
        return epsilons, self._table[1, counts]

    def max_leak(self) -> float:
        """Return the largest composed leak over clients: that of the client with the most releases, because leaks only grow."""
        return self._leaks[self._most]

    def leaks(self) -> FloatArray:
        """Return the composed leak of every client so far; (K,)."""
        return np.asarray(self._schedule.leak(self.participations), np.float64)

    def on_load(self) -> None:
        """Recompute tables and exhausted clients from the restored counts."""
        self._most = int(self.participations.max())
        self._extend(self._most)
        self.exhausted[:] = ~(np.asarray(self._epsilons)[self.participations + 1] > 0)

    def _extend(self, count: int) -> None:
        """Extend budgets and leaks to `count` releases."""
        if len(self._leaks) <= count:
            leaks = self._schedule.leak(np.arange(len(self._leaks), count + 1))
            self._leaks += np.asarray(leaks, np.float64).tolist()
        # One budget ahead of the count shows that a client has none left for its next release.
        self._epsilons += [float(self._schedule.epsilon(i)) for i in range(len(self._epsilons), count + 2)]


class NoPrivacy(Ledger):
    """Null object of the ledger: counts releases, charges epsilon = inf (no noise), leaks 0, exhausts no client."""

    spends = False

    def __init__(self, *, clients: int) -> None:
        super().__init__(clients=clients, schedule=NoSchedule())


def guarantee(*, mode: NoiseMode, leak: float, dimensions: int, delta: float | None = None, unprotected: int = 0) -> str:
    """Return the guarantee, in words, for a client of composed leak `leak` (sum of its epsilon_i).

    Updates have `dimensions` protected numbers. If further `unprotected` numbers are sent as they are, the guarantee holds for
    the protected ones alone, and the text begins with this.

    `per_coordinate` clamps each coordinate to +-Delta_f/2 and adds Laplace(Delta_f/epsilon_i) to it: epsilon_i-LDP for one
    coordinate, d epsilon_i for the vector. `l1` clips the whole update so that its L1 sensitivity is Delta_f: epsilon_i-LDP for
    the vector (PAUSE, Theorem 1). Several releases compose by the sum (Theorem 2).

    `gaussian_per_coordinate` and `l2` do the same with Gaussian noise, calibrated exactly (Balle and Wang 2018, Theorem 8) to
    (epsilon_i, `delta`)-LDP at L2 sensitivity Delta_f; both numbers compose by the sum.
    """
    if dimensions < 1:
        raise ParameterError("dimensions", dimensions, "must be >= 1")
    if not leak >= 0:
        raise ParameterError("leak", leak, "must be >= 0")
    if unprotected < 0:
        raise ParameterError("unprotected", unprotected, "must be >= 0")
    if unprotected and mode != "none":
        rest = guarantee(mode=mode, leak=leak, dimensions=dimensions, delta=delta)
        return (
            f"No local differential privacy of the whole update: {unprotected} of its {dimensions + unprotected} numbers are "
            f"sent as they are, neither clipped nor noised. For the other {dimensions} taken by themselves: {rest}"
        )
    if mode == "none":
        return "No privacy: updates are released without noise; no local differential privacy holds."
    if mode == "l1":
        return (
            "epsilon-LDP of the whole update: epsilon_i in each release (L1 sensitivity clipped to Delta_f, Laplace noise of "
            f"scale Delta_f/epsilon_i), {leak:.6g} in all releases of a client together."
        )
    if mode == "per_coordinate":
        return (
            "epsilon-LDP of single coordinates only: epsilon_i for one coordinate in each release (clamped to +-Delta_f/2, "
            f"Laplace noise of scale Delta_f/epsilon_i), {leak:.6g} in all releases of a client together; for the vector of "
            f"{dimensions} coordinates the same noise guarantees {dimensions} times as much, {dimensions * leak:.6g}."
        )
    if mode not in ("l2", "gaussian_per_coordinate"):
        raise ParameterError("mode", mode, "must be 'per_coordinate', 'l1', 'gaussian_per_coordinate', 'l2' or 'none'")
    if delta is None or not 0 < delta < 1:
        raise ParameterError("delta", delta, "must be in (0, 1)")
    composed = (
        f"{leak:.6g} in all releases of a client together, and {delta:.6g} in each of them, which add up to {delta:.6g} times "
        "their number"
    )
    if mode == "l2":
        return (
            "(epsilon, delta)-LDP of the whole update: epsilon_i in each release (L2 sensitivity clipped to Delta_f, Gaussian "
            f"noise calibrated to both), {composed}."
        )
    return (
        "(epsilon, delta)-LDP of single coordinates only: epsilon_i for one coordinate in each release (clamped to +-Delta_f/2, "
        f"Gaussian noise calibrated to both), {composed}; for the vector of {dimensions} coordinates the same noise guarantees, "
        f"by adding up, {dimensions} times as much of both: {dimensions * leak:.6g} and {dimensions * delta:.6g} in each release."
    )
