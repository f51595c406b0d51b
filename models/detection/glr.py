"""Base class of the generalized likelihood ratio tests of a change in a Bernoulli stream, exact and on a grid.

Source: Besson, Kaufmann, Maillard and Seznec 2022 (JMLR 23), as used by GLR-CUCB (Zhou et al. 2020; Li et al., Algorithm 2,
lines 15-23). For D observations the statistic is

    G(D) = max over s of  s kl(mean of the first s, m) + (D - s) kl(mean of the others, m),   m the mean of all D,

kl the Bernoulli divergence; a change is declared if G(D) >= (1 + 1/D) ln(3 D sqrt(D) / delta).

Let l be the greatest Bernoulli log-likelihood of a segment (one parameter for all of it). Then G(D) = A(D) - l(1..D), where
A(D) is the greatest l(1..s) + l(s+1..D). The l of a segment never rises as the segment gets longer, so A never rises: its last
value bounds it from then on. The maximum over s is computed only when that bound reaches the threshold; no decision changes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from math import log
from typing import Annotated

from annotated_doc import Doc

from models.detection.protocols import State, check_probability, check_unit

_SLACK = 1e-6
"""Distance from the threshold within which the maximum is computed: above the rounding of 10^9 observations' log-likelihood."""


def threshold(count: int, delta: float) -> float:
    """Return (1 + 1/D) ln(3 D sqrt(D) / delta) for D = `count` >= 1 observations."""
    return (1.0 + 1.0 / count) * (1.5 * math.log(count) + math.log(3.0 / delta))


class Glr(ABC):
    """Base class of GLR tests. Subclasses store what they need of the path of sums and maximise over the split points."""

    def __init__(
        self,
        *,
        delta: Annotated[
            float,
            Doc("Largest probability of a false alarm on a stationary Bernoulli stream of any length."),
        ] = 0.001,
    ) -> None:
        check_probability("delta", delta)
        self._log_3_delta = math.log(3.0 / delta)
        self.reset()

    @property
    def count(self) -> int:
        """D, the number of observations since the last reset."""
        return self._count

    def reset(self) -> None:
        """Forget all observations."""
        self._count = 0
        self._total = 0.0
        self._ceiling = 0.0
        """Upper bound of A(D): its value when it was last computed."""
        self._clear()

    def update(self, x: float) -> bool:
        """Take in `x` in [0, 1]; return True if the statistic has reached its threshold. Raises ParameterError for another x."""
        if not 0.0 <= x <= 1.0:
            check_unit(x)  # raises; the test before it saves a call for each observation
        self._count = count = self._count + 1
        self._total = total = self._total + x
        pooled = _log_likelihood(count, total)
        self._extend(count, total, pooled)
        # `threshold(count, delta)`, without its second logarithm.
        limit = (1.0 + 1.0 / count) * (1.5 * log(count) + self._log_3_delta)
        if self._ceiling - pooled < limit - _SLACK:
            return False
        best = self._best(count, total)
        # On a grid the next split point lies at or after this observation, and l(1..D) bounds its contribution.
        self._ceiling = best if best > pooled else pooled
        return best - pooled >= limit

    def statistic(self) -> float:
        """Return G(D); 0 for fewer than two observations."""
        best = self._best(self._count, self._total)
        return max(0.0, best - _log_likelihood(self._count, self._total))

    def state_dict(self) -> State:
        return {"count": self._count, "total": self._total, "ceiling": self._ceiling, "path": self._path()}

    def load_state_dict(self, state: State) -> None:
        self._count, self._total, self._ceiling = int(state["count"]), float(state["total"]), float(state["ceiling"])
        self._load_path(state["path"])

    @abstractmethod
    def _clear(self) -> None:
        """Forget the path."""

    @abstractmethod
    def _extend(self, count: int, total: float, likelihood: float) -> None:
        """Extend the path to (`count`, `total`); `likelihood` is l of the segment 1..count."""

    @abstractmethod
    def _best(self, count: int, total: float) -> float:
        """Return A, the greatest l(1..s) + l(s+1..count) over the split points; -inf if there are none."""

    @abstractmethod
    def _path(self) -> State:
        """Return the path, as plain data."""

    @abstractmethod
    def _load_path(self, state: State) -> None:
        """Restore a path that `_path` returned."""


def _log_likelihood(count: int, total: float) -> float:
    """Return the greatest Bernoulli log-likelihood of n = `count` observations that sum to t = `total`.

    It is t ln t + (n - t) ln(n - t) - n ln n, with 0 ln 0 = 0.
    """
    rest = count - total
    value = -count * log(count) if count else 0.0
    if total > 0.0:
        value += total * log(total)
    if rest > 0.0:
        value += rest * log(rest)
    return value
