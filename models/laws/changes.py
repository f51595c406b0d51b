"""Change points: laws that follow one another as rounds or seconds pass, and random draws of times and sizes of change.

A timeline has `at(round, time_s)`, which returns the law in force and the time up to which it stays in force within the round.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Generic, Literal, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from models.errors import ParameterError

LawT = TypeVar("LawT")
_KEPT = 8
"""Laws that `LazyLaws` keeps after they were built."""


class LazyLaws(Sequence[LawT], Generic[LawT]):
    """Sequence of `count` laws, built on demand: `make(j)` builds law j, the same each time. The last few are kept.

    It saves memory: a law of 100,000 clients holds an array for each parameter. A law may be dropped and built again, because
    the engine saves the state of the law in force and hands it to the next one.
    """

    def __init__(self, *, count: int, make: Callable[[int], LawT]) -> None:
        self._count = count
        self._make = lru_cache(maxsize=_KEPT)(make)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> LawT: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[LawT]: ...

    def __getitem__(self, place: int | slice) -> LawT | Sequence[LawT]:
        # Indexing a range gives the places of a slice, resolves negative places, and raises IndexError beyond the ends.
        if isinstance(place, slice):
            return [self[j] for j in range(self._count)[place]]
        return self._make(range(self._count)[place])


class Unchanging(Generic[LawT]):
    """Timeline of one law for the whole run.

    Example:
        >>> Unchanging("law").at(5, 10.0)
        ('law', inf)
    """

    fixed = True
    """True: the law never changes."""
    unit: Literal["rounds", "seconds"] = "rounds"
    starts: Sequence[float] = ()
    """Change points: none."""
    segment_means = None
    """None: a law in general has no known means."""

    def __init__(self, law: LawT) -> None:
        self._answer = (law, math.inf)
        self.laws: list[LawT] = [law]
        """All laws, in the order in which they come into force."""

    def at(self, round: int, time_s: float) -> tuple[LawT, float]:
        return self._answer


class Piecewise(Generic[LawT]):
    """Timeline in which `laws[j]` holds from `starts[j - 1]` on; `laws[0]` from the beginning.

    unit "rounds": a start is the first round (>= 2) of the new law, and no law changes within a round; "seconds": a start is a
    time > 0, and a change in the middle of a round takes effect there. Raises ParameterError unless the starts are finite and
    strictly increasing, one fewer than the laws.

    Example:
        >>> Piecewise(laws=["first", "second"], starts=[3]).at(3, 0.0)
        ('second', inf)
    """

    fixed = False
    segment_means = None
    """None: laws in general have no known means."""

    def __init__(self, *, laws: Sequence[LawT], starts: list[float], unit: Literal["rounds", "seconds"] = "rounds") -> None:
        if unit not in ("rounds", "seconds"):
            raise ParameterError("unit", unit, "must be 'rounds' or 'seconds'")
        if len(laws) != len(starts) + 1:
            raise ParameterError(
                "starts", starts, f"must hold {len(laws) - 1} change points, one fewer than the {len(laws)} laws"
            )
        # Round 1, or time 0, begins under the first law.
        beginning, allowed = (1, "whole and >= 2") if unit == "rounds" else (0, "finite and > 0 seconds")
        for j, start in enumerate(starts):
            if not math.isfinite(start) or start <= beginning:
                raise ParameterError("starts", starts, f"change point {start!r} must be {allowed}")
            if unit == "rounds" and start != int(start):
                raise ParameterError("starts", starts, f"change point {start!r} must be a whole number of rounds")
            if j and start <= starts[j - 1]:
                raise ParameterError("starts", starts, f"{start!r} must come after {starts[j - 1]!r}")
        self.laws: Sequence[LawT] = laws
        """All laws, in the order in which they come into force."""
        self.starts = [float(start) for start in starts]
        """Change points, ascending."""
        self.unit = unit
        """Unit of the change points."""
        self._by_round = unit == "rounds"

    def at(self, round: int, time_s: float) -> tuple[LawT, float]:
        # The number of change points up to now is the number of the law.
        if self._by_round:
            return self.laws[bisect_right(self.starts, round)], math.inf
        segment = bisect_right(self.starts, time_s)
        until_s = self.starts[segment] if segment < len(self.starts) else math.inf
        return self.laws[segment], until_s


def draw_change_points(
    *,
    count: int,
    horizon: float,
    min_spacing: float,
    rng: np.random.Generator,
    unit: Literal["rounds", "seconds"] = "seconds",
) -> NDArray[np.float64]:
    """Draw `count` change points, ascending: uniform over all placements that are at least `min_spacing` apart.

    The first segment begins at time 0 (round 1) and lasts `min_spacing`, too. The last change comes before `horizon` seconds
    (not after round `horizon`), and the segment after it may be short. With unit "rounds" the points are whole, each the first
    round of a new law. Raises ParameterError if `count` segments do not fit.
    """
    if unit not in ("rounds", "seconds"):
        raise ParameterError("unit", unit, "must be 'rounds' or 'seconds'")
    if count < 0:
        raise ParameterError("count", count, "must be >= 0")
    if not (math.isfinite(horizon) and horizon > 0):
        raise ParameterError("horizon", horizon, "must be finite and > 0")
    if not (math.isfinite(min_spacing) and min_spacing >= 0):
        raise ParameterError("min_spacing", min_spacing, "must be finite and >= 0")
    # Take the spacings out of the horizon, draw points in what remains, and put the spacings back: no draw is rejected.
    spacings_before = np.arange(1, count + 1)
    if unit == "seconds":
        slack = horizon - count * min_spacing
        if slack <= 0:
            raise ParameterError("count", count, f"{count} segments of {min_spacing!r} s do not fit into {horizon!r} s")
        return np.sort(rng.uniform(0.0, slack, size=count)) + spacings_before * min_spacing
    # Distinct rounds are one round apart already; only the rest of the spacing is taken out and put back. Round 1 is no change.
    rest = max(math.ceil(min_spacing), 1) - 1
    free_rounds = math.floor(horizon) - 1 - count * rest
    if free_rounds < count:
        raise ParameterError("count", count, f"{count} segments of {min_spacing!r} rounds do not fit into {horizon!r} rounds")
    chosen = np.sort(rng.choice(free_rounds, size=count, replace=False))
    return (2 + chosen + spacings_before * rest).astype(np.float64)


def draw_factor(*, low: float, high: float, rng: np.random.Generator, count: int = 1) -> NDArray[np.float64]:
    """Draw `count` sizes of change: factors in [`low`, `high`] with a uniform logarithm, so that 2 and 1/2 are equally likely."""
    if not (math.isfinite(low) and low > 0):
        raise ParameterError("low", low, "must be finite and > 0")
    if not (math.isfinite(high) and high >= low):
        raise ParameterError("high", high, f"must be finite and >= low = {low!r}")
    if count < 0:
        raise ParameterError("count", count, "must be >= 0")
    # Rounding in exp may exceed the ends.
    return np.clip(np.exp(rng.uniform(math.log(low), math.log(high), size=count)), low, high)
